"""The model card of a run: made from what really ran, with plots."""

import dataclasses
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.errors import EntryNotFoundError
from jinja2 import Template

import dci
from dci_metrics import comparison, sample
from dci_metrics.comparison import TestComparison, p_value, signed
from dci_metrics.files import write_whole
from dci_metrics.results import Score, percent
from dci_metrics.tasks import TASKS
from dci_metrics.training.config import LOSS, PRESETS, TrainConfig, load_config, presets
from dci_metrics.training.entries import describe
from dci_metrics.training.trained import Trained

TEMPLATES = Path(__file__).parent / "templates"
TEMPLATE, USE = TEMPLATES / "model_card.md.j2", TEMPLATES / "use.md.j2"
PLOTS = "plots"

CC_BY_NC = "https://creativecommons.org/licenses/by-nc/4.0/"

License = dict[str, Any]
"""`license`, and of one that has no identifier `license_name` and `license_link`."""


def write(trained: Trained) -> None:
    """Write README.md and its plots into the folder of a run."""
    from dci_metrics.training import plots  # matplotlib is of the extra `train`

    compared = comparison.compare(trained.before, trained.after)
    differences = {key: (test.difference, test.ci95) for key, test in compared.tests.items()}
    images = {
        "loss.png": plots.losses(trained.log, trained.best_step),
        "scores.png": plots.scores(trained.before, trained.after, differences),
    }
    (trained.folder / PLOTS).mkdir(exist_ok=True)
    for name, content in images.items():
        write_whole(trained.folder / PLOTS / name, content, force=True)
    # Not card.save(): it would replace the text's line ends. This also replaces the card that PEFT leaves.
    card = _card(trained, compared.tests)
    write_whole(trained.folder / "README.md", card.encode("utf-8", "surrogatepass"), force=True)


def _card(trained: Trained, tests: dict[str, TestComparison]) -> str:
    config, is_adapter = trained.config, trained.config.lora is not None
    here, license = trained.folder.resolve().name, license_of(trained.model)
    card = ModelCard.from_template(
        _metadata(trained, is_adapter, license),
        template_path=str(TEMPLATE),
        trained=trained,
        config=config,
        here=here,
        use=use(here, trained.model if is_adapter else None, trained.auto_class, trained.test_dataset),
        base_revision=trained.before.model["revision"],
        reproduces=_reproduces(config.preset),
        changed=list(_changed(config)),
        rows=[_row(key, test, trained) for key, test in tests.items()],
        left_out={split: describe(found["left_out"]) for split, found in trained.used.items() if found["left_out"]},
        parameters=trained.before.model["parameters"],
        minutes=f"{trained.seconds / 60:.1f}",
        steps=max((row["step"] for row in trained.log), default=0),
        best_by="loss" if config.metric_for_best_model == LOSS else TASKS[config.metric_for_best_model].title,
        versions=", ".join(f"{name} {v}" for name, v in trained.versions.items() if name != "platform"),
        licence=_licence(trained, license.get("license_name", license.get("license"))),
        citation=dci.CITATION.strip(),
    )
    return str(card)


def _metadata(trained: Trained, is_adapter: bool, license: License) -> ModelCardData:
    on_hub = not Path(trained.model).exists() and not trained.model.startswith(sample.PREFIX)
    data_on_hub = not Path(trained.dataset).exists() and "/" in trained.dataset and ":" not in trained.dataset
    return ModelCardData(
        base_model=trained.model if on_hub else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="zero-shot-image-classification",
        tags=["clip", "vision-language", "dense-captions", "sdci", *(["lora"] if is_adapter else [])],
        datasets=[trained.dataset] if data_on_hub else None,
        **license,
    )


def license_of(model: str) -> License:
    """What the base model's card says; nothing where it says nothing, since a licence is not guessed."""
    folder = sample.local_model(model)
    path = folder / "README.md"
    if folder.exists() and not path.is_file():
        return {}
    try:
        # Of a model of the Hub its card is downloaded, or taken from the cache.
        found = ModelCard.load(path if path.is_file() else model, ignore_metadata_errors=True).data.to_dict()
    # No network, no card, or one that cannot be read: no reason to lose a trained model.
    except (OSError, ValueError, EntryNotFoundError, yaml.YAMLError):
        return {}
    return {key: found[key] for key in ("license", "license_name", "license_link") if found.get(key)}


def use(here: str, base: str | None, auto_class: str, test_dataset: str) -> str:
    """The section of the card that says how the model is loaded and scored.

    Args:
        here: The folder, or the repo, that holds it.
        base: The base model of an adapter; None for a whole model.
        auto_class: What of transformers loads the model.
        test_dataset: What scored it.
    """
    command = ["dci", "eval", *([here] if base is None else [base, "--adapter", here]), "--dataset", test_dataset]
    section = Template(USE.read_text("utf-8")).render(
        here=_string(here),
        base=_string(base or ""),
        is_adapter=base is not None,
        # The sample's model is known to this package alone.
        is_sample=base is not None and base.startswith(sample.PREFIX),
        auto_class=auto_class,
        command=shlex.join(command),
    )
    return str(section)


def _licence(trained: Trained, name: Any) -> str:
    base = f"The base model is under {name}." if name else "The base model's own licence holds for what is made of it."
    if trained.dataset.startswith(sample.PREFIX):
        return f"{base} The data is dci-metrics' embedded sample, under the package's licence."
    if ":" in trained.dataset:
        return f"{base} The captions and photos of {trained.dataset.split(':')[0]} are under their own licences."
    return (
        f"{base} DCI's captions are under [CC-BY-NC 4.0]({CC_BY_NC}), its photos under the SA-1B research licence: "
        "neither allows commercial use."
    )


def _reproduces(preset: str) -> str:
    """What the preset's file says of the paper."""
    path = PRESETS / f"{preset}.yaml"
    lines = path.read_text().splitlines() if path.is_file() else []
    return " ".join(line.removeprefix("#").strip() for line in lines if line.startswith("#"))


def _changed(config: TrainConfig) -> Iterator[tuple[str, Any, Any]]:
    """Fields that are not the preset's: name, the preset's value, the run's."""
    if config.preset not in presets():
        return
    theirs, ours = (_flat(dataclasses.asdict(one)) for one in (load_config(config.preset), config))
    for name in dict.fromkeys([*theirs, *ours]):
        if theirs.get(name) != ours.get(name):
            yield name, _said(theirs.get(name)), _said(ours.get(name))


def _flat(fields: dict[str, Any]) -> dict[str, Any]:
    lora = fields["lora"]
    return fields if lora is None else {k: v for k, v in fields.items() if k != "lora"} | lora


def _said(value: Any) -> str:
    return ", ".join(value) if isinstance(value, tuple) else json.dumps(value)


def _string(text: str) -> str:
    """As Python writes it."""
    return json.dumps(text, ensure_ascii=False)


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
