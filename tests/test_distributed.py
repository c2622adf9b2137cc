"""Two processes on one dataset give what one gives."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
import tiny_models
from awkward_release import write_awkward_release

import dci_metrics


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_clip(tmp_path_factory.mktemp("models") / "clip", seed=5)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=5)


def run(command, **options):
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, **options)


def dci(*arguments):
    return [sys.executable, "-m", "dci_metrics", *map(str, arguments)]


def content(path):
    return {key: value for key, value in json.loads(path.read_bytes()).items() if key != "timing"}


def test_two_processes_give_the_file_of_one(model, release, tmp_path):
    arguments = ["eval", model, "--dataset", release, "--tests", "all", "--no-cache"]
    one = dci_metrics.evaluate(model, release, tests=["all"], cache=False, progress=False)
    one.save(tmp_path / "one.json")
    found = run(dci(*arguments, "--num-processes", 2, "--out", tmp_path / "two.json"))
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("All SCM") == 1
    two, expected = content(tmp_path / "two.json"), content(tmp_path / "one.json")
    expected["model"]["id"], expected["dataset"]["id"] = two["model"]["id"], two["dataset"]["id"]
    assert two == expected


def test_torchs_own_launcher(model, release, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = ["-m", "dci_metrics", "eval", model, "--dataset", release, "--no-cache", "--out", tmp_path / "two.json"]
    found = run([*launcher, *map(str, command)])
    assert found.returncode == 0, found.stderr
    one = dci_metrics.evaluate(model, release, cache=False, progress=False)
    assert content(tmp_path / "two.json")["outcomes"] == one.outcomes


def test_more_processes_than_photos_and_photos_left_out(model, tmp_path):
    arguments = ["eval", model, "--dataset", "sample:photographs", "--split", "train", "--no-cache"]
    found = run(dci(*arguments, "--num-processes=2", "--out", tmp_path / "two.json"))
    assert found.returncode == 0, found.stderr
    one = dci_metrics.evaluate(model, "sample:photographs", split="train", cache=False, progress=False)
    assert content(tmp_path / "two.json")["outcomes"] == one.outcomes


def test_an_error_in_one_process_ends_all_with_one_line(model, release, tmp_path):
    photos = sorted((release / "densely_captioned_images" / "photos").iterdir())
    whole = {photo: photo.read_bytes() for photo in photos}
    try:
        for photo in photos:
            photo.write_bytes(photo.read_bytes()[:100])
        found = run(dci("eval", model, "--dataset", release, "--num-processes", 2, "--out", tmp_path / "two.json"))
    finally:
        for photo, bytes_ in whole.items():
            photo.write_bytes(bytes_)
    assert found.returncode == 2
    assert found.stderr.count("dci: error:") == 1, found.stderr
    assert "cannot be read as a photo" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "two.json").exists()


def test_an_interruption_ends_all(model, tmp_path):
    process = subprocess.Popen(
        dci("eval", model, "--dataset", "sample:scenes", "--num-processes", 2, "--out", tmp_path / "two.json"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    time.sleep(6)
    os.killpg(process.pid, signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode != 0
    assert not (tmp_path / "two.json").exists()
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
