"""`dci eval`: what it prints and writes, and one line for all that can be wrong."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_models
from awkward_release import noise_photo, write_awkward_release
from release_maker import photo_annotation, write_release

import dci_metrics
from dci_metrics import cli
from dci_metrics.results import Result

# Tells on stdout when the first photo is about to be read, then goes on as `dci`.
EVAL_THAT_TELLS = """
import dci_metrics.cli
import dci_metrics.walk as walk
original = walk.Walk.__iter__
def telling(self):
    print("reading", flush=True)
    return original(self)
walk.Walk.__iter__ = telling
dci_metrics.cli.main()
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_clip(tmp_path_factory.mktemp("models") / "clip", seed=6)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=6)


@pytest.fixture(scope="module")
def expected(model, release):
    return dci_metrics.evaluate(model, release, progress=False)


@pytest.fixture
def dci(tmp_path, monkeypatch, capsys):
    """Runs the command in this process, in a folder of its own; gives exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["dci", *map(str, arguments)])
        capsys.readouterr()
        try:
            cli.main()
            code = 0
        except SystemExit as error:
            code = error.code or 0
        return code, *capsys.readouterr()

    return run


def small_release(folder, photos=4):
    size = (64, 48)
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size) for i in range(photos)}
    return write_release(folder, notes, {f"sa_{i}.jpg": noise_photo(i, size) for i in range(photos)})


def photos_of(folder):
    return folder / "densely_captioned_images" / "photos"


def test_table_and_result_file(tmp_path, model, release, expected):
    command = [Path(sys.executable).with_name("dci"), "eval", model, "--dataset", release, "--out", "result.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert expected.table() in done.stdout
    assert done.stdout.endswith("Written: result.json\n")
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]
    result = Result.load(tmp_path / "result.json")
    assert (result.scores, result.outcomes, result.entries) == (expected.scores, expected.outcomes, expected.entries)
    assert result.dataset == expected.dataset
    assert result.model == expected.model


def test_version():
    done = subprocess.run([sys.executable, "-m", "dci_metrics", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"dci-metrics {dci_metrics.__version__}\n", "")


def test_options_reach_the_benchmark(dci, model, release, expected, tmp_path):
    code, out, err = dci(
        *("eval", model, "--dataset", release, "--tests", "base_neg, hard_negs", "--batch-size", "3", "--seed", "7"),
        *("--device", "cpu", "--dtype", "bfloat16", "--out", "a.json"),
    )
    assert (code, err) == (0, "")
    result = Result.load(tmp_path / "a.json")
    assert list(result.scores) == ["base_neg", "hard_negs"]
    assert result.scores["base_neg"].n == expected.scores["base_neg"].n
    wanted = {"batch_size": 3, "dtype": "bfloat16", "device": "cpu", "seed": 7, "mode": "paper", "group_size": 8}
    assert wanted.items() <= result.settings.items()
    assert "Base Neg" in out
    assert "All SCM" not in out


def test_what_exists_is_kept_without_force(dci, model, tmp_path):
    small_release(tmp_path / "release")
    (tmp_path / "result.json").write_text("mine")
    arguments = ("eval", model, "--dataset", "release", "--out", "result.json", "--tests", "base_neg")
    one_line(dci(*arguments), "result.json: exists")
    assert (tmp_path / "result.json").read_text() == "mine"
    assert dci(*arguments, "--force")[0] == 0
    assert json.loads((tmp_path / "result.json").read_text())["schema"] == 1
    (tmp_path / "folder").mkdir()
    one_line(dci(*arguments[:4], "--out", "folder", "--force"), "folder: is a folder")
    one_line(dci(*arguments[:4], "--out", "nowhere/result.json"), "there is no folder nowhere")


def one_line(done, *parts):
    code, out, err = done
    assert (code, out) == (2, "")
    assert err.startswith("dci: error: ")
    assert err.count("\n") == 1
    assert err.endswith("\n")
    for part in parts:
        assert part in err


def test_one_line_for_what_is_wrong(dci, model, release, tmp_path):
    (tmp_path / "empty").mkdir()
    wrong = [
        (("nowhere", "--dataset", release), "nowhere: is no folder here, and cannot be loaded as a model"),
        (("empty", "--dataset", release), "empty: cannot be loaded as a model"),
        (("sample:nothing", "--dataset", release), "no sample 'sample:nothing'"),
        ((model, "--dataset", "nowhere"), "nowhere: is no folder here, and cannot be loaded as a dataset"),
        ((model, "--dataset", "./no/where/at/all"), "./no/where/at/all: is no folder here"),
        ((model, "--dataset", "empty"), "empty: neither a folder of `dci build`"),
        ((model, "--dataset", "sample:nothing"), "no sample 'sample:nothing'"),
        ((model, "--dataset", release, "--split", "valid"), "no split 'valid': expected one of train, validation"),
        ((model, "--dataset", release, "--split", "train"), "lists no file for 'train'; it has test"),
        ((model, "--dataset", release, "--tests", "all_scm,neg"), "no test 'neg': expected some of all_scm"),
        ((model, "--dataset", release, "--tests", ""), "no test ''"),
        ((model, "--dataset", release, "--dtype", "float8"), "no dtype 'float8'"),
        ((model, "--dataset", release, "--device", "gpu"), "no device 'gpu' here"),
        ((model, "--dataset", release, "--device", "cuda:99"), "no device 'cuda:99' here"),
    ]
    for arguments, message in wrong:
        one_line(dci("eval", *arguments, "--out", "result.json"), message)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_arguments_that_cannot_be_parsed(dci, model, release):
    for arguments in (
        ("eval",),
        ("eval", model),
        ("eval", model, "--dataset", release, "--batch-size", "0"),
        ("eval", model, "--dataset", release, "--batch-size", "many"),
        ("eval", model, "--dataset", release, "--on-error", "pass"),
        ("eval", model, "--dataset", release, "--strange"),
        ("build",),
        ("build", "release", "--num-proc", "0"),
        ("strange",),
    ):
        code, out, err = dci(*arguments)
        assert (code, out) == (2, "")
        assert "Traceback" not in err


def test_photos_that_are_broken_or_missing(dci, model, tmp_path):
    folder = small_release(tmp_path / "release")
    arguments = ("eval", model, "--dataset", "release", "--tests", "base_neg,base_scm", "--out", "result.json")
    broken = photos_of(folder) / "sa_2.jpg"
    broken.write_bytes(broken.read_bytes()[:300])
    one_line(dci(*arguments), "sa_2.jpg: cannot be read as a photo")
    for i in (0, 1):
        (photos_of(folder) / f"sa_{i}.jpg").unlink()
    one_line(dci(*arguments), "2 of 4 photos are missing: sa_0.jpg, sa_1.jpg")
    assert [path.name for path in tmp_path.iterdir()] == ["release"]

    code, out, err = dci(*arguments, "--on-error", "skip")
    assert code == 0
    assert "Traceback" not in err
    result = Result.load(tmp_path / "result.json")
    assert result.entries == [("3", "base")]
    assert sorted(left["image_id"] for left in result.scores["base_neg"].left_out) == ["0", "1", "2"]
    assert "photo sa_0.jpg is missing" in out

    (photos_of(folder) / "sa_3.jpg").unlink()
    one_line(
        dci(*arguments, "--on-error", "skip", "--force"), "4 photos are left out, the first one, 0, because: photo sa_0"
    )


def test_ctrl_c_ends_it_with_130_and_leaves_nothing(tmp_path, model):
    folder = small_release(tmp_path / "release")
    splits = folder / "densely_captioned_images" / "splits.json"
    names = json.loads(splits.read_text())
    splits.write_text(json.dumps(names | {"test": 2000 * names["test"]}))
    before = sorted(tmp_path.rglob("*"))
    arguments = ["eval", str(model), "--dataset", "release", "--batch-size", "1", "--out", "result.json"]
    process = subprocess.Popen(
        [sys.executable, "-c", EVAL_THAT_TELLS, *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(Path(dci_metrics.__file__).parents[1])},
    )
    try:
        assert process.stdout.readline() == "reading\n"
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        interrupted = time.monotonic()
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()  # only where it did not end
    assert (process.returncode, out, err) == (130, "", "")
    assert time.monotonic() - interrupted < 10
    assert sorted(tmp_path.rglob("*")) == before


def test_help_is_fast_and_needs_neither_torch_nor_datasets():
    code = "import sys, dci_metrics.cli; print({'torch', 'datasets', 'transformers', 'numpy'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("set()\n", "")
