"""Does peak memory grow with the number of photos?

    python benchmarks/memory.py [200 2000]

Each number of photos is scored in a process of its own, from rows that are made as they are read. A photo is one of the
sample's with some bytes behind its end, so that it counts as another one, and is decoded and encoded again. What may
grow are the embeddings, the entries, and their texts.
"""

import io
import resource
import subprocess
import sys
from collections.abc import Iterator

import dci
import dci_metrics
from dci_metrics import sample


class Rows:
    """Rows without end to their number, and with none of them held; each photo is 1,500 × 2,000 pixels."""

    def __init__(self, count: int) -> None:
        self.count = count
        import PIL.Image

        (row,) = list(dci.Release(sample.release_folder("sample:photographs")).rows("validation", "sdci"))[:1]
        photo = PIL.Image.open(io.BytesIO(row["image"]["bytes"])).resize((2000, 1500))
        buffer = io.BytesIO()
        photo.save(buffer, "JPEG", quality=95)
        self.content = buffer.getvalue()
        whole = row["entries"][0] | {"bbox": [0, 0, 2000, 1500], "crop_xyxy": [0, 0, 2000, 1500]}
        boxes = [(200 * i, 100 * i, 200 * i + 900, 100 * i + 700) for i in range(5)]
        parts = [whole | {"key": f"m-{i}-sc", "mask_id": i, "crop_xyxy": list(box)} for i, box in enumerate(boxes)]
        self.row = row | {"width": 2000, "height": 1500, "entries": [whole, *parts]}

    def __iter__(self) -> Iterator[dci.Row]:
        for i in range(self.count):
            yield self.row | {"image_id": f"{i}", "image": {"bytes": self.content + b"%d" % i, "path": f"{i}.jpg"}}


def main() -> None:
    """Print the peak of each number of photos."""
    if len(sys.argv) == 3 and sys.argv[1] == "--child":
        result = dci_metrics.evaluate("sample:tiny-clip", Rows(int(sys.argv[2])), cache=False, progress=False)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
        images = result.timing["images"]
        kept = images * 96 * 4 / 2**20
        print(f"{sys.argv[2]:>6} photos  {images:>6} images  peak {peak:6.0f} MiB  of it embeddings {kept:.1f} MiB")
        return
    for count in sys.argv[1:] or ["200", "2000"]:
        subprocess.run([sys.executable, __file__, "--child", count], check=True)


if __name__ == "__main__":
    main()
