"""Prepared crops on disk: a photo is decoded once in a run, however often its entries are drawn."""

import os
import shutil
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import PIL.Image
import torch

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs

MOST_OF_DISK = 0.5
"""Share of the free disk that a file may take; where it needs more, crops are prepared each time."""

WHOLE = b"\x01"

Array = np.ndarray[Any, np.dtype[Any]]


class PreparedCrops:
    """The image inputs of entries by number, exactly as the model's processor gave them, in one file.

    Any process may write any entry: all write the same. Pixel values that stand for 256 levels a channel, as of a
    processor that resizes with PIL, are kept as these levels, in a fourth of the space.

    Args:
        path: The file; it grows as entries are kept.
        entries: How many there will be.
        encoder: Whose inputs they are.

    Attributes:
        slot: Bytes of an entry.
    """

    def __init__(self, path: Path, entries: int, encoder: HuggingFaceEncoder) -> None:
        pixels = np.random.default_rng(0).integers(0, 256, (53, 37, 3), dtype=np.uint8)
        (self._like,) = encoder.prepare_images([PIL.Image.fromarray(pixels)])
        self._levels = _levels(encoder, self._like)
        if self._levels is not None and self._as_levels(self._like["pixel_values"].numpy()) is None:
            self._levels = None
        self.slot = sum(map(self._size, self._like)) + len(WHOLE)
        self._file: BinaryIO | None = None
        if entries * self.slot <= MOST_OF_DISK * shutil.disk_usage(path.parent).free:
            # Not emptied: another process may have begun. Workers inherit it.
            self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "r+b", buffering=0)

    @property
    def keeps(self) -> bool:
        """Whether there is a file: not where the disk is too full for it."""
        return self._file is not None

    def __contains__(self, index: int) -> bool:
        # The last byte of a slot is written last.
        return self._file is not None and os.pread(self._file.fileno(), 1, (index + 1) * self.slot - 1) == WHOLE

    def get(self, index: int) -> Inputs | None:
        """The inputs of an entry; None if it is not kept."""
        if self._file is None or index not in self:
            return None
        kept = np.frombuffer(bytearray(os.pread(self._file.fileno(), self.slot - 1, index * self.slot)), np.uint8)
        inputs, start = {}, 0
        for name, like in self._like.items():
            end = start + self._size(name)
            values = kept[start:end]
            if self._is_levels(name):
                values = self._as_values(values.reshape(like.shape))
            inputs[name] = torch.from_numpy(values).view(like.dtype).view(like.shape)
            start = end
        return inputs

    def keep(self, index: int, inputs: Inputs) -> None:
        """Write the inputs of an entry, unless they are of another form than the others, or the disk is full."""
        forms = [{name: (v.shape, v.dtype) for name, v in one.items()} for one in (inputs, self._like)]
        if self._file is None or forms[0] != forms[1]:
            return
        parts = []
        for name in self._like:
            values = inputs[name].contiguous().numpy()
            levels = self._as_levels(values) if self._is_levels(name) else values
            if levels is None:
                return
            parts.append(levels.tobytes())
        try:
            for content, place in ((b"".join(parts), index * self.slot), (WHOLE, (index + 1) * self.slot - 1)):
                if os.pwrite(self._file.fileno(), content, place) < len(content):
                    return
        except OSError:
            self._file = None

    def _size(self, name: str) -> int:
        like = self._like[name]
        return like.numel() * (1 if self._is_levels(name) else like.itemsize)

    def _is_levels(self, name: str) -> bool:
        return name == "pixel_values" and self._levels is not None

    # In numpy: torch would start a thread a core for each of these small steps.

    def _as_values(self, levels: Array) -> Array:
        assert self._levels is not None
        return np.stack([of_channel[channel] for of_channel, channel in zip(self._levels, levels, strict=True)])

    def _as_levels(self, values: Array) -> Array | None:
        """None where that would not be exact."""
        assert self._levels is not None
        found = [np.searchsorted(of, channel) for of, channel in zip(self._levels, values, strict=True)]
        levels = np.stack(found).clip(max=255).astype(np.uint8)
        return levels if np.array_equal(self._as_values(levels), values) else None


def _levels(encoder: HuggingFaceEncoder, like: Inputs) -> Array | None:
    """What the processor makes of each grey level, (channels, 256); None where pixels are not laid out by channel."""
    shape = like["pixel_values"].shape
    if like["pixel_values"].dtype != torch.float32 or len(shape) != 3 or shape[0] != 3:
        return None
    greys = (PIL.Image.new("RGB", (8, 8), (level,) * 3) for level in range(256))
    middle = shape[1] // 2, shape[2] // 2
    values = [encoder.prepare_images([grey])[0]["pixel_values"][:, *middle] for grey in greys]
    found = torch.stack(values, dim=1).numpy()
    return found if bool((np.diff(found) > 0).all()) else None
