"""What the pages of `dci report` have in common: models, their files of examples, templates."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from dci import DCIError
from dci_metrics import examples
from dci_metrics.results import Result, percent
from dci_metrics.retrieval.table import figure
from dci_metrics.tasks import title_of

TEMPLATES = Path(__file__).parent / "report_templates"

COLOURS = 8
"""Models that have a colour and mark of their own; further ones begin anew."""

BEGINNING = 300
"""Characters of a long text that are shown at once."""


@dataclass(frozen=True)
class Model:
    """One result as a page shows it.

    Attributes:
        label: A short name, unlike that of the others.
        mark: Number of its colour and mark.
        result: The whole of it.
        cases: What it got wrong, as the page shows it; None where no file of examples was given for it.
    """

    label: str
    mark: int
    result: Result
    cases: Sequence[Any] | None = None

    @property
    def facts(self) -> dict[str, str]:
        """What its figures depend on."""
        result = self.result
        versions = ", ".join(f"{name} {version}" for name, version in result.environment.items())
        settings = {name: value for name, value in result.settings.items() if name != "protocols"}
        facts = {**result.model, **settings, "texts cut": _cut(result), "environment": versions}
        return {name.replace("_", " "): "–" if fact is None else str(fact) for name, fact in facts.items()}


def models_of(paths: Sequence[Path], results: Sequence[Result], cases: Sequence[Sequence[Any] | None]) -> list[Model]:
    """The results of some files with their labels, marks and cases."""
    labelled = enumerate(zip(_labels(paths, results), results, cases, strict=True))
    return [Model(label, i % COLOURS, result, found) for i, (label, result, found) in labelled]


def templates(*folders: Path) -> jinja2.Environment:
    """The templates of the pages, after those of other folders; what goes into HTML is escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([*folders, TEMPLATES]),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )


def render(name: str, models: Sequence[Model], **content: Any) -> str:
    """A page's text; everything in it that came from data is escaped."""
    environment = templates()
    environment.filters |= {"percent": percent, "title_of": title_of, "figure": figure, "beginning": beginning}
    facts = list(dict.fromkeys(name for model in models for name in model.facts))
    dataset = models[0].result.dataset
    return environment.get_template(name).render(models=models, facts=facts, dataset=dataset, **content)


def match(
    files: Sequence[Path],
    paths: Sequence[Path],
    results: Sequence[Result],
    read: Callable[[Path], tuple[dict[str, Any], list[dict[str, Any]]]],
    agree: Callable[[Result, Sequence[Mapping[str, Any]]], bool],
) -> dict[int, tuple[Path, list[dict[str, Any]]]]:
    """Each file of examples and its rows, by the number of its result.

    Args:
        files: In any order.
        paths: Files of the results.
        results: They.
        read: Gives the run that a file is of, and its rows.
        agree: Whether rows say the same as a result.

    Raises:
        DCIError: If a file is of none of the results.
    """
    found: dict[int, tuple[Path, list[dict[str, Any]]]] = {}
    for path in files:
        run, rows = read(path)
        of_run = (
            i for i, r in enumerate(results) if i not in found and json.loads(json.dumps(examples.about(r))) == run
        )
        place = next((i for i in of_run if agree(results[i], rows)), None)
        if place is None:
            names = ", ".join(map(str, paths))
            raise DCIError(
                f"{path}: holds the examples of none of {names}; expected those of the same run of `dci eval`"
            )
        found[place] = path, rows
    return found


def beginning(text: str) -> tuple[str, str]:
    """A text's beginning, and what follows it; of one that is not long, all of it and nothing."""
    if len(text) <= 1.5 * BEGINNING:
        return text, ""
    end = text.rfind(" ", BEGINNING // 2, BEGINNING)
    end = BEGINNING if end < 0 else end
    return text[:end], text[end:]


def _labels(paths: Sequence[Path], results: Sequence[Result]) -> list[str]:
    """Short names of the models: a folder by its last part; with the file's name where two are the same."""
    ids = [result.name for result in results]
    short = [Path(name).name if name.count("/") > 1 or name.startswith((".", "/")) else name for name in ids]
    labels = [
        f"{name} ({path.stem})" if short.count(name) > 1 else name for name, path in zip(short, paths, strict=True)
    ]
    return [f"{label} #{i + 1}" if labels.count(label) > 1 else label for i, label in enumerate(labels)]


def _cut(result: Result) -> str | None:
    """What is lost of texts that are longer than a model reads; None where it does not tell."""
    known = [score for score in result.scores.values() if score.truncated is not None]
    if not known:
        return None
    most = max(known, key=lambda score: score.truncated or 0)
    return f"up to {percent(most.truncated)} % of a test's, {most.tokens_lost} tokens" if most.truncated else "none"
