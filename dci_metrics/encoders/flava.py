"""FLAVA: https://arxiv.org/abs/2112.04482."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs


class FlavaEncoder(HuggingFaceEncoder):
    """FLAVA as its contrastive head compares images and texts: by their first token, projected."""

    model_types = ("flava",)
    # Training hides patches at random.
    image_options: ClassVar[Mapping[str, Any]] = {"return_image_mask": False, "return_codebook_pixels": False}

    def image_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of images; gives (n, d)."""
        return super().image_features(inputs)[:, 0]

    def text_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of texts; gives (n, d)."""
        return super().text_features(inputs)[:, 0]
