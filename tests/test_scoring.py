"""The functional core, against loops over single numbers."""

import math

import numpy as np
import pytest
import torch

from dci_metrics import scoring, similarity
from dci_metrics.similarity import EmbeddingSimilarity


def match_in_groups(images, texts, group_size=8):
    """SCM of embeddings (n, d) and (n, k, d)."""
    n, k = texts.shape[:2]
    cosines = EmbeddingSimilarity(images, texts.flatten(0, 1))
    return scoring.match_in_groups(cosines, torch.arange(n), torch.arange(n * k).reshape(n, k), group_size)


def beat_negative_embeds(images, texts, negatives):
    """Neg of embeddings (n, d), (n, k, d) and (n, d)."""
    n, k = texts.shape[:2]
    cosines = EmbeddingSimilarity(images, torch.cat([texts.flatten(0, 1), negatives]))
    positive = cosines.pairs(torch.arange(n)[:, None], torch.arange(n * k).reshape(n, k))
    return scoring.beat_negative(positive, cosines.pairs(torch.arange(n), n * k + torch.arange(n)))


def loops_match(similarity):
    """Right, and tied with the best rival, of each entry of one group; similarity is [image][entry][caption]."""
    right, tied = [], []
    for i, row in enumerate(similarity):
        scores = [min(captions) if j == i else max(captions) for j, captions in enumerate(row)]
        rivals = scores[:i] + scores[i + 1 :]
        best = scores[0]
        winner = 0
        for j, score in enumerate(scores):
            if score > best:
                best, winner = score, j
        right.append(winner == i)
        tied.append(bool(rivals) and max(rivals) == scores[i])
    return right, tied


def whole(shape, seed, top=3):
    """Small whole numbers, so that ties are many."""
    return torch.from_numpy(np.random.default_rng(seed).integers(0, top, shape)).float()


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("size", range(1, 18))
def test_matching_within_a_group(size, k):
    for seed in range(10):
        similarity = whole((size, size, k), seed, top=3 if k == 1 else 6)
        if seed >= 6:  # no ties
            similarity += torch.rand(similarity.shape, generator=torch.Generator().manual_seed(seed))
        if seed == 9:  # all right
            similarity += 100 * torch.eye(size)[:, :, None]
        found = scoring.match_within_group(similarity)
        assert (found.correct.tolist(), found.tied.tolist()) == loops_match(similarity.tolist())


@pytest.mark.parametrize("k", [1, 5])
@pytest.mark.parametrize("n", [*range(1, 18), 40, 83])
def test_matching_in_groups(n, k):
    for seed in range(3):
        # Few directions of whole numbers: products are exact, and equal texts are many.
        images, texts = whole((n, 4), seed) - 1, whole((n, k, 4), seed + 100) - 1
        found = match_in_groups(images, texts)
        right, tied = [], []
        for start in range(0, n, 8):
            group = range(start, min(start + 8, n))
            products = [[[float(images[i] @ texts[j, c]) for c in range(k)] for j in group] for i in group]
            some_right, some_tied = loops_match(products)
            right += some_right
            tied += some_tied
        assert (found.correct.tolist(), found.tied.tolist()) == (right, tied)


def test_other_group_sizes_and_no_entries():
    images, texts = whole((10, 3), 1), whole((10, 1, 3), 2)
    one = match_in_groups(images, texts, group_size=1)
    assert one.correct.all()
    assert not one.tied.any()
    all_at_once = match_in_groups(images, texts, group_size=100)
    within = scoring.match_within_group(torch.einsum("id,jkd->ijk", images, texts))
    assert torch.equal(all_at_once.correct, within.correct)
    none = match_in_groups(images[:0], texts[:0])
    assert none.correct.shape == none.tied.shape == (0,)
    none = beat_negative_embeds(images[:0], texts[:0], images[:0])
    assert none.correct.shape == none.tied.shape == (0,)


@pytest.mark.parametrize("k", [1, 5])
def test_negatives(k):
    for seed in range(5):
        positive, negative = whole((50, k), seed), whole((50,), seed + 100)
        found = scoring.beat_negative(positive, negative)
        assert found.correct.tolist() == [min(p) > n for p, n in zip(positive.tolist(), negative.tolist(), strict=True)]
        assert found.tied.tolist() == [min(p) == n for p, n in zip(positive.tolist(), negative.tolist(), strict=True)]
        images, texts, negatives = whole((50, 4), seed), whole((50, k, 4), seed + 1), whole((50, 4), seed + 2)
        found = beat_negative_embeds(images, texts, negatives)
        for i in range(50):
            own = min(float(images[i] @ texts[i, c]) for c in range(k))
            other = float(images[i] @ negatives[i])
            assert (bool(found.correct[i]), bool(found.tied[i])) == (own > other, own == other)


