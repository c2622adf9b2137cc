"""Models of open_clip: https://github.com/mlfoundations/open_clip. Only this file imports it, when one is asked for.

    open_clip:ViT-B-32/laion2b_s34b_b79k      an architecture and the tag of its weights
    open_clip:ViT-B-32/negclip.pt             an architecture and a file: a checkpoint of training, or a state dict
    open_clip:hf-hub:org/name                 a repository of the Hub with open_clip_config.json
    open_clip:folder, or only its path        a folder with open_clip_config.json and weights

A tag tells whether its weights were trained with QuickGELU, and is followed. A file does not. OpenAI's CLIP was, and
what was fine-tuned from it (NegCLIP, DAC): their architecture is `ViT-B-32-quickgelu`, or all scores are silently off.
"""

import difflib
import logging
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub
import PIL.Image
import torch

from dci import DCIError
from dci_metrics.encoders.base import ModelInfo
from dci_metrics.encoders.open_clip_texts import OpenCLIPTexts
from dci_metrics.revisions import sha256_of

PREFIX = "open_clip:"
HUB, FOLDER = "hf-hub:", "local-dir:"
"""open_clip's own prefixes."""
CONFIG = "open_clip_config.json"
PRECISIONS = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class OpenCLIPEncoder(OpenCLIPTexts):
    """A model of open_clip, with its own preprocessing and tokenizer.

    Args:
        model: The loaded model.
        transform: Its preprocessing at evaluation.
        tokenizer: Its tokenizer, which knows the text limit.
        model_id: What the result calls the model.
        dtype: Of its weights, and so of the images that it takes.
        revision: Its commit on the Hub, or the hash of its file.
    """

    def __init__(
        self,
        model: Any,
        transform: Any,
        tokenizer: Any,
        model_id: str,
        dtype: torch.dtype = torch.float32,
        revision: str | None = None,
    ) -> None:
        super().__init__(model.eval(), tokenizer)
        self.transform = transform
        self.dtype, self.device = dtype, next(model.parameters()).device
        size = self.transform(PIL.Image.new("RGB", (64, 64))).shape
        self.info = ModelInfo(
            id=model_id,
            revision=revision,
            family="open_clip",
            scorer="contrastive",
            parameters=sum(p.numel() for p in model.parameters()),
            text_limit=self.text_limit,
            image_size=size[-1] if size[-1] == size[-2] else None,
            image_backend="pil",  # torchvision's transforms leave the resizing of a PIL image to PIL
            dtype=str(self.dtype).removeprefix("torch."),
            device=str(self.device),
        )

    def prepare_images(self, images: Sequence[PIL.Image.Image]) -> list[torch.Tensor]:
        """Preprocess images as the model's config says; gives a (3, h, w) tensor for each."""
        return [self.transform(image) for image in images]

    @torch.inference_mode()
    def encode_prepared(self, prepared: Sequence[torch.Tensor]) -> torch.Tensor:
        """Embed preprocessed images; gives (n, d)."""
        embeds: torch.Tensor = self.model.encode_image(torch.stack(list(prepared)).to(self.device, self.dtype))
        return embeds

    def encode_images(self, images: Sequence[PIL.Image.Image]) -> torch.Tensor:
        """Embed RGB images of any size; gives (n, d)."""
        return self.encode_prepared(self.prepare_images(images))

    @torch.inference_mode()
    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts, cut to the model's limit with the end token kept; gives (n, d)."""
        embeds: torch.Tensor = self.model.encode_text(self.tokens(texts).to(self.device))
        return embeds


def is_name(name: str) -> bool:
    """Whether a model's name means one of open_clip: by its prefix, or a folder that transformers could not read."""
    return name.startswith(PREFIX) or (_is_folder(name) and not (Path(name) / "config.json").exists())


