"""Text limits and readings of open_clip's models: against open_clip with models that are made for as many tokens."""

import copy
import json

import numpy as np
import open_clip
import pytest
import spacy
import torch
from encoders.inputs import IMAGES, cosines, unit
from release_maker import mask_entry, photo_annotation, write_release
from transformers import BertModel
from with_open_clip.conftest import CONFIGS, Direct, random_weights, save_clips, save_with_bert

import dci
import dci_metrics
from dci_metrics import encoders
from dci_metrics.encoders import reading
from dci_metrics.encoders.base import TextLength

OWN = {"tiny": 77, "tiny-custom": 77, "tiny-last": 77, "tiny-coca": 76}
"""Text limits."""

KEPT = {"interpolate": 0, "keep-first-20": 20}

each = pytest.mark.parametrize("name", OWN)
each_way = pytest.mark.parametrize("stretch", KEPT)


def long_clip(rows, kept):
    """Four rows of each but the first ones, as Long-CLIP's `load_from_clip` makes them: 77 rows become 248."""
    found = list(rows[:kept])
    for i in range(kept, len(rows) - 1):
        found += [(4 - k) / 4 * rows[i] + k / 4 * rows[i + 1] for k in range(4)]
    return np.stack(found + [rows[-1] + k / 4 * (rows[-1] - rows[-2]) for k in range(4)])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Each architecture's weights, saved once: name → what the user gives."""
    folder = tmp_path_factory.mktemp("weights")
    for name in OWN:
        torch.save(random_weights(name), folder / f"{name}.pt")
    return {name: f"open_clip:{name}/{folder / name}.pt" for name in OWN}


@pytest.fixture(scope="module")
def sized(tmp_path_factory):
    """Makes a model of open_clip that is one of those, but for its text limit and its weights."""
    folder = tmp_path_factory.mktemp("sized")

    def make(name, count, weights):
        config = copy.deepcopy(CONFIGS[name])
        config["text_cfg"]["context_length"] = count
        (folder / f"{name}-{count}.json").write_text(json.dumps(config))
        open_clip.add_model_config(folder)
        model = open_clip.create_model(f"{name}-{count}")
        model.load_state_dict(weights)
        return model.eval()

    return make


def rows_of(words, count, tokenizer):
    """As open_clip's tokenizer makes them, by hand: start, words, end, and zeros up to `count`."""
    ids = [tokenizer.sot_token_id, *(tokenizer.encode(words)), tokenizer.eot_token_id]
    return torch.tensor([ids + [0] * (count - len(ids))])


@torch.no_grad()
def read(model, rows):
    return unit(model.encode_text(rows))


def close(found, expected, atol=1e-5):
    torch.testing.assert_close(unit(found), unit(expected), atol=atol, rtol=0)


# Limits


@each
def test_without_a_limit_nothing_changes(files, name):
    encoder, direct = encoders.load(files[name], device="cpu"), Direct(name, files[name].split("/", 1)[1])
    texts = ["the red thing", "", "thing " * 400]
    with torch.inference_mode():
        expected = direct.model.encode_text(direct.tokenizer(texts))
    assert torch.equal(encoder.encode_texts(texts), expected)
    assert (encoder.text_limit, encoder.info.text_limit, encoder.info.max_tokens) == (OWN[name], OWN[name], None)
    same = encoders.load(files[name], device="cpu", max_tokens=OWN[name], stretch="interpolate")
    assert torch.equal(same.encode_texts(texts), expected)
    assert (same.info.max_tokens, same.info.stretch) == (OWN[name], None)


