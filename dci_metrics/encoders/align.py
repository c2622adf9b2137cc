"""ALIGN: https://arxiv.org/abs/2102.05918."""

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder


class AlignEncoder(HuggingFaceEncoder):
    """ALIGN, whose temperature divides."""

    model_types = ("align",)

    def logits(self, cosines: torch.Tensor) -> torch.Tensor:
        """What the model was trained on; gives the same shape."""
        logits: torch.Tensor = cosines / self.model.temperature
        return logits
