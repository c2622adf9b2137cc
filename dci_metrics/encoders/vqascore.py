"""VQAScore, https://arxiv.org/abs/2404.01291: how likely a model that answers questions says "Yes"."""

import inspect
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import PIL.Image
import torch
from transformers import AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from dci import DCIError
from dci_metrics.encoders.base import TextLength
from dci_metrics.encoders.huggingface import HuggingFaceModel, Inputs, quiet
from dci_metrics.encoders.texts import lengths, readable

QUESTION = 'Does this figure show "{}"? Please answer yes or no.'
ANSWER = "Yes"
"""Both are the paper's."""

LARGEST = (2048, 2048)
"""About as large as DCI's photos: models that see an image in its own size have few tokens left for the text then."""

JOINT = 2
"""Tokens kept free: where a text meets the question, it may be cut into more tokens than alone."""


class Frame(NamedTuple):
    """What stands around a question in the model's own way of being asked.

    Attributes:
        opening: Before the question, where there is no chat template for it.
        closing: After the question, or after what the chat template puts there.
        answer: The first token of the answer.
    """

    opening: str
    closing: str
    answer: int


class VQAScorer(HuggingFaceModel):
    """A generative model, asked whether it sees a text in an image; the score is the log-odds of the answer "Yes".

    They stand in the same order as its probability, which is rounded to 1, where scores tie. Of an answer of several
    tokens the first one counts.
    """

    scorer = "vqascore"
    auto_class = AutoModelForImageTextToText
    model_types = tuple(MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)
    question = QUESTION
    image_size = None

    def __init__(self, model: Any, processor: Any, model_id: str) -> None:
        if not callable(processor) or not model.can_generate():
            raise DCIError(
                f"{model_id}: cannot be asked about an image (model {type(model).__name__}, processor "
                f"{type(processor).__name__}); expected a model that generates text, and its whole processor"
            )
        self.processor = processor
        if getattr(processor, "tokenizer", None) is not None and processor.tokenizer.pad_token is None:
            processor.tokenizer.pad_token = processor.tokenizer.eos_token  # any will do: it is masked
        super().__init__(model, processor, model_id)

    @torch.inference_mode()
    def score(self, images: Sequence[PIL.Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Score every image against every text; gives (len(images), len(texts)) log-odds."""
        asked = [self.prompt(text) for text in self._cut(texts)]
        logits = torch.stack([self._first_logits(self._inputs(image, asked)) for image in images])
        yes = logits[..., self.frame.answer].clone()
        logits[..., self.frame.answer] = -torch.inf
        return yes - logits.logsumexp(-1)

    @property
    def least_tokens(self) -> int:
        """Tokens from which on something is read of a text; the special ones are not counted here."""
        return 1

    @property
    def most_tokens(self) -> int | None:
        """Tokens up to which the limit can be set."""
        return self.own_limit

    @cached_property
    def own_limit(self) -> int | None:
        """Tokens that are left for a text beside the question and the image; None where nothing tells."""
        whole = super().own_limit
        if whole is None:
            return None
        taken = self._inputs(PIL.Image.new("RGB", LARGEST), [self.prompt("")])["input_ids"].shape[1]
        if taken + JOINT >= whole:
            raise DCIError(f"{self.model_id}: of its {whole} tokens, image and question take {taken}; no text fits in")
        return whole - taken - JOINT

    @property
    def why_fixed(self) -> str:
        """Why its positions cannot be stretched."""
        return "image and question have positions beside the text"

    def text_lengths(self, texts: Sequence[str]) -> list[TextLength]:
        """Tokens of each text after cutting, without those of the question, and how many were cut off."""
        whole = [readable(text) for text in texts]
        ids = self.tokenizer(whole, add_special_tokens=False, verbose=False)["input_ids"]
        return lengths(map(len, ids), self.text_limit)

    def prompt(self, text: str) -> str:
        """What the model is asked of a text, in its own chat template where it has one."""
        return self.frame.opening + self._asked(QUESTION.format(text)) + self.frame.closing

    @cached_property
    def frame(self) -> Frame:
        """What is around a question, and which token the answer begins with."""
        if not self._has_template:
            return self._plain_frame()
        bare = self._rendered(QUESTION)
        whole = self._rendered(QUESTION, ANSWER)
        start = bare.rstrip(" ")
        # What stands between a question and its answer in a chat, as the model was trained; not all templates show it.
        at = whole.find(ANSWER, len(start)) if whole.startswith(start) else -1
        before = whole[:at] if at >= 0 else bare
        asked = before.rstrip(" ")
        gap, answer = self._answer(asked, before[len(asked) :])
        return Frame("", asked[len(start) :] + gap, answer)

    def _plain_frame(self) -> Frame:
        """Of a model without a template: the question alone, with a place for the image if it needs one."""
        place = str(getattr(self.processor, "image_token", ""))
        number = self.tokenizer.convert_tokens_to_ids(place)

        def tokens(question: str) -> torch.Tensor:
            with quiet():  # PaliGemma's processor warns of a question without a place
                return self._encoded(PIL.Image.new("RGB", (64, 64)), [question])["input_ids"][0]

        def places(question: str) -> int:
            try:
                return int((tokens(question) == number).sum())
            except DCIError:  # other processors refuse it
                return 0

        # Some processors put places before the question in any case, and one that is there would be one more.
        opening = place if places(QUESTION) in (0, places(place + QUESTION)) else ""
        # PaliGemma's questions end with a line, others as they are.
        last = "" if self._is_encoder_decoder else self.tokenizer.decode(tokens(opening + QUESTION)[-1:])
        return Frame(opening, *self._answer(last, " " if last and last == last.rstrip() else ""))

    def _answer(self, before: str, gap: str) -> tuple[str, int]:
        """The first token of the answer to a prompt, behind what of the gap between both is no part of that token."""
        token = self._first_token(before, gap + ANSWER)
        if self.tokenizer.decode([token]).strip():
            return "", token
        return gap, self._first_token(before + gap, ANSWER)

    def _first_token(self, before: str, after: str) -> int:
        """The token that follows a text when it goes on in a certain way."""
        known, whole = (
            self.tokenizer(text, add_special_tokens=False)["input_ids"] for text in (before, before + after)
        )
        shared = next((i for i, (a, b) in enumerate(zip(known, whole, strict=False)) if a != b), len(known))
        return int(whole[shared])

    @property
    def _has_template(self) -> bool:
        return getattr(self.processor, "chat_template", None) is not None

    def _asked(self, question: str) -> str:
        return self._rendered(question).rstrip(" ") if self._has_template else question

    def _rendered(self, question: str, answer: str | None = None) -> str:
        """A chat of one question, up to where the answer begins, or with it."""
        chat = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}]
        if answer is not None:
            chat.append({"role": "assistant", "content": [{"type": "text", "text": answer}]})
        # Models that think before they answer are asked not to.
        options = {"enable_thinking": False} if "enable_thinking" in str(self.processor.chat_template) else {}
        try:
            return str(self.processor.apply_chat_template(chat, add_generation_prompt=answer is None, **options))
        # A template may raise whatever it likes.
        except Exception as error:
            raise DCIError(f"{self.model_id}: its chat template takes no question about an image: {error}") from error

    def _cut(self, texts: Sequence[str]) -> list[str]:
        """Texts, without what is over the limit."""
        whole = [readable(text) for text in texts]
        return [
            text if length.lost == 0 else self._beginning(text, length.tokens)
            for text, length in zip(whole, self.text_lengths(whole), strict=True)
        ]

    def _beginning(self, text: str, tokens: int) -> str:
        if not self.tokenizer.is_fast:
            return str(self.tokenizer.decode(self.tokenizer(text, add_special_tokens=False)["input_ids"][:tokens]))
        places = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        return text[: places["offset_mapping"][tokens - 1][1]]

    def _inputs(self, image: PIL.Image.Image, asked: Sequence[str]) -> Inputs:
        """One image with each of several prompts, as the model takes them."""
        inputs = self._encoded(image, asked)
        device, dtype = self.model.device, self.model.dtype
        return {
            name: values.to(device, dtype) if values.is_floating_point() else values.to(device)
            for name, values in inputs.items()
            if isinstance(values, torch.Tensor) and name != "labels"
        }

    def _encoded(self, image: PIL.Image.Image, asked: Sequence[str]) -> Inputs:
        # To the right: nothing behind a causal model's last word changes what is before it, whatever its positions are.
        options: dict[str, Any] = {"padding": True, "padding_side": "right", "return_tensors": "pt"}
        bos = self.tokenizer.bos_token
        if bos is not None and asked[0].startswith(bos):
            options["add_special_tokens"] = False  # the template has put it there already
        try:
            found: Inputs = self.processor(images=[[image]] * len(asked), text=list(asked), **options)
        # Each processor raises its own kinds.
        except Exception as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise DCIError(f"{self._cannot_be_asked}: {first}") from error
        if "input_ids" not in found:
            raise DCIError(f"{self._cannot_be_asked}: it makes no tokens of a question")
        return found

    @property
    def _cannot_be_asked(self) -> str:
        return f"{self.model_id}: its processor ({type(self.processor).__name__}) cannot ask about an image"

    @property
    def _is_encoder_decoder(self) -> bool:
        config = self.model.config
        return bool(config.is_encoder_decoder or getattr(config.get_text_config(), "is_encoder_decoder", False))

    def _first_logits(self, inputs: Inputs) -> torch.Tensor:
        """Logits of the first token that is answered; gives (n, vocabulary) in float32."""
        count = len(inputs["input_ids"])
        if self._is_encoder_decoder:
            start = torch.full((count, 1), self._decoder_start, device=self.model.device)
            logits = self.model(**inputs, decoder_input_ids=start).logits[:, 0]
        else:
            last = inputs["attention_mask"].sum(1) - 1
            kept, place = last.unique(return_inverse=True)
            # The vocabulary is large: logits of other places would be the greatest part of the memory.
            knows = "logits_to_keep" in inspect.signature(self.model.forward).parameters
            logits = self.model(**inputs, **({"logits_to_keep": kept} if knows else {})).logits
            if logits.shape[1] != (len(kept) if knows else inputs["input_ids"].shape[1]):
                raise DCIError(f"{self.model_id}: {type(self.model).__name__} gives no logits for each token it reads")
            logits = logits[torch.arange(count, device=place.device), place if knows else last]
        found: torch.Tensor = logits.float()
        return found

    @property
    def _decoder_start(self) -> int:
        config = self.model.config
        for part in (self.model.generation_config, config, config.get_text_config()):
            found = getattr(part, "decoder_start_token_id", None)
            if found is not None:
                return int(found)
        raise DCIError(f"{self.model_id}: its config has no `decoder_start_token_id` to begin an answer with")
