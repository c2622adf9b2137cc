"""The tests as data: which entries each takes, what it compares, how it groups, and what chance gives.

The names and rules are those of the paper's section 4.1 and Table 2; `base_scm` is what the original code prints
beside Base Neg, and is not in the paper. Paper mode depends on the order of the data, on the size of the last group,
and gives a tie to the first; the tests on random groups and inside photos do not, and have keys of their own.
"""

import math
from collections import Counter
from collections.abc import Container, Sequence, Sized
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


class PhotoMember(Member, Protocol):
    """An entry that knows its photo."""

    @property
    def image_id(self) -> str: ...


@dataclass(frozen=True)
class Task:
    """One test.

    Attributes:
        key: Its key in results.
        title: The paper's name of it.
        rule: Which of `dci.TESTS` decides the photos that are left out.
        kind: "scm" matches subcrops with captions in groups of the data's order, "neg" sets the caption against a
            negative, "random_scm" is the expectation of SCM over all groups that could be drawn, "photo_scm" matches
            all subcrops of one photo.
        captions: How many of an entry's captions take part; entries with fewer are dropped before grouping.
        negative: For "neg", the first "swaps", or the "hardest" of all kinds by the release's CLIP scores.
        by_text: Whether captions look for their image, instead of images for their caption.
        config: The configuration of the dataset that entries and captions are of.
    """

    key: str
    title: str
    rule: Literal["all", "pick5", "base", "hard"]
    kind: Literal["scm", "neg", "random_scm", "photo_scm"]
    captions: int = 1
    negative: Literal["swaps", "hardest"] = "swaps"
    by_text: bool = False
    config: Literal["sdci", "full"] = "sdci"

    def takes(self, entry: Member) -> bool:
        """Whether an entry is in this test."""
        if self.rule in entry.left_out or (self.rule == "base" and entry.key != "base"):
            return False
        return len(entry.captions) >= self.captions

    @property
    def is_paper(self) -> bool:
        """Whether the test is one of the paper's code, or one of those that stand beside them here."""
        return self.config == "sdci" and self.kind in ("scm", "neg")

    @property
    def has_negative(self) -> bool:
        """Whether the test needs an entry's negative."""
        return self.kind == "neg"

    def members(self, entries: Sequence[PhotoMember]) -> list[int]:
        """The entries of this test, by index: in a photo with one of them there is nothing to match."""
        taken = [i for i, entry in enumerate(entries) if self.takes(entry)]
        if self.kind != "photo_scm":
            return taken
        counts = Counter(entries[i].image_id for i in taken)
        return [i for i in taken if counts[entries[i].image_id] > 1]

    def chance(self, photos: Sequence[str]) -> float | None:
        """The expected score when all similarities are random and without ties.

        SCM: a group has one winner among g captions, so 1 / g for each entry. Pick-k-SCM: all own k captions must
        stand above the k × (g - 1) of the others, 1 / C(k × g, k). Neg: the negative must be the lowest of k + 1.

        Args:
            photos: The photo of each entry of the test.
        """
        n = len(photos)
        if n == 0:
            return None
        if self.kind == "neg":
            return 1 / (self.captions + 1)
        if self.kind == "random_scm":
            return 1 / min(GROUP_SIZE, n)
        full, rest = divmod(n, GROUP_SIZE)
        sizes = Counter(photos).values() if self.kind == "photo_scm" else [GROUP_SIZE] * full + [rest] * (rest > 0)
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
        Task("random_scm_i2t", "Random SCM, image → text", "all", "random_scm"),
        Task("random_scm_t2i", "Random SCM, text → image", "all", "random_scm", by_text=True),
        Task("photo_scm_i2t", "Photo SCM, image → text", "all", "photo_scm"),
        Task("photo_scm_t2i", "Photo SCM, text → image", "all", "photo_scm", by_text=True),
    )
}

FULL_TASKS: dict[str, Task] = {
    task.key: task
    for task in (
        Task("full_scm", "Full SCM", "all", "scm", config="full"),
        Task("full_scm_t2i", "Full SCM, text → image", "all", "scm", by_text=True, config="full"),
        Task("full_scm_photo", "Full photo SCM", "all", "photo_scm", config="full"),
        Task("full_scm_photo_t2i", "Full photo SCM, text → image", "all", "photo_scm", by_text=True, config="full"),
    )
}
"""The same with whole descriptions instead of summaries, which no model of 77 tokens reads to the end. They are tests
of other entries, and stand in results of their own."""

PAPER_TASKS = {key: task for key, task in TASKS.items() if task.is_paper}
"""What is run unless other tests are asked for."""


def title_of(key: str) -> str:
    """What tables and plots call a test."""
    task = TASKS.get(key) or FULL_TASKS.get(key)
    return task.title if task else key
