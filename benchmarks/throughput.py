"""How close scoring comes to the time that the model itself needs, and how far it is from the paper's own code.

    python benchmarks/throughput.py --release RELEASE (--model FOLDER_OR_ID | --make-model vit-b-32) \
        [--device cpu|cuda] [--dtype float32] [--resize pil|device] [--batch-size N] [--repeat 3] \
        [--original DCI_CHECKOUT] [--json FILE]

Three things are measured in one run, in this process, one after the other, `--repeat` times, and the fastest of each
is taken: (1) the bare forward passes over the distinct images and texts, all of them preprocessed and in memory
beforehand, in the same batches; (2) decoding, cropping and resizing alone, on all cores; (3) `dci_metrics.evaluate`
from the files to the result, without its cache. The limit is (1) on a CPU, where (2) takes the same cores, and the
larger of the two on a GPU. With `--resize device`, resizing is part of (1), not of (2). With `--original`,
against_original.py runs the paper's code beside ours as well.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import against_original
import torch

import dci_metrics
from dci_metrics import encoders
from dci_metrics.benchmark import default_batch_size
from dci_metrics.encoding import index_texts
from dci_metrics.matching import select_tasks
from dci_metrics.sources import open_source
from dci_metrics.subcrops import Photo, read_photos

SIZES = {
    "vit-b-32": {},
    "vit-l-14": {
        "text_config": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
        "vision_config": {
            "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 16, "num_hidden_layers": 24,
            "patch_size": 14,
        },
        "projection_dim": 768,
    },
}  # fmt: skip


def main() -> int:
    """Measure and print."""
    arguments = parse()
    with tempfile.TemporaryDirectory() as scratch:
        model = arguments.model or make_model(Path(scratch) / "model", arguments)
        figures = measure(model, arguments)
        print(as_text(figures))
        if arguments.original is not None:
            figures["original"] = beside_original(model, arguments)
        if arguments.json:
            Path(arguments.json).write_text(json.dumps(figures, indent=1))
    return 0


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--release", type=Path, required=True, help="folder that holds densely_captioned_images/")
    parser.add_argument("--model", help="CLIP checkpoint with its processor: a folder or a Hub id")
    parser.add_argument("--make-model", choices=list(SIZES), default="vit-b-32", help="a random model of that size")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--resize", choices=encoders.RESIZES, default="pil", help="as `dci eval --resize`")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--original", type=Path, help="checkout of github.com/facebookresearch/DCI")
    parser.add_argument("--json", help="write the figures to this file")
    return parser.parse_args()


def make_model(folder: Path, arguments: argparse.Namespace) -> Path:
    """A randomly initialised CLIP of the size that was asked for."""
    captions = against_original.captions_of(arguments.release)
    folder.mkdir()
    return against_original.make_model(folder, captions, SIZES[arguments.make_model])


def measure(model: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Time the forward passes, the loading, and all of it together."""
    encoder = load(model, arguments)
    batch = arguments.batch_size or default_batch_size(encoder)
    photos = list(read_photos(open_source(arguments.release).read()))
    wanted = select_tasks(None)
    taken = [[entry for entry in photo.entries if any(task.takes(entry) for task in wanted)] for photo in photos]

    prepared = [crop for crops in load_all(photos, taken, encoder) for crop in crops]
    texts = list(index_texts([entry for entries in taken for entry in entries], wanted))
    tokens = [length.tokens for length in encoder.text_lengths(texts)]
    texts = [texts[i] for i in sorted(range(len(texts)), key=tokens.__getitem__)]
    synchronize = torch.cuda.synchronize if "cuda" in arguments.device else lambda: None

    def forward_images() -> None:
        for start in range(0, len(prepared), batch):
            encoder.encode_prepared(prepared[start : start + batch])
        synchronize()

    def forward_texts() -> None:
        for start in range(0, len(texts), batch):
            encoder.encode_texts(texts[start : start + batch])
        synchronize()

    results = []

    def all_of_it() -> None:
        results.append(
            dci_metrics.evaluate(
                str(model), str(arguments.release), device=arguments.device, dtype=arguments.dtype,
                resize=arguments.resize, batch_size=batch, cache=False, progress=False,
            )
        )  # fmt: skip

    seconds = {
        "images": fastest(forward_images, arguments.repeat),
        "texts": fastest(forward_texts, arguments.repeat),
        "loading": fastest(lambda: load_all(photos, taken, encoder), arguments.repeat),
    }
    seconds |= {"evaluate": fastest(all_of_it, arguments.repeat) - model_loading(model, arguments)}
    timing = min(results, key=lambda result: result.timing["seconds"]).timing
    forward = seconds["images"] + seconds["texts"]
    limit = forward if arguments.device == "cpu" else max(forward, seconds["loading"])
    return {
        "device": torch.cuda.get_device_name() if "cuda" in arguments.device else "cpu",
        "threads": torch.get_num_threads(),
        "model": arguments.model or arguments.make_model,
        "dtype": arguments.dtype,
        "batch_size": batch,
        "photos": len(photos),
        "images": len(prepared),
        "texts": len(texts),
        "mean_tokens": sum(tokens) / len(tokens),
        "seconds": seconds,
        "limit": limit,
        "ratio_to_limit": seconds["evaluate"] / limit,
        "images_per_second": len(prepared) / seconds["evaluate"],
        "waiting_share": timing["stages"]["wait_for_photos"] / timing["seconds"],
        "stages": timing["stages"],
        "peak_rss_mib": against_original.peak_rss_mib(),
        "peak_gpu_mib": torch.cuda.max_memory_allocated() / 2**20 if "cuda" in arguments.device else None,
    }


