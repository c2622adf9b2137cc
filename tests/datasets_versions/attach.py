"""Runs in an environment with one version of `datasets`: attaches photos, and compares with the folder that has them.

    PYTHONPATH=<where dci.py is> python attach.py DCI_WITH_PHOTOS DCI_WITHOUT FOLDER_OF_PHOTOS ARCHIVE

It ends with an error at the first difference.
"""

import pickle
import sys

import datasets

import dci


def main() -> None:
    datasets.disable_progress_bars()
    whole, bare, folder, archive = sys.argv[1:]
    for config, photos in (("sdci", archive), ("full", archive), ("sdci", folder)):
        compare(whole, bare, config, photos)
    print(datasets.__version__)


def compare(whole: str, bare: str, config: str, photos: str) -> None:
    """All ways to read both."""
    expected = {split: [plain(row) for row in rows] for split, rows in datasets.load_dataset(whole, config).items()}
    for streaming in (False, True):
        without = datasets.load_dataset(bare, config, streaming=streaming)
        joined = dci.attach_photos(without, photos)
        assert type(joined) is type(without)
        for split, rows in expected.items():
            assert joined[split].features == without[split].features == dci.features(config)
            assert list(joined[split].features) == list(without[split].features)
            assert joined[split].split == without[split].split
            assert joined[split].info.dataset_name == without[split].info.dataset_name
            assert [plain(row) for row in joined[split]] == rows
            again = pickle.loads(pickle.dumps(joined[split]))
            assert [plain(row) for row in again] == rows
        train, rows = joined["train"], expected["train"]
        both = sorted(rows, key=str)
        assert sorted([plain(row) for row in train.shuffle(seed=0)], key=str) == both
        assert [plain(row) for row in train.take(1)] == rows[:1]
        assert [plain(row) for row in train.skip(1)] == rows[1:]
        sizes = [row["size"] for row in train.map(size_of)]
        assert sizes == [list(row["image"][0]) for row in rows]
        names = [row["file_name"] for row in train.filter(is_wide)]
        assert names == [row["file_name"] for row in rows if is_wide({"image": Size(row)})]
    compare_tables(bare, photos, config, expected["train"])


def compare_tables(bare: str, photos: str, config: str, rows: list) -> None:
    """What only map-style datasets can do."""
    without = datasets.load_dataset(bare, config, split="train")
    for chosen in ([1, 0, 1], [1]):  # a dataset that shows only some rows of its file
        assert [plain(row) for row in dci.attach_photos(without.select(chosen), photos)] == [rows[i] for i in chosen]
    joined = dci.attach_photos(without, photos)
    assert [image.size for image in joined["image"]] == [row["image"][0] for row in rows]
    assert [image.size for image in joined[:2]["image"]] == [row["image"][0] for row in rows]
    assert [row["size"] for row in joined.map(size_of, num_proc=2)] == [list(row["image"][0]) for row in rows]
    assert dci.attach_photos(without.with_format("numpy"), photos)[0]["image"].shape[2] == 3
    upright = joined.cast_column("image", datasets.Image(mode="L"))
    assert upright[0]["image"].mode == "L"
    assert joined._fingerprint == dci.attach_photos(without, photos)._fingerprint != without._fingerprint


def plain(row: dict) -> dict:
    image = row["image"]
    return row | {"image": (image.size, image.mode, image.tobytes())}


def size_of(row: dict) -> dict:
    return {"size": list(row["image"].size)}


def is_wide(row: dict) -> bool:
    return row["image"].size[0] > row["image"].size[1]


class Size:
    """The size of a plain row's image."""

    def __init__(self, row: dict) -> None:
        self.size = row["image"][0]


if __name__ == "__main__":
    main()
