"""Models: how one is found and loaded. A family of models is one file here; `load` knows it once the file is there."""

import copy
import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import torch
import transformers
from transformers import AutoConfig, AutoImageProcessor, AutoProcessor, AutoTokenizer

from dci import DCIError
from dci_metrics import sample
from dci_metrics.encoders import adapters, open_clip, resizing, stretching, videoless
from dci_metrics.encoders.base import DualEncoder, ModelInfo, PairScorer
from dci_metrics.encoders.compiled import compile_blocks
from dci_metrics.encoders.huggingface import FAMILIES, HuggingFaceEncoder, HuggingFaceModel, quiet

__all__ = ["DualEncoder", "HuggingFaceEncoder", "ModelInfo", "PairScorer", "describe", "load"]

SCORERS = ("auto", "contrastive", "matching", "vqascore")
"""How an image is compared with a text; "auto" is contrastive where the model can, or else VQAScore."""

RESIZES = ("pil", "device")
"""What resizes images: PIL as in the paper, or torch on the model's device (`resizing.py`)."""

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load(
    model: Any,
    *,
    processor: Any = None,
    adapter: str | Path | None = None,
    scorer: str = "auto",
    device: str = "auto",
    dtype: str = "float32",
    resize: str = "pil",
    trust_remote_code: bool = False,
    compile: bool = False,
    max_tokens: int | None = None,
    stretch: str | None = None,
) -> DualEncoder | PairScorer:
    """The encoder of a model.

    Args:
        model: A Hub id, a folder, `sample:tiny-clip`, one of open_clip (`open_clip:ViT-B-32/laion2b_s34b_b79k`; see
            `open_clip.py` for the other forms), a loaded transformers model, or an object of the user's own with
            `encode_images` and `encode_texts`, or with `score`, which is given back as it is.
        processor: Of a loaded model; by default that of the checkpoint it came from.
        adapter: A PEFT adapter to lay over a transformers model: a folder or a Hub id. It is merged into the weights;
            of a loaded model, into a copy.
        scorer: Of a transformers model: "contrastive" compares embeddings, "matching" asks the model's head for
            image-text matching, "vqascore" asks a generative model and takes how likely its "Yes" is; "auto" is
            contrastive where the model can, or else VQAScore.
        device: Such as "cpu", "cuda" or "cuda:1"; "auto" takes a GPU where there is one. Of a loaded model nothing
            is changed.
        dtype: "float32" (the paper's), "bfloat16" or "float16"; likewise.
        resize: Of a transformers model: "pil" (the paper's) resizes images on the CPU, "device" where the model is.
        trust_remote_code: Whether to run code that the model brings along, from the Hub or in its folder.
        compile: Whether the blocks of a model given by name are compiled (`torch.compile`).
        max_tokens: Tokens to read of a text, special tokens counted; None for the model's own limit.
        stretch: How its position embeddings are stretched where `max_tokens` is more than it has: "interpolate" all, or
            "keep-first-20" and interpolate the others, as Long-CLIP does; of a loaded model, in a copy.

    Raises:
        DCIError: If the model cannot be found or loaded, or is of no known family, or the adapter is not one for it, or
            it cannot read as many tokens.
    """
    if scorer not in SCORERS:
        raise DCIError(f"no scorer {scorer!r}: expected one of {', '.join(SCORERS)}")
    if resize not in RESIZES:
        raise DCIError(f"no resize {resize!r}: expected one of {', '.join(RESIZES)}")
    stretching.check(max_tokens, stretch)
    adapter = None if adapter is None else str(adapter)
    if isinstance(model, str | Path):
        named = _from_name(str(model), adapter, scorer, device, dtype, resize, trust_remote_code)
        named = stretching.limit(named, str(model), max_tokens, stretch, is_own=False)
        return compile_blocks(named, str(model)) if compile else named
    given = _given(model, processor, adapter, scorer, resize, trust_remote_code)
    return stretching.limit(given, describe(given).id, max_tokens, stretch, is_own=True)


