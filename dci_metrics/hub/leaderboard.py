"""`dci leaderboard`: what models score, from the Hub or from result files, as a table. Figures are in percent."""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import DatasetLeaderboardEntry, EvalResultEntry, HfApi
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from dci import DCIError
from dci_metrics.comparison import refuse_others
from dci_metrics.hub.eval_results import HUB_ID, Notes, in_percent, is_folder, is_local, read_notes, scored_model
from dci_metrics.hub.refusals import in_one_line
from dci_metrics.hub.session import patient
from dci_metrics.results import Result, format_table
from dci_metrics.tasks import GROUP_SIZE, PAPER_TASKS, TASKS

FIRST = next(iter(TASKS))
"""The test that the table is sorted by, and the first task in eval.yaml."""

AT_ONCE = 8
"""Models that the Hub is asked about at once."""


@dataclass(frozen=True)
class Figure:
    """One score, and its 95 % interval where it is known."""

    value: float
    ci95: tuple[float, float] | None = None


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        model: Its name.
        repo: Where it lies on the Hub; None for a folder.
        family: Such as "clip", where it is known.
        dtype: Likewise.
        scores: By test.
        pull_request: Number of the open one that the scores are from, if any.
    """

    model: str
    repo: str | None
    family: str | None
    dtype: str | None
    scores: dict[str, Figure]
    pull_request: int | None = None


@dataclass(frozen=True)
class Board:
    """A leaderboard.

    Attributes:
        source: What it was made from.
        rows: Its models.
        chance: Of each test, where it is known.
    """

    source: str
    rows: list[Row]
    chance: dict[str, float] = field(default_factory=lambda: nominal_chance())

    @property
    def tests(self) -> list[str]:
        """Those that any model has, in the paper's order; those of the paper where there is no model."""
        return [key for key in TASKS if any(key in row.scores for row in self.rows)] or list(PAPER_TASKS)


def nominal_chance() -> dict[str, float]:
    """Chance of each test in full groups; that inside photos depends on the photos."""
    groups = [str(i) for i in range(GROUP_SIZE)]
    known = {key: task.chance(groups) for key, task in TASKS.items() if task.kind != "photo_scm"}
    return {key: 100 * chance for key, chance in known.items() if chance is not None}


def from_results(paths: Sequence[Path]) -> Board:
    """The models of result files, which are of the same data and settings.

    Args:
        paths: Files, and folders of files that end in .json.

    Raises:
        DCIError: If there is none, one cannot be read, or they cannot be compared.
    """
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise DCIError(f"{', '.join(map(str, paths))}: no result file (*.json); `dci eval --out` writes them")
    results = [Result.load(file) for file in files]
    for file, result in zip(files[1:], results[1:], strict=True):
        refuse_others(results[0], result, (str(files[0]), str(file)))
    chance = {key: s.chance for result in results for key, s in result.scores.items() if s.chance is not None}
    dataset = results[0].dataset
    source = f"{_short(str(dataset['id']))} ({dataset['config']}, {dataset['split']})"
    return Board(source, [_row(result) for result in results], {key: 100 * value for key, value in chance.items()})


def _row(result: Result) -> Row:
    scores = {
        key: Figure(in_percent(score.value), _interval(score.ci95))
        for key, score in result.scores.items()
        if score.value is not None
    }
    repo = scored_model(result).removeprefix("open_clip:hf-hub:")
    on_hub = HUB_ID.fullmatch(repo) is not None and not is_folder(result)
    name = " + ".join(_short(str(part)) for part in (result.model["id"], result.model.get("adapter")) if part)
    return Row(name, repo if on_hub else None, result.model.get("family"), result.settings.get("dtype"), scores)


def _short(name: str) -> str:
    """A folder by its last part: where it lies on this machine is nobody's business."""
    return Path(name).name if is_local(name) else name


def _interval(ci95: tuple[float, float] | None) -> tuple[float, float] | None:
    return None if ci95 is None else (in_percent(ci95[0]), in_percent(ci95[1]))


