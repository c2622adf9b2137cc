"""What a training run is: a preset, which says what of the paper it reproduces, and what the user changes of it."""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import yaml

from dci import DCIError
from dci_metrics.tasks import TASKS
from dci_metrics.training.losses import Pooling

PRESETS = Path(__file__).parent / "presets"

Negatives = Literal["swaps", "layout", "basic", "any", "hardest", "spacy", "spacy_antonyms"]
"""Which wrong captions: of the kinds that a language model wrote, of any of them, of all of them the one that CLIP
scores highest, or made by spaCy (`swaps.py`)."""

NegativeDraw = Literal["first", "once", "each_epoch"]
"""Which of an entry's several negatives: always the first, or a random one, drawn once (the paper's code) or anew."""

Batches = Literal["random", "sequential", "image"]
"""What stands in a batch: entries from everywhere, in the data's order, or those of one photo together (ImgGroup)."""

Dtype = Literal["float32", "bfloat16", "float16"]

CHOICES = {
    "pooling": Pooling,
    "negatives": Negatives,
    "negative_draw": NegativeDraw,
    "batches": Batches,
    "dtype": Dtype,
}

LOSS = "loss"
"""The measure of the best checkpoint that is not one of the benchmark's tests."""


@dataclass(frozen=True)
class Lora:
    """A LoRA adapter, as PEFT's LoraConfig takes it.

    Attributes:
        rank: Of the update.
        alpha: The update is scaled by alpha / rank.
        dropout: Before the update.
        bias: Which biases are trained: "none", "all", or "lora_only", those of the adapted layers.
        target_modules: Names of the adapted layers.
    """

    rank: int
    alpha: int
    dropout: float
    bias: Literal["none", "all", "lora_only"]
    target_modules: tuple[str, ...]


@dataclass(frozen=True)
class TrainConfig:
    """A training run, but for model and data.

    Attributes:
        preset: Which preset it started from.
        captions: "first" (always an entry's first), "pick1" (a random one each time it is read), "pickN" for N at once.
        pooling: How N captions become one logit (`losses.py`).
        clip_weight: The paper's a.
        negatives_weight: The paper's b.
        negatives: Kind.
        negative_draw: Which of several.
        submasks: Whether entries of masks are trained on, or whole photos alone.
        batches: What stands in one.
        max_photos: Of the training split, the first so many that can be used; None for all.
        epochs: Passes over the data.
        batch_size: Entries in the loss, over all processes.
        learning_rate: At the start; it falls linearly to zero.
        lora: The adapter; None to train all weights.
        evals_per_epoch: How often validation runs and a checkpoint is written.
        metric_for_best_model: "loss", or one of the benchmark's tests, on validation.
        micro_batch_size: Entries that go through the model at once, in each process; None for the whole batch. The
            loss is over the whole batch either way.
        dtype: Of the computation; weights stay in float32.
        gradient_checkpointing: Whether activations are computed twice to save memory.
        seed: Of everything that is drawn.
        num_workers: Processes that load photos; None for what suits the device.
    """

    preset: str
    captions: str
    pooling: Pooling
    clip_weight: float
    negatives_weight: float
    negatives: Negatives
    negative_draw: NegativeDraw
    submasks: bool
    batches: Batches
    max_photos: int | None
    epochs: int
    batch_size: int
    learning_rate: float
    lora: Lora | None
    evals_per_epoch: int
    metric_for_best_model: str
    micro_batch_size: int | None = None
    dtype: Dtype = "float32"
    gradient_checkpointing: bool = False
    seed: int = 0
    num_workers: int | None = None

    @property
    def captions_per_entry(self) -> int:
        """N: how many captions of an entry are in a batch."""
        return captions_per_entry(self.captions)

    def to_yaml(self) -> str:
        """All fields, as a preset has them."""
        return str(yaml.safe_dump(_plain(dataclasses.asdict(self)), sort_keys=False))


def captions_per_entry(captions: str) -> int:
    """N of "first" and "pickN"."""
    return 1 if captions == "first" else int(captions.removeprefix("pick"))


def presets() -> list[str]:
    """The names of all presets."""
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def load_config(preset: str | Path, **changes: Any) -> TrainConfig:
    """A preset, with changes.

    Args:
        preset: One of `presets()`, or a YAML file of the same fields, such as a run's train_config.yaml.
        changes: Fields of `TrainConfig` or `Lora` by name; those that are None change nothing. `lora=False` trains all
            weights.

    Raises:
        DCIError: If there is no such preset, or a field is unknown, missing, or not as it must be.
    """
    name = str(preset)
    fields = _read(name)
    # What a run adds to say what it ran on.
    for key in ("model", "dataset", "test_dataset"):
        fields.pop(key, None)
    given = {key: value for key, value in changes.items() if value is not None}
    if given.get("lora") is False:
        fields["lora"], given["lora"] = None, None
    lora = {key: given.pop(key) for key in [f.name for f in dataclasses.fields(Lora)] if key in given}
    if lora and not isinstance(fields.get("lora"), Mapping):
        raise DCIError(f"{next(iter(lora))}: is of a LoRA adapter, and all weights are trained here; leave one out")
    fields |= {"preset": fields.get("preset", Path(name).stem)} | given
    if lora:
        fields["lora"] = dict(fields["lora"]) | lora
    return _checked(fields, name)


