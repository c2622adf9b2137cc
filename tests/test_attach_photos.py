"""`dci.attach_photos`: a dataset without photos and the user's own are the same as one that was built with them."""

import os
import shutil
import subprocess
from pathlib import Path

import datasets
import pytest
import torch
from command import refused, run
from release_maker import close_archives, photo
from small_release import PHOTOS, write_small_release

import dci
import dci_metrics
from dci_metrics.hub.folder import build
from dci_metrics.results import Result
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_row
from dci_metrics.training import train

REPOSITORY = Path(__file__).parents[1]
VERSIONS = ("3.6", "4.0", "5.2")
ODD = "ünter ::folder#1 50%2F"
"""A folder's name that addresses may trip over."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`dci/` built with photos, `bare/` without; the photos, one of them turned by EXIF, in a folder and an archive."""
    made = tmp_path_factory.mktemp("attach")
    odd = made / ODD
    for name in ("release", "closed"):
        root = write_small_release(odd / name) / "densely_captioned_images"
        (root / "photos" / "sa_2.jpg").write_bytes(photo((300, 400), orientation=6))
    close_archives(odd / "closed")
    release = dci.Release(odd / "release")
    build(release, made / "dci", progress=False)
    build(release, made / "bare", photos=False, progress=False)
    return made


def place(made: Path, form: str) -> Path:
    closed = made / ODD / "closed"
    folder = made / ODD / "release" / "densely_captioned_images" / "photos"
    return {"folder": folder, "archive": closed / dci.PHOTO_ARCHIVE, "folder of the archive": closed}[form]


def load(made: Path, name: str = "bare", config: str = "sdci", **settings):
    return datasets.load_dataset(str(made / name), config, cache_dir=str(made / "cache"), **settings)


