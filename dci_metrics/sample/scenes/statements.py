"""First summaries as statements that can be altered and then tested against the scene.

A statement is a sentence with slots for mentions ("two blue windows") and for relations between them ("to the
left of"). A negative is the same sentence with something in a slot changed; it is kept only if `is_true` says
that the scene does not bear it out. So no negative is true by accident.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from .lexicon import colours_and_noun, number, tidy
from .world import Box, Region, Scene

BESIDE = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}
WITHIN = {
    "in left": "on the left side",
    "in right": "on the right side",
    "in top": "near the top",
    "in bottom": "near the bottom",
    "in middle": "in the middle",
}
OPPOSITES = {
    "left": ("right",),
    "right": ("left",),
    "above": ("below",),
    "below": ("above",),
    "in left": ("in right",),
    "in right": ("in left",),
    "in top": ("in bottom",),
    "in bottom": ("in top",),
    "in middle": ("in top", "in bottom", "in left", "in right"),
}
PICTURE = -1  # stands for the whole picture where a relation lies within it


@dataclass(frozen=True)
class Mention:
    """`count` regions of one look, to be found among `scope`."""

    kind: str
    colour: str
    material: str
    accent: str | None
    count: int
    size: str
    scope: tuple[int, ...]

    def text(self) -> str:
        words = colours_and_noun(self.kind, self.colour, self.material, self.accent, self.count)
        return " ".join(word for word in ("a" if self.count == 1 else number(self.count), self.size, words) if word)

    def matches(self, region: Region) -> bool:
        """Whether a region can be meant; what the text leaves open counts as agreeing."""
        colours = {region.colour, region.accent}
        return (
            region.kind == self.kind
            and region.area > 0
            and self.colour in colours
            and (self.accent is None or self.accent in colours)
            and (self.material == "plain" or self.material == region.material)
        )


@dataclass(frozen=True)
class Link:
    """A relation between two mentions, or of a mention within another or within the picture."""

    first: int
    word: str
    second: int

    def text(self) -> str:
        return BESIDE.get(self.word) or WITHIN[self.word]


@dataclass(frozen=True)
class Statement:
    """A sentence: `{m0}` is the text of the first mention, `{l0}` that of the first link."""

    pattern: str
    mentions: tuple[Mention, ...]
    links: tuple[Link, ...] = ()

    def text(self) -> str:
        slots = {f"m{i}": mention.text() for i, mention in enumerate(self.mentions)}
        slots |= {f"l{i}": link.text() for i, link in enumerate(self.links)}
        return tidy(self.pattern.format(**slots))


def mention(regions: Sequence[Region], scope: Sequence[Region], size: bool = False) -> Mention:
    """A mention of regions that share one look."""
    first = regions[0]
    word = first.size if size and first.size != "medium" else ""
    return Mention(
        first.kind,
        first.colour,
        first.material,
        first.accent,
        len(regions),
        word,
        tuple(r.idx for r in scope),
    )


def is_true(statement: Statement, scene: Scene) -> bool:
    """Whether some choice of regions bears out every mention and every link."""
    by_idx = {region.idx: region for region in scene.everything}
    found: list[list[Box]] = []
    for m in statement.mentions:
        matching = [by_idx[idx] for idx in m.scope if m.matches(by_idx[idx])]
        if m.count > 1 and len(matching) != m.count:
            return False
        if not matching:
            return False
        found.append([union(matching)] if m.count > 1 else [region.box for region in matching])
    picture = Box(0, 0, scene.width, scene.height)
    return any(
        all(relation(link.word, boxes[link.first], picture if link.second == PICTURE else boxes[link.second])
            for link in statement.links)
        for boxes in product(*found)
    )  # fmt: skip


def relation(word: str, first: Box, second: Box) -> bool:
    """Whether `first` stands in that relation to `second`, clearly enough for the opposite to be false."""
    (x, y), (u, v) = first.centre, second.centre
    if word in BESIDE:
        across, down = (first.width + second.width) * 0.3, (first.height + second.height) * 0.3
        return {
            "left": x < u - across,
            "right": x > u + across,
            "above": y < v - down,
            "below": y > v + down,
        }[word]
    fx, fy = (x - second.left) / max(1, second.width), (y - second.top) / max(1, second.height)
    middle = abs(fx - 0.5) < 0.1 and abs(fy - 0.5) < 0.1
    return {"in left": fx < 0.38, "in right": fx > 0.62, "in top": fy < 0.38, "in bottom": fy > 0.62,
            "in middle": middle}[word]  # fmt: skip


def relation_between(first: Box, second: Box) -> str | None:
    """The clearest of left, right, above and below; None if none is clear."""
    (x, y), (u, v) = first.centre, second.centre
    words = ("left", "right", "above", "below") if abs(x - u) >= abs(y - v) else ("above", "below", "left", "right")
    return next((word for word in words if relation(word, first, second)), None)


def place_within(first: Box, second: Box) -> str | None:
    """Where `first` lies within `second`; None if neither at an edge nor in the middle."""
    x, y = first.centre
    fx, fy = (x - second.left) / max(1, second.width), (y - second.top) / max(1, second.height)
    sideways, upright = ("in left", "in right"), ("in top", "in bottom")
    words = (*sideways, *upright) if abs(fx - 0.5) > abs(fy - 0.5) else (*upright, *sideways)
    return next((word for word in (*words, "in middle") if relation(word, first, second)), None)


def union(regions: Sequence[Region]) -> Box:
    """The box around several regions."""
    boxes = [region.box for region in regions]
    return Box(min(b.left for b in boxes), min(b.top for b in boxes),
               max(b.right for b in boxes), max(b.bottom for b in boxes))  # fmt: skip
