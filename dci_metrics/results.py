"""The result of one model on one split: its type, its JSON, its table."""

import json
import platform
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import Any

from dci import DCIError
from dci_metrics import revisions
from dci_metrics.files import write_whole
from dci_metrics.tasks import TASKS
from dci_metrics.version import __version__

SCHEMA = 1

KINDS: dict[str, dict[str, tuple[type, ...]]] = {
    "model": {"id": (str,)},
    "dataset": {"id": (str,), "revision": (str, NoneType), "config": (str,), "split": (str,), "fingerprint": (str,)},
    "settings": {"mode": (str,), "dtype": (str, NoneType)},
    "timing": {"seconds": (int, float), "images": (int,), "texts": (int,)},
    "environment": {},
}
"""What every result says in its parts, and of which kind it is."""

OPTIONAL = {
    "model": ("revision", "family", "adapter", "adapter_revision"),
    "environment": ("dci_metrics", "dci_metrics_revision"),
}
"""What it says in words where there is something to say."""

Breakdown = dict[str, dict[str, dict[str, dict[str, float | None]]]]
"""By test, by "size" and "depth", by bin: n, correct, value."""


@dataclass
class Score:
    """One test's figure; fractions, not percent.

    Attributes:
        value: Share of right entries; None when the split has no entry for the test.
        correct: Right entries; None where entries have rates.
        n: Entries.
        n_images: Images compared: the photos and subcrops.
        n_texts: Distinct texts compared.
        ci95: 95 % interval by bootstrap over photos; None for fewer than two photos.
        chance: The expected value for random scores.
        ties: Entries whose score is exactly that of their best rival.
        truncated: Share of the texts that were cut to the model's limit; None when the model does not tell.
        tokens_lost: Tokens cut off, over all texts; likewise.
        left_out: Photos that are not in the test, and why.
        unit: What `value` is.
        higher_is_better: Which way is up.
    """

    value: float | None
    correct: int | None
    n: int
    n_images: int
    n_texts: int
    ci95: tuple[float, float] | None
    chance: float | None
    ties: int
    truncated: float | None
    tokens_lost: int | None
    left_out: list[dict[str, str]]
    unit: str = "accuracy"
    higher_is_better: bool = True


