"""The leaderboard as text for a terminal: of retrieval a table for each protocol, since no two can be compared."""

from collections.abc import Sequence

from dci import DCIError
from dci_metrics.hub.leaderboard import FIRST, Board, Row
from dci_metrics.results import format_table
from dci_metrics.retrieval.measures import ScoreKey
from dci_metrics.tasks import title_of


def table(boards: Sequence[Board], test: str | None = None, sort: str | None = None) -> str:
    """All of some leaderboards, one below the other.

    Args:
        boards: They.
        test: The one test to show, with intervals; None for all.
        sort: The test that decides the order; by default `test`, or the first one.

    Raises:
        DCIError: If no board has a test.
    """
    for key in (test, sort):
        if key is not None and not any(key in board.tests for board in boards):
            known = "; ".join(f"{board.source} has {_known(board)}" for board in boards)
            raise DCIError(f"no test {key!r}: {known}")
    shown = [board for board in boards if test is None or test in board.tests]
    return "\n\n".join(_board(board, test, sort if sort in board.tests else None) for board in shown)


def _known(board: Board) -> str:
    """The tests of a board in words; a dozen a protocol are too many to name."""
    if not board.is_retrieval:
        return ", ".join(board.tests)
    protocols = ", ".join(board.by_protocol())
    return f"{protocols}, each as {' or '.join(dict.fromkeys(key.partition('_')[2] for key in board.tests))}"


def _board(board: Board, test: str | None, sort: str | None) -> str:
    by = sort or test or (FIRST if FIRST in board.tests else board.tests[0])
    is_by_protocol = board.is_retrieval and test is None
    order = "" if is_by_protocol and sort is None else f" by {title_of(by)}"
    models = "1 model" if len(board.rows) == 1 else f"{len(board.rows)} models"
    head = f"{board.source}: {models}{order}, in percent{', ranks as they are' if by.endswith('_medr') else ''}"
    if is_by_protocol:
        of_protocols = board.by_protocol()
        parts = [_protocol(board, of_protocol, keys, sort) for of_protocol, keys in of_protocols.items()]
        return "\n\n".join([head, *parts])
    rows = ranked(board.rows, by)
    table = _one_test(rows, test) if test is not None else _all_tests(rows, board.tests)
    shown = [test] if test is not None else board.tests
    chances = [f"{title_of(key)} {board.chance[key]:.2f}" for key in shown if key in board.chance]
    return "\n".join([head, "", table, *(["", f"Chance: {', '.join(chances)}."] if chances else [])])


def ranked(rows: Sequence[Row], by: str) -> list[Row]:
    """Rows from the best to the worst one in a test, then those without it."""
    sign = 1 if by.endswith("_medr") else -1  # of median ranks the lowest is the best
    return sorted(
        rows,
        key=lambda row: (
            by not in row.scores,
            sign * row.scores[by].value if by in row.scores else 0,
            row.model.lower(),
        ),
    )


def _all_tests(rows: Sequence[Row], tests: Sequence[str]) -> str:
    cells = [("model", "family", *map(title_of, tests))]
    return format_table([*cells, *((_name(row), row.family or "–", *_figures(row, tests)) for row in rows)])


def _protocol(board: Board, protocol: str, tests: Sequence[str], sort: str | None) -> str:
    """The recalls of one protocol; what else there is is shown by its name."""
    measures = {key: ScoreKey.parse(key).measure for key in tests}
    shown = [key for key, measure in measures.items() if measure.unit == "recall"] or list(tests)
    rows = [row for row in board.rows if any(key in row.scores for key in shown)]
    heads = [f"{key.split('_')[1]} {measures[key].title}" for key in shown]
    chance = {key: f"{board.chance[key]:.2f}" for key in shown if key in board.chance}
    return format_table(
        [
            (protocol, "family", *heads),
            *((_name(row), row.family or "–", *_figures(row, shown)) for row in ranked(rows, sort or shown[0])),
            ("chance", "", *(chance.get(key, "–") for key in shown)),
        ]
    )


def _one_test(rows: Sequence[Row], test: str) -> str:
    cells = [("model", "family", title_of(test), "95 % interval", "dtype")]
    for row in rows:
        score = row.scores.get(test)
        interval = f"{score.ci95[0]:.2f} – {score.ci95[1]:.2f}" if score and score.ci95 else "–"
        cells.append((_name(row), row.family or "–", _figure(row, test), interval, row.dtype or "–"))
    return format_table(cells)


def _figures(row: Row, tests: Sequence[str]) -> list[str]:
    return [_figure(row, key) for key in tests]


def _figure(row: Row, test: str) -> str:
    return f"{row.scores[test].value:.2f}" if test in row.scores else "–"


def _name(row: Row) -> str:
    return row.model if row.pull_request is None else f"{row.model} (pull request {row.pull_request})"
