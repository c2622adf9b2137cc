"""One pass over a dataset's photos, and what a dual encoder makes of them.

Each photo is decoded once, in threads that run ahead of the encoder; each subcrop and each distinct text is encoded
once for all tests together.
"""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

import dci
from dci import DCIError
from dci_metrics.encoders.base import DualEncoder, MeasuresTexts, Prepares, TextLength
from dci_metrics.scoring import EmbeddingSimilarity, Similarity
from dci_metrics.sources import Source
from dci_metrics.subcrops import Crop, Entry, Photo, read_photos
from dci_metrics.tasks import Task

LOADERS = 2
"""Threads that decode, crop and preprocess ahead of the encoder; PIL works outside of Python's lock."""

PHOTOS_AHEAD = 4
"""Photos that may wait for the encoder; bounds memory whatever the size of the data."""


@dataclass
class Clock:
    """Seconds by stage."""

    seconds: dict[str, float] = field(default_factory=dict)

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
    """

    batch_size: int
    crop: Crop
    on_error: str
    progress: bool


@dataclass
class Encoded:
    """All entries of the wanted tests, and the scores of images against texts.

    Attributes:
        entries: In the order of the data, which decides the groups of SCM.
        text_index: Index of each distinct text.
        similarity: Of entries' images and texts, by index.
        text_lengths: Of each distinct text; None when the model does not tell.
        left_out: (image_id, test of `dci.TESTS`, reason) of photos that are not in a test.
        fingerprint: Of the data that was scored.
    """

    entries: list[Entry]
    text_index: dict[str, int]
    similarity: Similarity
    text_lengths: list[TextLength] | None
    left_out: list[tuple[str, str, str]]
    fingerprint: str


def encode(source: Source, encoder: DualEncoder, wanted: Sequence[Task], settings: Settings, clock: Clock) -> Encoded:
    """Embed all images and texts that the wanted tests need.

    Raises:
        DCIError: If a photo cannot be used (unless `on_error` is "skip"), no entry is left, or the model's embeddings
            are not as they must be.
    """
    prepare = encoder.prepare_images if isinstance(encoder, Prepares) else None
    walk = Walk(source, wanted, settings, clock, prepare)
    embeds: list[Tensor] = []
    waiting: list[Any] = []

    def encode_images(count: int) -> None:
        with clock.stage("images"):
            batch, waiting[:] = waiting[:count], waiting[count:]
            found = encoder.encode_prepared(batch) if isinstance(encoder, Prepares) else encoder.encode_images(batch)
            embeds.append(normalised(found, len(batch), "image"))

    for loaded in walk:
        waiting += loaded.crops
        while len(waiting) >= settings.batch_size:
            encode_images(settings.batch_size)
    if waiting:
        encode_images(len(waiting))
    walk.refuse_empty()
    with clock.stage("texts"):
        text_index = index_texts(walk.entries, wanted)
        text_embeds, lengths = _encode_texts(list(text_index), encoder, settings)
    _check_sizes(image=embeds, text=[text_embeds])
    similarity = EmbeddingSimilarity(torch.cat(embeds), text_embeds)
    return Encoded(walk.entries, text_index, similarity, lengths, walk.left_out, walk.fingerprint)


def index_texts(entries: Sequence[Entry], wanted: Sequence[Task]) -> dict[str, int]:
    """All distinct texts that the tests need, numbered in the order they are met."""
    needed = (text for entry in entries for task in wanted if task.takes(entry) for text in entry.texts(task))
    return {text: i for i, text in enumerate(dict.fromkeys(needed))}


# ----------------------------------------------------------------------------------------------------------------------
# Photos
# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class Loaded:
    """What a loading thread hands over: a photo with its crops ready for the model, or what is wrong with it."""

    photo: Photo
    digest: bytes = b""
    entries: list[Entry] = field(default_factory=list)
    crops: Sequence[Any] = ()
    error: DCIError | None = None


class Walk:
    """One pass over the photos, in the data's order; broken ones are an error, or are left out and listed.

    Args:
        source: The rows.
        wanted: The tests; entries that none of them takes are passed over.
        settings: Of the run.
        clock: Told how long the model waited for photos.
        prepare: Run on the crops of each photo, in the loading threads.

    Attributes:
        entries: Those of the photos met so far; all of them at the end.
        left_out: (image_id, test of `dci.TESTS`, reason), likewise.
    """

    def __init__(
        self,
        source: Source,
        wanted: Sequence[Task],
        settings: Settings,
        clock: Clock,
        prepare: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
    ) -> None:
        self.source, self.wanted, self.settings, self.clock, self.prepare = source, wanted, settings, clock, prepare
        self.entries: list[Entry] = []
        self.left_out: list[tuple[str, str, str]] = []
        self._photos = 0
        self._digest = hashlib.sha256()

    @property
    def fingerprint(self) -> str:
        """A hash over ids, crops, texts and bytes of the photos met so far."""
        return self._digest.hexdigest()

    def __iter__(self) -> Iterator[Loaded]:
        loaded = self._load_ahead()
        with bar(self.source.total, "photo", self.settings.progress) as shown:
            while True:
                with self.clock.stage("wait_for_photos"):
                    item = next(loaded, None)
                if item is None:
                    break
                shown.update()
                self._photos += 1
                photo = item.photo
                if item.error is not None:
                    if self.settings.on_error == "raise":
                        raise item.error
                    self.left_out += [(photo.image_id, rule, str(item.error)) for rule in dci.TESTS]
                    continue
                self.left_out += [(photo.image_id, rule, reason) for rule, reason in photo.left_out.items()]
                self._digest.update(item.digest)
                self.entries += item.entries
                yield item
        self.left_out += [(s.image_id, rule, s.reason) for s in self.source.skipped for rule in dci.TESTS]

    def _load_ahead(self) -> Iterator[Loaded]:
        """Decode, crop and prepare in threads, a few photos ahead of the model."""

        def load(photo: Photo) -> Loaded:
            entries = [entry for entry in photo.entries if any(task.takes(entry) for task in self.wanted)]
            try:
                photo.check(self.wanted)
                crops: Sequence[Any] = photo.crops(entries, self.settings.crop) if entries else ()
                if entries and self.prepare is not None:
                    crops = self.prepare(crops)
                return Loaded(photo, photo.digest(), entries, crops)
            except DCIError as error:
                return Loaded(photo, error=error)

        rows = self.source.read(photos=True, masks=self.settings.crop == "masked")
        yield from _in_order(load, read_photos(rows))

    def refuse_empty(self) -> None:
        """Raise a DCIError, with the reason, unless there is an entry to score."""
        if self.entries:
            return
        rules = {task.rule for task in self.wanted}
        out = [(image_id, reason) for image_id, rule, reason in self.left_out if rule in rules]
        why = "no entry has as many captions as they need" if self._photos else "the dataset is empty"
        if out:
            count = len({image_id for image_id, _ in out})
            why = f"{count} photos are left out, the first one, {out[0][0]}, because: {out[0][1]}"
        raise DCIError(f"{self.source.id}: no entry of {self.source.split!r} is in the tests; {why}")


_In = TypeVar("_In")
_Out = TypeVar("_Out")


def _in_order(function: Callable[[_In], _Out], items: Iterator[_In]) -> Iterator[_Out]:
    with ThreadPoolExecutor(LOADERS) as pool:
        ahead: deque[Future[_Out]] = deque()
        try:
            for item in items:
                ahead.append(pool.submit(function, item))
                if len(ahead) > PHOTOS_AHEAD:
                    yield ahead.popleft().result()
            while ahead:
                yield ahead.popleft().result()
        finally:
            for future in ahead:
                future.cancel()


def bar(total: int | None, unit: str, progress: bool) -> "tqdm[NoReturn]":
    """A progress bar, shown on terminals only: in a log, or in a pipe, it would stand between the messages."""
    return tqdm(total=total, desc=f"{unit.capitalize()}s", unit=unit, disable=None if progress else True)


# ----------------------------------------------------------------------------------------------------------------------
# Texts, and what a model gives
# ----------------------------------------------------------------------------------------------------------------------


def _encode_texts(texts: list[str], encoder: DualEncoder, settings: Settings) -> tuple[Tensor, list[TextLength] | None]:
    """Embed distinct texts, those of like length together, so that little padding is computed."""
    lengths = encoder.text_lengths(texts) if isinstance(encoder, MeasuresTexts) else None
    size = [length.tokens for length in lengths] if lengths is not None else [len(text) for text in texts]
    order = sorted(range(len(texts)), key=size.__getitem__)
    parts = []
    with bar(len(texts), "text", settings.progress) as shown:
        for start in range(0, len(order), settings.batch_size):
            batch = [texts[i] for i in order[start : start + settings.batch_size]]
            parts.append(normalised(encoder.encode_texts(batch), len(batch), "text"))
            shown.update(len(batch))
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    _check_sizes(text=parts)
    return torch.cat(parts)[back], lengths


def normalised(embeds: Any, n: int, what: str) -> Tensor:
    """Unit vectors in float32 on the CPU.

    Raises:
        DCIError: If they are not (n, d), or for images (n, q, d), or not finite: a comparison with NaN is silently
            false.
    """
    try:
        tensor = torch.as_tensor(embeds).detach().to("cpu")
    # What torch cannot take as numbers is a TypeError, a ValueError or a RuntimeError, by what it is.
    except Exception as error:
        raise DCIError(
            f"the model gave {what} embeddings as {type(embeds).__name__}; expected a tensor of shape ({n}, d)"
        ) from error
    dims = (2, 3) if what == "image" else (2,)
    if tensor.dim() not in dims or len(tensor) != n or 0 in tensor.shape:
        raise DCIError(f"the model gave {what} embeddings of shape {tuple(tensor.shape)}; expected ({n}, d)")
    if tensor.is_complex():
        raise DCIError(f"the model gave {what} embeddings of type {tensor.dtype}; expected real numbers")
    # In float64 the squares of whatever float32 holds neither overflow nor vanish.
    lengths = tensor.double().norm(dim=-1, keepdim=True)
    if not (torch.isfinite(lengths) & (lengths > 0)).all():
        raise DCIError(f"the model gave {what} embeddings that are not finite or zero; try --dtype float32")
    unit: Tensor = (tensor.double() / lengths).float()
    return unit


def _check_sizes(**embeds: list[Tensor]) -> None:
    """Raise a DCIError unless all embeddings have the same size."""
    sizes = {what: sorted({tensor.shape[-1] for tensor in tensors}) for what, tensors in embeds.items()}
    if len({size for found in sizes.values() for size in found}) > 1:
        got = "; ".join(f"{what} embeddings of {' and '.join(map(str, found))}" for what, found in sizes.items())
        raise DCIError(f"the model gave {got} numbers; expected the same for all")
