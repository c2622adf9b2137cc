"""The result of one model on one split: its type, its JSON, its table."""

import json
import math
import platform
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields
from importlib import metadata
from pathlib import Path
from types import NoneType
from typing import Any

from dci import DCIError
from dci_metrics import revisions
from dci_metrics.files import write_whole
from dci_metrics.retrieval import checks, measures
from dci_metrics.retrieval import table as retrieval_table
from dci_metrics.tables import format_table as format_table
from dci_metrics.tables import percent as percent
from dci_metrics.tasks import title_of
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
"""By test, by "size", "depth" and "length", by bin: n, correct, value."""


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
        left_out: Photos that are not in the test, or of full text those with bad masks, and why.
        unit: What `value` is.
        higher_is_better: Which way is up.
        empty_texts: Of retrieval, the texts without a letter.
        duplicate_texts: Of retrieval, the texts that another one before them equals.
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
    empty_texts: int | None = None
    duplicate_texts: int | None = None


@dataclass
class Result:
    """One model × one dataset configuration × one split.

    Attributes:
        model: What was scored: id, revision, family, adapter, parameters, text_limit, image_size.
        dataset: On what: id, revision, config, split, fingerprint.
        settings: How: mode, group_size, batch_size, dtype, device, image_backend, compiled, scorer, seed; and where it
            is not the usual: question, max_tokens, stretch, reading.
        scores: By test.
        entries: (image_id, key) of every entry that is in any of the tests.
        outcomes: By test, one character an entry: "1" right, "0" wrong, "-" not in the test.
        timing: Seconds in all and by stage, images and texts encoded; pieces of texts, where they are read so.
        environment: Versions.
        rates: By test on random groups, how likely each entry is right; null for one that is not in the test.
        breakdown: By test, by "size", "depth" and, of full text, "length", by bin (`dci_metrics.breakdown`): n, correct
            (None where entries have rates) and value.
        ranks: Of retrieval, by protocol and direction (`lotlip_i2t`), the ranks of each query's own items
            (`dci_metrics.retrieval.measures`); its scores are made of them, and it has no outcomes.
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
    ranks: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The model, the adapter over it, and how far it reads: what tables and plots call it."""
        adapter = self.model.get("adapter")
        return (f"{self.model['id']} + {adapter}" if adapter else str(self.model["id"])) + self.limits

    @property
    def limits(self) -> str:
        """How far texts are read, in parentheses after a name; empty for the usual."""
        tokens = self.settings.get("max_tokens")
        limits = [f"{tokens} tokens" if tokens else None, self.settings.get("stretch"), self.settings.get("reading")]
        return f" ({', '.join(str(limit) for limit in limits if limit)})" if any(limits) else ""

    def values(self) -> dict[str, float | None]:
        """The figure of each test."""
        return {key: score.value for key, score in self.scores.items()}

    def values_of(self, test: str) -> dict[tuple[str, str], float]:
        """What became of each entry of one test, by (image_id, key): 1 right, 0 wrong, its rate, or its rank."""
        if self.ranks:
            of_entries, measure = self.ranks_of(test)
            ranked = zip(self.entries, of_entries, strict=True)
            return {entry: measure.of(ranks) for entry, ranks in ranked if ranks is not None}
        if test in self.rates:
            rates = zip(self.entries, self.rates[test], strict=True)
            return {entry: rate for entry, rate in rates if rate is not None}
        marks = zip(self.entries, self.outcomes[test], strict=True)
        return {entry: float(mark) for entry, mark in marks if mark != "-"}

    def ranks_of(self, test: str) -> tuple[list[tuple[int, ...] | None], measures.Measure]:
        """Of a score of retrieval, the ranks that it is made of, by entry, and what is made of them."""
        key, measure = measures.ScoreKey.parse(test)
        return measures.read_ranks(self.ranks[key]), measure

    def to_json(self) -> str:
        """The result file's text; it holds no NaN and no Infinity."""
        data = asdict(self)
        ordered = {"schema": data.pop("schema"), **data}
        for optional in ("rates", "breakdown", "ranks"):
            if not ordered[optional]:
                del ordered[optional]
        for score in ordered["scores"].values():
            for optional in ("empty_texts", "duplicate_texts"):
                if score[optional] is None:
                    del score[optional]
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
            scores = {key: _read_score(key, score) for key, score in data["scores"].items()}
            entries = [(str(image_id), str(key)) for image_id, key in data["entries"]]
            parts: dict[str, Any] = {"rates": {}, "breakdown": {}, "ranks": {}} | data
            parts |= {"scores": scores, "entries": entries}
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
        if self.ranks or self.settings["mode"] == "retrieval":
            checks.check(self)
        elif sorted([*self.outcomes, *self.rates]) != sorted(self.scores):
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
            how = "have a sentence longer than" if "reading" in settings else "are longer than"
            # A model of the user's own tells what it cuts, and not where.
            tokens = self.model.get("text_limit")
            limit = "the model's limit" if tokens is None else f"the model's {tokens} tokens"
            lines.append(
                f"Up to {percent(most.truncated)} % of a test's texts {how} {limit} and were cut "
                f"({most.tokens_lost} tokens lost)."
            )
        if "reading" in settings:
            pieces, seconds = self.timing["pieces"], self.timing["stages"]["texts"]
            lines.append(f"Texts were read as {settings['reading']}: {pieces} pieces in {seconds:.1f} s.")
        if self.ranks:
            return "\n".join([*lines, *retrieval_table.notes(self.scores)])
        reasons = Counter(left["reason"] for score in self.scores.values() for left in score.left_out)
        if reasons:
            lines.append(
                "Left out, over all tests: " + "; ".join(f"{n} × {r}" for r, n in reasons.most_common(5)) + "."
            )
        return "\n".join(lines)

    def table(self) -> str:
        """The scores in percent, as text for a terminal."""
        if self.ranks:
            return retrieval_table.table(self.scores)
        rows = [("test", "score", "95 % interval", "chance", "right / entries", "ties", "left out")]
        for key, score in self.scores.items():
            title = title_of(key)
            interval = f"{percent(score.ci95[0])} – {percent(score.ci95[1])}" if score.ci95 else "–"
            entries = f"{score.n}" if score.correct is None else f"{score.correct} / {score.n}"
            left_out = f"{len(score.left_out)}"
            rows.append(
                (title, percent(score.value), interval, percent(score.chance), entries, f"{score.ties}", left_out)
            )
        return format_table(rows)