def load(name: str, device: torch.device, dtype: torch.dtype, trust_remote_code: bool = False) -> OpenCLIPEncoder:
    """The encoder of a model of open_clip.

    Args:
        name: As at the top of this file.
        device: Where it will run.
        dtype: Of its weights; below float32, open_clip leaves norms and positions in float32.
        trust_remote_code: Whether to run code that its tokenizer brings along.

    Raises:
        DCIError: If open_clip is not installed, or there is no such model, or the weights are not its own.
    """
    open_clip = _open_clip()
    architecture, weights = _parts(open_clip, name)
    with _one_line(name):
        config = open_clip.get_model_config(architecture)
        if config["text_cfg"].get("tokenizer_kwargs", {}).get("trust_remote_code") and not trust_remote_code:
            raise DCIError(
                f"{name}: its tokenizer brings code of its own, which is not run unasked; read it, and if you trust "
                "it, ask with --trust-remote-code (in Python trust_remote_code=True)"
            )
        tag = open_clip.get_pretrained_cfg(architecture, weights) if weights is not None else {}
        model, transform = open_clip.create_model_from_pretrained(
            architecture,
            weights,
            precision=PRECISIONS[dtype],
            device=device,
            # open_clip only warns where a tag says so and the architecture does not.
            force_quick_gelu=tag.get("quick_gelu", False),
            weights_only=True,
        )
        tokenizer = open_clip.get_tokenizer(architecture)
        if weights is not None and not tag:
            _refuse_resized(open_clip, model, weights, name)
    return OpenCLIPEncoder(model, transform, tokenizer, name, dtype, _revision(architecture, weights))


def _open_clip() -> Any:
    try:
        import open_clip
    # Not there, or beside a torchvision that is built for another torch, which fails in its own way.
    except (ImportError, RuntimeError, AttributeError) as error:
        why = "is not installed" if isinstance(error, ModuleNotFoundError) else f"cannot be imported ({error})"
        raise DCIError(
            f"models of open_clip need open_clip_torch, which {why}: pip install 'dci-metrics[open-clip]'"
        ) from error
    return open_clip


def _is_folder(path: str) -> bool:
    return (Path(path) / CONFIG).is_file()


def _parts(open_clip: Any, name: str) -> tuple[str, str | None]:
    """What open_clip calls model_name and pretrained."""
    rest = name.removeprefix(PREFIX)
    if rest.startswith((HUB, FOLDER)):
        return rest, None
    if _is_folder(rest):
        return FOLDER + rest, None
    architecture, _, weights = rest.partition("/")
    known = open_clip.list_models()
    if architecture not in known:
        near = difflib.get_close_matches(architecture, known, n=3) or known[:3]
        raise DCIError(
            f"{name}: open_clip has no architecture {architecture!r} (near to it: {', '.join(near)}), and there is no "
            f"such folder with {CONFIG}; expected ARCHITECTURE/TAG, ARCHITECTURE/FILE, {HUB}ORG/NAME or a folder"
        )
    tag = open_clip.get_pretrained_cfg(architecture, weights) if weights else None
    if not tag and not Path(weights).is_file():
        tags = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise DCIError(
            f"{name}: {weights or 'nothing'!r} is neither a tag of {architecture} (there are: {tags}) nor a file; "
            f"expected {PREFIX}{architecture}/TAG or {PREFIX}{architecture}/FILE (a full path makes two slashes)"
        )
    return architecture, weights


def _refuse_resized(open_clip: Any, model: Any, weights: str, name: str) -> None:
    """Raise a DCIError if positions were interpolated to fit: then the model is not the one that was trained."""
    if Path(weights).suffix in (".npz", ".npy"):
        return
    whole, own = open_clip.factory.load_state_dict(weights, device="cpu"), model.state_dict()
    for key in ("visual.positional_embedding", "positional_embedding", "text.positional_embedding"):
        fitted = own.get(key, own.get(f"text.{key}"))
        if key in whole and fitted is not None and whole[key].shape != fitted.shape:
            raise DCIError(
                f"{name}: {key} is of {tuple(whole[key].shape)}, and the architecture's of {tuple(fitted.shape)}; the "
                "file is of another image size, patch size or text limit; name its own architecture"
            )


def _revision(architecture: str, weights: str | None) -> str | None:
    """The commit of a Hub repository that was fetched just now, or the hash of a file of weights."""
    if weights is not None and Path(weights).is_file():
        return f"sha256:{sha256_of(Path(weights))}"
    if not architecture.startswith(HUB):
        return None
    found = huggingface_hub.try_to_load_from_cache(architecture.removeprefix(HUB), CONFIG)
    return Path(found).parent.name if isinstance(found, str) else None


@contextmanager
def _one_line(name: str) -> Iterator[None]:
    """Makes one line of all that open_clip raises, and keeps it from logging its steps; what is wrong is raised."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except DCIError:
        raise
    # open_clip, torch, safetensors and the Hub each raise their own kinds.
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        why = " ".join(line if len(line) <= 160 else f"{line[:160]}…" for line in lines[:4])
        if isinstance(error, pickle.UnpicklingError):
            why = "the file is broken, or holds code and not only weights (save its state_dict by itself)"
        raise DCIError(f"{name}: cannot be loaded as a model of open_clip: {why}") from error
    finally:
        logging.disable(before)
