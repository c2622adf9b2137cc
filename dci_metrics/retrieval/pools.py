"""Embeddings → what each protocol sets against each other: its photos, its texts, and which text is whose."""

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from dci import DCIError
from dci_metrics.distributed import World
from dci_metrics.encoders.base import DualEncoder, TextLength
from dci_metrics.encoding import Caches, attempt, check_sizes, encode_photos, encode_texts
from dci_metrics.retrieval.lists import Listed, stem_of
from dci_metrics.retrieval.photos import EVERY, TASK, Image, Reader
from dci_metrics.retrieval.protocols import Protocol
from dci_metrics.retrieval.ranking import own_items
from dci_metrics.similarity import MultiVector
from dci_metrics.sources import Source
from dci_metrics.walk import Clock, Record, Settings, fingerprint


class Pairs:
    """A hash over a JSON list of photos and texts, which are added pair by pair."""

    def __init__(self) -> None:
        self._digest, self._before = hashlib.sha256(b"["), b""

    def add(self, image_id: str, text: str) -> None:
        """One more text, and its photo."""
        self._digest.update(self._before + json.dumps([image_id, text]).encode())
        self._before = b", "

    def hexdigest(self) -> str:
        """The hash over the list so far."""
        whole = self._digest.copy()
        whole.update(b"]")
        return whole.hexdigest()


@dataclass(frozen=True)
class Pool:
    """The photos and texts of one protocol.

    Attributes:
        protocol: Which it is.
        photos: image_id of each photo.
        texts: All of them, photo by photo.
        owner: (texts,) index of each text's photo.
        image_embeds: (photos, d) or (photos, q, d).
        text_embeds: Of each text one vector, or some where texts are read in pieces.
        lengths: Of each text; None where the model does not tell.
        left_out: image_id and reason.
    """

    protocol: Protocol
    photos: list[str]
    texts: list[str]
    owner: Tensor
    image_embeds: Tensor
    text_embeds: MultiVector
    lengths: list[TextLength] | None
    left_out: list[dict[str, str]]

    @property
    def own_texts(self) -> Tensor:
        """(photos, k) indices of each photo's texts; -1 after the last."""
        return own_items(self.owner, len(self.photos))

    @property
    def text_keys(self) -> list[tuple[str, str]]:
        """(image_id, key) of each text: "text-0" is the first of its photo."""
        found: dict[int, int] = {}
        keys = []
        for owner in self.owner.tolist():
            found[owner] = found.get(owner, -1) + 1
            keys.append((self.photos[owner], f"text-{found[owner]}"))
        return keys

    @property
    def photo_keys(self) -> list[tuple[str, str]]:
        """(image_id, key) of each photo."""
        return [(image_id, "photo") for image_id in self.photos]

    @property
    def counts(self) -> dict[str, int]:
        """Photos, texts, those without a letter, and those that another one before them equals."""
        empty = sum(not text.strip() for text in self.texts)
        double = len(self.texts) - len(set(self.texts))
        return {"photos": len(self.photos), "texts": len(self.texts), "empty_texts": empty, "duplicate_texts": double}

    @property
    def fingerprint(self) -> str:
        """A hash over which text stands for which photo."""
        pairs = Pairs()
        for owner, text in zip(self.owner.tolist(), self.texts, strict=True):
            pairs.add(self.photos[owner], text)
        return pairs.hexdigest()


@dataclass(frozen=True)
class Embedded:
    """All that some protocols need.

    Attributes:
        pools: By protocol.
        photos: image_id of each photo that is in some protocol, in the order of the data.
        fingerprint: Of the photos.
        images: How many different ones were embedded.
        texts: How many different ones.
    """

    pools: list[Pool]
    photos: list[str]
    fingerprint: str
    images: int
    texts: int


