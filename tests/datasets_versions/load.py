"""Runs in an environment with one version of `datasets`: loads in the ways asked for, prints the rows as JSON.

    python load.py '{"way": {"path": ..., "name": ..., "data_dir": ..., "streaming": true, ...}, ...}'

It imports neither `dci` nor torch: what a user has who only loads.
"""

import hashlib
import importlib.util
import json
import sys

import datasets


def main() -> None:
    assert importlib.util.find_spec("torch") is None, "this environment is to show that torch is not needed"
    datasets.disable_progress_bars()
    ways = json.loads(sys.argv[1])
    loaded = {way: load(arguments) for way, arguments in ways.items()}
    print(json.dumps({"version": datasets.__version__, "ways": loaded}))


def load(arguments: dict) -> dict:
    """The rows of each split, with the sha256 of the photo's bytes and the size it decodes to."""
    return {split: [plain(row) for row in rows(data)] for split, data in datasets.load_dataset(**arguments).items()}


def rows(data):
    decoded = (None if image is None else image.size for image in (row["image"] for row in data))
    for row, size in zip(data.cast_column("image", datasets.Image(decode=False)), decoded, strict=True):
        yield row | {"decoded_size": size}


def plain(row: dict) -> dict:
    image = row["image"]
    if image is not None:
        image = {"sha256": hashlib.sha256(image["bytes"]).hexdigest(), "path": image["path"]}
    return row | {"image": image}


if __name__ == "__main__":
    main()
