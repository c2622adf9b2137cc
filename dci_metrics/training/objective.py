"""The whole loss of a batch: a × CLIP loss + b × negatives loss (the paper's section 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from dci_metrics.training.losses import Pooling, clip_loss, negatives_loss
from dci_metrics.training.towers import Embeds

Logits = Callable[[Tensor, Tensor], Tensor]
"""Makes `logits_per_image` of image and text embeddings."""


class Losses(NamedTuple):
    """The loss of a batch, and its parts.

    Attributes:
        total: What is minimised.
        clip: CLIP loss, unweighted.
        negatives: Negatives loss, unweighted; None where it has no weight.
    """

    total: Tensor
    clip: Tensor
    negatives: Tensor | None

    def detached(self) -> "Losses":
        """The same, to be kept."""
        negatives = self.negatives.detach() if self.negatives is not None else None
        return Losses(self.total.detach(), self.clip.detach(), negatives)


@dataclass(frozen=True)
class Objective:
    """What is minimised.

    Attributes:
        captions: N: how many of an entry's texts are captions; the others are negatives.
        clip_weight: The paper's a.
        negatives_weight: The paper's b.
        pooling: How N captions become one logit.
    """

    captions: int = 1
    clip_weight: float = 1.0
    negatives_weight: float = 1.0
    pooling: Pooling = "mean"

    def __call__(self, embeds: Embeds, logits: Logits) -> Losses:
        """The loss of a whole batch, from all processes."""
        positive = logits(embeds.images, embeds.texts[:, : self.captions].flatten(0, 1))
        clip = clip_loss(positive, self.pooling)
        if self.negatives_weight == 0:
            return Losses(self.clip_weight * clip, clip, None)
        negative = logits(embeds.images, embeds.texts[:, self.captions :].flatten(0, 1))
        negatives = negatives_loss(positive, negative, self.pooling)
        return Losses(self.clip_weight * clip + self.negatives_weight * negatives, clip, negatives)
