"""What a run made, and what is told of it."""

import hashlib
import json
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from dci_metrics.results import Result, environment
from dci_metrics.training.config import TrainConfig
from dci_metrics.training.entries import Entries


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
        used: By split, as `used` gives it.
        trainable: Trained weights.
        best_step: Of the checkpoint that was kept.
        seconds: That training took, validation included; of a resumed run since then.
        processes: That shared each batch.
        hardware: That it ran on, in words.
        auto_class: What of transformers loads the base model.
        resumed: Whether the run was interrupted and went on.
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
    hardware: str
    auto_class: str
    resumed: bool

    @property
    def versions(self) -> dict[str, str]:
        """Of all that a run depends on."""
        return environment() | {name: metadata.version(name) for name in ("accelerate", "peft")}


def used(entries: Entries, negatives: str) -> dict[str, Any]:
    """What was used of a split, and what was not.

    Args:
        entries: Of the split.
        negatives: Where they come from, in words.

    Returns:
        photos and entries used; how many photos and entries were left_out by reason; where negatives come from; a
        fingerprint of the entries: ids, crops, captions and negatives in their order.
    """
    digest = hashlib.sha256()
    # Batch by batch: a split of DCI is not to be held in memory.
    with pa.ipc.open_stream(pa.memory_map(str(entries.path))) as batches:
        for batch in batches:
            for row in batch.to_pylist():
                digest.update(json.dumps(list(row.values())).encode())
    return {
        "photos": len(entries.photos()),
        "entries": len(entries),
        "left_out": dict(entries.left_out),
        "negatives": negatives,
        "fingerprint": digest.hexdigest(),
    }
