"""Uploads over real HTTP, by the real client, to a Hub on this machine that can be told to fail."""

import errno
import os
import signal
import time
from pathlib import Path

import pytest
from hub_double import take_for_hub
from uploads import BIG, DATASET, FILES, do_not_wait, files_of, refused, start_upload, write

import dci
from dci_metrics.hub import publishing
from dci_metrics.hub.publishing import Destination, link, publish


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return do_not_wait(monkeypatch)


# -- what is uploaded


def test_a_new_repo_gets_exactly_the_files(here):
    address = publish(write, DATASET, "Upload it")
    repo = here.store.repos["dataset", "owner/dci"]
    assert repo.files() == dict(sorted(FILES.items()))
    assert [commit.title for commit in repo.commits()] == ["Upload it", "initial commit"]
    assert address == f"{here.url}/datasets/owner/dci/commit/{repo.commits()[0].oid}"
    assert not repo.private


def test_again_uploads_and_commits_nothing(here):
    first = publish(write, DATASET, "Upload")
    puts, commits = here.count("put"), here.count("commit")
    assert publish(write, DATASET, "Upload") == f"{first} (nothing to change: all of it is there)"
    assert (here.count("put"), here.count("commit")) == (puts, commits) == (3, 1)


def test_only_what_changed_is_uploaded_and_what_is_gone_goes(here):
    publish(write, DATASET, "Upload")
    changed = {"data/a.parquet": BIG["data/a.parquet"], "data/d.parquet": b"new", "README.md": b"# New\n"}
    address = publish(lambda folder: write(folder, changed), DATASET, "Change", replaces=["data/*.parquet"])
    assert "nothing" not in address
    assert here.count("put") == 4
    assert files_of(here) == changed | {"eval.yaml": FILES["eval.yaml"]}


def test_links_are_followed(here, tmp_path):
    (tmp_path / "big.parquet").write_bytes(BIG["data/a.parquet"])
    publish(lambda folder: link(tmp_path / "big.parquet", folder / "a.parquet"), DATASET, "Upload")
    assert files_of(here) == {"a.parquet": BIG["data/a.parquet"]}


def test_a_large_file_goes_up_in_parts(here):
    here.multipart_over = 90_000
    publish(write, DATASET, "Upload")
    assert here.count("put") == 9
    assert files_of(here) == dict(sorted(FILES.items()))


@pytest.mark.parametrize("kind", ["model", "space", "dataset"])
def test_each_kind_of_repo_private(kind, here):
    destination = Destination("team/it", kind, private=True)
    address = publish(lambda folder: write(folder, {"x.bin": b"x"}), destination, "Upload")
    repo = here.store.repos[kind, "team/it"]
    assert repo.files() == {"x.bin": b"x"}
    assert repo.private
    assert repo.sdk == ("static" if kind == "space" else None)
    assert "/team/it/commit/" in address


def test_gated(here):
    publish(write, Destination("owner/dci", "dataset", gated=True), "Upload")
    assert here.store.repos["dataset", "owner/dci"].gated == "auto"
    settings = next(i for i, call in enumerate(here.calls) if call.endpoint == "settings")
    assert settings < next(i for i, call in enumerate(here.calls) if call.endpoint == "preupload")
    with pytest.raises(dci.DCIError, match="leave out --gated or --create-pr"):
        Destination("owner/dci", "dataset", gated=True, create_pr=True)


# -- pull requests


def test_pull_request_to_somebody_elses_repo(here):
    here.store.add_repo("other/it", "model", {"README.md": "theirs"})
    address = publish(lambda folder: write(folder, {"x.txt": b"x"}), Destination("other/it", "model", True), "Add x")
    repo = here.store.repos["model", "other/it"]
    assert address == f"{here.url}/other/it/discussions/1"
    assert repo.files() == {"README.md": b"theirs"}
    assert repo.files("refs/pr/1") == {"README.md": b"theirs", "x.txt": b"x"}
    assert [(made.title, made.author) for made in repo.pull_requests] == [("Add x", "owner")]


def test_the_same_pull_request_is_not_opened_twice(here):
    repo = here.store.add_repo("owner/dci", "dataset")
    destination = Destination("owner/dci", "dataset", create_pr=True)
    first = publish(write, destination, "Upload")
    assert publish(write, destination, "Upload") == f"{first} (nothing to change: all of it is there)"
    assert len(repo.pull_requests) == 1
    other = publish(lambda folder: write(folder, {"eval.yaml": b"name: other\n"}), destination, "Upload")
    assert other.endswith("/discussions/2")
    repo.merge(1)
    assert "discussions" not in publish(write, destination, "Upload")
    assert len(repo.pull_requests) == 2


def test_pull_request_that_an_interrupted_run_left_is_filled(here):
    repo = here.store.add_repo("owner/dci", "dataset")
    repo.open_pull_request("Upload", "", "owner", "draft")
    address = publish(write, Destination("owner/dci", "dataset", create_pr=True), "Upload")
    assert address == f"{here.url}/datasets/owner/dci/discussions/1"
    assert files_of(here, "refs/pr/1") == dict(sorted(FILES.items()))
    assert files_of(here) == {}


def test_pull_request_of_a_lost_answer_is_not_opened_twice(here):
    repo = here.store.add_repo("owner/dci", "dataset")
    here.fail("commit", lose=True)
    address = publish(write, Destination("owner/dci", "dataset", create_pr=True), "Upload")
    assert address.startswith(f"{here.url}/datasets/owner/dci/discussions/1")
    assert len(repo.pull_requests) == 1


