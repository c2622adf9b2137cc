"""COCO and Localized Narratives as rows of `sdci`, from folders laid out as both are distributed."""

import copy
import json

import numpy as np
import PIL.Image
import pytest
from command import refused, run
from hash_encoder import HashEncoder

import dci
import dci_metrics
from dci import DCIError
from dci_metrics.sources import Share, open_source
from dci_metrics.subcrops import read_row

SIZES = {139: (64, 48), 285: (48, 64), 632: (50, 40)}

COCO = {
    "info": {"year": 2017},
    "licenses": [],
    "images": [
        {"id": number, "file_name": f"{number:012d}.jpg", "width": width, "height": height, "license": 3}
        for number, (width, height) in SIZES.items()
    ],
    # Not in the photos' order, as in COCO's file.
    "annotations": [
        {"image_id": 285, "id": 1, "caption": "A bear."},
        {"image_id": 139, "id": 2, "caption": "A room with chairs. "},
        {"image_id": 285, "id": 3, "caption": "A brown bear\nin grass."},
        *({"image_id": 139, "id": 10 + i, "caption": f"A room {i}."} for i in range(4)),
    ],
}

NARRATIVES = [
    {"image_id": "285", "annotator_id": 7, "caption": "In this image I can see a bear.", "traces": [[{"x": 0.1}]]},
    {"image_id": "139", "annotator_id": 7, "caption": "There is a room.", "traces": []},
    {"image_id": "285", "annotator_id": 9, "caption": "A bear sits here.", "traces": []},
]


def write_photo(path, size, seed, orientation=None):
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    exif = PIL.Image.Exif()
    if orientation is not None:
        exif[0x0112] = orientation
    PIL.Image.fromarray(pixels).save(path, exif=exif)


def write_jsonl(path, items):
    path.write_text("".join(json.dumps(item | {"dataset_id": "mscoco_val2017"}) + "\n" for item in items))


def write_coco(folder, data=COCO):
    (folder / "annotations").mkdir(exist_ok=True)
    (folder / "annotations" / "captions_val2017.json").write_text(json.dumps(data))


@pytest.fixture
def folder(tmp_path):
    """COCO and Localized Narratives in one folder."""
    (tmp_path / "val2017").mkdir()
    for number, size in SIZES.items():
        write_photo(tmp_path / "val2017" / f"{number:012d}.jpg", size, number)
    write_coco(tmp_path)
    write_jsonl(tmp_path / "coco_val_localized_narratives.jsonl", NARRATIVES)
    return tmp_path


def source_of(folder, kind="coco", split="validation", **options):
    return open_source(f"{kind}:{folder}", "sdci", split, **options)


def captions_of(source):
    return {row["image_id"]: row["entries"][0]["captions"] for row in source.read(photos=False)}


def test_the_rows_of_coco(folder):
    source = source_of(folder)
    room, bear, silent = rows = list(source.read())
    assert (source.total, source.id, source.config, source.split) == (3, f"coco:{folder}", "sdci", "validation")
    assert room == {
        "image": {"bytes": None, "path": str(folder / "val2017" / "000000000139.jpg")},
        "image_id": "139",
        "file_name": "000000000139.jpg",
        "width": 64,
        "height": 48,
        "entries": [
            {
                "key": "base",
                "mask_id": -1,
                "quality": "ok",
                "label": None,
                "bbox": [0, 0, 64, 48],
                "crop_xyxy": [0, 0, 64, 48],
                "captions": ["A room with chairs. ", "A room 0.", "A room 1.", "A room 2.", "A room 3."],
                "caption_clip_score": None,
                "negatives": [],
                "rle": None,
            }
        ],
        "left_out": [{"test": "hard", "reason": "no negatives"}],
    }
    assert bear["entries"][0]["captions"] == ["A bear.", "A brown bear\nin grass."]
    assert bear["left_out"] == [
        {"test": "pick5", "reason": "fewer than five captions"},
        {"test": "hard", "reason": "no negatives"},
    ]
    assert silent["entries"][0]["captions"] == []
    assert [cell["test"] for cell in silent["left_out"]] == list(dci.TESTS)
    assert all(list(row) == list(dci.features("sdci")) for row in rows)
    assert [list(row["entries"][0]) for row in rows] == [list(dci.features("sdci")["entries"].feature)] * 3


def test_photos_are_read_when_they_are_opened(folder):
    first, *_ = source_of(folder).read()
    np.testing.assert_array_equal(
        np.asarray(read_row(first).open()), np.asarray(PIL.Image.open(folder / "val2017" / "000000000139.jpg"))
    )
    source = source_of(folder)
    image = source.open_images()(1, "000000000285.jpg")
    assert image == {"bytes": None, "path": str(folder / "val2017" / "000000000285.jpg")}
    assert [row["image"] for row in source.read(photos=False)] == [None] * 3


