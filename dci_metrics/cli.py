"""The `dci` command: each command parses, calls one function, and prints. Bad input: one line and exit code 2."""

import io
import json
import os
import signal
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from dci_metrics import cli_hub, launcher, mpi
from dci_metrics.retrieval.protocols import PROTOCOLS
from dci_metrics.terminal import interruptible, quiet_unless_on_terminal
from dci_metrics.version import __version__

# What takes seconds to import (`dci` needs datasets, scoring needs torch) is imported by the command that uses it:
# `dci --help` starts at once, and Ctrl-C is met inside of `main`.

PATIENCE = 10.0
"""Seconds that a process with an error waits for the first one to tell it."""

app = typer.Typer(
    name="dci",
    help="Densely Captioned Images: build the datasets, score CLIP-style models on them.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)


class OnError(StrEnum):
    """What to do with a photo that is missing or broken."""

    RAISE = "raise"
    SKIP = "skip"


class Scorer(StrEnum):
    """How a model compares an image with a text."""

    AUTO = "auto"
    CONTRASTIVE = "contrastive"
    MATCHING = "matching"
    VQASCORE = "vqascore"


class Resize(StrEnum):
    """What resizes images."""

    PIL = "pil"
    DEVICE = "device"


class Stretch(StrEnum):
    """How position embeddings are stretched."""

    INTERPOLATE = "interpolate"
    KEEP_FIRST_20 = "keep-first-20"


class Reading(StrEnum):
    """How texts over a model's limit are read."""

    TRUNCATE = "truncate"
    SENTENCES_MEAN = "sentences-mean"
    SENTENCES_MAX = "sentences-max"


class Config(StrEnum):
    """Configurations of the dataset."""

    FULL = "full"
    SDCI = "sdci"


DatasetOption = Annotated[
    str,
    typer.Option(
        "--dataset", help="Folder of `dci build`, release folder, Hub id, sample:scenes or sample:photographs."
    ),
]
PhotosOption = Annotated[
    Path | None,
    typer.Option("--photos", help="Folder of photos or sa_000138.tar, when the dataset has none, as on the Hub."),
]
SplitOption = Annotated[str, typer.Option("--split", help="train, validation or test.")]
OnErrorOption = Annotated[
    OnError, typer.Option("--on-error", help="What to do with a photo that is missing or broken; skip lists it.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Overwrite what exists.")]
TrustOption = Annotated[bool, typer.Option("--trust-remote-code", help="Run code that the model brings along.")]
NumProcOption = Annotated[int, typer.Option("--num-proc", min=1, help="Processes.")]


@app.command()
def demo(
    sample: Annotated[str, typer.Option("--sample", help="scenes or photographs.")] = "scenes",
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")] = Path("dci-demo"),
    force: ForceOption = False,
) -> None:
    """Run it all on the embedded sample: release files, build, load_dataset, evaluate, table, result file."""
    from dci_metrics.demo import run

    quiet_unless_on_terminal()
    run(sample, out, force)


@app.command()
def build(
    release: Annotated[str, typer.Argument(help="Release folder (unpacked or with its archives), or a sample.")],
    out: Annotated[Path, typer.Option("--out", help="Folder to write.")] = Path("dci"),
    photos: Annotated[
        Path | None, typer.Option("--photos", help="Folder of photos or sa_000138.tar, when not in the release.")
    ] = None,
    config: Annotated[Config | None, typer.Option("--config", help="One configuration instead of both.")] = None,
    num_proc: NumProcOption = 1,
    no_photos: Annotated[bool, typer.Option("--no-photos", help="Leave `image` null.")] = False,
    on_error: OnErrorOption = OnError.RAISE,
    force: ForceOption = False,
) -> None:
    """Write the Parquet folder that load_dataset("dci", "sdci") and load_dataset("dci", "full") read."""
    quiet_unless_on_terminal()
    from dci import Release
    from dci_metrics import sample
    from dci_metrics.hub.folder import build as build_folder

    if release.startswith(sample.PREFIX):
        release = str(sample.release_folder(release))
    summary = build_folder(
        Release(release, photos),
        out,
        configs=[config.value] if config else ["full", "sdci"],
        num_proc=num_proc,
        photos=not no_photos,
        on_error=on_error.value,
        force=force,
    )
    print(summary)


@app.command()
def stats(
    dataset: Annotated[str, typer.Argument(help="As --dataset of `dci eval`.")],
    tokenizer: Annotated[
        str | None, typer.Option("--tokenizer", help="Model whose tokenizer counts tokens; without it only words.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    on_error: OnErrorOption = OnError.RAISE,
) -> None:
    """Print the counts of the paper's Table 1: words, tokens, masks, entries, captions and negatives by split."""
    quiet_unless_on_terminal()
    from dci_metrics import stats as module

    found = module.count_dataset(dataset, tokenizer, on_error.value)
    print(json.dumps(module.to_json(found), indent=1) if as_json else module.table(found))


@app.command("eval")
def evaluate(
    model: Annotated[
        str,
        typer.Argument(
            help="Hub id, folder, sample:tiny-clip, or of open_clip: open_clip:ARCHITECTURE/TAG, "
            "open_clip:ARCHITECTURE/FILE, open_clip:hf-hub:ORG/NAME."
        ),
    ],
    dataset: DatasetOption,
    adapter: Annotated[
        str | None, typer.Option("--adapter", help="PEFT adapter over a transformers model: folder or Hub id.")
    ] = None,
    scorer: Annotated[
        Scorer,
        typer.Option(
            "--scorer",
            help="contrastive compares embeddings, matching asks the model's head for image-text matching, vqascore "
            "how likely its answer is Yes; auto is contrastive where the model can, or else vqascore.",
        ),
    ] = Scorer.AUTO,
    split: Annotated[
        str, typer.Option("--split", help="train, validation or test; of retrieval also all of them together: all.")
    ] = "test",
    photos: PhotosOption = None,
    tests: Annotated[
        str | None,
        typer.Option(
            "--tests",
            help="Some of the tests, with commas (all_scm,hard_negs), or all those of summaries; by default the "
            "paper's. Or of full_scm, full_scm_t2i, full_scm_photo, full_scm_photo_t2i. Or retrieval.",
        ),
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option(
            "--protocol",
            help=f"Of retrieval, with commas: {', '.join(PROTOCOLS)}, or all.",
        ),
    ] = None,
    recall_at: Annotated[
        str | None, typer.Option("--recall-at", help="Of retrieval: K of R@K, with commas; by default 1,5,10.")
    ] = None,
    goal_list: Annotated[
        Path | None,
        typer.Option(
            "--goal-list",
            help="Photos and texts of the protocol goal: its JSON (filename, caption), or lines of name, tab, text.",
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option("--batch-size", min=1, help="Images, and texts, at once; by default as suits the device."),
    ] = None,
    crop: Annotated[
        str, typer.Option("--crop", help="box (the paper's), or masked: what is outside of the mask is greyed.")
    ] = "box",
    device: Annotated[str, typer.Option("--device", help="cpu, cuda, ...; auto takes a GPU where there is one.")] = (
        "auto"
    ),
    dtype: Annotated[str, typer.Option("--dtype", help="float32, bfloat16 or float16.")] = "float32",
    resize: Annotated[
        Resize, typer.Option("--resize", help="pil (the paper's), or device: where the model is, by torch.")
    ] = Resize.PIL,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Tokens to read of a text; by default up to the model's own limit."),
    ] = None,
    stretch: Annotated[
        Stretch | None,
        typer.Option(
            "--stretch",
            help="Where the model has too few positions for --max-tokens: interpolate all, or keep-first-20 and "
            "interpolate the others, as Long-CLIP does.",
        ),
    ] = None,
    reading: Annotated[
        Reading,
        typer.Option(
            "--reading",
            help="Of texts over the limit: truncate reads their beginning, sentences-mean and sentences-max all of "
            "it in pieces, by the mean of the pieces or the nearest one.",
        ),
    ] = Reading.TRUNCATE,
    compile: Annotated[
        bool,
        typer.Option("--compile", help="Compile the model's blocks (torch.compile); on a CPU this needs g++."),
    ] = False,
    cache: Annotated[
        bool, typer.Option("--cache/--no-cache", help="Keep embeddings, and scores of pairs, for the next run.")
    ] = True,
    cache_dir: Annotated[Path | None, typer.Option("--cache-dir", help="Folder to keep them in.")] = None,
    num_processes: Annotated[
        int, typer.Option("--num-processes", min=1, help="Processes that share the photos, each with its GPU, if any.")
    ] = 1,
    trust_remote_code: TrustOption = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals' resampling.")] = 0,
    out: Annotated[Path | None, typer.Option("--out", help="Result file to write.")] = None,
    examples: Annotated[
        Path | None,
        typer.Option("--examples", help="Parquet file to write: keys, scores, margin and outcome by entry and test."),
    ] = None,
    on_error: OnErrorOption = OnError.RAISE,
    force: ForceOption = False,
) -> None:
    """Score a model on the tests of sDCI, or on retrieval."""
    from dci_metrics.files import refuse_unwritable

    for path in (path for path in (out, examples) if path is not None):
        refuse_unwritable(path, force)
    _share(num_processes)
    with interruptible():
        from dci_metrics import distributed
        from dci_metrics.benchmark import evaluate as run

    quiet_unless_on_terminal()
    result = run(
        model,
        dataset,
        split=split,
        photos=photos,
        tests=[test.strip() for test in tests.split(",")] if tests is not None else None,
        batch_size=batch_size,
        adapter=adapter,
        scorer=scorer.value,
        trust_remote_code=trust_remote_code,
        cache=cache_dir if cache and cache_dir is not None else cache,
        crop=crop,  # type: ignore[arg-type]  # checked where it is used
        device=device,
        dtype=dtype,
        resize=resize.value,
        compile=compile,
        max_tokens=max_tokens,
        stretch=stretch.value if stretch is not None else None,
        reading=reading.value,
        on_error=on_error.value,
        seed=seed,
        examples=examples,
        force=force,
        protocols=_listed(protocol),
        goal_list=goal_list,
        recall_at=_numbers(recall_at, "--recall-at"),
    )
    if not distributed.is_main_process():
        return
    if out is not None:
        result.save(out, force)
    print(result.report())
    if out is not None:
        print(f"Written: {out}")
    if examples is not None:
        print(f"Written: {examples}")


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="Result file of one model.")],
    b: Annotated[Path, typer.Argument(help="Result file of another, on the same data with the same settings.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Of the intervals' resampling.")] = 0,
) -> None:
    """Compare two models on the same entries: difference, its 95 % interval, McNemar's exact p."""
    with interruptible():
        from dci_metrics import comparison
        from dci_metrics.results import Result

    found = comparison.compare(Result.load(a), Result.load(b), seed=seed, names=(str(a), str(b)))
    print(json.dumps(found.to_json(), indent=1, ensure_ascii=False) if as_json else found.report())


