"""Shared by all tests: this file's folder goes on the import path, so that every test finds `release_maker`.

No test reads or writes the user's caches, and none reaches the network. Both are decided here, before any library of
Hugging Face is imported; what tests run in processes of their own inherits it.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from browser import Browser

_worker = os.environ.get("PYTEST_XDIST_WORKER")
if _worker is None:
    os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="dci-tests-")
    atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
else:
    os.environ["HF_HOME"] = str(Path(os.environ["HF_HOME"]) / _worker)
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A page in Chromium."""
    with Browser(tmp_path_factory.mktemp("browser")) as running:
        yield running
