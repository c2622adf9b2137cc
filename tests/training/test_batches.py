"""What is drawn, and that the same seed draws the same however the work is shared."""

from collections import Counter

import datasets
import numpy as np
import pytest
import tiny_models
import torch
from awkward_release import write_awkward_release
from training import runs

import dci
from dci import DCIError
from dci_metrics import encoders
from dci_metrics.hub import folder as hub_folder
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_row
from dci_metrics.training.batches import BatchSampler, EntryDataset, make_loader
from dci_metrics.training.entries import Selection, write_entries


@pytest.fixture(scope="module")
def encoder():
    model, processor = tiny_models.clip(seed=1)
    return encoders.load(model, processor=processor)


@pytest.fixture(scope="module")
def rows():
    # Photos of 1 to 4 entries, 30 in all.
    return [runs.row(i, entries=1 + i % 4) for i in range(12)]


def entries_of(rows, folder, **selection):
    return write_entries(open_source(rows, split="train"), Selection(**selection), folder / "e.arrow", progress=False)


@pytest.fixture(scope="module")
def entries(rows, tmp_path_factory):
    return entries_of(rows, tmp_path_factory.mktemp("entries"))


def epoch(sampler, number):
    sampler.set_epoch(number)
    return [[index for _, index in batch] for batch in sampler]


# Entries


def test_entries_are_those_of_the_rows(rows, entries):
    expected = [(i, entry) for i, row in enumerate(rows) for entry in row["entries"]]
    assert len(entries) == len(expected) == 30
    for found, (place, entry) in zip((entries[i] for i in range(30)), expected, strict=True):
        assert (found.place, found.captions, list(found.crop_xyxy)) == (place, entry["captions"], entry["crop_xyxy"])
        assert found.negatives == [n["text"] for n in entry["negatives"] if n["kind"] == "swaps"]
    sizes = [len(row["entries"]) for row in rows]
    assert [len(photo) for photo in entries.photos()] == sizes
    assert [i for photo in entries.photos() for i in photo] == list(range(30))


@pytest.mark.parametrize("kind", ["layout", "any", "hardest"])
def test_kinds_of_negatives(rows, tmp_path, kind):
    found = entries_of(rows, tmp_path, negatives=kind)
    texts = [n["text"] for n in rows[0]["entries"][0]["negatives"]]  # swaps, swaps, layout, basic; rising scores
    assert found[0].negatives == {"layout": texts[2:3], "any": texts, "hardest": texts[3:]}[kind]


def test_what_is_left_out_is_counted(rows, tmp_path):
    rows = [dict(row) for row in rows]
    rows[0] = rows[0] | {"left_out": [{"test": "all", "reason": "no `negatives`"}]}
    rows[2]["entries"] = [e | {"captions": e["captions"][:3]} for e in rows[2]["entries"]]
    rows[3]["entries"] = [e | {"negatives": []} if e["key"] == "m-2-sc" else e for e in rows[3]["entries"]]
    found = entries_of(rows, tmp_path, captions=5)
    assert found.left_out == {
        "photos: no `negatives`": 1,
        "entries: fewer captions than 5": 3,
        "entries: no negatives (swaps)": 1,
    }
    assert len(found) == 30 - 1 - 3 - 1
    base = entries_of(rows, tmp_path, submasks=False, negatives=None, max_photos=7)
    assert [base[i].place for i in range(len(base))] == list(range(7))
    with pytest.raises(DCIError, match=r"nothing of 'train' can be trained on: .* × entries: fewer captions than 9"):
        entries_of(rows, tmp_path, captions=9)


def test_negatives_are_made(rows, tmp_path):
    def make(texts):
        return [[f"not {text}", f"no {text}"] if "red" in text else [] for text in texts]

    source = open_source(rows, split="train")
    found = write_entries(source, Selection(negatives="spacy"), tmp_path / "e.arrow", make, progress=False)
    firsts = [entry["captions"][0] for row in rows for entry in row["entries"]]
    assert [found[i].captions[0] for i in range(len(found))] == [text for text in firsts if "red" in text]
    assert all(found[i].negatives == [f"not {found[i].captions[0]}", f"no {found[i].captions[0]}"] for i in range(3))
    assert found.left_out == {"entries: a caption without two things to swap": sum("red" not in t for t in firsts)}


def test_every_form_of_a_dataset_opens_its_photos(rows, tmp_path):
    found = entries_of(rows, tmp_path)
    assert found.open_image(3, "3.jpg").tobytes() == rows[3]["image"].tobytes()
    release = write_awkward_release(tmp_path / "release", seed=1)
    built = tmp_path / "dci"
    hub_folder.build(dci.Release(release), built)
    loaded = datasets.load_dataset(str(built), "sdci", split="test")
    forms = [open_source(form, split="test") for form in (release, built, loaded)]
    for place, row in enumerate(forms[0].read()):
        contents = [form.open_images()(place, row["file_name"])["bytes"] for form in forms]
        assert contents == [row["image"]["bytes"]] * 3
    with pytest.raises(DCIError, match="its rows can be read in their order only"):
        write_entries(open_source(Iterated(rows), split="train"), Selection(), tmp_path / "f.arrow", progress=False)


