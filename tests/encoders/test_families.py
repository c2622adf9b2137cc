"""Every family through the package, against transformers used directly on one image and one text at a time."""

import pytest
import torch
from encoders.families import FAMILIES
from encoders.inputs import IMAGES, LONG, TEXTS, cosines, image, tokens_of, unit

import dci_metrics
from dci_metrics import encoders
from dci_metrics.encoders.base import TextLength


@torch.no_grad()
def direct(family, made, images=IMAGES, texts=TEXTS):
    """The same, from the model's own forward."""
    model, processor = made
    one_by_one = [processor.image_processor(one, return_tensors="pt", **family.images) for one in images]
    pixels = {name: torch.cat([one[name] for one in one_by_one]) for name in one_by_one[0]}
    return torch.cat(
        [family.cosines(model, pixels, dict(family.read(processor, text, family.limit))) for text in texts], dim=1
    )


@pytest.fixture(scope="module")
def models(folders):
    """Each family made, saved and loaded once: name → (made, folder, encoder)."""
    known = {}

    def get(name):
        if name not in known:
            made, folder = folders(name)
            known[name] = (made, folder, encoders.load(folder, device="cpu"))
        return known[name]

    return get


each_family = pytest.mark.parametrize("name", FAMILIES)


@each_family
def test_cosines_are_the_models_own(models, name):
    made, _, encoder = models(name)
    found = cosines(encoder)
    torch.testing.assert_close(found, direct(FAMILIES[name], made), atol=1e-5, rtol=0)
    assert found.std(0).mean() > 0.02  # images differ
    assert found.std(1).mean() > 0.02  # so do texts


@each_family
def test_all_weights_are_loaded(models, name):
    (model, _), _, encoder = models(name)
    assert type(encoder.model).__name__ == FAMILIES[name].loaded
    saved = {key.removeprefix(f"{model.base_model_prefix}."): weight for key, weight in model.state_dict().items()}
    for key, weight in encoder.model.state_dict().items():
        assert torch.equal(weight, saved[key]), key


@each_family
def test_neither_batches_nor_order_matter(models, name):
    _, _, encoder = models(name)
    texts = [*TEXTS, *(" ".join(["red", "green", "layout"] * n) for n in range(1, 58))]
    assert len(texts) == 64
    together = encoder.encode_texts(texts)
    for some in (range(0, 64, 9), range(63, -1, -9)):
        alone = torch.cat([encoder.encode_texts([texts[i]]) for i in some])
        torch.testing.assert_close(unit(alone), unit(together[list(some)]), atol=1e-5, rtol=0)
    images = encoder.encode_images(IMAGES)
    alone = torch.cat([encoder.encode_images([one]) for one in reversed(IMAGES)]).flip(0)
    torch.testing.assert_close(unit(alone), unit(images), atol=1e-5, rtol=0)


@each_family
def test_long_texts_are_cut_with_the_end_token_kept(models, name):
    (_, processor), _, encoder = models(name)
    family = FAMILIES[name]
    ids = processor.tokenizer(LONG, truncation=False, verbose=False)["input_ids"]
    end = processor.tokenizer.convert_tokens_to_ids(family.end)
    assert ids[-1] == end
    assert tokens_of(encoder, [LONG])["input_ids"].tolist() == [[*ids[: family.limit - 1], end]]
    assert encoder.text_limit == encoder.info.text_limit == family.limit
    assert encoder.text_lengths([LONG]) == [TextLength(family.limit, len(ids) - family.limit)]
    # As long as can be, and one more.
    words = next(n for n in range(600) if len(processor.tokenizer("red " * n)["input_ids"]) > family.limit)
    assert [length.lost > 0 for length in encoder.text_lengths(["red " * (words - 1), "red " * words])] == [False, True]


