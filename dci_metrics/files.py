"""Files appear whole or not at all, and what exists is not overwritten unless that is asked for."""

import errno
import os
import shutil
import tempfile
import uuid
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


def is_disk_full(error: OSError) -> bool:
    """Whether a file could not be written for want of space."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def unfinished_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path`, to be renamed to it when all is written; it is gone in the end if it was not.

    Raises:
        DCIError: If it cannot be made.
    """
    unfinished = path.parent / f".{path.name}-{uuid.uuid4().hex[:8]}"
    try:
        unfinished.mkdir(parents=True)
    except OSError as error:
        if is_disk_full(error):
            raise
        raise DCIError(f"{path}: cannot be made ({error.strerror}); name another folder") from error
    try:
        yield unfinished
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


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
