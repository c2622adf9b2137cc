"""BLIP for retrieval: https://arxiv.org/abs/2201.12086."""

from typing import Any

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs, accepted


class BlipRetrievalEncoder(HuggingFaceEncoder):
    """BLIP as trained for retrieval, compared by its contrastive head.

    `AutoModel` would make a `BlipModel` of it, whose projections the checkpoint does not have.
    """

    architectures = ("BlipForImageTextRetrieval",)
    model_parts = ("vision_model", "vision_proj", "text_encoder", "text_proj")

    def image_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of images; gives (n, d)."""
        tower = self.model.vision_model
        embeds: torch.Tensor = self.model.vision_proj(_first(tower(**accepted(tower.forward, inputs))))
        return embeds

    def text_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of texts; gives (n, d)."""
        tower = self.model.text_encoder
        embeds: torch.Tensor = self.model.text_proj(_first(tower(**accepted(tower.forward, inputs))))
        return embeds


def _first(output: Any) -> torch.Tensor:
    states: torch.Tensor = output.last_hidden_state
    return states[:, 0]
