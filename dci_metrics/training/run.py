"""`dci train`: a preset, a model and a dataset in; out comes a folder with the adapter, its scores, and a card."""

import importlib.util
import platform
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import transformers

from dci import DCIError
from dci_metrics import caption_sets, encoders
from dci_metrics.benchmark import evaluate
from dci_metrics.distributed import World
from dci_metrics.encoders.huggingface import HuggingFaceEncoder
from dci_metrics.encoders.open_clip import PREFIX as OPEN_CLIP
from dci_metrics.encoding import attempt
from dci_metrics.results import Result
from dci_metrics.sources import Source, open_source, takes_photos
from dci_metrics.training import arguments, folder
from dci_metrics.training.batches import EntryDataset
from dci_metrics.training.callback import VALIDATION_TESTS, BenchmarkCallback
from dci_metrics.training.config import LOSS, TrainConfig, load_config
from dci_metrics.training.crops import PreparedCrops
from dci_metrics.training.entries import Entries, Fits, MakeNegatives, Selection, write_entries
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers, add_lora
from dci_metrics.training.trained import Trained, used
from dci_metrics.training.trainer import ContrastiveTrainer

if TYPE_CHECKING:
    from dci_metrics.training.swaps import Swaps

NEEDED = ("accelerate", "matplotlib", "peft")
"""Packages of the extra `train` that a run cannot do without."""

SPACY_NEGATIVES = 3
"""How many are made of a caption, as the release has three of a photo's."""

SPECIAL = 2
"""Tokens below a model's limit that captions of COCO and Localized Narratives may have, end tokens counted: the paper
takes up to 75 of CLIP's 77."""

Scoring = partial[Result]


def train(
    model: str,
    dataset: Any,
    output_dir: str | Path,
    *,
    preset: str | Path = "sdci_p1",
    test_dataset: Any = None,
    device: str = "auto",
    trust_remote_code: bool = False,
    export_merged: bool = False,
    photos: str | Path | None = None,
    on_error: str = "raise",
    resume: bool = False,
    force: bool = False,
    progress: bool = True,
    **changes: Any,
) -> Trained:
    """Fine-tune a dual encoder of transformers on sDCI, as the paper's section 5 does.

    Args:
        model: A Hub id, a folder, or `sample:tiny-clip`.
        dataset: As for `dci_metrics.evaluate`, also `coco:FOLDER` or `localized_narratives:FOLDER`. Its split `train`
            is trained on, and the best checkpoint is chosen on `validation`.
        output_dir: Folder to write.
        preset: One of `dci_metrics.training.presets()`, or a YAML file.
        test_dataset: Whose split `test` scores the model before and after; by default that of `dataset`.
        device: "auto", "cpu", "cuda".
        trust_remote_code: Whether to run code that the model brings along.
        export_merged: Whether to write `merged/` too, the whole model with the adapter in its weights.
        photos: Folder of photos or `sa_000138.tar`, where the datasets have none, such as on the Hub.
        on_error: "raise", or "skip" to leave photos that are missing or broken out, and count them; each is decoded
            once more for it, before the training.
        resume: Whether an interrupted run in `output_dir` goes on from its last checkpoint.
        force: Whether what is in `output_dir` is removed first.
        progress: Whether to show it.
        **changes: Fields of the preset to change, such as `epochs=3` or `rank=4` (`TrainConfig`, `Lora`).

    Raises:
        DCIError: If the preset, the model or the data is not as it must be, or the folder is in use.
    """
    out = Path(output_dir)
    # All that can be wrong is found before anything is computed.
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise DCIError(f"training needs {', '.join(missing)}: pip install 'dci-metrics[train]'")
    is_caption_set = caption_sets.is_caption_set(dataset)
    config = resolve(dataset, preset, **changes)
    test_dataset = dataset if test_dataset is None else test_dataset
    if photos is not None and not (takes_photos(dataset) or takes_photos(test_dataset)):
        raise DCIError(f"photos: {dataset} has its own; leave --photos out")

    def options_of(data: Any) -> dict[str, Any]:
        return {"on_error": on_error, "photos": photos if takes_photos(data) else None}

    sources = {split: open_source(dataset, split=split, **options_of(dataset)) for split in ("train", "validation")}
    if is_caption_set:
        for source in sources.values():
            next(source.read(), None)  # whether all photos are there
    tested_on = _with_tests(test_dataset)
    asked = folder.Asked(model, sources["train"].id, tested_on, config)
    folder.check(out, resume, force, asked, inputs=(model, dataset, test_dataset, preset))
    settings = arguments.make(config, out, device, progress)
    world = World()
    encoder = _dual_encoder(model, device, trust_remote_code)
    transformers.set_seed(config.seed)
    peft_model = add_lora(encoder, config.lora) if config.lora is not None else None
    towers = TwoTowers(encoder)
    # Before the adapter is merged for an export, after which there is none to be counted.
    trainable = sum(p.numel() for p in towers.parameters() if p.requires_grad)
    if config.gradient_checkpointing:
        encoder.model.activation_checkpointing_enable({"use_reentrant": False})
    selection = _selection(config, is_caption_set, encoder, on_error)
    swaps = _swaps(config, is_caption_set)

    score: Scoring = partial(
        evaluate,
        dataset=test_dataset,
        device=device,
        trust_remote_code=trust_remote_code,
        progress=progress,
        **options_of(test_dataset),
    )
    world.gather(attempt(lambda: folder.prepare(out, resume, force, asked) if world.rank == 0 else None))
    with _kept_or_removed(out, world):
        entries = {}
        for split, source in sources.items():
            chosen = selection if split == "train" else replace(selection, max_photos=None)
            entries[split] = _entries(source, chosen, out, _maker(swaps[split], config, encoder), world, progress)
        before = score(model)
        benchmark = partial(BenchmarkCallback, encoder, dataset, **options_of(dataset))
        trainer = _trainer(config, settings, towers, entries, peft_model, benchmark, is_caption_set, out)
        began = time.perf_counter()
        with _errors_of_workers():
            trainer.train(resume_from_checkpoint=folder.last_checkpoint(out) if resume else None)
        seconds = time.perf_counter() - began
        encoder.model.eval()
        if world.rank == 0:
            folder.save(out, encoder, peft_model, export_merged)
        world.gather(None)
        # From the files, as anybody else will load them.
        after = score(model, adapter=out, cache=False) if peft_model is not None else score(str(out), cache=False)
    trained = Trained(
        folder=out,
        config=config,
        model=model,
        dataset=sources["train"].id,
        test_dataset=tested_on,
        before=before,
        after=after,
        log=trainer.state.log_history,
        used={split: used(found, _source_of_negatives(config, swaps[split])) for split, found in entries.items()},
        trainable=trainable,
        best_step=trainer.state.best_global_step or trainer.state.global_step,
        seconds=seconds,
        processes=world.size,
        hardware=arguments.hardware(settings),
        auto_class=encoder.auto_class.__name__,
        resumed=resume,
    )
    if world.rank == 0:
        folder.write(trained)
    world.gather(None)
    return trained


