"""How close training comes to the time that forward and backward passes of the same batches need.

    python benchmarks/training.py [--model sample:tiny-clip | --make-model vit-b-32] [--dataset sample:scenes] \
        [--preset sdci_p1] [--batch-size 64] [--steps 30] [--device cpu|cuda] [--dtype float32] [--num-workers N]

Both run in this process, one after the other, `--repeat` times, and the fastest of each is taken: (1) the bare passes:
the model's own forward, the loss and its backward in plain torch and an optimiser step, over batches that lie ready in
memory; (2) `ContrastiveTrainer` over the same number of batches, from the photos' files on. Neither evaluates.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from throughput import SIZES, make_model
from transformers import TrainerCallback, TrainingArguments

from dci_metrics import encoders, sample
from dci_metrics.sources import open_source
from dci_metrics.training.batches import BatchSampler, EntryDataset, make_loader
from dci_metrics.training.config import load_config
from dci_metrics.training.entries import Selection, write_entries
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers, add_lora
from dci_metrics.training.trainer import ContrastiveTrainer


class Waiting(TrainerCallback):
    """Seconds between the end of a step and the beginning of the next: the trainer waits for its batch."""

    def __init__(self) -> None:
        self.seconds, self._ended = 0.0, None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self._ended is not None:
            self.seconds += time.perf_counter() - self._ended

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._ended = time.perf_counter()


def main() -> int:
    """Measure and print."""
    arguments = parse()
    with tempfile.TemporaryDirectory() as scratch:
        arguments.release = sample.release_folder("sample:scenes", "train")
        model = arguments.model
        if arguments.make_model:
            model = str(make_model(Path(scratch) / "model", arguments))
        print(as_text(measure(model, arguments, Path(scratch)), arguments))
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="sample:tiny-clip")
    parser.add_argument("--make-model", choices=list(SIZES), help="a random model of that size instead")
    parser.add_argument("--dataset", default="sample:scenes")
    parser.add_argument("--preset", default="sdci_p1")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--repeat", type=int, default=2)
    return parser.parse_args()


def measure(model: str, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Seconds of the bare passes, and of the trainer."""
    config = load_config(arguments.preset, batch_size=arguments.batch_size)
    encoder = encoders.load(model, device=arguments.device)
    peft_model = add_lora(encoder, config.lora)
    selection = Selection(config.captions_per_entry, config.negatives if config.negatives_weight else None)
    entries = write_entries(open_source(arguments.dataset, split="train"), selection, scratch / "entries", None, False)
    data = EntryDataset(entries, encoder, config.captions, config.negatives_weight > 0, config.negative_draw, 0)
    ready = batches_in_memory(data, arguments)
    found: dict[str, Any] = {"bare": [], "trainer": [], "waiting": []}
    for _ in range(arguments.repeat):
        found["bare"].append(bare(peft_model, ready, config, arguments))
        seconds, waiting = trained(encoder, peft_model, data, config, arguments, scratch)
        found["trainer"].append(seconds)
        found["waiting"].append(waiting / seconds)
    return {key: min(values) for key, values in found.items()} | {"entries": len(entries)}


def batches_in_memory(data: EntryDataset, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The first batches of training, where the model is."""
    ready: list[dict[str, Any]] = []
    sampler = BatchSampler(data.entries, arguments.batch_size, "random", 0)
    epoch = 0
    while len(ready) < arguments.steps:
        sampler.set_epoch(epoch)
        for batch in make_loader(data, sampler, arguments.num_workers, False):
            ready.append({part: {n: v.to(arguments.device) for n, v in t.items()} for part, t in batch.items()})
            if len(ready) == arguments.steps:
                break
        epoch += 1
    return ready


def bare(model: Any, ready: list[dict[str, Any]], config: Any, arguments: argparse.Namespace) -> float:
    """Forward, backward and optimiser steps in plain torch."""
    weights = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.0)
    dtype = getattr(torch, arguments.dtype)
    model.train()
    began = time.perf_counter()
    for batch in ready:
        with torch.autocast(arguments.device, dtype, enabled=dtype is not torch.float32):
            logits = model(**batch["images"], **batch["texts"]).logits_per_image.float()
        own = torch.arange(len(logits), device=logits.device)
        texts = logits.shape[1] // len(logits)
        captions = logits[:, ::texts]
        loss = (F.cross_entropy(captions, own) + F.cross_entropy(captions.T, own)) / 2
        if texts == 2:
            pairs = torch.stack([captions.diag(), logits[:, 1::2].diag()], dim=1)
            loss = loss + F.binary_cross_entropy_with_logits(
                pairs, torch.eye(2, device=pairs.device)[:1].expand_as(pairs)
            )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
    if "cuda" in arguments.device:
        torch.cuda.synchronize()
    return time.perf_counter() - began


def trained(
    encoder: Any, peft_model: Any, data: EntryDataset, config: Any, arguments: argparse.Namespace, scratch: Path
) -> tuple[float, float]:
    """Seconds of `ContrastiveTrainer.train`, and of those it waited for batches."""
    settings = TrainingArguments(
        output_dir=str(scratch / "run"), per_device_train_batch_size=arguments.batch_size, max_steps=arguments.steps,
        learning_rate=config.learning_rate, save_strategy="no", logging_steps=0.5, report_to="none",
        dataloader_num_workers=arguments.num_workers, use_cpu=arguments.device == "cpu", disable_tqdm=True,
        bf16=arguments.dtype == "bfloat16", fp16=arguments.dtype == "float16",
    )  # fmt: skip
    objective = Objective(config.captions_per_entry, config.clip_weight, config.negatives_weight, config.pooling)
    trainer = ContrastiveTrainer(TwoTowers(encoder), objective, settings, data, data, peft_model=peft_model)
    trainer.log = lambda *_, **__: None
    waiting = Waiting()
    trainer.add_callback(waiting)
    began = time.perf_counter()
    trainer.train()
    return time.perf_counter() - began, waiting.seconds


def as_text(found: dict[str, Any], arguments: argparse.Namespace) -> str:
    """The figures as a table."""
    device = torch.cuda.get_device_name() if "cuda" in arguments.device else f"cpu ({torch.get_num_threads()} threads)"
    images = arguments.steps * arguments.batch_size
    return "\n".join(
        [
            f"{arguments.make_model or arguments.model}, {arguments.preset}, {arguments.dtype}, on {device}, "
            f"{arguments.steps} batches of {arguments.batch_size}",
            f"bare forward and backward {found['bare']:9.2f} s",
            f"ContrastiveTrainer        {found['trainer']:9.2f} s   from the photos' files",
            f"ratio                     {found['trainer'] / found['bare']:9.2f}",
            f"images a second           {images / found['trainer']:9.1f}",
            f"share of time waiting     {found['waiting']:9.1%}   for batches",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
