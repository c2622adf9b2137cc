"""Entries by size and depth, and where depths come from."""

import datasets
import pytest
from hash_encoder import HashEncoder
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics
from dci_metrics import depths
from dci_metrics.breakdown import BINS, bin_of
from dci_metrics.hub.folder import build
from dci_metrics.results import Result
from dci_metrics.subcrops import Entry

SIZE = (1400, 1300)
BOXES = {
    3: ((100, 100, 400, 400), -1),  # 390 px a side with its margin
    4: ((110, 110, 340, 340), 3),
    9: ((0, 0, 1000, 1200), -1),  # 1150 × 1300 after clipping
    5: ((112, 112, 338, 338), 4),
    6: ((113, 113, 338, 338), 5),
    7: ((113, 113, 337, 337), 6),
    8: ((200, 200, 300, 300), 7),  # too small to be an entry
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    children = {idx: [other for other, (_, parent) in BOXES.items() if parent == idx] for idx in BOXES}
    notes = {}
    for i in (1, 2):
        masks = [
            mask_entry(idx, box, size=SIZE, parent=parent, requirements=children[idx])
            for idx, (box, parent) in BOXES.items()
        ]
        notes[f"{i}-data.json"] = photo_annotation(f"sa_{i}.jpg", SIZE, masks)
    return write_release(tmp_path_factory.mktemp("release"), notes)


@pytest.fixture(scope="module")
def built(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built")
    build(dci.Release(release), folder / "dci", progress=False)
    build(dci.Release(release), folder / "sdci", configs=["sdci"], progress=False)
    return folder


@pytest.fixture(scope="module")
def rows(release):
    return list(dci.Release(release).rows("test", "sdci", masks=False))


@pytest.fixture(scope="module")
def result(release):
    return dci_metrics.evaluate(HashEncoder(), release, tests=["all"], progress=False)


def entry(crop, key="m-3-sc"):
    return Entry("1", key, 3, crop, ("a",), (), {})


@pytest.mark.parametrize(
    ("crop", "expected"),
    [
        ((0, 0, 255, 255), "<256"),
        ((10, 20, 266, 276), "256-511"),
        ((0, 0, 128, 512), "256-511"),  # the area of a square of 256
        ((0, 0, 511, 511), "256-511"),
        ((0, 0, 512, 512), "512-1023"),
        ((0, 0, 1024, 1024), ">=1024"),
        ((0, 0, 1500, 2250), ">=1024"),
    ],
)
def test_bins_of_size(crop, expected):
    assert bin_of(entry(crop), "size", None) == expected
    assert bin_of(entry(crop, key="base"), "size", None) == "photo"


@pytest.mark.parametrize(("depth", "expected"), [(0, "0"), (3, "3"), (4, ">=4"), (9, ">=4")])
def test_bins_of_depth(depth, expected):
    crop = (0, 0, 300, 300)
    assert bin_of(entry(crop), "depth", {"1": {3: depth}}) == expected
    assert bin_of(entry(crop, key="base"), "depth", {"1": {3: depth}}) == "photo"
    for known in (None, {}, {"1": {4: depth}}):
        assert bin_of(entry(crop), "depth", known) == "unknown"


def test_every_entry_is_in_one_bin(result):
    assert list(result.breakdown) == list(result.scores)
    for test, kinds in result.breakdown.items():
        score = result.scores[test]
        assert list(kinds) == ["size", "depth"]
        for kind, bins in kinds.items():
            assert list(bins) == [name for name in BINS[kind] if name in bins]
            assert sum(found["n"] for found in bins.values()) == score.n
            if score.correct is not None:
                assert sum(found["correct"] for found in bins.values()) == score.correct
            else:
                assert {found["correct"] for found in bins.values()} == {None}
            assert sum(found["n"] * found["value"] for found in bins.values()) == pytest.approx(score.n * score.value)
    sizes, by_depth = result.breakdown["all_scm"].values()
    assert {name: found["n"] for name, found in sizes.items()} == {"photo": 2, "256-511": 10, ">=1024": 2}
    expected = {"photo": 2, "0": 4, "1": 2, "2": 2, "3": 2, ">=4": 2}
    assert {name: found["n"] for name, found in by_depth.items()} == expected
    assert list(result.breakdown["base_neg"]["size"]) == ["photo"]


def test_counts_are_those_of_the_outcomes(result):
    right = [result.values_of("all_neg")[image_id, key] for image_id in "12" for key in ("m-3-sc", "m-9-sc")]
    assert result.breakdown["all_neg"]["depth"]["0"] == {"n": 4, "correct": sum(right), "value": sum(right) / 4}


def test_the_file_keeps_it(result, tmp_path):
    result.save(tmp_path / "result.json")
    assert Result.load(tmp_path / "result.json").breakdown == result.breakdown


def test_all_that_knows_depths_gives_the_same(release, built, result):
    expected = {image_id: {3: 0, 4: 1, 9: 0, 5: 2, 6: 3, 7: 4, 8: 5} for image_id in "12"}
    for dataset in (release, str(release), dci.Release(release), built / "dci"):
        assert depths.find(dataset, "test") == expected
    assert (
        dci_metrics.evaluate(HashEncoder(), built / "dci", tests=["all"], progress=False).breakdown == result.breakdown
    )


def test_what_does_not_know_them(rows, built, result):
    for dataset in (rows, built / "sdci", built, "nowhere", {"test": rows}, {"train": rows}, iter(rows)):
        assert depths.find(dataset, "test") is None
    found = dci_metrics.evaluate(HashEncoder(), rows, tests=["all_scm"], progress=False).breakdown["all_scm"]
    assert found["size"] == result.breakdown["all_scm"]["size"]
    assert {name: bin_["n"] for name, bin_ in found["depth"].items()} == {"photo": 2, "unknown": 12}


def test_a_broken_annotation_has_no_depths(release, tmp_path):
    notes = {"1-data.json": photo_annotation("sa_1.jpg"), "2-data.json": b"{"}
    assert depths.find(write_release(tmp_path, notes, {}), "test") == {"1": {}}


def test_a_dataset_from_the_hub_is_read_in_its_cache(built, monkeypatch):
    file = next((built / "dci" / "data").glob("test-*.parquet"))
    asked = []

    def download(repo, name, *, repo_type, revision):
        asked.append((repo, name, repo_type, revision))
        return str(file)

    monkeypatch.setattr("huggingface_hub.hf_hub_download", download)
    ds = datasets.Dataset.from_dict({"image_id": ["1"]}, split="test")
    addresses = [f"hf://datasets/you/dci@abc/data/{split}-00000-of-00001.parquet" for split in ("train", "test")]
    ds.info.download_checksums = dict.fromkeys(addresses)
    assert depths.find(ds, "train")["1"][8] == 5
    assert asked == [("you/dci", "data/test-00000-of-00001.parquet", "dataset", "abc")]

    class Builder:
        class config:  # noqa: N801  # as `datasets` has it
            data_files = {"test": addresses[1:]}  # noqa: RUF012

    monkeypatch.setattr("datasets.load_dataset_builder", lambda name, config: Builder)
    assert depths.find("you/dci", "test")["2"][4] == 1
    assert depths.find("you/dci", "validation") is None

    def fail(*_, **__):
        raise OSError("offline")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", fail)
    assert depths.find("you/dci", "test") is None
