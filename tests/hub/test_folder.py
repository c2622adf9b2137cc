"""The built folder: what is in it, and when it is not there."""

import dataclasses
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import datasets
import pyarrow.parquet as pq
import pytest
import yaml
from release_maker import close_archives
from small_release import PHOTOS, SPLITS, write_small_release

import dci
from dci_metrics.hub import reading, shards
from dci_metrics.hub.folder import build


@pytest.fixture
def release(tmp_path: Path) -> dci.Release:
    return dci.Release(write_small_release(tmp_path / "release"), cache_dir=tmp_path / "cache")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Where the folder goes: alone in its parent, so that anything left beside it is seen."""
    return tmp_path / "made" / "dci"


def stored(out: Path, split: str) -> list[dci.Row]:
    return [row for path in sorted(out.glob(f"data/{split}-*")) for row in pq.read_table(path).to_pylist()]


def metadata(out: Path) -> dict:
    return yaml.safe_load((out / "README.md").read_text(encoding="utf-8").split("---")[1])


@pytest.mark.parametrize("num_proc", [1, 2])
def test_rows_are_the_releases_in_the_order_of_splits_json(release, out, num_proc, monkeypatch):
    monkeypatch.setattr(reading, "PIECE", 1)
    build(release, out, num_proc=num_proc)
    assert sorted(path.name for path in out.iterdir()) == ["README.md", "data"]
    for split, key in dci.SPLITS.items():
        rows = stored(out, split)
        assert rows == list(release.rows(split, "both"))
        assert [f"{row['image_id']}-data.json" for row in rows] == SPLITS[key]
    first = stored(out, "train")[0]
    assert first["image"]["bytes"] == (release.root / "photos" / "sa_1.jpg").read_bytes()
    assert first["image"]["path"] == "sa_1.jpg"
    assert [mask["mask_id"] for mask in first["masks"]] == [0, 1, 2, 3]
    assert [entry["key"] for entry in first["entries"]] == ["base", "m-0-sc", "m-2-sc"]


def test_parquet_has_no_metadata_of_a_version_of_datasets(release, out):
    build(release, out)
    for path in out.glob("data/*.parquet"):
        assert pq.read_schema(path).metadata is None
        assert b"huggingface" not in path.read_bytes()


def test_summary_counts(release, out):
    summary = build(release, out)
    counts = {split: dataclasses.astuple(found.counts) for split, found in summary.splits.items()}
    # Photos, masks, entries, ignored relatives: photo 31 names a child 99.
    assert counts == {"train": (2, 4, 4, 1), "validation": (1, 1, 1, 0), "test": (2, 2, 4, 0)}
    assert summary.skipped == []
    assert summary.splits["test"].files == ("test-00000-of-00001.parquet",)
    assert str(summary).splitlines()[1].split()[:6] == ["train", "2", "4", "4", "1", "0"]


def test_readme_names_both_configs_over_the_same_files(release, out):
    build(release, out)
    data = metadata(out)
    assert [(config["config_name"], config.get("default", False)) for config in data["configs"]] == [
        ("full", True),
        ("sdci", False),
    ]
    for config, info in zip(data["configs"], data["dataset_info"], strict=True):
        name = config["config_name"]
        assert config["columns"] == list(dci.features(name)) == [feature["name"] for feature in info["features"]]
        assert config["data_files"][2] == {"split": "test", "path": "data/test-*.parquet"}
        assert [(split["name"], split["num_examples"]) for split in info["splits"]] == [
            ("train", 2),
            ("validation", 1),
            ("test", 2),
        ]
        assert all(split["num_bytes"] > 0 for split in info["splits"])
    assert data["license"] == "cc-by-nc-4.0"
    text = (out / "README.md").read_text(encoding="utf-8")
    assert "do not publish this folder" in text
    assert "left out" not in text


def test_without_photos(release, out):
    build(release, out, photos=False)
    assert [row["image"] for row in stored(out, "train")] == [None, None]
    assert "not in here" in (out / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("config", ["full", "sdci"])
def test_one_config_has_only_its_columns(release, out, config):
    build(release, out, configs=[config])
    assert pq.read_schema(next(out.glob("data/test-*"))).names == list(dci.features(config))
    assert [(c["config_name"], c["default"]) for c in metadata(out)["configs"]] == [(config, True)]
    assert stored(out, "test") == list(release.rows("test", config))


def test_files_and_row_groups_keep_to_their_size(release, out, monkeypatch):
    monkeypatch.setattr(shards, "MAX_GROUP_ROWS", 1)
    monkeypatch.setattr(shards, "MAX_FILE_BYTES", 1)
    summary = build(release, out)
    assert summary.splits["train"].files == ("train-00000-of-00002.parquet", "train-00001-of-00002.parquet")
    assert stored(out, "train") == list(release.rows("train", "both"))
    monkeypatch.setattr(shards, "MAX_FILE_BYTES", 10**9)
    build(release, out, force=True)
    assert pq.ParquetFile(out / "data" / "train-00000-of-00001.parquet").num_row_groups == 2


# -- photos that cannot be used


@pytest.mark.parametrize("num_proc", [1, 2])
def test_broken_photo_is_named_and_leaves_nothing(release, out, num_proc):
    (release.root / "photos" / "sa_5.jpg").write_bytes(b"\xff\xd8 cut")
    with pytest.raises(dci.DCIError, match=r"sa_5\.jpg: cannot be read as a photo"):
        build(release, out, num_proc=num_proc)
    assert list(out.parent.iterdir()) == []


def test_skip_leaves_out_counts_and_lists(release, out):
    (release.root / "photos" / "sa_5.jpg").write_bytes(b"\xff\xd8 cut")
    (release.root / "photos" / "sa_1.jpg").unlink()
    (release.root / "complete" / "15-data.json").unlink()
    (release.root / "annotations" / "15-data.json").unlink()
    summary = build(release, out, on_error="skip")
    assert {split: [s.image_id for s in found.skipped] for split, found in summary.splits.items()} == {
        "train": ["31"],
        "validation": ["15"],
        "test": ["6"],
    }
    assert [row["image_id"] for row in stored(out, "test")] == ["92"]
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert "3 photos of the release could not be used" in readme
    assert "- `31`: photo sa_1.jpg is missing" in readme
    # A split without a row has no file, and is not named: an empty pattern would fail to load.
    assert [files["split"] for files in metadata(out)["configs"][0]["data_files"]] == ["train", "test"]
    loaded = datasets.load_dataset(str(out), "sdci", cache_dir=str(out.parent / "cache"))
    assert {split: rows["image_id"][:] for split, rows in loaded.items()} == {"train": ["4"], "test": ["92"]}


def test_the_list_of_those_left_out_does_not_tell_where_the_release_lies(tmp_path, out):
    closed = close_archives(write_small_release(tmp_path / "somebody" / "secret release"))
    release = dci.Release(closed, cache_dir=tmp_path / "somebody" / "cache")
    assert release.has_photo("sa_5.jpg")  # indexed while it is whole
    with tarfile.open(release.photos) as tar:
        within = tar.getmember("sa_5.jpg").offset_data + 10
    os.truncate(release.photos, within)
    build(release, out, on_error="skip", progress=False)
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert f"{dci.PHOTO_ARCHIVE}: ends inside of sa_5.jpg" in readme
    for word in ("somebody", "secret"):
        assert word not in readme


def test_missing_photos_are_counted_over_all_splits_before_any_work(release, out):
    for name in PHOTOS.values():
        (release.root / "photos" / name).unlink()
    with pytest.raises(dci.DCIError, match="5 of 5 photos are missing"):
        build(release, out)
    with pytest.raises(dci.DCIError, match="none of its photos can be used; 31: photo"):
        build(release, out, on_error="skip")


# -- whole or not at all


def test_existing_folder_is_refused(release, out):
    build(release, out, photos=False)
    before = (out / "README.md").stat().st_mtime_ns
    with pytest.raises(dci.DCIError, match="is there already"):
        build(release, out)
    assert (out / "README.md").stat().st_mtime_ns == before


def test_force_replaces_only_when_the_new_one_is_whole(release, out):
    build(release, out, photos=False)
    content = (release.root / "photos" / "sa_5.jpg").read_bytes()
    (release.root / "photos" / "sa_5.jpg").write_bytes(b"")
    with pytest.raises(dci.DCIError):
        build(release, out, force=True)
    assert stored(out, "test")[0]["image"] is None
    (release.root / "photos" / "sa_5.jpg").write_bytes(content)
    build(release, out, force=True)
    assert stored(out, "test")[0]["image"] is not None
    assert [path.name for path in out.parent.iterdir()] == ["dci"]


def test_force_does_not_remove_somebodys_files(release, out):
    out.mkdir(parents=True)
    (out / "thesis.tex").write_text("years of work")
    with pytest.raises(dci.DCIError, match="is not a folder that `dci build` wrote"):
        build(release, out, force=True)
    assert (out / "thesis.tex").is_file()


INTERRUPTED = """
import sys, time
from pathlib import Path
import dci
from dci_metrics.hub import folder
if __name__ == "__main__":
    def slow(path, summary):
        print("writing", flush=True)
        time.sleep(60)
    folder.card.write = slow
    folder.build(dci.Release(sys.argv[1]), Path(sys.argv[2]), num_proc=2)
"""


def test_interrupt_leaves_nothing(release, out, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(INTERRUPTED)
    path = os.pathsep.join(str(folder) for folder in [Path(dci.__file__).parent, *sys.path])
    process = subprocess.Popen(
        [sys.executable, str(script), str(release.data_dir), str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "writing\n"
    assert list(out.parent.iterdir()) != []
    process.send_signal(signal.SIGINT)
    start = time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() - start < 30
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert list(out.parent.iterdir()) == []


@pytest.mark.parametrize(
    "wrong", [{"configs": []}, {"configs": ["both"]}, {"configs": "full"}, {"num_proc": 0}, {"on_error": "ignore"}]
)
def test_wrong_arguments_are_named(release, out, wrong):
    with pytest.raises(dci.DCIError, match=f"^{next(iter(wrong))}: expected"):
        build(release, out, **wrong)
