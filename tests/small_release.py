"""A release of five photos with what is met in the real one, for tests of what is made from a release."""

from pathlib import Path

from release_maker import mask_entry, photo, photo_annotation, write_release

SPLITS = {"train": ["31-data.json", "4-data.json"], "valid": ["15-data.json"], "test": ["92-data.json", "6-data.json"]}
PHOTOS = {"31": "sa_1.jpg", "4": "sa_2.jpg", "15": "sa_3.jpg", "92": "sa_4.jpg", "6": "sa_5.jpg"}


def write_small_release(folder: Path) -> Path:
    """Write it unpacked; gives the folder.

    - 31: a mask with a child and a child that does not exist, a bad mask, an uninteresting one.
    - 4: no mask.
    - 15: a small mask only, text that is not ASCII, with line ends.
    - 92: left out of all tests but `base`.
    - 6: no summaries at all.
    """
    small = (20, 30, 120, 90)
    notes = {
        "31-data.json": photo_annotation(
            "sa_1.jpg",
            masks=[
                mask_entry(0, requirements=[1, 99]),
                mask_entry(1, small, parent=0),
                mask_entry(2, mask_quality=2, label="", caption=""),
                mask_entry(3, small, mask_quality=1, caption=""),
            ],
        ),
        "4-data.json": photo_annotation("sa_2.jpg"),
        "15-data.json": photo_annotation(
            "sa_3.jpg", masks=[mask_entry(7, small, label="café")], short_caption="Ein Café 🎈.\n", extra_caption=""
        ),
        "92-data.json": photo_annotation("sa_4.jpg", masks=[mask_entry(0)]),
        "6-data.json": photo_annotation("sa_5.jpg", masks=[mask_entry(0)]),
    }
    del notes["92-data.json"]["negatives"]["m-0-sc"]
    del notes["6-data.json"]["summaries"]
    return write_release(folder, notes, {name: photo() for name in PHOTOS.values()}, SPLITS)
