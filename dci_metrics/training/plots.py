"""The plots of a run's model card, as PNG."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

from dci_metrics.results import Result
from dci_metrics.tasks import TASKS

CURVES = {"loss": "loss", "clip_loss": "CLIP part", "negatives_loss": "negatives part"}
"""What is logged of the loss; of validation with "eval_" before it."""

OFFSET = 0.13
"""How far the figures before and after stand above and below the middle of a test's row."""

Log = Sequence[Mapping[str, Any]]
Interval = tuple[float, float] | None


def losses(log: Log, best_step: int) -> bytes:
    """Loss and its parts, and scores on validation, over the steps."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for colour, (key, label) in enumerate(CURVES.items()):
        _curve(left, log, key, f"training, {label}", color=f"C{colour}", alpha=0.5)
        _curve(left, log, f"eval_{key}", f"validation, {label}", color=f"C{colour}", marker="o", markersize=3)
    for test, task in TASKS.items():
        _curve(right, log, f"eval_{test}", task.title, 100, marker="o", markersize=3)
    for axes, title in ((left, "Loss"), (right, "Scores on validation, percent")):
        axes.axvline(best_step, color="0.7", linestyle=":", label="checkpoint that was kept")
        axes.set(xlabel="step", title=title)
        # Below, where it hides no curve.
        axes.legend(fontsize=7, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.18))
    return _png(figure)


def scores(before: Result, after: Result, differences: Mapping[str, tuple[float, Interval]]) -> bytes:
    """Figures before and after, and their paired differences, all with 95 % intervals."""
    figure = Figure(figsize=(10, 0.8 + 0.5 * len(differences)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, (test, (difference, ci95)) in enumerate(differences.items()):
        for name, result, offset, colour in (("before", before, -OFFSET, "C0"), ("after", after, OFFSET, "C1")):
            score = result.scores[test]
            _mark(left, score.value or 0.0, score.ci95, place + offset, colour, name if not place else None)
        _mark(right, difference, ci95, place, "C2")
    left.set_yticks(range(len(differences)), [TASKS[test].title for test in differences])
    left.invert_yaxis()
    left.legend()
    left.set(title="Right, percent, with 95 % intervals")
    right.axvline(0, color="0.7", linestyle=":")
    right.set(title="Paired difference, with its 95 % interval")
    return _png(figure)


def _curve(axes: Any, log: Log, key: str, label: str, factor: float = 1, **style: Any) -> None:
    points = [(row["step"], factor * row[key]) for row in log if key in row]
    if points:
        axes.plot(*zip(*points, strict=True), label=label, **style)


def _mark(axes: Any, value: float, ci95: Interval, place: float, colour: str, label: str | None = None) -> None:
    if ci95 is not None:
        axes.plot([100 * end for end in ci95], [place, place], color=colour)
    axes.scatter(100 * value, place, color=colour, label=label)


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    with mpl.rc_context({"font.size": 9}):
        figure.savefig(file, format="png", dpi=120)
    return file.getvalue()
