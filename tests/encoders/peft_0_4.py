"""An adapter as PEFT 0.4 wrote them in 2023, the paper's time; made once, and kept in `data/peft-0.4` as its witness.

    python3.11 -m venv old
    old/bin/pip install peft==0.4.0 transformers==4.31.0 torch==2.13.0 'numpy<2' 'accelerate<0.30'
    old/bin/python tests/encoders/peft_0_4.py tests/encoders/data/peft-0.4

Of today's packages the tests use `base` and `inputs`: both give the same on either side.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import CLIPConfig, CLIPModel

PAPER = {
    "lora_alpha": 2,
    "lora_dropout": 0.2,
    "bias": "lora_only",
    "target_modules": [
        *("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"),
        *("visual_projection", "text_projection"),
    ],
}
"""The paper's configuration but for its rank, which was swept over 1, 2 and 4."""

VOCABULARY, WORDS, SIDE = 16, 7, 8


def base() -> CLIPModel:
    """The smallest CLIP, whose weights depend on no version of transformers or torch."""
    tower = {"hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2}
    ids = {"bos_token_id": VOCABULARY - 2, "eos_token_id": VOCABULARY - 1, "pad_token_id": VOCABULARY - 1}
    config = CLIPConfig(
        text_config={**tower, **ids, "vocab_size": VOCABULARY, "max_position_embeddings": WORDS},
        vision_config={**tower, "image_size": SIDE, "patch_size": 4},
        projection_dim=5,
    )
    model = CLIPModel(config).eval()
    scatter(dict(model.named_parameters()), 0)
    return model


def scatter(parameters: "dict[str, torch.Tensor]", seed: int) -> None:
    """Fill parameters with random numbers, the same wherever their names are the same."""
    with torch.no_grad():
        for i, name in enumerate(sorted(parameters)):
            drawn = np.random.default_rng([seed, i]).standard_normal(tuple(parameters[name].shape))
            parameters[name].copy_(torch.tensor(drawn / 2))


def inputs() -> "dict[str, torch.Tensor]":
    """Three images and three texts."""
    rng = np.random.default_rng(9)
    words = rng.integers(0, VOCABULARY - 2, (3, WORDS))
    words[:, 0], words[:, -1] = VOCABULARY - 2, VOCABULARY - 1
    pixels = rng.standard_normal((3, 3, SIDE, SIDE))
    return {"input_ids": torch.tensor(words), "pixel_values": torch.tensor(pixels, dtype=torch.float32)}


def embeds(model: torch.nn.Module) -> "dict[str, torch.Tensor]":
    """Normalised embeddings of `inputs`."""
    with torch.no_grad():
        found = model(**inputs())
    return {"image_embeds": found.image_embeds, "text_embeds": found.text_embeds}


def _make(folder: Path) -> None:
    import peft

    assert peft.__version__ == "0.4.0"
    model = base()
    model.name_or_path = "openai/clip-vit-base-patch32"
    before = embeds(model)
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, **PAPER)).eval()
    scatter({name: value for name, value in adapted.named_parameters() if value.requires_grad}, 1)
    found = embeds(adapted)
    assert all((found[key] - before[key]).abs().max() > 0.1 for key in found)
    adapted.save_pretrained(folder)
    (folder / "README.md").unlink()
    (folder / "expected.json").write_text(json.dumps({key: value.tolist() for key, value in found.items()}) + "\n")


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
