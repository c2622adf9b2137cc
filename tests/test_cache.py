"""Embeddings and scores on disk: the same figures with and without, after an interruption, and with broken files."""

import dataclasses
import json
from collections import Counter

import pytest
import tiny_models
import torch
from awkward_release import write_awkward_release
from encoders import families, vlms

import dci_metrics
from dci_metrics import cache, encoders
from dci_metrics.cache import EmbeddingCache, ScoreCache
from dci_metrics.encoders.matching import HuggingFaceMatcher
from dci_metrics.encoders.vqascore import VQAScorer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_models.save_clip(tmp_path_factory.mktemp("models") / "clip", seed=3)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=3)


def without_time(result):
    return {key: value for key, value in json.loads(result.to_json()).items() if key != "timing"}


@pytest.fixture
def counted(monkeypatch):
    """How many images and texts the model was given."""
    counts = {"images": 0, "texts": 0}
    images, texts = encoders.HuggingFaceEncoder.encode_prepared, encoders.HuggingFaceEncoder.encode_texts

    def encode_prepared(self, prepared):
        counts["images"] += len(prepared)
        return images(self, prepared)

    def encode_texts(self, given):
        counts["texts"] += len(given)
        return texts(self, given)

    monkeypatch.setattr(encoders.HuggingFaceEncoder, "encode_prepared", encode_prepared)
    monkeypatch.setattr(encoders.HuggingFaceEncoder, "encode_texts", encode_texts)
    return counts


def test_a_second_run_computes_nothing_and_gives_the_same(model, release, tmp_path, counted):
    plain = dci_metrics.evaluate(model, release, cache=False, progress=False)
    first = dci_metrics.evaluate(model, release, cache=tmp_path, progress=False)
    done = dict(counted)
    second = dci_metrics.evaluate(model, release, cache=tmp_path, progress=False)
    assert counted == done
    assert without_time(first) == without_time(second)
    assert plain.outcomes == first.outcomes


def test_an_interrupted_run_goes_on_where_it_stopped(model, release, tmp_path, counted, monkeypatch):
    whole = dci_metrics.evaluate(model, release, cache=False, progress=False)
    counted |= {"images": 0, "texts": 0}
    encode = encoders.HuggingFaceEncoder.encode_texts

    def interrupted(self, texts):
        if counted["texts"] >= 8:
            raise KeyboardInterrupt
        return encode(self, texts)

    with monkeypatch.context() as patched:
        patched.setattr(encoders.HuggingFaceEncoder, "encode_texts", interrupted)
        with pytest.raises(KeyboardInterrupt):
            dci_metrics.evaluate(model, release, cache=tmp_path, progress=False, batch_size=4)
    resumed = dci_metrics.evaluate(model, release, cache=tmp_path, progress=False, batch_size=4)
    assert counted == {"images": whole.timing["images"], "texts": whole.timing["texts"]}
    assert resumed.outcomes == whole.outcomes


def test_the_same_embeddings_come_back(tmp_path):
    embeds = torch.randn(5, 7)
    first = EmbeddingCache(tmp_path)
    first.add(list("abcde"), embeds)
    first.flush()
    second = EmbeddingCache(tmp_path)
    assert all(torch.equal(second[key], embed) for key, embed in zip("abcde", embeds, strict=True))
    assert "f" not in second
    second.flush()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "text"])
def test_a_broken_file_is_noticed_and_redone(model, release, tmp_path, counted, harm, caplog):
    whole = dci_metrics.evaluate(model, release, cache=tmp_path, progress=False)
    (path,) = tmp_path.glob("*/images/*.safetensors")
    content = path.read_bytes()
    broken = {
        "cut": content[:-10],
        "flip": content[:-4] + bytes(byte ^ 1 for byte in content[-4:]),
        "empty": b"",
        "text": b"no tensors here",
    }
    path.write_bytes(broken[harm])
    before = counted["images"]
    again = dci_metrics.evaluate(model, release, cache=tmp_path, progress=False)
    assert f"{path}: is broken" in caplog.text
    assert counted["images"] - before == whole.timing["images"]
    assert without_time(again) == without_time(whole)
    assert len(list(tmp_path.glob("*/images/*.safetensors"))) == 1


