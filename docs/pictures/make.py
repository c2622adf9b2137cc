"""Draw the pictures of the documentation.

dci train --preset sdci_p1 --model sample:tiny-clip --dataset sample:scenes --output-dir p1
python docs/pictures/make.py p1    # the report needs chromium
"""

import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import dci
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_row

FOLDER = Path(__file__).parent
PHOTO = "900003"


def row_of(config: str) -> dict[str, Any]:
    """The photograph's row."""
    rows = open_source("sample:photographs", config, "test").read(masks=True)
    return next(row for row in rows if row["image_id"] == PHOTO)


def entries() -> None:
    """The entries of sDCI: crops, outlines of masks, first captions."""
    row = row_of("sdci")
    photo = read_row(row)
    figure, axes = plt.subplots(1, len(photo.entries), figsize=(13, 3.6))
    for axis, entry, crop, cells in zip(axes, photo.entries, photo.crops(photo.entries), row["entries"], strict=True):
        axis.imshow(crop)
        axis.axis("off")
        axis.set_title(entry.key)
        if cells["rle"] is not None:
            x0, y0, x1, y1 = entry.crop_xyxy
            axis.contour(dci.decode_mask(cells["rle"])[y0:y1, x0:x1], [0.5], colors="yellow", linewidths=1)
        text = textwrap.fill(entry.captions[0], 34)
        axis.text(0.5, -0.06, text, transform=axis.transAxes, ha="center", va="top", fontsize=8)
    figure.tight_layout()
    figure.savefig(FOLDER / "entries.png", dpi=90, bbox_inches="tight")


def report(run: Path) -> None:
    """The top of the report over a training's results, as a browser shows it."""
    browser = shutil.which("chromium")
    if browser is None:
        sys.exit("chromium is not installed")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        results = [str(run / f"result_{name}.json") for name in ("before", "after")]
        dci_report = [sys.executable, "-m", "dci_metrics", "report", *results]
        subprocess.run([*dci_report, "--dataset", "sample:scenes", "--out", str(page)], check=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        picture = [
            f"--user-data-dir={folder}/profile",
            f"--screenshot={FOLDER / 'report.png'}",
            "--window-size=1280,1000",
            page.as_uri(),
        ]
        subprocess.run([browser, *flags, *picture], check=True, capture_output=True)


if __name__ == "__main__":
    entries()
    report(Path(sys.argv[1]))
