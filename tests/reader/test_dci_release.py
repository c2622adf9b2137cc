"""The release's files: split list, annotations and photos that lie in folders."""

import json
import os
from pathlib import Path

import datasets
import pytest
from release_maker import changed, mask_entry, photo, photo_annotation, write_release

import dci

NOTES = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", masks=[mask_entry(i)]) for i in range(6)}
SPLITS = {
    "train": ["4-data.json", "0-data.json"],
    "valid": ["5-data.json"],
    "test": [f"{i}-data.json" for i in (3, 1, 2)],
}
PHOTOS = {f"sa_{i}.jpg": photo(orientation=i % 4 + 1) for i in range(6)}


@pytest.fixture
def folder(tmp_path):
    return write_release(tmp_path / "release", NOTES, PHOTOS, SPLITS)


def ids(rows):
    return [row["image_id"] for row in rows]


@pytest.mark.parametrize("inner", [False, True])
def test_rows_of_a_split_in_the_order_of_the_list(folder, inner):
    release = dci.Release(folder / "densely_captioned_images" if inner else str(folder))
    assert ids(release.rows("test", "full")) == ["3", "1", "2"]
    assert ids(release.rows("train", "sdci")) == ["4", "0"]
    row = next(release.rows("validation", "both"))
    assert (row["image_id"], row["file_name"]) == ("5", "sa_5.jpg")
    assert row["image"] == {"bytes": PHOTOS["sa_5.jpg"], "path": "sa_5.jpg"}
    assert release.splits == {"train": SPLITS["train"], "validation": SPLITS["valid"], "test": SPLITS["test"]}


def test_the_files_number_is_not_the_photos(tmp_path):
    folder = write_release(tmp_path, {"112956-data.json": photo_annotation("sa_1543972.jpg")})
    (row,) = dci.Release(folder).rows("test", "full")
    assert (row["image_id"], row["file_name"]) == ("112956", "sa_1543972.jpg")


def test_complete_is_preferred_and_annotations_stand_in(folder):
    root = folder / "densely_captioned_images"
    (root / "annotations" / "3-data.json").write_bytes(b"{broken")
    assert ids(dci.Release(folder).rows("test", "full")) == ["3", "1", "2"]
    (root / "complete" / "1-data.json").unlink()
    left = {row["image_id"]: row["left_out"] for row in dci.Release(folder).rows("test", "sdci")}
    assert [bool(left[image_id]) for image_id in ("3", "1", "2")] == [False, True, False]


def test_the_real_split_list(tmp_path):
    """The real list where it is at hand, else one of its shape and sizes."""
    shared = Path(os.environ.get("DCI_SHARED", Path(dci.__file__).parents[1] / "shared"))
    path = shared / "data" / "dci_splits.json"
    names = [f"{112956 + i}-data.json" for i in range(7805)]
    made = {"train": names[:7599], "valid": names[7599:7697], "test": names[7697:]}
    content = path.read_bytes() if path.is_file() else json.dumps(made).encode()
    release = dci.Release(write_release(tmp_path, {}, {}, content))
    assert [len(release.splits[split]) for split in ("train", "validation", "test")] == [7599, 98, 108]
    assert len({name for split in dci.SPLITS for name in release.names(split)}) == 7805
    with pytest.raises(dci.DCIError, match=r"108 of 108 annotation files .* not there") as caught:
        next(release.rows("test", "full"))
    assert release.names("test")[0] in str(caught.value)
    assert list(release.rows("test", "full", on_error="skip")) == []
    assert len(release.skipped) == 108


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"", ["not valid JSON"]),
        (b'{"train": [', ["not valid JSON"]),
        (b"[" * 200_000, ["not valid JSON"]),
        (b"\xff\xff", ["not valid JSON"]),
        (b"[]", ["expected a JSON object", "a list"]),
        (b"null", ["expected a JSON object"]),
        ({}, ["`train`"]),
        ({"train": [], "valid": []}, ["`test`"]),
        ({"train": [], "validation": [], "test": []}, ["`valid`"]),
        ({"train": [], "valid": None, "test": []}, ["`valid`", "a list"]),
        ({"train": {}, "valid": [], "test": []}, ["`train`", "a list"]),
        ({"train": [], "valid": [], "test": "1-data.json"}, ["`test`", "a list"]),
        *(
            ({"train": [], "valid": [], "test": ["1-data.json", bad]}, ["`test`", "112956-data.json"])
            for bad in (3, None, True, [], {}, "", "../1-data.json", "/etc/passwd", "complete/1-data.json", "a\ud800")
        ),
    ],
)
def test_a_broken_split_list(tmp_path, content, parts):
    release = dci.Release(write_release(tmp_path, NOTES, PHOTOS, content))
    with pytest.raises(dci.DCIError) as caught:
        next(release.rows("test", "full"))
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "splits.json" in message
    assert "dci.tar.gz" in message  # where to get it
    for part in parts:
        assert part in message


