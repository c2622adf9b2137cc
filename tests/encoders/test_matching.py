"""Matching heads through the package, against transformers used directly on one image and one text at a time."""

import command
import pytest
import torch
from encoders import families
from encoders.inputs import IMAGES, LONG, TEXTS

import dci_metrics
from dci_metrics import encoders
from dci_metrics.encoders.base import DualEncoder, LooksOnce, PairScorer, TextLength
from dci_metrics.results import Result


def blip(model, images, texts):
    return model(**images, **texts, use_itm_head=True).itm_score


def blip_2(model, images, texts):
    return model(**images, **texts, use_image_text_matching_head=True).logits_per_image


def flava(model, images, texts):
    return model(**images, **texts, input_ids_masked=texts["input_ids"], return_loss=False).itm_logits


# Name: how it is made, what is loaded, the model's own logits of one pair.
HEADS = {
    "blip": (families.blip_retrieval, "BlipForImageTextRetrieval", blip),
    "blip-2": (families.blip_2, "Blip2ForImageTextRetrieval", blip_2),
    "flava": (families.flava, "FlavaForPreTraining", flava),
}
each_head = pytest.mark.parametrize("name", HEADS)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Each family made, saved and loaded once: name → (model, processor, folder, scorer)."""
    known = {}

    def get(name):
        if name not in known:
            model, processor = HEADS[name][0]()
            folder = tmp_path_factory.mktemp("models") / name
            model.save_pretrained(folder)
            processor.save_pretrained(folder)
            known[name] = model, processor, folder, encoders.load(folder, scorer="matching", device="cpu")
        return known[name]

    return get


@torch.no_grad()
def direct(name, model, processor, image, text):
    """The two logits, from the model's own forward."""
    hidden = {"return_image_mask": False, "return_codebook_pixels": False} if name == "flava" else {}
    pixels = processor.image_processor(image, return_tensors="pt", **hidden)
    options = {"return_token_type_ids": False} if name == "blip-2" else {}
    words = processor.tokenizer([text], truncation=True, max_length=512, return_tensors="pt", **options)
    return HEADS[name][2](model, dict(pixels), dict(words))[0]


@each_head
def test_scores_are_the_log_odds_of_the_models_own_head(models, name):
    model, processor, _, scorer = models(name)
    assert type(scorer.model).__name__ == HEADS[name][1]
    found = scorer.score(IMAGES, TEXTS)
    assert found.shape == (len(IMAGES), len(TEXTS))
    for i, image in enumerate(IMAGES):
        for t, text in enumerate(TEXTS):
            logits = direct(name, model, processor, image, text)
            torch.testing.assert_close(found[i, t], logits[1] - logits[0], atol=1e-5, rtol=0)
            torch.testing.assert_close(found[i, t].sigmoid(), logits.softmax(-1)[1], atol=1e-5, rtol=0)
    assert found.std(0).mean() > 0.02  # images differ
    assert found.std(1).mean() > 0.02  # so do texts


@each_head
def test_neither_batches_nor_order_matter(models, name):
    *_, scorer = models(name)
    texts = [*TEXTS, *(" ".join(["red", "green", "layout"] * n) for n in range(1, 58))]
    assert len(texts) == 64
    together = scorer.score(IMAGES, texts)
    alone = torch.cat([scorer.score(IMAGES, [text]) for text in reversed(texts)], dim=1).flip(1)
    torch.testing.assert_close(alone, together, atol=1e-5, rtol=0)
    backwards = scorer.score(IMAGES[::-1], texts).flip(0)
    torch.testing.assert_close(backwards, together, atol=1e-5, rtol=0)


@each_head
def test_an_image_is_looked_at_once(models, name):
    *_, scorer = models(name)
    seen = scorer.look(IMAGES[0])
    torch.testing.assert_close(scorer.score_seen(seen, TEXTS), scorer.score(IMAGES[:1], TEXTS)[0])
    assert isinstance(scorer, PairScorer)
    assert isinstance(scorer, LooksOnce)
    assert not isinstance(scorer, DualEncoder)


