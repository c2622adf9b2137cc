"""Deciding what stands where in a scene."""

from collections.abc import Callable

import numpy as np

from .palette import thing_look
from .world import Item, Look, Plan, pick, rng_for

SETTINGS = ("meadow", "beach", "room", "street")

ASPECTS = {
    "house": 1.05, "tree": 0.85, "cart": 1.25, "car": 1.6, "boat": 1.0, "parasol": 0.95, "ball": 1.0,
    "bucket": 0.95, "table": 1.1, "shelf": 0.95, "lamp": 0.78, "chest": 1.25, "balloon": 0.8, "kite": 0.85,
    "picture": 1.25,
}  # fmt: skip
"""Width over height of each thing."""

_TALL = {
    "meadow": ("house", "tree", "tree", "house", "cart"),
    "beach": ("boat", "boat", "parasol", "house"),
    "room": ("shelf", "table", "lamp", "table"),
    "street": ("house", "house", "tree", "lamp"),
}
_SMALL = {
    "meadow": ("cart", "ball", "chest", "bucket", "tree"),
    "beach": ("parasol", "ball", "bucket", "chest"),
    "room": ("ball", "chest", "bucket", "ball"),
    "street": ("car", "cart", "car", "ball"),
}
_HIGH = {
    "meadow": ("balloon", "kite", "kite"),
    "beach": ("kite", "balloon"),
    "room": ("picture",),
    "street": ("balloon", "kite"),
}


def make_plan(seed: int) -> Plan:
    """The plan of a scene: its size, its backdrop and its things, from its seed alone."""
    rng = rng_for((seed,), 0)
    long, short = int(rng.integers(900, 1201)), int(rng.integers(640, 801))
    width, height = (long, short) if rng.random() < 0.6 else (short, long)
    setting = SETTINGS[int(rng.integers(4))]
    horizon = round(height * (0.4 + 0.08 * rng.random()))
    items: list[Item] = []
    colours: dict[str, set[str]] = {}

    def add(kind: str, x: float, y: float, w: float, h: float, look: Look | None = None) -> None:
        taken = colours.setdefault(kind, set())
        if look is None:
            grounds = {item.look.colour.split()[-1] for item in items[:3]}
            look = thing_look(rng, taken | grounds)
        taken.add(look.colour)
        items.append(Item(kind, (x, y, w, h), look, (seed, len(items))))

    _backdrop(rng, setting, width, height, horizon, add)
    _things(rng, setting, width, height, horizon, add)
    return Plan(seed, width, height, setting, tuple(items))


def _backdrop(
    rng: np.random.Generator, setting: str, width: int, height: int, horizon: int, add: Callable[..., None]
) -> None:
    if setting == "room":
        wall = pick(rng, ("lilac", "peach", "pale blue", "light green", "beige"))
        look = Look(wall, "striped", "white") if rng.random() < 0.3 else Look(wall)
        add("wall", 0, 0, width, height, look)
        floor = pick(rng, ("brown", "grey", "dark grey", "golden"))
        look = Look(floor, "checked", "white") if rng.random() < 0.3 else Look(floor)
        add("floor", 0, horizon * 1.25, width, height - horizon * 1.25, look)
        return
    add("sky", 0, 0, width, horizon + 2, Look(pick(rng, ("pale blue", "pale blue", "peach", "lilac", "grey"))))
    if setting == "meadow":
        add(
            "meadow",
            0,
            horizon,
            width,
            height - horizon,
            Look(pick(rng, ("light green", "dark green", "golden"))),
        )
    elif setting == "beach":
        shore = horizon + 0.18 * height
        add("sea", 0, horizon, width, shore - horizon + 2, Look(pick(rng, ("turquoise", "dark blue", "blue"))))
        add("beach", 0, shore, width, height - shore, Look(pick(rng, ("beige", "golden"))))
    else:
        kerb = height - 0.33 * height
        add(
            "pavement",
            0,
            horizon,
            width,
            kerb - horizon + 2,
            Look(pick(rng, ("beige", "light green", "golden"))),
        )
        add("road", 0, kerb, width, height - kerb, Look(pick(rng, ("dark grey", "grey", "black"))))


def _things(
    rng: np.random.Generator, setting: str, width: int, height: int, horizon: int, add: Callable[..., None]
) -> None:
    cells = max(2, round(width / 330))
    cell = width / cells
    portrait = height > width
    # one kind stands in the scene twice or more, so that colour and material are needed to tell them apart
    favourite = pick(rng, _TALL[setting])
    back = horizon + (0.16 if not portrait else 0.13) * height
    high = int(rng.integers(cells + 1))  # the column with something in the sky or on the wall; none if past the last

    def place(kind: str, column: int, bottom: float, tallest: float, widest: float) -> None:
        h = min(tallest, widest * cell / ASPECTS[kind])
        w = h * ASPECTS[kind]
        slack = max(0.0, cell - w)
        x = column * cell + slack * (0.15 + 0.7 * rng.random())
        add(kind, x, bottom - h, w, h)

    for column in range(cells):
        if column == high:
            place(pick(rng, _HIGH[setting]), column, horizon * (0.95 + 0.07 * rng.random()), 0.9 * horizon, 0.84)
        else:
            kind = favourite if rng.random() < 0.55 else pick(rng, _TALL[setting])
            top = (0.54 if not portrait else 0.37) * height
            # on the beach only boats stand in the water
            inland = 0.06 * height if setting == "beach" and kind != "boat" else 0.0
            place(
                kind,
                column,
                back + inland + 0.03 * height * rng.random(),
                top * (0.82 + 0.18 * rng.random()),
                0.96,
            )
    small = pick(rng, _SMALL[setting])
    for column in range(cells):
        if rng.random() < (0.9 if portrait else 0.6) or column == high:
            kind = small if rng.random() < 0.5 else pick(rng, _SMALL[setting])
            tall = 100 + (0.36 if portrait else 0.22) * height * rng.random()
            place(kind, column, height - 12 - 0.06 * height * rng.random(), tall, 0.8)
