"""Models: how one is found and loaded. A family of models is one file here; `load` knows it once the file is there."""

import importlib
import pkgutil
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModel, AutoProcessor

from dci import DCIError
from dci_metrics import sample
from dci_metrics.encoders.base import DualEncoder, ModelInfo
from dci_metrics.encoders.huggingface import FAMILIES, HuggingFaceEncoder

__all__ = ["DualEncoder", "HuggingFaceEncoder", "ModelInfo", "describe", "load"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(model: Any, *, processor: Any = None, device: str = "auto", dtype: str = "float32") -> DualEncoder:
    """The encoder of a model.

    Args:
        model: A Hub id, a folder, `sample:tiny-clip`, a loaded transformers model, or an object of the user's own
            with `encode_images` and `encode_texts`, which is given back as it is.
        processor: Of a loaded model; by default that of the checkpoint it came from.
        device: Such as "cpu", "cuda" or "cuda:1"; "auto" takes a GPU where there is one. Of a loaded model nothing
            is changed.
        dtype: "float32" (the paper's), "bfloat16" or "float16"; likewise.

    Raises:
        DCIError: If the model cannot be found or loaded, or is of no known family.
    """
    if isinstance(model, str | Path):
        return _from_pretrained(str(model), device, dtype)
    if isinstance(model, transformers.PreTrainedModel):
        checkpoint = model.config.name_or_path
        name = checkpoint or type(model).__name__
        family = _family(model.config, name)
        if processor is None and not checkpoint:
            raise DCIError(f"{name}: was not loaded from a checkpoint that has a processor; hand over `processor`")
        return family(model, processor or _processor(checkpoint), name)
    if isinstance(model, DualEncoder):
        return model
    raise DCIError(
        f"expected a model's Hub id or folder, a transformers model, or an object with encode_images and "
        f"encode_texts; got {type(model).__name__}"
    )


def describe(encoder: DualEncoder) -> ModelInfo:
    """What is known of an encoder: its own `info`, or the name of its class."""
    info = getattr(encoder, "info", None)
    return info if isinstance(info, ModelInfo) else ModelInfo(id=type(encoder).__name__)


def _from_pretrained(name: str, device: str, dtype: str) -> HuggingFaceEncoder:
    if dtype not in DTYPES:
        raise DCIError(f"no dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    path = str(sample.model_path(name)) if name.startswith("sample:") else name
    place = _device(device)
    config = _pretrained(AutoConfig, path, name)
    family = _family(config, name)
    # Without torchvision, transformers' own default; with it, the one that resizes as the paper's did.
    model, report = _pretrained(AutoModel, path, name, dtype=DTYPES[dtype], output_loading_info=True)
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills what is missing with random weights and goes on.
        raise DCIError(f"{name}: {len(missing)} weights are missing, such as {missing[0]}; the checkpoint is not whole")
    return family(model.to(place), _processor(path, name), name)


def _processor(path: str, name: str | None = None) -> Any:
    return _pretrained(AutoProcessor, path, name or path, backend="pil")


def _pretrained(kind: Any, path: str, name: str, **options: Any) -> Any:
    """`from_pretrained`, whose many kinds of failure become one line that names the model."""
    try:
        return kind.from_pretrained(path, **options)
    except Exception as error:
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        where = "is no folder here, and " if not Path(path).exists() else ""
        raise DCIError(
            f"{name}: {where}cannot be loaded as a model: {first} "
            "(expected a folder with config.json, weights and processor, or the id of such a model on the Hub)"
        ) from error


def _family(config: Any, name: str) -> type[HuggingFaceEncoder]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    if config.model_type not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise DCIError(
            f"{name}: models of type {config.model_type!r} are not known here (known: {known}); hand over an object "
            "with encode_images and encode_texts instead"
        )
    return FAMILIES[config.model_type]


def _device(device: str) -> torch.device:
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.zeros(1, device=device)
        found.item()
        return found.device
    # torch raises RuntimeError, AssertionError or NotImplementedError, by what is missing; "meta" computes nothing.
    except Exception as error:
        raise DCIError(f"no device {device!r} here: {str(error).splitlines()[0]}") from error
