"""Models of transformers: one class for all dual encoders, from which a family differs only where it must.

Models that look at an image and a text together share its base: `matching.py`, `vqascore.py`.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import huggingface_hub
import PIL.Image
import torch
import transformers

from dci import DCIError
from dci_metrics.encoders.base import ModelInfo
from dci_metrics.encoders.resizing import DeviceResizing
from dci_metrics.encoders.texts import HuggingFaceTexts

FAMILIES: dict[tuple[str, str], type["HuggingFaceModel"]] = {}
"""The class by scorer and `config.model_type`, or architecture where that has a class of its own; filled by the family
modules as they are imported."""

Inputs = dict[str, torch.Tensor]
"""What a tower takes, by name: `pixel_values`, `input_ids`, `attention_mask`, ..."""


class HuggingFaceModel(HuggingFaceTexts):
    """A transformers model and its processor, with what scoring asks of any: how texts and images are prepared.

    A family is a subclass that names its `model_types`; everything else comes from the checkpoint's own config and
    processor. What a family does differently it overrides.

    Args:
        model: The loaded model.
        processor: Its processor, with `tokenizer` and `image_processor`.
        model_id: What the result calls the model.

    Raises:
        DCIError: If the model or the processor lacks a part, or the tokenizer is not the model's.

    Attributes:
        resizing: How images are resized on the model's device; None where the image processor does it before.
    """

    resizing: DeviceResizing | None = None
    scorer: ClassVar[str]
    """How it compares, as the user asks for it."""
    auto_class: ClassVar[Any] = transformers.AutoModel
    """What loads the model, unless it is one of the `architectures`."""
    question: ClassVar[str | None] = None
    model_types: ClassVar[tuple[str, ...]] = ()
    architectures: ClassVar[tuple[str, ...]] = ()
    """Classes of transformers that compare in another way than others of their model type; loaded as what they are."""
    model_parts: ClassVar[tuple[str, ...]] = ()
    """What the model must have."""
    image_options: ClassVar[Mapping[str, Any]] = {}
    """Arguments of the image processor."""

    def __init_subclass__(cls) -> None:
        FAMILIES.update(dict.fromkeys(((cls.scorer, key) for key in (*cls.model_types, *cls.architectures)), cls))

    def __init__(self, model: Any, processor: Any, model_id: str) -> None:
        _check_parts(model, self.model_parts, processor, model_id)
        super().__init__(model.eval(), processor)
        self.model_id = model_id
        self.image_processor = processor.image_processor
        self.info = ModelInfo(
            id=model_id,
            revision=getattr(model.config, "_commit_hash", None),
            family=model.config.model_type,
            parameters=sum(p.numel() for p in model.parameters()),
            text_limit=self.text_limit,
            image_size=self.image_size,
            image_backend=_backend(self.image_processor),
            dtype=str(model.dtype).removeprefix("torch."),
            device=str(model.device),
            scorer=self.scorer,
            question=self.question,
        )

    @property
    def image_size(self) -> int | None:
        """Side in pixels of the square that the image tower sees; None where it sees something else."""
        pixels = self.batched(self.prepare_images([PIL.Image.new("RGB", (64, 64))]))["pixel_values"][0]
        return int(pixels.shape[-1]) if pixels.dim() == 3 and pixels.shape[-1] == pixels.shape[-2] else None

    def prepare_images(self, images: Sequence[PIL.Image.Image]) -> Sequence[Inputs]:
        """Preprocess images as the checkpoint's processor says; gives the image tower's inputs for each.

        Where the model's device resizes, they are left as they are, and `batched` does the rest.
        """
        if self.resizing is not None:
            pinned = self.model.device.type == "cuda"
            return [{"pixel_values": self.resizing.pixels(image, pinned)} for image in images]
        # One by one: a processor that keeps each image's shape cannot give several as one tensor.
        found = (self.image_processor([image], return_tensors="pt", **self.image_options) for image in images)
        return [{name: values[0] for name, values in one.items()} for one in found]

    def batched(self, prepared: Sequence[Inputs]) -> Inputs:
        """Preprocessed images as one batch, where the model is.

        Raises:
            DCIError: If they differ in size.
        """
        if self.resizing is not None:
            pixels = self.resizing.prepared([item["pixel_values"] for item in prepared], self.model.device)
            return {"pixel_values": self._stacked(pixels)}
        return {name: self._stacked([item[name] for item in prepared]) for name in prepared[0]}

    def _stacked(self, values: Sequence[torch.Tensor]) -> torch.Tensor:
        shapes = sorted({tuple(value.shape) for value in values})
        if len(shapes) > 1:
            raise DCIError(
                f"{self.model_id}: its image processor gives images of different sizes, such as {shapes[0]} and "
                f"{shapes[1]}; expected one size (crop_size or size in its preprocessor_config.json)"
            )
        batch = torch.stack(list(values)).to(self.model.device)
        # Masks and shapes keep their type.
        return batch.to(self.model.dtype) if batch.is_floating_point() else batch


class HuggingFaceEncoder(HuggingFaceModel):
    """A dual encoder of transformers, with `get_image_features` and `get_text_features`."""

    scorer = "contrastive"
    model_parts: ClassVar[tuple[str, ...]] = ("get_image_features", "get_text_features")

    @torch.inference_mode()
    def encode_prepared(self, prepared: Sequence[Inputs]) -> torch.Tensor:
        """Embed preprocessed images; gives (n, d), not normalised.

        Raises:
            DCIError: If they differ in size.
        """
        return self.image_features(self.batched(prepared))

    def encode_images(self, images: Sequence[PIL.Image.Image]) -> torch.Tensor:
        """Embed RGB images of any size; gives (n, d), not normalised."""
        return self.encode_prepared(self.prepare_images(images))

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts, cut to the model's limit with the end token kept; gives (n, d), not normalised."""
        return self.text_features(self.tokenised(texts))

    # What a family may do differently

    def logits(self, cosines: torch.Tensor) -> torch.Tensor:
        """What the model was trained on: cosines, scaled by its temperature; gives the same shape.

        Raises:
            DCIError: If the model has no temperature.
        """
        scale = getattr(self.model, "logit_scale", None)
        if scale is None:
            raise DCIError(
                f"{self.model_id}: {type(self.model).__name__} has no `logit_scale`, so there is no contrastive loss "
                "to train it with; choose a model with one, such as CLIP or SigLIP"
            )
        bias = getattr(self.model, "logit_bias", None)
        logits: torch.Tensor = cosines * scale.exp() + (0 if bias is None else bias)
        return logits

    def image_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of images; gives (n, d)."""
        return pooled(self.model.get_image_features(**accepted(self.model.get_image_features, inputs)))

    def text_features(self, inputs: Inputs) -> torch.Tensor:
        """Embed a batch of texts; gives (n, d)."""
        return pooled(self.model.get_text_features(**accepted(self.model.get_text_features, inputs)))


@contextmanager
def quiet() -> Iterator[None]:
    """Keeps transformers from warning of what is looked at here, and from a bar for the seconds that weights take."""
    verbosity, shown = transformers.logging.get_verbosity(), transformers.logging.is_progress_bar_enabled()
    downloads_shown = not huggingface_hub.utils.are_progress_bars_disabled()  # type: ignore[attr-defined]  # it is exported lazily
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if downloads_shown:
        # They went with it, and downloads take long.
        huggingface_hub.utils.enable_progress_bars()  # type: ignore[attr-defined]
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)
        if shown:
            transformers.logging.enable_progress_bar()


def accepted(function: Callable[..., Any], inputs: Inputs) -> Inputs:
    """Those inputs that a function names, or all if it names none: tokenizers may give more than a tower takes."""
    named = inspect.signature(function).parameters
    return {name: value for name, value in inputs.items() if name in named} or inputs


def pooled(output: Any) -> torch.Tensor:
    """The embedding in what `get_*_features` gives: before transformers 5, and in models' own code, a plain tensor."""
    embeds: torch.Tensor = output if isinstance(output, torch.Tensor) else output.pooler_output
    return embeds


def _backend(image_processor: Any) -> str | None:
    """What resizes: transformers' own processors tell by their base class."""
    bases = {base.__name__ for base in type(image_processor).__mro__}
    return "pil" if "PilBackend" in bases else "torchvision" if "TorchvisionBackend" in bases else None


def _check_parts(model: Any, model_parts: Sequence[str], processor: Any, model_id: str) -> None:
    for owner, parts in ((model, model_parts), (processor, ("tokenizer", "image_processor"))):
        for part in parts:
            if not hasattr(owner, part):
                raise DCIError(
                    f"{model_id}: {type(owner).__name__} has no {part}; expected a whole model with both towers, and "
                    "its processor with tokenizer and image processor"
                )
    # transformers makes up an empty tokenizer where the files of one are missing, and goes on.
    if len(processor.tokenizer) <= len(set(processor.tokenizer.all_special_tokens)):
        raise DCIError(f"{model_id}: the tokenizer knows no words; its files may be missing beside the model's")
