"""Crops that are kept: bit for bit what the processor gave, for each family, whoever wrote them, on any disk."""

import errno
import multiprocessing
import os
import shutil
from collections import Counter
from types import SimpleNamespace

import pytest
import tiny_models
import torch
from encoders.families import FAMILIES
from encoders.inputs import image
from training import runs

from dci_metrics import encoders
from dci_metrics.sources import open_source
from dci_metrics.training.batches import BatchSampler, EntryDataset, make_loader
from dci_metrics.training.crops import PreparedCrops
from dci_metrics.training.entries import Selection, write_entries

CROPS = [image(size, seed) for seed, size in enumerate([(90, 70), (1, 40), (9, 3), (300, 200)])]


@pytest.fixture(scope="module")
def encoder():
    model, processor = tiny_models.clip(seed=1)
    return encoders.load(model, processor=processor)


@pytest.fixture
def entries(tmp_path):
    rows = [runs.row(i, entries=1 + i % 4) for i in range(8)]  # 20 entries
    return write_entries(open_source(rows, split="train"), Selection(), tmp_path / "entries", progress=False)


def same(one, other):
    return one.keys() == other.keys() and all(
        torch.equal(one[n], other[n]) and one[n].dtype == other[n].dtype for n in one
    )


@pytest.mark.parametrize("family", ["clip", *FAMILIES])
def test_what_is_kept_is_what_was_prepared(family, tmp_path):
    model, processor = tiny_models.clip(seed=1) if family == "clip" else FAMILIES[family].make()
    inside = [getattr(model, part) for part in ("clip", "flava") if hasattr(model, part)]
    encoder = encoders.load(inside[0] if inside else model, processor=processor)
    crops = PreparedCrops(tmp_path / "crops", 10, encoder)
    prepared = encoder.prepare_images(CROPS)
    for index, inputs in zip((3, 0, 9, 4), prepared, strict=True):
        assert index not in crops
        assert crops.get(index) is None
        crops.keep(index, inputs)
    again = PreparedCrops(tmp_path / "crops", 10, encoder)
    for index, inputs in zip((3, 0, 9, 4), prepared, strict=True):
        for found in (crops.get(index), again.get(index)):
            assert same(found, inputs), family
    assert [i in crops for i in range(10)] == [i in (0, 3, 4, 9) for i in range(10)]


def test_a_byte_is_enough_for_a_level(encoder, tmp_path):
    pixels = encoder.prepare_images(CROPS[:1])[0]["pixel_values"]
    assert PreparedCrops(tmp_path / "crops", 10, encoder).slot == pixels.numel() + 1


def test_values_that_are_no_levels_are_kept_too(encoder, tmp_path):
    # As of a processor that resizes in floating point.
    def prepare_images(images):
        return [{"pixel_values": torch.rand(3, 8, 8)} for _ in images]

    crops = PreparedCrops(tmp_path / "crops", 4, SimpleNamespace(prepare_images=prepare_images))
    inputs = prepare_images([None])[0]
    crops.keep(2, inputs)
    assert same(crops.get(2), inputs)
    # One that differs from what the others look like is not kept, and nothing is lost.
    other = PreparedCrops(tmp_path / "other", 4, encoder)
    size = encoder.prepare_images(CROPS[:1])[0]["pixel_values"].shape
    for odd in (
        {"pixel_values": torch.rand(size)},
        {"pixel_values": torch.rand(3, 8, 8)},
        {"pixels": torch.zeros(size)},
    ):
        other.keep(1, odd)
        assert other.get(1) is None


def test_batches_are_the_same_and_each_photo_is_decoded_once(entries, encoder, tmp_path):
    opened = Counter()
    real = entries.open_image

    def open_image(place, name):
        opened[place] += 1
        return real(place, name)

    entries.open_image = open_image
    plain = EntryDataset(entries, encoder, "pick2", True, "each_epoch", 0)
    crops = PreparedCrops(tmp_path / "crops", len(entries), encoder)
    kept = EntryDataset(entries, encoder, "pick2", True, "each_epoch", 0, crops)
    found = {}
    for name, data in (("plain", plain), ("kept", kept)):
        opened.clear()
        loader = make_loader(data, BatchSampler(entries, 4, "random", 0), 0, False)
        found[name] = []
        for epoch in range(3):
            loader.set_epoch(epoch)
            found[name] += list(loader)
    assert len(found["plain"]) == 15
    for one, other in zip(found["plain"], found["kept"], strict=True):
        assert all(same(one[part], other[part]) for part in ("images", "texts"))
    assert opened == dict.fromkeys(range(8), 1)


def test_workers_write_into_one_file(entries, encoder, tmp_path):
    crops = PreparedCrops(tmp_path / "crops", len(entries), encoder)
    data = EntryDataset(entries, encoder, "first", True, "once", 0, crops)
    list(make_loader(data, BatchSampler(entries, 4, "random", 0), 2, False))
    plain = EntryDataset(entries, encoder, "first", True, "once", 0)
    assert all(same(crops.get(i), plain[0, i][0]) for i in range(len(entries)))


def test_a_writer_that_is_killed_leaves_nothing_half_read(encoder, tmp_path, monkeypatch):
    crops = PreparedCrops(tmp_path / "crops", 4, encoder)
    inputs = encoder.prepare_images(CROPS[:1])[0]

    def killed(file, content, place):
        os.lseek(file, place, os.SEEK_SET)
        os.write(file, content[: len(content) // 2])
        os._exit(9)

    def write():
        monkeypatch.setattr(os, "pwrite", killed)
        crops.keep(1, inputs)

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    process.join(30)
    assert process.exitcode == 9
    assert (tmp_path / "crops").stat().st_size > crops.slot
    assert crops.get(1) is None
    crops.keep(1, inputs)
    assert same(crops.get(1), inputs)


def test_a_full_disk_costs_time_only(entries, encoder, tmp_path, monkeypatch):
    free = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: free._replace(free=30_000))
    none = PreparedCrops(tmp_path / "crops", len(entries), encoder)
    assert not (tmp_path / "crops").exists()
    monkeypatch.undo()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    filled = PreparedCrops(tmp_path / "crops", len(entries), encoder)
    plain = EntryDataset(entries, encoder, "first", True, "once", 0)
    prepared = []
    real = encoder.prepare_images
    monkeypatch.setattr(encoder, "prepare_images", lambda images: prepared.append(len(images)) or real(images))
    for crops in (none, filled):
        data = EntryDataset(entries, encoder, "first", True, "once", 0, crops)
        assert same(data[0, 5][0], plain[0, 5][0])
        # Nothing but what is asked for is prepared now that nothing can be kept.
        prepared.clear()
        assert same(data[0, 5][0], plain[0, 5][0])
        assert prepared == [1, 1]
        assert not crops.keeps
        assert 5 not in crops
