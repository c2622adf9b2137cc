"""Trains the embedded tiny CLIP from nothing, on scenes outside of the sample.

    python -m dci_metrics.sample.train_tiny_clip --out dci_metrics/sample/tiny_clip --force

It is a real CLIP in small: a CLIPModel with a byte-level BPE tokenizer of its own, trained with CLIP's loss on short
captions. Its scores, and how long it took, stand in the folder's README.md; measure them again after a new training.
"""

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import Tensor
from tqdm import tqdm
from transformers import CLIPConfig, CLIPModel, CLIPProcessor, CLIPTokenizer

from dci_metrics.sample.tiny_clip_data import FIRST_SEED, IMAGE_SIZE, TrainingScenes, make_image_processor, paint

SEED = 20240614
TEXT_LIMIT = 77
VOCABULARY = 1_300
EMBEDDING = 96
"""Numbers in an embedding, of an image or a text."""

SCENES = 2_500
STEPS = 450

LEARNING_RATE = 1e-3
WARMUP = 0.05
"""Share of the steps."""

MOST_SCALE = math.log(100)
"""CLIP's own limit of its logit scale."""

FINAL_SCALE = 6.0
"""Logit scale of the finished model, less than half of the one it was trained to. No score depends on it. But the loss
on negatives compares logits with zero, and fine-tuning on the sample has some 160 steps to bring them there."""


def train_tokenizer(texts: Iterable[str], vocabulary: int = VOCABULARY) -> Any:
    """A tokenizer of CLIP's form; every byte is a token, alone and at a word's end, so that any text can be read.

    Args:
        texts: What the merges are learned from.
        vocabulary: Tokens at most.
    """
    letters = byte_letters()
    empty = CLIPTokenizer().backend_tokenizer
    learner = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learner.normalizer, learner.pre_tokenizer = empty.normalizer, empty.pre_tokenizer
    # All letters are named beforehand: equal counts are decided by number, and the trainer would number those at a
    # word's end as its hash table gives them, in another order each time.
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary - 2, special_tokens=letters, end_of_word_suffix="</w>", show_progress=False
    )
    learner.train_from_iterator(texts, trainer)
    merges = [tuple(pair) for pair in json.loads(learner.to_str())["model"]["merges"]]
    tokens = [*letters, *("".join(pair) for pair in merges), "<|startoftext|>", "<|endoftext|>"]
    vocab = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=TEXT_LIMIT)


def byte_letters() -> list[str]:
    """CLIP's letters for the 256 bytes, then the same at a word's end."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    return [*alphabet, *(letter + "</w>" for letter in alphabet)]


def make_model(tokenizer: Any) -> Any:
    """The untrained model: some 1.1 million parameters."""
    text = {
        "vocab_size": len(tokenizer),
        "hidden_size": 96,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "projection_dim": EMBEDDING,
        "max_position_embeddings": TEXT_LIMIT,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    vision = {
        "image_size": IMAGE_SIZE,
        "patch_size": 16,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "projection_dim": EMBEDDING,
    }
    return CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=EMBEDDING))


def train(data: TrainingScenes, steps: int, scenes_per_batch: int = 18, progress: bool = True) -> tuple[Any, Any]:
    """Train tokenizer and model; the same data and settings give the same on one machine and thread count.

    Args:
        data: The training scenes.
        steps: Batches to train on.
        scenes_per_batch: About six crops each.
        progress: Whether to show it.

    Returns:
        The model and its processor.
    """
    torch.manual_seed(SEED)
    processor = CLIPProcessor(image_processor=make_image_processor(), tokenizer=train_tokenizer(data.texts()))
    model = make_model(processor.tokenizer).train()
    weights = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": weights, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=LEARNING_RATE,
        betas=(0.9, 0.98),
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, steps))
    with tqdm(range(steps), desc="Training", unit="step", disable=None if progress else True) as bar:
        for step in bar:
            # Of the step alone, so that it doesn't matter how many numbers earlier steps drew.
            rng = np.random.default_rng((SEED, step))
            loss, right = _loss(model, processor, *data.batch(scenes_per_batch, rng))
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            with torch.no_grad():
                model.logit_scale.clamp_(max=MOST_SCALE)
            if step % 10 == 0:
                bar.set_postfix(loss=f"{loss.item():.2f}", right=f"{right.item():.0%}")
    with torch.no_grad():
        model.logit_scale.fill_(math.log(FINAL_SCALE))
    return model.eval(), processor


def _loss(model: Any, processor: Any, crops: Tensor, captions: list[str]) -> tuple[Tensor, Tensor]:
    """CLIP's loss: each image against all captions of the batch and each caption against all images."""
    images = processor.image_processor
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (images.image_mean, images.image_std))
    tokens = processor.tokenizer(captions, padding=True, truncation=True, return_tensors="pt")
    logits = model(pixel_values=(crops / 255 - mean) / std, **tokens).logits_per_image
    own = torch.arange(len(captions))
    loss = (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2
    return loss, (logits.argmax(1) == own).float().mean()


def _rate(step: int, steps: int) -> float:
    """Share of the full learning rate: linear up, then down along a cosine."""
    warmup = max(1, round(WARMUP * steps))
    if step < warmup:
        return (step + 1) / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def main(
    out: Annotated[Path, typer.Option(help="Folder to write.")],
    steps: Annotated[int, typer.Option(min=1, help="Batches to train on.")] = STEPS,
    scenes: Annotated[int, typer.Option(min=1, help="Scenes to train on.")] = SCENES,
    threads: Annotated[int, typer.Option(min=1, help="Of torch; the weights depend on it in their last digits.")] = 1,
    num_proc: Annotated[int, typer.Option(min=1, help="Processes that paint.")] = os.cpu_count() or 1,
    force: Annotated[bool, typer.Option("--force", help="Overwrite what exists.")] = False,
) -> None:
    """Train the tiny CLIP and write it as a folder for `from_pretrained`."""
    if (out / "config.json").exists() and not force:
        raise typer.BadParameter(f"{out} holds a model already; overwrite it with --force")
    torch.set_num_threads(threads)
    data = paint(range(FIRST_SEED, FIRST_SEED + scenes), num_proc)
    model, processor = train(data, steps)
    model.save_pretrained(out)
    processor.save_pretrained(out)
    typer.echo(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters, {sum(map(len, data.crops)):,} crops")


if __name__ == "__main__":
    typer.run(main)
