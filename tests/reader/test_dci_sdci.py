"""sDCI's captions, negatives and scores, and which photos the paper's tests leave out."""

import copy
import json

import pytest
from release_maker import mask_entry, photo_annotation, write_release

import dci

BIG, SMALL = (10, 20, 250, 260), (10, 20, 200, 260)
ALL, BELOW, EVERY = ["all", "pick5"], ["all", "pick5", "hard"], ["all", "pick5", "base", "hard"]


def parse(note):
    return dci.parse_annotation(json.dumps(note).encode(), "1-data.json")


def entries_of(note):
    return dci.make_row(parse(note), "sdci", None, masks=False)["entries"]


def test_an_entry_has_all_captions_and_negatives_in_the_files_order():
    note = photo_annotation(masks=[mask_entry(3, label="cat", mask_quality=1)])
    note["negatives"]["base"] = {"swaps": ["s0", "s1"], "basic": ["b0"], "extra kind": ["e0", "e1"]}
    note["clip_scores"]["base"] = {"sum": 0.5, "swaps_0": 0.1, "swaps_1": 0.9, "basic_0": 1, "extra kind_1": -0.25}
    base, entry = entries_of(note)
    assert base["captions"] == [f"base summary {i}" for i in range(6)]
    assert base["caption_clip_score"] == 0.5
    assert [tuple(negative.values()) for negative in base["negatives"]] == [
        ("swaps", "s0", 0.1),
        ("swaps", "s1", 0.9),
        ("basic", "b0", 1.0),
        ("extra kind", "e0", None),
        ("extra kind", "e1", -0.25),
    ]
    assert (entry["key"], entry["mask_id"], entry["label"], entry["quality"]) == ("m-3-sc", 3, "cat", "low_quality")
    assert entry["negatives"][2] == {"kind": "swaps", "text": "m-3-sc swaps", "clip_score": 0.27}


def test_a_bare_string_is_one_summary():
    note = photo_annotation(masks=[mask_entry(3)])
    note["summaries"]["base"] = "the only one"
    note["summaries"]["m-3-sc"] = ""
    assert [entry["captions"] for entry in entries_of(note)] == [["the only one"], [""]]


def test_the_readmes_keys():
    note = photo_annotation(masks=[mask_entry(3), mask_entry(40)])
    for table in ("summaries", "negatives", "clip_scores"):
        for idx in (3, 40):
            note[table][str(idx)] = note[table].pop(f"m-{idx}-sc")
    plain = photo_annotation(masks=[mask_entry(3), mask_entry(40)])
    assert entries_of(note) == entries_of(plain)
    assert dci.make_row(parse(note), "sdci", None, masks=False)["left_out"] == []


def test_the_codes_key_wins_over_the_readmes():
    note = photo_annotation(masks=[mask_entry(3)])
    note["summaries"]["3"] = ["another"]
    assert entries_of(note)[1]["captions"][0] == "m-3-sc summary 0"


def test_absent_keys_give_empty_entries():
    note = photo_annotation(masks=[mask_entry(3)], summaries={"base": ["b"]}, negatives={"base": {}}, clip_scores={})
    base, entry = entries_of(note)
    assert base["captions"] == ["b"]
    assert (base["negatives"], base["caption_clip_score"]) == ([], None)
    assert (entry["captions"], entry["negatives"], entry["caption_clip_score"]) == ([], [], None)


# -- left out: (what is done to a sound annotation, the tests it is then out of)
# The annotation has masks 0 (big, ok), 1 (small, low quality), 2 (big, bad), and a text for each of them.


def drop(*path):
    return put(path[:-1], path[-1])


def put(path, key, *value):
    def change(note):
        place = note
        for step in path:
            place = place[step]
        if value:
            place[key] = value[0]
        else:
            del place[key]

    return change


def both(*changes):
    return lambda note: [change(note) for change in changes]


