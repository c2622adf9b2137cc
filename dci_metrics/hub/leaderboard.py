"""`dci leaderboard`: what models score, from the Hub or from result files. Figures are in percent, but for ranks."""

import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from huggingface_hub import DatasetLeaderboardEntry, EvalResultEntry, HfApi
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

from dci import DCIError
from dci_metrics.comparison import refuse_mixed
from dci_metrics.hub.eval_results import HUB_ID, Notes, in_percent, is_folder, is_local, read_notes, scored_model
from dci_metrics.hub.refusals import in_one_line
from dci_metrics.hub.session import patient
from dci_metrics.results import Result
from dci_metrics.retrieval.measures import ScoreKey
from dci_metrics.tasks import FULL_TASKS, GROUP_SIZE, PAPER_TASKS, TASKS

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
        model: Its name, with how far it reads where that is not the usual.
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
        is_retrieval: Whether its tests are those of retrieval, such as `lotlip_i2t_r1`.
        files: Those it was made from; none where it is from the Hub.
    """

    source: str
    rows: list[Row]
    chance: dict[str, float] = field(default_factory=lambda: nominal_chance())
    is_retrieval: bool = False
    files: Sequence[Path] = ()

    @property
    def tests(self) -> list[str]:
        """Those that any model has, in the paper's order; those of the paper where there is no model."""
        if self.is_retrieval:
            return list(dict.fromkeys(key for row in self.rows for key in row.scores))
        known = (*TASKS, *FULL_TASKS)
        return [key for key in known if any(key in row.scores for row in self.rows)] or list(PAPER_TASKS)

    def by_protocol(self) -> dict[str, list[str]]:
        """Of retrieval, the tests of each protocol."""
        found: dict[str, list[str]] = {}
        for key in self.tests:
            found.setdefault(ScoreKey.parse(key).protocol, []).append(key)
        return found


def nominal_chance() -> dict[str, float]:
    """Chance of each test in full groups; that inside photos depends on the photos."""
    groups = [str(i) for i in range(GROUP_SIZE)]
    known = {key: task.chance(groups) for key, task in TASKS.items() if task.kind != "photo_scm"}
    return {key: 100 * chance for key, chance in known.items() if chance is not None}


def from_results(paths: Sequence[Path]) -> list[Board]:
    """The models of result files, which are of the same data and settings.

    Args:
        paths: Files, and folders of files that end in .json.

    Returns:
        One board for the tests of summaries, one for those of full text, one for retrieval: for those that there are.

    Raises:
        DCIError: If there is none, one cannot be read, or they cannot be compared.
    """
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    if not files:
        raise DCIError(f"{', '.join(map(str, paths))}: no result file (*.json); `dci eval --out` writes them")
    by_mode: dict[str, dict[Path, Result]] = {}
    for file in files:
        result = Result.load(file)
        by_mode.setdefault(result.settings["mode"], {})[file] = result
    return [_board(results) for results in by_mode.values()]


def _board(results: Mapping[Path, Result]) -> Board:
    found = list(results.values())
    refuse_mixed(found, list(map(str, results)))
    for file, result in results.items():
        if not result.ranks and not any(key in TASKS or key in FULL_TASKS for key in result.scores):
            raise DCIError(f"{file}: has no test of a leaderboard, but {', '.join(result.scores) or 'none'}")
    chance = {key: 100 * s.chance for result in found for key, s in result.scores.items() if s.chance is not None}
    dataset, is_retrieval = found[0].dataset, bool(found[0].ranks)
    what = f"{dataset['config']}, {dataset['split']}{', retrieval' if is_retrieval else ''}"
    source = f"{_short(str(dataset['id']))} ({what})"
    return Board(source, list(map(_row, found)), chance, is_retrieval, list(results))


def _row(result: Result) -> Row:
    scores = {
        key: Figure(score.value if score.unit == "rank" else in_percent(score.value), _interval(score.ci95))
        for key, score in result.scores.items()
        if score.value is not None
    }
    repo = scored_model(result).removeprefix("open_clip:hf-hub:")
    on_hub = HUB_ID.fullmatch(repo) is not None and not is_folder(result)
    name = " + ".join(_short(str(part)) for part in (result.model["id"], result.model.get("adapter")) if part)
    name += result.limits
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
