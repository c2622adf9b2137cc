"""BLIP for retrieval: https://arxiv.org/abs/2201.12086."""

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs, accepted
from dci_metrics.encoders.matching import HuggingFaceMatcher, last_states


class BlipRetrievalEncoder(HuggingFaceEncoder):
    """BLIP as trained for retrieval, compared by its contrastive head.

    `AutoModel` would make a `BlipModel` of it, whose projections the checkpoint does not have.
    """

    architectures = ("BlipForImageTextRetrieval",)
    model_parts = ("vision_model", "vision_proj", "text_encoder", "text_proj")

    def image_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of images; gives (n, d)."""
        tower = self.model.vision_model
        embeds: torch.Tensor = self.model.vision_proj(last_states(tower(**accepted(tower.forward, inputs)))[:, 0])
        return embeds

    def text_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of texts; gives (n, d)."""
        tower = self.model.text_encoder
        embeds: torch.Tensor = self.model.text_proj(last_states(tower(**accepted(tower.forward, inputs)))[:, 0])
        return embeds


class BlipMatcher(HuggingFaceMatcher):
    """BLIP as trained for retrieval, by its matching head.

    As in transformers, and in the authors' own demonstration, texts begin with [CLS]; in training they began with
    [ENC], which the tokenizer of the published checkpoints does not have.
    """

    architectures = ("BlipForImageTextRetrieval",)
    model_parts = ("vision_model", "text_encoder", "itm_head")

    def image_states(self, inputs: Inputs) -> torch.Tensor:
        """What the text encoder attends to in a batch of images; gives (n, patches, d)."""
        tower = self.model.vision_model
        return last_states(tower(**accepted(tower.forward, inputs)))

    def match_logits(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """The head's logits of pairs; gives (n, 2)."""
        tower = self.model.text_encoder
        read = tower(**accepted(tower.forward, inputs), encoder_hidden_states=states)
        logits: torch.Tensor = self.model.itm_head(last_states(read)[:, 0])
        return logits
