"""Where rows come from: a release, a built folder, the Hub, an embedded sample, or a dataset the user has loaded."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count, islice
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa

from dci import SPLITS, DCIError, Photos, Release, Row, Skipped, features, image_id_of
from dci_metrics import sample
from dci_metrics.caption_sets import CaptionSet, image_cell, is_caption_set


@dataclass(frozen=True)
class Share:
    """Every `of`-th row from number `first` on: what one of several processes reads."""

    first: int = 0
    of: int = 1


NEITHER = (
    "neither a folder of `dci build` (README.md and data/*.parquet) nor a DCI release (densely_captioned_images/ or "
    "dci.tar.gz)"
)
"""What to say of a folder that is no dataset."""

OpenImage = Callable[[int, str], Any]
"""Gives the `image` of a row by its place in the split and its `file_name`."""

Numbered = Iterable[tuple[int, Row]]
"""Rows with their place in the split."""


@dataclass
class Source:
    """One split of one configuration.

    Attributes:
        open_rows: Gives a share of the rows, with or without photos and decoded masks.
        total: How many there are, where it is known.
        id: Hub id, folder, or the name of a sample.
        revision: Commit on the Hub.
        config: `full` or `sdci`.
        split: `train`, `validation` or `test`.
        skipped: Photos that were passed over in the last reading; complete when that is at its end.
        images: Opens the photos for reading in any order; None where there is only one order.
    """

    open_rows: Callable[[bool, bool, Share], Numbered]
    total: int | None
    id: str
    revision: str | None
    config: str
    split: str
    skipped: list[Skipped] = field(default_factory=list)
    images: Callable[[], OpenImage] | None = None

    def open_images(self) -> OpenImage:
        """What gives the `image` of a row by its place in the split and its `file_name`, in any order.

        Raises:
            DCIError: If the rows can be read in their order only.
        """
        if self.images is None:
            raise DCIError(
                f"{self.id}: its rows can be read in their order only; expected a dataset that is loaded without "
                "streaming=True, a folder, or a list of rows"
            )
        return self._opened

    @cached_property
    def _opened(self) -> OpenImage:
        # Once: of a built folder, all photos are copied into the cache of `datasets`.
        assert self.images is not None
        return self.images()

    def read(self, photos: bool = True, masks: bool = False) -> Iterator[Row]:
        """The rows, from the first one on.

        Args:
            photos: Whether they are needed; without, `image` may be None.
            masks: Whether masks are needed; without, `rle` may be None.
        """
        yield from (row for _, row in self.read_share(Share(), photos, masks))

    def read_share(self, share: Share, photos: bool = True, masks: bool = False) -> Iterator[tuple[int, Row]]:
        """Some of the rows, each with its place in the split; otherwise as `read`."""
        self.skipped.clear()
        yield from self.open_rows(photos, masks, share)


def open_source(
    dataset: Any,
    config: str = "sdci",
    split: str = "test",
    on_error: str = "raise",
    photos: str | Path | None = None,
) -> Source:
    """Find the rows of a dataset.

    Args:
        dataset: A folder of `dci build`, a release folder, a Hub id, `sample:scenes`, `sample:photographs`,
            `coco:FOLDER`, `localized_narratives:FOLDER`; or a dataset loaded with `datasets`, or a sequence of rows.
        config: `full` or `sdci`.
        split: `train`, `validation` or `test`; ignored for rows and datasets that are one split already.
        on_error: "raise", or "skip" to pass over photos that are missing or broken.
        photos: Folder of photos or `sa_000138.tar`, for a named dataset without, such as one on the Hub.

    Raises:
        DCIError: If there is no such dataset or split, or photos are missing.
    """
    if on_error not in ("raise", "skip"):
        raise DCIError(f"no way {on_error!r} to treat errors: expected 'raise' or 'skip'")
    if isinstance(dataset, str | Path):
        return _open_named(str(dataset), config, split, on_error, photos)
    if photos is not None:
        raise DCIError("photos: are joined to a dataset given by its name; use dci.attach_photos for a loaded one")
    if isinstance(dataset, Release):
        return _open_release(dataset, str(dataset.data_dir or dataset.root), config, split, on_error)
    if isinstance(dataset, Mapping):
        if split not in dataset:
            raise DCIError(f"the dataset has no split {split!r}: it has {', '.join(map(str, dataset))}")
        return open_source(dataset[split], config, split, on_error)
    if isinstance(dataset, datasets.Dataset | datasets.IterableDataset):
        return _open_loaded(dataset, config)
    if isinstance(dataset, Iterable):
        # An iterator is at its end after one reading, and there may be more than one.
        rows = list(dataset) if isinstance(dataset, Iterator) else dataset
        total = len(rows) if isinstance(rows, Sequence) else None

        def share_of(photos: bool, masks: bool, share: Share) -> Numbered:
            return islice(enumerate(rows), share.first, None, share.of)

        by_place = (lambda: lambda place, _: rows[place]["image"]) if isinstance(rows, Sequence) else None
        return Source(share_of, total, type(dataset).__name__, None, config, split, images=by_place)
    raise DCIError(f"expected a dataset's name or folder, or a loaded dataset; got {type(dataset).__name__}")


def _open_named(name: str, config: str, split: str, on_error: str, photos: str | Path | None) -> Source:
    if split not in SPLITS:
        raise DCIError(f"no split {split!r}: expected one of {', '.join(SPLITS)}")
    if photos is not None and not takes_photos(name):
        raise DCIError(f"photos: {name} has its own; leave --photos out")
    if name.startswith(sample.PREFIX):
        return _open_release(Release(sample.release_folder(name, split)), name, config, split, on_error)
    if is_caption_set(name):
        return _open_caption_set(name, config, split, on_error)
    path = Path(name).expanduser()
    if is_release(path):
        return _open_release(Release(path, photos), name, config, split, on_error)
    joined = Photos(photos) if photos is not None else None
    if path.exists():
        if not is_built(path):
            raise DCIError(f"{name}: {NEITHER}")
        # Streamed, so that the photos are not copied into a cache to be read once.
        loaded = _load(str(path), config, split, streaming=True)
        total = loaded.info.splits[split].num_examples if loaded.info.splits else None

        def images() -> OpenImage:
            return _images_of(_load(str(path), config, split, streaming=False))

        source = Source(_rows_of(loaded, name), total, name, None, config, split, images=images)
    else:
        loaded = _load(name, config, split, streaming=False)
        revision, total = _hub_revision(loaded), len(loaded)
        source = Source(_rows_of(loaded, name), total, name, revision, config, split, images=lambda: _images_of(loaded))
    return source if joined is None else _with_photos(source, joined, on_error)


def takes_photos(dataset: Any) -> bool:
    """Whether a dataset may be one without photos, to which they are joined."""
    is_named = isinstance(dataset, str | Path)
    return is_named and not str(dataset).startswith(sample.PREFIX) and not is_caption_set(dataset)


def _with_photos(source: Source, joined: Photos, on_error: str) -> Source:
    """The same rows with other photos, each read when its row is."""

    def rows(photos: bool, masks: bool, share: Share) -> Numbered:
        found = source.open_rows(False, masks, share)
        return ((place, row | {"image": joined.cell(row["file_name"])}) for place, row in found) if photos else found

    if on_error == "raise":
        # Before any work, so that the message counts all that is missing.
        joined.missing(row["file_name"] for row in source.read(photos=False))
    return replace(source, open_rows=rows, images=lambda: lambda _, file_name: joined.cell(file_name))


def _open_caption_set(name: str, config: str, split: str, on_error: str) -> Source:
    if config != "sdci":
        raise DCIError(f"{name}: has no configuration {config!r}: expected 'sdci'")
    captions = CaptionSet(name, split, on_error)

    def rows(photos: bool, masks: bool, share: Share) -> Numbered:
        return captions.rows(photos, share.first, share.of)

    # Of the folder alone, so that the captions are not kept for as long as photos are read.
    folder = captions.photos

    def images() -> OpenImage:
        return lambda _, file_name: image_cell(folder / file_name)

    return Source(rows, len(captions), name, None, config, split, captions.skipped, images)


def is_release(path: Path) -> bool:
    """Whether a folder is a DCI release, unpacked or in its archives."""
    return path.is_dir() and (Release.has_annotations(path) or (path / "complete").is_dir())


def is_built(path: Path) -> bool:
    """Whether a folder is one that `dci build` wrote."""
    return (path / "README.md").is_file() and any(path.glob("data/*.parquet"))


def _open_release(release: Release, name: str, config: str, split: str, on_error: str) -> Source:
    total = len(release.names(split))

    def rows(photos: bool, masks: bool, share: Share) -> Iterator[tuple[int, Row]]:
        places = list(enumerate(release.names(split)))[share.first :: share.of]
        found = release.rows_of([name for _, name in places], config, photos=photos, masks=masks, on_error=on_error)
        place = iter(places)
        for row in found:
            # Photos that were passed over have a place, but no row.
            yield next(i for i, name in place if image_id_of(name) == row["image_id"]), row

    def images() -> OpenImage:
        return lambda _, file_name: {"bytes": release.photo(file_name), "path": file_name}

    return Source(rows, total, name, None, config, split, release.skipped, images)


def _load(name: str, config: str, split: str, streaming: bool) -> Any:
    """`load_dataset`, whose many kinds of failure become one line that names the dataset."""
    try:
        return datasets.load_dataset(name, config, split=split, streaming=streaming)
    except Exception as error:
        raise DCIError(why_not_loaded(name, config, split, error)) from error


def why_not_loaded(name: str, config: str, split: str, error: Exception) -> str:
    """What `datasets` raised, in one line that names the dataset."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    where = "" if Path(name).exists() else "is no folder here, and "
    hint = f"; build it with the configuration {config!r}" if "BuilderConfig" in first else ""
    return f"{name}: {where}cannot be loaded as a dataset ({config}, {split}): {first}{hint}"


