"""`dci compare`: two models on the same entries. Difference, its interval over photos, McNemar's exact p."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dci import DCIError
from dci_metrics import statistics
from dci_metrics.results import Result, format_table, percent
from dci_metrics.retrieval.measures import ScoreKey
from dci_metrics.tasks import title_of

SAME = {
    "dataset": ("split", "config", "fingerprint"),
    "settings": ("mode", "group_size", "crop", "image_backend"),
}
"""What two results must have in common to be compared: they are of other data, or of another benchmark, otherwise.

What resizes the images of a model of the user's own is not known; then it is only noted."""

NOTED = {
    "settings": ("max_tokens", "stretch", "reading", "dtype", "batch_size", "device", "image_backend", "compiled"),
    "environment": ("dci_metrics", "dci_metrics_revision", "python", "torch", "transformers", "numpy", "pillow"),
}
"""What may differ, be it that it is what is compared, or that it moves a figure slightly: told to the reader."""

USUAL = {"max_tokens": "the model's own", "stretch": "none", "reading": "truncate"}
"""What holds where settings do not say."""

BETTER = {"a": "A is better", "b": "B is better", None: "no difference shown"}


@dataclass(frozen=True)
class TestComparison:
    """One test of both results.

    Attributes:
        a: The first result's figure; a fraction.
        b: The second's.
        n: Entries.
        difference: b - a.
        ci95: Its 95 % interval by bootstrap over photos; None for fewer than two photos.
        only_a: Entries that only the first has right; None in a test of rates, which has no right and wrong.
        only_b: Entries that only the second has right; likewise.
        p: McNemar's exact two-sided p; likewise.
        unit: What the figures are; of "rank" neither interval nor p is known, and less is better.
    """

    __test__ = False  # no test of pytest's

    a: float
    b: float
    n: int
    difference: float
    ci95: tuple[float, float] | None
    only_a: int | None = None
    only_b: int | None = None
    p: float | None = None
    unit: str = "accuracy"

    @property
    def better(self) -> str | None:
        """Which one is, "a" or "b", where the interval does not hold zero; None where no difference is shown."""
        if self.ci95 is None or self.ci95[0] <= 0 <= self.ci95[1]:
            return None
        return "b" if self.difference > 0 else "a"


@dataclass(frozen=True)
class Comparison:
    """Two results compared.

    Attributes:
        a: The first model's id.
        b: The second's.
        data: What both are of.
        seed: Of the resampling.
        tests: By test, those that both results have.
        skipped: Tests that only one of them has, or that have no entry.
        notes: What differs and may.
    """

    a: str
    b: str
    data: str
    seed: int
    tests: dict[str, TestComparison]
    skipped: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def not_compared(self) -> list[str]:
        """The tests that are not compared; of retrieval, of which each protocol has a dozen, protocols and measures."""
        if not self.has_ranks:
            return self.skipped
        compared = {ScoreKey.parse(key).protocol for key in self.tests}
        skipped = map(ScoreKey.parse, self.skipped)
        names = (key.measure.title if key.protocol in compared else key.protocol for key in skipped)
        return list(dict.fromkeys(names))

    @property
    def has_ranks(self) -> bool:
        """Whether a figure is a rank, which is no percentage."""
        return any(test.unit == "rank" for test in self.tests.values())

    def to_json(self) -> dict[str, Any]:
        """All of it, with `better` by test."""
        tests = {key: asdict(test) | {"better": test.better} for key, test in self.tests.items()}
        return asdict(self) | {"tests": tests}

    def report(self) -> str:
        """The table in percent, with what a reader must know around it."""
        rows = [("test", "A", "B", "B - A", "95 % interval", "only A / only B right", "p", "")]
        for key, test in self.tests.items():
            ci95, is_rank = test.ci95, test.unit == "rank"
            rows.append(
                (
                    title_of(key),
                    f"{test.a:g}" if is_rank else percent(test.a),
                    f"{test.b:g}" if is_rank else percent(test.b),
                    f"{test.difference:+g}" if is_rank else signed(test.difference),
                    f"{signed(ci95[0])} to {signed(ci95[1])}" if ci95 else "–",
                    "–" if test.only_a is None else f"{test.only_a} / {test.only_b}",
                    p_value(test.p),
                    "" if is_rank else BETTER[test.better],
                )
            )
        lines = [f"A: {self.a}", f"B: {self.b}", f"On {self.data}", "", format_table(rows), ""]
        lines += [
            f"In percent{', ranks as they are' if self.has_ranks else ''}. "
            "Interval: bootstrap over photos; a model is called better where it does not hold 0.",
            "p: McNemar's exact test, which takes the entries of a photo for independent.",
            "Neither allows for the number of tests.",
        ]
        if self.skipped:
            lines.append(f"Not compared: {', '.join(self.not_compared)} (not in both results, or without entries).")
        if self.notes:
            lines.append(f"Note: {'; '.join(self.notes)}.")
        return "\n".join(lines)


