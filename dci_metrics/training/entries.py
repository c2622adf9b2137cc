"""What is trained on: the entries of a split, in a file on disk, with photos read when they are needed.

Memory holds neither texts nor photos, so it does not grow with the data, however many processes load.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from dci import DCIError
from dci_metrics.sources import Share, Source
from dci_metrics.subcrops import Entry, Photo, read_row
from dci_metrics.training.config import Negatives
from dci_metrics.walk import bar

CHUNK = 500
"""Entries that are written at once."""

SCHEMA = pa.schema(
    {
        "place": pa.int64(),
        "image_id": pa.string(),
        "file_name": pa.string(),
        "width": pa.int32(),
        "height": pa.int32(),
        "key": pa.string(),
        "crop_xyxy": pa.list_(pa.int32()),
        "captions": pa.list_(pa.string()),
        "negatives": pa.list_(pa.string()),
    }
)

Fits = Callable[[Sequence[str]], list[bool]]
"""Tells of texts whether the model can read them whole."""

MakeNegatives = Callable[[Sequence[str]], Iterable[Sequence[str]]]
"""Makes wrong captions of captions, for each several or none."""


@dataclass(frozen=True)
class Selection:
    """Which entries are trained on, and with which texts.

    Attributes:
        captions: How many an entry must have.
        negatives: The kind that an entry must have; None where none is needed.
        submasks: Whether entries of masks are taken.
        max_photos: How many photos are taken at most.
        fits: Where photos are left out that have a caption which the model cannot read whole.
        check_photos: Whether each photo is decoded first, and left out if it is broken.
    """

    captions: int = 1
    negatives: Negatives | None = "swaps"
    submasks: bool = True
    max_photos: int | None = None
    fits: Fits | None = None
    check_photos: bool = False


class TrainingEntry(NamedTuple):
    """One image with its texts.

    Attributes:
        place: Of its photo in the split.
        photo: Without pixels.
        crop_xyxy: The subcrop.
        captions: All that are right.
        negatives: All that are wrong, of the wanted kind.
    """

    place: int
    photo: Photo
    crop_xyxy: tuple[int, int, int, int]
    captions: list[str]
    negatives: list[str]


@dataclass
class Entries:
    """The entries of a split, by number.

    Attributes:
        path: The file that holds them.
        open_image: Gives a photo's `image` cell by its place and file name.
        left_out: How many photos and entries are not taken, by reason.
    """

    path: Path
    open_image: Callable[[int, str], Any]
    left_out: Counter[str] = field(default_factory=Counter)

    @cached_property
    def _table(self) -> pa.Table:
        return pa.ipc.open_stream(pa.memory_map(str(self.path))).read_all()

    def __getstate__(self) -> dict[str, Any]:
        # A loading process maps the file itself.
        return {key: value for key, value in self.__dict__.items() if key != "_table"}

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def __getitem__(self, index: int) -> TrainingEntry:
        row = {name: column[index].as_py() for name, column in zip(SCHEMA.names, self._table.columns, strict=True)}
        return TrainingEntry(
            row["place"],
            Photo(row["image_id"], row["file_name"], row["width"], row["height"], (), {}, None),
            tuple(row["crop_xyxy"]),
            row["captions"],
            row["negatives"],
        )

    def texts(self, index: int) -> tuple[list[str], list[str]]:
        """Of one entry, the captions and the negatives alone."""
        captions, negatives = (self._table[name][index].as_py() for name in ("captions", "negatives"))
        return captions, negatives

    def photos(self) -> list[range]:
        """The numbers of the entries of each photo, which stand together."""
        return [range(start, stop) for start, stop in pairwise(self._starts) if stop > start]

    def of_same_photo(self, index: int) -> range:
        """The numbers of the entries of an entry's photo."""
        number = bisect_right(self._starts, index)
        return range(self._starts[number - 1], self._starts[number])

    @cached_property
    def _starts(self) -> list[int]:
        places = np.asarray(self._table["place"])
        return [0, *(np.flatnonzero(np.diff(places)) + 1).tolist(), len(places)]


