"""Families that need nothing but their name: padding is masked, or behind the end token of a causal text tower."""

from dci_metrics.encoders.huggingface import HuggingFaceEncoder


class PlainEncoder(HuggingFaceEncoder):
    """A model whose `get_*_features` give what its own `forward` compares, from what its processor gives."""

    model_types = (
        "altclip",
        "blip",
        "chinese_clip",
        "clipseg",
        "groupvit",
        "metaclip_2",
        "vision-text-dual-encoder",
    )
