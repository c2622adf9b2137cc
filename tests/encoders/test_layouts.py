"""Checkpoints as written before transformers 5: tokenizer and image processor lie in files of their own."""

import json

import pytest
import sentencepiece
import tiny_models
import torch
from encoders import families
from encoders.inputs import IMAGES, TEXTS, cosines, tokens_of, unit

import dci
from dci_metrics import encoders


def write(folder, **files):
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


def clip_vocabulary(tokenizer, folder):
    """CLIP's vocab.json and merges.txt."""
    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    write(folder, vocab=model["vocab"])
    merges = "\n".join(" ".join(pair) for pair in model["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + merges)


CLIP_IMAGES = {
    "crop_size": 32, "do_center_crop": True, "do_normalize": True, "do_resize": True, "resample": 3, "size": 32,
    "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711],
}  # fmt: skip


@pytest.mark.parametrize(
    "kind",
    [
        {"feature_extractor_type": "CLIPFeatureExtractor"},
        {"image_processor_type": "CLIPImageProcessor", "feature_extractor_type": "CLIPFeatureExtractor"},
        {"image_processor_type": "CLIPImageProcessorFast", "processor_class": "CLIPProcessor"},
    ],
)
def test_clip(tmp_path, kind):
    model, processor = tiny_models.clip(seed=5)
    model.save_pretrained(tmp_path)
    clip_vocabulary(processor.tokenizer, tmp_path)
    write(
        tmp_path,
        preprocessor_config=CLIP_IMAGES | kind,
        tokenizer_config={"model_max_length": 77, "tokenizer_class": "CLIPTokenizer", "do_lower_case": True},
        special_tokens_map={"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "pad_token": "<|endoftext|>"},
    )
    assert not (tmp_path / "processor_config.json").exists()
    encoder = encoders.load(tmp_path)
    assert (encoder.text_limit, encoder.info.image_backend) == (77, "pil")
    torch.testing.assert_close(cosines(encoder), cosines(encoders.load(model, processor=processor)), atol=1e-5, rtol=0)


GEMMA = {
    "add_bos_token": False, "add_eos_token": True, "bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>",
    "unk_token": "<unk>", "do_lower_case": True, "model_input_names": ["input_ids"], "padding_side": "right",
    "model_max_length": 1000000000000000019884624838656, "tokenizer_class": "GemmaTokenizer",
}  # fmt: skip


@pytest.mark.parametrize("name", ["siglip-gemma", "siglip2"])
def test_siglip_2(tmp_path, name):
    """Both kinds name Gemma's tokenizer; transformers takes its own lower-casing one for NaFlex only."""
    model, processor = families.FAMILIES[name].make()
    model.save_pretrained(tmp_path)
    families.gemma_tokenizer().save_pretrained(tmp_path)
    naflex = {"image_processor_type": "Siglip2ImageProcessor", "patch_size": 8, "max_num_patches": 12}
    fixed = {"image_processor_type": "SiglipImageProcessor", "size": families.SQUARE, "resample": 2}
    common = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3, "processor_class": type(processor).__name__}
    write(
        tmp_path,
        preprocessor_config=common | (naflex if name == "siglip2" else fixed),
        tokenizer_config=GEMMA | {"processor_class": type(processor).__name__},
    )
    encoder = encoders.load(tmp_path)
    torch.testing.assert_close(cosines(encoder), cosines(encoders.load(model, processor=processor)), atol=1e-5, rtol=0)
    upper, lower = encoder.encode_texts(["The RED thing", "the red thing"])
    assert torch.equal(upper, lower)
    given = tokens_of(encoder, ["red"])["input_ids"][0].tolist()
    assert given == [encoder.tokenizer.convert_tokens_to_ids("red"), 1, *[0] * 62]


@pytest.fixture
def siglip(tmp_path):
    """The first SigLIP: a SentencePiece vocabulary, an end token that pads as well, no attention mask."""
    pytest.importorskip("google.protobuf")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*(f"the {word} of the thing" for word in tiny_models.WORDS), *families.LETTERS]),
        model_prefix=str(tmp_path / "spiece"), vocab_size=60, hard_vocab_limit=False, minloglevel=2,
        pad_id=-1, bos_id=-1, eos_id=1, unk_id=2,
    )  # fmt: skip
    (tmp_path / "spiece.vocab").unlink()
    write(
        tmp_path,
        preprocessor_config={
            "image_processor_type": "SiglipImageProcessor", "processor_class": "SiglipProcessor", "resample": 3,
            "size": families.SQUARE, "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
        },
        tokenizer_config={
            "tokenizer_class": "SiglipTokenizer", "processor_class": "SiglipProcessor", "do_lower_case": True,
            "eos_token": "</s>", "pad_token": "</s>", "unk_token": "<unk>",
            "model_input_names": ["input_ids"], "model_max_length": 64,
        },
    )  # fmt: skip
    from transformers import SiglipConfig, SiglipModel, SiglipTokenizer

    tokenizer = SiglipTokenizer.from_pretrained(tmp_path)
    text = families.text_tower(tokenizer, 64, projection_size=16, bos_token_id=0)
    model = families.spread(SiglipModel(SiglipConfig(text_config=text, vision_config=families.VISION)))
    model.save_pretrained(tmp_path)
    return tmp_path, model, tokenizer