def resolve(dataset: Any, preset: str | Path, **changes: Any) -> TrainConfig:
    """The run as the preset, the changes and the data have it.

    Raises:
        DCIError: As `load_config`.
    """
    config = load_config(preset, **changes)
    if caption_sets.is_caption_set(dataset) and config.negatives_weight and not config.negatives.startswith("spacy"):
        if changes.get("negatives") is not None:
            raise DCIError(
                f"negatives {config.negatives}: {dataset} has none; choose spacy or spacy_antonyms, which are made here"
            )
        # They have no negatives of a language model; the paper makes them by swaps.
        return replace(config, negatives="spacy")
    return config


def _with_tests(dataset: Any) -> str:
    """The name of the dataset that scores the model, if it has tests."""
    if caption_sets.is_caption_set(dataset):
        raise DCIError(
            f"{dataset}: has no split with the benchmark's tests; name one that has, such as a folder of `dci build`, "
            "with --test-dataset"
        )
    return open_source(dataset, split="test").id


def _dual_encoder(model: str, device: str, trust_remote_code: bool) -> HuggingFaceEncoder:
    only_scored = f"{model}: expected a dual encoder of transformers to train; those of open_clip are only scored"
    if model.startswith(OPEN_CLIP):
        raise DCIError(only_scored)
    encoder = encoders.load(model, scorer="contrastive", device=device, trust_remote_code=trust_remote_code)
    if not isinstance(encoder, HuggingFaceEncoder):
        raise DCIError(only_scored)
    return encoder


def _selection(config: TrainConfig, is_caption_set: bool, encoder: HuggingFaceEncoder, on_error: str) -> Selection:
    limit = encoder.text_limit
    fits: Fits | None = None
    if is_caption_set and limit is not None:
        fits = partial(_fit, encoder, limit - SPECIAL)
    negatives = config.negatives if config.negatives_weight else None
    return Selection(
        config.captions_per_entry, negatives, config.submasks, config.max_photos, fits, check_photos=on_error == "skip"
    )


def _fit(encoder: HuggingFaceEncoder, limit: int, texts: Sequence[str]) -> list[bool]:
    # Tokenizers refuse an empty list.
    lengths = encoder.text_lengths(texts) if texts else []
    return [length.tokens + length.lost <= limit for length in lengths]


