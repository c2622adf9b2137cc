"""`dci push model`: what a run made, as others load it, with nothing of the machine it ran on."""

import json
import re
import shutil
from pathlib import Path

import command
import pytest
import tiny_models
import torch
import yaml
from hub_double import here, hub  # noqa: F401
from huggingface_hub import ModelCard, parse_eval_result_entries
from real_result import real_result
from release_maker import mask_entry, photo, photo_annotation, write_release
from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import AutoModel, AutoProcessor

import dci_metrics
from dci_metrics.hub import model_files, model_repo
from dci_metrics.results import Result
from dci_metrics.training import train

SMALL = {"epochs": 1, "evals_per_epoch": 1, "batch_size": 4, "num_workers": 0, "progress": False}
LICENCE = "---\nlicense: other\nlicense_name: faipl\nlicense_link: https://example.com/faipl\n---\n"
ADAPTER = {"adapter_config.json", "adapter_model.safetensors"}
WHOLE = {"config.json", "model.safetensors"}
TOLD = {
    "README.md", "logs/events.out.tfevents.0.dci", "plots/loss.png", "plots/scores.png", "preprocessor_config.json",
    "result_after.json", "result_before.json", "tokenizer.json", "tokenizer_config.json", "train_config.yaml",
    "training_log.json",
}  # fmt: skip
RUNS = {
    "adapter": ("sample:tiny-clip", {"export_merged": True}),
    "local": ("secret-models/clip", {"export_merged": True}),
    "whole": ("secret-models/clip", {"lora": False}),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Where everything of the user's lies: nothing that is pushed may tell of it."""
    folder = tmp_path_factory.mktemp("somebody")
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", masks=[mask_entry(0)]) for i in range(6)}
    names = list(notes)
    splits = {"train": names[:2], "valid": names[2:4], "test": names[4:]}
    write_release(folder / "secret-data" / "release", notes, {f"sa_{i}.jpg": photo() for i in range(6)}, splits)
    tiny_models.save_clip(folder / "secret-models" / "clip")
    (folder / "secret-models" / "clip" / "README.md").write_text(LICENCE)
    return folder


@pytest.fixture(scope="module")
def runs(home):
    """Finished runs, each in its folder; made when one is asked for."""
    known = {}

    def run(name):
        if name not in known:
            model, options = RUNS[name]
            model = model if model.startswith("sample:") else str(home / model)
            known[name] = home / "runs" / name
            train(model, str(home / "secret-data" / "release"), known[name], **SMALL | options)
        return known[name]

    return run


@pytest.fixture
def copied(runs, tmp_path):
    """A run that a test may change."""
    return shutil.copytree(runs("adapter"), tmp_path / "copied")


def pushed(folder, out, repo="me/clip-dci", **options):
    report = model_repo.push(folder, repo, dry_run=out, progress=False, **options)
    lines = report.splitlines()
    assert lines[0] == str(out)
    return lines[1:], {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}


def assert_nothing_leaks(out, home):
    for path in (path for path in out.rglob("*") if path.is_file()):
        for word in (str(home.parent), "secret-", str(Path.home())):
            assert not re.search(rb"(?<!\w)" + re.escape(word).encode(), path.read_bytes()), (path, word)


def test_an_adapter(runs, home, tmp_path, monkeypatch, capsys):
    folder, out = runs("adapter"), tmp_path / "out"
    for name in ("report.html", "examples.parquet", ".env"):
        (folder / name).write_text("the user's own")
    done = command.run(monkeypatch, capsys, "push", "model", folder, "me/clip-dci", "--dry-run", out)
    for name in ("report.html", "examples.parquet", ".env"):
        (folder / name).unlink()
    assert done[0] == 0, done
    lines = done[1].splitlines()
    assert lines[0] == str(out)
    assert re.fullmatch(
        r"Without \.eval_results/dci\.yaml: result_after\.json is partial: it has 2 photos; .+", lines[1]
    )
    assert len(lines) == 2
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    assert files == TOLD | ADAPTER
    assert_nothing_leaks(out, home)
    for name in ("adapter_model.safetensors", "tokenizer.json", "plots/loss.png", "training_log.json"):
        assert (out / name).read_bytes() == (folder / name).read_bytes()
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "sample:tiny-clip"
    config = yaml.safe_load((out / "train_config.yaml").read_text())
    assert (config["model"], config["dataset"], config["epochs"]) == ("sample:tiny-clip", "release", 1)
    card = ModelCard.load(out / "README.md")
    assert (card.data.library_name, card.data.license) == ("peft", "apache-2.0")
    assert "\n# clip-dci\n" in card.text
    assert 'sample.model_path("sample:tiny-clip")' in card.text
    assert 'PeftModel.from_pretrained(AutoModel.from_pretrained(base), "me/clip-dci")' in card.text
    assert "dci eval sample:tiny-clip --adapter me/clip-dci --dataset release" in card.text
    for name in re.findall(r"\]\((plots/[^)]+)\)", card.text):
        assert (out / name).is_file()
    result = Result.load(out / "result_after.json")
    assert (result.model["adapter"], result.dataset["id"]) == ("me/clip-dci", "release")
    assert result.outcomes == Result.load(folder / "result_after.json").outcomes


def test_it_loads_and_gives_its_scores_again(runs, home, tmp_path, monkeypatch, capsys):
    pushed(runs("adapter"), tmp_path / "out")
    done = command.run(
        monkeypatch, capsys, "eval", "sample:tiny-clip", "--adapter", tmp_path / "out", "--no-cache",
        "--dataset", home / "secret-data" / "release", "--out", tmp_path / "again.json",
    )  # fmt: skip
    assert done[0] == 0, done
    again, after = Result.load(tmp_path / "again.json"), Result.load(tmp_path / "out" / "result_after.json")
    assert again.outcomes == after.outcomes
    assert again.model["adapter_revision"] == after.model["adapter_revision"]


@pytest.mark.parametrize(("name", "options"), [("local", {"merged": True}), ("whole", {})])
def test_whole_weights_over_a_model_of_this_machine(runs, home, tmp_path, name, options):
    folder, out = runs(name), tmp_path / "out"
    said, files = pushed(folder, out, **options)
    assert files == TOLD | WHOLE
    assert len(said) == 1
    assert said[0].startswith("Without .eval_results/dci.yaml: result_after.json is ")
    assert_nothing_leaks(out, home)
    card = ModelCard.load(out / "README.md")
    assert (card.data.library_name, card.data.base_model) == ("transformers", None)
    assert "lora" not in card.data.tags
    assert (card.data.license, card.data.license_name) == ("other", "faipl")
    assert card.data.license_link == "https://example.com/faipl"
    assert 'AutoModel.from_pretrained("me/clip-dci")' in card.text
    assert "dci eval me/clip-dci --dataset release" in card.text
    assert "peft import" not in card.text
    assert card.text.count("## Use") == card.text.count("## Training") == 1
    expected = load_file((folder / "merged" if options else folder) / "model.safetensors")
    found = AutoModel.from_pretrained(out).state_dict()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert AutoProcessor.from_pretrained(out, backend="pil").tokenizer("a thing")["input_ids"]
    found = dci_metrics.evaluate(str(out), str(home / "secret-data" / "release"), progress=False, cache=False)
    assert found.outcomes == Result.load(folder / "result_after.json").outcomes
    assert Result.load(out / "result_before.json").model["id"] == "clip"


def test_curves_are_kept_and_arguments_are_not(runs, tmp_path):
    folder, out = runs("adapter"), tmp_path / "out"
    pushed(folder, out)
    curves = []
    for logs in (folder / "logs", out / "logs"):
        read = EventAccumulator(str(logs))
        read.Reload()
        curves.append({tag: read.Scalars(tag) for tag in read.Tags()["scalars"]})
    assert curves[0] == curves[1]
    assert {"train/loss", "eval/loss"} <= set(curves[1])
    (written,) = (out / "logs").iterdir()
    assert b"output_dir" not in written.read_bytes()


def on_the_hub(folder, **changes):
    """Make a run look like one over a model of the Hub, scored on DCI of the Hub."""
    base, owner = "openai/clip-vit-base-patch32", "owner/dci"
    model = {"id": base, "adapter": str(folder), "adapter_revision": "sha256:" + "3" * 64, "adapter_base": base}
    dataset = {"id": owner, "revision": "a" * 40} | changes
    for name, of in (("result_before.json", {}), ("result_after.json", model)):
        real_result(base, model=of, dataset=dataset).save(folder / name, force=True)
    config = yaml.safe_load((folder / "train_config.yaml").read_text())
    names = {"model": base, "dataset": dataset["id"], "test_dataset": dataset["id"]}
    (folder / "train_config.yaml").write_text(yaml.safe_dump(config | names))
    card = ModelCard.load(folder / "README.md")
    card.data.base_model = base
    (folder / "README.md").write_text(str(card))
    return base


def test_results_for_the_leaderboard(copied, tmp_path):
    base = on_the_hub(copied)
    said, files = pushed(copied, tmp_path / "out")
    assert (said, files) == ([], TOLD | ADAPTER | {".eval_results/dci.yaml"})
    entries = parse_eval_result_entries(yaml.safe_load((tmp_path / "out" / ".eval_results" / "dci.yaml").read_text()))
    after = Result.load(copied / "result_after.json")
    assert {entry.task_id: entry.value for entry in entries} == {
        key: pytest.approx(100 * value, abs=0.005) for key, value in after.values().items()
    }
    assert {(entry.dataset_id, entry.dataset_revision) for entry in entries} == {("owner/dci", "a" * 40)}
    assert all("adapter over openai/clip-vit-base-patch32" in entry.notes for entry in entries)
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.base_model == base
    assert f'base = "{base}"' in card.text
    assert json.loads((tmp_path / "out" / "adapter_config.json").read_text())["base_model_name_or_path"] == base


@pytest.mark.parametrize("dataset", [{"id": "/data/secret/dci", "revision": None}, {"revision": "main"}])
def test_results_on_data_that_has_no_commit(copied, tmp_path, dataset):
    on_the_hub(copied, **dataset)
    said, files = pushed(copied, tmp_path / "out")
    assert ".eval_results/dci.yaml" not in files
    (line,) = said
    assert line.startswith("Without .eval_results/dci.yaml: result_after.json is of ")
    assert f"dci submit {copied}/result_after.json --model me/clip-dci --dataset-repo OWNER/dci" in line


@pytest.mark.usefixtures("here")
def test_over_http_twice_and_as_another_kind(copied, hub):  # noqa: F811
    on_the_hub(copied)
    theirs = "- dataset: {id: other/bench, task_id: x}\n  value: 1.5\n"
    hub.store.add_repo("owner/clip", "model", {".eval_results/dci.yaml": theirs, "notes.md": "theirs"})
    repo = hub.store.repos["model", "owner/clip"]

    def push(**options):
        return model_repo.push(copied, "owner/clip", progress=False, **options).splitlines()

    (address,) = push()
    assert address.startswith(f"{hub.url}/owner/clip/commit/")
    files = repo.files()
    assert TOLD | ADAPTER | {".eval_results/dci.yaml", "notes.md"} <= set(files)
    entries = yaml.safe_load(files[".eval_results/dci.yaml"])
    assert [entry["dataset"]["id"] for entry in entries] == ["other/bench"] + ["owner/dci"] * 7
    commits = len(repo.commits())
    (address,) = push()
    assert address.endswith("(nothing to change: all of it is there)")
    assert len(repo.commits()) == commits
    # An adapter that was left there would be loaded over the merged model.
    address, why = push(merged=True)
    assert "of the adapter, not of the merged weights" in why
    assert set(repo.files()) >= WHOLE | {"notes.md"}
    assert not set(repo.files()) & ADAPTER
    (address,) = push(create_pr=True)
    assert address == f"{hub.url}/owner/clip/discussions/1"
    assert set(repo.files("refs/pr/1")) >= ADAPTER
    assert not set(repo.files("refs/pr/1")) & WHOLE


def test_what_is_refused(runs, copied, home, tmp_path, monkeypatch, capsys):
    def refused(folder, *parts, options=()):
        arguments = ("push", "model", folder, "me/clip-dci", "--dry-run", tmp_path / "out", *options)
        command.refused(command.run(monkeypatch, capsys, *arguments), *parts)
        assert not (tmp_path / "out").exists()

    refused(tmp_path / "none", "none: is no folder")
    refused(home / "secret-models", "has no train_config.yaml; expected a folder that `dci train` wrote")
    refused(
        runs("local"), "the adapter is over ", "secret-models/clip, a folder of this machine, so nobody else",
        "could load it; push the whole model with --merged",
    )  # fmt: skip
    refused(runs("whole"), "all weights were trained", "leave --merged out", options=["--merged"])
    several = tmp_path / "several"
    shutil.copytree(copied, several / "seed-0")
    refused(several, "holds the runs of several seeds; push one of them, such as ", "several/seed-0")
    shutil.rmtree(copied / "merged")
    refused(copied, "has no merged/; `dci train --export-merged` writes it", options=["--merged"])
    text = (copied / "README.md").read_text()
    (copied / "README.md").write_text(text + f"\nLogs are in {Path.home()}/logs.\n")
    refused(copied, "README.md: names a folder of this machine, in 'Logs are in ", "remove it from there")
    (copied / "README.md").write_text("---\na: [\n---\n")
    refused(copied, "README.md cannot be read")
    (copied / "README.md").write_text(text)
    (copied / "train_config.yaml").write_text("epochs: 3\n")
    refused(copied, "train_config.yaml or README.md cannot be read")
    (copied / "checkpoints").mkdir()
    refused(copied, "holds a run that is not finished; go on with `dci train --resume`")


def test_a_home_that_is_the_root(tmp_path, monkeypatch):
    """As in containers whose user has no home: a slash alone is no folder of anybody's."""
    (tmp_path / "README.md").write_text("Right: 3 / 4.\n")
    monkeypatch.setenv("HOME", "/")
    monkeypatch.chdir("/")
    model_files.refuse_paths(tmp_path, Path("/run"))


def test_a_licence_is_not_guessed_and_ones_own_words_stay(copied, tmp_path):
    card = ModelCard.load(copied / "README.md")
    del card.data.license
    text = re.sub(r"## Use\n.*?(?=\n## )", "## Use\n\nAs any adapter.\n", str(card), flags=re.DOTALL)
    (copied / "README.md").write_text(text)
    said, _ = pushed(copied, tmp_path / "out")
    assert said[1] == "Without a licence: the base model's card names none; name it in README.md"
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.license is None
    assert "## Use\n\nAs any adapter.\n" in card.text