@pytest.mark.parametrize("name", ["tiny", "tiny-custom"])
def test_a_model_for_248_tokens_reads_248(tmp_path, name):
    config = copy.deepcopy(CONFIGS[name])
    config["text_cfg"]["context_length"] = 248
    (tmp_path / f"{name}-long.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path)
    torch.save(random_weights(f"{name}-long"), tmp_path / "x.pt")
    encoder = encoders.load(f"open_clip:{name}-long/{tmp_path / 'x.pt'}", device="cpu")
    assert encoder.text_limit == encoder.info.text_limit == 248
    red, green = ("thing " * 245 + word for word in ("red", "green"))
    assert encoder.text_lengths([red, f"{red} and more"]) == [(248, 0), (248, 2)]
    embeds = unit(encoder.encode_texts([red, green, f"{red} and more"]))
    assert (embeds[0] - embeds[1]).abs().max() > 1e-3
    torch.testing.assert_close(embeds[0], embeds[2])
    direct = Direct(f"{name}-long", str(tmp_path / "x.pt"))
    torch.testing.assert_close(cosines(encoder), cosines(direct), atol=1e-5, rtol=0)


@each
def test_a_lower_limit_cuts_earlier(files, name):
    encoder = encoders.load(files[name], device="cpu", max_tokens=9)
    direct = Direct(name, files[name].split("/", 1)[1])
    texts = ["thing " * 7, "thing " * 8, "thing " * 400, "red thing", ""]
    words = ["thing " * 7] * 3 + texts[3:]
    rows = torch.cat([rows_of(one, OWN[name], direct.tokenizer) for one in words])
    # As it was trained: always in all of its positions, of which it may see those of the padding.
    close(encoder.encode_texts(texts), read(direct.model, rows))
    assert encoder.token_ids(texts) == [tuple(row) for row in rows.tolist()]
    assert encoder.text_lengths(texts) == [(9, 0), (9, 1), (9, 393), (4, 0), (2, 0)]
    info = encoder.info
    assert (info.text_limit, info.max_tokens, info.stretch) == (9, 9, None)


@each_way
@each
def test_a_stretched_model_is_one_made_for_as_many_tokens(files, sized, name, stretch):
    weights, own, kept = random_weights(name), OWN[name], KEPT[stretch]
    count = kept + 4 * (own - kept)
    assert name == "tiny-coca" or count == {0: 308, 20: 248}[kept]
    key = "positional_embedding" if "positional_embedding" in weights else "text.positional_embedding"
    table = weights[key].double().numpy()
    # The last row of CoCa's is that of the class token.
    table = np.concatenate([long_clip(table[:own], kept), table[own:]])
    weights[key] = torch.from_numpy(table).float()
    large = sized(name, count, weights)

    encoder = encoders.load(files[name], device="cpu", max_tokens=count, stretch=stretch)
    red, green = (f"{'thing ' * (own - 1)}{f'{word} ' * (count - own - 1)}" for word in ("red", "green"))
    texts = [red, green, f"{red} and more", "thing " * own, "the red thing", ""]
    words = [red, green, red, *texts[3:]]
    tokenizer = open_clip.get_tokenizer(name)
    rows = torch.cat([rows_of(one, count, tokenizer) for one in words])
    found = unit(encoder.encode_texts(texts))
    torch.testing.assert_close(found, read(large, rows), atol=1e-5, rtol=0)
    assert (found[0] - found[1]).abs().max() > 1e-4
    assert torch.equal(torch.tensor(encoder.token_ids(texts)), rows)
    assert encoder.text_lengths(texts) == [(count, 0), (count, 0), (count, 2), (own + 2, 0), (5, 0), (2, 0)]
    info = encoder.info
    assert (info.text_limit, info.max_tokens, info.stretch) == (count, count, stretch)
    assert info.parameters == sum(parameter.numel() for parameter in large.parameters())
    own_images = encoders.load(files[name], device="cpu").encode_images(IMAGES)
    assert torch.equal(encoder.encode_images(IMAGES), own_images)


@pytest.mark.parametrize("name", ["tiny", "tiny-custom", "tiny-coca"])
def test_short_texts_are_read_as_before_by_the_first_20_rows(files, name):
    """Where what is behind the text is not seen."""
    texts = ["the red thing", "", "thing " * 18]
    before = encoders.load(files[name], device="cpu").encode_texts(texts)
    kept = encoders.load(files[name], device="cpu", max_tokens=248, stretch="keep-first-20").encode_texts(texts)
    close(kept, before, atol=1e-6)
    other = encoders.load(files[name], device="cpu", max_tokens=248, stretch="interpolate").encode_texts(texts)
    assert (unit(other) - unit(before)).abs().max() > 1e-3


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision(files, dtype):
    options = {"device": "cpu", "max_tokens": 248, "stretch": "keep-first-20"}
    texts = ["the red thing", "thing " * 200]
    half = encoders.load(files["tiny"], dtype=dtype, **options).encode_texts(texts)
    whole = encoders.load(files["tiny"], **options).encode_texts(texts)
    assert (torch.nn.functional.cosine_similarity(half.float(), whole) > 0.95).all()


def test_an_encoder_is_left_as_it_is(files):
    encoder = encoders.load(files["tiny"], device="cpu")
    texts = ["thing " * 200]
    before = encoder.encode_texts(texts)
    assert encoders.load(encoder, max_tokens=248, stretch="interpolate").text_limit == 248
    assert encoder.text_limit == encoder.info.text_limit == 77
    assert torch.equal(encoder.encode_texts(texts), before)


# Other text towers


def by_bert(model, words):
    """A tower of transformers by itself: the mean over all that is no padding, and its projection."""
    states = model.transformer(input_ids=torch.tensor([words])).last_hidden_state
    return unit(model.proj(states.mean(1)))


@torch.no_grad()
def test_a_text_tower_of_transformers(tmp_path):
    """Of 40 positions it was trained on 30."""
    save_with_bert(tmp_path, positions=40)
    encoder = encoders.load(tmp_path, device="cpu")
    tower = Direct(f"local-dir:{tmp_path}").model.text
    for count in (9, 40):
        limited = encoders.load(tmp_path, device="cpu", max_tokens=count)
        close(limited.encode_texts(["red " * 100]), by_bert(tower, [2, *[6] * (count - 2), 3]))
        assert limited.text_lengths(["red " * 100, "", "red"]) == [(count, 102 - count), (2, 0), (3, 0)]
    with pytest.raises(dci.DCIError, match="has positions for 40 tokens, not for --max-tokens 41; add --stretch inter"):
        encoders.load(tmp_path, device="cpu", max_tokens=41)
    for stretch, kept in KEPT.items():
        count = kept + 4 * (40 - kept)
        config = copy.deepcopy(tower.config)
        config.max_position_embeddings = count
        weights = tower.transformer.state_dict()
        key = "embeddings.position_embeddings.weight"
        weights[key] = torch.from_numpy(long_clip(weights[key].double().numpy(), kept)).float()
        large = copy.deepcopy(tower)
        large.transformer = BertModel(config, add_pooling_layer=False).eval()
        large.transformer.load_state_dict(weights, strict=False)
        long = encoders.load(tmp_path, device="cpu", max_tokens=count, stretch=stretch)
        close(long.encode_texts(["red " * 400]), by_bert(large, [2, *[6] * (count - 2), 3]))
        assert long.text_lengths(["red " * 400]) == [(count, 402 - count)]
    assert encoder.text_limit == 30


@torch.no_grad()
def test_a_tokenizer_with_a_class_token_behind_the_padding(tmp_path):
    save_clips(tmp_path)
    direct = Direct(f"local-dir:{tmp_path}")
    start, end, last = 11, 12, 2
    texts = ["red " * 20, "red", ""]
    short = encoders.load(tmp_path, device="cpu", max_tokens=9)
    cut = [[start, *[6] * n, end, *[0] * (27 - n), last] for n in (6, 1, 0)]
    close(short.encode_texts(texts), read(direct.model, torch.tensor(cut)))
    assert short.text_lengths(texts) == [(9, 14), (4, 0), (3, 0)]
    # Its row is the last one, and goes with it.
    long = encoders.load(tmp_path, device="cpu", max_tokens=30 + 3 * 29, stretch="interpolate")
    table = direct.model.text.positional_embedding
    rows = torch.from_numpy(long_clip(table[:29].double().numpy(), 0)).float()
    direct.model.text.positional_embedding = torch.nn.Parameter(torch.cat([rows, table[29:]]))
    whole = [[start, *[6] * n, end, *[0] * (114 - n), last] for n in (114, 1)]
    close(long.encode_texts(["red " * 200, "red"]), read(direct.model, torch.tensor(whole)))
    assert long.text_lengths(["red " * 200]) == [(117, 86)]


def test_what_cannot_be(files, tmp_path):
    wrong = [
        ({"max_tokens": 2}, r"expected --max-tokens of at least 3 \(special tokens are counted\), got 2"),
        ({"max_tokens": 78}, "has positions for 77 tokens, not for --max-tokens 78; add --stretch interpolate or "),
    ]
    for options, message in wrong:
        with pytest.raises(dci.DCIError, match=message) as caught:
            encoders.load(files["tiny"], device="cpu", **options)
        assert "\n" not in str(caught.value)
    encoder = encoders.load(files["tiny-custom"], device="cpu")
    del encoder.model.text.positional_embedding
    with pytest.raises(dci.DCIError, match=r"at most 77 tokens, .* its text tower has no learned table of positions"):
        encoders.load(encoder, max_tokens=78, stretch="interpolate")


# Readings

SENTENCES = "A red thing. The green thing of the red! Is it a thing? Thing of things, the thing of a thing, and more. "
TEXTS = [SENTENCES * 5, "thing " * 100 + ". Red.", "a thing", "", "Red. " * 60, "塔の絵。" * 60]


def by_trial(text, tokenizer, limit):
    """One more sentence is taken as long as the tokenizer says that all together fit."""

    def fits(part):
        return len(tokenizer.encode(part)) + 2 <= limit

    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    spans = [(s.start_char, s.end_char) for s in nlp(text).sents]
    pieces, start = [], 0
    for i in range(1, len(spans) + 1):
        if i == len(spans) or not fits(text[spans[start][0] : spans[i][1]].strip()):
            pieces.append(text[spans[start][0] : spans[i - 1][1]].strip())
            start = i
    return [text] if fits(text) else pieces


@pytest.mark.parametrize("name", ["tiny", "tiny-coca"])
def test_pieces_are_under_the_limit(files, name):
    encoder = encoders.load(files[name], device="cpu", max_tokens=20)
    tokenizer = open_clip.get_tokenizer(name)
    found = reading.split(TEXTS, encoder)
    for text, own, length in zip(TEXTS, found.of, found.lengths, strict=True):
        pieces = [found.texts[i] for i in own]
        assert pieces == by_trial(text, tokenizer, 20)
        counts = [len(tokenizer.encode(piece)) + 2 for piece in pieces]
        assert length == TextLength(sum(min(n, 20) for n in counts), sum(max(0, n - 20) for n in counts))
    assert len(found.of[0]) > 5
    assert [length.lost for length in found.lengths][:2] == [0, 100 + 1 + 2 - 20]


class InPieces(Direct):
    """The mean of pieces, and its limit, by hand."""

    def encode_texts(self, texts):
        rows = [torch.cat([self.piece(piece) for piece in by_trial(text, self.tokenizer, 20)]) for text in texts]
        return torch.stack([one.mean(0) for one in rows])

    def piece(self, text):
        ids = self.tokenizer.encode(text)[:18]
        return read(self.model, rows_of(self.tokenizer.decode(ids), 77, self.tokenizer))


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    size, notes = (300, 280), {}
    for i in range(6):
        mask = mask_entry(3, (5, 6, 240, 250), size=size)
        summaries = {"base": [f"{i}. {TEXTS[i % 2]}"], "m-3-sc": [f"Thing {i}. {SENTENCES}"]}
        notes[f"{i}-data.json"] = photo_annotation(f"sa_{i}.jpg", size, [mask], summaries=summaries)
    return write_release(tmp_path_factory.mktemp("release"), notes)


def test_a_reading_in_sentences(files, release):
    options = {"tests": ["all_scm", "random_scm_i2t"], "progress": False}
    name = files["tiny"]
    result = dci_metrics.evaluate(name, release, max_tokens=20, reading="sentences-mean", cache=False, **options)
    expected = dci_metrics.evaluate(InPieces("tiny", name.split("/", 1)[1]), release, batch_size=1, **options)
    assert result.outcomes == expected.outcomes
    assert result.model["text_limit"] == 20
    assert (result.settings["max_tokens"], result.settings["reading"]) == (20, "sentences-mean")
    assert result.scores["all_scm"].tokens_lost == 3 * 83
    best = dci_metrics.evaluate(name, release, max_tokens=20, reading="sentences-max", cache=False, **options)
    assert best.scores["all_scm"].tokens_lost == 3 * 83
    assert best.rates != result.rates
