"""Result files that look like those of a real model on DCI's test split, without its photos."""

import random
import re
from pathlib import Path
from typing import Any

from dci_metrics import statistics
from dci_metrics.results import Result, Score
from dci_metrics.tasks import PAPER_TASKS

TEST_IDS = re.findall(
    r"\d+",
    """
120494 120515 120530 121827 122104 122115 122144 122765 123044 123316 123478 123566 113526 113573 113029 113159
113392 113444 113480 114838 115370 115376 115808 115992 116118 116155 116288 116316 116413 116546 116827 116941
116984 117211 117315 117384 117951 118012 118059 118140 118148 118262 118379 118450 118581 118625 118657 118934
119065 119091 119132 119145 119278 119423 119445 119462 119470 119526 119577 119599 119712 119759 119796 119828
120033 120059 120098 120113 120171 120381 120484 120651 120661 122041 122045 122069 122075 122081 122082 122146
122329 122345 122352 122393 122446 122497 122637 122821 122836 122883 123086 123114 123119 123179 123186 123207
123272 123534 113106 113170 114914 119293 122990 123408 123505 117216 118668 114326
""",
)
"""The photos of the release's test split, by the numbers in its splits.json."""

FINGERPRINT = "5f" * 32
PAPER_LEFT_OUT = ("`negatives` has a single key", "no `clip_scores` for m-4-sc", "no `swaps` for base")


def real_result(name: str = "owner/clip", seed: int = 0, **changes: Any) -> Result:
    """A result of all tests of the paper, in which the first photos are left out by the paper's rules.

    Args:
        name: Of the model.
        seed: Of the outcomes.
        changes: Fields to change, such as `settings={"crop": "masked"}` or `dataset={"split": "train"}`.
    """
    draw = random.Random(seed)
    left_out = [{"image_id": i, "reason": r} for i, r in zip(TEST_IDS, PAPER_LEFT_OUT, strict=False)]
    entries = [(i, key) for i in TEST_IDS[len(left_out) :] for key in ("base", "m-1-sc", "m-2-sc")]
    scores, outcomes = {}, {}
    for key, task in PAPER_TASKS.items():
        members = [task.rule != "base" or entry[1] == "base" for entry in entries]
        marks = [draw.random() < 0.3 + 0.05 * (seed % 8) if member else None for member in members]
        values = [float(mark) for mark in marks if mark is not None]
        photos = [image_id for (image_id, _), member in zip(entries, members, strict=True) if member]
        outcomes[key] = "".join("-" if mark is None else str(int(mark)) for mark in marks)
        scores[key] = Score(
            value=sum(values) / len(values),
            correct=int(sum(values)),
            n=len(values),
            n_images=len(values),
            n_texts=len(values),
            ci95=statistics.interval(values, photos),
            chance=task.chance(photos),
            ties=0,
            truncated=0.0,
            tokens_lost=0,
            left_out=left_out,
        )
    parts: dict[str, Any] = {
        "model": {"id": name, "revision": "1" * 40, "family": "clip", "adapter": None, "text_limit": 77},
        "dataset": {"id": "/data/dci", "revision": None, "config": "sdci", "split": "test", "fingerprint": FINGERPRINT},
        "settings": {
            "mode": "paper",
            "group_size": 8,
            "crop": "box",
            "dtype": "float32",
            "image_backend": "pil",
            "scorer": "contrastive",
        },
        "timing": {"seconds": 1.0, "images": 324, "texts": 648},
        "environment": {"dci_metrics": "0.1.0", "dci_metrics_revision": "2" * 40},
    }
    for part, changed in changes.items():
        parts[part] = parts[part] | changed
    return Result(scores=scores, entries=entries, outcomes=outcomes, **parts)


def save(folder: Path, file: str = "result.json", **arguments: Any) -> Path:
    """A result file; arguments as of `real_result`."""
    path = folder / file
    real_result(**arguments).save(path, force=True)
    return path
