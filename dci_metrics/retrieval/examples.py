"""One row per query: what it ranked first in its stead, and where its own stands.

dci eval MODEL --tests retrieval --protocol lotlip --dataset dci --examples ranks.parquet
"""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dci_metrics.examples import ABOUT, about, opened, storable
from dci_metrics.files import unfinished_file
from dci_metrics.results import Result
from dci_metrics.retrieval.pools import Pool
from dci_metrics.retrieval.ranking import Ranks
from dci_metrics.retrieval.run import Scored

SCHEMA = pa.schema(
    {
        "protocol": pa.string(),
        "direction": pa.string(),
        "image_id": pa.string(),
        "key": pa.string(),
        "text": pa.string(),
        "rank": pa.int64(),
        "score": pa.float32(),
        "rival_score": pa.float32(),
        "rival_image_id": pa.string(),
        "rival_text": pa.string(),
        "margin": pa.float32(),
        "tied": pa.bool_(),
    }
)
"""`direction` is i2t or t2i; `text` is the query's own, of several the first. `rank` is of its best own item, `score`
that item's cosine. The rival is the best item that is not its own: a photo's (`rival_text` null) where a text is the
query, a text of another photo where a photo is. `margin` is `score` - `rival_score`, null where there is no other
item."""

BATCH = 1024
"""Rows that are held with their texts at once."""


def write(path: Path, scored: Scored, result: Result, force: bool = False) -> None:
    """Write the file, protocol by protocol; it appears whole or not at all.

    Raises:
        DCIError: If it exists and `force` is off, or it cannot be written.
    """
    schema = SCHEMA.with_metadata({ABOUT: json.dumps(about(result), sort_keys=True).encode()})
    with unfinished_file(path, force) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for pool in scored.pools:
            for direction in ("i2t", "t2i"):
                writer.write_table(_table(pool, direction, scored.ranked[f"{pool.protocol.key}_{direction}"]))


def read(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Read a file that `write` wrote: which run it is of, and its rows, but for their texts, which are long.

    Raises:
        DCIError: If it is none.
    """
    with opened(path, SCHEMA) as (run, file):
        return run, file.read(["protocol", "direction", "image_id", "key", "rank", "margin"]).to_pylist()


def read_rows(path: Path, places: Collection[int]) -> dict[int, dict[str, Any]]:
    """Some rows of such a file with all there is of them, by their number."""
    found: dict[int, dict[str, Any]] = {}
    start = 0
    with opened(path, SCHEMA) as (_, file):
        for batch in file.iter_batches(BATCH):
            inside = [place for place in places if start <= place < start + len(batch)]
            found |= {place: batch.slice(place - start, 1).to_pylist()[0] for place in inside}
            start += len(batch)
    return found


def _table(pool: Pool, direction: str, ranked: Ranks) -> pa.Table:
    by_photo = direction == "i2t"
    queries = pool.photo_keys if by_photo else pool.text_keys
    texts = [storable(text) for text in pool.texts]
    owner, rivals = pool.owner.tolist(), ranked.rival.tolist()
    rival_photos = [-1 if rival < 0 else owner[rival] if by_photo else rival for rival in rivals]
    known = [rival >= 0 for rival in rivals]
    first = pool.own_texts[:, 0].tolist() if by_photo else range(len(texts))

    def where(values: list[float]) -> list[float | None]:
        return [value if has else None for has, value in zip(known, values, strict=True)]

    columns = {
        "protocol": [pool.protocol.key] * len(queries),
        "direction": [direction] * len(queries),
        "image_id": [image_id for image_id, _ in queries],
        "key": [key for _, key in queries],
        "text": [texts[i] for i in first],
        "rank": ranked.ranks[:, 0].tolist(),
        "score": ranked.own_score.tolist(),
        "rival_score": where(ranked.rival_score.tolist()),
        "rival_image_id": [pool.photos[photo] if photo >= 0 else None for photo in rival_photos],
        "rival_text": [texts[rival] if by_photo and rival >= 0 else None for rival in rivals],
        "margin": where((ranked.own_score - ranked.rival_score).tolist()),
        "tied": ranked.tied.tolist(),
    }
    return pa.table(columns, schema=SCHEMA)
