"""Presets are what the paper says, and whatever is wrong in one is told in a line."""

import pytest
import yaml

from dci import DCIError
from dci_metrics.training import load_config, presets
from dci_metrics.training.config import PRESETS

LAYERS = ("q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2", "visual_projection", "text_projection")


def test_the_papers_run():
    config = load_config("sdci_p1")
    assert (config.captions, config.pooling, config.clip_weight, config.negatives_weight) == ("pick1", "mean", 1, 1)
    assert (config.negatives, config.negative_draw, config.submasks, config.batches) == (
        "swaps",
        "once",
        True,
        "random",
    )
    assert (config.epochs, config.batch_size, config.evals_per_epoch) == (10, 64, 3)
    assert config.learning_rate in (1e-3, 1e-4)
    assert config.metric_for_best_model == "loss"
    lora = config.lora
    assert (lora.alpha, lora.dropout, lora.bias, lora.target_modules) == (2, 0.2, "lora_only", LAYERS)
    assert lora.rank in (1, 2, 4)


@pytest.mark.parametrize(
    ("preset", "differs"),
    [
        ("sdci_p1nl0", {"negatives_weight": 0}),
        ("sdci_p1nl9", {"negatives_weight": 9}),
        ("sdci_p5", {"captions": "pick5"}),
        ("sdci_first", {"captions": "first"}),
        ("sdci_p1_imggroup", {"batches": "image"}),
        ("sdci_p1_spacy", {"negatives": "spacy"}),
        ("sdci_p1_base", {"submasks": False}),
    ],
)
def test_ablations_differ_from_it_in_one_thing(preset, differs):
    one, other = (yaml.safe_load(load_config(name).to_yaml()) for name in ("sdci_p1", preset))
    assert {key: other[key] for key in one if one[key] != other[key]} == differs | {"preset": preset}
    assert (PRESETS / f"{preset}.yaml").read_text().startswith("# ")


def test_all_presets_are_known():
    assert presets() == sorted(path.stem for path in PRESETS.iterdir())
    assert len(presets()) == 8


def test_changes_and_files(tmp_path):
    config = load_config("sdci_p5", epochs=2, rank=4, target_modules=["q_proj"], seed=None)
    assert (config.epochs, config.lora.rank, config.lora.target_modules, config.seed) == (2, 4, ("q_proj",), 0)
    assert (config.captions, config.captions_per_entry) == ("pick5", 5)
    path = tmp_path / "train_config.yaml"
    path.write_text("model: a\ndataset: b\ntest_dataset: c\n" + config.to_yaml())
    assert load_config(path) == config
    assert load_config("sdci_p1", lora=False).lora is None
    whole = tmp_path / "full.yaml"
    whole.write_text(load_config("sdci_p1", lora=False).to_yaml())
    assert load_config(whole).lora is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("based_on: sdci_p1\nepoch: 3\n", "no field `epoch`: expected some of preset, captions"),
        ("based_on: sdci_p1\nepochs: 0\n", "field `epochs`: expected a whole number of at least 1, got 0"),
        ("based_on: sdci_p1\nepochs: 1.5\n", "field `epochs`: expected a whole number"),
        ("based_on: sdci_p1\nbatch_size: 1\n", "field `batch_size`: expected a whole number of at least 2"),
        ("based_on: sdci_p1\nlearning_rate: fast\n", "field `learning_rate`: expected a number"),
        ("based_on: sdci_p1\nlearning_rate: .nan\n", "field `learning_rate`: expected a number"),
        ("based_on: sdci_p1\nnegatives_weight: -1\n", "field `negatives_weight`: expected a number of at least 0"),
        ("based_on: sdci_p1\nclip_weight: 0\nnegatives_weight: 0\n", "both are 0"),
        ("based_on: sdci_p1\ncaptions: pick0\n", "field `captions`: expected first, pick1, pick5, ..., got 'pick0'"),
        ("based_on: sdci_p1\npooling: min\n", "field `pooling`: expected one of mean, hardest, max, got 'min'"),
        ("based_on: sdci_p1\nnegatives: hard\n", "field `negatives`: expected one of swaps, layout"),
        ("based_on: sdci_p1\nbatches: grouped\n", "field `batches`: expected one of random, sequential, image"),
        (
            "based_on: sdci_p1\nmetric_for_best_model: recall\n",
            "field `metric_for_best_model`: expected one of loss, ",
        ),
        ("based_on: sdci_p1\nsubmasks: maybe\n", "field `submasks`: expected one of False, True"),
        ("based_on: sdci_p1\nlora: {rank: 1}\n", "field `lora`: expected rank, alpha, dropout, bias, target_modules"),
        ("based_on: sdci_p1\nlora: {1: 2, rank: 1}\n", "field `lora`: expected rank, alpha, dropout, bias, target_"),
        ("based_on: sdci_p1\npreset: 3\n", "field `preset`: expected a name, got 3"),
        ("based_on: sdci_p1\nsubmasks: 1\n", "field `submasks`: expected true or false, got 1"),
        ("based_on: sdci_p2\n", "field `based_on`: no preset 'sdci_p2'"),
        ("epochs: 3\n", "field `captions` is missing"),
        ("- epochs\n", "expected fields and values"),
        ("epochs: [\n", "cannot be read as YAML"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(DCIError) as raised:
        load_config(path)
    assert str(raised.value).startswith(str(path))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_wrong_changes():
    with pytest.raises(DCIError, match="no preset 'sdci': expected one of sdci_first, sdci_p1"):
        load_config("sdci")
    with pytest.raises(DCIError, match="rank: is of a LoRA adapter, and all weights are trained here"):
        load_config("sdci_p1", lora=False, rank=3)
    with pytest.raises(DCIError, match="field `lora`: expected whole numbers"):
        load_config("sdci_p1", rank=0)
    with pytest.raises(DCIError, match="a `dropout` from 0 to below 1"):
        load_config("sdci_p1", dropout=1.0)
