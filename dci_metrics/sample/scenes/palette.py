"""Choosing looks so that like things, and a thing and its parts, can be told apart."""

from collections.abc import Collection, Sequence

import numpy as np

from .world import COLOURS, PAINTS, TWO_COLOURED, Look, pick


class Palette:
    """Gives each kind of part of one thing a colour that the thing does not have yet."""

    def __init__(self, rng: np.random.Generator, *looks: Look) -> None:
        self.rng = rng
        self.used = {colour for look in looks for colour in (look.colour, look.accent) if colour}

    def look(self, plain: bool = False, among: Sequence[str] = tuple(PAINTS)) -> Look:
        """A look in a new colour, two-coloured or glossy now and then unless `plain`."""
        colour = self._new(among)
        chance = 1.0 if plain else self.rng.random()
        if chance < 0.16:
            return Look(colour, "glossy")
        if chance < 0.36:
            return Look(colour, pick(self.rng, TWO_COLOURED), self._new(("white", "black", "yellow", "red", "blue")))
        return Look(colour)

    def _new(self, among: Sequence[str]) -> str:
        free = [colour for colour in among if colour not in self.used]
        # a thing of very many parts may run out; then any colour but the first ones will do
        colour = pick(self.rng, free or [c for c in PAINTS if c not in self.used] or list(PAINTS))
        self.used.add(colour)
        return colour


def thing_look(rng: np.random.Generator, avoid: Collection[str]) -> Look:
    """The look of a whole thing: a third of them two-coloured, a fifth glossy."""
    colour = pick(rng, [name for name in PAINTS if name not in avoid])
    chance = rng.random()
    if chance < 0.36:
        accents = [a for a in ("white", "black", "yellow", "red", "blue", "pink") if contrast(a, colour) > 150]
        return Look(colour, pick(rng, TWO_COLOURED), pick(rng, accents))
    return Look(colour, "glossy" if chance < 0.55 else "plain")


def contrast(one: str, other: str) -> float:
    """Distance of two colours in RGB, 0 to 441."""
    a, b = np.array(COLOURS[one], float), np.array(COLOURS[other], float)
    return float(np.sqrt(((a - b) ** 2).sum()))
