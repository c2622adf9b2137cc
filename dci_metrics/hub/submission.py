"""`dci submit`: a result becomes a pull request to its model's repo, once it is known to be of the benchmark."""

import json
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import EvalResultEntry, HfApi

from dci import DCIError
from dci_metrics import revisions
from dci_metrics.hub import eval_results
from dci_metrics.hub.benchmark_files import CONFIG, FINGERPRINTS_FILE, SPLIT
from dci_metrics.hub.eval_file import merge
from dci_metrics.hub.eval_results import COMMIT, FILE, HUB_ID
from dci_metrics.hub.publishing import Destination, publish
from dci_metrics.hub.refusals import RepoType, in_one_line
from dci_metrics.hub.repo_files import text_of
from dci_metrics.hub.session import patient
from dci_metrics.results import Result

TITLE = "Add evaluation results on Densely Captioned Images"


def submit(
    path: Path,
    repo: str,
    *,
    dataset_repo: str | None = None,
    dataset_revision: str | None = None,
    dry_run: Path | None = None,
) -> str:
    """Write the results of a model into its repo, by a pull request.

    Args:
        path: The result file.
        repo: The model's, or its adapter's, repo.
        dataset_repo: The benchmark's; by default the one that was scored on, where that came from the Hub.
        dataset_revision: The benchmark's commit that was scored on; by default the one of the result, or the newest
            one that has the result's data.
        dry_run: A folder to write the file into, as for a repo without any; nobody is contacted.

    Returns:
        The address of the pull request, the folder of a dry run, or a line that says that nothing was to be done.

    Raises:
        DCIError: If the result is not of the benchmark or not of the model, or the Hub refuses.
    """
    result = Result.load(path)
    why = eval_results.refusal(result, repo)
    if why is not None:
        raise DCIError(f"{path}: {why}")
    dataset = _dataset_of(result, dataset_repo, path)
    revision = dataset_revision or _own_revision(result, dataset)
    if dry_run is not None:
        if revision is None or not COMMIT.fullmatch(revision):
            raise DCIError(
                f"{path}: does not say which commit of {dataset} it is of, and a dry run asks nobody; give its 40 "
                "digits with --dataset-revision"
            )
        text = eval_results.to_yaml(eval_results.entries(result, dataset, revision, eval_results.date_of(path)))
        return _publish(text, Destination(repo, "model", create_pr=True, dry_run=dry_run))
    api = HfApi()
    with patient():
        revision = _check_data(api, result, dataset, revision, path)
        _check_weights(api, result, repo, path)
        new = eval_results.entries(result, dataset, revision, eval_results.date_of(path))
        merged = merge(_text(repo, FILE), new, f"{repo}: {FILE}")
        if merged is None:
            return f"{repo} has these results already; nothing was changed"
        waiting = _waiting(api, repo, new)
        if waiting is not None:
            return f"{waiting} waits with these results already; nothing was changed"
    return _publish(merged, Destination(repo, "model", create_pr=True))


def _publish(text: str, destination: Destination) -> str:
    def write(folder: Path) -> None:
        (folder / FILE).parent.mkdir()
        (folder / FILE).write_text(text, encoding="utf-8")

    return publish(write, destination, TITLE)


def _dataset_of(result: Result, asked: str | None, path: Path) -> str:
    dataset = asked or str(result.dataset["id"])
    if not HUB_ID.fullmatch(dataset) or (asked is None and result.dataset["revision"] is None):
        raise DCIError(
            f"{path}: is of {dataset}, which is no repo on the Hub; name the benchmark's with --dataset-repo OWNER/dci"
        )
    return dataset


def _own_revision(result: Result, dataset: str) -> str | None:
    """The commit in the result, where it is one of the benchmark's repo: that of another copy says nothing here."""
    scored = str(result.dataset["id"])
    # A dataset that was loaded, and got its photos afterwards, knows its name without its owner.
    is_own = scored == dataset or scored == dataset.split("/")[1]
    return result.dataset["revision"] if is_own else None


def _check_data(api: HfApi, result: Result, dataset: str, asked: str | None, path: Path) -> str:
    """The benchmark's commit, when its data is the result's."""
    with in_one_line(dataset, "dataset"):
        revision = str(api.dataset_info(dataset, revision=asked).sha)
    text = _text(dataset, FINGERPRINTS_FILE, revision, "dataset")
    if text is None:
        if asked is None:
            raise DCIError(
                f"{dataset}: has no {FINGERPRINTS_FILE}, so the commit that {path} is of cannot be found; give it with "
                "--dataset-revision"
            )
        return revision
    try:
        expected = json.loads(text)[f"{CONFIG}/{SPLIT}"]
    except (ValueError, KeyError, TypeError) as error:
        raise DCIError(f"{dataset}: {FINGERPRINTS_FILE} has no text for {CONFIG}/{SPLIT} ({error!r})") from error
    if result.dataset["fingerprint"] != expected:
        raise DCIError(
            f"{path}: is of changed data: its fingerprint is {result.dataset['fingerprint']}, that of {dataset} at "
            f"{revision[:12]} is {expected}; build the dataset again, or give the commit with --dataset-revision"
        )
    return revision


def _check_weights(api: HfApi, result: Result, repo: str, path: Path) -> None:
    """Compare a folder that was scored with what was pushed, by the hash of the weights."""
    scored = eval_results.weights_of(result)
    if scored is None or not scored.startswith("sha256:"):
        return
    with in_one_line(repo, "model"):
        files = {file.path: getattr(file, "lfs", None) for file in api.list_repo_tree(repo)}
    hashes = {name: lfs.sha256 for name, lfs in sorted(files.items()) if lfs is not None}
    kinds = ({name: found for name, found in hashes.items() if fnmatch(name, kind)} for kind in revisions.WEIGHTS)
    pushed = revisions.of_hashes(next((found for found in kinds if found), {}))
    if pushed != scored:
        raise DCIError(
            f"{path}: is of weights that are not those in {repo}: {scored}, not {pushed or 'any'}; push what was "
            "scored, or score what was pushed"
        )


def _waiting(api: HfApi, repo: str, new: list[EvalResultEntry]) -> str | None:
    """The address of an open pull request that has these entries."""
    with in_one_line(repo, "model"):
        found = list(api.get_repo_discussions(repo, discussion_type="pull_request", discussion_status="open"))
    for request in found:
        if request.title != TITLE:
            continue
        text = _text(repo, FILE, request.git_reference)
        if text is not None and merge(text, new, f"{request.url}: {FILE}") is None:
            return str(request.url)
    return None


def _text(repo: str, name: str, revision: str | None = None, kind: RepoType = "model") -> str | None:
    with in_one_line(repo, kind):
        return text_of(repo, name, revision, kind)
