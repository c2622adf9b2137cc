"""The page of `dci report` for results of retrieval."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dci_metrics.report_models import match, models_of, render
from dci_metrics.report_plots import forest
from dci_metrics.report_queries import agree, open_data, pick_shared, pick_worst, walk, without_text
from dci_metrics.results import Result, Score
from dci_metrics.retrieval import examples
from dci_metrics.retrieval.measures import ListKey, ScoreKey, measure_of
from dci_metrics.retrieval.protocols import DIRECTIONS, PROTOCOLS
from dci_metrics.retrieval.table import columns_of


def page(
    paths: Sequence[Path],
    results: Sequence[Result],
    dataset: Any,
    photos: str | Path | None,
    examples_files: Sequence[Path],
) -> str:
    """The page's text.

    Args:
        paths: Result files.
        results: What is in them, which can stand side by side.
        dataset: As of `report.write_report`.
        photos: Likewise.
        examples_files: Likewise.

    Raises:
        DCIError: If the dataset is another one, or a file of examples is of none of the results.
    """
    found = match(examples_files, paths, results, examples.read, agree)
    source, reader = open_data(dataset, photos, results)
    passed_over = without_text(source, reader, results)
    picked = [pick_worst(r, *found[i], passed_over) if i in found else None for i, r in enumerate(results)]
    shared = None if found else pick_shared(results, passed_over)
    wanted = {photo for queries in [*picked, shared] for query in queries or () for photo in query.photos}
    seen = walk(source, reader, results, wanted)
    models = models_of(paths, results, [None if queries is None else seen.complete(queries) for queries in picked])
    scores = {name: score for result in results for name, score in result.scores.items()}
    keys = list(dict.fromkeys(ScoreKey.parse(name).ranks for result in results for name in result.scores))
    titles = {
        key: (of.protocol, DIRECTIONS[of.direction]) for key, of in zip(keys, map(ListKey.parse, keys), strict=True)
    }
    shown = {f"{key}_r1": ", ".join(title) for key, title in titles.items()}
    return render(
        "retrieval.html",
        models,
        directions=DIRECTIONS,
        columns={column: measure_of(column).title for column in columns_of(scores)},
        blocks=[(*titles[key], _block(results, key, columns_of(scores))) for key in keys],
        protocols=[(key, PROTOCOLS.get(key), score) for key, score in _protocols(scores).items()],
        forest=forest({model.label: model.result for model in models}, shown),
        left_out=_left_out(_protocols(scores)),
        shared=None if shared is None else seen.complete(shared),
    )


def _block(
    results: Sequence[Result], key: str, columns: Sequence[str]
) -> list[tuple[int, dict[str, tuple[Score, bool] | None]]]:
    """One protocol and direction: each model that has it, by measure its score, and whether that is the best one."""
    rows = {i: {column: result.scores.get(f"{key}_{column}") for column in columns} for i, result in enumerate(results)}
    rows = {i: row for i, row in rows.items() if any(row.values())}
    best = {}
    for column in columns:
        values = [score.value for row in rows.values() if (score := row[column]) and score.value is not None]
        if len(values) > 1:
            best[column] = max(values) if measure_of(column).higher_is_better else min(values)
    return [
        (
            i,
            {
                column: None if score is None else (score, score.value == best.get(column))
                for column, score in row.items()
            },
        )
        for i, row in rows.items()
    ]


def _protocols(scores: dict[str, Score]) -> dict[str, Score]:
    """Any score of each protocol: all of them tell its photos and texts."""
    return {ScoreKey.parse(name).protocol: score for name, score in scores.items()}


def _left_out(protocols: dict[str, Score]) -> list[tuple[str, str, str]]:
    """Photos that are not in a protocol: (reason, protocols, photos)."""
    found: dict[tuple[str, str], list[str]] = {}
    for protocol, score in protocols.items():
        for left in score.left_out:
            found.setdefault((left["reason"], protocol), []).append(left["image_id"])
    return [(reason, protocol, ", ".join(photos)) for (reason, protocol), photos in found.items()]
