"""A dual encoder as a module to train: its two towers in one forward, which distributed training needs."""

import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from dci import DCIError
from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs
from dci_metrics.training.config import Lora

SCALES = ("logit_scale", "logit_bias", "temperature")
"""What models call the parameters that make logits of cosines."""


class Embeds(NamedTuple):
    """What the towers give of a batch; unit vectors in float32.

    Attributes:
        images: (B, d), or (B, q, d) of a model that sees several vectors in an image.
        texts: (B, K, d): the captions of each entry, then its negatives.
    """

    images: Tensor
    texts: Tensor


class TwoTowers(nn.Module):
    """The towers of a dual encoder.

    Args:
        encoder: As `dci_metrics.encoders.load` gives it, in float32.

    Raises:
        DCIError: If the model has no temperature, without which there is no contrastive loss.
    """

    def __init__(self, encoder: HuggingFaceEncoder) -> None:
        super().__init__()
        self.encoder = encoder
        self.model: nn.Module = encoder.model
        encoder.logits(torch.zeros(1, device=encoder.model.device))

    def train(self, mode: bool = True) -> "TwoTowers":
        """Switch to training, but for batch normalisation, which keeps the statistics that it has.

        Those of a batch would make the loss depend on how it is split up, and an adapter does not save them.
        """
        super().train(mode)
        for module in self.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def forward(self, images: Inputs, texts: Inputs) -> Embeds:
        """Embed a batch of B images and of K texts for each, (B·K, tokens) in the order of the images."""
        seen = self.encoder.image_features(images)
        # Distributed training counts what the output depends on; the scale comes in only when all are gathered.
        anchor = sum((parameter.sum() for parameter in self.scales()), torch.zeros((), device=seen.device)) * 0
        read = self.encoder.text_features(texts)
        image_embeds = nn.functional.normalize(seen.float(), dim=-1) + anchor
        text_embeds = nn.functional.normalize(read.float(), dim=-1)
        return Embeds(image_embeds, text_embeds.reshape(len(seen), -1, text_embeds.shape[-1]))

    def logits(self, images: Tensor, texts: Tensor) -> Tensor:
        """`logits_per_image` of (B, d) or (B, q, d) images and (T, d) texts; gives (B, T)."""
        # In float32 whatever the towers compute in: times a scale of 100 a cosine in bfloat16 is off by up to 0.2.
        with torch.autocast(images.device.type, enabled=False):
            cosines = images @ texts.T
            # Of several vectors the nearest counts, as in scoring.
            return self.encoder.logits(cosines.amax(dim=1) if cosines.dim() == 3 else cosines)

    def scales(self) -> list[nn.Parameter]:
        """The trained parameters that make logits of cosines."""
        found = (getattr(self.encoder.model, name, None) for name in SCALES)
        return [scale for scale in found if isinstance(scale, nn.Parameter) and scale.requires_grad]


def add_lora(encoder: HuggingFaceEncoder, lora: Lora) -> Any:
    """Put a LoRA adapter into an encoder's model, in place.

    Args:
        encoder: Its model's own weights are frozen.
        lora: The adapter.

    Returns:
        PEFT's model around it, which saves the adapter.

    Raises:
        DCIError: If PEFT is not installed, or a target module is not in the model.
    """
    try:
        from peft import LoraConfig, get_peft_model
    except ImportError as error:
        raise DCIError("training needs PEFT: pip install 'dci-metrics[train]'") from error
    layers = [name for name, module in encoder.model.named_modules() if isinstance(module, nn.Linear | nn.Embedding)]
    missing = [t for t in lora.target_modules if not any(_is_named(name, t) for name in layers)]
    if missing:
        raise DCIError(
            f"{encoder.model_id}: has no layer {', '.join(missing)} for the LoRA adapter (`target_modules`); choose "
            f"among those it has with --target-modules: {', '.join(_last_parts(layers))}"
        )
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        bias=lora.bias,
        target_modules=list(lora.target_modules),
    )
    with warnings.catch_warnings():
        # PEFT asks transformers for what it has renamed, and warns of the bias, which the paper's adapters have too.
        warnings.simplefilter("ignore")
        adapted = get_peft_model(encoder.model, config)
    # As the user called it, and not by a folder of this machine.
    adapted.active_peft_config.base_model_name_or_path = encoder.model_id
    return adapted


def _is_named(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")


def _last_parts(names: Sequence[str]) -> list[str]:
    """The last part of each name, once, without numbers."""
    return [part for part in dict.fromkeys(name.rpartition(".")[2] for name in names) if not part.isdigit()]
