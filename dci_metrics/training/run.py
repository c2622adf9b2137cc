"""`dci train`: a preset, a model and a dataset in; out comes a folder with the adapter, its scores, and a card."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import transformers

from dci import DCIError
from dci_metrics import encoders
from dci_metrics.benchmark import evaluate
from dci_metrics.caption_sets import is_caption_set
from dci_metrics.distributed import World
from dci_metrics.encoders.huggingface import HuggingFaceEncoder
from dci_metrics.encoding import attempt
from dci_metrics.results import Result
from dci_metrics.sources import Source, open_source
from dci_metrics.training import arguments, folder
from dci_metrics.training.batches import EntryDataset
from dci_metrics.training.callback import VALIDATION_TESTS, BenchmarkCallback
from dci_metrics.training.config import LOSS, TrainConfig, load_config
from dci_metrics.training.entries import Entries, Fits, MakeNegatives, Selection, write_entries
from dci_metrics.training.folder import Trained
from dci_metrics.training.objective import Objective
from dci_metrics.training.towers import TwoTowers, add_lora
from dci_metrics.training.trainer import ContrastiveTrainer

SPACY_NEGATIVES = 3
"""How many are made of a caption, as the release has three of a photo's."""

SPECIAL = 2
"""Tokens below a model's limit that captions of COCO and Localized Narratives may have, end tokens counted: the paper
takes up to 75 of CLIP's 77."""

Scoring = partial[Result]


