"""The Hub, offline: an HTTP server on this machine with the endpoints that `huggingface_hub` and `datasets` use here.

    with HubDouble() as hub:                          # also as fixtures: see the end of this file
        subprocess.run([...], env=os.environ | hub.environment())        # the `dci` command, load_dataset, ...
        hub.store.add_repo("owner/model", "model", {"README.md": "..."}, private=False)
        hub.store.repos["dataset", "owner/dci"].files()                  # {path: bytes}; also files("refs/pr/1")
        hub.store.repos["dataset", "owner/dci"].commits()                # newest first; .title, .files, .author
        hub.store.repos["model", "owner/model"].pull_requests            # .num, .title, .status; repo.merge(1)
        hub.store.leaderboards["owner/dci"] = [{"rank": 1, "modelId": ..., ...}]     # what GET .../leaderboard gives
        hub.calls, hub.count("put")                                      # requests: .endpoint, .method, .path, .status
        hub.fail("commit", status=503, times=2)                          # the next two commits fail
        hub.fail("create", status=429, headers={"Retry-After": "3"})
        hub.fail("put", cut=1000)                                        # the connection is cut after 1,000 bytes
        hub.fail("commit", lose=True)                                    # it is done, but its answer is lost
        hub.fail("put", delay=2.0)                                       # it only takes long
        hub.fail("put", status=500, after=1)                             # not the next one, but the one after it

Endpoints: whoami create validate-yaml preupload batch put complete verify commit discussions discussion info tree
paths-info refs commits resolve settings leaderboard. Users: `TOKEN` is "owner" (and of the organisation "team"),
`OTHER_TOKEN` is "other"; everything else is no token.
"""

import contextlib
import dataclasses
import json
import re
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from hub_endpoints import Endpoints
from hub_store import Refused, Store

TOKEN = "hf_ownerownerownerownerownerownerown"
OTHER_TOKEN = "hf_otherotherotherotherotherotherot"
REPO = r"(?P<name>[^/]+/[^/]+)"
API = rf"/api/(?P<kind>model|dataset|space)s/{REPO}"
FILES = rf"/(?:(?P<kind>dataset|space)s/)?{REPO}"
ROUTES = [
    ("whoami", "GET", r"/api/whoami-v2"),
    ("create", "POST", r"/api/repos/create"),
    ("validate-yaml", "POST", r"/api/validate-yaml"),
    ("preupload", "POST", rf"{API}/preupload/(?P<revision>[^/]+)"),
    ("batch", "POST", rf"{FILES}\.git/info/lfs/objects/batch"),
    ("put", "PUT", r"/objects/(?P<oid>[0-9a-f]{64})(?:/(?P<part>\d+))?"),
    ("complete", "POST", r"/objects/(?P<oid>[0-9a-f]{64})/complete"),
    ("verify", "POST", r"/objects/(?P<oid>[0-9a-f]{64})/verify"),
    ("commit", "POST", rf"{API}/commit/(?P<revision>[^/]+)"),
    ("discussions", "GET", rf"{API}/discussions"),
    ("discussions", "POST", rf"{API}/discussions"),
    ("discussion", "GET", rf"{API}/discussions/(?P<num>\d+)"),
    ("tree", "GET", rf"{API}/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?"),
    ("paths-info", "POST", rf"{API}/paths-info/(?P<revision>[^/]+)"),
    ("refs", "GET", rf"{API}/refs"),
    ("commits", "GET", rf"{API}/commits/(?P<revision>[^/]+)"),
    ("settings", "PUT", rf"{API}/settings"),
    ("leaderboard", "GET", rf"{API}/leaderboard"),
    ("info", "GET", rf"{API}(?:/revision/(?P<revision>[^/]+))?"),
    ("resolve", "GET", rf"{FILES}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"),
    ("resolve", "HEAD", rf"{FILES}/resolve/(?P<revision>[^/]+)/(?P<path>.+)"),
]


@dataclasses.dataclass(frozen=True)
class Call:
    """A request that came, and the status it got; None if the connection was cut."""

    endpoint: str
    method: str
    path: str
    status: int | None


@dataclasses.dataclass
class Failure:
    """What goes wrong at an endpoint; see `HubDouble.fail`."""

    endpoint: str
    status: int | None
    headers: dict[str, str]
    body: bytes
    cut: int | None
    lose: bool
    delay: float
    after: int
    times: int


