"""The folder of a run: what is refused, what is removed, and what run is gone on with."""

import dataclasses

import pytest
import yaml

from dci import DCIError
from dci_metrics.training import folder, load_config

ASKED = folder.Asked("clip", "dci", "dci", load_config("sdci_p1"))


@pytest.fixture
def interrupted(tmp_path):
    out = tmp_path / "run"
    folder.prepare(out, False, False, ASKED)
    (out / "checkpoints" / "checkpoint-3").mkdir(parents=True)
    return out


def other(**changes):
    return dataclasses.replace(ASKED, config=load_config("sdci_p1", **changes))


def test_it_says_from_the_beginning_what_run_it_is(tmp_path):
    folder.prepare(tmp_path / "a" / "run", False, False, ASKED)
    path = tmp_path / "a" / "run" / "train_config.yaml"
    assert load_config(path) == ASKED.config
    assert list(yaml.safe_load(path.read_text()))[:4] == ["model", "dataset", "test_dataset", "preset"]


def test_an_empty_folder_may_be_there(tmp_path):
    folder.check(tmp_path, False, False, ASKED)


def test_what_is_in_use_is_refused(interrupted, tmp_path):
    with pytest.raises(DCIError, match="holds an interrupted run; go on with --resume, or start anew with --force"):
        folder.check(interrupted, False, False, ASKED)
    with pytest.raises(DCIError, match="is not empty; choose another folder"):
        folder.check(tmp_path, False, False, ASKED)
    with pytest.raises(DCIError, match="has no checkpoint to resume from"):
        folder.check(tmp_path, True, False, ASKED)
    (tmp_path / "file").touch()
    with pytest.raises(DCIError, match="is no folder"):
        folder.check(tmp_path / "file", False, True, ASKED)


def test_only_the_same_run_goes_on(interrupted):
    folder.check(interrupted, True, False, ASKED)
    folder.check(interrupted, True, False, other(micro_batch_size=4, num_workers=0, gradient_checkpointing=True))
    for changes, name in (({"rank": 2}, "lora"), ({"seed": 1}, "seed"), ({"lora": False}, "lora")):
        with pytest.raises(DCIError, match=f"the run was begun with `{name}` .*; give the same as then"):
            folder.check(interrupted, True, False, other(**changes))
    with pytest.raises(DCIError, match="begun with `dataset` 'dci', and is now to go on with 'b'"):
        folder.check(interrupted, True, False, dataclasses.replace(ASKED, dataset="b"))
    (interrupted / "train_config.yaml").write_text("a: [")
    with pytest.raises(DCIError, match=r"train_config.yaml: cannot be read") as raised:
        folder.check(interrupted, True, False, ASKED)
    assert "\n" not in str(raised.value)


def test_force_removes_nothing_that_is_needed(interrupted, tmp_path, monkeypatch):
    inner = interrupted / "data"
    inner.mkdir()
    folder.check(interrupted, False, True, ASKED, ["clip", tmp_path, [{"image": None}], None])
    for needed in (inner, str(inner), f"coco:{inner}", interrupted):
        with pytest.raises(DCIError, match=r"--force would remove .* with it; choose another folder"):
            folder.check(interrupted, False, True, ASKED, [needed])
    monkeypatch.chdir(inner)
    with pytest.raises(DCIError, match="--force would remove"):
        folder.check(interrupted, False, True, ASKED)
    monkeypatch.chdir(tmp_path)
    folder.prepare(interrupted, False, True, ASKED)
    assert {path.name for path in interrupted.iterdir()} == {"train_config.yaml", "entries"}


def test_a_run_is_finished_when_its_checkpoints_are_gone(interrupted):
    (interrupted / "result_after.json").touch()
    assert not folder.is_finished(interrupted)
    (interrupted / "checkpoints" / "checkpoint-3").rmdir()
    (interrupted / "checkpoints").rmdir()
    assert folder.is_finished(interrupted)