@app.command()
def report(
    results: Annotated[list[Path], typer.Argument(help="Result files, of the same data and settings.")],
    dataset: DatasetOption,
    out: Annotated[Path, typer.Option("--out", help="HTML file to write.")],
    photos: PhotosOption = None,
    examples: Annotated[
        list[Path] | None,
        typer.Option("--examples", help="File of `dci eval --examples` of one of the results; may be given again."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write one HTML page, which needs no network: table, plots, and the worst entries or queries with their photos."""
    with interruptible():
        from dci_metrics.report import write_report

    quiet_unless_on_terminal()
    write_report(results, dataset, out, photos=photos, examples_files=examples or [], force=force)
    print(f"Written: {out}")


@app.command()
def train(
    model: Annotated[str, typer.Option("--model", help="Dual encoder: Hub id, folder, sample:tiny-clip.")],
    dataset: Annotated[
        str,
        typer.Option(
            "--dataset", help="As of `dci eval`; also coco:FOLDER and localized_narratives:FOLDER, as distributed."
        ),
    ],
    output_dir: Annotated[Path, typer.Option("--output-dir", help="Folder to write.")],
    preset: Annotated[str, typer.Option("--preset", help="Run of the paper, or a YAML file.")] = ("sdci_p1"),
    test_dataset: Annotated[
        str | None, typer.Option("--test-dataset", help="Scores the model before and after; by default --dataset.")
    ] = None,
    captions: Annotated[str | None, typer.Option("--captions", help="first, pick1, pick5, ...")] = None,
    pooling: Annotated[str | None, typer.Option("--pooling", help="mean, hardest or max, of several captions.")] = None,
    clip_weight: Annotated[float | None, typer.Option("--clip-weight", help="The paper's a.")] = None,
    negatives_weight: Annotated[float | None, typer.Option("--negatives-weight", help="The paper's b.")] = None,
    negatives: Annotated[
        str | None,
        typer.Option("--negatives", help="swaps, layout, basic, any, hardest, spacy or spacy_antonyms."),
    ] = None,
    negative_draw: Annotated[str | None, typer.Option("--negative-draw", help="first, once or each_epoch.")] = None,
    submasks: Annotated[bool | None, typer.Option("--submasks/--no-submasks", help="Train on subcrops too.")] = None,
    batches: Annotated[str | None, typer.Option("--batches", help="random, sequential or image.")] = None,
    max_photos: Annotated[int | None, typer.Option("--max-photos", help="Of the training split.")] = None,
    epochs: Annotated[int | None, typer.Option("--epochs", help="Passes over the data.")] = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", help="Entries in the loss, over all processes.")
    ] = None,
    micro_batch_size: Annotated[
        int | None, typer.Option("--micro-batch-size", help="Entries in memory at once; the loss stays the same.")
    ] = None,
    learning_rate: Annotated[float | None, typer.Option("--learning-rate", help="At the start.")] = None,
    lora_rank: Annotated[int | None, typer.Option("--lora-rank", help="Of the update.")] = None,
    lora_alpha: Annotated[int | None, typer.Option("--lora-alpha", help="Over the rank, it scales the update.")] = None,
    lora_dropout: Annotated[float | None, typer.Option("--lora-dropout", help="Before the update.")] = None,
    lora_bias: Annotated[str | None, typer.Option("--lora-bias", help="none, all or lora_only.")] = None,
    target_modules: Annotated[
        str | None, typer.Option("--target-modules", help="Layers that get the adapter, with commas.")
    ] = None,
    full: Annotated[bool, typer.Option("--full", help="Train all weights instead of an adapter.")] = False,
    dtype: Annotated[str | None, typer.Option("--dtype", help="float32, bfloat16 or float16.")] = None,
    gradient_checkpointing: Annotated[
        bool | None,
        typer.Option("--gradient-checkpointing/--no-gradient-checkpointing", help="Less memory, more time."),
    ] = None,
    evals_per_epoch: Annotated[int | None, typer.Option("--evals-per-epoch", help="And checkpoints.")] = None,
    metric_for_best_model: Annotated[
        str | None, typer.Option("--metric-for-best-model", help="loss, or a test such as all_neg, on validation.")
    ] = None,
    num_workers: Annotated[int | None, typer.Option("--num-workers", help="Processes that load photos.")] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Of all draws.")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="Several runs, as 0,1,2; mean and deviation.")] = None,
    device: Annotated[str, typer.Option("--device", help="cpu or cuda; auto takes a GPU where there is one.")] = "auto",
    num_processes: Annotated[
        int, typer.Option("--num-processes", min=1, help="Processes that share a batch, each with its GPU, if any.")
    ] = 1,
    trust_remote_code: TrustOption = False,
    export_merged: Annotated[
        bool, typer.Option("--export-merged", help="Write merged/ too: the model with the adapter in its weights.")
    ] = False,
    photos: PhotosOption = None,
    on_error: OnErrorOption = OnError.RAISE,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove what is in the folder.")] = False,
) -> None:
    """Fine-tune a model on sDCI with LoRA, and score it before and after. What is not given is the preset's."""
    _share(num_processes)
    with interruptible():
        from dci_metrics import comparison, distributed
        from dci_metrics.training import seeds as several
        from dci_metrics.training.run import train as run

    quiet_unless_on_terminal()
    changes = {
        "captions": captions, "pooling": pooling, "clip_weight": clip_weight, "negatives_weight": negatives_weight,
        "negatives": negatives, "negative_draw": negative_draw, "submasks": submasks, "batches": batches,
        "max_photos": max_photos, "epochs": epochs, "batch_size": batch_size, "micro_batch_size": micro_batch_size,
        "learning_rate": learning_rate, "rank": lora_rank, "alpha": lora_alpha, "dropout": lora_dropout,
        "bias": lora_bias, "target_modules": _listed(target_modules), "dtype": dtype,
        "gradient_checkpointing": gradient_checkpointing, "evals_per_epoch": evals_per_epoch,
        "metric_for_best_model": metric_for_best_model, "num_workers": num_workers, "lora": False if full else None,
    }  # fmt: skip
    options: dict[str, Any] = {
        "preset": preset, "test_dataset": test_dataset, "device": device, "trust_remote_code": trust_remote_code,
        "export_merged": export_merged, "photos": photos, "on_error": on_error.value, "resume": resume, "force": force,
    } | changes  # fmt: skip
    if seeds is not None:
        if seed is not None:
            raise typer.BadParameter("--seed and --seeds: give one of them")
        numbers = [int(n) if n.isdecimal() else n for n in _listed(seeds) or []]
        report = several.train_seeds(model, dataset, output_dir, numbers, **options).report()  # type: ignore[arg-type]
    else:
        trained = run(model, dataset, output_dir, seed=seed, **options)
        report = comparison.compare(trained.before, trained.after).report()
    if distributed.is_main_process():
        print(report)
        print(f"Written: {output_dir}")


def _share(processes: int) -> None:
    """Run this command in several processes, and end this one; those know by their environment that they are they."""
    if processes > 1 and "WORLD_SIZE" not in os.environ:
        raise typer.Exit(launcher.launch(sys.argv[1:], processes))


def _listed(given: str | None) -> list[str] | None:
    return [part.strip() for part in given.split(",") if part.strip()] if given is not None else None


def _numbers(given: str | None, option: str) -> list[int] | None:
    parts = _listed(given)
    if parts is not None and not all(part.isdecimal() for part in parts):
        raise typer.BadParameter(f"{option}: expected whole numbers with commas, got {given!r}")
    return None if parts is None else [int(part) for part in parts]


def _version(asked: bool) -> None:
    if asked:
        print(f"dci-metrics {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Densely Captioned Images: build the datasets, score CLIP-style models on them."""


app.add_typer(cli_hub.commands)
app.add_typer(cli_hub.push, name="push")


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminated)
    mpi.adopt()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without Unicode gets question marks, not an error after all the work.
            stream.reconfigure(errors="replace")
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        # Whoever read the output has enough of it; Python would complain once more when it closes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        # A full disk, a missing right: the system's own words, and the file it is about.
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except Exception as error:
        # What the command line's parser raises is known by this: typer brings a copy of click of its own.
        message = getattr(error, "format_message", None)
        if message is None and type(error).__name__ != "DCIError":
            raise
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error)
            sys.exit(2)
        context = getattr(error, "ctx", None)
        _fail((message() if message else str(error)) + (f" (see {context.command_path} --help)" if context else ""))


def _terminated(*_: object) -> NoReturn:
    """End as on Ctrl-C, so that what is unfinished is removed: batch systems send this before they kill."""
    raise SystemExit(143)


def _fail(message: str) -> None:
    # Of several processes, which as a rule all meet the same error, the first one tells. The others wait for it: once
    # one has ended, all are ended by what started them. Who is still there after that has an error of its own.
    if os.environ.get("RANK", "0") != "0":
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        time.sleep(PATIENCE)
    print(f"dci: error: {' '.join(message.split())}", file=sys.stderr)
    sys.exit(2)
