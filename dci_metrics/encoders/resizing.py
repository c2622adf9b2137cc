"""`resize="device"`: images are resized where the model is, by torch, and no longer by PIL on the CPU.

What is done is read off the image processor's own config. torch's filters with `antialias` are PIL's. As in PIL, width
and height are resized one after the other, in PIL's order, each to whole grey levels. What is left is that a value near
a half may be rounded to the other side: one grey level, seldom two (`benchmarks/resizing.py`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad
from transformers.processing_utils import ImagesKwargs

from dci import DCIError

STEPS = ("do_convert_rgb", "do_resize", "do_center_crop", "do_rescale", "do_normalize")
"""Crops are RGB already; the others are done here."""

FILTERS = {PIL.Image.Resampling.BILINEAR: "bilinear", PIL.Image.Resampling.BICUBIC: "bicubic"}

MOST = 32
"""How many times smaller a side may become on a GPU. CUDA refuses from about 90 on, other GPUs earlier; the CPU does
those."""

TOLERANCE = 1
"""Grey levels by which an image may differ on average from the processor's own when the two are compared before a run;
a step more or less makes many, PIL's order of width and height a fourth of one."""

HEIGHT_MAY_BE_FIRST = int(PIL.__version__.partition(".")[0]) >= 13
"""Pillow 13 begins with the height where more of it goes; before, the width is always the first."""

PROBES = ((37, 29), (300, 500), (700, 90), (16, 16))
"""Sizes of the images that they are compared by: larger and smaller than what models see, wide, high and square."""


@dataclass(frozen=True)
class DeviceResizing:
    """The steps of an image processor, to be done on the model's device.

    Attributes:
        size: Of the shorter side, or (height, width); None if nothing is resized.
        mode: The filter, as torch calls it.
        crop: (height, width) that is kept in the middle; None for all.
        factor: By which grey levels are multiplied.
        mean: Taken off each channel after that.
        std: By which each channel is divided at last.
    """

    size: int | tuple[int, int] | None
    mode: str
    crop: tuple[int, int] | None
    factor: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def pixels(self, image: PIL.Image.Image, pinned: bool) -> Tensor:
        """An RGB image as (3, height, width) in uint8, on the CPU.

        Args:
            image: Of any size.
            pinned: Whether it goes to CUDA, which takes it from pinned memory without waiting.
        """
        found = torch.from_numpy(np.array(image)).permute(2, 0, 1)
        return found.pin_memory() if pinned else found

    def prepared(self, images: Sequence[Tensor], device: torch.device) -> list[Tensor]:
        """What the image processor would give of each image, on a device: (3, height, width) in float32."""
        mean, std = (torch.tensor(values, device=device)[:, None, None] for values in (self.mean, self.std))
        return [(self._resized(image, device) * self.factor - mean) / std for image in images]

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width after resizing, before the crop."""
        if not isinstance(self.size, int):
            return self.size or (height, width)
        longer = int(self.size * max(height, width) / min(height, width))  # cut off, as transformers does
        return (longer, self.size) if width <= height else (self.size, longer)

    def _resized(self, image: Tensor, device: torch.device) -> Tensor:
        """Whole grey levels in float32, resized and cropped."""
        height, width = self.output_size(*image.shape[1:])
        if max(image.shape[1] / height, image.shape[2] / width) <= MOST:
            image = image.to(device, non_blocking=True)
        found = image.to(torch.float32, memory_format=torch.contiguous_format)
        crop = self.crop or (height, width)
        # The crop of one side before the other one is resized: of a long strip, little is left to be computed.
        for axis in (1, 2) if _height_first(image.shape[1:], height, width) else (2, 1):
            found = _cropped(_along(found, axis, (height, width)[axis - 1], self.mode), axis, crop[axis - 1])
        return found.to(device)


def read(image_processor: Any, options: Mapping[str, Any], model_id: str, device: torch.device) -> DeviceResizing:
    """The steps of an image processor, tried out beside the processor itself.

    Args:
        image_processor: Of transformers.
        options: That it is called with.
        model_id: What an error calls the model.
        device: Where its images will be resized.

    Raises:
        DCIError: If it does anything else, or torch cannot resize on that device.
    """
    kind = type(image_processor).__name__

    def refuse(what: str) -> DCIError:
        return DCIError(
            f"{model_id}: its images cannot be resized on the device: {kind} {what}; go without --resize device (in "
            "Python resize='pil')"
        )

    def setting(name: str) -> Any:
        return getattr(image_processor, name, None)

    own = {name: value for name, value in vars(image_processor).items() if value and not name.startswith("_")}
    # What only this kind of processor has is likely to be what it does more.
    more = [f"`{name}`" for name in own if name not in (*ImagesKwargs.__annotations__, "image_processor_type")]
    special = f" (it has {', '.join(more)})" if more else ""
    for step in own:
        if step.startswith("do_") and step not in STEPS:
            raise refuse(f"has the step `{step}`")
    size, resample = None, PIL.Image.Resampling.BILINEAR
    if setting("do_resize"):
        size, resample = _size(setting("size")), setting("resample")
        if size is None:
            raise refuse(f"resizes to `size` {setting('size')}, no height and width and no shortest edge{special}")
        if resample not in FILTERS:
            raise refuse(f"resizes with `resample` {resample!r}, and not bilinear or bicubic")
    crop = _size(setting("crop_size")) if setting("do_center_crop") else None
    if setting("do_center_crop") and not isinstance(crop, tuple):
        raise refuse(f"crops to `crop_size` {setting('crop_size')}, and not to a height and width")
    normalises = setting("do_normalize")
    found = DeviceResizing(
        size,
        FILTERS[resample],
        crop if isinstance(crop, tuple) else None,
        float(setting("rescale_factor")) if setting("do_rescale") else 1.0,
        _channels(setting("image_mean")) if normalises else (0.0,) * 3,
        _channels(setting("image_std")) if normalises else (1.0,) * 3,
    )
    try:
        same = all(_agree(found, image_processor, options, device, probe) for probe in PROBES)
    except RuntimeError as error:
        raise refuse(f"needs a filter that torch does not have there: {str(error).splitlines()[0]}") from error
    if not same:
        raise refuse(f"does more than to resize, crop, rescale and normalise{special}")
    return found


def _height_first(given: Sequence[int], height: int, width: int) -> bool:
    """Whether PIL resizes an image of a (height, width) by its height first; found by trying it out on many sizes."""
    less, narrower = given[0] - height, given[1] - width
    return HEIGHT_MAY_BE_FIRST and less > 0 and less > 2 * narrower


def _along(image: Tensor, axis: int, size: int, mode: str) -> Tensor:
    """One side of (3, height, width) resized to whole grey levels, as each of PIL's two passes gives them."""
    if image.shape[axis] == size:
        return image
    if axis == 1:
        # As a width: on a CPU, torch 2.13 gets the height of an image wrong that is one pixel wide.
        return _along(image.transpose(1, 2).contiguous(), 2, size, mode).transpose(1, 2)
    found = interpolate(image[None], (image.shape[1], size), mode=mode, antialias=True)[0]
    return found.add_(0.5).floor_().clamp_(0, 255)  # half a level goes up, as in PIL


