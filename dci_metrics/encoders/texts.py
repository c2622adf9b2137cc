"""How models of transformers read texts: cut at which limit, padded how, as which tokens."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from transformers.tokenization_utils_base import LARGE_INTEGER

from dci_metrics.encoders import positions
from dci_metrics.encoders.base import TextLength

SURROGATES = re.compile("[\ud800-\udfff]")


class HuggingFaceTexts:
    """What a model of transformers reads of a text, as its config, its tokenizer and its processor say.

    Args:
        model: The loaded model.
        processor: Its processor.

    Attributes:
        positions: Tokens that the text tower has positions for; None where they are not counted.
        max_tokens: A text limit that was asked for instead of the model's own (`stretching.py`).
    """

    max_tokens: int | None = None

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model
        self.tokenizer = processor.tokenizer
        self.text_options: dict[str, Any] = dict(getattr(processor, "text_kwargs", None) or {})
        self.positions = positions.tokens_of(model, self.text_config)
        # Keeps transformers from warning of a long text; what is cut is counted and stands in the result.
        self.tokenizer.deprecation_warnings["sequence-length-is-longer-than-the-specified-maximum"] = True
        self.tokenizer.deprecation_warnings["Asking-to-pad-a-fast-tokenizer"] = True

    @property
    def text_limit(self) -> int | None:
        """Tokens that are read of a text, special tokens counted; None where nothing in the checkpoint tells."""
        return self.own_limit if self.max_tokens is None else self.max_tokens

    @property
    def own_limit(self) -> int | None:
        """The limit that the checkpoint tells: what the model has positions for and its processor is set to."""
        limits = (self.positions, self.tokenizer_limit, self.text_options.get("max_length"))
        return min((int(limit) for limit in limits if limit is not None and limit < LARGE_INTEGER), default=None)

    @property
    def most_tokens(self) -> int | None:
        """Tokens up to which the limit can be set as the model is; None where there is no bound."""
        return self.positions

    @property
    def least_tokens(self) -> int:
        """Tokens from which on something is read of a text."""
        return int(self.tokenizer.num_special_tokens_to_add()) + 1

    @property
    def why_fixed(self) -> str | None:
        """Why the model cannot be given more positions; None where it can."""
        return positions.why_fixed(self.model, self.text_config)

    def lengthen(self, longer: Callable[[torch.Tensor, int], torch.Tensor], count: int) -> None:
        """Give the model positions for `count` tokens, its tables by `longer`: of rows, and of how many they become."""
        positions.lengthen(self.model, self.text_config, longer, count)
        self.positions = count

    @property
    def padding(self) -> str:
        """How texts are padded: "longest" where the padding is masked, "max_length" where the text tower sees it."""
        masked = "attention_mask" in self.tokenizer.model_input_names
        whole = self.text_options.get("padding") == "max_length" or not masked
        return "max_length" if whole and self.text_limit is not None else "longest"

    def tokenised(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Texts as the text tower takes them, cut to its limit with the end token kept."""
        return {name: values.to(self.model.device) for name, values in self.tokens(texts).items()}

    def tokens(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """As `tokenised`, on the CPU wherever the model is: loading processes must not touch a GPU."""
        limit, own = self.text_limit, self.own_limit
        if self.padding == "max_length" and limit is not None and own is not None and limit < own:
            # What sees its padding was trained with all of it, however short the text.
            cut = self._tokenised(texts, truncation=True, max_length=limit)
            return dict(self.tokenizer.pad(cut, padding="max_length", max_length=own, return_tensors="pt"))
        cuts: dict[str, Any] = {"truncation": limit is not None, "max_length": limit}
        return dict(self._tokenised(texts, padding=self.padding, return_tensors="pt", **cuts))

    def token_ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens of each text after cutting, with the special ones."""
        limit = self.text_limit
        found = self._tokenised(texts, truncation=limit is not None, max_length=limit, verbose=False)
        return [tuple(ids) for ids in found["input_ids"]]

    def text_lengths(self, texts: Sequence[str]) -> list[TextLength]:
        """Tokens of each text after cutting, and how many were cut off."""
        return lengths(map(len, self._tokenised(texts, verbose=False)["input_ids"]), self.text_limit)

    # What a family may do differently

    @property
    def text_config(self) -> Any:
        """The part of the model's config that tells of the text tower."""
        return self.model.config.get_text_config()

    @property
    def tokenizer_limit(self) -> int | None:
        """The limit that the tokenizer's files tell."""
        limit = self.tokenizer.model_max_length
        return None if limit is None else int(limit)

    def as_trained(self, texts: Sequence[str]) -> list[str]:
        """Texts with all done to them that the model was trained on and its tokenizer leaves undone."""
        return list(texts)

    def _tokenised(self, texts: Sequence[str], **options: Any) -> Any:
        return self.tokenizer(self.as_trained([readable(text) for text in texts]), **options)


def readable(text: str) -> str:
    """A text as tokenizers, and spaCy, take it: half of a surrogate pair is none, and U+FFFD stands in its place."""
    return text if text.isascii() else SURROGATES.sub("\ufffd", text)


def lengths(counts: Iterable[int], limit: int | None) -> list[TextLength]:
    """What is read, and what is lost, of texts of so many tokens."""
    return [TextLength(n, 0) if limit is None else TextLength(min(n, limit), max(0, n - limit)) for n in counts]
