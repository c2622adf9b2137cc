"""Run the paper's own evaluation code and this package on the same data, and compare every number.

    python benchmarks/against_original.py --original DCI_CHECKOUT --release RELEASE \
        (--model FOLDER_OR_ID | --make-model vit-b-32) [--threads 2] [--json figures.json]

DCI_CHECKOUT is a clone of github.com/facebookresearch/DCI (CC-BY-NC; nothing of it is in this
repository). RELEASE is a folder that holds densely_captioned_images/ with annotations/, complete/,
photos/ and splits.json. The checkout is left as it is: its dataset package is copied to a temporary
folder, with a config.yaml that names RELEASE.

Each side runs on the CPU, in a process of its own, one after the other, with as many torch threads. The
original's functions do all of the original's work; around them stand recorders, which note what its
calls took and gave back, and three replacements: its spaCy module (unused by these tests) is empty, its
processor is the model's own on Pillow, and its random draw of five captions takes the first five.

Times leave out imports and the loading of the model, and include reading the data. Both sides find the
files in the page cache, and ours starts without a dataset cache.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import types
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = "densely_captioned_images"
NEAR_TIE = 1e-4  # in logits: closer than this, rounding alone may decide

# the original's subtest -> our keys for its two numbers; the paper has no SCM over the hard negatives
KEYS: dict[str, tuple[str | None, str]] = {
    "all_swaps": ("all_scm", "all_neg"),
    "all_swaps_pick5": ("pick5_scm", "pick5_neg"),
    "base_swaps": ("base_scm", "base_neg"),
    "all_hardest": (None, "hard_negs"),
}
NUMBERS = [(subtest, kind) for subtest in KEYS for kind in ("scm", "neg")]

LOADERS = [  # classes of transformers whose from_pretrained is not timed
    "AutoConfig",
    "AutoImageProcessor",
    "AutoModel",
    "AutoModelForZeroShotImageClassification",
    "AutoProcessor",
    "AutoTokenizer",
    "PreTrainedConfig",
    "PreTrainedModel",
    "PreTrainedTokenizerBase",
    "ProcessorMixin",
]

Entry = dict[str, Any]  # photo, key, right, margin (None: unknown, or nothing to compare with)
Side = dict[str, Any]  # what a child process writes, see run_original_here and run_ours_here


def main(argv: list[str] | None = None) -> int:
    args = parse(argv)
    if args.child:
        job = json.loads(Path(args.child).read_text(encoding="utf-8"))
        side = run_original_here(job) if job["side"] == "original" else run_ours_here(job)
        Path(job["out"]).write_text(json.dumps(side), encoding="utf-8")
        return 0
    with tempfile.TemporaryDirectory(prefix="against-original-") as work:
        model = args.model
        if args.make_model:
            model = str(make_model(Path(work) / "model", captions_of(args.release)))
        warm_page_cache(args.release)
        original = run_side("original", args.release, model, args.threads, original=args.original)
        ours = run_side("ours", args.release, model, args.threads, on_error=args.on_error)
    comparison = compare(original, ours)
    print(as_text(original, ours, comparison))
    if args.json:
        figures = {"model": args.make_model or model, "threads": args.threads, **comparison}
        for name, side in (("original", original), ("ours", ours)):
            figures[name] = {key: value for key, value in side.items() if key != "entries"}
        Path(args.json).write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return 0 if comparison["equal"] else 1


def parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--original", type=Path, help="checkout of github.com/facebookresearch/DCI")
    parser.add_argument("--release", type=Path, help=f"folder that holds {PACKAGE}/")
    parser.add_argument("--model", help="CLIP checkpoint with its processor: a folder or a Hub id")
    parser.add_argument("--make-model", choices=["vit-b-32"], help="a random model of that size instead")
    parser.add_argument("--threads", type=int, default=2, help="torch threads of each side (default 2)")
    parser.add_argument(
        "--on-error", choices=["raise", "skip"], default="raise", help="what ours does with broken photos"
    )
    parser.add_argument("--json", help="write the figures to this file")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.child:
        return args
    if args.original is None or args.release is None or (args.model is None) == (args.make_model is None):
        parser.error("give --original, --release, and one of --model and --make-model")
    if not (args.original / "dataset" / PACKAGE).is_dir():
        parser.error(f"{args.original}: not a DCI checkout, dataset/{PACKAGE} is missing")
    if not (args.release / PACKAGE / "splits.json").is_file():
        parser.error(f"{args.release}: no {PACKAGE}/splits.json inside")
    return args


# ------------------------------------------------------------------------------- one process a side


def run_side(
    side: str,
    release: Path,
    model: str | Path,
    threads: int,
    *,
    original: Path | None = None,
    on_error: str = "raise",
) -> Side:
    """Run one side in a fresh process.

    Raises:
        RuntimeError: If the process failed; its last lines are the message.
    """
    with tempfile.TemporaryDirectory(prefix=f"dci-{side}-") as folder:
        work = Path(folder)
        job = {
            "side": side,
            "release": str(Path(release).resolve()),
            "model": str(model),
            "threads": threads,
            "on_error": on_error,
            "package": str(work),
            "out": str(work / "out.json"),
        }
        if original is not None:
            shutil.copytree(original / "dataset" / PACKAGE, work / PACKAGE)
            config = {"initialized": True, "data_dir": job["release"]}
            (work / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--child", str(work / "job.json")],
            env=child_environment(work),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            raise RuntimeError(f"the {side} side failed:\n" + "\n".join(done.stdout.splitlines()[-25:]))
        result: Side = json.loads(Path(job["out"]).read_text(encoding="utf-8"))
        return result


def child_environment(work: Path) -> dict[str, str]:
    """Paths to this package, and cache folders that are empty, but for the Hub's downloads."""
    home = os.environ.get("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
    return {
        **os.environ,
        "HF_HOME": home,
        "HF_DATASETS_CACHE": str(work / "datasets-cache"),
        "XDG_CACHE_HOME": str(work / "cache"),
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), os.environ.get("PYTHONPATH", "")]).rstrip(":"),
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",  # both on the CPU
    }


