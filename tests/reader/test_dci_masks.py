"""Masks: ids, tree, boxes, bitmaps and subcrops, against numbers and arrays made by hand."""

import json

import numpy as np
import pycocotools.mask
import pytest
from release_maker import DROP, SIZE, box_bitmap, changed, mask_entry, photo, photo_annotation, png

import dci


def row_of(note, config="full", photo=None, masks=True):
    return dci.make_row(dci.parse_annotation(json.dumps(note).encode(), "1-data.json"), config, photo, masks)


def test_bounds_in_the_codes_form_and_in_the_readmes():
    one = mask_entry(0, (10, 20, 250, 260))
    two = mask_entry(1, bounds=[[10, 20], [250, 260]])
    row = row_of(photo_annotation(masks=[one, two]))
    assert [mask["bbox"] for mask in row["masks"]] == [[10, 20, 240, 240]] * 2  # right and bottom are exclusive


@pytest.mark.parametrize("kind", [float, str])
def test_numbers_written_as_floats_or_as_text(kind):
    masks = [
        mask_entry(
            3,
            idx=kind(3),
            bounds=[[kind(1), kind(2)], [kind(4), kind(9)]],
            requirements=[kind(5)],
            mask_quality=kind(1),
        ),
        mask_entry(5, idx=kind(5), parent=kind(3)),
    ]
    note = photo_annotation(masks=masks)
    note["mask_data"] = {"3": masks[0], "5": masks[1]}
    first, second = row_of(note)["masks"]
    assert (first["mask_id"], first["children"], first["quality"]) == (3, [5], "low_quality")
    assert first["bbox"] == [1, 2, 3, 7]
    assert (second["mask_id"], second["parent"], second["depth"]) == (5, 3, 1)
    assert all(type(number) is int for number in [*first["bbox"], first["mask_id"], first["area"], *first["children"]])


def test_the_tree():
    masks = [
        mask_entry(7, requirements=[3, 1]),
        mask_entry(1, parent=7, requirements=[2]),
        mask_entry(3, parent=7),
        mask_entry(2, parent=1, area=123456),
        mask_entry(9, parent=44),  # a parent that was dropped: it hangs from the photo
    ]
    row = row_of(photo_annotation(masks=masks))
    assert [(m["mask_id"], m["parent"], m["children"], m["depth"]) for m in row["masks"]] == [
        (7, -1, [3, 1], 0),
        (1, 7, [2], 1),
        (3, 7, [], 1),
        (2, 1, [], 2),
        (9, -1, [], 0),
    ]
    assert row["masks"][3]["area"] == 123456
    note = photo_annotation(masks=masks)
    assert dci.parse_annotation(json.dumps(note).encode(), "1-data.json").ignored == 1


def test_idx_names_the_mask_and_the_key_of_mask_data_links_relatives():
    note = photo_annotation(masks=[mask_entry(70, requirements=[1]), mask_entry(71, parent=0)])
    note["mask_data"] = {"0": note["mask_data"]["70"], "1": note["mask_data"]["71"]}
    row = row_of(note, "both")
    assert [(m["mask_id"], m["parent"], m["children"]) for m in row["masks"]] == [(70, -1, [71]), (71, 70, [])]
    assert [entry["key"] for entry in row["entries"]] == ["base", "m-70-sc", "m-71-sc"]
    assert row["entries"][1]["captions"][0] == "m-70-sc summary 0"


@pytest.mark.parametrize("mode", ["1", "L"])
def test_bitmaps_survive_run_length_encoding(mode):
    rng = np.random.default_rng(5)
    width, height = SIZE
    drawn = [
        rng.random((height, width)) > 0.5,
        np.zeros((height, width), bool),
        np.ones((height, width), bool),
        box_bitmap((0, 0, 1, 1)),
        box_bitmap((399, 299, 400, 300)),
        np.add.outer(np.arange(height), np.arange(width)) % 7 == 0,
    ]
    masks = [mask_entry(i, outer_mask=png(bitmap, mode)) for i, bitmap in enumerate(drawn)]
    row = row_of(photo_annotation(masks=masks))
    for mask, bitmap in zip(row["masks"], drawn, strict=True):
        found = dci.decode_mask(mask["rle"])
        assert found.dtype == bool
        assert found.shape == (height, width)
        assert np.array_equal(found, bitmap)
        assert mask["rle"]["size"] == [height, width]
        assert isinstance(mask["rle"]["counts"], str)


def test_the_encoding_is_cocos():
    bitmap = np.array([[0, 1, 1], [0, 0, 1]], dtype=bool)
    # column by column: 00 10 11 -> two off, one on, one off, two on
    by_hand = pycocotools.mask.frPyObjects({"size": [2, 3], "counts": [2, 1, 1, 2]}, 2, 3)["counts"].decode()
    assert dci.encode_mask(bitmap) == {"size": [2, 3], "counts": by_hand}
    assert np.array_equal(dci.decode_mask({"size": (2, 3), "counts": by_hand.encode()}), bitmap)