def train(
    model: str,
    dataset: str,
    output_dir: str | Path,
    *,
    preset: str | Path = "sdci_p1",
    test_dataset: str | None = None,
    device: str = "auto",
    trust_remote_code: bool = False,
    export_merged: bool = False,
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
        resume: Whether an interrupted run in `output_dir` goes on from its last checkpoint.
        force: Whether what is in `output_dir` is removed first.
        progress: Whether to show it.
        **changes: Fields of the preset to change, such as `epochs=3` or `rank=4` (`TrainConfig`, `Lora`).

    Raises:
        DCIError: If the preset, the model or the data is not as it must be, or the folder is in use.
    """
    out = Path(output_dir)
    # All that can be wrong is found before anything is computed.
    config = _fitted(load_config(preset, **changes), dataset)
    sources = {split: open_source(dataset, split=split) for split in ("train", "validation")}
    test_dataset = _with_tests(test_dataset or dataset)
    folder.check(out, resume, force)
    settings = arguments.make(config, out, device, progress)
    world = World()
    encoder = _dual_encoder(model, device, trust_remote_code)
    transformers.set_seed(config.seed)
    peft_model = add_lora(encoder, config.lora) if config.lora is not None else None
    towers = TwoTowers(encoder)
    if config.gradient_checkpointing:
        encoder.model.gradient_checkpointing_enable({"use_reentrant": False})
    makers = _negative_makers(config, dataset, encoder)

    score: Scoring = partial(
        evaluate, dataset=test_dataset, device=device, trust_remote_code=trust_remote_code, progress=progress
    )
    world.gather(attempt(lambda: folder.prepare(out, resume, force) if world.rank == 0 else None))
    with _told_how_to_resume(out, world):
        entries = {}
        for split, source in sources.items():
            selection = _selection(config, dataset, encoder)
            write = partial(_entries, source, selection, out, makers[split], world, progress)
            entries[split] = world.gather(attempt(write))[world.rank]
        before = score(model)
        trainer = _trainer(config, settings, towers, entries, peft_model, dataset, out)
        trainer.train(resume_from_checkpoint=folder.last_checkpoint(out) if resume else None)
        encoder.model.eval()
        if world.rank == 0:
            folder.save(out, encoder, peft_model, export_merged)
        world.gather(None)
        # From the files, as anybody else will load them.
        after = score(model, adapter=out, cache=False) if peft_model is not None else score(str(out), cache=False)
    trained = Trained(out, config, before, after, trainer.state.log_history)
    if world.rank == 0:
        folder.write(trained, model, dataset, test_dataset, entries)
    world.gather(None)
    return trained


def _fitted(config: TrainConfig, dataset: str) -> TrainConfig:
    """The run as the data allows it."""
    if is_caption_set(dataset) and config.negatives_weight and not config.negatives.startswith("spacy"):
        # They have no negatives of a language model; the paper makes them by swaps.
        return replace(config, negatives="spacy")
    return config


def _with_tests(dataset: str) -> str:
    """The dataset that scores the model, if it has tests."""
    if is_caption_set(dataset):
        raise DCIError(
            f"{dataset}: has no split with the benchmark's tests; name one that has, such as a folder of `dci build`, "
            "with --test-dataset"
        )
    open_source(dataset, split="test")
    return dataset


def _dual_encoder(model: str, device: str, trust_remote_code: bool) -> HuggingFaceEncoder:
    encoder = encoders.load(model, scorer="contrastive", device=device, trust_remote_code=trust_remote_code)
    if not isinstance(encoder, HuggingFaceEncoder):
        raise DCIError(f"{model}: expected a dual encoder of transformers to train; those of open_clip are only scored")
    return encoder


def _selection(config: TrainConfig, dataset: str, encoder: HuggingFaceEncoder) -> Selection:
    limit = encoder.text_limit
    fits: Fits | None = None
    if is_caption_set(dataset) and limit is not None:
        fits = partial(_fit, encoder, limit - SPECIAL)
    negatives = config.negatives if config.negatives_weight else None
    return Selection(config.captions_per_entry, negatives, config.submasks, config.max_photos, fits)


def _fit(encoder: HuggingFaceEncoder, limit: int, texts: Sequence[str]) -> list[bool]:
    return [length.tokens + length.lost <= limit for length in encoder.text_lengths(texts)]


def _negative_makers(config: TrainConfig, dataset: str, encoder: HuggingFaceEncoder) -> dict[str, MakeNegatives | None]:
    """What makes negatives by swaps, by split; None where they are the data's, or not needed."""
    if not config.negatives_weight or not config.negatives.startswith("spacy"):
        return {"train": None, "validation": None}
    from dci_metrics.training.swaps import Swaps

    def maker(antonyms: bool) -> MakeNegatives:
        swaps = Swaps(antonyms=antonyms)
        limit = encoder.text_limit

        def fits(text: str) -> bool:
            return limit is None or _fit(encoder, limit, [text])[0]

        return lambda texts: swaps.negatives(texts, SPACY_NEGATIVES, config.seed, fits)

    asked = config.negatives == "spacy_antonyms"
    # Of the other caption sets the paper validates with antonyms.
    return {"train": maker(asked), "validation": maker(asked or is_caption_set(dataset))}


def _entries(
    source: Source, selection: Selection, out: Path, make: MakeNegatives | None, world: World, progress: bool
) -> Entries:
    """The entries of a split; the first process writes the file, and the others read it."""
    path = out / folder.WORK / f"{source.split}.arrow"
    if world.rank == 0:
        entries = write_entries(source, selection, path, make, progress)
    left_out = world.gather(entries.left_out if world.rank == 0 else None)[0]
    found = Entries(path, source.open_images())
    found.left_out.update(left_out or {})
    return found


def _trainer(
    config: TrainConfig,
    settings: Any,
    towers: TwoTowers,
    entries: dict[str, Entries],
    peft_model: Any,
    dataset: str,
    out: Path,
) -> ContrastiveTrainer:
    has_negative = config.negatives_weight > 0
    data = {
        split: EntryDataset(found, towers.encoder, config.captions, has_negative, config.negative_draw, config.seed)
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
    tests = ["base_scm"] if is_caption_set(dataset) else list(VALIDATION_TESTS)
    if config.metric_for_best_model not in (LOSS, *tests):
        tests.append(config.metric_for_best_model)
    trainer.add_callback(BenchmarkCallback(towers.encoder, dataset, tests=tests, log=trainer.log))
    return trainer


@contextmanager
def _told_how_to_resume(out: Path, world: World) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        if world.rank == 0 and folder.last_checkpoint(out) is not None:
            print(f"Interrupted; what was trained until {folder.last_checkpoint(out)} is kept: go on with --resume.")
        raise
