"""The functional core of the benchmark: similarities in, right or wrong out. Tensors only, no I/O.

Everything follows the paper's section 4.1 and, where the paper is silent, the code that produced its tables: the
order of entries decides the groups, the last group may be short, the first of equal captions wins a matching, and
a negative must score strictly below its positive.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Outcomes:
    """What became of each entry of one test.

    Attributes:
        correct: (n,) bool, whether the entry was right.
        tied: (n,) bool, whether its score was exactly equal to that of its best rival.
    """

    correct: Tensor
    tied: Tensor


def match_within_group(similarity: Tensor) -> Outcomes:
    """Subcrop-Caption Matching in one group (SCM, or Pick-k-SCM with k captions an entry).

    An entry's own score is the lowest of its own k captions, a rival's score is the highest of the rival's k.

    Args:
        similarity: (..., g, g, k), image i against caption c of entry j. Leading dimensions are groups of their own.

    Returns:
        (..., g) outcomes: right when the own score is the row's maximum; the first of equal ones wins.
    """
    if similarity.dim() < 3 or similarity.shape[-2] != similarity.shape[-3]:
        raise ValueError(f"expected similarities of shape (..., g, g, k), got {tuple(similarity.shape)}")
    g = similarity.shape[-3]
    own = similarity.amin(-1).diagonal(dim1=-2, dim2=-1)
    scores = similarity.amax(-1).diagonal_scatter(own, dim1=-2, dim2=-1)
    is_best = scores == scores.amax(-1, keepdim=True)
    # Of equal maxima argmax gives the first, which is the paper's code's choice.
    first = scores.argmax(-1)
    own_index = torch.arange(g, device=similarity.device)
    others = is_best & ~torch.eye(g, dtype=torch.bool, device=similarity.device)
    tied = is_best.diagonal(dim1=-2, dim2=-1) & others.any(-1)
    return Outcomes(correct=first == own_index, tied=tied)


def match_in_groups(image_embeds: Tensor, text_embeds: Tensor, group_size: int = 8) -> Outcomes:
    """Subcrop-Caption Matching over consecutive groups of entries; the last group may be smaller.

    Args:
        image_embeds: (n, d), normalised.
        text_embeds: (n, k, d), normalised, the k captions of each entry.
        group_size: Entries a group; the paper's is 8.

    Returns:
        (n,) outcomes.
    """
    n = len(image_embeds)
    full = n - n % group_size
    parts = []
    for start, stop, size in ((0, full, group_size), (full, n, n - full)):
        if start < stop:
            images = image_embeds[start:stop].reshape(-1, size, image_embeds.shape[-1])
            texts = text_embeds[start:stop].reshape(-1, size, *text_embeds.shape[1:])
            found = match_within_group(_similarity("Gid,Gjkd->Gijk", images, texts))
            parts.append((found.correct.flatten(), found.tied.flatten()))
    if not parts:
        empty = torch.zeros(0, dtype=torch.bool)
        return Outcomes(empty, empty)
    return Outcomes(torch.cat([p[0] for p in parts]), torch.cat([p[1] for p in parts]))


def beat_negative(positive: Tensor, negative: Tensor) -> Outcomes:
    """The negatives test: right when the lowest positive is strictly above the negative.

    Args:
        positive: (n, k), each image against its own k captions.
        negative: (n,), each image against its own negative.

    Returns:
        (n,) outcomes.
    """
    if positive.dim() != 2 or negative.shape != positive.shape[:1]:
        raise ValueError(
            f"expected positives (n, k) and negatives (n,), got {tuple(positive.shape)} and {tuple(negative.shape)}"
        )
    lowest = positive.amin(-1)
    return Outcomes(correct=lowest > negative, tied=lowest == negative)


def beat_negative_embeds(image_embeds: Tensor, text_embeds: Tensor, negative_embeds: Tensor) -> Outcomes:
    """The negatives test on embeddings.

    Args:
        image_embeds: (n, d), normalised.
        text_embeds: (n, k, d), normalised, the k captions of each entry.
        negative_embeds: (n, d), normalised.

    Returns:
        (n,) outcomes.
    """
    positive = _similarity("nd,nkd->nk", image_embeds, text_embeds)
    return beat_negative(positive, _similarity("nd,nd->n", image_embeds, negative_embeds))


def _similarity(equation: str, image_embeds: Tensor, text_embeds: Tensor) -> Tensor:
    """Cosines in float32, the same for the same text wherever it stands.

    A matrix product adds in another order from column to column, so in float32 equal texts would differ in the last
    bit, and which of them wins would be left to the processor. Sums in float64 agree once they are rounded.
    """
    return torch.einsum(equation, image_embeds.double(), text_embeds.double()).float()