def peak_rss_mib() -> float:
    """The most memory this process has held. On Linux `getrusage` would count what its parent held when it forked."""
    try:
        status = Path("/proc/self/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:")) / 2**10
    except OSError:
        scale = 2**20 if sys.platform == "darwin" else 2**10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


class Stopwatch:
    """Wall and processor time inside of ``with`` blocks; blocks within blocks count once."""

    def __init__(self) -> None:
        self._seconds = self._cpu_seconds = 0.0
        self._depth = 0

    def __enter__(self) -> None:
        if self._depth == 0:
            self._began = time.perf_counter(), time.process_time()
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._seconds += time.perf_counter() - self._began[0]
            self._cpu_seconds += time.process_time() - self._began[1]

    def read(self) -> dict[str, float]:
        return {"seconds": self._seconds, "cpu_seconds": self._cpu_seconds}


# --------------------------------------------------------------------------------------- the original


class Through:
    """A module seen through: a few names replaced, all others the module's own."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        self.__dict__.update(replaced)
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


class Recorder:
    """What the original's calls took and returned, one subtest at a time."""

    def __init__(self) -> None:
        self.images = self.texts = self.tokens = 0
        self.start()

    def start(self) -> None:
        self.photos: list[str] = []  # as they were opened
        self.raised: dict[str, str] = {}
        self.data_list: list[tuple[int, dict[str, Any]]] = []
        self.returned: tuple[float, float] | None = None
        self.similarities: list[Any] = []  # (group, group): what SCM takes its maximum of
        self.maxima: list[Any] = []  # where those maxima are
        self.diagonals: list[Any] = []

    def note_photo(self, photo: str) -> None:
        self.photos.append(photo)

    def note_exception(self, *_args: Any, **_kwargs: Any) -> None:
        """Stands in for ``traceback.print_exc``: the original is about to drop the current photo."""
        error = sys.exc_info()[1]
        self.raised[self.photos[-1] if self.photos else ""] = f"{type(error).__name__}: {error}"

    def note_inputs(self, _model: Any, _args: Any, kwargs: dict[str, Any]) -> None:
        mask = kwargs["attention_mask"]
        self.images += len(kwargs["pixel_values"])
        self.texts += len(mask)
        self.tokens += int(mask.sum())

    def dropped(self) -> list[dict[str, str]]:
        """The photos that were opened and have no entry in the subtest, with what was raised, if anything."""
        kept = Counter(item["photo"] for item in unique_photos(self.data_list))
        lost = []
        for photo in self.photos:
            if kept[photo] > 0:
                kept[photo] -= 1
            else:
                lost.append({"photo": photo, "reason": self.raised.get(photo, "passed over in silence")})
        return lost

    def outcomes(self) -> tuple[list[Entry], list[Entry]]:
        """Right and margin of every entry, for SCM and for Neg."""
        scm: list[Entry] = []
        neg: list[Entry] = []
        names = [{"photo": item["photo"], "key": item["key"]} for _, item in self.data_list]
        diagonals = iter(self.diagonals)
        for similarity, maxima in zip(self.similarities, self.maxima, strict=True):
            next(diagonals)  # the lowest positives, asked for twice
            positive, negative = next(diagonals), next(diagonals)
            for row, best in enumerate(maxima.tolist()):
                name = names[len(scm)]
                others = [value for at, value in enumerate(similarity[row].tolist()) if at != row]
                margin = float(similarity[row, row]) - max(others) if others else None
                scm.append({**name, "right": best == row, "margin": margin, "best": best, "row": row})
                difference = float(positive[row]) - float(negative[row])
                neg.append({**name, "right": bool(positive[row] > negative[row]), "margin": difference})
        return scm, neg


