"""What a dual encoder makes of a dataset: each subcrop and each distinct text is encoded once for all tests."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from dci import DCIError, Row
from dci_metrics.cache import EmbeddingCache
from dci_metrics.distributed import World
from dci_metrics.encoders import reading
from dci_metrics.encoders.base import DualEncoder, MeasuresTexts, Prepares, ReadsTokens, TextLength
from dci_metrics.scoring import Similarity
from dci_metrics.similarity import EmbeddingSimilarity, MultiVector, unit_vectors
from dci_metrics.sources import Share, Source
from dci_metrics.subcrops import Entry, Photo, read_row
from dci_metrics.tasks import Task
from dci_metrics.walk import Clock, Record, Settings, Walk, bar, fingerprint, why_empty

T = TypeVar("T")


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
        images: How many different ones the entries have.
    """

    entries: list[Entry]
    text_index: dict[str, int]
    similarity: Similarity
    text_lengths: list[TextLength] | None
    left_out: list[tuple[str, str, str]]
    fingerprint: str
    images: int


@dataclass(frozen=True)
class Caches:
    """Embeddings kept from earlier runs of the same model: of images and of texts."""

    images: EmbeddingCache
    texts: EmbeddingCache

    def flush(self) -> None:
        """Write what was added."""
        self.images.flush()
        self.texts.flush()


def encode(
    source: Source,
    encoder: DualEncoder,
    wanted: Sequence[Task],
    settings: Settings,
    clock: Clock,
    world: World,
    caches: Caches | None = None,
    read: Callable[[Row], Photo] = read_row,
) -> Encoded:
    """Embed all images and texts that the wanted tests need.

    Args:
        source: The rows.
        encoder: The model.
        wanted: The tests.
        settings: Of the run.
        clock: Told what took how long.
        world: The processes that share the work; each of them gets the whole outcome.
        caches: Embeddings of earlier runs, and where those of this one are kept; written even when it is interrupted.
        read: Makes a photo of a row.

    Raises:
        DCIError: If a photo cannot be used (unless `on_error` is "skip"), no entry is left, or the model's embeddings
            are not as they must be.
    """
    try:
        share = attempt(lambda: encode_photos(source, encoder, wanted, settings, clock, world, caches, read))
        with clock.stage("gather"):
            records = sorted(chain.from_iterable(world.gather(share)), key=lambda record: record.place)
        entries = [entry for record in records for entry in record.entries]
        left_out = [out for record in records for out in record.left_out]
        if not entries:
            raise DCIError(why_empty(source, wanted, left_out, bool(records)))
        with clock.stage("texts"):
            text_index = index_texts(entries, wanted)
            text_embeds, lengths = encode_texts(list(text_index), encoder, settings, world, caches, clock)
    finally:
        if caches is not None:
            caches.flush()
    embeds = [record.embeds for record in records if record.entries]
    check_sizes(image=embeds, text=[text_embeds.vectors])
    similarity = EmbeddingSimilarity(torch.cat(embeds), text_embeds)
    images = len({key for record in records for key in record.keys})
    return Encoded(entries, text_index, similarity, lengths, left_out, fingerprint(records), images)


def encode_photos(
    source: Source,
    encoder: DualEncoder,
    wanted: Sequence[Task],
    settings: Settings,
    clock: Clock,
    world: World,
    caches: Caches | None,
    read: Callable[[Row], Photo] = read_row,
) -> list[Record]:
    """Embed the images of this process's photos, which `read` makes of rows."""
    cache = caches.images if caches is not None else None
    prepare = encoder.prepare_images if isinstance(encoder, Prepares) else None
    share = Share(world.rank, world.size)
    walk = Walk(source, wanted, settings, clock, prepare, frozenset() if cache is None else cache, share, read)
    keys: list[list[str]] = []
    waiting: list[tuple[str, Any]] = []
    found: dict[str, Tensor] = {}

    def encode_images(count: int) -> None:
        with clock.stage("images"):
            taken, waiting[:] = waiting[:count], waiting[count:]
            batch = [crop for _, crop in taken]
            given = encoder.encode_prepared(batch) if isinstance(encoder, Prepares) else encoder.encode_images(batch)
            embeds = normalised(given, len(batch), "image")
            found.update(zip((key for key, _ in taken), embeds, strict=True))
            if cache is not None:
                cache.add([key for key, _ in taken], embeds)

    for loaded in walk:
        keys.append(loaded.keys)
        waiting += zip(loaded.todo, loaded.crops, strict=True)
        while len(waiting) >= settings.batch_size:
            encode_images(settings.batch_size)
    if waiting:
        encode_images(len(waiting))
    usable = [record for record in walk.records if record.entries]
    for record, names in zip(usable, keys, strict=True):
        vectors = [found[name] if name in found or cache is None else cache[name] for name in names]
        check_sizes(image=[vector[None] for vector in vectors])
        record.keys, record.embeds = names, torch.stack(vectors)
    return walk.records


def attempt(work: Callable[[], T]) -> T | DCIError:
    """What some work gives, or its error: the other processes must hear of it before it is raised."""
    try:
        return work()
    except DCIError as error:
        return error


def index_texts(entries: Sequence[Entry], wanted: Sequence[Task]) -> dict[str, int]:
    """All distinct texts that the tests need, numbered in the order they are met."""
    needed = (text for entry in entries for task in wanted if task.takes(entry) for text in entry.texts(task))
    return {text: i for i, text in enumerate(dict.fromkeys(needed))}


