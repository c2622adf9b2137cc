"""Several seeds: mean and deviation, their folder, and what is not run again."""

import json
import shutil

import pytest

from dci import DCIError
from dci_metrics.results import Result
from dci_metrics.training import seeds, train_seeds

OPTIONS = {"preset": "sdci_p1nl0", "max_photos": 12, "epochs": 1, "evals_per_epoch": 1, "batch_size": 16,
           "num_workers": 0, "progress": False, "test_dataset": "sample:photographs"}  # fmt: skip


def run(folder, numbers, **options):
    return train_seeds("sample:tiny-clip", "sample:scenes", folder, numbers, **OPTIONS | options)


def test_seeds(tmp_path, monkeypatch):
    out = tmp_path / "s"
    found = run(out, [0, 3])
    results = {seed: Result.load(out / f"seed-{seed}" / "result_after.json") for seed in (0, 3)}
    assert found.after == {seed: result.values() for seed, result in results.items()}
    mean, deviation = found.of("all_scm")
    a, b = (result.values()["all_scm"] for result in results.values())
    assert mean == pytest.approx((a + b) / 2)
    assert deviation == pytest.approx(abs(a - b) / 2**0.5)
    written = json.loads((out / "seeds.json").read_text())
    assert written["tests"]["all_scm"]["seeds"] == {"0": a, "3": b}
    assert "All SCM" in found.report()

    readme = (out / "README.md").read_text()
    before = Result.load(out / "seed-0" / "result_before.json").values()["all_scm"]
    row = f"| All SCM | {100 * before:.2f} | {100 * mean:.2f} ± {100 * deviation:.2f} | {100 * a:.2f} | {100 * b:.2f} |"
    assert row in readme.splitlines()
    assert "preset `sdci_p1nl0`" in readme
    assert "On the split `test` of sample:photographs" in readme
    assert "[seed 3](seed-3/README.md)" in readme
    assert (out / "seed-3" / "README.md").is_file()

    # A run that is complete is kept; one of another configuration is no part of it.
    shutil.rmtree(out / "seed-3")
    kept = (out / "seed-0" / "training_log.json").read_bytes()
    with pytest.raises(DCIError, match=r"seed-0: the run was begun with `learning_rate` 0\.001, and is now"):
        run(out, [0, 3], resume=True, learning_rate=0.1)
    assert not (out / "seed-3").exists()
    assert run(out, [0, 3], resume=True) == found
    assert (out / "seed-0" / "training_log.json").read_bytes() == kept

    with pytest.raises(DCIError, match=r"seed-0: is not empty"):
        run(out, [5, 0])
    assert not (out / "seed-5").exists()
    (out / "seed-0" / "checkpoints").mkdir()  # as of a run that was ended while it wrote its card
    monkeypatch.setattr(seeds, "train", lambda *_, **__: pytest.fail("it has begun"))
    with pytest.raises(DCIError, match="is not empty"):
        run(out, [0], resume=True)


@pytest.mark.parametrize("numbers", [[], [1, 1], [0, "x"], [0, -1], [0, True], [0.5]])
def test_what_is_no_seed_is_told_before_the_first_run(numbers, tmp_path, monkeypatch):
    monkeypatch.setattr(seeds, "train", lambda *_, **__: pytest.fail("it has begun"))
    with pytest.raises(DCIError, match="seeds: expected some different whole numbers, got "):
        run(tmp_path / "s", numbers)
    assert not (tmp_path / "s").exists()


def test_one_seed_has_no_deviation():
    found = seeds.Seeds("clip", {"all_scm": 0.5}, {7: {"all_scm": 0.25}})
    assert found.of("all_scm") == (0.25, None)
    assert found.to_json()["tests"]["all_scm"]["standard_deviation"] is None
    assert found.report().splitlines()[2].split() == ["All", "SCM", "50.00", "25.00", "–", "25.00"]
