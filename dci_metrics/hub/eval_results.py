"""What a model repo says of its scores: `.eval_results/dci.yaml`, from which the Hub makes the leaderboard.

Values are in percent with two decimals, as the paper prints them and as most of the Hub's leaderboards show theirs.
What a reader must know beside the figure (interval, precision, data) stands in `notes`, which `read_notes` reads back.
"""

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

from dci_metrics.results import Result, Score
from dci_metrics.tasks import GROUP_SIZE, PAPER_TASKS, TASKS

FILE = ".eval_results/dci.yaml"
"""Its name in a model repo."""

SOURCE = "dci-metrics"

TEST_PHOTOS = 108
TEST_PHOTOS_HASH = "2df49dfc18993f1c13512a8e12592b47b85af67198f34dc4fd079245433e48b2"
"""sha256 over the sorted ids of the release's test split, one a line: other photos are another benchmark."""

PAPER_REASON = re.compile(
    r"no `(summaries|negatives|clip_scores|swaps)`( for \S+)?|`negatives` has a single key|no negative for \S+"
    r"|a negative without `clip_scores` for \S+|mask \S+ has no `(label|caption)`"
)
"""Why the paper's rules leave a photo out of a test; with any other reason it was passed over with --on-error skip."""

HUB_ID = re.compile(r"\w[\w.-]*/\w[\w.-]*", re.ASCII)
COMMIT = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Notes:
    """What the notes of an entry say; None for what they do not.

    Attributes:
        ci95: 95 % interval in percent.
        dtype: Of the model.
        family: Of the model.
    """

    ci95: tuple[float, float] | None
    dtype: str | None
    family: str | None


def refusal(result: Result, repo: str) -> str | None:
    """Why a result does not go on the leaderboard, in one line; None if it may.

    Args:
        result: What `dci eval` wrote.
        repo: The model repo that it is for.
    """
    checks = (_of_tests, _of_data, _of_settings, _of_scores, _of_code)
    return next((why for check in checks if (why := check(result))), None) or _of_model(result, repo)


def _of_tests(result: Result) -> str | None:
    """The other kinds of tests have data and settings of their own, and no leaderboard."""
    what = {"retrieval": "retrieval", "full": "whole descriptions"}.get(result.settings["mode"])
    return what and f"is of {what}, which the leaderboard has not; score the model without --tests and --protocol"


def _of_data(result: Result) -> str | None:
    dataset = result.dataset
    if str(dataset["id"]).startswith("sample:"):
        return f"is of {dataset['id']}, which is no benchmark; score the model on DCI's test split"
    if (dataset["config"], dataset["split"]) != ("sdci", "test"):
        return f"is of {dataset['config']}, {dataset['split']}; expected sdci, test"
    skipped = {
        left["image_id"]: left["reason"]
        for score in result.scores.values()
        for left in score.left_out
        if not PAPER_REASON.fullmatch(left["reason"])
    }
    if skipped:
        first, reason = next(iter(skipped.items()))
        return f"is partial: {len(skipped)} photos were passed over, the first one, {first}, because: {reason}"
    photos = {image_id for image_id, _ in result.entries}
    photos |= {left["image_id"] for score in result.scores.values() for left in score.left_out}
    if len(photos) < TEST_PHOTOS:
        return f"is partial: it has {len(photos)} photos; expected the {TEST_PHOTOS} of DCI's test split"
    if hashlib.sha256("\n".join(sorted(photos)).encode()).hexdigest() != TEST_PHOTOS_HASH:
        return f"is of changed data: its {len(photos)} photos are not the {TEST_PHOTOS} of DCI's test split"
    return None


def _of_settings(result: Result) -> str | None:
    settings = result.settings
    expected: dict[str, tuple[Any, ...]] = {
        "mode": ("paper",),
        "group_size": (GROUP_SIZE,),
        "crop": ("box",),
        # What resizes the images of a model of the user's own is not known.
        "image_backend": ("pil", None),
        "max_tokens": (None,),
        "stretch": (None,),
        "reading": (None, "truncate"),
    }
    for name, values in expected.items():
        if settings.get(name) not in values:
            usual = "none" if values[0] is None else repr(values[0])
            return f"is not of the paper's settings: field `settings.{name}` is {settings.get(name)!r}, not {usual}"
    return None


def _of_scores(result: Result) -> str | None:
    missing = [task.title for key, task in PAPER_TASKS.items() if key not in result.scores]
    if missing:
        return f"is partial: it lacks {', '.join(missing)}; score the model without --tests"
    for key, score in result.scores.items():
        if key not in TASKS:
            return f"has a test {key!r}, which is none of {', '.join(TASKS)}"
        numbers = [score.value, *(score.ci95 or (None, None))]
        if not all(number is not None and math.isfinite(number) and 0 <= number <= 1 for number in numbers):
            return f"has no figure, or no interval, between 0 and 1 for {TASKS[key].title}"
        if (score.unit, score.higher_is_better) != ("accuracy", True):
            return f"has {TASKS[key].title} in {score.unit!r}; expected 'accuracy', higher is better"
    return None


