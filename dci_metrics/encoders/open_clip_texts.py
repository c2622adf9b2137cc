"""How models of open_clip read texts: cut at which limit, in rows of all the positions that they were trained with."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from dci_metrics.encoders import positions
from dci_metrics.encoders.base import TextLength
from dci_metrics.encoders.texts import lengths


class OpenCLIPTexts:
    """What a model of open_clip reads of a text.

    Args:
        model: The loaded model.
        tokenizer: Its tokenizer, which knows the text limit.

    Attributes:
        max_tokens: A text limit that was asked for instead of the model's own (`stretching.py`).
    """

    max_tokens: int | None = None

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self.model, self.tokenizer = model, tokenizer
        if getattr(tokenizer, "reduction_fn", None) is not None:
            # Of a text over the limit, training took words at random; scores may not change from run to run.
            tokenizer.reduction_fn = None

    @property
    def own_limit(self) -> int:
        """Tokens of a text as the model was trained, special tokens counted."""
        return int(self.tokenizer.context_length)

    @property
    def text_limit(self) -> int:
        """Tokens that are read of a text, special tokens counted."""
        return self.own_limit if self.max_tokens is None else self.max_tokens

    @property
    def most_tokens(self) -> int | None:
        """Tokens up to which the limit can be set as the model is; None where there is no bound."""
        tower = self._tower
        return positions.tokens_of(tower.transformer, tower.config) if _is_of_transformers(tower) else self.own_limit

    @property
    def least_tokens(self) -> int:
        """Tokens from which on something is read of a text."""
        return self._count("") + 1

    @property
    def why_fixed(self) -> str | None:
        """Why the model cannot be given more positions; None where it can."""
        tower = self._tower
        if _is_of_transformers(tower):
            return positions.why_fixed(tower.transformer, tower.config)
        has_table = isinstance(getattr(tower, "positional_embedding", None), nn.Parameter)
        return None if has_table else "its text tower has no learned table of positions"

    def lengthen(self, longer: Callable[[Tensor, int], Tensor], count: int) -> None:
        """Give the model positions for `count` tokens, its tables by `longer`: of rows, and of how many they become."""
        tower = self._tower
        if _is_of_transformers(tower):
            positions.lengthen(tower.transformer, tower.config, longer, count)
            return
        table, added = tower.positional_embedding, count - self.own_limit
        # The class token that CoCa appends, and that of the mode "clips", stand at the last position of any text.
        words = len(table) - (self._is_clips or getattr(tower, "cls_emb", None) is not None)
        rows = torch.cat([longer(table[:words], words + added), table[words:]])
        tower.positional_embedding = nn.Parameter(rows.detach(), requires_grad=table.requires_grad)
        for name in ("context_length", "num_pos"):
            if hasattr(tower, name):
                setattr(tower, name, getattr(tower, name) + added)
        mask = getattr(tower, "attn_mask", None)
        if mask is not None:
            tower.attn_mask = torch.full((len(rows), len(rows)), -torch.inf).triu_(1).to(mask)

    def tokens(self, texts: Sequence[str]) -> Tensor:
        """Texts as the model takes them: (n, positions), cut to the limit with the end token kept."""
        limit = self.text_limit
        rows: Tensor = self.tokenizer(list(texts), context_length=limit)
        if limit >= self.own_limit:
            return rows
        # What sees its padding was trained with all of it, however short the text.
        words = limit - self._is_clips
        padding = self.tokenizer([""])[:, words:]
        return torch.cat([rows[:, :words], padding.expand(len(rows), -1)], dim=1)

    def token_ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens of each text after cutting, with the special ones and the padding."""
        return [tuple(ids) for ids in self.tokens(texts).tolist()]

    def text_lengths(self, texts: Sequence[str]) -> list[TextLength]:
        """Tokens of each text after cutting, and how many were cut off."""
        return lengths(map(self._count, texts), self.text_limit)

    @property
    def _tower(self) -> Any:
        """What has the positions: the model itself, or its part for texts."""
        return getattr(self.model, "text", self.model)

    @property
    def _is_clips(self) -> bool:
        """Whether open_clip itself adds the special tokens to those of transformers, one of them behind the padding."""
        return getattr(self.tokenizer, "tokenizer_mode", None) == "clips"

    def _count(self, text: str) -> int:
        """Tokens of a text, uncut, with the special ones."""
        own = self.tokenizer
        if hasattr(own, "encode"):
            return 2 + len(own.encode(text))  # start and end
        # A tokenizer of transformers inside of open_clip's.
        ids = own.tokenizer(own.clean_fn(text), add_special_tokens=not self._is_clips, verbose=False)["input_ids"]
        return len(ids) + 3 * self._is_clips


def _is_of_transformers(tower: Any) -> bool:
    return isinstance(getattr(tower, "config", None), PreTrainedConfig)
