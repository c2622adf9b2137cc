"""A pull request that an interrupted upload has left, so that the next one does not open another."""

import hashlib
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.hf_api import RepoFile


def unfinished_pull_request(api: HfApi, folder: Path, title: str, repo_id: str, repo_type: str) -> int | None:
    """The number of an open pull request of one's own that brings some or all of a folder, and nothing else."""
    me = api.whoami()["name"]
    main: dict[str, RepoFile] | None = None
    for found in api.get_repo_discussions(repo_id, repo_type=repo_type, author=me, discussion_type="pull_request"):
        # Not all that is open is in the Hub's list of those that are: the client makes drafts.
        if found.title != title or found.author != me or found.status not in ("open", "draft"):
            continue
        main = _files(api, repo_id, repo_type, "main") if main is None else main
        theirs = _files(api, repo_id, repo_type, f"refs/pr/{found.num}")
        if all(_oid(file) == _oid(main.get(path)) or _is_same(file, folder / path) for path, file in theirs.items()):
            return int(found.num)
    return None


def _files(api: HfApi, repo_id: str, repo_type: str, revision: str) -> dict[str, RepoFile]:
    listed = api.list_repo_tree(repo_id, repo_type=repo_type, revision=revision, recursive=True)
    return {file.path: file for file in listed if isinstance(file, RepoFile)}


def _oid(file: RepoFile | None) -> str | None:
    return None if file is None else file.blob_id


def _is_same(file: RepoFile, path: Path) -> bool:
    if not path.is_file() or path.stat().st_size != file.size:
        return False
    with path.open("rb") as opened:
        if file.lfs is not None:
            return hashlib.file_digest(opened, "sha256").hexdigest() == file.lfs.sha256
        # How git names a file.
        return hashlib.sha1(b"blob %d\0" % file.size + opened.read()).hexdigest() == file.blob_id
