"""Short captions of scenes in the manner of alt texts: what the tiny CLIP is trained on.

They say in the sample's words some of what its summaries say, but as a few keywords: no articles, sizes, places or
adjectives of pattern; eight words on average. So the trained model understands the summaries in part only, and
fine-tuning on them has something to add.
"""

from collections.abc import Sequence

import numpy as np

from dci_metrics.sample.scenes.facts import backdrops, neighbours, noun, owner, telling, things
from dci_metrics.sample.scenes.lexicon import KINDS, number
from dci_metrics.sample.scenes.statements import relation_between, union
from dci_metrics.sample.scenes.world import Region, Scene, T, pick

_OPENINGS = ("photo", "picture", "drawing", "image", "view")
_PATTERNS = {"striped": "stripes", "dotted": "dots", "checked": "checks"}
_SHORT = {"left": "left of", "right": "right of", "above": "above", "below": "below"}


def alt_text(scene: Scene, region: Region | None, rng: np.random.Generator) -> str:
    """A short caption, drawn anew on each call.

    Args:
        scene: The scene; neither its picture nor its masks are used.
        region: The region to describe, None for the whole picture.
        rng: Makes the choices.
    """
    words = _of_picture(scene, rng) if region is None else _of_region(scene, region, rng)
    if rng.random() < 0.2:
        words = [pick(rng, _OPENINGS), *words]
    return ", ".join(words)


def _of_picture(scene: Scene, rng: np.random.Generator) -> list[str]:
    stand, back = _shuffled(things(scene), rng), _shuffled(backdrops(scene), rng)
    near = neighbours(scene, stand[0])
    shown = [_look([thing], rng) for thing in stand[: int(rng.integers(1, 4))]]
    if near and rng.random() < 0.4:
        word, other = near[0]
        shown = [f"{shown[0]} {_SHORT[word]} {_look([other], rng)}"]
    behind = [_look([b], rng) for b in back[: int(rng.integers(0, 3))]]
    setting = [scene.setting] if rng.random() < 0.4 else []
    return [*setting, *shown, *behind] if rng.random() < 0.6 else [*setting, *behind, *shown]


def _of_region(scene: Scene, region: Region, rng: np.random.Generator) -> list[str]:
    whole, parts = _look([region], rng), _shuffled(telling(scene, region), rng)
    parent = owner(scene, region)
    if parent is not None and rng.random() < 0.5:
        return [whole, _look([parent], rng)]
    if not parts:
        near = neighbours(scene, region)
        if not near or rng.random() < 0.5:
            return [whole]
        return [f"{whole} {_SHORT[near[0][0]]} {_look([near[0][1]], rng)}"]
    if len(parts) > 1 and rng.random() < 0.3:
        word = relation_between(union(parts[0]), union(parts[1]))
        if word is not None:
            return [whole, f"{_look(parts[0], rng)} {_SHORT[word]} {_look(parts[1], rng)}"]
    listed = [_look(group, rng) for group in parts[: int(rng.integers(1, 4))]]
    return [whole, *listed] if rng.random() < 0.7 else [*listed, whole]


def _look(group: Sequence[Region], rng: np.random.Generator) -> str:
    """Colours and noun of like regions: `red boat, white stripes`, `two windows in blue`."""
    region, count = group[0], len(group)
    what = noun(region, rng) if count == 1 else KINDS[region.kind].plural
    if count > 1:
        what = f"{number(count)} {what}"
    text = f"{region.colour} {what}" if count == 1 and rng.random() < 0.6 else f"{what} in {region.colour}"
    if region.accent:
        return f"{text} {region.accent} {_PATTERNS[region.material]}"
    return f"shiny {text}" if region.material == "glossy" and rng.random() < 0.5 else text


def _shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    return [items[int(k)] for k in rng.permutation(len(items))]
