"""Counts and token lengths of a dataset: the quantities of the paper's Table 1.

    print(table(count_dataset("dci")))
    count(dci.Release("RELEASE").rows("test", "both", photos=False, masks=False))

Nothing but numbers is kept of a row, so rows may be streamed.
"""

import dataclasses
import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import datasets
import pyarrow as pa
import pyarrow.parquet as pq

import dci
from dci_metrics import sample, sources

TEXT_LIMIT = 77
"""CLIP's tokens a text, start and end included."""

COLUMNS = {
    "full": ("description", "masks.list.element.quality"),
    "sdci": (
        "entries.list.element.captions.list.element",
        "entries.list.element.negatives.list.element.kind",
        "left_out.list.element.test",
    ),
}
"""What is read of a built folder's Parquet files: no photo and no mask's bitmap."""


class Tokenizer(Protocol):
    """A tokenizer of transformers, which adds the special tokens by itself."""

    def __call__(self, text: list[str], /) -> Mapping[str, Any]: ...


@dataclasses.dataclass(frozen=True)
class Spread:
    """Where the values of one quantity lie."""

    mean: float
    median: float
    min: int
    max: int

    @classmethod
    def of(cls, values: Sequence[int]) -> Self | None:
        """None of no value."""
        if not values:
            return None
        return cls(statistics.fmean(values), statistics.median(values), min(values), max(values))


@dataclasses.dataclass(frozen=True)
class FullStats:
    """Counts of the configuration `full`.

    Attributes:
        photos: Rows.
        masks: Masks of each quality.
        words: Words (runs without white space) of a photo's full description.
        tokens: Tokens of it, special tokens included; None without a tokenizer.
    """

    photos: int
    masks: dict[str, int]
    words: Spread | None
    tokens: Spread | None


@dataclasses.dataclass(frozen=True)
class CaptionTokens:
    """Tokens of sDCI's captions, special tokens included; `over_limit` is the share of captions over 77."""

    mean: float
    max: int
    over_limit: float


@dataclasses.dataclass(frozen=True)
class SdciStats:
    """Counts of the configuration `sdci`.

    Attributes:
        photos: Rows.
        entries: Subcrops, the whole photos among them.
        captions: Captions of all entries.
        captions_per_entry: Mean over the entries that have any.
        caption_tokens: None without a tokenizer, or without a caption.
        negatives: Negatives of each kind.
        left_out: Photos that each of the paper's tests leaves out.
    """

    photos: int
    entries: int
    captions: int
    captions_per_entry: float
    caption_tokens: CaptionTokens | None
    negatives: dict[str, int]
    left_out: dict[str, int]


@dataclasses.dataclass(frozen=True)
class SplitStats:
    """Counts of one split; None for a configuration whose columns the rows do not have."""

    full: FullStats | None = None
    sdci: SdciStats | None = None


def count_dataset(dataset: str, tokenizer: str | None = None, on_error: str = "raise") -> dict[str, SplitStats]:
    """Count all splits of a dataset.

    Args:
        dataset: A folder of `dci build`, a release folder, a Hub id, or a sample.
        tokenizer: A model, by its Hub id, folder or sample's name, whose tokenizer counts tokens.
        on_error: "raise", or "skip" to pass over annotations of a release that are missing or broken.

    Raises:
        dci.DCIError: If there is no such dataset or tokenizer, or something is wrong in the release.
    """
    tokens = load_tokenizer(tokenizer) if tokenizer else None
    is_sample = dataset.startswith(sample.PREFIX)
    path = sample.release_folder(dataset) if is_sample else Path(dataset).expanduser()
    if sources.is_release(path):
        release = dci.Release(path)
        rows = {
            split: release.rows(split, "both", photos=False, masks=False, on_error=on_error)
            for split, names in release.splits.items()
            if names
        }
    elif sources.is_built(path):
        rows = {split: folder_rows(path, split) for split in dci.SPLITS if any(path.glob(f"data/{split}-*.parquet"))}
    elif path.exists():
        raise dci.DCIError(
            f"{dataset}: neither a folder of `dci build` (README.md and data/*.parquet) nor a DCI release "
            "(densely_captioned_images/ or dci.tar.gz)"
        )
    else:
        return _count_loaded(dataset, tokens)
    if not rows:
        raise dci.DCIError(f"{dataset}: none of its splits has a photo")
    return {split: count(of_split, tokens) for split, of_split in rows.items()}


