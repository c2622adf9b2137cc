"""The folder of a run: refused where it is in use, and written whole."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from transformers.trainer_utils import get_last_checkpoint

from dci import DCIError
from dci_metrics.encoders.huggingface import HuggingFaceEncoder
from dci_metrics.files import write_whole
from dci_metrics.results import Result, environment
from dci_metrics.training.config import TrainConfig
from dci_metrics.training.entries import Entries

CONFIG = "train_config.yaml"

CHECKPOINTS, WORK, LOGS, MERGED = "checkpoints", "entries", "logs", "merged"
"""Folders: what a run needs while it lasts, its TensorBoard files, and the whole model where that is asked for."""


@dataclass(frozen=True)
class Trained:
    """What a run made.

    Attributes:
        folder: With the adapter, or the model, and all that tells of it.
        config: The run.
        before: Scores of the base model.
        after: Scores of the trained one, by the same tests on the same data.
        log: What Trainer logged.
    """

    folder: Path
    config: TrainConfig
    before: Result
    after: Result
    log: list[dict[str, Any]]


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


def save(out: Path, encoder: HuggingFaceEncoder, peft_model: Any, export_merged: bool) -> None:
    """Write the adapter, or the whole model, and the processor."""
    parts = (encoder.tokenizer, encoder.image_processor)
    (peft_model if peft_model is not None else encoder.model).save_pretrained(out)
    for part in parts:
        part.save_pretrained(out)
    if export_merged and peft_model is not None:
        peft_model.merge_and_unload().save_pretrained(out / MERGED)
        for part in parts:
            part.save_pretrained(out / MERGED)


def write(trained: Trained, model: str, dataset: str, test_dataset: str, entries: Mapping[str, Entries]) -> None:
    """Write all that tells of a run, and remove what it needed while it lasted.

    Args:
        trained: The run.
        model: What was trained.
        dataset: On what.
        test_dataset: What scored it.
        entries: By split.
    """
    out, files = trained.folder, {}
    data = {"model": model, "dataset": dataset, "test_dataset": test_dataset}
    files[CONFIG] = yaml.safe_dump(data, sort_keys=False) + trained.config.to_yaml()
    used = {split: {"entries": len(found), "left_out": dict(found.left_out)} for split, found in entries.items()}
    log = {"entries": used, "environment": environment(), "log": trained.log}
    files["training_log.json"] = json.dumps(log, indent=1) + "\n"
    files["result_before.json"], files["result_after.json"] = trained.before.to_json(), trained.after.to_json()
    for name, content in files.items():
        write_whole(out / name, content.encode("utf-8", "surrogatepass"), force=True)
    for working in (CHECKPOINTS, WORK):
        shutil.rmtree(out / working, ignore_errors=True)