def test_what_decides_embeddings_is_in_the_key(model, release, tmp_path):
    def key(folder, **options):
        return cache.model_key(folder, encoders.describe(encoders.load(folder, **options)))

    other = tiny_models.save_clip(tmp_path / "clip", seed=4)
    same = tiny_models.save_clip(tmp_path / "same", seed=3)
    assert key(model) == key(same)
    keys = {key(model), key(other), key(model, dtype="bfloat16")}
    processor = json.loads((same / "processor_config.json").read_text())
    processor["image_processor"]["image_mean"] = [0.1, 0.2, 0.3]
    (same / "processor_config.json").write_text(json.dumps(processor))
    keys.add(key(same))
    assert len(keys) == 4
    blip = save_blip(tmp_path / "blip")
    assert len({key(blip), key(blip, scorer="contrastive"), key(blip, scorer="matching")}) == 2
    asked = encoders.ModelInfo(id="asked", scorer="vqascore", question="{}?")
    assert cache.model_key(blip, asked) != cache.model_key(blip, dataclasses.replace(asked, question="Is it {}?"))
    # Nothing tells whether a model in memory, or on the Hub without a commit, is the same next time.
    assert cache.model_key("owner/model", encoders.ModelInfo(id="owner/model")) is None


def test_crops_and_masks_are_not_mixed_up(model, tmp_path):
    box = dci_metrics.evaluate(model, "sample:photographs", cache=tmp_path, progress=False)
    masked = dci_metrics.evaluate(model, "sample:photographs", cache=tmp_path, crop="masked", progress=False)
    plain = dci_metrics.evaluate(model, "sample:photographs", cache=False, crop="masked", progress=False)
    assert masked.outcomes == plain.outcomes
    assert box.settings["crop"] == "box"


