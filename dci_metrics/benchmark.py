"""Dataset × model → result: what is encoded, once; what is scored."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from dci import DCIError
from dci_metrics import depths, encoders, matching, pairs, revisions, sample
from dci_metrics.breakdown import Kind, break_down
from dci_metrics.cache import EmbeddingCache, ScoreCache, default_folder, model_key, texts_name
from dci_metrics.described import depths_of, read_described
from dci_metrics.distributed import World, is_main_process
from dci_metrics.encoders import reading as readings
from dci_metrics.encoders.base import DualEncoder, PairScorer
from dci_metrics.encoding import Caches, Encoded, encode
from dci_metrics.examples import Tests
from dci_metrics.examples import write as write_examples
from dci_metrics.files import refuse_unwritable
from dci_metrics.results import Result
from dci_metrics.retrieval import examples as retrieval_examples
from dci_metrics.retrieval import run as retrieval
from dci_metrics.sources import Source, open_source
from dci_metrics.subcrops import Crop, read_row
from dci_metrics.tasks import GROUP_SIZE, Task
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
    protocols: Iterable[str] | None = None,
    goal_list: str | Path | None = None,
    recall_at: Sequence[int] | None = None,
    max_tokens: int | None = None,
    stretch: str | None = None,
    reading: str = "truncate",
) -> Result:
    """Score a CLIP-style model on sDCI's tests, as the paper's section 4.1 defines them.

    Args:
        model: A Hub id, a folder, `sample:tiny-clip`, `open_clip:ARCHITECTURE/TAG` (more in `encoders/open_clip.py`),
            a loaded transformers model, or an object of your own: with `encode_images(images)` and
            `encode_texts(texts)` that give (n, d) tensors, or, for a model that looks at both together, with
            `score(images, texts)` that gives (images, texts).
        dataset: A folder of `dci build`, a release folder, a Hub id, `sample:scenes`, `sample:photographs`, a
            dataset loaded with `datasets`, or a list of rows of the configuration `sdci`.
        split: `train`, `validation` or `test`, where the dataset has several; of retrieval also "all" of them.
        photos: Folder of photos or `sa_000138.tar`, for a dataset given by its name that has none, such as one on the
            Hub.
        tests: Some of `dci_metrics.tasks.TASKS`, or "all"; None for those of the paper. Those on random groups compare
            every image with every text: long work for a model with `score`. Or some of `FULL_TASKS` beside them, on
            the whole descriptions of the configuration `full`. ["retrieval"] for the `protocols`.
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
        protocols: Of retrieval: some of `dci_metrics.retrieval.protocols.PROTOCOLS`, or None for all; they need the
            dataset's configuration `full`. Given without `tests`, they are what is scored.
        goal_list: File of photos and texts that the protocol `goal` takes (`dci_metrics.retrieval.lists`).
        recall_at: Of retrieval: the K of R@K; None for 1, 5 and 10.
        max_tokens: Tokens to read of a text, special tokens counted; None for the model's own limit.
        stretch: How its position embeddings are stretched where that is more than it has: "interpolate" or
            "keep-first-20" (`encoders/stretching.py`).
        reading: How texts over the limit are read: "truncate", "sentences-mean" or "sentences-max"
            (`encoders/reading.py`).

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
    readings.check_name(reading)
    tests = None if tests is None else list(tests)
    by_retrieval = retrieval.is_retrieval(tests, protocols, goal_list, recall_at)
    if by_retrieval and crop != "box":
        raise DCIError(f"--crop {crop} is of subcrops, and {retrieval.TEST} is of whole photos; leave it out")
    wanted = [] if by_retrieval else matching.select_tasks(tests)
    if examples is not None:
        refuse_unwritable(Path(examples), force)
    clock = Clock()
    # A mistyped dataset or split is found before a model of some gigabytes is read.
    plan = None
    if by_retrieval:
        plan = retrieval.plan(dataset, protocols, split, on_error, photos, goal_list, recall_at)
    source = plan.source if plan is not None else open_source(dataset, wanted[0].config, split, on_error, photos)
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
        max_tokens=max_tokens,
        stretch=stretch,
    )
    readings.check(reading, encoder, encoders.describe(encoder).id)
    threads = loaders(encoders.describe(encoder).device)
    how = Settings(batch_size or default_batch_size(encoder), crop, on_error, progress, threads, reading)
    run = Run(model, encoder, how, World(), clock, _cache_folder(model, encoder, cache), seed, started)
    if plan is not None:
        result, scored = _retrieve(run, plan)
        if examples is not None and is_main_process():
            retrieval_examples.write(Path(examples), scored, result, force)
        return result
    result, encoded = _match(run, source, wanted, partial(depths.find, dataset, split))
    if examples is not None and is_main_process():
        rows = Tests(encoded.entries, encoded.text_index, encoded.similarity, wanted)
        write_examples(Path(examples), rows, result, force)
    return result


