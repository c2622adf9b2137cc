"""A metric as a Space: `evaluate.load("you/dci_scm")` works where this package is not installed.

What scoring embeddings needs is copied beside the metric. `evaluate` fetches the modules that the metric's own file
imports relatively, one import a line, and looks no further; so the copies import each other relatively, and the
metric's file names all of them.
"""

import re
from pathlib import Path

from dci import DCIError
from dci_metrics import metric_path
from dci_metrics.hub.publishing import Destination, publish
from dci_metrics.version import __version__

MODULES = {
    "dci_scm": ("embeddings", "scoring", "similarity", "tasks"),
    "dci_retrieval": ("retrieval.embeddings", "retrieval.measures", "retrieval.ranking", "similarity"),
}
"""By metric, what scoring embeddings needs: they import each other, torch, NumPy, and nothing else that is not Python's
own. In the Space they all lie beside each other."""

FILES = ("README.md", "app.py", "index.html", "requirements.txt")
"""Beside the metric's own, which has its name."""

PLACEHOLDER = "you/"
"""The owner of the Space, as the metric's files call it."""

IMPORT = re.compile(r"^from dci_metrics(?:\.(?P<module>[\w.]+))? import ", re.MULTILINE)

# Without `import torch` its absence would come as an error from the depths of a copy; `evaluate` says what to install.
NAMED = "# `evaluate` fetches what is imported here, and looks no further.\nimport torch\n\n"


def push(
    repo: str, *, create_pr: bool = False, private: bool = False, dry_run: Path | None = None, progress: bool = True
) -> str:
    """Upload a metric as a static Space.

    Args:
        repo: `owner/dci_scm` or `owner/dci_retrieval`: the name tells which metric.
        create_pr: Whether it becomes a pull request.
        private: Whether a Space that is made for it is private.
        dry_run: A folder to write instead.
        progress: Whether to show it.

    Returns:
        The address of the commit or pull request, or the folder of a dry run.

    Raises:
        DCIError: If the name would not load, or as `publish`.
    """
    if metric_of(repo) not in MODULES:
        names = " or ".join(MODULES)
        raise DCIError(
            f"{repo}: `evaluate` looks in a Space for a file of the Space's name; call it {names}, as "
            f"OWNER/{next(iter(MODULES))}"
        )
    destination = Destination(repo, "space", create_pr=create_pr, private=private, dry_run=dry_run)
    message = f"Upload the metric of dci-metrics {__version__}"
    return publish(lambda folder: write(folder, repo), destination, message, progress)


def write(folder: Path, repo: str) -> None:
    """Write the files of the Space into a folder.

    Args:
        folder: Is there, and empty.
        repo: The Space's name, for what the files say about their use.
    """
    metric = metric_of(repo)
    source = Path(metric_path(metric))
    for name in (*FILES, f"{metric}.py"):
        text = (source / name).read_text("utf-8").replace(PLACEHOLDER + metric, repo)
        if name == f"{metric}.py":
            text = _metric(text, metric)
        _write(folder / name, _script(text, metric) if name == "app.py" else text)
    for module in MODULES[metric]:
        path = f"{module.replace('.', '/')}.py"
        _write(folder / Path(path).name, _header(path) + _relative((source.parent / path).read_text("utf-8")))


def metric_of(repo: str) -> str:
    """The metric that a Space is for."""
    return repo.rpartition("/")[2]


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8", newline="\n")


def _header(name: str) -> str:
    return (
        f"# A copy of dci_metrics/{name} of dci-metrics {__version__}, made by `dci push metric`: change it there.\n"
        "# SPDX-License-Identifier: Apache-2.0\n"
    )


def _metric(text: str, metric: str) -> str:
    """The metric's own file, with all modules that it needs named in it."""
    used = {match["module"] for match in IMPORT.finditer(text)}
    names = (_flat(module) for module in MODULES[metric] if module not in used)
    others = "".join(f"from .{name} import __doc__ as _{name}\n" for name in names)
    first = next(IMPORT.finditer(text)).start()
    return _header(f"{metric}/{metric}.py") + _relative(text[:first] + NAMED + others + text[first:])


def _script(text: str, metric: str) -> str:
    """The app, which is run from the folder as a script."""
    return _header(f"{metric}/app.py") + IMPORT.sub(lambda match: f"from {_flat(match['module'])} import ", text)


def _relative(text: str) -> str:
    """Imports of the package's modules as those of files in the same folder."""
    return IMPORT.sub(lambda match: f"from .{_flat(match['module'] or '')} import ", text)


def _flat(module: str) -> str:
    return module.rpartition(".")[2]
