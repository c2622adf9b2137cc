"""One row per entry and test: what it scored, what its best rival scored, and by how much it was right or wrong.

dci eval MODEL --dataset dci --out clip.json --examples clip.parquet
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from dci import DCIError
from dci_metrics import scoring
from dci_metrics.files import unfinished_file
from dci_metrics.results import Result
from dci_metrics.scoring import Rivals, Similarity
from dci_metrics.subcrops import Entry
from dci_metrics.tasks import GROUP_SIZE, Task

SCHEMA = pa.schema(
    {
        "image_id": pa.string(),
        "key": pa.string(),
        "mask_id": pa.int32(),
        "crop_xyxy": pa.list_(pa.int32(), 4),
        "test": pa.string(),
        "caption": pa.string(),
        "score": pa.float32(),
        "rival_score": pa.float32(),
        "rival_text": pa.string(),
        "rival_image_id": pa.string(),
        "rival_key": pa.string(),
        "margin": pa.float32(),
        "right": pa.bool_(),
        "rate": pa.float64(),
    }
)
"""`caption` is the entry's own (of several the one that scored lowest, which decides), `score` its cosine or the
model's score of the pair. The rival is what scored highest against it: the negative, another entry's caption, or, where
captions look for their image, another entry's image (`rival_text` is null then). `margin` is `score` - `rival_score`,
null for an entry that is alone in its group. `right` is null in tests on random groups, where `rate` tells how likely
it is right; `rate` is null elsewhere."""

ABOUT = b"dci_metrics"
"""Key in the file's metadata of the result that it belongs to: its model, dataset and settings, as JSON."""


class Tests:
    """The tests of one run, with what is needed to look into them again.

    Args:
        entries: All that are in some test, in the order of the data.
        text_index: Index of each distinct text.
        similarity: Of images and texts.
        tasks: The tests.
    """

    __test__ = False  # none of pytest's

    def __init__(
        self, entries: Sequence[Entry], text_index: Mapping[str, int], similarity: Similarity, tasks: Sequence[Task]
    ) -> None:
        self.entries, self.text_index, self.similarity, self.tasks = entries, text_index, similarity, tasks

    def table(self, task: Task, result: Result) -> pa.Table:
        """The rows of one test."""
        members = task.members(self.entries)
        entries = [self.entries[i] for i in members]
        rivals = self._rivals(task, members)
        texts, values = list(self.text_index), list(result.values_of(task.key).values())
        known = torch.isfinite(rivals.best).tolist()
        sources = [entries[i] if has else None for i, has in zip(rivals.entry.tolist(), known, strict=True)]
        is_rate = task.key in result.rates
        columns = {
            "image_id": [entry.image_id for entry in entries],
            "key": [entry.key for entry in entries],
            "mask_id": [entry.mask_id for entry in entries],
            "crop_xyxy": [list(entry.crop_xyxy) for entry in entries],
            "test": [task.key] * len(entries),
            "caption": [storable(texts[t]) for t in rivals.own_text.tolist()],
            "score": rivals.own.tolist(),
            "rival_score": _where(known, rivals.best.tolist()),
            "rival_text": _where(known, [None if task.by_text else storable(texts[t]) for t in rivals.text.tolist()]),
            "rival_image_id": [source.image_id if source else None for source in sources],
            "rival_key": [source.key if source else None for source in sources],
            "margin": _where(known, (rivals.own - rivals.best).tolist()),
            "right": [None if is_rate else value == 1 for value in values],
            "rate": [value if is_rate else None for value in values],
        }
        return pa.table(columns, schema=SCHEMA)

    def _rivals(self, task: Task, members: Sequence[int]) -> Rivals:
        images = torch.tensor(members, dtype=torch.long)
        texts = [[self.text_index[text] for text in self.entries[i].texts(task)] for i in members]
        table = torch.tensor(texts, dtype=torch.long).reshape(len(members), task.captions + task.has_negative)
        captions, places = table[:, : task.captions], torch.arange(len(members))
        if task.kind == "neg":
            own, which = self.similarity.pairs(images[:, None], captions).min(-1)
            negative = table[:, -1]
            own_text = captions.gather(1, which[:, None])[:, 0]
            return Rivals(own, own_text, self.similarity.pairs(images, negative), negative, places)
        if task.kind == "photo_scm":
            photos: dict[str, list[int]] = {}
            for place, i in enumerate(members):
                photos.setdefault(self.entries[i].image_id, []).append(place)
            blocks: Sequence[torch.Tensor] = [torch.tensor(photo) for photo in photos.values()]
        else:
            blocks = places.split(GROUP_SIZE if task.kind == "scm" else max(1, len(members)))
        return scoring.best_rivals(self.similarity, images, captions, [b for b in blocks if len(b)], task.by_text)


def write(path: Path, tests: Tests, result: Result, force: bool = False) -> None:
    """Write the file, test by test; it appears whole or not at all.

    Raises:
        DCIError: If it exists and `force` is off, or it cannot be written.
    """
    schema = SCHEMA.with_metadata({ABOUT: json.dumps(about(result), sort_keys=True).encode()})
    with unfinished_file(path, force) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for task in tests.tasks:
            writer.write_table(tests.table(task, result))


def about(result: Result) -> dict[str, Any]:
    """What tells one run from another."""
    return {"model": result.model, "dataset": result.dataset, "settings": result.settings}


def read(path: Path) -> tuple[dict[str, Any], pa.Table]:
    """Read a file that `write` wrote: which run it is of, and its rows.

    Raises:
        DCIError: If it is none.
    """
    with opened(path, SCHEMA) as (run, file):
        return run, file.read()


@contextmanager
def opened(path: Path, schema: pa.Schema) -> Iterator[tuple[dict[str, Any], pq.ParquetFile]]:
    """A file of examples while it is read: which run it is of, and the file.

    Raises:
        DCIError: If it is none with rows of the schema, or cannot be read.
    """
    try:
        with pq.ParquetFile(path) as file:
            run = (file.schema_arrow.metadata or {}).get(ABOUT)
            if run is None or file.schema_arrow.names != schema.names:
                raise DCIError(f"{path}: is no file of `dci eval --examples`, or one of other tests than the results")
            yield json.loads(run), file
    except (OSError, pa.ArrowInvalid) as error:
        raise DCIError(f"{path}: cannot be read ({error}); expected a file of `dci eval --examples`") from error


def _where(known: Sequence[bool], values: Sequence[Any]) -> list[Any]:
    return [value if has else None for has, value in zip(known, values, strict=True)]


def storable(text: str) -> str:
    """Arrow's text is UTF-8, which half of a surrogate pair, as JSON may have it, is not."""
    return text.encode("utf-8", "replace").decode()
