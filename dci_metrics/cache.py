"""What a model computed, kept on disk: an interrupted run goes on where it stopped, a second one starts at its end."""

import hashlib
import json
import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

import datasets
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dci import DCIError
from dci_metrics.encoders.base import ModelInfo
from dci_metrics.revisions import sha256_of
from dci_metrics.version import __version__

FLUSH = 512
"""Embeddings, or scores, that are held back before they are written: what a run that is killed may cost."""

TEXT_NAME = 16
"""Bytes of a text's hash that name it beside a score."""

logger = logging.getLogger(__name__)


def default_folder() -> Path:
    """Where embeddings and scores are kept unless another folder is named."""
    return Path(datasets.config.HF_CACHE_HOME) / "dci" / "embeddings"


def model_key(model: str | Path, info: ModelInfo) -> str | None:
    """A name for all that decides a model's embeddings, or its scores of pairs, or None where that cannot be told.

    It holds the bytes of every file of the model and its adapter (weights, config, tokenizer, preprocessing) or their
    commit on the Hub, dtype, kind of device, how images and texts are compared, and the versions of what computes.

    Args:
        model: Hub id or folder.
        info: Of the loaded model.
    """
    parts = {"model": _state_of(Path(model), info.revision), "dtype": info.dtype, "backend": info.image_backend}
    # A repository may hold a model in two forms, each read by a library of its own.
    parts |= {"family": info.family, "device": (info.device or "").split(":")[0], "compiled": str(info.compiled)}
    parts |= {"scorer": info.scorer, "question": info.question}
    if info.adapter is not None:
        parts["adapter"] = _state_of(Path(info.adapter), info.adapter_revision)
    if None in (parts["model"], parts.get("adapter", "none")):
        return None
    parts |= {package: metadata.version(package) for package in ("torch", "transformers", "pillow")}
    parts["dci_metrics"] = __version__  # it cuts texts, and asks the question
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def texts_name(name: str, info: ModelInfo) -> str:
    """What a folder of a model is called whose content depends on how far its texts are read; images do not."""
    return "-".join([name, *(str(part) for part in (info.max_tokens, info.stretch) if part is not None)])


def _state_of(path: Path, revision: str | None) -> str | None:
    if not path.exists():
        return revision
    digest = hashlib.sha256()
    for file in sorted(path.glob("*") if path.is_dir() else [path]):
        if file.is_file():
            digest.update(f"{file.name} {sha256_of(file)}\n".encode())
    return digest.hexdigest()


class _Folder:
    """Files of tensors. All there are in the folder are read at once; what is added is written in files of its own.

    Each file holds its keys and a checksum. One that is cut off or altered is reported, removed, and computed again.
    What is in memory and in the files is up to the subclass.

    Args:
        folder: Of one model and one kind of input; made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for path in sorted(folder.glob("*.safetensors")):
            self._read(path)

    def _take(self, keys: list[str], tensors: Mapping[str, Tensor]) -> None:
        """Put what a file holds into memory, or raise if it does not fit together."""
        raise NotImplementedError

    def _write(self, keys: Sequence[str], tensors: Mapping[str, Tensor]) -> None:
        names = json.dumps(list(keys))
        target = self.folder / f"{uuid.uuid4().hex}.safetensors"
        unfinished = target.with_suffix(".unfinished")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file(dict(tensors), unfinished, {"keys": names, "sha256": _checksum(names, tensors)})
            unfinished.replace(target)
        except OSError as error:
            raise DCIError(
                f"{self.folder}: cannot be written ({error.strerror or error}); choose another folder with "
                "--cache-dir, or go without with --no-cache"
            ) from error

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
                metadata = file.metadata()
            if metadata["sha256"] != _checksum(metadata["keys"], tensors):
                raise ValueError("its checksum is wrong")
            self._take(json.loads(metadata["keys"]), tensors)
        # A broken file may raise anything on its way through the reader; whatever it is, the file is of no use.
        except Exception as error:
            logger.warning(f"{path}: is broken ({error}); removed, what it held is computed again")
            path.unlink(missing_ok=True)


class EmbeddingCache(_Folder):
    """Embeddings by key."""

    def __init__(self, folder: Path) -> None:
        self._known: dict[str, Tensor] = {}
        self._new: list[tuple[str, Tensor]] = []
        super().__init__(folder)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Tensor:
        return self._known[key]

    def add(self, keys: Sequence[str], embeds: Tensor) -> None:
        """Keep embeddings; they are on disk after `flush`, or once there are enough of them."""
        for key, embed in zip(keys, embeds, strict=True):
            # A row of a batch would hold the whole batch in memory.
            self._known[key] = embed.clone()
            self._new.append((key, self._known[key]))
        if len(self._new) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what was added.

        Raises:
            DCIError: If the folder cannot be written.
        """
        if self._new:
            embeds = torch.stack([embed for _, embed in self._new]).contiguous()
            self._write([key for key, _ in self._new], {"embeds": embeds})
            self._new.clear()

    def _take(self, keys: list[str], tensors: Mapping[str, Tensor]) -> None:
        self._known.update(zip(keys, tensors["embeds"], strict=True))


class ScoreCache(_Folder):
    """Scores of pairs, by the key of an image and the text.

    There may be a million: in memory a score takes the bytes of its number and of its text's name, and little else.
    """

    def __init__(self, folder: Path) -> None:
        # Per image, for each file or batch: names of texts, one after the other, and their scores.
        self._known: dict[str, list[tuple[bytes, Tensor]]] = {}
        self._new: list[tuple[str, bytes, Tensor]] = []
        super().__init__(folder)

    def find(self, image: str, texts: Iterable[str]) -> dict[str, float]:
        """The scores that are known of some texts."""
        scores: dict[bytes, float] = {}
        for names, numbers in self._known.get(image, ()):
            scores.update(zip(_cut(names), numbers.tolist(), strict=True))
        named = ((text, _name_of(text)) for text in texts) if scores else ()
        return {text: scores[name] for text, name in named if name in scores}

    def add(self, image: str, scores: Mapping[str, float]) -> None:
        """Keep scores by text; they are on disk after `flush`, or once there are enough of them."""
        names = b"".join(map(_name_of, scores))
        numbers = torch.tensor(list(scores.values()), dtype=torch.float32)
        self._known.setdefault(image, []).append((names, numbers))
        self._new.append((image, names, numbers))
        if sum(len(numbers) for *_, numbers in self._new) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what was added.

        Raises:
            DCIError: If the folder cannot be written.
        """
        if self._new:
            tensors = {
                "counts": torch.tensor([len(numbers) for *_, numbers in self._new]),
                "texts": torch.frombuffer(bytearray(b"".join(names for _, names, _ in self._new)), dtype=torch.uint8),
                "scores": torch.cat([numbers for *_, numbers in self._new]),
            }
            self._write([image for image, *_ in self._new], tensors)
            self._new.clear()

    def _take(self, keys: list[str], tensors: Mapping[str, Tensor]) -> None:
        counts = tensors["counts"].tolist()
        texts = [part.numpy().tobytes() for part in tensors["texts"].split([n * TEXT_NAME for n in counts])]
        scores = tensors["scores"].split(counts)
        for image, names, numbers in zip(keys, texts, scores, strict=True):
            self._known.setdefault(image, []).append((names, numbers))


def _name_of(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:TEXT_NAME]


def _cut(names: bytes) -> Iterable[bytes]:
    return (names[i : i + TEXT_NAME] for i in range(0, len(names), TEXT_NAME))


def _checksum(keys: str, tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256(keys.encode())
    for _, tensor in sorted(tensors.items()):
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(tensor.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
