"""The sDCI tests, scored the slow way, from the rules of the release's format alone.

It reads the raw annotation files and photos, runs CLIP on one image and one text at a time, and compares in loops. It
shares no code with what it judges: nothing here imports `dci` or `dci_metrics`.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch

TESTS = ("all_scm", "all_neg", "pick5_scm", "pick5_neg", "base_scm", "base_neg", "hard_negs")
GROUP = 8


@dataclass
class Figure:
    """One test: right or wrong by (image_id, key), in the order of the entries, and the photos that are not in it."""

    outcomes: dict[tuple[str, str], bool] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)

    @property
    def n(self) -> int:
        return len(self.outcomes)

    @property
    def correct(self) -> int:
        return sum(self.outcomes.values())


class Clip:
    """CLIP and its processor, used as transformers' own documentation does: one image, one text."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor
        self.known: dict[str, np.ndarray] = {}

    def image(self, pixels: np.ndarray) -> np.ndarray:
        inputs = self.processor.image_processor(PIL.Image.fromarray(pixels), return_tensors="pt")
        return self._unit(self.model.get_image_features(pixel_values=inputs["pixel_values"]))

    def text(self, text: str) -> np.ndarray:
        if text not in self.known:
            inputs = self.processor.tokenizer(text, truncation=True, return_tensors="pt")
            features = self.model.get_text_features(inputs["input_ids"], attention_mask=inputs["attention_mask"])
            self.known[text] = self._unit(features)
        return self.known[text]

    @staticmethod
    def _unit(features: Any) -> np.ndarray:
        vector = features.pooler_output[0].detach().float().numpy()
        return vector / np.sqrt((vector * vector).sum())


@torch.no_grad()
def score(folder: Path, model: Any, processor: Any, split: str = "test") -> dict[str, Figure]:
    """All tests on one split (by its name in splits.json) of an unpacked release."""
    root = Path(folder) / "densely_captioned_images"
    names = json.loads((root / "splits.json").read_text())[split]
    notes = {name: json.loads((root / "complete" / name).read_text()) for name in names}
    clip = Clip(model, processor)
    images: dict[tuple[str, str], np.ndarray] = {}
    figures = {}
    for test in TESTS:
        figures[test] = Figure()
        walked = []  # (image_id, key, captions, negative) in the order of the data
        for name in names:
            image_id = name.removesuffix("-data.json")
            found = entries_of(notes[name], test)
            if found is None:
                figures[test].left_out.append(image_id)
                continue
            photo = None
            for key, mask, captions, negative in found:
                if test.startswith("pick5") and len(captions) < 5:
                    continue
                if (image_id, key) not in images:
                    photo = read_photo(root / "photos" / notes[name]["image"], notes[name]) if photo is None else photo
                    images[image_id, key] = clip.image(photo if mask is None else subcrop(photo, mask))
                walked.append((image_id, key, captions[: 5 if test.startswith("pick5") else 1], negative))
        for i, (image_id, key, captions, negative) in enumerate(walked):
            image = images[image_id, key]
            own = min(cosine(image, clip.text(caption)) for caption in captions)
            if test.endswith("_scm"):
                start = i - i % GROUP
                scores = []
                for j in range(start, min(start + GROUP, len(walked))):
                    scores.append(own if j == i else max(cosine(image, clip.text(text)) for text in walked[j][2]))
                figures[test].outcomes[image_id, key] = scores.index(max(scores)) == i - start
            else:
                figures[test].outcomes[image_id, key] = bool(own > cosine(image, clip.text(negative)))
    return figures


def cosine(image: np.ndarray, text: np.ndarray) -> np.float32:
    return np.float32(sum(float(a) * float(b) for a, b in zip(image, text, strict=True)))


def entries_of(note: dict[str, Any], test: str) -> list[tuple[str, dict[str, Any] | None, list[str], str]] | None:
    """(key, mask, captions, negative) of each entry that a test uses, or None where the photo is not in the test."""
    if note.get("summaries") is None or note.get("negatives") is None:
        return None
    base_only = test.startswith("base")
    if len(note["negatives"]) == 1 and not base_only:
        return None
    used = [("base", None, ["base"])]
    for mask_key, mask in note["mask_data"].items():
        x0, y0, x1, y1 = corners(mask)
        if x1 - x0 >= 224 and y1 - y0 >= 224 and not base_only:
            own = f"m-{mask['idx']}-sc"
            used.append((own, mask, [own, mask_key, str(mask["idx"])]))
    entries = []
    for key, mask, spellings in used:
        captions, negatives, scores = (
            next((note.get(table, {})[name] for name in spellings if name in (note.get(table) or {})), None)
            for table in ("summaries", "negatives", "clip_scores")
        )
        if not captions and captions != "":
            return None
        if negatives is None or scores is None:
            return None
        if test == "hard_negs":
            best = None
            for kind, texts in negatives.items():
                for i, text in enumerate(texts):
                    if f"{kind}_{i}" not in scores:
                        return None
                    if best is None or scores[f"{kind}_{i}"] >= best[0]:
                        best = (scores[f"{kind}_{i}"], text)
            if best is None:
                return None
            negative = best[1]
        elif not negatives.get("swaps"):
            return None
        else:
            negative = negatives["swaps"][0]
        entries.append((key, mask, [captions] if isinstance(captions, str) else captions, negative))
    return entries


def corners(mask: dict[str, Any]) -> tuple[int, int, int, int]:
    bounds = mask["bounds"]
    if isinstance(bounds, list):
        return (*bounds[0], *bounds[1])
    return bounds["topLeft"]["x"], bounds["topLeft"]["y"], bounds["bottomRight"]["x"], bounds["bottomRight"]["y"]


def subcrop(photo: np.ndarray, mask: dict[str, Any]) -> np.ndarray:
    x0, y0, x1, y1 = corners(mask)
    dx, dy = int(0.15 * (x1 - x0)), int(0.15 * (y1 - y0))
    height, width = photo.shape[:2]
    return photo[max(y0 - dy, 0) : min(y1 + dy, height), max(x0 - dx, 0) : min(x1 + dx, width)]


def read_photo(path: Path, note: dict[str, Any]) -> np.ndarray:
    """RGB pixels, turned as EXIF says where that gives the size that the masks count."""
    with PIL.Image.open(path) as stored:
        turned = PIL.ImageOps.exif_transpose(stored)
        size = (note.get("width", turned.width), note.get("height", turned.height))
        return np.asarray((turned if turned.size == size else stored).convert("RGB"))