def test_pull_request_needs_the_repo(here):
    refused(Destination("owner/none", "model", create_pr=True), "is not on the Hub, or is private", "model owner/none")
    assert not here.store.repos


# -- interrupted


def test_cut_connections_are_taken_up_again(here, waits):
    here.fail("put", cut=5000, times=2)
    here.fail("commit", cut=10)
    here.fail("create", cut=0)
    publish(write, DATASET, "Upload")
    assert files_of(here) == dict(sorted(FILES.items()))
    assert here.count("put") == 3
    assert len(here.store.repos["dataset", "owner/dci"].commits()) == 2
    assert len(waits) >= 4


def test_after_a_lost_connection_the_next_run_goes_on(here):
    here.fail("put", cut=5000, after=2, times=1000)
    refused(DATASET, "no connection to 127.0.0.1", "it goes on from where it stopped")
    there = set(here.store.objects)
    assert len(there) == 2
    here.recover()
    publish(write, DATASET, "Upload")
    assert here.count("put") == 3
    assert files_of(here) == dict(sorted(FILES.items()))
    assert len(here.store.repos["dataset", "owner/dci"].commits()) == 2


@pytest.mark.parametrize("endpoint", ["create", "commit"])
def test_what_was_done_though_its_answer_was_lost(endpoint, here):
    here.fail(endpoint, lose=True)
    publish(write, DATASET, "Upload")
    assert files_of(here) == dict(sorted(FILES.items()))
    assert len(here.store.repos["dataset", "owner/dci"].commits()) == 2


def test_ctrl_c_midway(hub, tmp_path):
    hub.multipart_over = 90_000
    hub.fail("put", delay=1.0, after=4, times=1000)
    process = start_upload(hub, tmp_path)
    while hub.count("put") < 4 or not any(hub.store.parts):
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    started = time.monotonic()
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "")
    # At most what is on its way ends; the other parts are not begun.
    assert time.monotonic() - started < 10
    assert hub.count("put") < 9
    assert not list(tmp_path.glob("dci-upload-*"))
    there = len(hub.store.objects)
    hub.recover()
    before = hub.count("complete")
    process = start_upload(hub, tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert hub.count("complete") - before == 3 - there
    assert files_of(hub) == dict(sorted(FILES.items()))


# -- the disk


def full(_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("dry", [False, True])
def test_full_disk(dry, here, tmp_path):
    destination = Destination("owner/dci", "dataset", dry_run=tmp_path / "out" if dry else None)
    with pytest.raises(dci.DCIError, match=r"^\S+: the disk is full; free some space, or set TMPDIR"):
        publish(full, destination, "Upload")
    assert not here.store.repos
    assert not list(tmp_path.iterdir())


def test_really_full_disk(hub, tmp_path):
    """/dev/full stands for a disk without a byte left."""
    with pytest.raises(dci.DCIError, match="the disk is full"):
        publish(lambda _: Path("/dev/full").write_bytes(b"x"), Destination("a/b", "model", dry_run=tmp_path / "d"), "")


# -- dry runs


def test_dry_run_writes_the_same_and_contacts_nobody(hub, monkeypatch, tmp_path):
    take_for_hub(hub, monkeypatch, token=None)
    (tmp_path / "big.parquet").write_bytes(b"big")

    def with_link(folder: Path) -> None:
        write(folder)
        link(tmp_path / "big.parquet", folder / "data" / "big.parquet")

    out = tmp_path / "new" / "out"
    assert publish(with_link, Destination("owner/dci", "dataset", dry_run=out), "Upload") == str(out)
    written = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert written == FILES | {"data/big.parquet": b"big"}
    assert not any(path.is_symlink() for path in out.rglob("*"))
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert not hub.calls


def test_dry_run_is_whole_or_nothing(tmp_path):
    def half(folder: Path) -> None:
        write(folder)
        raise dci.DCIError("no")

    with pytest.raises(dci.DCIError, match="no"):
        publish(half, Destination("owner/dci", "dataset", dry_run=tmp_path / "out"), "Upload")
    assert not list(tmp_path.iterdir())


def test_dry_run_refuses_a_folder_with_something_in_it(tmp_path):
    destination = Destination("owner/dci", "dataset", dry_run=tmp_path)
    (tmp_path / "mine").write_text("keep")
    with pytest.raises(dci.DCIError, match="is there already; name a folder that is new or empty"):
        publish(write, destination, "Upload")
    assert (tmp_path / "mine").read_text() == "keep"
    (tmp_path / "mine").unlink()
    publish(write, destination, "Upload")
    assert (tmp_path / "README.md").exists()


def test_dry_run_where_no_folder_can_be(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(dci.DCIError, match=r"file/out: cannot be made \(Not a directory\); name another folder"):
        publish(write, Destination("owner/dci", "dataset", dry_run=tmp_path / "file" / "out"), "Upload")


def test_links_over_file_systems_are_copied(tmp_path, monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(publishing.os, "link", refuse)
    (tmp_path / "big").write_bytes(b"big")
    destination = Destination("owner/dci", "dataset", dry_run=tmp_path / "out")
    publish(lambda folder: link(tmp_path / "big", folder / "big"), destination, "Upload")
    assert not (tmp_path / "out" / "big").is_symlink()
    assert (tmp_path / "out" / "big").read_bytes() == b"big"
