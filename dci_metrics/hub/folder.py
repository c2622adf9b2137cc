"""The dataset folder: one set of Parquet files that `load_dataset` reads as `full` and as `sdci`.

    build(dci.Release("RELEASE"), Path("dci"))       →       load_dataset("dci", "sdci")

The photos lie in it once: `data/` has the columns of both configurations, and each of the two names its own in the
README's YAML.
"""

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

import dci
from dci_metrics.files import unfinished_folder
from dci_metrics.hub import card
from dci_metrics.hub.reading import Counts, ReleaseRows, reader
from dci_metrics.hub.shards import ShardWriter
from dci_metrics.hub.summary import BuildSummary, SplitSummary
from dci_metrics.sources import is_built

CONFIGS = ("full", "sdci")


def build(
    release: dci.Release,
    out: Path,
    *,
    configs: Sequence[str] = CONFIGS,
    num_proc: int = 1,
    photos: bool = True,
    on_error: str = "raise",
    force: bool = False,
    progress: bool = True,
) -> BuildSummary:
    """Write the folder that `load_dataset` reads.

    It appears whole or not at all: everything is written beside `out`, and gets its name when it is done.

    Args:
        release: The release's files.
        out: The folder to make.
        configs: `full`, `sdci` or both; only their columns are written.
        num_proc: Processes that decode masks, which is what takes the time. They are spawned, so a script that asks
            for more than one needs `if __name__ == "__main__":`.
        photos: Whether the photos are stored; without, `image` is null.
        on_error: "raise", or "skip" to leave photos that cannot be used out, count them and list them.
        force: Replace a folder that an earlier call has built, once the new one is whole.
        progress: Whether to show a bar (on a terminal).

    Raises:
        dci.DCIError: If `out` exists, an argument is wrong, or something in the release is (unless `on_error` is
            "skip").
    """
    _check_arguments(configs, num_proc, on_error)
    configs = tuple(config for config in CONFIGS if config in configs)
    source = ReleaseRows(release, "both" if len(configs) > 1 else configs[0], photos, on_error)
    with _whole_or_nothing(out.expanduser().resolve(), force) as unfinished:
        splits = _write_splits(source, unfinished / "data", configs, num_proc, progress)
        summary = BuildSummary(out, configs, photos, splits)
        card.write(unfinished / "README.md", summary)
    return summary


def _check_arguments(configs: Sequence[str], num_proc: int, on_error: str) -> None:
    if isinstance(configs, str) or not configs or not set(configs) <= set(CONFIGS):
        raise dci.DCIError(f"configs: expected a list of some of {', '.join(CONFIGS)}, got {configs!r}")
    if num_proc < 1:
        raise dci.DCIError(f"num_proc: expected at least 1, got {num_proc}")
    if on_error not in ("raise", "skip"):
        raise dci.DCIError(f"on_error: expected 'raise' or 'skip', got {on_error!r}")


def _write_splits(
    source: ReleaseRows, data: Path, configs: Sequence[str], num_proc: int, progress: bool
) -> dict[str, SplitSummary]:
    data.mkdir()
    columns = {config: list(dci.features(config)) for config in configs}
    names, missing = _find(source)
    splits = {}
    bar = tqdm(total=sum(map(len, names.values())), desc="Building", unit=" photos", disable=None if progress else True)
    with bar, reader(source, num_proc) as read:
        for split in names:
            counts, skipped = Counts(), missing[split]
            with ShardWriter(data, split, source.schema, columns) as writer:
                for piece in read(names[split]):
                    for row in piece.rows:
                        writer.write(row)
                    counts += piece.counts
                    skipped += piece.skipped
                    bar.update(len(piece.rows) + len(piece.skipped))
            files, size = tuple(path.name for path in writer.files), sum(path.stat().st_size for path in writer.files)
            splits[split] = SplitSummary(counts, tuple(skipped), writer.num_bytes, files, size)
    if not any(split.counts.photos for split in splits.values()):
        reasons = [f"{skipped.image_id}: {skipped.reason}" for split in splits.values() for skipped in split.skipped]
        raise dci.DCIError(f"{source.release.root}: none of its photos can be used; {'; '.join(reasons[:3])}")
    return splits


def _find(source: ReleaseRows) -> tuple[dict[str, list[str]], dict[str, list[dci.Skipped]]]:
    """The annotation files of each split, and what is missing, found before any work is done."""
    release = source.release
    splits = {split: files for split, files in release.splits.items() if files}
    if source.on_error == "raise":
        # All splits at once, so that the message counts all that is missing.
        release.check([name for files in splits.values() for name in files], source.photos)
        return splits, {split: [] for split in splits}
    names, missing = {}, {}
    for split, files in splits.items():
        known = len(release.skipped)
        names[split] = release.check(files, source.photos, "skip")
        missing[split] = release.skipped[known:]
    return names, missing


@contextlib.contextmanager
def _whole_or_nothing(out: Path, force: bool) -> Iterator[Path]:
    """A folder beside `out` that takes its place at the end, or is removed if anything fails."""
    _refuse_existing(out, force)
    with unfinished_folder(out) as unfinished:
        yield unfinished
        _refuse_existing(out, force)
        if out.exists() and any(out.iterdir()):
            replaced = out.rename(unfinished.with_name(f"{unfinished.name}-replaced"))
            try:
                unfinished.rename(out)
            except OSError:
                replaced.rename(out)
                raise
            shutil.rmtree(replaced)
        else:
            unfinished.rename(out)


def _refuse_existing(out: Path, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not force:
        raise dci.DCIError(f"{out}: is there already; name another folder, or replace it with --force")
    if not is_built(out):
        # A slip of the pen must not remove somebody's files.
        raise dci.DCIError(f"{out}: is not a folder that `dci build` wrote, so --force does not replace it; remove it")
