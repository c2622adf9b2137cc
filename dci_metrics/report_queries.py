"""The queries of retrieval that a report shows one by one, and the walk over the data that finds their photos."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from dci import DCIError
from dci_metrics.report_cases import CASES, Picture, picture_of, scored_photos
from dci_metrics.results import Result
from dci_metrics.retrieval import examples
from dci_metrics.retrieval.measures import ListKey, read_ranks
from dci_metrics.retrieval.photos import Image, Reader, SeenPhoto, open_photos
from dci_metrics.retrieval.pools import Pairs
from dci_metrics.retrieval.protocols import DIRECTIONS, PROTOCOLS
from dci_metrics.sources import Source


@dataclass(frozen=True)
class Query:
    """A photo that does not rank its own text first, or a text that does not rank its own photo first.

    Attributes:
        protocol: That makes its text.
        direction: `i2t` or `t2i`.
        image_id: Of the photo.
        key: "photo", or "text-0" for the first text of the photo.
        ranks: Of its own item, by model.
        gallery: How many items are ranked.
        text: The photo's own; None where it is in a list that the report does not have.
        score: Cosine of its own item; None where only ranks are known.
        rival_score: Of what stands first in its stead; likewise.
        rival_image_id: Its photo; likewise.
        rival_text: The text, where texts are ranked; likewise.
        picture: The photo.
        rival_picture: The one that stands first in its stead, where photos are ranked.
    """

    protocol: str
    direction: str
    image_id: str
    key: str
    ranks: tuple[int, ...]
    gallery: int
    text: str | None = None
    score: float | None = None
    rival_score: float | None = None
    rival_image_id: str | None = None
    rival_text: str | None = None
    picture: Picture | None = None
    rival_picture: Picture | None = None

    @property
    def photos(self) -> set[str]:
        """Those that are shown."""
        rival = self.rival_image_id if self.direction == "t2i" else None
        return {self.image_id} if rival is None else {self.image_id, rival}

    @property
    def title(self) -> str:
        """What it is called: its photo, and of a photo's several texts which one."""
        return f"{self.image_id}, text {self.number + 1}" if self.number else self.image_id

    @property
    def number(self) -> int:
        """Of the photo's texts, the one that is shown; most photos have one."""
        return int(self.key.rpartition("-")[2]) if self.direction == "t2i" else 0


@dataclass(frozen=True)
class Seen:
    """What the walk over the data gives.

    Attributes:
        pictures: Of the wanted photos.
        texts: Of the wanted photos, by protocol.
    """

    pictures: Mapping[str, Picture]
    texts: Mapping[str, Mapping[str, tuple[str, ...]]]

    def complete(self, queries: Iterable[Query]) -> list[Query]:
        """The queries with their photos, and texts where they had none."""
        found = []
        for query in queries:
            own = self.texts[query.image_id].get(query.protocol, ())
            text = own[query.number] if query.text is None and query.number < len(own) else query.text
            rival = self.pictures.get(query.rival_image_id or "") if query.direction == "t2i" else None
            found.append(replace(query, text=text, picture=self.pictures[query.image_id], rival_picture=rival))
        return found


def pick_worst(
    result: Result, path: Path, rows: Sequence[Mapping[str, Any]], passed_over: Collection[tuple[str, str]]
) -> list[Query]:
    """The queries of the lowest ranks, those first whose rival is furthest ahead of equal ones.

    Args:
        result: What the file of examples is of.
        path: That file.
        rows: Of it, without texts.
        passed_over: (image_id, protocol) of queries that are not shown.
    """
    asked = ((place, row) for place, row in enumerate(rows) if (row["image_id"], row["protocol"]) not in passed_over)
    wrong = [place for place, row in asked if row["rank"] > 1]
    wrong.sort(key=lambda place: (-rows[place]["rank"], rows[place]["margin"] or 0.0))
    places = _one_a_photo(wrong, lambda place: (rows[place]["direction"], rows[place]["image_id"]))
    whole = examples.read_rows(path, places)
    found = []
    for row in (whole[place] for place in places):
        names = ("protocol", "direction", "image_id", "key", "text")
        rivals = ("score", "rival_score", "rival_image_id", "rival_text")
        gallery = _gallery(result, row["protocol"], row["direction"])
        found.append(Query(**{name: row[name] for name in (*names, *rivals)}, ranks=(row["rank"],), gallery=gallery))
    return found


