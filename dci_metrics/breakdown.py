"""Entries by size of subcrop and by depth of mask: how many of each a test has, and how many of them are right."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Literal

from dci_metrics.depths import Depths
from dci_metrics.results import Breakdown
from dci_metrics.subcrops import Entry

SIDES = (256, 512, 1024)
"""Pixels of a square of the subcrop's area at which the next bin begins; a mask is in sDCI from 224 on."""

MOST_DEPTH = 4
"""Masks that lie this deep or deeper share a bin."""

PHOTO = "photo"
UNKNOWN = "unknown"

WORDS = (50, 100, 200, 400, 800)
"""Words of a caption at which the next bin begins."""

Kind = Literal["size", "depth", "length"]

BINS: dict[Kind, tuple[str, ...]] = {
    "size": (
        PHOTO,
        f"<{SIDES[0]}",
        *(f"{low}-{high - 1}" for low, high in pairwise(SIDES)),
        f">={SIDES[-1]}",
    ),
    "depth": (PHOTO, *map(str, range(MOST_DEPTH)), f">={MOST_DEPTH}", UNKNOWN),
    "length": (f"<{WORDS[0]}", *(f"{low}-{high - 1}" for low, high in pairwise(WORDS)), f">={WORDS[-1]}"),
}
"""In order. "photo" is the whole photo; depth 0 is a mask that lies in no other; length is that of the caption."""


def bin_of(entry: Entry, kind: Kind, depths: Depths | None) -> str:
    """The bin of one entry.

    Args:
        entry: The photo, or a subcrop.
        kind: "size" of the subcrop as the model sees it (widened by 15 %, cut at the photo's edge), "depth", or
            "length" of the first caption in words.
        depths: Of all masks, where known.
    """
    if kind == "length":
        return BINS["length"][sum(len(entry.captions[0].split()) >= start for start in WORDS)]
    if entry.key == "base":
        return PHOTO
    if kind == "size":
        x0, y0, x1, y1 = entry.crop_xyxy
        side = math.sqrt((x1 - x0) * (y1 - y0))
        return BINS["size"][1 + sum(side >= start for start in SIDES)]
    depth = (depths or {}).get(entry.image_id, {}).get(entry.mask_id)
    if depth is None:
        return UNKNOWN
    return str(depth) if depth < MOST_DEPTH else f">={MOST_DEPTH}"


def break_down(
    entries: Sequence[Entry],
    values: Mapping[str, Mapping[tuple[str, str], float]],
    rates: set[str],
    depths: Depths | None,
    kinds: Sequence[Kind] = ("size", "depth"),
) -> Breakdown:
    """Count by bin.

    Args:
        entries: All that are in some test.
        values: By test, what became of each of its entries, by (image_id, key).
        rates: The tests whose values are rates, which have no right and wrong.
        depths: Of all masks, where known.
        kinds: What to count by.

    Returns:
        By test, kind and bin; bins without an entry are left out.
    """
    bins = {kind: [bin_of(entry, kind, depths) for entry in entries] for kind in kinds}
    keys = [(entry.image_id, entry.key) for entry in entries]
    found: Breakdown = {}
    for test, of_test in values.items():
        found[test] = {kind: {} for kind in kinds}
        for kind in kinds:
            members: dict[str, list[float]] = {}
            for key, name in zip(keys, bins[kind], strict=True):
                if key in of_test:
                    members.setdefault(name, []).append(of_test[key])
            for name in (name for name in BINS[kind] if name in members):
                total, n = sum(members[name]), len(members[name])
                correct = None if test in rates else int(total)
                found[test][kind][name] = {"n": n, "correct": correct, "value": total / n}
    return found
