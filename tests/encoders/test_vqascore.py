"""VQAScore through the package, against transformers used directly on one image and one text at a time."""

import command
import pytest
import torch
import transformers
from encoders import vlms
from encoders.inputs import IMAGES, LONG, TEXTS, image
from torch.nn.functional import logsigmoid

import dci_metrics
from dci_metrics import encoders
from dci_metrics.encoders.base import DualEncoder, PairScorer, TextLength
from dci_metrics.encoders.vqascore import VQAScorer
from dci_metrics.results import Result

QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
# Name: what the processor is given, the first token of the answer.
ASKED = {
    "llava": ("USER: <image>\n" + QUESTION + " ASSISTANT:", "ĠYes"),
    "idefics3": (
        "<|im_start|>user\n<image>" + QUESTION + "<end_of_utterance>\n<|im_start|>assistant\n", "Yes",
    ),
    "qwen2_vl": (
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>" + QUESTION
        + "<|im_end|>\n<|im_start|>assistant\n", "Yes",
    ),
    "paligemma": ("<image>" + QUESTION, "Yes"),
    "instructblip": (QUESTION, "▁Yes"),
    "blip-2": (QUESTION, "ĠYes"),
}  # fmt: skip
SHORT = [text for text in TEXTS if text != LONG]
each_model = pytest.mark.parametrize("name", ASKED)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Each family made, saved and loaded once: name → (model, folder, scorer)."""
    known = {}

    def get(name):
        if name not in known:
            folder = tmp_path_factory.mktemp("models") / name
            model = vlms.save(name, folder)
            known[name] = model, folder, encoders.load(folder, device="cpu")
        return known[name]

    return get


@torch.no_grad()
def direct(name, model, processor, one, text):
    """The log-probability of the answer's first token, from the model's own forward."""
    prompt, answer = ASKED[name]
    options = {"decoder_input_ids": torch.tensor([[0]])} if name == "instructblip" else {}
    bos = "<s>" if name == "idefics3" else ""
    inputs = processor(images=one, text=bos + prompt.format(text), return_tensors="pt")
    inputs.pop("labels", None)
    logits = model(**inputs, **options).logits[0, -1]
    return logits.log_softmax(-1)[processor.tokenizer.convert_tokens_to_ids(answer)]


@each_model
def test_scores_are_the_models_own_log_odds(models, name):
    model, folder, scorer = models(name)
    assert isinstance(scorer, VQAScorer)
    assert type(scorer.model) is type(model)
    processor = scorer.processor if name == "qwen2_vl" else transformers.AutoProcessor.from_pretrained(folder)
    found = scorer.score(IMAGES, SHORT)
    assert found.shape == (len(IMAGES), len(SHORT))
    assert found.dtype == torch.float32
    for i, one in enumerate(IMAGES):
        for t, text in enumerate(SHORT):
            expected = direct(name, model, processor, one, text)
            torch.testing.assert_close(logsigmoid(found[i, t]), expected, atol=1e-5, rtol=0)
    assert found.std(0).mean() > 0.001  # images differ
    assert found.std(1).mean() > 0.01  # so do texts


@each_model
def test_neither_batches_nor_order_matter(models, name):
    *_, scorer = models(name)
    texts = [*TEXTS, *(" ".join(["red", "green", "layout"] * n) for n in range(1, 58))]
    assert len(texts) == 64
    together = scorer.score(IMAGES[:2], texts)
    some = range(0, 64, 5)
    alone = torch.cat([scorer.score(IMAGES[:2], [texts[i]]) for i in some], dim=1)
    torch.testing.assert_close(alone, together[:, list(some)], atol=1e-5, rtol=0)
    backwards = scorer.score(IMAGES[1::-1], texts[::-1]).flip(0, 1)
    torch.testing.assert_close(backwards, together, atol=1e-5, rtol=0)


@each_model
def test_the_prompt_and_the_answer(models, name):
    *_, scorer = models(name)
    prompt, answer = ASKED[name]
    asked = scorer.prompt("{red} 塔")
    assert asked.removeprefix("<s>") == prompt.replace("{}", "{red} 塔")
    assert scorer.tokenizer.convert_ids_to_tokens(scorer.frame.answer) == answer


@each_model
def test_info(models, name):
    model, folder, scorer = models(name)
    info = encoders.describe(scorer)
    assert (info.id, info.family, info.scorer) == (str(folder), model.config.model_type, "vqascore")
    assert (info.image_size, info.image_backend, info.question) == (None, "pil", QUESTION)
    assert isinstance(scorer, PairScorer)
    assert not isinstance(scorer, DualEncoder)


@each_model
def test_bfloat16(models, name):
    _, folder, scorer = models(name)
    half = encoders.load(folder, device="cpu", dtype="bfloat16").score(IMAGES[:2], SHORT)
    assert half.dtype == torch.float32
    assert half.isfinite().all()
    assert (half - scorer.score(IMAGES[:2], SHORT)).abs().mean() < 0.5


@pytest.mark.parametrize(
    ("name", "whole"), [("llava", 512), ("idefics3", 1024), ("blip-2", 256), ("instructblip", 512)]
)
def test_long_texts_are_cut_to_what_the_model_has_left(models, name, whole):
    """The last tokens of the question, and all of the image's, stay."""
    *_, scorer = models(name)
    wide = image((2048, 2048), 1)
    limit = scorer.text_limit
    assert limit == scorer.info.text_limit
    (asked,) = (scorer.prompt(text) for text in scorer._cut(["red " * 2000]))
    assert asked.endswith(scorer.prompt("")[-20:])
    used = scorer._inputs(wide, [asked])["input_ids"].shape[1]
    assert whole - 4 <= used <= whole
    texts = ["thing " * 2000, "red"]
    counts = [len(ids) for ids in scorer.tokenizer(texts, add_special_tokens=False)["input_ids"]]
    lengths = scorer.text_lengths(texts)
    assert lengths == [TextLength(limit, counts[0] - limit), TextLength(counts[1], 0)]
    assert scorer.score([wide], ["red " * 2000, "red"]).isfinite().all()


