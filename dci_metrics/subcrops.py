"""Rows of the `sdci` configuration → flat entries and their decoded crops. Each photo is decoded once."""

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import fsspec
import numpy as np
import PIL.Image
import PIL.ImageOps

import dci
from dci import DCIError, Row
from dci_metrics.rows import head_of
from dci_metrics.tasks import Task

Crop = Literal["box", "masked"]
"""How a subcrop is cut out: "box" as the paper does, "masked" with everything outside of its mask greyed."""

COLUMNS = ("image", "image_id", "file_name", "width", "height", "entries", "left_out")
"""What scoring needs of a row."""


@dataclass(frozen=True)
class Negative:
    """A caption that is wrong for its entry.

    Attributes:
        kind: Which prompt made it: "basic", "layout" or "swaps".
        text: The caption.
        clip_score: CLIP's score of it, as released, by which the hardest is chosen.
    """

    kind: str
    text: str
    clip_score: float | None


@dataclass(frozen=True)
class Entry:
    """The photo, or one of its subcrops, with its captions.

    Attributes:
        image_id: The photo's.
        key: "base" for the photo, or such as "m-3-sc" for a mask.
        mask_id: -1 for the photo.
        crop_xyxy: The subcrop in the photo's pixels, right and bottom exclusive.
        captions: All summaries, in the release's order.
        negatives: Of all kinds, in the release's order.
        left_out: The tests of `dci.TESTS` that its photo is out of, and why.
        rle: The mask, where the row has it.
    """

    image_id: str
    key: str
    mask_id: int
    crop_xyxy: tuple[int, int, int, int]
    captions: tuple[str, ...]
    negatives: tuple[Negative, ...]
    left_out: Mapping[str, str]
    rle: Mapping[str, Any] | None = None

    @property
    def first_swap(self) -> str | None:
        """The negative of the tests on swaps."""
        return next((negative.text for negative in self.negatives if negative.kind == "swaps"), None)

    def positives(self, task: Task) -> Sequence[str]:
        """The captions that are right in a test."""
        return self.captions[: task.captions]

    def negative(self, task: Task) -> str | None:
        """The caption that is wrong in a test, where the test has one."""
        if not task.has_negative:
            return None
        return self.hardest_negative if task.negative == "hardest" else self.first_swap

    def texts(self, task: Task) -> list[str]:
        """All captions that a test needs."""
        negative = self.negative(task)
        return [*self.positives(task), *([negative] if negative is not None else [])]

    @property
    def hardest_negative(self) -> str | None:
        """The negative with the highest CLIP score, the last one on a tie; None unless all have scores."""
        best: Negative | None = None
        for negative in self.negatives:
            if negative.clip_score is None:
                return None
            if best is None or best.clip_score is None or negative.clip_score >= best.clip_score:
                best = negative
        return best.text if best else None