def test_siglip(siglip):
    folder, model, tokenizer = siglip
    encoder = encoders.load(folder)
    assert type(encoder.tokenizer).__name__ == "SiglipTokenizer"
    pixels = encoder.image_processor(IMAGES, return_tensors="pt")
    found = cosines(encoder)
    for column, text in enumerate(TEXTS):
        tokens = tokenizer([text], padding="max_length", truncation=True, return_tensors="pt")
        with torch.no_grad():
            logits = model(**pixels, **tokens).logits_per_image
        expected = (logits[:, 0] - model.logit_bias) / model.logit_scale.exp()
        torch.testing.assert_close(found[:, column], expected, atol=1e-5, rtol=0)
    assert encoder.text_limit == 64
    ids = tokens_of(encoder, [TEXTS[3]])["input_ids"][0]
    assert (len(ids), ids[-1], (ids == 1).sum()) == (64, 1, 1)
    # Its own tokenizer takes case and punctuation away.
    torch.testing.assert_close(*unit(encoder.encode_texts(["Green. Blue, RED!", "green blue red"])))


def test_parts_without_a_class_of_processor(tmp_path, monkeypatch):
    """AutoProcessor gives the tokenizer alone where it knows no class; the image processor lies beside it."""
    model, processor = tiny_models.clip(seed=5)
    for part in (model, processor.tokenizer, processor.image_processor):
        part.save_pretrained(tmp_path)
    monkeypatch.setattr(encoders.AutoProcessor, "from_pretrained", lambda *_, **__: processor.tokenizer)
    encoder = encoders.load(tmp_path)
    torch.testing.assert_close(cosines(encoder), cosines(encoders.load(model, processor=processor)), atol=1e-5, rtol=0)


def test_images_of_different_sizes(tmp_path):
    """A processor that does not crop."""
    folder = tiny_models.save_clip(tmp_path / "clip")
    found = json.loads((folder / "processor_config.json").read_text())
    found["image_processor"]["do_center_crop"] = False
    write(folder, processor_config=found)
    encoder = encoders.load(folder)
    with pytest.raises(dci.DCIError, match=r"clip: its image processor gives images of different sizes, .*crop_size"):
        encoder.encode_images(IMAGES[:3])


def test_an_image_processor_that_is_not_there(tmp_path):
    folder = tiny_models.save_clip(tmp_path / "clip")
    found = json.loads((folder / "processor_config.json").read_text())
    found["image_processor"]["image_processor_type"] = "NoSuchImageProcessor"
    write(folder, processor_config=found)
    with pytest.raises(dci.DCIError, match=r"clip: cannot be loaded as a model: .*") as caught:
        encoders.load(folder)
    assert "\n" not in str(caught.value)
