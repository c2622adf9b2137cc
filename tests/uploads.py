"""An upload for tests: its files, the call that is refused, and the same in a process of its own."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import huggingface_hub.utils._http
import pytest
from hub_double import TOKEN, HubDouble

import dci
from dci_metrics.hub import session
from dci_metrics.hub.publishing import Destination, publish

BIG = {f"data/{name}.parquet": random.Random(name).randbytes(200_000) for name in ("a", "b", "c")}
FILES = BIG | {"README.md": b"---\nlicense: mit\n---\n# It\n", "eval.yaml": b"name: it\n"}
DATASET = Destination("owner/dci", "dataset")


def write(folder: Path, files: dict[str, bytes] = FILES) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def refused(destination: Destination, *parts: str, files: dict[str, bytes] = FILES) -> str:
    """The one line that an upload ends with, and that it names the repo and has the parts."""
    with pytest.raises(dci.DCIError) as caught:
        publish(lambda folder: write(folder, files), destination, "Upload")
    message = str(caught.value)
    for part in (destination.repo, *parts):
        assert part in message
    assert "\n" not in message
    assert TOKEN not in message
    return message


def files_of(double: HubDouble, revision: str = "main") -> dict[str, bytes]:
    return double.store.repos["dataset", "owner/dci"].files(revision)


def start_upload(
    double: HubDouble, home: Path, token: str | None = TOKEN, quiet: bool = True, **environment: str
) -> Any:
    """The same upload in a process of its own, as the command does it, or with all that the client logs."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1:2]\n"
        "from uploads import DATASET, write\n"
        "from dci_metrics.hub.publishing import publish\n"
        "from dci_metrics import cli, terminal\n"
        "if sys.argv[2] == 'True': terminal.quiet_unless_on_terminal()\n"
        "def app(**_): print(publish(write, DATASET, 'Upload'))\n"
        "cli.app = app\n"
        "cli.main()\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, str(Path(__file__).parent), str(quiet)],
        env=os.environ | double.environment(token) | {"HF_HOME": str(home), "TMPDIR": str(home)} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def do_not_wait(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Lets retries follow at once; gives the seconds that would have been waited."""
    waited: list[float] = []
    real = time.sleep

    def sleep(seconds: float) -> None:
        # Those of the client and ours; the double's own slowness is real.
        waited.append(seconds)
        real(0)

    for module in (session, huggingface_hub.utils._http):
        monkeypatch.setattr(module, "time", type("Clock", (), {"sleep": staticmethod(sleep), "time": time.time}))
    return waited
