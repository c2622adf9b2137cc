"""How each kind of thing is drawn, with its parts as regions inside it."""

from collections.abc import Callable, Mapping

import numpy as np

from .backdrops import beach, floor, meadow, pavement, road, sea, sky, wall
from .emblems import emblem
from .paint import Canvas, Frame
from .palette import Palette
from .world import Item, Look, rng_for

Drawer = Callable[[Canvas, Frame, Item], None]


def _choices(item: Item) -> tuple[np.random.Generator, Palette]:
    rng = rng_for(item.seed, 1)
    return rng, Palette(rng, item.look)


def house(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    roof, door, window, pane = (
        palette.look(),
        palette.look(),
        palette.look(plain=True),
        palette.look(plain=True),
    )
    door_left, windows = bool(rng.random() < 0.5), int(rng.integers(1, 3))
    with c.region("house", item.look):
        c.rectangle(f.rect(0.06, 0.36, 0.94, 1))
        with c.region("roof", roof):
            c.polygon(f.points((0, 0.4), (0.2, 0.1), (0.8, 0.1), (1, 0.4)))
            if rng.random() < 0.6:
                x = 0.7 if door_left else 0.2
                with c.region("chimney", palette.look(plain=True)):
                    c.rectangle(f.rect(x, 0, x + 0.14, 0.24))
        x = 0.13 if door_left else 0.6
        with c.region("door", door):
            c.rectangle(f.rect(x, 0.52, x + 0.27, 1))
            with c.region("pane", pane):
                c.rectangle(f.rect(x + 0.05, 0.57, x + 0.22, 0.74))
            with c.region("knob", palette.look(plain=True)):
                c.ellipse(f.disc(x + (0.23 if door_left else 0.04), 0.8, 0.025))
        start = 0.46 if door_left else 0.1
        for k in range(windows):
            width = 0.4 if windows == 1 else 0.19
            left = start + k * 0.23
            with c.region("window", window):
                c.rectangle(f.rect(left, 0.5, left + width, 0.8))
                with c.region("pane", pane):
                    c.rectangle(f.rect(left + 0.03, 0.53, left + width - 0.03, 0.77))
                with c.dab(window):
                    c.rectangle(f.rect(left + width / 2 - 0.012, 0.53, left + width / 2 + 0.012, 0.77))


def tree(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    fruit, spots = (
        palette.look(plain=True),
        [(0.3, 0.22), (0.62, 0.15), (0.75, 0.42), (0.42, 0.48), (0.2, 0.42)],
    )
    count = int(rng.integers(2, 5))
    with c.region("tree", item.look):
        with c.region("trunk", palette.look(among=("brown", "black", "grey", "white"))):
            c.polygon(f.points((0.42, 0.55), (0.58, 0.55), (0.64, 1), (0.36, 1)))
        with c.region("crown", item.look):
            for box in (
                (0.02, 0.18, 0.6, 0.66),
                (0.4, 0.18, 0.98, 0.66),
                (0.18, 0, 0.82, 0.5),
                (0.2, 0.3, 0.8, 0.7),
            ):
                c.ellipse(f.rect(*box))
            for fx, fy in spots[:count]:
                with c.region("fruit", fruit):
                    c.ellipse(f.disc(fx, fy, 0.085))


def _wheels(c: Canvas, f: Frame, palette: Palette, places: tuple[float, ...], radius: float) -> None:
    wheel, hub = palette.look(plain=True), palette.look(plain=True)
    for fx in places:
        with c.region("wheel", wheel):
            c.ellipse(f.disc(fx, 1 - radius * min(f.w, f.h) / f.h, radius))
            with c.region("hub", hub):
                c.ellipse(f.disc(fx, 1 - radius * min(f.w, f.h) / f.h, radius * 0.5))


def cart(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("cart", item.look):
        c.polygon(f.points((0, 0.36), (0.86, 0.36), (0.8, 0.76), (0.06, 0.76)))
        with c.dab(Look("brown")):
            c.line(f.points((0.82, 0.6), (1, 0.4)), 0.04 * f.h)
        crate = palette.look()
        for k in range(int(rng.integers(1, 4))):
            with c.region("crate", crate):
                c.rectangle(f.rect(0.08 + k * 0.25, 0.08, 0.29 + k * 0.25, 0.36))
        emblem(c, f.inside(0.3, 0.4, 0.56, 0.66), rng, palette)
        _wheels(c, f, palette, (0.2, 0.68), 0.25)


def car(c: Canvas, f: Frame, item: Item) -> None:
    _, palette = _choices(item)
    with c.region("car", item.look):
        c.rectangle(f.rect(0, 0.42, 1, 0.84), 0.1 * f.h)
        with c.region("cabin", palette.look(plain=True)):
            c.polygon(f.points((0.16, 0.44), (0.28, 0.06), (0.74, 0.06), (0.88, 0.44)))
            window = palette.look(plain=True)
            for left, right in ((0.3, 0.48), (0.53, 0.71)):
                with c.region("window", window):
                    c.rectangle(f.rect(left, 0.13, right, 0.4))
        with c.region("door", palette.look()):
            c.rectangle(f.rect(0.4, 0.46, 0.62, 0.76))
            with c.region("handle", palette.look(plain=True)):
                c.rectangle(f.rect(0.42, 0.52, 0.48, 0.56))
        _wheels(c, f, palette, (0.2, 0.8), 0.23)


def boat(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    left = bool(rng.random() < 0.5)
    with c.region("boat", item.look):
        with c.dab(Look("brown")):
            c.rectangle(f.rect(0.485, 0, 0.515, 0.8))
        with c.region("sail", palette.look()):
            tip, foot = (0.47, 0.06), 0.03
            corners = (
                [tip, (foot, 0.68), (0.47, 0.68)]
                if left
                else [(1 - x, y) for x, y in (tip, (foot, 0.68), (0.47, 0.68))]
            )
            c.polygon(f.points(*corners))
            box = (0.22, 0.4, 0.45, 0.63) if left else (0.55, 0.4, 0.78, 0.63)
            emblem(c, f.inside(*box), rng, palette)
        with c.region("flag", palette.look(plain=True)):
            x = (0.515, 0.515, 0.8) if left else (0.485, 0.485, 0.2)
            c.polygon(f.points((x[0], 0), (x[1], 0.2), (x[2], 0.1)))
        with c.region("hull", item.look):
            c.polygon(f.points((0, 0.72), (1, 0.72), (0.84, 1), (0.16, 1)))
            with c.region("band", palette.look(plain=True)):
                c.polygon(f.points((0.04, 0.79), (0.96, 0.79), (0.93, 0.85), (0.07, 0.85)))


def parasol(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("parasol", item.look):
        with c.region("pole", palette.look(plain=True)):
            c.rectangle(f.rect(0.475, 0.3, 0.525, 1))
        with c.region("canopy", item.look):
            c.slice(f.rect(0, 0, 1, 1.0), 180, 360)
            emblem(c, f.inside(0.36, 0.14, 0.64, 0.44), rng, palette)
        with c.region("flag", palette.look(plain=True)):
            c.polygon(f.points((0.525, 0.56), (0.525, 0.74), (0.8, 0.65)))


def ball(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("ball", item.look):
        c.ellipse(f.rect(0, 0, 1, 1))
        if rng.random() < 0.5:
            with c.region("band", palette.look(plain=True)):
                angles = np.concatenate([np.linspace(0.28, 0.62, 12), np.linspace(np.pi - 0.62, np.pi - 0.28, 12)])
                c.polygon(f.points(*((0.5 + 0.5 * np.cos(a), 0.5 + 0.5 * np.sin(a)) for a in angles)))
        emblem(c, f.inside(0.33, 0.18, 0.67, 0.52), rng, palette)


def bucket(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("bucket", item.look):
        with c.region("handle", palette.look(plain=True)):
            c.arc(f.rect(0.08, 0, 0.92, 0.8), 180, 360, 0.07 * f.w)
        c.polygon(f.points((0.02, 0.38), (0.98, 0.38), (0.8, 1), (0.2, 1)))
        emblem(c, f.inside(0.32, 0.5, 0.68, 0.9), rng, palette)


def table(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    x = float(rng.choice([0.28, 0.5, 0.72]))
    with c.region("table", item.look):
        c.rectangle(f.rect(0, 0.62, 1, 0.7))
        for left in (0.06, 0.86):
            c.rectangle(f.rect(left, 0.7, left + 0.08, 1))
        with c.region("vase", palette.look()):
            stem, centre = Look("dark green"), palette.look(plain=True)
            for k, dx in enumerate((-0.17, 0.02, 0.18)[: int(rng.integers(1, 4))]):
                fx, fy = x + dx, 0.13 + 0.06 * (k % 2)
                with c.dab(stem):
                    c.line(f.points((fx, fy), (x, 0.45)), 0.02 * f.w)
                with c.region("flower", palette.look(plain=True)):
                    for angle in np.linspace(0, 2 * np.pi, 6)[:-1]:
                        c.ellipse(f.disc(fx + 0.06 * np.cos(angle), fy + 0.055 * np.sin(angle), 0.065))
                    with c.region("centre", centre):
                        c.ellipse(f.disc(fx, fy, 0.055))
            c.polygon(f.points((x - 0.06, 0.36), (x + 0.06, 0.36), (x + 0.12, 0.62), (x - 0.12, 0.62)))


def shelf(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    label = palette.look(plain=True, among=("white", "yellow", "black"))
    backs = palette.look(plain=True)
    books = [palette.look() for _ in range(3)]
    with c.region("shelf", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        for top in (0.06, 0.54):
            with c.region("row", backs):
                c.rectangle(f.rect(0.06, top, 0.94, top + 0.4))
                for k, left in enumerate(np.linspace(0.1, 0.68, 3)[: int(rng.integers(2, 4))]):
                    tall = 0.33 if k % 2 else 0.37
                    with c.region("book", books[(k + (top > 0.5)) % 3]):
                        c.rectangle(f.rect(left, top + 0.4 - tall, left + 0.19, top + 0.4))
                        if k != 1:
                            with c.region("label", label):
                                c.rectangle(f.rect(left + 0.025, top + 0.12, left + 0.165, top + 0.26))


def lamp(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("lamp", item.look):
        c.rectangle(f.rect(0.46, 0.3, 0.54, 0.95))
        with c.region("base", palette.look(plain=True)):
            c.slice(f.rect(0.2, 0.84, 0.8, 1.16), 180, 360)
        with c.region("shade", palette.look()):
            c.polygon(f.points((0.24, 0), (0.76, 0), (1, 0.42), (0, 0.42)))
            emblem(c, f.inside(0.35, 0.12, 0.65, 0.36), rng, palette)


def chest(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("chest", item.look):
        c.rectangle(f.rect(0.02, 0.35, 0.98, 1))
        with c.region("lid", palette.look()):
            c.slice(f.rect(0, 0, 1, 0.8), 180, 360)
        for left in (0.1, 0.8):
            with c.dab(Look("dark grey")):
                c.rectangle(f.rect(left, 0.42, left + 0.06, 1))
        with c.region("lock", palette.look(plain=True)):
            c.rectangle(f.rect(0.4, 0.36, 0.6, 0.66), 0.04 * f.h)
            emblem(c, f.inside(0.44, 0.44, 0.56, 0.6), rng, palette)


def balloon(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("balloon", item.look):
        with c.dab(Look("brown")):
            for x in (0.4, 0.6):
                c.line(f.points((x, 0.68), (x, 0.86)), 3)
        with c.region("envelope", item.look):
            c.ellipse(f.rect(0, 0, 1, 0.72))
            c.polygon(f.points((0.16, 0.58), (0.84, 0.58), (0.62, 0.76), (0.38, 0.76)))
            emblem(c, f.inside(0.33, 0.14, 0.67, 0.46), rng, palette)
        with c.region("basket", palette.look(plain=True)):
            c.rectangle(f.rect(0.34, 0.82, 0.66, 1), 0.02 * f.h)


def kite(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    bow = palette.look(plain=True)
    with c.region("kite", item.look):
        with c.dab(Look("dark grey")):
            c.line(f.points((0.5, 0.7), (0.6, 0.8), (0.48, 0.9), (0.56, 1)), 4)
        c.polygon(f.points((0.5, 0), (1, 0.3), (0.5, 0.76), (0, 0.3)))
        emblem(c, f.inside(0.34, 0.16, 0.66, 0.48), rng, palette)
        with c.region("bow", bow):
            c.polygon(f.points((0.36, 0.8), (0.36, 0.98), (0.66, 0.8), (0.66, 0.98)))


def picture(c: Canvas, f: Frame, item: Item) -> None:
    rng, palette = _choices(item)
    with c.region("picture", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        with c.region("canvas", palette.look(plain=True)):
            c.rectangle(f.rect(0.1, 0.12, 0.9, 0.88))
            first, second = ("left", "right") if rng.random() < 0.5 else ("right", "left")
            for side in (first, second):
                x = 0.16 if side == "left" else 0.54
                emblem(c, f.inside(x, 0.28, x + 0.3, 0.72), rng, palette)


DRAWERS: Mapping[str, Drawer] = {
    "sky": sky,
    "wall": wall,
    "meadow": meadow,
    "sea": sea,
    "beach": beach,
    "floor": floor,
    "pavement": pavement,
    "road": road,
    "house": house,
    "tree": tree,
    "cart": cart,
    "car": car,
    "boat": boat,
    "parasol": parasol,
    "ball": ball,
    "bucket": bucket,
    "table": table,
    "shelf": shelf,
    "lamp": lamp,
    "chest": chest,
    "balloon": balloon,
    "kite": kite,
    "picture": picture,
}
