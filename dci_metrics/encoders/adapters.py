"""PEFT adapters, such as the paper's LoRA weights, over a model of transformers. Only this file imports `peft`."""

import pickle
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import safetensors.torch
import torch

from dci import DCIError
from dci_metrics import revisions

CONFIG = "adapter_config.json"
WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
"""What PEFT calls the weights, today and until 2023; the first that is there is read."""


@dataclass(frozen=True)
class Merged:
    """A model with an adapter in its weights.

    Attributes:
        model: Of the class it was.
        base: What the adapter's config says that it was made for.
        revision: Of the adapter: its commit on the Hub, or the hash of its weights.
    """

    model: Any
    base: str | None
    revision: str | None


SHOWN = 3
"""How many keys an error names."""


def merge(model: Any, adapter: str) -> Merged:
    """Add an adapter to a model's weights, so that it costs nothing more to run.

    Args:
        model: Of transformers; it is changed.
        adapter: A folder with adapter_config.json and adapter_model.safetensors or .bin, or the Hub id of one.

    Raises:
        DCIError: If PEFT is not installed, or the adapter cannot be read, or is not wholly one for this model.
    """
    folder = _folder(adapter)
    adapted = attach(model, adapter)
    # The Hub's folders are called by their commits.
    revision = revisions.of_weights(folder) if Path(adapter).exists() else folder.name
    with _peft_errors(adapter):
        return Merged(adapted.merge_and_unload(), adapted.active_peft_config.base_model_name_or_path, revision)


def attach(model: Any, adapter: str) -> Any:
    """Lay an adapter over a model, unmerged.

    PEFT itself is content with an adapter that matches nothing, and then the bare model runs.

    Args:
        model: Of transformers; it is changed.
        adapter: As in `merge`.

    Returns:
        The `peft.PeftModel`, in evaluation mode.

    Raises:
        DCIError: As in `merge`.
    """
    peft = _peft()
    folder = _folder(adapter)
    config = _config(peft, folder, adapter)
    weights = _weights(folder, adapter)
    with _peft_errors(adapter):
        adapted = peft.PeftModel(model, config)
        wanted = peft.get_peft_model_state_dict(adapted, save_embedding_layers=False)
        # An adapter may bring weights of the model itself, such as embeddings of new words.
        known = {**adapted.state_dict(), **wanted}
    renamed = {_name_of_today(key, known): value for key, value in weights.items()}
    _check_fit(renamed, wanted, known, adapter)
    with _peft_errors(adapter):
        peft.set_peft_model_state_dict(adapted, renamed)
    return adapted.eval()


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise DCIError("adapters need PEFT, which is not installed: pip install 'dci-metrics[train]'") from error
    return peft


def _folder(adapter: str) -> Path:
    """Where an adapter's files are, fetched if need be."""
    path = Path(adapter)
    if not path.exists():
        try:
            path = Path(huggingface_hub.snapshot_download(adapter, allow_patterns=[CONFIG, *WEIGHTS]))
        # No such repo, no network, no name of a repo: each is of a kind of its own.
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise DCIError(
                f"adapter {adapter}: is no folder here, and cannot be fetched from the Hub: {first}"
            ) from error
    if not (path / CONFIG).is_file():
        raise DCIError(f"adapter {adapter}: expected a folder with {CONFIG} and {' or '.join(WEIGHTS)}")
    return path


def _config(peft: Any, folder: Path, adapter: str) -> Any:
    with _peft_errors(adapter, f"{CONFIG} cannot be read"):
        # Fields that PEFT 0.4 did not have take their defaults; those of a later PEFT than this are told of by PEFT.
        config = peft.PeftConfig.from_pretrained(str(folder))
    if config.is_prompt_learning:
        raise DCIError(f"adapter {adapter}: is of type {config.peft_type.value}, which cannot be merged into a model")
    config.inference_mode = True
    return config


def _weights(folder: Path, adapter: str) -> dict[str, torch.Tensor]:
    path = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if path is None:
        raise DCIError(f"adapter {adapter}: has no weights; expected {' or '.join(WEIGHTS)} beside {CONFIG}")
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a strange file may be
            found = torch.load(path, map_location="cpu", weights_only=True)
    # Whatever a broken file makes of the readers.
    except Exception as error:
        first = next(iter(str(error).splitlines()), type(error).__name__)
        why = "broken, or holds code and not only weights" if isinstance(error, pickle.UnpicklingError) else first
        raise DCIError(f"{path}: cannot be read as an adapter's weights: {why}") from error
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise DCIError(f"{path}: expected a dictionary of tensors, as PEFT writes it")
    return dict(found)


def _name_of_today(key: str, known: Collection[str]) -> str:
    """PEFT 0.4 put LoRA into the linear layer; today it is put around it, and what was the layer's has moved."""
    owner, _, leaf = key.rpartition(".")
    moved = f"{owner}.base_layer.{leaf}"
    return moved if key not in known and moved in known else key


def _check_fit(
    weights: Mapping[str, torch.Tensor],
    wanted: Mapping[str, torch.Tensor],
    known: Mapping[str, torch.Tensor],
    adapter: str,
) -> None:
    """Raise a DCIError unless every weight of the adapter has its place, and every place its weight."""
    unused = [key for key in weights if key not in known]
    missing = [key for key in wanted if key not in weights]
    other = [
        f"{key} of {tuple(value.shape)} instead of {tuple(known[key].shape)}"
        for key, value in weights.items()
        if key in known and value.shape != known[key].shape
    ]
    if not any(key in wanted for key in weights):
        raise DCIError(
            f"adapter {adapter}: matches nothing in this model: it has {_some(unused) or 'no weights'}, "
            f"expected {_some(missing)}"
        )
    if unused:
        raise DCIError(
            f"adapter {adapter}: {len(unused)} of its {len(weights)} weights fit nowhere in this model: {_some(unused)}"
        )
    if missing:
        biases = all(key.endswith(".bias") for key in missing)
        raise DCIError(
            f"adapter {adapter}: lacks {len(missing)} weights that its {CONFIG} asks for in this model: "
            f"{_some(missing)}" + (" (some versions of PEFT, such as 0.10, saved no biases of lora_only)" * biases)
        )
    if other:
        raise DCIError(
            f"adapter {adapter}: {len(other)} weights are not of the shape that its {CONFIG} (rank) and this model ask "
            f"for: {_some(other)}"
        )


def _some(keys: Collection[str]) -> str:
    shown = [*keys][:SHOWN]
    return ", ".join(shown) + (", …" if len(keys) > SHOWN else "")


@contextmanager
def _peft_errors(adapter: str, what: str = "cannot be laid over this model") -> Iterator[None]:
    """What PEFT says of an adapter that it cannot use becomes one line; what it warns of is checked here."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    # PEFT raises whatever a config or a module makes it stumble over.
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DCIError(f"adapter {adapter}: {what}: {first}") from error
