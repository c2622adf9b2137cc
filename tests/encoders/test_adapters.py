"""Adapters through the package, against PEFT used directly and against what PEFT 0.4 itself computed."""

import copy
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import peft
import pytest
import tiny_models
import torch
from awkward_release import noise_photo
from encoders import peft_0_4
from encoders.families import FAMILIES
from encoders.inputs import IMAGES, TEXTS, unit
from encoders.peft_0_4 import PAPER, scatter
from release_maker import photo_annotation, write_release
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertModel

import dci
import dci_metrics
from dci_metrics import cli, encoders
from dci_metrics.encoders import adapters

OLD = Path(__file__).parent / "data" / "peft-0.4"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save_clip(tmp_path_factory.mktemp("models") / "clip", seed=3)


@pytest.fixture(scope="module")
def base(folder):
    return encoders.load(folder, device="cpu")


def save_adapter(model, out, rank=2, seed=1, **changes):
    """An adapter as training with today's PEFT would leave it."""
    adapted = peft.get_peft_model(copy.deepcopy(model), peft.LoraConfig(r=rank, **PAPER | changes))
    scatter({name: value for name, value in adapted.named_parameters() if value.requires_grad}, seed)
    adapted.save_pretrained(out)
    return out


def as_peft_0_4(adapter, out):
    """The same as PEFT 0.4 wrote it."""
    out.mkdir()
    config = json.loads((adapter / "adapter_config.json").read_text())
    old = json.loads((OLD / "adapter_config.json").read_text())
    (out / "adapter_config.json").write_text(json.dumps(old | {key: config[key] for key in ("r", "target_modules")}))
    weights = load_file(adapter / "adapter_model.safetensors")
    torch.save(
        OrderedDict((key.replace(".base_layer.", "."), value) for key, value in weights.items()),
        out / "adapter_model.bin",
    )
    return out


@pytest.fixture(scope="module")
def adapter(tmp_path_factory, base):
    return save_adapter(base.model, tmp_path_factory.mktemp("adapters") / "today")


@pytest.fixture
def changed(adapter, tmp_path):
    """A copy of the adapter with other weights, or another config."""

    def change(edit=None, **config):
        out = shutil.copytree(adapter, tmp_path / "changed")
        if edit is not None:
            weights = load_file(out / "adapter_model.safetensors")
            edit(weights)
            save_file(weights, out / "adapter_model.safetensors")
        path = out / "adapter_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | config))
        return out

    return change


def embeds(encoder, model=None):
    """Of images and texts together, by an encoder with another model in it."""
    encoder = copy.copy(encoder)
    encoder.model = model if model is not None else encoder.model
    parts = unit(encoder.encode_images(IMAGES)), unit(encoder.encode_texts(TEXTS))
    return torch.cat([part.flatten(0, -2) for part in parts])


def loaded_by_peft(model, adapter):
    return peft.PeftModel.from_pretrained(copy.deepcopy(model), str(adapter)).eval()


def refused(folder, adapter, match):
    with pytest.raises(dci.DCIError, match=match) as caught:
        encoders.load(folder, adapter=adapter, device="cpu")
    assert "\n" not in str(caught.value)
    return str(caught.value)


# What it computes


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_scores_are_those_of_peft(folder, base, tmp_path, rank):
    today = save_adapter(base.model, tmp_path / "today", rank)
    direct = embeds(base, loaded_by_peft(base.model, today))
    assert (direct - embeds(base)).abs().max() > 0.1
    for path in (today, as_peft_0_4(today, tmp_path / "old")):
        unmerged = embeds(base, adapters.attach(copy.deepcopy(base.model), str(path)))
        merged = encoders.load(folder, adapter=path, device="cpu")
        torch.testing.assert_close(unmerged, direct, atol=1e-6, rtol=0)
        torch.testing.assert_close(embeds(merged), unmerged, atol=2e-6, rtol=0)


def test_what_peft_0_4_made_gives_what_it_gave():
    expected = {key: torch.tensor(rows) for key, rows in json.loads((OLD / "expected.json").read_text()).items()}
    found = adapters.merge(peft_0_4.base(), str(OLD))
    merged, made_for = found.model, found.base
    for model in (merged, adapters.attach(peft_0_4.base(), str(OLD))):
        for key, value in peft_0_4.embeds(model).items():
            torch.testing.assert_close(value, expected[key], atol=1e-6, rtol=0)
    assert made_for == "openai/clip-vit-base-patch32"


