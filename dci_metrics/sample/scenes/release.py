"""Writing scenes as a DCI release: annotations, photos, split list, and a few gaps as in the real one."""

import base64
import io
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from difflib import SequenceMatcher
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from .scene import make_scene
from .world import Region, Scene

SPLITS: Mapping[str, int] = {"train": 160, "valid": 24, "test": 48}
"""Photos of each split."""

FIRST_SEEDS: Mapping[str, int] = {"train": 0, "valid": 10_000, "test": 20_000}
"""The seed of each split's first scene; the others follow it."""

GAPS: Mapping[int, str] = {
    **{7: "no negatives", 31: "bare string", 55: "four summaries", 79: "single key", 103: "no negatives",
       127: "bare string", 151: "four summaries"},
    10_007: "single key",
    **{20_005: "no negatives", 20_017: "bare string", 20_029: "four summaries", 20_041: "single key"},
}  # fmt: skip
"""Scenes that lack something, by seed.

"no negatives": the last submask has no `negatives`. "bare string": the last submask's summary is a string.
"four summaries": the last submask has only four. "single key": only "base" has negatives.
"""

JPEG_QUALITY = 90


def write_release(folder: Path, splits: Sequence[str] = ("train", "valid", "test"), num_proc: int = 1) -> None:
    """Writes `densely_captioned_images/` with annotations, complete, photos and splits.json.

    The same split has the same bytes whichever others are written, and however many processes write it.

    Args:
        folder: Where to put `densely_captioned_images/`.
        splits: Which of "train", "valid" and "test" to write; the others are empty lists in splits.json.
        num_proc: Number of processes.

    Raises:
        ValueError: A name in `splits` is not a split.
    """
    if unknown := [split for split in splits if split not in SPLITS]:
        raise ValueError(f"unknown split {unknown[0]!r}: expected some of {', '.join(SPLITS)}")
    root = folder / "densely_captioned_images"
    for name in ("annotations", "complete", "photos"):
        (root / name).mkdir(parents=True, exist_ok=True)
    wanted = [split for split in SPLITS if split in splits]
    seeds = [seed for split in wanted for seed in split_seeds(split)]
    if num_proc > 1:
        # a fresh process would import all of `datasets` first, which takes longer than it paints; fork where it is safe
        context = get_context("fork" if sys.platform == "linux" else "spawn")
        with ProcessPoolExecutor(num_proc, mp_context=context) as pool:
            list(pool.map(_write_scene, [root] * len(seeds), seeds, chunksize=4))
    else:
        for seed in seeds:
            _write_scene(root, seed)
    listed = {split: [f"{file_number(s)}-data.json" for s in split_seeds(split)] if split in wanted else []
              for split in SPLITS}  # fmt: skip
    (root / "splits.json").write_text(json.dumps(listed, indent=1), encoding="utf-8")


def split_seeds(split: str) -> range:
    """The seeds of a split's scenes, in the order of splits.json."""
    return range(FIRST_SEEDS[split], FIRST_SEEDS[split] + SPLITS[split])


def file_number(seed: int) -> int:
    """The number in the annotation's file name."""
    return 100_000 + seed


def photo_number(seed: int) -> int:
    """The number in the photo's file name; as in the release, not the annotation's."""
    return 1_500_000 + 7 * seed


def annotation(scene: Scene) -> dict[str, Any]:
    """The scene as the release's JSON in its "complete" form, with summaries, negatives and scores."""
    human = human_annotation(scene)
    summaries: dict[str, str | list[str]] = dict(scene.summaries)
    negatives = dict(scene.negatives)
    gap, last = GAPS.get(scene.seed), list(scene.summaries)[-1]
    if gap == "no negatives":
        del negatives[last]
    elif gap == "bare string":
        summaries[last] = scene.summaries[last][0]
    elif gap == "four summaries":
        summaries[last] = scene.summaries[last][:4]
    elif gap == "single key":
        negatives = {"base": negatives["base"]}
    scores = {key: _scores(scene.summaries[key], negatives[key]) for key in negatives}
    return {**human, "summaries": summaries, "negatives": negatives, "clip_scores": scores}


def human_annotation(scene: Scene) -> dict[str, Any]:
    """The scene as the release's JSON in its "annotations" form."""
    return {
        "image": f"sa_{photo_number(scene.seed)}.jpg",
        "short_caption": scene.short_caption,
        "extra_caption": scene.extra_caption,
        "height": scene.height,
        "width": scene.width,
        "mask_data": {str(region.idx): _mask_data(region) for region in scene.regions},
        "mask_keys": [str(region.idx) for region in scene.regions],
    }


def jpeg(scene: Scene) -> bytes:
    """The photo's bytes."""
    buffer = io.BytesIO()
    Image.fromarray(scene.image).save(buffer, "JPEG", quality=JPEG_QUALITY)
    return buffer.getvalue()


def encode_mask(mask: npt.NDArray[np.bool_]) -> str:
    """A mask as base64 PNG of mode "1"."""
    height, width = mask.shape
    image = Image.frombytes("1", (width, height), np.packbits(mask, axis=1).tobytes())
    buffer = io.BytesIO()
    image.save(buffer, "PNG", compress_level=1)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


def likeness(text: str, other: str) -> float:
    """30 times how alike two texts are: half by their words in any order, half by their characters in order.

    It stands in for the release's CLIP scores, of the same range and, as CLIP, not very alert to order. It is NOT
    a CLIP score.
    """
    words, others = Counter(text.split()), Counter(other.split())
    shared = 2 * (words & others).total() / (words.total() + others.total())
    in_order = SequenceMatcher(None, text, other, autojunk=False).ratio()
    return round(15 * (shared + in_order), 4)


def _scores(summaries: Sequence[str], negatives: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """`likeness` of each negative to the first summary; "sum" is the best of the other summaries."""
    first, others = summaries[0], summaries[1:]
    scores = {"sum": max(likeness(first, other) for other in others)}
    for kind, texts in negatives.items():
        scores |= {f"{kind}_{i}": likeness(first, text) for i, text in enumerate(texts)}
    return scores


def _mask_data(region: Region) -> dict[str, Any]:
    left, top, right, bottom = region.box
    data: dict[str, Any] = {
        "idx": region.idx,
        "outer_mask": encode_mask(region.mask),
        "area": region.area,
        "mask_quality": region.quality,
        "label": region.label,
        "caption": region.caption,
        "bounds": {"topLeft": {"x": left, "y": top}, "bottomRight": {"x": right, "y": bottom}},
        "parent": region.parent,
        "requirements": region.requirements,
    }
    # bad masks often have no text fields; large ones keep empty ones, or the original's code drops the photo
    if region.quality == 2 and not region.is_entry and region.idx % 2:
        del data["label"], data["caption"]
    return data


def _write_scene(root: Path, seed: int) -> None:
    scene = make_scene(seed)
    complete = annotation(scene)
    human = {key: complete[key] for key in complete if key not in ("summaries", "negatives", "clip_scores")}
    name = f"{file_number(seed)}-data.json"
    (root / "photos" / complete["image"]).write_bytes(jpeg(scene))
    for folder, data in (("annotations", human), ("complete", complete)):
        (root / folder / name).write_text(json.dumps(data), encoding="utf-8")
