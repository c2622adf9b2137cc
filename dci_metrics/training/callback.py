"""The benchmark as a callback: scores on validation, in this package's Trainer or in anybody else's."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from dci_metrics.benchmark import evaluate
from dci_metrics.encoders.base import DualEncoder
from dci_metrics.matching import select_tasks

VALIDATION_TESTS = ("all_scm", "all_neg")
"""The tests that are run while training: those that need one caption and one negative of each entry."""


class BenchmarkCallback(TrainerCallback):  # type: ignore[misc, unused-ignore]
    """Runs the benchmark whenever the Trainer evaluates, and adds its scores to the metrics.

    They are called `eval_all_scm`, `eval_all_neg` and so on, fractions, and may decide the best checkpoint
    (`metric_for_best_model="eval_all_neg"`, `greater_is_better=True`).

    Args:
        encoder: Of the model that is trained: `dci_metrics.encoders.load(model, processor=processor)`. It computes in
            evaluation mode, and the model is put back into the mode that it was in.
        dataset: As for `dci_metrics.evaluate`.
        split: Of the dataset.
        tests: Which.
        batch_size: Images, and texts, at once; None for what suits the device.
        photos: Folder of photos or `sa_000138.tar`, where a dataset given by its name has none.
        on_error: "raise", or "skip" to pass over photos that are missing or broken.
        log: Told the scores, such as `trainer.log`. Without it they stand in the Trainer's log history alone.

    Example:
        >>> encoder = dci_metrics.encoders.load(model, processor=processor)
        >>> trainer.add_callback(BenchmarkCallback(encoder, "dci", log=trainer.log))
    """

    def __init__(
        self,
        encoder: DualEncoder,
        dataset: Any,
        split: str = "validation",
        tests: Iterable[str] = VALIDATION_TESTS,
        batch_size: int | None = None,
        photos: str | Path | None = None,
        on_error: str = "raise",
        log: Callable[[dict[str, float]], None] | None = None,
    ) -> None:
        self.encoder, self.dataset, self.split, self.log = encoder, dataset, split, log
        self.batch_size, self.photos, self.on_error = batch_size, photos, on_error
        self.tests = [task.key for task in select_tasks(tests)]

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: dict[str, Any] | None = None, **_: Any) -> None:
        """Add the scores to the metrics that the Trainer has just computed."""
        found = {f"eval_{test}": value for test, value in self.scores().items()}
        if metrics is not None:
            metrics.update(found)
        if self.log is not None:
            self.log(found)
        else:
            state.log_history.append(found | {"step": state.global_step, "epoch": state.epoch})

    def scores(self) -> Mapping[str, float]:
        """The scores of the model as it is now."""
        model = getattr(self.encoder, "model", None)
        modes = [(part, part.training) for part in model.modules()] if isinstance(model, torch.nn.Module) else []
        if isinstance(model, torch.nn.Module):
            model.eval()
        try:
            result = evaluate(
                self.encoder,
                self.dataset,
                split=self.split,
                tests=self.tests,
                batch_size=self.batch_size,
                photos=self.photos,
                on_error=self.on_error,
                progress=False,
            )
        finally:
            for part, mode in modes:
                part.training = mode
        return {test: value for test, value in result.values().items() if value is not None}