def test_the_merged_model_is_as_light_as_its_base(folder, base, adapter):
    merged = encoders.load(folder, adapter=adapter, device="cpu")
    assert type(merged.model) is type(base.model)
    assert {name: w.shape for name, w in merged.model.state_dict().items()} == {
        name: w.shape for name, w in base.model.state_dict().items()
    }
    assert merged.info.parameters == base.info.parameters


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family(name, tmp_path):
    for part in FAMILIES[name].make():
        part.save_pretrained(tmp_path / "base")
    base = encoders.load(tmp_path / "base", device="cpu")
    # torch's own attention takes the weights of its last layer past any adapter.
    own = {f"{n}.out_proj" for n, m in base.model.named_modules() if isinstance(m, torch.nn.MultiheadAttention)}
    linear = {n for n, m in base.model.named_modules() if isinstance(m, torch.nn.Linear)} - own
    adapter = save_adapter(base.model, tmp_path / "adapter", target_modules=sorted(linear))
    direct = embeds(base, loaded_by_peft(base.model, adapter).get_base_model())
    found = encoders.load(tmp_path / "base", adapter=adapter, device="cpu")
    torch.testing.assert_close(embeds(found), direct, atol=1e-5, rtol=0)
    assert (direct - embeds(base)).abs().max() > 0.01


def test_a_loaded_model_is_left_as_it_is(adapter):
    model, processor = tiny_models.clip(seed=3)
    whole = copy.deepcopy(model.state_dict())
    before = encoders.load(model, processor=processor)
    found = encoders.load(model, processor=processor, adapter=str(adapter))
    assert all(torch.equal(value, whole[name]) for name, value in model.state_dict().items())
    assert (embeds(found) - embeds(before)).abs().max() > 0.1
    assert found.info.adapter == str(adapter)


def test_in_bfloat16_it_is_merged_before_it_is_rounded(folder, adapter):
    exact = encoders.load(folder, adapter=adapter, device="cpu")
    half = encoders.load(folder, adapter=adapter, device="cpu", dtype="bfloat16")
    assert half.info.dtype == "bfloat16"
    for name, value in half.model.state_dict().items():
        assert torch.equal(value, exact.model.state_dict()[name].to(value.dtype)), name


def test_info(folder, base, adapter):
    assert (base.info.adapter, base.info.adapter_base) == (None, None)
    info = encoders.load(folder, adapter=adapter, device="cpu").info
    assert (info.id, info.adapter) == (str(folder), str(adapter))
    assert info.adapter_base == str(folder)
    content = (Path(adapter) / "adapter_model.safetensors").read_bytes()
    assert info.adapter_revision == f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_from_the_hub(folder, base, adapter):
    commit = "0123456789abcdef0123456789abcdef01234567"
    home = Path(os.environ["HF_HOME"]) / "hub" / "models--someone--adapter"
    shutil.copytree(adapter, home / "snapshots" / commit)
    (home / "refs").mkdir()
    (home / "refs" / "main").write_text(commit)
    found = encoders.load(folder, adapter="someone/adapter", device="cpu")
    assert (found.info.adapter, found.info.adapter_revision) == ("someone/adapter", commit)
    assert torch.equal(embeds(found), embeds(encoders.load(folder, adapter=adapter, device="cpu")))


def test_made_for_a_model_of_another_name(folder, changed):
    info = encoders.load(folder, adapter=changed(base_model_name_or_path="openai/clip"), device="cpu").info
    assert (info.id, info.adapter_base) == (str(folder), "openai/clip")


def test_a_config_of_a_later_peft(folder, base, changed, adapter, recwarn):
    later = encoders.load(folder, adapter=changed(a_field_of_later=3), device="cpu")
    assert torch.equal(embeds(later), embeds(encoders.load(folder, adapter=adapter, device="cpu")))
    assert not [str(w.message) for w in recwarn if "a_field_of_later" in str(w.message)]


