"""Two processes on one dataset give what one gives."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import command
import pytest
import tiny_models
from awkward_release import write_awkward_release
from encoders import families, vlms

import dci_metrics
from dci_metrics import cli, mpi


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
    one = dci_metrics.evaluate(str(model), str(release), tests=["all"], cache=False, progress=False)
    one.save(tmp_path / "one.json")
    found = run(dci(*arguments, "--num-processes", 2, "--out", tmp_path / "two.json"))
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("All SCM") == 1
    assert content(tmp_path / "two.json") == content(tmp_path / "one.json")


@pytest.fixture(scope="module")
def pair_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair-models")
    model, processor = families.blip_retrieval()
    model.save_pretrained(folder / "blip")
    processor.save_pretrained(folder / "blip")
    vlms.save("llava", folder / "llava")
    return {"matching": folder / "blip", "vqascore": folder / "llava"}


# A generative model takes long for all images with all texts.
@pytest.mark.parametrize(("scorer", "tests"), [("matching", "all"), ("vqascore", "base_scm,all_neg")])
def test_two_processes_that_score_pairs_give_the_file_of_one(pair_models, release, tmp_path, scorer, tests):
    model, wanted = pair_models[scorer], tests.split(",")
    one = dci_metrics.evaluate(str(model), str(release), scorer=scorer, tests=wanted, cache=False, progress=False)
    one.save(tmp_path / "one.json")
    arguments = ["eval", model, "--dataset", release, "--scorer", scorer, "--tests", tests, "--cache-dir", tmp_path]
    found = run(dci(*arguments, "--num-processes", 2, "--out", tmp_path / "two.json"))
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("All Neg") == 1
    assert content(tmp_path / "two.json") == content(tmp_path / "one.json")
    assert len(list(tmp_path.glob("*/pairs/*.safetensors"))) == 2  # each process keeps what it scored
    again = dci_metrics.evaluate(model, release, scorer=scorer, tests=wanted, cache=tmp_path, progress=False)
    assert again.outcomes == one.outcomes
    assert len(list(tmp_path.glob("*/pairs/*.safetensors"))) == 2


# ----------------------------------------------------------------------------------------------------------------------
# Other launchers
# ----------------------------------------------------------------------------------------------------------------------

MPIRUN = """#!{python}
import os, subprocess, sys
given = sys.argv[1:]
if given == ["--version"]:
    sys.exit(print("mpirun (Open MPI) 4.1.6"))
options = {{}}
while given[0].startswith("-"):
    name, value, *given = given
    options[name] = value
count = options["-n"]
running = []
for rank in map(str, range(int(count))):
    ours = {{"RANK": rank, "SIZE": count, "LOCAL_RANK": rank, "LOCAL_SIZE": count}}
    names = {{f"OMPI_COMM_WORLD_{{name}}": value for name, value in ours.items()}}
    running.append(subprocess.Popen(given, env=os.environ | names))
sys.exit(max(process.wait() for process in running))
"""
"""What Open MPI's `mpirun` does, as far as it is asked here: to start processes, and tell each its number."""


@pytest.fixture(params=["one process", "as on GPUs", "MPI"])
def accelerate(request, tmp_path):
    """`accelerate launch` in its ways to start processes: (arguments of `dci`) → what became of it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # All that it would otherwise tell that it made up.
    options = ["--num_processes", 2, "--num_machines", 1, "--mixed_precision", "no", "--dynamo_backend", "no"]
    options += ["--main_process_port", port, "--quiet", "--multi_gpu" if request.param == "as on GPUs" else "--cpu"]
    # No configuration of the user's, nor what a launcher around the tests has set.
    theirs = ("ACCELERATE_", "OMPI_", "PMI_", "MPI_", "MASTER_")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    environment |= {"HF_HOME": str(tmp_path / "home"), "OMP_NUM_THREADS": "1"}
    if request.param == "MPI":
        folder = tmp_path / "bin"
        folder.mkdir()
        (folder / "mpirun").write_text(MPIRUN.format(python=sys.executable))
        (folder / "mpirun").chmod(0o755)
        (tmp_path / "hosts").write_text("localhost slots=2\n")
        environment["PATH"] = f"{folder}{os.pathsep}{environment['PATH']}"
        options += ["--mpirun_hostfile", tmp_path / "hosts"]

    def launch(*arguments):
        launcher = [Path(sys.executable).parent / "accelerate", "launch", *options, "-m", "dci_metrics", *arguments]
        return run([*map(str, launcher)], env=environment)

    return launch


def test_accelerates_launcher(model, release, tmp_path, accelerate):
    one = dci_metrics.evaluate(str(model), str(release), tests=["all"], cache=False, progress=False)
    one.save(tmp_path / "one.json")
    arguments = ["eval", model, "--dataset", release, "--tests", "all", "--no-cache"]
    found = accelerate(*arguments, "--out", tmp_path / "two.json")
    assert found.returncode == 0, found.stderr
    assert found.stdout.count("All SCM") == found.stdout.count("Written") == 1
    assert content(tmp_path / "two.json") == content(tmp_path / "one.json")


@pytest.mark.parametrize("accelerate", ["one process", "as on GPUs"], indirect=True)
def test_an_error_under_accelerates_launcher(model, tmp_path, accelerate):
    found = accelerate("eval", model, "--dataset", "sample:scene", "--out", tmp_path / "two.json")
    assert found.returncode != 0
    assert found.stdout == ""
    ours = [line for line in found.stderr.splitlines() if "dci: error:" in line]
    assert len(ours) == 1, found.stderr
    assert "no sample 'sample:scene'" in ours[0]
    # Of several processes that end with an error, torch's launcher gives a report of its own then.
    assert "Traceback" not in found.stderr.partition(ours[0])[0]
    assert not (tmp_path / "two.json").exists()


def test_mpis_names_are_those_of_torch_where_accelerate_says_where_to_meet(monkeypatch):
    environment = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
    monkeypatch.setattr(mpi.os, "environ", environment)
    before = dict(environment)
    mpi.adopt()
    assert environment == before
    environment["MASTER_PORT"] = "29500"
    mpi.adopt()
    assert environment.items() - before.items() == {
        ("RANK", "1"), ("WORLD_SIZE", "3"), ("LOCAL_RANK", "0"), ("LOCAL_WORLD_SIZE", "2"), ("MASTER_PORT", "29500")
    }  # fmt: skip
    environment |= {"RANK": "2", "WORLD_SIZE": "4"}  # those of torch's own launcher go before
    mpi.adopt()
    assert (environment["RANK"], environment["WORLD_SIZE"]) == ("2", "4")


def test_an_error_that_the_first_process_tells_too_is_told_once(monkeypatch, capsys):
    def ended(seconds):  # the launcher does, once the first process has ended
        raise SystemExit(143)

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(cli.time, "sleep", ended)
    assert command.run(monkeypatch, capsys, "eval", "sample:tiny-clip", "--dataset", "sample:scene") == (143, "", "")


def test_an_error_of_another_process_alone_is_told_by_it(monkeypatch, capsys):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setattr(cli, "PATIENCE", 0.1)
    done = command.run(monkeypatch, capsys, "eval", "sample:tiny-clip", "--dataset", "sample:scene")
    command.refused(done, "no sample 'sample:scene'")


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