@pytest.mark.parametrize("dim", [1, 3, 5, 16, 64, 515, 768])
@pytest.mark.parametrize("k", [1, 5])
def test_the_same_embedding_has_the_same_score_wherever_it_stands(dim, k):
    generator = torch.Generator().manual_seed(dim)
    for n in (1, 3, 8, 13, 40, 77):
        images = torch.nn.functional.normalize(torch.randn(n, dim, generator=generator), dim=-1)
        text = torch.nn.functional.normalize(torch.randn(dim, generator=generator), dim=-1)
        texts = text.repeat(n, k, 1)
        matched = match_in_groups(images, texts)
        assert matched.correct.tolist() == [i % 8 == 0 for i in range(n)]
        assert matched.tied.tolist() == [not (i == n - 1 and n % 8 == 1) for i in range(n)]
        beaten = beat_negative_embeds(images, texts, text.repeat(n, 1))
        assert not beaten.correct.any()
        assert beaten.tied.all()


def test_half_precision_is_compared_in_float32():
    images = torch.tensor([[1.0, 2.0**-9]], dtype=torch.bfloat16)
    # In bfloat16 both products would be 1.
    positive = torch.tensor([[[1.0, 1.0]]], dtype=torch.bfloat16)
    negative = torch.tensor([[1.0, 0.0]], dtype=torch.bfloat16)
    assert beat_negative_embeds(images, positive, negative).correct.all()


def test_shapes_that_do_not_fit():
    for shape in ((2, 2), (2, 3, 1), (4,)):
        with pytest.raises(ValueError, match="expected similarities of shape"):
            scoring.match_within_group(torch.zeros(shape))
    with pytest.raises(ValueError, match="expected positives"):
        scoring.beat_negative(torch.zeros(3, 1), torch.zeros(4))
    with pytest.raises(ValueError, match="expected positives"):
        scoring.beat_negative(torch.zeros(3), torch.zeros(3))


# ----------------------------------------------------------------------------------------------------------------------
# Without an order
# ----------------------------------------------------------------------------------------------------------------------


class Table:
    """Scores that are given."""

    def __init__(self, scores):
        self.scores = scores
        self.largest = 0

    def pairs(self, images, texts):
        found = self.scores[images, texts]
        self.largest = max(self.largest, found.numel())
        return found

    def matrix(self, images, texts):
        return self.pairs(images[:, None], texts)


def loops_chance(scores, group_size, by_text):
    """How many of all groups with others each entry wins, and whether another one has its score."""
    n = len(scores)
    rates, tied = [], []
    for i in range(n):
        own = scores[i][i]
        others = [scores[j][i] if by_text else scores[i][j] for j in range(n) if j != i]
        drawn = min(group_size, n) - 1
        k = sum(other >= own for other in others)
        rates.append(math.comb(n - 1 - k, drawn) / math.comb(n - 1, drawn))
        tied.append(own in others)
    return rates, tied


@pytest.mark.parametrize("by_text", [False, True])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 16, 31])
def test_the_chance_of_a_match_in_random_groups(n, by_text):
    for seed in range(6):
        scores = whole((n, n), seed, top=4) if seed % 2 else whole((n, n), seed, top=1000)
        found = scoring.chance_of_match(Table(scores), torch.arange(n), torch.arange(n), 8, by_text)
        rates, tied = loops_chance(scores.tolist(), 8, by_text)
        np.testing.assert_allclose(found.rate.numpy(), rates, rtol=0, atol=1e-12)
        assert found.rate.dtype == torch.float64
        assert found.tied.tolist() == tied


@pytest.mark.parametrize("by_text", [False, True])
def test_the_chance_is_what_drawing_groups_comes_to(by_text):
    n, draws = 12, 20_000
    scores = whole((n, n), 3, top=5)
    found = scoring.chance_of_match(Table(scores), torch.arange(n), torch.arange(n), 4, by_text)
    rng = np.random.default_rng(0)
    table = scores.numpy().T if by_text else scores.numpy()
    for i in range(n):
        others = np.array([j for j in range(n) if j != i])
        groups = rng.permuted(np.tile(others, (draws, 1)), axis=1)[:, :3]
        drawn = (table[i, i] > table[i][groups].max(1)).mean()
        assert drawn == pytest.approx(float(found.rate[i]), abs=0.015)


