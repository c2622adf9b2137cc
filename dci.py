"""Densely Captioned Images (DCI) and its summarised form (sDCI), read from the files that Meta released.

Two configurations: `full` (human descriptions tied to masks) and `sdci` (summaries that fit CLIP's 77 tokens,
with hard negatives, for the photo and for every mask of at least 224 pixels both ways). One row is one photo.

    load_dataset("dci.py", "sdci", data_dir="RELEASE", trust_remote_code=True)     # datasets 3.6
    Release("RELEASE").rows("test", "sdci")                                       # any version, or none of it

On datasets 4 and later, which run no scripts, `dci build RELEASE --out dci` writes the same rows as Parquet.

A copy on the Hub has no photos, which may not be passed on. Your own are joined to it without being copied:

    attach_photos(load_dataset("you/dci", "sdci"), "sa_000138.tar")

`RELEASE` is a folder that holds `densely_captioned_images/` (unpacked) or `dci.tar.gz`, and the photos: unpacked in
`densely_captioned_images/photos/`, or the archive `sa_000138.tar` left closed.

Paper: Urbanek et al., "A Picture is Worth More Than 77 Text Tokens", CVPR 2024, https://arxiv.org/abs/2312.08578.
"""

# One module a line: datasets 3.6 reads these lines to learn what a loading script needs.
import base64
import collections
import dataclasses
import functools
import hashlib
import io
import json
import math
import os
import posixpath
import shutil
import tarfile
import tempfile
import urllib.parse
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import datasets
import fsspec
import numpy as np
import numpy.typing as npt
import PIL
import PIL.Image
import PIL.ImageOps
import pyarrow as pa
import pycocotools.mask

ANNOTATIONS_URL = "https://dl.fbaipublicfiles.com/densely_captioned_images/dci.tar.gz"
ANNOTATIONS_SHA256 = "d865c244150168d3f25daaad0bf5b70b2123cf3e83ca7b0e207d5b26943c5fc7"
# An archive of the same name that Meta offered before, whose splits.json is wrong.
OLD_ANNOTATIONS_SHA256 = "9caff10cb6324c801d9020638f49925f04de87d897ca8614c599f3c43bef3aeb"
ANNOTATIONS_ARCHIVE = "dci.tar.gz"
PHOTO_ARCHIVE = "sa_000138.tar"
PHOTOS_PAGE = "https://ai.meta.com/datasets/segment-anything-downloads/"

SPLITS = {"train": "train", "validation": "valid", "test": "test"}
"""Our split names, and what splits.json calls them."""

CONFIGS = ("full", "sdci", "both")
"""The configurations; `both` has the columns of the two together, as a built folder stores them."""

QUALITIES = ("ok", "low_quality", "bad")
"""Names of the release's `mask_quality` 0, 1 and 2."""

TESTS = ("all", "pick5", "base", "hard")
"""The paper's subtests as data: which entries and negatives each needs (section 4.1)."""

MAX_BELOW = 100_000
"""No description has more parts than this: a child that two masks share is told twice, and so on without end."""

MIN_SUBCROP = 224
"""A mask is an entry of sDCI when its box is at least this many pixels wide and high."""

PADDING = 0.15
"""A subcrop is the mask's box widened by this share of its width and height on each side."""

PHOTO = -1
"""The mask id that stands for the whole photo."""

CITATION = """\
@InProceedings{Urbanek_2024_CVPR,
    author    = {Urbanek, Jack and Bordes, Florian and Astolfi, Pietro and Williamson, Mary and Sharma, Vasu
                 and Romero-Soriano, Adriana},
    title     = {A Picture is Worth More Than 77 Text Tokens: Evaluating CLIP-Style Models on Dense Captions},
    booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)},
    year      = {2024},
    pages     = {26700-26709}
}
"""

Json = dict[str, Any]
Row = dict[str, Any]
logger = datasets.utils.logging.get_logger(__name__)

# Streaming reads the same local files. `datasets` would else put its own Path, open and os into this module for it, for
# as long as the process lives, and these take a `::` in a folder's name for an address inside of an archive.
_patched_for_streaming = True


class DCIError(ValueError):
    """Something in the user's data is not as it must be; the message says which file, which field, and what to do."""

    def __init__(self, message: str) -> None:
        # One line, also where a file's name or a decoder's message has more.
        super().__init__(" ".join(message.splitlines()))


# --------------------------------------------------------------------------------------------------------------
# Features
# --------------------------------------------------------------------------------------------------------------


def features(config: str) -> datasets.Features:
    """The columns of one configuration.

    Args:
        config: `full` or `sdci`; `both` gives the columns of the two together, as a built folder stores them.
    """
    text, integer = datasets.Value("string"), datasets.Value("int32")
    rle = {"size": [integer], "counts": text}
    photo = {
        "image": datasets.Image(),
        "image_id": text,
        "file_name": text,
        "width": integer,
        "height": integer,
    }
    mask = {
        "mask_id": integer,
        "parent": integer,
        "children": [integer],
        "depth": integer,
        "quality": text,
        "label": text,
        "caption": text,
        "description": text,
        "bbox": [integer],
        "area": datasets.Value("int64"),
        "rle": rle,
    }
    negative = {"kind": text, "text": text, "clip_score": datasets.Value("float64")}
    entry = {
        "key": text,
        "mask_id": integer,
        "quality": text,
        "label": text,
        "bbox": [integer],
        "crop_xyxy": [integer],
        "captions": [text],
        "caption_clip_score": datasets.Value("float64"),
        "negatives": [negative],
        "rle": rle,
    }
    full = {"short_caption": text, "extra_caption": text, "description": text, "masks": [mask]}
    sdci = {"entries": [entry], "left_out": [{"test": text, "reason": text}]}
    columns = {"full": photo | full, "sdci": photo | sdci, "both": photo | full | sdci}
    if config not in CONFIGS:
        raise DCIError(f"no configuration {config!r}: expected one of {', '.join(CONFIGS)}")
    return datasets.Features(columns[config])


# --------------------------------------------------------------------------------------------------------------
# One annotation file
# --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Mask:
    """One annotated region.

    Attributes:
        mask_id: The mask's own `idx`, from which sDCI's keys are made.
        key: The mask's key in `mask_data`; the same as `mask_id` in all data met so far.
        parent: Id of the mask that holds this one, or -1 for the photo.
        children: Ids of the masks right below, in the file's order.
        depth: 0 for a child of the photo.
        quality: 0 ok, 1 low quality or uninteresting, 2 bad.
        label: Short name, or None where the file has none.
        caption: Description, or None where the file has none.
        bbox: (x, y, width, height) in pixels of the photo.
        area: Pixels of the mask.
        png: The mask's bitmap as base64 PNG.
    """

    mask_id: int
    key: str
    parent: int
    children: tuple[int, ...]
    depth: int
    quality: int
    label: str | None
    caption: str | None
    bbox: tuple[int, int, int, int]
    area: int
    png: str

    @property
    def is_subcrop(self) -> bool:
        """Whether sDCI has an entry for this mask."""
        return self.bbox[2] >= MIN_SUBCROP and self.bbox[3] >= MIN_SUBCROP

    @property
    def entry_key(self) -> str:
        """The mask's key in `summaries`, `negatives` and `clip_scores`."""
        return f"m-{self.mask_id}-sc"

    def text(self) -> str | None:
        """The mask's own text: nothing for a bad mask, the label of an uninteresting one, else `label: caption`."""
        if self.quality == 2:
            return None
        return self.label or "" if self.quality == 1 else f"{self.label}: {self.caption}"


