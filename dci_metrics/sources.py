"""Where rows come from: a release, a built folder, the Hub, an embedded sample, or a dataset the user has loaded."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import datasets

from dci import SPLITS, DCIError, Release, Row, Skipped, features
from dci_metrics import sample


@dataclass
class Source:
    """One split of one configuration.

    Attributes:
        open_rows: Gives the rows from the first one on, with or without photos and decoded masks.
        total: How many there are, where it is known.
        id: Hub id, folder, or the name of a sample.
        revision: Commit on the Hub.
        config: `full` or `sdci`.
        split: `train`, `validation` or `test`.
        skipped: Photos that were passed over in the last reading; complete when that is at its end.
    """

    open_rows: Callable[[bool, bool], Iterable[Row]]
    total: int | None
    id: str
    revision: str | None
    config: str
    split: str
    skipped: list[Skipped] = field(default_factory=list)

    def read(self, photos: bool = True, masks: bool = False) -> Iterator[Row]:
        """The rows, from the first one on.

        Args:
            photos: Whether they are needed; without, `image` may be None.
            masks: Whether masks are needed; without, `rle` may be None.
        """
        self.skipped.clear()
        yield from self.open_rows(photos, masks)


def open_source(dataset: Any, config: str = "sdci", split: str = "test", on_error: str = "raise") -> Source:
    """Find the rows of a dataset.

    Args:
        dataset: A folder of `dci build`, a release folder, a Hub id, `sample:scenes`, `sample:photographs`; or a
            dataset loaded with `datasets`, or a sequence of rows.
        config: `full` or `sdci`.
        split: `train`, `validation` or `test`; ignored for rows and datasets that are one split already.
        on_error: "raise", or "skip" to pass over photos that are missing or broken.

    Raises:
        DCIError: If there is no such dataset or split.
    """
    if on_error not in ("raise", "skip"):
        raise DCIError(f"no way {on_error!r} to treat errors: expected 'raise' or 'skip'")
    if isinstance(dataset, str | Path):
        return _open_named(str(dataset), config, split, on_error)
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
        return Source(lambda photos, masks: rows, total, type(dataset).__name__, None, config, split)
    raise DCIError(f"expected a dataset's name or folder, or a loaded dataset; got {type(dataset).__name__}")


def _open_named(name: str, config: str, split: str, on_error: str) -> Source:
    if split not in SPLITS:
        raise DCIError(f"no split {split!r}: expected one of {', '.join(SPLITS)}")
    if name.startswith(sample.PREFIX):
        return _open_release(Release(sample.release_folder(name, split)), name, config, split, on_error)
    path = Path(name).expanduser()
    if is_release(path):
        return _open_release(Release(path), name, config, split, on_error)
    if path.exists():
        if not is_built(path):
            raise DCIError(
                f"{name}: neither a folder of `dci build` (README.md and data/*.parquet) nor a DCI release "
                "(densely_captioned_images/ or dci.tar.gz)"
            )
        # Streamed, so that the photos are not copied into a cache to be read once.
        loaded = _load(str(path), config, split, streaming=True)
        total = loaded.info.splits[split].num_examples if loaded.info.splits else None
        return Source(_rows_of(loaded), total, name, None, config, split)
    loaded = _load(name, config, split, streaming=False)
    return Source(_rows_of(loaded), len(loaded), name, _hub_revision(loaded), config, split)


def is_release(path: Path) -> bool:
    """Whether a folder is a DCI release, unpacked or in its archives."""
    return path.is_dir() and (Release.has_annotations(path) or (path / "complete").is_dir())


def is_built(path: Path) -> bool:
    """Whether a folder is one that `dci build` wrote."""
    return (path / "README.md").is_file() and any(path.glob("data/*.parquet"))


def _open_release(release: Release, name: str, config: str, split: str, on_error: str) -> Source:
    total = len(release.names(split))

    def rows(photos: bool, masks: bool) -> Iterator[Row]:
        return release.rows(split, config, photos=photos, masks=masks, on_error=on_error)

    return Source(rows, total, name, None, config, split, release.skipped)


def _load(name: str, config: str, split: str, streaming: bool) -> Any:
    """`load_dataset`, whose many kinds of failure become one line that names the dataset."""
    try:
        return datasets.load_dataset(name, config, split=split, streaming=streaming)
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        where = "" if Path(name).exists() else "is no folder here, and "
        raise DCIError(f"{name}: {where}cannot be loaded as a dataset ({config}, {split}): {first}") from error


def _open_loaded(dataset: Any, config: str) -> Source:
    missing = [column for column in features(config) if column not in (dataset.column_names or features(config))]
    if missing:
        raise DCIError(
            f"the dataset has no column {', '.join(missing)}: expected those of DCI's configuration {config!r}, as "
            f'load_dataset("dci", "{config}") gives them'
        )
    total = len(dataset) if isinstance(dataset, datasets.Dataset) else None
    name = dataset.info.dataset_name or type(dataset).__name__
    return Source(_rows_of(dataset), total, name, _hub_revision(dataset), config, str(dataset.split or "unknown"))


def _rows_of(dataset: Any) -> Callable[[bool, bool], Iterator[Row]]:
    """Rows with the photo's own bytes: `datasets` would turn and decode it without a look at its masks."""
    dataset = dataset.with_format(None)
    if dataset.features and isinstance(dataset.features.get("image"), datasets.Image):
        dataset = dataset.cast_column("image", datasets.Image(decode=False))

    def rows(photos: bool, masks: bool) -> Iterator[Row]:
        if photos:
            yield from dataset
            return
        for row in dataset.remove_columns("image"):
            yield row | {"image": None}

    return rows


def _hub_revision(dataset: Any) -> str | None:
    """The commit that a dataset from the Hub was read at, as its download addresses have it."""
    for address in dataset.info.download_checksums or ():
        if address.startswith("hf://") and "@" in address:
            return str(address.split("@", 1)[1].split("/", 1)[0])
    return None
