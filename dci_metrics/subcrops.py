"""Rows of the `sdci` configuration → flat entries and their decoded crops. Each photo is decoded once."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import PIL.Image

import dci
from dci import DCIError, Row
from dci_metrics.tasks import Task

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
    """

    image_id: str
    key: str
    mask_id: int
    crop_xyxy: tuple[int, int, int, int]
    captions: tuple[str, ...]
    negatives: tuple[Negative, ...]
    left_out: Mapping[str, str]

    @property
    def first_swap(self) -> str | None:
        """The negative of the tests on swaps."""
        return next((negative.text for negative in self.negatives if negative.kind == "swaps"), None)

    def positives(self, task: Task) -> Sequence[str]:
        """The captions that are right in a test."""
        return self.captions[: task.captions]

    def negative(self, task: Task) -> str | None:
        """The caption that is wrong in a test, where the test has one."""
        if task.kind == "scm":
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
                return Path(image).read_bytes()
            except OSError as error:
                raise DCIError(f"{image}: cannot be read ({error}); it is the photo of {self.image_id}") from error
        if image is None:
            raise DCIError(
                f"{self.image_id}: the row has no photo ({self.file_name}); build the dataset with photos, "
                "or join your own to it"
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
        if self.image.size != (self.width, self.height):
            raise DCIError(
                f"{self.image_id}: field `image`: expected {self.width}x{self.height} pixels as its masks have, got "
                f"{self.image.size[0]}x{self.image.size[1]}; hand over the file's bytes (Image(decode=False))"
            )
        return self.image.convert("RGB")

    def crops(self, entries: Sequence[Entry]) -> list[PIL.Image.Image]:
        """The subcrops of the given entries, from one decoding of the photo."""
        photo = self.open()
        return [photo.crop(entry.crop_xyxy) for entry in entries]

    def digest(self) -> bytes:
        """A hash over what scoring depends on: id, crops, texts, CLIP scores and the photo's bytes."""
        entries = [
            [e.key, e.crop_xyxy, e.captions, [[n.kind, n.text, n.clip_score] for n in e.negatives]]
            for e in self.entries
        ]
        text = json.dumps([self.image_id, entries, sorted(self.left_out)], ensure_ascii=False, allow_nan=False)
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass"))
        # Pixels stand in for a file that is not there any more; they never agree with it.
        digest.update(self.content if self.content is not None else b"pixels" + self.open().tobytes())
        return digest.digest()


def read_row(row: Row) -> Photo:
    """One row of the `sdci` configuration.

    Raises:
        DCIError: If a column is missing or of another type, as in rows of another dataset or configuration.
    """
    missing = [column for column in COLUMNS if column not in row]
    if missing:
        raise DCIError(
            f"the rows have no column {', '.join(f'`{column}`' for column in missing)}; expected those of DCI's "
            'configuration "sdci", as load_dataset("dci", "sdci") gives them'
        )
    image_id = str(row["image_id"])
    left_out = {str(cell["test"]): str(cell["reason"]) for cell in row["left_out"]}
    try:
        entries = tuple(_read_entry(cell, image_id, left_out) for cell in row["entries"])
        width, height = int(row["width"]), int(row["height"])
    except (KeyError, TypeError, ValueError) as error:
        raise DCIError(f"{image_id}: field `entries`: not as DCI's `sdci` rows have it ({error!r})") from error
    return Photo(image_id, str(row["file_name"]), width, height, entries, left_out, row["image"])


def _read_entry(cell: Mapping[str, Any], image_id: str, left_out: Mapping[str, str]) -> Entry:
    x0, y0, x1, y1 = (int(side) for side in cell["crop_xyxy"])
    negatives = tuple(Negative(n["kind"], n["text"], n["clip_score"]) for n in cell["negatives"])
    mask_id = int(cell["mask_id"])
    return Entry(image_id, cell["key"], mask_id, (x0, y0, x1, y1), tuple(cell["captions"]), negatives, left_out)


def read_photos(rows: Iterable[Row]) -> Iterator[Photo]:
    """The photos of rows, whether from a list, a map-style or a streaming dataset."""
    for row in rows:
        yield read_row(row)
