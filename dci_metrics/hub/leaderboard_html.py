"""The leaderboard as one static page: from result files it holds its figures, as a Space it asks the Hub for them."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import huggingface_hub.constants
from markupsafe import Markup

from dci import DCIError
from dci_metrics.hub.eval_results import HUB_ID
from dci_metrics.hub.leaderboard import Board, nominal_chance
from dci_metrics.hub.publishing import Destination, publish
from dci_metrics.report_models import COLOURS, templates
from dci_metrics.report_plots import PAIRS
from dci_metrics.tasks import FULL_TASKS, PAPER_TASKS, TASKS, title_of

PAGE = Path(__file__).parent / "leaderboard_page"


def of_boards(boards: Sequence[Board]) -> str:
    """A page that holds the figures, and needs no network.

    Raises:
        DCIError: If there are several boards, or the one there is is of retrieval.
    """
    board, *others = boards
    if board.is_retrieval:
        raise DCIError(
            f"{board.files[0]}: is of retrieval, which has a table for each protocol, and --html has one; leave "
            "--html out, or make a page of these results with `dci report`"
        )
    if others:
        raise DCIError(
            f"{others[0].files[0]}: is of other tests than {board.files[0]}, and --html has one table; give the files "
            "of one kind"
        )
    rows = [asdict(row) for row in sorted(board.rows, key=lambda row: row.model.lower())]
    return _render(board.source, board.tests, board.chance, rows, None)


def of_dataset(dataset: str) -> str:
    """A page that reads the leaderboard of a dataset from the Hub whenever it is opened."""
    return _render(dataset, list(PAPER_TASKS), nominal_chance(), None, dataset)


def push(
    repo: str, dataset: str, *, create_pr: bool = False, private: bool = False, dry_run: Path | None = None
) -> str:
    """Upload the page as a static Space.

    Args:
        repo: `owner/name`.
        dataset: The benchmark's repo.
        create_pr: Whether it becomes a pull request.
        private: Whether a Space that is made for it is private.
        dry_run: A folder to write instead.

    Returns:
        The address of the commit or pull request, or the folder of a dry run.

    Raises:
        DCIError: If the dataset is no repo's name, or as `publish`.
    """
    destination = Destination(repo, "space", create_pr=create_pr, private=private, dry_run=dry_run)
    return publish(lambda folder: write_space(folder, repo, dataset), destination, "Update the leaderboard")


def write_space(folder: Path, repo: str, dataset: str) -> None:
    """Write the files of a static Space.

    Args:
        folder: An empty one.
        repo: The Space's, `OWNER/NAME`.
        dataset: The benchmark's repo.

    Raises:
        DCIError: If the dataset is no repo's name.
    """
    if not HUB_ID.fullmatch(dataset):
        raise DCIError(f"{dataset}: is no repo on the Hub; expected --dataset OWNER/NAME")
    readme = templates(PAGE).get_template("README.md").render(repo=repo, dataset=dataset)
    (folder / "README.md").write_text(readme, encoding="utf-8")
    (folder / "index.html").write_text(of_dataset(dataset), encoding="utf-8")


def _render(
    source: str, tests: list[str], chance: dict[str, float], rows: list[dict[str, Any]] | None, dataset: str | None
) -> str:
    endpoint = huggingface_hub.constants.ENDPOINT
    # On the Hub anybody may write anything, and full text has no leaderboard there.
    known = list(TASKS) if dataset is not None else [*TASKS, *FULL_TASKS]
    data = {
        "dataset": dataset,
        "endpoint": endpoint,
        "colours": COLOURS,
        "tests": [{"key": key, "title": title_of(key), "chance": chance.get(key)} for key in tests],
        "known": {key: {"title": title_of(key), "chance": chance.get(key)} for key in known},
        "pairs": [pair for pair in PAIRS if dataset is not None or set(pair) <= set(tests)],
        "rows": rows,
    }
    environment = templates(PAGE)
    script = environment.get_template("page.js").render()
    return environment.get_template("index.html").render(
        source=source,
        dataset=dataset,
        endpoint=endpoint,
        data=Markup(_json(data)),  # it holds no character that means something to HTML
        script=Markup(script),  # a file of this package
        # Nothing else can run, whatever stands in the data.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _json(data: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