def _open_loaded(dataset: Any, config: str) -> Source:
    missing = [column for column in features(config) if column not in (dataset.column_names or features(config))]
    if missing:
        raise DCIError(
            f"the dataset has no column {', '.join(missing)}: expected those of DCI's configuration {config!r}, as "
            f'load_dataset("dci", "{config}") gives them'
        )
    total = len(dataset) if isinstance(dataset, datasets.Dataset) else None
    name = dataset.info.dataset_name or type(dataset).__name__
    revision, split = _hub_revision(dataset), str(dataset.split or "unknown")
    images = (lambda: _images_of(dataset)) if isinstance(dataset, datasets.Dataset) else None
    return Source(_rows_of(dataset, name), total, name, revision, config, split, images=images)


def _rows_of(dataset: Any, name: str) -> Callable[[bool, bool, Share], Numbered]:
    """Rows with the photo's own bytes: `datasets` would turn and decode it without a look at its masks."""
    dataset = _undecoded(dataset)

    def rows(photos: bool, masks: bool, share: Share) -> Iterator[tuple[int, Row]]:
        wanted = dataset if photos else dataset.remove_columns("image")
        places = count(share.first, share.of)
        if isinstance(wanted, datasets.Dataset):
            taken = wanted.shard(share.of, share.first, contiguous=False)
        else:
            taken = islice(wanted, share.first, None, share.of)
        try:
            for i, row in zip(places, taken, strict=False):
                yield i, row if photos else row | {"image": None}
        except (pa.ArrowException, OSError) as error:
            raise DCIError(f"{name}: its rows cannot be read ({error}); build or download it again") from error

    return rows


def _images_of(dataset: Any) -> OpenImage:
    """The photos of a map-style dataset by their place."""
    photos = _undecoded(dataset).select_columns("image")
    return lambda place, _: photos[place]["image"]


def _undecoded(dataset: Any) -> Any:
    dataset = dataset.with_format(None)
    if dataset.features and isinstance(dataset.features.get("image"), datasets.Image):
        dataset = dataset.cast_column("image", datasets.Image(decode=False))
    return dataset


def _hub_revision(dataset: Any) -> str | None:
    """The commit that a dataset from the Hub was read at, as its download addresses have it."""
    for address in dataset.info.download_checksums or ():
        if address.startswith("hf://") and "@" in address:
            return str(address.split("@", 1)[1].split("/", 1)[0])
    return None
