"""CLIP: https://arxiv.org/abs/2103.00020."""

from dci_metrics.encoders.huggingface import HuggingFaceEncoder


class CLIPEncoder(HuggingFaceEncoder):
    """CLIP as in transformers. Its text tower is causal and ends at the end token, so padding is never seen."""

    model_types = ("clip",)
