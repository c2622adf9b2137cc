"""What a built folder holds."""

import dataclasses
from pathlib import Path

import dci
from dci_metrics.hub.reading import Counts


@dataclasses.dataclass(frozen=True)
class SplitSummary:
    """What one split of a built folder holds.

    Attributes:
        counts: Photos, masks, entries and ignored relatives.
        skipped: The photos that were left out, with `on_error="skip"`.
        num_bytes: Bytes in memory of each configuration's columns.
        files: Names of the Parquet files, in order; none for a split without a row.
        file_bytes: What the files take on disk.
    """

    counts: Counts
    skipped: tuple[dci.Skipped, ...]
    num_bytes: dict[str, int]
    files: tuple[str, ...]
    file_bytes: int


@dataclasses.dataclass(frozen=True)
class BuildSummary:
    """What `build` wrote; `str()` gives a table.

    Attributes:
        out: The folder.
        configs: The configurations it has.
        photos: Whether it holds the photos.
        splits: By name.
    """

    out: Path
    configs: tuple[str, ...]
    photos: bool
    splits: dict[str, SplitSummary]

    @property
    def skipped(self) -> list[dci.Skipped]:
        """All photos that were left out."""
        return [skipped for split in self.splits.values() for skipped in split.skipped]

    def __str__(self) -> str:
        lines = [_line("split", "photos", "masks", "entries", "ignored", "skipped", "files", "MB")]
        for name, split in self.splits.items():
            counts = (*dataclasses.astuple(split.counts), len(split.skipped), len(split.files))
            lines.append(_line(name, *(f"{count:,}" for count in counts), f"{split.file_bytes / 1e6:,.1f}"))
        return "\n".join([*lines, *(f"left out: {skipped.image_id}: {skipped.reason}" for skipped in self.skipped)])


def _line(name: str, *cells: str) -> str:
    return f"{name:<10}" + "".join(f"{cell:>10}" for cell in cells)
