"""`max_tokens` and `stretch`: against numpy, and against transformers with a model made for as many positions."""

import copy

import numpy as np
import pytest
import tiny_models
import torch
import transformers as hf
from encoders.families import FAMILIES, SQUARE, VISION, bert_tokenizer, spread, text_tower
from encoders.inputs import IMAGES, LONG, cosines, tokens_of, unit
from transformers.models.vit import ViTImageProcessorPil

import dci
from dci_metrics import encoders
from dci_metrics.encoders.stretching import STRETCHES, stretched_rows

each_family = pytest.mark.parametrize("name", FAMILIES)
each_way = pytest.mark.parametrize("stretch", STRETCHES)


def by_numpy(rows, count, kept):
    """Column by column; past the last row along the line of the last two."""
    n = len(rows)
    at = kept + (np.arange(count - kept) * (n - kept)) / (count - kept)
    inside = np.stack([np.interp(at, np.arange(n), column) for column in rows.T], axis=1)
    beyond = rows[-1] + (at - (n - 1))[:, None] * (rows[-1] - rows[-2])
    return np.concatenate([rows[:kept], np.where((at > n - 1)[:, None], beyond, inside)])


@pytest.mark.parametrize(("n", "count"), [(77, 248), (77, 78), (77, 1279), (64, 65), (24, 512), (512, 513), (22, 23)])
@pytest.mark.parametrize("kept", [0, 20])
def test_rows_are_those_of_the_formula(n, count, kept):
    rows = np.random.default_rng(n).normal(size=(n, 6))
    found = stretched_rows(torch.from_numpy(rows), count, kept)
    np.testing.assert_allclose(found.numpy(), by_numpy(rows, count, kept), atol=1e-12)
    assert torch.equal(found[:kept], torch.from_numpy(rows[:kept]))


def test_77_become_248_as_in_long_clip():
    """20 rows, then each of 57 followed by three on the way to the next; the last one has no next."""
    rows = np.random.default_rng(1).normal(size=(77, 4))
    expected = list(rows[:20])
    for i in range(20, 77):
        step = (rows[i + 1] - rows[i] if i < 76 else rows[76] - rows[75]) / 4
        expected += [rows[i] + k * step for k in range(4)]
    assert len(expected) == 248
    np.testing.assert_allclose(stretched_rows(torch.from_numpy(rows), 248, 20).numpy(), expected, atol=1e-12)


def test_rows_keep_their_type_and_are_exact_where_they_stand_on_old_ones():
    rows = torch.randn(77, 8, generator=torch.Generator().manual_seed(0))
    long = stretched_rows(rows, 154, 0)
    assert torch.equal(long[::2], rows)
    assert stretched_rows(rows.bfloat16(), 154, 0).dtype == torch.bfloat16


POSITIONS = {"align": 512, "chinese_clip": 512}
"""Where the processor cuts earlier."""

HEADS = {"altclip": 2, "vision-text-dual-encoder": 2}
"""Rows of the table that are no token's."""


def enlarged(model, name, count, kept):
    """The same model from a config with more positions, its table stretched by numpy."""
    config, head = copy.deepcopy(model.config), HEADS.get(name, 0)
    text = config.qformer_config if name == "blip-2" else config.get_text_config()
    text.max_position_embeddings = count + head
    large = type(model)(config)
    weights = model.state_dict()
    (key,) = [
        key for key, weight in large.state_dict().items() if "position" in key and weight.shape != weights[key].shape
    ]
    rows = weights[key].numpy()
    weights[key] = torch.from_numpy(np.concatenate([rows[:head], by_numpy(rows[head:], count, kept)])).float()
    large.load_state_dict(weights)
    return large.eval()