def pick_shared(results: Sequence[Result], passed_over: Collection[tuple[str, str]]) -> list[Query]:
    """The queries that no model ranks first, those first that the best of the models ranks lowest.

    Args:
        results: Of the same data.
        passed_over: (image_id, protocol) of queries that are not shown.
    """
    missed = []
    for name in (name for name in results[0].ranks if all(name in result.ranks for result in results)):
        protocol, direction = ListKey.parse(name)
        of_models = [_first_ranks(result, name) for result in results]
        gallery = _gallery(results[0], protocol, direction)
        for entry in of_models[0]:
            ranks = tuple(of_model[entry] for of_model in of_models)
            if min(ranks) > 1 and (entry[0], protocol) not in passed_over:
                missed.append(Query(protocol, direction, *entry, ranks, gallery))
    missed.sort(key=lambda query: (-min(query.ranks), -sum(query.ranks)))
    return _one_a_photo(missed, lambda query: (query.direction, query.image_id))


def open_data(dataset: Any, photos: str | Path | None, results: Sequence[Result]) -> tuple[Source, Reader]:
    """The rows with the texts of all protocols that the results have, but for those in the user's list.

    Args:
        dataset: As `dci_metrics.evaluate` takes it.
        photos: Likewise.
        results: Of the same data.

    Raises:
        DCIError: If there is no such dataset.
    """
    keys = dict.fromkeys(key for result in results for key in result.settings["protocols"])
    # One of a later version is not known here.
    protocols = [PROTOCOLS[key] for key in keys if key in PROTOCOLS and PROTOCOLS[key].needs != "list"]
    source, summaries = open_photos(dataset, protocols, results[0].dataset["split"], "skip", photos)
    return source, Reader(protocols, {}, summaries, None)


def without_text(source: Source, reader: Reader, results: Sequence[Result]) -> set[tuple[str, str]]:
    """(image_id, protocol) of the photos whose text is empty: of them, a model can rank nothing."""
    if not any(score.empty_texts for result in results for score in result.scores.values()):
        return set()
    found = ((photo.image_id, _texts(photo)) for photo in map(reader, source.read(photos=False)))
    return {(i, key) for i, texts in found for key, own in texts.items() if not "".join(own).strip()}


def walk(source: Source, reader: Reader, results: Sequence[Result], wanted: Collection[str]) -> Seen:
    """Read the data once: the wanted photos, and their texts.

    Args:
        source: The data.
        reader: Of its texts.
        results: They tell which photos were passed over.
        wanted: image_id of the photos that are shown.

    Raises:
        DCIError: If it is not the data of the results.
    """
    told = {key: of_key for result in results for key, of_key in result.settings["protocols"].items()}
    pairs = {protocol.key: Pairs() for protocol in reader.protocols}
    pictures, texts = {}, {}
    for photo in scored_photos(source, results[0], reader):
        own = _texts(photo)
        for key, of_key in own.items():
            for text in of_key:
                pairs[key].add(photo.image_id, text)
        if photo.image_id in wanted:
            pictures[photo.image_id], texts[photo.image_id] = picture_of(photo.open()), own
    for key, found in pairs.items():
        if found.hexdigest() != told[key]["fingerprint"]:
            raise DCIError(
                f"{source.id}: is not the data of the results: the fingerprint of its texts of {key} is "
                f"{found.hexdigest()}, theirs is {told[key]['fingerprint']}"
            )
    missing = sorted(set(wanted) - set(pictures))
    if missing:
        raise DCIError(f"{source.id}: has no photo {missing[0]}, which the results name among their `entries`")
    return Seen(pictures, texts)


def _texts(photo: SeenPhoto) -> dict[str, tuple[str, ...]]:
    """The texts of a photo by protocol."""
    return {key: texts for e in photo.entries if isinstance(e, Image) for key, texts in e.texts_of.items()}


def agree(result: Result, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the ranks of a file of examples are those of a result."""
    found: dict[str, dict[tuple[str, str], int]] = {}
    for row in rows:
        found.setdefault(f"{row['protocol']}_{row['direction']}", {})[row["image_id"], row["key"]] = row["rank"]
    return found == {name: _first_ranks(result, name) for name in result.ranks}


def _first_ranks(result: Result, name: str) -> dict[tuple[str, str], int]:
    """The rank of the best own item of each query."""
    ranked = zip(result.entries, read_ranks(result.ranks[name]), strict=True)
    return {entry: ranks[0] for entry, ranks in ranked if ranks is not None}


def _gallery(result: Result, protocol: str, direction: str) -> int:
    return int(result.settings["protocols"][protocol]["texts" if direction == "i2t" else "photos"])


Item = TypeVar("Item")


def _one_a_photo(items: Iterable[Item], photo_of: Callable[[Item], tuple[str, str]]) -> list[Item]:
    """The first ones, each photo once a direction, as many of each; image → text before text → image."""
    found: dict[str, dict[str, Item]] = {direction: {} for direction in DIRECTIONS}
    for item in items:
        direction, image_id = photo_of(item)
        if len(found[direction]) < CASES // len(DIRECTIONS):
            found[direction].setdefault(image_id, item)
    return [item for of_direction in found.values() for item in of_direction.values()]
