"""Cosines of embeddings, of which an item may have several; the best one counts. Tensors only, no I/O.

Images have several where a model gives some for each, as BLIP-2 does, and texts where they are read in pieces
(`encoders/reading.py`). One text of a hundred pieces among short ones must not make all of them a hundred long, so
nothing is filled up: vectors stand once, and each item names its own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

CHUNK = 1 << 20
"""Numbers that one step may hold at once: bounds memory whatever the number of entries."""


@dataclass(frozen=True)
class MultiVector:
    """Embeddings of n items.

    Attributes:
        vectors: (p, d), of all items.
        index: (s,) int64, which of them each item has, item by item.
        counts: (n,) int64, how many of `index` are each item's; one at least.
    """

    vectors: Tensor
    index: Tensor
    counts: Tensor

    @classmethod
    def of(cls, embeds: Tensor) -> "MultiVector":
        """Of (n, d), or of (n, q, d) where each item has q vectors."""
        n, each = len(embeds), embeds.shape[1] if embeds.dim() == 3 else 1
        return cls(embeds.reshape(-1, embeds.shape[-1]), torch.arange(n * each), torch.full((n,), each))

    def __len__(self) -> int:
        """How many items."""
        return len(self.counts)

    def select(self, items: Tensor) -> "MultiVector":
        """Some items, by their indices, in the order given; vectors are not copied."""
        counts, starts = self.counts[items], starts_of(self.counts)[items]
        place = torch.arange(int(counts.sum())) + torch.repeat_interleave(starts - starts_of(counts), counts)
        return MultiVector(self.vectors, self.index[place], counts)

    @property
    def dim(self) -> int:
        """Numbers of a vector."""
        return self.vectors.shape[-1]

    def best(self, scores: npt.NDArray[np.float32], axis: int) -> npt.NDArray[np.float32]:
        """The scores of items from those of the vectors in `index`, which lie along an axis."""
        if len(self.index) == len(self):
            return scores
        return np.maximum.reduceat(scores, starts_of(self.counts).numpy(), axis=axis)


class EmbeddingSimilarity:
    """Cosines of unit vectors, in float32, the same for the same text wherever it stands.

    A matrix product adds in another order from column to column, so in float32 equal texts would differ in the last
    bit, and which of them wins would be left to the processor. Sums in float64 agree once they are rounded.

    Args:
        image_embeds: (n, d), or (n, q, d) for models that see q vectors in an image, of which the best one counts.
        text_embeds: (m, d), or some vectors a text where texts are read in pieces, of which the best one counts.
    """

    def __init__(self, image_embeds: Tensor, text_embeds: Tensor | MultiVector) -> None:
        self.image_embeds = image_embeds if image_embeds.dim() == 3 else image_embeds[:, None]
        self.texts = text_embeds if isinstance(text_embeds, MultiVector) else MultiVector.of(text_embeds)

    def pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of pairs: index tensors of shapes that broadcast → scores of the broadcast shape."""
        shape = torch.broadcast_shapes(images.shape, texts.shape)
        images, texts = images.expand(shape).reshape(-1), texts.expand(shape).reshape(-1)
        parts = []
        step = CHUNK // max(1, math.prod(self.image_embeds.shape[1:]))
        for place in runs(self.texts.counts[texts], step):
            text = self.texts.select(texts[place])
            image = self.image_embeds[torch.repeat_interleave(images[place], text.counts)]
            cosines = torch.einsum("nqd,nd->nq", image.double(), text.vectors[text.index].double())
            parts.append(torch.from_numpy(text.best(cosines.amax(-1).float().numpy(), axis=0)))
        return torch.cat(parts).reshape(shape) if parts else torch.zeros(shape)

    def matrix(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of all against all: (a,), (b,) → (a, b)."""
        image = self.image_embeds[images].double()
        parts = [torch.zeros(len(images), 0)]
        step = CHUNK // max(1, math.prod(image.shape[:2]), self.texts.dim)
        for place in runs(self.texts.counts[texts], step):
            text = self.texts.select(texts[place])
            cosines = torch.einsum("aqd,pd->aqp", image, text.vectors[text.index].double()).amax(1)
            parts.append(torch.from_numpy(text.best(cosines.float().numpy(), axis=1)))
        return torch.cat(parts, dim=1)


def unit_vectors(embeds: Tensor) -> Tensor:
    """Embeddings of length one, in float32.

    Raises:
        ValueError: If one is zero or not finite: a comparison with NaN is silently false.
    """
    # In float64 the squares of whatever float32 holds neither overflow nor vanish.
    lengths = embeds.double().norm(dim=-1, keepdim=True)
    if not (torch.isfinite(lengths) & (lengths > 0)).all():
        raise ValueError("an embedding is zero or not finite")
    unit: Tensor = (embeds.double() / lengths).float()
    return unit


def starts_of(counts: Tensor) -> Tensor:
    """Where each group begins, of groups of so many that lie one after another."""
    return counts.cumsum(0) - counts


def runs(counts: Tensor, most: int) -> Iterator[slice]:
    """Stretches of items with some `most` vectors together: a step that is bounded whatever an item has."""
    _, lengths = torch.unique_consecutive((counts.cumsum(0) - 1) // max(1, most), return_counts=True)
    start = 0
    for length in lengths.tolist():
        yield slice(start, start + length)
        start += length
