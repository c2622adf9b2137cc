"""The embedded tiny CLIP: it loads as any CLIP does, reads any text, and scores between chance and certainty."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import typer
from PIL import Image
from transformers import AutoModel, AutoProcessor
from typer.testing import CliRunner

import dci_metrics
from dci_metrics import sample
from dci_metrics.sample import scenes, tiny_clip_data, train_tiny_clip
from dci_metrics.sample.tiny_clip_captions import alt_text

FOLDER = sample.model_path("sample:tiny-clip")
FILES = {"README.md", "config.json", "model.safetensors", "processor_config.json", "tokenizer.json",
         "tokenizer_config.json"}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """For models this small, more threads cost more than they give, and the training script sets its own number."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    return AutoModel.from_pretrained(FOLDER, dtype=torch.float32)


@pytest.fixture(scope="module")
def processor():
    return AutoProcessor.from_pretrained(FOLDER, backend="pil")


@pytest.fixture(scope="module")
def result():
    return dci_metrics.evaluate("sample:tiny-clip", "sample:scenes", progress=False)


@pytest.fixture(scope="module")
def few_scenes():
    return tiny_clip_data.paint(range(2_000_000, 2_000_004), progress=False)


# The folder


def test_folder_is_whole_and_small():
    assert {path.name for path in FOLDER.iterdir()} == FILES
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 5_000_000


def test_model_is_a_small_float32_clip(model):
    assert model.config.model_type == "clip"
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert sum(p.numel() for p in model.parameters()) < 2_000_000


def test_special_tokens_match_the_config(model, processor):
    text, tokenizer = model.config.text_config, processor.tokenizer
    assert (text.bos_token_id, text.eos_token_id, text.pad_token_id) == (
        tokenizer.bos_token_id,
        tokenizer.eos_token_id,
        tokenizer.pad_token_id,
    )
    assert text.vocab_size == len(tokenizer)
    assert text.max_position_embeddings == tokenizer.model_max_length == 77


def test_image_processor_makes_what_the_model_sees(model, processor):
    size = model.config.vision_config.image_size
    photo = np.zeros((300, 200, 3), np.uint8)
    pixels = processor.image_processor(photo, return_tensors="pt")["pixel_values"]
    assert type(processor.image_processor).__name__ == "CLIPImageProcessorPil"
    assert pixels.shape == (1, 3, size, size)


# The tokenizer


@pytest.mark.parametrize(
    "text",
    [
        "A wooden shed stands beside the lake.",
        "naïve façade – „Straße“",
        "赤い家と青い木",
        "\U0001f642 \U0001f469\u200d\U0001f680",
        "\x00\x7f\ufffd",
    ],
)
def test_any_text_comes_back_whole(processor, text):
    tokenizer = processor.tokenizer
    ids = tokenizer(text)["input_ids"]
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)
    assert tokenizer.eos_token_id not in ids[:-1]  # which would stand for a byte that is not in the vocabulary
    read = tokenizer.decode(ids, skip_special_tokens=True)
    assert read.replace(" ", "") == text.lower().replace(" ", "")


def test_every_byte_is_a_token_alone_and_at_a_words_end(processor):
    vocab = processor.tokenizer.get_vocab()
    alphabet = train_tiny_clip.byte_letters()
    assert len(alphabet) == 512
    assert set(alphabet) <= vocab.keys()


def test_empty_text_has_only_start_and_end(processor):
    tokenizer = processor.tokenizer
    assert tokenizer("")["input_ids"] == [tokenizer.bos_token_id, tokenizer.eos_token_id]


def test_long_text_is_cut_with_its_end_token_kept(processor):
    tokenizer = processor.tokenizer
    ids = tokenizer(" ".join(["boat"] * 300), truncation=True)["input_ids"]
    assert len(ids) == 77
    assert (ids[0], ids[-1]) == (tokenizer.bos_token_id, tokenizer.eos_token_id)


def test_summaries_fit(processor):
    texts = [text for seed in (0, 1, 20_000, 20_001) for found in scenes.make_scene(seed).summaries.values()
             for text in found]  # fmt: skip
    lengths = [len(ids) for ids in processor.tokenizer(texts)["input_ids"]]
    assert np.mean(np.array(lengths) <= 77) > 0.99


# Its scores


@pytest.mark.parametrize("test", ["all_scm", "all_neg"])
def test_scores_lie_clear_of_chance_and_of_certainty(result, test):
    score = result.scores[test]
    assert score.chance < score.ci95[0]
    assert score.value < 0.95


def test_card_states_the_scores_as_measured(result):
    card = (FOLDER / "README.md").read_text(encoding="utf-8")
    for test in ("all_scm", "all_neg"):
        score = result.scores[test]
        stated = next(line for line in card.splitlines() if f"`{test}`" in line).split("|")[2]
        # another machine's arithmetic may turn a few of some 300 outcomes
        assert float(stated) == pytest.approx(100 * score.value, abs=1.5)


# Its training


def test_training_scenes_are_not_the_samples():
    first, count = tiny_clip_data.FIRST_SEED, train_tiny_clip.SCENES
    training = set(range(first, first + count))
    assert not training & {seed for split in scenes.SPLITS for seed in scenes.split_seeds(split)}


def test_crops_and_captions_belong_together(few_scenes):
    crops, captions = few_scenes.batch(4, np.random.default_rng(0))
    size = tiny_clip_data.IMAGE_SIZE
    assert crops.shape == (len(captions), 3, size, size)
    assert crops.dtype == torch.uint8
    assert len(captions) == sum(1 + len(scene.entries) for scene in few_scenes.scenes)


def test_crops_are_those_of_the_evaluation(few_scenes, processor):
    scene = scenes.make_scene(2_000_000)
    pixels = processor.image_processor(
        Image.fromarray(scene.image), do_rescale=False, do_normalize=False, return_tensors="pt"
    )["pixel_values"]
    assert torch.equal(few_scenes.crops[0][0], pixels[0].to(torch.uint8))


def test_processes_paint_the_same(few_scenes):
    again = tiny_clip_data.paint(range(2_000_000, 2_000_004), num_proc=2, progress=False)
    assert all(torch.equal(one, other) for one, other in zip(few_scenes.crops, again.crops, strict=True))


def test_captions_name_what_is_there():
    scene = scenes.make_scene(2_000_000)
    for region in scene.entries:
        texts = [alt_text(scene, region, np.random.default_rng(k)) for k in range(20)]
        assert all(region.colour in text for text in texts)
        assert all(len(text.split()) <= 8 for text in texts)
        assert len(set(texts)) > 1
    assert "," in alt_text(scene, None, np.random.default_rng(0))


def test_training_twice_gives_the_same(few_scenes):
    one, processor = train_tiny_clip.train(few_scenes, steps=3, progress=False)
    other, again = train_tiny_clip.train(few_scenes, steps=3, progress=False)
    assert processor.tokenizer.get_vocab() == again.tokenizer.get_vocab()
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    assert all(torch.isfinite(weights).all() for weights in one.state_dict().values())


def test_script_writes_a_model_that_loads_and_overwrites_none(tmp_path: Path):
    app = typer.Typer()
    app.command()(train_tiny_clip.main)
    command = ["--out", str(tmp_path / "clip"), "--steps", "1", "--scenes", "2", "--num-proc", "1"]
    done, refused = CliRunner().invoke(app, command), CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert {path.name for path in (tmp_path / "clip").iterdir()} == FILES - {"README.md"}
    assert json.loads((tmp_path / "clip" / "config.json").read_text())["model_type"] == "clip"
    AutoModel.from_pretrained(tmp_path / "clip")
    assert refused.exit_code == 2