def describe(encoder: DualEncoder | PairScorer) -> ModelInfo:
    """What is known of an encoder: its own `info`, or the name of its class."""
    info = getattr(encoder, "info", None)
    return info if isinstance(info, ModelInfo) else ModelInfo(id=type(encoder).__name__)


def _given(
    model: Any, processor: Any, adapter: str | None, scorer: str, resize: str, trust_remote_code: bool
) -> DualEncoder | PairScorer:
    """Of a loaded model, or an object of the user's own."""
    if isinstance(model, transformers.PreTrainedModel):
        checkpoint = model.config.name_or_path
        name = checkpoint or type(model).__name__
        family = _family(model.config, [type(model).__name__], name, scorer)
        if processor is None and not checkpoint:
            raise DCIError(f"{name}: was not loaded from a checkpoint that has a processor; hand over `processor`")
        processor = processor or _processor(checkpoint, checkpoint, trust_remote_code)
        resizer = _resizing(resize, family, processor, name, model.device)
        if adapter is None:
            return _made(family, model, processor, name, resizer)
        merged = adapters.merge(copy.deepcopy(model), adapter)
        return _made(family, merged.model, processor, name, resizer, adapter, merged)
    if adapter is not None:
        _refuse_adapter(adapter, f"an object of type {type(model).__name__}")
    if resize != "pil":
        _refuse_resize(f"an object of type {type(model).__name__}", "prepares its images itself")
    if isinstance(model, DualEncoder | PairScorer):
        return model
    raise DCIError(
        f"expected a model's Hub id or folder, open_clip:…, a transformers model, or an object with encode_images and "
        f"encode_texts, or with score; got {type(model).__name__}"
    )


def _from_name(
    name: str, adapter: str | None, scorer: str, device: str, dtype: str, resize: str, trust: bool
) -> DualEncoder | PairScorer:
    if dtype not in DTYPES:
        raise DCIError(f"no dtype {dtype!r}: expected one of {', '.join(DTYPES)}")
    place = _device(device)
    if not open_clip.is_name(name):
        return _from_pretrained(name, adapter, scorer, place, DTYPES[dtype], resize, trust)
    if adapter is not None:
        _refuse_adapter(adapter, "a model of open_clip")
    if scorer not in ("auto", "contrastive"):
        raise DCIError(f"{name}: models of open_clip are compared by their embeddings, not by {scorer!r}")
    if resize != "pil":
        _refuse_resize(name, "is a model of open_clip, which prepares its images itself")
    return open_clip.load(name, place, DTYPES[dtype], trust)


def _refuse_adapter(adapter: str, got: str) -> NoReturn:
    raise DCIError(f"adapter {adapter}: goes over models of transformers only, got {got}")


def _refuse_resize(got: str, why: str) -> NoReturn:
    raise DCIError(
        f"{got}: its images cannot be resized on the device: it {why}; go without --resize device (in Python "
        "resize='pil')"
    )


def _resizing(
    resize: str, family: type[HuggingFaceModel], processor: Any, name: str, place: torch.device
) -> resizing.DeviceResizing | None:
    if resize == "pil":
        return None
    if family.scorer == "vqascore":
        _refuse_resize(name, "is asked in words, and its processor prepares image and question together")
    if not hasattr(processor, "image_processor"):
        return None  # the model's class tells of it
    return resizing.read(processor.image_processor, family.image_options, name, place)