def test_the_result_names_it(folder, adapter, tmp_path, monkeypatch):
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", (90, 80)) for i in range(9)}
    photos = {f"sa_{i}.jpg": noise_photo(i, (90, 80)) for i in range(9)}
    release = write_release(tmp_path / "release", notes, photos)
    out = tmp_path / "result.json"
    arguments = ["dci", "eval", folder, "--adapter", adapter, "--dataset", release, "--out", out, "--no-cache"]
    monkeypatch.setattr(sys, "argv", [*map(str, arguments)])
    with pytest.raises(SystemExit, match="0"):
        cli.main()
    result = dci_metrics.Result.load(out)
    assert (result.model["id"], result.model["adapter"]) == (str(folder), str(adapter))
    for path in (adapter, None):
        encoder = encoders.load(folder, adapter=path)
        found = dci_metrics.evaluate(encoder, release, progress=False)
        assert (found.outcomes == result.outcomes) == (path is not None)


# What is refused


def test_of_another_model(folder, tmp_path):
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    bert = BertModel(BertConfig(**tiny, vocab_size=10))
    made = save_adapter(bert, tmp_path / "bert", target_modules=["query", "value"])
    refused(folder, made, r"bert: cannot be laid over this model: Target modules .* not found")
    blip, _ = FAMILIES["blip"].make()
    made = save_adapter(blip, tmp_path / "blip", target_modules=["fc1"])
    refused(folder, made, r"blip: \d+ of its \d+ weights fit nowhere in this model|lacks \d+ weights")


def test_that_matches_nothing(folder, changed):
    def rename(weights):
        for key in list(weights):
            weights[key.replace("base_model.model.", "base_model.model.clip.")] = weights.pop(key)

    message = refused(folder, changed(rename), r"changed: matches nothing in this model: it has base_model.model.clip")
    assert "expected base_model.model.text_model.encoder.layers.0.self_attn.k_proj.lora_A.weight" in message
    assert message.count("lora_A") < 7  # the first keys, not all


def test_of_a_larger_model(folder, tmp_path):
    """As of CLIP ViT-L over ViT-B: of the same names, of other shapes."""
    tower = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 2}
    model, _ = tiny_models.clip()
    config = copy.deepcopy(model.config)
    for part in (config.text_config, config.vision_config):
        for name, value in tower.items():
            setattr(part, name, value)
    larger = save_adapter(type(model)(config), tmp_path / "large")
    refused(folder, larger, r"large: \d+ weights are not of the shape .*: .* of \(2, 24\) instead of \(2, 16\)")


def test_of_more_layers(folder, base, tmp_path):
    config = copy.deepcopy(base.model.config)
    config.text_config.num_hidden_layers = 3
    deeper = save_adapter(type(base.model)(config), tmp_path / "deep")
    refused(folder, deeper, r"deep: 18 of its 94 weights fit nowhere in this model: \S+\.layers\.2\.")


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize(
    "key",
    [
        "vision_model.encoder.layers.1.mlp.fc2.lora_B.weight",
        "visual_projection.lora_A.weight",
        "text_model.encoder.layers.0.self_attn.q_proj.base_layer.bias",
    ],
)
def test_without_a_layer(folder, changed, tmp_path, key, old):
    path = changed(lambda weights: weights.pop(f"base_model.model.{key}"))
    path = as_peft_0_4(path, tmp_path / "old") if old else path
    refused(folder, path, rf"lacks 1 weights that its adapter_config.json asks for in this model: \S*{key}")


@pytest.mark.parametrize("key", ["text_projection.lora_C.weight", "text_model.encoder.layers.9.mlp.fc1.bias", "x"])
def test_with_a_key_too_many(folder, changed, key):
    path = changed(lambda weights: weights.update({f"base_model.model.{key}": torch.zeros(2, 2)}))
    refused(folder, path, rf"changed: 1 of its 77 weights fit nowhere in this model: base_model.model.{key}")


@pytest.mark.parametrize("rank", [1, 4])
def test_of_another_rank_than_its_config_says(folder, changed, rank):
    refused(folder, changed(r=rank), rf"not of the shape that .* ask for: \S+ of \(2, 16\) instead of \({rank}, 16\)")


def test_of_fewer_layers_than_its_config_says(folder, changed):
    refused(folder, changed(target_modules=["q_proj"]), r"of its 76 weights fit nowhere in this model")


