"""`dci push dataset`: what is in the repo, that it loads, and that no photo is ever published."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import command
import pyarrow.parquet as pq
import pytest
import yaml
from hub_double import OTHER_TOKEN, TOKEN, HubDouble, take_for_hub
from huggingface_hub import DatasetCard
from release_maker import photo
from small_release import write_small_release
from test_datasets_versions import REPOSITORY, VERSIONS

import dci
from dci_metrics.hub import dataset_repo, shards
from dci_metrics.hub.folder import build
from dci_metrics.hub.publishing import Destination

CARD = """\
---
pretty_name: The whole of it
license: cc-by-nc-4.0
license_details: to be replaced
size_categories:
- 1K<n<10K
configs: to be replaced
extra_gated_prompt: Agree?
extra_gated_fields:
  I agree: checkbox
---

# The card

<!-- this copy -->

## After it
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `release/`, and built of it `with/` and `without/` photos."""
    folder = tmp_path_factory.mktemp("dataset-repo")
    write_small_release(folder / "release")
    build(dci.Release(folder / "release"), folder / "with")
    build(dci.Release(folder / "release"), folder / "without", photos=False)
    return folder


@pytest.fixture
def short_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A short card in the place of the real one, so that what is done with it is seen."""
    (tmp_path / "card.md").write_text(CARD)
    monkeypatch.setattr(dataset_repo, "CARD", tmp_path / "card.md")


def dry(source: object, out: Path, **options: Any) -> Path:
    photos = options.pop("photos", False)
    destination = Destination("owner/dci", "dataset", dry_run=out, private=photos, **options)
    assert dataset_repo.push(str(source), destination, photos) == str(out)
    return out


def rows(folder: Path, split: str) -> list[dci.Row]:
    return [row for path in sorted(folder.glob(f"data/{split}-*")) for row in pq.read_table(path).to_pylist()]


def metadata(readme: str | bytes) -> dict[str, Any]:
    text = readme if isinstance(readme, str) else readme.decode()
    return dict(yaml.safe_load(text.split("---\n")[1]))


def photos_in(files: dict[str, bytes]) -> list[str]:
    """Files of a repo with a photo of the release anywhere in them, whatever the columns say."""
    jpeg = photo()[:200]
    return [name for name, content in files.items() if jpeg in content]


# -- without the photos


