"""`dci report`: results of several models on the same data as one HTML page that needs no network.

The page is made of the templates in `report_templates/`; this module gathers what it shows of the tests of entries,
`report_retrieval` what it shows of retrieval.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dci import DCIError
from dci_metrics import depths, examples, report_retrieval
from dci_metrics.comparison import refuse_mixed
from dci_metrics.described import depths_of, read_described
from dci_metrics.files import refuse_unwritable, write_whole
from dci_metrics.report_cases import pick_shared, pick_worst, walk
from dci_metrics.report_models import match, models_of, render
from dci_metrics.report_plots import breakdown_panels, forest, scatter_panels
from dci_metrics.results import Result
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_row
from dci_metrics.tasks import title_of


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
        dataset: That data, as `dci_metrics.evaluate` takes it; photos, crops and captions come from it.
        out: The HTML file.
        photos: Folder of photos or `sa_000138.tar`, where the dataset has none.
        examples_files: Files of `dci eval --examples`, each of one of the results, in any order. For those models the
            page has the entries with the largest negative margins, or of retrieval the queries of the worst ranks;
            without any, those that all models got wrong.
        force: Whether an existing file is overwritten.

    Raises:
        DCIError: If results are of other data, a file of examples is of none of them, or a file cannot be used.
    """
    refuse_unwritable(out, force)
    read = [Result.load(path) for path in results]
    if not read:
        raise DCIError("expected at least one result file")
    refuse_mixed(read, list(map(str, results)))
    page = report_retrieval.page if read[0].ranks else _page
    write_whole(out, page(results, read, dataset, photos, examples_files).encode("utf-8", "replace"), force)


def _page(
    paths: Sequence[Path],
    read: Sequence[Result],
    dataset: Any,
    photos: str | Path | None,
    examples_files: Sequence[Path],
) -> str:
    found = match(examples_files, paths, read, _read_examples, _agree)
    picked = [pick_worst(found[i][1]) if i in found else None for i in range(len(read))]
    shared = None if found else pick_shared(read)
    wanted = {case.entry for cases in [*picked, shared] for case in cases or ()}
    split = read[0].dataset["split"]
    is_full = read[0].settings["mode"] == "full"
    source = open_source(dataset, "full" if is_full else "sdci", split, "skip", photos)
    data = walk(source, read[0], wanted, read_described if is_full else read_row)
    models = models_of(paths, read, [None if cases is None else data.complete(cases) for cases in picked])
    results = {model.label: model.result for model in models}
    tests = {test: title_of(test) for result in read for test in result.scores}
    known = depths_of(data.entries.values()) if is_full else depths.find(dataset, split)
    return render(
        "report.html",
        models,
        tests=tests,
        settings=read[0].settings,
        left_out=_left_out(read[0]),
        forest=forest(results, tests),
        scatter=scatter_panels(results),
        breakdown=breakdown_panels(results, data.entries, known),
        depths_known=known is not None,
        shared=None if shared is None else data.complete(shared),
    )


def _read_examples(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    run, table = examples.read(path)
    return run, table.to_pylist()


def _agree(result: Result, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the same entries are right."""
    right: dict[str, dict[tuple[str, str], float]] = {}
    for row in rows:
        if row["right"] is not None:
            right.setdefault(row["test"], {})[row["image_id"], row["key"]] = float(row["right"])
    return right == {test: values for test in result.outcomes if (values := result.values_of(test))}


def _left_out(result: Result) -> list[tuple[str, str, str]]:
    """Photos that are not in a test: (reason, tests, photos)."""
    found: dict[tuple[str, str], list[str]] = {}
    for test, score in result.scores.items():
        for left in score.left_out:
            found.setdefault((left["image_id"], left["reason"]), []).append(title_of(test))
    by_reason: dict[tuple[str, str], list[str]] = {}
    for (image_id, reason), titles in found.items():
        by_reason.setdefault((reason, "; ".join(titles)), []).append(image_id)
    return [(reason, titles, ", ".join(photos)) for (reason, titles), photos in by_reason.items()]
