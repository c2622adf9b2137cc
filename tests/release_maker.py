"""A small DCI release, made by hand: photos drawn with Pillow, masks drawn as arrays, annotations as plain dicts.

    note = photo_annotation("sa_7.jpg", (400, 300), [mask_entry(0, (10, 20, 250, 260))])
    write_release(folder, {"1-data.json": note}, {"sa_7.jpg": photo((400, 300))})
    close_archives(folder)          # the same release as dci.tar.gz and sa_000138.tar

Any field can be replaced (`label=3`) or taken out (`label=DROP`). Nothing here imports `dci`.
"""

import base64
import io
import json
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageDraw

Json = dict[str, Any]
Box = tuple[int, int, int, int]  # x0, y0, x1, y1: right and bottom exclusive

SIZE = (400, 300)
DROP = object()
"""A field's value that takes the field out."""


def photo(size: tuple[int, int] = SIZE, *, mode: str = "RGB", form: str = "JPEG", orientation: int = 0) -> bytes:
    """A photo with four different quarters; `orientation` is written as EXIF, the pixels are not turned."""
    image = PIL.Image.new("RGB", size, "white")
    draw = PIL.ImageDraw.Draw(image)
    width, height = size
    draw.rectangle((0, 0, width // 2 - 1, height // 2 - 1), fill=(200, 30, 30))
    draw.rectangle((width // 2, 0, width, height // 2 - 1), fill=(30, 160, 40))
    draw.rectangle((0, height // 2, width // 2 - 1, height), fill=(40, 50, 210))
    out = io.BytesIO()
    exif = PIL.Image.Exif()
    if orientation:
        exif[0x0112] = orientation
    image.convert(mode).save(out, form, exif=exif)
    return out.getvalue()


def box_bitmap(box: Box, size: tuple[int, int] = SIZE) -> np.ndarray:
    """A bitmap that is True inside of the box."""
    bitmap = np.zeros((size[1], size[0]), dtype=bool)
    bitmap[box[1] : box[3], box[0] : box[2]] = True
    return bitmap


def png(bitmap: np.ndarray, mode: str = "1") -> str:
    """A bitmap as base64 PNG: of mode "1", or of mode "L" with 0 and 255."""
    out = io.BytesIO()
    PIL.Image.fromarray(bitmap.astype(np.uint8) * 255).convert(mode).save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode()


def mask_entry(idx: int, /, box: Box = (10, 20, 250, 260), *, size: tuple[int, int] = SIZE, **changes: Any) -> Json:
    """One value of `mask_data`: a mask that fills its box, of quality 0, right below the photo."""
    x0, y0, x1, y1 = box
    entry = {
        "idx": idx,
        "outer_mask": png(box_bitmap(box, size)),
        "area": (x1 - x0) * (y1 - y0),
        "mask_quality": 0,
        "label": f"thing {idx}",
        "caption": f"The thing of number {idx}.",
        "bounds": {"topLeft": {"x": x0, "y": y0}, "bottomRight": {"x": x1, "y": y1}},
        "parent": -1,
        "requirements": [],
    }
    return changed(entry, changes)


def photo_annotation(
    image: str = "sa_7.jpg", size: tuple[int, int] = SIZE, masks: Iterable[Json] = (), **changes: Any
) -> Json:
    """One annotation, with summaries, negatives and scores for the photo and for every mask whatever its size."""
    masks = list(masks)
    keys = ["base", *(f"m-{mask.get('idx')}-sc" for mask in masks)]
    annotation = {
        "image": image,
        "short_caption": "A short caption.",
        "extra_caption": "An extra caption.",
        "height": size[1],
        "width": size[0],
        "mask_data": {str(mask.get("idx")): mask for mask in masks},
        "mask_keys": [str(mask.get("idx")) for mask in masks],
        "summaries": {key: [f"{key} summary {i}" for i in range(6)] for key in keys},
        "negatives": {
            key: {"basic": [f"{key} basic"], "layout": [f"{key} layout"], "swaps": [f"{key} swaps"]} for key in keys
        },
        "clip_scores": {key: {"sum": 0.31, "basic_0": 0.25, "layout_0": 0.29, "swaps_0": 0.27} for key in keys},
    }
    return changed(annotation, changes)


def changed(data: Json, changes: Json) -> Json:
    """A copy with fields replaced, or, where the value is DROP, taken out."""
    return {key: value for key, value in (data | changes).items() if value is not DROP}


def write_release(
    folder: Path,
    annotations: dict[str, Json | bytes],
    photos: dict[str, bytes] | None = None,
    splits: Json | bytes | None = None,
) -> Path:
    """Write an unpacked release; gives the folder.

    Args:
        folder: Where `densely_captioned_images/` is made.
        annotations: By file name, such as "1-data.json"; bytes are written as they are.
        photos: By file name; by default one for each annotation, of its size.
        splits: The content of splits.json; by default every annotation is in "test".
    """
    root = folder / "densely_captioned_images"
    for part in ("annotations", "complete", "photos"):
        (root / part).mkdir(parents=True, exist_ok=True)
    human = ("summaries", "negatives", "clip_scores")
    for name, note in annotations.items():
        (root / "complete" / name).write_bytes(_bytes(note))
        bare = note if isinstance(note, bytes) else {key: note[key] for key in note if key not in human}
        (root / "annotations" / name).write_bytes(_bytes(bare))
    if photos is None:
        whole = [note for note in annotations.values() if not isinstance(note, bytes)]
        photos = {note["image"]: photo((note.get("width", SIZE[0]), note.get("height", SIZE[1]))) for note in whole}
    for name, content in photos.items():
        (root / "photos" / name).write_bytes(content)
    splits = {"train": [], "valid": [], "test": list(annotations)} if splits is None else splits
    (root / "splits.json").write_bytes(_bytes(splits))
    return folder


def _bytes(content: Json | bytes) -> bytes:
    return content if isinstance(content, bytes) else json.dumps(content).encode()


def close_archives(folder: Path, prefix: str = "") -> Path:
    """Turn an unpacked release into dci.tar.gz and sa_000138.tar; gives the folder.

    Args:
        folder: What `write_release` gave.
        prefix: Stands before each member's name, such as "./".
    """
    root = folder / "densely_captioned_images"
    with tarfile.open(folder / "sa_000138.tar", "w") as tar:
        for path in sorted((root / "photos").iterdir()):
            tar.add(path, prefix + path.name)
    shutil.rmtree(root / "photos")
    with tarfile.open(folder / "dci.tar.gz", "w:gz") as tar:
        tar.add(root, prefix + root.name)
    shutil.rmtree(root)
    return folder


def tar_member(name: str, content: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[Any, Any]:
    """Arguments of `TarFile.addfile` for one member, of any name and kind."""
    member = tarfile.TarInfo(name)
    member.size, member.type, member.linkname = len(content), kind, link
    return member, io.BytesIO(content)
