"""The DCI benchmark: score CLIP-style models on densely captioned images.

    result = dci_metrics.evaluate("openai/clip-vit-base-patch32", load_dataset("dci", "sdci", split="test"))
    metric = evaluate.load(dci_metrics.metric_path("dci_scm"))

What it exports is imported on first use: importing torch and transformers takes seconds, and not all of it needs them.
"""

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dci_metrics.version import __version__

if TYPE_CHECKING:
    from dci import DCIError
    from dci_metrics.benchmark import evaluate
    from dci_metrics.results import Result

__all__ = ["DCIError", "Result", "__version__", "evaluate", "metric_path"]

_HOMES = {"DCIError": "dci", "evaluate": "dci_metrics.benchmark", "Result": "dci_metrics.results"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def metric_path(name: str) -> str:
    """The folder of one of this package's metrics, for `evaluate.load`.

    Args:
        name: `dci_scm` or `dci_retrieval`.

    Raises:
        DCIError: If there is no such metric.
    """
    folder = Path(__file__).parent / name
    if not (folder / f"{name}.py").is_file():
        from dci import DCIError

        known = sorted(path.parent.name for path in folder.parent.glob("*/*.py") if path.stem == path.parent.name)
        raise DCIError(f"no metric {name!r}: expected {' or '.join(known)}")
    return str(folder)