def unique_photos(data_list: list[tuple[int, dict[str, Any]]]) -> list[dict[str, Any]]:
    """One entry of each photo that has any, in order."""
    return list(dict(reversed(data_list)).values())[::-1]


def run_original_here(job: dict[str, Any]) -> Side:
    """The original's four subtests, in this process."""
    import torch
    from transformers import AutoProcessor, CLIPModel

    torch.set_num_threads(job["threads"])
    model = CLIPModel.from_pretrained(job["model"]).eval()
    processor = AutoProcessor.from_pretrained(job["model"], backend="pil")
    recorder = Recorder()
    script = import_original(Path(job["package"]), processor, recorder)
    model.register_forward_pre_hook(recorder.note_inputs, with_kwargs=True)

    stopwatch = Stopwatch()
    side: Side = {"tests": {}, "entries": {}, "dropped": {}, "errors": {}}
    for subtest in KEYS:
        recorder.start()
        gc.collect()
        with stopwatch:
            try:
                script.run_dense_cap_on_model(model, processor, [subtest])
            except Exception as error:
                side["errors"][subtest] = f"{type(error).__name__}: {error}".splitlines()[0][:110]
        side["dropped"][subtest] = recorder.dropped()
        add_numbers(side, subtest, recorder)
    side.update(images=recorder.images, texts=recorder.texts, **stopwatch.read(), peak_rss_mib=peak_rss_mib())
    side["mean_tokens"] = recorder.tokens / recorder.texts if recorder.texts else None
    return side


def add_numbers(side: Side, subtest: str, recorder: Recorder) -> None:
    if recorder.returned is None:  # it crashed
        return
    for kind, entries, share in zip(("scm", "neg"), recorder.outcomes(), recorder.returned, strict=True):
        correct = sum(entry["right"] for entry in entries)
        if correct / len(entries) != share:
            raise RuntimeError(f"{subtest} {kind}: recorded {correct}/{len(entries)}, it returned {share}")
        side["tests"][f"{subtest}/{kind}"] = {"correct": correct, "n": len(entries)}
        side["entries"][f"{subtest}/{kind}"] = entries


def import_original(package: Path, processor: Any, recorder: Recorder) -> Any:
    """Import the copied package, with the recorders and the three replacements in place."""
    import torch

    sys.path.insert(0, str(package))
    name = f"{PACKAGE}.dataset"
    empty = types.ModuleType(f"{name}.spacy_negs")
    empty.get_spacy_negative = None  # type: ignore[attr-defined]
    sys.modules[empty.__name__] = empty
    importlib.import_module(f"{name}.utils").processor = processor  # type: ignore[attr-defined]
    impl: Any = importlib.import_module(f"{name}.impl")
    script: Any = importlib.import_module(f"{name}.scripts.run_clip_dense_cap_eval")
    # the exception is recorded where the original prints it
    traceback.print_exc = recorder.note_exception  # type: ignore[assignment]
    impl.random = Through(random, sample=lambda population, k: list(population[:k]))
    impl.DenseCaptionedImage = naming_photos(impl.DenseCaptionedImage, recorder)
    script.torch = Through(torch, max=recording_max(torch.max, recorder))
    script.get_pooled_diag = recording_diagonal(script.get_pooled_diag, recorder)
    script.run_dense_cap_test_on_model = recording_result(script.run_dense_cap_test_on_model, recorder)
    return script


