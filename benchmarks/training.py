"""How close training comes to the time that forward and backward passes of the same batches need.

    python benchmarks/training.py [--model sample:tiny-clip | --make-model vit-b-32] [--dataset sample:scenes] \
        [--max-photos N] [--preset sdci_p1] [--batch-size 64] [--device cpu|cuda] [--dtype float32] [--num-workers N]

All run in this process, one after the other, `--repeat` times, and the fastest of each is taken: (1) an epoch's bare
passes: the model's own forward, the loss and its backward in plain torch and an optimiser step, over batches that lie
ready in memory; (2) `ContrastiveTrainer` over as many batches from the photos' files on, as in a first epoch, when each
photo is decoded and each crop prepared; (3) the same as in a later epoch. None evaluates.
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
from dci_metrics.training.crops import PreparedCrops
from dci_metrics.training.entries import Selection, write_entries
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers, add_lora
from dci_metrics.training.trainer import ContrastiveTrainer

EPOCHS = 3
"""How many are trained: a first one, and two later ones."""


class Clock(TrainerCallback):
    """Seconds of each epoch, and of each those between the end of a step and the next, when the trainer waits."""

    def __init__(self) -> None:
        self.epochs: list[float] = []
        self.waiting: list[float] = []
        self._began = time.perf_counter()
        self._ended: float | None = None

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        self.waiting.append(0.0)
        self._ended = None

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        if self._ended is not None:
            self.waiting[-1] += time.perf_counter() - self._ended

    def on_step_end(self, *_: Any, **__: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self._ended = time.perf_counter()

    def on_epoch_end(self, *_: Any, **__: Any) -> None:
        now = time.perf_counter()
        self.epochs.append(now - self._began)
        self._began = now


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
    parser.add_argument("--max-photos", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--num-workers", type=int, default=0, help="0 is what `dci train` takes on a CPU, 8 on a GPU")
    parser.add_argument("--repeat", type=int, default=2)
    return parser.parse_args()


def measure(model: str, arguments: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """Seconds of an epoch: of the bare passes, and of the trainer, for the first time and later."""
    config = load_config(arguments.preset, batch_size=arguments.batch_size)
    encoder = encoders.load(model, device=arguments.device)
    peft_model = add_lora(encoder, config.lora)
    negatives = config.negatives if config.negatives_weight else None
    selection = Selection(config.captions_per_entry, negatives, max_photos=arguments.max_photos)
    entries = write_entries(open_source(arguments.dataset, split="train"), selection, scratch / "entries", None, False)

    def data(crops: str) -> EntryDataset:
        kept = PreparedCrops(scratch / crops, len(entries), encoder)
        return EntryDataset(entries, encoder, config.captions, negatives is not None, config.negative_draw, 0, kept)

    ready = batches_in_memory(data("ready"), arguments)
    found: dict[str, Any] = {"bare": [], "first": [], "later": [], "waiting": []}
    for repetition in range(arguments.repeat):
        found["bare"].append(bare(peft_model, ready, config, arguments))
        train_data = data(f"crops-{repetition}")
        clock = trained(encoder, peft_model, train_data, config, arguments, scratch)
        found["first"].append(clock.epochs[0])
        found["later"].append(sum(clock.epochs[1:]) / len(clock.epochs[1:]))
        found["waiting"].append(sum(clock.waiting[1:]) / sum(clock.epochs[1:]))
    best = {key: min(values) for key, values in found.items()}
    run = (best["first"] + (config.epochs - 1) * best["later"]) / (config.epochs * best["bare"])
    return best | {"steps": len(ready), "epochs": config.epochs, "run": run}


def batches_in_memory(data: EntryDataset, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """An epoch's batches, where the model is."""
    sampler = BatchSampler(data.entries, arguments.batch_size, "random", 0)
    return [
        {
            part: {name: values.to(arguments.device) for name, values in tensors.items()}
            for part, tensors in batch.items()
        }
        for batch in make_loader(data, sampler, arguments.num_workers, False)
    ]


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
) -> Clock:
    """What the epochs of `ContrastiveTrainer.train` take; the first from the call on."""
    settings = TrainingArguments(
        output_dir=str(scratch / "run"), per_device_train_batch_size=arguments.batch_size, num_train_epochs=EPOCHS,
        learning_rate=config.learning_rate, save_strategy="no", logging_steps=0.5, report_to="none",
        dataloader_num_workers=arguments.num_workers, use_cpu=arguments.device == "cpu", disable_tqdm=True,
        bf16=arguments.dtype == "bfloat16", fp16=arguments.dtype == "float16",
    )  # fmt: skip
    objective = Objective(config.captions_per_entry, config.clip_weight, config.negatives_weight, config.pooling)
    trainer = ContrastiveTrainer(TwoTowers(encoder), objective, settings, data, data, peft_model=peft_model)
    trainer.log = lambda *_, **__: None
    clock = Clock()
    trainer.add_callback(clock)
    trainer.train()
    return clock


def as_text(found: dict[str, Any], arguments: argparse.Namespace) -> str:
    """The figures as a table."""
    device = torch.cuda.get_device_name() if "cuda" in arguments.device else f"cpu ({torch.get_num_threads()} threads)"
    images = found["steps"] * arguments.batch_size

    def line(name: str, seconds: float) -> str:
        return f"{name:<36}{seconds:8.2f}{seconds / found['bare']:8.2f}{images / seconds:12.1f}"

    return "\n".join(
        [
            f"{arguments.make_model or arguments.model}, {arguments.preset}, {arguments.dtype}, on {device}, "
            f"{found['steps']} batches of {arguments.batch_size}",
            f"{'':36}{'seconds':>8}{'ratio':>8}{'images/s':>12}",
            line("bare forward and backward", found["bare"]),
            line("ContrastiveTrainer, first epoch", found["first"]),
            line("ContrastiveTrainer, a later epoch", found["later"]),
            f"{'all epochs':<36}{'':8}{found['run']:8.2f}   of {found['epochs']}",
            f"share of a later epoch that is waiting for batches: {found['waiting']:.1%}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
