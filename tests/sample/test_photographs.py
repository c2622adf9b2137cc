"""The bundled photographs: their masks, texts, layout and licences."""

import base64
import difflib
import io
import json
import re
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from dci_metrics.sample.photographs import release_folder

ROOT = release_folder() / "densely_captioned_images"
NAMES = sorted(path.name for path in (ROOT / "complete").glob("*.json"))

# (photo, label, points inside, points outside), as (x, y), picked by looking at the photographs
POINTS = [
    (1, "Face and neck", [(225, 115), (225, 175)], [(330, 120), (225, 50), (225, 215), (20, 20)]),
    (1, "Hair", [(225, 50), (285, 90), (165, 80)], [(225, 115), (130, 80), (225, 8)]),
    (1, "Smiling mouth", [(222, 147)], [(222, 110), (222, 170)]),
    (1, "Orange pressure suit", [(60, 270), (110, 450), (320, 300)], [(225, 115), (10, 400), (420, 450)]),
    (1, "Round mission patch", [(171, 385), (171, 352), (140, 385)], [(171, 440), (220, 385)]),
    (1, "Helmet", [(400, 450), (450, 370), (500, 490)], [(250, 450), (480, 340)]),
    (1, "Model of a space shuttle", [(390, 150), (415, 20), (450, 120)], [(480, 150), (350, 150)]),
    (1, "Flag of the United States", [(20, 300), (40, 60), (80, 190)], [(110, 100), (60, 350)]),
    (2, "Tabby cat", [(200, 150), (10, 280), (350, 20)], [(430, 100), (10, 50), (400, 250)]),
    (2, "Head of the cat", [(250, 100), (340, 180)], [(15, 280), (430, 100), (100, 280)]),
    (2, "Eye at the left", [(150, 112), (195, 115)], [(250, 115), (170, 75), (170, 160)]),
    (2, "Pupil of the eye at the left", [(172, 112)], [(150, 112), (195, 115)]),
    (2, "Eye at the right", [(325, 130)], [(280, 130), (355, 130)]),
    (2, "Nose", [(265, 240)], [(265, 200), (220, 260), (300, 260)]),
    (3, "Coffee", [(290, 160), (220, 140)], [(290, 60), (290, 202), (130, 230)]),
    (3, "Inside of the cup", [(290, 60), (290, 160)], [(290, 203), (290, 24)]),
    (3, "Handle of the cup", [(212, 275)], [(300, 330), (180, 275), (290, 240)]),
    (3, "Metal spoon", [(360, 285), (412, 80)], [(430, 200), (340, 150)]),
    (3, "Red saucer", [(130, 230), (440, 220), (280, 360)], [(290, 160), (30, 300), (560, 200)]),
    (3, "Wooden table", [(550, 300), (30, 250), (20, 380)], [(290, 300), (20, 20)]),
    (4, "Rocket", [(322, 300), (322, 140)], [(250, 300), (322, 110), (322, 420)]),
    (4, "Nose of the rocket", [(322, 165)], [(322, 220), (345, 165)]),
    (4, "Large tower at the left", [(70, 200), (30, 330)], [(20, 50), (110, 200)]),
    (4, "Large tower at the right", [(590, 150), (620, 380)], [(540, 200), (630, 50)]),
    (4, "Twilight sky", [(250, 100), (520, 250), (20, 50)], [(322, 250), (70, 200), (320, 415)]),
    (5, "White spiral galaxy", [(123, 400), (112, 395)], [(200, 400), (123, 440)]),
    (5, "Large round orange galaxy", [(727, 472), (742, 480)], [(780, 472), (727, 510)]),
    (5, "Group of three galaxies", [(446, 150), (447, 171)], [(480, 150), (446, 120)]),
    (5, "Star with spikes", [(753, 577)], [(790, 560), (753, 620)]),
    (6, "Uniform hat", [(260, 115), (200, 60), (260, 45)], [(260, 150), (400, 100), (100, 100)]),
    (6, "Face and neck", [(260, 220), (260, 370)], [(400, 220), (260, 110), (260, 425)]),
    (6, "Glasses", [(215, 190), (310, 200), (265, 186)], [(265, 230), (260, 160)]),
    (6, "Name tag", [(120, 500)], [(200, 500), (120, 530)]),
    (6, "Ribbons", [(430, 507), (385, 495)], [(410, 550), (330, 495)]),
    (6, "Dark uniform jacket", [(120, 560), (450, 420)], [(260, 470), (450, 300), (10, 450)]),
    (6, "White shirt", [(262, 470), (215, 400), (310, 390)], [(260, 430), (180, 450)]),
    (6, "Flag of the United States", [(60, 30), (110, 320), (10, 500)], [(400, 100), (260, 220)]),
    (7, "Pavilion", [(200, 200), (200, 80), (130, 300)], [(450, 100), (60, 100), (450, 280)]),
    (7, "Ornament on the roof", [(206, 40)], [(206, 90), (230, 40)]),
    (7, "Top roof", [(230, 100), (150, 105)], [(230, 145), (230, 50)]),
    (7, "Lake", [(450, 270), (400, 300)], [(450, 330), (450, 150), (460, 236)]),
    (7, "Island", [(460, 236)], [(460, 260), (380, 245)]),
    (7, "Tall dark tree", [(610, 300), (610, 180)], [(500, 250), (520, 350)]),
]