def test_no_split_list(folder):
    (folder / "densely_captioned_images" / "splits.json").unlink()
    with pytest.raises(dci.DCIError, match=r"splits\.json: cannot be read .* it is part of dci\.tar\.gz"):
        next(dci.Release(folder).rows("test", "full"))
    with pytest.raises(dci.DCIError, match=r"splits\.json: cannot be read"):  # and nothing is downloaded
        dci.DCI(config_name="full", data_dir=str(folder)).download_and_prepare()


def test_names_of_splits_and_options(tmp_path, folder):
    release = dci.Release(folder)
    with pytest.raises(dci.DCIError, match="no split 'valid': expected one of train, validation, test"):
        next(release.rows("valid", "full"))
    with pytest.raises(dci.DCIError, match="no configuration 'Full'"):
        next(release.rows("test", "Full"))
    with pytest.raises(dci.DCIError, match="on_error: expected `raise` or `skip`, got 'ignore'"):
        next(release.rows("test", "full", on_error="ignore"))
    empty = dci.Release(write_release(tmp_path / "empty", NOTES, PHOTOS, {**SPLITS, "train": []}))
    with pytest.raises(dci.DCIError, match="lists no file for 'train'; it has validation, test"):
        next(empty.rows("train", "full"))


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: path.write_text("x")])
def test_no_release(tmp_path, make):
    make(tmp_path / "here")
    with pytest.raises(dci.DCIError, match=r"here: (no such folder|is a file|no annotations here); expected"):
        dci.Release(tmp_path / "here")


def test_stray_names(tmp_path):
    stray = [f"{i}-data.json" for i in range(100, 109)]
    splits = {**SPLITS, "test": ["3-data.json", *stray, "1-data.json"]}
    release = dci.Release(write_release(tmp_path, NOTES, PHOTOS, splits))
    with pytest.raises(dci.DCIError) as caught:
        next(release.rows("test", "full"))
    message = str(caught.value)
    assert "9 of 11 annotation files named in splits.json are not there" in message
    assert "100-data.json, 101-data.json, 102-data.json, 103-data.json, 104-data.json, …" in message
    assert "--on-error skip" in message
    assert ids(release.rows("test", "full", on_error="skip")) == ["3", "1"]
    assert [skipped.image_id for skipped in release.skipped] == [str(i) for i in range(100, 109)]


def test_missing_photos(folder):
    root = folder / "densely_captioned_images"
    for name in ("sa_3.jpg", "sa_2.jpg"):
        (root / "photos" / name).unlink()
    release = dci.Release(folder)
    with pytest.raises(dci.DCIError) as caught:
        next(release.rows("test", "full"))
    message = str(caught.value)
    assert "2 of 3 photos are missing: sa_3.jpg, sa_2.jpg." in message
    for part in ("sa_000138.tar", "https://ai.meta.com/datasets/segment-anything-downloads/", "--photos"):
        assert part in message
    assert len(message.splitlines()) == 1
    assert ids(release.rows("test", "full", on_error="skip")) == ["1"]
    assert [(skipped.image_id, skipped.reason) for skipped in release.skipped] == [
        ("3", "photo sa_3.jpg is missing"),
        ("2", "photo sa_2.jpg is missing"),
    ]
    rows = list(release.rows("test", "full", photos=False))
    assert ids(rows) == ["3", "1", "2"]
    assert [row["image"] for row in rows] == [None] * 3


