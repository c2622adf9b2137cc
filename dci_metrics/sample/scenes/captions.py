"""The dense captions: a label and a caption for each region, and two for the whole picture."""

from collections.abc import Callable

import numpy as np

from .facts import (
    backdrops,
    beside,
    group_text,
    groups,
    name,
    neighbours,
    noun,
    of_owner,
    parts_text,
    place,
    sized,
    surface,
    telling,
    things,
)
from .lexicon import KINDS, listing, number, tidy
from .statements import BESIDE
from .world import Region, Scene, pick, rng_for


def write_captions(scene: Scene) -> None:
    """Fills in the scene's two captions and every region's label and caption."""
    rng = rng_for((scene.seed,), 3)
    scene.short_caption = _short(scene, rng)
    scene.extra_caption = "" if scene.seed % 16 == 11 else _extra(scene, rng)
    for region in scene.regions:
        label, caption = _label(scene, region, rng), _caption(scene, region, rng)
        if region.quality == 0:
            region.label, region.caption = label, caption
        elif region.quality == 1:
            region.label = label if rng.random() < 0.8 else ""
            region.caption = caption if rng.random() < 0.3 else ""


def _label(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    forms = [name(region, rng), sized(region, rng), f"{noun(region)}, {region.colour}"]
    if region.parent >= 0:
        forms += [f"{name(region, rng)}{of_owner(scene, region)}"] * 2
    if region.kind == "house":
        forms.append(f"façade of a {region.colour} house")
    text = pick(rng, forms)
    return tidy(text) if rng.random() < 0.5 else text


def _caption(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    sentences = [_look(scene, region, rng)]
    further: list[Callable[[Scene, Region, np.random.Generator], str]] = [_parts, _where, _form]
    for k in rng.permutation(3)[: int(rng.integers(1, 4))]:
        sentences.append(further[int(k)](scene, region, rng))
    sentences = [tidy(sentence) for sentence in sentences if sentence]
    # crowd text: an odd line break between sentences, a trailing blank or line break
    glue = "\n" if rng.random() < 0.04 else " "
    return glue.join(sentences) + pick(rng, ("", "", "", "", "", "", "", " ", "\n"))


def _look(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    whole, what = of_owner(scene, region, rng), noun(region, rng)
    if rng.random() < 0.04:
        return f"A {sized(region, rng)} – drawn in a simple, naïve way."
    return pick(rng, (
        f"The {what}{whole} is {surface(region, rng)}.",
        f"This is a {sized(region, rng)}{whole}.",
        f"A {what}{whole}, {surface(region, rng)}.",
        f"{pick(rng, ('We see', 'One sees', 'Here is'))} a {sized(region, rng)}{whole}.",
    ))  # fmt: skip


def _parts(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    parts = groups(scene, region)
    if not parts:
        plain = ("No smaller parts can be made out in it.", "Its surface is unbroken.", "")
        return pick(rng, plain)
    text = parts_text(scene, region)
    deeper = [(g[0], inner) for g in parts for inner in groups(scene, g[0])]
    tail = ""
    if deeper:
        part, inner = pick(rng, deeper)
        tail = f"; the {name(part)} {pick(rng, ('has', 'shows', 'bears'))} {group_text(inner)}"
    plural = ("Its parts are",) if sum(map(len, telling(scene, region))) > 1 else ()
    return f"{pick(rng, ('It has', 'One can make out', 'It shows', *plural))} {text}{tail}."


def _where(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    near = beside(scene, region, rng)
    here = place(region, scene, rng)
    verb = {"backdrop": "stretches", "ornament": "lies", "thing": "is"}.get(KINDS[region.kind].family, "is found")
    if not near:
        return f"It {verb} {here}."
    return pick(rng, (f"It {verb} {here}, {near}.", f"It is {near}, {here}.", f"It is found {near}."))


def _form(scene: Scene, region: Region, rng: np.random.Generator) -> str:
    width, height = region.box.width, region.box.height
    if width > 1.2 * height:
        form = pick(rng, ("It is wider than it is tall", "Its shape is broad", "It is broad rather than high"))
    elif height > 1.2 * width:
        form = pick(rng, ("It is taller than it is wide", "Its shape is upright", "It is high rather than broad"))
    else:
        form = pick(rng, ("It is about as wide as it is tall", "Its width and its height are much the same"))
    share = {"small": "a small part of", "medium": "some part of", "large": "a good part of"}[region.size]
    if region.size == "medium":
        return f"{form}."
    return f"{form}, and it takes up {share} the {'picture' if region.parent < 0 else 'whole'}."


def _short(scene: Scene, rng: np.random.Generator) -> str:
    order = sorted(things(scene), key=lambda r: -r.area)[:3]
    main = listing([f"a {name(r, rng)}" for r in order])
    back = backdrops(scene)
    ground, far = name(back[-1], rng), name(back[0])
    return tidy(pick(rng, (
        f"A {scene.setting} scene with {main}.",
        f"A picture of {main}, with a {ground} and a {far}.",
        f"{main} {'stand' if len(order) > 1 else 'stands'} out in this drawing of a {scene.setting}.",
        f"A simple, colourful drawing of a {scene.setting}. It shows {main} and a {far}.",
    )))  # fmt: skip


def _extra(scene: Scene, rng: np.random.Generator) -> str:
    back, stand = backdrops(scene), things(scene)
    sentences = [
        f"The {name(back[0], rng)} fills the upper part of the picture, and the {name(back[-1], rng)} lies below it."
    ]
    if len(back) > 2:
        sentences.append(f"Between them there is a {name(back[1], rng)}.")
    for idx in back[0].children:
        part = scene.region(idx)
        if part.kind == "sun":
            side = "left" if part.box.centre[0] < scene.width / 2 else "right"
            sentences.append(f"The light seems to come from the {part.colour} sun on the {side}.")
    if scene.setting == "room":
        sentences.append(
            pick(rng, ("The room is lit evenly.", "No shadows are cast in the room.", "The light is even."))
        )
    counted: dict[str, list[Region]] = {}
    for thing in stand:
        counted.setdefault(thing.kind, []).append(thing)
    for kind, like in counted.items():
        if len(like) > 1:
            colours = listing([f"one is {surface(r, rng)}" for r in like])
            sentences.append(f"There are {number(len(like))} {KINDS[kind].plural}: {colours}.")
    for thing in stand:
        near = neighbours(scene, thing)
        if near and rng.random() < 0.7:
            word, other = pick(rng, near[:2])
            verb = pick(rng, ("is", "can be seen", "has its place"))
            sentences.append(f"The {name(thing, rng)} {verb} {BESIDE[word]} the {name(other)}.")
    sentences.append(pick(rng, (
        "All edges are thin and dark, and the colours are flat.",
        "Everything is drawn with thin, dark edges.",
        "The drawing has the look of a children’s book.",
    )))  # fmt: skip
    return " ".join(tidy(sentence) for sentence in sentences) + pick(rng, ("", "", "", " ", "\n"))
