"""Dual encoders of transformers: one class for all, from which a family differs only where it must."""

from collections.abc import Sequence
from typing import Any, ClassVar

import PIL.Image
import torch

from dci import DCIError
from dci_metrics.encoders.base import ModelInfo, TextLength

FAMILIES: dict[str, type["HuggingFaceEncoder"]] = {}
"""The class of each `config.model_type`; filled by the family modules as they are imported."""


class HuggingFaceEncoder:
    """A transformers model with `get_image_features` and `get_text_features`, and its processor.

    A family is a subclass that names its `model_types`; everything else comes from the checkpoint's own config and
    processor. What a family does differently it overrides.

    Args:
        model: The loaded model.
        processor: Its processor, with `tokenizer` and `image_processor`.
        model_id: What the result calls the model.

    Raises:
        DCIError: If the model or the processor lacks a part, or the tokenizer is not the model's.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    padding: ClassVar[str] = "longest"
    """How the text tower was trained to be padded: "longest" where padding is masked, "max_length" where it is seen."""

    def __init_subclass__(cls) -> None:
        FAMILIES.update(dict.fromkeys(cls.model_types, cls))

    def __init__(self, model: Any, processor: Any, model_id: str) -> None:
        _check_parts(model, processor, model_id)
        self.model = model.eval()
        self.tokenizer = processor.tokenizer
        self.image_processor = processor.image_processor
        # Keeps transformers from warning of a long text; what is cut is counted and stands in the result.
        self.tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        self.info = ModelInfo(
            id=model_id,
            revision=getattr(model.config, "_commit_hash", None),
            family=model.config.model_type,
            parameters=sum(p.numel() for p in model.parameters()),
            text_limit=self.text_limit,
            image_size=self.image_size,
            image_backend="pil" if type(self.image_processor).__name__.endswith("Pil") else "torchvision",
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(model.device),
        )

    @property
    def text_limit(self) -> int:
        """Tokens that the text tower can read, special tokens counted."""
        config = self.model.config.get_text_config()
        return min(int(config.max_position_embeddings), int(self.tokenizer.model_max_length))

    @property
    def image_size(self) -> int:
        """Side in pixels of what the image tower sees."""
        return int(self.model.config.vision_config.image_size)

    def prepare_images(self, images: Sequence[PIL.Image.Image]) -> Sequence[torch.Tensor]:
        """Preprocess images as the checkpoint's processor says; gives (3, h, w) tensors."""
        pixels = self.image_processor(list(images), return_tensors="pt")["pixel_values"]
        return list(pixels)

    @torch.inference_mode()
    def encode_prepared(self, prepared: Sequence[torch.Tensor]) -> torch.Tensor:
        """Embed preprocessed images; gives (n, d), not normalised."""
        pixels = torch.stack(list(prepared)).to(self.model.device, self.model.dtype)
        embeds: torch.Tensor = self.model.get_image_features(pixel_values=pixels).pooler_output
        return embeds

    def encode_images(self, images: Sequence[PIL.Image.Image]) -> torch.Tensor:
        """Embed RGB images of any size; gives (n, d), not normalised."""
        return self.encode_prepared(self.prepare_images(images))

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts, cut to the model's limit with the end token kept; gives (n, d), not normalised."""
        tokens = self.tokenizer(
            list(texts), padding=self.padding, truncation=True, max_length=self.text_limit, return_tensors="pt"
        )
        inputs = {name: tokens[name].to(self.model.device) for name in ("input_ids", "attention_mask")}
        embeds: torch.Tensor = self.model.get_text_features(**inputs).pooler_output
        return embeds

    def text_lengths(self, texts: Sequence[str]) -> list[TextLength]:
        """Tokens of each text after cutting, and how many were cut off."""
        ids = self.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return [TextLength(min(len(i), self.text_limit), max(0, len(i) - self.text_limit)) for i in ids]


def _check_parts(model: Any, processor: Any, model_id: str) -> None:
    for owner, parts in (
        (model, ("get_image_features", "get_text_features")),
        (processor, ("tokenizer", "image_processor")),
    ):
        for part in parts:
            if not hasattr(owner, part):
                raise DCIError(
                    f"{model_id}: {type(owner).__name__} has no {part}; expected a whole model with both towers, and "
                    "its processor with tokenizer and image processor"
                )
    # transformers makes up an empty tokenizer where the files of one are missing, and goes on.
    if len(processor.tokenizer) <= len(set(processor.tokenizer.all_special_tokens)):
        raise DCIError(f"{model_id}: the tokenizer knows no words; its files may be missing beside the model's")