class HubDouble:
    """See the text at the top of this file."""

    def __init__(self, multipart_over: int = 5_000_000) -> None:
        self.store = Store({TOKEN: "owner", OTHER_TOKEN: "other"}, {"owner": ["team"]})
        self.multipart_over = multipart_over
        self.calls: list[Call] = []
        self.lock = threading.RLock()
        self._failures: list[Failure] = []
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def environment(self, token: str | None = TOKEN) -> dict[str, str]:
        """What a process needs to take this for the Hub; without a token, it is one nobody has logged in with."""
        found = {"HF_ENDPOINT": self.url, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0", "HF_DATASETS_OFFLINE": "0"}
        return found | {"HF_TOKEN": token or "", "HF_HUB_DISABLE_TELEMETRY": "1"}

    def fail(
        self,
        endpoint: str,
        status: int | None = None,
        *,
        headers: dict[str, str] | None = None,
        message: str = "told to fail",
        body: bytes | None = None,
        cut: int | None = None,
        lose: bool = False,
        delay: float = 0.0,
        after: int = 0,
        times: int = 1,
    ) -> None:
        """Let the next `times` requests of an endpoint go wrong, once `after` of them have gone well."""
        content = json.dumps({"error": message}).encode() if body is None else body
        headers = {"Content-Type": "application/json" if body is None else "text/html"} | (headers or {})
        self._failures.append(Failure(endpoint, status, headers, content, cut, lose, delay, after, times))

    def recover(self) -> None:
        """Forget all that was to fail."""
        self._failures.clear()

    def count(self, endpoint: str, done: bool = True) -> int:
        """How many requests came; by default those that succeeded."""
        return sum(call.endpoint == endpoint and (not done or call.status in (200, 206)) for call in self.calls)

    def next_failure(self, endpoint: str) -> Failure | None:
        with self.lock:
            for failure in self._failures:
                if failure.endpoint == endpoint and failure.after > 0:
                    failure.after -= 1
                elif failure.endpoint == endpoint and failure.times > 0:
                    failure.times -= 1
                    return failure
        return None


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up in the middle is what is tested; anything else is a mistake of the double's."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(*_)


class _Handler(Endpoints, BaseHTTPRequestHandler):
    hub: HubDouble
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_HEAD = do_GET  # noqa: N815

    def _answer(self) -> None:
        url = urlsplit(self.path)
        self.query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        endpoint, found = next(
            (
                (endpoint, match.groupdict())
                for endpoint, method, pattern in ROUTES
                if method == self.command and (match := re.fullmatch(pattern, url.path))
            ),
            ("unknown", {}),
        )
        failure = self.hub.next_failure(endpoint)
        self.answered: int | None = None
        try:
            if failure is not None:
                time.sleep(failure.delay)
            if failure is not None and failure.cut is not None:
                self.rfile.read(min(failure.cut, int(self.headers.get("Content-Length") or failure.cut)))
                self._cut()
                return
            self.body = self._read_body()
            if failure is not None and failure.status is not None:
                self._send(failure.status, failure.body, failure.headers)
                return
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            self.user = self.hub.store.tokens.get(token)
            if token and self.user is None:
                raise Refused(401, "Invalid credentials in Authorization header")
            arguments = {key: unquote(value) if value else value for key, value in found.items()}
            if "kind" in arguments:
                arguments["kind"] = arguments["kind"] or "model"
            with self.hub.lock:
                if endpoint == "unknown":
                    raise Refused(404, "Not Found")
                answer = getattr(self, "_" + endpoint.replace("-", "_"))(**arguments)
            if failure is not None and failure.lose:
                self._cut()
            elif answer is not None:
                self._send(200, json.dumps(answer).encode())
        except Refused as refused:
            code = {"X-Error-Code": refused.code} if refused.code else {}
            headers = {"X-Error-Message": refused.message} | code
            self._send(refused.status, json.dumps({"error": refused.message}).encode(), headers)
        finally:
            self.hub.calls.append(Call(endpoint, self.command, self.path, self.answered))

    def _read_body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _cut(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def _send(self, status: int, content: bytes, headers: dict[str, str] | None = None) -> None:
        self.answered = status
        self.send_response(status)
        # A page from elsewhere may read what is public, as with the Hub's.
        usual = {"Content-Type": "application/json", "Access-Control-Allow-Origin": "*"}
        for key, value in (usual | (headers or {})).items():
            self.send_header(key, value)
        if headers is None or "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            with contextlib.suppress(ConnectionError):
                self.wfile.write(content)


@pytest.fixture
def hub() -> Iterator[HubDouble]:
    """The double, empty; a fixture of all tests in `tests/hub`."""
    with HubDouble() as double:
        yield double


@pytest.fixture
def here(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> HubDouble:
    """The double, taken for the Hub by this process too. Its retries do not wait."""
    take_for_hub(hub, monkeypatch)
    return hub


def take_for_hub(hub: HubDouble, monkeypatch: pytest.MonkeyPatch, token: str | None = TOKEN) -> None:
    """Let `huggingface_hub` in this process speak with the double, as somebody."""
    import huggingface_hub.constants
    import huggingface_hub.utils._http

    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.url)
    template = f"{hub.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    if token is None:
        monkeypatch.delenv("HF_TOKEN", raising=False)
    else:
        monkeypatch.setenv("HF_TOKEN", token)
    huggingface_hub.utils._http.close_session()
