"""Phrases for what is true of a region: what it is, its parts, where it lies, what stands beside it."""

from collections.abc import Sequence

import numpy as np

from .lexicon import KINDS, PLACES, colours_and_noun, listing, number
from .statements import BESIDE, relation_between
from .world import Region, Scene, pick

_IN = ("sun", "cloud", "pond", "path")  # these lie in what they belong to, other ornaments on it


def noun(region: Region, rng: np.random.Generator | None = None) -> str:
    """The noun of a region; with a generator, sometimes another word for it."""
    kind = KINDS[region.kind]
    return pick(rng, (kind.noun, kind.noun, *kind.synonyms)) if rng is not None else kind.noun


def name(region: Region, rng: np.random.Generator | None = None) -> str:
    """`red and white striped house`, without article."""
    words = colours_and_noun(region.kind, region.colour, region.material, region.accent)
    plain = KINDS[region.kind].noun
    return words.removesuffix(plain) + noun(region, rng)


def sized(region: Region, rng: np.random.Generator) -> str:
    """The name with a word of size before it, if it is large or small."""
    words = {"large": ("large", "big"), "small": ("small", "little"), "medium": ("",)}[region.size]
    return f"{pick(rng, words)} {name(region, rng)}".strip()


def groups(scene: Scene, region: Region) -> list[list[Region]]:
    """The annotated parts of a region, those of one kind and look together.

    A kind of which some part is to be seen but too small for a mask is left out: its count would be false.
    """
    small = {r.kind for r in scene.too_small if r.parent == region.idx and r.area > 0}
    found: dict[tuple[object, ...], list[Region]] = {}
    for child in scene.regions:
        if child.parent == region.idx and child.kind not in small:
            found.setdefault((child.kind, child.look), []).append(child)
    return list(found.values())


def telling(scene: Scene, region: Region) -> list[list[Region]]:
    """The groups of parts that look different from the whole; all of them if none does."""
    parts = groups(scene, region)
    return [group for group in parts if group[0].look != region.look] or parts


def group_text(group: Sequence[Region]) -> str:
    """`a yellow door`, `two blue windows`."""
    first, count = group[0], len(group)
    words = colours_and_noun(first.kind, first.colour, first.material, first.accent, count)
    return f"{'a' if count == 1 else number(count)} {words}"


def parts_text(scene: Scene, region: Region, most: int = 4) -> str:
    """The telling parts in one list; empty if there are none."""
    return listing([group_text(group) for group in telling(scene, region)[:most]])


def owner(scene: Scene, region: Region) -> Region | None:
    """The region that this one is part of."""
    return scene.region(region.parent) if region.parent >= 0 else None


def of_owner(scene: Scene, region: Region, rng: np.random.Generator | None = None) -> str:
    """` of the red house`, with a blank before it; empty for what is part of nothing."""
    parent = owner(scene, region)
    if parent is None:
        return ""
    word = "in" if region.kind in _IN else "on" if KINDS[region.kind].family in ("ornament", "emblem") else "of"
    # "the red crown of the red tree" says red once too often
    return f" {word} the {noun(parent, rng) if parent.look == region.look else name(parent, rng)}"


def things(scene: Scene) -> list[Region]:
    """What stands, hangs or flies in the scene, backdrops left out."""
    return [r for r in scene.regions if r.depth == 0 and KINDS[r.kind].family == "thing"]


def backdrops(scene: Scene) -> list[Region]:
    """Sky or wall first, then the grounds."""
    return [r for r in scene.regions if r.depth == 0 and KINDS[r.kind].family == "backdrop"]


def place(region: Region, scene: Scene, rng: np.random.Generator) -> str:
    """Where in the picture it lies."""
    if region.box.width > 0.8 * scene.width:
        return "right across the picture"
    return pick(rng, PLACES[region.place])


def neighbours(scene: Scene, region: Region) -> list[tuple[str, Region]]:
    """Regions of the same parent in a clear relation to this one, the nearest first: (relation, region)."""
    if KINDS[region.kind].family == "backdrop":
        others = [r for r in backdrops(scene) if r is not region]
    elif region.parent < 0:
        others = [r for r in things(scene) if r is not region]
    else:
        others = [r for r in scene.regions if r.parent == region.parent and r is not region]
    x, y = region.box.centre
    others.sort(key=lambda r: (r.box.centre[0] - x) ** 2 + (r.box.centre[1] - y) ** 2)
    related = [(relation_between(region.box, other.box), other) for other in others]
    return [(word, other) for word, other in related if word is not None]


def beside(scene: Scene, region: Region, rng: np.random.Generator, nth: int = 0) -> str:
    """`to the left of a blue tree`; empty if nothing stands clearly beside it."""
    near = neighbours(scene, region)
    if len(near) <= nth:
        return ""
    word, other = near[nth]
    if region.parent < 0:
        return f"{BESIDE[word]} a {name(other, rng)}"
    same = other.kind == region.kind and other.look == region.look
    return f"{BESIDE[word]} the {'other ' if same else ''}{name(other, rng)}"


def surface(region: Region, rng: np.random.Generator) -> str:
    """A clause on the material, to follow the noun: `painted red with white stripes`."""
    colour, accent = region.colour, region.accent
    pattern = {"striped": "stripes", "dotted": "dots", "checked": "checks"}.get(region.material)
    if pattern == "checks":
        return pick(rng, (f"checked in {colour} and {accent}", f"covered with {colour} and {accent} checks"))
    if pattern:
        return pick(rng, (f"{colour} with {accent} {pattern}", f"painted {colour} with {accent} {pattern}"))
    if region.material == "glossy":
        return pick(rng, (f"{colour} with a glossy shine", f"in shiny {colour}", f"{colour} and gleaming"))
    return pick(rng, (f"all in plain {colour}", f"{colour} all over", f"in {colour} without a pattern"))
