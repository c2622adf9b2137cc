"""The same run with several seeds: what of a difference is chance."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dci import DCIError
from dci_metrics.distributed import is_main_process
from dci_metrics.files import write_whole
from dci_metrics.results import Result, format_table, percent
from dci_metrics.tasks import TASKS
from dci_metrics.training import folder
from dci_metrics.training.run import train

SUMMARY = "seeds.json"


@dataclass(frozen=True)
class Seeds:
    """Scores of several runs.

    Attributes:
        model: The base model.
        before: Its scores by test; fractions.
        after: Scores of the trained models by seed and test.
    """

    model: str
    before: dict[str, float]
    after: dict[int, dict[str, float]]

    def of(self, test: str) -> tuple[float, float | None]:
        """Mean over the seeds, and their sample standard deviation; None for one seed."""
        values = [scores[test] for scores in self.after.values()]
        return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None

    def to_json(self) -> dict[str, Any]:
        """By test: before, mean, standard deviation, and the figure of each seed; fractions."""
        tests = {}
        for test, before in self.before.items():
            mean, deviation = self.of(test)
            figures = {str(seed): scores[test] for seed, scores in self.after.items()}
            tests[test] = {"before": before, "mean": mean, "standard_deviation": deviation, "seeds": figures}
        return {"model": self.model, "tests": tests}

    def report(self) -> str:
        """The table, in percent."""
        seeds = list(self.after)
        rows: list[tuple[str, ...]] = [("test", "before", "mean", "sd", *(f"seed {seed}" for seed in seeds))]
        for test, before in self.before.items():
            mean, deviation = self.of(test)
            figures = [percent(self.after[seed][test]) for seed in seeds]
            sd = percent(deviation) if deviation is not None else "–"
            rows.append((TASKS[test].title, percent(before), percent(mean), sd, *figures))
        return f"{format_table(rows)}\n\nIn percent; sd: sample standard deviation over the seeds."


def train_seeds(
    model: str, dataset: str, output_dir: str | Path, seeds: Sequence[int], *, resume: bool = False, **options: Any
) -> Seeds:
    """Run `train` once a seed, each in a folder of its own, and put the scores together.

    Args:
        model: As for `train`.
        dataset: As for `train`.
        output_dir: Folder to write: `seed-N/` of each run, and `seeds.json`.
        seeds: Each once.
        resume: Whether finished runs are kept and an interrupted one goes on.
        **options: More of `train`'s.

    Raises:
        DCIError: As `train`, or if there is no seed or one is named twice.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise DCIError(f"seeds: expected some different whole numbers, got {', '.join(map(str, seeds)) or 'none'}")
    out = Path(output_dir)
    folders = {seed: out / f"seed-{seed}" for seed in seeds}
    # All are looked at before the first one is run.
    todo = [seed for seed, path in folders.items() if not (resume and (path / folder.AFTER).is_file())]
    for seed in todo:
        goes_on = resume and folder.last_checkpoint(folders[seed]) is not None
        folder.check(folders[seed], goes_on, options.get("force", False))
    for seed in todo:
        has_checkpoint = resume and folder.last_checkpoint(folders[seed]) is not None
        train(model, dataset, folders[seed], seed=seed, resume=has_checkpoint, **options)
    results = {seed: Result.load(path / folder.AFTER) for seed, path in folders.items()}
    before = Result.load(folders[seeds[0]] / folder.BEFORE)
    found = Seeds(model, _values(before), {seed: _values(result) for seed, result in results.items()})
    if is_main_process():
        content = json.dumps(found.to_json(), indent=1) + "\n"
        write_whole(out / SUMMARY, content.encode(), force=True)
    return found


def _values(result: Result) -> dict[str, float]:
    return {test: value for test, value in result.values().items() if value is not None}