def _read(name: str) -> dict[str, Any]:
    """The fields of a preset over those of the one that it is based on."""
    path = PRESETS / f"{name}.yaml" if name in presets() else Path(name)
    if not path.is_file():
        raise DCIError(f"no preset {name!r}: expected one of {', '.join(presets())}, or a YAML file of such fields")
    try:
        found = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        raise DCIError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from error
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise DCIError(f"{path}: expected fields and values, as in {PRESETS / 'sdci_p1.yaml'}")
    base = found.pop("based_on", None)
    if base is None:
        return found
    if base not in presets() or base == path.stem:
        raise DCIError(f"{path}: field `based_on`: no preset {base!r}: expected one of {', '.join(presets())}")
    return _read(base) | {"preset": path.stem} | found


def _checked(fields: dict[str, Any], name: str) -> TrainConfig:
    known = {field.name: field for field in dataclasses.fields(TrainConfig)}
    unknown = [key for key in fields if key not in known]
    if unknown:
        raise DCIError(f"{name}: no field `{unknown[0]}`: expected some of {', '.join(known)}")
    missing = [key for key, field in known.items() if field.default is dataclasses.MISSING and key not in fields]
    if missing:
        raise DCIError(f"{name}: field `{missing[0]}` is missing; expected all that sdci_p1.yaml has")

    def number(key: str, least: float, kind: type = int, optional: bool = False) -> None:
        value = fields.get(key, 1)
        if optional and value is None:
            return
        fits = isinstance(value, (int, float) if kind is float else int) and not isinstance(value, bool)
        if not fits or not least <= value < float("inf"):
            what = "a number" if kind is float else "a whole number"
            raise DCIError(f"{name}: field `{key}`: expected {what} of at least {least:g}, got {value!r}")

    def choice(key: str, choices: tuple[Any, ...]) -> None:
        if fields.get(key, choices[0]) not in choices:
            raise DCIError(
                f"{name}: field `{key}`: expected one of {', '.join(map(str, choices))}, got {fields[key]!r}"
            )

    if not isinstance(fields["preset"], str):
        raise DCIError(f"{name}: field `preset`: expected a name, got {fields['preset']!r}")
    if not re.fullmatch(r"first|pick[1-9]\d?", str(fields["captions"])):
        raise DCIError(f"{name}: field `captions`: expected first, pick1, pick5, ..., got {fields['captions']!r}")
    for key, kind in CHOICES.items():
        choice(key, get_args(kind))
    for key in ("submasks", "gradient_checkpointing"):
        choice(key, (False, True))
        if not isinstance(fields.get(key, False), bool):  # 0 and 1 equal them
            raise DCIError(f"{name}: field `{key}`: expected true or false, got {fields[key]!r}")
    for key in ("clip_weight", "negatives_weight", "learning_rate"):
        number(key, 0, float)
    for key, least in (("epochs", 1), ("batch_size", 2), ("evals_per_epoch", 1), ("seed", 0)):
        number(key, least)
    for key, least in (("max_photos", 1), ("micro_batch_size", 1), ("num_workers", 0)):
        number(key, least, optional=True)
    choice("metric_for_best_model", (LOSS, *TASKS))
    if fields["clip_weight"] == fields["negatives_weight"] == 0:
        raise DCIError(f"{name}: fields `clip_weight`, `negatives_weight`: both are 0; there is nothing to train")
    return TrainConfig(**fields | {"lora": _lora(fields["lora"], name)})


def _lora(fields: Any, name: str) -> Lora | None:
    if fields is None:
        return None
    known = [field.name for field in dataclasses.fields(Lora)]
    if not isinstance(fields, Mapping) or set(fields) != set(known):
        raise DCIError(f"{name}: field `lora`: expected {', '.join(known)}, or null to train all weights")
    rank, alpha, dropout, targets = (fields[key] for key in ("rank", "alpha", "dropout", "target_modules"))
    whole = all(isinstance(value, int) and not isinstance(value, bool) and value >= 1 for value in (rank, alpha))
    if not whole or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise DCIError(
            f"{name}: field `lora`: expected whole numbers `rank` and `alpha` of at least 1 and a `dropout` from 0 to "
            f"below 1, got {rank!r}, {alpha!r}, {dropout!r}"
        )
    if fields["bias"] not in ("none", "all", "lora_only"):
        raise DCIError(f"{name}: field `lora.bias`: expected none, all or lora_only, got {fields['bias']!r}")
    if not isinstance(targets, list | tuple) or not targets or not all(isinstance(t, str) and t for t in targets):
        raise DCIError(f"{name}: field `lora.target_modules`: expected names of layers, got {targets!r}")
    return Lora(rank, alpha, float(dropout), fields["bias"], tuple(targets))


def _plain(value: Any) -> Any:
    """Tuples as lists: YAML has no other."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