def _count_loaded(dataset: str, tokenizer: Tokenizer | None) -> dict[str, SplitStats]:
    """A dataset of the Hub, where each configuration is loaded by itself."""
    try:
        splits = datasets.get_dataset_split_names(dataset, "sdci")
    except Exception:  # of many kinds; what is wrong is said when it is opened
        splits = list(dci.SPLITS)
    found = {}
    for split in splits:
        full, sdci = (
            count(sources.open_source(dataset, config, split).read(photos=False), tokenizer) for config in COLUMNS
        )
        found[split] = SplitStats(full.full, sdci.sdci)
    return found


def count(rows: Iterable[dci.Row], tokenizer: Tokenizer | None = None) -> SplitStats:
    """Count the rows of one split, in one pass.

    Args:
        rows: Rows of `full`, of `sdci`, or with the columns of both. Only `description`, `masks`, `entries` and
            `left_out` are looked at.
        tokenizer: Counts tokens as the paper's code does, with the special tokens and without a limit.
    """
    full, sdci = _FullCounter(tokenizer), _SdciCounter(tokenizer)
    for row in rows:
        if "masks" in row:
            full.add(row)
        if "entries" in row:
            sdci.add(row)
    return SplitStats(full.stats() if full.words else None, sdci.stats() if sdci.photos else None)


class _FullCounter:
    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.masks = dict.fromkeys(dci.QUALITIES, 0)
        # A median needs all values: four bytes a photo.
        self.words = array("I")
        self.tokens = array("I")

    def add(self, row: dci.Row) -> None:
        for mask in row["masks"]:
            self.masks[mask["quality"]] += 1
        self.words.append(len(row["description"].split()))
        self.tokens.extend(_tokens(self.tokenizer, [row["description"]]))

    def stats(self) -> FullStats:
        return FullStats(len(self.words), self.masks, Spread.of(self.words), Spread.of(self.tokens))


class _SdciCounter:
    def __init__(self, tokenizer: Tokenizer | None) -> None:
        self.tokenizer = tokenizer
        self.photos = self.entries = self.entries_with_captions = self.captions = 0
        self.tokens = self.longest = self.over_limit = 0
        self.negatives: Counter[str] = Counter()
        self.left_out = dict.fromkeys(dci.TESTS, 0)

    def add(self, row: dci.Row) -> None:
        self.photos += 1
        self.entries += len(row["entries"])
        for left in row["left_out"]:
            self.left_out[left["test"]] += 1
        captions = [caption for entry in row["entries"] for caption in entry["captions"]]
        self.captions += len(captions)
        self.entries_with_captions += sum(bool(entry["captions"]) for entry in row["entries"])
        self.negatives.update(negative["kind"] for entry in row["entries"] for negative in entry["negatives"])
        lengths = _tokens(self.tokenizer, captions)
        self.tokens += sum(lengths)
        self.longest = max([self.longest, *lengths])
        self.over_limit += sum(length > TEXT_LIMIT for length in lengths)

    def stats(self) -> SdciStats:
        tokens = None
        if self.tokenizer is not None and self.captions:
            tokens = CaptionTokens(self.tokens / self.captions, self.longest, self.over_limit / self.captions)
        per_entry = self.captions / max(self.entries_with_captions, 1)
        negatives = dict(sorted(self.negatives.items()))
        return SdciStats(self.photos, self.entries, self.captions, per_entry, tokens, negatives, self.left_out)