class Iterated:
    """Rows that can be iterated, and not indexed."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return iter(self.rows)


# Batches


@pytest.mark.parametrize("kind", ["random", "sequential", "image"])
def test_every_entry_stands_in_one_batch(entries, kind):
    batches = epoch(BatchSampler(entries, 8, kind, seed=3), 0)
    members = [index for batch in batches for index in batch]
    assert [len(batch) for batch in batches] == ([8, 8, 8, 6] if kind == "image" else [8, 8, 8])
    assert len(members) == len(set(members))
    assert set(members) <= set(range(30))
    assert len(batches) == len(BatchSampler(entries, 8, kind, seed=3))
    if kind == "sequential":
        assert members == list(range(24))
    if kind == "image":
        places = [entries[index].place for index in members]
        assert [p for i, p in enumerate(places) if not i or places[i - 1] != p] == list(dict.fromkeys(places))


def test_seeds_and_epochs(entries):
    def drawn(seed, number):
        return epoch(BatchSampler(entries, 8, "random", seed), number)

    assert drawn(1, 0) == drawn(1, 0)
    assert drawn(1, 0) != drawn(2, 0)
    assert drawn(1, 0) != drawn(1, 1)
    fixed = BatchSampler(entries, 8, "random", 1, fixed=True)
    assert epoch(fixed, 0) == epoch(fixed, 5)


@pytest.mark.parametrize("kind", ["random", "image"])
@pytest.mark.parametrize("world_size", [2, 4])
def test_shares_put_together_are_the_batches_of_one(entries, kind, world_size):
    whole = epoch(BatchSampler(entries, 8, kind, 5), 2)
    shares = [epoch(BatchSampler(entries, 8, kind, 5, rank, world_size), 2) for rank in range(world_size)]
    together = [[index for share in parts for index in share] for parts in zip(*shares, strict=True)]
    # Of a last short batch each process has as many.
    assert together == [batch[: len(batch) // world_size * world_size] for batch in whole]


def test_a_short_batch_is_kept_where_there_is_no_other(entries):
    assert [len(batch) for batch in epoch(BatchSampler(entries, 64, "random", 0), 0)] == [30]


def test_workers_do_not_matter(entries, encoder):
    data = EntryDataset(entries, encoder, "pick2", True, "each_epoch", 0)
    found = []
    for workers in (0, 2):
        loader = make_loader(data, BatchSampler(entries, 8, "random", 0), workers, False)
        loader.set_epoch(1)
        found.append(list(loader))
    for one, other in zip(*found, strict=True):
        for part in ("images", "texts"):
            assert all(torch.equal(values, other[part][name]) for name, values in one[part].items())


def test_a_batch_holds_crops_and_texts_in_order(rows, entries, encoder):
    data = EntryDataset(entries, encoder, "pick2", True, "first", 0)
    (batch, *_) = make_loader(data, BatchSampler(entries, 6, "sequential", 0), 0, False)
    crops = [crop for row in map(read_row, rows[:4]) for crop in row.crops(row.entries)][:6]
    expected = torch.stack([item["pixel_values"] for item in encoder.prepare_images(crops)])
    assert torch.equal(batch["images"]["pixel_values"], expected)
    texts = [text for index in range(6) for text in data.texts(0, index)]
    assert torch.equal(batch["texts"]["input_ids"], encoder.tokens(texts)["input_ids"])
    assert len(texts) == 18
    assert all(text == entries[i].negatives[0] for i, text in enumerate(texts[2::3]))


# Draws


def test_captions_are_drawn(entries, encoder):
    first = EntryDataset(entries, encoder, "first", False, "once", 0)
    assert all(first.texts(e, 4) == entries[4].captions[:1] for e in range(5))
    three = EntryDataset(entries, encoder, "pick3", False, "once", 0)
    for e in range(20):
        texts = three.texts(e, 4)
        assert len(texts) == 3
        assert not Counter(texts) - Counter(entries[4].captions)
    one = EntryDataset(entries, encoder, "pick1", False, "once", 0)
    # Of five captions each is drawn 100 times of 500, give or take four standard deviations.
    found = Counter(entries[4].captions.index(one.texts(e, 4)[0]) for e in range(500))
    assert all(64 <= found[i] <= 136 for i in range(5)), found
    other = EntryDataset(entries, encoder, "pick1", False, "once", 1)
    assert [one.texts(e, 4) for e in range(30)] != [other.texts(e, 4) for e in range(30)]


def test_negatives_are_drawn(entries, encoder):
    def drawn(how, seed=0):
        data = EntryDataset(entries, encoder, "first", True, how, seed)
        return [[data.texts(e, i)[-1] for e in range(12)] for i in range(30)]

    assert all(found == [entries[i].negatives[0]] * 12 for i, found in enumerate(drawn("first")))
    once = drawn("once")
    assert all(len(set(found)) == 1 for found in once)
    assert {entries[i].negatives.index(found[0]) for i, found in enumerate(once)} == {0, 1}
    assert sum(len(set(found)) == 2 for found in drawn("each_epoch")) > 25
    assert drawn("once", 0) != drawn("once", 1)


def test_a_photo_is_decoded_once_where_its_entries_stand_together(entries, encoder):
    data = EntryDataset(entries, encoder, "first", False, "once", 0)
    opened = []
    real = entries.open_image

    def open_image(place, name):
        opened.append(place)
        return real(place, name)

    entries.open_image = open_image
    try:
        list(make_loader(data, BatchSampler(entries, 8, "image", 0), 0, False))
    finally:
        entries.open_image = real
    assert sorted(opened) == list(range(12))
    assert np.array_equal(sorted(set(opened)), sorted(opened))
