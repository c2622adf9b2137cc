"""`dci train`: the command, the folder that it writes, its card, and every bad input in one line."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import command
import pytest
import tiny_models
import torch
import yaml
from encoders import families
from huggingface_hub import ModelCard
from PIL import Image
from safetensors.torch import load_file
from training import runs
from transformers import AutoProcessor

import dci_metrics
from dci import DCIError
from dci_metrics import encoders, sample
from dci_metrics.results import Result
from dci_metrics.training import load_config, train

SMALL = {"max_photos": 12, "epochs": 1, "evals_per_epoch": 1, "batch_size": 16, "num_workers": 0}
FLAGS = ["--max-photos", "12", "--epochs", "1", "--evals-per-epoch", "1", "--batch-size", "16", "--num-workers", "0"]
ROOT = "densely_captioned_images"
FILES = {"README.md", "adapter_config.json", "adapter_model.safetensors", "logs", "merged", "plots",
         "preprocessor_config.json", "result_after.json", "result_before.json", "tokenizer.json",
         "tokenizer_config.json", "train_config.yaml", "training_log.json"}  # fmt: skip


def dci(*arguments, **options):
    command = [sys.executable, "-m", "dci_metrics", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, **options)


def dci_train(out, *arguments, dataset="sample:scenes"):
    return dci("train", "--model", "sample:tiny-clip", "--dataset", dataset, "--output-dir", out, *arguments)


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    """The first scenes of each split: as much to train on as `SMALL` takes, and little to score."""
    scenes = sample.release_folder("sample:scenes") / ROOT
    folder = tmp_path_factory.mktemp("few")
    (folder / ROOT).mkdir()
    for name in ("annotations", "complete", "photos"):
        (folder / ROOT / name).symlink_to(scenes / name)
    splits = json.loads((scenes / "splits.json").read_bytes())
    counts = {"train": 12, "valid": 3, "test": 4}
    (folder / ROOT / "splits.json").write_text(json.dumps({key: splits[key][:n] for key, n in counts.items()}))
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A short run, by the command."""
    folder = tmp_path_factory.mktemp("runs") / "tiny-clip-sdci"
    done = dci_train(folder, *FLAGS, "--export-merged", "--learning-rate", "0.01")
    assert done.returncode == 0, done.stderr
    return folder, done


def read(folder, name):
    return Result.load(folder / name)


def test_the_folder_is_whole(made):
    folder, done = made
    assert {path.name for path in folder.iterdir()} == FILES
    assert done.stdout.count("loss on validation") == 1
    assert "All Neg" in done.stdout
    assert done.stdout.endswith(f"Written: {folder}\n")
    # Nothing of the libraries' own is in between: this is a log.
    assert "Warning" not in done.stderr, done.stderr
    assert "it/s" not in done.stderr


def test_the_adapter_gives_its_scores_again(made, tmp_path, monkeypatch, capsys):
    folder, _ = made
    code, _, err = command.run(monkeypatch, capsys, "eval", "sample:tiny-clip", "--adapter", folder, "--dataset",
                               "sample:scenes", "--no-cache", "--out", tmp_path / "again.json")  # fmt: skip
    assert code == 0, err
    after = read(folder, "result_after.json")
    assert read(tmp_path, "again.json").outcomes == after.outcomes
    before = dci_metrics.evaluate("sample:tiny-clip", "sample:scenes", progress=False)
    assert read(folder, "result_before.json").outcomes == before.outcomes != after.outcomes
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "sample:tiny-clip"
    # bias="lora_only": the biases of the adapted layers are trained too.
    assert any(name.endswith(".bias") for name in load_file(folder / "adapter_model.safetensors"))


def test_the_merged_model_is_the_same(made):
    folder, _ = made
    one = encoders.load("sample:tiny-clip", adapter=folder, device="cpu")
    other = encoders.load(folder / "merged", device="cpu")
    image = [Image.new("RGB", (90, 70), (200, 30, 90))]
    for way, given in (("encode_images", image), ("encode_texts", ["a red boat", "two trees"])):
        torch.testing.assert_close(getattr(one, way)(given), getattr(other, way)(given), atol=1e-5, rtol=0)


def test_the_configuration_is_written_resolved(made, tmp_path):
    folder, _ = made
    found = yaml.safe_load((folder / "train_config.yaml").read_text())
    assert (found["model"], found["dataset"], found["test_dataset"]) == ("sample:tiny-clip", *["sample:scenes"] * 2)
    assert load_config(folder / "train_config.yaml") == load_config("sdci_p1", **SMALL, learning_rate=0.01)
    log = json.loads((folder / "training_log.json").read_text())
    adapter = load_file(folder / "adapter_model.safetensors")  # it is exported merged as well
    assert log["trainable"] == sum(weight.numel() for weight in adapter.values())
    assert log["used"]["train"]["photos"] == 12
    assert log["used"]["train"]["entries"] > 60
    assert {"torch", "transformers", "accelerate", "peft"} <= set(log["environment"])
    assert log["used"]["validation"]["entries"] > 100  # all of them
    assert any("eval_all_neg" in row for row in log["log"])


