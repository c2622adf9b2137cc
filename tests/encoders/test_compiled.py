"""Compiled models give what plain ones give."""

import json

import pytest
import tiny_models
import torch
from encoders.inputs import IMAGES, TEXTS, unit
from torch import nn

import dci_metrics
from dci import DCIError
from dci_metrics import comparison, encoders
from dci_metrics.encoders import compiled


@pytest.fixture(autouse=True)
def _forget():
    yield
    torch.compiler.reset()


def test_a_compiled_model_gives_the_same(tmp_path):
    plain = encoders.load("sample:tiny-clip", device="cpu")
    encoder = encoders.load("sample:tiny-clip", device="cpu", compile=True)
    for n in (1, len(IMAGES)):
        torch.testing.assert_close(
            unit(encoder.encode_images(IMAGES[:n])), unit(plain.encode_images(IMAGES[:n])), atol=1e-5, rtol=0
        )
    for n in (1, 2, len(TEXTS)):
        torch.testing.assert_close(
            unit(encoder.encode_texts(TEXTS[:n])), unit(plain.encode_texts(TEXTS[:n])), atol=1e-5, rtol=0
        )
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0
    assert (encoder.info.compiled, plain.info.compiled) == (True, False)


def test_the_result_tells(tmp_path):
    options = {"tests": ["base_scm"], "progress": False, "cache": tmp_path}
    plain = dci_metrics.evaluate("sample:tiny-clip", "sample:photographs", **options)
    result = dci_metrics.evaluate("sample:tiny-clip", "sample:photographs", compile=True, **options)
    assert (result.settings["compiled"], plain.settings["compiled"]) == (True, False)
    assert json.loads(result.to_json())["settings"]["compiled"] is True
    assert result.outcomes == plain.outcomes
    assert len(list(tmp_path.iterdir())) == 2  # embeddings of both are kept apart
    assert "compiled" in comparison.compare(plain, result).report()


def test_blocks_are_found_once():
    inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    model = nn.Sequential(nn.ModuleDict({"blocks": nn.ModuleList([inner, inner])}))
    assert [type(block).__name__ for block in compiled.outer_blocks(model)] == ["ModuleDict"]
    model = nn.ModuleDict({"blocks": nn.ModuleList([inner])})
    assert compiled.outer_blocks(model) == [inner]


def test_a_model_without_blocks_is_refused():
    class Flat:
        model = nn.Linear(2, 2)

    with pytest.raises(DCIError, match="flat: has no list of blocks to compile; go without --compile"):
        compiled.compile_blocks(Flat(), "flat")


def test_no_compiler_is_one_line(tmp_path, monkeypatch):
    model, processor = tiny_models.clip(seed=5)
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    monkeypatch.setattr(torch._inductor.config.cpp, "cxx", ("no-such-compiler",))
    monkeypatch.setattr(torch._inductor.config, "force_disable_caches", True)
    with pytest.raises(DCIError, match=r"cannot be compiled here: .*go without --compile"):
        encoders.load(tmp_path, device="cpu", compile=True)
