"""What exactly a figure was made with: the commit of this package, the bytes of a model's weights."""

import functools
import hashlib
import json
import subprocess
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
"""Files of weights in a model's folder; those of the first kind that is there are the model's."""


@functools.cache
def of_package() -> str | None:
    """The commit of this package, with "-dirty" behind it where its files were changed since; None of a release."""
    folder = Path(__file__).parent
    # A virtual environment may lie in a repository of its user's, whose commit says nothing of this package.
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is not None:
        return _git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
    try:
        installed = json.loads(metadata.distribution("dci-metrics").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        return None
    commit = installed.get("vcs_info", {}).get("commit_id")
    return str(commit) if commit else None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def sha256_of(path: Path) -> str:
    """The hash of a file; of one that has not changed since it is not computed again."""
    stat = path.stat()
    return _sha256_of(path.resolve(), stat.st_size, stat.st_mtime_ns)


@functools.lru_cache
def _sha256_of(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_weights(folder: Path) -> str | None:
    """A name for the weights in a folder: "sha256:" and the hash of the file, as `sha256sum` and the Hub give it.

    Of several files it is the hash over their names and hashes; None where there is none.
    """
    files = next((found for kind in WEIGHTS if (found := sorted(folder.glob(kind)))), [])
    hashes = {}
    for path in files:
        hashes[path.name] = sha256_of(path)
    return of_hashes(hashes)


def of_hashes(hashes: Mapping[str, str]) -> str | None:
    """The same, of the files' hashes by their names, in order."""
    if not hashes:
        return None
    if len(hashes) == 1:
        return f"sha256:{next(iter(hashes.values()))}"
    lines = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