def test_shares_of_the_rows(folder):
    source = source_of(folder)
    shares = [[(i, row["image_id"]) for i, row in source.read_share(Share(first, 2))] for first in range(2)]
    assert shares == [[(0, "139"), (2, "632")], [(1, "285")]]


def test_the_rows_of_localized_narratives(folder):
    write_photo(folder / "val2017" / "000000000139.jpg", (48, 64), 0, orientation=6)  # upright, it is 64x48
    bear, room = rows = list(source_of(folder, "localized_narratives").read())
    assert bear["entries"][0]["captions"] == ["In this image I can see a bear.", "A bear sits here."]
    assert room["entries"][0]["captions"] == ["There is a room."]
    assert [(row["image_id"], row["file_name"], row["width"], row["height"]) for row in rows] == [
        ("285", "000000000285.jpg", 48, 64),
        ("139", "000000000139.jpg", 64, 48),
    ]
    assert [read_row(row).open().size for row in rows] == [(48, 64), (64, 48)]


def test_narratives_without_photos(tmp_path):
    write_jsonl(tmp_path / "coco_val_localized_narratives.jsonl", NARRATIVES)
    source = source_of(tmp_path, "localized_narratives")
    assert captions_of(source) == {
        "285": ["In this image I can see a bear.", "A bear sits here."],
        "139": ["There is a room."],
    }
    assert [read_row(row).image for row in source.read(photos=False)] == [None, None]


def test_photos_in_another_folder(folder, tmp_path_factory):
    texts = tmp_path_factory.mktemp("texts")
    write_jsonl(texts / "coco_val_localized_narratives.jsonl", NARRATIVES)
    source = open_source(f"localized_narratives:{texts}:{folder}", "sdci", "validation")
    assert [row["width"] for row in source.read()] == [48, 64]


def test_narratives_in_parts(tmp_path):
    for i in range(4):
        line = {"image_id": str(i // 2), "caption": f"Part {i}."}
        write_jsonl(tmp_path / f"coco_train_localized_narratives-{i:05d}-of-00004.jsonl", [line])
    source = source_of(tmp_path, "localized_narratives", "train")
    assert captions_of(source) == {"0": ["Part 0.", "Part 1."], "1": ["Part 2.", "Part 3."]}
    (tmp_path / "coco_train_localized_narratives-00002-of-00004.jsonl").unlink()
    with pytest.raises(
        DCIError, match=r"expected all 4 parts .*'coco_train_localized_narratives-00002-of-00004.jsonl'"
    ):
        source_of(tmp_path, "localized_narratives", "train")


def test_the_texts_alone_are_taken_where_they_are_there(folder):
    write_jsonl(folder / "coco_val_captions.jsonl", [{"image_id": 139, "caption": "Texts alone."}])
    assert captions_of(source_of(folder, "localized_narratives")) == {"139": ["Texts alone."]}


def test_scores(folder):
    result = dci_metrics.evaluate(
        HashEncoder(), f"coco:{folder}", split="validation", tests=["base_scm", "pick5_scm"], progress=False
    )
    assert (result.scores["base_scm"].n, result.scores["pick5_scm"].n) == (2, 1)
    assert result.scores["base_scm"].left_out == [{"image_id": "632", "reason": "no captions"}]


@pytest.mark.parametrize(
    ("test", "part"),
    [
        ("base_neg", "139: field `entries`: base has no negative for base_neg"),
        ("all_neg", "or choose tests without negatives"),
        ("hard_negs", "3 photos are left out, the first one, 139, because: no negatives"),
    ],
)
def test_tests_with_negatives_end_in_one_line(folder, monkeypatch, capsys, test, part):
    arguments = ["eval", "sample:tiny-clip", "--dataset", f"coco:{folder}", "--split", "validation"]
    refused(run(monkeypatch, capsys, *arguments, "--tests", test), part)


def changed(*path):
    """COCO's file with a value replaced, or a field taken out."""
    data = copy.deepcopy(COCO)
    *keys, last, value = path
    place = data
    for key in keys:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], r"captions_val2017.json: field `images`: expected a list"),
        (changed("annotations", {}), r"captions_val2017.json: field `annotations`: expected a list"),
        (changed("images", 1, "id", "x"), r"images\[1\]: field `id`: expected a whole number of at least 0, got 'x'"),
        (changed("images", 1, "id", 139), r"images\[1\]: field `id`: 139 is that of another image as well"),
        (
            changed("images", 0, "file_name", None),
            r"images\[0\]: field `file_name`: expected Unicode text, got nothing",
        ),
        (
            changed("images", 0, "file_name", "../a.jpg"),
            r"images\[0\]: field `file_name`: expected a name without fold",
        ),
        (changed("images", 2, "width", 0), r"images\[2\]: field `width`: expected a whole number of at least 1, got 0"),
        (changed("images", 2, "height", True), r"images\[2\]: field `height`: .* got True"),
        (changed("annotations", 3, 5), r"annotations\[3\]: expected an object, got int"),
        (changed("annotations", 3, "id", 1), r"annotations\[3\]: field `id`: 1 is that of another annotation as well"),
        (changed("annotations", 3, "image_id", 5), r"annotations\[3\]: field `image_id`: there is no image 5"),
        (changed("annotations", 3, "caption", ["a"]), r"annotations\[3\]: field `caption`: .* got \['a'\]"),
        (changed("annotations", 3, "caption", "\ud83d"), r"annotations\[3\]: field `caption`: expected Unicode text"),
    ],
)
def test_what_is_wrong_in_coco(folder, data, message):
    write_coco(folder, data)
    with pytest.raises(DCIError, match=message):
        source_of(folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"image_id": "1", "capt', r"jsonl: line 3: is not valid JSON"),
        ("[]", r"jsonl: line 3: expected an object, got list"),
        ('{"image_id": "1"}', r"jsonl: line 3: field `caption`: expected Unicode text, got nothing"),
        ('{"image_id": "1a", "caption": ""}', r"jsonl: line 3: field `image_id`: expected a whole number .* got '1a'"),
        ('{"caption": ""}', r"jsonl: line 3: field `image_id`: .* got nothing"),
    ],
)
def test_what_is_wrong_in_narratives(folder, line, message):
    good = json.dumps(NARRATIVES[0])
    (folder / "coco_val_localized_narratives.jsonl").write_text(f"{good}\n\n{line}\n{good}\n")
    with pytest.raises(DCIError, match=message):
        source_of(folder, "localized_narratives")