def load(model: Any, arguments: argparse.Namespace) -> Any:
    """The model's encoder."""
    return encoders.load(str(model), device=arguments.device, dtype=arguments.dtype, resize=arguments.resize)


def load_all(photos: Sequence[Photo], taken: Sequence[Sequence[Any]], encoder: Any) -> list[Sequence[Any]]:
    """Decode, crop and preprocess all photos on all cores; all but resize them if the model's device does that."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(
            pool.map(lambda item: encoder.prepare_images(item[0].crops(item[1])), zip(photos, taken, strict=True))
        )


def model_loading(model: Any, arguments: argparse.Namespace) -> float:
    """Seconds that `evaluate` spends on reading the model, which no run can do without."""
    return fastest(lambda: load(model, arguments), arguments.repeat)


def fastest(work: Callable[[], Any], repeat: int) -> float:
    """Seconds of the fastest of some runs: what slows a run down is other work on the machine."""
    seconds = []
    for _ in range(repeat):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def beside_original(model: Any, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the paper's own code and ours in processes of their own; print both."""
    sides = {
        side: against_original.run_side(
            side, arguments.release, Path(model), torch.get_num_threads(), original=arguments.original
        )
        for side in ("original", "ours")
    }
    found = against_original.compare(sides["original"], sides["ours"])
    print(against_original.as_text(sides["original"], sides["ours"], found))
    return {"ratio": found["ratio"], "equal": found["equal"]}


def as_text(figures: dict[str, Any]) -> str:
    """The figures as a table."""
    seconds = figures["seconds"]
    lines = [
        f"{figures['model']}, {figures['dtype']}, on {figures['device']} ({figures['threads']} threads), batches of "
        f"{figures['batch_size']}",
        f"{figures['photos']} photos: {figures['images']} images and {figures['texts']} texts of "
        f"{figures['mean_tokens']:.1f} tokens on average",
        "",
        f"bare forward, images      {seconds['images']:9.2f} s",
        f"bare forward, texts       {seconds['texts']:9.2f} s",
        f"decoding and resizing     {seconds['loading']:9.2f} s   on all cores, alone",
        f"dci_metrics.evaluate      {seconds['evaluate']:9.2f} s   without reading the model",
        f"ratio to the limit        {figures['ratio_to_limit']:9.2f}     the limit is {figures['limit']:.2f} s",
        f"images a second           {figures['images_per_second']:9.1f}",
        f"share of time waiting     {figures['waiting_share']:9.1%}   for photos",
        f"peak memory               {figures['peak_rss_mib']:9.0f} MiB",
    ]
    if figures["peak_gpu_mib"] is not None:
        lines.append(f"peak memory of the GPU    {figures['peak_gpu_mib']:9.0f} MiB")
    stages = ", ".join(f"{name} {spent:.2f} s" for name, spent in figures["stages"].items())
    return "\n".join([*lines, f"stages: {stages}", ""])


if __name__ == "__main__":
    sys.exit(main())