def _swaps(config: TrainConfig, is_caption_set: bool) -> dict[str, "Swaps | None"]:
    """What makes negatives, by split; None where they are the data's, or not needed."""
    if not config.negatives_weight or not config.negatives.startswith("spacy"):
        return {"train": None, "validation": None}
    from dci_metrics.training.swaps import Swaps

    asked = config.negatives == "spacy_antonyms"
    # Of the other caption sets the paper validates with antonyms.
    antonyms = {"train": asked, "validation": asked or is_caption_set}
    made = {kind: Swaps(antonyms=kind) for kind in set(antonyms.values())}
    return {split: made[kind] for split, kind in antonyms.items()}


def _maker(swaps: "Swaps | None", config: TrainConfig, encoder: HuggingFaceEncoder) -> MakeNegatives | None:
    if swaps is None:
        return None
    limit = encoder.text_limit

    def fits(text: str) -> bool:
        return limit is None or _fit(encoder, limit, [text])[0]

    return lambda texts: swaps.negatives(texts, SPACY_NEGATIVES, config.seed, fits)


def _source_of_negatives(config: TrainConfig, swaps: "Swaps | None") -> str:
    """Where negatives come from, in words."""
    if not config.negatives_weight:
        return "none"
    if swaps is None:
        return f"the data's, kind `{config.negatives}`"
    return f"made of the first caption by {swaps.source}"


def _entries(
    source: Source, selection: Selection, out: Path, make: MakeNegatives | None, world: World, progress: bool
) -> Entries:
    """The entries of a split; the first process writes the file, and the others read it."""
    path = out / folder.WORK / f"{source.split}.arrow"

    def write() -> Counter[str]:
        return write_entries(source, selection, path, make, progress).left_out if world.rank == 0 else Counter()

    return Entries(path, source.open_images(), world.gather(attempt(write))[0])


def _trainer(
    config: TrainConfig,
    settings: Any,
    towers: TwoTowers,
    entries: dict[str, Entries],
    peft_model: Any,
    make_benchmark: Callable[..., BenchmarkCallback],
    is_caption_set: bool,
    out: Path,
) -> ContrastiveTrainer:
    has_negative = config.negatives_weight > 0
    encoder = towers.encoder
    # A file for each machine: over a network, one machine may see what another has written in part.
    crops = {
        split: PreparedCrops(out / folder.WORK / f"{split}-{platform.node()}.crops", len(found), encoder)
        for split, found in entries.items()
    }
    data = {
        split: EntryDataset(
            found, encoder, config.captions, has_negative, config.negative_draw, config.seed, crops[split]
        )
        for split, found in entries.items()
    }
    objective = Objective(config.captions_per_entry, config.clip_weight, config.negatives_weight, config.pooling)
    trainer = ContrastiveTrainer(
        towers,
        objective,
        settings,
        data["train"],
        data["validation"],
        batches=config.batches,
        micro_batch_size=config.micro_batch_size,
        peft_model=peft_model,
        callbacks=arguments.callbacks(out),
    )
    trainer.remove_callback(transformers.PrinterCallback)
    tests = ["base_scm"] if is_caption_set else list(VALIDATION_TESTS)
    if config.metric_for_best_model not in (LOSS, *tests):
        tests.append(config.metric_for_best_model)
    benchmark = make_benchmark(tests=tests, log=trainer.log)
    # Once before training: what validation lacks would come up after hours.
    if config.metric_for_best_model not in (LOSS, *benchmark.scores()):
        raise DCIError(
            f"metric_for_best_model: `validation` has no entry for {config.metric_for_best_model}; choose {LOSS}, or "
            "another test"
        )
    trainer.add_callback(benchmark)
    return trainer


@contextmanager
def _errors_of_workers() -> Iterator[None]:
    """A loading process's error as one line: torch hands it over with its traceback in the text."""
    try:
        yield
    except DCIError as error:
        raise DCIError(str(error).rpartition(f" {DCIError.__module__}.{DCIError.__name__}: ")[2]) from error


@contextmanager
def _kept_or_removed(out: Path, world: World) -> Iterator[None]:
    """Of a run that is interrupted the checkpoints are kept, with a word on how to go on; without any, nothing is."""
    try:
        yield
    except BaseException as error:
        if world.rank == 0:
            checkpoint = folder.last_checkpoint(out)
            if checkpoint is None:
                shutil.rmtree(out, ignore_errors=True)
            elif isinstance(error, KeyboardInterrupt | SystemExit):
                print(f"Interrupted; what was trained until {checkpoint} is kept: go on with --resume.")
        raise
