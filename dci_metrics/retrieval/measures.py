"""What is made of ranks: recall, average precision, median. In a result file, ranks are text, one word a query."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

MISSING = "-"
"""Stands for a query that is not in a protocol."""

Ranks = Sequence[Sequence[int] | None]
"""By query, the ranks of its own items, ascending; None for one that is not in the protocol."""

DEPTH = 10
"""How far down average precision looks."""


@dataclass(frozen=True)
class Measure:
    """One figure of a list of ranks.

    Attributes:
        key: As score keys end: `r5`, `map10`, `medr`.
        unit: What it is.
        higher_is_better: Which way is up.
    """

    key: str
    unit: str
    higher_is_better: bool = True

    @property
    def title(self) -> str:
        """As a table has it."""
        return {"map10": f"mAP@{DEPTH}", "medr": "median rank"}.get(self.key, f"R@{self.key[1:]}")

    def of(self, ranks: Sequence[int]) -> float:
        """What one query adds: 1 or 0 for a recall, its average precision, or the rank of its first own item."""
        if self.key == "medr":
            return float(ranks[0])
        if self.key == "map10":
            found = sum(n / rank for n, rank in enumerate(ranks, start=1) if rank <= DEPTH)
            return found / min(len(ranks), DEPTH)
        return float(ranks[0] <= int(self.key[1:]))

    def over(self, values: Sequence[float]) -> float | None:
        """The figure over all queries: a mean, or the median rank; None where there is no query."""
        if not values:
            return None
        return float(statistics.median(values)) if self.key == "medr" else sum(values) / len(values)

    def chance(self, owned: Sequence[int], gallery: int) -> float | None:
        """The expected figure when all similarities are random and without ties; None of a median.

        Args:
            owned: How many items of its own each query has.
            gallery: Items in all.
        """
        if not owned or self.key == "medr":
            return None
        expected = {n: self._chance(n, gallery) for n in set(owned)}
        return sum(expected[n] for n in owned) / len(owned)

    def _chance(self, own: int, gallery: int) -> float:
        if self.key == "map10":
            # An own item at place i has own - 1 others, of which i - 1 places hold their share.
            share = (own - 1) / (gallery - 1) if gallery > 1 else 0.0
            places = range(1, min(DEPTH, gallery) + 1)
            return own / gallery * sum((1 + (i - 1) * share) / i for i in places) / min(own, DEPTH)
        missed = 1.0
        for i in range(own):
            missed *= max(0, gallery - int(self.key[1:]) - i) / (gallery - i)
        return 1 - missed


def measure_of(key: str) -> Measure:
    """The measure that a score key ends in.

    Raises:
        ValueError: If there is no such measure.
    """
    if key == "map10":
        return Measure(key, "average precision")
    if key == "medr":
        return Measure(key, "rank", higher_is_better=False)
    if not (key.startswith("r") and key[1:].isascii() and key[1:].isdecimal() and key[1] != "0"):
        raise ValueError(f"no measure {key!r}: expected r1, r5, ..., map10 or medr")
    return Measure(key, "recall")


def measures(recall_at: Sequence[int]) -> list[Measure]:
    """Recall at some K, average precision, median rank."""
    return [measure_of(key) for key in (*(f"r{k}" for k in recall_at), "map10", "medr")]


class ListKey(NamedTuple):
    """What ranks are of: `lotlip_i2t`."""

    protocol: str
    direction: str

    @classmethod
    def parse(cls, key: str) -> "ListKey":
        """From its name; no protocol has an underscore in its own."""
        protocol, _, direction = key.rpartition("_")
        return cls(protocol, direction)


class ScoreKey(NamedTuple):
    """What a score is of: `lotlip_i2t_r1` is r1 of the ranks `lotlip_i2t`."""

    ranks: str
    measure: Measure

    @classmethod
    def parse(cls, key: str) -> "ScoreKey":
        """From its name.

        Raises:
            ValueError: If there is no such measure.
        """
        ranks, _, measure = key.rpartition("_")
        return cls(ranks, measure_of(measure))

    @property
    def protocol(self) -> str:
        """Of the ranks."""
        return ListKey.parse(self.ranks).protocol


def write_ranks(ranks: Ranks) -> str:
    """Ranks as text: "1 17 3,9 -" for four queries, of which the third has two items and the last is not in."""
    return " ".join(MISSING if own is None else ",".join(map(str, own)) for own in ranks)


def read_ranks(text: str) -> list[tuple[int, ...] | None]:
    """What `write_ranks` wrote.

    Raises:
        ValueError: If it is no such text.
    """
    found = [None if word == MISSING else tuple(map(int, word.split(","))) for word in text.split()]
    wrong = next((own for own in found if own is not None and (own[0] < 1 or sorted(set(own)) != list(own))), None)
    if wrong is not None:
        raise ValueError(f"expected ranks from 1, in ascending order, got {','.join(map(str, wrong)):.40}")
    return found
