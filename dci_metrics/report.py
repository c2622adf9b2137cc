"""`dci report`: results of several models on the same data as one HTML page that needs no network.

The page is made of the templates in `report_templates/`; this module gathers what they show.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from dci import DCIError
from dci_metrics import depths, examples
from dci_metrics.comparison import refuse_others
from dci_metrics.files import refuse_unwritable, write_whole
from dci_metrics.report_cases import Case, Data, pick_shared, pick_worst, walk
from dci_metrics.report_plots import breakdown_panels, forest, scatter_panels
from dci_metrics.results import Result, percent
from dci_metrics.sources import open_source
from dci_metrics.tasks import TASKS

TEMPLATES = Path(__file__).parent / "report_templates"

COLOURS = 8
"""Models that have a colour and mark of their own; further ones begin anew."""


@dataclass(frozen=True)
class Model:
    """One result as the page shows it.

    Attributes:
        label: A short name, unlike that of the others.
        mark: Number of its colour and mark.
        result: The whole of it.
        cases: Its worst entries; None where no file of examples was given for it.
    """

    label: str
    mark: int
    result: Result
    cases: list[Case] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """What its figures depend on."""
        result = self.result
        versions = ", ".join(f"{name} {version}" for name, version in result.environment.items())
        facts = {**result.model, **result.settings, "texts cut": _cut(result), "environment": versions}
        return {name.replace("_", " "): "–" if fact is None else str(fact) for name, fact in facts.items()}


def write_report(
    results: Sequence[Path],
    dataset: Any,
    out: Path,
    *,
    photos: str | Path | None = None,
    examples_files: Sequence[Path] = (),
    force: bool = False,
) -> None:
    """Write the page.

    Args:
        results: Result files, of the same data and settings.
        dataset: That data, as `dci_metrics.evaluate` takes it; crops and captions come from it.
        out: The HTML file.
        photos: Folder of photos or `sa_000138.tar`, where the dataset has none.
        examples_files: Files of `dci eval --examples`, each of one of the results, in any order. For those models the
            page has the entries with the largest negative margins; without any, entries that all models got wrong.
        force: Whether an existing file is overwritten.

    Raises:
        DCIError: If results are of other data, a file of examples is of none of them, or a file cannot be used.
    """
    refuse_unwritable(out, force)
    read = [Result.load(path) for path in results]
    if not read:
        raise DCIError("expected at least one result file")
    for path, result in zip(results[1:], read[1:], strict=True):
        refuse_others(read[0], result, (str(results[0]), str(path)))
    rows = _match(examples_files, results, read)
    picked = [pick_worst(rows[i]) if i in rows else None for i in range(len(read))]
    shared = None if rows else pick_shared(read)
    wanted = {case.entry for cases in [*picked, shared] for case in cases or ()}
    split = read[0].dataset["split"]
    source = open_source(dataset, "sdci", split, "skip", photos)
    data = walk(source, read[0], wanted)
    models = [
        Model(label, i % COLOURS, result, None if cases is None else data.complete(cases))
        for i, (label, result, cases) in enumerate(zip(_labels(results, read), read, picked, strict=True))
    ]
    page = render(models, data, depths.find(dataset, split), None if shared is None else data.complete(shared))
    write_whole(out, page.encode("utf-8", "replace"), force)


def render(models: Sequence[Model], data: Data, known: depths.Depths | None, shared: Sequence[Case] | None) -> str:
    """The page's text; everything in it that came from data is escaped."""
    environment = templates()
    environment.filters |= {"percent": percent, "title_of": _title}
    results = {model.label: model.result for model in models}
    tests = list(dict.fromkeys(test for result in results.values() for test in result.scores))
    return environment.get_template("report.html").render(
        models=models,
        tests={test: _title(test) for test in tests},
        dataset=models[0].result.dataset,
        settings=models[0].result.settings,
        left_out=_left_out(models[0].result),
        forest=forest(results, tests),
        scatter=scatter_panels(results),
        breakdown=breakdown_panels(results, data.entries, known),
        depths_known=known is not None,
        shared=shared,
    )


def templates(*folders: Path) -> jinja2.Environment:
    """The templates of this page, after those of other folders; what goes into HTML is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def _labels(paths: Sequence[Path], results: Sequence[Result]) -> list[str]:
    """Short names of the models: a folder by its last part; with the file's name where two are the same."""
    ids = [result.name for result in results]
    short = [Path(name).name if name.count("/") > 1 or name.startswith((".", "/")) else name for name in ids]
    labels = [
        f"{name} ({path.stem})" if short.count(name) > 1 else name for name, path in zip(short, paths, strict=True)
    ]
    return [f"{label} #{i + 1}" if labels.count(label) > 1 else label for i, label in enumerate(labels)]


def _match(files: Sequence[Path], paths: Sequence[Path], results: Sequence[Result]) -> dict[int, list[dict[str, Any]]]:
    """The rows of each file of examples, by the number of its result."""
    found: dict[int, list[dict[str, Any]]] = {}
    for path in files:
        run, table = examples.read(path)
        rows = table.to_pylist()
        place = next((i for i, r in enumerate(results) if i not in found and _is_of(r, run, rows)), None)
        if place is None:
            names = ", ".join(map(str, paths))
            raise DCIError(
                f"{path}: holds the examples of none of {names}; expected those of the same run of `dci eval`"
            )
        found[place] = rows
    return found


def _is_of(result: Result, run: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether examples are of a result: the same run, and the same entries right."""
    if json.loads(json.dumps(examples.about(result))) != run:
        return False
    right: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        if row["right"] is not None:
            right.setdefault(row["test"], {})[row["image_id"], row["key"]] = float(row["right"])
    return right == {test: values for test in result.outcomes if (values := result.values_of(test))}


def _cut(result: Result) -> str | None:
    """What is lost of texts that are longer than a model reads; None where it does not tell."""
    known = [score for score in result.scores.values() if score.truncated is not None]
    if not known:
        return None
    most = max(known, key=lambda score: score.truncated or 0)
    return f"up to {percent(most.truncated)} % of a test's, {most.tokens_lost} tokens" if most.truncated else "none"


def _left_out(result: Result) -> list[tuple[str, str, str]]:
    """Photos that are not in a test: (reason, tests, photos)."""
    found: dict[tuple[str, str], list[str]] = {}
    for test, score in result.scores.items():
        for left in score.left_out:
            found.setdefault((left["image_id"], left["reason"]), []).append(_title(test))
    by_reason: dict[tuple[str, str], list[str]] = {}
    for (image_id, reason), titles in found.items():
        by_reason.setdefault((reason, "; ".join(titles)), []).append(image_id)
    return [(reason, titles, ", ".join(photos)) for (reason, titles), photos in by_reason.items()]


def _title(test: str) -> str:
    return TASKS[test].title if test in TASKS else test
