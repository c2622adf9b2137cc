"""From a seed to a scene: plan, painting, regions with their facts, texts."""

import numpy as np

from .paint import Painting, bounds, paint
from .plans import make_plan
from .world import Box, Region, Scene, rng_for

MIN_AREA = 1_500  # smaller regions have no annotation, though `requirements` still names them
_QUALITY_1, _QUALITY_2 = 0.09, 0.04
_COLUMNS, _ROWS = ("left", "", "right"), ("upper", "", "lower")
_MIDDLES = {("upper", ""): "top", ("lower", ""): "bottom", ("", ""): "middle"}


def make_scene(seed: int) -> Scene:
    """Makes one scene; the same seed gives the same scene everywhere.

    Args:
        seed: Any non-negative number.

    Returns:
        The scene with picture, regions, captions, summaries and negatives.
    """
    from .captions import write_captions  # the texts are written from the scene, so they come after it
    from .summaries import write_summaries

    plan = make_plan(seed)
    painting = paint(plan)
    regions = _regions(painting)
    _set_qualities(regions, seed)
    scene = Scene(
        seed=seed,
        setting=plan.setting,
        image=painting.image,
        regions=[region for region in regions if region.area >= MIN_AREA],
        too_small=[region for region in regions if region.area < MIN_AREA],
    )
    write_captions(scene)
    write_summaries(scene)
    return scene


def _regions(painting: Painting) -> list[Region]:
    height, width = painting.inks.shape
    regions: list[Region] = []
    for idx, node in enumerate(painting.nodes):
        mask = painting.mask(idx)
        area, box = int(np.count_nonzero(mask)), bounds(mask)
        whole = regions[node.parent].area if node.parent >= 0 else height * width
        regions.append(
            Region(
                idx=idx,
                kind=node.kind,
                look=node.look,
                parent=node.parent,
                children=[],
                requirements=[],
                depth=regions[node.parent].depth + 1 if node.parent >= 0 else 0,
                box=box,
                area=area,
                size=_size(area / whole if whole else 0, part=node.parent >= 0),
                place=_place(box, width, height),
                quality=0,
                mask=mask,
            )
        )
        if node.parent >= 0:
            regions[node.parent].requirements.append(idx)
    kept = {region.idx for region in regions if region.area >= MIN_AREA}
    for region in regions:
        region.children = [idx for idx in region.requirements if idx in kept]
    return regions


def _size(share: float, part: bool) -> str:
    small, large = (0.06, 0.3) if part else (0.025, 0.07)
    return "small" if share < small else "large" if share > large else "medium"


def _place(box: Box, width: int, height: int) -> str:
    x, y = box.centre
    column, row = _COLUMNS[min(2, int(3 * x / width))], _ROWS[min(2, int(3 * y / height))]
    return _MIDDLES.get((row, column)) or f"{row} {column}".strip()


def _set_qualities(regions: list[Region], seed: int) -> None:
    rng = rng_for((seed,), 2)
    for region in regions:
        chance = rng.random()
        region.quality = 2 if chance < _QUALITY_2 else 1 if chance < _QUALITY_2 + _QUALITY_1 else 0
