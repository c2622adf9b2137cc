"""How far images that torch resizes (`--resize device`) are from those that PIL resizes, and what it does to scores.

    python benchmarks/resizing.py [--model sample:tiny-clip] [--device cpu] DATASET...

DATASET is what `dci eval --dataset` takes. All crops of the paper's tests are prepared both ways. Pixel values are
compared in grey levels, from 0 to 255, embeddings by their cosine.
"""

import argparse
import sys
from typing import Any

import torch

import dci_metrics
from dci_metrics import encoders
from dci_metrics.matching import select_tasks
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_photos


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", metavar="DATASET")
    parser.add_argument("--model", default="sample:tiny-clip", help="of transformers: a folder or a Hub id")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--split", default="test")
    arguments = parser.parse_args()
    ways = {way: encoders.load(arguments.model, device=arguments.device, resize=way) for way in encoders.RESIZES}
    print(f"{arguments.model} on {arguments.device}")
    for dataset in arguments.datasets:
        differences, cosines = compare(ways, dataset, arguments.split)
        scores = {
            way: dci_metrics.evaluate(
                arguments.model, dataset, split=arguments.split, tests=["all_scm", "all_neg"], device=arguments.device,
                resize=way, cache=False, progress=False,
            ).scores
            for way in ways
        }  # fmt: skip
        print(f"\n{dataset}: {len(differences)} crops")
        most, mean = differences[:, 0].max(), differences[:, 1].mean()
        print(f"grey levels apart      at most {most:.2f}, on average {mean:.6f}")
        print(f"1 - cosine             at most {1 - cosines.min():.1e}")
        for way, found in scores.items():
            figures = ", ".join(
                f"{name} {100 * found[key].value:.2f} ({found[key].correct} of {found[key].n})"
                for key, name in (("all_scm", "All SCM"), ("all_neg", "All Neg"))
            )
            print(f"{way:<22} {figures}")
    return 0


def compare(ways: dict[str, Any], dataset: str, split: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Greatest and mean difference of each crop's pixels, and the cosine of its two embeddings."""
    pil, device = ways["pil"], ways["device"]
    steps = device.resizing
    # What one grey level is in pixel values, by channel.
    level = steps.factor / torch.tensor(steps.std)[:, None, None]
    differences, cosines = [], []
    for photo in read_photos(open_source(dataset, split=split).read()):
        taken = [entry for entry in photo.entries if any(task.takes(entry) for task in select_tasks(None))]
        for crop in photo.crops(taken) if taken else []:
            pixels = [way.batched(way.prepare_images([crop]))["pixel_values"][0].cpu() for way in (pil, device)]
            apart = (pixels[0] - pixels[1]).abs() / level
            differences.append([float(apart.max()), float(apart.double().mean())])
            embeds = [way.encode_images([crop]).double().flatten().cpu() for way in (pil, device)]
            cosines.append(torch.nn.functional.cosine_similarity(*embeds, dim=0))
    return torch.tensor(differences, dtype=torch.float64), torch.stack(cosines)


if __name__ == "__main__":
    sys.exit(main())