@dataclass
class Result:
    """One model × one dataset configuration × one split.

    Attributes:
        model: What was scored: id, revision, family, adapter, parameters, text_limit, image_size.
        dataset: On what: id, revision, config, split, fingerprint.
        settings: How: mode, group_size, batch_size, dtype, device, image_backend, compiled, scorer, seed.
        scores: By test.
        entries: (image_id, key) of every entry that is in any of the tests.
        outcomes: By test, one character an entry: "1" right, "0" wrong, "-" not in the test.
        timing: Seconds in all and by stage, images and texts encoded.
        environment: Versions.
        rates: By test on random groups, how likely each entry is right; null for one that is not in the test.
        breakdown: By test, by "size" and "depth", by bin (`dci_metrics.breakdown`): n, correct (None where entries
            have rates) and value.
    """

    model: dict[str, Any]
    dataset: dict[str, Any]
    settings: dict[str, Any]
    scores: dict[str, Score]
    entries: list[tuple[str, str]]
    outcomes: dict[str, str]
    timing: dict[str, Any]
    environment: dict[str, str] = field(default_factory=lambda: environment())
    schema: int = SCHEMA
    rates: dict[str, list[float | None]] = field(default_factory=dict)
    breakdown: Breakdown = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model, and the adapter over it: what tables and plots call it."""
        adapter = self.model.get("adapter")
        return f"{self.model['id']} + {adapter}" if adapter else str(self.model["id"])

    def values(self) -> dict[str, float | None]:
        """The figure of each test."""
        return {key: score.value for key, score in self.scores.items()}

    def values_of(self, test: str) -> dict[tuple[str, str], float]:
        """What became of each entry of one test, by (image_id, key): 1 right, 0 wrong, or its rate."""
        if test in self.rates:
            rates = zip(self.entries, self.rates[test], strict=True)
            return {entry: rate for entry, rate in rates if rate is not None}
        marks = zip(self.entries, self.outcomes[test], strict=True)
        return {entry: float(mark) for entry, mark in marks if mark != "-"}

    def to_json(self) -> str:
        """The result file's text; it holds no NaN and no Infinity."""
        data = asdict(self)
        ordered = {"schema": data.pop("schema"), **data}
        for optional in ("rates", "breakdown"):
            if not ordered[optional]:
                del ordered[optional]
        return json.dumps(ordered, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def save(self, path: str | Path, force: bool = False) -> None:
        """Write the result file, whole or not at all.

        Raises:
            DCIError: If the file exists and `force` is off, or it cannot be written.
        """
        write_whole(Path(path), self.to_json().encode("utf-8", "surrogatepass"), force)

    @classmethod
    def load(cls, path: str | Path) -> "Result":
        """Read a result file.

        Raises:
            DCIError: If it cannot be read, or is no result of a schema known here.
        """
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as error:
            raise DCIError(f"{path}: cannot be read ({error.strerror or error}); expected a result file") from error
        except (ValueError, RecursionError) as error:
            raise DCIError(f"{path}: not valid JSON ({error}); expected a file that `dci eval --out` wrote") from error
        if not isinstance(data, dict) or data.get("schema") != SCHEMA:
            raise DCIError(f"{path}: field `schema`: expected {SCHEMA}; write the result again with this version")
        try:
            scores = {key: _read_score(score) for key, score in data["scores"].items()}
            entries = [(str(image_id), str(key)) for image_id, key in data["entries"]]
            parts: dict[str, Any] = {"rates": {}, "breakdown": {}} | data | {"scores": scores, "entries": entries}
            result = cls(**{f.name: parts[f.name] for f in fields(cls)})
            result._check_kinds()
            result.check()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DCIError(
                f"{path}: not a result file ({error!r}); expected one that `dci eval --out` wrote"
            ) from error
        return result

    def check(self) -> None:
        """Compare the parts that tell the same.

        Raises:
            ValueError: If outcomes are not those of the entries, or a figure is not that of its outcomes.
        """
        if sorted([*self.outcomes, *self.rates]) != sorted(self.scores):
            raise ValueError("`outcomes`, `rates` and `scores` are of other tests")
        for key, marks in self.outcomes.items():
            score = self.scores[key]
            if len(marks) != len(self.entries) or not set(marks) <= set("01-"):
                raise ValueError(f"`outcomes` of {key} are not one of 0, 1 and - for each entry")
            right, n = marks.count("1"), len(marks) - marks.count("-")
            value = right / n if n else None
            if (score.correct, score.n) != (right, n) or score.value != value:
                raise ValueError(f"`scores` of {key} are not those of its `outcomes`")
        for key, rates in self.rates.items():
            score, known = self.scores[key], [rate for rate in rates if rate is not None]
            mean = sum(known) / len(known) if known else 0.0
            if len(rates) != len(self.entries) or len(known) != score.n or abs((score.value or 0.0) - mean) > 1e-9:
                raise ValueError(f"`scores` of {key} are not those of its `rates`")
        for key, kinds in self.breakdown.items():
            for bins in kinds.values():
                if sum(found["n"] or 0 for found in bins.values()) != self.scores[key].n:
                    raise ValueError(f"`breakdown` of {key} is not of its entries")

    def _check_kinds(self) -> None:
        """Make sure that what is read later, and was written by whoever has edited the file, is what it should be."""
        for part, kinds in KINDS.items():
            found = getattr(self, part)
            if not isinstance(found, dict):
                raise ValueError(f"`{part}` is no object")
            wanted = kinds | {name: (str, NoneType) for name in OPTIONAL.get(part, ()) if name in found}
            for name, kind in wanted.items():
                if not isinstance(found[name], kind):
                    raise ValueError(f"`{part}.{name}` is {found[name]!r:.40}")

    def report(self) -> str:
        """The table, with what was scored on what above it, and what a reader must know below."""
        dataset, settings = self.dataset, self.settings
        head = f"{self.name} on {dataset['id']} ({dataset['config']}, {dataset['split']})"
        counts = f"{self.timing['images']} images and {self.timing['texts']} texts in {self.timing['seconds']:.1f} s"
        lines = [f"{head}, {settings['mode']} mode: {counts}", "", self.table()]
        cut = [score for score in self.scores.values() if score.truncated]
        if cut:
            most = max(cut, key=lambda score: score.truncated or 0)
            lines.append(
                f"Up to {percent(most.truncated)} % of a test's texts are longer than the model's "
                f"{self.model['text_limit']} tokens and were cut ({most.tokens_lost} tokens lost)."
            )
        reasons = Counter(left["reason"] for score in self.scores.values() for left in score.left_out)
        if reasons:
            lines.append(
                "Left out, over all tests: " + "; ".join(f"{n} × {r}" for r, n in reasons.most_common(5)) + "."
            )
        return "\n".join(lines)

    def table(self) -> str:
        """The scores in percent, as text for a terminal."""
        rows = [("test", "score", "95 % interval", "chance", "right / entries", "ties", "left out")]
        for key, score in self.scores.items():
            title = TASKS[key].title if key in TASKS else key
            interval = f"{percent(score.ci95[0])} – {percent(score.ci95[1])}" if score.ci95 else "–"
            entries = f"{score.n}" if score.correct is None else f"{score.correct} / {score.n}"
            left_out = f"{len(score.left_out)}"
            rows.append(
                (title, percent(score.value), interval, percent(score.chance), entries, f"{score.ties}", left_out)
            )
        return format_table(rows)


def _read_score(data: dict[str, Any]) -> Score:
    ci95 = data["ci95"]
    score = Score(**data | {"ci95": tuple(ci95) if ci95 is not None else None})
    if ci95 is not None and len(ci95) != 2:
        raise ValueError(f"`ci95` has {len(ci95)} ends")
    for fraction in (score.value, score.chance, score.truncated, *(ci95 or ())):
        # NaN is in no interval; sums of rates may be off by their last digit.
        if fraction is not None and not -1e-9 <= fraction <= 1 + 1e-9:
            raise ValueError(f"a score has {fraction!r:.40}, which is no fraction")
    if not all(isinstance(left[name], str) for left in score.left_out for name in ("image_id", "reason")):
        raise ValueError("`left_out` does not name photos and reasons in words")
    return score


def percent(value: float | None) -> str:
    """A fraction as percent with two decimals, as the paper prints it."""
    return "–" if value is None else f"{100 * value:.2f}"


def format_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns under a header row: the first to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([lines[0], "─" * max(map(len, lines)), *lines[1:]])


def environment() -> dict[str, str]:
    """Versions of what a figure depends on."""
    packages: Iterable[str] = ("torch", "transformers", "datasets", "numpy", "pillow")
    found = {"python": platform.python_version(), "platform": platform.platform(), "dci_metrics": __version__}
    for package in packages:
        found[package] = metadata.version(package)
    commit = revisions.of_package()
    return found | ({"dci_metrics_revision": commit} if commit else {})