@each_family
def test_lengths_are_the_tokenizers(models, name):
    (_, processor), _, encoder = models(name)
    short = [text for text in TEXTS if text != LONG]
    alone = [dict(FAMILIES[name].read(processor, text, FAMILIES[name].limit)) for text in short]
    pad = processor.tokenizer.pad_token_id
    words = [inputs["attention_mask"] if "attention_mask" in inputs else inputs["input_ids"] != pad for inputs in alone]
    assert [length.tokens for length in encoder.text_lengths(short)] == [int(mask.sum()) for mask in words]


@each_family
def test_token_ids_are_what_the_model_reads(models, name):
    _, _, encoder = models(name)
    texts = [*dict.fromkeys(TEXTS), f"{LONG} more"]
    ids = encoder.token_ids(texts)
    assert ids[-1] == ids[texts.index(LONG)]
    read = [tokens_of(encoder, [text])["input_ids"][0].tolist() for text in texts]
    # Some pad to their limit.
    assert all(
        row[: len(own)] == list(own) and len(set(row[len(own) :])) <= 1 for own, row in zip(ids, read, strict=True)
    )
    assert [len(own) for own in ids] == [length.tokens for length in encoder.text_lengths(texts)]


@each_family
def test_info(models, name):
    (model, _), folder, encoder = models(name)
    info = encoders.describe(encoder)
    assert (info.id, info.family) == (str(folder), model.config.model_type)
    assert (info.image_size, info.image_backend) == (FAMILIES[name].image_size, "pil")


@each_family
def test_bfloat16(models, name):
    _, folder, encoder = models(name)
    half = encoders.load(folder, device="cpu", dtype="bfloat16")
    assert half.encode_images(IMAGES).isfinite().all()
    close = torch.nn.functional.cosine_similarity(half.encode_texts(TEXTS).float(), encoder.encode_texts(TEXTS))
    assert (close > 0.9).all()


@pytest.mark.parametrize("name", ["siglip-gemma", "siglip2"])
def test_siglip_sees_its_padding(models, name, monkeypatch):
    made, _, encoder = models(name)
    assert tokens_of(encoder, ["red"])["input_ids"].shape == (1, 64)
    assert list(tokens_of(encoder, ["red"])) == ["input_ids"]
    monkeypatch.setattr(type(encoder), "padding", "longest")
    wrong = cosines(encoder, texts=TEXTS[:1]) - direct(FAMILIES[name], made, texts=TEXTS[:1])
    assert wrong.abs().max() > 0.01


@pytest.mark.parametrize("name", ["siglip-gemma", "siglip2"])
def test_siglip_2_lower_cases(models, name):
    _, _, encoder = models(name)
    upper, lower = encoder.encode_texts(["The RED thing", "the red thing"])
    assert torch.equal(upper, lower)
    assert encoder.text_lengths(["THING"]) == encoder.text_lengths(["thing"])


def test_flava_hides_no_patches(models):
    (_, processor), _, encoder = models("flava")
    assert "bool_masked_pos" in processor.image_processor(IMAGES[0], return_tensors="pt")
    assert torch.equal(encoder.encode_images(IMAGES), encoder.encode_images(IMAGES))


def test_naflex_keeps_the_shape_of_an_image(models):
    _, _, encoder = models("siglip2")
    wide, high = encoder.prepare_images([image((200, 50), 1), image((50, 200), 1)])
    assert wide["spatial_shapes"].tolist() == high["spatial_shapes"].flip(0).tolist()
    assert wide["spatial_shapes"][0] < wide["spatial_shapes"][1]


def test_blip_2_gives_one_embedding_a_query(models):
    _, _, encoder = models("blip-2")
    assert encoder.encode_images(IMAGES).shape == (5, 3, 12)


def test_a_checkpoint_for_something_else(models, tmp_path):
    from transformers import BlipForConditionalGeneration

    (model, processor), _, _ = models("blip")
    BlipForConditionalGeneration(model.config).save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    with pytest.raises(
        dci_metrics.DCIError, match=r"weights are missing, .* \(it says: BlipForConditionalGeneration\)"
    ):
        encoders.load(tmp_path)
