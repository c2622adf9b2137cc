"""What a text tower of transformers knows positions for: the count in its config, and the learned table, if any."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

NAMES = ("max_position_embeddings", "n_positions", "max_seq_len", "max_seq_length", "context_length", "n_ctx")
"""What configs call the count of positions."""

IMAGE_TOWERS = ("vision", "visual", "image")
"""How the names of towers begin that read no text."""


def count_of(config: Any) -> int | None:
    """How many positions a text tower was made for, as its config tells; None where positions are not counted.

    Of a learned table these are its rows; of rotary positions, and of others that are computed, what it was trained on.
    """
    counts = (getattr(config, name, None) for name in NAMES)
    return next((count for count in counts if isinstance(count, int) and count > 0), None)


def tables_of(model: nn.Module, config: Any) -> list[tuple[str, nn.Embedding]]:
    """The text tower's learned embeddings of absolute positions, by name; none where positions are of other kinds.

    Those of relative positions, as T5 and MPNet have, are not among them: they do not count positions.
    """
    count = count_of(config)
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding)
        and "position" in name
        and module.num_embeddings == count
        and not any(part.startswith(IMAGE_TOWERS) for part in name.split("."))
    ]


def tokens_of(model: nn.Module, config: Any) -> int | None:
    """How many tokens have a position; None where positions are not counted."""
    count = count_of(config)
    if count is None:
        return None
    # As in RoBERTa, where there is a row for the padding, it and those before it stand for no token.
    rows = [table.padding_idx + 1 for _, table in tables_of(model, config) if table.padding_idx is not None]
    return count - max(rows, default=0)


def why_fixed(model: nn.Module, config: Any) -> str | None:
    """Why a text tower cannot be given more positions; None where it has a learned table, which can be longer."""
    if tables_of(model, config):
        return None
    if getattr(config, "rope_parameters", None):
        return "its positions are rotary"
    return "its text tower has no learned table of positions"


def lengthen(model: nn.Module, config: Any, longer: Callable[[Tensor, int], Tensor], count: int) -> None:
    """Give a text tower positions for `count` tokens; the model and its configs are changed.

    Args:
        model: One with a learned table.
        config: Of its text tower.
        longer: Makes of a table's rows as many as it is told.
        count: More than it has.
    """
    modules, before = dict(model.named_modules()), count_of(config)
    # As in RoBERTa: rows up to the padding's stand for no token, and stay.
    head = (before or 0) - (tokens_of(model, config) or 0)
    for name, table in tables_of(model, config):
        rows = torch.cat([table.weight[:head], longer(table.weight[head:], count)])
        table.weight = nn.Parameter(rows, requires_grad=table.weight.requires_grad)
        table.num_embeddings = len(rows)
        owner = modules[name.rpartition(".")[0]]
        for key, buffer in owner.named_buffers(recurse=False):
            if buffer.shape == (1, before):
                # Numbers of positions count up, token types are all the same.
                values = torch.arange(len(rows)) if "position" in key else torch.zeros(len(rows))
                setattr(owner, key, values.to(buffer)[None])
    for part in [config, *(getattr(module, "config", None) for module in model.modules())]:
        if type(part) is type(config):
            for name in NAMES:
                if getattr(part, name, None) == before:
                    setattr(part, name, head + count)
