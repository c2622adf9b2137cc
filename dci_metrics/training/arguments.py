"""A run as transformers' TrainingArguments, and where it is logged."""

import importlib.util
import os
import platform
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainingArguments

from dci import DCIError
from dci_metrics.distributed import cores
from dci_metrics.training.config import LOSS, TrainConfig
from dci_metrics.training.folder import CHECKPOINTS, LOGS

STEPS_LOGGED = 1 / 50
"""How often the loss is logged, as a share of all steps."""

MOST_WORKERS = 8
"""Processes that load photos for one GPU."""


def make(config: TrainConfig, out: Path, device: str, progress: bool) -> Any:
    """The arguments of a run; they also choose the device and join the other processes.

    Raises:
        DCIError: If the batch cannot be shared by the processes, or the device cannot do what is asked of it.
    """
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if config.batch_size % processes:
        raise DCIError(
            f"batch_size: expected a multiple of the {processes} processes that share a batch, got {config.batch_size}"
        )
    if device not in ("auto", "cpu", "cuda"):
        raise DCIError(f"device: expected auto, cpu or cuda, got {device}; choose a GPU with CUDA_VISIBLE_DEVICES")
    on_cpu = device == "cpu" or (device == "auto" and not torch.cuda.is_available())
    if on_cpu and config.dtype == "float16":
        raise DCIError("dtype float16: is for GPUs; on a CPU choose bfloat16 or float32")
    count = config.evals_per_epoch * config.epochs
    # transformers reads a number below 1 as a share of all steps, and 1 as every step.
    often: dict[str, Any] = {"eval_strategy": "epoch", "save_strategy": "epoch"}
    if count > 1:
        often = dict.fromkeys(often, "steps") | {"eval_steps": 1 / count, "save_steps": 1 / count}
    best = config.metric_for_best_model
    try:
        return TrainingArguments(
            output_dir=str(out / CHECKPOINTS),
            num_train_epochs=config.epochs,
            per_device_train_batch_size=config.batch_size // processes,
            per_device_eval_batch_size=config.batch_size // processes,
            learning_rate=config.learning_rate,
            lr_scheduler_type="linear",
            optim="adamw_torch",
            weight_decay=0.0,
            max_grad_norm=1.0,
            bf16=config.dtype == "bfloat16",
            fp16=config.dtype == "float16",
            **often,
            save_total_limit=2,
            logging_steps=STEPS_LOGGED,
            load_best_model_at_end=True,
            metric_for_best_model=f"eval_{best}",
            greater_is_better=best != LOSS,
            dataloader_num_workers=_workers(config, on_cpu),
            ddp_backend="gloo" if on_cpu and processes > 1 else None,
            use_cpu=on_cpu,
            report_to="none",
            # Of trackio, which would put all runs of a machine under one name.
            project="dci-metrics",
            run_name=out.resolve().name,
            disable_tqdm=not (progress and sys.stderr.isatty()),
            seed=config.seed,
        )
    except ValueError as error:
        raise DCIError(f"dtype {config.dtype}: {' '.join(str(error).split())}") from error


def callbacks(out: Path) -> list[TrainerCallback]:
    """What logs: TensorBoard, and trackio, where they are installed; lines where there is no progress bar."""
    found: list[TrainerCallback] = [Lines()]
    if importlib.util.find_spec("tensorboard") is not None:
        from torch.utils.tensorboard import SummaryWriter
        from transformers.integrations import TensorBoardCallback

        found.append(TensorBoardCallback(SummaryWriter(str(out / LOGS))))
    if importlib.util.find_spec("trackio") is not None:
        from transformers.integrations import TrackioCallback

        found.append(TrackioCallback())
    return found


def hardware(settings: Any) -> str:
    """What a run computes on, in words."""
    if settings.device.type == "cuda":
        return torch.cuda.get_device_name(settings.device)
    return f"{settings.device.type}, {platform.machine()}, {os.cpu_count()} cores"


class Lines(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """One line an evaluation, where nobody watches a progress bar."""

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any] | None = None, **_: Any) -> None:
        """Print the loss on validation."""
        if args.disable_tqdm and state.is_world_process_zero and metrics is not None:
            print(f"step {state.global_step} of {state.max_steps}: loss on validation {metrics['eval_loss']:.4f}")


def _workers(config: TrainConfig, on_cpu: bool) -> int:
    if config.num_workers is not None:
        return config.num_workers
    if on_cpu:
        # The model needs the cores itself: a process beside it costs its threads more than what it loads.
        return 0
    return max(1, min(MOST_WORKERS, cores()))