@pytest.mark.parametrize("source", ["with", "without", "release"])
def test_annotations_only(source, folder, tmp_path):
    out = dry(folder / source, tmp_path / "out")
    release = dci.Release(folder / "release")
    for split in dci.SPLITS:
        assert rows(out, split) == [row | {"image": None} for row in release.rows(split, "both")]
    files = {path.name: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert not photos_in(files)
    names = {"README.md", "croissant.json", "data", "eval.yaml", "fingerprints.json"}
    # What is hashed are the photos.
    assert {path.name for path in out.iterdir()} == (names - {"fingerprints.json"} if source == "without" else names)
    schema = pq.read_schema(out / "data" / "test-00000-of-00001.parquet")
    assert schema.equals(pq.read_schema(folder / "with" / "data" / "test-00000-of-00001.parquet"), check_metadata=True)


def test_the_check_for_photos_sees_them(folder):
    assert photos_in({path.name: path.read_bytes() for path in folder.glob("with/data/*")})


def test_row_groups_and_names_are_kept(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "MAX_GROUP_ROWS", 1)
    monkeypatch.setattr(shards, "MAX_FILE_BYTES", 1)
    build(dci.Release(folder / "release"), tmp_path / "dci")
    out = dry(tmp_path / "dci", tmp_path / "out")
    assert len(list(out.glob("data/*"))) == 5
    for path in (tmp_path / "dci" / "data").iterdir():
        made = pq.ParquetFile(out / "data" / path.name)
        assert made.num_row_groups == pq.ParquetFile(path).num_row_groups
        assert made.metadata.row_group(0).column(0).has_offset_index
    again = dry(tmp_path / "dci", tmp_path / "again")
    for path in out.glob("data/*"):
        assert path.read_bytes() == (again / "data" / path.name).read_bytes()


def test_files_that_stay_as_they_are_are_not_copied(folder, tmp_path):
    out = dry(folder / "without", tmp_path / "out")
    for path in (folder / "without" / "data").iterdir():
        assert path.samefile(out / "data" / path.name)


def test_sizes_in_the_yaml_are_those_of_the_files(folder, tmp_path):
    out = dry(folder / "with", tmp_path / "out")
    infos = metadata((out / "README.md").read_text())["dataset_info"]
    built = metadata((folder / "with" / "README.md").read_text())["dataset_info"]
    assert [info["config_name"] for info in infos] == ["full", "sdci"]
    for info, before in zip(infos, built, strict=True):
        assert info["download_size"] == sum(path.stat().st_size for path in out.glob("data/*"))
        assert info["features"] == before["features"]
        assert info["dataset_size"] == sum(split["num_bytes"] for split in info["splits"])
        columns = list(dci.features(info["config_name"]))
        for split, unstripped in zip(info["splits"], before["splits"], strict=True):
            table = pq.read_table(out / "data" / f"{split['name']}-00000-of-00001.parquet", columns=columns)
            assert split["num_examples"] == unstripped["num_examples"] == len(table)
            assert split["num_bytes"] == pytest.approx(table.nbytes, rel=0.1)
            assert split["num_bytes"] < unstripped["num_bytes"]


# -- the card


def test_card_is_about_this_copy(folder, tmp_path, short_card):
    text = (dry(folder / "with", tmp_path / "out") / "README.md").read_text()
    data = metadata(text)
    assert data["pretty_name"] == "The whole of it"
    assert data["size_categories"] == ["n<1K"]
    assert data["license_details"] == "annotations CC-BY-NC 4.0; no photos"
    assert [(config["config_name"], config.get("default")) for config in data["configs"]] == [
        ("full", True),
        ("sdci", None),
    ]
    assert not [key for key in data if "gated" in key]
    assert DatasetCard(text).data.to_dict() == data
    assert "# The card\n\n## This copy\n\n| split |" in text
    assert "| train | 2 | 4 | 4 |\n| validation | 1 | 1 | 1 |\n| test | 2 | 2 | 4 |\n" in text
    assert "It holds no photos" in text
    assert "left out" not in text
    assert text.endswith("about.\n\n## After it\n")
    assert "<!--" not in text


def test_the_real_card_has_all_it_needs(folder, tmp_path):
    text = (dry(folder / "with", tmp_path / "out", gated=True) / "README.md").read_text()
    assert text.count("## This copy") == 1
    assert "you/dci" not in text
    assert text.count('load_dataset("owner/dci", "sdci", split="test")') == 2
    assert "<!--" not in text
    card = DatasetCard.load(tmp_path / "out" / "README.md")
    assert card.data["extra_gated_prompt"]
    assert card.data["extra_gated_fields"]
    assert [config["config_name"] for config in card.data["configs"]] == ["full", "sdci"]


def test_card_with_photos(folder, tmp_path, short_card):
    text = (dry(folder / "with", tmp_path / "out", photos=True) / "README.md").read_text()
    assert "keep this repo private" in text
    assert "It holds no photos" not in text
    assert metadata(text)["license_details"].endswith(
        "photos under the SA-1B research licence, which forbids redistribution"
    )


def test_card_tells_what_is_left_out(folder, tmp_path, short_card):
    release = write_small_release(tmp_path / "release")
    (release / "densely_captioned_images" / "photos" / "sa_4.jpg").unlink()
    build(dci.Release(release), tmp_path / "dci", on_error="skip")
    text = (dry(tmp_path / "dci", tmp_path / "out") / "README.md").read_text()
    assert "| test | 1 | 1 | 2 |" in text
    assert "1 photos of the release could not be used and are left out:\n\n- `92`: " in text


def test_gated_fields_are_there_when_asked_for(folder, tmp_path, short_card):
    data = metadata((dry(folder / "without", tmp_path / "out", gated=True) / "README.md").read_text())
    assert data["extra_gated_prompt"] == "Agree?"
    assert data["extra_gated_fields"] == {"I agree": "checkbox"}


def test_one_configuration(folder, tmp_path):
    build(dci.Release(folder / "release"), tmp_path / "dci", configs=["full"])
    out = dry(tmp_path / "dci", tmp_path / "out")
    data = metadata((out / "README.md").read_text())
    assert [config["config_name"] for config in data["configs"]] == ["full"]
    assert "| train | 2 | 4 | 0 |" in (out / "README.md").read_text()
    # The leaderboards are about sDCI.
    assert not (out / "eval.yaml").exists()


# -- the photos


def test_photos_go_to_a_private_repo(folder, here):
    destination = Destination("owner/dci", "dataset", private=True)
    dataset_repo.push(str(folder / "with"), destination, photos=True)
    repo = here.store.repos["dataset", "owner/dci"]
    assert repo.private
    assert len(photos_in(repo.files())) == 3
    assert repo.files()["data/train-00000-of-00001.parquet"] == next(folder.glob("with/data/train-*")).read_bytes()
    # Without them, the same repo loses them.
    dataset_repo.push(str(folder / "with"), destination)
    assert not photos_in(repo.files())


@pytest.mark.parametrize("source", ["with", "release"])
def test_photos_go_nowhere_else(source, folder, here):
    with pytest.raises(dci.DCIError, match="forbids redistribution, so they go to a private repo only: add --private"):
        dataset_repo.push(str(folder / source), Destination("owner/dci", "dataset"), photos=True)
    assert not here.calls
    here.store.add_repo("owner/dci", "dataset")
    for create_pr in (False, True):
        with pytest.raises(dci.DCIError, match="dataset owner/dci: is there already and is public"):
            dataset_repo.push(str(folder / source), Destination("owner/dci", "dataset", create_pr, True), photos=True)
    assert not here.count("put")
    assert not here.store.objects


def test_photos_that_are_not_there(folder, tmp_path):
    with pytest.raises(dci.DCIError, match=f"has no photos; build it with them, or .* {dataset_repo.PHOTOS_OPTION}"):
        dry(folder / "without", tmp_path / "out", photos=True)
    assert not (tmp_path / "out").exists()


# -- what it cannot be made from


def test_no_dataset(tmp_path):
    with pytest.raises(dci.DCIError, match="neither a folder of `dci build`"):
        dry(tmp_path, tmp_path / "out")
    with pytest.raises(dci.DCIError, match="no sample 'sample:none'"):
        dry("sample:none", tmp_path / "out")


@pytest.mark.parametrize("readme", ["# No YAML\n", "---\na: [\n---\n", "---\nconfigs:\n- config_name: full\n---\n"])
def test_readme_that_is_not_of_dci_build(readme, folder, tmp_path):
    (tmp_path / "dci" / "data").mkdir(parents=True)
    (tmp_path / "dci" / "data" / "test-0.parquet").write_bytes(next(folder.glob("without/data/test-*")).read_bytes())
    (tmp_path / "dci" / "README.md").write_text(readme)
    with pytest.raises(dci.DCIError, match=r"README.md: its YAML (cannot be read|has no )"):
        dry(tmp_path / "dci", tmp_path / "out")


def test_broken_file(folder, tmp_path):
    (tmp_path / "dci" / "data").mkdir(parents=True)
    (tmp_path / "dci" / "README.md").write_bytes((folder / "without" / "README.md").read_bytes())
    (tmp_path / "dci" / "data" / "test-00000-of-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(dci.DCIError, match=r"test-00000-of-00001\.parquet: cannot be read"):
        dry(tmp_path / "dci", tmp_path / "out")


# -- the command, and what a user does with the result


def test_command(folder, here, monkeypatch, capsys):
    here.store.add_repo("owner/dci", "dataset", {"data/train-00000-of-00009.parquet": b"stale", "notes.md": "mine"})
    here.fail("put", cut=500)
    here.fail("commit", 503)
    code, out, err = command.run(monkeypatch, capsys, "push", "dataset", folder / "with", "owner/dci")
    repo = here.store.repos["dataset", "owner/dci"]
    assert (code, out) == (0, f"{here.url}/datasets/owner/dci/commit/{repo.commits()[0].oid}\n"), err
    assert repo.files()["notes.md"] == b"mine"
    assert sorted(name for name in repo.files() if name.startswith("data/")) == [
        f"data/{split}-00000-of-00001.parquet" for split in ("test", "train", "validation")
    ]
    puts = here.count("put")
    code, out, _ = command.run(monkeypatch, capsys, "push", "dataset", folder / "with", "owner/dci")
    assert (code, here.count("put"), len(repo.commits())) == (0, puts, 2)
    assert out.endswith("(nothing to change: all of it is there)\n")


def test_command_by_pull_request(folder, here, monkeypatch, capsys):
    here.store.add_repo("owner/dci", "dataset")
    code, out, _ = command.run(monkeypatch, capsys, "push", "dataset", folder / "with", "owner/dci", "--create-pr")
    assert (code, out) == (0, f"{here.url}/datasets/owner/dci/discussions/1\n")
    assert "README.md" in here.store.repos["dataset", "owner/dci"].files("refs/pr/1")


def test_command_refused(folder, hub, monkeypatch, capsys):
    take_for_hub(hub, monkeypatch, OTHER_TOKEN)
    arguments = ("push", "dataset", folder / "with", "owner/dci")
    command.refused(command.run(monkeypatch, capsys, *arguments), "dataset owner/dci", "no right")
    flag = command.run(monkeypatch, capsys, *arguments, dataset_repo.PHOTOS_OPTION)
    command.refused(flag, "add --private")


@pytest.fixture(scope="module")
def published(folder: Path):
    """A double of the Hub that the dataset has been pushed to, by the command in a process of its own."""
    with HubDouble() as double:
        done = subprocess.run(
            [sys.executable, "-m", "dci_metrics", "push", "dataset", folder / "with", "owner/dci"],
            env=os.environ | double.environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert TOKEN not in done.stdout
        yield double


@pytest.mark.parametrize("version", VERSIONS)
def test_loads_from_the_dry_run_and_from_the_hub(version, folder, published, tmp_path):
    dry(folder / "with", tmp_path / "dci")
    python = REPOSITORY / ".venvs" / f"datasets-{version}" / "bin" / "python"
    ways = {
        f"{config} {path} {streaming}": {"path": path, "name": config, "streaming": streaming}
        for config in ("full", "sdci")
        for path in ("dci", "owner/dci")
        for streaming in (False, True)
    }
    done = subprocess.run(
        [python, REPOSITORY / "tests" / "datasets_versions" / "load.py", json.dumps(ways)],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HF_HOME": str(tmp_path / "home")} | published.environment(token=None),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["version"].startswith(version)
    release = dci.Release(folder / "release")
    for way, splits in printed["ways"].items():
        config = way.split()[0]
        for split in dci.SPLITS:
            expected = [row | {"image": None, "decoded_size": None} for row in release.rows(split, config)]
            assert splits[split] == expected, way
