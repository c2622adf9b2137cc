"""Uploads to the Hub: what is to be uploaded is written into a folder first, and `--dry-run` stops there."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import huggingface_hub
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # they are exported lazily
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
    validate_repo_id,
)

from dci import DCIError
from dci_metrics.files import is_disk_full, unfinished_folder
from dci_metrics.hub.pull_requests import unfinished_pull_request
from dci_metrics.hub.refusals import RepoType, full_disk, in_one_line
from dci_metrics.hub.session import patient, trying

__all__ = ["Destination", "RepoType", "link", "publish"]

NOTHING_NEW = "(nothing to change: all of it is there)"


@dataclass(frozen=True)
class Destination:
    """Where an upload goes, and how.

    Attributes:
        repo: `owner/name`.
        kind: What the repo holds.
        create_pr: Whether it becomes a pull request instead of a commit; the repo must be there then.
        private: Whether a repo that is made for it is private; one that is there and is public is refused.
        dry_run: A folder to write instead of the repo; nobody is contacted.
        sdk: What a new Space runs on.
        gated: Whether readers must give their names to the Hub and agree to the card's conditions.
    """

    repo: str
    kind: RepoType
    create_pr: bool = False
    private: bool = False
    dry_run: Path | None = None
    sdk: Literal["static", "gradio"] = "static"
    gated: bool = False

    def __post_init__(self) -> None:
        try:
            validate_repo_id(self.repo)
        except HFValidationError as error:
            raise DCIError(f"{self.repo}: is no name of a repo ({error})") from error
        if "/" not in self.repo:
            raise DCIError(f"{self.repo}: expected OWNER/NAME, with the user or organisation it belongs to")
        if self.gated and self.create_pr:
            raise DCIError(
                f"{self.repo}: a pull request does not change the repo's settings, so it cannot gate it; leave out "
                "--gated or --create-pr"
            )


def publish(
    write: Callable[[Path], object],
    destination: Destination,
    message: str,
    progress: bool = True,
    replaces: Sequence[str] = (),
) -> str:
    """Write what is to be uploaded, and upload it.

    What the repo has already is neither uploaded nor committed again, so after whatever has interrupted it the same
    call goes on. An open pull request of one's own that an earlier call has made goes on too.

    Args:
        write: Fills a new folder; large files are best put into it with `link`.
        destination: Where to.
        message: Of the commit, and the title of the pull request.
        progress: Whether to show it.
        replaces: Patterns of files in the repo that go when they are not among the new ones.

    Returns:
        The address of the commit or pull request, or the folder of a dry run.

    Raises:
        DCIError: In one line, for whatever the Hub refuses; what was uploaded stays, and the next try goes on from it.
    """
    if destination.dry_run is not None:
        with _appearing(destination.dry_run.expanduser().resolve()) as folder:
            write(folder)
            _follow_links(folder)
        return str(destination.dry_run)
    with in_one_line(destination.repo, destination.kind), patient(), _progress_bars(progress):
        there = trying(lambda: _is_there(destination))
    with _staged() as folder:
        write(folder)
        with in_one_line(destination.repo, destination.kind), patient(), _progress_bars(progress):
            return trying(lambda: _upload(folder, destination, message, replaces, new=not there))


def link(source: Path, target: Path) -> None:
    """Put a large file into a folder to be uploaded without copying it."""
    target.symlink_to(source.resolve())


# -- what is written


@contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """A folder beside `out` that takes its place at the end, or is removed if anything fails."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise DCIError(f"{out}: is there already; name a folder that is new or empty")
    with _said_when_full(out), unfinished_folder(out) as unfinished:
        yield unfinished
        unfinished.rename(out)


@contextmanager
def _staged() -> Iterator[Path]:
    with _said_when_full(tempfile.gettempdir()), tempfile.TemporaryDirectory(prefix="dci-upload-") as folder:
        yield Path(folder)


@contextmanager
def _said_when_full(where: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise DCIError(full_disk(error.filename or where)) from error


def _follow_links(folder: Path) -> None:
    """Make a folder stand on its own: large files share their content with what they were linked to, or are copied."""
    for path in [path for path in folder.rglob("*") if path.is_symlink()]:
        source = path.resolve()
        path.unlink()
        try:
            os.link(source, path)
        except OSError:
            shutil.copyfile(source, path)


# -- what is uploaded


def _is_there(destination: Destination) -> bool:
    """Whether the repo is there; one that must be and is not, or is public and must not be, is refused."""
    if huggingface_hub.get_token() is None:
        raise LocalTokenNotFoundError
    try:
        info = HfApi().repo_info(destination.repo, repo_type=destination.kind)
    except HfHubHTTPError as error:
        if error.response.status_code != 404 or destination.create_pr:
            raise
        return False
    if destination.private and not info.private:
        raise DCIError(
            f"{destination.kind} {destination.repo}: is there already and is public, but is to be private; make it "
            "private in its settings, or name another"
        )
    return True


def _upload(folder: Path, destination: Destination, message: str, replaces: Sequence[str], new: bool) -> str:
    api, repo, kind = HfApi(), destination.repo, destination.kind
    if new:
        _create(api, destination)
    if destination.gated:
        api.update_repo_settings(repo, repo_type=kind, gated="auto")
    number = unfinished_pull_request(api, folder, message, repo, kind) if destination.create_pr else None
    revision = None if number is None else f"refs/pr/{number}"
    head = api.repo_info(repo, repo_type=kind, revision=revision).sha
    commit = api.upload_folder(
        repo_id=repo,
        repo_type=kind,
        folder_path=folder,
        commit_message=message,
        create_pr=destination.create_pr and number is None,
        revision=revision,
        delete_patterns=list(replaces) or None,
    )
    address = commit.pr_url or str(commit.commit_url)
    if number is not None:
        address = f"{api.endpoint}/{'' if kind == 'model' else kind + 's/'}{repo}/discussions/{number}"
    return f"{address} {NOTHING_NEW}" if commit.oid == head else address


def _create(api: HfApi, destination: Destination) -> None:
    try:
        api.create_repo(
            destination.repo,
            repo_type=destination.kind,
            # Not False: an organisation may have it that its repos are private.
            private=destination.private or None,
            space_sdk=destination.sdk if destination.kind == "space" else None,
        )
    except HfHubHTTPError as error:
        # It was made by a try whose answer was lost, or by somebody else at this moment.
        if error.response.status_code != 409 or not _is_there(destination):
            raise


@contextmanager
def _progress_bars(shown: bool) -> Iterator[None]:
    hidden_before = are_progress_bars_disabled()
    if not shown:
        disable_progress_bars()
    try:
        yield
    finally:
        if not shown and not hidden_before:
            enable_progress_bars()