@dataclass(frozen=True)
class Run:
    """What is the same for all tests.

    Attributes:
        model: As the user gave it.
        encoder: Made of it.
        how: Settings.
        world: The processes that share the work.
        clock: Told what took how long.
        folder: Where what the model computes is kept; None where it is not.
        seed: Of the intervals' resampling.
        started: When, by `time.perf_counter`.
    """

    model: Any
    encoder: DualEncoder | PairScorer
    how: Settings
    world: World
    clock: Clock
    folder: Path | None
    seed: int
    started: float

    @property
    def caches(self) -> Caches | None:
        """The embeddings of earlier runs."""
        if self.folder is None:
            return None
        texts = texts_name("texts", encoders.describe(self.encoder))
        return Caches(EmbeddingCache(self.folder / "images"), EmbeddingCache(self.folder / texts))

    def timing(self, images: int, texts: int) -> dict[str, Any]:
        """What a result says of its time."""
        stages = {name: round(seconds, 3) for name, seconds in self.clock.seconds.items()}
        counts = {"images": images, "texts": texts}
        if self.clock.pieces is not None:
            counts["pieces"] = self.clock.pieces
        return {"seconds": round(time.perf_counter() - self.started, 3), **counts, "stages": stages}

    def described(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What a result says of its model, and of its settings."""
        info = asdict(encoders.describe(self.encoder))
        if info["revision"] is None and isinstance(self.model, str | Path):
            info["revision"] = revisions.of_weights(sample.local_model(self.model))
        how = self.how
        settings = {"mode": "paper", "group_size": GROUP_SIZE, "crop": how.crop, "batch_size": how.batch_size}
        settings |= {key: info.pop(key) for key in ("dtype", "device", "image_backend", "compiled", "scorer")}
        settings["seed"] = self.seed
        unusual = {key: info.pop(key) for key in ("question", "max_tokens", "stretch")}
        unusual["reading"] = how.reading if how.reading != readings.READINGS[0] else None
        settings |= {key: value for key, value in unusual.items() if value is not None}
        return info, settings


def _match(
    run: Run, source: Source, wanted: Sequence[Task], find_depths: Callable[[], depths.Depths | None]
) -> tuple[Result, Encoded]:
    """The result of SCM and negatives, of summaries or of whole descriptions; and what it is made of."""
    is_full = wanted[0].config == "full"
    read = read_described if is_full else read_row
    if isinstance(run.encoder, PairScorer):
        name = texts_name("pairs", encoders.describe(run.encoder))
        scores = ScoreCache(run.folder / name) if run.folder else None
        score = partial(matching.run, wanted)
        encoded = pairs.score_pairs(source, run.encoder, wanted, run.how, run.clock, run.world, score, scores, read)
    else:
        encoded = encode(source, run.encoder, wanted, run.how, run.clock, run.world, run.caches, read)
    with run.clock.stage("score"):
        found = matching.run(wanted, encoded.entries, encoded.text_index, encoded.similarity)
        figures = {task.key: matching.score_of(task, encoded, found[task.key], run.seed) for task in wanted}
        outcomes = {task.key: matching.marks_of(task, encoded, found[task.key]) for task in wanted}
    info, settings = run.described()
    result = Result(
        model=info,
        dataset=_data(source, encoded.fingerprint),
        settings=settings | ({"mode": "full"} if is_full else {}),
        scores=figures,
        entries=[(entry.image_id, entry.key) for entry in encoded.entries],
        outcomes={key: marks for key, marks in outcomes.items() if isinstance(marks, str)},
        rates={key: rates for key, rates in outcomes.items() if not isinstance(rates, str)},
        timing=run.timing(encoded.images, len(encoded.text_index)),
    )
    values = {task.key: result.values_of(task.key) for task in wanted}
    kinds: tuple[Kind, ...] = ("size", "depth", "length") if is_full else ("size", "depth")
    of_masks = depths_of(encoded.entries) if is_full else find_depths()
    result.breakdown = break_down(encoded.entries, values, set(result.rates), of_masks, kinds)
    return result, encoded


def _retrieve(run: Run, plan: retrieval.Plan) -> tuple[Result, retrieval.Scored]:
    """The result of retrieval, and what it is made of."""
    info, settings = run.described()
    if isinstance(run.encoder, PairScorer):
        raise DCIError(
            f"{info['id']}: looks at an image and a text together, so that retrieval would take a run for every pair; "
            "it is for models with embeddings"
        )
    scored = retrieval.score(plan, run.encoder, info["image_size"], run.how, run.clock, run.world, run.caches, run.seed)
    for name in ("group_size", "crop"):  # there is none
        del settings[name]
    result = Result(
        model=info,
        dataset=_data(plan.source, scored.fingerprint),
        settings=settings | {"mode": retrieval.TEST, "protocols": scored.protocols},
        scores=scored.scores,
        entries=scored.entries,
        outcomes={},
        timing=run.timing(scored.images, scored.texts),
        ranks=scored.ranks,
    )
    return result, scored


def _data(source: Source, fingerprint: str) -> dict[str, Any]:
    """What a result says of its dataset."""
    named = {"id": source.id, "revision": source.revision, "config": source.config, "split": source.split}
    return named | {"fingerprint": fingerprint}


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
