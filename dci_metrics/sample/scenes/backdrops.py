"""The large surfaces behind and under the things: sky, wall, sea and grounds, with what belongs to them."""

from .paint import Canvas, Frame
from .palette import Palette
from .world import Item, rng_for


def sky(c: Canvas, f: Frame, item: Item) -> None:
    rng = rng_for(item.seed, 1)
    palette = Palette(rng, item.look)
    r = 0.075 * (f.w + f.h) / 2
    with c.region("sky", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        sun_left, cloud = bool(rng.random() < 0.5), palette.look(plain=True, among=("white", "grey", "pink"))
        if rng.random() < 0.7:
            x, y = f.point(0.12 if sun_left else 0.88, 0.24)
            with c.region("sun", palette.look(plain=True, among=("yellow", "orange", "red"))):
                c.ellipse((x - r, y - r, x + r, y + r))
        for k in range(int(rng.integers(1, 3))):
            fx = (0.62, 0.36)[k] if sun_left else (0.3, 0.6)[k]
            x, y = f.point(fx, 0.16 + 0.14 * rng.random())
            with c.region("cloud", cloud):
                for dx, dy, size in ((-1.2, 0.2, 0.7), (0, 0, 1), (1.2, 0.2, 0.75)):
                    s = r * size * 0.9
                    c.ellipse((x + dx * r - s, y + dy * r - s * 0.8, x + dx * r + s, y + dy * r + s * 0.8))


def wall(c: Canvas, f: Frame, item: Item) -> None:
    rng = rng_for(item.seed, 1)
    palette = Palette(rng, item.look)
    with c.region("wall", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        with c.region("band", palette.look(plain=True)):
            c.rectangle(f.rect(0, 0, 1, 0.09))


def meadow(c: Canvas, f: Frame, item: Item) -> None:
    rng = rng_for(item.seed, 1)
    palette = Palette(rng, item.look)
    fx = 0.28 + 0.44 * rng.random()
    with c.region("meadow", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        if rng.random() < 0.5:
            with c.region("pond", palette.look(plain=True, among=("blue", "turquoise", "grey"))):
                c.ellipse(f.rect(fx - 0.2, 0.56, fx + 0.2, 0.78))
        else:
            with c.region("path", palette.look(plain=True, among=("brown", "grey", "orange"))):
                c.polygon(f.points((fx, 0), (fx + 0.05, 0), (fx + 0.16, 1), (fx - 0.12, 1)))


def sea(c: Canvas, f: Frame, item: Item) -> None:
    with c.region("sea", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))


def beach(c: Canvas, f: Frame, item: Item) -> None:
    rng = rng_for(item.seed, 1)
    palette = Palette(rng, item.look)
    look = palette.look(plain=True, among=("red", "orange", "purple", "pink"))
    with c.region("beach", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        for k in range(int(rng.integers(1, 3))):
            x, y = f.point(0.3 + 0.4 * k + 0.06 * rng.random(), 0.42 + 0.1 * rng.random())
            with c.region("starfish", look):
                star = Frame(x - 42, y - 40, 84, 80)
                c.polygon(star.points((0.5, 0), (0.62, 0.36), (1, 0.4), (0.7, 0.62), (0.82, 1), (0.5, 0.76),
                                      (0.18, 1), (0.3, 0.62), (0, 0.4), (0.38, 0.36)))  # fmt: skip


def floor(c: Canvas, f: Frame, item: Item) -> None:
    rng = rng_for(item.seed, 1)
    palette = Palette(rng, item.look)
    with c.region("floor", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        with c.region("rug", palette.look()):
            c.ellipse(f.rect(0.12, 0.42, 0.88, 0.96))
            with c.region("disc", palette.look(plain=True)):
                c.ellipse(f.rect(0.38, 0.58, 0.62, 0.8))


def pavement(c: Canvas, f: Frame, item: Item) -> None:
    with c.region("pavement", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))


def road(c: Canvas, f: Frame, item: Item) -> None:
    rng = rng_for(item.seed, 1)
    palette = Palette(rng, item.look)
    fx = 0.2 + 0.4 * rng.random()
    with c.region("road", item.look):
        c.rectangle(f.rect(0, 0, 1, 1))
        with c.region("crossing", palette.look(plain=True, among=("white", "yellow"))):
            for k in range(4):
                c.rectangle(f.rect(fx + 0.07 * k, 0, fx + 0.07 * k + 0.04, 1))
