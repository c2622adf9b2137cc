"""The paper's texts: what a photo's and a mask's description say, against strings and a composition made by hand."""

import json
import os
import random
from pathlib import Path

import datasets
import pytest
from release_maker import box_bitmap, mask_entry, photo_annotation, png, write_release

import dci

ALSO = "The following can also be seen in the image:"
SMALL = (20, 10)
BITMAP = png(box_bitmap((1, 2, 11, 8), SMALL))
HAND_MADE = [
    "A mall with escalators.\n\nPlants  on both sides. ",
    " leading and trailing blanks \t\n",
    "Zażółć gęślą jaźń — “quotes”, 漢字, עברית, 👩‍👩‍👧, e\u0301",
    'quote " backslash \\ slash / tab \t nul \u0000 bell \u0007 line \u2028 next \u0085 \r\n',
    "label: with: colons. And . dots..",
    "\ufeffbyte order mark inside",
    "",
]


def small(idx, **changes):
    return mask_entry(idx, (1, 2, 11, 8), size=SMALL, outer_mask=BITMAP, **changes)


def annotation_of(*masks, **changes):
    note = photo_annotation("sa_7.jpg", SMALL, masks, **changes)
    return dci.parse_annotation(json.dumps(note).encode(), "1-data.json")


def row_of(*masks, **changes):
    return dci.make_row(annotation_of(*masks, **changes), "full", None, masks=False)


def descriptions(row):
    return {mask["mask_id"]: mask["description"] for mask in row["masks"]}


# -- composition written from the text of the format, by recursion


def own_text(mask):
    if mask["mask_quality"] == 2:
        return None
    return mask["label"] if mask["mask_quality"] == 1 else mask["label"] + ": " + mask["caption"]


def expected_photo(note):
    text = note["short_caption"] + "\n" + note["extra_caption"]
    parts = [own_text(mask) for mask in note["mask_data"].values() if mask["mask_quality"] != 2]
    return "\n".join([text, ALSO, *parts]) if parts else text


def texts_below(note, mask):
    found = []
    for child in mask["requirements"]:
        below = note["mask_data"].get(str(child))
        if below is not None and below["mask_quality"] != 2:
            found += [own_text(below), *texts_below(note, below)]
    return found


def expected_mask(note, mask):
    if mask["mask_quality"] == 2:
        return None
    text = "This is an image of " + mask["label"] + ". " + mask["caption"]
    parts = texts_below(note, mask)
    return "\n".join([text, ALSO, *parts]) if parts else text


# -- by hand


def test_photo_text_of_each_quality():
    row = row_of(
        small(0, label="bench", caption="A wooden bench."),
        small(1, label="shadow", caption="", mask_quality=1),
        small(2, label="blur", caption="never told", mask_quality=2),
        short_caption="A park.",
        extra_caption="It is dusk.",
    )
    assert row["description"] == (
        "A park.\nIt is dusk.\nThe following can also be seen in the image:\nbench: A wooden bench.\nshadow"
    )


def test_photo_text_without_masks_or_with_bad_ones_alone():
    assert row_of(short_caption="A park.", extra_caption="Dusk.")["description"] == "A park.\nDusk."
    row = row_of(small(0, mask_quality=2), short_caption="A park.", extra_caption="")
    assert row["description"] == "A park.\n"


def test_an_empty_label_gives_an_empty_line():
    row = row_of(
        small(0, label="", caption="", mask_quality=1),
        small(1, label="", caption=""),
        small(2, label="x", caption="y"),
        short_caption="a",
        extra_caption="b",
    )
    assert row["description"] == f"a\nb\n{ALSO}\n\n: \nx: y"


def test_the_text_follows_the_file_and_not_the_numbers():
    row = row_of(*[small(i, label=f"l{i}", caption="c") for i in (10, 9, 2, 1)], short_caption="a", extra_caption="b")
    assert row["description"] == f"a\nb\n{ALSO}\nl10: c\nl9: c\nl2: c\nl1: c"
    assert [mask["mask_id"] for mask in row["masks"]] == [10, 9, 2, 1]


def test_mask_text_goes_down_depth_first_in_the_order_of_requirements():
    row = row_of(
        small(0, label="house", caption="A house.", requirements=[3, 1]),
        small(1, label="roof", caption="A roof.", parent=0, requirements=[2]),
        small(2, label="tile", caption="", parent=1, mask_quality=1),
        small(3, label="door", caption="A door.", parent=0, requirements=[4]),
        small(4, label="knob", caption="A knob.", parent=3),
    )
    assert descriptions(row) == {
        0: f"This is an image of house. A house.\n{ALSO}\ndoor: A door.\nknob: A knob.\nroof: A roof.\ntile",
        1: f"This is an image of roof. A roof.\n{ALSO}\ntile",
        2: "This is an image of tile. ",
        3: f"This is an image of door. A door.\n{ALSO}\nknob: A knob.",
        4: "This is an image of knob. A knob.",
    }


