"""A list of photos and texts that a protocol brings along, such as GOAL's `DCI_test.json`.

JSON: a list of objects with `filename` (a path that ends in the photo's name) and `caption`. Else one line a text:
the photo's name, a tab, the text. A photo may be there more than once, with other texts.
"""

import json
from pathlib import Path, PurePosixPath
from typing import Any

from dci import DCIError

Listed = dict[str, tuple[str, ...]]
"""The texts of each photo, by its file name without folder and ending."""


def read_list(path: str | Path) -> Listed:
    """Read a list.

    Args:
        path: The file, in UTF-8.

    Raises:
        DCIError: If it cannot be read, or an item is not as it must be.
    """
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")  # `read_text` would end lines at "\r" too
    except OSError as error:
        raise DCIError(f"{path}: cannot be read ({error.strerror or error}); expected a list of photos") from error
    except UnicodeDecodeError as error:
        raise DCIError(f"{path}: is not UTF-8 ({error}); expected JSON, or lines of name, tab and text") from error
    found: dict[str, list[str]] = {}
    for name, caption in _from_json(text, path) if text.lstrip().startswith(("[", "{")) else _from_lines(text, path):
        found.setdefault(stem_of(name), []).append(caption)
    if not found:
        raise DCIError(f"{path}: is empty; expected JSON, or lines of name, tab and text")
    return {name: tuple(captions) for name, captions in found.items()}


def stem_of(name: str) -> str:
    """A photo's name without folder, in Unix's or Windows' spelling, and ending."""
    return PurePosixPath(name.replace("\\", "/")).stem


def _from_json(text: str, path: str | Path) -> list[tuple[str, str]]:
    try:
        items: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DCIError(f"{path}: not valid JSON ({error})") from error
    if not isinstance(items, list):
        raise DCIError(f"{path}: expected a JSON list of objects with `filename` and `caption`")
    found = []
    for place, item in enumerate(items):
        for name in ("filename", "caption"):
            value = item.get(name) if isinstance(item, dict) else None
            if not isinstance(value, str) or (name == "filename" and not stem_of(value)):
                raise DCIError(f"{path}: item {place}: field `{name}`: expected text")
        found.append((item["filename"], item["caption"]))
    return found


def _from_lines(text: str, path: str | Path) -> list[tuple[str, str]]:
    found = []
    # Not splitlines, which also cuts at characters that may stand in a text.
    for number, line in enumerate(text.split("\n"), start=1):
        name, tab, caption = line.removesuffix("\r").partition("\t")
        if not tab and not name.strip():
            continue
        if not tab or not stem_of(name.strip()):
            raise DCIError(f"{path}: line {number}: expected a photo's file name, a tab, and its text")
        found.append((name.strip(), caption))
    return found
