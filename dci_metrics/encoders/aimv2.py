"""AIMv2 with a text tower: https://arxiv.org/abs/2411.14402."""

from typing import Any

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder


class Aimv2Encoder(HuggingFaceEncoder):
    """AIMv2, whose text tower is causal.

    In transformers 5.24 it is so only in a batch with padding, or without SDPA: of texts of equal length no mask is
    made, as if attention were causal by itself, and then it is not. A text would score by what it is batched with.
    """

    model_types = ("aimv2",)

    def __init__(self, model: Any, processor: Any, model_id: str) -> None:
        super().__init__(model, processor, model_id)
        for module in model.text_model.modules():
            if hasattr(module, "is_causal"):
                module.is_causal = True

    def logits(self, cosines: torch.Tensor) -> torch.Tensor:
        """What the model was trained on: its temperature is bounded; gives the same shape."""
        scale = self.model.logit_scale.clamp(0.0, self.model.max_log_logit_scale)
        logits: torch.Tensor = cosines * scale.exp()
        return logits
