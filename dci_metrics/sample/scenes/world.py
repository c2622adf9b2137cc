"""What a scene is made of: its vocabulary, its regions and the scene itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

SEED = 20240614  # every generator is made from (SEED, scene seed, purpose), so no global state is used

RGB = tuple[int, int, int]
T = TypeVar("T")

PAINTS: Mapping[str, RGB] = {
    "red": (205, 38, 38),
    "orange": (244, 138, 28),
    "yellow": (248, 222, 58),
    "green": (44, 142, 60),
    "turquoise": (58, 196, 190),
    "blue": (45, 85, 205),
    "purple": (128, 56, 165),
    "pink": (246, 152, 194),
    "brown": (122, 78, 44),
    "white": (246, 246, 242),
    "black": (34, 34, 38),
    "grey": (142, 142, 148),
}
"""The colours that things and their parts have."""

COLOURS: Mapping[str, RGB] = {
    **PAINTS,
    "pale blue": (172, 212, 242),
    "light green": (150, 205, 112),
    "dark green": (58, 112, 62),
    "golden": (222, 184, 96),
    "beige": (230, 214, 178),
    "dark blue": (30, 66, 128),
    "dark grey": (88, 90, 98),
    "lilac": (204, 186, 226),
    "peach": (250, 206, 172),
}
"""All colours: those of the things, and the softer ones of the backdrops."""

MATERIALS = ("plain", "glossy", "striped", "dotted", "checked")
TWO_COLOURED = ("striped", "dotted", "checked")


@dataclass(frozen=True)
class Look:
    """How a surface is painted.

    Attributes:
        colour: A name of `COLOURS`.
        material: One of `MATERIALS`.
        accent: The second colour of a two-coloured material, else None.
    """

    colour: str
    material: str = "plain"
    accent: str | None = None


class Box(NamedTuple):
    """Pixel bounds; right and bottom are exclusive."""

    left: int
    top: int
    right: int
    bottom: int

    @property
    def width(self) -> int:
        return self.right - self.left

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def centre(self) -> tuple[float, float]:
        return (self.left + self.right) / 2, (self.top + self.bottom) / 2


@dataclass(frozen=True)
class Item:
    """One thing to paint, with everything in it decided by its own seed.

    Attributes:
        kind: What it is, a key of `drawers.DRAWERS`.
        frame: Left, top, width and height in pixels of the space it is painted in.
        look: Its own surface; its parts choose theirs from `seed`.
        seed: Seed of the choices inside the thing.
    """

    kind: str
    frame: tuple[float, float, float, float]
    look: Look
    seed: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """What to paint, in painting order; later items cover earlier ones."""

    seed: int
    width: int
    height: int
    setting: str
    items: tuple[Item, ...]


@dataclass
class Region:
    """One mask of a scene and the facts that are true of it.

    Attributes:
        idx: Its number in the release; gaps are regions too small to be annotated.
        kind: What it is, a key of `lexicon.KINDS`.
        look: Its colour, material and second colour.
        parent: The region it is part of, -1 for the picture.
        children: Annotated parts, by number.
        requirements: All parts, those too small to be annotated among them.
        depth: 0 for a child of the picture.
        box: Exact bounds of the mask.
        area: Exact number of mask pixels.
        size: "small", "medium" or "large", of the picture or, for a part, of its parent.
        place: Where its centre lies: "upper left", "top", "upper right", "left", "middle", ...
        quality: 0 described, 1 label only, 2 no text.
        mask: Boolean array of the picture's size: exactly the visible pixels, its parts' included.
    """

    idx: int
    kind: str
    look: Look
    parent: int
    children: list[int]
    requirements: list[int]
    depth: int
    box: Box
    area: int
    size: str
    place: str
    quality: int
    mask: npt.NDArray[np.bool_] = field(repr=False)
    label: str = ""
    caption: str = ""

    @property
    def colour(self) -> str:
        return self.look.colour

    @property
    def material(self) -> str:
        return self.look.material

    @property
    def accent(self) -> str | None:
        return self.look.accent

    @property
    def key(self) -> str:
        """The region's key in `summaries`, `negatives` and `clip_scores`."""
        return f"m-{self.idx}-sc"

    @property
    def is_entry(self) -> bool:
        """Whether the region is large enough for a subcrop of the sDCI tests."""
        return self.box.width >= 224 and self.box.height >= 224


@dataclass
class Scene:
    """A picture, its regions and its texts.

    Attributes:
        seed: The number it was made from.
        setting: "meadow", "beach", "room" or "street".
        image: (height, width, 3) uint8 RGB, before JPEG.
        regions: The annotated regions, in the order of `mask_data`.
        too_small: Painted parts under the area limit. They have no annotation, but are to be seen.
        short_caption: One or two sentences on the picture.
        extra_caption: More on the picture, sometimes empty.
        summaries: Six captions each of the picture ("base") and of every region with a subcrop.
        negatives: Key to kind ("basic", "layout", "swaps") to false captions.
    """

    seed: int
    setting: str
    image: npt.NDArray[np.uint8] = field(repr=False)
    regions: list[Region]
    too_small: list[Region]
    short_caption: str = ""
    extra_caption: str = ""
    summaries: dict[str, list[str]] = field(default_factory=dict)
    negatives: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    @property
    def width(self) -> int:
        return int(self.image.shape[1])

    @property
    def height(self) -> int:
        return int(self.image.shape[0])

    @property
    def everything(self) -> list[Region]:
        """Annotated regions and those too small, by number."""
        return sorted(self.regions + self.too_small, key=lambda region: region.idx)

    @property
    def entries(self) -> list[Region]:
        """The regions that have a subcrop in the sDCI tests."""
        return [region for region in self.regions if region.is_entry]

    def region(self, idx: int) -> Region:
        """The annotated region of that number."""
        return next(region for region in self.regions if region.idx == idx)

    def below(self, region: Region, also_small: bool = False) -> Iterator[Region]:
        """All parts of a region, depth first."""
        for child in self.everything if also_small else self.regions:
            if child.parent == region.idx:
                yield child
                yield from self.below(child, also_small)


def rng_for(seed: Sequence[int], purpose: int) -> np.random.Generator:
    """A generator of its own for each scene (or item) and purpose."""
    return np.random.default_rng((SEED, *seed, purpose))


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options."""
    return options[int(rng.integers(len(options)))]
