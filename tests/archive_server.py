"""A content server with one archive, over real HTTP: Range and If-Range as RFC 9110 has them, and what goes wrong."""

import http.server
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

SECRET = "oh=00_AfSecret&oe=6A"
"""The query of a signed address."""


@dataclass
class Archive:
    """What is served, and how.

    Attributes:
        content: The file's bytes.
        etag: Its tag; None sends none.
        ranges: Whether parts are served; without, every answer is the whole file.
        break_after: Bytes after which the connection is cut, one a request, until the list is empty.
        answers: Codes and headers to send instead of the file, one a request, until the list is empty.
        requests: The headers of each request, in order.
        hang: Bytes after which nothing more comes, until the server is closed.
    """

    content: bytes
    etag: str | None = '"one"'
    last_modified: str | None = None
    ranges: bool = True
    content_type: str = "application/x-tar"
    break_after: list[int] = field(default_factory=list)
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    hang: int | None = None
    closed: threading.Event = field(default_factory=threading.Event)
    url: str = ""


@contextmanager
def serve(archive: Archive) -> Iterator[Archive]:
    """Serve it on this machine; `archive.url` is its signed address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_GET(self) -> None:  # http.server's name
            archive.requests.append(dict(self.headers))
            if archive.answers:
                code, headers = archive.answers.pop(0)
                self.send_response(code)
                for name, value in ({"Content-Length": "0"} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                return
            self._send_file()

        def _send_file(self) -> None:
            total, start = len(archive.content), 0
            wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            same = self.headers.get("If-Range") in (None, archive.etag, archive.last_modified)
            if archive.ranges and wanted and same:
                start = int(wanted[1])
                if start >= total:
                    self.send_response(416)
                    self.send_header("Content-Range", f"bytes */{total}")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
            else:
                self.send_response(200)
            self.send_header("Content-Type", archive.content_type)
            self.send_header("Content-Length", str(total - start))
            for name, value in (("ETag", archive.etag), ("Last-Modified", archive.last_modified)):
                if value is not None:
                    self.send_header(name, value)
            self.end_headers()
            end = start + archive.break_after.pop(0) if archive.break_after else total
            if archive.hang is not None:
                end = archive.hang
            self.wfile.write(archive.content[start:end])
            self.wfile.flush()
            if archive.hang is not None:
                archive.closed.wait()
            if end < total:
                self.close_connection = True

    class Server(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None: ...  # clients hang up when they have seen enough

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    archive.url = f"http://127.0.0.1:{server.server_port}/m1/v/t6/An8.tar?{SECRET}"
    try:
        yield archive
    finally:
        archive.closed.set()
        server.shutdown()
        server.server_close()
