"""Small trainings for the tests: a tiny model, a few noisy entries, everything of Trainer that is not looked at off."""

import dataclasses
from pathlib import Path

import numpy as np
import PIL.Image
from transformers import TrainingArguments

from dci_metrics import encoders
from dci_metrics.sources import open_source
from dci_metrics.training.batches import EntryDataset
from dci_metrics.training.config import Lora
from dci_metrics.training.entries import Selection, write_entries
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers, add_lora
from dci_metrics.training.trainer import ContrastiveTrainer

WORDS = ("thing", "caption", "swaps", "basic", "layout", "base", "red", "green", "blue")
LORA = Lora(2, 4, 0.0, "lora_only", ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"))


def row(i: int, entries: int = 2, captions: int = 5) -> dict:
    """A row of the configuration sdci with pixels of noise."""
    rng = np.random.default_rng(i)
    image = PIL.Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8))

    def words(n):
        return " ".join(rng.choice(WORDS, n))

    return {
        "image": image,
        "image_id": f"{i}",
        "file_name": f"{i}.jpg",
        "width": 50,
        "height": 40,
        "left_out": [],
        "entries": [
            {
                "key": f"m-{j}-sc" if j else "base",
                "mask_id": j - 1 if j else -1,
                "crop_xyxy": [3 * j, 2 * j, 50, 40],
                "captions": [words(int(rng.integers(2, 12))) for _ in range(captions)],
                "negatives": [
                    {"kind": kind, "text": words(4), "clip_score": 0.1 * k}
                    for k, kind in enumerate(("swaps", "swaps", "layout", "basic"))
                ],
            }
            for j in range(entries)
        ],
    }


def rows(n: int, **options) -> list[dict]:
    """Some rows."""
    return [row(i, **options) for i in range(n)]


def dataset(encoder, folder: Path, given, captions="first", has_negative=True, seed=0, name="train") -> EntryDataset:
    """Entries of rows, ready to train on."""
    selection = Selection(1 if captions == "first" else int(captions[4:]), "swaps" if has_negative else None)
    entries = write_entries(open_source(given, split=name), selection, folder / f"{name}.arrow", progress=False)
    return EntryDataset(entries, encoder, captions, has_negative, "once", seed)


def trainer(model, processor, folder: Path, given, *, lora=LORA, dropout=0.0, objective=None, captions="first",
            micro_batch_size=None, batches="sequential", validation=None, **options) -> ContrastiveTrainer:  # fmt: skip
    """A trainer of a model, or of a folder's, on rows."""
    encoder = encoders.load(model, processor=processor) if processor is not None else encoders.load(model, device="cpu")
    if lora is not None:
        lora = dataclasses.replace(lora, dropout=dropout)
    peft_model = add_lora(encoder, lora) if lora is not None else None
    objective = objective or Objective()
    settings = TrainingArguments(
        **{"output_dir": str(folder / "out"), "per_device_train_batch_size": 8, "per_device_eval_batch_size": 8,
           "learning_rate": 1e-2, "weight_decay": 0.0, "max_steps": 1, "save_strategy": "no", "report_to": "none",
           "use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "seed": 0} | options
    )  # fmt: skip
    has_negative = objective.negatives_weight > 0
    train = dataset(encoder, folder, given, captions, has_negative)
    valid = dataset(encoder, folder, validation or given, captions, has_negative, name="validation")
    return ContrastiveTrainer(TwoTowers(encoder), objective, settings, train, valid, batches=batches,
                              micro_batch_size=micro_batch_size, peft_model=peft_model)  # fmt: skip


def trained_weights(made: ContrastiveTrainer) -> dict:
    """Copies of what is trained, by name."""
    return {n: p.detach().clone() for n, p in made.model.model.named_parameters() if p.requires_grad}
