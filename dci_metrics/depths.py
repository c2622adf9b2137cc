"""How deep masks lie in their photo's tree. Rows of `sdci` do not tell; the release, and the columns of `full`, do."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow.parquet as pq

from dci import DCIError, Release
from dci_metrics import sample
from dci_metrics.caption_sets import is_caption_set
from dci_metrics.sources import is_built, is_release

Depths = Mapping[str, Mapping[int, int]]
"""By image_id, by mask_id: 0 for a child of the photo."""

COLUMNS = ("image_id", "masks.list.element.mask_id", "masks.list.element.depth")
"""What is read of Parquet files: no photo, no text and no mask's bitmap."""

HUB = "hf://datasets/"


def find(dataset: Any, split: str) -> Depths | None:
    """The depths of a dataset's masks, read anew from where it lies; no photo is touched.

    Args:
        dataset: As `sources.open_source` takes it.
        split: `train`, `validation` or `test`.

    Returns:
        None where they cannot be known: of rows alone, or where there is only the configuration `sdci`.
    """
    if isinstance(dataset, str | Path):
        return _of_named(str(dataset), split)
    if isinstance(dataset, Release):
        return _of_release(dataset, split)
    if isinstance(dataset, Mapping):
        return find(dataset[split], split) if split in dataset else None
    if isinstance(dataset, datasets.Dataset):
        return _of_hub_files(dataset.info.download_checksums or (), str(dataset.split or split))
    return None


def _of_named(name: str, split: str) -> Depths | None:
    if name.startswith(sample.PREFIX):
        return _of_release(Release(sample.release_folder(name, split)), split)
    if is_caption_set(name):
        return None
    path = Path(name).expanduser()
    if is_release(path):
        return _of_release(Release(path), split)
    if path.exists():
        return _of_files(sorted(path.glob(f"data/{split}-*.parquet"))) if is_built(path) else None
    try:
        files = datasets.load_dataset_builder(name, "sdci").config.data_files
    # It has loaded before, or there would be nothing to break down; whatever fails here, depths are not known.
    except Exception:
        return None
    return _of_hub_files((files or {}).get(split, ()), split)


def _of_release(release: Release, split: str) -> Depths:
    depths = {}
    for name in release.names(split):
        try:
            annotation = release.annotation(name)
        except DCIError:
            continue  # its photo is out of every test, and the result says why
        depths[annotation.image_id] = {mask_id: mask.depth for mask_id, mask in annotation.masks.items()}
    return depths


def _of_hub_files(addresses: Iterable[str], split: str) -> Depths | None:
    """From files that a dataset was loaded of, which lie in the Hub's cache."""
    files = []
    for address in map(str, addresses):
        owner, _, rest = address.removeprefix(HUB).partition("@")
        revision, _, name = rest.partition("/")
        if not address.startswith(HUB) or not Path(name).name.startswith(f"{split}-"):
            continue
        try:
            found = huggingface_hub.hf_hub_download(owner, name, repo_type="dataset", revision=revision)
        except Exception:  # as above
            return None
        files.append(Path(found))
    return _of_files(files)


def _of_files(files: Iterable[Path]) -> Depths | None:
    depths: dict[str, dict[int, int]] = {}
    for path in files:
        with pq.ParquetFile(path) as file:
            if not {"image_id", "masks"} <= set(file.schema_arrow.names):
                return None
            for batch in file.iter_batches(batch_size=100, columns=list(COLUMNS)):
                for row in batch.to_pylist():
                    depths[row["image_id"]] = {mask["mask_id"]: mask["depth"] for mask in row["masks"] or ()}
    return depths or None