def test_what_is_not_there(folder):
    with pytest.raises(DCIError, match=r"captions_train2017.json: cannot be read \(No such file"):
        source_of(folder, split="train")
    with pytest.raises(DCIError, match=r"holds no coco_train_localized_narratives\*.jsonl and no coco_train_captions"):
        source_of(folder, "localized_narratives", "train")
    with pytest.raises(DCIError, match=r"^coco:nowhere: nowhere is no folder; expected coco:FOLDER"):
        source_of("nowhere")
    with pytest.raises(DCIError, match=r"has no split 'test' with captions: expected one of train, validation"):
        source_of(folder, split="test")
    with pytest.raises(DCIError, match=r"has no configuration 'full': expected 'sdci'"):
        open_source(f"coco:{folder}", "full", "validation")
    (folder / "annotations" / "captions_val2017.json").write_text('{"images": [')
    with pytest.raises(DCIError, match=r"captions_val2017.json: is not valid JSON"):
        source_of(folder)


@pytest.mark.parametrize("kind", ["coco", "localized_narratives"])
def test_a_missing_photo(folder, kind):
    (folder / "val2017" / "000000000285.jpg").unlink()
    with pytest.raises(DCIError, match=r"val2017: 1 of \d photos are missing, the first is 000000000285.jpg; unpack"):
        next(source_of(folder, kind).read())
    source = source_of(folder, kind, on_error="skip")
    rows = list(source.read())
    assert "285" not in [row["image_id"] for row in rows]
    assert source.skipped == [dci.Skipped("285", "photo 000000000285.jpg is missing")]
    assert len(list(source.read())) == len(rows)
    assert len(source.skipped) == 1


def test_a_broken_photo(folder):
    (folder / "val2017" / "000000000139.jpg").write_bytes(b"no photo")
    source = source_of(folder, "localized_narratives")
    with pytest.raises(DCIError, match=r"000000000139.jpg: cannot be read as a photo"):
        list(source.read())
    source = source_of(folder, "localized_narratives", on_error="skip")
    assert [row["image_id"] for row in source.read()] == ["285"]
    assert [skipped.image_id for skipped in source.skipped] == ["139"]
    # COCO's file has the sizes, so it is met when it is opened.
    first, *_ = source_of(folder).read()
    with pytest.raises(DCIError, match=r"000000000139.jpg: cannot be read as a photo"):
        read_row(first).open()
