"""Headless Chromium, driven through its debugging pipe: no package and no port is needed.

with Browser(tmp_path) as browser:
    browser.open(Path("report.html"), width=390)
    browser.evaluate("document.title")
"""

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--remote-debugging-pipe"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-quic"),
    *("--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars", "--force-color-profile=srgb"),
)


class Browser:
    """One page in one Chromium, with a profile of its own.

    Args:
        folder: Where the profile is made.

    Attributes:
        requests: Addresses that the page asked for, data in the page left out.
        messages: What stands in its console.
    """

    def __init__(self, folder: Path) -> None:
        program = shutil.which("chromium")
        if program is None:
            pytest.fail("chromium is not installed; the report's page is tested in it: apt-get install chromium")
        self.requests: list[str] = []
        self.messages: list[str] = []
        self._count = 0
        # Chromium reads commands from its file 3 and answers on its file 4.
        their_in, self._to, self._from, their_out = (*_pipe(), *_pipe())
        command = ["bash", "-c", f'exec "$@" 3<&{their_in} 4>&{their_out}', "-", program, *FLAGS]
        self._process = subprocess.Popen(
            [*command, f"--user-data-dir={folder / 'chromium'}", "about:blank"],
            pass_fds=(their_in, their_out),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(their_in)
        os.close(their_out)
        self._buffer = b""
        self._session: str | None = None
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(target for target in targets if target["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.send(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._session = None
            self.send("Browser.close")
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait()
            os.close(self._to)
            os.close(self._from)

    def open(self, page: Path, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Show a file in a window of the given size, and wait until it is loaded."""
        self.requests.clear()
        self.messages.clear()
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=page.resolve().as_uri())
        self._wait_for("Page.loadEventFired")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression in the page."""
        done = self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in done, done["exceptionDetails"]
        return done["result"].get("value")

    def screenshot(self, path: Path, whole: bool = True) -> None:
        """Save what is seen, or the whole page, as PNG."""
        done = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(done["data"]))

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the DevTools protocol; gives its result."""
        self._count += 1
        message = {"id": self._count, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._count:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _wait_for(self, event: str) -> None:
        while self._read().get("method") != event:
            pass

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            assert select.select([self._from], [], [], 60)[0], "chromium does not answer"
            part = os.read(self._from, 1 << 16)
            assert part, "chromium ended"
            self._buffer += part
        raw, self._buffer = self._buffer.split(b"\0", 1)
        message: dict[str, Any] = json.loads(raw)
        found = message.get("params", {})
        if message.get("method") == "Network.requestWillBeSent" and not found["request"]["url"].startswith("data:"):
            self.requests.append(found["request"]["url"])
        if message.get("method") == "Log.entryAdded":
            self.messages.append(found["entry"]["text"])
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
            self.messages.append(json.dumps(found))
        return message


def _pipe() -> list[int]:
    """Both ends, with numbers that are in nobody's way."""
    ends = os.pipe()
    moved = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 20) for end in ends]
    for end in ends:
        os.close(end)
    return moved
