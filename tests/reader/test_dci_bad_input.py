"""Broken annotations: each is one line of DCIError that names the file and the field, and says what to do."""

import base64
import copy
import io
import json
import time

import numpy as np
import PIL.Image
import pytest
from release_maker import DROP, SIZE, box_bitmap, changed, mask_entry, photo, photo_annotation, png, write_release

import dci

SOUND = photo_annotation(masks=[mask_entry(0, requirements=[1]), mask_entry(1, parent=0, mask_quality=1)])
TO_DO = ("mend the file", "download", "add them", "get ")


def row_of(content, photo=None):
    content = content if isinstance(content, bytes) else json.dumps(content).encode()
    return dci.make_row(dci.parse_annotation(content, "31-data.json"), "both", photo)


def refused(content, *parts):
    """Check that the content is refused in one line that has all parts."""
    with pytest.raises(dci.DCIError) as caught:
        row_of(content)
    message = str(caught.value)
    assert message.startswith("31-data.json"), message
    assert len(message.splitlines()) == 1
    assert len(message) < 700
    assert any(words in message.lower() for words in TO_DO), message
    for part in parts:
        assert part in message, message


def with_mask(**changes):
    note = copy.deepcopy(SOUND)
    note["mask_data"]["0"] = changed(note["mask_data"]["0"], changes)
    return note


NOTHING, TEXT, TRUTH, NUMBER, LIST, OBJECT = None, "words", True, 3, [1], {"a": 1}

TOP_LEVEL = {
    "image": (
        DROP,
        NOTHING,
        TRUTH,
        NUMBER,
        LIST,
        OBJECT,
        "",
        "../sa_1.jpg",
        "/etc/passwd",
        "a/../../b.jpg",
        "a\\b",
        "..",
    ),
    "short_caption": (DROP, NOTHING, TRUTH, NUMBER, LIST, OBJECT, "half \ud83d"),
    "extra_caption": (DROP, NOTHING, TRUTH, NUMBER, LIST, OBJECT, "\udc00"),
    "mask_data": (DROP, NOTHING, TRUTH, NUMBER, TEXT, [], [{"idx": 0}]),
    "height": (TRUTH, TEXT, LIST, OBJECT, 0, -5, 1.5, 2**40),
    "width": (TRUTH, TEXT, LIST, OBJECT, 0, -5, 1.5, 2**40),
    "summaries": (TRUTH, NUMBER, TEXT, LIST),
    "negatives": (TRUTH, NUMBER, TEXT, LIST),
    "clip_scores": (TRUTH, NUMBER, TEXT, LIST),
}
OF_A_MASK = {
    "idx": (
        DROP,
        NOTHING,
        TRUTH,
        TEXT,
        LIST,
        OBJECT,
        0.5,
        -1,
        2**31,
        10**30,
        "9" * 5000,
        float("nan"),
        float("inf"),
        1,
    ),
    "outer_mask": (DROP, NOTHING, TRUTH, NUMBER, LIST, OBJECT, "", "words", "AAAA", "\u00e9\u00e9"),
    "area": (DROP, NOTHING, TRUTH, TEXT, LIST, OBJECT, 0.5, -1, 2**31, float("nan")),
    "mask_quality": (DROP, NOTHING, TRUTH, TEXT, LIST, OBJECT, 3, -1, 0.5),
    "label": (DROP, NOTHING, TRUTH, NUMBER, LIST, OBJECT, "half \ud83d"),
    "caption": (DROP, NOTHING, TRUTH, NUMBER, LIST, OBJECT, "\udfff tail"),
    "parent": (DROP, NOTHING, TRUTH, TEXT, LIST, OBJECT, 0.5, -2),
    "requirements": (DROP, NOTHING, TRUTH, NUMBER, TEXT, OBJECT, [None], [[1]], ["words"], [True], [0.5]),
    "bounds": (
        *(DROP, NOTHING, TRUTH, NUMBER, TEXT, LIST, OBJECT, [], [[1, 2]], [[1, 2], [3]], [[1, 2, 3], [4]]),
        *([[1, 2], [3, 4], [5, 6]], [[1, 2], [3, None]], [[1, 2], [3, True]], [[1, 2], [3, "x"]], ["12", "34"]),
        *([[1.5, 2], [30, 40]], [[1, 2], [float("inf"), 40]], [[1, 2], [float("nan"), 40]], [[1, 2], [10**30, 40]]),
        *([[5, 5], [5, 9]], [[5, 5], [9, 5]], [[9, 9], [5, 5]]),
        *({"topLeft": {"x": 1, "y": 2}}, {"topLeft": {"x": 1, "y": 2}, "bottomRight": {"x": 9}}),
        *({"topLeft": [1, 2], "bottomRight": 5}, {"topLeft": {"x": 1, "y": 2}, "bottomRight": {"x": "a", "y": 9}}),
    ),
}