def compare(a: Result, b: Result, *, seed: int = 0, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Compare two results on all tests that both have.

    Args:
        a: One model's result.
        b: The other's, on the same data with the same settings.
        seed: Of the intervals' resampling.
        names: What messages call the two.

    Raises:
        DCIError: If they are of other data, settings or entries, or have no test in common.
    """
    refuse_others(a, b, names)
    tests, skipped = {}, []
    for key in dict.fromkeys([*a.scores, *b.scores]):
        if key not in a.scores or key not in b.scores or not a.scores[key].n:
            skipped.append(key)
            continue
        score = a.scores[key]
        # Both figures have a value where there are entries, which is checked when a result is read.
        figures = float(score.value or 0), float(b.scores[key].value or 0), score.n
        if score.unit == "rank":
            # A median: the mean of the differences is not its difference.
            tests[key] = TestComparison(*figures, figures[1] - figures[0], None, unit=score.unit)
            continue
        mine, other = a.values_of(key), b.values_of(key)
        photos = [image_id for image_id, _ in mine]
        values = list(mine.values()), list(other.values())
        difference, ci95 = statistics.paired_difference(*values, photos, seed=seed)
        if score.correct is None:
            tests[key] = TestComparison(*figures, difference, ci95, unit=score.unit)
        else:
            found = statistics.mcnemar(*values)
            right = found.only_a, found.only_b, found.p
            tests[key] = TestComparison(*figures, difference, ci95, *right, unit=score.unit)
    if not tests:
        raise DCIError(
            f"{names[0]} and {names[1]}: have no test with entries in common; score both with the same (of retrieval "
            "with the same protocols)"
        )
    dataset = a.dataset
    data = f"{dataset['id']} ({dataset['config']}, {dataset['split']}), {a.settings['mode']} mode"
    return Comparison(a.name, b.name, data, seed, tests, skipped, differences(a, b))


def refuse_others(a: Result, b: Result, names: tuple[str, str] = ("A", "B")) -> None:
    """Make sure that two results can stand side by side.

    Raises:
        DCIError: If they are of other data, settings or entries; it names the first thing that differs.
    """
    for part, keys in SAME.items():
        mine, other = _with_crop(getattr(a, part)), _with_crop(getattr(b, part))
        for key in keys:
            # Of retrieval that is where all protocols of the run together are read from; each tells its own texts.
            if key == "config" and a.ranks and b.ranks:
                continue
            unknown = key == "image_backend" and None in (mine.get(key), other.get(key))
            if mine.get(key) != other.get(key) and not unknown:
                raise DCIError(
                    f"{names[1]} cannot be compared with {names[0]}: {part}.{key} is {other.get(key)!r}, not "
                    f"{mine.get(key)!r}; score both models on the same data with the same settings"
                )
    if a.ranks and b.ranks:
        _refuse_other_protocols(a, b, names)
    for key in (key for key in a.scores if key in b.scores):
        if (key in a.rates) != (key in b.rates) or list(a.values_of(key)) != list(b.values_of(key)):
            raise DCIError(
                f"{names[1]} cannot be compared with {names[0]}: the entries of {key} are others; score both models "
                "with the same version and the same --on-error"
            )


def refuse_mixed(results: Sequence[Result], names: Sequence[str]) -> None:
    """Make sure that any number of results can stand side by side, also those of which the first has other tests.

    Raises:
        DCIError: As `refuse_others`.
    """
    first: dict[str, int] = {}
    for i, result in enumerate(results):
        # Where each of its tests came first, which is not the same result for all.
        for place in sorted({0, *(first.setdefault(test, i) for test in result.scores)} - {i}):
            refuse_others(results[place], result, (names[place], names[i]))


def _refuse_other_protocols(a: Result, b: Result, names: tuple[str, str]) -> None:
    """Of retrieval: that what has the same name is the same texts of the same photos, and ties count alike."""
    mine, other = a.settings["protocols"], b.settings["protocols"]
    for key in (key for key in mine if key in other):
        different = [part for part in ("photos", "texts", "ties", "fingerprint") if mine[key][part] != other[key][part]]
        if different:
            part = different[0]
            raise DCIError(
                f"{names[1]} cannot be compared with {names[0]}: {part} of {key} is {other[key][part]!r}, not "
                f"{mine[key][part]!r}; score both models with the same version on the same photos, with the same "
                "--goal-list and --on-error"
            )


def _with_crop(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"crop": "box", **part}


def differences(a: Result, b: Result) -> list[str]:
    """What differs between two results that may, such as versions."""
    found = []
    for part, keys in NOTED.items():
        mine, other = ({**USUAL, **getattr(result, part)} for result in (a, b))
        found += [f"{k} is {mine.get(k)} in A and {other.get(k)} in B" for k in keys if mine.get(k) != other.get(k)]
    limits = [result.model.get("text_limit") for result in (a, b)]
    if a.settings["mode"] != "paper" and limits[0] != limits[1]:
        read = ["an unknown number of" if limit is None else f"{limit}" for limit in limits]
        found.append(f"A reads {read[0]} tokens of a text and B {read[1]}")
    return found


def signed(value: float) -> str:
    """A difference of fractions in percent, with its sign."""
    return f"{100 * value:+.2f}"


def p_value(p: float | None) -> str:
    """A p of the precision that anybody looks at."""
    return "–" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"