def with_words(count, end, tokenizer):
    """A text of that many tokens, specials counted, which ends with one of two words."""
    for word in tiny_models.WORDS[::-1] if end else tiny_models.WORDS:
        # With Gemma's kind of tokenizer the blank before a word is a token.
        things = [*range(max(0, count // 2 - 4), count // 2 + 1), *range(max(0, count - 5), count)]
        texts = [f"{first}{'thing ' * n}{word}" for first in ("", "ab ") for n in things if word != "thing"]
        counts = [len(ids) for ids in tokenizer(texts, verbose=False)["input_ids"]] if texts else []
        if count in counts:
            return texts[counts.index(count)]
    raise AssertionError("no such text")


@each_way
@each_family
def test_a_stretched_model_is_one_made_for_as_many_tokens(folders, name, stretch, tmp_path):
    (model, processor), folder = folders(name)
    family, limit = FAMILIES[name], POSITIONS.get(name, FAMILIES[name].limit)
    count = limit + 23
    encoder = encoders.load(folder, device="cpu", max_tokens=count, stretch=stretch)
    texts = [with_words(count, word, processor.tokenizer) for word in (0, 1)]
    texts += [f"{texts[0]} and more", with_words(limit + 1, 0, processor.tokenizer), "the red thing"]
    large = enlarged(model, name, count, STRETCHES[stretch])
    if name == "aimv2":
        large.set_attn_implementation("eager")
    large.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    given = encoders.load(tmp_path, device="cpu", max_tokens=count)
    expected = unit(given.encode_texts(texts))
    found = unit(encoder.encode_texts(texts))
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)
    # transformers itself, which knows nothing of `max_tokens`.
    with torch.no_grad():
        pixels = processor.image_processor(IMAGES[0], return_tensors="pt", **family.images)
        direct = [family.cosines(large, dict(pixels), dict(family.read(processor, text, count))) for text in texts[:4]]
    torch.testing.assert_close(cosines(encoder, IMAGES[:1], texts[:4]), torch.cat(direct, dim=1), atol=2e-5, rtol=0)
    # The last word of N tokens is read, and what comes after is not.
    assert (found[0] - found[1]).abs().max() > 1e-4
    ids = encoder.token_ids(texts)
    assert [len(one) for one in ids[:3]] == [count] * 3
    assert encoder.text_lengths(texts)[2].lost == len(processor.tokenizer(texts[2], verbose=False)["input_ids"]) - count
    info = encoder.info
    assert (info.text_limit, info.max_tokens, info.stretch) == (count, count, stretch)
    assert info.parameters == given.info.parameters


@each_family
def test_a_lower_limit_cuts_shorter(folders, name):
    (_, processor), folder = folders(name)
    family = FAMILIES[name]
    encoder, whole = (encoders.load(folder, device="cpu", max_tokens=n) for n in (9, None))
    assert (encoder.text_limit, encoder.info.text_limit, encoder.info.max_tokens) == (9, 9, 9)
    assert encoder.info.stretch is None
    cut = with_words(9, 0, processor.tokenizer)
    for text in (f"{cut} and more", cut):
        torch.testing.assert_close(encoder.encode_texts([text]), whole.encode_texts([cut]), atol=1e-5, rtol=0)
    row = tokens_of(encoder, [LONG])["input_ids"][0]
    assert processor.tokenizer.convert_ids_to_tokens(int(row[8])) == family.end
    length = len(processor.tokenizer(LONG, verbose=False)["input_ids"])
    assert encoder.text_lengths([LONG, cut]) == [(9, length - 9), (9, 0)]


@each_family
def test_more_than_there_are_positions_for_is_refused(folders, name):
    _, folder = folders(name)
    most = POSITIONS.get(name, FAMILIES[name].limit)
    with pytest.raises(dci.DCIError, match=rf"{name}: has positions for {most} tokens, .* add --stretch interpolate"):
        encoders.load(folder, device="cpu", max_tokens=most + 1)
    assert encoders.load(folder, device="cpu", max_tokens=most).text_limit == most


@pytest.mark.parametrize("said", [77, 248, int(1e30)])
def test_a_model_with_248_positions_reads_248(tmp_path, said):
    """Tokenizers of Long-CLIP's checkpoints were taken over from CLIP's, 77 and all."""
    model, processor = tiny_models.clip(seed=2, limit=248)
    processor.tokenizer.model_max_length = said
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    encoder = encoders.load(tmp_path)
    assert encoder.text_limit == encoder.info.text_limit == 248
    red, green = ("thing " * 245 + word for word in ("red", "green"))
    assert encoder.text_lengths([red, f"{red} {red}"]) == [(248, 0), (248, 246)]
    embeds = encoder.encode_texts([red, green, f"{red} more"])
    assert (embeds[0] - embeds[1]).abs().max() > 1e-3
    torch.testing.assert_close(embeds[0], embeds[2])
    direct = model.get_text_features(**processor.tokenizer([red], return_tensors="pt")).pooler_output
    torch.testing.assert_close(embeds[:1], direct)
    assert encoders.load(tmp_path, max_tokens=77).text_limit == 77


@pytest.fixture(scope="module")
def rotary(tmp_path_factory):
    """Positions that are computed: it would run with any number of tokens."""
    tokenizer = bert_tokenizer(int(1e30))
    text = hf.JinaEmbeddingsV3Config(**text_tower(tokenizer, 40))
    config = hf.VisionTextDualEncoderConfig.from_vision_text_configs(hf.ViTConfig(**VISION), text, projection_dim=12)
    folder = tmp_path_factory.mktemp("models") / "rotary"
    spread(hf.VisionTextDualEncoderModel(config)).save_pretrained(folder)
    images = ViTImageProcessorPil(size=SQUARE)
    hf.VisionTextDualEncoderProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def test_rotary_positions(rotary):
    encoder = encoders.load(rotary)
    assert encoder.text_limit == encoder.info.text_limit == 40
    assert encoder.text_lengths([LONG]) == [(40, 562)]
    assert encoder.encode_texts([LONG]).isfinite().all()
    assert encoders.load(rotary, max_tokens=12).text_lengths([LONG]) == [(12, 590)]
    for stretch in (None, "interpolate"):
        with pytest.raises(dci.DCIError, match=r"at most 40 tokens, .* cannot be stretched: its positions are rotary"):
            encoders.load(rotary, max_tokens=41, stretch=stretch)


def test_a_loaded_model_is_left_as_it_is():
    model, processor = tiny_models.clip(seed=3)
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    encoder = encoders.load(model, processor=processor, max_tokens=100, stretch="interpolate")
    assert encoder.encode_texts(["thing " * 300]).shape == (1, 12)
    assert model.config.text_config.max_position_embeddings == 77
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    assert encoders.load(model, processor=processor, max_tokens=50).model is model


def test_an_encoder_is_left_as_it_is():
    model, processor = tiny_models.clip(seed=3)
    encoder = encoders.load(model, processor=processor)
    before = encoder.info, encoder.encode_texts([LONG])
    long = encoders.load(encoder, max_tokens=100, stretch="interpolate")
    assert (long.text_limit, long.info.stretch, long.text_lengths([LONG])[0].tokens) == (100, "interpolate", 100)
    assert encoders.load(encoder, max_tokens=9).token_ids([LONG])[0][:8] == encoder.token_ids([LONG])[0][:8]
    assert (encoder.text_limit, encoder.info, encoder.model) == (77, before[0], model)
    assert torch.equal(encoder.encode_texts([LONG]), before[1])
    with pytest.raises(dci.DCIError, match="was stretched to 100 tokens before; load the model as it was"):
        encoders.load(long, max_tokens=77)


def test_where_nothing_is_to_be_stretched_nothing_is():
    model, processor = tiny_models.clip(seed=3)
    encoder = encoders.load(model, processor=processor, max_tokens=77, stretch="interpolate")
    assert encoder.model is model
    assert (encoder.info.max_tokens, encoder.info.stretch) == (77, None)


def test_bfloat16(folders):
    _, folder = folders("clipseg")
    half = encoders.load(folder, device="cpu", dtype="bfloat16", max_tokens=90, stretch="keep-first-20")
    assert half.encode_texts([LONG]).dtype == torch.bfloat16
    assert half.encode_texts([LONG]).isfinite().all()


class Own:
    def encode_images(self, images):
        return torch.ones(len(images), 2)

    encode_texts = encode_images


def test_what_cannot_be():
    model, processor = tiny_models.clip(limit=21)
    given = {"processor": processor}
    wrong = [
        (model, given | {"max_tokens": 40, "stretch": "longer"}, "no stretch 'longer': expected one of interpolate, k"),
        (model, given | {"stretch": "interpolate"}, "how far is not said; add --max-tokens N"),
        (
            model,
            given | {"max_tokens": 2},
            r"expected --max-tokens of at least 3 \(special tokens are counted\), got 2",
        ),
        (model, given | {"max_tokens": 40, "stretch": "keep-first-20"}, "has 21 positions, too few for --stretch keep"),
        (model, given | {"max_tokens": -1}, "expected --max-tokens of at least 3"),
        (model, given | {"max_tokens": "40"}, "expected max_tokens to be a whole number, got '40'"),
        (model, given | {"max_tokens": 40.5}, "expected max_tokens to be a whole number, got 40.5"),
        (
            Own(),
            {"max_tokens": 40},
            "Own: reads texts in its own way; --max-tokens is for models of transformers and open",
        ),
    ]
    for what, options, message in wrong:
        with pytest.raises(dci.DCIError, match=message) as caught:
            encoders.load(what, **options)
        assert "\n" not in str(caught.value)