def cases(table):
    return [(field, wrong) for field, values in table.items() for wrong in values]


@pytest.mark.parametrize(("field", "wrong"), cases(TOP_LEVEL))
def test_fields_of_the_photo(field, wrong):
    refused(changed(SOUND, {field: wrong}), f"`{field}`")


@pytest.mark.parametrize(("field", "wrong"), cases(OF_A_MASK))
def test_fields_of_a_mask(field, wrong):
    refused(with_mask(**{field: wrong}), f"`{field}`")


@pytest.mark.parametrize("value", [NOTHING, TRUTH, NUMBER, TEXT, LIST])
def test_a_mask_that_is_no_object(value):
    refused(changed(SOUND, {"mask_data": {"0": value}}), "mask_data['0']")


@pytest.mark.parametrize("value", [TRUTH, NUMBER, OBJECT, [1], [None], [["x"]], ["half \ud83d"]])
@pytest.mark.parametrize("key", ["base", "m-0-sc"])
def test_summaries_of_an_entry(key, value):
    refused(changed(SOUND, {"summaries": {**SOUND["summaries"], key: value}}), "`summaries`", repr(key))


@pytest.mark.parametrize("value", [TRUTH, NUMBER, TEXT, LIST, {"swaps": None}, {"swaps": "x"}, {"swaps": [1]}])
@pytest.mark.parametrize("key", ["base", "m-0-sc"])
def test_negatives_of_an_entry(key, value):
    refused(changed(SOUND, {"negatives": {**SOUND["negatives"], key: value}}), "`negatives`", repr(key))


@pytest.mark.parametrize("field", ["sum", "basic_0"])
@pytest.mark.parametrize("value", [TRUTH, TEXT, LIST, OBJECT, float("nan"), float("inf"), -float("inf"), 10**400])
def test_scores_of_an_entry(field, value):
    scores = {**SOUND["clip_scores"], "m-0-sc": {"sum": 0.3, field: value}}
    refused(changed(SOUND, {"clip_scores": scores}), "`clip_scores`", "'m-0-sc'", f"'{field}'")


@pytest.mark.parametrize("value", [TRUTH, NUMBER, TEXT, LIST])
def test_scores_that_are_no_object(value):
    refused(changed(SOUND, {"clip_scores": {**SOUND["clip_scores"], "base": value}}), "`clip_scores`", "'base'")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"   ",
        json.dumps(SOUND).encode()[:-1],
        json.dumps(SOUND).encode()[:700],
        json.dumps(SOUND).encode() + b"x",
        b"\xff\xfe\x00" + json.dumps(SOUND).encode(),
        json.dumps(SOUND).encode().replace(b"An extra", b"An \xe9xtra"),
        b"[]",
        b"null",
        b"3",
        b'"text"',
        b"[" * 200_000,
        b'{"a":' * 200_000,
        b'{"image": ' + b"9" * 5000 + b"}",
        b'{"image": "a.jpg", "image": "b.jpg"}',
        json.dumps(SOUND).encode().replace(b'"mask_data": {', b'"mask_data": {"1": {}, '),
        b"\x1f\x8b\x08",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
    ],
)
def test_json(content):
    refused(content)


@pytest.mark.parametrize("start", [b"\xef\xbb\xbf", b"\n  "])
def test_a_byte_order_mark_and_blanks_are_passed_over(start):
    assert row_of(start + json.dumps(SOUND).encode()) == row_of(SOUND)


def test_nesting_in_a_field():
    deep = b"[" * 800 + b"]" * 800
    content = json.dumps(with_mask(idx="DEEP")).encode().replace(b'"DEEP"', deep)
    refused(content, "`idx`")


def test_unknown_fields_are_passed_over():
    note = with_mask(color="red")
    assert row_of(changed(note, {"mask_keys": 5, "more": {"a": [float("nan")]}})) == row_of(SOUND)


# -- bitmaps


def image(form, bitmap=None):
    out = io.BytesIO()
    PIL.Image.fromarray(box_bitmap((1, 1, 9, 9)) if bitmap is None else bitmap).convert("L").save(out, form)
    return base64.b64encode(out.getvalue()).decode()


@pytest.mark.parametrize(
    "bitmap",
    [
        image("JPEG"),
        image("BMP"),
        image("PNG")[:-5],
        "data:image/png;base64," + image("PNG"),
        image("PNG", np.random.default_rng(0).random(SIZE[::-1]) > 0.5)[:4000],
        base64.b64encode(base64.b64decode(image("PNG"))[:40]).decode(),
        base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(100)).decode(),
    ],
)
@pytest.mark.parametrize("key", ["0", "1"])
def test_bitmaps_that_are_no_png(bitmap, key):
    note = copy.deepcopy(SOUND)
    note["mask_data"][key]["outer_mask"] = bitmap
    refused(note, f"mask {key}: field `outer_mask`")


