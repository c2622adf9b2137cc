"""The words of the scenes: nouns and their plurals, counts, places and small repairs of English."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Kind(NamedTuple):
    """A noun: its plural, other words for it, and the kinds that may plausibly stand in its place."""

    noun: str
    plural: str
    synonyms: tuple[str, ...] = ()
    family: str = "part"


def _kind(noun: str, family: str, *synonyms: str, plural: str = "") -> Kind:
    return Kind(noun, plural or noun + "s", synonyms, family)


KINDS: Mapping[str, Kind] = {
    "house": _kind("house", "thing", "cottage"),
    "tree": _kind("tree", "thing"),
    "cart": _kind("cart", "thing", "wagon"),
    "car": _kind("car", "thing", "motor car"),
    "boat": _kind("boat", "thing", "sailing boat"),
    "parasol": _kind("parasol", "thing", "beach umbrella"),
    "ball": _kind("ball", "thing"),
    "bucket": _kind("bucket", "thing", "pail"),
    "table": _kind("table", "thing"),
    "shelf": _kind("bookcase", "thing", "book shelf"),
    "lamp": _kind("lamp", "thing", "standing lamp"),
    "chest": _kind("chest", "thing", "treasure chest"),
    "balloon": _kind("hot-air balloon", "thing", "balloon"),
    "kite": _kind("kite", "thing"),
    "picture": _kind("painting", "thing", "framed painting"),
    "sky": _kind("sky", "backdrop", plural="skies"),
    "meadow": _kind("meadow", "backdrop", "field of grass"),
    "sea": _kind("sea", "backdrop", "stretch of water"),
    "beach": _kind("beach", "backdrop", "stretch of sand", plural="beaches"),
    "wall": _kind("wall", "backdrop"),
    "floor": _kind("floor", "backdrop"),
    "pavement": _kind("pavement", "backdrop", "footpath"),
    "road": _kind("road", "backdrop", "street"),
    "sun": _kind("sun", "ornament"),
    "cloud": _kind("cloud", "ornament"),
    "pond": _kind("pond", "ornament", "pool"),
    "path": _kind("path", "ornament", "track"),
    "rug": _kind("rug", "ornament", "carpet"),
    "crossing": _kind("crossing", "ornament"),
    "starfish": _kind("starfish", "ornament", plural="starfish"),
    "roof": _kind("roof", "house part"),
    "chimney": _kind("chimney", "house part"),
    "door": _kind("door", "house part"),
    "knob": _kind("knob", "house part"),
    "window": _kind("window", "house part"),
    "pane": _kind("pane", "house part"),
    "trunk": _kind("trunk", "plant part"),
    "crown": _kind("crown", "plant part", "leafy top"),
    "fruit": _kind("fruit", "plant part", plural="fruits"),
    "wheel": _kind("wheel", "fitting"),
    "hub": _kind("hub", "fitting"),
    "crate": _kind("crate", "fitting", "box", plural="crates"),
    "cabin": _kind("cabin", "house part"),
    "hull": _kind("hull", "fitting"),
    "sail": _kind("sail", "cloth"),
    "flag": _kind("flag", "cloth", "pennant"),
    "canopy": _kind("canopy", "cloth", plural="canopies"),
    "pole": _kind("pole", "fitting"),
    "band": _kind("band", "cloth", "strip"),
    "handle": _kind("handle", "fitting"),
    "vase": _kind("vase", "plant part"),
    "flower": _kind("flower", "plant part", "bloom"),
    "centre": _kind("centre", "plant part"),
    "row": _kind("row of books", "fitting", plural="rows of books"),
    "book": _kind("book", "fitting", "volume"),
    "label": _kind("label", "fitting"),
    "shade": _kind("lampshade", "cloth"),
    "base": _kind("foot", "fitting", plural="feet"),
    "lid": _kind("lid", "fitting"),
    "lock": _kind("lock", "fitting"),
    "envelope": _kind("envelope", "cloth"),
    "basket": _kind("basket", "fitting"),
    "bow": _kind("bow", "cloth"),
    "canvas": _kind("canvas", "cloth", plural="canvases"),
    "star": _kind("star", "emblem"),
    "disc": _kind("disc", "emblem", "circle"),
    "diamond": _kind("diamond", "emblem"),
    "triangle": _kind("triangle", "emblem"),
}

NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")

PLACES: Mapping[str, tuple[str, ...]] = {
    "upper left": ("in the upper left of the picture", "towards the top left corner"),
    "top": ("at the top of the picture", "in the upper middle of the picture"),
    "upper right": ("in the upper right of the picture", "towards the top right corner"),
    "left": ("on the left of the picture", "at the left-hand side"),
    "middle": ("in the middle of the picture", "near the centre of the image"),
    "right": ("on the right of the picture", "at the right-hand side"),
    "lower left": ("in the lower left of the picture", "towards the bottom left corner"),
    "bottom": ("at the bottom of the picture", "in the lower middle of the picture"),
    "lower right": ("in the lower right of the picture", "towards the bottom right corner"),
}

_ARTICLE = re.compile(r"\b([Aa])n? (?=([A-Za-zÀ-ÿ]))")


def tidy(text: str) -> str:
    """Mends articles and spaces, and begins with a capital."""
    text = _ARTICLE.sub(lambda m: m[1] + ("n " if m[2].lower() in "aeiou" else " "), " ".join(text.split()))
    return text[:1].upper() + text[1:]


def listing(parts: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]]) if len(parts) > 1 else "".join(parts)


def number(count: int) -> str:
    """A count in words."""
    return NUMBERS[count] if count < len(NUMBERS) else str(count)


def colours_and_noun(kind: str, colour: str, material: str, accent: str | None, count: int = 1) -> str:
    """`glossy red house`, `red and white striped houses`."""
    noun = KINDS[kind].noun if count == 1 else KINDS[kind].plural
    if accent:
        return f"{colour} and {accent} {material} {noun}"
    return f"glossy {colour} {noun}" if material == "glossy" else f"{colour} {noun}"
