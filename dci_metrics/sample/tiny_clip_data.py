"""What the tiny CLIP is trained on: crops of scenes outside of the sample, captioned anew each time."""

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor
from tqdm import tqdm
from transformers import CLIPImageProcessorPil

from dci import crop_box
from dci_metrics.sample.scenes import Region, Scene, make_scene
from dci_metrics.sample.tiny_clip_captions import alt_text

IMAGE_SIZE = 80

FIRST_SEED = 1_000_000
"""Of the training scenes; the seeds of the sample's splits are all below 100,000."""

SHIFT = 4
"""Most pixels by which a crop is moved, up, down or sideways, so that places are not learned by heart."""

_NO_PIXELS = np.zeros((0, 0), bool)


@dataclass
class TrainingScenes:
    """Scenes, and the crops that the sDCI tests would make of them.

    Attributes:
        scenes: Without picture and masks, which would fill the memory.
        regions: Of each scene, what its crops show; None is the whole picture.
        crops: Of each scene, (n, 3, IMAGE_SIZE, IMAGE_SIZE) uint8.
    """

    scenes: list[Scene]
    regions: list[list[Region | None]]
    crops: list[Tensor]

    def texts(self) -> Iterator[str]:
        """All texts of the scenes, to train a tokenizer on."""
        for scene in self.scenes:
            yield from (scene.short_caption, scene.extra_caption)
            for region in scene.regions:
                yield from (region.label, region.caption)
            for summaries in scene.summaries.values():
                yield from summaries

    def batch(self, scene_count: int, rng: np.random.Generator) -> tuple[Tensor, list[str]]:
        """Crops and captions of some scenes, all of a scene together: they are each other's negatives.

        Things of one scene differ in colour and material more than in kind, and share their backdrop. So a crop is
        told from the others of its scene only if attributes are seen where they belong.

        Returns:
            (n, 3, IMAGE_SIZE, IMAGE_SIZE) uint8, and n captions.
        """
        chosen = rng.choice(len(self.scenes), min(scene_count, len(self.scenes)), replace=False).tolist()
        captions = [alt_text(self.scenes[i], region, rng) for i in chosen for region in self.regions[i]]
        return _shifted(torch.cat([self.crops[i] for i in chosen]), rng), captions


def make_image_processor() -> Any:
    """CLIP's preprocessing for small images: the short side to IMAGE_SIZE, then the square in the middle."""
    side = {"height": IMAGE_SIZE, "width": IMAGE_SIZE}
    return CLIPImageProcessorPil(size={"shortest_edge": IMAGE_SIZE}, crop_size=side)


def paint(seeds: Sequence[int], num_proc: int = 1, progress: bool = True) -> TrainingScenes:
    """Paint scenes and keep their crops; the same seeds give the same, however many processes paint."""
    found: list[tuple[Scene, list[Region | None], npt.NDArray[np.uint8]]] = []
    with tqdm(total=len(seeds), desc="Painting", unit="scene", disable=None if progress else True) as bar:
        if num_proc > 1:
            # a fresh process would import torch first
            context = get_context("fork" if sys.platform == "linux" else "spawn")
            with ProcessPoolExecutor(num_proc, mp_context=context) as pool:
                for painted in pool.map(_paint, seeds, chunksize=8):
                    found.append(painted)
                    bar.update()
        else:
            for seed in seeds:
                found.append(_paint(seed))
                bar.update()
    scenes, regions, crops = zip(*found, strict=True)
    return TrainingScenes(list(scenes), list(regions), [torch.from_numpy(crop) for crop in crops])


def _paint(seed: int) -> tuple[Scene, list[Region | None], npt.NDArray[np.uint8]]:
    scene = make_scene(seed)
    photo = Image.fromarray(scene.image)
    regions: list[Region | None] = [None, *scene.entries]
    boxes = [_crop_box(scene, region) for region in regions]
    # the processor itself cuts and shrinks, so that training sees what the evaluation will
    small = make_image_processor()([photo.crop(box) for box in boxes], do_rescale=False, do_normalize=False)
    scene.image = np.zeros((scene.height, scene.width, 0), np.uint8)
    for region in scene.everything:
        region.mask = _NO_PIXELS
    return scene, regions, np.stack(small["pixel_values"]).astype(np.uint8)


def _crop_box(scene: Scene, region: Region | None) -> tuple[int, int, int, int]:
    if region is None:
        return 0, 0, scene.width, scene.height
    box = region.box
    return crop_box((box.left, box.top, box.width, box.height), scene.width, scene.height)


def _shifted(crops: Tensor, rng: np.random.Generator) -> Tensor:
    """Each image moved by a few pixels, its edge repeated where it left a gap."""
    moves = torch.from_numpy(rng.integers(-SHIFT, SHIFT + 1, (2, len(crops), 1)))
    rows, columns = (torch.arange(IMAGE_SIZE) + moves).clamp(0, IMAGE_SIZE - 1)
    images = torch.arange(len(crops))[:, None, None]
    return crops[images, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
