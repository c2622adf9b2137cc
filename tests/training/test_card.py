"""The model card of runs of any kind, without running them."""

import dataclasses
from pathlib import Path

import numpy as np
import yaml
from huggingface_hub import ModelCard
from PIL import Image
from test_comparison import make_result

from dci_metrics import comparison
from dci_metrics.training import card, load_config
from dci_metrics.training.trained import Trained


def result(name, chance):
    rng = np.random.default_rng(0)
    made = make_result(name, {"all_scm": (rng.random(40) < chance).astype(int), "base_neg": np.ones(10, int)})
    made.model |= {"revision": "abc", "parameters": 1_000_000}
    return made


LOG = [
    {"step": 1, "loss": 3.0, "clip_loss": 2.0, "negatives_loss": 1.0},
    {"step": 2, "eval_loss": 3.5, "eval_clip_loss": 2.5, "eval_negatives_loss": 1.0},
    {"step": 2, "eval_all_neg": 0.5},
]


def trained(folder, **changes):
    folder.mkdir()
    used = {split: {"photos": 3, "entries": 9, "left_out": {}, "fingerprint": "e" * 64} for split in ("train",)}
    run = Trained(
        folder=folder, config=load_config("sdci_p1"), model="openai/clip", dataset="me/dci", test_dataset="me/dci",
        before=result("openai/clip", 0.3), after=result("openai/clip", 0.9), log=LOG, used=used, trainable=1234,
        best_step=2, seconds=90.0, processes=2, hardware="a GPU", auto_class="AutoModel", resumed=False,
    )  # fmt: skip
    return dataclasses.replace(run, **changes)


def written(run):
    card.write(run)
    text = (run.folder / "README.md").read_text()
    yaml.safe_load(text.split("---")[1])
    return ModelCard(text).data, text


def test_figures_are_those_of_the_results(tmp_path):
    run = trained(tmp_path / "run")
    _, text = written(run)
    found = comparison.compare(run.before, run.after).tests["all_scm"]
    row = next(line for line in text.splitlines() if line.startswith("| All SCM |"))
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == [f"{100 * found.a:.2f}", f"{100 * found.b:.2f}"]
    assert cells[3] == f"{100 * found.difference:+.2f}"
    assert cells[4] == " to ".join(f"{100 * end:+.2f}" for end in found.ci95)
    assert cells[5:] == [comparison.p_value(found.p), "40"]
    assert "| hardware | a GPU; 2 processes |" in text
    assert "| time | 1.5 minutes, 2 steps in all |" in text
    assert "| trained weights | 1,234 of 1,000,000 |" in text
    assert "Changed of the preset" not in text
    for name in ("loss", "scores"):
        assert Image.open(run.folder / "plots" / f"{name}.png").width == 1200


def test_what_is_of_the_hub_is_named_in_the_yaml(tmp_path, monkeypatch):
    monkeypatch.setattr(ModelCard, "load", lambda *_, **__: ModelCard("---\nlicense: mit\n---\n"))
    data, text = written(trained(tmp_path / "run"))
    assert (data.base_model, data.license, data.datasets) == ("openai/clip", "mit", ["me/dci"])
    assert (data.library_name, data.pipeline_tag) == ("peft", "zero-shot-image-classification")
    assert "lora" in data.tags
    assert "The base model is under mit. DCI's captions are under [CC-BY-NC 4.0]" in text


def test_a_local_model_and_folder_are_not(tmp_path):
    for name in ("clip", "data"):
        (tmp_path / name).mkdir()
    model, dataset = str(tmp_path / "clip"), str(tmp_path / "data")
    data, text = written(
        trained(tmp_path / "run", model=model, dataset=dataset, config=load_config("sdci_p1", lora=False))
    )
    assert (data.base_model, data.license, data.datasets) == (None, None, None)
    assert data.library_name == "transformers"
    assert "The base model's own licence holds" in text
    assert 'AutoModel.from_pretrained("run")' in text
    assert "dci eval run --dataset me/dci" in text
    assert "peft import" not in text


def test_a_licence_is_carried_over_and_never_guessed(tmp_path):
    path = tmp_path / "README.md"
    assert card.license_of(str(tmp_path)) == {}
    for text, expected in (
        ("---\nlicense: mit\n---\n", {"license": "mit"}),
        ("---\nlicense: other\nlicense_name: faipl\nlicense_link: LICENSE\n---\n",
         {"license": "other", "license_name": "faipl", "license_link": "LICENSE"}),
        ("# No YAML\n", {}),
        ("---\ntags: []\n---\n", {}),
        ("---\na: [\n---\n", {}),
        ("---\n- a list\n---\n", {}),
        (b"\xff\xfe\x00", {}),
    ):  # fmt: skip
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        assert card.license_of(str(tmp_path)) == expected
    # Neither on this machine nor to be downloaded.
    assert card.license_of("nobody/has-this") == {}
    assert card.license_of("no id at all") == {}
    assert card.license_of("sample:tiny-clip") == {"license": "apache-2.0"}


def test_changed_fields_are_listed(tmp_path):
    config = load_config("sdci_p1", epochs=3, rank=4, target_modules=["q_proj", "v_proj"])
    _, text = written(trained(tmp_path / "run", config=config))
    table = text.split("Changed of the preset:")[1].split("## Scores")[0].strip().splitlines()[2:]
    assert [line.split("|")[1].strip() for line in table] == ["`epochs`", "`rank`", "`target_modules`"]
    assert "| `epochs` | 10 | 3 |" in text
    assert table[2].endswith("| q_proj, v_proj |")
    block = text.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "c.yaml"
    path.write_text(block)
    assert load_config(path) == config


def test_a_preset_of_the_users_own(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("based_on: sdci_p1\nepochs: 1\n")
    _, text = written(trained(tmp_path / "run", config=load_config(path)))
    assert "preset `mine`.\n" in text
    assert "Changed of the preset" not in text
    assert "epochs: 1\n" in text


def test_names_that_need_quotes(tmp_path):
    run = trained(tmp_path / "my 'run'", dataset="coco:a", used={"train": trained(tmp_path / "b").used["train"] | {
        "left_out": {"entries: a|b": 2}}}, resumed=True)  # fmt: skip
    _, text = written(run)
    assert """PeftModel.from_pretrained(AutoModel.from_pretrained(base), "my 'run'")""" in text
    assert """--adapter 'my '"'"'run'"'"'' --dataset""" in text
    assert r"| left out of train | 2 × entries: a\|b |" in text
    assert "1.5 minutes since the run was resumed" in text
    assert "captions and photos of coco are under their own licences" in text


def test_peft_s_own_card_is_replaced(tmp_path):
    run = trained(tmp_path / "run")
    (run.folder / "README.md").write_text("PEFT's")
    card.write(run)
    assert "PEFT's" not in Path(run.folder / "README.md").read_text()