def test_no_photos_at_all(tmp_path):
    folder = write_release(tmp_path, NOTES, {}, SPLITS)
    (folder / "densely_captioned_images" / "photos").rmdir()
    with pytest.raises(dci.DCIError, match="3 of 3 photos are missing"):
        next(dci.Release(folder).rows("test", "full"))
    with pytest.raises(dci.DCIError, match=r"sa_1\.jpg: no such photo in .*segment-anything-downloads"):
        dci.Release(folder).photo("sa_1.jpg")
    with pytest.raises(dci.DCIError, match="nowhere: no such folder or archive"):
        dci.Release(folder, tmp_path / "nowhere")


def test_a_photo_that_is_a_folder_or_has_two_lines_in_its_name(tmp_path):
    notes = {"1-data.json": photo_annotation("sa_1.jpg"), "2-data.json": photo_annotation("sa\n2.jpg")}
    folder = write_release(tmp_path, notes, {})
    (folder / "densely_captioned_images" / "photos" / "sa_1.jpg").mkdir()
    with pytest.raises(dci.DCIError, match="2 of 2 photos are missing") as caught:
        next(dci.Release(folder).rows("test", "full"))
    assert len(str(caught.value).splitlines()) == 1


def test_photos_elsewhere_and_links_that_lead_nowhere(tmp_path):
    folder = write_release(tmp_path / "release", NOTES, {}, SPLITS)
    write_release(tmp_path / "other", {}, PHOTOS)
    place = tmp_path / "other" / "densely_captioned_images" / "photos"
    release = dci.Release(folder, place)
    assert [row["image"]["bytes"] for row in release.rows("test", "full")] == [PHOTOS[f"sa_{i}.jpg"] for i in (3, 1, 2)]
    before = release.state()
    (place / "sa_9.jpg").symlink_to(tmp_path / "nowhere")
    assert release.state() != before


def test_the_builder(folder, tmp_path):
    builder = dci.DCI(config_name="sdci", data_dir=str(folder), cache_dir=str(tmp_path / "built"))
    builder.download_and_prepare()
    data = builder.as_dataset()
    assert {split: data[split].num_rows for split in data} == {"train": 2, "validation": 1, "test": 3}
    stored = data["test"].cast_column("image", datasets.Image(decode=False))
    assert list(stored) == list(dci.Release(folder).rows("test", "sdci"))
    again = dci.DCI(config_name="sdci", data_dir=str(folder), cache_dir=str(tmp_path / "built"))
    assert again.cache_dir == builder.cache_dir
    note = changed(NOTES["3-data.json"], {"short_caption": "Another text."})
    write_release(folder, {"3-data.json": note}, {}, SPLITS)
    other = dci.DCI(config_name="sdci", data_dir=str(folder), cache_dir=str(tmp_path / "built"))
    assert other.cache_dir != builder.cache_dir


def test_the_builder_leaves_out_what_is_missing(tmp_path):
    def built(name, photos, **options):
        folder = write_release(tmp_path / name, NOTES, photos, SPLITS)
        builder = dci.DCI(config_name="full", data_dir=str(folder), cache_dir=str(tmp_path / "built"), **options)
        builder.download_and_prepare()
        return {split: list(data["image_id"]) for split, data in builder.as_dataset().items()}

    some = {name: PHOTOS[name] for name in ("sa_4.jpg", "sa_1.jpg", "sa_2.jpg")}
    assert built("some", some, on_error="skip") == {"train": ["4"], "test": ["1", "2"]}
    with pytest.raises(dci.DCIError, match="photos are missing"):
        built("some", some)
    with pytest.raises(dci.DCIError, match="no photo to build from; 6 are missing"):
        built("none", {}, on_error="skip")
    assert built("none", {}, with_photos=False) == {"train": ["4", "0"], "validation": ["5"], "test": ["3", "1", "2"]}
