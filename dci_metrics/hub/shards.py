"""Parquet files of one split."""

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

MAX_GROUP_ROWS = 100
MAX_GROUP_BYTES = 100_000_000
MAX_FILE_BYTES = 500_000_000
# The page index lets the Hub's viewer read single rows.
PARQUET_OPTIONS: dict[str, Any] = {"compression": "zstd", "write_page_index": True}


class ShardWriter:
    """Writes the rows of one split to `<split>-00000-of-0000N.parquet`, holding at most one row group in memory.

    Args:
        folder: Where the files go.
        split: Their name's first part.
        schema: The columns.
        configs: Names of the columns of each configuration, to count bytes for.

    Attributes:
        files: The files' names once they are closed, in order; none for a split without a row.
        num_bytes: Bytes in memory of each configuration's columns.
    """

    def __init__(self, folder: Path, split: str, schema: pa.Schema, configs: Mapping[str, Sequence[str]]) -> None:
        self.files: list[Path] = []
        self.num_bytes = dict.fromkeys(configs, 0)
        self._folder = folder
        self._split = split
        self._schema = schema
        self._configs = configs
        self._rows: list[pa.RecordBatch] = []
        self._rows_bytes = 0
        self._file: BinaryIO | None = None
        self._parquet: pq.ParquetWriter | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        if error is None:
            self._end_group()
        self._end_file()
        if error is None:
            self._number_files()

    def write(self, row: pa.RecordBatch) -> None:
        """Add one row."""
        size = row.nbytes
        if self._rows and (len(self._rows) == MAX_GROUP_ROWS or self._rows_bytes + size > MAX_GROUP_BYTES):
            self._end_group()
        self._rows.append(row)
        self._rows_bytes += size

    def _end_group(self) -> None:
        if not self._rows:
            return
        if self._file is not None and self._file.tell() + self._rows_bytes > MAX_FILE_BYTES:
            self._end_file()
        if self._parquet is None:
            path = self._folder / f"{self._split}-{len(self.files):05d}.parquet"
            self.files.append(path)
            self._file = path.open("wb")
            self._parquet = pq.ParquetWriter(self._file, self._schema, **PARQUET_OPTIONS)
        table = pa.Table.from_batches(self._rows, self._schema).combine_chunks()
        self._parquet.write_table(table, row_group_size=len(table))
        for config, columns in self._configs.items():
            self.num_bytes[config] += table.select(columns).nbytes
        self._rows, self._rows_bytes = [], 0

    def _end_file(self) -> None:
        if self._parquet is not None and self._file is not None:
            self._parquet.close()
            self._file.close()
        self._parquet = self._file = None

    def _number_files(self) -> None:
        total = len(self.files)
        for i, path in enumerate(self.files):
            self.files[i] = path.rename(self._folder / f"{self._split}-{i:05d}-of-{total:05d}.parquet")