def test_without_weights(folder, changed):
    def none(weights):
        weights.clear()

    refused(folder, changed(none), "changed: matches nothing in this model: it has no weights")


class Harm:
    """Would write a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def test_a_pickle_that_would_run_code(folder, adapter, tmp_path):
    path, ran = as_peft_0_4(adapter, tmp_path / "old"), tmp_path / "ran"
    weights = torch.load(path / "adapter_model.bin")
    torch.save(weights | {"more": Harm(ran)}, path / "adapter_model.bin")
    refused(folder, path, r"adapter_model.bin: cannot be read as an adapter's weights: .* code and not only weights")
    (path / "adapter_model.bin").write_bytes(pickle.dumps(Harm(ran)))
    refused(folder, path, r"adapter_model.bin: cannot be read as an adapter's weights")
    assert not ran.exists()


@pytest.mark.parametrize("keep", [0, 10, 1000, -50])
def test_broken_weights(folder, adapter, tmp_path, keep):
    old = as_peft_0_4(adapter, tmp_path / "old")
    today = shutil.copytree(adapter, tmp_path / "today")
    for path in (old / "adapter_model.bin", today / "adapter_model.safetensors"):
        path.write_bytes(path.read_bytes()[:keep])
        refused(folder, path.parent, rf"{path.name}: cannot be read as an adapter's weights: \S")


@pytest.mark.parametrize("content", [[torch.zeros(2)], {"a": 3}, torch.zeros(2), {}])
def test_weights_of_another_kind(folder, adapter, tmp_path, content):
    path = as_peft_0_4(adapter, tmp_path / "old")
    torch.save(content, path / "adapter_model.bin")
    refused(folder, path, "expected a dictionary of tensors|it has no weights")


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"peft_type": "NEW"}', '{"peft_type": "LORA", "r": "two"}'])
def test_broken_configs(folder, changed, text):
    path = changed()
    (path / "adapter_config.json").write_text(text)
    refused(folder, path, r"changed: (adapter_config.json cannot be read|cannot be laid over this model): \S")


def test_of_a_kind_that_cannot_be_merged(folder, changed):
    path = changed()
    config = {"peft_type": "PREFIX_TUNING", "num_virtual_tokens": 2, "task_type": None}
    (path / "adapter_config.json").write_text(json.dumps(config))
    refused(folder, path, "is of type PREFIX_TUNING, which cannot be merged")


def test_what_is_not_there(folder, changed, tmp_path):
    refused(folder, tmp_path / "nowhere", "nowhere: is no folder here, and cannot be fetched from the Hub: ")
    refused(folder, "some/adapter", "adapter some/adapter: is no folder here, and cannot be fetched from the Hub: ")
    refused(folder, folder, "expected a folder with adapter_config.json and adapter_model.safetensors or")
    path = changed()
    refused(folder, path / "adapter_config.json", "expected a folder with adapter_config.json")
    (path / "adapter_model.safetensors").unlink()
    refused(folder, path, "changed: has no weights; expected adapter_model.safetensors or adapter_model.bin")


def test_over_what_is_no_model_of_transformers(adapter, base):
    refused(base, adapter, "goes over models of transformers only, got an object of type CLIPEncoder")
    refused("open_clip:ViT-B-32/openai", adapter, "goes over models of transformers only, got a model of open_clip")


def test_an_adapter_given_as_the_model(folder, adapter, tmp_path):
    both = shutil.copytree(folder, tmp_path / "both")
    shutil.copytree(adapter, both, dirs_exist_ok=True)
    for path in (adapter, both):
        with pytest.raises(dci.DCIError, match=r"is an adapter's folder; give the model .* as --adapter"):
            encoders.load(path)


def test_without_peft(folder, adapter, monkeypatch):
    monkeypatch.setitem(sys.modules, "peft", None)
    refused(folder, adapter, r"need PEFT, which is not installed: pip install 'dci-metrics\[train\]'")


def test_peft_is_imported_only_when_asked_for():
    code = "import sys, dci_metrics.benchmark, dci_metrics.encoders as e; e.load('sample:tiny-clip'); "
    code += "assert not {'peft', 'open_clip', 'torchvision'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