def test_a_folder_that_cannot_be_written(model, release, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(dci_metrics.DCIError, match=r"file.*cannot be written.*--cache-dir.*--no-cache"):
        dci_metrics.evaluate(model, release, cache=tmp_path / "file", progress=False)


# ----------------------------------------------------------------------------------------------------------------------
# Scores of pairs
# ----------------------------------------------------------------------------------------------------------------------


def save_blip(folder):
    """One that compares by its embeddings, and by its matching head."""
    model, processor = families.blip_retrieval()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pair_models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair-models")
    vlms.save("llava", folder / "llava")
    return {"matching": save_blip(folder / "blip"), "vqascore": folder / "llava"}


@pytest.fixture(params=["matching", "vqascore"])
def scored(request, pair_models, release):
    """Scores a release with one of the models: (options of `evaluate`) → result."""

    def run(**options):
        options = {"progress": False, "batch_size": 3, "scorer": request.param} | options
        return dci_metrics.evaluate(pair_models[request.param], release, **options)

    return run


@pytest.fixture
def asked(monkeypatch):
    """How often models looked at an image, and how often they were given each text."""
    counts = {"looks": 0, "texts": Counter()}
    look, seen, score = HuggingFaceMatcher.look, HuggingFaceMatcher.score_seen, VQAScorer.score

    def counted_look(self, image):
        counts["looks"] += 1
        return look(self, image)

    def counted_seen(self, image, texts):
        counts["texts"].update(texts)
        return seen(self, image, texts)

    def counted_score(self, images, texts):
        counts["looks"] += 1
        counts["texts"].update(texts)
        return score(self, images, texts)

    monkeypatch.setattr(HuggingFaceMatcher, "look", counted_look)
    monkeypatch.setattr(HuggingFaceMatcher, "score_seen", counted_seen)
    monkeypatch.setattr(VQAScorer, "score", counted_score)
    return counts


def test_a_second_run_scores_no_pair_and_gives_the_same(scored, asked, tmp_path):
    plain = scored(cache=False)
    once = asked["texts"].copy()
    first = scored(cache=tmp_path)
    assert asked["texts"] == once + once
    assert len(list(tmp_path.glob("*/pairs/*.safetensors"))) >= 1
    looks = asked["looks"]
    second = scored(cache=tmp_path)
    assert asked == {"looks": looks, "texts": once + once}
    assert without_time(plain) == without_time(first) == without_time(second)


def test_only_what_other_tests_need_is_scored_then(scored, asked, tmp_path):
    scored(cache=tmp_path, tests=["all_neg"])
    asked["texts"].clear()
    scored(cache=False, tests=["all_scm"])
    alone = asked["texts"].copy()
    asked["texts"].clear()
    scored(cache=tmp_path, tests=["all_scm"])
    assert 0 < asked["texts"].total() < alone.total()
    asked["texts"].clear()
    scored(cache=tmp_path, tests=["all_neg", "all_scm"])
    assert not asked["texts"]


@pytest.mark.parametrize("after", [0, 20])
def test_an_interrupted_run_scores_the_rest_only(scored, asked, tmp_path, monkeypatch, after):
    whole = scored(cache=False)
    pairs = asked["texts"].copy()
    asked["texts"].clear()
    calls = iter(range(after))
    counted = {kind: getattr(kind, name) for kind, name in ((HuggingFaceMatcher, "score_seen"), (VQAScorer, "score"))}

    def interrupted(kind):
        def score(self, image, texts):
            if next(calls, None) is None:
                raise KeyboardInterrupt
            return counted[kind](self, image, texts)

        return score

    with monkeypatch.context() as patched:
        patched.setattr(HuggingFaceMatcher, "score_seen", interrupted(HuggingFaceMatcher))
        patched.setattr(VQAScorer, "score", interrupted(VQAScorer))
        with pytest.raises(KeyboardInterrupt):
            scored(cache=tmp_path)
    assert asked["texts"].total() <= 3 * after
    resumed = scored(cache=tmp_path)
    assert asked["texts"] == pairs
    assert without_time(resumed) == without_time(whole)


def test_a_killed_run_loses_no_more_than_is_held_back(scored, asked, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "FLUSH", 10)
    scored(cache=tmp_path)
    files = list(tmp_path.glob("*/pairs/*.safetensors"))
    assert len(files) >= asked["texts"].total() // 12  # a batch of three may be over
    (folder,) = {file.parent for file in files}
    assert sum(len(of) for of in read_scores(folder).values()) == asked["texts"].total()


def read_scores(folder):
    """All scores of a folder, by image and name of text."""
    known = ScoreCache(folder)._known
    return {
        image: {name: score for names, numbers in parts for name, score in zip(cache._cut(names), numbers, strict=True)}
        for image, parts in known.items()
    }


def test_the_same_scores_come_back(tmp_path):
    scores = {"x": 0.1, "": -2.5, "\ud800": 1e-30}
    scores = dict(zip(scores, torch.tensor(list(scores.values())).tolist(), strict=True))  # as float32 has them
    first = ScoreCache(tmp_path)
    assert first.find("a", scores) == {}
    first.add("a", scores)
    first.add("b", {"x": 3.0})
    first.add("a", {"y": 4.0})
    first.flush()
    for kept in (first, ScoreCache(tmp_path)):
        assert kept.find("a", [*scores, "y", "z"]) == scores | {"y": 4.0}
        assert kept.find("b", ["x", "y"]) == {"x": 3.0}
        assert kept.find("c", ["x"]) == {}
    first.flush()
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("harm", ["cut", "flip", "empty"])
def test_a_broken_file_of_scores_is_noticed_and_redone(scored, asked, tmp_path, harm, caplog):
    whole = scored(cache=tmp_path)
    done = asked["texts"].copy()
    (path,) = tmp_path.glob("*/pairs/*.safetensors")
    content = path.read_bytes()
    flipped = content[:-4] + bytes(byte ^ 1 for byte in content[-4:])
    path.write_bytes({"cut": content[:-10], "flip": flipped, "empty": b""}[harm])
    again = scored(cache=tmp_path)
    assert f"{path}: is broken" in caplog.text
    assert asked["texts"] == done + done
    assert without_time(again) == without_time(whole)
    assert len(list(path.parent.glob("*.safetensors"))) == 1


def test_embeddings_and_scores_of_one_model_are_not_mixed_up(pair_models, release, tmp_path):
    plain, kept = (
        [
            dci_metrics.evaluate(pair_models["matching"], release, scorer=scorer, cache=known, progress=False)
            for scorer in ("contrastive", "matching", "contrastive", "matching")
        ]
        for known in (False, tmp_path)
    )
    assert [without_time(result) for result in plain] == [without_time(result) for result in kept]
    assert without_time(plain[0]) != without_time(plain[1])


def test_scores_of_crops_and_masks_are_not_mixed_up(pair_models, tmp_path):
    def score(**options):
        return dci_metrics.evaluate(
            pair_models["matching"], "sample:photographs", scorer="matching", progress=False, **options
        )

    score(cache=tmp_path)
    assert without_time(score(cache=tmp_path, crop="masked")) == without_time(score(cache=False, crop="masked"))


def test_a_folder_that_takes_no_scores(scored, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(dci_metrics.DCIError, match=r"file.*cannot be written.*--cache-dir.*--no-cache"):
        scored(cache=tmp_path / "file")
