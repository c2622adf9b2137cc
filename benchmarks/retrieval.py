"""Time and memory of ranking a gallery, against the bare product in the same chunks and the ten best of each.

    python benchmarks/retrieval.py --size 20000            # of photos and of texts, 512 numbers each

Embeddings are random, one in fifty of the texts is there twice. Each side is timed in turn, several times, and the
fastest is told; memory is the peak above what was taken before, by Linux's own count.
"""

import argparse
import re
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from dci_metrics.retrieval.ranking import CHUNK, rank

K = 10


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=20_000)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=3)
    asked = parser.parse_args()
    images, texts = embeddings(asked.size, asked.dim)
    own = torch.arange(asked.size)[:, None]
    bare_seconds = ranked_seconds = float("inf")
    bare_peak = ranked_peak = 0.0
    for _ in range(asked.repeats):
        took, most = cost(lambda: bare(images, texts))
        bare_seconds, bare_peak = min(bare_seconds, took), max(bare_peak, most)
        took, most = cost(lambda: rank(images, texts, own))
        ranked_seconds, ranked_peak = min(ranked_seconds, took), max(ranked_peak, most)
    whole = 4 * asked.size**2 / 2**20
    print(f"{asked.size:,} x {asked.size:,}, {asked.dim} numbers, {torch.get_num_threads()} threads")
    print(f"product and ten best  {bare_seconds:8.2f} s   {bare_peak:8.0f} MiB")
    ratio = ranked_seconds / bare_seconds
    print(f"ranks                 {ranked_seconds:8.2f} s   {ranked_peak:8.0f} MiB   {ratio:.2f} x")
    print(f"all scores at once would be {whole:,.0f} MiB")


def embeddings(size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Images and texts, unit vectors; each text is near its image."""
    torch.manual_seed(0)
    images = torch.nn.functional.normalize(torch.randn(size, dim))
    texts = torch.nn.functional.normalize(images + 2 * torch.nn.functional.normalize(torch.randn(size, dim)))
    texts[1::50] = texts[::50][: len(texts[1::50])]
    return images, texts


def bare(images: Tensor, texts: Tensor) -> None:
    """What any evaluation must do."""
    step = max(1, CHUNK // len(texts))
    for chunk in images.split(step):
        (chunk @ texts.T).topk(K)


def cost(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that it takes, and the MiB that it takes at most beyond those taken before."""
    Path("/proc/self/clear_refs").write_text("5")  # forgets the peak so far
    before, started = memory("VmRSS"), time.perf_counter()
    work()
    return time.perf_counter() - started, memory("VmHWM") - before


def memory(which: str) -> float:
    """Of this process, in MiB: `VmRSS` now, `VmHWM` at most."""
    (line,) = re.findall(rf"^{which}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(line) / 1024


if __name__ == "__main__":
    main()
