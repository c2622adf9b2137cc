"""The folder of a run: refused where it is in use, and written whole."""

import json
import shutil
from pathlib import Path
from typing import Any

import yaml
from transformers.trainer_utils import get_last_checkpoint

from dci import DCIError
from dci_metrics.encoders.huggingface import HuggingFaceEncoder
from dci_metrics.files import write_whole
from dci_metrics.results import environment
from dci_metrics.training import card
from dci_metrics.training.trained import Trained

CONFIG, BEFORE, AFTER = "train_config.yaml", "result_before.json", "result_after.json"

CHECKPOINTS, WORK, LOGS, MERGED = "checkpoints", "entries", "logs", "merged"
"""Folders: what a run needs while it lasts, its TensorBoard files, and the whole model where that is asked for."""


def check(out: Path, resume: bool, force: bool) -> None:
    """Look at the folder before any time is spent.

    Raises:
        DCIError: If it is in use, or there is nothing to resume.
    """
    if out.exists() and not out.is_dir():
        raise DCIError(f"{out}: is no folder; choose another name")
    if resume and last_checkpoint(out) is None:
        raise DCIError(f"{out}: has no checkpoint to resume from; start the run without --resume")
    if resume or force or not out.exists() or not any(out.iterdir()):
        return
    if last_checkpoint(out) is not None:
        raise DCIError(f"{out}: holds an interrupted run; go on with --resume, or start anew with --force")
    raise DCIError(f"{out}: is not empty; choose another folder, or remove what is in it with --force")


def prepare(out: Path, resume: bool, force: bool) -> None:
    """Make the folder, empty unless a run is resumed."""
    check(out, resume, force)
    if out.exists() and force and not resume:
        shutil.rmtree(out)
    (out / WORK).mkdir(parents=True, exist_ok=True)


def last_checkpoint(out: Path) -> str | None:
    """The newest checkpoint of an interrupted run."""
    checkpoints = out / CHECKPOINTS
    found: str | None = get_last_checkpoint(str(checkpoints)) if checkpoints.is_dir() else None
    return found


def save_weights(out: str | Path, encoder: HuggingFaceEncoder, peft_model: Any) -> None:
    """Write the adapter, or the whole model where all of it is trained."""
    if peft_model is None:
        encoder.model.save_pretrained(out)
    else:
        # PEFT would look on the Hub whether the vocabulary has grown.
        peft_model.save_pretrained(out, save_embedding_layers=False)


def save(out: Path, encoder: HuggingFaceEncoder, peft_model: Any, export_merged: bool) -> None:
    """Write the adapter, or the whole model, and the processor."""
    parts = (encoder.tokenizer, encoder.image_processor)
    save_weights(out, encoder, peft_model)
    for part in parts:
        part.save_pretrained(out)
    if export_merged and peft_model is not None:
        peft_model.merge_and_unload().save_pretrained(out / MERGED)
        for part in parts:
            part.save_pretrained(out / MERGED)


def write(trained: Trained) -> None:
    """Write all that tells of a run, and remove what it needed while it lasted."""
    data = {"model": trained.model, "dataset": trained.dataset, "test_dataset": trained.test_dataset}
    run = {"used": trained.used, "trainable": trained.trainable, "best_step": trained.best_step}
    run |= {"seconds": round(trained.seconds, 1), "processes": trained.processes, "environment": environment()}
    files = {
        CONFIG: yaml.safe_dump(data, sort_keys=False) + trained.config.to_yaml(),
        "training_log.json": json.dumps(run | {"log": trained.log}, indent=1) + "\n",
        BEFORE: trained.before.to_json(),
        AFTER: trained.after.to_json(),
    }
    for name, content in files.items():
        write_whole(trained.folder / name, content.encode("utf-8", "surrogatepass"), force=True)
    card.write(trained)
    for working in (CHECKPOINTS, WORK):
        shutil.rmtree(trained.folder / working, ignore_errors=True)
