"""What the Hub refuses, or cannot do: one line each, without a token, over real HTTP and by the real client."""

import huggingface_hub
import huggingface_hub.constants
import pytest
from hub_double import OTHER_TOKEN, TOKEN, take_for_hub
from uploads import DATASET, FILES, do_not_wait, files_of, refused, start_upload, write

import dci
from dci_metrics.hub import session
from dci_metrics.hub.publishing import Destination, publish
from dci_metrics.hub.refusals import in_one_line


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    return do_not_wait(monkeypatch)


@pytest.mark.parametrize("debug", [{}, {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug"}])
def test_wrong_token_in_a_process(debug, hub, tmp_path):
    wrong = "hf_wrongwrongwrongwrongwrongwrongwr"
    hub.store.add_repo("owner/dci", "dataset")
    process = start_upload(hub, tmp_path, wrong, **debug)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert err.count("\n") == 1
    assert err.startswith("dci: error: dataset owner/dci: the Hub does not accept the token in HF_TOKEN")
    assert "hf auth login" in err
    assert wrong not in err + out
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and wrong.encode() in path.read_bytes()]


def test_token_is_not_in_what_the_client_logs(hub, tmp_path):
    hub.fail("batch", 500)
    process = start_upload(hub, tmp_path, quiet=False, HF_DEBUG="1", HF_HUB_VERBOSITY="debug")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert "authorization: <TOKEN>" in err
    assert TOKEN not in err + out
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]


def test_nobody_logged_in(hub, monkeypatch):
    take_for_hub(hub, monkeypatch, token=None)
    message = refused(DATASET, "nobody is logged in", "`hf auth login`", "HF_TOKEN")
    assert message.count("log in") == 1
    assert not hub.calls


def test_saved_token_that_is_wrong(hub, monkeypatch, tmp_path):
    take_for_hub(hub, monkeypatch, token=None)
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
    (tmp_path / "token").write_text("hf_wrongwrongwrongwrong")
    message = refused(DATASET, "that `hf auth login` has saved")
    assert "hf_wrong" not in message


def test_namespace_of_somebody_else(here):
    refused(Destination("other/dci", "dataset"), "no right", 'under the namespace "other"', "token with write access")


def test_repo_of_somebody_else(hub, monkeypatch):
    take_for_hub(hub, monkeypatch, OTHER_TOKEN)
    repo = hub.store.add_repo("owner/dci", "dataset")
    refused(DATASET, "no right")
    assert len(repo.commits()) == 1


def test_private_repo_of_somebody_else_is_as_if_it_were_not(hub, monkeypatch):
    take_for_hub(hub, monkeypatch, OTHER_TOKEN)
    hub.store.add_repo("owner/it", "model", private=True)
    refused(Destination("owner/it", "model", create_pr=True), "is not on the Hub, or is private")


def test_public_repo_is_not_taken_for_private(here):
    repo = here.store.add_repo("owner/dci", "dataset")
    refused(Destination("owner/dci", "dataset", private=True), "is there already and is public")
    assert len(repo.commits()) == 1


@pytest.mark.parametrize(
    ("endpoint", "status", "parts"),
    [
        ("create", 401, ("does not accept the token in HF_TOKEN",)),
        ("create", 402, ("the Hub refuses this (402: told to fail)",)),
        ("create", 409, ("the name is taken", "told to fail")),
        ("preupload", 404, ("is not on the Hub",)),
        ("commit", 400, ("the Hub refuses this (400: told to fail)",)),
        ("commit", 403, ("no right", "told to fail")),
        ("commit", 409, ("told to fail", "try again")),
        ("commit", 412, ("changed by somebody else",)),
        ("info", 500, ("the Hub has a problem of its own (500: told to fail)",)),
        ("commit", 503, ("the Hub has a problem of its own (503: told to fail)", "goes on")),
        ("put", 502, ("the Hub has a problem of its own (502",)),
        ("batch", 504, ("the Hub has a problem of its own (504",)),
    ],
)
def test_refusals_are_one_line(endpoint, status, parts, here):
    here.fail(endpoint, status, times=1000)
    refused(DATASET, *parts)


def test_yaml_that_is_none(here):
    refused(DATASET, "Invalid metadata in README.md", files={"README.md": b"---\na: [\n---\n"})
    assert here.count("put") == 0


def test_the_hubs_own_way_to_ask_for_a_wait(here, waits):
    here.fail("commit", 429, headers={"RateLimit": '"api";r=0;t=55'})
    publish(write, DATASET, "Upload")
    assert waits == [55]


def test_page_in_place_of_an_answer(here):
    here.fail("validate-yaml", 502, body=b"<html><body>Bad Gateway</body></html>", times=1000)
    refused(DATASET, "127.0.0.1 gave no proper answer")


@pytest.mark.parametrize("endpoint", ["info", "create", "preupload", "put", "commit"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_stumble_is_waited_out(endpoint, status, here, waits):
    headers = {"Retry-After": "7"} if status == 429 else {}
    here.fail(endpoint, status, headers=headers)
    publish(write, DATASET, "Upload")
    assert files_of(here) == dict(sorted(FILES.items()))
    assert len(waits) == 1
    assert status != 429 or 7 <= waits[0] <= 8


@pytest.mark.parametrize("endpoint", ["create", "preupload", "commit"])
def test_nobody_waits_for_an_hour(endpoint, here, waits):
    here.fail(endpoint, 429, headers={"Retry-After": "3600"}, times=1000)
    refused(DATASET, "too many requests; the Hub asks to wait 3600 seconds", "it goes on from where it stopped")
    assert waits == []


def test_token_that_the_hub_quotes(here):
    here.fail("commit", 400, message=f"Bad header 'Bearer {TOKEN}' at https://x.org/y?X-Amz-Signature=abc", times=10)
    message = refused(DATASET, "Bad header 'Bearer ***'", "https://x.org/y")
    assert "Signature" not in message


@pytest.mark.parametrize("kind", [ConnectionError, RuntimeError, TimeoutError])
def test_what_the_uploader_of_large_files_raises(kind, here, monkeypatch):
    """Of its own it has builtin errors, and it speaks with servers that the double has not."""

    def upload(*_: object, **__: object) -> None:
        raise kind(f"Network error: sending https://cas.example/x?token={TOKEN}\nfailed")

    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    message = refused(DATASET, "Network error: sending https://cas.example/x failed; run it again later")
    assert "token" not in message


def test_no_network(here, waits):
    here.__exit__()
    refused(DATASET, "no connection to 127.0.0.1")
    assert waits == []


def test_offline(here, monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    refused(DATASET, "HF_HUB_OFFLINE is set", "--dry-run")
    assert not here.calls


def test_dead_connection_is_given_up(here, monkeypatch):
    monkeypatch.setattr(session, "ANSWER_SECONDS", 0.2)
    here.fail("commit", delay=1.0, times=1000)
    refused(DATASET, "no connection to 127.0.0.1 (ReadTimeout")


@pytest.mark.parametrize("repo", ["dci", "a/b/c", "owner/", "owner/d ci", "owner/dci.git"])
def test_names_that_are_none(repo):
    with pytest.raises(dci.DCIError, match=r"^\S*(d ci)?: (expected OWNER/NAME|is no name of a repo)"):
        Destination(repo, "dataset")


def test_a_mistake_of_ours_is_not_taken_for_the_hubs(here):
    with pytest.raises(KeyError), in_one_line("owner/dci", "dataset"):
        {}["x"]


def test_session_is_as_before(here):
    before = huggingface_hub.get_session()
    state = before.timeout, before.event_hooks
    publish(write, DATASET, "Upload")
    assert (before.timeout, before.event_hooks) == state
