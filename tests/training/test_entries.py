"""Which entries are taken, against loops over the raw annotations of an awkward release."""

import json
import pickle
from collections import Counter

import brute_force
import datasets
import numpy as np
import PIL.Image
import pytest
from awkward_release import write_awkward_release

import dci
from dci import DCIError
from dci_metrics.hub import folder as hub_folder
from dci_metrics.sources import open_source
from dci_metrics.training.entries import Entries, Selection, write_entries


@pytest.fixture(scope="module", params=[3, 4])
def release(request, tmp_path_factory):
    return write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=request.param)


def notes_of(release):
    root = release / "densely_captioned_images"
    names = json.loads((root / "splits.json").read_text())["test"]
    return [(name.removesuffix("-data.json"), json.loads((root / "complete" / name).read_text())) for name in names]


def spelt(note, table, key):
    """What a table has for an entry, under its key or as the release's own README says."""
    return note[table].get(key, note[table].get(key.removeprefix("m-").removesuffix("-sc")))


def wrong_captions(note, key, kind):
    negatives = spelt(note, "negatives", key)
    if kind == "any":
        return [text for texts in negatives.values() for text in texts]
    if kind != "hardest":
        return negatives.get(kind, [])
    best = []
    scores = spelt(note, "clip_scores", key)
    for name, texts in negatives.items():
        for i, text in enumerate(texts):
            if f"{name}_{i}" not in scores:
                return []
            if not best or scores[f"{name}_{i}"] >= best[0]:
                best = [scores[f"{name}_{i}"], text]
    return best[1:]


def expected_entries(release, captions, kind, submasks):
    """(image_id, key, captions, negatives) of all that is trained on, and how many photos and entries are not."""
    found, photos, entries = [], 0, 0
    for image_id, note in notes_of(release):
        used = brute_force.entries_of(note, "all_scm" if submasks else "base_scm")
        if used is None:
            photos += 1
            continue
        for key, _, texts, _ in used:
            wrong = wrong_captions(note, key, kind)
            if len(texts) < captions or not wrong:
                entries += 1
            else:
                found.append((image_id, key, list(texts), wrong))
    return found, photos, entries


def write(source, folder, **selection):
    source = open_source(source, split="test")
    return write_entries(source, Selection(**selection), folder / "e.arrow", progress=False)


def flat(entries):
    found = (entries[i] for i in range(len(entries)))
    return [(entry.photo.image_id, entry.captions, entry.negatives) for entry in found]


@pytest.mark.parametrize("captions", [1, 5])
@pytest.mark.parametrize("kind", ["swaps", "layout", "basic", "any", "hardest"])
@pytest.mark.parametrize("submasks", [True, False])
def test_entries_of_an_awkward_release(release, tmp_path, captions, kind, submasks):
    expected, photos, entries = expected_entries(release, captions, kind, submasks)
    found = write(release, tmp_path, captions=captions, negatives=kind, submasks=submasks)
    assert flat(found) == [(image_id, texts, wrong) for image_id, _, texts, wrong in expected]
    counts = Counter()
    for reason, count in found.left_out.items():
        counts[reason.split(":")[0]] += count
    assert (counts["photos"], counts["entries"]) == (photos, entries)
    assert len(expected) > 2
    # The numbers of a photo's entries stand together, and its place opens it.
    ids = [[found[i].photo.image_id for i in photo] for photo in found.photos()]
    assert ids == [[image_id] * n for image_id, n in Counter(image_id for image_id, *_ in expected).items()]
    last = found[len(found) - 1]
    note = dict(notes_of(release))[last.photo.image_id]
    stored = (release / "densely_captioned_images" / "photos" / note["image"]).read_bytes()
    assert found.open_image(last.place, last.photo.file_name)["bytes"] == stored


def test_every_form_of_a_dataset_gives_the_same(release, tmp_path):
    built = tmp_path / "dci"
    hub_folder.build(dci.Release(release), built)
    loaded = datasets.load_dataset(str(built), "sdci", split="test")
    first, *others = (flat(write(form, tmp_path)) for form in (release, built, loaded, list(loaded)))
    assert first
    assert all(other == first for other in others)
    streamed = datasets.load_dataset(str(built), "sdci", split="test", streaming=True)
    with pytest.raises(
        DCIError, match=r"rows can be read in their order only; expected a dataset .* without streaming"
    ):
        write(streamed, tmp_path)


def test_without_negatives_photos_that_only_lack_them_are_taken(release, tmp_path):
    found = write(release, tmp_path, negatives=None)
    ids = {image_id for image_id, *_ in flat(found)}
    whole = {image_id for image_id, *_ in expected_entries(release, 1, "swaps", True)[0]}
    lacking = {image_id for image_id, note in notes_of(release) if "negatives" not in note}
    assert ids >= whole | lacking
    assert all(negatives == [] for *_, negatives in flat(found))


def test_the_first_photos(release, tmp_path):
    all_ids = list(dict.fromkeys(image_id for image_id, *_ in flat(write(release, tmp_path))))
    some = write(release, tmp_path, max_photos=3)
    assert list(dict.fromkeys(image_id for image_id, *_ in flat(some))) == all_ids[:3]
    assert [len(photo) for photo in some.photos()] == list(Counter(image_id for image_id, *_ in flat(some)).values())


def test_photos_with_long_captions_are_left_out(tmp_path):
    """As of COCO and Localized Narratives, where any of a photo's captions counts."""
    (tmp_path / "train2017").mkdir()
    (tmp_path / "annotations").mkdir()
    captions = {1: ["a b", "c"], 2: ["a", "a b c d"], 3: ["a b c"]}
    for number in captions:
        PIL.Image.fromarray(np.full((30, 40, 3), 50 * number, np.uint8)).save(tmp_path / "train2017" / f"{number}.jpg")
    note = {
        "images": [{"id": n, "file_name": f"{n}.jpg", "width": 40, "height": 30} for n in captions],
        "annotations": [
            {"image_id": n, "id": i, "caption": text}
            for i, (n, text) in enumerate((n, text) for n, texts in captions.items() for text in texts)
        ],
    }
    (tmp_path / "annotations" / "captions_train2017.json").write_text(json.dumps(note))
    found = write_entries(
        open_source(f"coco:{tmp_path}", split="train"),
        Selection(negatives="spacy", fits=lambda texts: [len(text.split()) <= 3 for text in texts]),
        tmp_path / "e.arrow",
        lambda texts: [[f"not {text}"] for text in texts],
        progress=False,
    )
    assert flat(found) == [("1", ["a b", "c"], ["not a b"]), ("3", ["a b c"], ["not a b c"])]
    assert found.left_out == {"photos: a caption is longer than the model reads": 1}
    assert found[0].crop_xyxy == (0, 0, 40, 30)
    assert found.open_image(0, "1.jpg")["path"] == str(tmp_path / "train2017" / "1.jpg")


def test_the_file_is_mapped_by_each_process_itself(release, tmp_path):
    found = write(release, tmp_path)
    found.open_image = repr
    sent = pickle.dumps(found)
    assert len(sent) < 1000
    other = pickle.loads(sent)
    assert isinstance(other, Entries)
    assert "_table" not in vars(other)
    assert flat(other) == flat(found)
    assert other.left_out == found.left_out