@dataclasses.dataclass(frozen=True)
class Annotation:
    """One photo's annotation, checked.

    Attributes:
        name: File name, for messages.
        image_id: Stem of the file name, such as "112956".
        file_name: The photo's file name; its number has nothing to do with `image_id`.
        width: Photo's width in pixels, as the masks count it (None when nothing tells).
        height: Photo's height, likewise.
        masks: By id, in the file's order.
        ignored: How many children and parents were named that do not exist (SAM's masks under 5,000 pixels were
            dropped from the release, their names were not).
    """

    name: str
    image_id: str
    file_name: str
    width: int | None
    height: int | None
    short_caption: str
    extra_caption: str
    masks: dict[int, Mask]
    summaries: Json | None
    negatives: Json | None
    clip_scores: Json | None
    ignored: int

    def description(self) -> str:
        """The full description of the photo: both captions, then the text of every mask that has one."""
        texts = [text for mask in self.masks.values() if (text := mask.text()) is not None]
        return _with_parts(f"{self.short_caption}\n{self.extra_caption}", texts)

    def mask_description(self, mask: Mask) -> str:
        """The description of one mask and of all that lies below it, depth first.

        A child of quality "bad" hides its whole subtree.
        """
        texts = []
        below = list(reversed(mask.children))
        while below:
            child = self.masks[below.pop()]
            if child.quality != 2:
                texts.append(child.text() or "")
                below.extend(reversed(child.children))
        return _with_parts(f"This is an image of {mask.label or ''}. {mask.caption or ''}", texts)

    def subcrops(self) -> list[Mask]:
        """The masks that sDCI has entries for, of any quality, in the file's order."""
        return [mask for mask in self.masks.values() if mask.is_subcrop]


def _with_parts(head: str, texts: list[str]) -> str:
    if not texts:
        return head
    return "\n".join([head, "The following can also be seen in the image:", *texts])


def parse_annotation(content: bytes, name: str) -> Annotation:
    """Read and check one annotation file.

    Args:
        content: The JSON text.
        name: Its file name, such as `112956-data.json`.

    Raises:
        DCIError: If a field that the release's format asks for is absent or of another type, or the mask tree has
            a cycle.
    """
    data = _load_json(content, name)
    file_name = _field(data, "image", str, name)
    path = posixpath.normpath(file_name)
    if not file_name or posixpath.isabs(path) or path.split("/")[0] == ".." or "\\" in file_name:
        raise _wrong(name, "image", "the file name of a photo", repr(file_name))
    raw_masks = _field(data, "mask_data", dict, name)
    masks, ignored = _parse_masks(raw_masks, name)
    width, height = _photo_size(data, masks, name)
    return Annotation(
        name=name,
        image_id=image_id_of(name),
        file_name=path,
        width=width,
        height=height,
        short_caption=_field(data, "short_caption", str, name),
        extra_caption=_field(data, "extra_caption", str, name),
        masks=masks,
        summaries=_optional(data, "summaries", dict, name),
        negatives=_optional(data, "negatives", dict, name),
        clip_scores=_optional(data, "clip_scores", dict, name),
        ignored=ignored,
    )


def _parse_masks(raw: Json, name: str) -> tuple[dict[int, Mask], int]:
    """The masks by id, with depths, and how many relatives were named that do not exist."""
    ids = {}
    for key, mask in raw.items():
        where = f"{name}: mask_data[{key!r}]"
        if not isinstance(mask, dict):
            raise DCIError(f"{where}: expected an object, got {_kind(mask)}; {_MEND}")
        ids[key] = _integer(mask, "idx", where)
    twice = [mask_id for mask_id, count in collections.Counter(ids.values()).items() if count > 1]
    if twice:
        raise _wrong(name, "idx", "another number for each mask", f"{twice[0]} more than once")

    ignored = 0
    parents: dict[int, int] = {}
    children: dict[int, tuple[int, ...]] = {}
    for key, mask in raw.items():
        where = f"{name}: mask_data[{key!r}]"
        parent = str(_integer(mask, "parent", where, least=PHOTO))
        numbers = [_whole(child) for child in _field(mask, "requirements", list, where)]
        if None in numbers:
            raise _wrong(where, "requirements", "a list of mask ids", "something else in it")
        named = [str(number) for number in numbers]
        ignored += sum(child not in ids for child in named) + (parent not in ids and parent != str(PHOTO))
        parents[ids[key]] = ids.get(parent, PHOTO)
        children[ids[key]] = tuple(ids[child] for child in named if child in ids)
    depths = _depths(parents, name)
    _check_tree(children, name)

    masks = {}
    for key, mask in raw.items():
        where, mask_id = f"{name}: mask_data[{key!r}]", ids[key]
        quality = _integer(mask, "mask_quality", where)
        if quality not in (0, 1, 2):
            raise _wrong(where, "mask_quality", "0, 1 or 2", str(quality))
        # The release leaves the text of bad masks out, and the caption of uninteresting ones; a good mask has both.
        take = _field if quality == 0 else _optional
        masks[mask_id] = Mask(
            mask_id=mask_id,
            key=key,
            parent=parents[mask_id],
            children=children[mask_id],
            depth=depths[mask_id],
            quality=quality,
            label=take(mask, "label", str, where),
            caption=take(mask, "caption", str, where),
            bbox=_parse_bounds(mask, where),
            area=_integer(mask, "area", where),
            png=_field(mask, "outer_mask", str, where),
        )
    return masks, ignored


def _depths(parents: dict[int, int], name: str) -> dict[int, int]:
    """How many masks hold each mask, by walks that end where an earlier one has been."""
    depths = {PHOTO: -1}
    for mask_id in parents:
        path: dict[int, None] = {}  # a set that keeps its order
        above = mask_id
        while above not in depths:
            if above in path:
                raise DCIError(f"{name}: field `parent`: mask {above} is its own ancestor; {_MEND}")
            path[above] = None
            above = parents[above]
        for depth, below in enumerate(reversed(path), depths[above] + 1):
            depths[below] = depth
    return depths


def _check_tree(children: dict[int, tuple[int, ...]], name: str) -> None:
    """Depth-first walk without recursion: a chain of masks may be longer than Python's stack."""
    below: dict[int, int] = {}  # how many texts the description of a mask has, once all below it is known
    for root in children:
        path = {root: iter(children[root])}
        while path:
            current = next(reversed(path))
            child = next((c for c in path[current] if c not in below), None)
            if child is None:
                below[current] = sum(1 + below[c] for c in children[current])
                if below[current] > MAX_BELOW:
                    raise DCIError(
                        f"{name}: field `requirements`: the masks below mask {current} are reached in more than "
                        f"{MAX_BELOW} ways; {_MEND}"
                    )
                del path[current]
            elif child in path:
                raise DCIError(f"{name}: field `requirements`: mask {child} lies below itself; {_MEND}")
            else:
                path[child] = iter(children[child])


def _parse_bounds(mask: Json, where: str) -> tuple[int, int, int, int]:
    """(x, y, width, height) from the code's form of bounds or from the README's; right and bottom are exclusive."""
    bounds = mask.get("bounds")
    corners = [bounds.get("topLeft"), bounds.get("bottomRight")] if isinstance(bounds, dict) else bounds
    numbers: list[int | None] = []
    for corner in corners if isinstance(corners, list) and len(corners) == 2 else []:
        point = [corner.get("x"), corner.get("y")] if isinstance(corner, dict) else corner
        numbers += [_whole(number) for number in point] if isinstance(point, list) and len(point) == 2 else [None]
    whole = [number for number in numbers if number is not None]
    if len(whole) != 4 or whole[0] >= whole[2] or whole[1] >= whole[3]:
        raise _wrong(
            where,
            "bounds",
            "topLeft and bottomRight with x and y in whole pixels, or [[x, y], [x, y]], the second to the right of "
            "and below the first",
            str(whole) if len(whole) == 4 else "something else",
        )
    return whole[0], whole[1], whole[2] - whole[0], whole[3] - whole[1]


