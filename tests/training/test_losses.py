"""The losses against numpy written from their definitions, and their gradients against finite differences."""

import numpy as np
import pytest
import torch

from dci import DCIError
from dci_metrics.training.losses import clip_loss, negatives_loss

POOLINGS = ("mean", "hardest", "max")
SHAPES = [(1, 1), (2, 1), (5, 1), (4, 5), (7, 2), (1, 3)]


def pooled(logits, i, j, pooling):
    """The logit of image i with entry j, one number at a time."""
    b, width = logits.shape
    n = width // b
    found = [logits[i, j * n + k] for k in range(n)]
    if pooling == "mean":
        return sum(found) / n
    return min(found) if pooling == "hardest" and i == j else max(found)


def brute_clip_loss(logits, pooling):
    b = len(logits)
    table = [[pooled(logits, i, j, pooling) for j in range(b)] for i in range(b)]
    of_images = [np.log(sum(np.exp(table[i][j]) for j in range(b))) - table[i][i] for i in range(b)]
    of_captions = [np.log(sum(np.exp(table[i][j]) for i in range(b))) - table[j][j] for j in range(b)]
    return (sum(of_images) / b + sum(of_captions) / b) / 2


def brute_negatives_loss(positive, negative, pooling):
    b = len(positive)
    total = 0.0
    for i in range(b):
        right = pooled(positive, i, i, pooling)
        n = negative.shape[1] // b
        own = [negative[i, i * n + k] for k in range(n)]
        wrong = sum(own) / n if pooling == "mean" else max(own)
        total += -np.log(1 / (1 + np.exp(-right))) - np.log(1 - 1 / (1 + np.exp(-wrong)))
    return total / (2 * b)


@pytest.fixture(params=SHAPES, ids=str)
def logits(request):
    b, n = request.param
    rng = np.random.default_rng(b * 10 + n)
    return rng.normal(scale=3, size=(b, n * b)), rng.normal(scale=3, size=(b, b))


@pytest.mark.parametrize("pooling", POOLINGS)
def test_clip_loss(logits, pooling):
    found = clip_loss(torch.from_numpy(logits[0]), pooling)
    np.testing.assert_allclose(found, brute_clip_loss(logits[0], pooling), atol=1e-9)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_negatives_loss(logits, pooling):
    positive, negative = logits
    found = negatives_loss(torch.from_numpy(positive), torch.from_numpy(negative), pooling)
    np.testing.assert_allclose(found, brute_negatives_loss(positive, negative, pooling), atol=1e-9)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_several_negatives(pooling):
    rng = np.random.default_rng(0)
    positive, negative = rng.normal(size=(3, 6)), rng.normal(size=(3, 9))
    found = negatives_loss(torch.from_numpy(positive), torch.from_numpy(negative), pooling)
    np.testing.assert_allclose(found, brute_negatives_loss(positive, negative, pooling), atol=1e-9)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_gradients_are_those_of_finite_differences(logits, pooling):
    positive, negative = (torch.from_numpy(part).requires_grad_() for part in logits)
    assert torch.autograd.gradcheck(lambda x: clip_loss(x, pooling), positive)
    assert torch.autograd.gradcheck(lambda x, y: negatives_loss(x, y, pooling), (positive, negative))


def test_values_by_hand():
    # Two entries, sure of their own captions by 2: log(1 + e^-2).
    assert clip_loss(torch.tensor([[2.0, 0.0], [0.0, 2.0]])).item() == pytest.approx(0.126928, abs=1e-6)
    # Own captions 1 and 3, the other's 0 and 2: mean 2 against 1; hardest 1 against 2; max 3 against 2.
    rows = torch.tensor([[1.0, 3.0, 0.0, 2.0], [0.0, 2.0, 1.0, 3.0]])
    sure, unsure = 0.313262, 1.313262  # log(1 + e^-1), log(1 + e^1)
    assert [clip_loss(rows, p).item() for p in POOLINGS] == pytest.approx([sure, unsure, sure], abs=1e-6)
    # A caption's logit 0 and a negative's 0: log 2.
    assert negatives_loss(torch.zeros(1, 1), torch.zeros(1, 1)).item() == pytest.approx(0.693147, abs=1e-6)


def test_other_shapes_are_refused():
    for wrong in (torch.zeros(2, 3), torch.zeros(4), torch.zeros(3, 2), torch.zeros(0, 0), torch.zeros(1, 1, 1)):
        with pytest.raises(DCIError, match=r"expected logits of shape \(B, N·B\), got"):
            clip_loss(wrong)
        with pytest.raises(DCIError, match=r"expected logits of shape \(B, N·B\), got"):
            negatives_loss(torch.zeros(1, 1), wrong)
    with pytest.raises(DCIError, match="as many rows of negatives as of captions, got 3 and 2"):
        negatives_loss(torch.zeros(2, 2), torch.zeros(3, 3))
    with pytest.raises(DCIError, match="no pooling 'min': expected one of mean, hardest, max"):
        clip_loss(torch.zeros(2, 2), "min")
    with pytest.raises(DCIError, match="no pooling 'min'"):
        negatives_loss(torch.zeros(2, 2), torch.zeros(2, 2), "min")
