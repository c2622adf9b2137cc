"""One pass over a dataset's photos: each is decoded once, in threads that run ahead of the model."""

import hashlib
import sys
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

import dci
from dci import DCIError, Row
from dci_metrics.distributed import cores
from dci_metrics.sources import Share, Source
from dci_metrics.subcrops import Crop, Entry, Photo, read_row
from dci_metrics.tasks import Task

LOADERS, MOST_LOADERS = 2, 16
"""Threads that decode, crop and preprocess ahead of a model on a CPU, which needs the cores itself, and at most of one
on a GPU. PIL works outside of Python's lock."""

PHOTOS_AHEAD = 2
"""Photos a thread that may wait for the encoder; bounds memory whatever the size of the data."""


def loaders(device: str | None) -> int:
    """How many threads load ahead of a model on a device; None where that is not known, and may be a CPU."""
    if device is None or device.startswith("cpu"):
        return LOADERS
    return max(LOADERS, min(cores(), MOST_LOADERS))


@dataclass
class Clock:
    """What a run cost.

    Attributes:
        seconds: By stage.
        pieces: Texts that were encoded, where texts are read in pieces.
    """

    seconds: dict[str, float] = field(default_factory=dict)
    pieces: int | None = None

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add what happens inside to a stage."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started


@dataclass(frozen=True)
class Settings:
    """How a dataset is walked and encoded.

    Attributes:
        batch_size: Images, and texts, at once.
        crop: "box" cuts the subcrop out as the paper does, "masked" also greys what is outside of the mask.
        on_error: "raise", or "skip" to leave out photos that are missing or broken.
        progress: Whether bars are shown on a terminal.
        loaders: Threads that load ahead of the model.
        reading: How texts over the model's limit are read (`encoders/reading.py`).
    """

    batch_size: int
    crop: Crop
    on_error: str
    progress: bool
    loaders: int = LOADERS
    reading: str = "truncate"


@dataclass
class Loaded:
    """What a loading thread hands over: a photo with its crops ready for the model, or what is wrong with it.

    Attributes:
        place: In the split.
        entries: Those that the tests take.
        keys: Of what the model sees of each entry; none where all crops are asked for.
        todo: The keys that the crops are of, each once.
        crops: Of `todo`, or of all entries.
    """

    place: int
    photo: Photo
    digest: bytes = b""
    entries: list[Entry] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    crops: Sequence[Any] = ()
    error: DCIError | None = None


@dataclass
class Record:
    """What remains of a photo: its entries with their embeddings, or the reasons why it is not in the tests.

    Attributes:
        place: In the split; photos that the source passed over come last.
        digest: Of the photo and its texts; empty for one that is left out of all.
        left_out: (image_id, test of `dci.TESTS`, reason).
        keys: Of what the model sees of each entry; equal ones are one image.
        embeds: Of the entries.
    """

    place: int
    digest: bytes
    entries: list[Entry]
    left_out: list[tuple[str, str, str]]
    keys: list[str] = field(default_factory=list)
    embeds: Tensor = field(default_factory=lambda: torch.zeros(0))


def fingerprint(records: Iterable[Record]) -> str:
    """A hash over ids, crops, texts and bytes of photos."""
    return hashlib.sha256(b"".join(record.digest for record in records)).hexdigest()


def why_empty(source: Source, wanted: Sequence[Task], left_out: list[tuple[str, str, str]], photos: bool) -> str:
    """Why there is no entry to score."""
    rules = {task.rule for task in wanted}
    out = [(image_id, reason) for image_id, rule, reason in left_out if rule in rules]
    why = "no entry has as many captions as they need" if photos else "the dataset is empty"
    if out:
        count = len({image_id for image_id, _ in out})
        why = f"{count} photos are left out, the first one, {out[0][0]}, because: {out[0][1]}"
    return f"{source.id}: no entry of {source.split!r} is in the tests; {why}"


