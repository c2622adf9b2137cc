"""Files appear whole or not at all, and what exists is not overwritten unless that is asked for."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dci import DCIError


def refuse_existing(path: Path, force: bool) -> None:
    """Stop before any work is done when its result could not be written.

    Raises:
        DCIError: If the file or folder exists and `force` is off, or its parent is no folder.
    """
    if path.exists() and not force:
        raise DCIError(f"{path}: exists; choose another name, or overwrite it with --force")
    if not path.parent.is_dir():
        raise DCIError(f"{path}: there is no folder {path.parent}; make it first")


def refuse_unwritable(path: Path, force: bool) -> None:
    """As `refuse_existing`, for what is to be a file.

    Raises:
        DCIError: Also if it is a folder or a device, whether `force` is on or off, or its folder cannot be written.
    """
    if path.is_dir():
        raise DCIError(f"{path}: is a folder; expected the name of a file")
    if path.exists() and not path.is_file():
        # A device or a pipe would be replaced by the file.
        raise DCIError(f"{path}: is no ordinary file; choose another name")
    refuse_existing(path, force)
    if not os.access(path.parent, os.W_OK):
        raise DCIError(f"{path}: the folder {path.parent} cannot be written; choose another one")


def write_whole(path: Path, content: bytes, force: bool = False) -> None:
    """Write a file through a neighbour that is renamed when it is complete.

    Raises:
        DCIError: If the file exists and `force` is off, or it cannot be written.
    """
    with unfinished_file(path, force) as file:
        file.write(content)


@contextmanager
def unfinished_file(path: Path, force: bool = False) -> Iterator[IO[bytes]]:
    """A file to write piece by piece, which gets its name when all is written, and goes when anything fails.

    Raises:
        DCIError: If the file exists and `force` is off, or it cannot be written.
    """
    refuse_unwritable(path, force)
    unfinished = None
    try:
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}-", delete=False) as file:
            unfinished = Path(file.name)
            yield file
        # Temporary files are for their owner alone; a result is as readable as any file of the user's.
        umask = os.umask(0)
        os.umask(umask)
        unfinished.chmod(0o666 & ~umask)
        unfinished.replace(path)
    except OSError as error:
        raise DCIError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
