"""Dataset × encoder → result. Each photo is decoded once; each subcrop and each distinct text is encoded once."""

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn, TypeVar

import torch
from torch import Tensor
from tqdm import tqdm

import dci
from dci import DCIError
from dci_metrics import encoders, scoring, statistics
from dci_metrics.encoders.base import DualEncoder, MeasuresTexts, Prepares, TextLength
from dci_metrics.results import Result, Score
from dci_metrics.sources import Source, open_source
from dci_metrics.subcrops import Entry, Photo, read_photos
from dci_metrics.tasks import GROUP_SIZE, TASKS, Task

LOADERS = 2
"""Threads that decode, crop and preprocess ahead of the encoder; PIL works outside of Python's lock."""

PHOTOS_AHEAD = 4
"""Photos that may wait for the encoder; bounds memory whatever the size of the data."""


def evaluate(
    model: Any,
    dataset: Any,
    *,
    split: str = "test",
    tests: Iterable[str] | None = None,
    processor: Any = None,
    batch_size: int = 64,
    device: str = "auto",
    dtype: str = "float32",
    on_error: str = "raise",
    seed: int = 0,
    progress: bool = True,
) -> Result:
    """Score a CLIP-style model on sDCI's tests, as the paper's section 4.1 defines them.

    Args:
        model: A Hub id, a folder, `sample:tiny-clip`, a loaded transformers model, or an object with
            `encode_images(images)` and `encode_texts(texts)` that give (n, d) tensors.
        dataset: A folder of `dci build`, a release folder, a Hub id, `sample:scenes`, `sample:photographs`, a
            dataset loaded with `datasets`, or a list of rows of the configuration `sdci`.
        split: `train`, `validation` or `test`, where the dataset has several.
        tests: Some of `dci_metrics.tasks.TASKS`; None for all.
        processor: Of a loaded model; by default its checkpoint's.
        batch_size: Images, and texts, encoded at once.
        device: Of a model given by name: "auto", "cpu", "cuda", ...
        dtype: Of a model given by name: "float32", "bfloat16" or "float16". Scores are compared in float32.
        on_error: "raise", or "skip" to leave out photos that are missing or broken; they stand in the result.
        seed: Of the intervals' resampling.
        progress: Whether to show it.

    Returns:
        Scores with intervals and chance, the outcome of every entry, and what they depend on.

    Raises:
        DCIError: If the model or the data is not as it must be.
    """
    started = time.perf_counter()
    wanted = select_tasks(tests)
    if batch_size < 1:
        raise DCIError(f"expected a batch size of at least 1, got {batch_size}")
    clock = Clock()
    # A mistyped dataset or split is found before a model of some gigabytes is read.
    source = open_source(dataset, "sdci", split, on_error)
    encoder = encoders.load(model, processor=processor, device=device, dtype=dtype)
    encoded = _encode(source, encoder, wanted, batch_size, on_error, progress, clock)
    with clock.stage("score"):
        scores, outcomes = {}, {}
        for task in wanted:
            found = encoded.outcomes(task)
            scores[task.key], outcomes[task.key] = _score(task, encoded, found, seed)
    info = asdict(encoders.describe(encoder))
    settings = {
        "mode": "paper",
        "group_size": GROUP_SIZE,
        "batch_size": batch_size,
        "dtype": info.pop("dtype"),
        "device": info.pop("device"),
        "image_backend": info.pop("image_backend"),
        "seed": seed,
    }
    return Result(
        model=info,
        dataset={
            "id": source.id,
            "revision": source.revision,
            "config": source.config,
            "split": source.split,
            "fingerprint": encoded.fingerprint,
        },
        settings=settings,
        scores=scores,
        entries=[(entry.image_id, entry.key) for entry in encoded.entries],
        outcomes=outcomes,
        timing={
            "seconds": round(time.perf_counter() - started, 3),
            "images": len(encoded.entries),
            "texts": len(encoded.text_index),
            "stages": {name: round(seconds, 3) for name, seconds in clock.seconds.items()},
        },
    )


def select_tasks(keys: Iterable[str] | None) -> list[Task]:
    """The tests of the given keys, in the paper's order; all of them for None.

    Raises:
        DCIError: If a key is none of the tests'.
    """
    wanted = list(TASKS if keys is None else keys)
    unknown = [key for key in wanted if key not in TASKS]
    if unknown or not wanted:
        raise DCIError(f"no test {', '.join(map(repr, unknown)) or 'given'}: expected some of {', '.join(TASKS)}")
    return [task for task in TASKS.values() if task.key in wanted]


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