def encode_texts(
    texts: list[str],
    encoder: DualEncoder,
    settings: Settings,
    world: World,
    caches: Caches | None,
    clock: Clock | None = None,
) -> tuple[MultiVector, list[TextLength] | None]:
    """Embed distinct texts, read as the settings say.

    Args:
        texts: Each once.
        encoder: The model, which `reading.check` has passed.
        settings: Of the run.
        world: The processes that share the work.
        caches: Embeddings of earlier runs, of whole texts and of pieces.
        clock: Told how many pieces were encoded, where texts are read in pieces.

    Returns:
        Unit vectors, of each text one, or some of which the nearest counts; and the texts' lengths.
    """
    if settings.reading == reading.READINGS[0]:
        embeds, lengths = _encode_distinct(texts, encoder, settings, world, caches)
        return MultiVector.of(embeds), lengths
    assert isinstance(encoder, MeasuresTexts)
    pieces = reading.split(texts, encoder)
    embeds, _ = _encode_distinct(pieces.texts, encoder, settings, world, caches)
    if clock is not None:
        clock.pieces = len(pieces.texts)
    return pieces.joined(embeds, settings.reading), pieces.lengths


def _encode_distinct(
    texts: list[str], encoder: DualEncoder, settings: Settings, world: World, caches: Caches | None
) -> tuple[Tensor, list[TextLength] | None]:
    """Embed distinct texts, those of like length together, so that little padding is computed."""
    lengths = encoder.text_lengths(texts) if isinstance(encoder, MeasuresTexts) else None
    size = [length.tokens for length in lengths] if lengths is not None else [len(text) for text in texts]
    keys = _text_keys(texts, encoder)
    # What the model reads as one text is one, whichever of its spellings comes first.
    first: dict[str, int] = {}
    for i, key in enumerate(keys):
        first.setdefault(key, i)
    order = sorted(first.values(), key=size.__getitem__)
    mine = {keys[i]: texts[i] for i in order[world.rank :: world.size]}
    shares = world.gather(attempt(lambda: _encode_share(mine, encoder, settings, world, caches)))
    shares = [share for share in shares if len(share)]
    check_sizes(text=shares)
    embeds = torch.empty(len(texts), shares[0].shape[-1])
    for rank, share in enumerate(shares):
        embeds[order[rank :: world.size]] = share
    return embeds[[first[key] for key in keys]], lengths


def _text_keys(texts: list[str], encoder: DualEncoder) -> list[str]:
    """A name of what the model reads of each text."""
    if isinstance(encoder, ReadsTokens):
        read = [repr(ids).encode() for ids in encoder.token_ids(texts)]
    else:
        read = [text.encode("utf-8", "surrogatepass") for text in texts]
    return [hashlib.sha256(what).hexdigest() for what in read]


def _encode_share(
    texts: Mapping[str, str], encoder: DualEncoder, settings: Settings, world: World, caches: Caches | None
) -> Tensor:
    """Embed the texts that this process takes, given by key."""
    known: EmbeddingCache | dict[str, Tensor] = caches.texts if caches is not None else {}
    todo = [key for key in texts if key not in known]
    with bar(len(texts), "text", settings.progress and world.rank == 0) as shown:
        shown.update(len(texts) - len(todo))
        for start in range(0, len(todo), settings.batch_size):
            batch = todo[start : start + settings.batch_size]
            embeds = normalised(encoder.encode_texts([texts[key] for key in batch]), len(batch), "text")
            if isinstance(known, EmbeddingCache):
                known.add(batch, embeds)
            else:
                known.update(zip(batch, embeds, strict=True))
            shown.update(len(batch))
    vectors = [known[key] for key in texts]
    check_sizes(text=[vector[None] for vector in vectors])
    return torch.stack(vectors) if vectors else torch.zeros(0, 0)


def tensor_of(given: Any, what: str, shape: str) -> Tensor:
    """What a model gave, on the CPU.

    Raises:
        DCIError: If it is no tensor, and nothing that torch makes one of.
    """
    try:
        return torch.as_tensor(given).detach().to("cpu")
    # What torch cannot take as numbers is a TypeError, a ValueError or a RuntimeError, by what it is.
    except Exception as error:
        raise DCIError(
            f"the model gave {what} as {type(given).__name__}; expected a tensor of shape {shape}"
        ) from error


def normalised(embeds: Any, n: int, what: str) -> Tensor:
    """Unit vectors in float32 on the CPU.

    Raises:
        DCIError: If they are not (n, d), or for images (n, q, d), or not finite: a comparison with NaN is silently
            false.
    """
    tensor = tensor_of(embeds, f"{what} embeddings", f"({n}, d)")
    dims = (2, 3) if what == "image" else (2,)
    if tensor.dim() not in dims or len(tensor) != n or 0 in tensor.shape:
        raise DCIError(f"the model gave {what} embeddings of shape {tuple(tensor.shape)}; expected ({n}, d)")
    if tensor.is_complex():
        raise DCIError(f"the model gave {what} embeddings of type {tensor.dtype}; expected real numbers")
    try:
        return unit_vectors(tensor)
    except ValueError as error:
        raise DCIError(f"the model gave {what} embeddings that are not finite or zero; try --dtype float32") from error


def check_sizes(**embeds: list[Tensor]) -> None:
    """Raise a DCIError unless all embeddings have the same size."""
    sizes = {what: sorted({tensor.shape[-1] for tensor in tensors}) for what, tensors in embeds.items()}
    if len({size for found in sizes.values() for size in found}) > 1:
        got = "; ".join(f"{what} embeddings of {' and '.join(map(str, found))}" for what, found in sizes.items())
        raise DCIError(f"the model gave {got} numbers; expected the same for all")
