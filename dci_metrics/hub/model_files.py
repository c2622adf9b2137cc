"""The files of a run as they may be shown to others: without the paths and names of the machine it ran on."""

import importlib.util
import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from huggingface_hub import ModelCard

from dci import DCIError
from dci_metrics.training.card import use

TEXTS = (".json", ".yaml", ".md", ".txt", ".jinja", ".py")

VOCABULARIES = ("tokenizer.json", "vocab.json", "vocab.txt", "merges.txt")
"""Words and pieces of words, of which one may look like a path."""

AUTO_CLASS = re.compile(r"from transformers import (\w+), AutoProcessor")


class Pushed(Protocol):
    """What the card must know of what is pushed."""

    @property
    def repo(self) -> str: ...
    @property
    def model(self) -> str: ...
    @property
    def datasets(self) -> tuple[str, ...]: ...
    @property
    def is_adapter(self) -> bool: ...


def replaced(text: str, names: Mapping[str, str]) -> str:
    """A text with other names, as they are and as JSON writes them."""
    for old in sorted(names, key=len, reverse=True):
        # A name without a separator may be any word; where it stands for the folder, the card and the result say so.
        if "/" in old or "\\" in old:
            text = text.replace(old, names[old]).replace(json.dumps(old)[1:-1], names[old])
    return text


def public(path: Path, names: Mapping[str, str]) -> bytes:
    """What is uploaded of a file."""
    content = path.read_bytes()
    if path.suffix not in TEXTS or path.name in VOCABULARIES:
        return content
    return replaced(content.decode("utf-8", "surrogateescape"), names).encode("utf-8", "surrogateescape")


def card(found: ModelCard, pushed: Pushed, names: Mapping[str, str]) -> str:
    """The card, for the repo: its title, how it is loaded, and what kind of model it is."""
    if not pushed.is_adapter:
        found = ModelCard(str(found))
        found.data["library_name"] = "transformers"
        found.data["tags"] = [tag for tag in found.data.get("tags") or [] if tag != "lora"]
    text = str(found)
    text = re.sub(r"^# .+$", lambda _: f"# {pushed.repo.partition('/')[2]}", text, count=1, flags=re.MULTILINE)
    before, heading, rest = text.partition("## Use\n")
    section, next_heading, after = rest.partition("\n## ")
    auto_class = AUTO_CLASS.search(section)
    # Else the author has written it anew.
    if heading and auto_class:
        base = pushed.model if pushed.is_adapter else None
        text = f"{before}{use(pushed.repo, base, auto_class[1], pushed.datasets[-1])}\n{next_heading}{after}"
    return replaced(text, names)


def can_read_logs() -> bool:
    """Whether TensorBoard is installed."""
    return importlib.util.find_spec("tensorboard") is not None


def copy_scalars(source: Path, target: Path) -> None:
    """Copy the curves of a TensorBoard file, and nothing else: its text holds every argument, and paths with them."""
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader  # type: ignore[import-untyped]
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]
    from tensorboard.summary.writer.record_writer import RecordWriter  # type: ignore[import-untyped]

    with target.open("wb") as file:
        writer = RecordWriter(file)
        for raw in RawEventFileLoader(str(source)).Load():
            event: Any = Event.FromString(raw)
            values = [value for value in event.summary.value if value.HasField("simple_value")]
            if values or event.HasField("file_version"):
                del event.summary.value[:]
                event.summary.value.extend(values)
                writer.write(event.SerializeToString())
        writer.flush()


def refuse_paths(out: Path, folder: Path) -> None:
    """Make sure that no file tells of this machine's folders.

    Args:
        out: What is to be uploaded.
        folder: Of the run: where the error says that it is to be mended.

    Raises:
        DCIError: If one does.
    """
    # A folder of the root, such as /data, is no secret and may be a word of any text; but somebody's home is.
    private = [path for path in (Path.cwd(), folder.resolve().parent) if len(path.parts) > 2]
    # In a container it may be the root itself, which is in every text.
    private += [Path.home()] if Path.home() != Path("/") else []
    if not private:
        return
    names = "|".join(map(re.escape, sorted(map(str, private), key=len, reverse=True)))
    pattern = re.compile(rf"(?<![\w.\-/])(?:{names})(?![\w.\-])")
    for path in sorted(out.rglob("*")):
        text = _text(path)
        match = pattern.search(text)
        if match is not None:
            name = path.relative_to(out)
            line = text[text.rfind("\n", 0, match.start()) + 1 :].split("\n")[0].strip()
            raise DCIError(f"{folder / name}: names a folder of this machine, in {line[:120]!r}; remove it from there")


def _text(path: Path) -> str:
    if path.suffix in TEXTS and path.name not in VOCABULARIES:
        return path.read_text("utf-8", "replace")
    if path.suffix != ".safetensors":
        return ""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        return file.read(length).decode("utf-8")
