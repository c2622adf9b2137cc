"""The folder of a run: refused where it is in use, and written whole."""

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from transformers.trainer_utils import get_last_checkpoint

from dci import DCIError
from dci_metrics.encoders.huggingface import HuggingFaceEncoder
from dci_metrics.files import write_whole
from dci_metrics.training import card
from dci_metrics.training.config import TrainConfig
from dci_metrics.training.trained import Trained

CONFIG, BEFORE, AFTER = "train_config.yaml", "result_before.json", "result_after.json"

CHECKPOINTS, WORK, LOGS, MERGED = "checkpoints", "entries", "logs", "merged"
"""Folders: what a run needs while it lasts, its TensorBoard files, and the whole model where that is asked for."""


MAY_DIFFER = ("test_dataset", "preset", "micro_batch_size", "gradient_checkpointing", "num_workers")
"""What may be other when a run is resumed: it does not change what is trained."""


@dataclass(frozen=True)
class Asked:
    """A run as it was asked for: what `train_config.yaml` says."""

    model: str
    dataset: str
    test_dataset: str
    config: TrainConfig

    def to_yaml(self) -> str:
        """Model and data, then the fields of the configuration."""
        data = {"model": self.model, "dataset": self.dataset, "test_dataset": self.test_dataset}
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True) + self.config.to_yaml()


def check(out: Path, resume: bool, force: bool, asked: Asked, inputs: Iterable[Any] = ()) -> None:
    """Look at the folder before any time is spent.

    Args:
        out: The folder.
        resume: Whether what is in it goes on.
        force: Whether what is in it is removed.
        asked: The run.
        inputs: Model, data and files that the run reads, as the user named them.

    Raises:
        DCIError: If it is in use, there is nothing to resume or another run, or `force` would remove what is needed.
    """
    if out.exists() and not out.is_dir():
        raise DCIError(f"{out}: is no folder; choose another name")
    if resume and last_checkpoint(out) is None:
        raise DCIError(f"{out}: has no checkpoint to resume from; start the run without --resume")
    if resume:
        refuse_other(out, asked)
        return
    if not out.exists() or not any(out.iterdir()):
        return
    if force:
        _refuse_removal(out, inputs)
        return
    if last_checkpoint(out) is not None:
        raise DCIError(f"{out}: holds an interrupted run; go on with --resume, or start anew with --force")
    raise DCIError(f"{out}: is not empty; choose another folder, or remove what is in it with --force")


def refuse_other(out: Path, asked: Asked) -> None:
    """Make sure that a folder holds the run that is asked for, interrupted or finished.

    Raises:
        DCIError: If it was begun otherwise: half of a run would be of one configuration, and half of another.
    """
    path = out / CONFIG
    try:
        begun = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise DCIError(f"{path}: cannot be read ({' '.join(str(error).split())}); start anew with --force") from error
    for key, value in yaml.safe_load(asked.to_yaml()).items():
        was = begun.get(key) if isinstance(begun, dict) else None
        if key not in MAY_DIFFER and was != value:
            raise DCIError(
                f"{out}: the run was begun with `{key}` {was!r}, and is now to go on with {value!r}; give the same as "
                "then, or start anew with --force"
            )


def _refuse_removal(out: Path, inputs: Iterable[Any]) -> None:
    """Make sure that the folder holds nothing that is needed: it is removed with all that is in it."""
    named = [str(path) for path in inputs if isinstance(path, str | Path)]
    # Of coco:FOLDER and localized_narratives:FOLDER:PHOTOS it is the folders that count.
    rests = [name.partition(":")[2] for name in named]
    parts = [*named, *rests, *(part for rest in rests for part in rest.split(":"))]
    for path in (Path.cwd(), Path.home(), *(Path(part).expanduser() for part in parts)):
        if path.parts and path.exists() and path.resolve().is_relative_to(out.resolve()):
            raise DCIError(f"{out}: --force would remove {path} with it; choose another folder")


def prepare(out: Path, resume: bool, force: bool, asked: Asked) -> None:
    """Make the folder, empty unless a run is resumed, and write down what run it is."""
    check(out, resume, force, asked)
    if out.exists() and force and not resume:
        shutil.rmtree(out)
    # What an interrupted run has left there may be unfinished.
    shutil.rmtree(out / WORK, ignore_errors=True)
    (out / WORK).mkdir(parents=True)
    write_whole(out / CONFIG, asked.to_yaml().encode("utf-8", "surrogatepass"), force=True)


def is_finished(out: Path) -> bool:
    """Whether a run has come to its end in this folder."""
    return (out / AFTER).is_file() and not (out / CHECKPOINTS).exists()


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
    run = {"used": trained.used, "trainable": trained.trainable, "best_step": trained.best_step}
    run |= {"seconds": round(trained.seconds, 1), "processes": trained.processes, "environment": trained.versions}
    files = {
        "training_log.json": json.dumps(run | {"log": trained.log}, indent=1) + "\n",
        BEFORE: trained.before.to_json(),
        AFTER: trained.after.to_json(),
    }
    for name, content in files.items():
        write_whole(trained.folder / name, content.encode("utf-8", "surrogatepass"), force=True)
    card.write(trained)
    for working in (CHECKPOINTS, WORK):
        shutil.rmtree(trained.folder / working, ignore_errors=True)
