"""Scores of retrieval as a table: a row a protocol and direction, so that what the protocol alone moves is seen."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dci_metrics.retrieval.measures import ListKey, ScoreKey, measure_of
from dci_metrics.retrieval.protocols import DIRECTIONS, PROTOCOLS
from dci_metrics.tables import format_table, percent

if TYPE_CHECKING:
    from dci_metrics.results import Score

REASONS = 3
"""Of what a protocol leaves out, so many reasons are told one by one."""


def table(scores: "Mapping[str, Score]") -> str:
    """All scores in percent, but for ranks; with what they are counted over."""
    keys = list(dict.fromkeys(ScoreKey.parse(key).ranks for key in scores))
    shown = columns_of(scores)
    first = shown[0]
    head = ["protocol", "", *(measure_of(column).title for column in shown), f"95 % of {measure_of(first).title}"]
    rows = [[*head, "chance", "photos", "texts", "empty", "double", "ties", "cut", "left out"]]
    for key in keys:
        protocol, direction = ListKey.parse(key)
        found = {column: scores.get(f"{key}_{column}") for column in shown}
        score = next(score for score in found.values() if score is not None)
        ci95 = found[first].ci95 if found[first] is not None else None  # type: ignore[union-attr]
        chance = found[first].chance if found[first] is not None else None  # type: ignore[union-attr]
        rows.append(
            [
                protocol,
                DIRECTIONS[direction],
                *(figure(found[column]) for column in shown),
                f"{percent(ci95[0])} – {percent(ci95[1])}" if ci95 else "–",
                percent(chance),
                f"{score.n_images}",
                f"{score.n_texts}",
                f"{score.empty_texts}",
                f"{score.duplicate_texts}",
                f"{score.ties}",
                percent(score.truncated),
                f"{len(score.left_out)}",
            ]
        )
    return format_table(rows)


def columns_of(scores: "Mapping[str, Score]") -> list[str]:
    """The measures, in the order of a table: recalls by their K, then the others."""
    columns = {ScoreKey.parse(key).measure.key for key in scores}
    recalls = sorted((c for c in columns if measure_of(c).unit == "recall"), key=lambda c: int(c[1:]))
    return [*recalls, *(column for column in ("map10", "medr") if column in columns)]


def figure(score: "Score | None") -> str:
    """One figure: a rank as it is, all else in percent."""
    if score is None or score.value is None:
        return "–"
    return f"{score.value:g}" if score.unit == "rank" else percent(score.value)


def notes(scores: "Mapping[str, Score]") -> list[str]:
    """What a reader must know: how far the protocol alone moves a figure, which photos are not those of papers."""
    lines = []
    for direction, title in DIRECTIONS.items():
        firsts = {key: score.value for key, score in scores.items() if key.endswith(f"_{direction}_r1")}
        values = sorted((value, ScoreKey.parse(key).protocol) for key, value in firsts.items() if value is not None)
        if len({value for value, _ in values}) > 1:
            (low, worst), (high, best) = values[0], values[-1]
            lines.append(
                f"By protocol alone R@1 {title} goes from {percent(low)} ({worst}) to {percent(high)} ({best})."
            )
    by_protocol = {ScoreKey.parse(key).protocol: score for key, score in scores.items()}
    others = {
        key: PROTOCOLS[key].photos
        for key, score in by_protocol.items()
        if key in PROTOCOLS and PROTOCOLS[key].photos not in (None, score.n_images)
    }
    if others:
        counts: dict[int | None, list[str]] = {}
        for key, photos in others.items():
            counts.setdefault(photos, []).append(key)
        published = "; ".join(f"{photos:,} ({', '.join(keys)})" for photos, keys in counts.items())
        lines.append(f"Published figures are over {published} photos: with these counts none can be compared.")
    # A broken photo is out of all protocols.
    reasons: dict[tuple[int, str], list[str]] = {}
    for key, score in by_protocol.items():
        found = Counter(left["reason"] for left in score.left_out).most_common()
        for reason, n in found[:REASONS]:
            reasons.setdefault((n, reason), []).append(key)
        if more := sum(n for _, n in found[REASONS:]):
            reasons.setdefault((more, "other reasons, which the result file lists"), []).append(key)
    lines += [f"{', '.join(keys)}: {n} × left out: {reason}." for (n, reason), keys in reasons.items()]
    return lines
