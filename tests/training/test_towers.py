"""Towers and objective against each family's own forward, and what must not depend on how a batch is computed."""

import copy
import dataclasses

import pytest
import tiny_models
import torch
import torch.nn.functional as F
from encoders.families import FAMILIES
from encoders.inputs import image
from training import runs

from dci import DCIError
from dci_metrics import encoders
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers

IMAGES = [image((60, 50), seed) for seed in range(4)]
TEXTS = [
    "the red thing", "a caption", "layout of blue and green", "green thing", "swaps", "red red red", "basic caption",
    "the base of the layout", "blue", "thing and thing", "a", "of the red",
]  # fmt: skip
WITHOUT_TEMPERATURE = ("blip-retrieval", "blip-2")


def without_dropout(model):
    """Some families keep the probability in a number, others in a layer."""
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name, value in vars(module).items():
            if "drop" in name and isinstance(value, float):
                setattr(module, name, 0.0)
    return model


def make(name):
    """(transformers' own model, the towers around the same model)."""
    model, processor = tiny_models.clip(seed=2) if name == "clip" else FAMILIES[name].make()
    model = without_dropout(getattr(model, "clip", model))
    scored = getattr(model, "flava", model)
    if hasattr(model, "clip"):
        scored = model.clip
    return model, TwoTowers(encoders.load(scored, processor=processor))


def own_logits(model, images, texts):
    if hasattr(model, "flava"):  # its head compares batches of equal size only
        n = len(images["pixel_values"])
        parts = [{k: v[i : i + n] for k, v in texts.items()} for i in range(0, len(texts["input_ids"]), n)]
        found = [model(**images, **p, input_ids_masked=p["input_ids"], return_loss=False) for p in parts]
        return torch.cat([part.contrastive_logits_per_image for part in found], dim=1)
    return model(**images, **texts).logits_per_image


def batch_of(towers):
    encoder = towers.encoder
    return encoder.batched(encoder.prepare_images(IMAGES)), encoder.tokens(TEXTS)


@pytest.mark.parametrize("name", ["clip", *(name for name in FAMILIES if name not in WITHOUT_TEMPERATURE)])
def test_loss_and_gradients_are_those_of_the_models_own_forward(name):
    """In training mode: two captions and a negative for each of four images, all weights trained."""
    model, towers = make(name)
    towers.train()
    images, texts = batch_of(towers)
    torch.manual_seed(0)  # GroupViT draws noise in training
    torch.manual_seed(0)  # GroupViT draws noise in training
    embeds = towers(images, texts)
    assert embeds.texts.shape[:2] == (4, 3)
    logits = towers.logits(embeds.images, embeds.texts.flatten(0, 1))
    torch.manual_seed(0)
    torch.manual_seed(0)
    own = own_logits(model, images, texts)
    torch.testing.assert_close(logits, own, atol=1e-4, rtol=0)

    cells = own.view(4, 4, 3)
    positive, target = (cells[:, :, 0] + cells[:, :, 1]) / 2, torch.arange(4)
    expected = (F.cross_entropy(positive, target) + F.cross_entropy(positive.T, target)) / 2
    right, wrong = positive.diagonal(), cells[:, :, 2].diagonal()
    expected = expected + 3 * (F.softplus(-right).mean() + F.softplus(wrong).mean()) / 2
    loss = Objective(2, 1, 3)(embeds, towers.logits).total
    torch.testing.assert_close(loss, expected, atol=1e-4, rtol=1e-5)

    weights = dict(towers.model.named_parameters())
    found, theirs = (torch.autograd.grad(x, list(weights.values()), allow_unused=True) for x in (loss, expected))
    scale = max(float(grad.abs().max()) for grad in theirs if grad is not None)
    used = 0
    for key, mine, grad in zip(weights, found, theirs, strict=True):
        if grad is None or mine is None:
            rest = grad if mine is None else mine
            assert rest is None or not rest.any(), key
            continue
        used += 1
        torch.testing.assert_close(mine / scale, grad / scale, atol=1e-5, rtol=0, msg=key)
    assert used > 10
    assert any(key.endswith(("logit_scale", "temperature")) for key in weights)


@pytest.mark.parametrize("name", WITHOUT_TEMPERATURE)
def test_a_model_without_a_temperature_is_refused(name):
    with pytest.raises(DCIError, match="has no `logit_scale`, so there is no contrastive loss"):
        make(name)


def test_batch_normalisation_keeps_its_statistics(tmp_path):
    """ALIGN's image tower has it: pieces give the loss of the whole, and what the adapter does not save stays."""
    model, processor = FAMILIES["align"].make()
    without_dropout(model)
    lora = dataclasses.replace(runs.LORA, target_modules=("query", "value"))
    losses = []
    for size in (None, 3):
        made = runs.trainer(copy.deepcopy(model), processor, tmp_path, runs.rows(4), lora=lora, micro_batch_size=size)
        made.train()
        losses.append(made.state.log_history[0]["loss"])
        left = dict(made.model.model.named_buffers())
        statistics = [key for key in left if key.endswith(("running_mean", "running_var"))]
        assert statistics
        assert all(torch.equal(left[key], model.get_buffer(key)) for key in statistics)
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_logits_are_of_float32_in_mixed_precision():
    _, towers = make("clip")
    with torch.no_grad():
        towers.model.logit_scale.fill_(4.6052)  # 100
        images = F.normalize(torch.randn(5, 12, generator=torch.Generator().manual_seed(0)), dim=-1)
        plain = towers.logits(images, images)
        with torch.autocast("cpu", torch.bfloat16):
            mixed = towers.logits(images, images)
    assert torch.equal(plain, mixed)


def test_the_best_of_several_vectors_counts():
    _, towers = make("clip")
    images, texts = torch.randn(2, 3, 4), torch.randn(5, 4)
    found = towers.logits(images, texts)
    scale = towers.model.logit_scale.exp()
    expected = [[max(float(v @ text) for v in vectors) for text in texts] for vectors in images]
    torch.testing.assert_close(found, torch.tensor(expected) * scale)


@pytest.mark.parametrize("which", ["training", "validation"])
def test_too_few_entries_for_a_batch_are_refused(tmp_path, which):
    model, processor = tiny_models.clip()
    few, enough = runs.rows(1, entries=1), runs.rows(3)
    train, valid = (few, enough) if which == "training" else (enough, few)
    with pytest.raises(DCIError, match=f"{which}: expected at least 2 entries, .*; got 1"):
        runs.trainer(model, processor, tmp_path, train, validation=valid)
