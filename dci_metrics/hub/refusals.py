"""What the client of the Hub raises, said in one line that tells what to do; a token is never in it."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]  # it is exported lazily

from dci import DCIError
from dci_metrics.files import is_disk_full

RepoType = Literal["dataset", "space", "model"]

LOG_IN = "log in with `hf auth login`, or set HF_TOKEN (https://huggingface.co/settings/tokens)"
GOES_ON = "run it again later: it goes on from where it stopped"
LONGEST = 300
"""Characters of a message of the Hub's that are shown."""


@contextmanager
def in_one_line(repo: str, kind: RepoType) -> Iterator[None]:
    """Turn whatever speaking with the Hub raises into a DCIError.

    Args:
        repo: The repo it is about, `owner/name`.
        kind: What the repo holds.

    Raises:
        DCIError: In one line, without what it comes from: that could quote what was sent.
    """
    try:
        yield
    except DCIError:
        raise
    except Exception as error:
        message = explain(error, repo, kind)
        if message is None:
            raise
        raise DCIError(message) from None


def explain(error: BaseException, repo: str, kind: RepoType) -> str | None:
    """What to say of an error of the client's; None for one that is not."""
    found = find(error)
    name = f"{kind} {repo}"
    if isinstance(found, OfflineModeIsEnabled):
        return f"{name}: HF_HUB_OFFLINE is set, so the Hub is not contacted; unset it, or write files with --dry-run"
    if isinstance(found, LocalTokenNotFoundError):
        return f"{name}: nobody is logged in on this machine; {LOG_IN}"
    if isinstance(found, HfHubHTTPError):
        return f"{name}: {_explain_status(found, found.response.status_code)}"
    if is_lost_connection(found):
        text = f": {_shown(str(found))}" if str(found) else ""
        return f"{name}: no connection to {_host()} ({type(found).__name__}{text}); {GOES_ON}"
    if isinstance(found, OSError) and is_disk_full(found):
        return full_disk(found.filename or "this machine's disk")
    if isinstance(found, OSError) and found.filename:
        return f"{found.filename}: {found.strerror}"
    if isinstance(found, json.JSONDecodeError):
        return f"{name}: {_host()} gave no proper answer; {GOES_ON}"
    if isinstance(found, OSError | ValueError | RuntimeError) or _is_of(found, "httpx", "hf_xet"):
        # What uploads large files (hf_xet) raises builtin errors, and tells in them which kind it was.
        lost = isinstance(found, ConnectionError | TimeoutError | RuntimeError)
        return f"{name}: {_shown(str(found)) or type(found).__name__}{f'; {GOES_ON}' if lost else ''}"
    return None


def full_disk(where: object) -> str:
    """What to say when a disk is full."""
    return f"{where}: the disk is full; free some space, or set TMPDIR to a folder on another disk"


def find(error: BaseException) -> BaseException:
    """What is behind an error: the client says of some only that a file could not be uploaded."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def is_lost_connection(error: BaseException) -> bool:
    """Whether there was no answer; of `httpx` or `httpx2`, whichever the client speaks with."""
    return _is_of(error, "httpx") and any(parent.__name__ == "TransportError" for parent in type(error).__mro__)


def seconds_asked(response: Any) -> int | None:
    """How long the Hub asks to wait, in either of its ways to say that."""
    asked = response.headers.get("Retry-After", "").strip()
    if asked.isdigit():
        return int(asked)
    limit = parse_ratelimit_headers(response.headers)
    return int(limit.reset_in_seconds) if limit is not None and limit.remaining == 0 else None


def _explain_status(error: HfHubHTTPError, status: int) -> str:
    said = _shown(error.server_message or "")
    quoted = f" ({said})" if said else ""
    if status == 401 and get_token() is None:
        return f"nobody is logged in on this machine; {LOG_IN}"
    if status == 401:
        where = "in HF_TOKEN" if os.environ.get("HF_TOKEN") else "that `hf auth login` has saved"
        return f"the Hub does not accept the token {where}{quoted}; {LOG_IN}"
    if status == 403 and isinstance(error, GatedRepoError):
        return "is gated: accept its conditions on its page first, with the account you are logged in with"
    if status == 403:
        return f"you have no right to do this{quoted}; name a repo of yours, or use a token with write access"
    if status == 404 and error.response.headers.get("X-Error-Code") in (None, "RepoNotFound"):
        return "is not on the Hub, or is private and your token may not see it; check its name, and `hf auth whoami`"
    if status == 404:
        return f"does not have what is asked for{quoted}"
    if status == 409:
        return f"the name is taken, or somebody else changes it at this moment{quoted}; look at its page, and try again"
    if status == 412:
        return f"has been changed by somebody else meanwhile{quoted}; try again"
    if status == 429:
        wait = seconds_asked(error.response)
        return f"too many requests; the Hub asks to wait{'' if wait is None else f' {wait} seconds'}; {GOES_ON}"
    if status >= 500:
        return f"the Hub has a problem of its own ({status}{f': {said}' if said else ''}); {GOES_ON}"
    return f"the Hub refuses this ({status}{f': {said}' if said else ''})"


def _shown(text: str) -> str:
    """Text of the Hub's in one line, without tokens, and without what addresses are signed with."""
    text = re.sub(r"(https?://[^\s?'\"]+)\?[^\s'\"]*", r"\1", " ".join(text.split()))
    token = get_token()
    if token:
        text = text.replace(token, "***")
    text = re.sub(r"\bhf_[A-Za-z0-9]{8,}", "***", text).rstrip(".")
    return text if len(text) <= LONGEST else text[:LONGEST] + "…"


def _host() -> str:
    return urlsplit(HfApi().endpoint).hostname or "the Hub"


def _is_of(error: BaseException, *packages: str) -> bool:
    return any(parent.__module__.startswith(packages) for parent in type(error).__mro__)
