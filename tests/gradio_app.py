"""A Space's Gradio app, run in an environment that has the Space's requirements and Gradio alone, and asked."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

PYTHON = Path(__file__).parents[1] / ".venvs" / "gradio" / "bin" / "python"

ASK = """
import json, sys
from gradio_client import Client

client = Client(sys.argv[1], verbose=False)
print(json.dumps([client.predict(*given, api_name=name) for name, given in json.load(sys.stdin)]))
"""


def ask(space: Path, folder: Path, questions: list[tuple[str, list[Any]]]) -> list[Any]:
    """Answers of the app in a Space's folder, by its API; `folder` is for what it writes."""
    if not PYTHON.exists():
        pytest.fail(f"no environment with Gradio in {PYTHON.parents[1]}: run `make test`, which makes it")
    port = 7860 + os.getpid() % 1000
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {
        "GRADIO_SERVER_PORT": str(port),
        "GRADIO_ANALYTICS_ENABLED": "False",
        "HF_HOME": str(folder),
    }
    log_file = folder / "log"
    with log_file.open("w") as log:
        server = subprocess.Popen([PYTHON, space / "app.py"], env=environment, cwd=folder, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 120
        while "Running on" not in log_file.read_text() and server.poll() is None and time.monotonic() < until:
            time.sleep(0.5)
        done = subprocess.run(
            [PYTHON, "-c", ASK, f"http://127.0.0.1:{port}/"],
            input=json.dumps(questions), env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr + log_file.read_text()
        answers: list[Any] = json.loads(done.stdout)
        return answers
    finally:
        server.terminate()
        server.wait()
