"""The same rows from every version of `datasets`, from the script and from the built folder, and by every way."""

import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import datasets
import pytest
from release_maker import close_archives
from small_release import SPLITS, write_small_release

import dci
from dci_metrics.hub.folder import build

REPOSITORY = Path(__file__).parents[1]
VERSIONS = ("3.6", "4.0", "5.2")
CONFIGS = ("full", "sdci")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds `release/` (unpacked), `closed/` (the same in archives) and `dci/` (built)."""
    folder = tmp_path_factory.mktemp("versions")
    write_small_release(folder / "release")
    close_archives(write_small_release(folder / "closed"))
    build(dci.Release(folder / "release"), folder / "dci")
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, Any]:
    """The rows of each config and split, from the release."""
    release = dci.Release(folder / "release")
    return {
        config: {split: [plain(r) for r in release.rows(split, config)] for split in dci.SPLITS} for config in CONFIGS
    }


def plain(row: dci.Row) -> dci.Row:
    sha256 = hashlib.sha256(row["image"]["bytes"]).hexdigest()
    return row | {
        "image": {"sha256": sha256, "path": row["image"]["path"]},
        "decoded_size": [row["width"], row["height"]],
    }


def load(version: str, ways: dict[str, Any], cwd: Path, home: Path) -> dict[str, Any]:
    """What `load.py` prints in the environment of one version of `datasets`, offline and with an empty cache."""
    python = REPOSITORY / ".venvs" / f"datasets-{version}" / "bin" / "python"
    if not python.exists():
        pytest.fail(f"no environment with datasets {version} in {python.parents[1]}: run `make test`, which makes it")
    done = subprocess.run(
        [python, REPOSITORY / "tests" / "datasets_versions" / "load.py", json.dumps(ways)],
        cwd=cwd,
        env={name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
        | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["version"].startswith(version)
    return printed["ways"]


@pytest.mark.parametrize("version", VERSIONS)
def test_built_folder(version, folder, expected, tmp_path):
    ways = {
        f"{config} {streaming}": {"path": "dci", "name": config, "streaming": streaming}
        for config in CONFIGS
        for streaming in (False, True)
    }
    ways["full without its name"] = {"path": "dci"}
    ways["sdci in two processes"] = {"path": "dci", "name": "sdci", "num_proc": 2}
    loaded = load(version, ways, folder, tmp_path)
    for way, splits in loaded.items():
        assert splits == expected[way.split()[0]], way


@pytest.mark.parametrize("form", ["release", "closed"])
def test_loading_script_on_3_6(form, folder, expected, tmp_path):
    script = {"path": str(REPOSITORY / "dci.py"), "data_dir": str(folder / form), "trust_remote_code": True}
    ways = {
        "full": script | {"name": "full"},
        "full streaming": script | {"name": "full", "streaming": True},
        "full without its name": script,
        "sdci": script | {"name": "sdci"},
        "sdci streaming": script | {"name": "sdci", "streaming": True},
    }
    # In a cache of its own, or the rows would come from there.
    in_two = script | {"name": "sdci", "num_proc": 2, "cache_dir": str(tmp_path / "cache of two")}
    loaded = load("3.6", ways | {"sdci in two processes": in_two}, tmp_path, tmp_path / "home")
    for way, splits in loaded.items():
        assert splits == expected[way.split()[0]], way


def test_expected_rows_are_what_the_files_say(folder, expected):
    """All else compares with these rows, so some of their fields are held against the files by hand."""
    for config in CONFIGS:
        for split, key in dci.SPLITS.items():
            assert [f"{row['image_id']}-data.json" for row in expected[config][split]] == SPLITS[key]
    full, sdci = expected["full"]["train"][0], expected["sdci"]["train"][0]
    photo = (folder / "release" / "densely_captioned_images" / "photos" / "sa_1.jpg").read_bytes()
    assert full["image"] == sdci["image"] == {"sha256": hashlib.sha256(photo).hexdigest(), "path": "sa_1.jpg"}
    assert full["description"] == (
        "A short caption.\nAn extra caption.\nThe following can also be seen in the image:\n"
        "thing 0: The thing of number 0.\nthing 1: The thing of number 1.\nthing 3"
    )
    assert [(mask["mask_id"], mask["parent"], mask["children"], mask["quality"]) for mask in full["masks"]] == [
        (0, -1, [1], "ok"),
        (1, 0, [], "ok"),
        (2, -1, [], "bad"),
        (3, -1, [], "low_quality"),
    ]
    assert full["masks"][0]["bbox"] == [10, 20, 240, 240]
    assert sdci["entries"][1]["crop_xyxy"] == [0, 0, 286, 296]
    assert sdci["entries"][1]["captions"] == [f"m-0-sc summary {i}" for i in range(6)]
    assert sdci["entries"][0]["negatives"][2] == {"kind": "swaps", "text": "base swaps", "clip_score": 0.27}
    assert expected["full"]["validation"][0]["short_caption"] == "Ein Café 🎈.\n"
    left_out = [[left["test"] for left in row["left_out"]] for row in expected["sdci"]["test"]]
    assert left_out == [["all", "pick5", "hard"], ["all", "pick5", "base", "hard"]]


# -- the builder itself, on the version that the package runs with


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(datasets.config, "HF_CACHE_HOME", tmp_path / "home")
    monkeypatch.setattr(datasets.config, "DOWNLOADED_DATASETS_PATH", tmp_path / "home" / "downloads")
    return tmp_path / "cache"


def builder(cache: Path, data_dir: Path | None, config: str = "sdci", **settings: Any) -> dci.DCI:
    data_dir_ = None if data_dir is None else str(data_dir)
    return dci.DCI(config_name=config, data_dir=data_dir_, cache_dir=str(cache), **settings)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("form", ["release", "closed"])
def test_builder_without_a_script(form, config, folder, expected, cache):
    made = builder(cache, folder / form, config)
    made.download_and_prepare(str(cache / "parquet"), file_format="parquet")
    for split in dci.SPLITS:
        files = [str(path) for path in sorted((cache / "parquet").glob(f"*-{split}*.parquet"))]
        rows = datasets.Dataset.from_parquet(files, cache_dir=str(cache)).cast_column(
            "image", datasets.Image(decode=False)
        )
        assert [plain(row) for row in rows] == expected[config][split]


def test_cache_gives_no_stale_rows(folder, cache, tmp_path):
    data_dir = tmp_path / "release"
    shutil.copytree(folder / "release", data_dir)

    def caption() -> str:
        made = builder(cache, data_dir, "full")
        made.download_and_prepare()
        return made.as_dataset("validation")[0]["extra_caption"]

    assert caption() == ""
    path = data_dir / "densely_captioned_images" / "complete" / "15-data.json"
    path.write_text(path.read_text().replace('"extra_caption": ""', '"extra_caption": "Changed."'))
    assert caption() == "Changed."


def test_missing_photos_are_said_with_where_to_get_them(folder, cache, tmp_path):
    data_dir = tmp_path / "release"
    shutil.copytree(folder / "release", data_dir)
    shutil.rmtree(data_dir / "densely_captioned_images" / "photos")
    with pytest.raises(dci.DCIError) as caught:
        builder(cache, data_dir).download_and_prepare()
    message = str(caught.value)
    assert "photos are missing: sa_" in message
    assert f"Get {dci.PHOTO_ARCHIVE} from {dci.PHOTOS_PAGE}" in message
    made = builder(cache, data_dir, with_photos=False)
    made.download_and_prepare()
    assert made.as_dataset("test")["image"][:] == [None, None]


# -- the download


@pytest.fixture
def served(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """`closed/` over HTTP on this machine, in Meta's place."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder / "closed"))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(dci, "ANNOTATIONS_URL", f"http://127.0.0.1:{server.server_port}/dci.tar.gz")
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def photos_only(folder: Path, tmp_path: Path) -> Path:
    """A folder with nothing but the closed archive of photos: the annotations are fetched."""
    (tmp_path / "photos").mkdir()
    shutil.copy(folder / "closed" / dci.PHOTO_ARCHIVE, tmp_path / "photos")
    return tmp_path / "photos"


