"""SigLIP, https://arxiv.org/abs/2303.15343, and SigLIP 2, https://arxiv.org/abs/2502.14786, NaFlex included.

SigLIP 2 of fixed resolution is of the model type `siglip`, with a tokenizer of Gemma's kind.
"""

from collections.abc import Sequence

from dci_metrics.encoders.huggingface import HuggingFaceEncoder


class SiglipEncoder(HuggingFaceEncoder):
    """The text tower reads the embedding off the last position and sees the padding, so texts are padded in full."""

    model_types = ("siglip", "siglip2")
    padding = "max_length"

    def as_trained(self, texts: Sequence[str]) -> list[str]:
        """Lower-cased where the tokenizer's files ask for it: Gemma's tokenizer, which SigLIP 2 names, ignores them."""
        lower = self.tokenizer.init_kwargs.get("do_lower_case", False)
        return [text.lower() for text in texts] if lower else list(texts)
