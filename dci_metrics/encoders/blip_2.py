"""BLIP-2 for retrieval: https://arxiv.org/abs/2301.12597."""

from typing import Any

import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs, accepted
from dci_metrics.encoders.matching import HuggingFaceMatcher, last_states


class Blip2RetrievalEncoder(HuggingFaceEncoder):
    """BLIP-2 as trained for retrieval, compared by its contrastive head.

    An image is seen by several queries, each with an embedding of its own; the one nearest to a text counts. Texts are
    read by the Q-Former, not by a language model.
    """

    architectures = ("Blip2ForImageTextRetrieval",)
    model_parts = ("vision_model", "query_tokens", "qformer", "vision_projection", "embeddings", "text_projection")

    @property
    def text_config(self) -> Any:
        """The part of the model's config that tells of the text tower."""
        return self.model.config.qformer_config

    def image_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of images; gives (n, q, d), one embedding a query."""
        model = self.model
        patches = model.vision_model(**accepted(model.vision_model.forward, inputs)).last_hidden_state
        queries = model.query_tokens.expand(len(patches), -1, -1)
        seen = model.qformer(query_embeds=queries, encoder_hidden_states=patches).last_hidden_state
        embeds: torch.Tensor = model.vision_projection(seen.to(model.vision_projection.weight.dtype))
        return embeds

    def text_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of texts; gives (n, d)."""
        model = self.model
        words = model.embeddings(input_ids=inputs["input_ids"])
        read = model.qformer(query_embeds=words, query_length=0, attention_mask=inputs["attention_mask"])
        first = read.last_hidden_state[:, 0].to(model.text_projection.weight.dtype)
        embeds: torch.Tensor = model.text_projection(first)
        return embeds


class Blip2Matcher(HuggingFaceMatcher):
    """BLIP-2 as trained for retrieval, by its matching head: the mean over what it says of each query."""

    architectures = ("Blip2ForImageTextRetrieval",)
    model_parts = ("vision_model", "query_tokens", "qformer", "embeddings", "itm_head")
    text_config = Blip2RetrievalEncoder.text_config

    def image_states(self, inputs: Inputs) -> torch.Tensor:
        """What the queries attend to in a batch of images; gives (n, patches, d)."""
        tower = self.model.vision_model
        return last_states(tower(**accepted(tower.forward, inputs)))

    def match_logits(self, states: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """The head's logits of pairs; gives (n, 2)."""
        model = self.model
        queries = model.query_tokens.expand(len(states), -1, -1)
        count = queries.shape[1]
        words = inputs["attention_mask"]
        read = model.qformer(
            query_embeds=model.embeddings(input_ids=inputs["input_ids"], query_embeds=queries),
            query_length=count,
            attention_mask=torch.cat([words.new_ones(len(states), count), words], dim=1),
            encoder_hidden_states=states,
        )
        logits: torch.Tensor = model.itm_head(last_states(read)[:, :count].to(model.itm_head.weight.dtype))
        return logits.mean(dim=1)
