"""The Croissant file, read by MLCommons' own library: it is valid, and its records are the folder's rows."""

import io
import json
from pathlib import Path

import mlcroissant
import PIL.Image
import pytest
from small_release import write_small_release

import dci
from dci_metrics.hub import croissant
from dci_metrics.hub.folder import build


@pytest.fixture(scope="module")
def release(tmp_path_factory) -> dci.Release:
    return dci.Release(write_small_release(tmp_path_factory.mktemp("croissant") / "release"))


@pytest.fixture(scope="module", params=[True, False], ids=["with photos", "without"])
def folder(request, release, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("croissant") / "dci"
    build(release, out, photos=request.param, progress=False)
    croissant.write(out)
    return out


@pytest.fixture(scope="module")
def opened(folder) -> mlcroissant.Dataset:
    return mlcroissant.Dataset(jsonld=str(folder / "croissant.json"))


def test_is_valid_without_a_warning(opened, caplog):
    issues = opened.metadata.ctx.issues
    assert not issues.errors
    assert not issues.warnings
    assert "not standard" not in caplog.text


def text(value):
    """What mlcroissant gives as bytes, as text; with names as in the row."""
    if isinstance(value, dict):
        return {key.split("/")[-1]: text(part) for key, part in value.items()}
    if isinstance(value, list):
        return [text(part) for part in value]
    return value.decode() if isinstance(value, bytes) else value


def expected(row, split, photos):
    """The row as the record sets tell it: a struct's parts stand side by side; a list in a list is left out."""
    row = dict(row) | {"split": split}
    image = row.pop("image")
    if photos:
        row["image"] = PIL.Image.open(io.BytesIO(image["bytes"])).tobytes()
    for name in ("masks", "entries"):
        for part in row.get(name, []):
            part.pop("negatives", None)
            rle = part.pop("rle") or {"size": None, "counts": None}
            part |= {"rle_size": rle["size"], "rle_counts": rle["counts"]}
    return row


@pytest.mark.parametrize("config", ["full", "sdci"])
def test_records_are_the_rows(config, folder, opened, release):
    photos = '"full/image"' in (folder / "croissant.json").read_text(encoding="utf-8")
    rows = {
        row["image_id"]: expected(row, split, photos) for split in dci.SPLITS for row in release.rows(split, config)
    }
    found = [text(record) for record in opened.records(config)]
    for record in found:
        if photos:
            record["image"] = record["image"].tobytes()
        for name in ("masks", "entries", "left_out"):
            if name in rows[record["image_id"]]:
                record[name] = record.get(name) or []  # mlcroissant leaves an empty list of structs out
    assert {record["image_id"]: record for record in found} == rows


def test_splits(opened):
    assert [record["splits/name"] for record in opened.records("splits")] == ["train", "validation", "test"]


def test_says_whose_it_is_and_how_it_was_made(folder):
    made = json.loads((folder / "croissant.json").read_text(encoding="utf-8"))
    assert made["license"] == "https://creativecommons.org/licenses/by-nc/4.0/"
    assert made["citeAs"] == dci.CITATION.strip()
    assert [person["name"].split()[-1] in dci.CITATION for person in made["creator"]] == [True] * 6
    assert "over 800 submissions" in made["rai:dataCollection"]
    for words in made.values():
        assert not isinstance(words, str) or "](" not in words


def test_folder_without_data(tmp_path):
    with pytest.raises(dci.DCIError, match=r"has no data/\*\.parquet"):
        croissant.write(tmp_path)


def test_one_configuration(release, tmp_path):
    build(release, tmp_path / "dci", configs=["sdci"], photos=False, progress=False)
    croissant.write(tmp_path / "dci")
    opened = mlcroissant.Dataset(jsonld=str(tmp_path / "dci" / "croissant.json"))
    assert [records.id for records in opened.metadata.record_sets] == ["splits", "sdci"]
