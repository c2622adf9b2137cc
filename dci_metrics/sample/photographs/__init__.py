"""Seven photographs of free licence, annotated by this project in the layout of the DCI release."""

from pathlib import Path


def release_folder() -> Path:
    """Return the folder that holds `densely_captioned_images/`, as if DCI had been unpacked there.

    Under it lie `densely_captioned_images/{annotations,complete,photos}/` and
    `densely_captioned_images/splits.json` (five photographs in `test`, one each in `train` and `valid`).
    The photographs, their authors and licences are listed in `SOURCES.md` of the same folder.
    """
    return Path(__file__).resolve().parent
