"""FLAVA: https://arxiv.org/abs/2112.04482."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs, accepted
from dci_metrics.encoders.matching import HuggingFaceMatcher


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


class FlavaMatcher(HuggingFaceMatcher):
    """FLAVA as pretrained, by its matching head on what its multimodal encoder makes of both.

    In pretraining the head saw texts and images with parts hidden; here nothing is.
    """

    architectures = ("FlavaForPreTraining",)
    model_parts = ("flava", "itm_head")
    image_options = FlavaEncoder.image_options

    def image_states(self, inputs: Inputs) -> torch.Tensor:
        """What the multimodal encoder sees of a batch of images; gives (n, patches, d)."""
        flava = self.model.flava
        found = flava.image_model(**accepted(flava.image_model.forward, inputs), output_hidden_states=True)
        # Not the last states, which the tower normalises once more.
        states: torch.Tensor = flava.image_to_mm_projection(found.hidden_states[-1])
        return states

    def match_logits(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """The head's logits of pairs; gives (n, 2)."""
        flava = self.model.flava
        found = flava.text_model(**accepted(flava.text_model.forward, inputs), output_hidden_states=True)
        both = torch.cat([states, flava.text_to_mm_projection(found.hidden_states[-1])], dim=1)
        words = inputs["attention_mask"]
        seen = words.new_ones(len(both), states.shape[1] + flava.multimodal_model.use_cls_token)
        mask = torch.cat([seen, words], dim=1)
        logits: torch.Tensor = self.model.itm_head(flava.multimodal_model(both, attention_mask=mask).last_hidden_state)
        return logits