def _photo_size(data: Json, masks: dict[int, Mask], name: str) -> tuple[int | None, int | None]:
    """The photo's size as the masks count it.

    The file's own `height` and `width` may be missing; a mask's bitmap always tells, and decides where they differ.
    """
    sides = ("width", "height")
    width, height = (None if data.get(side) is None else _integer(data, side, name, 1) for side in sides)
    for mask in masks.values():
        with _open_png(mask.png, f"{name}: mask {mask.mask_id}") as bitmap:
            return bitmap.size
    return width, height


def _load_json(content: bytes, where: str) -> Json:
    try:
        data = json.loads(content, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise DCIError(f"{where}: not valid JSON ({error}); {_MEND}") from error
    if not isinstance(data, dict):
        raise DCIError(f"{where}: expected a JSON object, got {_kind(data)}; {_MEND}")
    return data


def _object(pairs: list[tuple[str, Any]]) -> Json:
    """A JSON object; of a name that stands in it twice, one value would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for key, count in collections.Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"{twice!r} stands twice in one object")
    return found


def _field(data: Json, field: str, kind: type, where: str) -> Any:
    if field not in data:
        raise DCIError(f"{where}: field `{field}` is missing; expected {_KINDS[kind]}; {_MEND}")
    return _checked(data[field], field, kind, where)


def _optional(data: Json, field: str, kind: type, where: str) -> Any:
    value = data.get(field)
    return None if value is None else _checked(value, field, kind, where)


def _checked(value: Any, field: str, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _wrong(where, field, _KINDS[kind], _kind(value))
    if isinstance(value, str) and not _is_unicode(value):
        raise _wrong(where, field, "Unicode text", "half of a surrogate pair")
    return value


def _is_unicode(text: str) -> bool:
    """Whether a text can be written as UTF-8: JSON's escapes allow half of a surrogate pair, which cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) and _is_unicode(text) for text in value)


def _integer(data: Json, field: str, where: str, least: int = 0) -> int:
    if field not in data:
        raise DCIError(f"{where}: field `{field}` is missing; expected a whole number; {_MEND}")
    number = _whole(data[field])
    if number is None or number < least:
        got = _kind(data[field]) if number is None else str(number)
        raise _wrong(where, field, f"a whole number from {least} to {_LARGEST}", got)
    return number


def _whole(value: Any) -> int | None:
    """A whole number, also where it is written as text (the original's README has mask ids as strings), else None."""
    try:
        if isinstance(value, str) or (_is_number(value) and value == int(value)):
            number = int(value)
            return number if abs(number) <= _LARGEST else None
    except (ValueError, OverflowError):
        pass
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(where: str, field: str, expected: str, got: str) -> DCIError:
    return DCIError(f"{where}: field `{field}`: expected {expected}, got {_short(got)}; {_MEND}")


def _short(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "…"


_MEND = f"mend the file, or take it out of {ANNOTATIONS_ARCHIVE} again"
_LARGEST = 2**31 - 1  # what the columns' int32 holds
_KINDS = {str: "text", dict: "an object", list: "a list", int: "a whole number", float: "a number"}


def _kind(value: Any) -> str:
    return "null" if value is None else _KINDS.get(type(value), type(value).__name__)


# --------------------------------------------------------------------------------------------------------------
# Masks and crops
# --------------------------------------------------------------------------------------------------------------


def decode_mask(rle: Json) -> npt.NDArray[np.bool_]:
    """The boolean bitmap, of shape (height, width), of one `rle` field (COCO run-length encoding, as in SA-1B)."""
    counts = rle["counts"]
    encoded = {"size": list(rle["size"]), "counts": counts.encode() if isinstance(counts, str) else counts}
    return np.asarray(pycocotools.mask.decode(encoded), dtype=bool)


def encode_mask(mask: npt.NDArray[np.bool_]) -> Json:
    """The `rle` field of a boolean bitmap of shape (height, width)."""
    encoded = pycocotools.mask.encode(np.asfortranarray(mask, dtype=np.uint8))
    return {"size": [int(side) for side in encoded["size"]], "counts": encoded["counts"].decode("ascii")}


def crop_box(bbox: Sequence[int], width: int, height: int) -> tuple[int, int, int, int]:
    """The subcrop of a mask's box: widened by 15 % on each side, clipped to the photo.

    Args:
        bbox: (x, y, width, height) of the mask.
        width: The photo's width in pixels.
        height: The photo's height in pixels.

    Returns:
        (x0, y0, x1, y1), right and bottom exclusive.
    """
    x, y, w, h = bbox
    pad_x, pad_y = int(w * PADDING), int(h * PADDING)
    return max(x - pad_x, 0), max(y - pad_y, 0), min(x + w + pad_x, width), min(y + h + pad_y, height)


def open_photo(content: bytes, size: tuple[int, int] | None, name: str) -> PIL.Image.Image:
    """Decode a photo to RGB, turned so that its pixels are those that masks and boxes count.

    The masks were made on photos read by OpenCV, which applies the EXIF orientation. Where the photo has the masks'
    size only without it, the pixels are taken as stored.

    Args:
        content: The file's bytes.
        size: (width, height) of the masks, or None to take the photo as OpenCV does.
        name: For messages.

    Raises:
        DCIError: If the photo cannot be decoded, or has another size than its masks.
    """
    try:
        with PIL.Image.open(io.BytesIO(content)) as stored:
            stored.load()
            upright = PIL.ImageOps.exif_transpose(stored)
            if size is not None and upright.size != size and stored.size == size:
                upright = stored
            photo = upright.convert("RGB")
    # PIL raises whatever its decoders meet in a broken file: OSError, SyntaxError, ValueError, struct.error, ...
    except Exception as error:
        raise _broken_photo(name, error) from error
    if size is not None and photo.size != size:
        raise DCIError(
            f"{name}: is {photo.size[0]}x{photo.size[1]} pixels, but its masks are {size[0]}x{size[1]}; "
            "use the photo as SA-1B has it, not resized"
        )
    return photo


def _check_photo(content: bytes, size: tuple[int, int] | None, name: str) -> tuple[int, int]:
    """Read a JPEG to its end, at an eighth of its size (cheap), to know that it is whole; gives its upright size."""
    try:
        with PIL.Image.open(io.BytesIO(content)) as photo:
            stored = photo.size
            turned = photo.getexif().get(0x0112, 1) in (5, 6, 7, 8)
            upright = stored[::-1] if turned else stored
            photo.draft("RGB", (max(1, stored[0] // 8), max(1, stored[1] // 8)))
            photo.load()
    except Exception as error:
        raise _broken_photo(name, error) from error
    if size is not None and size not in (stored, upright):
        raise DCIError(
            f"{name}: is {upright[0]}x{upright[1]} pixels, but its masks are {size[0]}x{size[1]}; "
            "use the photo as SA-1B has it, not resized"
        )
    return upright


def _broken_photo(name: str, error: Exception) -> DCIError:
    # PIL names the buffer that it was given, by its address.
    why = "it is no image" if isinstance(error, PIL.UnidentifiedImageError) else str(error)
    return DCIError(
        f"{name}: cannot be read as a photo ({why}); download or unpack it again, or pass over it with --on-error skip"
    )


def _open_png(png: str, where: str) -> PIL.Image.Image:
    try:
        return PIL.Image.open(io.BytesIO(base64.b64decode(png, validate=True)), formats=["PNG"])
    except Exception as error:
        raise _wrong(where, "outer_mask", "a PNG in base64", f"something else ({error})") from error


def _decode_png(mask: Mask, name: str) -> npt.NDArray[np.bool_]:
    where = f"{name}: mask {mask.mask_id}"
    try:
        with _open_png(mask.png, where) as bitmap:
            return np.asarray(bitmap if bitmap.mode in ("1", "L") else bitmap.convert("L")) > 0
    except DCIError:
        raise
    except Exception as error:
        raise _wrong(where, "outer_mask", "a PNG in base64", f"a broken one ({error})") from error


# --------------------------------------------------------------------------------------------------------------
# sDCI
# --------------------------------------------------------------------------------------------------------------


def _key_in(table: Json | None, mask: Mask | None) -> str | None:
    """The key under which `summaries`, `negatives` or `clip_scores` hold the photo (no mask) or a mask.

    The original's README writes the mask's bare key where its code looks for `m-<idx>-sc`.
    """
    keys = ["base"] if mask is None else [mask.entry_key, mask.key, str(mask.mask_id)]
    return next((key for key in keys if key in (table or {})), None)


def _of(table: Json | None, mask: Mask | None) -> Any:
    """What `summaries`, `negatives` or `clip_scores` hold for the photo (no mask) or for a mask, or None."""
    key = _key_in(table, mask)
    return None if table is None or key is None else table[key]


def _captions(annotation: Annotation, mask: Mask | None) -> list[str]:
    """All captions of an entry: a bare string is one."""
    found = _of(annotation.summaries, mask)
    captions: list[str] = [found] if isinstance(found, str) else [] if found is None else found
    if not _is_texts(captions):
        key = mask.entry_key if mask else "base"
        raise _wrong(f"{annotation.name}: entry {key!r}", "summaries", "text or a list of texts", _kind(found))
    return captions


def _negatives(annotation: Annotation, mask: Mask | None) -> list[Json]:
    """All negatives of an entry, of all kinds, in the file's order."""
    where = f"{annotation.name}: entry {mask.entry_key if mask else 'base'!r}"
    scores = _scores(annotation, mask)
    negatives = []
    for kind, texts in _checked(_of(annotation.negatives, mask) or {}, "negatives", dict, where).items():
        if not _is_texts([kind]) or not _is_texts(texts):
            raise _wrong(f"{where}, {kind!r}", "negatives", "a list of texts", _kind(texts))
        for i, text in enumerate(texts):
            negatives.append({"kind": kind, "text": text, "clip_score": scores.get(f"{kind}_{i}")})
    return negatives


def _scores(annotation: Annotation, mask: Mask | None) -> dict[str, float]:
    """The CLIP scores of an entry, by field; those that are null are left out."""
    where = f"{annotation.name}: entry {mask.entry_key if mask else 'base'!r}"
    found = _checked(_of(annotation.clip_scores, mask) or {}, "clip_scores", dict, where)
    scores = {}
    for field, score in found.items():
        try:
            known = None if score is None else float(score) if _is_number(score) else math.nan
        except OverflowError:
            known = math.inf
        if known is not None and not math.isfinite(known):
            raise _wrong(f"{where}, {field!r}", "clip_scores", "a finite number", _kind(score))
        if known is not None:
            scores[field] = known
    return scores


def _left_out(annotation: Annotation) -> list[Json]:
    """The tests that this photo is out of by the paper's rules, each with the reason.

    The original's loader raises on the first thing it misses in a photo, prints the traceback and goes on without
    the photo. What it reads on its way is what is looked for here, so that the same photos are scored.
    """
    found = []
    for test in TESTS:
        reason = _reason_left_out(annotation, test)
        if reason is not None:
            found.append({"test": test, "reason": reason})
    return found


def _reason_left_out(annotation: Annotation, test: str) -> str | None:
    if annotation.summaries is None:
        return "no `summaries`"
    if annotation.negatives is None:
        return "no `negatives`"
    if test != "base" and len(annotation.negatives) == 1:
        return "`negatives` has a single key"
    # The full description, which is composed before the summaries are looked up, needs these labels.
    unnamed = next((m for m in annotation.masks.values() if m.quality == 1 and m.label is None), None)
    if unnamed is not None:
        return f"mask {unnamed.mask_id} has no `label`"
    subcrops: list[Mask | None] = [] if test == "base" else list(annotation.subcrops())
    for mask in [None, *subcrops]:
        key = mask.entry_key if mask else "base"
        if mask is not None and (mask.label is None or mask.caption is None):
            return f"mask {mask.mask_id} has no `{'label' if mask.label is None else 'caption'}`"
        if not _captions(annotation, mask):
            return f"no `summaries` for {key}"
        if _of(annotation.negatives, mask) is None:
            return f"no `negatives` for {key}"
        # The key must be there even where the scores are not used; what stands under it is not looked at.
        if _key_in(annotation.clip_scores, mask) is None:
            return f"no `clip_scores` for {key}"
        negatives = _negatives(annotation, mask)
        if test == "hard":
            if not negatives:
                return f"no negative for {key}"
            if any(negative["clip_score"] is None for negative in negatives):
                return f"a negative without `clip_scores` for {key}"
        elif not any(negative["kind"] == "swaps" for negative in negatives):
            return f"no `swaps` for {key}"
    return None


# --------------------------------------------------------------------------------------------------------------
# Rows
# --------------------------------------------------------------------------------------------------------------


def make_row(annotation: Annotation, config: str, photo: bytes | None, masks: bool = True) -> Row:
    """One row, with the columns of `features(config)`.

    Args:
        annotation: The photo's annotation.
        config: `full`, `sdci` or `both`.
        photo: The photo's bytes, or None for a row without it.
        masks: Whether to decode the masks; without, every `rle` is None, which is all that scoring needs.

    Raises:
        DCIError: If a mask cannot be decoded, or the photo is broken or of another size than its masks.
    """
    if config not in CONFIGS:
        raise DCIError(f"no configuration {config!r}: expected one of {', '.join(CONFIGS)}")
    width, height = annotation.width, annotation.height
    known = None if width is None or height is None else (width, height)
    if photo is not None:
        upright = _check_photo(photo, known, annotation.file_name)
        width, height = known or upright
    if width is None or height is None:
        raise DCIError(
            f"{annotation.name}: fields `width` and `height` are missing, and there is neither a mask nor a photo "
            "to take them from; add them"
        )
    for mask in annotation.masks.values():
        x, y, w, h = mask.bbox
        if x >= width or y >= height or x + w <= 0 or y + h <= 0:
            where = f"{annotation.name}: mask {mask.mask_id}"
            raise _wrong(where, "bounds", f"a box in the photo of {width}x{height} pixels", f"{list(mask.bbox)} (xywh)")
    wanted = annotation.masks.values() if config != "sdci" else annotation.subcrops()
    rles = {mask.mask_id: _rle(mask, (width, height), annotation.name) if masks else None for mask in wanted}
    row: Row = {
        "image": None if photo is None else {"bytes": photo, "path": annotation.file_name},
        "image_id": annotation.image_id,
        "file_name": annotation.file_name,
        "width": width,
        "height": height,
    }
    if config in ("full", "both"):
        row |= {
            "short_caption": annotation.short_caption,
            "extra_caption": annotation.extra_caption,
            "description": annotation.description(),
            "masks": [_mask_cell(annotation, mask, rles[mask.mask_id]) for mask in annotation.masks.values()],
        }
    if config in ("sdci", "both"):
        photo_entry = _entry_cell(annotation, None, width, height, None)
        below = [_entry_cell(annotation, mask, width, height, rles[mask.mask_id]) for mask in annotation.subcrops()]
        row |= {"entries": [photo_entry, *below], "left_out": _left_out(annotation)}
    return row


def _rle(mask: Mask, size: tuple[int, int], name: str) -> Json:
    bitmap = _decode_png(mask, name)
    if bitmap.shape != size[::-1]:
        expected, got = (f"{width}x{height}" for width, height in (size, bitmap.shape[::-1]))
        raise _wrong(f"{name}: mask {mask.mask_id}", "outer_mask", f"{expected} pixels as the first mask", got)
    return encode_mask(bitmap)


def _mask_cell(annotation: Annotation, mask: Mask, rle: Json | None) -> Json:
    return {
        "mask_id": mask.mask_id,
        "parent": mask.parent,
        "children": list(mask.children),
        "depth": mask.depth,
        "quality": QUALITIES[mask.quality],
        "label": mask.label or "",
        "caption": mask.caption or "",
        "description": None if mask.quality == 2 else annotation.mask_description(mask),
        "bbox": list(mask.bbox),
        "area": mask.area,
        "rle": rle,
    }


def _entry_cell(annotation: Annotation, mask: Mask | None, width: int, height: int, rle: Json | None) -> Json:
    bbox = mask.bbox if mask else (0, 0, width, height)
    crop = crop_box(bbox, width, height) if mask else (0, 0, width, height)
    return {
        "key": mask.entry_key if mask else "base",
        "mask_id": mask.mask_id if mask else PHOTO,
        "quality": QUALITIES[mask.quality if mask else 0],
        "label": (mask.label or "") if mask else None,
        "bbox": list(bbox),
        "crop_xyxy": list(crop),
        "captions": _captions(annotation, mask),
        "caption_clip_score": _scores(annotation, mask).get("sum"),
        "negatives": _negatives(annotation, mask),
        "rle": rle,
    }


# --------------------------------------------------------------------------------------------------------------
# The release's files
# --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Skipped:
    """A photo that was passed over, and why."""

    image_id: str
    reason: str


class Release:
    """The release's files, wherever they lie: unpacked, or in archives that stay closed.

    Args:
        data_dir: A folder that holds `densely_captioned_images/` or `dci.tar.gz`, and the photos or
            `sa_000138.tar`.
        photos: Where the photos are, when not there: a folder, or the closed archive.
        annotations: An archive to take instead of `data_dir`'s annotations, as the download manager gives it.
        cache_dir: Where the unpacked annotations and the index of the photo archive are kept.

    Raises:
        DCIError: If there are no annotations, or an archive is unsafe or broken.
    """

    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None,
        photos: str | os.PathLike[str] | None = None,
        *,
        annotations: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).expanduser() if data_dir is not None else None
        self.cache_dir = Path(cache_dir or Path(datasets.config.HF_CACHE_HOME) / "dci").expanduser()
        if self.data_dir is not None and not self.data_dir.is_dir():
            why = "is a file" if self.data_dir.exists() else "no such folder"
            raise DCIError(f"{self.data_dir}: {why}; expected the folder that holds the DCI release or its archives")
        self.root = self._find_root(Path(annotations) if annotations else None)
        self.photos = self._find_photos(Path(photos).expanduser() if photos is not None else None)
        self.skipped: list[Skipped] = []

    # -- where things are

    @staticmethod
    def has_annotations(data_dir: Path) -> bool:
        """Whether a folder holds the annotations in one of the forms that are read."""
        inner = data_dir / "densely_captioned_images"
        parts = ("complete", "annotations", "splits.json")
        unpacked = any((folder / part).exists() for folder in (inner, data_dir) for part in parts)
        return unpacked or (data_dir / ANNOTATIONS_ARCHIVE).is_file()

    def _find_root(self, archive: Path | None) -> Path:
        if archive is None and self.data_dir is not None:
            for folder in (self.data_dir / "densely_captioned_images", self.data_dir):
                if (folder / "complete").is_dir() or (folder / "annotations").is_dir():
                    return folder
            if (self.data_dir / ANNOTATIONS_ARCHIVE).is_file():
                archive = self.data_dir / ANNOTATIONS_ARCHIVE
        if archive is None:
            raise DCIError(
                f"{self.data_dir}: no annotations here; expected densely_captioned_images/ or {ANNOTATIONS_ARCHIVE} "
                f"(from {ANNOTATIONS_URL})"
            )
        if not archive.is_file():
            raise DCIError(f"{archive}: no such file; expected {ANNOTATIONS_ARCHIVE} (from {ANNOTATIONS_URL})")
        return _unpack_annotations(archive, self.cache_dir)

    def _find_photos(self, given: Path | None) -> Path | None:
        if given is not None:
            if not given.exists():
                raise DCIError(f"{given}: no such folder or archive; expected the photos. {_get_photos('a folder')}")
            return _closed_or_folder(given)
        homes = [self.root, *([self.data_dir] if self.data_dir else [])]
        folders = [home / "photos" for home in homes]
        for archive in [folder / PHOTO_ARCHIVE for folder in [*homes, *folders]]:
            if archive.is_file():
                return archive
        return next((folder for folder in folders if folder.is_dir()), None)

    def state(self) -> str:
        """A short hash that changes when any file of the release does, by size and time."""
        digest = hashlib.sha256()
        for folder in (self.root, self.photos):
            if folder is None:
                continue
            paths = sorted(folder.rglob("*")) if folder.is_dir() else [folder]
            for path in paths:
                stat = path.stat() if path.exists() else path.lstat()  # a link may lead nowhere
                digest.update(f"{path}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
        return digest.hexdigest()[:16]

    # -- annotations

    @functools.cached_property
    def splits(self) -> dict[str, list[str]]:
        """The file names of each split (`train`, `validation`, `test`), in the order of splits.json."""
        places = [folder / "splits.json" for folder in (self.root, self.root.parent)]
        path = next((place for place in places if place.is_file()), places[0])
        try:
            content = path.read_bytes()
        except OSError as error:
            raise DCIError(f"{path}: cannot be read ({error}); it is part of {ANNOTATIONS_ARCHIVE}") from error
        data = _load_json(content, str(path))
        splits = {}
        for split, key in SPLITS.items():
            names = _field(data, key, list, str(path))
            for n in names:
                if not isinstance(n, str) or posixpath.basename(n) != n or not n or not _is_unicode(n):
                    got = repr(n) if isinstance(n, str) else _kind(n)
                    raise _wrong(str(path), key, "file names such as '112956-data.json'", got)
            splits[split] = names
        return splits

    def names(self, split: str) -> list[str]:
        """The file names of one split.

        Raises:
            DCIError: If there is no such split, or it is empty.
        """
        if split not in SPLITS:
            raise DCIError(f"no split {split!r}: expected one of {', '.join(SPLITS)}")
        if not self.splits[split]:
            filled = [name for name, files in self.splits.items() if files]
            raise DCIError(
                f"{self.root}: splits.json lists no file for {split!r}; it has {', '.join(filled) or 'none'}"
            )
        return self.splits[split]

    def annotation(self, name: str) -> Annotation:
        """One annotation: of `complete/`, or, where that has none, of `annotations/` (no summaries then)."""
        for folder in ("complete", "annotations"):
            try:
                content = (self.root / folder / name).read_bytes()
            except FileNotFoundError:
                continue
            except OSError as error:
                raise DCIError(f"{self.root / folder / name}: cannot be read ({error})") from error
            return parse_annotation(content, name)
        raise DCIError(f"{name}: is named in splits.json, but is not in {self.root / 'complete'}")

    # -- photos

    @functools.cached_property
    def _photo_index(self) -> dict[str, list[int]] | None:
        """Offset and size of each photo in the closed archive, or None when the photos lie in a folder."""
        if self.photos is None or self.photos.is_dir():
            return None
        return _index_photos(self.photos, self.cache_dir)

    def has_photo(self, file_name: str) -> bool:
        """Whether the photo is there."""
        if self._photo_index is not None:
            return posixpath.basename(file_name) in self._photo_index
        return self.photos is not None and (self.photos / file_name).is_file()

    def photo(self, file_name: str) -> bytes:
        """The photo's bytes as they stand in the file or in the closed archive.

        Raises:
            DCIError: If it is not there or cannot be read.
        """
        if not self.has_photo(file_name):
            raise DCIError(f"{file_name}: no such photo in {self._photo_place}. {_get_photos(self._photo_place)}")
        assert self.photos is not None
        try:
            if self._photo_index is None:
                return (self.photos / file_name).read_bytes()
            offset, size = self._photo_index[posixpath.basename(file_name)]
            return _read_in_tar(self.photos, offset, size, file_name)
        except OSError as error:
            raise DCIError(f"{self.photos}: {file_name}: cannot be read ({error})") from error

    @property
    def _photo_place(self) -> str:
        return str(self.photos or self.data_dir or self.root / "photos")

    # -- rows

    def check(self, names: Iterable[str], photos: bool = True, on_error: str = "raise") -> list[str]:
        """Look for all annotations and photos before any work is done.

        Args:
            names: Annotation files.
            photos: Whether the photos are needed.
            on_error: "raise", or "skip" to leave out what is missing and note it in `skipped`.

        Returns:
            The names whose files are there. Files that are there but broken are found when they are read.

        Raises:
            DCIError: With the count, the first names, and where to get what is missing.
        """
        if on_error not in ("raise", "skip"):
            raise DCIError(f"on_error: expected `raise` or `skip`, got {on_error!r}")
        names = list(names)
        places = [self.root / "complete", self.root / "annotations"]
        stray = {name for name in names if not any((place / name).is_file() for place in places)}
        if stray and on_error == "raise":
            raise DCIError(
                f"{self.root}: {len(stray)} of {len(names)} annotation files named in splits.json are not there: "
                f"{_first(name for name in names if name in stray)}. Unpack {ANNOTATIONS_ARCHIVE} again, "
                "or pass over them with --on-error skip"
            )
        self.skipped += [Skipped(image_id_of(n), "named in splits.json, but not there") for n in names if n in stray]
        kept = [name for name in names if name not in stray]
        if not photos:
            return kept
        missing: dict[str, str] = {}
        for name in kept:
            try:
                file_name = self.annotation(name).file_name
            except DCIError:
                continue  # named with its reason when its row is made
            if not self.has_photo(file_name):
                missing[name] = file_name
        if missing and on_error == "raise":
            raise DCIError(
                f"{self._photo_place}: {len(missing)} of {len(names)} photos are missing: {_first(missing.values())}. "
                f"{_get_photos(str(self.data_dir or self._photo_place))}"
            )
        self.skipped += [Skipped(image_id_of(name), f"photo {missing[name]} is missing") for name in missing]
        return [name for name in kept if name not in missing]

    def row(self, name: str, config: str, photos: bool = True, masks: bool = True) -> Row:
        """One row of `features(config)`, from one annotation file."""
        annotation = self.annotation(name)
        return make_row(annotation, config, self.photo(annotation.file_name) if photos else None, masks)

    def rows(
        self, split: str, config: str, *, photos: bool = True, masks: bool = True, on_error: str = "raise"
    ) -> Iterator[Row]:
        """All rows of one split, in the order of splits.json.

        Args:
            split: `train`, `validation` or `test`.
            config: `full`, `sdci` or `both`.
            photos: Whether rows carry the photo.
            masks: Whether masks are decoded into `rle`.
            on_error: "raise", or "skip" to leave a photo that cannot be used out and note it in `skipped`.

        Raises:
            DCIError: For the first thing that is wrong, unless `on_error` is "skip".
        """
        yield from self.rows_of(self.names(split), config, photos=photos, masks=masks, on_error=on_error)

    def rows_of(
        self, names: Iterable[str], config: str, *, photos: bool = True, masks: bool = True, on_error: str = "raise"
    ) -> Iterator[Row]:
        """The rows of given annotation files; otherwise as `rows`."""
        for name in self.check(names, photos, on_error):
            try:
                row = self.row(name, config, photos, masks)
            except DCIError as error:
                if on_error == "raise":
                    raise
                self.skipped.append(Skipped(image_id_of(name), str(error)))
                logger.warning(f"left out: {error}")
                continue
            yield row


def image_id_of(name: str) -> str:
    """The `image_id` of an annotation file: "112956" of `112956-data.json`."""
    return name.removesuffix(".json").removesuffix("-data")


def _first(names: Iterable[str], count: int = 5) -> str:
    names = list(names)
    return ", ".join(names[:count]) + (", …" if len(names) > count else "")


def _get_photos(place: str) -> str:
    return (
        f"{_GET_PHOTOS} and put it, unopened, into {place}, or say where it is with --photos; --no-photos builds the "
        "annotations alone"
    )


_GET_PHOTOS = f"Get {PHOTO_ARCHIVE} from {PHOTOS_PAGE} (Meta asks you to accept its licence; see `dci fetch-photos`)"


def _closed_or_folder(photos: Path) -> Path:
    """Where photos are read: the closed archive, also when its folder is given; else the folder itself."""
    return photos / PHOTO_ARCHIVE if (photos / PHOTO_ARCHIVE).is_file() else photos


def _refuse_unsafe(member: tarfile.TarInfo, archive: Path) -> None:
    name = posixpath.normpath(member.name)
    outside = posixpath.isabs(member.name) or name.startswith("..") or "\\" in member.name
    if outside or not (member.isfile() or member.isdir()):
        kind = "points outside of the folder" if outside else "is neither a file nor a folder"
        raise DCIError(f"{archive}: member {member.name!r} {kind}; refused. Download the archive again")


def _stat_key(path: Path) -> str:
    stat = path.stat()
    state = f"\0{stat.st_size}\0{stat.st_mtime_ns}".encode()
    return hashlib.sha256(os.fsencode(path.resolve()) + state).hexdigest()[:16]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_annotations_archive(path: Path, downloaded: bool) -> None:
    """Check the sha256 of an annotations archive.

    Args:
        path: The archive.
        downloaded: Whether it must be Meta's file as of today. An archive of the user's own may be another edition.

    Raises:
        DCIError: If it is the older archive with the wrong splits, or a download that is not what it should be.
    """
    found = _sha256(path)
    if found == OLD_ANNOTATIONS_SHA256:
        raise DCIError(
            f"{path}: is the older dci.tar.gz, whose splits.json is wrong; download {ANNOTATIONS_URL} again "
            f"(sha256 {ANNOTATIONS_SHA256})"
        )
    if downloaded and found != ANNOTATIONS_SHA256:
        raise DCIError(f"{path}: expected sha256 {ANNOTATIONS_SHA256}, got {found}; download {ANNOTATIONS_URL} again")


def _unpack_annotations(archive: Path, cache_dir: Path) -> Path:
    """Unpack the JSON files into the cache, once for each archive; gives the folder that holds `complete/`."""
    target = cache_dir / f"annotations-{_stat_key(archive)}"
    if target.is_dir():
        return target
    check_annotations_archive(archive, downloaded=False)
    try:
        cache_dir.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix="unpacking-", dir=cache_dir))
    except OSError as error:
        raise DCIError(f"{cache_dir}: cannot be written ({error}); name another cache_dir, or set HF_HOME") from error
    try:
        with tarfile.open(archive) as tar:
            for member in datasets.utils.tqdm(tar, desc=f"Unpacking {archive.name}", unit=" files"):
                _refuse_unsafe(member, archive)
                parts = Path(member.name).parts
                wanted = parts[-1:] == ("splits.json",) or parts[-2:-1] in (("complete",), ("annotations",))
                source = tar.extractfile(member) if wanted and member.name.endswith(".json") else None
                if source is not None and not parts[-1].startswith("."):
                    # Only the last two parts of a member's name are used, so nothing can land elsewhere.
                    out = unfinished.joinpath(*parts[-1:] if parts[-1] == "splits.json" else parts[-2:])
                    out.parent.mkdir(exist_ok=True)
                    with out.open("wb") as file:
                        shutil.copyfileobj(source, file)
            # To the end, which tarfile does not read: the compression's check sum stands there.
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass
        if not (unfinished / "complete").is_dir() and not (unfinished / "annotations").is_dir():
            raise DCIError(f"{archive}: holds no densely_captioned_images/complete/; expected DCI's annotations")
        _move(unfinished, target)
    except DCIError:
        raise
    # tarfile raises whatever its decompressors and its number parsing meet: TarError, OSError, zlib.error, ...
    except Exception as error:
        raise DCIError(f"{archive}: cannot be unpacked ({error}); download it again") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _move(folder: Path, target: Path) -> None:
    """Give a finished folder its name; another process may have been first, with the same content."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise


def _read_in_tar(archive: Path, offset: int, size: int, name: str) -> bytes:
    """A photo's bytes from the closed archive."""
    # Opened anew each time: processes and threads that shared a file would share its position.
    with archive.open("rb") as file:
        file.seek(offset)
        content = file.read(size)
    if len(content) != size:
        raise DCIError(f"{archive}: ends inside of {name}; download the archive again")
    return content


def _index_photos(archive: Path, cache_dir: Path) -> dict[str, list[int]]:
    """Offset and size of every photo in an uncompressed tar; read once, then kept in the cache."""
    path = cache_dir / f"photos-{_stat_key(archive)}.json"
    try:
        known: dict[str, list[int]] = json.loads(path.read_bytes())
        if all(min(offset, size) >= 0 for offset, size in known.values()):
            return known
    except (OSError, ValueError, TypeError, AttributeError):
        pass  # none yet, or a broken one
    index: dict[str, list[int]] = {}
    try:
        with tarfile.open(archive, "r:") as tar:
            for member in datasets.utils.tqdm(tar, desc=f"Indexing {archive.name}", unit=" files"):
                _refuse_unsafe(member, archive)
                if member.isfile() and not member.name.endswith(".json"):
                    index[posixpath.basename(member.name)] = [member.offset_data, member.size]
    except DCIError:
        raise
    except Exception as error:
        raise DCIError(
            f"{archive}: cannot be read as an uncompressed tar archive ({error}); download it again"
        ) from error
    _write_whole(path, json.dumps(index).encode())
    return index


def _write_whole(path: Path, content: bytes) -> None:
    """Write a cache file so that no reader sees half of it; a cache that cannot be written is only slower."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(content)
        Path(file.name).replace(path)
    except OSError as error:
        logger.warning(f"{path}: cannot be written ({error}); the archive will be indexed again next time")


# --------------------------------------------------------------------------------------------------------------
# Photos for a dataset without
# --------------------------------------------------------------------------------------------------------------


class PhotosInTar(fsspec.AbstractFileSystem):
    """Photos of a closed archive for fsspec, through which `datasets` opens what is no plain file.

    An address says where the bytes are, so that nothing has to be looked up, by whatever process it is that reads:
    `dci-tar:///data/sa_000138.tar/512+1014000/sa_1.jpg`. An installed package tells fsspec of it (setup.cfg). fsspec's
    own `tar://` reads through the whole archive for each photo, and its `reference://` hangs in forked processes.
    """

    protocol = "dci-tar"

    @classmethod
    def address(cls, archive: Path, offset: int, size: int, name: str) -> str:
        """The address of one photo."""
        return f"{cls.protocol}://{urllib.parse.quote(archive.as_posix())}/{offset}+{size}/{urllib.parse.quote(name)}"

    def info(self, path: str, **_: Any) -> Json:
        """What fsspec asks for before it reads: the size."""
        return {"name": path, "size": self._place(path)[2], "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.BytesIO:
        return io.BytesIO(_read_in_tar(*self._place(path), posixpath.basename(path)))

    @staticmethod
    def _place(path: str) -> tuple[Path, int, int]:
        archive, place, _ = path.removeprefix(f"{PhotosInTar.protocol}://").rsplit("/", 2)
        offset, size = map(int, place.split("+"))
        # `datasets` takes the first slash off.
        return Path(Path.cwd().anchor, urllib.parse.unquote(archive)), offset, size


fsspec.register_implementation(PhotosInTar.protocol, PhotosInTar, clobber=True)


class Photos:
    """Where each photo is, in a folder or in the closed archive.

    Args:
        photos: The folder, or the archive `sa_000138.tar`.
        cache_dir: Where the index of the archive is kept.

    Raises:
        DCIError: If there is neither.
    """

    def __init__(self, photos: str | os.PathLike[str], cache_dir: str | os.PathLike[str] | None = None) -> None:
        place = Path(photos).expanduser()
        home = Path(cache_dir or Path(datasets.config.HF_CACHE_HOME) / "dci").expanduser()
        if not place.exists():
            raise DCIError(f"{place}: no such folder or archive; expected the photos. {_GET_PHOTOS}")
        # Whole, since rows may be read by processes that work in another folder.
        self.place = _closed_or_folder(place).resolve()
        self.index = _index_photos(self.place, home) if self.place.is_file() else None

    def address(self, file_name: str) -> str | None:
        """What an `Image` column opens, or None if the photo is not there."""
        if not isinstance(file_name, str):
            raise DCIError(f"field `file_name`: expected a photo's name, such as 'sa_1.jpg', got {file_name!r}")
        name = posixpath.basename(file_name)
        if self.index is None:
            path = self.place / name
            return str(path) if name and path.is_file() else None
        if name not in self.index:
            return None
        offset, size = self.index[name]
        return PhotosInTar.address(self.place, offset, size, name)

    def has(self, file_name: str) -> bool:
        """Whether a photo is there."""
        return self.address(file_name) is not None

    def missing(self, file_names: Iterable[str], on_error: str = "raise") -> list[str]:
        """Those photos that are not there.

        Raises:
            DCIError: If there are some, with the count and the first names, unless `on_error` is "skip".
        """
        names = list(file_names)
        missing = [name for name in names if not self.has(name)]
        if missing and on_error == "raise":
            count = f"{len(missing)} of {len(names)} photos are missing"
            raise DCIError(f"{self.place}: {count}: {_first(missing)}. {_GET_PHOTOS}")
        return missing

    def cell(self, file_name: str) -> Row | None:
        """What an `Image` column holds, or None if the photo is not there."""
        address = self.address(file_name)
        return None if address is None else {"bytes": None, "path": address}

    def join(self, file_name: str) -> Row:
        """The `image` of a row.

        Raises:
            DCIError: If the photo is not there.
        """
        cell = self.cell(file_name)
        if cell is None:
            raise DCIError(f"{file_name}: no such photo in {self.place}. {_GET_PHOTOS}")
        return {"image": cell}


def attach_photos(
    dataset: Any,
    photos: str | os.PathLike[str],
    *,
    on_error: str = "raise",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Any:
    """Join your own photos to a dataset that has none, such as a copy of DCI on the Hub.

    Each is read when its row is, as if it were stored in the dataset; nothing is copied.

        ds = dci.attach_photos(load_dataset("you/dci", "sdci", split="test"), "sa_000138.tar")
        ds[0]["image"]    # a PIL image

    Args:
        dataset: What `load_dataset` gives, map-style or streaming, one split or all.
        photos: A folder of photos, or the closed archive `sa_000138.tar`.
        on_error: "raise", or "skip" to leave out rows whose photo is missing.
        cache_dir: Where the index of the archive is kept.

    Returns:
        A dataset of the same kind, with the same columns.

    Raises:
        DCIError: If photos are missing, with the count and the first names. In a stream, whose names are not known
            before, when it comes to the row.
    """
    if on_error not in ("raise", "skip"):
        raise DCIError(f"on_error: expected `raise` or `skip`, got {on_error!r}")
    splits = dataset if isinstance(dataset, dict) else {"": dataset}
    for split in splits.values():
        if not isinstance(split, datasets.Dataset | datasets.IterableDataset):
            raise DCIError(f"expected a dataset that load_dataset gives, got {type(split).__name__}")
        if split.features is None or "file_name" not in split.features:
            raise DCIError(
                "the dataset has no column `file_name`, by which photos are found; attach them right after load_dataset"
            )
    found = Photos(photos, cache_dir)
    tables = {name: split for name, split in splits.items() if isinstance(split, datasets.Dataset)}
    # All splits before any, so that the message counts all that is missing.
    names = [name for split in tables.values() for name in split.with_format(None)["file_name"]]
    missing = found.missing(names, on_error)
    if missing:
        logger.warning(f"left out, without photo: {len(missing)} of {len(names)}: {_first(missing)}")
    joined = {
        name: _attach_table(split, found) if name in tables else _attach_stream(split, found, on_error)
        for name, split in splits.items()
    }
    return type(dataset)(joined) if isinstance(dataset, dict) else joined[""]


def _attach_table(dataset: Any, photos: Photos) -> Any:
    """The same table with another `image`: copying all rows to change one column would take minutes."""
    info, form = dataset.info.copy(), dataset.format
    info.features = _with_image(info.features)
    whole = datasets.Dataset(dataset.data, info=dataset.info.copy())  # with what `select` and `shuffle` left aside
    addresses = [photos.address(name) for name in whole["file_name"]]
    image = datasets.Features(image=info.features["image"])
    column = pa.table({"image": image["image"].cast_storage(pa.array(addresses, pa.string()))})
    others = whole.remove_columns("image") if "image" in whole.column_names else whole
    parts = [others, datasets.Dataset(column, info=datasets.DatasetInfo(features=image))]
    joined = datasets.Dataset(
        datasets.concatenate_datasets(parts, axis=1).data.select(list(info.features)),
        info=info,
        split=dataset.split,
        indices_table=dataset._indices,
        fingerprint=datasets.fingerprint.Hasher.hash([dataset._fingerprint, addresses]),
    )
    if None in addresses:
        joined = joined.select([i for i, name in enumerate(joined["file_name"]) if photos.has(name)])
    return joined.with_format(form["type"], form["columns"], form["output_all_columns"], **form["format_kwargs"])


def _attach_stream(dataset: Any, photos: Photos, on_error: str) -> Any:
    features = _with_image(dataset.features)
    if on_error == "skip":
        dataset = dataset.filter(photos.has, input_columns="file_name")
    # Not map(features=...), which would not decode.
    return dataset.map(photos.join, input_columns="file_name").cast(features)


def _with_image(columns: datasets.Features) -> datasets.Features:
    return datasets.Features({"image": datasets.Image()} | columns if "image" not in columns else dict(columns))


# --------------------------------------------------------------------------------------------------------------
# The builder
# --------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class DCIConfig(datasets.BuilderConfig):
    """One configuration of the builder.

    Attributes:
        photos: Where the photos are, when not in `data_dir`: a folder, or `sa_000138.tar`.
        with_photos: False gives rows whose `image` is null.
        on_error: "raise", or "skip" to leave out photos that are missing or broken.
    """

    photos: str | None = None
    with_photos: bool = True
    on_error: str = "raise"

    def create_config_id(self, *args: Any, **kwargs: Any) -> str:
        """The name of the cache folder; it changes with the release's files, so that no stale rows come back."""
        config_id: str = super().create_config_id(*args, **kwargs)
        if self.data_dir is not None and Release.has_annotations(Path(self.data_dir).expanduser()):
            config_id += "-" + Release(self.data_dir, self.photos if self.with_photos else None).state()
        return config_id


class DCI(datasets.GeneratorBasedBuilder):
    """`datasets` builder of the configurations `full` and `sdci`."""

    VERSION = datasets.Version("1.0.0")
    BUILDER_CONFIG_CLASS = DCIConfig
    BUILDER_CONFIGS = [
        DCIConfig(name="full", version=VERSION, description="Human descriptions of over 1,000 words, tied to masks."),
        DCIConfig(name="sdci", version=VERSION, description="Summaries that fit 77 CLIP tokens, with hard negatives."),
    ]
    DEFAULT_CONFIG_NAME = "full"
    # Rows carry photos of about 1 MB: keep what is held in memory before it is written small.
    DEFAULT_WRITER_BATCH_SIZE = 100

    def _info(self) -> datasets.DatasetInfo:
        return datasets.DatasetInfo(
            description=f"Densely Captioned Images. {self.config.description}",
            features=features(self.config.name),
            homepage="https://github.com/facebookresearch/DCI",
            license="CC-BY-NC 4.0 (annotations); SA-1B research licence (photos)",
            citation=CITATION,
        )

    def _split_generators(self, dl_manager: Any) -> list[datasets.SplitGenerator]:
        config = self.config
        data_dir = Path(config.data_dir).expanduser() if config.data_dir else None
        archive = None
        if data_dir is None or (data_dir.is_dir() and not Release.has_annotations(data_dir)):
            # Streaming would hand the address over instead of the file, and a file is what can be checked.
            manager = datasets.DownloadManager(download_config=dl_manager.download_config)
            archive = Path(manager.download(ANNOTATIONS_URL))
            check_annotations_archive(archive, downloaded=True)
        release = Release(data_dir, config.photos, annotations=archive)
        generators = []
        for split, names in release.splits.items():
            names = release.check(names, config.with_photos, config.on_error)
            if names:  # datasets refuses a split without rows
                kwargs = {"release": release, "names": names}
                generators.append(datasets.SplitGenerator(name=split, gen_kwargs=kwargs))
        for skipped in release.skipped:
            logger.warning(f"left out: {skipped.image_id}: {skipped.reason}")
        if not generators:
            raise DCIError(f"{release.root}: no photo to build from; {len(release.skipped)} are missing")
        return generators

    def _generate_examples(self, release: Release, names: list[str]) -> Iterator[tuple[str, Row]]:
        config = self.config
        rows = release.rows_of(names, config.name, photos=config.with_photos, on_error=config.on_error)
        for index, row in enumerate(rows):
            yield f"{index}-{row['image_id']}", row