def naming_photos(base: Any, recorder: Recorder) -> Any:
    """The original's photo class; each of its entries also says which photo it is of."""

    class Named(base):  # type: ignore[misc]
        def __init__(self, source: str) -> None:
            self._photo = photo_id(source)
            recorder.note_photo(self._photo)
            super().__init__(source)

        def get_formatted_complete_description(self) -> Any:
            return self._named(super().get_formatted_complete_description())

        def get_caption_with_subcaptions(self, *args: Any, **kwargs: Any) -> Any:
            return self._named(super().get_caption_with_subcaptions(*args, **kwargs))

        def _named(self, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
            for entry in entries:
                entry["photo"] = self._photo
            return entries

    return Named


def photo_id(source: str) -> str:
    return str(source).removesuffix(".json").removesuffix("-data")


def recording_max(real: Any, recorder: Recorder) -> Any:
    def wrapped(similarity: Any, dim: int) -> Any:
        result = real(similarity, dim=dim)
        recorder.similarities.append(similarity.clone())
        recorder.maxima.append(result.indices)
        return result

    return wrapped


def recording_diagonal(real: Any, recorder: Recorder) -> Any:
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = real(*args, **kwargs)
        recorder.diagonals.append(result.clone())
        return result

    return wrapped


def recording_result(real: Any, recorder: Recorder) -> Any:
    def wrapped(model: Any, dataset: Any) -> Any:
        recorder.data_list = [(at, {"photo": item["photo"], "key": item["key"]}) for at, item in dataset.data_list]
        recorder.returned = real(model, dataset)
        return recorder.returned

    return wrapped


# ----------------------------------------------------------------------------------------------- ours


def watch_loading() -> Stopwatch:
    """Measure all that is spent from now on in ``from_pretrained``, of models, processors and the like."""
    import transformers

    stopwatch = Stopwatch()

    def timed(function: Any) -> Any:
        def wrapped(cls: Any, *args: Any, **kwargs: Any) -> Any:
            with stopwatch:
                return function(cls, *args, **kwargs)

        return wrapped

    for name in LOADERS:
        cls = getattr(transformers, name, None)
        if cls is not None:
            cls.from_pretrained = classmethod(timed(cls.from_pretrained.__func__))
    return stopwatch


def run_ours_here(job: dict[str, Any]) -> Side:
    """This package's evaluation, in this process."""
    import torch
    from transformers import CLIPModel, CLIPProcessor

    import dci_metrics

    # transformers and dci_metrics import on first use: have it done before the clock starts
    _, evaluate = (CLIPModel, CLIPProcessor), dci_metrics.evaluate
    torch.set_num_threads(job["threads"])
    loading, stopwatch = watch_loading(), Stopwatch()
    gc.collect()
    with stopwatch:
        result = evaluate(job["model"], job["release"], split="test", on_error=job["on_error"], cache=False)
    spent = {name: value - loading.read()[name] for name, value in stopwatch.read().items()}
    side: Side = {"tests": {}, "entries": {}, "errors": {}, **spent, "peak_rss_mib": peak_rss_mib()}
    timing = getattr(result, "timing", None) or {}
    for name in ("images", "texts", "stages"):
        side[name] = timing.get(name) if isinstance(timing, dict) else getattr(timing, name, None)
    for key, score in result.scores.items():
        if key not in result.outcomes:
            continue
        side["tests"][key] = {"correct": score.correct, "n": score.n}
        side["entries"][key] = [
            {"photo": str(photo), "key": entry_key, "right": mark == "1"}
            for (photo, entry_key), mark in zip(result.entries, result.outcomes[key], strict=True)
            if mark != "-"
        ]
    return side


# ----------------------------------------------------------------------------------------- comparison


def compare(original: Side, ours: Side) -> dict[str, Any]:
    """Compare the eight numbers, and for each the entries.

    Returns:
        ``numbers``: one row a number; ``equal``: whether the paper's all are (a crash of the original is not);
        ``ratio``: the original's time over ours; ``cpu_ratio``: likewise of processor time, which holds on a
        busy machine too.
    """
    rows = [compare_number(subtest, kind, original, ours) for subtest, kind in NUMBERS]
    return {
        "numbers": rows,
        "equal": all(row["equal"] for row in rows if row["compared"] or row["key"] is not None),
        "ratio": original["seconds"] / ours["seconds"],
        "cpu_ratio": original["cpu_seconds"] / ours["cpu_seconds"],
    }


def compare_number(subtest: str, kind: str, original: Side, ours: Side) -> dict[str, Any]:
    name = f"{subtest}/{kind}"
    key = KEYS[subtest][kind == "neg"]
    theirs = original["entries"].get(name)
    row: dict[str, Any] = {"number": name, "key": key, "compared": False, "equal": False, "note": ""}
    row["original"] = original["tests"].get(name)
    if theirs is None:
        row["note"] = f"the original crashed: {original['errors'].get(subtest, 'reason unknown')}"
        row["ours"] = ours["tests"].get(key)
        return row
    row["near_ties"] = sum(near_tie(entry) for entry in theirs)
    if key is None:  # the captions are those of all_swaps: where the entries are too, so is the number
        key = "all_scm"
        if [named(e) for e in theirs] != [named(e) for e in ours["entries"].get(key, [])]:
            row["note"] = "not a number of the paper, and its entries are not those of all_swaps"
            return row
        row["note"] = "not a number of the paper: compared with all_scm, same entries"
    row.update(compared=True, ours=ours["tests"].get(key))
    row.update(disagreements(theirs, ours["entries"].get(key, [])))
    row["equal"] = row["original"] == row["ours"] and not row["disagree"] and not row["entries_differ"]
    return row


def disagreements(theirs: list[Entry], mine: list[Entry]) -> dict[str, Any]:
    """Entries that only one side has, and entries that the sides judge differently."""
    known_theirs, known_mine = numbered(theirs), numbered(mine)
    differing = [
        {**entry, "ours": known_mine[name]["right"]}
        for name, entry in known_theirs.items()
        if name in known_mine and known_mine[name]["right"] != entry["right"]
    ]
    only_original = [entry for name, entry in known_theirs.items() if name not in known_mine]
    only_ours = [entry for name, entry in known_mine.items() if name not in known_theirs]
    return {
        "disagree": [entry for entry in differing if not near_tie(entry)],
        "disagree_at_near_tie": [entry for entry in differing if near_tie(entry)],
        "only_original": only_original,
        "only_ours": only_ours,
        "entries_differ": bool(only_original or only_ours) or list(known_theirs) != list(known_mine),
    }


def near_tie(entry: Entry) -> bool:
    return entry["margin"] is not None and abs(entry["margin"]) < NEAR_TIE


def named(entry: Entry) -> tuple[str, str]:
    return entry["photo"], entry["key"]


def numbered(entries: list[Entry]) -> dict[tuple[str, str, int], Entry]:
    """Entries by photo, key and which of its namesakes it is."""
    seen: Counter[tuple[str, str]] = Counter()
    result = {}
    for entry in entries:
        result[(*named(entry), seen[named(entry)])] = entry
        seen[named(entry)] += 1
    return result


def as_text(original: Side, ours: Side, comparison: dict[str, Any]) -> str:
    lines = [f"{'':24}{'original':>16}{'ours':>16}  equal  near ties"]
    for row in comparison["numbers"]:
        equal = ("yes" if row["equal"] else "NO") if row["compared"] else "-"
        counts = f"{count(row['original']):>16}{count(row.get('ours')):>16}"
        lines.append(f"{row['number']:24}{counts}  {equal:>5}  {row.get('near_ties', '')!s:>9}  {row['note']}".rstrip())
        lines += details(row)
    for name, side in (("original", original), ("ours", ours)):
        lines.append(
            f"{name:9} {side['seconds']:9.2f} s {side['cpu_seconds']:9.2f} s of processor time"
            f"  peak {side['peak_rss_mib']:6.0f} MiB"
            f"  {side.get('images') or '?'} images and {side.get('texts') or '?'} texts encoded"
        )
    lines.append(
        f"ratio     {comparison['ratio']:9.2f}   {comparison['cpu_ratio']:9.2f}    "
        "(imports and the loading of the model left out)"
    )
    if original["mean_tokens"] is not None:
        lines.append(f"mean text length {original['mean_tokens']:.1f} tokens")
    return "\n".join(lines)


def count(number: dict[str, int] | None) -> str:
    return f"{number['correct']} of {number['n']}" if number else "-"


def details(row: dict[str, Any]) -> list[str]:
    lines = []
    for kind in ("disagree", "disagree_at_near_tie", "only_original", "only_ours"):
        for entry in row.get(kind, []):
            margin = "" if entry.get("margin") is None else f"  margin {entry['margin']:+.3g}"
            right = f"  original {entry['right']}, ours {entry['ours']}" if "ours" in entry else ""
            lines.append(f"    {kind}: {entry['photo']} {entry['key']}{right}{margin}")
    if row.get("entries_differ") and not (row["only_original"] or row["only_ours"]):
        lines.append("    the same entries in another order")
    return lines


# ------------------------------------------------------------------------------------ data and models


def split_files(release: Path) -> list[str]:
    splits = json.loads((Path(release) / PACKAGE / "splits.json").read_text(encoding="utf-8"))
    names: list[str] = splits["test"]
    return names


def warm_page_cache(release: Path) -> None:
    """Read what the test split needs once, so that the side that runs first does not pay for the disk."""
    base = Path(release) / PACKAGE
    for name in split_files(release):
        annotation = base / "complete" / name
        if annotation.is_file():
            photo = base / "photos" / str(json.loads(annotation.read_bytes()).get("image"))
            if photo.is_file():
                photo.read_bytes()


def captions_of(release: Path) -> list[str]:
    """Every summary of the test split: what a tokenizer is made from where none can be downloaded."""
    texts = []
    for name in split_files(release):
        annotation = Path(release) / PACKAGE / "complete" / name
        if annotation.is_file():
            summaries = json.loads(annotation.read_bytes()).get("summaries") or {}
            for value in summaries.values():
                texts += [value] if isinstance(value, str) else value
    return texts


def make_model(folder: Path, captions: list[str], size: dict[str, Any] | None = None) -> Path:
    """Write a randomly initialised CLIP, by default of ViT-B/32's size, with tokenizer and image processor."""
    import torch
    from transformers import CLIPConfig, CLIPImageProcessorPil, CLIPModel, CLIPProcessor

    tokenizer = make_tokenizer(captions)
    special = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    torch.manual_seed(0)
    options = {"logit_scale_init_value": 4.6052} | (size or {})
    options["text_config"] = options.get("text_config", {}) | special
    model = CLIPModel(CLIPConfig(**options))
    model.save_pretrained(folder)
    CLIPProcessor(CLIPImageProcessorPil(), tokenizer).save_pretrained(folder)
    return folder


def make_tokenizer(captions: list[str], size: int = 8000) -> Any:
    """Learn a byte-pair CLIP tokenizer from the captions; it can spell every other text too."""
    from tokenizers import pre_tokenizers, trainers
    from transformers import CLIPTokenizer

    start, end = "<|startoftext|>", "<|endoftext|>"
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    spelling = [*alphabet, *(letter + "</w>" for letter in alphabet), start, end]
    untrained = CLIPTokenizer(vocab={token: at for at, token in enumerate(spelling)}, merges=[])
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, end_of_word_suffix="</w>", show_progress=False
    )
    untrained.backend_tokenizer.train_from_iterator(captions, trainer)
    learned = json.loads(untrained.backend_tokenizer.to_str())["model"]["merges"]
    merges = [(left, right) for left, right in learned]
    tokens = dict.fromkeys([*spelling, *(left + right for left, right in merges)])
    vocab = {token: at for at, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocab, merges=merges, model_max_length=77)


if __name__ == "__main__":
    sys.exit(main())
