"""The paper's losses (section 5 and appendix C.1), as pure functions of logits."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from dci import DCIError

Pooling = Literal["mean", "hardest", "max"]
"""How the N captions of an entry become one logit: "mean" (the published runs), "hardest" as the paper's appendix C.1.1
describes (the lowest for the own entry, the highest for all others), "max" (the highest everywhere). Asked for the
hardest, the original code takes the highest everywhere in the CLIP loss, and the hardest in the negatives loss."""


def clip_loss(logits_per_image: Tensor, pooling: Pooling = "mean") -> Tensor:
    """CLIP's contrastive loss: the mean of the cross-entropies of images over captions and of captions over images.

    Args:
        logits_per_image: (B, N·B), column i·N + n is caption n of entry i; row i is entry i's image.
        pooling: How the N captions of an entry become one.

    Returns:
        A scalar.

    Raises:
        DCIError: If the shape is not (B, N·B), or the pooling is unknown.
    """
    grouped = _grouped(logits_per_image)
    logits = grouped.mean(dim=2) if _known(pooling) == "mean" else grouped.amax(dim=2)
    if pooling == "hardest":
        own = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
        logits = torch.where(own, grouped.amin(dim=2), logits)
    target = torch.arange(len(logits), device=logits.device)
    return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2


def negatives_loss(positive_logits: Tensor, negative_logits: Tensor, pooling: Pooling = "mean") -> Tensor:
    """Binary cross-entropy that calls each image's own caption right and its own negative wrong.

    Args:
        positive_logits: (B, N·B), as `logits_per_image` of `clip_loss`.
        negative_logits: (B, M·B), likewise of the entries' negatives.
        pooling: How the captions, and the negatives, of an entry become one; "hardest" is the lowest caption against
            the highest negative.

    Returns:
        A scalar, the mean over both logits of all entries.

    Raises:
        DCIError: If a shape is not (B, N·B), the two have other numbers of rows, or the pooling is unknown.
    """
    positive, negative = _own(positive_logits), _own(negative_logits)
    if len(positive) != len(negative):
        raise DCIError(f"expected as many rows of negatives as of captions, got {len(negative)} and {len(positive)}")
    if _known(pooling) == "mean":
        pair = torch.stack([positive.mean(dim=1), negative.mean(dim=1)], dim=1)
    else:
        captions = positive.amin(dim=1) if pooling == "hardest" else positive.amax(dim=1)
        pair = torch.stack([captions, negative.amax(dim=1)], dim=1)
    target = torch.zeros_like(pair)
    target[:, 0] = 1
    return F.binary_cross_entropy_with_logits(pair, target)


def _grouped(logits: Tensor) -> Tensor:
    """(B, N·B) → (B, B, N)."""
    if logits.dim() != 2 or not logits.numel() or logits.shape[1] % logits.shape[0]:
        raise DCIError(f"expected logits of shape (B, N·B), got {tuple(logits.shape)}")
    return logits.reshape(len(logits), len(logits), -1)


def _own(logits: Tensor) -> Tensor:
    """The logits of each image with its own captions: (B, N·B) → (B, N)."""
    grouped = _grouped(logits)
    return grouped.diagonal(dim1=0, dim2=1).T


def _known(pooling: Pooling) -> Pooling:
    if pooling not in get_args(Pooling):
        raise DCIError(f"no pooling {pooling!r}: expected one of {', '.join(get_args(Pooling))}")
    return pooling
