"""Models with a head for image-text matching (ITM), which reads a text while it looks at the image."""

from collections.abc import Sequence
from typing import Any

import PIL.Image
import torch

from dci_metrics.encoders.huggingface import HuggingFaceModel, Inputs


class HuggingFaceMatcher(HuggingFaceModel):
    """A transformers model whose head tells a match (class 1) from none (class 0).

    The score is the log-odds of a match: what softmax makes of the two logits, but without rounding to 1, where scores
    would tie. A family is a subclass that names its `architectures` and overrides `image_states` and `match_logits`.
    """

    scorer = "matching"

    @torch.inference_mode()
    def look(self, image: PIL.Image.Image) -> torch.Tensor:
        """What the text side attends to in an image; gives (1, patches, d)."""
        return self.image_states(self.batched(self.prepare_images([image])))

    @torch.inference_mode()
    def score_seen(self, seen: torch.Tensor, texts: Sequence[str]) -> torch.Tensor:
        """Score texts against what `look` gave; gives (len(texts),) log-odds of a match."""
        logits = self.match_logits(seen.expand(len(texts), -1, -1), self.tokenised(texts)).float()
        return logits[:, 1] - logits[:, 0]

    def score(self, images: Sequence[PIL.Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Score every image against every text; gives (len(images), len(texts)) log-odds of a match."""
        return torch.stack([self.score_seen(self.look(image), texts) for image in images])

    # What a family does

    def image_states(self, inputs: Inputs) -> torch.Tensor:
        """What the text side attends to in a batch of images; gives (n, patches, d)."""
        raise NotImplementedError

    def match_logits(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """The head's logits of pairs: (n, patches, d) of images and a batch of n texts; gives (n, 2)."""
        raise NotImplementedError


def last_states(output: Any) -> torch.Tensor:
    """The last hidden states in what a tower gives."""
    states: torch.Tensor = output.last_hidden_state
    return states
