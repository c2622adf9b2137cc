"""The first summaries, as statements: negatives are made from them."""

from collections.abc import Iterator

import numpy as np

from .facts import backdrops, neighbours, owner, telling, things
from .statements import (
    PICTURE,
    Link,
    Mention,
    Statement,
    is_true,
    mention,
    place_within,
    relation_between,
    union,
)
from .world import Box, Region, Scene, pick


def base_statement(scene: Scene, rng: np.random.Generator) -> Statement:
    """The first summary of the picture: backdrop, and two or three things in relation."""
    back, ground = backdrops(scene)[0], backdrops(scene)[-1]
    ranked = sorted(things(scene), key=lambda r: -r.area)[:5]
    mentions: list[Mention] = [mention([r], backdrops(scene)) for r in (ground, back)]
    triples = [
        (a, word, b)
        for a in ranked
        for b in ranked
        if a is not b and (word := relation_between(a.box, b.box)) is not None
    ]
    a, word, b = triples[int(rng.integers(min(6, len(triples))))]
    mentions += [mention([r], things(scene)) for r in (a, b)]
    links = [Link(2, word, 3)]
    pattern = pick(rng, ("{m0} and {m1} with {m2} {l0} {m3}", "{m2} {l0} {m3}, with {m0} and {m1}",
                         "{m0} with {m1} behind it, and {m2} {l0} {m3}"))  # fmt: skip
    whole = Box(0, 0, scene.width, scene.height)
    thirds = [(c, w) for c in ranked if c not in (a, b) and (w := place_within(c.box, whole)) is not None]
    if thirds:
        c, w = pick(rng, thirds)
        mentions.append(mention([c], things(scene)))
        links.append(Link(4, w, PICTURE))
        pattern += pick(rng, (", and {m4} {l1} of the picture", "; {m4} {l1} of the picture"))
    return Statement(pattern + ".", tuple(mentions), tuple(links))


def region_statement(scene: Scene, region: Region, rng: np.random.Generator) -> Statement:
    """The first summary of a region: its look with its most telling parts, else with what it belongs to."""
    for form in (_parts_in_relation, _part_in_place, _part, _in_its_owner, _beside, _in_the_picture):
        statements = [statement for statement in form(scene, region) if is_true(statement, scene)]
        if statements:
            return pick(rng, statements)
    raise AssertionError(f"scene {scene.seed}: nothing true can be said of region {region.idx}")


def _own(scene: Scene, region: Region) -> Mention:
    return mention([region], [region], size=True)


def _largest_parts(scene: Scene, region: Region) -> list[tuple[Box, Mention]]:
    inside = list(scene.below(region, also_small=True))
    parts = [(union(group), mention(group, inside)) for group in telling(scene, region)]
    return sorted(parts, key=lambda part: -part[0].width * part[0].height)[:3]


def _parts_in_relation(scene: Scene, region: Region) -> Iterator[Statement]:
    parts = _largest_parts(scene, region)
    for box, one in parts:
        for other_box, other in parts:
            word = relation_between(box, other_box) if one is not other else None
            if word is not None:
                mentions = (_own(scene, region), one, other)
                for pattern in ("{m0} with {m1} {l0} {m2}.", "{m0} that has {m1} {l0} {m2}."):
                    yield Statement(pattern, mentions, (Link(1, word, 2),))


def _part_in_place(scene: Scene, region: Region) -> Iterator[Statement]:
    for box, one in _largest_parts(scene, region):
        word = place_within(box, region.box)
        if word is not None:
            yield Statement("{m0} with {m1} {l0}.", (_own(scene, region), one), (Link(1, word, 0),))


def _part(scene: Scene, region: Region) -> Iterator[Statement]:
    for _, one in _largest_parts(scene, region):
        yield Statement("{m0} with {m1}.", (_own(scene, region), one))


def _in_its_owner(scene: Scene, region: Region) -> Iterator[Statement]:
    parent = owner(scene, region)
    word = place_within(region.box, parent.box) if parent is not None else None
    if parent is not None and word is not None:
        mentions = (_own(scene, region), mention([parent], [parent]))
        yield Statement("{m0} {l0} of {m1}.", mentions, (Link(0, word, 1),))


def _beside(scene: Scene, region: Region) -> Iterator[Statement]:
    siblings = [other for other in scene.everything if other.parent == region.parent]
    for word, other in neighbours(scene, region)[:2]:
        mentions = (_own(scene, region), mention([other], siblings))
        yield Statement("{m0} {l0} {m1}.", mentions, (Link(0, word, 1),))


def _in_the_picture(scene: Scene, region: Region) -> Iterator[Statement]:
    ground = mention([backdrops(scene)[-1]], backdrops(scene))
    word = place_within(region.box, Box(0, 0, scene.width, scene.height))
    links = (Link(0, word, PICTURE),) if word is not None else ()
    pattern = "{m0} {l0} of a picture with {m1}." if links else "{m0} in a picture with {m1}."
    yield Statement(pattern, (_own(scene, region), ground), links)