def _cropped(image: Tensor, axis: int, size: int) -> Tensor:
    """The middle of one side; black is added where it is too short. What does not halve falls as in transformers."""
    missing = size - image.shape[axis]
    if missing <= 0:
        return image.narrow(axis, -missing // 2, size)
    before = (missing + 1) // 2
    both = (before, missing - before)
    return pad(image, both if axis == 2 else (0, 0, *both))


def _size(given: Any) -> int | tuple[int, int] | None:
    """A shortest edge, or a height and width; None for any other kind of size."""
    try:
        found = {key: value for key, value in dict(given).items() if value is not None}
    except (TypeError, ValueError):
        return None
    if set(found) == {"shortest_edge"}:
        return int(found["shortest_edge"])
    return (int(found["height"]), int(found["width"])) if set(found) == {"height", "width"} else None


def _channels(given: Any) -> tuple[float, ...]:
    """A number for each channel, of which a config may give one for all."""
    return tuple(float(value) for value in np.broadcast_to(np.asarray(given, dtype=float), 3))


def _agree(
    found: DeviceResizing, image_processor: Any, options: Mapping[str, Any], device: torch.device, size: tuple[int, int]
) -> bool:
    """Whether an image of noise comes out as from the processor itself."""
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    image = PIL.Image.fromarray(noise)
    theirs = image_processor([image], return_tensors="pt", **options)
    if set(theirs) != {"pixel_values"}:
        return False
    expected = theirs["pixel_values"][0]
    ours = found.prepared([found.pixels(image, False)], device)[0].cpu()
    tolerance = TOLERANCE * abs(found.factor) / max(map(abs, found.std))
    return ours.shape == expected.shape and float((ours - expected).abs().mean()) <= tolerance
