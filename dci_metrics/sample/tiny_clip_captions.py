"""Short captions of scenes in the manner of alt texts: what the tiny CLIP is trained on.

They name things by colour, pattern and noun, in the sample's words, four on average: no sentences, sizes, places,
parts or backdrops. So the trained model knows what the summaries speak of, but has never read one, and fine-tuning on
them has something to add.
"""

from collections.abc import Sequence

import numpy as np

from dci_metrics.sample.scenes.facts import noun, things
from dci_metrics.sample.scenes.world import Region, Scene, T

_PATTERNS = {"striped": "stripes", "dotted": "dots", "checked": "checks"}


def alt_text(scene: Scene, region: Region | None, rng: np.random.Generator) -> str:
    """A short caption, drawn anew on each call.

    Args:
        scene: The scene; neither its picture nor its masks are used.
        region: The region to describe, None for the whole picture: two of its things.
        rng: Makes the choices.
    """
    if region is not None:
        return _look(region, rng)
    return ", ".join(_look(thing, rng) for thing in _shuffled(things(scene), rng)[:2])


def _look(region: Region, rng: np.random.Generator) -> str:
    """Colours and noun: `red boat white stripes`, `window in blue`."""
    what = noun(region, rng)
    text = f"{region.colour} {what}" if rng.random() < 0.6 else f"{what} in {region.colour}"
    if region.accent:
        return f"{text} {region.accent} {_PATTERNS[region.material]}"
    return f"shiny {text}" if region.material == "glossy" and rng.random() < 0.5 else text


def _shuffled(items: Sequence[T], rng: np.random.Generator) -> list[T]:
    return [items[int(k)] for k in rng.permutation(len(items))]
