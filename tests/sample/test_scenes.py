"""The scenes: masks against the picture, texts against the facts, files against the release's format."""

import base64
import io
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from dci_metrics.sample.scenes import SPLITS, Region, Scene, annotation, make_scene, split_seeds, write_release
from dci_metrics.sample.scenes.lexicon import KINDS
from dci_metrics.sample.scenes.paint import paint
from dci_metrics.sample.scenes.plans import make_plan
from dci_metrics.sample.scenes.world import COLOURS, MATERIALS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    return [make_scene(seed) for seed in range(40)]


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The valid and test splits, written by two processes of another interpreter."""
    folder = tmp_path_factory.mktemp("release")
    code = (
        "import sys, pathlib; from dci_metrics.sample.scenes import write_release\n"
        "if __name__ == '__main__': write_release(pathlib.Path(sys.argv[1]), ('test', 'valid'), num_proc=2)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "5"}
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True, cwd=ROOT, env=environment)
    return folder / "densely_captioned_images"


@pytest.fixture(scope="module")
def test_split(release: Path) -> dict[int, dict[str, Any]]:
    """Seed to complete annotation."""
    names = json.loads((release / "splits.json").read_text())["test"]
    files = [json.loads((release / "complete" / name).read_text(encoding="utf-8")) for name in names]
    return dict(zip(split_seeds("test"), files, strict=True))


# ---- masks against the picture


@pytest.mark.parametrize("seed", [0, 8, 30, 117])
def test_masks_are_what_can_be_seen_of_each_thing_painted_alone(seed: int) -> None:
    plan = make_plan(seed)
    whole = paint(plan)
    alone = [paint(replace(plan, items=(item,))) for item in plan.items]
    firsts = np.cumsum([0] + [len(painting.nodes) for painting in alone])
    silhouettes = [painting.inks > 0 for painting in alone]
    for i, painting in enumerate(alone):
        later = np.zeros_like(silhouettes[0])
        for silhouette in silhouettes[i + 1 :]:
            later |= silhouette
        for node in range(len(painting.nodes)):
            np.testing.assert_array_equal(whole.mask(firsts[i] + node), painting.mask(node) & ~later)


def test_pixels_of_a_region_have_its_colours(scenes: list[Scene]) -> None:
    checked = Counter[str]()
    for scene in scenes:
        for region in scene.regions:
            own = region.mask.copy()
            for part in scene.everything:
                if part.parent == region.idx:
                    own &= ~part.mask
            pixels = scene.image[own].astype(int)
            if len(pixels) < max(1500, 0.3 * region.area):
                continue  # a tree, say, is all crown and trunk
            near = {
                colour: float((np.abs(pixels - COLOURS[colour]).max(axis=1) <= 6).mean())
                for colour in (region.colour, region.accent)
                if colour
            }
            if region.material == "plain":
                assert near[region.colour] > 0.7, (scene.seed, region)
            elif region.accent:
                assert min(near.values()) > 0.08, (scene.seed, region)
                assert sum(near.values()) > 0.6, (scene.seed, region)
            checked[region.material] += 1
    assert set(checked) == set(MATERIALS)
    assert min(checked.values()) > 20


def test_parents_contain_children_and_siblings_are_disjoint(scenes: list[Scene]) -> None:
    depths = set()
    for scene in scenes:
        covered: dict[int, np.ndarray] = {-1: np.zeros(scene.image.shape[:2], bool)}
        for region in scene.regions:
            siblings = covered.setdefault(region.parent, np.zeros_like(region.mask))
            assert not (siblings & region.mask).any()
            siblings |= region.mask
            if region.parent >= 0:
                parent = scene.region(region.parent)
                assert not (region.mask & ~parent.mask).any()
                assert region.idx in parent.children
                assert region.depth == parent.depth + 1
            depths.add(region.depth)
        assert covered[-1].all()  # the backdrops leave no gap
    assert depths == {0, 1, 2, 3}


def test_written_masks_have_the_box_and_area_they_state(test_split: dict[int, dict[str, Any]]) -> None:
    dangling = 0
    for data in list(test_split.values())[:12]:
        assert data["mask_keys"] == list(data["mask_data"])
        for key, mask in data["mask_data"].items():
            image = Image.open(io.BytesIO(base64.b64decode(mask["outer_mask"])))
            assert (image.mode, image.size) == ("1", (data["width"], data["height"]))
            rows, columns = np.nonzero(np.asarray(image))
            assert mask["area"] == len(rows) >= 1500
            assert mask["bounds"] == {
                "topLeft": {"x": columns.min(), "y": rows.min()},
                "bottomRight": {"x": columns.max() + 1, "y": rows.max() + 1},
            }
            assert mask["idx"] == int(key)
            assert mask["parent"] == -1 or str(mask["parent"]) in data["mask_data"]
            for child in mask["requirements"]:
                dangling += str(child) not in data["mask_data"]
                assert data["mask_data"].get(str(child), {"parent": mask["idx"]})["parent"] == mask["idx"]
    assert dangling > 5


def test_scenes_are_rich(scenes: list[Scene]) -> None:
    kinds = {region.kind for scene in scenes for region in scene.regions}
    assert len(kinds & {kind for kind, value in KINDS.items() if value.family == "thing"}) >= 15
    assert {scene.setting for scene in scenes} == {"meadow", "beach", "room", "street"}
    assert any(scene.width > scene.height for scene in scenes)
    assert any(scene.width < scene.height for scene in scenes)
    for scene in scenes:
        assert min(scene.width, scene.height) >= 640
        assert 900 <= max(scene.width, scene.height) <= 1200
        assert 8 <= len(scene.regions) <= 60
        assert 3 <= len(scene.entries) <= 12
        assert len(scene.entries) < len(scene.regions)
        looks = [(r.kind, r.colour) for r in scene.regions if r.depth == 0]
        assert len(set(looks)) == len(looks)  # like things are told apart
    assert np.mean([_has_like_things(scene) for scene in scenes]) > 0.6


def _has_like_things(scene: Scene) -> bool:
    return max(Counter(r.kind for r in scene.regions if r.depth == 0).values()) > 1


# ---- texts against the facts

_NOUNS = {form: kind for kind, value in KINDS.items() for form in (value.noun, value.plural, *value.synonyms)}
_COLOUR, _NOUN = ("|".join(sorted(map(re.escape, words), key=len, reverse=True)) for words in (COLOURS, _NOUNS))
_PHRASE = re.compile(
    rf"\b(?P<glossy>glossy )?(?P<colour>{_COLOUR})"
    rf"(?: and (?P<accent>{_COLOUR}) (?P<material>striped|dotted|checked))? (?P<noun>{_NOUN})\b"
)


def _phrases(text: str) -> list[tuple[str, str, str | None, str | None]]:
    """(kind, colour, accent, material) of every phrase such as "red and white striped houses"."""
    found = _PHRASE.finditer(text[0].lower() + text[1:])
    return [(_NOUNS[m["noun"]], m["colour"], m["accent"], "glossy" if m["glossy"] else m["material"]) for m in found]


def _is_shown(phrase: tuple[str, str, str | None, str | None], regions: list[Region]) -> bool:
    kind, colour, accent, material = phrase
    return any(
        r.kind == kind and {colour, accent or colour} <= {r.colour, r.accent} and material in (None, r.material)
        for r in regions
        if r.area
    )


def _entries(scene: Scene) -> list[tuple[str, list[Region]]]:
    """Key and the regions that its summaries may speak of."""
    around = [r for r in scene.everything if r.depth == 0]
    result = [("base", scene.everything)]
    for region in scene.entries:
        parent = [r for r in scene.everything if r.idx == region.parent]
        siblings = [r for r in scene.everything if r.parent == region.parent]
        result.append((region.key, [region, *scene.below(region, True), *parent, *siblings, *around]))
    return result


def test_summaries_name_only_what_is_there(scenes: list[Scene]) -> None:
    for scene in scenes:
        for key, regions in _entries(scene):
            texts = scene.summaries[key]
            assert len(set(texts)) == 6
            assert all(_phrases(text) for text in texts[:2])
            for text in texts:
                assert 3 <= len(text.split()) <= 45
                assert all(_is_shown(phrase, regions) for phrase in _phrases(text)), (scene.seed, key, text)
        for region in scene.entries:
            assert _is_shown(_phrases(scene.summaries[region.key][0])[0], [region])
    firsts = [texts[0] for scene in scenes for texts in scene.summaries.values()]
    assert len(set(firsts)) > 0.95 * len(firsts)


def test_captions_name_only_what_is_there(scenes: list[Scene]) -> None:
    for scene in scenes:
        for text in [scene.short_caption, scene.extra_caption, *(r.caption for r in scene.regions)]:
            if text:
                assert all(_is_shown(phrase, scene.everything) for phrase in _phrases(text)), (scene.seed, text)


def test_negatives_are_of_the_promised_number_and_no_summary(scenes: list[Scene]) -> None:
    for scene in scenes:
        assert list(scene.summaries) == list(scene.negatives) == ["base", *(r.key for r in scene.entries)]
        for key, negatives in scene.negatives.items():
            assert list(negatives) == ["basic", "layout", "swaps"]
            texts = [text for kind in negatives.values() for text in kind]
            assert {len(kind) for kind in negatives.values()} == {3 if key == "base" else 1}
            assert len(set(texts) | set(scene.summaries[key])) == len(texts) + 6
            assert max(len(text.split()) for text in texts) <= 45


def test_basic_negatives_name_what_is_not_there(scenes: list[Scene]) -> None:
    for scene in scenes:
        for key, regions in _entries(scene):
            # of a picture's things only; a part may have by chance the look that the negative gives a thing
            regions = [r for r in regions if r.depth == 0] if key == "base" else regions
            own = regions if key == "base" else [regions[0], *scene.below(regions[0], True)]
            for text in scene.negatives[key]["basic"]:
                phrases = _phrases(text)
                subject_is_wrong = key != "base" and not _is_shown(phrases[0], regions[:1])
                part_is_wrong = not all(_is_shown(phrase, own) for phrase in phrases[key != "base" :])
                assert subject_is_wrong or part_is_wrong, (scene.seed, key, text)


def test_swaps_keep_the_words_and_say_something_false(scenes: list[Scene]) -> None:
    around_relation = total = 0
    for scene in scenes:
        for key, regions in _entries(scene):
            first = scene.summaries[key][0]
            for text in scene.negatives[key]["swaps"]:
                assert _words(text) == _words(first)
                total += 1
                subject_is_wrong = key != "base" and not _is_shown(_phrases(text)[0], regions[:1])
                if not subject_is_wrong and all(_is_shown(phrase, regions) for phrase in _phrases(text)):
                    # the same things, changed round: then they are named in another order
                    assert Counter(_phrases(text)) == Counter(_phrases(first))
                    assert _phrases(text) != _phrases(first)
                    around_relation += 1
    assert 0 < around_relation < 0.3 * total


def _words(text: str) -> Counter[str]:
    return Counter(word for word in re.findall(r"[\w-]+", text.lower()) if word not in ("a", "an"))


def test_layout_negatives_change_relation_place_or_count_only(scenes: list[Scene]) -> None:
    allowed = {
        "to",
        "the",
        "left",
        "right",
        "of",
        "above",
        "below",
        "on",
        "side",
        "near",
        "top",
        "bottom",
        "in",
        "middle",
        "two",
        "three",
        "four",
        "five",
        "six",
    }
    allowed |= {"seven", "a", "an"}
    for scene in scenes:
        for key, negatives in scene.negatives.items():
            first = Counter(_singular(scene.summaries[key][0]))
            for text in negatives["layout"]:
                changed = Counter(_singular(text))
                assert set((first - changed) | (changed - first)) <= allowed, (first, text)


def _singular(text: str) -> list[str]:
    for value in KINDS.values():
        text = re.sub(rf"\b{value.plural}\b", value.noun, text, flags=re.IGNORECASE)
    return re.findall(r"[\w-]+", text.lower())


def test_relations_in_first_summaries_agree_with_the_boxes(scenes: list[Scene]) -> None:
    checked = 0
    for scene in scenes:
        for region in scene.entries:
            first = scene.summaries[region.key][0]
            side = re.search(r"(?:with|has) an? (.*) to the (left|right) of an? (.*)\.$", first)
            if not side:
                continue
            ends = []
            for text in (side[1], side[3]):
                kind, colour, *_ = _phrases("a " + text)[0]
                ends.append([r for r in scene.below(region, True) if (r.kind, r.colour) == (kind, colour)])
            sign = 1 if side[2] == "left" else -1
            assert any(sign * (b.box.centre[0] - a.box.centre[0]) > 0 for a in ends[0] for b in ends[1])
            checked += 1
    assert checked > 15


def test_english(scenes: list[Scene]) -> None:
    for scene in scenes:
        texts = [text for key in scene.summaries for text in scene.summaries[key]]
        texts += [text for kinds in scene.negatives.values() for kind in kinds.values() for text in kind]
        texts += [scene.short_caption, scene.extra_caption, *(r.caption for r in scene.regions)]
        for text in filter(None, texts):
            assert text[0].isupper(), text
            assert text.rstrip().endswith("."), text
            assert not re.search(r"  | [.,;]|[.,;]{2}|\{|\}|None", text), text
            assert not re.search(r"\b[Aa] [aeiou]|\b[Aa]n [bcdfghj-np-tv-z]", text), text


def test_full_descriptions_run_to_hundreds_of_words(scenes: list[Scene]) -> None:
    lengths = []
    for scene in scenes:
        lines = [scene.short_caption, scene.extra_caption, "The following can also be seen in the image:"]
        lines += [f"{r.label}: {r.caption}" if r.quality == 0 else r.label for r in scene.regions if r.quality < 2]
        lengths.append(len(" ".join(lines).split()))
    assert np.mean(lengths) >= 300
    assert min(lengths) >= 150


def test_text_has_the_grit_of_crowd_text(scenes: list[Scene]) -> None:
    captions = [r.caption for scene in scenes for r in scene.regions if r.caption]
    assert any(caption.endswith((" ", "\n")) for caption in captions)
    assert any("\n" in caption.strip() for caption in captions)
    assert any(not caption.isascii() for caption in captions)
    assert any(scene.extra_caption == "" for scene in scenes)
    qualities = Counter(r.quality for scene in scenes for r in scene.regions)
    assert qualities[0] > 5 * qualities[1] > 5 * qualities[2] > 0
    assert any(r.quality == 1 and not r.label for scene in scenes for r in scene.regions)
    assert any(r.quality == 2 and r.is_entry for scene in scenes for r in scene.regions)
    for scene in scenes:
        for region in scene.regions:
            assert region.quality != 0 or (region.label and region.caption)
            assert region.quality != 2 or (region.label == region.caption == "")


# ---- files against the format


def test_the_same_split_is_the_same_bytes_however_it_is_written(release: Path, tmp_path: Path) -> None:
    write_release(tmp_path, splits=("valid",))
    here = tmp_path / "densely_captioned_images"
    files = sorted(path.relative_to(here) for path in here.rglob("*") if path.is_file())
    assert len(files) == 3 * SPLITS["valid"] + 1
    for path in files:
        if path.name != "splits.json":
            assert (here / path).read_bytes() == (release / path).read_bytes(), path
    splits = json.loads((here / "splits.json").read_text())
    assert {name: len(listed) for name, listed in splits.items()} == {"train": 0, "valid": 24, "test": 0}


def test_splits_name_the_files_written(release: Path) -> None:
    splits = json.loads((release / "splits.json").read_text())
    assert {name: len(listed) for name, listed in splits.items()} == {"train": 0, "valid": 24, "test": 48}
    names = set(splits["valid"] + splits["test"])
    assert len(names) == 72
    for folder in ("annotations", "complete"):
        assert {path.name for path in (release / folder).iterdir()} == names
    images = {json.loads((release / "complete" / name).read_text(encoding="utf-8"))["image"] for name in names}
    assert {path.name for path in (release / "photos").iterdir()} == images
    numbers = {name.removesuffix("-data.json") for name in names}
    assert not numbers & {image.removeprefix("sa_").removesuffix(".jpg") for image in images}
    seeds = [seed for split in SPLITS for seed in split_seeds(split)]
    assert len(set(seeds)) == len(seeds) == sum(SPLITS.values())


def test_annotation_fields(release: Path, test_split: dict[int, dict[str, Any]]) -> None:
    human_fields = {"image", "short_caption", "extra_caption", "height", "width", "mask_data", "mask_keys"}
    absent = 0
    for data in test_split.values():
        assert set(data) == human_fields | {"summaries", "negatives", "clip_scores"}
        with Image.open(release / "photos" / data["image"]) as photo:
            assert (photo.format, photo.size) == ("JPEG", (data["width"], data["height"]))
        for mask in data["mask_data"].values():
            missing = {"idx", "outer_mask", "area", "mask_quality", "label", "caption", "bounds", "parent",
                       "requirements"} - set(mask)  # fmt: skip
            absent += bool(missing)
            assert not missing or (missing == {"label", "caption"} and mask["mask_quality"] == 2)
            box = mask["bounds"]
            sides = [box["bottomRight"][axis] - box["topLeft"][axis] for axis in ("x", "y")]
            assert not (missing and min(sides) >= 224)
        for key, negatives in data["negatives"].items():
            named = {f"{kind}_{i}" for kind, texts in negatives.items() for i in range(len(texts))}
            assert set(data["clip_scores"][key]) == named | {"sum"}
            assert all(0 < score <= 30 for score in data["clip_scores"][key].values())
    assert absent
    for path in (release / "annotations").iterdir():
        human = json.loads(path.read_text(encoding="utf-8"))
        complete = json.loads((release / "complete" / path.name).read_text(encoding="utf-8"))
        assert human == {field: complete[field] for field in human_fields}


def test_gaps_are_where_they_are_documented(test_split: dict[int, dict[str, Any]]) -> None:
    found = {}
    for seed, data in test_split.items():
        summaries, negatives = data["summaries"], data["negatives"]
        large = [key for key, mask in data["mask_data"].items() if _is_large(mask)]
        assert set(summaries) == {"base", *(f"m-{key}-sc" for key in large)}
        if len(negatives) == 1:
            found[seed] = "single key"
        elif set(negatives) != set(summaries):
            assert len(negatives) == len(summaries) - 1
            found[seed] = "no negatives"
        for value in summaries.values():
            if isinstance(value, str):
                found[seed] = "bare string"
            elif len(value) != 6:
                assert len(value) == 4
                found[seed] = "four summaries"
    assert found == {
        20_005: "no negatives",
        20_017: "bare string",
        20_029: "four summaries",
        20_041: "single key",
    }


def _is_large(mask: dict[str, Any]) -> bool:
    low, high = mask["bounds"]["topLeft"], mask["bounds"]["bottomRight"]
    return min(int(high[axis]) - int(low[axis]) for axis in ("x", "y")) >= 224


def test_no_kind_is_always_the_hardest_negative(scenes: list[Scene]) -> None:
    hardest = Counter[str]()
    for scene in scenes:
        for scores in annotation(scene)["clip_scores"].values():
            named = {name: score for name, score in scores.items() if name != "sum"}
            hardest[max(named, key=named.__getitem__).split("_")[0]] += 1
    assert all(hardest[kind] > 0.05 * hardest.total() for kind in ("basic", "layout", "swaps"))


def test_write_release_refuses_an_unknown_split(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="validation"):
        write_release(tmp_path, splits=("validation",))
