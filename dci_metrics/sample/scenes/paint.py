"""Painting a plan: one map of inks from which both the picture and the exact masks are read.

Every shape is drawn once, without anti-aliasing, into a map that holds one ink number a pixel. A region takes
its inks before its parts take theirs, so the inks of a region and all its parts are one run of numbers. What
is drawn later overwrites the map, so a mask is exactly what can be seen.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from .world import COLOURS, Box, Look, Plan

Point = tuple[float, float]
Rect = tuple[float, float, float, float]


@dataclass(frozen=True)
class Frame:
    """The space of a thing, addressed by fractions of its width and height."""

    x: float
    y: float
    w: float
    h: float

    def point(self, fx: float, fy: float) -> Point:
        return self.x + fx * self.w, self.y + fy * self.h

    def points(self, *fractions: Point) -> list[Point]:
        return [self.point(fx, fy) for fx, fy in fractions]

    def rect(self, left: float, top: float, right: float, bottom: float) -> Rect:
        return (*self.point(left, top), *self.point(right, bottom))

    def disc(self, fx: float, fy: float, radius: float) -> Rect:
        """The square around a disc whose radius is a fraction of the frame's shorter side."""
        (cx, cy), r = self.point(fx, fy), radius * min(self.w, self.h)
        return cx - r, cy - r, cx + r, cy + r

    def inside(self, left: float, top: float, right: float, bottom: float) -> "Frame":
        return Frame(*self.point(left, top), (right - left) * self.w, (bottom - top) * self.h)


@dataclass
class Node:
    """A region while it is painted: its run of inks and the node it is part of."""

    kind: str
    look: Look
    parent: int
    first: int
    last: int


@dataclass
class Painting:
    """A painted plan: the picture, the ink of every pixel, and the regions in painting order."""

    image: npt.NDArray[np.uint8]
    inks: npt.NDArray[np.uint8]
    nodes: list[Node]

    def mask(self, node: int) -> npt.NDArray[np.bool_]:
        """The visible pixels of a region, those of its parts included."""
        first, last = self.nodes[node].first, self.nodes[node].last
        # an unsigned difference wraps round, so one comparison tests both ends of the run
        mask: npt.NDArray[np.bool_] = (self.inks - np.uint8(first)) <= np.uint8(last - first)
        return mask