def test_chances_of_a_scorer_that_says_the_same_of_all_or_is_always_right():
    index = torch.arange(20)
    for by_text in (False, True):
        same = scoring.chance_of_match(Table(torch.ones(20, 20)), index, index, 8, by_text)
        assert (same.rate == 0).all()
        assert same.tied.all()
        right = scoring.chance_of_match(Table(torch.eye(20)), index, index, 8, by_text)
        assert (right.rate == 1).all()
        assert not right.tied.any()
        lone = scoring.chance_of_match(Table(torch.ones(1, 1)), index[:1], index[:1], 8, by_text)
        assert lone.rate.tolist() == [1]
        assert not lone.tied.any()
        none = scoring.chance_of_match(Table(torch.ones(0, 0)), index[:0], index[:0], 8, by_text)
        assert none.rate.shape == none.tied.shape == (0,)


@pytest.mark.parametrize("by_text", [False, True])
def test_images_and_texts_are_looked_up_by_their_index(by_text):
    """Entries need not stand in the order of their images or texts, nor be all of them; texts may be shared."""
    scores = whole((30, 40), 1, top=50)
    rng = np.random.default_rng(1)
    images, texts = torch.tensor(rng.permutation(30)[:17]), torch.tensor(rng.integers(0, 40, 17))
    table = scores[images][:, texts]
    found = scoring.chance_of_match(Table(scores), images, texts, 8, by_text)
    rates, tied = loops_chance(table.tolist(), 8, by_text)
    np.testing.assert_allclose(found.rate.numpy(), rates, rtol=0, atol=1e-12)
    assert found.tied.tolist() == tied


def loops_photos(scores, photos, by_text):
    correct, tied = [], []
    for i in range(len(photos)):
        others = [j for j in range(len(photos)) if photos[j] == photos[i] and j != i]
        rivals = [scores[j][i] if by_text else scores[i][j] for j in others]
        correct.append(all(scores[i][i] > rival for rival in rivals))
        tied.append(bool(rivals) and max(rivals) == scores[i][i])
    return correct, tied


@pytest.mark.parametrize("by_text", [False, True])
def test_matching_within_photos(by_text):
    for seed in range(20):
        sizes = np.random.default_rng(seed).integers(1, 7, 9)
        photos = np.repeat(np.arange(9), sizes)
        n = len(photos)
        scores = whole((n, n), seed, top=3 if seed % 2 else 1000)
        index = torch.arange(n)
        found = scoring.match_within_photos(Table(scores), index, index, torch.tensor(photos), by_text)
        assert (found.correct.tolist(), found.tied.tolist()) == loops_photos(scores.tolist(), photos, by_text)
    none = scoring.match_within_photos(Table(torch.ones(0, 0)), index[:0], index[:0], index[:0], by_text)
    assert none.correct.shape == none.tied.shape == (0,)


@pytest.mark.parametrize("by_text", [False, True])
def test_memory_is_bounded(by_text, monkeypatch):
    n = 40
    scores = whole((n, n), 7, top=5)
    index = torch.arange(n)
    whole_at_once = scoring.chance_of_match(Table(scores), index, index, 8, by_text)
    for chunk in (1, 41, 100, 1 << 20):
        monkeypatch.setattr(scoring, "CHUNK", chunk)
        table = Table(scores)
        found = scoring.chance_of_match(table, index, index, 8, by_text)
        assert torch.equal(found.rate, whole_at_once.rate)
        assert torch.equal(found.tied, whole_at_once.tied)
        assert table.largest <= max(n, chunk)


def test_pairs_of_embeddings_are_the_same_in_chunks(monkeypatch):
    images, texts = torch.randn(9, 2, 5), torch.randn(11, 5)
    cosines = EmbeddingSimilarity(images, texts)
    i, t = torch.randint(9, (50,)), torch.randint(11, (50,))
    expected = cosines.pairs(i, t)
    for chunk in (1, 10, 37):
        monkeypatch.setattr(similarity, "CHUNK", chunk)
        assert torch.equal(cosines.pairs(i, t), expected)
    assert torch.equal(expected, cosines.matrix(i, t).diagonal())
    assert cosines.pairs(i[:0], t[:0]).shape == (0,)
