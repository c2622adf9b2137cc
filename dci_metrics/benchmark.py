"""Dataset × model → result: what is encoded, once; what is scored."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from dci import DCIError
from dci_metrics import depths, encoders, pairs, revisions, sample, scoring, statistics
from dci_metrics.breakdown import break_down
from dci_metrics.cache import EmbeddingCache, ScoreCache, default_folder, model_key
from dci_metrics.distributed import World, is_main_process
from dci_metrics.encoders.base import DualEncoder, PairScorer
from dci_metrics.encoding import Caches, Encoded, encode
from dci_metrics.examples import Tests
from dci_metrics.examples import write as write_examples
from dci_metrics.files import refuse_unwritable
from dci_metrics.results import Result, Score
from dci_metrics.scoring import Similarity
from dci_metrics.sources import open_source
from dci_metrics.subcrops import Crop, Entry
from dci_metrics.tasks import GROUP_SIZE, PAPER_TASKS, TASKS, Task
from dci_metrics.walk import Clock, Settings, loaders


def evaluate(
    model: Any,
    dataset: Any,
    *,
    split: str = "test",
    photos: str | Path | None = None,
    tests: Iterable[str] | None = None,
    processor: Any = None,
    adapter: str | Path | None = None,
    scorer: str = "auto",
    batch_size: int | None = None,
    device: str = "auto",
    dtype: str = "float32",
    resize: str = "pil",
    trust_remote_code: bool = False,
    compile: bool = False,
    crop: Crop = "box",
    on_error: str = "raise",
    cache: bool | str | Path = True,
    seed: int = 0,
    progress: bool = True,
    examples: str | Path | None = None,
    force: bool = False,
) -> Result:
    """Score a CLIP-style model on sDCI's tests, as the paper's section 4.1 defines them.

    Args:
        model: A Hub id, a folder, `sample:tiny-clip`, `open_clip:ARCHITECTURE/TAG` (more in `encoders/open_clip.py`),
            a loaded transformers model, or an object of your own: with `encode_images(images)` and
            `encode_texts(texts)` that give (n, d) tensors, or, for a model that looks at both together, with
            `score(images, texts)` that gives (images, texts).
        dataset: A folder of `dci build`, a release folder, a Hub id, `sample:scenes`, `sample:photographs`, a
            dataset loaded with `datasets`, or a list of rows of the configuration `sdci`.
        split: `train`, `validation` or `test`, where the dataset has several.
        photos: Folder of photos or `sa_000138.tar`, for a dataset given by its name that has none, such as one on the
            Hub.
        tests: Some of `dci_metrics.tasks.TASKS`, or "all"; None for those of the paper. Those on random groups compare
            every image with every text: long work for a model with `score`.
        processor: Of a loaded model; by default its checkpoint's.
        adapter: Folder or Hub id of a PEFT adapter, such as the paper's LoRA weights, to merge into a transformers
            model.
        scorer: How a transformers model compares: "contrastive" by embeddings, "matching" by its head for image-text
            matching (BLIP, BLIP-2, FLAVA), "vqascore" by how likely a generative model's answer is "Yes"; "auto" is
            contrastive where the model can, or else VQAScore.
        batch_size: Images, and texts, encoded at once; None for what suits the model's device.
        device: Of a model given by name: "auto", "cpu", "cuda", ...
        dtype: Of a model given by name: "float32", "bfloat16" or "float16". Scores are compared in float32.
        resize: Of a transformers model: "pil" (the paper's) resizes images on the CPU, "device" where the model is,
            with PIL's filters but in float32; the result says "torch" then.
        trust_remote_code: Whether to run code that a model given by name brings along.
        compile: Whether the blocks of a model given by name are compiled (`torch.compile`): some seconds at first.
        crop: "box" as the paper cuts subcrops out, or "masked" with everything outside of the mask greyed.
        on_error: "raise", or "skip" to leave out photos that are missing or broken; they stand in the result.
        cache: Whether embeddings, or scores of pairs, of a model given by name are kept on disk for the next run, or
            the folder to keep them in; an interrupted run goes on where it stopped.
        seed: Of the intervals' resampling.
        progress: Whether to show it.
        examples: Parquet file to write, one row an entry and test: keys, scores, margin, right or wrong
            (`dci_metrics.examples`).
        force: Whether that file is overwritten if it exists.

    Returns:
        Scores with intervals and chance, the outcome of every entry, and what they depend on.

    Raises:
        DCIError: If the model or the data is not as it must be.
    """
    started = time.perf_counter()
    if batch_size is not None and batch_size < 1:
        raise DCIError(f"expected a batch size of at least 1, got {batch_size}")
    if crop not in get_args(Crop):
        raise DCIError(f"no crop {crop!r}: expected one of {', '.join(get_args(Crop))}")
    wanted = select_tasks(tests)
    if examples is not None:
        refuse_unwritable(Path(examples), force)
    clock = Clock()
    # A mistyped dataset or split is found before a model of some gigabytes is read.
    source = open_source(dataset, "sdci", split, on_error, photos)
    encoder = encoders.load(
        model,
        processor=processor,
        adapter=adapter,
        scorer=scorer,
        device=device,
        dtype=dtype,
        resize=resize,
        trust_remote_code=trust_remote_code,
        compile=compile,
    )
    threads = loaders(encoders.describe(encoder).device)
    how = Settings(batch_size or default_batch_size(encoder), crop, on_error, progress, threads)
    world = World()
    folder = _cache_folder(model, encoder, cache)
    if isinstance(encoder, PairScorer):
        known_scores = ScoreCache(folder / "pairs") if folder is not None else None
        encoded = pairs.score_pairs(
            source, encoder, wanted, how, clock, world, lambda *found: _run(wanted, *found), known_scores
        )
    else:
        known = Caches(EmbeddingCache(folder / "images"), EmbeddingCache(folder / "texts")) if folder else None
        encoded = encode(source, encoder, wanted, how, clock, world, known)
    with clock.stage("score"):
        found = _run(wanted, encoded.entries, encoded.text_index, encoded.similarity)
        scores = {task.key: _score(task, encoded, found[task.key], seed) for task in wanted}
        outcomes = {task.key: _marks(task, encoded, found[task.key]) for task in wanted}
    info, settings = _described(model, encoder, how, seed)
    result = Result(
        model=info,
        dataset={
            "id": source.id,
            "revision": source.revision,
            "config": source.config,
            "split": source.split,
            "fingerprint": encoded.fingerprint,
        },
        settings=settings,
        scores=scores,
        entries=[(entry.image_id, entry.key) for entry in encoded.entries],
        outcomes={key: marks for key, marks in outcomes.items() if isinstance(marks, str)},
        rates={key: rates for key, rates in outcomes.items() if not isinstance(rates, str)},
        timing={
            "seconds": round(time.perf_counter() - started, 3),
            "images": encoded.images,
            "texts": len(encoded.text_index),
            "stages": {name: round(seconds, 3) for name, seconds in clock.seconds.items()},
        },
    )
    values = {task.key: result.values_of(task.key) for task in wanted}
    result.breakdown = break_down(encoded.entries, values, set(result.rates), depths.find(dataset, split))
    if examples is not None and is_main_process():
        rows = Tests(encoded.entries, encoded.text_index, encoded.similarity, wanted)
        write_examples(Path(examples), rows, result, force)
    return result


def _described(
    model: Any, encoder: DualEncoder | PairScorer, how: Settings, seed: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a result says of its model, and of its settings."""
    info = asdict(encoders.describe(encoder))
    if info["revision"] is None and isinstance(model, str | Path):
        info["revision"] = revisions.of_weights(sample.local_model(model))
    settings = {"mode": "paper", "group_size": GROUP_SIZE, "crop": how.crop, "batch_size": how.batch_size}
    settings |= {key: info.pop(key) for key in ("dtype", "device", "image_backend", "compiled", "scorer")}
    settings["seed"] = seed
    question = info.pop("question")
    if question is not None:
        settings["question"] = question
    return info, settings


def _cache_folder(model: Any, encoder: DualEncoder | PairScorer, cache: bool | str | Path) -> Path | None:
    """Where what a model computed is kept; None where it cannot be told whether it would be the same next time."""
    if cache is False or not isinstance(model, str | Path):
        return None
    key = model_key(sample.local_model(model), encoders.describe(encoder))
    if key is None:
        return None
    return (default_folder() if cache is True else Path(cache)) / key


def default_batch_size(encoder: DualEncoder | PairScorer) -> int:
    """Small on a CPU, where a batch should stay in its caches (`benchmarks/`), and large on a GPU."""
    info = encoders.describe(encoder)
    if info.scorer == "vqascore":
        return 8  # with each text come all tokens of the image
    return 16 if info.device == "cpu" else 128


def select_tasks(keys: Iterable[str] | None) -> list[Task]:
    """The tests of the given keys, in the paper's order; those of the paper for None, all there are for "all".

    Raises:
        DCIError: If a key is none of the tests'.
    """
    wanted = list(PAPER_TASKS if keys is None else keys)
    if wanted == ["all"]:
        return list(TASKS.values())
    unknown = [key for key in wanted if key not in TASKS]
    if unknown or not wanted:
        known = ", ".join(TASKS)
        raise DCIError(f"no test {', '.join(map(repr, unknown)) or 'given'}: expected some of {known}, or all")
    return [task for task in TASKS.values() if task.key in wanted]


def _run(
    wanted: Sequence[Task], entries: Sequence[Entry], text_index: dict[str, int], similarity: Similarity
) -> dict[str, scoring.Outcomes | scoring.Rates]:
    """Run the wanted tests on the scores of images against texts."""
    found: dict[str, scoring.Outcomes | scoring.Rates] = {}
    for task in wanted:
        members = task.members(entries)
        images = torch.tensor(members, dtype=torch.long)
        texts = [[text_index[text] for text in entries[i].texts(task)] for i in members]
        captions, negatives = _columns(texts, task)
        if task.kind == "scm":
            found[task.key] = scoring.match_in_groups(similarity, images, captions, GROUP_SIZE)
        elif task.kind == "neg":
            positive = similarity.pairs(images[:, None], captions)
            found[task.key] = scoring.beat_negative(positive, similarity.pairs(images, negatives))
        elif task.kind == "random_scm":
            found[task.key] = scoring.chance_of_match(similarity, images, captions[:, 0], GROUP_SIZE, task.by_text)
        else:
            number = {image_id: n for n, image_id in enumerate(dict.fromkeys(entry.image_id for entry in entries))}
            photos = torch.tensor([number[entries[i].image_id] for i in members], dtype=torch.long)
            found[task.key] = scoring.match_within_photos(similarity, images, captions[:, 0], photos, task.by_text)
    return found


def _columns(texts: list[list[int]], task: Task) -> tuple[Tensor, Tensor]:
    """(n, k) captions and (n,) negatives of a test's entries."""
    width = task.captions + task.has_negative
    table = torch.tensor(texts, dtype=torch.long).reshape(len(texts), width)
    return table[:, : task.captions], table[:, -1]


def _score(task: Task, encoded: Encoded, found: scoring.Outcomes | scoring.Rates, seed: int) -> Score:
    """One test's figure."""
    entries = [encoded.entries[i] for i in task.members(encoded.entries)]
    photos = [entry.image_id for entry in entries]
    n = len(entries)
    is_rate = isinstance(found, scoring.Rates)
    values = found.rate if isinstance(found, scoring.Rates) else found.correct.double()
    texts = {encoded.text_index[text] for entry in entries for text in entry.texts(task)}
    lengths = [encoded.text_lengths[t] for t in texts] if encoded.text_lengths is not None else None
    return Score(
        value=float(values.sum()) / n if n else None,
        correct=None if is_rate else int(values.sum()),
        n=n,
        n_images=n,
        n_texts=len(texts),
        ci95=statistics.interval(values, photos, seed=seed),
        chance=task.chance(photos),
        ties=int(found.tied.sum()),
        truncated=sum(t.lost > 0 for t in lengths) / max(1, len(lengths)) if lengths is not None else None,
        tokens_lost=sum(t.lost for t in lengths) if lengths is not None else None,
        left_out=[{"image_id": i, "reason": r} for i, rule, r in encoded.left_out if rule == task.rule],
    )


def _marks(task: Task, encoded: Encoded, found: scoring.Outcomes | scoring.Rates) -> str | list[float | None]:
    """What became of every entry, in the order of all entries."""
    members = task.members(encoded.entries)
    if isinstance(found, scoring.Rates):
        rates: list[float | None] = [None] * len(encoded.entries)
        for i, rate in zip(members, found.rate.tolist(), strict=True):
            rates[i] = rate
        return rates
    marks = ["-"] * len(encoded.entries)
    for i, right in zip(members, found.correct.tolist(), strict=True):
        marks[i] = "1" if right else "0"
    return "".join(marks)
