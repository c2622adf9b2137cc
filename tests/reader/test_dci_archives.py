"""The release's archives: read closed, once, in several processes; refused when broken or unsafe."""

import gzip
import hashlib
import json
import lzma
import pickle
import shutil
import tarfile
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from release_maker import close_archives, mask_entry, photo, photo_annotation, tar_member, write_release

import dci

NOTES = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", masks=[mask_entry(i)]) for i in range(4)}
PHOTOS = {f"sa_{i}.jpg": photo(orientation=i % 4 + 1) + bytes(i) * 20_000 for i in range(4)}
UNSAFE = [
    tar_member("../outside.json", b"{}"),
    tar_member("densely_captioned_images/complete/../../../outside.json", b"{}"),
    tar_member("/outside.json", b"{}"),
    tar_member("complete\\..\\outside.json", b"{}"),
    tar_member("densely_captioned_images/complete/link.json", kind=tarfile.SYMTYPE, link="/etc/passwd"),
    tar_member("densely_captioned_images/complete/hard.json", kind=tarfile.LNKTYPE, link="0-data.json"),
    tar_member("densely_captioned_images/complete/device.json", kind=tarfile.CHRTYPE),
    tar_member("densely_captioned_images/complete/pipe.json", kind=tarfile.FIFOTYPE),
]


@pytest.fixture
def unpacked(tmp_path):
    return list(dci.Release(write_release(tmp_path / "unpacked", NOTES, PHOTOS)).rows("test", "both"))


@pytest.fixture
def closed(tmp_path):
    return close_archives(write_release(tmp_path / "closed", NOTES, PHOTOS))