def test_entries_are_the_photo_and_masks_of_224_pixels_both_ways():
    sizes = [(223, 300), (300, 223), (224, 224), (225, 225), (224, 223), (223, 224), (400, 224)]
    masks = [mask_entry(i, (0, 0, w, h), mask_quality=i % 3) for i, (w, h) in enumerate(sizes)]
    row = row_of(photo_annotation(masks=masks), "sdci")
    assert [(entry["key"], entry["mask_id"]) for entry in row["entries"]] == [
        ("base", -1),
        ("m-2-sc", 2),
        ("m-3-sc", 3),
        ("m-6-sc", 6),
    ]
    assert [entry["quality"] for entry in row["entries"]] == ["ok", "bad", "ok", "ok"]
    assert row["entries"][0]["label"] is None
    assert row["entries"][0]["rle"] is None
    assert np.array_equal(dci.decode_mask(row["entries"][1]["rle"]), box_bitmap((0, 0, 224, 224)))


@pytest.mark.parametrize(
    ("box", "size", "expected"),
    [
        ((100, 100, 100, 100), (1000, 1000), (85, 85, 215, 215)),
        ((100, 100, 99, 106), (1000, 1000), (86, 85, 213, 221)),  # int(14.85) = 14, int(15.9) = 15
        ((100, 100, 6, 7), (1000, 1000), (100, 99, 106, 108)),  # int(0.9) = 0, int(1.05) = 1
        ((100, 100, 1, 1), (1000, 1000), (100, 100, 101, 101)),
        ((100, 100, 20, 260), (1000, 1000), (97, 61, 123, 399)),
        ((5, 10, 240, 240), (400, 300), (0, 0, 281, 286)),
        ((160, 60, 240, 240), (400, 300), (124, 24, 400, 300)),
        ((0, 0, 400, 300), (400, 300), (0, 0, 400, 300)),
    ],
)
def test_subcrop(box, size, expected):
    assert dci.crop_box(box, *size) == expected


def test_subcrop_of_an_entry():
    row = row_of(photo_annotation(masks=[mask_entry(0, (100, 30, 327, 259))]), "sdci")
    base, entry = row["entries"]
    assert (base["bbox"], base["crop_xyxy"]) == ([0, 0, 400, 300], [0, 0, 400, 300])
    assert entry["bbox"] == [100, 30, 227, 229]
    assert entry["crop_xyxy"] == [66, 0, 361, 293]  # int(34.05) = 34, int(34.35) = 34


@pytest.mark.parametrize("changes", [{"height": DROP, "width": DROP}, {"height": None}, {"height": 9, "width": 9}])
def test_the_masks_tell_the_size_of_the_photo(changes):
    row = row_of(photo_annotation(masks=[mask_entry(0)], **changes))
    assert (row["width"], row["height"]) == (400, 300)


def test_without_masks_the_fields_tell_the_size_and_then_the_photo():
    assert row_of(photo_annotation("sa_7.jpg", (33, 44)))["height"] == 44
    note = changed(photo_annotation("sa_7.jpg"), {"height": DROP, "width": DROP})
    row = row_of(note, photo=photo((50, 60), orientation=6))
    assert (row["width"], row["height"]) == (60, 50)
    with pytest.raises(dci.DCIError, match="`width` and `height` are missing"):
        row_of(note)


def test_rows_without_masks_decode_none():
    note = photo_annotation(masks=[mask_entry(0), mask_entry(1)])
    broken = {"0": note["mask_data"]["0"]["outer_mask"][:60], "1": "not base64 at all"}
    for key, bitmap in broken.items():
        note["mask_data"][key]["outer_mask"] = bitmap
    row = row_of(note, "both", masks=False)
    assert [mask["rle"] for mask in row["masks"]] == [None, None]
    assert [entry["rle"] for entry in row["entries"]] == [None, None, None]
    with pytest.raises(dci.DCIError, match=r"1-data\.json: mask 0: field `outer_mask`"):
        row_of(note, "full")


def test_feature_columns():
    photo_columns = ["image", "image_id", "file_name", "width", "height"]
    full = ["short_caption", "extra_caption", "description", "masks"]
    assert list(dci.features("full")) == photo_columns + full
    assert list(dci.features("sdci")) == [*photo_columns, "entries", "left_out"]
    assert list(dci.features("both")) == [*photo_columns, *full, "entries", "left_out"]
    for config in ("full", "sdci", "both"):
        assert list(row_of(photo_annotation(masks=[mask_entry(0)]), config)) == list(dci.features(config))
    with pytest.raises(dci.DCIError, match="no configuration 'base'"):
        dci.features("base")
