"""`torch.compile` over a model's repeated blocks: they are most of its work, and all alike, so it takes seconds."""

import dataclasses
from typing import Any

import PIL.Image
import torch
from torch import nn

from dci import DCIError
from dci_metrics.encoders.base import DualEncoder, PairScorer


def compile_blocks(encoder: DualEncoder | PairScorer, name: str) -> DualEncoder | PairScorer:
    """Compile the blocks of an encoder's model, and run it once, so that what cannot work fails here.

    Args:
        encoder: One with a torch `model` and `info`; it is changed.
        name: What an error calls it.

    Returns:
        The encoder.

    Raises:
        DCIError: If the model has no list of blocks, or torch cannot compile here.
    """
    own: Any = encoder
    outer = outer_blocks(own.model)
    if not outer:
        raise DCIError(f"{name}: has no list of blocks to compile; go without --compile (in Python compile=False)")
    for block in outer:
        block.compile()
    image = PIL.Image.new("RGB", (64, 64))
    try:
        if isinstance(encoder, DualEncoder):
            encoder.encode_images([image])
            encoder.encode_texts(["a"])
        else:
            encoder.score([image], ["a"])
    # No compiler, one that is too old, or a block that the compiler of torch does not know: each is a kind of its own.
    except Exception as error:
        torch.compiler.reset()
        first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
        raise DCIError(f"{name}: cannot be compiled here: {first}; go without --compile") from error
    own.info = dataclasses.replace(own.info, compiled=True)
    return encoder


def outer_blocks(model: nn.Module) -> list[nn.Module]:
    """The members of a model's lists of modules; of blocks within blocks the outer ones alone."""
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList | nn.Sequential)]
    blocks = list(dict.fromkeys(block for part in lists for block in part))
    inner = {part for block in blocks for part in block.modules() if part is not block}
    return [block for block in blocks if block not in inner]