def test_bitmaps_of_different_sizes():
    note = copy.deepcopy(SOUND)
    note["mask_data"]["1"]["outer_mask"] = png(box_bitmap((0, 0, 9, 9), (300, 400)))
    refused(note, "mask 1: field `outer_mask`", "400x300", "300x400")


@pytest.mark.parametrize("box", [[400, 0, 700, 250], [0, 300, 250, 600], [-300, 0, 0, 250], [0, -300, 250, 0]])
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("config", ["full", "sdci"])
def test_boxes_outside_of_the_photo(box, small, config):
    x0, y0, x1, y1 = box
    cut = 100 if small else 0  # below 224 pixels there is no entry, but a box all the same
    note = with_mask(bounds=[[x0 + (cut if x0 < 0 else 0), y0], [x1 - (cut if x0 >= 0 else 0), y1]])
    annotation = dci.parse_annotation(json.dumps(note).encode(), "31-data.json")
    with pytest.raises(dci.DCIError, match=r"31-data\.json: mask 0: field `bounds`: .*400x300"):
        dci.make_row(annotation, config, None, masks=False)


def test_a_box_partly_outside_is_kept_and_its_crop_clipped():
    row = row_of(with_mask(bounds=[[-10, 100], [230, 330]]))
    assert row["masks"][0]["bbox"] == [-10, 100, 240, 230]
    assert row["entries"][1]["crop_xyxy"] == [0, 66, 266, 300]


# -- the tree


@pytest.mark.parametrize("parents", [{0: 0}, {0: 1, 1: 0}, {0: 1, 1: 2, 2: 0}, {0: 1, 1: 1}])
def test_cycles_of_parents(parents):
    masks = [mask_entry(i, parent=parents.get(i, -1)) for i in range(3)]
    refused(photo_annotation(masks=masks), "field `parent`", "its own ancestor")


@pytest.mark.parametrize("below", [{0: [0]}, {0: [1], 1: [0]}, {0: [1, 2], 1: [], 2: [0]}, {2: [2]}, {1: ["1"]}])
@pytest.mark.parametrize("quality", [0, 2])
def test_cycles_of_requirements(below, quality):
    masks = [mask_entry(i, requirements=below.get(i, []), mask_quality=quality) for i in range(3)]
    refused(photo_annotation(masks=masks), "field `requirements`", "below itself")


def test_a_chain_of_5000_masks():
    bitmap = png(box_bitmap((0, 0, 9, 9)))
    text = {"outer_mask": bitmap, "label": "l", "caption": "c"}
    masks = [
        mask_entry(i, (0, 0, 9, 9), size=(9, 9), parent=i - 1, requirements=[i + 1] * (i < 4999), **text)
        for i in range(5000)
    ]
    content = json.dumps(photo_annotation(masks=masks)).encode()
    started = time.perf_counter()
    annotation = dci.parse_annotation(content, "31-data.json")
    row = dci.make_row(annotation, "sdci", None, masks=False)
    assert time.perf_counter() - started < 5
    assert len(row["entries"]) == 1
    assert annotation.masks[4999].depth == 4999
    also = "The following can also be seen in the image:"
    expected = "\n".join(["This is an image of l. c", also, *["l: c"] * 4999])
    assert annotation.mask_description(annotation.masks[0]) == expected


def test_a_ladder_with_more_ways_down_than_can_be_told():
    masks = [mask_entry(i, requirements=[i + 1, i + 1] if i < 59 else []) for i in range(60)]
    refused(photo_annotation(masks=masks), "field `requirements`", "ways")


def test_a_photo_with_a_broken_annotation_is_skipped_and_listed(tmp_path):
    good = {f"{i}-data.json": changed(SOUND, {"image": f"sa_{i}.jpg"}) for i in (1, 2, 3)}
    whole = list(dci.Release(write_release(tmp_path / "whole", good)).rows("test", "both"))
    bad = {"8-data.json": with_mask(caption=DROP), "9-data.json": b"{", **good}
    release = dci.Release(write_release(tmp_path / "bad", bad, {f"sa_{i}.jpg": photo() for i in (1, 2, 3, 7)}))
    with pytest.raises(dci.DCIError, match=r"8-data\.json: mask_data"):
        list(release.rows("test", "both"))
    assert list(release.rows("test", "both", on_error="skip")) == whole
    assert [skipped.image_id for skipped in release.skipped] == ["8", "9"]
    assert "8-data.json: mask_data['0']: field `caption` is missing" in release.skipped[0].reason
    assert "9-data.json: not valid JSON" in release.skipped[1].reason