def test_another_limit(models):
    _, folder, scorer = models("llava")
    short = encoders.load(folder, device="cpu", max_tokens=5)
    ids = scorer.tokenizer("red green thing " * 99, add_special_tokens=False)["input_ids"]
    assert short.text_lengths(["red green thing " * 99]) == [TextLength(5, len(ids) - 5)]
    cut = scorer.tokenizer.decode(ids[:5])
    found, expected = short.score(IMAGES[:2], ["red green thing " * 99]), scorer.score(IMAGES[:2], [cut])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    why = "cannot be stretched: image and question have positions beside the text"
    with pytest.raises(dci_metrics.DCIError, match=f"at most {scorer.text_limit} tokens, .* {why}"):
        encoders.load(folder, device="cpu", max_tokens=scorer.text_limit + 1, stretch="interpolate")


def test_half_a_surrogate_pair_is_no_reason_to_fail(models):
    *_, scorer = models("llava")
    found, expected = (scorer.score(IMAGES[:1], [f"red {half} thing"]) for half in ("\ud800", "\ufffd"))
    assert torch.equal(found, expected)


def test_tokenizers_and_templates_of_other_kinds(tmp_path):
    """An answer of several tokens, of which the first counts; a prompt that ends with a space; no template at all."""
    spaced = vlms.LLAVA_CHAT.replace("'ASSISTANT:'", "'ASSISTANT: '")
    for words, chat, answer, end in [
        ((), vlms.LLAVA_CHAT, "Y", "ASSISTANT: "),  # the space is a token of its own
        (("Yes",), spaced, "ĠYes", "ASSISTANT:"),
        (("Yes",), None, "ĠYes", "yes or no."),
        ((), None, "Y", "yes or no. "),
    ]:
        model, processor = vlms.llava(words, chat)
        scorer = encoders.load(model, processor=processor)
        assert scorer.tokenizer.convert_ids_to_tokens(scorer.frame.answer) == answer
        assert scorer.prompt("red").endswith(end)
        assert scorer.prompt("red").count("<image>") == 1
        inputs = processor(images=IMAGES[0], text=scorer.prompt("red"), return_tensors="pt")
        with torch.no_grad():
            expected = model(**inputs).logits[0, -1].log_softmax(-1)[scorer.frame.answer]
        found = logsigmoid(scorer.score(IMAGES[:1], ["red"])[0, 0])
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_what_is_next_to_certain_does_not_tie(monkeypatch):
    model, processor = vlms.llava()
    scorer = encoders.load(model, processor=processor)
    logits = torch.zeros(2, len(processor.tokenizer))
    logits[:, scorer.frame.answer] = torch.tensor([60.0, 61.0])
    monkeypatch.setattr(scorer, "_first_logits", lambda inputs: logits)
    first, second = scorer.score(IMAGES[:1], ["red", "green"])[0]
    assert first < second
    assert first.sigmoid() == second.sigmoid() == 1


