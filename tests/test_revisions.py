"""What a figure was made with: the package's commit, a model's weights."""

import hashlib
import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from dci_metrics import revisions


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that holds the package's file; gives a function that runs git in it."""
    package = tmp_path / "repo" / "dci_metrics"
    package.mkdir(parents=True)
    module = package / "revisions.py"
    module.write_text("# as committed\n")
    monkeypatch.setattr(revisions, "__file__", str(module))

    def git(*arguments):
        options = ("-c", "user.name=a", "-c", "user.email=a@b")
        return subprocess.run(
            ["git", "-C", package.parent, *options, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    return git


def of_package():
    return revisions.of_package.__wrapped__()


def test_a_checkout_tells_its_commit(checkout):
    checkout("add", ".")
    checkout("commit", "-qm", "one")
    checkout("tag", "-am", "v1", "v1")
    commit = checkout("rev-parse", "HEAD")
    assert of_package() == commit
    Path(revisions.__file__).write_text("# changed since\n")
    assert of_package() == f"{commit}-dirty"


def test_the_repository_around_an_installed_package_tells_nothing(checkout):
    (Path(revisions.__file__).parents[1] / "users.py").write_text("")
    checkout("add", "users.py")
    checkout("commit", "-qm", "the user's own")
    assert of_package() is None


def test_an_installation_from_git_tells_its_commit(tmp_path, monkeypatch):
    class Distribution:
        def __init__(self, text):
            self.text = text

        def read_text(self, name):
            return self.text if name == "direct_url.json" else None

    monkeypatch.setattr(revisions, "__file__", str(tmp_path / "revisions.py"))
    for text, expected in (
        (json.dumps({"url": "https://x", "vcs_info": {"vcs": "git", "commit_id": "abc"}}), "abc"),
        (json.dumps({"url": "file:///x", "dir_info": {}}), None),
        (None, None),
        ("{", None),
    ):
        monkeypatch.setattr(metadata, "distribution", lambda _, text=text: Distribution(text))
        assert of_package() == expected
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    monkeypatch.setattr(metadata, "distribution", lambda _: Distribution(json.dumps({"vcs_info": {"commit_id": "d"}})))
    assert of_package() == "d"


def test_weights(tmp_path):
    assert revisions.of_weights(tmp_path) is None
    assert revisions.of_weights(tmp_path / "org" / "model") is None
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    assert revisions.of_weights(tmp_path) == "sha256:" + hashlib.sha256(b"pickle").hexdigest()
    (tmp_path / "model-2.safetensors").write_bytes(b"two")
    assert revisions.of_weights(tmp_path) == "sha256:" + hashlib.sha256(b"two").hexdigest()
    (tmp_path / "model-1.safetensors").write_bytes(b"one")
    both = revisions.of_weights(tmp_path)
    assert both == revisions.of_weights(tmp_path)
    (tmp_path / "model-1.safetensors").write_bytes(b"changed")
    assert revisions.of_weights(tmp_path) != both
