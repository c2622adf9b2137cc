"""`dci compare`: two models on the same entries. Difference, its interval over photos, McNemar's exact p."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dci import DCIError
from dci_metrics import statistics
from dci_metrics.results import Result, format_table, percent
from dci_metrics.tasks import TASKS

SAME = {
    "dataset": ("split", "config", "fingerprint"),
    "settings": ("mode", "group_size", "crop", "image_backend"),
}
"""What two results must have in common to be compared: they are of other data, or of another benchmark, otherwise.

What resizes the images of a model of the user's own is not known; then it is only noted."""

NOTED = {
    "settings": ("dtype", "batch_size", "device", "image_backend", "compiled"),
    "environment": ("dci_metrics", "dci_metrics_revision", "python", "torch", "transformers", "numpy", "pillow"),
}
"""What may differ, and moves a figure slightly: told to the reader."""


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

    def to_json(self) -> dict[str, Any]:
        """All of it, with `better` by test."""
        tests = {key: asdict(test) | {"better": test.better} for key, test in self.tests.items()}
        return asdict(self) | {"tests": tests}

    def report(self) -> str:
        """The table in percent, with what a reader must know around it."""
        rows = [("test", "A", "B", "B - A", "95 % interval", "only A / only B right", "p", "")]
        for key, test in self.tests.items():
            ci95 = test.ci95
            rows.append(
                (
                    TASKS[key].title if key in TASKS else key,
                    percent(test.a),
                    percent(test.b),
                    signed(test.difference),
                    f"{signed(ci95[0])} to {signed(ci95[1])}" if ci95 else "–",
                    "–" if test.only_a is None else f"{test.only_a} / {test.only_b}",
                    p_value(test.p),
                    {"a": "A is better", "b": "B is better", None: "no difference shown"}[test.better],
                )
            )
        lines = [f"A: {self.a}", f"B: {self.b}", f"On {self.data}", "", format_table(rows), ""]
        lines += [
            "In percent. Interval: bootstrap over photos; a model is called better where it does not hold 0.",
            "p: McNemar's exact test, which takes the entries of a photo for independent.",
            "Neither allows for the number of tests.",
        ]
        if self.skipped:
            lines.append(f"Not compared: {', '.join(self.skipped)} (not in both results, or without entries).")
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
        mine, other = a.values_of(key), b.values_of(key)
        photos = [image_id for image_id, _ in mine]
        values = list(mine.values()), list(other.values())
        difference, ci95 = statistics.paired_difference(*values, photos, seed=seed)
        # Both figures have a value where there are entries, which is checked when a result is read.
        figures = float(a.scores[key].value or 0), float(b.scores[key].value or 0), a.scores[key].n
        if key in a.rates:
            tests[key] = TestComparison(*figures, difference, ci95)
        else:
            found = statistics.mcnemar(*values)
            tests[key] = TestComparison(*figures, difference, ci95, found.only_a, found.only_b, found.p)
    if not tests:
        raise DCIError(f"{names[0]} and {names[1]}: have no test with entries in common; score both with the same")
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
            unknown = key == "image_backend" and None in (mine.get(key), other.get(key))
            if mine.get(key) != other.get(key) and not unknown:
                raise DCIError(
                    f"{names[1]} cannot be compared with {names[0]}: {part}.{key} is {other.get(key)!r}, not "
                    f"{mine.get(key)!r}; score both models on the same data with the same settings"
                )
    for key in (key for key in a.scores if key in b.scores):
        if (key in a.rates) != (key in b.rates) or list(a.values_of(key)) != list(b.values_of(key)):
            raise DCIError(
                f"{names[1]} cannot be compared with {names[0]}: the entries of {key} are others; score both models "
                "with the same version and the same --on-error"
            )


def _with_crop(part: Mapping[str, Any]) -> dict[str, Any]:
    return {"crop": "box", **part}


def differences(a: Result, b: Result) -> list[str]:
    """What differs between two results that may, such as versions."""
    found = []
    for part, keys in NOTED.items():
        mine, other = getattr(a, part), getattr(b, part)
        found += [f"{k} is {mine.get(k)} in A and {other.get(k)} in B" for k in keys if mine.get(k) != other.get(k)]
    return found


def signed(value: float) -> str:
    """A difference of fractions in percent, with its sign."""
    return f"{100 * value:+.2f}"


def p_value(p: float | None) -> str:
    """A p of the precision that anybody looks at."""
    return "–" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"
