"""Readings of long text: against plain spaCy, a packing by trial, and numpy."""

import io
import json
import subprocess
import sys

import command
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
import spacy
import tiny_models
import torch
from encoders.inputs import image, unit
from hash_encoder import HashEncoder, HashScorer
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics
from dci_metrics import encoders, similarity
from dci_metrics.encoders import reading
from dci_metrics.encoders.base import TextLength
from dci_metrics.similarity import EmbeddingSimilarity, MultiVector

LIMIT = 24
WORDS = ["thing", "summary", "caption", "swaps", "basic", "layout", "base"]
READINGS = ["sentences-mean", "sentences-max"]


def prose(seed, sentences):
    """Sentences of 1 to 11 words; now and then one of 40, which is over the limit."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(sentences):
        count = 40 if draw.random() < 0.1 else int(draw.integers(1, 12))
        found.append(" ".join(draw.choice(WORDS, count)) + str(draw.choice([".", "!", " ?", "..."])))
    return str(draw.choice([" ", "\n", "  "])).join(found)


AWKWARD = [
    "",
    " \n\t ",
    "thing " * 10_000,
    "塔の絵。" * 200,
    "Ein Café 🎈! " * 60,
    "... !!! ??? " * 40,
    "no end\n\n" * 50,
    " \n" * 300,
]
TEXTS = [*(prose(seed, 3 + 4 * seed) for seed in range(8)), "thing caption.", *AWKWARD]


@pytest.fixture(scope="module")
def made():
    return tiny_models.clip(seed=4, limit=LIMIT)


@pytest.fixture(scope="module")
def encoder(made):
    return encoders.load(made[0], processor=made[1])


def pieces_by_trial(text, tokenizer):
    """One more sentence is taken as long as the tokenizer says that all together fit."""

    def count(part):
        return len(tokenizer(part, verbose=False)["input_ids"])

    if count(text) <= LIMIT:
        return [text]
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    found = [(s.start_char, s.end_char) for s in nlp(text).sents if s.text.strip()]
    pieces, start = [], 0
    for i in range(1, len(found) + 1):
        if i == len(found) or count(text[found[start][0] : found[i][1]].strip()) > LIMIT:
            pieces.append(text[found[start][0] : found[i - 1][1]].strip())
            start = i
    return pieces or [text]


def test_pieces_are_as_many_sentences_as_fit(encoder, made):
    tokenizer = made[1].tokenizer
    found = reading.split(TEXTS, encoder)
    assert len(found.texts) == len(set(found.texts))
    for text, own, length in zip(TEXTS, found.of, found.lengths, strict=True):
        pieces = [found.texts[i] for i in own]
        assert pieces == pieces_by_trial(text, tokenizer), text[:80]
        counts = [len(tokenizer(piece, verbose=False)["input_ids"]) for piece in pieces]
        assert length == (sum(min(n, LIMIT) for n in counts), sum(max(0, n - LIMIT) for n in counts))
    # There is something to see: texts in many pieces, and sentences that are cut all the same.
    assert max(map(len, found.of)) > 20
    assert 0 < sum(length.lost > 0 for length in found.lengths[:8]) < 8


def test_more_than_a_batch_of_texts(encoder):
    texts = [prose(seed, 6) for seed in range(reading.TEXTS_AT_ONCE + 20)]
    together = reading.split(texts, encoder)
    for i in (0, 200, 255, 256, 270):
        alone = reading.split([texts[i]], encoder)
        assert [together.texts[j] for j in together.of[i]] == alone.texts
        assert together.lengths[i] == alone.lengths[0]


class Counting(HashEncoder):
    """Its tokens are letters, blanks too, so that two sentences have more together than one by one."""

    def text_lengths(self, texts):
        return [TextLength(min(len(text), 30), max(0, len(text) - 30)) for text in texts]


def test_a_tokenizer_for_which_a_blank_is_a_token():
    text = "One two.   Three.      Four five six!  Seven. " + "Eight nine ten eleven twelve thirteen. " + "End."
    found = reading.split([text], Counting())
    assert found.texts == [
        "One two.   Three.",
        "Four five six!  Seven.",
        "Eight nine ten eleven twelve thirteen.",
        "End.",
    ]
    assert found.lengths == [(17 + 22 + 30 + 4, 8)]


def row(image_id, texts, seed):
    """A photo with three subcrops, each with a text."""
    photo = image((320, 300), seed)
    file = io.BytesIO()
    photo.save(file, "PNG")
    entries = [
        {"key": key, "mask_id": i - 1, "crop_xyxy": [20 * i, 0, 320, 300 - 10 * i], "captions": [text], "negatives": []}
        for i, (key, text) in enumerate(zip(["base", "m-0-sc", "m-1-sc"], texts, strict=True))
    ]
    return {
        "image": {"bytes": file.getvalue(), "path": None},
        "image_id": image_id,
        "file_name": f"{image_id}.png",
        "width": 320,
        "height": 300,
        "entries": entries,
        "left_out": [],
    }


@pytest.fixture(scope="module")
def rows():
    texts = [text for text in TEXTS if text.strip()]
    return [row(str(i), texts[3 * i : 3 * i + 3], i) for i in range(len(texts) // 3)]


TESTS = ["all_scm", "random_scm_i2t", "random_scm_t2i", "photo_scm_i2t"]


def by_hand(encoder, made, rows, how):
    """(images, texts) scores with numpy, one crop and one piece at a time."""
    entries = [(r, entry) for r in rows for entry in r["entries"]]
    crops = [PIL.Image.open(io.BytesIO(r["image"]["bytes"])).crop(entry["crop_xyxy"]) for r, entry in entries]
    images = np.stack([unit(encoder.encode_images([crop]))[0].numpy() for crop in crops]).astype(float)
    columns = []
    for _, entry in entries:
        pieces = pieces_by_trial(entry["captions"][0], made[1].tokenizer)
        vectors = np.stack([unit(encoder.encode_texts([piece]))[0].numpy() for piece in pieces]).astype(float)
        if how == "sentences-max":
            columns.append((images @ vectors.T).max(1))
        else:
            mean = vectors.mean(0)
            columns.append(images @ (mean / np.linalg.norm(mean)))
    return np.stack(columns, axis=1)


@pytest.mark.parametrize("how", READINGS)
def test_scores_are_those_of_numpy(encoder, made, rows, how, tmp_path):
    result = dci_metrics.evaluate(
        made[0], rows, processor=made[1], tests=TESTS, reading=how, examples=tmp_path / "e.parquet", progress=False
    )
    scores = by_hand(encoder, made, rows, how)
    n = len(scores)
    table = pq.read_table(tmp_path / "e.parquet").to_pylist()
    own = {(r["image_id"], r["key"]): r["score"] for r in table if r["test"] == "random_scm_t2i"}
    np.testing.assert_allclose([own[entry] for entry in result.entries], scores.diagonal(), atol=1e-5)
    right = [scores[i, i // 8 * 8 : i // 8 * 8 + 8].argmax() == i % 8 for i in range(n)]
    assert result.outcomes["all_scm"] == "".join("1" if ok else "0" for ok in right)
    inside = [scores[i, i // 3 * 3 : i // 3 * 3 + 3].argmax() == i % 3 for i in range(n)]
    assert result.outcomes["photo_scm_i2t"] == "".join("1" if ok else "0" for ok in inside)


@pytest.mark.parametrize("how", READINGS)
def test_the_result_says_how_it_was_read_and_what_that_cost(encoder, made, rows, how):
    results = [
        dci_metrics.evaluate(made[0], rows, processor=made[1], tests=["all_scm"], progress=False, reading=r)
        for r in ("truncate", how)
    ]
    cut, read = results
    texts = [entry["captions"][0] for r in rows for entry in r["entries"]]
    pieces = {piece for text in texts for piece in pieces_by_trial(text, made[1].tokenizer)}
    assert read.timing["pieces"] == len(pieces) > read.timing["texts"] == len(texts)
    assert "pieces" not in cut.timing
    assert (read.settings["reading"], "reading" in cut.settings) == (how, False)
    lengths = [len(made[1].tokenizer(text, verbose=False)["input_ids"]) for text in texts]
    assert cut.scores["all_scm"].tokens_lost == sum(max(0, n - LIMIT) for n in lengths)
    assert cut.scores["all_scm"].truncated == sum(n > LIMIT for n in lengths) / len(texts)
    lost = [length.lost for length in reading.split(texts, encoder).lengths]
    assert 0 < read.scores["all_scm"].tokens_lost == sum(lost) < cut.scores["all_scm"].tokens_lost
    assert read.scores["all_scm"].truncated == sum(n > 0 for n in lost) / len(texts)
    assert f"Texts were read as {how}: {len(pieces)} pieces in" in read.report()
    assert "have a sentence longer than the model's 24 tokens" in read.report()
    assert (cut.name, read.name) == ("CLIPModel", f"CLIPModel ({how})")


@pytest.mark.parametrize("how", READINGS)
def test_texts_that_fit_are_read_as_ever(made, how):
    texts = ["thing caption.", "A red one. A blue one.", "", "layout", "base base", "café."]
    rows = [row(str(i), texts[3 * i : 3 * i + 3], i) for i in range(2)]
    one, other = (
        dci_metrics.evaluate(made[0], rows, processor=made[1], tests=TESTS, progress=False, reading=r)
        for r in ("truncate", how)
    )
    assert one.outcomes == other.outcomes
    assert one.rates == other.rates


def test_pieces_are_computed_once_for_both_readings(rows, tmp_path, monkeypatch):
    folder = tiny_models.save_clip(tmp_path / "clip", seed=4, limit=LIMIT)
    counts = {"images": 0, "texts": 0}
    images, texts = encoders.HuggingFaceEncoder.encode_prepared, encoders.HuggingFaceEncoder.encode_texts
    monkeypatch.setattr(
        encoders.HuggingFaceEncoder,
        "encode_prepared",
        lambda self, given: counts.update(images=counts["images"] + len(given)) or images(self, given),
    )
    monkeypatch.setattr(
        encoders.HuggingFaceEncoder,
        "encode_texts",
        lambda self, given: counts.update(texts=counts["texts"] + len(given)) or texts(self, given),
    )

    def run(cache, **options):
        found = dci_metrics.evaluate(folder, rows, tests=TESTS, cache=cache, progress=False, **options)
        return found.outcomes, found.rates

    ways = [{"reading": READINGS[0]}, {"reading": READINGS[1]}, {"max_tokens": 40, "stretch": "interpolate"}]
    ways += [{"max_tokens": 40, "stretch": "keep-first-20"}, {"max_tokens": 9}, {}]
    plain = [run(False, **way) for way in ways]
    assert all(one != other for i, one in enumerate(plain) for other in plain[:i])
    counts.update(images=0, texts=0)
    cached = [run(tmp_path / "cache", **way) for way in ways[:2]]
    assert counts["images"] == sum(len(r["entries"]) for r in rows)
    pieces = counts["texts"]
    cached += [run(tmp_path / "cache", **way) for way in ways[2:]]
    assert cached == plain
    assert counts["images"] == sum(len(r["entries"]) for r in rows)  # they do not depend on it
    assert counts["texts"] > pieces
    done = dict(counts)
    assert [run(tmp_path / "cache", **way) for way in ways] == plain
    tried = sum("stretch" in way for way in ways)  # with one text each, as they are loaded
    assert counts == done | {"texts": done["texts"] + tried}


@pytest.mark.parametrize("chunk", [1, 50, 1 << 20])
def test_the_best_of_all_vectors_counts(chunk, monkeypatch):
    monkeypatch.setattr(similarity, "CHUNK", chunk)
    draw = np.random.default_rng(0)
    images, texts = draw.normal(size=(7, 3, 5)), draw.normal(size=(9, 4, 5))
    expected = np.einsum("nqd,mkd->nmqk", images, texts).max((2, 3))
    found = EmbeddingSimilarity(torch.tensor(images), torch.tensor(texts))
    i, t = torch.arange(7), torch.arange(9)
    np.testing.assert_allclose(found.matrix(i, t).numpy(), expected, atol=1e-6)
    np.testing.assert_allclose(found.pairs(i[:, None], t).numpy(), expected, atol=1e-6)
    assert found.matrix(i[:0], t).shape == (0, 9)
    assert found.matrix(i, t[:0]).shape == (7, 0)


def test_texts_of_few_and_of_many_vectors(monkeypatch):
    draw = np.random.default_rng(1)
    images, vectors = draw.normal(size=(6, 2, 5)), draw.normal(size=(12, 5))
    of = [[0], [1, 2, 3], [3], [4, 5], [0, 6, 7, 8, 9, 10, 11]]
    flat, counts = [i for own in of for i in own], [len(own) for own in of]
    texts = MultiVector(torch.tensor(vectors), torch.tensor(flat), torch.tensor(counts))
    expected = np.array([[max(q @ vectors[i] for q in image for i in own) for own in of] for image in images])
    i, t = torch.arange(6), torch.tensor([4, 0, 1, 1, 3, 2])
    for chunk in (1, 30, 1 << 20):
        monkeypatch.setattr(similarity, "CHUNK", chunk)
        found = EmbeddingSimilarity(torch.tensor(images), texts)
        np.testing.assert_allclose(found.matrix(i, t).numpy(), expected[:, t], atol=1e-6)
        np.testing.assert_allclose(found.pairs(i[:, None], t).numpy(), expected[:, t], atol=1e-6)


MEMORY = """
import resource
import torch
from dci_metrics import scoring
from dci_metrics.encoders import reading
from dci_metrics.retrieval.ranking import rank
from dci_metrics.similarity import EmbeddingSimilarity

def mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

def run(count, long):
    of = [[i, i + 1] for i in range(count)] + [list(range(long))]
    pieces = reading.Pieces([], of, [])
    found = pieces.joined(torch.nn.functional.normalize(torch.randn(count + 1, 64)), "sentences-max")
    images = torch.nn.functional.normalize(torch.randn(count + 1, 64))
    every = torch.arange(count + 1)
    scoring.match_in_groups(EmbeddingSimilarity(images, found), every, every[:, None])
    rank(images, found, every[:, None], chunk=1 << 20)

run(1000, 10)
before = mib()
run(3000, 2000)
print(mib() - before)
"""


def test_one_long_text_among_short_ones_takes_the_memory_of_its_own_pieces():
    """Filled up to the longest, 3,001 texts of 64 numbers a piece would take 1.5 GB."""
    out = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True).stdout
    assert float(out) < 200


def test_many_sentences_of_which_fewer_fit_than_their_tokens_say():
    """Five have 30 letters, as many as fit, but there are blanks between them."""
    found = reading.split(["Ab cd.  " * 8000], Counting())
    assert found.texts == ["Ab cd.  Ab cd.  Ab cd.  Ab cd."]
    assert (found.of, found.lengths) == ([[0] * 2000], [(60_000, 0)])


def test_half_a_surrogate_pair_is_no_reason_to_fail(encoder):
    text = "One \ud800 two. " * 4
    found = reading.split([text], Counting())
    assert (found.texts, found.of) == (["One \ud800 two. One \ud800 two."], [[0, 0]])
    replaced = text.replace("\ud800", "\ufffd")
    assert torch.equal(encoder.encode_texts([text]), encoder.encode_texts([replaced]))
    assert encoder.token_ids([text]) == encoder.token_ids([replaced])
    assert encoder.text_lengths([text]) == encoder.text_lengths([replaced])


def test_pieces_that_cancel_out():
    found = reading.Pieces(["a", "b"], [[0, 1]], [TextLength(2, 0)])
    with pytest.raises(dci.DCIError, match="cancel out"):
        found.joined(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), "sentences-mean")


def test_what_cannot_be(rows, monkeypatch):
    wrong = [
        (HashEncoder(), "sentences", "no reading 'sentences': expected one of truncate, sentences-mean, sentences-max"),
        (HashEncoder(), "sentences-mean", "HashEncoder: does not tell what fits .* needs its `text_lengths`"),
        (HashScorer(), "sentences-max", "HashScorer: looks at image and text together"),
    ]
    for model, how, message in wrong:
        with pytest.raises(dci.DCIError, match=message):
            dci_metrics.evaluate(model, rows, tests=["all_scm"], reading=how, progress=False)
    reading._sentencizer.cache_clear()
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(dci.DCIError, match=r"needs spaCy: pip install 'dci-metrics\[spacy\]'"):
        dci_metrics.evaluate(Counting(), rows, tests=["all_scm"], reading="sentences-max", progress=False)


def test_on_the_command_line(monkeypatch, capsys, tmp_path):
    folder = tiny_models.save_clip(tmp_path / "clip", seed=4)
    size = (300, 280)
    notes = {}
    for i in range(4):
        mask = mask_entry(3, (5, 6, 240, 250), size=size)
        summaries = {"base": [prose(10 + i, 6)], "m-3-sc": [prose(20 + i, 6)]}
        notes[f"{i}-data.json"] = photo_annotation(f"sa_{i}.jpg", size, [mask], summaries=summaries)
    release = write_release(tmp_path / "release", notes)
    model = ["eval", folder, "--dataset", release, "--tests", "all_scm", "--no-cache"]
    ways = {
        "short": {"max_tokens": 20},
        "mean": {"max_tokens": 20, "reading": "sentences-mean"},
        "long": {"max_tokens": 100, "stretch": "keep-first-20"},
        "own": {},
    }
    lost = {}
    for name, way in ways.items():
        options = [part for key, value in way.items() for part in (f"--{key.replace('_', '-')}", value)]
        code, _, err = command.run(monkeypatch, capsys, *model, *options, "--out", tmp_path / f"{name}.json")
        assert code == 0, err
        result = json.loads((tmp_path / f"{name}.json").read_bytes())
        settings = result["settings"]
        assert {key: settings[key] for key in ("max_tokens", "stretch", "reading") if key in settings} == way
        assert result["model"]["text_limit"] == way.get("max_tokens", 77)
        lost[name] = result["scores"]["all_scm"]["tokens_lost"]
    assert lost["short"] > lost["mean"] > lost["own"] > lost["long"] == 0
    code, out, err = command.run(monkeypatch, capsys, "compare", tmp_path / "short.json", tmp_path / "mean.json")
    assert code == 0, err
    assert f"A: {folder} (20 tokens)\nB: {folder} (20 tokens, sentences-mean)" in out
    assert "Note: reading is truncate in A and sentences-mean in B." in out
    code, out, err = command.run(monkeypatch, capsys, "compare", tmp_path / "own.json", tmp_path / "long.json")
    assert "Note: max_tokens is the model's own in A and 100 in B; stretch is none in A and keep-first-20 in B." in out
    done = command.run(monkeypatch, capsys, *model, "--max-tokens", 100)
    command.refused(done, "has positions for 77 tokens, not for --max-tokens 100", "--stretch keep-first-20")
