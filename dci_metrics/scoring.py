"""The functional core of the benchmark: similarities in, right or wrong out. Tensors only, no I/O.

Everything follows the paper's section 4.1 and, where the paper is silent, the code that produced its tables: the
order of entries decides the groups, the last group may be short, the first of equal captions wins a matching, and
a negative must score strictly below its positive.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

CHUNK = 1 << 20
"""Numbers that one step may hold at once: bounds memory whatever the number of entries."""


class Similarity(Protocol):
    """Scores of images against texts, both named by their index."""

    def pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of pairs: index tensors of shapes that broadcast → scores of the broadcast shape."""
        ...

    def matrix(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of all against all: (a,), (b,) → (a, b)."""
        ...


@dataclass(frozen=True)
class Outcomes:
    """What became of each entry of one test.

    Attributes:
        correct: (n,) bool, whether the entry was right.
        tied: (n,) bool, whether its score was exactly equal to that of its best rival.
    """

    correct: Tensor
    tied: Tensor


@dataclass(frozen=True)
class Rates:
    """How likely each entry of one test is right, over what is left to chance.

    Attributes:
        rate: (n,) float64, from 0 to 1.
        tied: (n,) bool, whether another one has exactly its score.
    """

    rate: Tensor
    tied: Tensor


@dataclass(frozen=True)
class Rivals:
    """What each entry of one test was up against.

    Attributes:
        own: (n,) its own score: the lowest of its own captions.
        own_text: (n,) the index of that caption.
        best: (n,) the highest score of all that it is compared with; -inf where there is nothing.
        text: (n,) the index of the caption with that score.
        entry: (n,) the entry whose caption, or image, that is, by its place in the test; -1 where there is none.
    """

    own: Tensor
    own_text: Tensor
    best: Tensor
    text: Tensor
    entry: Tensor


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


def match_in_groups(
    similarity: Similarity, images: Tensor, texts: Tensor, group_size: int = 8, by_text: bool = False
) -> Outcomes:
    """Subcrop-Caption Matching over consecutive groups of entries; the last group may be smaller.

    Args:
        similarity: Of images and texts.
        images: (n,) the image of each entry.
        texts: (n, k) the k captions of each entry.
        group_size: Entries a group; the paper's is 8.
        by_text: Whether captions look for their image, instead of images for their caption; k is 1 then.

    Returns:
        (n,) outcomes.
    """
    n = len(images)
    full = n - n % group_size
    parts = []
    for start, stop, size in ((0, full, group_size), (full, n, n - full)):
        if start < stop:
            image = images[start:stop].reshape(-1, size)
            text = texts[start:stop].reshape(-1, size, texts.shape[-1])
            scores = similarity.pairs(image[:, :, None, None], text[:, None])
            parts.append(match_within_group(scores.transpose(1, 2) if by_text else scores))
    correct, tied = [part.correct.flatten() for part in parts], [part.tied.flatten() for part in parts]
    return Outcomes(_cat(correct, torch.bool), _cat(tied, torch.bool))


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


def chance_of_match(similarity: Similarity, images: Tensor, texts: Tensor, group_size: int, by_text: bool) -> Rates:
    """Subcrop-Caption Matching without an order: the exact expectation over all groups that could be drawn.

    With an entry stand `group_size` - 1 of the other N - 1, drawn at random. It is right when none of them scores as
    high, so with k such ones among the others its rate is C(N - 1 - k, g - 1) / C(N - 1, g - 1). A tie is no win.

    Args:
        similarity: Of images and texts.
        images: (n,) the image of each entry.
        texts: (n,) the caption of each entry.
        group_size: Entries a group, g; when there are fewer entries, all of them.
        by_text: Whether captions look for their image, instead of images for their caption.

    Returns:
        (n,) rates.
    """
    n = len(images)
    drawn = max(0, min(group_size, n) - 1)
    rates, tied = [], []
    for rows in torch.arange(n).split(max(1, CHUNK // max(1, n))):
        scores = similarity.matrix(images, texts[rows]).T if by_text else similarity.matrix(images[rows], texts)
        own = scores.gather(1, rows[:, None])
        rivals = (scores >= own).sum(1) - 1
        tied.append((scores == own).sum(1) > 1)
        below = torch.arange(drawn, dtype=torch.float64)
        rates.append(((n - 1 - rivals[:, None] - below).clamp(min=0) / (n - 1 - below)).prod(1))
    return Rates(_cat(rates, torch.float64), _cat(tied, torch.bool))


def match_within_photos(
    similarity: Similarity, images: Tensor, texts: Tensor, photos: Tensor, by_text: bool
) -> Outcomes:
    """Subcrop-Caption Matching inside each photo: every subcrop against all captions of its photo.

    A tie is no win: a model that scores all alike has found nothing.

    Args:
        similarity: Of images and texts.
        images: (n,) the image of each entry.
        texts: (n,) the caption of each entry.
        photos: (n,) the photo of each entry; entries of one photo stand together.
        by_text: Whether captions look for their image, instead of images for their caption.

    Returns:
        (n,) outcomes.
    """
    correct, tied = [], []
    _, sizes = torch.unique_consecutive(photos, return_counts=True)
    for members in torch.arange(len(photos)).split(sizes.tolist()) if len(photos) else ():
        scores = similarity.matrix(images[members], texts[members])
        scores = scores.T if by_text else scores
        own = scores.diagonal()
        best = scores.masked_fill(torch.eye(len(members), dtype=torch.bool), -torch.inf).amax(-1)
        correct.append(own > best)
        tied.append(own == best)
    return Outcomes(_cat(correct, torch.bool), _cat(tied, torch.bool))


def best_rivals(
    similarity: Similarity, images: Tensor, texts: Tensor, blocks: Iterable[Tensor], by_text: bool = False
) -> Rivals:
    """Find what scores highest against each entry among the others of its block, in bounded memory.

    Args:
        similarity: Of images and texts.
        images: (n,) the image of each entry.
        texts: (n, k) the k captions of each entry; k is 1 with `by_text`.
        blocks: Places of entries that are compared with one another: all entries, block by block, in order.
        by_text: Whether captions look for their image, instead of images for their caption.
    """
    found = []
    for block in blocks:
        size = len(block) * texts.shape[-1]
        for rows in block.split(max(1, CHUNK // max(1, size))):
            if by_text:
                scores = similarity.matrix(images[block], texts[rows, 0]).T[..., None]
            else:
                scores = similarity.matrix(images[rows], texts[block].flatten()).reshape(len(rows), len(block), -1)
            place = torch.searchsorted(block, rows)
            own, which = scores[torch.arange(len(rows)), place].min(-1)
            scores[torch.arange(len(rows)), place] = -torch.inf
            best, at = scores.flatten(1).max(-1)
            entry = torch.where(best > -torch.inf, block[at // texts.shape[-1]], -1)
            text = texts[block].flatten()[at]
            found.append((own, texts[rows, which], best, text, entry))
    if not found:
        none, nothing = torch.zeros(0), torch.zeros(0, dtype=torch.long)
        return Rivals(none, nothing, none, nothing, nothing)
    return Rivals(*(torch.cat(parts) for parts in zip(*found, strict=True)))


def _cat(parts: list[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat(parts) if parts else torch.zeros(0, dtype=dtype)
