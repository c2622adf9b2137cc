"""`dci submit` and eval.yaml: read back with the Hub's own parsers, sent to the offline double of the Hub."""

import dataclasses
import hashlib
import json
import math
import os
import re
import time
from pathlib import Path

import command
import pytest
import yaml
from hash_encoder import HashEncoder
from hub_double import here, hub  # noqa: F401
from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml, parse_eval_result_entries
from real_result import FINGERPRINT, TEST_IDS, real_result, save
from small_release import write_small_release

import dci
import dci_metrics
from dci_metrics.hub import benchmark_files, eval_results, folder
from dci_metrics.hub.eval_file import merge
from dci_metrics.hub.eval_results import FILE, read_notes, refusal
from dci_metrics.results import Result
from dci_metrics.tasks import PAPER_TASKS, TASKS

REPO, DATASET, SHA = "owner/clip", "owner/dci", "3" * 40
OTHERS = """\
# Of the model's authors.
- dataset: {id: cais/hle, task_id: default}
  value: 20.90   # as printed
  date: 2025-01-15
  evaluation_framework: hle
# Ours of last year.
- dataset:
    id: owner/dci
    task_id: all_scm
  value: 1.5
- dataset:
    id: someone/dci
    task_id: all_scm
  value: 3
"""


def submit(monkeypatch, capsys, *arguments):
    return command.run(monkeypatch, capsys, "submit", *arguments)


def parsed(text):
    return parse_eval_result_entries(yaml.safe_load(text))


def by_task(text):
    return {entry.task_id: entry for entry in parsed(text) if entry.dataset_id == DATASET}


def test_eval_yaml_has_a_leaderboard_for_each_test():
    data = yaml.safe_load(benchmark_files.eval_yaml())
    assert set(data) == {"name", "description", "evaluation_framework", "tasks"}
    assert all(isinstance(data[key], str) and data[key] for key in ("name", "description", "evaluation_framework"))
    assert data["tasks"] == [{"id": key, "config": "sdci", "split": "test"} for key in TASKS]
    assert data["tasks"][0]["id"] == "all_scm"


def test_fingerprints_are_those_of_results(tmp_path):
    release = write_small_release(tmp_path / "release")
    built, bare, out = tmp_path / "dci", tmp_path / "bare", tmp_path / "out"
    folder.build(dci.Release(release), built, progress=False)
    folder.build(dci.Release(release), bare, photos=False, progress=False)
    out.mkdir()
    assert benchmark_files.write(out, bare) == ["eval.yaml"]
    assert benchmark_files.write(out) == ["eval.yaml"]
    assert sorted(path.name for path in out.iterdir()) == ["eval.yaml"]
    assert benchmark_files.write(out, built) == ["eval.yaml", "fingerprints.json"]
    result = dci_metrics.evaluate(HashEncoder(), built, progress=False)
    found = json.loads((out / "fingerprints.json").read_text())
    assert found == {"sdci/test": result.dataset["fingerprint"]}
    assert benchmark_files.fingerprint(dci.Release(release)) == found["sdci/test"]
    (release / "densely_captioned_images" / "photos" / "sa_4.jpg").unlink()
    assert benchmark_files.fingerprint(dci.Release(release)) is None


