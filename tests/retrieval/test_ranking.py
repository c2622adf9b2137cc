"""Ranks against a full sort of all scores, in whole numbers, where a float's last bit decides nothing."""

import math

import numpy as np
import pytest
import torch

from dci_metrics.retrieval import ranking
from dci_metrics.retrieval.ranking import rank
from dci_metrics.similarity import MultiVector


def brute_force(scores, own, ties):
    """(n, m) scores, sorted whole; by query the ranks of its own items, whether one is tied, its best rival."""
    found = []
    for row, mine in zip(scores, own, strict=True):
        mine = [j for j in mine if j >= 0]
        others = [j for j in range(len(row)) if j not in mine]
        # Of equal ones, others come first, or the lower index.
        before = {j: (j in mine if ties == "against" else j) for j in range(len(row))}
        order = sorted(range(len(row)), key=lambda j: (-row[j], before[j]))
        ranks = sorted(order.index(j) + 1 for j in mine)
        tied = any(row[j] == row[o] for j in mine for o in others)
        rival = max(others, key=lambda j: (row[j], -j), default=-1)
        found.append((ranks, tied, rival, max(row[j] for j in mine)))
    return found


def case(rng, n, m, d, most, vectors=(1, 1)):
    """Small whole numbers, so that ties are many; some items of the gallery are there twice."""
    queries = rng.integers(-2, 3, (n, vectors[0], d)).astype(np.float32)
    gallery = rng.integers(-2, 3, (m, vectors[1], d)).astype(np.float32)
    gallery[rng.integers(0, m, m // 3)] = gallery[rng.integers(0, m, m // 3)]
    own = np.full((n, most), -1)
    for row in own:
        count = rng.integers(1, most + 1)
        row[:count] = rng.choice(m, count, replace=False)
    scores = np.einsum("nad,mbd->nmab", queries, gallery).max(axis=(2, 3))
    squeezed = [torch.from_numpy(e[:, 0] if e.shape[1] == 1 else e) for e in (queries, gallery)]
    return *squeezed, torch.from_numpy(own), scores


@pytest.mark.parametrize("ties", ["against", "lower_index"])
@pytest.mark.parametrize("chunk", [1, 50, 7 * 23, 1 << 24])
@pytest.mark.parametrize(("most", "vectors"), [(1, (1, 1)), (4, (1, 1)), (2, (3, 1)), (2, (1, 3))])
def test_as_a_full_sort(ties, chunk, most, vectors, monkeypatch):
    monkeypatch.setattr(ranking, "BLOCK", 60)
    rng = np.random.default_rng(most)
    for n, m in ((31, 23), (5, 40), (17, 5)):
        queries, gallery, own, scores = case(rng, n, m, 4, most, vectors)
        found = rank(queries, gallery, own, ties=ties, chunk=chunk)
        expected = brute_force(scores, own.tolist(), ties)
        assert [[r for r in ranks if r] for ranks in found.ranks.tolist()] == [ranks for ranks, *_ in expected]
        assert found.tied.tolist() == [tied for _, tied, *_ in expected]
        assert found.tied.any()
        assert found.rival.tolist() == [rival for *_, rival, _ in expected]
        assert found.own_score.tolist() == [own_score for *_, own_score in expected]
        assert found.rival_score.tolist() == [
            row[r] if r >= 0 else -math.inf for row, (*_, r, _) in zip(scores, expected, strict=True)
        ]


@pytest.mark.parametrize("ties", ["against", "lower_index"])
@pytest.mark.parametrize("chunk", [1, 50, 1 << 24])
def test_items_with_several_vectors_each(ties, chunk, monkeypatch):
    """From one to five an item, some of them those of other items too."""
    monkeypatch.setattr(ranking, "BLOCK", 60)
    rng = np.random.default_rng(5)

    def items(n):
        vectors = rng.integers(-2, 3, (n, 4)).astype(np.float32)
        return vectors, [rng.integers(0, n, rng.integers(1, 6)).tolist() for _ in range(n)]

    def embeds(vectors, of):
        flat = [i for own in of for i in own]
        return MultiVector(torch.from_numpy(vectors), torch.tensor(flat), torch.tensor([len(own) for own in of]))

    (queries, of_queries), (gallery, of_gallery) = items(31), items(23)
    scores = [
        [max(int(queries[a] @ gallery[b]) for a in mine for b in theirs) for theirs in of_gallery]
        for mine in of_queries
    ]
    own = torch.from_numpy(rng.integers(0, 23, (31, 1)))
    found = rank(embeds(queries, of_queries), embeds(gallery, of_gallery), own, ties=ties, chunk=chunk)
    expected = brute_force(scores, own.tolist(), ties)
    assert found.ranks.tolist() == [ranks for ranks, *_ in expected]
    assert found.tied.tolist() == [tied for _, tied, *_ in expected]
    assert found.rival.tolist() == [rival for *_, rival, _ in expected]


def test_by_hand():
    """Own scores 3, 2; others 3, 2, 1: ties put the own ones at 2 and 4, or by index at 1 and 3."""
    gallery = torch.tensor([[3.0], [3.0], [2.0], [2.0], [1.0]])
    own = torch.tensor([[2, 0, -1]])
    assert rank(torch.ones(1, 1), gallery, own).ranks.tolist() == [[2, 4, 0]]
    assert rank(torch.ones(1, 1), gallery, own, ties="lower_index").ranks.tolist() == [[1, 3, 0]]


def test_equal_texts_are_equal_wherever_they_stand():
    """In float32 a matrix product of random numbers gives other last bits from column to column."""
    torch.manual_seed(0)
    queries = torch.nn.functional.normalize(torch.randn(203, 512))
    text = torch.nn.functional.normalize(torch.randn(1, 512))
    gallery = torch.cat([torch.nn.functional.normalize(torch.randn(40, 512)), text.expand(203, 512)])
    own = 40 + torch.arange(203)[:, None]
    found = rank(queries, gallery, own, chunk=1000)
    assert found.tied.all()
    ahead = (queries @ gallery[:40].T > queries @ text.T).sum(1)
    assert (found.ranks[:, 0] - ahead).tolist() == [203] * 203
    first = rank(queries, gallery, own, ties="lower_index")
    assert (first.ranks[:, 0] - ahead).tolist() == list(range(1, 204))


def test_texts_that_share_their_best_piece_are_tied():
    """The last bit of a product depends on its column, and a piece of many texts must be one column."""
    torch.manual_seed(0)
    queries = torch.nn.functional.normalize(torch.randn(50, 512))
    pieces = torch.nn.functional.normalize(torch.cat([queries.mean(0, keepdim=True), -torch.randn(102, 512).abs()]))
    index = torch.stack([torch.zeros(102, dtype=torch.long), torch.arange(1, 103)], 1).flatten()
    # A copy of the shared piece, as of another text that the model reads as the same.
    pieces = torch.cat([pieces, pieces[:1]])
    index[2 * 77] = 103
    gallery = MultiVector(pieces, index, torch.full((102,), 2))
    found = rank(queries, gallery, torch.arange(50)[:, None])
    by_hand = (queries.double() @ pieces.double().T).argmax(1)
    shared = [i for i, best in enumerate(by_hand.tolist()) if best in (0, 103)]
    assert len(shared) > 40
    assert found.tied[shared].all()
    assert (found.ranks[shared] == 102).all()


def test_a_gallery_without_others():
    found = rank(torch.ones(1, 2), torch.ones(2, 2), torch.tensor([[0, 1]]))
    assert found.ranks.tolist() == [[1, 2]]
    assert (found.rival.tolist(), found.rival_score.tolist(), found.tied.tolist()) == ([-1], [-math.inf], [False])


@pytest.mark.parametrize("own", [torch.zeros(2, 1), torch.full((3, 1), -1), torch.full((3, 1), 4), torch.zeros(3, 0)])
def test_own_items_that_cannot_be(own):
    with pytest.raises(ValueError, match="expected own items"):
        rank(torch.ones(3, 2), torch.ones(4, 2), own.long())


def test_embeddings_of_two_sizes():
    with pytest.raises(ValueError, match="one size"):
        rank(torch.ones(1, 2), torch.ones(1, 3), torch.zeros(1, 1).long())


def test_never_holds_all_scores(monkeypatch):
    """The largest product is a chunk's, whatever the number of queries."""
    sizes = []
    scores_of = ranking._scores

    def noted(*given):
        for start, scores in scores_of(*given):
            sizes.append(scores.size)
            yield start, scores

    monkeypatch.setattr(ranking, "_scores", noted)
    gallery = torch.randn(300, 8)
    rank(torch.randn(1000, 8), gallery, torch.arange(1000)[:, None] % 300, chunk=3000)
    assert max(sizes) <= 3000
    assert sum(sizes) == 1000 * 300