@dataclass(frozen=True)
class Photo:
    """One row: a photo, not decoded yet, with its entries."""

    image_id: str
    file_name: str
    width: int
    height: int
    entries: tuple[Entry, ...]
    left_out: Mapping[str, str]
    image: Any

    @cached_property
    def content(self) -> bytes | None:
        """The photo's file as bytes, or None when the row carries decoded pixels."""
        image = self.image
        if isinstance(image, Mapping):
            if image.get("bytes") is not None:
                return bytes(image["bytes"])
            image = image.get("path")
        if isinstance(image, bytes):
            return image
        if isinstance(image, str | Path):
            try:
                # In a closed archive, which `dci.attach_photos` left where it is, or a file.
                with fsspec.open(image, "rb") if "://" in str(image) else Path(image).open("rb") as file:
                    return bytes(file.read())
            except OSError as error:
                raise DCIError(f"{image}: cannot be read ({error}); it is the photo of {self.image_id}") from error
        if image is None:
            raise DCIError(
                f"{self.image_id}: the row has no photo ({self.file_name}); join your own with "
                "dci.attach_photos(dataset, PHOTOS), or build the dataset with photos"
            )
        return None

    def open(self) -> PIL.Image.Image:
        """Decode the photo to RGB.

        Raises:
            DCIError: If there is none, it is broken, or its size is not that of its masks.
        """
        content = self.content
        if content is not None:
            return dci.open_photo(content, (self.width, self.height), self.file_name)
        if not isinstance(self.image, PIL.Image.Image):
            raise DCIError(f"{self.image_id}: field `image`: expected a photo, got {type(self.image).__name__}")
        size = (self.width, self.height)
        try:
            # As `dci.open_photo` does; what `datasets` decoded is upright already, and says so.
            upright = PIL.ImageOps.exif_transpose(self.image)
            photo = (self.image if upright.size != size and self.image.size == size else upright).convert("RGB")
        # An image that was opened is read only now: PIL raises whatever it meets in a broken file.
        except Exception as error:
            raise DCIError(f"{self.image_id}: field `image`: cannot be read as a photo ({error})") from error
        if photo.size != size:
            raise DCIError(
                f"{self.image_id}: field `image`: expected {self.width}x{self.height} pixels as its masks have, got "
                f"{photo.size[0]}x{photo.size[1]}; hand over the file's bytes (Image(decode=False))"
            )
        return photo

    def crops(self, entries: Sequence[Entry], crop: Crop = "box") -> list[PIL.Image.Image]:
        """The subcrops of the given entries, from one decoding of the photo.

        Args:
            entries: Some of the photo's.
            crop: "box", or "masked" to grey what is outside of each mask; the photo itself has no mask.

        Raises:
            DCIError: If the photo cannot be used, or masks are asked for and the row has none.
        """
        photo = self.open()
        if crop == "box":
            return [photo.crop(entry.crop_xyxy) for entry in entries]
        return [self._masked(photo, entry).crop(entry.crop_xyxy) for entry in entries]

    def _masked(self, photo: PIL.Image.Image, entry: Entry) -> PIL.Image.Image:
        if entry.mask_id == dci.PHOTO:
            return photo
        if entry.rle is None:
            raise DCIError(f"{self.image_id}: field `entries`: {entry.key} has no `rle` to grey the rest by")
        mask = dci.decode_mask(dict(entry.rle))
        if mask.shape != (self.height, self.width):
            raise DCIError(f"{self.image_id}: field `entries`: the mask of {entry.key} is not of the photo's size")
        pixels = np.asarray(photo)
        # A third of the contrast around a middle grey, as the original's code does when it is asked for masks.
        return PIL.Image.fromarray(np.where(mask[..., None], pixels, pixels // 3 + 84))

    def check(self, tasks: Iterable[Task]) -> None:
        """Look for the negatives that tests need: where one is missing, the paper leaves the photo out of the test.

        Raises:
            DCIError: If an entry has none, and `left_out` does not say so.
        """
        for task in tasks:
            for entry in self.entries:
                if task.has_negative and task.takes(entry) and entry.negative(task) is None:
                    raise DCIError(
                        f"{self.image_id}: field `entries`: {entry.key} has no negative for {task.key}; add it, or the "
                        f"test {task.rule!r} to the row's `left_out`, or choose tests without negatives"
                    )

    def digest(self) -> bytes:
        """A hash over what scoring depends on: id, crops, texts, CLIP scores and the photo's bytes."""
        entries = [
            [e.key, e.crop_xyxy, e.captions, [[n.kind, n.text, n.clip_score] for n in e.negatives]]
            for e in self.entries
        ]
        text = json.dumps([self.image_id, entries, sorted(self.left_out)], ensure_ascii=False, allow_nan=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass") + self.content_hash).digest()

    @cached_property
    def content_hash(self) -> bytes:
        """A hash over the photo's bytes."""
        # Pixels stand in for a file that is not there any more; they never agree with it.
        content = self.content if self.content is not None else b"pixels" + self.open().tobytes()
        return hashlib.sha256(content).digest()

    def crop_key(self, entry: Entry, crop: Crop) -> str:
        """A name for what a model sees of an entry: the same pixels have the same one."""
        mask = dict(entry.rle)["counts"] if crop == "masked" and entry.rle is not None else ""
        seen = json.dumps([self.width, self.height, entry.crop_xyxy, crop, mask])
        return hashlib.sha256(self.content_hash + seen.encode()).hexdigest()


def read_row(row: Row) -> Photo:
    """One row of the `sdci` configuration.

    Raises:
        DCIError: If a column is missing or of another type, as in rows of another dataset or configuration.
    """
    image_id, width, height = head_of(row, COLUMNS, "sdci")
    try:
        left_out = {str(cell["test"]): str(cell["reason"]) for cell in row["left_out"]}
    except (KeyError, TypeError) as error:
        raise DCIError(f"{image_id}: field `left_out`: not as DCI's `sdci` rows have it ({error!r})") from error
    unknown = [test for test in left_out if test not in dci.TESTS]
    if unknown:
        raise DCIError(f"{image_id}: field `left_out`: no test {unknown[0]!r}: expected some of {', '.join(dci.TESTS)}")
    try:
        entries = tuple(_read_entry(cell, image_id, left_out, (width, height)) for cell in row["entries"])
    except (KeyError, TypeError, ValueError) as error:
        raise DCIError(f"{image_id}: field `entries`: not as DCI's `sdci` rows have it ({error!r})") from error
    return Photo(image_id, str(row["file_name"]), width, height, entries, left_out, row["image"])


def _read_entry(cell: Mapping[str, Any], image_id: str, left_out: Mapping[str, str], size: tuple[int, int]) -> Entry:
    x0, y0, x1, y1 = (int(side) for side in cell["crop_xyxy"])
    if not (0 <= x0 < x1 <= size[0] and 0 <= y0 < y1 <= size[1]):
        raise ValueError(f"crop_xyxy {[x0, y0, x1, y1]} is no box in {size[0]}x{size[1]} pixels")
    return Entry(
        image_id=image_id,
        key=_text(cell["key"]),
        mask_id=int(cell["mask_id"]),
        crop_xyxy=(x0, y0, x1, y1),
        captions=_texts(cell["captions"]),
        negatives=tuple(_read_negative(negative) for negative in cell["negatives"]),
        left_out=left_out,
        rle=cell.get("rle"),
    )


def _read_negative(cell: Mapping[str, Any]) -> Negative:
    score = None if cell["clip_score"] is None else float(cell["clip_score"])
    # Pandas writes NaN for what is missing.
    return Negative(_text(cell["kind"]), _text(cell["text"]), None if score is None or math.isnan(score) else score)


def _texts(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        raise TypeError("captions are a list of texts, not one text")
    return tuple(_text(text) for text in value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return str(value)


def read_photos(rows: Iterable[Row]) -> Iterator[Photo]:
    """The photos of rows, whether from a list, a map-style or a streaming dataset."""
    for row in rows:
        yield read_row(row)
