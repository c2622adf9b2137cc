"""The functional core, against loops over single numbers."""

import numpy as np
import pytest
import torch

from dci_metrics import scoring


def match_in_groups(images, texts, group_size=8):
    """SCM of embeddings (n, d) and (n, k, d)."""
    n, k = texts.shape[:2]
    similarity = scoring.EmbeddingSimilarity(images, texts.flatten(0, 1))
    return scoring.match_in_groups(similarity, torch.arange(n), torch.arange(n * k).reshape(n, k), group_size)


def beat_negative_embeds(images, texts, negatives):
    """Neg of embeddings (n, d), (n, k, d) and (n, d)."""
    n, k = texts.shape[:2]
    similarity = scoring.EmbeddingSimilarity(images, torch.cat([texts.flatten(0, 1), negatives]))
    positive = similarity.pairs(torch.arange(n)[:, None], torch.arange(n * k).reshape(n, k))
    return scoring.beat_negative(positive, similarity.pairs(torch.arange(n), n * k + torch.arange(n)))


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