def _read_score(key: str, data: dict[str, Any]) -> Score:
    ci95 = data["ci95"]
    score = Score(**data | {"ci95": tuple(ci95) if ci95 is not None else None})
    if ci95 is not None and len(ci95) != 2:
        raise ValueError(f"`ci95` of {key} has {len(ci95)} ends")
    figures = (score.value, score.chance, *(ci95 or ()))
    # NaN is in no interval; sums of rates may be off by their last digit.
    highest = math.inf if score.unit == "rank" else 1 + 1e-9
    for most, figure in [*((highest, figure) for figure in figures), (1, score.truncated)]:
        if figure is not None and not (-1e-9 <= figure <= most and math.isfinite(figure)):
            raise ValueError(f"`scores` of {key} have {figure!r:.40}, which is no fraction")
    if not all(isinstance(left[name], str) for left in score.left_out for name in ("image_id", "reason")):
        raise ValueError(f"`left_out` of {key} does not name photos and reasons in words")
    return score


def environment() -> dict[str, str]:
    """Versions of what a figure depends on."""
    packages: Iterable[str] = ("torch", "transformers", "datasets", "numpy", "pillow")
    found = {"python": platform.python_version(), "platform": platform.platform(), "dci_metrics": __version__}
    for package in packages:
        found[package] = metadata.version(package)
    commit = revisions.of_package()
    return found | ({"dci_metrics_revision": commit} if commit else {})
