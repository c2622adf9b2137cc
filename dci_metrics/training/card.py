"""The model card of a run: made from what really ran, with plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from huggingface_hub import ModelCard, ModelCardData, try_to_load_from_cache
from matplotlib.figure import Figure

import dci
from dci_metrics import comparison, sample
from dci_metrics.comparison import TestComparison, p_value, signed
from dci_metrics.results import Score, percent
from dci_metrics.tasks import TASKS
from dci_metrics.training.config import LOSS, PRESETS
from dci_metrics.training.entries import describe
from dci_metrics.training.trained import Trained

TEMPLATE = Path(__file__).parent / "templates" / "model_card.md.j2"
PLOTS = "plots"

CURVES = {
    "loss": "training",
    "eval_loss": "validation",
    "eval_clip_loss": "of it CLIP loss",
    "eval_negatives_loss": "of it negatives loss",
}


def write(trained: Trained) -> None:
    """Write README.md and its plots into the folder of a run."""
    compared = comparison.compare(trained.before, trained.after)
    plots = trained.folder / PLOTS
    plots.mkdir(exist_ok=True)
    _save(_losses(trained), plots / "loss.png")
    _save(_scores(compared.tests), plots / "scores.png")
    is_adapter = trained.config.lora is not None
    card = ModelCard.from_template(
        _metadata(trained, is_adapter),
        template_path=str(TEMPLATE),
        title=trained.folder.resolve().name,
        here=trained.folder.resolve().name,
        base=trained.model,
        base_revision=trained.before.model["revision"],
        # The sample's model is known to this package alone.
        is_sample=trained.model.startswith(sample.PREFIX),
        data=trained.dataset,
        tested_on=trained.test_dataset,
        preset=trained.config.preset,
        reproduces=_reproduces(trained.config.preset),
        rows=[_row(key, test, trained) for key, test in compared.tests.items()],
        is_adapter=is_adapter,
        counts=", ".join(f"{found['entries']} entries of {split}" for split, found in trained.used.items()),
        left_out="; ".join(
            f"{split}: {describe(found['left_out'])}" for split, found in trained.used.items() if found["left_out"]
        )
        or "nothing",
        trainable=trained.trainable,
        parameters=trained.before.model["parameters"],
        device=trained.after.settings["device"],
        processes=trained.processes,
        minutes=f"{trained.seconds / 60:.1f}",
        steps=max((row["step"] for row in trained.log), default=0),
        best_step=trained.best_step,
        best_by=_best_by(trained.config.metric_for_best_model),
        versions=", ".join(
            f"{name} {version}"
            for name, version in trained.after.environment.items()
            if name in ("dci_metrics", "torch", "transformers", "peft")
        ),
        config=trained.config.to_yaml().rstrip(),
        licence=_licence(trained),
        citation=dci.CITATION.strip(),
    )
    # Not card.save(): it would replace the text's line ends. It also replaces the card that PEFT leaves.
    (trained.folder / "README.md").write_text(str(card), encoding="utf-8")


def _metadata(trained: Trained, is_adapter: bool) -> ModelCardData:
    on_hub = not Path(trained.model).exists() and not trained.model.startswith(sample.PREFIX)
    data_on_hub = not Path(trained.dataset).exists() and "/" in trained.dataset and ":" not in trained.dataset
    return ModelCardData(
        base_model=trained.model if on_hub else None,
        library_name="peft" if is_adapter else "transformers",
        license=_license_of(trained.model),
        pipeline_tag="zero-shot-image-classification",
        tags=["clip", "vision-language", "dense-captions", "sdci", *(["lora"] if is_adapter else [])],
        datasets=[trained.dataset] if data_on_hub else None,
    )


def _license_of(model: str) -> str | None:
    """What the base model's card says, where it is at hand; a licence is not guessed."""
    local = sample.local_model(model) / "README.md"
    found = local if local.is_file() else try_to_load_from_cache(model, "README.md") if "/" in model else None
    if not isinstance(found, str | Path) or not Path(found).is_file():
        return None
    license: str | None = ModelCard.load(found, ignore_metadata_errors=True).data.license
    return license


def _licence(trained: Trained) -> str:
    model = _license_of(trained.model)
    base = (
        f"The base model is under {model}." if model else "The base model's own licence holds for what is made of it."
    )
    if trained.dataset.startswith(sample.PREFIX):
        return f"{base} The data is dci-metrics' embedded sample, under the package's licence."
    if ":" in trained.dataset:
        return f"{base} The captions and photos of {trained.dataset.split(':')[0]} are under their own licences."
    return (
        f"{base} DCI's captions are under CC-BY-NC 4.0, its photos under the SA-1B research licence: neither allows "
        "commercial use."
    )


def _reproduces(preset: str) -> str:
    """What the preset's file says of the paper."""
    path = PRESETS / f"{preset}.yaml"
    lines = path.read_text().splitlines() if path.is_file() else []
    return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def _best_by(measure: str) -> str:
    return "loss" if measure == LOSS else TASKS[measure].title


def _row(key: str, test: TestComparison, trained: Trained) -> dict[str, Any]:
    return {
        "title": TASKS[key].title,
        "a": _figure(trained.before.scores[key]),
        "b": _figure(trained.after.scores[key]),
        "difference": signed(test.difference),
        "interval": f"{signed(test.ci95[0])} to {signed(test.ci95[1])}" if test.ci95 else "–",
        "p": p_value(test.p),
        "n": test.n,
    }


def _figure(score: Score) -> str:
    interval = f" ({percent(score.ci95[0])} – {percent(score.ci95[1])})" if score.ci95 else ""
    return f"{percent(score.value)}{interval}"


def _losses(trained: Trained) -> Figure:
    """Loss and scores on validation over the steps."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for key, label in CURVES.items():
        _curve(left, trained.log, key, label)
    for key in (f"eval_{test}" for test in TASKS):
        _curve(right, trained.log, key, TASKS[key.removeprefix("eval_")].title, 100)
    for axes, title in ((left, "Loss"), (right, "Scores on validation, percent")):
        axes.set(xlabel="step", title=title)
        axes.axvline(trained.best_step, color="0.7", linestyle=":", label="kept")
        axes.legend()
    return figure


def _curve(axes: Any, log: Sequence[dict[str, Any]], key: str, label: str, factor: float = 1) -> None:
    points = [(row["step"], factor * row[key]) for row in log if key in row]
    if points:
        axes.plot(*zip(*points, strict=True), label=label)


def _scores(tests: dict[str, TestComparison]) -> Figure:
    """Figures before and after, and their paired differences with intervals."""
    figure = Figure(figsize=(10, 0.6 + 0.5 * len(tests)), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    for place, test in enumerate(tests.values()):
        left.plot([100 * test.a, 100 * test.b], [place, place], color="0.8", zorder=0)
        left.scatter(100 * test.a, place, color="C0", label="before" if not place else None)
        left.scatter(100 * test.b, place, color="C1", label="after" if not place else None)
        if test.ci95 is not None:
            right.plot([100 * end for end in test.ci95], [place, place], color="C1")
        right.scatter(100 * test.difference, place, color="C1")
    left.set_yticks(range(len(tests)), [TASKS[key].title for key in tests])
    left.invert_yaxis()
    left.legend()
    left.set(title="Right, percent")
    right.axvline(0, color="0.7", linestyle=":")
    right.set(title="Difference, with its 95 % interval")
    return figure


def _save(figure: Figure, path: Path) -> None:
    with mpl.rc_context({"font.size": 9}):
        figure.savefig(path, dpi=120)
