"""Whether a result file's ranks are of its entries, and its scores are those of its ranks."""

import re
from typing import TYPE_CHECKING, Any

from dci_metrics.retrieval.measures import ListKey, Measure, ScoreKey, read_ranks
from dci_metrics.retrieval.protocols import DIRECTIONS

if TYPE_CHECKING:
    from dci_metrics.results import Result, Score

TOLD: dict[str, type] = {"photos": int, "texts": int, "ties": str, "fingerprint": str}
"""What settings say of each protocol, and is read later."""


def check(result: "Result") -> None:
    """Compare the parts that tell the same.

    Raises:
        ValueError: If ranks are not those of the entries, or a figure is not that of its ranks.
    """
    if result.outcomes or result.rates or result.settings["mode"] != "retrieval":
        raise ValueError("`ranks` are of the mode retrieval, which has no `outcomes` and no `rates`")
    measures: dict[str, dict[str, Measure]] = {}
    for name in result.scores:
        key, measure = ScoreKey.parse(name)
        measures.setdefault(key, {})[name] = measure
    if not measures or set(measures) != set(result.ranks):
        raise ValueError("`ranks` and `scores` are of other protocols")
    if len(set(result.entries)) != len(result.entries):
        raise ValueError("`entries` have a query twice")
    protocols = result.settings.get("protocols")
    if not isinstance(protocols, dict) or set(protocols) - {ListKey.parse(key).protocol for key in result.ranks}:
        raise ValueError("`settings.protocols` are not those of `ranks`")
    for key in result.ranks:
        told = _protocol(result, key)
        ranks = _ranks(result, key, told)
        for name, measure in measures[key].items():
            _check_score(name, result.scores[name], measure, ranks)
            if (result.scores[name].n_images, result.scores[name].n_texts) != (told["photos"], told["texts"]):
                raise ValueError(f"`scores` of {name} are of other photos or texts than `settings.protocols` say")


def _protocol(result: "Result", key: str) -> dict[str, Any]:
    """What settings say of the protocol."""
    protocol, direction = ListKey.parse(key)
    if direction not in DIRECTIONS:
        raise ValueError(f"`ranks` have {key!r}, which ends in none of {', '.join(DIRECTIONS)}")
    told = result.settings["protocols"].get(protocol)
    if not isinstance(told, dict):
        raise ValueError(f"`settings.protocols` do not tell of {protocol}")
    for name, kind in TOLD.items():
        if type(told.get(name)) is not kind:
            raise ValueError(f"`settings.protocols.{protocol}.{name}` is {told.get(name)!r:.40}")
    return told


def _ranks(result: "Result", key: str, told: dict[str, Any]) -> list[tuple[int, ...]]:
    """The ranks of each query."""
    try:
        found = read_ranks(result.ranks[key])
    except ValueError as error:
        raise ValueError(f"`ranks` of {key}: {error}") from error
    if len(found) != len(result.entries):
        raise ValueError(f"`ranks` of {key} are {len(found)}, and there are {len(result.entries)} `entries`")
    by_photo = key.endswith("i2t")
    queries, gallery = (told["photos"], told["texts"]) if by_photo else (told["texts"], told["photos"])
    known = [ranks for ranks in found if ranks is not None]
    keys = [key for (_, key), ranks in zip(result.entries, found, strict=True) if ranks is not None]
    expected = re.compile(r"photo" if by_photo else r"text-\d{1,9}", re.ASCII)
    if len(known) != queries or not all(expected.fullmatch(key) for key in keys):
        raise ValueError(f"`ranks` of {key} are not of the {queries} {'photos' if by_photo else 'texts'}")
    if any(ranks[-1] > gallery for ranks in known):
        raise ValueError(f"`ranks` of {key} have one beyond the last, {gallery}")
    return known


def _check_score(name: str, score: "Score", measure: Measure, ranks: list[tuple[int, ...]]) -> None:
    values = [measure.of(own) for own in ranks]
    value, correct = measure.over(values), int(sum(values)) if measure.unit == "recall" else None
    if (score.unit, score.higher_is_better) != (measure.unit, measure.higher_is_better):
        raise ValueError(f"`scores` of {name} are in {score.unit!r:.40}, not in {measure.unit!r}")
    if (score.n, score.correct) != (len(values), correct) or abs((score.value or 0) - (value or 0)) > 1e-9:
        raise ValueError(f"`scores` of {name} are not those of its `ranks`")
