"""Releases with what makes scoring go wrong: photos left out by every rule, bare strings, few captions, equal texts."""

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from release_maker import mask_entry, photo_annotation, write_release

WORDS = ("red", "green", "blue", "the", "of", "and", "thing", "café", "塔", "swaps", "base")
SIZES = ((300, 280), (260, 320), (240, 240))


def noise_photo(seed: int, size: tuple[int, int], *, mode: str = "RGB", orientation: int = 1) -> bytes:
    """A JPEG of coloured blots, unlike that of any other seed; `size` is what it has once it is turned upright."""
    rng = np.random.default_rng(seed)
    small = PIL.Image.fromarray(rng.integers(0, 256, (6, 6, 3), dtype=np.uint8))
    stored = size[::-1] if orientation in (5, 6, 7, 8) else size
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    out = io.BytesIO()
    small.resize(stored, PIL.Image.Resampling.BICUBIC).convert(mode).save(out, "JPEG", exif=exif)
    return out.getvalue()


def awkward_note(rng: np.random.Generator, image: str, size: tuple[int, int]) -> dict[str, Any]:
    """One annotation that no rule leaves out."""
    width, height = size
    masks = []
    for idx in range(int(rng.integers(0, 6))):
        w, h = (int(rng.choice([100, 223, 224, 225, 236])) for _ in range(2))
        x, y = int(rng.integers(0, width - w + 1)), int(rng.integers(0, height - h + 1))
        box = (x, y, x + w, y + h)
        changes: dict[str, Any] = {"mask_quality": int(rng.choice([0, 0, 1, 2]))}
        if rng.random() < 0.3:
            changes["bounds"] = [[x, y], [x + w, y + h]]
        masks.append(mask_entry(idx * 3, box, size=size, **changes))
    note = photo_annotation(image, size, masks)
    for key in note["summaries"]:
        captions = [text(rng) for _ in range(int(rng.choice([1, 4, 5, 6, 7])))]
        note["summaries"][key] = captions[0] if rng.random() < 0.15 else captions
        kinds = [str(kind) for kind in rng.permutation(["basic", "layout", "swaps"])]
        note["negatives"][key] = {kind: [text(rng) for _ in range(int(rng.integers(1, 4)))] for kind in kinds}
        if rng.random() < 0.3:
            note["negatives"][key]["swaps"][0] = captions[0]
        # Few values, so that the hardest negative is often one of several.
        note["clip_scores"][key] = {"sum": 0.3} | {
            f"{kind}_{i}": float(rng.choice([-0.1, 0.2, 0.25]))
            for kind, texts in note["negatives"][key].items()
            for i in range(len(texts))
        }
    return note


def text(rng: np.random.Generator) -> str:
    """Often the same as another."""
    return " ".join(rng.choice(WORDS, int(rng.integers(1, 3))))


def spoilt_notes(rng: np.random.Generator, size: tuple[int, int]) -> dict[str, dict[str, Any]]:
    """Annotations that the paper's rules leave out of some test, by what is wrong with them."""
    big = (0, 0, 230, 230)
    plain = photo_annotation("sa_1.jpg", size, [mask_entry(4, big, size=size), mask_entry(5, big, size=size)])
    for key in plain["summaries"]:
        plain["summaries"][key] = [text(rng) for _ in range(6)]
        plain["negatives"][key] = {kind: [text(rng), text(rng)] for kind in ("swaps", "basic")}
        plain["clip_scores"][key] = {"sum": 0.3, "swaps_0": 0.1, "swaps_1": 0.2, "basic_0": 0.2, "basic_1": 0.0}
    notes = {}

    def spoil(name: str) -> dict[str, Any]:
        notes[name] = copy.deepcopy(plain)
        return notes[name]

    spoil("no summaries").pop("summaries")
    spoil("no negatives").pop("negatives")
    for key in ("base", "m-5-sc"):
        note = spoil(f"only {key} in negatives")
        note["negatives"] = {key: note["negatives"][key]}
        for table in ("summaries", "negatives", "clip_scores"):
            spoil(f"no {table} of {key}")[table].pop(key)
        spoil(f"no swaps of {key}")["negatives"][key].pop("swaps")
        spoil(f"empty swaps of {key}")["negatives"][key]["swaps"] = []
        spoil(f"a score missing of {key}")["clip_scores"][key].pop("basic_0")
        spoil(f"no negative of {key}")["negatives"][key] = {}
    note = spoil("the keys of the README")
    for table in ("summaries", "negatives", "clip_scores"):
        note[table]["5"] = note[table].pop("m-5-sc")
    return notes


def write_awkward_release(folder: Path, seed: int, photos: int = 6, spoilt: bool = True) -> Path:
    """Write an unpacked release; gives the folder."""
    rng = np.random.default_rng(seed)
    notes: list[dict[str, Any]] = []
    contents = {}
    for i in range(photos):
        size = SIZES[i % len(SIZES)]
        notes.append(awkward_note(rng, f"sa_{i}.jpg", size))
        mode = ("RGB", "RGB", "L", "CMYK")[i % 4]
        contents[f"sa_{i}.jpg"] = noise_photo(100 * seed + i, size, mode=mode, orientation=(1, 6, 3, 1)[i % 4])
    for i, note in enumerate(spoilt_notes(rng, SIZES[0]).values() if spoilt else ()):
        name = f"sa_{photos + i}.jpg"
        notes.append(note | {"image": name})
        contents[name] = noise_photo(100 * seed + photos + i, SIZES[0])
    order = rng.permutation(len(notes))
    annotations = {f"{1000 + 7 * int(i)}-data.json": notes[i] for i in order}
    return write_release(folder, annotations, contents)