LEFT_OUT = {
    "sound": (lambda note: None, []),
    "no summaries": (drop("summaries"), EVERY),
    "null summaries": (put((), "summaries", None), EVERY),
    "no negatives": (drop("negatives"), EVERY),
    "a null under a key of clip_scores": (put(("clip_scores",), "base", None), ["hard"]),
    "null negatives": (put((), "negatives", None), EVERY),
    "no clip_scores": (drop("clip_scores"), EVERY),
    "negatives with base alone": (
        put((), "negatives", {"base": {"swaps": ["s"], "basic": ["b"], "layout": ["l"]}}),
        BELOW,
    ),
    "negatives with one mask alone": (put((), "negatives", {"m-0-sc": {"swaps": ["s"]}}), EVERY),
    "negatives without keys": (put((), "negatives", {}), EVERY),
    "summaries without keys": (put((), "summaries", {}), EVERY),
    "no summary of base": (drop("summaries", "base"), EVERY),
    "empty summaries of base": (put(("summaries",), "base", []), EVERY),
    "empty text as summary of base": (put(("summaries",), "base", ""), []),
    "bare summary of base": (put(("summaries",), "base", "one"), []),
    "three summaries": (put(("summaries",), "base", ["1", "2", "3"]), []),  # pick5 drops the entry, not the photo
    "no summary of a big mask": (drop("summaries", "m-0-sc"), BELOW),
    "no summary of a big bad mask": (drop("summaries", "m-2-sc"), BELOW),
    "no summary of a small mask": (drop("summaries", "m-1-sc"), []),
    "empty summaries of a big mask": (put(("summaries",), "m-0-sc", []), BELOW),
    "no negatives of base": (drop("negatives", "base"), EVERY),
    "no negatives of a big mask": (drop("negatives", "m-0-sc"), BELOW),
    "no negatives of a small mask": (drop("negatives", "m-1-sc"), []),
    "no swaps of base": (drop("negatives", "base", "swaps"), ["all", "pick5", "base"]),
    "empty swaps of base": (put(("negatives", "base"), "swaps", []), ["all", "pick5", "base"]),
    "no swaps of a big mask": (drop("negatives", "m-2-sc", "swaps"), ALL),
    "empty swaps of a big mask": (put(("negatives", "m-0-sc"), "swaps", []), ALL),
    "no swaps of a small mask": (drop("negatives", "m-1-sc", "swaps"), []),
    "no layout of a big mask": (drop("negatives", "m-0-sc", "layout"), []),
    "no kinds for a big mask": (put(("negatives",), "m-0-sc", {}), BELOW),
    "all kinds empty for a big mask": (put(("negatives",), "m-0-sc", {"swaps": [], "basic": [], "layout": []}), BELOW),
    "no scores of base": (drop("clip_scores", "base"), EVERY),
    "no scores of a big mask": (drop("clip_scores", "m-0-sc"), BELOW),
    "no scores of a small mask": (drop("clip_scores", "m-1-sc"), []),
    "a negative of base without score": (drop("clip_scores", "base", "layout_0"), ["hard"]),
    "a negative of a big mask without score": (drop("clip_scores", "m-2-sc", "basic_0"), ["hard"]),
    "a negative of a small mask without score": (drop("clip_scores", "m-1-sc", "basic_0"), []),
    "a second negative without score": (put(("negatives", "base"), "basic", ["one", "two"]), ["hard"]),
    "no score of the caption": (drop("clip_scores", "base", "sum"), []),
    "no scores at all in base": (put(("clip_scores",), "base", {}), ["hard"]),
    "no label of a small low-quality mask": (drop("mask_data", "1", "label"), EVERY),
    "no caption of a small low-quality mask": (drop("mask_data", "1", "caption"), []),
    "no label of a big bad mask": (drop("mask_data", "2", "label"), BELOW),
    "no caption of a big bad mask": (drop("mask_data", "2", "caption"), BELOW),
    "no text of a small bad mask": (
        both(
            put(("mask_data", "1"), "mask_quality", 2),
            drop("mask_data", "1", "label"),
            drop("mask_data", "1", "caption"),
        ),
        [],
    ),
    "no caption of a big low-quality mask": (
        both(put(("mask_data", "0"), "mask_quality", 1), drop("mask_data", "0", "caption")),
        BELOW,
    ),
    "no label of a big low-quality mask": (
        both(put(("mask_data", "0"), "mask_quality", 1), drop("mask_data", "0", "label")),
        EVERY,
    ),
    "children that do not exist": (put(("mask_data", "0"), "requirements", [1, 55]), []),
}
SOUND = photo_annotation(
    masks=[mask_entry(0, BIG), mask_entry(1, SMALL, mask_quality=1), mask_entry(2, BIG, mask_quality=2)]
)


@pytest.mark.parametrize("case", LEFT_OUT)
def test_left_out(case):
    change, tests = LEFT_OUT[case]
    note = copy.deepcopy(SOUND)
    change(note)
    row = dci.make_row(parse(note), "sdci", None, masks=False)
    assert [left["test"] for left in row["left_out"]] == tests
    assert all(left["reason"] and "\n" not in left["reason"] for left in row["left_out"])
    assert [entry["key"] for entry in row["entries"]] == ["base", "m-0-sc", "m-2-sc"]  # the row itself is whole


def test_the_reason_names_what_is_missing():
    note = copy.deepcopy(SOUND)
    del note["negatives"]["m-2-sc"]["swaps"]
    del note["clip_scores"]["m-0-sc"]["layout_0"]
    reasons = {left["test"]: left["reason"] for left in dci.make_row(parse(note), "both", None, False)["left_out"]}
    assert reasons == {
        "all": "no `swaps` for m-2-sc",
        "pick5": "no `swaps` for m-2-sc",
        "hard": "a negative without `clip_scores` for m-0-sc",
    }


def test_a_photo_of_the_annotations_folder_alone_is_left_out_of_all(tmp_path):
    folder = write_release(tmp_path, {"1-data.json": SOUND})
    (folder / "densely_captioned_images" / "complete" / "1-data.json").unlink()
    (row,) = dci.Release(folder).rows("test", "sdci")
    assert row["left_out"] == [{"test": test, "reason": "no `summaries`"} for test in EVERY]
    assert [entry["captions"] for entry in row["entries"]] == [[], [], []]
