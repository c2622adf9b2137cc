"""CLIP through the package, against transformers used directly."""

import json
import shutil

import numpy as np
import PIL.Image
import pytest
import tiny_models
import torch
from transformers import AutoModel, BertConfig, BertModel, CLIPForImageClassification, CLIPTextModel, CLIPVisionModel

import dci
from dci_metrics import encoders
from dci_metrics.encoders.base import MeasuresTexts, Prepares, TextLength

SIZES = [(64, 48), (1, 1), (9, 3), (3, 9), (1, 1000), (1000, 1), (300, 224), (32, 32), (33, 31), (2, 2)]
TEXTS = [
    "the red thing",
    "",
    " ",
    "a\nb",
    "thing " * 300,
    "café 塔 🙂",
    "x" * 500,
    "The RED thing",
    "basic layout",
    "green",
]


def image(size, seed=0):
    return PIL.Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


IMAGES = [image(size, seed) for seed, size in enumerate(SIZES)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.save_clip(tmp_path_factory.mktemp("models") / "clip", seed=5)


@pytest.fixture(scope="module")
def direct():
    return tiny_models.clip(seed=5)


@pytest.fixture(scope="module")
def encoder(folder):
    return encoders.load(folder)


def unit(embeds):
    return torch.nn.functional.normalize(embeds.float(), dim=-1)


@torch.no_grad()
def logits_per_image(model, processor, images, texts):
    pixels = processor.image_processor(images, return_tensors="pt")
    tokens = processor.tokenizer(texts, padding="max_length", truncation=True, return_tensors="pt")
    return model(**pixels, **tokens).logits_per_image


def test_embeddings_are_those_of_transformers(encoder, direct):
    model, processor = direct
    logits = logits_per_image(model, processor, IMAGES, TEXTS)
    cosines = unit(encoder.encode_images(IMAGES)) @ unit(encoder.encode_texts(TEXTS)).T
    torch.testing.assert_close(cosines, logits / model.logit_scale.exp(), atol=1e-5, rtol=0)
    assert torch.equal(cosines.argmax(1), logits.argmax(1))
    assert cosines.std() > 0.1  # the model does tell them apart


def test_one_at_a_time_gives_the_same(encoder):
    images = torch.cat([encoder.encode_images([image]) for image in IMAGES])
    texts = torch.cat([encoder.encode_texts([text]) for text in TEXTS])
    assert images.shape == texts.shape == (10, 12)
    torch.testing.assert_close(unit(images), unit(encoder.encode_images(IMAGES)), atol=1e-5, rtol=0)
    torch.testing.assert_close(unit(texts), unit(encoder.encode_texts(TEXTS)), atol=1e-5, rtol=0)
    prepared = encoder.prepare_images(IMAGES)
    assert torch.equal(encoder.encode_prepared(prepared), encoder.encode_images(IMAGES))


def test_thin_crops_keep_their_channels(encoder, direct):
    """A crop 1 or 3 pixels high, or wide, could be taken for one with its channels first."""
    for size in ((1, 1), (9, 3), (3, 9), (3, 3), (1, 1000), (1000, 1)):
        red = PIL.Image.new("RGB", size, (255, 0, 0))
        pixels = encoder.prepare_images([red])[0]["pixel_values"]
        assert pixels.shape == (3, 32, 32)
        mean, std = direct[1].image_processor.image_mean, direct[1].image_processor.image_std
        expected = [(value - m) / s for value, m, s in zip((1, 0, 0), mean, std, strict=True)]
        torch.testing.assert_close(pixels.mean((1, 2)), torch.tensor(expected), atol=1e-5, rtol=1e-5)


def test_long_texts_are_cut_with_the_end_token_kept(encoder, direct):
    tokenizer = direct[1].tokenizer
    ids = tokenizer("thing " * 300, truncation=False, verbose=False)["input_ids"]
    cut = torch.tensor([[*ids[:76], tokenizer.eos_token_id]])
    with torch.no_grad():
        expected = direct[0].get_text_features(cut).pooler_output
    torch.testing.assert_close(encoder.encode_texts(["thing " * 300]), expected)
    assert len(ids) == 302
    assert encoder.text_lengths(["thing " * 300, "", "thing " * 75, "thing " * 76]) == [
        TextLength(77, 225),
        TextLength(2, 0),
        TextLength(77, 0),
        TextLength(77, 1),
    ]


def test_nothing_is_said_of_long_texts(encoder, capfd, caplog):
    encoder.text_lengths(["thing " * 300])
    encoder.encode_texts(["thing " * 300])
    assert capfd.readouterr() == ("", "")
    assert caplog.records == []


def test_the_limit_is_that_of_the_model_and_of_the_tokenizer():
    for limit in (16, 77, 100):
        model, processor = tiny_models.clip(seed=1, limit=limit)
        processor.tokenizer.model_max_length = min(limit, 80)
        encoder = encoders.load(model, processor=processor)
        assert encoder.info.text_limit == encoder.text_limit == min(limit, 80)
        assert encoder.text_lengths(["thing " * 300])[0] == (min(limit, 80), 302 - min(limit, 80))
        encoder.encode_texts(["thing " * 300])
    processor.tokenizer.model_max_length = int(1e30)  # as in checkpoints that do not tell
    assert encoders.load(model, processor=processor).text_limit == 100


def test_info(encoder, folder, direct):
    info = encoders.describe(encoder)
    assert (info.id, info.revision, info.family, info.adapter) == (str(folder), None, "clip", None)
    assert (info.text_limit, info.image_size, info.image_backend) == (77, 32, "pil")
    assert (info.dtype, info.device) == ("float32", "cpu")
    assert info.parameters == sum(p.numel() for p in direct[0].parameters())
    assert isinstance(encoder, Prepares)
    assert isinstance(encoder, MeasuresTexts)


def test_a_loaded_model(folder, direct, encoder):
    model, processor = direct
    model.train()
    given = encoders.load(model, processor=processor)
    assert not model.training  # dropout would change scores
    assert given.model is model
    torch.testing.assert_close(given.encode_images(IMAGES), encoder.encode_images(IMAGES))
    assert given.info.id == "CLIPModel"
    found = encoders.load(AutoModel.from_pretrained(folder))
    torch.testing.assert_close(found.encode_texts(TEXTS), encoder.encode_texts(TEXTS))
    assert found.info.id == str(folder)
    with pytest.raises(dci.DCIError, match="hand over `processor`"):
        encoders.load(tiny_models.clip()[0])
    with pytest.raises(dci.DCIError, match="CLIPTokenizer has no tokenizer"):
        encoders.load(model, processor=processor.tokenizer)


def test_no_gradients(encoder):
    assert not encoder.encode_images(IMAGES[:1]).requires_grad
    assert not encoder.encode_texts(TEXTS[:1]).requires_grad


def test_bfloat16(folder, encoder):
    half = encoders.load(folder, dtype="bfloat16", device="cpu")
    assert half.info.dtype == "bfloat16"
    assert half.encode_images(IMAGES).dtype == half.encode_texts(TEXTS).dtype == torch.bfloat16
    close = torch.nn.functional.cosine_similarity(half.encode_images(IMAGES).float(), encoder.encode_images(IMAGES))
    assert (close > 0.98).all()


def copied(folder, tmp_path, *left_out):
    shutil.copytree(folder, tmp_path / "copy", ignore=shutil.ignore_patterns(*left_out))
    return tmp_path / "copy"


def test_missing_weights_are_an_error(folder, tmp_path):
    from safetensors.torch import load_file, save_file

    copy = copied(folder, tmp_path)
    weights = load_file(copy / "model.safetensors")
    del weights["visual_projection.weight"], weights["text_projection.weight"]
    save_file(weights, copy / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(dci.DCIError, match=r"copy: 2 weights are missing, such as text_projection.weight"):
        encoders.load(copy)


def test_weights_of_another_shape_are_an_error(folder, tmp_path):
    copy = copied(folder, tmp_path)
    config = json.loads((copy / "config.json").read_text())
    config["projection_dim"] = 20
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(dci.DCIError, match=r"copy: cannot be loaded as a model") as caught:
        encoders.load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("left_out", "message"),
    [
        (["config.json"], "cannot be loaded as a model"),
        (["model.safetensors"], "cannot be loaded as a model"),
        (["token*"], "the tokenizer knows no words"),
        (["processor_config.json"], "cannot be loaded as a model|has no image_processor"),
    ],
)
def test_checkpoints_that_are_not_whole(folder, tmp_path, left_out, message):
    with pytest.raises(dci.DCIError, match=message) as caught:
        encoders.load(copied(folder, tmp_path, *left_out))
    assert "\n" not in str(caught.value)
    assert "copy" in str(caught.value)


def test_broken_files(folder, tmp_path):
    copy = copied(folder, tmp_path)
    for name in ("config.json", "model.safetensors", "tokenizer.json"):
        whole = (copy / name).read_bytes()
        (copy / name).write_bytes(whole[: len(whole) // 2])
        with pytest.raises(dci.DCIError, match="copy: cannot be loaded as a model") as caught:
            encoders.load(copy)
        assert "\n" not in str(caught.value)
        (copy / name).write_bytes(whole)


def test_models_of_other_kinds(tmp_path):
    tiny = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    bert = BertModel(BertConfig(**tiny, vocab_size=10))
    bert.save_pretrained(tmp_path / "bert")
    for model in (tmp_path / "bert", bert):
        with pytest.raises(dci.DCIError, match=r"of type 'bert' \(BertModel\) are not known here \(known: .*clip"):
            encoders.load(model)


def test_parts_of_clip_are_no_dual_encoder(direct):
    model, processor = direct
    for part in (
        CLIPVisionModel(model.config.vision_config),
        CLIPTextModel(model.config.text_config),
        CLIPForImageClassification(model.config),
    ):
        with pytest.raises(dci.DCIError, match=r"not known here|has no get_image_features"):
            encoders.load(part, processor=processor)


def test_what_is_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(dci.DCIError, match="nowhere: is no folder here, and cannot be loaded as a model"):
        encoders.load(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(dci.DCIError, match="empty: cannot be loaded as a model"):
        encoders.load(tmp_path / "empty")
    with pytest.raises(dci.DCIError, match="no sample"):
        encoders.load("sample:nothing")


@pytest.mark.parametrize("device", ["gpu", "cuda:99", "cuda:x", "mps:3", "", "meta"])
def test_devices_that_are_not_there(folder, device):
    with pytest.raises(dci.DCIError, match="no device"):
        encoders.load(folder, device=device)


def test_dtypes_that_are_not_there(folder):
    with pytest.raises(dci.DCIError, match="no dtype 'int8': expected one of float32, bfloat16, float16"):
        encoders.load(folder, dtype="int8")


def test_objects_that_are_no_model():
    class OnlyImages:
        def encode_images(self, images):
            return images

    for model in (object(), OnlyImages(), 3, None, torch.nn.Linear(2, 2)):
        with pytest.raises(dci.DCIError, match=f"got {type(model).__name__}"):
            encoders.load(model)
