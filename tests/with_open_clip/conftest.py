"""Tiny random models of open_clip, made offline, in all forms that a user may have one in."""

import json
import os
from pathlib import Path

import open_clip
import pytest
import torch
from safetensors.torch import save_file

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
}


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
    model = open_clip.create_model(architecture)
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
