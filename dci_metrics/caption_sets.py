"""COCO's captions and Localized Narratives as rows of the configuration `sdci`: one row a photo, one entry, `base`.

Both are read as they are distributed, each with COCO's photos in `train2017/` and `val2017/`:

    coco:FOLDER                         annotations/captions_train2017.json, annotations/captions_val2017.json
    localized_narratives:FOLDER         coco_train_localized_narratives-00000-of-00004.jsonl and so on,
                                        coco_val_localized_narratives.jsonl; or coco_train_captions.jsonl and
                                        coco_val_captions.jsonl, which are the texts alone, and much smaller
    localized_narratives:FOLDER:PHOTOS  the photos lie in another folder
"""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import PIL.Image

import dci
from dci import DCIError, Row, Skipped

NAMES = ("coco", "localized_narratives")

FOLDERS = {"train": "train2017", "validation": "val2017"}
"""COCO's name of each split; its captions of `test2017` are not public."""

UNKNOWN_SIZE = (1, 1)
"""Stands for the size of a photo that is not there, in rows that are asked for without photos."""

TURNED = (5, 6, 7, 8)
"""EXIF orientations that exchange width and height."""


@dataclass
class _Captioned:
    """One photo's captions, in the file's order.

    Attributes:
        file_name: In its split's folder.
        size: (width, height), where the annotations have it.
    """

    file_name: str
    size: tuple[int, int] | None = None
    captions: list[str] = field(default_factory=list)


def is_caption_set(dataset: Any) -> bool:
    """Whether a dataset is given by a name that is read here."""
    return isinstance(dataset, str) and dataset.startswith(tuple(f"{kind}:" for kind in NAMES))


class CaptionSet:
    """One split.

    Args:
        name: `coco:FOLDER`, `localized_narratives:FOLDER` or `localized_narratives:FOLDER:PHOTOS`.
        split: `train` or `validation`.
        on_error: "raise", or "skip" to pass over photos that are missing or broken. Annotations that are broken are an
            error either way: all photos depend on them.

    Attributes:
        skipped: Photos that were passed over; rows add to it.

    Raises:
        DCIError: If the annotations are not there or not as they must be; it names file, line and field.
    """

    def __init__(self, name: str, split: str, on_error: str = "raise") -> None:
        kind, _, place = name.partition(":")
        if split not in FOLDERS:
            raise DCIError(f"{name}: has no split {split!r} with captions: expected one of {', '.join(FOLDERS)}")
        folder = photos = Path(place).expanduser()
        if kind == "localized_narratives" and ":" in place and not folder.is_dir():
            folder, photos = (Path(part).expanduser() for part in place.rsplit(":", 1))
        if not folder.is_dir():
            raise DCIError(f"{name}: {folder} is no folder; expected {kind}:FOLDER with the files as distributed")
        self.kind, self.on_error = kind, on_error
        self.photos = photos / FOLDERS[split]
        self.skipped: list[Skipped] = []
        read = _read_coco if kind == "coco" else _read_narratives
        self._by_id = read(folder, split)

    def __len__(self) -> int:
        return len(self._by_id)

    def rows(self, photos: bool = True, first: int = 0, of: int = 1) -> Iterator[tuple[int, Row]]:
        """Every `of`-th row from number `first` on, each with its place in the split.

        Args:
            photos: Whether `image` names the photo's file, which is read when its pixels are asked for. Without, photos
                need not be there.
            first: Place of the first row.
            of: Rows from one to the next.

        Raises:
            DCIError: If photos are missing or broken, unless they are to be skipped.
        """
        mine = [(i, *item) for i, item in enumerate(self._by_id.items())][first::of]
        missing = self._missing([item for _, _, item in mine]) if photos else set()
        for i, number, item in mine:
            if item.file_name in missing:
                self.skipped.append(Skipped(str(number), f"photo {item.file_name} is missing"))
                continue
            path = self.photos / item.file_name
            try:
                size = item.size or _size_of(path)
            except DCIError as error:
                if not photos:
                    size = UNKNOWN_SIZE
                elif self.on_error == "raise":
                    raise
                else:
                    self.skipped.append(Skipped(str(number), str(error)))
                    continue
            yield i, _row(number, item, size, path if photos else None)

    def _missing(self, items: list[_Captioned]) -> set[str]:
        """The photos that are not there, found before any work is done."""
        there = {path.name for path in self.photos.iterdir()} if self.photos.is_dir() else set()
        missing = [item.file_name for item in items if item.file_name not in there]
        if missing and self.on_error == "raise":
            elsewhere = f", or name their folder: {self.kind}:FOLDER:PHOTOS" if self.kind != "coco" else ""
            raise DCIError(
                f"{self.photos}: {len(missing)} of {len(items)} photos are missing, the first is {missing[0]}; unpack "
                f"COCO's {self.photos.name}.zip into {self.photos.parent}{elsewhere}, or pass over them with "
                "--on-error skip"
            )
        return set(missing)


def image_cell(path: Path) -> dict[str, Any]:
    """The `image` of a row, whose file is read when its pixels are asked for."""
    return {"bytes": None, "path": str(path)}


def _row(number: int, item: _Captioned, size: tuple[int, int], path: Path | None) -> Row:
    box = [0, 0, *size]
    entry = {
        "key": "base",
        "mask_id": dci.PHOTO,
        "quality": dci.QUALITIES[0],
        "label": None,
        "bbox": box,
        "crop_xyxy": list(box),
        "captions": list(item.captions),
        "caption_clip_score": None,
        "negatives": [],
        "rle": None,
    }
    # `all` and `base` have tests without negatives, and with them the others would be out as well.
    if not item.captions:
        reasons = dict.fromkeys(dci.TESTS, "no captions")
    else:
        reasons = {"hard": "no negatives"}
        if len(item.captions) < 5:
            reasons = {"pick5": "fewer than five captions"} | reasons
    return {
        "image": None if path is None else image_cell(path),
        "image_id": str(number),
        "file_name": item.file_name,
        "width": size[0],
        "height": size[1],
        "entries": [entry],
        "left_out": [{"test": test, "reason": reason} for test, reason in reasons.items()],
    }


