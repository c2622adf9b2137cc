"""Ranks of each query's own items in a gallery: tensors in, tensors out, no I/O.

The scores of a few queries against the whole gallery are held at once, never those of all queries. What is equal to
the last bit among the gallery is multiplied once, so that equal items have equal scores wherever they stand: a matrix
product adds in another order from column to column, and an exact tie would be left to the processor.
"""

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from dci_metrics.similarity import MultiVector, runs, starts_of

CHUNK = 1 << 24
"""Scores that are held at once: bounds memory whatever the number of queries."""

BLOCK = 1 << 18
"""Scores that are looked at together; they are read several times, so they should fit into a processor's cache."""

Ties = Literal["against", "lower_index"]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True)
class Ranks:
    """What the gallery gives to each query.

    Attributes:
        ranks: (n, m) of the query's own items, from 1, ascending; 0 where it has fewer than m.
        tied: (n,) bool, whether another item has exactly the score of one of its own.
        own_score: (n,) of its best own item.
        rival: (n,) the best item that is not its own, the lowest index of equal ones; -1 where there is none.
        rival_score: (n,) its score; -inf where there is none.
    """

    ranks: Tensor
    tied: Tensor
    own_score: Tensor
    rival: Tensor
    rival_score: Tensor


def rank(
    queries: Tensor | MultiVector,
    gallery: Tensor | MultiVector,
    own: Tensor,
    *,
    ties: Ties = "against",
    chunk: int = CHUNK,
) -> Ranks:
    """Rank a gallery for each query, by cosine of unit vectors.

    An item's rank is 1 + the number of other queries' items ahead of it + the number of the query's own before it.

    Args:
        queries: On the CPU, (n, d), or with several vectors a query, of which the best one counts.
        gallery: (m, d), likewise.
        own: (n, k) int64, the query's own items by their index, at least one; -1 after the last.
        ties: "against" counts an item with the same score as ahead, "lower_index" only if its index is lower.
        chunk: Scores held at once.

    Raises:
        ValueError: If shapes do not fit, or a query has no item of its own.
    """
    if own.dim() != 2 or len(own) != len(queries) or (len(own) and (own.shape[1] == 0 or (own[:, 0] < 0).any())):
        raise ValueError(f"expected own items of shape ({len(queries)}, k), one at least, got {tuple(own.shape)}")
    asking, asked = _multi(queries), _multi(gallery)
    if len(asked) and asking.dim != asked.dim:
        raise ValueError(f"expected embeddings of one size, got {asking.dim} and {asked.dim}")
    if own.numel() and int(own.max()) >= len(asked):
        raise ValueError(f"expected own items below {len(asked)}, got {int(own.max())}")
    vectors, columns = _distinct(asked)
    size = max(1, chunk // max(1, len(asked.index)))
    rows = max(1, BLOCK // max(1, len(asked.index)))
    mine = own.numpy()

    def ranked(scores: Numbers, start: int) -> Ranks:
        # `take` copies in any case; what is not copied is changed, and then not looked at again.
        scores = scores if columns is None else scores.take(columns, axis=1)
        return _rank_block(asked.best(scores, axis=1), mine[start : start + len(scores)], ties)

    found: list[Ranks] = []
    # Threads of its own: torch's would all have to wait for the slowest at each step, which on a machine that is
    # shared takes longer than the steps. NumPy works outside of Python's lock.
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for first, scores in _scores(asking, vectors, size):
            starts = range(0, len(scores), rows)
            blocks = (scores[start : start + rows] for start in starts)
            found += pool.map(ranked, blocks, (first + start for start in starts))
    if not found:
        none = torch.zeros(0)
        return Ranks(torch.zeros(own.shape, dtype=torch.long), none.bool(), none, none.long(), none)
    return Ranks(*(torch.cat([getattr(part, name) for part in found]) for name in Ranks.__dataclass_fields__))


def own_items(owner: Tensor, queries: int) -> Tensor:
    """What each query owns, as `rank` takes it.

    Args:
        owner: (m,) the query that each item of the gallery belongs to, in ascending order.
        queries: How many there are.

    Returns:
        (queries, k) indices; -1 after the last.
    """
    counts = torch.bincount(owner, minlength=queries)
    items = torch.arange(len(owner))
    own = torch.full((queries, int(counts.max())), -1)
    own[owner, items - starts_of(counts)[owner]] = items
    return own


def _rank_block(scores: Numbers, own: Numbers, ties: Ties) -> Ranks:
    """Rank (c, m) scores, which are changed."""
    missing = own < 0
    own = np.where(missing, own[:, :1], own)
    every = np.arange(len(own))
    mine = np.take_along_axis(scores, own, axis=1)
    # Own items do not stand in each other's way.
    np.put_along_axis(scores, own, -np.inf, axis=1)
    rival = scores.argmax(axis=1)  # the first of equal ones
    rival_score = scores[every, rival]
    ahead = np.empty_like(own)
    tied = np.zeros(len(own), dtype=bool)
    beaten = np.empty(scores.shape, dtype=bool)
    for k in range(own.shape[1]):
        score = mine[:, k : k + 1]
        above = np.count_nonzero(np.greater(scores, score, out=beaten), axis=1)
        at_least = np.count_nonzero(np.greater_equal(scores, score, out=beaten), axis=1)
        tied |= at_least != above
        ahead[:, k] = at_least if ties == "against" else above
        if ties == "lower_index":
            for i in np.flatnonzero(at_least != above):
                ahead[i, k] += np.count_nonzero(scores[i, : own[i, k]] == score[i])
    last = scores.shape[1] + 1
    order = np.sort(np.where(missing, last, ahead), axis=1)
    ranks = np.where(order == last, 0, order + np.arange(1, own.shape[1] + 1))
    rival = np.where(np.isneginf(rival_score), -1, rival)
    parts = (ranks, tied, mine.max(axis=1), rival, rival_score)
    return Ranks(*(torch.from_numpy(np.ascontiguousarray(part)) for part in parts))


def _multi(embeds: Tensor | MultiVector) -> MultiVector:
    return embeds if isinstance(embeds, MultiVector) else MultiVector.of(embeds)


def _scores(queries: MultiVector, vectors: Tensor, size: int) -> Iterator[tuple[int, Numbers]]:
    """The scores of some queries' vectors at once against all vectors, each with the number of its first query."""
    for place in runs(queries.counts, size):
        some = queries.select(torch.arange(place.start, place.stop))
        yield place.start, some.best((some.vectors[some.index] @ vectors.T).numpy(), axis=0)


def _distinct(gallery: MultiVector) -> tuple[Tensor, Numbers | None]:
    """The vectors that a gallery has, each once, and which of them each place of its index is; None if all differ."""
    groups: dict[bytes, int] = {}
    known: dict[int, int] = {}
    firsts: list[int] = []
    # By a hash: the bytes themselves would take as much memory as the gallery.
    vectors = gallery.vectors.contiguous().numpy()
    for i in dict.fromkeys(gallery.index.tolist()):
        name = hashlib.blake2b(vectors[i].data, digest_size=16).digest()
        if name not in groups:
            groups[name] = len(firsts)
            firsts.append(i)
        known[i] = groups[name]
    # Not copied where all of them are meant, which they are but for texts that only other protocols have.
    is_whole = firsts == list(range(len(gallery.vectors)))
    distinct = gallery.vectors if is_whole else gallery.vectors[torch.tensor(firsts, dtype=torch.long)]
    if len(firsts) == len(gallery.index):
        return distinct, None
    return distinct, np.array([known[i] for i in gallery.index.tolist()])
