"""`--examples`: one row an entry and test, against scores computed one pair at a time."""

import json

import command
import numpy as np
import pyarrow.parquet as pq
import pytest
import tiny_models
from awkward_release import write_awkward_release
from hash_encoder import HashEncoder, HashScorer

import dci
import dci_metrics
from dci_metrics import examples
from dci_metrics.subcrops import read_photos
from dci_metrics.tasks import TASKS


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    release = dci.Release(write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=3, photos=5))
    return list(release.rows("test", "sdci", masks=False))


@pytest.fixture(scope="module")
def run(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("examples") / "examples.parquet"
    result = dci_metrics.evaluate(HashEncoder(), rows, tests=["all"], examples=path, progress=False)
    return result, pq.read_table(path)


@pytest.fixture(scope="module")
def looked_at(rows):
    """(entry, its unit embedding) by (image_id, key), and a function that scores it against a text."""
    model = HashEncoder()
    crops = {}
    for photo in read_photos(rows):
        for entry, crop in zip(photo.entries, photo.crops(photo.entries), strict=True):
            embed = model.encode_images([crop])[0].numpy()
            crops[entry.image_id, entry.key] = entry, embed / np.linalg.norm(embed)

    def score(key, text):
        embed = model.encode_texts([text])[0].numpy()
        return float(crops[key][1] @ (embed / np.linalg.norm(embed)))

    return crops, score


def of_test(run, test):
    return [row for row in run[1].to_pylist() if row["test"] == test]


@pytest.mark.parametrize("test", list(TASKS))
def test_a_row_for_each_entry_in_order(run, test, looked_at):
    result, _ = run
    rows = of_test(run, test)
    assert [(row["image_id"], row["key"]) for row in rows] == list(result.values_of(test))
    assert len(rows) == result.scores[test].n
    for row, value in zip(rows, result.values_of(test).values(), strict=True):
        entry, _ = looked_at[0][row["image_id"], row["key"]]
        assert (row["mask_id"], row["crop_xyxy"]) == (entry.mask_id, list(entry.crop_xyxy))
        assert row["caption"] in entry.captions[: TASKS[test].captions]
        if TASKS[test].kind == "random_scm":
            assert (row["right"], row["rate"]) == (None, value)
        else:
            assert (row["right"], row["rate"]) == (value == 1, None)


@pytest.mark.parametrize("test", list(TASKS))
def test_scores_are_those_of_the_pairs(run, test, looked_at):
    crops, score = looked_at
    task = TASKS[test]
    rows = of_test(run, test)
    for i, row in enumerate(rows):
        key = row["image_id"], row["key"]
        own = min(score(key, text) for text in crops[key][0].captions[: task.captions])
        assert row["score"] == pytest.approx(own, abs=1e-6)
        assert row["score"] == pytest.approx(score(key, row["caption"]), abs=1e-6)
        rivals = rivals_of(task, rows, i, crops)
        if not rivals:
            assert [row[c] for c in ("rival_score", "rival_text", "rival_image_id", "margin")] == [None] * 4
            assert row["right"] is not False
            continue
        best = max(score(of, text) for _, of, text in rivals)
        assert row["rival_score"] == pytest.approx(best, abs=1e-6)
        assert row["margin"] == pytest.approx(row["score"] - row["rival_score"], abs=1e-6)
        source = row["rival_image_id"], row["rival_key"]
        if task.by_text:
            assert row["rival_text"] is None
            assert score(source, row["caption"]) == pytest.approx(best, abs=1e-6)
        else:
            assert score(key, row["rival_text"]) == pytest.approx(best, abs=1e-6)
            assert any(whose == source and text == row["rival_text"] for whose, _, text in rivals)


def rivals_of(task, rows, i, crops):
    """(whose, image, text) of all that entry i of a test is compared with."""
    key = rows[i]["image_id"], rows[i]["key"]
    if task.kind == "neg":
        return [(key, key, crops[key][0].negative(task))]
    others = {
        "scm": rows[i - i % 8 : i - i % 8 + 8],
        "random_scm": rows,
        "photo_scm": [row for row in rows if row["image_id"] == key[0]],
    }[task.kind]
    keys = [(row["image_id"], row["key"]) for row in others]
    if task.by_text:
        return [(k, k, crops[key][0].captions[0]) for k in keys if k != key]
    return [(k, key, text) for k in keys if k != key for text in crops[k][0].captions[: task.captions]]


def test_right_and_margin_agree(run):
    rows = run[1].to_pylist()
    assert {row["right"] for row in rows} == {True, False, None}
    for row in rows:
        if row["margin"]:  # a tie is decided by the test's own rule
            if row["right"] is not None:
                assert row["right"] == (row["margin"] > 0)
            else:
                assert row["margin"] > 0 or row["rate"] < 1


def test_a_model_that_scores_pairs_gives_the_same(run, rows, tmp_path):
    path = tmp_path / "examples.parquet"
    dci_metrics.evaluate(HashScorer(), rows, tests=["all"], examples=path, progress=False)
    for row, expected in zip(pq.read_table(path).to_pylist(), run[1].to_pylist(), strict=True):
        # Of equal texts the one or the other may be the rival.
        for column in ("image_id", "key", "test", "right"):
            assert row[column] == expected[column]
        assert row["score"] == pytest.approx(expected["score"], abs=1e-5)
        assert row["rival_score"] == pytest.approx(expected["rival_score"], abs=1e-5)


def test_small_steps_change_nothing(run, rows, tmp_path, monkeypatch):
    monkeypatch.setattr("dci_metrics.scoring.CHUNK", 40)
    monkeypatch.setattr("dci_metrics.similarity.CHUNK", 40)
    dci_metrics.evaluate(HashEncoder(), rows, tests=["all"], examples=tmp_path / "e.parquet", progress=False)
    assert pq.read_table(tmp_path / "e.parquet").equals(run[1])


def test_text_that_is_no_utf_8(rows, tmp_path):
    row = rows[-1] | {"left_out": []}
    row["entries"] = [dict(row["entries"][0], captions=["half \ud83d of a pair"])]
    path = tmp_path / "e.parquet"
    dci_metrics.evaluate(HashEncoder(), [row], tests=["base_neg"], examples=path, progress=False)
    assert pq.read_table(path)["caption"].to_pylist() == ["half ? of a pair"]


def test_what_exists_is_kept_and_failures_leave_nothing(rows, tmp_path, monkeypatch):
    path = tmp_path / "examples.parquet"
    path.write_text("mine")
    encoder = HashEncoder()
    with pytest.raises(dci.DCIError, match=r"examples.parquet: exists.*--force"):
        dci_metrics.evaluate(encoder, rows, examples=path, progress=False)
    assert path.read_text() == "mine"
    dci_metrics.evaluate(encoder, rows, tests=["base_neg"], examples=path, force=True, progress=False)
    assert examples.read(path)[0]["model"]["id"] == "HashEncoder"
    path.unlink()
    monkeypatch.setattr(examples.Tests, "table", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        dci_metrics.evaluate(encoder, rows, examples=path, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_none(tmp_path):
    pq.write_table(examples.SCHEMA.empty_table(), tmp_path / "plain.parquet")
    (tmp_path / "text.parquet").write_text("text")
    for name in ("plain.parquet", "text.parquet", "nowhere.parquet", "."):
        with pytest.raises(dci.DCIError, match="dci eval --examples"):
            examples.read(tmp_path / name)


def test_the_same_command_twice_gives_the_same_files_but_for_time(tmp_path, monkeypatch, capsys):
    model = tiny_models.save_clip(tmp_path / "clip", seed=4)
    release = write_awkward_release(tmp_path / "release", seed=4, photos=3, spoilt=False)
    found = []
    for name in ("first", "second"):
        out, table = tmp_path / f"{name}.json", tmp_path / f"{name}.parquet"
        options = ("--tests", "all", "--no-cache", "--out", out, "--examples", table)
        code, printed, err = command.run(monkeypatch, capsys, "eval", model, "--dataset", release, *options)
        assert (code, err) == (0, "")
        assert printed.endswith(f"Written: {out}\nWritten: {table}\n")
        data = json.loads(out.read_bytes())
        assert set(data.pop("timing")) == {"seconds", "images", "texts", "stages"}
        found.append((json.dumps(data), table.read_bytes()))
    assert found[0] == found[1]
    assert data["model"]["revision"].startswith("sha256:")
    assert {"seed", "dtype", "device", "image_backend"} <= data["settings"].keys()
    code, printed, err = command.run(monkeypatch, capsys, "eval", model, "--dataset", release, "--examples", table)
    command.refused((code, printed, err), "second.parquet: exists")