def test_the_card_says_what_ran(made):
    folder, _ = made
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "peft"
    assert card.data.license == "apache-2.0"  # of the base model's card
    after = read(folder, "result_after.json").scores["all_neg"]
    (line,) = [line for line in card.text.splitlines() if line.startswith("| All Neg |")]
    assert f"| {100 * after.value:.2f} ({100 * after.ci95[0]:.2f} – {100 * after.ci95[1]:.2f}) |" in line
    assert "dci eval sample:tiny-clip --adapter tiny-clip-sdci --dataset sample:scenes" in card.text
    assert "learning_rate: 0.01" in card.text
    assert "| `learning_rate` | 0.001 | 0.01 |" in card.text
    log = json.loads((folder / "training_log.json").read_text())
    for part in (log["used"]["train"]["fingerprint"], read(folder, "result_after.json").dataset["fingerprint"]):
        assert f"fingerprint `{part}`" in card.text
    assert all(value != "None" for value in card.text.split())
    assert str(Path.cwd()) not in card.text
    for name in ("loss", "scores"):
        assert f"plots/{name}.png" in card.text
        assert Image.open(folder / "plots" / f"{name}.png").size[0] > 600


def test_its_python_example_runs(made, monkeypatch):
    folder, _ = made
    code = (folder / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(folder.parent)
    names = {}
    exec(code, names)
    assert type(names["model"]).__name__ == "PeftModel"
    assert names["processor"].tokenizer is not None


def test_a_folder_in_use_is_refused(made, monkeypatch, capsys):
    folder, _ = made
    before = (folder / "README.md").read_bytes()
    flags = ["--model", "sample:tiny-clip", "--dataset", "sample:scenes", "--output-dir", folder]
    done = command.run(monkeypatch, capsys, "train", *flags, *FLAGS)
    message = f"{folder}: is not empty; choose another folder, or remove what is in it with --force\n"
    assert done == (2, "", f"dci: error: {message}")
    seeds = command.run(monkeypatch, capsys, "train", *flags, "--seeds", "0,x")
    command.refused(seeds, "seeds: expected some different whole numbers, got 0, x")
    command.refused(command.run(monkeypatch, capsys, "train", *flags, "--seeds", "0", "--seed", "1"), "give one of")
    assert (folder / "README.md").read_bytes() == before


def test_all_weights(tmp_path):
    found = train("sample:tiny-clip", "sample:scenes", tmp_path / "full", lora=False, learning_rate=1e-4,
                  progress=False, micro_batch_size=6, metric_for_best_model="base_scm", **SMALL)  # fmt: skip
    assert found.after.model["id"] == str(tmp_path / "full")
    assert found.trainable == found.before.model["parameters"]
    assert type(AutoProcessor.from_pretrained(tmp_path / "full")).__name__ == "CLIPProcessor"
    names = {path.name for path in (tmp_path / "full").iterdir()}
    assert {"model.safetensors", "config.json", "tokenizer.json"} <= names
    assert "adapter_config.json" not in names
    again = dci_metrics.evaluate(str(tmp_path / "full"), "sample:scenes", progress=False, cache=False)
    assert again.outcomes == found.after.outcomes
    assert any("eval_base_scm" in row for row in found.log)
    assert ModelCard.load(tmp_path / "full" / "README.md").data.library_name == "transformers"


def test_two_processes_train_as_one(few, tmp_path):
    flags = [*FLAGS, "--lora-dropout", "0", "--device", "cpu"]
    for count, name in ((1, "one"), (2, "two")):
        done = dci_train(tmp_path / name, *flags, "--num-processes", count, dataset=few)
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("Written") == 1
    one, two = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("one", "two"))
    # Adam turns rounding of gradients that are zero into steps, so not all are the same to the last digit.
    near = [torch.isclose(weight, two[name], atol=1e-4).float().mean() for name, weight in one.items()]
    assert sum(near) / len(near) > 0.95
    logs = [json.loads((tmp_path / name / "training_log.json").read_text())["log"] for name in ("one", "two")]
    losses = [[row["loss"] for row in log if "loss" in row] for log in logs]
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_interrupted_run_goes_on(processes, few, tmp_path):
    folder = tmp_path / "run"
    shared = ["--num-processes", str(processes), "--device", "cpu"]
    arguments = [sys.executable, "-m", "dci_metrics", "train", "--model", "sample:tiny-clip", "--dataset",
               str(few), "--output-dir", str(folder), *FLAGS, "--epochs", "3", *shared]  # fmt: skip
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 240
        while not list(folder.glob("checkpoints/checkpoint-*/trainer_state.json")) and time.monotonic() < until:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "go on with --resume" in out
    assert "Traceback" not in err
    refused = message("sample:tiny-clip", few, folder, **SMALL)
    assert "holds an interrupted run; go on with --resume, or start anew with --force" in refused
    other = message("sample:tiny-clip", few, folder, resume=True, **SMALL)
    assert "the run was begun with `epochs` 3, and is now to go on with 1" in other
    # What does not change the training may be other than before.
    resumed = dci_train(folder, *FLAGS, "--epochs", "3", "--resume", "--micro-batch-size", "8", *shared, dataset=few)
    assert resumed.returncode == 0, resumed.stderr
    assert not (folder / "checkpoints").exists()
    assert "minutes since the run was resumed, 15 steps in all" in (folder / "README.md").read_text()