def from_hub(dataset: str) -> Board:
    """The leaderboard of a dataset on the Hub.

    The Hub's list says which models there are, with the figure of one test; the others stand with each model.

    Raises:
        DCIError: If there is no such dataset, it has no leaderboard yet, or the Hub does not answer.
    """
    if not HUB_ID.fullmatch(dataset):
        raise DCIError(f"{dataset}: is no repo on the Hub; expected OWNER/NAME")
    api = HfApi()
    none_yet = DCIError(
        f"{dataset}: has no leaderboard yet; it gets one when Hugging Face has put it on its list and a model has "
        "results (docs/leaderboard.md)"
    )
    with in_one_line(dataset, "dataset"), patient():
        try:
            listed = api.get_dataset_leaderboard(dataset, base_model_only=False)
        except (RepositoryNotFoundError, GatedRepoError):
            raise
        except HfHubHTTPError as error:
            if error.response.status_code not in (400, 404):
                raise
            raise none_yet from error
    if not listed:
        raise none_yet
    by_model: dict[str, list[DatasetLeaderboardEntry]] = {}
    for entry in listed:
        by_model.setdefault(entry.model_id, []).append(entry)
    with patient(), ThreadPoolExecutor(AT_ONCE) as pool:
        known = pool.map(lambda model: _entries(api, model, dataset), by_model)
        rows = [_hub_row(model, found, by_model[model]) for model, found in zip(by_model, known, strict=True)]
    return Board(dataset, rows)


def _entries(api: HfApi, model: str, dataset: str) -> list[EvalResultEntry]:
    with in_one_line(model, "model"):
        try:
            info = api.model_info(model, expand=["evalResults"])
        except RepositoryNotFoundError:
            return []  # gone, or private, since the list was made
        except json.JSONDecodeError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError):
            return []  # the client stumbles over an entry that is none; what the list says of the model stays
    return [entry for entry in info.eval_results or [] if entry.dataset_id == dataset]


def _hub_row(model: str, found: Iterable[EvalResultEntry], listed: Sequence[DatasetLeaderboardEntry]) -> Row:
    first = listed[0]
    texts = {_task_of(entry): (entry.value, entry.notes) for entry in reversed(listed)}
    texts |= {entry.task_id: (entry.value, entry.notes) for entry in found}
    notes = {key: read_notes(text) for key, (_, text) in texts.items()}
    scores = {
        key: Figure(float(value), notes[key].ci95)
        for key, (value, _) in texts.items()
        if key in TASKS and _is_percentage(value)
    }
    return Row(model, model, _first(notes, "family"), _first(notes, "dtype"), scores, first.pull_request)


def _is_percentage(value: object) -> bool:
    """Whether a value is a figure of these tests: anybody may write anything into a model's file of results."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 100


def _task_of(entry: DatasetLeaderboardEntry) -> str:
    """The test of a listed figure; the list need not say, and is of the first one then."""
    extra = vars(entry)
    return str(extra.get("taskId") or extra.get("task_id") or FIRST)


def _first(notes: Mapping[str, Notes], name: str) -> str | None:
    return next((value for found in notes.values() if (value := getattr(found, name)) is not None), None)


def table(board: Board, test: str | None = None, sort: str | None = None) -> str:
    """The leaderboard as text for a terminal.

    Args:
        board: It.
        test: The one test to show, with intervals; None for all.
        sort: The test that decides the order; by default `test`, or the first one.

    Raises:
        DCIError: If a test is none, or no model has it.
    """
    for key in (test, sort):
        if key is not None and key not in board.tests:
            raise DCIError(f"no test {key!r}: {board.source} has {', '.join(board.tests)}")
    by = sort or test or (FIRST if FIRST in board.tests else board.tests[0])
    none = Figure(float("-inf"))
    ranked = sorted(board.rows, key=lambda row: (-row.scores.get(by, none).value, row.model.lower()))
    lines = [_one_test(ranked, test) if test is not None else _all_tests(ranked, board.tests)]
    shown = [test] if test is not None else board.tests
    chances = [f"{TASKS[key].title} {board.chance[key]:.2f}" for key in shown if key in board.chance]
    models = "1 model" if len(ranked) == 1 else f"{len(ranked)} models"
    head = f"{board.source}: {models} by {TASKS[by].title}, in percent"
    return "\n".join([head, "", *lines, *(["", f"Chance: {', '.join(chances)}."] if chances else [])])


def _all_tests(rows: Sequence[Row], tests: Sequence[str]) -> str:
    cells = [("model", "family", *(TASKS[key].title for key in tests))]
    for row in rows:
        figures = (f"{row.scores[key].value:.2f}" if key in row.scores else "–" for key in tests)
        cells.append((_name(row), row.family or "–", *figures))
    return format_table(cells)


def _one_test(rows: Sequence[Row], test: str) -> str:
    cells = [("model", "family", TASKS[test].title, "95 % interval", "dtype")]
    for row in rows:
        score = row.scores.get(test)
        interval = f"{score.ci95[0]:.2f} – {score.ci95[1]:.2f}" if score and score.ci95 else "–"
        value = f"{score.value:.2f}" if score else "–"
        cells.append((_name(row), row.family or "–", value, interval, row.dtype or "–"))
    return format_table(cells)


def _name(row: Row) -> str:
    return row.model if row.pull_request is None else f"{row.model} (pull request {row.pull_request})"