def files_below(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def rows_of(folder, *args, **kwargs):
    return list(dci.Release(folder, *args, **kwargs).rows("test", "both"))


def refused(folder, *parts):
    with pytest.raises(dci.DCIError) as caught:
        rows_of(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    for part in parts:
        assert part in message, message


@pytest.mark.parametrize("prefix", ["", "./", "some/folder/"])
def test_closed_archives_read_the_same(tmp_path, unpacked, prefix):
    folder = close_archives(write_release(tmp_path / "closed", NOTES, PHOTOS), prefix)
    before = files_below(folder)
    assert rows_of(folder) == unpacked
    assert files_below(folder) == before  # nothing is unpacked beside the user's files


def test_one_archive_closed_and_the_other_not(tmp_path, unpacked):
    folder = write_release(tmp_path / "release", NOTES, PHOTOS)
    close_archives(shutil.copytree(folder, tmp_path / "closed"))
    shutil.copy(tmp_path / "closed" / "dci.tar.gz", tmp_path)
    shutil.move(folder / "densely_captioned_images" / "photos", tmp_path / "photos")
    assert rows_of(tmp_path) == unpacked  # dci.tar.gz, and a folder of photos
    shutil.copy(tmp_path / "closed" / "sa_000138.tar", folder)
    assert rows_of(folder) == unpacked  # densely_captioned_images/, and the photo archive
    assert rows_of(None, tmp_path / "photos", annotations=tmp_path / "dci.tar.gz") == unpacked


def test_photos_given_as_folder_or_archive(tmp_path, closed, unpacked):
    (tmp_path / "place").mkdir()
    archive = shutil.move(closed / "sa_000138.tar", tmp_path / "place" / "sa_000138.tar")
    assert rows_of(closed, archive) == unpacked
    assert rows_of(closed, str(tmp_path / "place")) == unpacked
    assert rows_of(closed, shutil.copy(archive, tmp_path / "renamed.tar")) == unpacked
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "folder", filter="data")
    assert rows_of(closed, tmp_path / "folder") == unpacked


@pytest.mark.parametrize("home", ["densely_captioned_images", "densely_captioned_images/photos", "photos"])
def test_the_photo_archive_in_other_folders_of_the_release(tmp_path, closed, unpacked, home):
    folder = write_release(tmp_path / "release", NOTES, {})
    (folder / home).mkdir(exist_ok=True)
    shutil.move(closed / "sa_000138.tar", folder / home / "sa_000138.tar")
    assert rows_of(folder) == unpacked


def test_each_archive_is_read_once(closed, unpacked, monkeypatch):
    opened = []
    original = tarfile.open
    monkeypatch.setattr(tarfile, "open", lambda *args, **kwargs: opened.append(args) or original(*args, **kwargs))
    assert rows_of(closed) == rows_of(closed) == unpacked
    assert len(opened) == 2  # each archive in the first pass
    (closed / "sa_000138.tar").touch()
    assert rows_of(closed) == unpacked
    assert len(opened) == 3  # it may be another archive now


def test_files_that_a_mac_adds(tmp_path, unpacked):
    folder = write_release(tmp_path / "mac", NOTES, PHOTOS)
    root = folder / "densely_captioned_images"
    for name in ("complete/._0-data.json", "._splits.json", "photos/._sa_0.jpg", ".DS_Store"):
        (root / name).write_bytes(b"\x00\x05\x16\x07")
    assert rows_of(folder) == unpacked
    close_archives(folder)
    assert rows_of(folder) == unpacked


def test_json_files_beside_sa_1bs_photos(closed, unpacked):
    with tarfile.open(closed / "sa_000138.tar", "a") as tar:
        tar.addfile(*tar_member("./sa_1.json", b"{}"))
        tar.addfile(*tar_member("./sa_9.jpg", photo()))
    assert rows_of(closed) == unpacked


def test_photos_missing_from_the_archive(tmp_path):
    folder = close_archives(write_release(tmp_path, NOTES, {"sa_1.jpg": PHOTOS["sa_1.jpg"]}))
    refused(folder, "sa_000138.tar", "3 of 4 photos are missing: sa_0.jpg, sa_2.jpg, sa_3.jpg")


# -- unsafe and broken archives


@pytest.mark.parametrize("member", UNSAFE, ids=lambda member: member[0].name)
@pytest.mark.parametrize("last", [False, True])
def test_unsafe_members_of_the_annotations(tmp_path, cache, member, last):
    folder = write_release(tmp_path / "unsafe", NOTES, PHOTOS)
    with tarfile.open(folder / "dci.tar.gz", "w:gz") as tar:
        if not last:
            tar.addfile(*member)
        tar.add(folder / "densely_captioned_images", "densely_captioned_images")
        if last:
            member[1].seek(0)
            tar.addfile(*member)
    shutil.rmtree(folder / "densely_captioned_images")
    before = files_below(tmp_path)
    for _ in range(2):
        refused(folder, "dci.tar.gz: member ", repr(member[0].name), "refused")
        assert list(cache.iterdir()) == []
        assert files_below(tmp_path) == before


@pytest.mark.parametrize("member", UNSAFE, ids=lambda member: member[0].name)
def test_unsafe_members_of_the_photos(tmp_path, cache, closed, member):
    member[1].seek(0)
    with tarfile.open(closed / "sa_000138.tar", "a") as tar:
        tar.addfile(*member)
    before = files_below(tmp_path)
    for _ in range(2):
        refused(closed, "sa_000138.tar: member ", repr(member[0].name), "refused")
        assert not list(cache.glob("photos-*"))
    assert files_below(tmp_path) == before


@pytest.mark.parametrize("keep", [0.0, 0.02, 0.5, 0.99])
def test_cut_annotations(closed, cache, keep):
    content = (closed / "dci.tar.gz").read_bytes()
    (closed / "dci.tar.gz").write_bytes(content[: int(len(content) * keep)])
    refused(closed, "dci.tar.gz: cannot be unpacked", "download it again")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("where", [0.3, 0.5, 0.9, -8])
def test_damaged_annotations(closed, cache, where):
    """One wrong bit anywhere is found: the archive's own check sum stands at its very end."""
    content = bytearray((closed / "dci.tar.gz").read_bytes())
    content[where if where < 0 else int(where * len(content))] ^= 4
    (closed / "dci.tar.gz").write_bytes(content)
    refused(closed, "dci.tar.gz: cannot be unpacked", "download it again")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize(
    "content", [b"<html>not found</html>", bytes(10240), gzip.compress(b"no tar", mtime=0), b"PK\x03\x04"]
)
def test_annotations_that_are_no_such_archive(closed, cache, content):
    (closed / "dci.tar.gz").write_bytes(content)
    refused(closed, "dci.tar.gz: ")
    assert list(cache.iterdir()) == []


def test_other_compressions(closed, unpacked):
    """A tar by another compression still is a tar; the photos must lie in it uncompressed, to be read in place."""
    tar = gzip.decompress((closed / "dci.tar.gz").read_bytes())
    for content in (tar, lzma.compress(tar)):
        (closed / "dci.tar.gz").write_bytes(content)
        assert rows_of(closed) == unpacked
    archive = closed / "sa_000138.tar"
    archive.write_bytes(gzip.compress(archive.read_bytes()))
    refused(closed, "sa_000138.tar: cannot be read as an uncompressed tar archive", "download it again")


def test_a_cut_photo_archive(closed, cache):
    content = (closed / "sa_000138.tar").read_bytes()
    (closed / "sa_000138.tar").write_bytes(content[: 512 + 4096 + 1000])
    refused(closed, "sa_000138.tar")
    (closed / "sa_000138.tar").write_bytes(b"")
    refused(closed, "sa_000138.tar")


def test_a_photo_archive_cut_after_it_was_indexed(closed):
    release = dci.Release(closed)
    assert release.has_photo("sa_3.jpg")
    content = (closed / "sa_000138.tar").read_bytes()
    with tarfile.open(closed / "sa_000138.tar") as tar:
        last = tar.getmember("sa_3.jpg")
    (closed / "sa_000138.tar").write_bytes(content[: last.offset_data + last.size - 1])
    with pytest.raises(dci.DCIError, match=r"sa_000138\.tar: ends inside of sa_3\.jpg; download the archive again"):
        release.photo("sa_3.jpg")
    (closed / "sa_000138.tar").unlink()
    with pytest.raises(dci.DCIError, match=r"sa_000138\.tar: sa_1\.jpg: cannot be read"):
        release.photo("sa_1.jpg")


def test_archives_without_a_release_inside(closed, cache):
    with tarfile.open(closed / "dci.tar.gz", "w:gz") as tar:
        tar.addfile(*tar_member("README.txt", b"hello"))
    refused(closed, "dci.tar.gz: holds no densely_captioned_images/complete/")
    assert list(cache.iterdir()) == []
    with pytest.raises(dci.DCIError, match=r"gone\.tar\.gz: no such file"):
        dci.Release(closed, annotations=closed / "gone.tar.gz")


def test_the_old_archive_is_named(closed, cache, monkeypatch):
    digest = hashlib.sha256((closed / "dci.tar.gz").read_bytes()).hexdigest()
    monkeypatch.setattr(dci, "OLD_ANNOTATIONS_SHA256", digest)
    refused(closed, "dci.tar.gz: is the older dci.tar.gz, whose splits.json is wrong", dci.ANNOTATIONS_URL)
    assert not cache.exists()


def test_the_archive_that_was_downloaded_must_be_metas(closed, monkeypatch):
    archive = closed / "dci.tar.gz"
    with pytest.raises(dci.DCIError, match=f"expected sha256 {dci.ANNOTATIONS_SHA256}, got "):
        dci.check_annotations_archive(archive, downloaded=True)
    monkeypatch.setattr(dci, "ANNOTATIONS_SHA256", hashlib.sha256(archive.read_bytes()).hexdigest())
    dci.check_annotations_archive(archive, downloaded=True)
    assert dci.OLD_ANNOTATIONS_SHA256 == "9caff10cb6324c801d9020638f49925f04de87d897ca8614c599f3c43bef3aeb"


def test_a_cache_that_cannot_be_written(closed, tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(dci.DCIError, match="cannot be written"):
        dci.Release(closed, cache_dir=tmp_path / "file" / "dci")


def test_a_broken_index_in_the_cache_is_made_anew(closed, cache, unpacked):
    assert rows_of(closed) == unpacked
    (index,) = cache.glob("photos-*.json")
    for content in (b"", b'{"sa_0.jpg": [12', b"[]", b"null", b'{"sa_0.jpg": 3}'):
        index.write_bytes(content)
        assert rows_of(closed) == unpacked
        assert json.loads(index.read_bytes()).keys() == PHOTOS.keys()


# -- processes and threads


def rows_in_a_process(release):
    return list(release.rows("test", "both"))


def keep(release):
    global kept
    kept = release


def wrong_photos_of_the_kept(times):
    return sum(kept.photo(name) != content for _ in range(times) for name, content in PHOTOS.items())


def test_a_pickled_release_reads_the_same_in_two_processes(closed, unpacked):
    release = dci.Release(closed)
    assert rows_in_a_process(release) == unpacked
    assert rows_in_a_process(pickle.loads(pickle.dumps(release))) == unpacked
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as pool:
        assert list(pool.map(rows_in_a_process, [release] * 2)) == [unpacked] * 2


@pytest.mark.parametrize("kind", ["forked processes", "threads"])
def test_workers_that_share_an_open_release_do_not_mix_their_reads(closed, kind):
    release = dci.Release(closed)
    assert release.photo("sa_0.jpg") == PHOTOS["sa_0.jpg"]
    fork = {"mp_context": get_context("fork")} if kind == "forked processes" else {}
    pool_of = ProcessPoolExecutor if fork else ThreadPoolExecutor
    with pool_of(2, initializer=keep, initargs=(release,), **fork) as pool:
        assert list(pool.map(wrong_photos_of_the_kept, [1000, 1000])) == [0, 0]
