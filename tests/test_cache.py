"""Embeddings on disk: the same figures with and without, after an interruption, and with broken files."""

import json

import pytest
import tiny_models
import torch
from awkward_release import write_awkward_release

import dci_metrics
from dci_metrics import cache, encoders
from dci_metrics.cache import EmbeddingCache


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
