"""The tests as data: which entries each takes, what it compares, how it groups, and what chance gives.

The names and rules are those of the paper's section 4.1 and Table 2; `base_scm` is what the original code prints
beside Base Neg, and is not in the paper.
"""

import math
from collections.abc import Container, Sized
from dataclasses import dataclass
from typing import Literal, Protocol

GROUP_SIZE = 8
"""Entries matched with one another in SCM (section 4.1)."""


class Member(Protocol):
    """What decides whether an entry is in a test: its key, the tests its photo is out of, how many captions it has."""

    @property
    def key(self) -> str: ...
    @property
    def left_out(self) -> Container[str]: ...
    @property
    def captions(self) -> Sized: ...


@dataclass(frozen=True)
class Task:
    """One test.

    Attributes:
        key: Its key in results.
        title: The paper's name of it.
        rule: Which of `dci.TESTS` decides the photos that are left out.
        kind: "scm" matches subcrops with captions in groups, "neg" sets the caption against a negative.
        captions: How many of an entry's captions take part; entries with fewer are dropped before grouping.
        negative: For "neg", the first "swaps", or the "hardest" of all kinds by the release's CLIP scores.
    """

    key: str
    title: str
    rule: Literal["all", "pick5", "base", "hard"]
    kind: Literal["scm", "neg"]
    captions: int = 1
    negative: Literal["swaps", "hardest"] = "swaps"

    def takes(self, entry: Member) -> bool:
        """Whether an entry is in this test."""
        if self.rule in entry.left_out or (self.rule == "base" and entry.key != "base"):
            return False
        return len(entry.captions) >= self.captions

    def chance(self, n: int) -> float | None:
        """The expected score on n entries when all similarities are random and without ties.

        SCM: a group has one winner among g captions, so 1 / g for each entry. Pick-k-SCM: all own k captions must
        stand above the k × (g - 1) of the others, 1 / C(k × g, k). Neg: the negative must be the lowest of k + 1.
        """
        if n == 0:
            return None
        if self.kind == "neg":
            return 1 / (self.captions + 1)
        full, rest = divmod(n, GROUP_SIZE)
        sizes = [GROUP_SIZE] * full + ([rest] if rest else [])
        return sum(g / math.comb(self.captions * g, self.captions) for g in sizes) / n


TASKS: dict[str, Task] = {
    task.key: task
    for task in (
        Task("all_scm", "All SCM", "all", "scm"),
        Task("all_neg", "All Neg", "all", "neg"),
        Task("pick5_scm", "Pick5-SCM", "pick5", "scm", captions=5),
        Task("pick5_neg", "Pick5-Neg", "pick5", "neg", captions=5),
        Task("base_scm", "Base SCM", "base", "scm"),
        Task("base_neg", "Base Neg", "base", "neg"),
        Task("hard_negs", "All Hard-Negs", "hard", "neg", negative="hardest"),
    )
}
