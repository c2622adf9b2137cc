"""A virtual environment with everything that this one has, except this package: what a user of the Space has."""

import os
import site
import sys
import venv
from pathlib import Path

HIDE = """\
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("dci", "dci_metrics"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Hidden())
"""


def make(folder: Path) -> Path:
    """The environment's Python; run it with `environment()`."""
    venv.create(folder, symlinks=True, with_pip=False)
    python = folder / "bin" / "python"
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    ours = [Path(path) for path in site.getsitepackages() if Path(path).is_dir()]
    # As plain folders: the .pth files in them, such as that of an editable install, are not read.
    (packages / "ours.pth").write_text("".join(f"{path}\n" for path in ours))
    if any((path / "dci_metrics").exists() for path in ours):
        (packages / "sitecustomize.py").write_text(HIDE)
    return python


def environment(home: Path) -> dict[str, str]:
    """Without what would show it this package or these tests' caches."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return kept | {"HF_HOME": str(home)}
