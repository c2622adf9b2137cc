"""Data and a model that come with the package, so that every command runs without any download.

`sample:scenes` are generated pictures with exact masks, `sample:photographs` a handful of real photographs with masks
and captions made for this project, both in the release's layout; `sample:tiny-clip` is a small CLIP trained on scenes.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

import datasets

from dci import SPLITS, DCIError
from dci_metrics.sample import photographs, scenes

PREFIX = "sample:"
RELEASES = ("scenes", "photographs")
MODELS = {"tiny-clip": Path(__file__).parent / "tiny_clip"}


def release_folder(name: str, split: str | None = None) -> Path:
    """The folder of an embedded dataset, in the release's layout.

    Scenes are painted on first use, into the Hugging Face cache.

    Args:
        name: Such as `sample:scenes`.
        split: The one split that is needed; None for all of them.

    Raises:
        DCIError: If there is no such sample.
    """
    kind = name.removeprefix(PREFIX)
    if kind not in RELEASES:
        raise DCIError(f"no sample {name!r}: expected {' or '.join(PREFIX + known for known in RELEASES)}")
    if kind == "photographs":
        return photographs.release_folder()
    splits = tuple(SPLITS.values()) if split is None or split not in SPLITS else (SPLITS[split],)
    return _painted(splits)


def model_path(name: str) -> Path:
    """The folder of an embedded model.

    Raises:
        DCIError: If there is no such model.
    """
    kind = name.removeprefix(PREFIX)
    if kind not in MODELS:
        raise DCIError(f"no sample {name!r}: expected {' or '.join(PREFIX + known for known in MODELS)}")
    return MODELS[kind]


def local_model(model: str | Path) -> Path:
    """The folder of a model that `dci eval` was given by name: embedded, or on this machine; else one that is not."""
    name = str(model)
    return model_path(name) if name.startswith(PREFIX) else Path(name).expanduser()


def _painted(splits: Sequence[str]) -> Path:
    home = Path(datasets.config.HF_CACHE_HOME) / "dci"
    stem = f"scenes-{_source_hash()}"
    everything = home / f"{stem}-{'-'.join(SPLITS.values())}"
    target = everything if everything.is_dir() else home / f"{stem}-{'-'.join(splits)}"
    if not target.is_dir():
        home.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix="painting-", dir=home))
        try:
            scenes.write_release(unfinished, splits, num_proc=os.cpu_count() or 1)
            # Another process may have been first, with the same bytes.
            if not target.is_dir():
                unfinished.chmod(0o755)  # temporary folders are for their owner alone
                unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    return target


def _source_hash() -> str:
    """Changes with the generator, so that no scenes of an earlier version are taken from the cache."""
    digest = hashlib.sha256()
    for path in sorted(Path(scenes.__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
