"""Shared by the tests of `dci.py`."""

import datasets
import pytest


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """A cache of its own for each test, so that nothing lands in the user's."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", folder)
    return folder / "dci"
