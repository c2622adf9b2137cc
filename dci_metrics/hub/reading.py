"""Rows of a release as Arrow batches, decoded by as many processes as are asked for, in order."""

import collections
import contextlib
import dataclasses
import functools
import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pyarrow as pa

import dci

PIECE = 4
"""Photos that a process reads at a time: about two seconds of decoding and 5 MB."""


@dataclasses.dataclass(frozen=True)
class Counts:
    """How much there is: photos, masks, entries, and relatives that masks name and that do not exist."""

    photos: int = 0
    masks: int = 0
    entries: int = 0
    ignored: int = 0

    def __add__(self, other: "Counts") -> "Counts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counts(*(mine + theirs for mine, theirs in pairs))


@dataclasses.dataclass(frozen=True)
class Piece:
    """The rows of a few photos, a batch each; `skipped` are those that could not be used."""

    rows: list[pa.RecordBatch]
    counts: Counts
    skipped: list[dci.Skipped]


@dataclasses.dataclass(frozen=True)
class ReleaseRows:
    """What to read.

    Attributes:
        release: The release's files.
        columns: `full`, `sdci` or `both`.
        photos: Whether rows carry the photo.
        on_error: "raise" or "skip".
    """

    release: dci.Release
    columns: str
    photos: bool
    on_error: str

    @functools.cached_property
    def schema(self) -> pa.Schema:
        """The columns without the `huggingface` metadata, which each version of `datasets` reads its own way."""
        return dci.features(self.columns).arrow_schema.remove_metadata()

    def read(self, names: Sequence[str]) -> Piece:
        """The rows of some annotation files.

        Raises:
            dci.DCIError: For the first file that cannot be used, unless `on_error` is "skip".
        """
        rows, skipped, counts = [], [], Counts()
        for name in names:
            try:
                annotation = self.release.annotation(name)
                rows.append(self._row(annotation))
            except dci.DCIError as error:
                if self.on_error == "raise":
                    raise
                skipped.append(dci.Skipped(dci.image_id_of(name), self._reason(error)))
            else:
                counts += Counts(1, len(annotation.masks), 1 + len(annotation.subcrops()), annotation.ignored)
        return Piece(rows, counts, skipped)

    def _reason(self, error: dci.DCIError) -> str:
        """Without the folders of this machine: it stands in the README, which goes to the Hub."""
        reason = str(error)
        for place in (self.release.root, self.release.photos):
            if place is not None:
                reason = reason.replace(f"{place.parent}/", "")
        return reason

    def _row(self, annotation: dci.Annotation) -> pa.RecordBatch:
        photo = self.release.photo(annotation.file_name) if self.photos else None
        row = dci.make_row(annotation, self.columns, photo)
        return pa.RecordBatch.from_pylist([row], schema=self.schema)


@contextlib.contextmanager
def reader(source: ReleaseRows, num_proc: int) -> Iterator[Callable[[Sequence[str]], Iterator[Piece]]]:
    """A function from annotation files to their rows, in order, that reads ahead in `num_proc` processes.

    The processes only decode. One process writes, which is what keeps rows in order and files at their size; it
    handles some hundred photos a second where a decoding process does two or three.

    Raises:
        dci.DCIError: If a process dies.
    """
    if num_proc == 1:
        yield lambda names: map(source.read, _pieces(names))
        return
    # Spawned, because a fork of a process with threads (Arrow's, tqdm's) may hang.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_proc, context, initializer=_start, initargs=(source,))
    try:
        yield functools.partial(_read_ahead, pool, 2 * num_proc)
    except BrokenProcessPool as error:
        raise dci.DCIError(
            "a process that decodes masks died: out of memory, or called from a script without "
            '`if __name__ == "__main__":`; ask for fewer processes'
        ) from error
    finally:
        pool.shutdown(cancel_futures=True)


def _read_ahead(pool: ProcessPoolExecutor, ahead: int, names: Sequence[str]) -> Iterator[Piece]:
    waiting: collections.deque[Future[Piece]] = collections.deque()
    for piece in _pieces(names):
        waiting.append(pool.submit(_read, piece))
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


def _pieces(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + PIECE] for start in range(0, len(names), PIECE))


_source: ReleaseRows
"""What a worker process reads; set once, since the index of the photo archive comes with it."""


def _start(source: ReleaseRows) -> None:
    global _source
    _source = source
    # Ctrl-C reaches all processes of the terminal; the one that writes ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read(names: Sequence[str]) -> Piece:
    return _source.read(names)
