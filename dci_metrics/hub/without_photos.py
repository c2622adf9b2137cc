"""The Parquet files of a built folder, put into another one as they are, or without the photos."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import dci
from dci_metrics.hub.publishing import link
from dci_metrics.hub.reading import Counts
from dci_metrics.hub.shards import PARQUET_OPTIONS


@dataclass
class Contents:
    """What the files hold.

    Attributes:
        photos: Whether they hold a photo.
        splits: Photos, masks and entries of each split.
        num_bytes: Of files that were written anew, the bytes in memory of each configuration's columns, by split.
        file_bytes: What the files take on disk.
    """

    photos: bool
    splits: dict[str, Counts] = field(default_factory=dict)
    num_bytes: dict[str, dict[str, int]] = field(default_factory=dict)
    file_bytes: int = 0


def place(built: Path, folder: Path, configs: Mapping[str, Sequence[str]], photos: bool) -> Contents:
    """Put the Parquet files of a built folder into another one.

    Args:
        built: The built folder; it may be the same as `folder` if it has no photos, or they stay.
        folder: Where they go.
        configs: The names of each configuration's columns.
        photos: Whether photos stay; without, `image` becomes null and each file keeps its name and row groups.

    Raises:
        DCIError: If a file cannot be read, or lacks a column.
    """
    (folder / "data").mkdir(exist_ok=True)
    paths = sorted(built.glob("data/*.parquet"))
    files = {path: _open(path, configs) for path in paths}
    has_some = any(map(has_photos, files.values()))
    contents = Contents(photos=has_some and photos)
    for path, file in files.items():
        split, target = path.name.split("-")[0], folder / "data" / path.name
        try:
            contents.splits[split] = contents.splits.get(split, Counts()) + _count(file)
            if has_some and not photos:
                for config, size in _write_without(file, target, configs).items():
                    sizes = contents.num_bytes.setdefault(config, {})
                    sizes[split] = sizes.get(split, 0) + size
            elif path != target:
                link(path, target)
        except pa.ArrowException as error:
            raise dci.DCIError(f"{path}: cannot be read ({error}); build the folder again") from error
        contents.file_bytes += target.stat().st_size
    return contents


def _open(path: Path, configs: Mapping[str, Sequence[str]]) -> pq.ParquetFile:
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowException as error:
        raise dci.DCIError(f"{path}: cannot be read ({error}); build the folder again") from error
    columns = {column for names in configs.values() for column in names}
    missing = sorted(columns - set(file.schema_arrow.names))
    if missing:
        raise dci.DCIError(f"{path}: has no column {', '.join(missing)}, which its README names; build it again")
    return file


def has_photos(file: pq.ParquetFile) -> bool:
    """Whether any row may have one, as the file's statistics tell."""
    metadata = file.metadata
    for i in range(metadata.num_row_groups):
        group = metadata.row_group(i)
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema == "image.bytes":
                nulls = column.statistics.null_count if column.statistics is not None else None
                if nulls != group.num_rows:
                    return True
    return False


def _count(file: pq.ParquetFile) -> Counts:
    return Counts(file.metadata.num_rows, _length(file, "masks"), _length(file, "entries"))


def _length(file: pq.ParquetFile, name: str) -> int:
    """How many elements a column's lists have, from one field of theirs."""
    paths = [file.schema.column(i).path for i in range(len(file.schema))]
    leaves = [path for path in paths if path.startswith(f"{name}.") and path.endswith(".mask_id")]
    if not leaves:
        return 0
    lists = file.read(columns=leaves).column(name)
    return int(pc.sum(pc.list_value_length(lists)).as_py() or 0)


def _write_without(file: pq.ParquetFile, target: Path, configs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Write the rows with `image` null, a row group at a time; gives the bytes in memory by configuration."""
    schema = file.schema_arrow
    place_of_image = schema.get_field_index("image")
    others = [name for name in schema.names if name != "image"]
    sizes = dict.fromkeys(configs, 0)
    with pq.ParquetWriter(target, schema, **PARQUET_OPTIONS) as writer:
        for i in range(file.metadata.num_row_groups):
            table = file.read_row_group(i, columns=others)
            nulls = pa.nulls(len(table), schema.field("image").type)
            table = table.add_column(place_of_image, schema.field("image"), nulls).combine_chunks()
            writer.write_table(table, row_group_size=len(table))
            for config, columns in configs.items():
                sizes[config] += table.select(columns).nbytes
    return sizes