@dataclass
class Encoded:
    """All entries of the wanted tests, with their embeddings.

    Attributes:
        entries: In the order of the data, which decides the groups of SCM.
        image_embeds: (n, d), normalised, in float32 on the CPU.
        text_embeds: (m, d), likewise.
        text_index: Row of each distinct text in `text_embeds`.
        text_lengths: Of each distinct text; None when the model does not tell.
        left_out: (image_id, test of `dci.TESTS`, reason) of photos that are not in a test.
        fingerprint: Of the data that was scored.
    """

    entries: list[Entry]
    image_embeds: Tensor
    text_embeds: Tensor
    text_index: dict[str, int]
    text_lengths: list[TextLength] | None
    left_out: list[tuple[str, str, str]]
    fingerprint: str

    def members(self, task: Task) -> list[int]:
        """The entries of a test, by index."""
        return [i for i, entry in enumerate(self.entries) if task.takes(entry)]

    def outcomes(self, task: Task) -> scoring.Outcomes:
        """Score one test."""
        members = self.members(task)
        images = self.image_embeds[members]
        rows = [[self.text_index[text] for text in self.entries[i].positives(task)] for i in members]
        positives = self.text_embeds[torch.tensor(rows, dtype=torch.long).reshape(len(members), task.captions)]
        if task.kind == "scm":
            return scoring.match_in_groups(images, positives, GROUP_SIZE)
        negatives = [self.text_index[self.entries[i].texts(task)[-1]] for i in members]
        return scoring.beat_negative_embeds(images, positives, self.text_embeds[negatives])


def _score(task: Task, encoded: Encoded, found: scoring.Outcomes, seed: int) -> tuple[Score, str]:
    """One test's figure, and its outcomes over all entries."""
    members = encoded.members(task)
    correct, n = int(found.correct.sum()), len(members)
    texts = {encoded.text_index[text] for i in members for text in encoded.entries[i].texts(task)}
    lengths = [encoded.text_lengths[t] for t in texts] if encoded.text_lengths is not None else None
    marks = ["-"] * len(encoded.entries)
    for i, right in zip(members, found.correct.tolist(), strict=True):
        marks[i] = "1" if right else "0"
    score = Score(
        value=correct / n if n else None,
        correct=correct,
        n=n,
        n_images=n,
        n_texts=len(texts),
        ci95=statistics.interval(found.correct, [encoded.entries[i].image_id for i in members], seed=seed),
        chance=task.chance(n),
        ties=int(found.tied.sum()),
        truncated=sum(t.lost > 0 for t in lengths) / max(1, len(lengths)) if lengths is not None else None,
        tokens_lost=sum(t.lost for t in lengths) if lengths is not None else None,
        left_out=[{"image_id": i, "reason": r} for i, rule, r in encoded.left_out if rule == task.rule],
    )
    return score, "".join(marks)


# ----------------------------------------------------------------------------------------------------------------------
# Encoding
# ----------------------------------------------------------------------------------------------------------------------


@dataclass
class _Loaded:
    """What a loading thread hands over: a photo with its crops ready for the encoder, or what is wrong with it."""

    photo: Photo
    digest: bytes = b""
    entries: list[Entry] = field(default_factory=list)
    crops: Sequence[Any] = ()
    error: DCIError | None = None


def _encode(
    source: Source,
    encoder: DualEncoder,
    wanted: list[Task],
    batch_size: int,
    on_error: str,
    progress: bool,
    clock: Clock,
) -> Encoded:
    entries: list[Entry] = []
    left_out: list[tuple[str, str, str]] = []
    digest = hashlib.sha256()
    embeds: list[Tensor] = []
    waiting: list[Any] = []
    photos = 0

    def encode_images(count: int) -> None:
        with clock.stage("images"):
            batch, waiting[:] = waiting[:count], waiting[count:]
            found = encoder.encode_prepared(batch) if isinstance(encoder, Prepares) else encoder.encode_images(batch)
            embeds.append(_normalised(found, len(batch), "image"))

    loaded = _load_ahead(read_photos(source.rows), encoder, wanted)
    bar = _bar(source.total, "photo", progress)
    with bar:
        while True:
            with clock.stage("wait_for_photos"):
                item = next(loaded, None)
            if item is None:
                break
            bar.update()
            photos += 1
            if item.error is not None:
                if on_error == "raise":
                    raise item.error
                left_out += [(item.photo.image_id, rule, str(item.error)) for rule in dci.TESTS]
                continue
            left_out += [(item.photo.image_id, rule, reason) for rule, reason in item.photo.left_out.items()]
            digest.update(item.digest)
            entries += item.entries
            waiting += item.crops
            while len(waiting) >= batch_size:
                encode_images(batch_size)
        if waiting:
            encode_images(len(waiting))
    left_out += [(skipped.image_id, rule, skipped.reason) for skipped in source.skipped for rule in dci.TESTS]
    if not entries:
        why = _why_empty(left_out, photos, wanted)
        raise DCIError(f"{source.id}: no entry of {source.split!r} is in the tests; {why}")

    with clock.stage("texts"):
        needed = (text for entry in entries for task in wanted if task.takes(entry) for text in entry.texts(task))
        text_index = {text: i for i, text in enumerate(dict.fromkeys(needed))}
        text_embeds, lengths = _encode_texts(list(text_index), encoder, batch_size, progress)
    _check_sizes(image=embeds, text=[text_embeds])
    return Encoded(entries, torch.cat(embeds), text_embeds, text_index, lengths, left_out, digest.hexdigest())


