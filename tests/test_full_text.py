"""SCM on whole descriptions: against a brute force over the rows of `full`, from every kind of dataset."""

import io
import json

import command
import datasets
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
from hash_encoder import HashEncoder, HashScorer
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics
from dci_metrics.hub.folder import build
from dci_metrics.results import Result
from dci_metrics.tasks import FULL_TASKS, PAPER_TASKS

SIZE = (700, 600)
TESTS = list(FULL_TASKS)


def noise(seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (SIZE[1] // 10, SIZE[0] // 10, 3), dtype=np.uint8)
    out = io.BytesIO()
    PIL.Image.fromarray(pixels).resize(SIZE).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    """Photos with nested masks, one bad, one small; one photo has no mask, one no summaries at all."""
    notes = {}
    for i in range(5):
        masks = [
            mask_entry(0, (0, 0, 650, 500), size=SIZE, requirements=[1, 4], caption="word " * 60 * i),
            mask_entry(1, (10, 10, 400, 300), size=SIZE, parent=0, requirements=[2]),
            mask_entry(2, (20, 20, 300, 260), size=SIZE, parent=1, mask_quality=1, caption=""),
            mask_entry(3, (300, 100, 690, 580), size=SIZE, mask_quality=2 if i < 3 else 0, label="", caption="")
            if i < 3
            else mask_entry(3, (300, 100, 690, 580), size=SIZE),
            mask_entry(4, (30, 30, 200, 290), size=SIZE, parent=0),  # too narrow
        ]
        notes[f"{i}-data.json"] = photo_annotation(f"sa_{i}.jpg", SIZE, masks if i != 1 else ())
    for key in ("summaries", "negatives", "clip_scores"):
        del notes["4-data.json"][key]
    folder = tmp_path_factory.mktemp("release")
    return write_release(folder, notes, {f"sa_{i}.jpg": noise(i) for i in range(5)})


@pytest.fixture(scope="module")
def built(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    build(dci.Release(release), folder / "dci", progress=False)
    build(dci.Release(release), folder / "sdci", configs=["sdci"], progress=False)
    return folder


@pytest.fixture(scope="module")
def rows(release):
    return list(dci.Release(release).rows("test", "full", masks=False))


@pytest.fixture(scope="module")
def result(release):
    return dci_metrics.evaluate(HashEncoder(), release, tests=TESTS, progress=False)


def entries_by_hand(rows):
    """(image_id, key, crop, text, depth) in the order of the data."""
    found = []
    for row in rows:
        photo = PIL.Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")
        found.append((row["image_id"], "base", photo, row["description"], "photo"))
        for mask in row["masks"]:
            x, y, w, h = mask["bbox"]
            if w >= 224 and h >= 224 and mask["quality"] != "bad":
                a, b = int(0.15 * w), int(0.15 * h)
                box = (max(0, x - a), max(0, y - b), min(SIZE[0], x + w + a), min(SIZE[1], y + h + b))
                key = f"m-{mask['mask_id']}-sc"
                found.append((row["image_id"], key, photo.crop(box), mask["description"], str(mask["depth"])))
    return found


def test_figures_are_the_brute_forces(rows, result):
    entries = entries_by_hand(rows)
    assert result.entries == [entry[:2] for entry in entries]
    assert len(entries) == 5 + 2 * 3 + 2 * 4
    encoder = HashEncoder()
    images, texts = (
        encode([entry[i] for entry in entries]).numpy()
        for i, encode in ((2, encoder.encode_images), (3, encoder.encode_texts))
    )
    images, texts = (m / np.linalg.norm(m, axis=1, keepdims=True) for m in (images, texts))
    scores = images @ texts.T
    n = len(entries)
    marks = dict.fromkeys(TESTS, "")
    for i in range(n):
        group = list(range(i // 8 * 8, min(n, i // 8 * 8 + 8)))
        marks["full_scm"] += "01"[max(group, key=lambda j: scores[i, j]) == i]
        marks["full_scm_t2i"] += "01"[max(group, key=lambda j: scores[j, i]) == i]
        photo = [j for j in range(n) if entries[j][0] == entries[i][0]]
        alone = len(photo) == 1
        marks["full_scm_photo"] += "-" if alone else "01"[max(photo, key=lambda j: scores[i, j]) == i]
        marks["full_scm_photo_t2i"] += "-" if alone else "01"[max(photo, key=lambda j: scores[j, i]) == i]
    assert result.outcomes == marks
    assert len(set(marks.values())) == 4
    assert result.settings["mode"] == "full"
    assert result.dataset["config"] == "full"
    full, rest = divmod(n, 8)
    assert result.scores["full_scm"].chance == pytest.approx((full + (rest > 0)) / n)


def test_bad_masks_are_left_out_and_counted(result):
    reason = "1 bad mask without a description"
    for score in result.scores.values():
        assert score.left_out == [{"image_id": i, "reason": reason} for i in ("0", "2")]
    assert f"8 × {reason}" in result.report()


def test_by_depth_and_length(rows, result):
    entries = entries_by_hand(rows)
    marks = result.outcomes["full_scm"]
    found = result.breakdown["full_scm"]
    for kind, name_of in {
        "depth": lambda entry: entry[4],
        "length": lambda entry: next(
            name
            for most, name in ((49, "<50"), (99, "50-99"), (199, "100-199"), (399, "200-399"))
            if len(entry[3].split()) <= most
        ),
    }.items():
        expected = {}
        for entry, mark in zip(entries, marks, strict=True):
            n, right = expected.get(name_of(entry), (0, 0))
            expected[name_of(entry)] = n + 1, right + int(mark)
        assert {name: (bin_["n"], bin_["correct"]) for name, bin_ in found[kind].items()} == expected
        assert len(expected) > 2


def test_all_forms_of_a_dataset_give_the_same(release, rows, built, result):
    loaded = datasets.load_dataset(str(built / "dci"), "full", split="test")
    for data in (rows, built / "dci", loaded, loaded.to_iterable_dataset()):
        found = dci_metrics.evaluate(HashEncoder(), data, tests=TESTS, progress=False)
        assert found.outcomes == result.outcomes
        assert found.breakdown == result.breakdown
        assert found.dataset["fingerprint"] == result.dataset["fingerprint"]


def test_a_model_that_looks_at_both_together(release, result):
    found = dci_metrics.evaluate(HashScorer(), release, tests=TESTS, progress=False)
    assert found.outcomes == result.outcomes


def test_what_cannot_be(release, rows, built):
    summaries = list(dci.Release(release).rows("test", "sdci", masks=False))
    wrong = [
        (release, ["full_scm", "all_scm"], "full_scm: of full text, have other entries than the other tests"),
        (release, ["full"], "no test 'full': expected some of all_scm, .*full_scm_photo_t2i"),
        (built / "sdci", ["full_scm"], "cannot be loaded as a dataset .*'full'"),
        (summaries, ["full_scm"], 'no column `description`, `masks`; expected those of DCI\'s configuration "full"'),
        ([rows[0] | {"masks": [{"bbox": 3}]}], ["full_scm"], "0: not as DCI's `full` rows are"),
        ([rows[0] | {"description": None}], ["full_scm"], "0: not as DCI's `full` rows are"),
    ]
    for data, tests, message in wrong:
        with pytest.raises(dci.DCIError, match=message) as caught:
            dci_metrics.evaluate(HashEncoder(), data, tests=tests, progress=False)
        assert "\n" not in str(caught.value)


def test_the_papers_tests_are_as_they_were(release):
    assert not set(PAPER_TASKS) & set(FULL_TASKS)
    assert list(dci_metrics.evaluate(HashEncoder(), release, progress=False).scores) == list(PAPER_TASKS)


def test_examples_compare_and_report(release, monkeypatch, capsys, tmp_path):
    ways = {"cut": [], "mean": ["--reading", "sentences-mean"]}
    for name, options in ways.items():
        out = ["--out", tmp_path / f"{name}.json", "--examples", tmp_path / f"{name}.parquet"]
        tests = ["--tests", ",".join(TESTS), *options]
        done = command.run(monkeypatch, capsys, "eval", "sample:tiny-clip", "--dataset", release, *tests, *out)
        assert done[0] == 0, done
        assert "Full SCM, text → image" in done[1]
        result = Result.load(tmp_path / f"{name}.json")
        table = pq.read_table(tmp_path / f"{name}.parquet").to_pylist()
        for test in TESTS:
            right = {(r["image_id"], r["key"]): r["right"] for r in table if r["test"] == test}
            assert right == {entry: value == 1 for entry, value in result.values_of(test).items()}
            for r in (r for r in table if r["test"] == test and r["margin"] is not None):
                assert r["right"] == (r["margin"] > 0) or r["margin"] == 0
    read = json.loads((tmp_path / "mean.json").read_bytes())
    cut = json.loads((tmp_path / "cut.json").read_bytes())
    assert cut["scores"]["full_scm"]["truncated"] == read["scores"]["full_scm"]["truncated"] > 0.1
    code, out, _ = command.run(monkeypatch, capsys, "compare", tmp_path / "cut.json", tmp_path / "mean.json")
    assert code == 0
    assert "Full photo SCM" in out
    assert "reading is truncate in A and sentences-mean in B" in out
    page = tmp_path / "page.html"
    files = [tmp_path / "cut.json", tmp_path / "mean.json", "--examples", tmp_path / "cut.parquet"]
    code, _, err = command.run(monkeypatch, capsys, "report", *files, "--dataset", release, "--out", page)
    assert code == 0, err
    html = page.read_text(encoding="utf-8")
    for part in ("by-length", "by-depth", "Words of the caption.", "sentences-mean", "Full photo SCM, text → image"):
        assert part in html, part