class Walk:
    """One pass over the photos, in the data's order; broken ones are an error, or are left out and listed.

    Args:
        source: The rows.
        wanted: The tests; entries that none of them takes are passed over.
        settings: Of the run.
        clock: Told how long the model waited for photos.
        prepare: Run on the crops of each photo, in the loading threads.
        known: Keys of crops that are not needed. Where it is given, what is the same to the last pixel is made once.
        share: Of the photos that this process takes.
        read: Makes a photo of a row.

    Attributes:
        records: Of the photos met so far; all of them at the end.
    """

    def __init__(
        self,
        source: Source,
        wanted: Sequence[Task],
        settings: Settings,
        clock: Clock,
        prepare: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
        known: Container[str] | None = None,
        share: Share = Share(),  # noqa: B008  # immutable
        read: Callable[[Row], Photo] = read_row,
    ) -> None:
        self.source, self.wanted, self.settings, self.clock = source, wanted, settings, clock
        self.prepare, self.known, self.share, self.read = prepare, known, share, read
        self.records: list[Record] = []

    def __iter__(self) -> Iterator[Loaded]:
        """The photos that have entries in the tests."""
        loaded = self._load_ahead()
        total = self.source.total
        mine = None if total is None else len(range(self.share.first, total, self.share.of))
        with bar(mine, "photo", self.settings.progress and self.share.first == 0) as shown:
            while True:
                with self.clock.stage("wait_for_photos"):
                    item = next(loaded, None)
                if item is None:
                    break
                shown.update()
                photo = item.photo
                if item.error is not None:
                    if self.settings.on_error == "raise":
                        raise item.error
                    reasons = [(photo.image_id, rule, str(item.error)) for rule in dci.TESTS]
                    self.records.append(Record(item.place, b"", [], reasons))
                    continue
                reasons = [(photo.image_id, rule, reason) for rule, reason in photo.left_out.items()]
                self.records.append(Record(item.place, item.digest, item.entries, reasons))
                if item.entries:
                    yield item
        skipped = [(s.image_id, rule, s.reason) for s in self.source.skipped for rule in dci.TESTS]
        if skipped:
            self.records.append(Record(sys.maxsize, b"", [], skipped))

    def _load_ahead(self) -> Iterator[Loaded]:
        """Decode, crop and prepare in threads, a few photos ahead of the model."""

        def load(numbered: tuple[int, Photo]) -> Loaded:
            place, photo = numbered
            entries = [entry for entry in photo.entries if any(task.takes(entry) for task in self.wanted)]
            try:
                photo.check(self.wanted)
                keys, needed = self._needed(photo, entries)
                crops: Sequence[Any] = photo.crops(list(needed.values()), self.settings.crop) if needed else ()
                if needed and self.prepare is not None:
                    crops = self.prepare(crops)
                return Loaded(place, photo, photo.digest(), entries, keys, list(needed), crops)
            except DCIError as error:
                return Loaded(place, photo, error=error)

        rows = self.source.read_share(self.share, photos=True, masks=self.settings.crop == "masked")
        yield from _in_order(load, ((place, self.read(row)) for place, row in rows), self.settings.loaders)

    def _needed(self, photo: Photo, entries: list[Entry]) -> tuple[list[str], dict[str, Entry]]:
        """The key of each entry's crop, and the entries whose crops are to be made."""
        if self.known is None:
            return [], {entry.key: entry for entry in entries}
        keys = [photo.crop_key(entry, self.settings.crop) for entry in entries]
        return keys, {key: entry for key, entry in zip(keys, entries, strict=True) if key not in self.known}


_In = TypeVar("_In")
_Out = TypeVar("_Out")


def _in_order(function: Callable[[_In], _Out], items: Iterator[_In], threads: int) -> Iterator[_Out]:
    """The results of a function that runs in threads, a few items ahead."""
    pool = ThreadPoolExecutor(threads)
    ahead: deque[Future[_Out]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(function, item))
            if len(ahead) > PHOTOS_AHEAD * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        # Not waited for: after an error, the last one to let go of this may be one of the threads themselves.
        pool.shutdown(wait=False, cancel_futures=True)


def bar(total: int | None, unit: str, progress: bool) -> "tqdm[NoReturn]":
    """A progress bar, shown on terminals only: in a log, or in a pipe, it would stand between the messages."""
    return tqdm(total=total, desc=f"{unit.capitalize()}s", unit=unit, disable=None if progress else True)
