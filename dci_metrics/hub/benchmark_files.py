"""What makes a dataset repo a benchmark: `eval.yaml` for the Hub, `fingerprints.json` for `dci submit`."""

import hashlib
import json
from pathlib import Path

import yaml

import dci
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_photos
from dci_metrics.tasks import GROUP_SIZE, TASKS

EVAL_FILE = "eval.yaml"
FINGERPRINTS_FILE = "fingerprints.json"
CONFIG, SPLIT = "sdci", "test"

FRAMEWORK = "dci-metrics"
"""What evaluates, by the name that Hugging Face is asked to put on its list (docs/leaderboard.md)."""

DESCRIPTION = f"""\
Densely Captioned Images (DCI) sets CLIP-style models against captions of whole photos and of the parts of them. \
Subcrop-Caption Matching (SCM) asks which of up to {GROUP_SIZE} captions, mostly of one photo, belongs to a subcrop; \
the tests with negatives (Neg) ask for the right one of two captions that differ in a detail. Scores are accuracies \
in percent; higher is better."""


def write(folder: Path, dataset: Path | dci.Release | None = None) -> list[str]:
    """Write the files of a benchmark into a dataset repo's folder.

    Args:
        folder: What is uploaded.
        dataset: The built folder or the release, with its photos; without it, or without photos in it, there are no
            fingerprints.

    Returns:
        The names of the files.

    Raises:
        DCIError: If the dataset cannot be read.
    """
    (folder / EVAL_FILE).write_text(eval_yaml(), encoding="utf-8")
    found = None if dataset is None else fingerprint(dataset)
    if found is None:
        return [EVAL_FILE]
    text = json.dumps({f"{CONFIG}/{SPLIT}": found}, indent=1) + "\n"
    (folder / FINGERPRINTS_FILE).write_text(text, encoding="utf-8")
    return [EVAL_FILE, FINGERPRINTS_FILE]


def eval_yaml() -> str:
    """One task id, and so one leaderboard, for each test."""
    data = {
        "name": "Densely Captioned Images (DCI)",
        "description": DESCRIPTION,
        "evaluation_framework": FRAMEWORK,
        "tasks": [{"id": key, "config": CONFIG, "split": SPLIT} for key in TASKS],
    }
    return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=110))


def fingerprint(dataset: Path | dci.Release) -> str | None:
    """The hash over the test split that stands in result files; None where the dataset has no photos, or no such split.

    Raises:
        DCIError: If the dataset cannot be read.
    """
    if isinstance(dataset, dci.Release):
        names = dataset.splits.get(SPLIT)
        if not names or len(dataset.check(names, on_error="skip")) < len(names):
            return None
    elif not any((dataset / "data").glob(f"{SPLIT}-*.parquet")):
        return None
    source = open_source(dataset if isinstance(dataset, dci.Release) else str(dataset), CONFIG, SPLIT)
    digest = hashlib.sha256()
    for photo in read_photos(source.read()):
        if photo.image is None:
            return None
        digest.update(photo.digest())
    return digest.hexdigest()
