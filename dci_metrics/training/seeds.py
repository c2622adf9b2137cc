"""The same run with several seeds: what of a difference is chance."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import jinja2

from dci import DCIError
from dci_metrics import comparison
from dci_metrics.distributed import is_main_process
from dci_metrics.files import write_whole
from dci_metrics.results import Result, format_table, percent
from dci_metrics.sources import open_source
from dci_metrics.tasks import TASKS
from dci_metrics.training import folder
from dci_metrics.training.config import Lora, TrainConfig
from dci_metrics.training.run import resolve, train

SUMMARY = "seeds.json"
CHANGES = {field.name for part in (TrainConfig, Lora) for field in fields(part)} - {"preset"}
"""Options of `train` that change a field of the preset."""

TEMPLATE = Path(__file__).parent / "templates" / "seeds.md.j2"


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

    def card(self, name: str, asked: folder.Asked) -> str:
        """The README of the folder: the same table, and what was run."""
        rows = []
        for test, before in self.before.items():
            mean, deviation = self.of(test)
            after = f"{percent(mean)} ± {percent(deviation)}" if deviation is not None else percent(mean)
            rows.append((TASKS[test].title, percent(before), after, *(percent(of[test]) for of in self.after.values())))
        template = jinja2.Template(TEMPLATE.read_text("utf-8"), keep_trailing_newline=True)
        run = {"dataset": asked.dataset, "test_dataset": asked.test_dataset, "preset": asked.config.preset}
        return str(template.render(name=name, found=self, rows=rows, **run))


def train_seeds(
    model: str, dataset: str, output_dir: str | Path, seeds: Sequence[int], *, resume: bool = False, **options: Any
) -> Seeds:
    """Run `train` once a seed, each in a folder of its own, and put the scores together.

    Args:
        model: As for `train`.
        dataset: As for `train`.
        output_dir: Folder to write: `seed-N/` of each run, `seeds.json` and a README.
        seeds: Each once.
        resume: Whether finished runs are kept and an interrupted one goes on; they must be those that are asked for.
        **options: More of `train`'s.

    Raises:
        DCIError: As `train`, or if a seed is none, or there is none, or one is named twice.
    """
    if not seeds or len(set(seeds)) != len(seeds) or not all(map(_is_seed, seeds)):
        raise DCIError(f"seeds: expected some different whole numbers, got {', '.join(map(str, seeds)) or 'none'}")
    out = Path(output_dir)
    folders = {seed: out / f"seed-{seed}" for seed in seeds}
    # All are looked at before the first one is run.
    todo = [seed for seed, path in folders.items() if not (resume and folder.is_finished(path))]
    changes = {key: value for key, value in options.items() if key in CHANGES}
    config = resolve(dataset, options.get("preset", "sdci_p1"), seed=seeds[0], **changes)
    run = folder.Asked(model, open_source(dataset, split="train").id, "", config)
    for seed, path in folders.items():
        asked = replace(run, config=replace(config, seed=seed))
        if seed not in todo:
            folder.refuse_other(path, asked)
        else:
            inputs = (model, dataset, options.get("test_dataset"), options.get("preset"))
            folder.check(path, _goes_on(path, resume), options.get("force", False), asked, inputs)
    for seed in todo:
        train(model, dataset, folders[seed], seed=seed, resume=_goes_on(folders[seed], resume), **options)
    results = {seed: Result.load(path / folder.AFTER) for seed, path in folders.items()}
    before = Result.load(folders[seeds[0]] / folder.BEFORE)
    for seed, result in results.items():
        comparison.refuse_others(before, result, (folder.BEFORE, str(folders[seed] / folder.AFTER)))
    found = Seeds(model, _values(before), {seed: _values(result) for seed, result in results.items()})
    if is_main_process():
        write_whole(out / SUMMARY, (json.dumps(found.to_json(), indent=1) + "\n").encode(), force=True)
        card = found.card(out.resolve().name, replace(run, test_dataset=before.dataset["id"]))
        write_whole(out / "README.md", card.encode("utf-8", "surrogatepass"), force=True)
    return found


def _is_seed(seed: Any) -> bool:
    return isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0


def _goes_on(path: Path, resume: bool) -> bool:
    return resume and folder.last_checkpoint(path) is not None


def _values(result: Result) -> dict[str, float]:
    return {test: value for test, value in result.values().items() if value is not None}
