"""What the report's plots show, as shares of their width and height; the templates draw it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dci_metrics import statistics
from dci_metrics.breakdown import BINS, Kind, bin_of
from dci_metrics.depths import Depths
from dci_metrics.results import Result, Score, percent
from dci_metrics.subcrops import Entry
from dci_metrics.tasks import title_of

PAIRS = (("all_scm", "all_neg"), ("pick5_scm", "pick5_neg"), ("base_scm", "base_neg"))
"""Tests that the scatter sets against each other."""

BROKEN_DOWN = ("all_scm", "all_neg", "hard_negs")
"""Tests whose accuracy is shown by size and depth; of the others those of the result, where it has none of these."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class Mark:
    """A figure in a plot; fractions.

    Attributes:
        model: Number of the model, which decides colour and form.
        y: The figure.
        ci_y: Its 95 % interval.
        text: What it says in words.
        x: In a scatter, the other figure; elsewhere, how far along the axis it stands.
        ci_x: In a scatter, the interval of the other figure.
    """

    model: int
    y: float
    ci_y: Interval | None
    text: str
    x: float = 0.0
    ci_x: Interval | None = None


@dataclass(frozen=True)
class Row:
    """One test in the plot of intervals."""

    title: str
    n: int
    chance: float | None
    marks: list[Mark]


@dataclass(frozen=True)
class Panel:
    """One small plot.

    Attributes:
        title: Above it.
        x_title: Below it.
        y_title: Beside it.
        marks: In it.
        chance_y: Chance of what goes up.
        chance_x: In a scatter, chance of what goes right.
        bins: Else, what stands along the axis: centre as a fraction, name, entries.
    """

    title: str
    x_title: str
    y_title: str
    marks: list[Mark]
    chance_y: float | None = None
    chance_x: float | None = None
    bins: list[tuple[float, str, int]] = field(default_factory=list)


def forest(results: Mapping[str, Result], tests: Mapping[str, str]) -> list[Row]:
    """All figures with their intervals, test by test; tests have titles."""
    rows = []
    for test, title in tests.items():
        scores = {i: (label, r.scores[test]) for i, (label, r) in enumerate(results.items()) if test in r.scores}
        marks = [
            Mark(i, score.value, score.ci95, f"{label}: {_figure(score.value, score.ci95)}")
            for i, (label, score) in scores.items()
            if score.value is not None
        ]
        if marks:
            score = scores[marks[0].model][1]
            rows.append(Row(title, score.n, score.chance, marks))
    return rows


def scatter_panels(results: Mapping[str, Result]) -> list[Panel]:
    """Subcrop-Caption Matching against negatives, a mark a model."""
    panels = []
    for scm, neg in PAIRS:
        pairs = {i: (label, r.scores.get(scm), r.scores.get(neg)) for i, (label, r) in enumerate(results.items())}
        marks, chances = [], (0.0, 0.0)
        for i, (label, x, y) in pairs.items():
            if x is None or y is None or x.value is None or y.value is None:
                continue
            chances = x.chance or 0.0, y.chance or 0.0
            words = f"{label}: {_words(scm, x)}; {_words(neg, y)}"
            marks.append(Mark(i, y.value, y.ci95, words, x.value, x.ci95))
        if marks:
            title = f"{title_of(scm)} against {title_of(neg)}"
            panels.append(Panel(title, f"{title_of(scm)}, %", f"{title_of(neg)}, %", marks, chances[1], chances[0]))
    return panels


def breakdown_panels(
    results: Mapping[str, Result], entries: Mapping[tuple[str, str], Entry], depths: Depths | None
) -> dict[Kind, list[Panel]]:
    """Accuracy by size of subcrop, by depth of mask where it is known, and of full text by its length.

    Intervals are over photos.
    """
    first = next(iter(results.values()))
    tests = [test for test in BROKEN_DOWN if test in first.outcomes] or list(first.outcomes)
    kinds: list[Kind] = ["size"]
    if depths is not None:
        kinds.append("depth")
    if any("length" in found for found in first.breakdown.values()):
        kinds.append("length")
    return {
        kind: [
            _breakdown_panel(test, kind, {key: bin_of(entry, kind, depths) for key, entry in entries.items()}, results)
            for test in tests
            if first.scores[test].n
        ]
        for kind in kinds
    }


def _breakdown_panel(
    test: str, kind: Kind, bins: Mapping[tuple[str, str], str], results: Mapping[str, Result]
) -> Panel:
    values = {i: (label, r.values_of(test)) for i, (label, r) in enumerate(results.items()) if test in r.outcomes}
    of_first = next(iter(values.values()))[1]
    names = [name for name in BINS[kind] if any(bins[key] == name for key in of_first)]
    marks, shown = [], []
    for place, name in enumerate(names):
        members = [key for key in of_first if bins[key] == name]
        centre = (place + 0.5) / len(names)
        shown.append((centre, name.replace("<", "< ").replace(">=", "≥ ").replace("-", "–"), len(members)))
        for at, (i, (label, of_model)) in enumerate(values.items()):
            found = [of_model[key] for key in members]
            value, ci95 = sum(found) / len(found), statistics.interval(found, [image_id for image_id, _ in members])
            # Side by side, in the middle two thirds of the bin's width.
            x = centre + (at - (len(values) - 1) / 2) * min(0.05, 0.66 / len(names) / len(values))
            marks.append(Mark(i, value, ci95, f"{label}, {name}: {_figure(value, ci95)}, n = {len(members)}", x))
    axis = {"size": "Side of the subcrop, pixels", "depth": "Depth of the mask", "length": "Words"}[kind]
    chance = next(iter(results.values())).scores[test].chance
    return Panel(title_of(test), axis, "Right, %", marks, chance, bins=shown)


def _words(test: str, score: Score) -> str:
    return f"{title_of(test)} {_figure(score.value, score.ci95)}"


def _figure(value: float | None, ci95: Interval | None) -> str:
    return f"{percent(value)} %" + (f" ({percent(ci95[0])} to {percent(ci95[1])})" if ci95 else "")