def _from_pretrained(
    name: str, adapter: str | None, scorer: str, place: torch.device, dtype: torch.dtype, resize: str, trust: bool
) -> DualEncoder | PairScorer:
    path = str(sample.model_path(name)) if name.startswith("sample:") else name
    # transformers would load what the adapter's config names, lay it over, and say nothing of either.
    if (Path(path) / adapters.CONFIG).is_file():
        raise DCIError(
            f"{name}: is an adapter's folder; give the model that it was made for, and this folder as --adapter (in "
            "Python adapter=...)"
        )
    config = _pretrained(AutoConfig, path, name, trust)
    made_for = config.architectures or []
    family = _family(config, made_for, name, scorer)
    own = next((getattr(transformers, kind) for kind in made_for if kind in family.architectures), family.auto_class)
    # Before the weights, which take long to read.
    processor = _processor(path, name, trust)
    resizer = _resizing(resize, family, processor, name, place)
    with quiet():
        # An adapter's small changes would be lost in the rounding of anything less than float32.
        first = dtype if adapter is None else torch.float32
        model, report = _pretrained(own, path, name, trust, dtype=first, output_loading_info=True)
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills what is missing with random weights and goes on.
        raise DCIError(
            f"{name}: {len(missing)} weights are missing, such as {missing[0]}; the checkpoint is not whole, or was "
            f"made for something else than comparing images with texts (it says: {', '.join(made_for) or 'nothing'})"
        )
    if adapter is None:
        return _made(family, model.to(place), processor, name, resizer)
    merged = adapters.merge(model, adapter)
    return _made(family, merged.model.to(place, dtype), processor, name, resizer, adapter, merged)


def _made(
    family: type[HuggingFaceModel],
    model: Any,
    processor: Any,
    name: str,
    resizer: resizing.DeviceResizing | None = None,
    adapter: str | None = None,
    merged: adapters.Merged | None = None,
) -> DualEncoder | PairScorer:
    made: Any = family(model, processor, name)
    if resizer is not None:
        made.resizing = resizer
        made.info = dataclasses.replace(made.info, image_backend="torch")
    if merged is not None:
        known = {"adapter": adapter, "adapter_base": merged.base, "adapter_revision": merged.revision}
        made.info = dataclasses.replace(made.info, **known)
    found: DualEncoder | PairScorer = made
    return found


def _processor(path: str, name: str, trust: bool) -> Any:
    # With torchvision, transformers would resize by it, which differs slightly from the paper's PIL.
    with videoless.left_out():
        found = _pretrained(AutoProcessor, path, name, trust, backend="pil")
    found = videoless.settled(found)
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
            "(expected a folder with config.json, weights and processor, the id of such a model on the Hub, or "
            "open_clip:…)"
        ) from error


def _family(config: Any, architectures: Iterable[str], name: str, scorer: str) -> type[HuggingFaceModel]:
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")
    wanted = ("contrastive", "vqascore") if scorer == "auto" else (scorer,)
    for way in wanted:
        for key in (*architectures, config.model_type):
            if (way, key) in FAMILIES:
                return FAMILIES[way, key]
    if not type(config).__module__.startswith("transformers.") and "contrastive" in wanted:
        # A model with code of its own: if it has what the general class asks for, that is all there is to know of it.
        return HuggingFaceEncoder
    known = ", ".join(sorted(key for way, key in FAMILIES if way == wanted[0]))
    if wanted[-1] == "vqascore":
        generative = "those that transformers loads with AutoModelForImageTextToText"
        known = generative if scorer == "vqascore" else f"{known}, and {generative}"
    asked = "" if scorer == "auto" else f" as {scorer}"
    raise DCIError(
        f"{name}: models of type {config.model_type!r} ({', '.join(architectures)}) are not known here{asked} (known: "
        f"{known}); hand over an object with encode_images and encode_texts, or with score, instead"
    )


def _device(device: str) -> torch.device:
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and torch.cuda.is_available():
        # Of several processes on one machine each has a GPU of its own.
        device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0')) % torch.cuda.device_count()}"
    try:
        found = torch.zeros(1, device=device)
        found.item()
        return found.device
    # torch raises RuntimeError, AssertionError or NotImplementedError, by what is missing; "meta" computes nothing.
    except Exception as error:
        raise DCIError(f"no device {device!r} here: {str(error).splitlines()[0]}") from error