@each_head
def test_long_texts_are_cut_and_counted(models, name):
    _, processor, _, scorer = models(name)
    ids = processor.tokenizer(LONG, truncation=False, verbose=False)["input_ids"]
    cut = scorer.tokenised([LONG])["input_ids"]
    assert cut.tolist() == [[*ids[:511], processor.tokenizer.sep_token_id]]
    assert scorer.text_limit == scorer.info.text_limit == 512
    assert scorer.text_lengths([LONG, "red"]) == [TextLength(512, len(ids) - 512), TextLength(3, 0)]


@each_head
def test_all_weights_are_loaded(models, name):
    model, _, _, scorer = models(name)
    saved = model.state_dict()
    assert all(torch.equal(weight, saved[key]) for key, weight in scorer.model.state_dict().items())


@each_head
def test_info(models, name):
    model, _, folder, scorer = models(name)
    info = encoders.describe(scorer)
    assert (info.id, info.family, info.scorer) == (str(folder), model.config.model_type, "matching")
    assert (info.image_size, info.image_backend, info.question) == (32, "pil", None)


@each_head
def test_bfloat16(models, name):
    _, _, folder, scorer = models(name)
    half = encoders.load(folder, scorer="matching", device="cpu", dtype="bfloat16")
    found, expected = half.score(IMAGES, TEXTS), scorer.score(IMAGES, TEXTS)
    assert found.dtype == torch.float32
    assert torch.corrcoef(torch.stack([found.flatten(), expected.flatten()]))[0, 1] > 0.8


@each_head
def test_a_loaded_model(models, name):
    model, processor, _, scorer = models(name)
    loaded = encoders.load(model, processor=processor, scorer="matching")
    torch.testing.assert_close(loaded.score(IMAGES[:1], TEXTS), scorer.score(IMAGES[:1], TEXTS))


@each_head
def test_contrastive_stays_the_default(models, name):
    *_, folder, _ = models(name)
    for scorer in ("auto", "contrastive"):
        assert encoders.load(folder, scorer=scorer, device="cpu").info.scorer == "contrastive"


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    """Figures are those of transformers used directly, and the result says how they came about."""
    model, processor = families.blip_retrieval()
    for part in (model, processor):
        part.save_pretrained(tmp_path / "blip")

    class Direct:
        def score(self, images, texts):
            logits = [[direct("blip", model, processor, one, text) for text in texts] for one in images]
            return torch.stack([torch.stack(row) for row in logits]).softmax(-1)[..., 1]

    tests = ["all_scm", "all_neg"]
    arguments = ["eval", tmp_path / "blip", "--dataset", "sample:scenes", "--device", "cpu", "--tests", ",".join(tests)]
    for scorer in ("matching", "auto"):
        options = ["--scorer", scorer, "--out", tmp_path / f"{scorer}.json"]
        assert command.run(monkeypatch, capsys, *arguments, *options)[0] == 0
    matching, default = (Result.load(tmp_path / f"{scorer}.json") for scorer in ("matching", "auto"))
    assert (matching.settings["scorer"], default.settings["scorer"]) == ("matching", "contrastive")
    assert "question" not in matching.settings
    assert matching.outcomes != default.outcomes
    assert matching.dataset == default.dataset
    assert matching.outcomes == dci_metrics.evaluate(Direct(), "sample:scenes", tests=tests, progress=False).outcomes
    assert {key: score.truncated for key, score in matching.scores.items()} == {"all_scm": 0, "all_neg": 0}


def test_models_without_the_head(tmp_path):
    model, processor = families.blip()
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    with pytest.raises(dci_metrics.DCIError, match=r"'blip' \(BlipModel\) are not known here as matching \(known: Bl"):
        encoders.load(tmp_path, scorer="matching")


def test_scorers_that_do_not_exist():
    with pytest.raises(dci_metrics.DCIError, match="no scorer 'itm': expected one of auto, contrastive, matching, vqa"):
        encoders.load("sample:tiny-clip", scorer="itm")
