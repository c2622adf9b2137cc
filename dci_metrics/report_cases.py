"""The entries that a report shows one by one, and the walk over the data that finds their crops and captions."""

import base64
import hashlib
import io
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import PIL.Image

from dci import DCIError, Row
from dci_metrics.results import Result
from dci_metrics.sources import Source
from dci_metrics.subcrops import Entry, Photo, read_row
from dci_metrics.tasks import TASKS

CASES = 20
"""Entries shown."""

SIDE = 256
"""Pixels of the longer side of a picture in the page."""

SINGLE = ("all_scm", "all_neg", "hard_negs", "base_scm", "base_neg")
"""Tests whose margins are alike: one caption against one. In the others the lowest of five is set against the highest
of many, and they would fill the list."""

NEGATIVES = {"all_neg", "base_neg"}
"""Tests that set the first of an entry's captions against its first swap."""


@dataclass(frozen=True)
class Case:
    """One entry that went wrong.

    Attributes:
        entry: (image_id, key).
        tests: Those that it is wrong in.
        caption: Its own.
        rival: What was preferred; None where that is not known.
        whose: Whose caption that is.
        negative: The entry's negative, where nothing more is known than that the test with it failed.
        score: Of its own caption.
        rival_score: Of what was preferred.
        margin: The difference.
        picture: The crop.
        size: Of the crop in the photo, such as "640 × 480".
    """

    entry: tuple[str, str]
    tests: tuple[str, ...]
    caption: str | None = None
    rival: str | None = None
    whose: str = ""
    negative: str | None = None
    score: float | None = None
    rival_score: float | None = None
    margin: float | None = None
    picture: "Picture | None" = None
    size: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture in a page.

    Attributes:
        address: As a data URI.
        width: In pixels.
        height: Likewise.
    """

    address: str
    width: int
    height: int


@dataclass(frozen=True)
class Data:
    """What the walk over the data gives.

    Attributes:
        entries: By (image_id, key), those of the results.
        crops: Of the wanted ones.
    """

    entries: Mapping[tuple[str, str], Entry]
    crops: Mapping[tuple[str, str], Picture]

    def complete(self, cases: Sequence[Case]) -> list[Case]:
        """The cases with their crops, sizes, and captions where they had none."""
        found = []
        for case in cases:
            entry = self.entries[case.entry]
            x0, y0, x1, y1 = entry.crop_xyxy
            caption = case.caption if case.caption is not None else entry.captions[0]
            size = f"{x1 - x0} × {y1 - y0}"
            negative = entry.first_swap if case.score is None and NEGATIVES & set(case.tests) else None
            picture = self.crops[case.entry]
            found.append(replace(case, caption=caption, negative=negative, size=size, picture=picture))
        return found


def pick_worst(rows: Sequence[Mapping[str, Any]]) -> list[Case]:
    """The entries with the largest negative margins, each in the test where it is worst.

    Args:
        rows: Of a file of examples.
    """
    tests = [test for test in SINGLE if any(row["test"] == test for row in rows)]
    wrong = [r for r in rows if r["right"] is False and r["margin"] is not None and (r["test"] in tests or not tests)]
    # all_neg before base_neg, where the same pair is in both.
    order = {test: i for i, test in enumerate((*SINGLE, *TASKS))}
    wrong.sort(key=lambda row: (row["margin"], row["image_id"], row["key"], order.get(row["test"], len(order))))
    worst: dict[tuple[str, str], Case] = {}
    for row in wrong:
        entry = row["image_id"], row["key"]
        if entry not in worst and len(worst) < CASES:
            worst[entry] = Case(
                entry=entry,
                tests=(row["test"],),
                caption=row["caption"],
                rival=row["rival_text"],
                whose=_whose(row),
                score=row["score"],
                rival_score=row["rival_score"],
                margin=row["margin"],
            )
    return list(worst.values())


def _whose(row: Mapping[str, Any]) -> str:
    photo, key = row["rival_image_id"], row["rival_key"]
    if (photo, key) == (row["image_id"], row["key"]):
        return "its negative"
    what = "image" if row["rival_text"] is None else "caption"
    part = "the whole photo" if key == "base" else key
    return f"{what} of {part}, " + ("same photo" if photo == row["image_id"] else f"photo {photo}")


def pick_shared(results: Sequence[Result]) -> list[Case]:
    """Entries that all models get wrong, those first that are wrong in most tests.

    Args:
        results: Of the same data.
    """
    tests = [test for test in results[0].outcomes if all(test in result.outcomes for result in results)]
    failed: dict[tuple[str, str], list[str]] = {}
    for test in [test for test in tests if test in SINGLE] or tests:
        values = [result.values_of(test) for result in results]
        for entry in values[0]:
            if not any(of_model[entry] for of_model in values):
                failed.setdefault(entry, []).append(test)
    worst = sorted(failed.items(), key=lambda item: -len(item[1]))[:CASES]
    return [Case(entry, tuple(failed_in)) for entry, failed_in in worst]


def walk(
    source: Source,
    result: Result,
    wanted: Collection[tuple[str, str]],
    read: Callable[[Row], Photo] = read_row,
) -> Data:
    """Read the data once: its entries, and the crops of the wanted ones.

    Args:
        source: The data.
        result: One of the results; it tells which entries, and which photos were passed over.
        wanted: (image_id, key) of the entries whose crops are needed.
        read: Makes a photo of a row.

    Raises:
        DCIError: If it is not the data of the result.
    """
    members = set(result.entries)
    entries: dict[tuple[str, str], Entry] = {}
    crops: dict[tuple[str, str], Picture] = {}
    masked = result.settings.get("crop") == "masked"
    for photo in scored_photos(source, result, read, masked):
        own = {(entry.image_id, entry.key): entry for entry in photo.entries}
        entries |= {key: entry for key, entry in own.items() if key in members}
        shown = [key for key in own if key in wanted]
        if shown:
            found = photo.crops([own[key] for key in shown], "masked" if masked else "box")
            crops |= dict(zip(shown, map(picture_of, found), strict=True))
    return Data(entries, crops)


AnyPhoto = TypeVar("AnyPhoto", bound=Photo)


def scored_photos(
    source: Source, result: Result, read: Callable[[Row], AnyPhoto], masks: bool = False
) -> Iterator[AnyPhoto]:
    """The photos that a result is of, one by one.

    Args:
        source: The data.
        result: It tells which photos were passed over.
        read: Makes a photo of a row.
        masks: Whether masks are needed.

    Raises:
        DCIError: At their end, if they are not those of the result.
    """
    skipped = {(left["image_id"], left["reason"]) for score in result.scores.values() for left in score.left_out}
    digest = hashlib.sha256()
    for photo in map(read, source.read(photos=True, masks=masks)):
        if any(i == photo.image_id and reason not in photo.left_out.values() for i, reason in skipped):
            continue
        digest.update(photo.digest())
        yield photo
    if digest.hexdigest() != result.dataset["fingerprint"]:
        raise DCIError(
            f"{source.id}: is not the data of the results: its fingerprint is {digest.hexdigest()}, theirs is "
            f"{result.dataset['fingerprint']} ({result.dataset['id']}, {result.dataset['split']})"
        )


def picture_of(image: PIL.Image.Image) -> Picture:
    """An image as a page holds it; it is made smaller."""
    image.thumbnail((SIDE, SIDE), PIL.Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80, optimize=True)
    return Picture(f"data:image/jpeg;base64,{base64.b64encode(out.getvalue()).decode()}", *image.size)
