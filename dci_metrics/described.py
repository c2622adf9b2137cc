"""Rows of the configuration `full` → entries whose caption is a whole description. No summary is needed.

One is of the photo, and one of each submask of at least 224 px both ways.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import dci
from dci import DCIError, Row
from dci_metrics.depths import Depths
from dci_metrics.rows import head_of
from dci_metrics.subcrops import Entry, Photo

COLUMNS = ("image", "image_id", "file_name", "width", "height", "description", "masks")
"""What is needed of a row."""

RULE = "all"
"""The rule of `dci.TESTS` under which is listed what has no description."""


@dataclass(frozen=True)
class Described(Entry):
    """An entry that knows its depth.

    Attributes:
        depth: Of its mask, 0 for a child of the photo; None for the photo.
    """

    depth: int | None = None


def read_described(row: Row) -> Photo:
    """One row of the `full` configuration, with entries of the same keys and crops as in `sdci`.

    Bad masks have no description; they are no entries, and stand in the photo's `left_out`.

    Raises:
        DCIError: If a column is missing or of another type, as in rows of another dataset or configuration.
    """
    image_id, width, height = head_of(row, COLUMNS, "full")
    try:
        large = [mask for mask in row["masks"] if min(_box(mask)[2:]) >= dci.MIN_SUBCROP]
        described = [mask for mask in large if mask["description"] is not None]
        whole = (0, 0, width, height)
        photo = Described(image_id, "base", dci.PHOTO, whole, (_text(row["description"]),), (), {})
        entries = (photo, *(_entry(mask, image_id, width, height) for mask in described))
        bad = len(large) - len(described)
    except (KeyError, TypeError, ValueError) as error:
        raise DCIError(f"{image_id}: not as DCI's `full` rows are ({error!r})") from error
    left_out = {RULE: f"{bad} bad mask{'s' * (bad > 1)} without a description"} if bad else {}
    return Photo(image_id, str(row["file_name"]), width, height, entries, left_out, row["image"])


def depths_of(entries: Iterable[Entry]) -> Depths:
    """The depths of the masks of entries."""
    found: dict[str, dict[int, int]] = {}
    for entry in entries:
        if isinstance(entry, Described) and entry.depth is not None:
            found.setdefault(entry.image_id, {})[entry.mask_id] = entry.depth
    return found


def _entry(mask: Mapping[str, Any], image_id: str, width: int, height: int) -> Described:
    return Described(
        image_id=image_id,
        key=_key(mask),
        mask_id=int(mask["mask_id"]),
        crop_xyxy=dci.crop_box(_box(mask), width, height),
        captions=(_text(mask["description"]),),
        negatives=(),
        left_out={},
        rle=mask.get("rle"),
        depth=int(mask["depth"]),
    )


def _key(mask: Mapping[str, Any]) -> str:
    return f"m-{int(mask['mask_id'])}-sc"


def _box(mask: Mapping[str, Any]) -> tuple[int, int, int, int]:
    x, y, w, h = (int(side) for side in mask["bbox"])
    return x, y, w, h


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, got {type(value).__name__}")
    return value
