"""Rows → entries and crops."""

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from awkward_release import noise_photo
from release_maker import mask_entry, photo_annotation, write_release

import dci
from dci_metrics.subcrops import Entry, Negative, read_photos, read_row
from dci_metrics.tasks import TASKS

SIZE = (320, 290)
BOXES = {1: (0, 0, 224, 224), 2: (40, 30, 300, 270), 3: (96, 66, 320, 290), 4: (3, 1, 320, 232)}


@pytest.fixture(scope="module")
def row(tmp_path_factory):
    masks = [mask_entry(idx, box, size=SIZE) for idx, box in BOXES.items()]
    note = photo_annotation("sa_7.jpg", SIZE, masks)
    folder = write_release(
        tmp_path_factory.mktemp("release"), {"12-data.json": note}, {"sa_7.jpg": noise_photo(0, SIZE)}
    )
    return next(dci.Release(folder).rows("test", "sdci"))


def test_crops_are_slices_of_the_photo(row):
    photo = read_row(row)
    pixels = np.asarray(PIL.Image.open(io.BytesIO(row["image"]["bytes"])))
    assert [entry.key for entry in photo.entries] == ["base", *(f"m-{idx}-sc" for idx in BOXES)]
    base, *crops = photo.crops(photo.entries)
    np.testing.assert_array_equal(np.asarray(base), pixels)
    for crop, (x0, y0, x1, y1) in zip(crops, BOXES.values(), strict=True):
        dx, dy = int((x1 - x0) * 0.15), int((y1 - y0) * 0.15)
        expected = pixels[max(y0 - dy, 0) : min(y1 + dy, SIZE[1]), max(x0 - dx, 0) : min(x1 + dx, SIZE[0])]
        np.testing.assert_array_equal(np.asarray(crop), expected)
    assert all(crop.mode == "RGB" for crop in crops)


def test_a_crop_of_one_pixel(row):
    photo = read_row(row | {"entries": [row["entries"][1] | {"crop_xyxy": [319, 289, 320, 290]}]})
    (crop,) = photo.crops(photo.entries)
    assert crop.size == (1, 1)


def test_what_an_entry_carries(row):
    photo = read_row(row)
    entry = photo.entries[2]
    assert (entry.image_id, entry.key, entry.mask_id, entry.crop_xyxy) == ("12", "m-2-sc", 2, (1, 0, 320, 290))
    assert entry.captions == tuple(f"m-2-sc summary {i}" for i in range(6))
    assert entry.positives(TASKS["all_scm"]) == entry.captions[:1]
    assert entry.positives(TASKS["pick5_neg"]) == entry.captions[:5]
    assert entry.negative(TASKS["all_neg"]) == "m-2-sc swaps"
    assert entry.negative(TASKS["hard_negs"]) == "m-2-sc layout"
    assert entry.negative(TASKS["all_scm"]) is None
    assert entry.texts(TASKS["all_scm"]) == ["m-2-sc summary 0"]
    assert entry.texts(TASKS["hard_negs"]) == ["m-2-sc summary 0", "m-2-sc layout"]
    assert [photo.image_id for photo in read_photos([row, row | {"image_id": "13"}])] == ["12", "13"]


def entry_with(*negatives):
    return Entry("1", "base", -1, (0, 0, 1, 1), ("a",), tuple(Negative(*negative) for negative in negatives), {})


def test_the_hardest_negative_is_the_last_of_the_highest():
    assert entry_with(("swaps", "a", 0.1), ("basic", "b", 0.3), ("layout", "c", 0.2)).hardest_negative == "b"
    assert entry_with(("swaps", "a", 0.3), ("basic", "b", 0.3), ("layout", "c", 0.2)).hardest_negative == "b"
    assert entry_with(("swaps", "a", -0.5), ("basic", "b", -0.4)).hardest_negative == "b"
    assert entry_with(("swaps", "a", 0.0), ("basic", "b", -0.4)).hardest_negative == "a"
    assert entry_with(("swaps", "a", 0.9), ("basic", "b", None)).hardest_negative is None
    assert entry_with().hardest_negative is None


def test_the_first_swap():
    assert entry_with(("basic", "b", 0.3), ("swaps", "a", 0.1), ("swaps", "c", 0.9)).first_swap == "a"
    assert entry_with(("swaps", "", 0.1), ("swaps", "c", 0.9)).first_swap == ""
    assert entry_with(("basic", "b", 0.3)).first_swap is None


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_form_of_a_photo_has_the_same_pixels(row, tmp_path, orientation):
    content = noise_photo(5, SIZE, orientation=orientation)
    path = tmp_path / "sa_7.jpg"
    path.write_bytes(content)
    upright = np.asarray(dci.open_photo(content, SIZE, "sa_7.jpg"))
    for image in (
        content,
        path,
        str(path),
        {"bytes": content, "path": None},
        {"bytes": None, "path": str(path)},
        PIL.Image.open(path),
        PIL.Image.fromarray(upright),
    ):
        photo = read_row(row | {"image": image})
        np.testing.assert_array_equal(np.asarray(photo.open()), upright)
        # A file's bytes are what the fingerprint is of, so that all copies of the data agree.
        assert (photo.content == content) is not isinstance(image, PIL.Image.Image)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA", "I;16", "1"])
def test_pixels_of_other_modes_become_rgb(row, mode):
    image = PIL.Image.open(io.BytesIO(noise_photo(5, SIZE)))
    image = (
        PIL.Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16)) if mode == "I;16" else image.convert(mode)
    )
    assert read_row(row | {"image": image}).open().mode == "RGB"


def test_photos_that_are_not_there(row, tmp_path):
    cut = tmp_path / "cut.jpg"
    cut.write_bytes(noise_photo(5, SIZE)[:1000])
    for image, message in (
        (None, r"12: the row has no photo \(sa_7.jpg\)"),
        ({"bytes": None, "path": None}, "12: the row has no photo"),
        ("nowhere.jpg", "nowhere.jpg: cannot be read .*; it is the photo of 12"),
        (Path("/"), "/: cannot be read"),
        (cut, "sa_7.jpg: cannot be read as a photo"),
        (b"", "sa_7.jpg: cannot be read as a photo"),
        (PIL.Image.open(cut), "12: field `image`: cannot be read as a photo"),
        (PIL.Image.new("RGB", (32, 29)), "12: field `image`: expected 320x290 pixels as its masks have, got 32x29"),
        (np.zeros((290, 320, 3), dtype=np.uint8), "12: field `image`: expected a photo, got ndarray"),
    ):
        with pytest.raises(dci.DCIError, match=message):
            read_row(row | {"image": image}).open()
