"""CLIP: https://arxiv.org/abs/2103.00020, and Long-CLIP: https://arxiv.org/abs/2403.15378."""

from dci_metrics.encoders.huggingface import HuggingFaceEncoder

TOKENIZER_LIMIT = 77
"""Of OpenAI's CLIP, and of every tokenizer that was taken over from it."""


class CLIPEncoder(HuggingFaceEncoder):
    """CLIP as in transformers. Its text tower is causal and ends at the end token, so padding is never seen.

    A table of more than 77 positions is there because the model was trained with it, as Long-CLIP's 248. Where the
    tokenizer still says 77 then, it was only taken over.
    """

    model_types = ("clip",)

    @property
    def tokenizer_limit(self) -> int | None:
        """The limit that the tokenizer's files tell, unless it is another model's."""
        limit = super().tokenizer_limit
        return None if limit == TOKENIZER_LIMIT and (self.positions or 0) > TOKENIZER_LIMIT else limit