def test_a_bad_child_hides_all_below_it_and_one_that_does_not_exist_is_passed_over():
    masks = [
        small(0, label="a", caption="A", requirements=[99, 1, 3, 77]),
        small(1, label="b", caption="B", mask_quality=2, parent=0, requirements=[2]),
        small(2, label="c", caption="C", parent=1),
        small(3, label="d", caption="D", parent=0),
    ]
    row = row_of(*masks, short_caption="s", extra_caption="e")
    assert descriptions(row)[0] == f"This is an image of a. A\n{ALSO}\nd: D"
    assert descriptions(row)[1] is None
    assert row["description"] == f"s\ne\n{ALSO}\na: A\nc: C\nd: D"  # the photo's own text hides nothing
    assert annotation_of(*masks).ignored == 2
    assert [mask["children"] for mask in row["masks"]] == [[1, 3], [2], [], []]


def test_a_mask_whose_children_are_all_bad_or_missing_has_its_sentence_alone():
    row = row_of(small(0, label="a", caption="A", requirements=[1, 5]), small(1, mask_quality=2, parent=0))
    assert descriptions(row)[0] == "This is an image of a. A"


def test_a_mask_reached_twice_is_told_twice():
    row = row_of(
        small(0, label="a", caption="A", requirements=[1, 2]),
        small(1, label="b", caption="B", requirements=[3]),
        small(2, label="c", caption="C", requirements=[3]),
        small(3, label="d", caption="D"),
    )
    assert descriptions(row)[0] == f"This is an image of a. A\n{ALSO}\nb: B\nd: D\nc: C\nd: D"


def test_text_absent_where_the_format_lets_it_be():
    masks = [small(0, mask_quality=2), small(1, mask_quality=1, label="sky")]
    del masks[0]["label"], masks[0]["caption"], masks[1]["caption"]
    row = row_of(*masks, short_caption="s", extra_caption="e")
    assert row["description"] == f"s\ne\n{ALSO}\nsky"
    assert [(mask["label"], mask["caption"]) for mask in row["masks"]] == [("", ""), ("sky", "")]
    assert descriptions(row) == {0: None, 1: "This is an image of sky. "}


def test_random_trees_against_the_composition_by_recursion():
    draw = random.Random(3)
    for _ in range(150):
        count = draw.randint(1, 12)
        ids = draw.sample(range(30), count)
        masks = [
            small(
                idx,
                mask_quality=draw.choice([0, 0, 1, 2]),
                label=draw.choice(["", f"l{idx}"]),
                caption=f"c{idx}\n",
                # only later masks and masks that are not there, so that nothing turns in a circle
                requirements=draw.sample([*ids[position + 1 :], 98, 99], draw.randint(0, min(3, count - position))),
            )
            for position, idx in enumerate(ids)
        ]
        draw.shuffle(masks)
        note = photo_annotation("sa_7.jpg", SMALL, masks)
        row = row_of(*masks)
        assert row["description"] == expected_photo(note)
        assert descriptions(row) == {mask["idx"]: expected_mask(note, mask) for mask in masks}


# -- byte for byte


def real_texts():
    """The 1,999 real texts of the crowd, where they are at hand; else texts made by hand."""
    shared = Path(os.environ.get("DCI_SHARED", Path(dci.__file__).parents[1] / "shared"))
    path = shared / "data" / "real_captions.json"
    return [entry["caption"] for entry in json.loads(path.read_bytes())] if path.is_file() else HAND_MADE


@pytest.mark.parametrize("escaped", [True, False])
@pytest.mark.parametrize("text", HAND_MADE)
def test_texts_are_kept_byte_for_byte(tmp_path, text, escaped):
    masks = [small(0, label=text, caption=text)]
    note = photo_annotation("sa_7.jpg", SMALL, masks, short_caption=text, extra_caption=text)
    note["summaries"]["base"] = [text, text]
    note["negatives"]["base"] = {"swaps": [text]}
    content = json.dumps(note, ensure_ascii=escaped).encode("utf-8")
    (row,) = dci.Release(write_release(tmp_path, {"1-data.json": content}, {})).rows("test", "both", photos=False)
    assert row["short_caption"] == row["extra_caption"] == text
    assert row["masks"][0]["label"] == row["masks"][0]["caption"] == text
    assert row["description"] == text + "\n" + text + "\n" + ALSO + "\n" + text + ": " + text
    assert row["entries"][0]["captions"] == [text, text]
    assert row["entries"][0]["negatives"][0]["text"] == text

    features = dci.features("both")
    stored = datasets.Dataset.from_list([features.encode_example(row)], features=features)[0]
    assert stored == row


def test_every_real_text_goes_through_a_row_unchanged():
    for text in [*real_texts(), *HAND_MADE]:
        head, _, tail = text.partition(". ")
        masks = [small(4, label=head, caption=tail, requirements=[2]), small(2, label=text, mask_quality=1, parent=4)]
        note = photo_annotation("sa_7.jpg", SMALL, masks, short_caption=text, extra_caption=tail)
        note["summaries"]["base"] = text
        row = dci.make_row(dci.parse_annotation(json.dumps(note).encode(), "1-data.json"), "both", None, masks=False)
        assert row["short_caption"] == text
        assert row["extra_caption"] == tail
        assert row["description"] == "\n".join([text, tail, ALSO, head + ": " + tail, text])
        assert row["masks"][0]["description"] == "\n".join([f"This is an image of {head}. {tail}", ALSO, text])
        assert row["entries"][0]["captions"] == [text]