def _size_of(path: Path) -> tuple[int, int]:
    """The size of a photo held upright, from the head of its file."""
    try:
        with PIL.Image.open(path) as photo:
            width, height = photo.size
            turned = photo.getexif().get(0x0112, 1) in TURNED
    # PIL raises whatever its decoders meet in a broken file.
    except Exception as error:
        raise DCIError(f"{path}: cannot be read as a photo ({error}); download or unpack it again") from error
    return (height, width) if turned else (width, height)


def _read_coco(folder: Path, split: str) -> dict[int, _Captioned]:
    path = folder / "annotations" / f"captions_{FOLDERS[split]}.json"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise DCIError(
            f"{path}: cannot be read ({error.strerror}); unpack COCO's annotations_trainval2017.zip"
        ) from error
    except (ValueError, RecursionError) as error:
        raise DCIError(f"{path}: is not valid JSON ({error}); unpack it again") from error
    found: dict[int, _Captioned] = {}
    for where, image in _objects(data, "images", path):
        number = _number(image, "id", where)
        if number in found:
            raise DCIError(f"{where}: field `id`: {number} is that of another image as well")
        file_name = _text(image, "file_name", where)
        if Path(file_name).name != file_name:
            raise DCIError(f"{where}: field `file_name`: expected a name without folders, got {file_name!r}")
        size = (_number(image, "width", where, 1), _number(image, "height", where, 1))
        found[number] = _Captioned(file_name, size)
    ids = set()
    for where, annotation in _objects(data, "annotations", path):
        number, annotation_id = _number(annotation, "image_id", where), _number(annotation, "id", where)
        if annotation_id in ids:
            raise DCIError(f"{where}: field `id`: {annotation_id} is that of another annotation as well")
        if number not in found:
            raise DCIError(f"{where}: field `image_id`: there is no image {number} in `images`")
        ids.add(annotation_id)
        found[number].captions.append(_text(annotation, "caption", where))
    return found


def _objects(data: Any, key: str, path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The items of one of COCO's lists, each with where it stands."""
    items = data.get(key) if isinstance(data, dict) else None
    if not isinstance(items, list):
        raise DCIError(f"{path}: field `{key}`: expected a list; is this one of COCO's captions_*.json?")
    for i, item in enumerate(items):
        yield f"{path}: {key}[{i}]", _object(item, f"{path}: {key}[{i}]")


def _read_narratives(folder: Path, split: str) -> dict[int, _Captioned]:
    found: dict[int, _Captioned] = {}
    for path in _narrative_files(folder, f"coco_{FOLDERS[split].removesuffix('2017')}"):
        for where, line in _lines(path):
            number = _number(line, "image_id", where)
            item = found.setdefault(number, _Captioned(f"{number:012d}.jpg"))
            item.captions.append(_text(line, "caption", where))
    return found


def _narrative_files(folder: Path, stem: str) -> list[Path]:
    """The files of one split: the texts alone where they are there, one file, or all of its parts."""
    for name in (f"{stem}_captions.jsonl", f"{stem}_localized_narratives.jsonl"):
        if (folder / name).exists():
            return [folder / name]
    parts = sorted(folder.glob(f"{stem}_localized_narratives-*-of-*.jsonl"))
    if not parts:
        raise DCIError(
            f"{folder}: holds no {stem}_localized_narratives*.jsonl and no {stem}_captions.jsonl; get them from "
            "https://google.github.io/localized-narratives"
        )
    counts = Counter(re.sub(r".*-of-(.*)\.jsonl", r"\1", part.name) for part in parts)
    total = next(iter(counts))
    wanted = int(total) if total.isdecimal() and len(counts) == 1 else len(parts)
    expected = [folder / f"{stem}_localized_narratives-{i:05d}-of-{total}.jsonl" for i in range(wanted)]
    absent = [path.name for path in expected if path not in parts]
    if absent or len(parts) != wanted:
        raise DCIError(f"{folder}: expected all {wanted} parts of {stem}_localized_narratives; {absent} are missing")
    return parts


def _lines(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The objects of a JSONL file, one in memory at a time: the mouse's traces make them large."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                where = f"{path}: line {number}"
                if not line.strip():
                    continue
                try:
                    item = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise DCIError(f"{where}: is not valid JSON ({error}); download the file again") from error
                yield where, _object(item, where)
    except OSError as error:
        raise DCIError(f"{path}: cannot be read ({error.strerror})") from error


def _object(item: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(item, dict):
        raise DCIError(f"{where}: expected an object, got {type(item).__name__}")
    return item


def _number(item: Mapping[str, Any], key: str, where: str, least: int = 0) -> int:
    """A whole number; Localized Narratives writes them as text."""
    value = item.get(key)
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise _wrong(item, key, where, f"a whole number of at least {least}")
    return value


def _text(item: Mapping[str, Any], key: str, where: str) -> str:
    value = item.get(key)
    if not isinstance(value, str) or any("\ud800" <= character <= "\udfff" for character in value):
        raise _wrong(item, key, where, "Unicode text")
    return value


def _wrong(item: Mapping[str, Any], key: str, where: str, expected: str) -> DCIError:
    got = repr(item[key])[:100] if key in item else "nothing"
    return DCIError(f"{where}: field `{key}`: expected {expected}, got {got}")