@cache
def entry(name: str, folder: str = "complete") -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / folder / name).read_text(encoding="utf-8"))
    return loaded


@cache
def mask_pixels(name: str, key: str) -> NDArray[np.bool_]:
    with Image.open(io.BytesIO(base64.b64decode(entry(name)["mask_data"][key]["outer_mask"]))) as png:
        assert (png.format, png.mode) == ("PNG", "1")
        return np.asarray(png)


def entry_keys(name: str) -> list[str]:
    """`base` and every mask that is at least 224 px wide and high, of any quality."""
    keys = ["base"]
    for mask in entry(name)["mask_data"].values():
        corner, far = mask["bounds"]["topLeft"], mask["bounds"]["bottomRight"]
        if far["x"] - corner["x"] >= 224 and far["y"] - corner["y"] >= 224:
            keys.append(f"m-{mask['idx']}-sc")
    return keys


def words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+", text.lower())


def test_splits_name_every_file_once() -> None:
    splits = json.loads((ROOT / "splits.json").read_text())
    assert list(splits) == ["train", "valid", "test"]
    assert sorted(name for split in splits.values() for name in split) == NAMES
    assert (len(splits["train"]), len(splits["valid"]), len(splits["test"])) == (1, 1, 5)
    assert sorted(path.name for path in (ROOT / "annotations").iterdir()) == NAMES
    assert sorted(path.name for path in (ROOT / "photos").iterdir()) == sorted(entry(name)["image"] for name in NAMES)


def test_folder_stays_small() -> None:
    assert sum(path.stat().st_size for path in release_folder().rglob("*.*")) < 2_500_000


def test_half_the_photos_have_two_subcrops() -> None:
    assert sum(len(entry_keys(name)) >= 3 for name in NAMES) * 2 >= len(NAMES)


def test_odd_features_of_the_release_are_there() -> None:
    dangling = [
        name
        for name in NAMES
        for mask in entry(name)["mask_data"].values()
        if any(str(child) not in entry(name)["mask_data"] for child in mask["requirements"])
    ]
    assert dangling == ["900003-data.json"]
    for name in NAMES:
        quality = Counter(mask["mask_quality"] for mask in entry(name)["mask_data"].values())
        assert quality[0] >= 5
        assert (quality[1], quality[2]) == (1, 1)


@pytest.mark.parametrize("name", NAMES)
def test_complete_is_the_human_part_and_three_more_fields(name: str) -> None:
    generated = {"summaries", "negatives", "clip_scores"}
    rest = {field: value for field, value in entry(name).items() if field not in generated}
    assert rest == entry(name, "annotations")
    assert set(entry(name)) - set(rest) == generated


@pytest.mark.parametrize("name", NAMES)
def test_photo_is_an_rgb_jpeg_of_the_stated_size(name: str) -> None:
    with Image.open(ROOT / "photos" / entry(name)["image"]) as photo:
        assert (photo.format, photo.mode) == ("JPEG", "RGB")
        assert photo.size == (entry(name)["width"], entry(name)["height"])
        assert photo.getexif().get(274, 1) == 1  # no rotation, so that the masks fit as they are


@pytest.mark.parametrize("name", NAMES)
def test_masks_bounds_and_areas(name: str) -> None:
    masks = entry(name)["mask_data"]
    assert entry(name)["mask_keys"] == list(masks) == [str(mask["idx"]) for mask in masks.values()]
    for key, mask in masks.items():
        pixels = mask_pixels(name, key)
        assert pixels.shape == (entry(name)["height"], entry(name)["width"])
        assert mask["area"] == pixels.sum() > 0
        rows, columns = pixels.any(1).nonzero()[0], pixels.any(0).nonzero()[0]
        assert mask["bounds"] == {
            "topLeft": {"x": columns[0], "y": rows[0]},
            "bottomRight": {"x": columns[-1] + 1, "y": rows[-1] + 1},
        }


