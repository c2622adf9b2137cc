"""The result type: its file, its table."""

import copy
import json
import math
import os

import pytest

import dci
from dci_metrics import results
from dci_metrics.results import Result, Score

MODEL = ["id", "revision", "family", "adapter", "parameters", "text_limit", "image_size"]
SETTINGS = ["mode", "group_size", "batch_size", "dtype", "device", "image_backend", "seed"]
SCORE = [
    *("value", "unit", "higher_is_better", "correct", "n", "n_images", "n_texts", "ci95", "chance", "ties"),
    *("truncated", "tokens_lost", "left_out"),
]


@pytest.fixture
def result():
    left_out = [{"image_id": "3", "reason": "no `swaps` for base"}, {"image_id": "é", "reason": "photo is missing"}]
    scm = Score(2 / 3, 2, 3, 3, 3, (0.25, 1.0), 1 / 3, 0, 0.125, 7, left_out)
    none = Score(None, 0, 0, 0, 0, None, None, 0, None, None, [])
    return Result(
        model=dict(zip(MODEL, ["a/clip", None, "clip", None, 1000, 77, 32], strict=True)),
        dataset={"id": "dci", "revision": None, "config": "sdci", "split": "test", "fingerprint": "0" * 64},
        settings=dict(zip(SETTINGS, ["paper", 8, 64, "float32", "cpu", "pil", 0], strict=True)),
        scores={"all_scm": scm, "pick5_neg": none},
        entries=[("112956", "base"), ("112956", "m-3-sc"), ("2", "base")],
        outcomes={"all_scm": "011", "pick5_neg": "---"},
        timing={"seconds": 1.5, "images": 3, "texts": 3, "stages": {"images": 0.5}},
    )


def test_the_file_is_what_the_design_says(result, tmp_path):
    result.save(tmp_path / "result.json")
    data = json.loads((tmp_path / "result.json").read_bytes(), parse_constant=lambda name: pytest.fail(name))
    assert list(data) == [
        *("schema", "model", "dataset", "settings", "scores", "entries", "outcomes", "timing", "environment")
    ]
    assert data["schema"] == 1
    assert list(data["model"]) == MODEL
    assert list(data["dataset"]) == ["id", "revision", "config", "split", "fingerprint"]
    assert list(data["settings"]) == SETTINGS
    assert list(data["scores"]) == ["all_scm", "pick5_neg"]
    for score in data["scores"].values():
        assert sorted(score) == sorted(SCORE)
    assert data["scores"]["all_scm"] == {
        "value": 2 / 3,
        "unit": "accuracy",
        "higher_is_better": True,
        "correct": 2,
        "n": 3,
        "n_images": 3,
        "n_texts": 3,
        "ci95": [0.25, 1.0],
        "chance": 1 / 3,
        "ties": 0,
        "truncated": 0.125,
        "tokens_lost": 7,
        "left_out": [
            {"image_id": "3", "reason": "no `swaps` for base"},
            {"image_id": "é", "reason": "photo is missing"},
        ],
    }
    assert data["entries"] == [["112956", "base"], ["112956", "m-3-sc"], ["2", "base"]]
    assert data["outcomes"] == {"all_scm": "011", "pick5_neg": "---"}
    assert {"python", "torch", "transformers", "datasets", "dci_metrics"} <= data["environment"].keys()


def test_round_trip(result, tmp_path):
    result.save(tmp_path / "result.json")
    loaded = Result.load(tmp_path / "result.json")
    assert loaded == result
    assert loaded.to_json() == result.to_json()
    assert loaded.values() == {"all_scm": 2 / 3, "pick5_neg": None}
    assert loaded.report() == result.report()


def test_the_breakdown_stands_last_and_is_of_the_tests_entries(result, tmp_path):
    bins = {"photo": {"n": 2, "correct": 1, "value": 0.5}, "<256": {"n": 1, "correct": 1, "value": 1.0}}
    result.breakdown = {"all_scm": {"size": bins}}
    result.save(tmp_path / "result.json")
    assert list(json.loads((tmp_path / "result.json").read_bytes()))[-1] == "breakdown"
    assert Result.load(tmp_path / "result.json") == result
    for wrong in ({"all_scm": {"size": {"photo": {"n": 2}}}}, {"other": {"size": bins}}, [1], {"all_scm": 1}):
        result.breakdown = wrong
        (tmp_path / "result.json").write_text(result.to_json())
        with pytest.raises(dci.DCIError, match=r"result.json: not a result file"):
            Result.load(tmp_path / "result.json")


def test_values_by_entry(result):
    assert result.values_of("all_scm") == dict(zip(result.entries, [0.0, 1.0, 1.0], strict=True))
    assert result.values_of("pick5_neg") == {}
    result.rates["random_scm_i2t"] = [0.5, None, 0.25]
    assert result.values_of("random_scm_i2t") == {("112956", "base"): 0.5, ("2", "base"): 0.25}