def _why_empty(left_out: list[tuple[str, str, str]], photos: int, wanted: list[Task]) -> str:
    rules = {task.rule for task in wanted}
    out = [(image_id, reason) for image_id, rule, reason in left_out if rule in rules]
    if out:
        count = len({image_id for image_id, _ in out})
        return f"{count} photos are left out, the first one, {out[0][0]}, because: {out[0][1]}"
    return "no entry has as many captions as they need" if photos else "the dataset is empty"


def _bar(total: int | None, unit: str, progress: bool) -> "tqdm[NoReturn]":
    """A progress bar, shown on terminals only: in a log, or in a pipe, it would stand between the messages."""
    return tqdm(total=total, desc=f"{unit.capitalize()}s", unit=unit, disable=None if progress else True)


def _load_ahead(photos: Iterator[Photo], encoder: DualEncoder, wanted: list[Task]) -> Iterator[_Loaded]:
    """Decode, crop and preprocess in threads, a few photos ahead of the encoder, in the data's order."""

    def load(photo: Photo) -> _Loaded:
        entries = [entry for entry in photo.entries if any(task.takes(entry) for task in wanted)]
        try:
            photo.check(wanted)
            crops: Sequence[Any] = photo.crops(entries) if entries else ()
            if entries and isinstance(encoder, Prepares):
                crops = encoder.prepare_images(crops)
            return _Loaded(photo, photo.digest(), entries, crops)
        except DCIError as error:
            return _Loaded(photo, error=error)

    yield from _in_order(load, photos)


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


def _encode_texts(
    texts: list[str], encoder: DualEncoder, batch_size: int, progress: bool
) -> tuple[Tensor, list[TextLength] | None]:
    """Embed distinct texts, those of like length together, so that little padding is computed."""
    lengths = encoder.text_lengths(texts) if isinstance(encoder, MeasuresTexts) else None
    size = [length.tokens for length in lengths] if lengths is not None else [len(text) for text in texts]
    order = sorted(range(len(texts)), key=size.__getitem__)
    parts = []
    bar = _bar(len(texts), "text", progress)
    with bar:
        for start in range(0, len(order), batch_size):
            batch = [texts[i] for i in order[start : start + batch_size]]
            parts.append(_normalised(encoder.encode_texts(batch), len(batch), "text"))
            bar.update(len(batch))
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    _check_sizes(text=parts)
    return torch.cat(parts)[back], lengths


def _normalised(embeds: Any, n: int, what: str) -> Tensor:
    """Unit vectors in float32 on the CPU.

    Raises:
        DCIError: If they are not (n, d), or not finite: a comparison with NaN is silently false.
    """
    try:
        tensor = torch.as_tensor(embeds).detach().to("cpu")
    # What torch cannot take as numbers is a TypeError, a ValueError or a RuntimeError, by what it is.
    except Exception as error:
        raise DCIError(
            f"the model gave {what} embeddings as {type(embeds).__name__}; expected a tensor of shape ({n}, d)"
        ) from error
    if tensor.dim() != 2 or len(tensor) != n or tensor.shape[1] == 0:
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
    sizes = {what: sorted({tensor.shape[1] for tensor in tensors}) for what, tensors in embeds.items()}
    if len({size for found in sizes.values() for size in found}) > 1:
        got = "; ".join(f"{what} embeddings of {' and '.join(map(str, found))}" for what, found in sizes.items())
        raise DCIError(f"the model gave {got} numbers; expected the same for all")
