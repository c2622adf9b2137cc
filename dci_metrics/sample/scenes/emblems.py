"""The emblems that many things bear: a star, a disc, a diamond or a triangle."""

import numpy as np

from .paint import Canvas, Frame
from .palette import Palette
from .world import pick

EMBLEMS = ("star", "disc", "diamond", "triangle")


def emblem(c: Canvas, f: Frame, rng: np.random.Generator, palette: Palette) -> None:
    """One emblem, filling the frame's inner square, in a colour that the thing does not have yet."""
    kind = pick(rng, EMBLEMS)
    with c.region(kind, palette.look(plain=True)):
        side = min(f.w, f.h)
        square = Frame(f.x + (f.w - side) / 2, f.y + (f.h - side) / 2, side, side)
        if kind == "disc":
            c.ellipse(square.rect(0.04, 0.04, 0.96, 0.96))
        elif kind == "diamond":
            c.polygon(square.points((0.5, 0), (0.95, 0.5), (0.5, 1), (0.05, 0.5)))
        elif kind == "triangle":
            c.polygon(square.points((0.5, 0), (1, 1), (0, 1)))
        else:
            angles = np.linspace(0, 2 * np.pi, 11)[:-1] - np.pi / 2
            radii = np.where(np.arange(10) % 2 == 0, 0.55, 0.26)
            c.polygon(
                [square.point(0.5 + r * np.cos(a), 0.5 + r * np.sin(a)) for r, a in zip(radii, angles, strict=True)]
            )
