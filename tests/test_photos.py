"""`dci fetch-photos` over real HTTP, from a server on this machine with a small archive."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path

import filelock
import pytest
from archive_server import SECRET, Archive, serve
from command import refused, run
from release_maker import close_archives, photo, photo_annotation, write_release

import dci
from dci_metrics import download, photos

NAME = dci.PHOTO_ARCHIVE


@pytest.fixture(scope="module")
def content(tmp_path_factory) -> bytes:
    """A tar of three photos and half a megabyte that does not repeat, so that a wrong offset is seen."""
    folder = tmp_path_factory.mktemp("release")
    noise = random.Random(0).randbytes(500_000)
    pictures = {f"sa_{i}.jpg": photo() + noise for i in range(3)}
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg") for i in range(3)}
    return (close_archives(write_release(folder, notes, pictures)) / NAME).read_bytes()


@pytest.fixture
def archive(content, monkeypatch):
    monkeypatch.setattr(photos, "ARCHIVE_BYTES", len(content))
    monkeypatch.setattr(download, "WAIT", 0.01)
    with serve(Archive(content)) as archive:
        yield archive


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "photos"


def write_links(folder: Path, url: str) -> Path:
    """As Meta's form gives it; other archives' links lead nowhere."""
    rows = [("file_name", "cdn_link"), *((f"sa_{i:06}.tar", f"https://nowhere.invalid/{i}.tar") for i in range(138))]
    rows += [(NAME, url), ("sa_000139.tar", "https://nowhere.invalid/139.tar")]
    path = folder / "links.txt"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


@pytest.fixture
def fetch(archive, out, tmp_path, monkeypatch, capsys):
    """Run the command; whatever happens, the signed address is not in what it prints."""

    def fetch():
        done = run(monkeypatch, capsys, "fetch-photos", write_links(tmp_path, archive.url), "--out", out)
        assert "Secret" not in done[1] + done[2]
        return done

    return fetch


def is_whole(out: Path, content: bytes) -> bool:
    """Whether the archive is there, byte for byte, and nothing else is."""
    return [path.name for path in out.iterdir()] == [NAME] and (out / NAME).read_bytes() == content


def test_one_archive_is_fetched(fetch, archive, out, content):
    assert fetch() == (0, f"Written: {out / NAME}\n", "")
    assert is_whole(out, content)
    assert len(archive.requests) == 1
    fetch()
    assert len(archive.requests) == 1  # what is there is not fetched again
    release = dci.Release(write_release(out.parent / "release", {"1-data.json": photo_annotation("sa_2.jpg")}), out)
    assert release.photo("sa_2.jpg").startswith(photo())


def test_broken_connections_are_resumed_where_they_broke(fetch, archive, out, content):
    archive.break_after += [100_000, 0, 300_000]
    code, _, err = fetch()
    assert code == 0, err
    assert is_whole(out, content)
    starts = [int(re.findall(r"\d+", r.get("Range", "0"))[0]) for r in archive.requests]
    assert starts == [0, 100_000, 100_000, 400_000]
    assert {r.get("If-Range") for r in archive.requests[1:]} == {'"one"'}


def test_next_run_goes_on(fetch, archive, out, content, monkeypatch):
    monkeypatch.setattr(download, "TRIES", 1)
    archive.break_after += [200_000, 0]
    refused(
        last_line(fetch()),
        "the connection fails",
        f"200,000 bytes are kept in {out / NAME}.part: run it again to go on",
    )
    assert (out / f"{NAME}.part").read_bytes() == content[:200_000]
    assert not (out / NAME).exists()
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in out.iterdir())
    assert fetch()[0] == 0
    assert is_whole(out, content)
    assert archive.requests[-1]["Range"] == "bytes=200000-"


def last_line(done):
    """Without the lines on tries that failed."""
    code, out, err = done
    return code, out, err.splitlines()[-1] + "\n"


def test_server_that_knows_no_ranges(fetch, archive, out, content):
    archive.ranges = False
    archive.break_after += [100_000]
    code, _, err = fetch()
    assert code == 0, err
    assert "from the start" in err
    assert is_whole(out, content)


@pytest.mark.parametrize("tagged", [True, False])
def test_file_that_changed_is_fetched_anew(fetch, archive, out, content, tagged, monkeypatch):
    """By its tag, or, where there is none, by its size."""
    monkeypatch.setattr(download, "TRIES", 1)
    archive.etag = '"one"' if tagged else None
    archive.break_after += [200_000, 0]
    assert fetch()[0] == 2
    monkeypatch.setattr(download, "TRIES", 3)
    archive.content = content[:1024] + bytes(reversed(content[1024:])) + (b"" if tagged else b"more")
    archive.etag = '"two"' if tagged else None
    assert fetch()[0] == 0
    assert is_whole(out, archive.content)


def test_date_stands_in_for_a_weak_tag(fetch, archive, out, content):
    archive.etag, archive.last_modified = 'W/"one"', "Tue, 04 Apr 2023 10:00:00 GMT"
    archive.break_after += [100_000]
    assert fetch()[0] == 0
    assert archive.requests[1]["If-Range"] == archive.last_modified
    assert is_whole(out, content)


@pytest.mark.parametrize("extra", [0, 1000])
def test_part_that_is_whole_or_larger_than_the_whole(fetch, archive, out, content, extra):
    out.mkdir()
    (out / f"{NAME}.part").write_bytes(content + b"x" * extra)
    code, _, err = fetch()
    assert code == 0, err
    assert is_whole(out, content)
    assert ("not a part of the server's file" in err) == bool(extra)
    assert len(archive.requests) == (2 if extra else 1)


def test_busy_server_is_asked_again(fetch, archive, out, content, monkeypatch):
    waited = []
    monkeypatch.setattr(download.time, "sleep", waited.append)
    archive.answers += [(503, {}), (429, {"Retry-After": "7"}), (500, {})]
    assert fetch()[0] == 0
    assert waited == [0.01, 7.0, 0.04]
    assert is_whole(out, content)


def test_tries_are_bounded(fetch, archive, out, monkeypatch):
    monkeypatch.setattr(download, "TRIES", 3)
    archive.answers += [(502, {})] * 100
    refused(last_line(fetch()), "the connection fails (HTTP 502)", "run it again later")
    assert len(archive.requests) == 3
    archive.answers[:] = [(429, {"Retry-After": "86400"})]
    refused(fetch(), "the server asks to wait 86400 s")
    archive.url = "http://127.0.0.1:9/closed.tar?oh=Secret"
    refused(last_line(fetch()), "127.0.0.1/closed.tar: the connection fails (ConnectError")


@pytest.mark.parametrize("code", [400, 403, 404, 410])
def test_expired_link(fetch, archive, out, code):
    archive.answers.append((code, {}))
    refused(fetch(), f"the link has expired: fill in the form at {dci.PHOTOS_PAGE}", f"HTTP {code}", "An8.tar")
    assert not (out / NAME).exists()
    assert len(archive.requests) == 1


def test_link_that_expires_midway_keeps_what_came(fetch, archive, out, content):
    archive.break_after += [200_000]
    original = archive.requests

    class Expiring(list):
        def append(self, request):
            super().append(request)
            if len(self) == 2:
                archive.answers.append((403, {}))

    archive.requests = Expiring(original)
    refused(last_line(fetch()), "the link has expired", "200,000 bytes are kept")
    assert fetch()[0] == 0
    assert is_whole(out, content)


def test_page_in_place_of_the_archive(fetch, archive, out):
    archive.content, archive.content_type = b"<html>Log in</html>" * 100, "text/html"
    refused(fetch(), "is no tar archive")
    assert list(out.iterdir()) == []


def test_other_size_than_known_is_said(fetch, archive, out, content, monkeypatch):
    monkeypatch.setattr(photos, "ARCHIVE_BYTES", len(content) + 1)
    code, _, err = fetch()
    assert code == 0
    assert err.startswith(f"warning: {out / NAME} has {len(content):,} bytes; the archive that DCI was made from has")
    assert is_whole(out, content)
    refused(fetch(), "is there already, but has", f"rename it to {NAME}.part")


def test_redirects_keep_the_range(fetch, archive, out, content):
    archive.break_after += [100_000]
    archive.answers.append((302, {"Location": archive.url}))
    assert fetch()[0] == 0
    assert is_whole(out, content)
    archive.answers += [(302, {"Location": archive.url})] * 50
    (out / NAME).unlink()
    refused(fetch(), "leads from one address to the next")


def test_full_disk(fetch, archive, out, monkeypatch):
    usage = namedtuple("usage", "total used free")(10**9, 10**9, 10_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    refused(fetch(), "GB are still to come, and 0.0 GB are free; make room")
    assert list(out.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_disk_that_fills_up_midway(fetch, archive, out, monkeypatch):
    monkeypatch.setattr(download.os, "fsync", lambda _: Path("/dev/full").write_text("x"))
    refused(fetch(), "cannot be written (No space left on device); make room and run it again to go on")
    assert (out / f"{NAME}.part").exists()


def test_two_at_once(fetch, archive, out):
    out.mkdir()
    with filelock.FileLock(out / f".{NAME}.lock"):
        refused(fetch(), "another process is downloading into it")


def test_folder_that_cannot_be_made(fetch, out):
    out.write_text("a file")
    refused(fetch(), "cannot be made", "--out")


def test_interrupt_keeps_what_came_and_says_how_to_go_on(archive, out, tmp_path, content, fetch):
    archive.hang = 300_000
    process = subprocess.Popen(
        [sys.executable, "-m", "dci_metrics", "fetch-photos", write_links(tmp_path, archive.url), "--out", out],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    deadline = time.monotonic() + 60
    while not (out / f"{NAME}.part").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    assert (out / f"{NAME}.part").exists()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "Stopped; what has come so far is kept: run the same command again to go on.\n"
    have = (out / f"{NAME}.part").stat().st_size
    assert 0 < have <= archive.hang
    archive.hang = None
    assert fetch()[0] == 0
    assert archive.requests[-1]["Range"] == f"bytes={have}-"
    assert is_whole(out, content)


# -- the list of links


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "is empty"),
        (b"\n\n", "is empty"),
        (b"<!DOCTYPE html><html>", "is a web page"),
        (b"\xff\xfe\x00binary", "is not a text file"),
        (b"x" * 200_000, "is no list of links"),
        (b"file_name,cdn_link\nsa_000138.tar,https://a.b/c", "its first line is 'file_name,cdn_link'"),
        (b"file_name cdn_link\nsa_000138.tar https://a.b/c", "with a tab between"),
        (b"sa_000138.tar\thttps://a.b/c?oh=Secret", "its first line is not a header"),
        (b"file_name\tcdn_link\nsa_000137.tar\thttps://a.b/c", "lists 1 files, but not sa_000138.tar"),
        (b"file_name\tcdn_link\nsa_000138.tar", "line 2: field `cdn_link`: expected an address"),
        (b"file_name\tcdn_link\nsa_000138.tar\tftp://a.b/c", "line 2: field `cdn_link`: expected an address"),
        (b"file_name\tcdn_link\nsa_000138.tar\thttps://[a", "line 2: field `cdn_link`: expected an address"),
        (None, "cannot be read (No such file"),
    ],
)
def test_what_is_no_list_of_links(text, said, tmp_path, monkeypatch, capsys):
    links = tmp_path / "links.txt"
    if text is not None:
        links.write_bytes(text)
    done = run(monkeypatch, capsys, "fetch-photos", links, "--out", tmp_path / "photos")
    refused(done, str(links), said, dci.PHOTOS_PAGE)
    assert "Secret" not in done[2]
    assert not (tmp_path / "photos").exists()


def test_archive_given_as_the_list(tmp_path, monkeypatch):
    links = tmp_path / NAME
    with links.open("wb") as file:
        file.truncate(10**9)  # takes no room
    with pytest.raises(dci.DCIError, match="too large for a list of links"):
        photos.read_link(links)


def test_windows_line_ends_and_other_columns(tmp_path):
    links = tmp_path / "links.txt"
    links.write_bytes(f"\ufeffcdn_link\tfile_name\r\nhttps://a.b/c\t{NAME}\r\n".encode())
    assert photos.read_link(links) == "https://a.b/c"