def test_downloaded_archive_is_checked_and_read(served, photos_only, folder, expected, cache, monkeypatch):
    sha256 = hashlib.sha256((folder / "closed" / dci.ANNOTATIONS_ARCHIVE).read_bytes()).hexdigest()
    monkeypatch.setattr(dci, "ANNOTATIONS_SHA256", sha256)
    made = builder(cache, photos_only)
    made.download_and_prepare()
    rows = made.as_dataset("test").cast_column("image", datasets.Image(decode=False))
    assert [plain(row) for row in rows] == expected["sdci"]["test"]


def test_downloaded_archive_that_is_another_is_refused(served, photos_only, cache):
    with pytest.raises(dci.DCIError, match=f"expected sha256 {dci.ANNOTATIONS_SHA256}, got "):
        builder(cache, photos_only).download_and_prepare()


def test_older_archive_is_named(served, photos_only, folder, cache, monkeypatch):
    sha256 = hashlib.sha256((folder / "closed" / dci.ANNOTATIONS_ARCHIVE).read_bytes()).hexdigest()
    monkeypatch.setattr(dci, "OLD_ANNOTATIONS_SHA256", sha256)
    with pytest.raises(dci.DCIError, match=r"is the older dci\.tar\.gz"):
        builder(cache, photos_only).download_and_prepare()