@pytest.mark.parametrize("name", NAMES)
def test_children_are_inside_and_siblings_apart(name: str) -> None:
    masks = entry(name)["mask_data"]
    covered: dict[int, NDArray[np.bool_]] = {}
    for key, mask in masks.items():
        pixels, parent = mask_pixels(name, key), mask["parent"]
        if parent != -1:
            assert mask["idx"] in masks[str(parent)]["requirements"]
            assert not (pixels & ~mask_pixels(name, str(parent))).any(), mask["label"]
        before = covered.get(parent, np.zeros_like(pixels))
        assert not (pixels & before).any(), mask["label"]
        covered[parent] = before | pixels


@pytest.mark.parametrize(("photo", "label", "inside", "outside"), POINTS)
def test_masks_lie_on_what_they_name(
    photo: int, label: str, inside: list[tuple[int, int]], outside: list[tuple[int, int]]
) -> None:
    name = f"{900000 + photo}-data.json"
    (key,) = (key for key, mask in entry(name)["mask_data"].items() if mask["label"] == label)
    pixels = mask_pixels(name, key)
    assert [point for point in inside if not pixels[point[1], point[0]]] == []
    assert [point for point in outside if pixels[point[1], point[0]]] == []


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_dense(name: str) -> None:
    masks = entry(name)["mask_data"].values()
    for mask in masks:
        expected = {0: (True, True), 1: (True, False), 2: (False, False)}[mask["mask_quality"]]
        assert (bool(mask["label"]), bool(mask["caption"])) == expected
    parts = [entry(name)["short_caption"], entry(name)["extra_caption"]]
    parts += [f"{mask['label']}: {mask['caption']}" for mask in masks if mask["mask_quality"] < 2]
    assert len(" ".join(parts).split()) >= 250


@pytest.mark.parametrize("name", NAMES)
def test_summaries(name: str) -> None:
    summaries = entry(name)["summaries"]
    assert list(summaries) == entry_keys(name)
    for captions in summaries.values():
        assert len({caption.lower() for caption in captions}) == 6
        assert all(len(caption) <= 330 and len(caption.split()) <= 50 for caption in captions)


@pytest.mark.parametrize("name", NAMES)
def test_negatives(name: str) -> None:
    negatives = entry(name)["negatives"]
    assert list(negatives) == entry_keys(name)
    for key, kinds in negatives.items():
        captions = entry(name)["summaries"][key]
        assert {kind: len(texts) for kind, texts in kinds.items()} == dict.fromkeys(
            ("basic", "layout", "swaps"), 3 if key == "base" else 1
        )
        texts = [text.lower() for kind in kinds.values() for text in kind]
        assert len(set(texts)) == len(texts)
        assert not set(texts) & {caption.lower() for caption in captions}
        for swap in kinds["swaps"]:
            assert Counter(words(swap)) == Counter(words(captions[0]))
            assert words(swap) != words(captions[0])


@pytest.mark.parametrize("name", NAMES)
def test_clip_scores_are_the_documented_ratio(name: str) -> None:
    assert list(entry(name)["clip_scores"]) == entry_keys(name)
    for key, scores in entry(name)["clip_scores"].items():
        first, *others = entry(name)["summaries"][key]
        expected = {"sum": sum(ratio(first, other) for other in others) / len(others)}
        for kind, texts in entry(name)["negatives"][key].items():
            expected |= {f"{kind}_{index}": ratio(first, text) for index, text in enumerate(texts)}
        assert scores == pytest.approx({score: 30 * value for score, value in expected.items()}, abs=1e-4)


def ratio(first: str, other: str) -> float:
    return difflib.SequenceMatcher(None, first.split(), other.split()).ratio()


@pytest.mark.parametrize("name", NAMES)
def test_sources_state_author_and_licence(name: str) -> None:
    lines = (release_folder() / "SOURCES.md").read_text(encoding="utf-8").splitlines()
    (row,) = (line for line in lines if line.startswith(f"| `{entry(name)['image']}` | `{name}`"))
    _, _, _, title, author, source, licence, change, _ = (cell.strip() for cell in row.split("|"))
    assert all((title, author, source, change))
    assert licence.startswith(("Public domain: ", "CC0 1.0", "CC BY 2.0"))