@dataclass
class Canvas:
    """Draws shapes into the ink map, in the ink of the innermost open region."""

    width: int
    height: int
    looks: list[Look] = field(default_factory=lambda: [Look("white")])
    nodes: list[Node] = field(default_factory=list)
    open_nodes: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.map = Image.new("L", (self.width, self.height))
        self.draw = ImageDraw.Draw(self.map)
        self.extents: list[list[float]] = [[0, 0, self.width, self.height]]
        self.ink = 0

    @contextmanager
    def region(self, kind: str, look: Look) -> Iterator[None]:
        """Everything drawn inside belongs to a new region, part of the one that is open."""
        before, parent = self.ink, self.open_nodes[-1] if self.open_nodes else -1
        self.ink = self._new_ink(look)
        self.open_nodes.append(len(self.nodes))
        node = Node(kind, look, parent, self.ink, self.ink)
        self.nodes.append(node)
        yield
        node.last = len(self.looks) - 1
        self.open_nodes.pop()
        self.ink = before

    @contextmanager
    def dab(self, look: Look) -> Iterator[None]:
        """Another look inside the open region, for what is no region of its own."""
        before, self.ink = self.ink, self._new_ink(look)
        yield
        self.ink = before

    def polygon(self, points: Sequence[Point]) -> None:
        xs, ys = zip(*points, strict=True)
        self._grow(min(xs), min(ys), max(xs), max(ys))
        self.draw.polygon(list(points), fill=self.ink)

    def rectangle(self, rect: Rect, radius: float = 0) -> None:
        self._grow(*rect)
        if radius:
            self.draw.rounded_rectangle(rect, radius, fill=self.ink)
        else:
            self.draw.rectangle(rect, fill=self.ink)

    def ellipse(self, rect: Rect) -> None:
        self._grow(*rect)
        self.draw.ellipse(rect, fill=self.ink)

    def slice(self, rect: Rect, start: float, end: float) -> None:
        """A slice of an ellipse, between two angles in degrees, clockwise from the right."""
        self._grow(*rect)
        self.draw.pieslice(rect, start, end, fill=self.ink)

    def arc(self, rect: Rect, start: float, end: float, width: float) -> None:
        self._grow(*rect)
        self.draw.arc(rect, start, end, fill=self.ink, width=max(1, round(width)))

    def line(self, points: Sequence[Point], width: float) -> None:
        xs, ys = zip(*points, strict=True)
        self._grow(min(xs) - width, min(ys) - width, max(xs) + width, max(ys) + width)
        self.draw.line(list(points), fill=self.ink, width=max(1, round(width)), joint="curve")

    def finish(self) -> Painting:
        """The picture and its ink map."""
        inks = np.asarray(self.map)
        image = np.take(np.array([COLOURS[look.colour] for look in self.looks], np.uint8), inks, axis=0)
        for ink, look in enumerate(self.looks):
            if look.material != "plain":
                self._texture(image, inks, ink, look)
        _outline(image, inks)
        noise = _noise()
        rows, columns = -(-self.height // noise.shape[0]), -(-self.width // noise.shape[1])
        grain = np.tile(noise, (rows, columns))[: self.height, : self.width, None]
        return Painting(np.clip(image + grain, 0, 255).astype(np.uint8), inks, self.nodes)

    def _texture(self, image: npt.NDArray[np.uint8], inks: npt.NDArray[np.uint8], ink: int, look: Look) -> None:
        x0, y0, x1, y1 = self.extents[ink]
        left, top = max(0, int(x0)), max(0, int(y0))
        right, bottom = min(self.width, int(x1) + 2), min(self.height, int(y1) + 2)
        if right <= left or bottom <= top:
            return
        here = inks[top:bottom, left:right] == ink
        target = image[top:bottom, left:right]
        x, y = np.arange(right - left)[None, :], np.arange(bottom - top)[:, None]
        if look.material == "glossy":
            across = (x / (right - left) + y / (bottom - top))[here]
            shine = 0.75 * np.exp(-(((across - 0.55) / 0.1) ** 2)) + 0.4 * np.exp(-(((across - 0.95) / 0.05) ** 2))
            own = target[here].astype(np.float32)
            target[here] = (own + (255 - own) * shine[:, None]).astype(np.uint8)
            return
        period = int(min(max(min(right - left, bottom - top) / 4, 10), 44))
        if look.material == "striped":
            pattern = np.broadcast_to(x % period < period // 2, here.shape)
        elif look.material == "checked":
            pattern = ((x // (period // 2)) + (y // (period // 2))) % 2 == 0
        else:
            pattern = (x % period - period / 2) ** 2 + (y % period - period / 2) ** 2 < (0.33 * period) ** 2
        target[here & pattern] = COLOURS[look.accent or look.colour]

    def _new_ink(self, look: Look) -> int:
        if len(self.looks) > 255:
            raise ValueError("a scene may use 255 inks at most; paint fewer things")
        self.looks.append(look)
        self.extents.append([self.width, self.height, 0, 0])
        return len(self.looks) - 1

    def _grow(self, x0: float, y0: float, x1: float, y1: float) -> None:
        extent = self.extents[self.ink]
        extent[:] = min(extent[0], x0), min(extent[1], y0), max(extent[2], x1), max(extent[3], y1)


def paint(plan: Plan) -> Painting:
    """Paints a plan, each item over those before it."""
    from .drawers import DRAWERS  # the drawers need the canvas of this file

    canvas = Canvas(plan.width, plan.height)
    for item in plan.items:
        DRAWERS[item.kind](canvas, Frame(*item.frame), item)
    return canvas.finish()


def bounds(mask: npt.NDArray[np.bool_]) -> Box:
    """The exact box of a mask; an empty one gives an empty box."""
    columns, rows = np.flatnonzero(mask.any(axis=0)), np.flatnonzero(mask.any(axis=1))
    if not len(rows):
        return Box(0, 0, 0, 0)
    return Box(int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)


def _outline(image: npt.NDArray[np.uint8], inks: npt.NDArray[np.uint8]) -> None:
    # thin dark edges keep neighbours of one colour apart, as shadows do in photographs
    edge = np.zeros(inks.shape, bool)
    edge[:, 1:] = inks[:, 1:] != inks[:, :-1]
    edge[1:] |= inks[1:] != inks[:-1]
    image[edge] = (image[edge] * 0.6).astype(np.uint8)


@lru_cache(maxsize=1)
def _noise() -> npt.NDArray[np.int16]:
    rng = np.random.default_rng(7)
    return rng.integers(-5, 6, (256, 256)).astype(np.int16)
