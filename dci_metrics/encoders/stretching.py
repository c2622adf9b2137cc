"""`max_tokens`: a text limit other than a model's own. A higher one needs positions that it was not trained with.

Where positions are a learned table, as CLIP's 77 rows, they can be stretched as Long-CLIP does before it trains on
(https://arxiv.org/abs/2403.15378): "interpolate" spreads all rows evenly, "keep-first-20" leaves the first 20 as they
are, which short texts have trained best, and spreads the others. Without training a stretched model is no Long-CLIP.
"""

import copy
import dataclasses
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from dci import DCIError
from dci_metrics.encoders.base import DualEncoder, ModelInfo

Encoder = TypeVar("Encoder")

STRETCHES = {"interpolate": 0, "keep-first-20": 20}
"""Ways to stretch, each with the rows that it keeps as they are."""


@runtime_checkable
class LimitsTexts(Protocol):
    """An encoder whose text limit can be set.

    Attributes:
        model: Has the positions.
        info: What a result says of it.
        max_tokens: The limit that was set; None for its own.
    """

    model: nn.Module
    info: ModelInfo
    max_tokens: int | None

    @property
    def text_limit(self) -> int | None:
        """Tokens that are read of a text, special tokens counted."""
        ...

    @property
    def least_tokens(self) -> int:
        """Tokens from which on something is read of a text."""
        ...

    @property
    def most_tokens(self) -> int | None:
        """Tokens up to which the limit can be set as the model is; None where there is no bound."""
        ...

    @property
    def why_fixed(self) -> str | None:
        """Why the model cannot be given more positions; None where it can."""
        ...

    def lengthen(self, longer: Callable[[Tensor, int], Tensor], count: int) -> None:
        """Give the model positions for `count` tokens, its tables by `longer`: of rows, and of how many they become."""
        ...


def check(max_tokens: int | None, stretch: str | None) -> None:
    """Look at what is asked for before a model is read.

    Raises:
        DCIError: If it is no number, or there is no such way to stretch, or it is not said how far.
    """
    if max_tokens is not None and type(max_tokens) is not int:
        raise DCIError(f"expected max_tokens to be a whole number, got {max_tokens!r}")
    if stretch is not None and stretch not in STRETCHES:
        raise DCIError(f"no stretch {stretch!r}: expected one of {', '.join(STRETCHES)}")
    if stretch is not None and max_tokens is None:
        raise DCIError(f"stretch {stretch}: how far is not said; add --max-tokens N (in Python max_tokens=N)")


def limit(encoder: Encoder, name: str, max_tokens: int | None, stretch: str | None, is_own: bool) -> Encoder:
    """Set the text limit of an encoder; where that is more than it has positions for, stretch them.

    Args:
        encoder: Of this package's.
        name: What an error calls it.
        max_tokens: Tokens to read, special tokens counted; None for the model's own limit.
        stretch: One of `STRETCHES`. Where the model has positions enough, nothing is stretched.
        is_own: Whether encoder or model are the user's own, which stay as they are.

    Returns:
        The encoder, or a copy.

    Raises:
        DCIError: If the limit cannot be set, or takes a stretching that is not asked for, or is not possible.
    """
    if max_tokens is None:
        return encoder
    if not isinstance(encoder, LimitsTexts):
        raise DCIError(f"{name}: reads texts in its own way; --max-tokens is for models of transformers and open_clip")
    if encoder.info.stretch is not None:
        raise DCIError(f"{name}: was stretched to {encoder.info.max_tokens} tokens before; load the model as it was")
    least, most = encoder.least_tokens, encoder.most_tokens
    if max_tokens < least:
        raise DCIError(
            f"{name}: expected --max-tokens of at least {least} (special tokens are counted), got {max_tokens}"
        )
    made: Any = copy.copy(encoder) if is_own else encoder
    is_over = most is not None and max_tokens > most
    if is_over:
        if is_own and stretch is not None:
            made.model = copy.deepcopy(made.model)
        _stretch(made, name, max_tokens, stretch)
    made.max_tokens = max_tokens
    made.info = dataclasses.replace(
        made.info,
        text_limit=made.text_limit,
        max_tokens=max_tokens,
        stretch=stretch if is_over else None,
        parameters=sum(p.numel() for p in made.model.parameters()),
    )
    if is_over:
        _try_out(made, name)
    found: Encoder = made
    return found


def stretched_rows(rows: Tensor, count: int, kept: int) -> Tensor:
    """Position embeddings for more positions, as Long-CLIP's code makes them.

    New row j is old row `kept` + (j - `kept`) / λ with λ = (count - kept) / (n - kept), a row between two being their
    weighted mean. Those past the last old row go on along the line of the last two, less than a row far.

    Args:
        rows: (n, d).
        count: Of the new rows; more than n.
        kept: Rows at the beginning that stay as they are; less than n - 1.

    Returns:
        (count, d) of the same type.
    """
    n = len(rows)
    steps = torch.arange(count - kept) * (n - kept)
    low = (kept + steps // (count - kept)).clamp(max=n - 2)
    share = (steps - (low - kept) * (count - kept)).double()[:, None] / (count - kept)
    old = rows.detach().double()
    low, share = low.to(old.device), share.to(old.device)
    return torch.cat([old[:kept], (1 - share) * old[low] + share * old[low + 1]]).to(rows.dtype)


def _stretch(encoder: LimitsTexts, name: str, max_tokens: int, stretch: str | None) -> None:
    """Give an encoder's model positions for more tokens."""
    most, why = encoder.most_tokens, encoder.why_fixed
    if why is not None:
        raise DCIError(
            f"{name}: is made for at most {most} tokens, not for --max-tokens {max_tokens}, and cannot be stretched: "
            f"{why}"
        )
    if stretch is None:
        ways = " or ".join(f"--stretch {way}" for way in STRETCHES)
        raise DCIError(f"{name}: has positions for {most} tokens, not for --max-tokens {max_tokens}; add {ways}")
    kept = STRETCHES[stretch]

    def longer(rows: Tensor, count: int) -> Tensor:
        if len(rows) - kept < 2:
            raise DCIError(f"{name}: has {len(rows)} positions, too few for --stretch {stretch}")
        return stretched_rows(rows, count, kept)

    encoder.lengthen(longer, max_tokens)


def _try_out(encoder: LimitsTexts, name: str) -> None:
    """Have a text of full length read: a model's own code may count positions where nothing here looks."""
    if not isinstance(encoder, DualEncoder):
        return
    try:
        encoder.encode_texts(["a " * (encoder.max_tokens or 1)])
    # Whatever a table, or a mask, of the wrong size makes of torch.
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        raise DCIError(
            f"{name}: cannot be stretched to {encoder.max_tokens} tokens; its code is made for fewer: {first}"
        ) from error
