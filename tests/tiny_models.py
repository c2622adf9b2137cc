"""Tiny random models of transformers, made offline from configs, with a byte-level tokenizer of a few words.

folder = save_clip(tmp_path / "clip", seed=3)      # what from_pretrained, and `dci eval`, read
"""

from pathlib import Path

import torch
from tokenizers.pre_tokenizers import ByteLevel
from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor, CLIPTokenizer

WORDS = ("thing", "summary", "caption", "swaps", "basic", "layout", "base", "the", "of", "and", "red", "green", "blue")
IMAGE_SIZE = 32
TEXT_LIMIT = 77


def clip_tokenizer(limit: int = TEXT_LIMIT) -> CLIPTokenizer:
    """CLIP's kind of tokenizer: one token for each of WORDS, one a byte for everything else."""
    letters = sorted(ByteLevel.alphabet())
    tokens, merges = letters + [letter + "</w>" for letter in letters], []
    for word in WORDS:
        left = word[0]
        for i, letter in enumerate(word[1:], 1):
            right = letter + ("</w>" if i == len(word) - 1 else "")
            merges.append((left, right))
            left += right
            tokens.append(left)
    tokens += ["<|startoftext|>", "<|endoftext|>"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return CLIPTokenizer(vocab=vocab, merges=list(dict.fromkeys(merges)), model_max_length=limit)


def clip(seed: int = 0, limit: int = TEXT_LIMIT, size: int = IMAGE_SIZE) -> tuple[CLIPModel, CLIPProcessor]:
    """A random CLIP whose embeddings differ well from input to input, and its processor."""
    tokenizer = clip_tokenizer(limit)
    tower = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    config = CLIPConfig(
        text_config=tower | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": limit},
        vision_config=tower | {"image_size": size, "patch_size": 8},
        projection_dim=12,
    )
    torch.manual_seed(seed)
    model = CLIPModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(8)
    shape = {"height": size, "width": size}
    images = CLIPImageProcessorPil(size={"shortest_edge": size}, crop_size=shape)
    return model, CLIPProcessor(image_processor=images, tokenizer=tokenizer)


def save_clip(folder: Path, **options: int) -> Path:
    """A folder with config, weights and processor."""
    model, processor = clip(**options)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