def embed(
    source: Source,
    reader: Reader,
    encoder: DualEncoder,
    how: Settings,
    clock: Clock,
    world: World,
    caches: Caches | None = None,
) -> Embedded:
    """Embed each photo and each distinct text once, for all protocols together.

    Args:
        source: The rows.
        reader: Of their texts.
        encoder: The model.
        how: Settings of the run.
        clock: Told what took how long.
        world: The processes that share the work; each of them gets the whole outcome.
        caches: Embeddings of earlier runs, and where those of this one are kept; written even when it is interrupted.

    Raises:
        DCIError: If a photo cannot be used (unless `on_error` is "skip") or is there twice, a protocol has no photo,
            or the model's embeddings are not as they must be.
    """
    try:
        share = attempt(lambda: encode_photos(source, encoder, [TASK], how, clock, world, caches, reader))
        with clock.stage("gather"):
            records = sorted(chain.from_iterable(world.gather(share)), key=lambda record: record.place)
        photos = _photos(records, source)
        left_out = {protocol.key: _left_out(protocol, records) for protocol in reader.protocols}
        for protocol in (protocol for protocol in reader.protocols if protocol.needs == "list"):
            left_out[protocol.key] += _not_there(reader.listed, records, source, how.on_error)
        _refuse_empty(reader.protocols, records, left_out, source)
        with clock.stage("texts"):
            captions = (text for record in records for entry in record.entries for text in entry.captions)
            index = {text: i for i, text in enumerate(dict.fromkeys(captions))}
            text_embeds, lengths = encode_texts(list(index), encoder, how, world, caches, clock)
    finally:
        if caches is not None:
            caches.flush()
    check_sizes(image=[record.embeds for record in records if record.entries], text=[text_embeds.vectors])
    pools = [_pool(p, records, index, text_embeds, lengths, left_out[p.key]) for p in reader.protocols]
    images = len({key for record in records for key in record.keys})
    return Embedded(pools, photos, fingerprint(records), images, len(index))


def _photos(records: Sequence[Record], source: Source) -> list[str]:
    """The photos that have a text, each of which is itself a query once."""
    photos = [record.entries[0].image_id for record in records if record.entries]
    double = next((image_id for image_id, n in Counter(photos).items() if n > 1), None)
    if double is not None:
        raise DCIError(
            f"{source.id}: photo {double} is more than once in {source.split!r}, where each is ranked against all "
            "others; take it out of all splits, or rows, but one"
        )
    return photos


def _pool(
    protocol: Protocol,
    records: Sequence[Record],
    index: Mapping[str, int],
    text_embeds: MultiVector,
    lengths: list[TextLength] | None,
    left_out: list[dict[str, str]],
) -> Pool:
    photos: list[str] = []
    texts: list[str] = []
    embeds, owner = [], []
    for record in records:
        for entry, vector in zip(record.entries, record.embeds, strict=True):
            assert isinstance(entry, Image)
            if protocol.key in entry.texts_of:
                own = entry.texts_of[protocol.key]
                owner += [len(photos)] * len(own)
                texts += own
                photos.append(entry.image_id)
                embeds.append(vector)
    places = [index[text] for text in texts]
    of_texts = None if lengths is None else [lengths[place] for place in places]
    own_embeds = text_embeds.select(torch.tensor(places))
    return Pool(protocol, photos, texts, torch.tensor(owner), torch.stack(embeds), own_embeds, of_texts, left_out)


def _left_out(protocol: Protocol, records: Sequence[Record]) -> list[dict[str, str]]:
    """Photos without a text, and those that cannot be used, which are out of all tests."""
    if protocol.needs == "list":  # all that is not in the list, which is no news
        records = [record for record in records if not record.digest]
    keys = (protocol.key, TASK.rule)
    return [{"image_id": i, "reason": why} for record in records for i, key, why in record.left_out if key in keys]


def _not_there(listed: Listed, records: Sequence[Record], source: Source, on_error: str) -> list[dict[str, str]]:
    """What a list has, and the dataset has not."""
    entries = (entry for record in records for entry in record.entries if isinstance(entry, Image))
    there = {stem_of(entry.file_name) for entry in entries}
    missing = [name for name in listed if name not in there]
    if missing and on_error == "raise":
        others = "" if source.split == EVERY else "take all splits with --split all, or "
        raise DCIError(
            f"{source.id}: {len(missing)} of the list's {len(listed)} photos are not in {source.split!r}, such as "
            f"{missing[0]}; {others}pass over them with --on-error skip"
        )
    # What is broken is there, has no entry, and is listed with what is wrong with it.
    known = {stem_of(str(row["file_name"])) for row in source.read(photos=False)} if missing else set()
    reason = "is in the list, but not in the dataset"
    return [{"image_id": name, "reason": reason} for name in missing if name not in known]


def _refuse_empty(
    protocols: Sequence[Protocol],
    records: Sequence[Record],
    left_out: Mapping[str, Sequence[Mapping[str, str]]],
    source: Source,
) -> None:
    entries = [entry for record in records for entry in record.entries if isinstance(entry, Image)]
    for protocol in protocols:
        if not any(protocol.key in entry.texts_of for entry in entries):
            out = left_out[protocol.key]
            why = f"{len(out)} are left out, the first one because {out[0]['reason']}" if out else "there is none"
            raise DCIError(f"{source.id}: no photo of {source.split!r} is in the protocol {protocol.key}: {why}")