def test_dry_run_writes_every_test_and_contacts_nobody(tmp_path, monkeypatch, capsys):
    path, out = save(tmp_path), tmp_path / "out"
    os.utime(path, (0, time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, 0))))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    where = ("--dataset-repo", DATASET, "--dataset-revision", SHA, "--dry-run", out)
    assert submit(monkeypatch, capsys, path, "--model", REPO, *where) == (0, f"{out}\n", "")
    assert [str(file.relative_to(out)) for file in out.rglob("*") if file.is_file()] == [FILE]
    result, entries = real_result(), by_task((out / FILE).read_text())
    assert list(entries) == list(PAPER_TASKS) == list(result.scores)
    for key, entry in entries.items():
        score = result.scores[key]
        assert entry.value == pytest.approx(100 * score.correct / score.n, abs=0.005)
        assert (entry.dataset_revision, entry.date) == (SHA, "2026-03-04")
        assert (entry.source_url, entry.source_name) == (f"https://huggingface.co/datasets/{DATASET}", "dci-metrics")
        low, high = (100 * end for end in score.ci95)
        for part in ("paper mode", "dtype float32", f"{score.n} entries", f"data {FINGERPRINT[:12]}", "dci-metrics 0"):
            assert part in entry.notes
        notes = read_notes(entry.notes)
        assert notes.ci95 == pytest.approx((low, high), abs=0.005)
        assert (notes.dtype, notes.family) == ("float32", "clip")
    for strange in (None, "no-tools", 3, ["dtype"], "95 % interval 90.00 to 10.00", "95 % interval 1 to 999"):
        assert read_notes(strange) == eval_results.Notes(None, None, None)


def changed(**scores):
    """A result whose first test has other values than its outcomes give."""
    result = real_result()
    result.scores["all_scm"] = dataclasses.replace(result.scores["all_scm"], **scores)
    return result


def without(test):
    result = real_result()
    del result.scores[test], result.outcomes[test]
    return result


def with_photos(rename):
    result = real_result()
    result.entries = [(rename(image_id), key) for image_id, key in result.entries if rename(image_id)]
    return result


def passed_over(reason):
    result = real_result()
    for score in result.scores.values():
        score.left_out = [*score.left_out[1:], {"image_id": TEST_IDS[0], "reason": reason}]
    return result


