"""Models: how one is found and loaded. A family of models is one file here; `load` knows it once the file is there."""

import importlib
import pkgutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoModel, AutoProcessor, AutoTokenizer

from dci import DCIError
from dci_metrics import sample
from dci_metrics.encoders.base import DualEncoder, ModelInfo, PairScorer
from dci_metrics.encoders.huggingface import FAMILIES, HuggingFaceEncoder

__all__ = ["DualEncoder", "HuggingFaceEncoder", "ModelInfo", "PairScorer", "describe", "load"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    model: Any,
    *,
    processor: Any = None,
    device: str = "auto",
    dtype: str = "float32",
    trust_remote_code: bool = False,
) -> DualEncoder | PairScorer:
    """The encoder of a model.

    Args:
        model: A Hub id, a folder, `sample:tiny-clip`, a loaded transformers model, or an object of the user's own
            with `encode_images` and `encode_texts`, or with `score`, which is given back as it is.
        processor: Of a loaded model; by default that of the checkpoint it came from.
        device: Such as "cpu", "cuda" or "cuda:1"; "auto" takes a GPU where there is one. Of a loaded model nothing
            is changed.
        dtype: "float32" (the paper's), "bfloat16" or "float16"; likewise.
        trust_remote_code: Whether to run code that the model brings along, from the Hub or in its folder.

    Raises:
        DCIError: If the model cannot be found or loaded, or is of no known family.
    """
    if isinstance(model, str | Path):
        return _from_pretrained(str(model), device, dtype, trust_remote_code)
    if isinstance(model, transformers.PreTrainedModel):
        checkpoint = model.config.name_or_path
        name = checkpoint or type(model).__name__
        family = _family(model.config, [type(model).__name__], name)
        if processor is None and not checkpoint:
            raise DCIError(f"{name}: was not loaded from a checkpoint that has a processor; hand over `processor`")
        return family(model, processor or _processor(checkpoint, checkpoint, trust_remote_code), name)
    if isinstance(model, DualEncoder | PairScorer):
        return model
    raise DCIError(
        f"expected a model's Hub id or folder, a transformers model, or an object with encode_images and "
        f"encode_texts, or with score; got {type(model).__name__}"
    )


def describe(encoder: DualEncoder | PairScorer) -> ModelInfo:
    """What is known of an encoder: its own `info`, or the name of its class."""
    info = getattr(encoder, "info", None)
    return info if isinstance(info, ModelInfo) else ModelInfo(id=type(encoder).__name__)


def _from_pretrained(name: str, device: str, dtype: str, trust: bool) -> HuggingFaceEncoder:
    if dtype not in DTYPES:
        raise DCIError(f"no dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    path = str(sample.model_path(name)) if name.startswith("sample:") else name
    place = _device(device)
    config = _pretrained(AutoConfig, path, name, trust)
    made_for = config.architectures or []
    family = _family(config, made_for, name)
    own = next((getattr(transformers, kind) for kind in made_for if kind in family.architectures), AutoModel)
    with _quiet():
        model, report = _pretrained(own, path, name, trust, dtype=DTYPES[dtype], output_loading_info=True)
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills what is missing with random weights and goes on.
        raise DCIError(
            f"{name}: {len(missing)} weights are missing, such as {missing[0]}; the checkpoint is not whole, or was "
            f"made for something else than comparing images with texts (it says: {', '.join(made_for) or 'nothing'})"
        )
    return family(model.to(place), _processor(path, name, trust), name)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps transformers from listing the weights of other heads; those that are missing are looked at here."""
    verbosity = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.logging.set_verbosity(verbosity)


def _processor(path: str, name: str, trust: bool) -> Any:
    # With torchvision, transformers would resize by it, which differs slightly from the paper's PIL.
    found = _pretrained(AutoProcessor, path, name, trust, backend="pil")
    if hasattr(found, "tokenizer") and hasattr(found, "image_processor"):
        return found
    # No class of processor is known for this model; its parts lie beside each other.
    return SimpleNamespace(
        tokenizer=_pretrained(AutoTokenizer, path, name, trust),
        image_processor=_pretrained(AutoImageProcessor, path, name, trust, backend="pil"),
    )


def _pretrained(kind: Any, path: str, name: str, trust: bool, **options: Any) -> Any:
    """`from_pretrained`, whose many kinds of failure become one line that names the model."""
    try:
        return kind.from_pretrained(path, trust_remote_code=trust, **options)
    except Exception as error:
        if "trust_remote_code" in str(error) and not trust:
            raise DCIError(
                f"{name}: brings code of its own, which is not run unasked; read it, and if you trust it, ask with "
                "--trust-remote-code (in Python trust_remote_code=True)"
            ) from error
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        if isinstance(error, ImportError):
            # Such as sentencepiece, of which transformers tells in several sentences.
            raise DCIError(f"{name}: {first.split('. ')[0]}; install it, and load the model again") from error
        where = "is no folder here, and " if not Path(path).exists() else ""
        raise DCIError(
            f"{name}: {where}cannot be loaded as a model: {first} "
            "(expected a folder with config.json, weights and processor, or the id of such a model on the Hub)"
        ) from error


def _family(config: Any, architectures: Iterable[str], name: str) -> type[HuggingFaceEncoder]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    for key in (*architectures, config.model_type):
        if key in FAMILIES:
            return FAMILIES[key]
    if not type(config).__module__.startswith("transformers."):
        # A model with code of its own: if it has what the general class asks for, that is all there is to know of it.
        return HuggingFaceEncoder
    known = ", ".join(sorted(FAMILIES))
    raise DCIError(
        f"{name}: models of type {config.model_type!r} are not known here (known: {known}); hand over an object "
        "with encode_images and encode_texts instead"
    )


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
