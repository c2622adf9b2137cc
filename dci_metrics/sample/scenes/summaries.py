"""Six summaries of the picture and of each large region, and the negatives of the first of them."""

import numpy as np

from .facts import (
    backdrops,
    beside,
    group_text,
    groups,
    name,
    noun,
    of_owner,
    parts_text,
    place,
    sized,
    surface,
    telling,
    things,
)
from .firsts import base_statement, region_statement
from .lexicon import listing, number, tidy
from .negatives import make_negatives
from .statements import Statement
from .world import Region, Scene, pick, rng_for

MOST_WORDS = 45


def write_summaries(scene: Scene) -> None:
    """Fills in the scene's summaries and negatives."""
    rng = rng_for((scene.seed,), 4)
    first = base_statement(scene, rng)
    _write(scene, "base", first, _base_summaries(scene, rng), rng, 3)
    for region in scene.entries:
        statement = region_statement(scene, region, rng)
        _write(scene, region.key, statement, _region_summaries(scene, region, rng), rng, 1)


def _write(scene: Scene, key: str, first: Statement, others: list[str], rng: np.random.Generator, count: int) -> None:
    texts = list(dict.fromkeys([first.text(), *others]))[:6]
    scene.summaries[key] = texts
    scene.negatives[key] = make_negatives(first, scene, set(texts), rng, count)


def _region_summaries(scene: Scene, region: Region, rng: np.random.Generator) -> list[str]:
    parts = telling(scene, region)
    whole = of_owner(scene, region, rng)
    listed = parts_text(scene, region)
    here, near = place(region, scene, rng), beside(scene, region, rng)
    texts = [f"The {sized(region, rng)}{whole} {here}{', ' + near if near else ''}."]
    if listed:
        texts.append(pick(rng, (f"{listed} on a {name(region)}{whole}.", f"A {name(region)}{whole}; it has {listed}.")))
    else:
        texts.append(f"Nothing but a {name(region, rng)}{whole}.")
    texts.append(f"A {noun(region, rng)}{whole}, {surface(region, rng)}{', with ' + listed if listed else ''}.")
    box = region.box
    form = "wider than it is tall" if box.width > 1.15 * box.height else (
        "taller than it is wide" if box.height > 1.15 * box.width else "about as wide as it is tall")  # fmt: skip
    tail = f", and shows {group_text(pick(rng, parts))}" if parts else ""
    texts.append(f"This {name(region, rng)}{whole} is {form}{tail}.")
    texts.append(_deepest(scene, region, rng, whole))
    second = beside(scene, region, rng, 1) or here
    texts.append(f"There is a {name(region, rng)}{whole} {second}{', with ' + group_text(parts[0]) if parts else ''}.")
    texts.append(f"A view of the {name(region, rng)}{whole}, {here}.")
    return [tidy(text) for text in texts]


def _deepest(scene: Scene, region: Region, rng: np.random.Generator, whole: str) -> str:
    """A summary of a part of a part, or of what lies around."""
    pairs = [(g[0], inner) for g in groups(scene, region) for inner in groups(scene, g[0])]
    if pairs:
        part, inner = pick(rng, pairs)
        return f"A {name(region, rng)}{whole} whose {name(part, rng)} has {group_text(inner)}."
    around = [b for b in backdrops(scene) if b.idx != region.idx]
    return f"A {sized(region, rng)}{whole}, in a picture with {listing(['a ' + name(b) for b in around])}."


def _base_summaries(scene: Scene, rng: np.random.Generator) -> list[str]:
    stand, back = things(scene), backdrops(scene)
    order = [stand[int(k)] for k in rng.permutation(len(stand))]
    left = min(stand, key=lambda r: r.box.centre[0])
    right = max(stand, key=lambda r: r.box.centre[0])
    big = max(stand, key=lambda r: r.area)
    counted: dict[str, list[Region]] = {}
    for thing in stand:
        counted.setdefault(thing.kind, []).append(thing)
    most = max(counted.values(), key=len)
    a_back = listing([f"a {name(b)}" for b in back])
    texts = [
        f"{listing(['a ' + name(r) for r in order[:3]])} can be seen with {a_back}.",
        f"At the far left is a {name(left, rng)} and at the far right a {name(right, rng)}; behind them lies a "
        f"{name(back[0])}.",
        f"A {scene.setting} scene whose largest thing is a {name(big, rng)}"
        f"{' with ' + parts_text(scene, big, 2) if groups(scene, big) else ''}.",
        f"A picture of {number(len(stand))} things, among them a {name(order[0], rng)} {place(order[0], scene, rng)} "
        f"and a {name(order[-1], rng)} {place(order[-1], scene, rng)}.",
        listing([f"A {name(back[-1])}", a_simple(scene, order[1], rng), a_simple(scene, order[0], rng)]) + ".",
    ]
    if len(most) > 1:
        looks = listing(["a " + name(r) for r in most[:3]])
        texts[2] = f"A {scene.setting} scene with {looks}, under or before a {name(back[0])}."
    return [tidy(text) for text in texts]


def a_simple(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    """A thing and one group of its parts."""
    parts = groups(scene, region)
    return f"a {name(region, rng)}" + (f" with {group_text(pick(rng, parts))}" if parts else "")
