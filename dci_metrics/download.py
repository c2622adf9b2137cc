"""One large file over HTTP: it grows in a `.part` beside its place, goes on where it stopped, appears when whole."""

import contextlib
import email.utils
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import filelock
import httpx2
from tqdm import tqdm

from dci import DCIError
from dci_metrics.files import is_disk_full, write_whole

TRIES = 6
"""How often in a row a connection may bring nothing before it is given up."""

WAIT = 1.0
"""Seconds before the second try; doubled for each further one."""

LONGEST_WAIT = 300.0
"""A server that asks for more patience than this is left alone."""


class _PassingError(Exception):
    """What went wrong may be right at the next try."""

    def __init__(self, reason: str, wait: float | None = None) -> None:
        super().__init__(reason)
        self.reason, self.wait = reason, wait


@dataclass
class Download:
    """One file to fetch.

    Attributes:
        url: Where from. It is never shown whole, since a signed address is as good as a password.
        target: Where to.
        size: Bytes it is expected to have, for the check of the disk when the server does not say.
        refused: What to say when the server does not accept the address (400, 401, 403, 404, 410).
        check: Looks at the first 512 bytes; raises DCIError if they are not of such a file.
    """

    url: str
    target: Path
    size: int
    refused: str
    check: Callable[[bytes], None]
    part: Path = field(init=False)
    state: Path = field(init=False)

    def __post_init__(self) -> None:
        self.part = self.target.with_name(f"{self.target.name}.part")
        self.state = self.target.with_name(f"{self.target.name}.part.json")

    @property
    def place(self) -> str:
        """The address without what is secret in it."""
        parts = urlsplit(self.url)
        return f"{parts.hostname}{parts.path}"

    def run(self) -> None:
        """Fetch it, whatever of it is there already.

        Raises:
            DCIError: With what to do; what has come so far stays, and the next call goes on from it.
        """
        lock = filelock.FileLock(self.target.with_name(f".{self.target.name}.lock"))
        try:
            with lock.acquire(timeout=0):
                try:
                    self._until_whole()
                    self.part.replace(self.target)
                    self.state.unlink(missing_ok=True)
                finally:
                    Path(lock.lock_file).unlink(missing_ok=True)
        except filelock.Timeout as error:
            raise DCIError(f"{self.part}: another process is downloading into it; wait for it, or end it") from error
        except OSError as error:
            raise self._unwritable(error) from error

    def _until_whole(self) -> None:
        idle = 0
        with httpx2.Client(follow_redirects=True, timeout=httpx2.Timeout(60, connect=30)) as client:
            while True:
                before = self._have()
                try:
                    return self._fetch(client)
                except httpx2.TooManyRedirects as error:
                    raise DCIError(f"{self.place}: leads from one address to the next without end") from error
                except httpx2.InvalidURL as error:
                    raise DCIError(f"{self.place}: is no address that can be asked for") from error
                except httpx2.HTTPError as error:  # also what breaks in the middle of a file
                    again = _PassingError(f"{type(error).__name__}: {error}".removesuffix(": "))
                except _PassingError as error:
                    again = error
                idle = 0 if self._have() > before else idle + 1
                wait = WAIT * 2 ** max(0, idle - 1) if again.wait is None else again.wait
                if idle == TRIES or wait > LONGEST_WAIT:
                    patience = f"; the server asks to wait {wait:.0f} s" if again.wait is not None else ""
                    raise DCIError(
                        f"{self.place}: the connection fails ({again.reason}){patience}; {self._kept()}"
                    ) from again
                if wait:
                    self._say(f"{again.reason}; trying again in {wait:.0f} s")
                time.sleep(wait)

    def _fetch(self, client: httpx2.Client) -> None:
        """One request, for what is not there yet."""
        have, known = self._have(), self._known()
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
            if isinstance(known.get("validator"), str):
                headers["If-Range"] = known["validator"]
        with client.stream("GET", self.url, headers=headers) as response:
            self._refuse(response)
            total = _total(response)
            changed = known.get("total") not in (None, total)
            if response.status_code == 416:
                if have == total and not changed:
                    return  # it was stopped between the last byte and the new name
                self._start_again(f"{self.part} has {have:,} bytes, which is not a part of the server's file")
            elif response.status_code == 206 and (changed or _start(response) != have):
                self._start_again("the file on the server has changed")
            else:
                self._write(response, total)

    def _refuse(self, response: httpx2.Response) -> None:
        code = response.status_code
        if code in (400, 401, 403, 404, 410):
            raise DCIError(f"{self.place}: {self.refused} (HTTP {code}); {self._kept()}")
        if code in (408, 425, 429) or code >= 500:
            raise _PassingError(f"HTTP {code}", _retry_after(response.headers.get("Retry-After")))
        if code not in (200, 206) and not (code == 416 and self._have()):
            raise DCIError(f"{self.place}: the server answers with HTTP {code}; expected a file; {self._kept()}")

    def _write(self, response: httpx2.Response, total: int | None) -> None:
        have = self._have() if response.status_code == 206 else 0
        if have == 0 and self._have():
            self._say("the server sends it from the start, since it has changed or cannot resume")
        pieces = response.iter_raw()
        first = b""
        if have == 0:
            # Before anything is replaced: what came so far is worth more than a page that says "not found".
            while len(first) < 512 and (piece := next(pieces, b"")):
                first += piece
            self.check(first[:512])
        self._check_disk((self.size if total is None else total) - have)
        with self.part.open("r+b" if have else "wb") as file, self._bar(total, have) as bar:
            file.seek(have)
            if have == 0:
                self._note(response, total)
            for piece in _after(first, pieces):
                file.write(piece)
                bar.update(len(piece))
            file.flush()
            os.fsync(file.fileno())
        if total is not None and self._have() != total:
            raise _PassingError(f"it ended after {self._have():,} of {total:,} bytes")

    def _bar(self, total: int | None, have: int) -> "tqdm[Any]":
        name = self.target.name
        return tqdm(total=total, initial=have, desc=name, unit="B", unit_scale=True, disable=None)

    def _start_again(self, why: str) -> None:
        self._say(f"{why}; starting again")
        self.part.unlink()
        self.state.unlink(missing_ok=True)
        raise _PassingError(why, 0.0)

    def _say(self, what: str) -> None:
        tqdm.write(f"{self.target.name}: {what}", file=sys.stderr)

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _known(self) -> dict[str, Any]:
        """What the server said of the file when its first byte came."""
        try:
            known = json.loads(self.state.read_bytes())
        except (OSError, ValueError):
            return {}
        return known if isinstance(known, dict) else {}

    def _note(self, response: httpx2.Response, total: int | None) -> None:
        tag = response.headers.get("ETag", "")
        # A weak tag does not say that bytes are the same.
        validator = tag if tag.startswith('"') else response.headers.get("Last-Modified")
        write_whole(self.state, json.dumps({"validator": validator, "total": total}).encode(), force=True)

    def _check_disk(self, needed: int) -> None:
        free = shutil.disk_usage(self.part.parent).free
        if needed > free:
            raise DCIError(
                f"{self.part.parent}: {needed / 1e9:,.1f} GB are still to come, and {free / 1e9:,.1f} GB are free; "
                "make room, or name a folder on another disk with --out"
            )

    def _kept(self) -> str:
        have = self._have()
        return f"{have:,} bytes are kept in {self.part}: run it again to go on" if have else "run it again later"

    def _unwritable(self, error: OSError) -> DCIError:
        what = "make room and run it again to go on" if is_disk_full(error) else "choose another folder with --out"
        return DCIError(f"{self.part}: cannot be written ({error.strerror or error}); {what}")


def _after(first: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
    if first:
        yield first
    yield from pieces


def _total(response: httpx2.Response) -> int | None:
    """Bytes of the whole file, where the server says."""
    if response.status_code == 200:
        length = response.headers.get("Content-Length", "")
    else:
        length = response.headers.get("Content-Range", "").rpartition("/")[2]
    return int(length) if length.isdecimal() else None


def _start(response: httpx2.Response) -> int | None:
    """The first byte of a partial answer."""
    first = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdecimal() else None


def _retry_after(value: str | None) -> float | None:
    """Seconds, given as such or as a date."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    with contextlib.suppress(ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return None