def test_a_tokenizer_without_padding():
    model, processor = vlms.llava()
    expected = encoders.load(model, processor=processor).score(IMAGES[:1], SHORT)
    processor.tokenizer.pad_token = None
    found = encoders.load(model, processor=processor).score(IMAGES[:1], SHORT)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


def test_models_that_cannot_be_asked(models, tmp_path):
    model, processor = vlms.llava()
    with pytest.raises(dci_metrics.DCIError, match=r"cannot be asked about an image .*LlavaModel"):
        encoders.load(model.model, processor=processor)
    with pytest.raises(dci_metrics.DCIError, match="of its 70 tokens, image and question take"):
        encoders.load(*vlms.llava(limit=70)[:1], processor=processor)
    _, other = vlms.llava(chat="{{ raise_exception('not like this') }}")
    with pytest.raises(dci_metrics.DCIError, match="its chat template takes no question about an image: not like this"):
        encoders.load(model, processor=other)
    processor.image_token = "<nothing>"
    processor.tokenizer.add_tokens("<nothing>")
    with pytest.raises(dci_metrics.DCIError, match="cannot"):
        encoders.load(model, processor=processor).score(IMAGES[:1], ["red"])


def test_figures_are_those_of_transformers(models, monkeypatch, capsys, tmp_path):
    """`dci eval` asks a generative model without being told to; what it asks stands in the result."""
    model, folder, scorer = models("llava")

    class Direct:
        def score(self, images, texts):
            return torch.stack([
                torch.stack([direct("llava", model, scorer.processor, one, text) for text in texts]) for one in images
            ])  # fmt: skip

    options = ["--device", "cpu", "--tests", "all_neg,base_scm", "--out", tmp_path / "result.json"]
    assert command.run(monkeypatch, capsys, "eval", folder, "--dataset", "sample:photographs", *options)[0] == 0
    result = Result.load(tmp_path / "result.json")
    tests = ["all_neg", "base_scm"]
    expected = dci_metrics.evaluate(Direct(), "sample:photographs", tests=tests, progress=False)
    assert result.outcomes == expected.outcomes
    assert (result.settings["scorer"], result.settings["question"]) == ("vqascore", QUESTION)
    assert result.settings["batch_size"] == 8
    assert result.model["text_limit"] == scorer.text_limit
    assert result.scores["all_neg"].tokens_lost == 0


def test_a_dual_encoder_cannot_be_asked():
    with pytest.raises(dci_metrics.DCIError, match=r"'clip' \(CLIPModel\) are not known here as vqascore"):
        encoders.load("sample:tiny-clip", scorer="vqascore")


def test_a_generative_model_is_no_dual_encoder(models):
    with pytest.raises(dci_metrics.DCIError, match=r"'llava' .* are not known here as contrastive"):
        encoders.load(models("llava")[1], scorer="contrastive")