LORA = {"adapter": "runs/lora/adapter", "adapter_revision": "sha256:" + "7" * 64}
REFUSED = {
    "the sample": (real_result(dataset={"id": "sample:scenes"}), "sample:scenes", "no benchmark"),
    "training data": (real_result(dataset={"split": "train"}), "sdci, train", "expected sdci, test"),
    "a test is missing": (without("pick5_neg"), "partial", "lacks Pick5-Neg", "--tests"),
    "some photos": (with_photos(lambda i: i if i != TEST_IDS[50] else ""), "partial", "107 photos", "108"),
    "other photos": (with_photos(lambda i: i if i != TEST_IDS[50] else "1"), "changed data", "108"),
    "a photo is missing": (passed_over("photo sa_1.jpg is missing"), "partial", "passed over", TEST_IDS[0]),
    "a photo is broken": (passed_over("sa_1.jpg: cannot be read as a photo (no `swaps`)"), "partial", "cannot be read"),
    "masked crops": (real_result(settings={"crop": "masked"}), "paper's settings", "settings.crop", "'box'"),
    "other groups": (real_result(settings={"group_size": 4}), "settings.group_size"),
    "read in pieces": (real_result(settings={"reading": "sentences-max"}), "settings.reading", "'sentences-max'"),
    "another limit": (real_result(settings={"max_tokens": 248}), "settings.max_tokens", "248, not none"),
    "retrieval": (
        real_result(settings={"mode": "retrieval"}, dataset={"config": "full"}),
        "is of retrieval",
        "--tests",
    ),
    "whole descriptions": (real_result(settings={"mode": "full"}), "is of whole descriptions", "--tests"),
    "another mode": (real_result(settings={"mode": "random"}), "settings.mode"),
    "resized on the device": (real_result(settings={"image_backend": "torch"}), "settings.image_backend", "'torch'"),
    "no number": (changed(value=math.nan), "no figure", "All SCM"),
    "no figure": (changed(value=None), "no figure", "All SCM"),
    "no interval": (changed(ci95=None), "no interval", "All SCM"),
    "another unit": (changed(unit="loss", higher_is_better=False), "'loss'"),
    "changed code": (real_result(environment={"dci_metrics_revision": "2" * 40 + "-dirty"}), "changed code", "-dirty"),
    "another model": (real_result("owner/other"), "is of owner/other, not of owner/clip"),
    "a model of the package": (real_result("sample:tiny-clip"), "sample:tiny-clip"),
    "an object": (real_result("HashEncoder"), "is of HashEncoder, not of owner/clip"),
    "an adapter over it": (real_result(model={"id": REPO, **LORA}), "adapter runs/lora/adapter", "adapter's repo"),
    "another adapter": (real_result(model={"adapter": "owner/lora"}), "of the adapter owner/lora", "adapter's repo"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_is_no_result_of_the_benchmark(why):
    result, *parts = REFUSED[why]
    said = refusal(result, REPO)
    assert said is not None
    assert "\n" not in said
    for part in parts:
        assert part in said


def test_what_is_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owner" / "lora").mkdir(parents=True)
    good = [
        real_result(),
        real_result("open_clip:hf-hub:owner/clip"),
        real_result("/home/someone/models/clip"),
        real_result("./clip"),
        real_result(model={"id": "openai/clip", "adapter": REPO, "adapter_revision": "4" * 40}),
        real_result(model={"id": "openai/clip", **LORA}),
        real_result(model={"id": "openai/clip", "adapter": "owner/lora"}),  # a folder here
        real_result(model={"id": "openai/clip", **LORA, "adapter": "clip-dci"}),  # a folder elsewhere
        real_result(model={"id": "openai/clip", **LORA, "adapter": "runs/lora"}),
        real_result(settings={"image_backend": None, "dtype": "bfloat16"}),
        real_result(environment={"dci_metrics": "0.2.0"}),
    ]
    assert [refusal(result, REPO) for result in good] == [None] * len(good)
    assert "OWNER/NAME" in refusal(real_result(), "clip")
    noted = eval_results.entries(good[-2], DATASET, SHA, "2026-01-01")[0].notes
    assert "dtype bfloat16" in noted


def test_the_papers_reasons_are_known():
    source = Path(dci.__file__).read_text(encoding="utf-8")
    body = source[source.index("def _reason_left_out") : source.index("def make_row")]
    reasons = [found[1] or found[2] for found in re.finditer(r'return (?:f"(.+)"|"(.+)")\n', body)]
    assert len(reasons) == 11
    for reason in reasons:
        filled = re.sub(r"\{'label'.*?\}", "caption", reason)
        filled = filled.replace("{key}", "m-12-sc").replace("{unnamed.mask_id}", "3").replace("{mask.mask_id}", "3")
        assert "{" not in filled
        assert eval_results.PAPER_REASON.fullmatch(filled), filled


def new_entries(value=2.5, date="2026-01-01"):
    return [EvalResultEntry(DATASET, key, value, SHA, date=date) for key in ("all_scm", "all_neg")]


def test_others_entries_keep_their_very_text():
    merged = merge(OTHERS, new_entries())
    kept = (
        OTHERS[: OTHERS.index("- dataset:\n    id: owner/dci")] + OTHERS[OTHERS.index("- dataset:\n    id: someone") :]
    )
    assert merged.startswith(kept)
    assert [(e.dataset_id, e.task_id, e.value) for e in parsed(merged)] == [
        ("cais/hle", "default", 20.9),
        ("someone/dci", "all_scm", 3),
        (DATASET, "all_scm", 2.5),
        (DATASET, "all_neg", 2.5),
    ]
    assert merge(merged, new_entries(date="2026-02-02")) is None
    assert parsed(merge(merged, new_entries(3.5)))[2].value == 3.5
    assert merge(None, new_entries()) == merge("\n", new_entries()) == eval_results.to_yaml(new_entries())


@pytest.mark.parametrize(
    "text",
    [
        "[{dataset: {id: a/b, task_id: c}, value: 1}, {dataset: {id: owner/dci, task_id: all_scm}, value: 2}]",
        "- &a\n  dataset: {id: owner/dci, task_id: all_neg}\n  value: 1\n- <<: *a\n  dataset: {id: a/b, task_id: c}\n",
        " - dataset: {id: a/b, task_id: c}\n   value: 1\n - dataset: {id: owner/dci, task_id: all_neg}\n   value: 1",
        "[]",
        "null",
        "- dataset: {id: a, task_id: c}\n  value: 1\n  notes: |\n   - n\n-\n  dataset: {id: e, task_id: c}\n  value: 2",
    ],
)
def test_files_written_in_other_ways_keep_their_data(text):
    expected = [item for item in yaml.safe_load(text) or [] if item["dataset"]["id"] != DATASET]
    assert yaml.safe_load(merge(text, new_entries())) == expected + eval_result_entries_to_yaml(new_entries())


def test_a_file_of_comments_keeps_them():
    text = "# Nobody has scored this model.\n"
    assert merge(text, new_entries()) == text + eval_results.to_yaml(new_entries())


@pytest.mark.parametrize(
    "text", ["- dataset: [", "- " + "[" * 5000, "value: 1", "- value: 1", "- 3", "- dataset: {id: a/b}\n  value: 1"]
)
def test_a_broken_file_is_left_alone(text):
    with pytest.raises(dci.DCIError, match=r"here\.yaml: cannot be read as a list of evaluation results .* mend it"):
        merge(text, new_entries(), "here.yaml")


@pytest.fixture
def there(here):  # noqa: F811
    """The double with the benchmark, and a model of somebody else's."""
    here.store.add_repo(DATASET, "dataset", {"fingerprints.json": json.dumps({"sdci/test": FINGERPRINT})})
    here.store.add_repo("else/clip", "model", {"README.md": "# A model", FILE: OTHERS})
    return here


def model_repo(there, name="else/clip"):
    return there.store.repos["model", name]


def test_a_result_becomes_a_pull_request_once(there, tmp_path, monkeypatch, capsys):
    path = save(tmp_path, name="else/clip")
    command_line = (path, "--model", "else/clip", "--dataset-repo", DATASET)
    code, out, err = submit(monkeypatch, capsys, *command_line)
    assert (code, err) == (0, ""), err
    assert out.strip() == f"{there.url}/else/clip/discussions/1"
    repo = model_repo(there)
    assert [(made.title, made.author) for made in repo.pull_requests] == [
        ("Add evaluation results on Densely Captioned Images", "owner")
    ]
    text = repo.files("refs/pr/1")[FILE].decode()
    assert text.startswith(OTHERS[: OTHERS.index("- dataset:\n    id: owner/dci")])
    assert list(by_task(text)) == list(PAPER_TASKS)
    commit = there.store.repos["dataset", DATASET].commits()[0].oid
    assert {entry.dataset_revision for entry in by_task(text).values()} == {commit}
    assert repo.files()[FILE].decode() == OTHERS
    assert repo.files("refs/pr/1")["README.md"] == b"# A model"
    # Again, on another day: while it waits, and when it is merged.
    os.utime(path, (0, 0))
    code, out, err = submit(monkeypatch, capsys, *command_line)
    assert (code, len(repo.pull_requests)) == (0, 1), err
    assert "discussions/1" in out
    assert "nothing was changed" in out
    repo.merge(1)
    assert submit(monkeypatch, capsys, *command_line)[1] == "else/clip has these results already; nothing was changed\n"
    # Another result replaces ours and nothing else.
    save(tmp_path, name="else/clip", seed=3)
    assert submit(monkeypatch, capsys, *command_line)[0] == 0
    text = repo.files("refs/pr/2")[FILE].decode()
    assert by_task(text)["all_scm"].value == eval_results.in_percent(real_result(seed=3).scores["all_scm"].value)
    assert len(parsed(text)) == 2 + len(PAPER_TASKS)


def test_data_must_be_the_benchmarks(there, tmp_path, monkeypatch, capsys):
    def refused(*parts, arguments=("--dataset-repo", DATASET), **changes):
        done = submit(
            monkeypatch, capsys, save(tmp_path, name="else/clip", **changes), "--model", "else/clip", *arguments
        )
        command.refused(done, *parts)

    refused("changed data", "ee" * 32, FINGERPRINT, dataset={"fingerprint": "ee" * 32})
    refused("--dataset-repo", arguments=())
    refused("dataset owner/none", "not on the Hub", arguments=("--dataset-repo", "owner/none"))
    refused("dataset owner/dci", arguments=("--dataset-repo", DATASET, "--dataset-revision", SHA))
    refused("no repo on the Hub", arguments=("--dataset-repo", "/data/dci"))
    there.store.add_repo("owner/bare", "dataset", {})
    refused("no fingerprints.json", "--dataset-revision", arguments=("--dataset-repo", "owner/bare"))
    refused(
        "commit of owner/dci", "--dataset-revision", arguments=("--dataset-repo", DATASET, "--dry-run", tmp_path / "x")
    )
    assert not (tmp_path / "x").exists()
    assert model_repo(there).pull_requests == []
    # With a commit, a repo that has no fingerprints is taken at the user's word.
    commit = there.store.repos["dataset", "owner/bare"].commits()[0].oid
    path = save(tmp_path, name="else/clip")
    where = ("--dataset-repo", "owner/bare", "--dataset-revision", commit)
    assert submit(monkeypatch, capsys, path, "--model", "else/clip", *where)[0] == 0


def test_a_loaded_dataset_tells_its_commit(there, tmp_path, monkeypatch, capsys):
    repo = there.store.repos["dataset", DATASET]
    old = repo.commits()[0]
    repo.commit("main", "new data", "", "owner", {})
    path = save(tmp_path, name="else/clip", dataset={"id": "dci", "revision": old.oid})
    assert submit(monkeypatch, capsys, path, "--model", "else/clip", "--dataset-repo", DATASET)[0] == 0
    entries = by_task(model_repo(there).files("refs/pr/1")[FILE].decode())
    assert {entry.dataset_revision for entry in entries.values()} == {old.oid}


def test_weights_must_be_those_that_were_pushed(there, tmp_path, monkeypatch, capsys):
    weights = b"some weights"
    (tmp_path / "pushed").mkdir()
    (tmp_path / "pushed" / "adapter_model.safetensors").write_bytes(weights)
    adapter = {"id": "openai/clip", "adapter": str(tmp_path / "pushed")}
    adapter["adapter_revision"] = f"sha256:{hashlib.sha256(weights).hexdigest()}"
    there.store.add_repo("owner/lora", "model", {"adapter_model.safetensors": weights})
    there.store.add_repo("owner/empty", "model", {})
    path = save(tmp_path, model=adapter)
    where = ("--dataset-repo", DATASET)
    for repo in ("else/clip", "owner/empty"):
        done = submit(monkeypatch, capsys, path, "--model", repo, *where)
        command.refused(done, "weights", repo, adapter["adapter_revision"])
    assert submit(monkeypatch, capsys, path, "--model", "owner/lora", *where)[0] == 0
    notes = parsed(model_repo(there, "owner/lora").files("refs/pr/1")[FILE])[0].notes
    assert "adapter over openai/clip" in notes


def test_what_the_hub_refuses(there, tmp_path, monkeypatch, capsys):
    path = save(tmp_path, name="else/none")
    where = ("--dataset-repo", DATASET)
    command.refused(
        submit(monkeypatch, capsys, path, "--model", "else/none", *where), "model else/none", "not on the Hub"
    )
    there.store.add_repo("else/none", "model", {FILE: "- dataset: ["})
    done = submit(monkeypatch, capsys, path, "--model", "else/none", *where)
    command.refused(done, f"else/none: {FILE}", "mend it in the repo first")
    assert model_repo(there, "else/none").files()[FILE] == b"- dataset: ["
    (tmp_path / "broken.json").write_text("{")
    command.refused(submit(monkeypatch, capsys, tmp_path / "broken.json", "--model", REPO, *where), "broken.json")
    old = tmp_path / "old.json"
    old.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 0}))
    command.refused(submit(monkeypatch, capsys, old, "--model", REPO, *where), "schema", "expected 1")


def test_results_written_by_eval_are_read(tmp_path):
    Result.load(save(tmp_path)).check()