@pytest.mark.parametrize("version", VERSIONS)
def test_same_as_built_with_photos(version, made, tmp_path):
    python = REPOSITORY / ".venvs" / f"datasets-{version}" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"no environment with datasets {version} in {python.parents[1]}: run `make test`, which makes it")
    script = REPOSITORY / "tests" / "datasets_versions" / "attach.py"
    done = subprocess.run(
        [python, script, made / "dci", made / "bare", place(made, "folder"), place(made, "archive")],
        env={name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        | {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(version)


@pytest.fixture(scope="module")
def scored(made):
    return dci_metrics.evaluate("sample:tiny-clip", load(made, "dci", split="train"), cache=False)


@pytest.mark.parametrize(
    ("form", "streaming"), [("folder", False), ("folder", True), ("archive", False), ("folder of the archive", True)]
)
def test_scores_and_fingerprint_are_the_same(form, streaming, made, scored):
    joined = dci.attach_photos(load(made, split="train", streaming=streaming), place(made, form))
    found = dci_metrics.evaluate("sample:tiny-clip", joined, cache=False)
    assert found.dataset["fingerprint"] == scored.dataset["fingerprint"]
    assert found.outcomes == scored.outcomes
    assert found.scores == scored.scores
    assert scored.scores["all_scm"].n > 0


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_the_commands_join_photos(form, made, scored, tmp_path, monkeypatch, capsys):
    bare, out = made / "bare", tmp_path / "result.json"
    given = ["--dataset", bare, "--photos", place(made, form)]
    code, _, err = run(monkeypatch, capsys, "eval", "sample:tiny-clip", *given, "--split", "train", "--no-cache",
                       "--out", out, "--examples", tmp_path / "a.parquet")  # fmt: skip
    assert code == 0, err
    found = Result.load(out)
    assert (found.dataset["fingerprint"], found.outcomes) == (scored.dataset["fingerprint"], scored.outcomes)
    code, _, err = run(monkeypatch, capsys, "report", out, *given, "--out", tmp_path / "r.html", "--examples",
                       tmp_path / "a.parquet")  # fmt: skip
    assert code == 0, err
    assert "data:image/jpeg" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_training_joins_photos(form, made):
    source = open_source(str(made / "bare"), split="train", photos=place(made, form))
    built = open_source(str(made / "dci"), split="train")
    rows = list(zip(source.read(), built.read(), strict=True))
    assert len(rows) == 2
    for number, (row, other) in enumerate(rows):
        by_place = read_row(row | {"image": source.open_images()(number, row["file_name"])})
        assert by_place.content == read_row(row).content == read_row(other).content
        assert {name: row[name] for name in row if name != "image"} == {n: other[n] for n in other if n != "image"}


def test_photos_that_are_missing_or_not_wanted(made, tmp_path, monkeypatch, capsys):
    shutil.copy(place(made, "folder") / "sa_1.jpg", tmp_path)
    bare = ["--dataset", made / "bare", "--split", "train", "--no-cache"]

    def score(*flags):
        return run(monkeypatch, capsys, "eval", "sample:tiny-clip", *flags)

    refused(score(*bare, "--photos", tmp_path), f"{tmp_path}: 1 of 2 photos are missing: sa_2.jpg. Get")
    out = tmp_path / "result.json"
    code, _, err = score(*bare, "--photos", tmp_path, "--on-error", "skip", "--out", out)
    assert code == 0, err
    assert [left["image_id"] for left in Result.load(out).scores["base_neg"].left_out] == ["4"]
    refused(score(*bare, "--photos", tmp_path / "nowhere"), "nowhere: no such folder or archive")
    refused(score("--dataset", "sample:scenes", "--photos", tmp_path), "photos: sample:scenes has its own")
    with pytest.raises(dci.DCIError, match=r"use dci\.attach_photos for a loaded one"):
        dci_metrics.evaluate("sample:tiny-clip", load(made, split="train"), photos=tmp_path)
    with pytest.raises(dci.DCIError, match="photos: sample:scenes has its own; leave --photos out"):
        train("sample:tiny-clip", "sample:scenes", tmp_path / "run", photos=tmp_path)


def test_images_are_found_by_their_place(made):
    """As the report and training read them, in any order."""
    opened = open_source(dci.attach_photos(load(made, split="test"), place(made, "archive"))).open_images()
    cell = opened(1, "sa_5.jpg")
    assert cell["bytes"] is None
    assert cell["path"].endswith("/sa_5.jpg")


def test_nothing_is_read_before_a_row_is(made, tmp_path):
    """Photos that are no photos are met at their row, and not before."""
    for name in PHOTOS.values():
        (tmp_path / name).write_bytes(b"no photo")
    joined = dci.attach_photos(load(made), tmp_path)
    assert len(joined["train"].shuffle(seed=1).select([0])) == 1
    shutil.copy(place(made, "folder") / "sa_1.jpg", tmp_path)
    assert joined["train"][0]["image"].size == (400, 300)
    with pytest.raises(OSError, match="sa_2"):
        joined["train"][1]


# A spawned process knows addresses in an archive by the package's entry point alone, or by the stream's own function.
@pytest.mark.parametrize(("streaming", "context"), [(False, "fork"), (True, "fork"), (False, "spawn")])
def test_loaded_by_several_processes(streaming, context, made):
    rows = dci.attach_photos(load(made, split="train", streaming=streaming), place(made, "archive"))
    rows = rows.select_columns(["file_name", "image"])
    expected = [(row["file_name"], row["image"].size) for row in rows]
    loader = torch.utils.data.DataLoader(
        rows, batch_size=None, num_workers=1, multiprocessing_context=context, collate_fn=name_and_size
    )
    assert sorted(loader) == sorted(expected)


def name_and_size(row):
    return row["file_name"], row["image"].size


def test_other_photos_in_place_of_those_attached(made, tmp_path):
    (tmp_path / "photos").mkdir()
    for name in PHOTOS.values():
        (tmp_path / "photos" / name).write_bytes(photo((40, 30)))
    joined = dci.attach_photos(load(made, split="test"), place(made, "archive"))
    assert dci.attach_photos(joined, tmp_path / "photos")[0]["image"].size == (40, 30)


# -- what is wrong


def test_missing_photos_are_counted_over_all_splits(made, tmp_path):
    shutil.copy(place(made, "folder") / "sa_3.jpg", tmp_path)
    with pytest.raises(dci.DCIError) as caught:
        dci.attach_photos(load(made), tmp_path)
    assert str(caught.value).startswith(
        f"{tmp_path}: 4 of 5 photos are missing: sa_1.jpg, sa_2.jpg, sa_4.jpg, sa_5.jpg. Get {dci.PHOTO_ARCHIVE} from "
        f"{dci.PHOTOS_PAGE}"
    )
    assert "dci fetch-photos" in str(caught.value)


def test_missing_photo_of_a_stream_is_named_at_its_row(made, tmp_path):
    shutil.copy(place(made, "folder") / "sa_1.jpg", tmp_path)
    rows = iter(dci.attach_photos(load(made, split="train", streaming=True), tmp_path))
    assert next(rows)["file_name"] == "sa_1.jpg"
    with pytest.raises(dci.DCIError, match=rf"sa_2\.jpg: no such photo in .*Get {dci.PHOTO_ARCHIVE}"):
        next(rows)


@pytest.mark.parametrize("streaming", [False, True])
def test_skip_leaves_rows_without_a_photo_out(streaming, made, tmp_path):
    shutil.copy(place(made, "folder") / "sa_2.jpg", tmp_path)
    joined = dci.attach_photos(load(made, streaming=streaming), tmp_path, on_error="skip")
    assert {split: [row["file_name"] for row in rows] for split, rows in joined.items()} == {
        "train": ["sa_2.jpg"],
        "validation": [],
        "test": [],
    }
    (cell,) = list(joined["train"].cast_column("image", datasets.Image(decode=False)))
    assert cell["image"] == {"bytes": None, "path": str(tmp_path / "sa_2.jpg")}


def test_archive_that_was_cut_after_it_was_attached(made, tmp_path):
    archive = Path(shutil.copy(place(made, "archive"), tmp_path))
    joined = dci.attach_photos(load(made, split="test"), archive)
    os.truncate(archive, 2000)
    with pytest.raises(dci.DCIError, match=r"ends inside of sa_5\.jpg; download the archive again"):
        joined[1]


def test_what_cannot_be_attached(made, tmp_path):
    with pytest.raises(dci.DCIError, match=f"nowhere: no such folder or archive.*{dci.PHOTO_ARCHIVE}"):
        dci.attach_photos(load(made), tmp_path / "nowhere")
    (tmp_path / "text.tar").write_text("no archive")
    with pytest.raises(dci.DCIError, match=r"text\.tar: cannot be read as an uncompressed tar archive"):
        dci.attach_photos(load(made), tmp_path / "text.tar")
    with pytest.raises(dci.DCIError, match="expected a dataset that load_dataset gives, got list"):
        dci.attach_photos([{"file_name": "sa_1.jpg"}], place(made, "archive"))
    for other in (load(made, split="test").remove_columns("file_name"), datasets.Dataset.from_dict({"a": [1]})):
        with pytest.raises(dci.DCIError, match="no column `file_name`"):
            dci.attach_photos(other, place(made, "archive"))
    outside = datasets.Dataset.from_dict({"file_name": ["../text.tar"]})
    (tmp_path / "photos").mkdir()
    with pytest.raises(dci.DCIError, match=r"1 of 1 photos are missing: \.\./text\.tar"):
        dci.attach_photos(outside, tmp_path / "photos")
    for odd in (None, 7):
        with pytest.raises(dci.DCIError, match=rf"field `file_name`: expected a photo's name.*, got {odd}"):
            dci.attach_photos(datasets.Dataset.from_dict({"file_name": [odd]}), place(made, "archive"))
    with pytest.raises(dci.DCIError, match="on_error: expected"):
        dci.attach_photos(load(made), place(made, "archive"), on_error="ignore")


def test_without_photos_the_message_says_how_to_attach_them(made):
    with pytest.raises(
        dci.DCIError, match=r"the row has no photo \(sa_1\.jpg\); join your own with dci\.attach_photos"
    ):
        dci_metrics.evaluate("sample:tiny-clip", load(made, split="train"), cache=False)


def test_streaming_a_release_leaves_the_module_as_it_was(made):
    """`datasets` would put a Path of its own into it, which takes `::` for the way into an archive."""
    builder = dci.DCI(config_name="sdci", data_dir=str(made / ODD / "release"), cache_dir=str(made / "cache"))
    names = [row["file_name"] for row in builder.as_streaming_dataset("train")]
    assert names == [row["file_name"] for row in dci.Release(made / ODD / "closed").rows("train", "sdci")]
    assert dci.Path is Path
