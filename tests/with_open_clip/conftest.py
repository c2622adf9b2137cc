"""Tiny random models of open_clip, made offline, in all forms that a user may have one in."""

import json
import os
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizer

CONFIG = {
    "embed_dim": 12,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
PREPROCESS = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "interpolation": "bicubic", "resize_mode": "shortest"}
CONFIGS = {
    "tiny": CONFIG,
    "tiny-quickgelu": CONFIG | {"quick_gelu": True},
    "tiny-short": CONFIG | {"text_cfg": CONFIG["text_cfg"] | {"context_length": 20}},
    "tiny-large": CONFIG | {"vision_cfg": CONFIG["vision_cfg"] | {"image_size": 64}},
    "tiny-wide": CONFIG | {"vision_cfg": CONFIG["vision_cfg"] | {"width": 48}},
    "tiny-custom": CONFIG | {"custom_text": True},
    # As CoCa: a class token of its own behind the text.
    "tiny-coca": CONFIG
    | {
        "vision_cfg": CONFIG["vision_cfg"] | {"attentional_pool": True, "attn_pooler_heads": 2, "output_tokens": True},
        "text_cfg": CONFIG["text_cfg"] | {"context_length": 76, "embed_cls": True, "output_tokens": True},
        "multimodal_cfg": CONFIG["text_cfg"] | {"context_length": 76, "attn_pooler_heads": 2},
        "custom_text": True,
    },
    # As SigLIP's: the last position counts, and sees the padding.
    "tiny-last": CONFIG
    | {"text_cfg": CONFIG["text_cfg"] | {"no_causal_mask": True, "pool_type": "last"}, "custom_text": True},
}


class Direct:
    """open_clip as its README shows, one image and one text at a time."""

    def __init__(self, name, pretrained=None):
        self.model, _, self.preprocess = open_clip.create_model_and_transforms(name, pretrained=pretrained)
        self.tokenizer = open_clip.get_tokenizer(name)
        self.model.eval()

    @torch.no_grad()
    def encode_images(self, images):
        return torch.cat([self.model.encode_image(self.preprocess(one)[None], normalize=True) for one in images])

    @torch.no_grad()
    def encode_texts(self, texts):
        return torch.cat([self.model.encode_text(self.tokenizer([one]), normalize=True) for one in texts])


@pytest.fixture(scope="session", autouse=True)
def architectures(tmp_path_factory):
    """The tiny architectures by name, as if open_clip had them."""
    folder = tmp_path_factory.mktemp("architectures")
    for name, config in CONFIGS.items():
        (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder)


def random_weights(architecture="tiny", seed=0):
    """A state dict whose model tells inputs apart."""
    torch.manual_seed(seed)
    model = open_clip.create_model(architecture, load_weights=False)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(8 if "embedding" not in name else 20)
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.fixture(scope="session")
def weights(architectures):
    return random_weights()


@pytest.fixture(scope="session")
def checkpoint(weights, tmp_path_factory):
    """A file as open_clip's training leaves it on several GPUs; NegCLIP's is such a one."""
    path = tmp_path_factory.mktemp("checkpoints") / "epoch_5.pt"
    parallel = {f"module.{name}": value for name, value in weights.items()}
    torch.save({"epoch": 5, "name": "run", "state_dict": parallel, "optimizer": {"state": {}, "lr": 0.1}}, path)
    return path


@pytest.fixture
def folder(weights, tmp_path):
    """A folder as open_clip pushes it to the Hub."""
    out = tmp_path / "pushed"
    out.mkdir()
    save_folder(out, weights)
    return out


def save_folder(out, weights, config=CONFIG):
    (out / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": PREPROCESS}))
    save_file(weights, out / "open_clip_model.safetensors")


@pytest.fixture
def cached(weights):
    """A repository of the Hub that was fetched before; gives its id and commit."""
    repo, commit = "someone/tiny", "0123456789abcdef0123456789abcdef01234567"
    home = Path(os.environ["HF_HOME"]) / "hub" / f"models--{repo.replace('/', '--')}"
    snapshot = home / "snapshots" / commit
    snapshot.mkdir(parents=True, exist_ok=True)
    (home / "refs").mkdir(exist_ok=True)
    (home / "refs" / "main").write_text(commit)
    save_folder(snapshot, weights)
    return repo, commit


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "thing", "red", "green", "the", "a", "of", "[BOS]", "[EOS]"]


def save_with_bert(out, positions=512):
    """A folder whose text tower and tokenizer are of transformers; its tower could read more than it was trained to."""
    BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}).save_pretrained(out)
    tower = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(**tower, vocab_size=len(WORDS), max_position_embeddings=positions)
    BertModel(config, add_pooling_layer=False).save_pretrained(out / "text")
    text = {"hf_model_name": str(out / "text"), "hf_tokenizer_name": "x", "hf_proj_type": "linear"}
    save_random(out, CONFIG | {"text_cfg": text | {"hf_pooler_type": "mean_pooler", "context_length": 30}})
    return out


def save_clips(out):
    """A folder as of CLIPS: a tokenizer of transformers, to which open_clip adds a class token behind the padding."""
    special = {"bos_token": "[BOS]", "eos_token": "[EOS]"}
    BertTokenizer(vocab={word: i for i, word in enumerate(WORDS)}, **special).save_pretrained(out)
    tower = {"context_length": 30, "vocab_size": len(WORDS), "no_causal_mask": True, "pool_type": "last"}
    text = CONFIG["text_cfg"] | tower | {"hf_tokenizer_name": "x", "tokenizer_mode": "clips"}
    save_random(out, CONFIG | {"text_cfg": text, "custom_text": True})
    return out


def save_random(out, config):
    (out / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": PREPROCESS}))
    weights = random_weights(f"local-dir:{out}")
    save_file({name: value.contiguous() for name, value in weights.items()}, out / "model.safetensors")


@pytest.fixture
def with_bert(tmp_path):
    (tmp_path / "bert").mkdir()
    return save_with_bert(tmp_path / "bert")