# Bad input


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, (model, processor) in {"clip": tiny_models.clip(seed=2), "blip": families.blip_retrieval()}.items():
        model.save_pretrained(folder / name)
        processor.save_pretrained(folder / name)
    return folder


def message(*arguments, **options):
    with pytest.raises(DCIError) as raised:
        train(*arguments, progress=False, **options)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_what_does_not_fit_is_told_before_any_work(models, tmp_path, monkeypatch):
    monkeypatch.setattr("dci_metrics.training.run.evaluate", lambda *_, **__: pytest.fail("it has begun"))
    tiny, out, rows = "sample:tiny-clip", tmp_path / "out", [runs.row(i) for i in range(3)]
    assert "no preset 'p1': expected one of sdci_first" in message(tiny, "sample:scenes", out, preset="p1")
    found = message(tiny, "sample:scenes", out, target_modules=["query"])
    assert "has no layer query for the LoRA adapter" in found
    assert "is no folder here, and cannot be loaded" in message("no/such-model", "sample:scenes", out)
    assert "has no `logit_scale`" in message(str(models / "blip"), "sample:scenes", out, target_modules=["qkv"])
    for row in rows:
        row["entries"] = [entry | {"negatives": []} for entry in row["entries"]]
    assert "nothing of 'train' can be trained on: 6 × entries: no negatives (swaps)" in message(tiny, rows, out)
    assert "entries: fewer captions than 9" in message(tiny, "sample:scenes", out, captions="pick9")
    assert "choose a GPU with CUDA_VISIBLE_DEVICES" in message(tiny, "sample:scenes", out, device="cuda:1")
    coco = tmp_path / "coco"
    assert str(coco) in message(tiny, f"coco:{coco}", out)
    assert "those of open_clip are only scored" in message("open_clip:ViT-B-32/openai", "sample:scenes", out)
    assert "has no split with the benchmark's tests" in message(tiny, "sample:scenes", out, test_dataset=f"coco:{coco}")
    unknown = tmp_path / "mine.yaml"
    unknown.write_text("based_on: sdci_p1\nlearn_rate: 1\n")
    assert "mine.yaml: no field `learn_rate`" in message(tiny, "sample:scenes", out, preset=unknown)
    assert "nowhere: is no folder here" in message(tiny, "sample:scenes", out, test_dataset="nowhere")
    assert not out.exists()
    assert "dtype float16" in message(tiny, "sample:scenes", out, dtype="float16", device="cpu")


def test_a_generative_model_is_refused(tmp_path):
    from encoders import vlms

    vlms.save("llava", tmp_path / "llava")
    assert "as contrastive" in message(str(tmp_path / "llava"), "sample:scenes", tmp_path / "out")


def test_the_sample_has_nothing_of_this_machine(made):
    folder, _ = made
    home = str(sample.model_path("sample:tiny-clip"))
    for path in folder.glob("*.*"):
        assert home.encode() not in path.read_bytes(), path.name


def test_what_the_data_has_no_entries_for_is_told_before_training(tmp_path, monkeypatch):
    monkeypatch.setattr("dci_metrics.training.trainer.ContrastiveTrainer.train", lambda *_, **__: pytest.fail("begun"))
    few, tiny, out = [runs.row(i, captions=3) for i in range(4)], "sample:tiny-clip", tmp_path / "out"
    options = {"test_dataset": "sample:scenes", "num_workers": 0}
    found = message(tiny, few, out, metric_for_best_model="pick5_scm", **options)
    assert "`validation` has no entry for pick5_scm; choose loss" in found
    for row in few:
        row["entries"] = [entry | {"negatives": []} for entry in row["entries"]]
    assert "base has no negative for all_neg" in message(tiny, few, out, negatives_weight=0.0, **options)
    assert not out.exists()


def test_without_the_extra(tmp_path):
    code = (
        "import sys, importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'matplotlib' else find(name, *a)\n"
        "sys.modules['matplotlib'] = None; from dci_metrics.cli import main; main()"
    )
    flags = ["train", "--model", "sample:tiny-clip", "--dataset", "sample:scenes", "--output-dir", str(tmp_path / "o")]
    done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "dci: error: training needs matplotlib: pip install 'dci-metrics[train]'\n"
