"""Rows → photos with their texts by protocol, over one split or all of them, in the form that the encoder walks."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets
import PIL.Image

import dci
from dci import SPLITS, DCIError, Release, Row, Skipped
from dci_metrics import sample
from dci_metrics.caption_sets import is_caption_set
from dci_metrics.retrieval.lists import Listed, stem_of
from dci_metrics.retrieval.protocols import Captions, Protocol
from dci_metrics.rows import size_of
from dci_metrics.sources import Numbered, Share, Source, is_release, open_source, why_not_loaded
from dci_metrics.subcrops import Crop, Entry, Photo
from dci_metrics.tasks import Task

EVERY = "all"
"""The split that is all splits together, in the order of `dci.SPLITS`."""

PHOTO, SQUARE = "base", "square"
"""Keys of what a model sees: the photo, as in the tests of sDCI, or squashed to a square before anything else."""

SIDE = 336
"""Pixels of that square where the model does not tell its own size."""

TASK = Task("retrieval", "Retrieval", "all", "scm")
"""Takes whatever has a text."""

_SPLIT_APART = 1 << 40
"""Places of one split begin so far after those of the one before."""


@dataclass(frozen=True)
class Image(Entry):
    """A photo as a model sees it, with its texts by protocol; `captions` are all of them, each once."""

    texts_of: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    file_name: str = ""


@dataclass(frozen=True)
class SeenPhoto(Photo):
    """A photo that can be seen squashed.

    Attributes:
        side: Pixels of the square.
    """

    side: int = SIDE

    def crops(self, entries: Sequence[Entry], crop: Crop = "box") -> list[PIL.Image.Image]:
        """The photo as each of the entries has it, from one decoding."""
        photo = self.open()
        square = (self.side, self.side)
        return [photo.resize(square, PIL.Image.Resampling.BICUBIC) if e.key == SQUARE else photo for e in entries]

    def crop_key(self, entry: Entry, crop: Crop) -> str:
        """A name for what a model sees; of the photo itself that of the tests of sDCI, so that it is encoded once."""
        if entry.key != SQUARE:
            return super().crop_key(entry, crop)
        seen = json.dumps([self.width, self.height, SQUARE, self.side])
        return hashlib.sha256(self.content_hash + seen.encode()).hexdigest()

    def digest(self) -> bytes:
        """A hash over its id and bytes; those of texts are by protocol."""
        return hashlib.sha256(self.image_id.encode("utf-8", "surrogatepass") + self.content_hash).digest()


class Reader:
    """Reads rows for some protocols.

    Args:
        protocols: Those that texts are made for.
        listed: Texts of the user's list.
        summaries: First summaries by image_id, where the rows do not have them.
        side: Of the square that photos are squashed to.
    """

    def __init__(
        self, protocols: Sequence[Protocol], listed: Listed, summaries: Mapping[str, str] | None, side: int | None
    ) -> None:
        self.protocols, self.listed, self.summaries, self.side = protocols, listed, summaries, side or SIDE
        self.columns = ["image", "image_id", "file_name", "width", "height"]
        if any(protocol.needs == "full" for protocol in protocols):
            self.columns += ["short_caption", "extra_caption", "description"]
        if summaries is None and any(protocol.needs == "sdci" for protocol in protocols):
            self.columns.append("entries")

    def __call__(self, row: Row) -> SeenPhoto:
        """One row.

        Raises:
            DCIError: If a column that the protocols need is missing, or of another type.
        """
        if not isinstance(row, Mapping):
            raise DCIError(f"expected rows of DCI, got {type(row).__name__}")
        missing = [column for column in self.columns if column not in row]
        if missing:
            raise DCIError(
                f"the rows have no column {', '.join(f'`{column}`' for column in missing)}, which "
                f"{', '.join(protocol.key for protocol in self.protocols)} need; give the dataset by its name, or "
                "other protocols (`full` rows have captions, `sdci` rows summaries)"
            )
        image_id, file_name = str(row["image_id"]), str(row["file_name"])
        width, height = size_of(row, image_id)
        captions = self._captions(row, image_id)
        texts = {protocol.key: tuple(protocol.texts(captions)) for protocol in self.protocols}
        without = {protocol.key: protocol.without for protocol in self.protocols if not texts[protocol.key]}
        entries = []
        for key in (PHOTO, SQUARE):
            of_key = {p.key: texts[p.key] for p in self.protocols if p.is_square == (key == SQUARE) and texts[p.key]}
            distinct = tuple(dict.fromkeys(text for found in of_key.values() for text in found))
            if distinct:
                whole = (0, 0, width, height)
                entries.append(Image(image_id, key, dci.PHOTO, whole, distinct, (), {}, None, of_key, file_name))
        return SeenPhoto(image_id, file_name, width, height, tuple(entries), without, row["image"], self.side)

    def _captions(self, row: Row, image_id: str) -> Captions:
        texts = {
            field: _text(row, column, image_id)
            for field, column in (
                ("short", "short_caption"),
                ("extra", "extra_caption"),
                ("description", "description"),
            )
            if column in self.columns
        }
        summary = summary_of(row) if self.summaries is None and "entries" in self.columns else None
        if self.summaries is not None:
            summary = self.summaries.get(image_id)
        return Captions(**texts, summary=summary, listed=self.listed.get(stem_of(str(row["file_name"])), ()))


def _text(row: Row, column: str, image_id: str) -> str:
    value = row[column]
    if not isinstance(value, str):
        raise DCIError(f"{image_id}: field `{column}`: expected text, got {type(value).__name__}")
    return value


def summary_of(row: Row) -> str | None:
    """The first summary of a whole photo, in a row of `sdci`; None where there is none.

    Raises:
        DCIError: If the row is none of `sdci`.
    """
    try:
        return next((str(text) for e in row["entries"] if e["key"] == PHOTO for text in e["captions"]), None)
    except (KeyError, TypeError) as error:
        raise DCIError(
            f"{row.get('image_id')}: field `entries`: not as DCI's `sdci` rows have it ({error!r})"
        ) from error


def open_photos(
    dataset: Any, protocols: Sequence[Protocol], split: str, on_error: str, photos: str | Path | None
) -> tuple[Source, Mapping[str, str] | None]:
    """The rows that some protocols need, and, where those do not have them, the first summaries by image_id.

    Args:
        dataset: As `sources.open_source` takes it.
        protocols: That are to be scored.
        split: `train`, `validation`, `test`, or `all` of them.
        on_error: "raise", or "skip" to pass over photos that are missing or broken.
        photos: As there.

    Raises:
        DCIError: If there is no such dataset or split, or photos are missing.
    """
    needs = {protocol.needs for protocol in protocols}
    if not {"full", "sdci"} <= needs:
        return open_splits(dataset, "sdci" if "sdci" in needs else "full", split, on_error, photos), None
    if has_both(dataset):
        source = open_splits(dataset, "both", split, on_error, photos)
        source.config = "full"
        return source, None
    if not isinstance(dataset, str | Path):
        # Rows may have the columns of both; `Reader` looks.
        return open_splits(dataset, "full", split, on_error, photos), None
    texts = open_splits(dataset, "sdci", split, on_error, None)
    summaries = {str(row["image_id"]): summary_of(row) for row in texts.read(photos=False)}
    known = {image_id: summary for image_id, summary in summaries.items() if summary is not None}
    return open_splits(dataset, "full", split, on_error, photos), known


def columns_of(dataset: Any) -> list[str] | None:
    """The columns of a dataset that the user has loaded, where they can be told without reading it."""
    if isinstance(dataset, Mapping):
        dataset = next(iter(dataset.values()), None)
    if isinstance(dataset, datasets.Dataset | datasets.IterableDataset):
        return list(dataset.column_names) if dataset.column_names else None
    if isinstance(dataset, Sequence) and not isinstance(dataset, str) and dataset:
        return list(dataset[0])
    return None


def allowed(protocols: Iterable[Protocol], dataset: Any) -> list[Protocol]:
    """Those protocols that a dataset which the user has loaded has the columns for.

    Raises:
        DCIError: If there is none.
    """
    columns = columns_of(dataset)
    needed = {"full": "short_caption", "sdci": "entries", "list": "file_name"}
    found = [protocol for protocol in protocols if columns is None or needed[protocol.needs] in columns]
    if not found:
        raise DCIError(
            f"the dataset has the columns {', '.join(columns or ())}, of which no protocol is made; expected those of "
            'DCI\'s configuration "full" or "sdci"'
        )
    return found


def has_both(dataset: Any) -> bool:
    """Whether a dataset gives the columns of both configurations in one reading: a release does."""
    if isinstance(dataset, Release):
        return True
    name = str(dataset)
    return isinstance(dataset, str | Path) and (name.startswith(sample.PREFIX) or is_release(Path(name).expanduser()))


def open_splits(dataset: Any, config: str, split: str, on_error: str, photos: str | Path | None) -> Source:
    """One split as `open_source` gives it, or all of them one after the other."""
    if split != EVERY:
        return open_source(dataset, config, split, on_error, photos)
    splits = splits_of(dataset, config)
    if not splits:
        name = dataset if isinstance(dataset, str | Path) else type(dataset).__name__
        raise DCIError(f"{name}: has nothing in any of {', '.join(SPLITS)}, which --split all takes together")
    parts = [open_source(dataset, config, one, on_error, photos) for one in splits]
    if len(parts) == 1 and not isinstance(dataset, str | Path | Release | Mapping):
        return parts[0]
    totals = [part.total for part in parts if part.total is not None]
    total = sum(totals) if len(totals) == len(parts) else None
    skipped: list[Skipped] = []

    def rows(photos: bool, masks: bool, share: Share) -> Numbered:
        for number, part in enumerate(parts):
            yield from ((number * _SPLIT_APART + i, row) for i, row in part.read_share(share, photos, masks))
            skipped.extend(part.skipped)

    first = parts[0]
    return Source(rows, total, first.id, first.revision, first.config, EVERY, skipped)


def splits_of(dataset: Any, config: str) -> list[str]:
    """The splits that a dataset has, in the order of `dci.SPLITS`.

    Raises:
        DCIError: If that cannot be told.
    """
    if isinstance(dataset, str | Path):
        name = str(dataset)
        if is_caption_set(name):
            raise DCIError(f"{name}: its splits are not told by the dataset; give one of {', '.join(SPLITS)}")
        if not has_both(dataset):
            path = Path(name).expanduser()
            try:
                found = datasets.get_dataset_split_names(str(path) if path.exists() else name, config)
            except Exception as error:  # of many kinds, as `load_dataset` has them
                raise DCIError(why_not_loaded(name, config, EVERY, error)) from error
            return [split for split in SPLITS if split in found]
        release = Release(sample.release_folder(name) if name.startswith(sample.PREFIX) else Path(name).expanduser())
    elif isinstance(dataset, Release):
        release = dataset
    elif isinstance(dataset, Mapping):
        return [split for split in SPLITS if split in dataset]
    else:
        return [EVERY]  # it is one split already, whatever its name
    return [split for split in SPLITS if release.splits[split]]
