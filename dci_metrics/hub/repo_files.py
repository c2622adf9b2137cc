"""Small files that are in a repo already."""

from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.errors import RemoteEntryNotFoundError

from dci import DCIError
from dci_metrics.hub.refusals import RepoType


def text_of(repo: str, name: str, revision: str | None = None, kind: RepoType = "model") -> str | None:
    """The text of a file; None where the repo has none of that name.

    Raises:
        DCIError: If it is no text. What the client raises for the repo is the caller's to explain.
    """
    try:
        found = HfApi().hf_hub_download(repo, name, revision=revision, repo_type=kind)
    except RemoteEntryNotFoundError:
        return None
    try:
        return Path(found).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DCIError(f"{repo}: {name} is no text in UTF-8 ({error}); mend it in the repo first") from error