def _tokens(tokenizer: Tokenizer | None, texts: list[str]) -> list[int]:
    if tokenizer is None or not texts:
        return []
    return [len(ids) for ids in tokenizer(texts)["input_ids"]]


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model, by its Hub id, folder or sample's name.

    Raises:
        dci.DCIError: If there is none.
    """
    import transformers

    path = str(sample.model_path(model)) if model.startswith(sample.PREFIX) else model
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    except Exception as error:
        raise dci.DCIError(f"{model}: no tokenizer can be loaded ({error}); expected a Hub id or a folder") from error
    if len(tokenizer) <= len(set(tokenizer.all_special_tokens)):
        # transformers makes up an empty tokenizer where the files of one are missing, and goes on.
        raise dci.DCIError(f"{model}: the tokenizer knows no words; its files may be missing")
    # Texts over the model's limit are what is counted here, not a mistake to warn of.
    return lambda texts: tokenizer(texts, verbose=False)


def folder_rows(folder: Path, split: str) -> Iterator[dci.Row]:
    """The rows of one split of a built folder, with what `count` looks at and nothing else of them.

    Raises:
        dci.DCIError: If the folder has no such split.
    """
    files = sorted(folder.glob(f"data/{split}-*.parquet"))
    if not files:
        raise dci.DCIError(f"{folder}: no data/{split}-*.parquet; expected a folder of `dci build` with this split")
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                there = set(file.schema_arrow.names)
                columns = [column for names in COLUMNS.values() for column in names if column.split(".")[0] in there]
                for batch in file.iter_batches(batch_size=100, columns=columns):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            raise dci.DCIError(f"{path}: cannot be read ({error}); build the folder again") from error


def to_json(stats: Mapping[str, SplitStats]) -> dict[str, Any]:
    """The counts as plain values, by split."""
    return {split: dataclasses.asdict(counts) for split, counts in stats.items()}


def table(stats: Mapping[str, SplitStats]) -> str:
    """A table for people: a line a quantity, a column a split."""
    columns = {split: _cells(counts) for split, counts in stats.items()}
    quantities = list(dict.fromkeys(name for cells in columns.values() for name in cells))
    rows = [["", *columns], *([name, *(cells.get(name, "-") for cells in columns.values())] for name in quantities)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    )


def _cells(counts: SplitStats) -> dict[str, str]:
    photos = counts.full or counts.sdci
    cells = {"photos": f"{photos.photos if photos else 0:,}"}
    if counts.full:
        cells["masks"] = f"{sum(counts.full.masks.values()):,}"
        cells |= {f"masks {quality}": f"{number:,}" for quality, number in counts.full.masks.items()}
        for name, spread in (("words", counts.full.words), ("tokens", counts.full.tokens)):
            if spread:
                cells |= {
                    f"{name} a photo, {key}": f"{value:,.6g}" for key, value in dataclasses.asdict(spread).items()
                }
    if counts.sdci:
        cells |= _sdci_cells(counts.sdci)
    return cells


def _sdci_cells(counts: SdciStats) -> dict[str, str]:
    cells = {
        "entries": f"{counts.entries:,}",
        "captions": f"{counts.captions:,}",
        "captions an entry": f"{counts.captions_per_entry:.2f}",
    }
    if counts.caption_tokens:
        tokens = counts.caption_tokens
        cells |= {"tokens a caption, mean": f"{tokens.mean:.1f}", "tokens a caption, max": f"{tokens.max:,}"}
        cells[f"captions over {TEXT_LIMIT} tokens"] = f"{tokens.over_limit:.2%}"
    cells |= {f"negatives {kind}": f"{number:,}" for kind, number in counts.negatives.items()}
    return cells | {f"left out of {test}": f"{number:,}" for test, number in counts.left_out.items()}