def test_no_nan_is_written(result, tmp_path):
    for value in (math.nan, math.inf):
        result.scores["all_scm"].value = value
        with pytest.raises(ValueError, match="JSON compliant"):
            result.save(tmp_path / "result.json")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_exists_is_not_overwritten(result, tmp_path):
    path = tmp_path / "result.json"
    path.write_text("mine")
    with pytest.raises(dci.DCIError, match=r"result.json: exists.*--force"):
        result.save(path)
    assert path.read_text() == "mine"
    result.save(path, force=True)
    assert Result.load(path) == result
    assert [entry.name for entry in tmp_path.iterdir()] == ["result.json"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_a_file_that_cannot_be_written(result, tmp_path):
    with pytest.raises(dci.DCIError, match=r"there is no folder .*nowhere"):
        result.save(tmp_path / "nowhere" / "result.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(dci.DCIError, match="folder: "):
        result.save(tmp_path / "folder", force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["folder"]


def spoilt(data, *path, value):
    data = copy.deepcopy(data)
    cell = data
    for step in path[:-1]:
        cell = cell[step]
    cell[path[-1]] = value
    return json.dumps(data)


def test_files_that_are_no_result(result, tmp_path):
    data = json.loads(result.to_json())
    bad = {
        "truncated": result.to_json()[:-30],
        "empty": "",
        "a list": "[]",
        "text": '"text"',
        "another schema": spoilt(data, "schema", value=2),
        "another file": '{"schema": 1}',
        "nested": "[" * 100_000,
        "scores as list": spoilt(data, "scores", value=[]),
        "score without ci95": spoilt(data, "scores", "all_scm", value={"value": 1}),
        "score with more": spoilt(data, "scores", "all_scm", "more", value=1),
        "entries as numbers": spoilt(data, "entries", value=[1, 2, 3]),
        "entries of three": spoilt(data, "entries", value=[["a", "b", "c"]]),
        "fewer outcomes": spoilt(data, "outcomes", "all_scm", value="01"),
        "other marks": spoilt(data, "outcomes", "all_scm", value="0?1"),
        "outcomes as numbers": spoilt(data, "outcomes", "all_scm", value=[0, 1, 1]),
        "outcomes of other tests": spoilt(data, "outcomes", value={}),
        "another figure": spoilt(data, "scores", "all_scm", "value", value=0.9),
        "NaN": spoilt(data, "scores", "all_scm", "value", value=math.nan),
        "text for a figure": spoilt(data, "scores", "all_scm", "value", value="0.6"),
        "an end that is none": spoilt(data, "scores", "all_scm", "ci95", value=[0.1, math.nan]),
        "one end": spoilt(data, "scores", "all_scm", "ci95", value=[0.1]),
        "an end in percent": spoilt(data, "scores", "all_scm", "ci95", value=[25, 10**400]),
        "text for a share": spoilt(data, "scores", "all_scm", "truncated", value="<b>"),
        "left out without a reason": spoilt(data, "scores", "all_scm", "left_out", value=[{"image_id": "3"}]),
        "left out for a number": spoilt(data, "scores", "all_scm", "left_out", 0, value={"image_id": "3", "reason": 1}),
        "left out as text": spoilt(data, "scores", "all_scm", "left_out", value="all"),
        "no model": spoilt(data, "model", value={}),
        "a model without a name": spoilt(data, "model", "id", value=None),
        "an adapter that is true": spoilt(data, "model", "adapter", value=True),
        "a number for a commit": spoilt(data, "model", "revision", value=7),
        "dataset as list": spoilt(data, "dataset", value=["dci"]),
        "no fingerprint": spoilt(data, "dataset", "fingerprint", value=None),
        "settings as text": spoilt(data, "settings", value="paper"),
        "no time": spoilt(data, "timing", value={}),
        "environment as list": spoilt(data, "environment", value=[]),
        "a number for a version": spoilt(data, "environment", "dci_metrics", value=1),
    }
    for name, content in bad.items():
        path = tmp_path / f"{name}.json"
        path.write_text(content)
        with pytest.raises(dci.DCIError, match=f"{name}.json") as caught:
            Result.load(path)
        assert "\n" not in str(caught.value)
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, tmp_path / "nowhere.json", tmp_path / "bytes.json"):
        with pytest.raises(dci.DCIError, match=path.name):
            Result.load(path)


def test_the_table_is_in_percent(result):
    head, line, scm, pick5 = result.table().splitlines()
    assert head.split("  ")[0] == "test"
    for column in ("score", "95 % interval", "chance", "right / entries", "ties", "left out"):
        assert column in head
    assert set(line) == {"─"}
    assert scm.split() == ["All", "SCM", "66.67", "25.00", "–", "100.00", "33.33", "2", "/", "3", "0", "2"]
    assert pick5.split() == ["Pick5-Neg", "–", "–", "–", "0", "/", "0", "0", "0"]
    assert len({len(row) for row in (head, line, scm, pick5)}) == 1


def test_the_report_says_what_a_reader_must_know(result):
    report = result.report()
    assert report.startswith("a/clip on dci (sdci, test), paper mode: 3 images and 3 texts in 1.5 s\n")
    assert result.table() in report
    assert (
        "Up to 12.50 % of a test's texts are longer than the model's 77 tokens and were cut (7 tokens lost)." in report
    )
    assert "1 × no `swaps` for base; 1 × photo is missing" in report


def test_a_test_of_a_later_version_has_its_key_for_a_title(result):
    result.scores["later"] = result.scores.pop("pick5_neg")
    assert "later" in result.table()


def test_percent():
    assert [results.percent(value) for value in (None, 0, 1, 0.40123, 1 / 658008)] == [
        "–",
        "0.00",
        "100.00",
        "40.12",
        "0.00",
    ]