def _of_code(result: Result) -> str | None:
    revision = str(result.environment.get("dci_metrics_revision", ""))
    if revision.endswith("-dirty"):
        return f"was made by changed code (commit {revision}); score the model with a release, or a clean checkout"
    if "dci_metrics" not in result.environment:
        return "does not say which version of dci-metrics made it (field `environment.dci_metrics`)"
    return None


def _of_model(result: Result, repo: str) -> str | None:
    if not HUB_ID.fullmatch(repo):
        return f"cannot go to {repo!r}: expected a model repo as OWNER/NAME"
    if str(result.model["id"]).startswith("sample:"):
        return f"is of {result.model['id']}, which is in this package and no model to rank"
    scored = scored_model(result)
    if result.model.get("adapter") and repo == result.model["id"]:
        return f"is of the adapter {scored} over {repo}, not of {repo} itself; name the adapter's repo"
    if is_folder(result) or scored.removeprefix("open_clip:hf-hub:") == repo:
        return None
    if result.model.get("adapter"):
        return f"is of the adapter {scored} over {result.model['id']}, not of {repo}; name the adapter's repo"
    return f"is of {scored}, not of {repo}; name that repo, or score this one"


def scored_model(result: Result) -> str:
    """What the score belongs to: the adapter, where there is one."""
    return str(result.model.get("adapter") or result.model["id"])


def weights_of(result: Result) -> str | None:
    """Commit on the Hub, or hash, of what the score belongs to."""
    found = result.model.get("adapter_revision" if result.model.get("adapter") else "revision")
    return None if found is None else str(found)


def is_folder(result: Result) -> bool:
    """Whether a folder was scored, here or elsewhere: its weights are known by a hash, those on the Hub by a commit."""
    return is_local(scored_model(result)) or (weights_of(result) or "").startswith("sha256:")


def is_local(name: str) -> bool:
    """Whether a model's name is a folder here, and no id on the Hub."""
    is_path = name.startswith((".", "/", "~")) or (name.count("/") > 1 and ":" not in name)
    return is_path or Path(name).is_dir()


def entries(result: Result, dataset: str, revision: str, date: str) -> list[EvalResultEntry]:
    """One entry a test.

    Args:
        result: What `dci eval` wrote.
        dataset: The benchmark's repo, `OWNER/dci`.
        revision: Its commit.
        date: Day of the evaluation, `YYYY-MM-DD`.
    """
    return [
        EvalResultEntry(
            dataset_id=dataset,
            task_id=key,
            value=in_percent(score.value or 0.0),
            dataset_revision=revision,
            date=date,
            source_url=f"https://huggingface.co/datasets/{dataset}",
            source_name=SOURCE,
            notes=notes(result, score),
        )
        for key, score in result.scores.items()
    ]


def notes(result: Result, score: Score) -> str:
    """What a reader must know beside the figure."""
    settings, model = result.settings, result.model
    parts = [f"{settings['mode']} mode", "percent"]
    if score.ci95:
        parts.append("95 % interval {:.2f} to {:.2f}".format(*map(in_percent, score.ci95)))
    parts += [f"{score.n} entries", f"dtype {settings['dtype'] or 'unknown'}"]
    if settings.get("scorer") not in (None, "contrastive"):
        parts.append(f"scorer {settings['scorer']}")
    if score.truncated:
        parts.append(f"{in_percent(score.truncated):.2f} % of texts cut at {model['text_limit']} tokens")
    if model.get("family"):
        parts.append(f"family {model['family']}")
    if model.get("adapter"):
        parts.append(f"adapter over {model['id']}")
    if weights := weights_of(result):
        parts.append(f"weights {weights[: len('sha256:') + 12] if weights.startswith('sha256:') else weights[:12]}")
    parts += [f"{SOURCE} {result.environment['dci_metrics']}", f"data {result.dataset['fingerprint'][:12]}"]
    return "; ".join(parts)


def read_notes(text: str | None) -> Notes:
    """The other way round, of whatever notes there are."""
    found = str(text or "")  # whoever wrote them may have written a number
    interval = re.search(r"95 % interval (\d+(?:\.\d+)?) to (\d+(?:\.\d+)?)(?:;|$)", found)
    dtype, family = (re.search(rf"(?:^|; ){word} ([^;]+)", found) for word in ("dtype", "family"))
    ends = (float(interval[1]), float(interval[2])) if interval else None
    return Notes(
        ends if ends and ends[0] <= ends[1] <= 100 else None,
        dtype[1] if dtype else None,
        family[1] if family else None,
    )


def in_percent(value: float) -> float:
    """A fraction in percent, to two decimals."""
    return round(100 * value, 2)


def date_of(path: Path) -> str:
    """The day on which a result file was written."""
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).date().isoformat()


def to_yaml(found: Sequence[EvalResultEntry]) -> str:
    """Entries as the text of the file."""
    return dump(eval_result_entries_to_yaml(list(found)))


def dump(data: list[dict[str, Any]]) -> str:
    """Items as the text of the file."""
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=1000))
