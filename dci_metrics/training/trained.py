"""What a run made, and what is told of it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dci_metrics.results import Result
from dci_metrics.training.config import TrainConfig


@dataclass(frozen=True)
class Trained:
    """What a run made.

    Attributes:
        folder: With the adapter, or the model, and all that tells of it.
        config: The run.
        model: The base model.
        dataset: What it was trained on.
        test_dataset: What scored it.
        before: Scores of the base model.
        after: Scores of the trained one, by the same tests on the same data.
        log: What Trainer logged.
        used: By split: entries used, and how many photos and entries were left out by reason.
        trainable: Trained weights.
        best_step: Of the checkpoint that was kept.
        seconds: That training took, validation included.
        processes: That shared each batch.
    """

    folder: Path
    config: TrainConfig
    model: str
    dataset: str
    test_dataset: str
    before: Result
    after: Result
    log: list[dict[str, Any]]
    used: dict[str, dict[str, Any]]
    trainable: int
    best_step: int
    seconds: float
    processes: int