def write_entries(
    source: Source,
    selection: Selection,
    path: Path,
    make_negatives: MakeNegatives | None = None,
    progress: bool = True,
) -> Entries:
    """Write the entries of a split that can be trained on.

    Args:
        source: Rows of the configuration `sdci`.
        selection: Which of them.
        path: The file.
        make_negatives: Makes an entry's negatives of its first caption, where they are not the data's.
        progress: Whether to show it.

    Raises:
        DCIError: If none is left; it says how many are left out for which reason.
    """
    entries = Entries(path, source.open_images())
    kept = _kept(source, selection, entries.left_out, make_negatives is None, progress)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as writer:
        while rows := list(islice(kept, CHUNK)):
            if make_negatives is not None:
                rows = list(_with_negatives(rows, make_negatives, entries.left_out))
            writer.write_batch(pa.RecordBatch.from_pylist(rows, schema=SCHEMA))
    if not len(entries):
        raise DCIError(f"{source.id}: nothing of {source.split!r} can be trained on: {describe(entries.left_out)}")
    return entries


def describe(left_out: Mapping[str, int]) -> str:
    """What was left out, in words."""
    return "; ".join(f"{count} × {reason}" for reason, count in sorted(left_out.items())) or "it is empty"


def _kept(
    source: Source, selection: Selection, left_out: Counter[str], own_negatives: bool, progress: bool
) -> Iterator[dict[str, Any]]:
    rule = "all" if selection.submasks else "base"
    wanted = selection.negatives if own_negatives else None
    photos = 0
    with bar(source.total, "photo", progress) as shown:
        for place, row in source.read_share(Share(), photos=selection.check_photos):
            shown.update()
            photo = read_row(row)
            if selection.check_photos and not _is_whole(photo):
                left_out["photos: cannot be read"] += 1
                continue
            if wanted is not None and rule in photo.left_out:
                # The paper's loader passes over the same photos.
                left_out[f"photos: {photo.left_out[rule]}"] += 1
                continue
            entries = [entry for entry in photo.entries if selection.submasks or entry.key == "base"]
            if selection.fits is not None and not all(selection.fits([c for e in entries for c in e.captions])):
                left_out["photos: a caption is longer than the model reads"] += 1
                continue
            rows = list(_rows(photo, place, entries, selection, wanted, left_out))
            yield from rows
            photos += bool(rows)
            if photos == selection.max_photos:
                break
    for skipped in source.skipped:
        left_out[f"photos: {skipped.reason}"] += 1


def _is_whole(photo: Photo) -> bool:
    try:
        photo.open()
    except DCIError:
        return False
    return True


def _rows(
    photo: Photo,
    place: int,
    entries: Sequence[Entry],
    selection: Selection,
    wanted: Negatives | None,
    left_out: Counter[str],
) -> Iterator[dict[str, Any]]:
    for entry in entries:
        negatives = negatives_of(entry, wanted) if wanted is not None else []
        if len(entry.captions) < selection.captions:
            left_out[f"entries: fewer captions than {selection.captions}"] += 1
        elif wanted is not None and not negatives:
            left_out[f"entries: no negatives ({wanted})"] += 1
        else:
            yield {
                "place": place,
                "image_id": photo.image_id,
                "file_name": photo.file_name,
                "width": photo.width,
                "height": photo.height,
                "key": entry.key,
                "crop_xyxy": list(entry.crop_xyxy),
                "captions": list(entry.captions),
                "negatives": negatives,
            }


def negatives_of(entry: Entry, kind: Negatives) -> list[str]:
    """The wrong captions of a kind, in the release's order."""
    if kind == "hardest":
        hardest = entry.hardest_negative
        return [hardest] if hardest is not None else []
    return [negative.text for negative in entry.negatives if kind in ("any", negative.kind)]


def _with_negatives(
    rows: Sequence[dict[str, Any]], make_negatives: MakeNegatives, left_out: Counter[str]
) -> Iterator[dict[str, Any]]:
    made = make_negatives([row["captions"][0] for row in rows])
    for row, negatives in zip(rows, made, strict=True):
        if negatives:
            yield row | {"negatives": list(negatives)}
        else:
            left_out["entries: a caption without two things to swap"] += 1
