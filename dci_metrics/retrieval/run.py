"""Dataset × model × protocols → scores: each photo and text is embedded once, each protocol ranks its own."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dci import DCIError
from dci_metrics import statistics
from dci_metrics.distributed import World
from dci_metrics.encoders.base import DualEncoder, cut
from dci_metrics.encoding import Caches
from dci_metrics.results import Score
from dci_metrics.retrieval import ranking
from dci_metrics.retrieval.lists import Listed, read_list
from dci_metrics.retrieval.measures import measures, write_ranks
from dci_metrics.retrieval.photos import Reader, allowed, open_photos
from dci_metrics.retrieval.pools import Pool, embed
from dci_metrics.retrieval.protocols import PROTOCOLS, Protocol
from dci_metrics.sources import Source
from dci_metrics.walk import Clock, Settings

TEST = "retrieval"
"""What the test is called beside those of sDCI."""

RECALL_AT = (1, 5, 10)
"""K of R@K; a protocol that is published with others has those too."""


@dataclass(frozen=True)
class Plan:
    """What is to be scored, checked before a model is loaded.

    Attributes:
        protocols: Those asked for.
        source: Rows with what they need.
        summaries: First summaries by image_id, where the rows do not have them.
        listed: Texts of the user's list.
        recall_at: K of R@K.
    """

    protocols: list[Protocol]
    source: Source
    summaries: Mapping[str, str] | None
    listed: Listed
    recall_at: tuple[int, ...]


@dataclass
class Scored:
    """What a result is made of.

    Attributes:
        pools: By protocol.
        ranked: By protocol and direction (`lotlip_i2t`).
        entries: (image_id, key) of every query of any protocol.
        scores: By `lotlip_i2t_r1` and the like.
        ranks: By protocol and direction, as text.
        fingerprint: Of the photos.
        images: How many different ones were embedded.
        texts: How many different ones.
    """

    pools: list[Pool]
    fingerprint: str
    images: int
    texts: int
    ranked: dict[str, ranking.Ranks] = field(default_factory=dict)
    entries: list[tuple[str, str]] = field(default_factory=list)
    scores: dict[str, Score] = field(default_factory=dict)
    ranks: dict[str, str] = field(default_factory=dict)

    @property
    def protocols(self) -> dict[str, dict[str, Any]]:
        """What settings say of each protocol."""
        return {
            pool.protocol.key: {**pool.counts, "ties": pool.protocol.ties, "fingerprint": pool.fingerprint}
            for pool in self.pools
        }


def is_retrieval(
    tests: Iterable[str] | None,
    protocols: Iterable[str] | None,
    goal_list: str | Path | None = None,
    recall_at: Sequence[int] | None = None,
) -> bool:
    """Whether retrieval is asked for, by its name among the tests or by a protocol alone.

    Raises:
        DCIError: If it is asked for together with tests of sDCI, or what is its own is given without it.
    """
    wanted = None if tests is None else list(tests)
    if wanted == [TEST] or (wanted is None and protocols is not None):
        return True
    if TEST in (wanted or ()):
        raise DCIError(f"{TEST} stands by itself: its result has other entries; score the other tests in a second run")
    options = {"--protocol": protocols, "--goal-list": goal_list, "--recall-at": recall_at}
    given = [option for option, value in options.items() if value is not None]
    if given:
        raise DCIError(f"{given[0]} is of {TEST}; ask for --tests {TEST}, or leave {given[0]} out")
    return False


def plan(
    dataset: Any,
    protocols: Iterable[str] | None,
    split: str,
    on_error: str,
    photos: str | Path | None,
    goal_list: str | Path | None,
    recall_at: Sequence[int] | None,
) -> Plan:
    """Open the data and check what is asked for.

    Raises:
        DCIError: If there is no such dataset, split or protocol, or the list cannot be used.
    """
    keys = None if protocols is None else list(protocols)
    chosen = select_protocols(keys, goal_list is not None)
    if keys in (None, ["all"]):
        chosen = allowed(chosen, dataset)
    ks = RECALL_AT if recall_at is None else recall_at
    if not isinstance(ks, Sequence) or not ks or not all(type(k) is int and k > 0 for k in ks):
        raise DCIError(f"recall at {ks!r}: expected a list of whole numbers from 1, such as 1,5,10")
    listed = read_list(goal_list) if goal_list is not None else {}
    source, summaries = open_photos(dataset, chosen, split, on_error, photos)
    return Plan(chosen, source, summaries, listed, tuple(sorted(set(ks))))


def select_protocols(keys: Iterable[str] | None, has_list: bool) -> list[Protocol]:
    """The protocols of the given keys, in the order of `PROTOCOLS`.

    Args:
        keys: Some of `PROTOCOLS`; "all", or None, for all that need no list, or all where there is one.
        has_list: Whether the user handed over a list.

    Raises:
        DCIError: If there is no such protocol, or one needs a list and there is none, or the other way round.
    """
    wanted = ["all"] if keys is None else list(keys)
    known = ", ".join(PROTOCOLS)
    if wanted == ["all"]:
        return [protocol for protocol in PROTOCOLS.values() if protocol.needs != "list" or has_list]
    unknown = [key for key in wanted if key not in PROTOCOLS]
    if unknown or not wanted:
        raise DCIError(f"no protocol {', '.join(map(repr, unknown)) or 'given'}: expected some of {known}, or all")
    chosen = [protocol for protocol in PROTOCOLS.values() if protocol.key in wanted]
    listed = [protocol.key for protocol in chosen if protocol.needs == "list"]
    if listed and not has_list:
        raise DCIError(
            f"protocol {listed[0]}: is scored on a list of photos and texts of its own, which does not come with the "
            "data; get that project's and hand it over with --goal-list"
        )
    if has_list and not listed:
        raise DCIError("a list of photos and texts was given, but no protocol that reads it; add goal to --protocol")
    return chosen


def score(
    plan: Plan,
    encoder: DualEncoder,
    image_size: int | None,
    how: Settings,
    clock: Clock,
    world: World,
    caches: Caches | None,
    seed: int,
) -> Scored:
    """Embed what the protocols need, and rank.

    Args:
        plan: What is to be scored.
        encoder: The model.
        image_size: Side of the square it sees, to which a protocol may squash photos; None where it does not tell.
        how: Settings of the run.
        clock: Told what took how long.
        world: The processes that share the work.
        caches: Embeddings of earlier runs.
        seed: Of the intervals' resampling.

    Raises:
        DCIError: As `pools.embed`.
    """
    reader = Reader(plan.protocols, plan.listed, plan.summaries, image_size)
    embedded = embed(plan.source, reader, encoder, how, clock, world, caches)
    scored = Scored(embedded.pools, embedded.fingerprint, embedded.images, embedded.texts)
    queries = {key: None for pool in scored.pools for key in pool.photo_keys}
    queries |= {key: None for pool in scored.pools for key in pool.text_keys}
    # In the order of the data, whatever the protocols: results of different ones are compared in those they share.
    number = {image_id: i for i, image_id in enumerate(embedded.photos)}
    scored.entries = sorted(queries, key=lambda query: (query[1] != "photo", number[query[0]]))
    place = {key: i for i, key in enumerate(scored.entries)}
    with clock.stage("rank"):
        for pool in scored.pools:
            for direction in ("i2t", "t2i"):
                _rank(scored, pool, direction, place, plan.recall_at, seed)
    return scored


def _rank(
    scored: Scored,
    pool: Pool,
    direction: str,
    place: Mapping[tuple[str, str], int],
    recall_at: Sequence[int],
    seed: int,
) -> None:
    """Rank one direction of one protocol, and add what comes of it."""
    by_photo, key = direction == "i2t", f"{pool.protocol.key}_{direction}"
    own = pool.own_texts if by_photo else pool.owner[:, None]
    images, texts = pool.image_embeds, pool.text_embeds
    queries_embeds, gallery = (images, texts) if by_photo else (texts, images)
    ranked = ranking.rank(queries_embeds, gallery, own, ties=pool.protocol.ties)
    found = [tuple(rank for rank in ranks if rank) for ranks in ranked.ranks.tolist()]
    queries = pool.photo_keys if by_photo else pool.text_keys
    of_entries: list[tuple[int, ...] | None] = [None] * len(place)
    for query, ranks in zip(queries, found, strict=True):
        of_entries[place[query]] = ranks
    scored.ranked[key], scored.ranks[key] = ranked, write_ranks(of_entries)
    scored.scores |= {f"{key}_{name}": score for name, score in _scores(pool, queries, ranked, found, recall_at, seed)}


def _scores(
    pool: Pool,
    queries: Sequence[tuple[str, str]],
    ranked: ranking.Ranks,
    found: Sequence[tuple[int, ...]],
    recall_at: Sequence[int],
    seed: int,
) -> list[tuple[str, Score]]:
    """The figures of one direction."""
    wanted = measures(sorted({*recall_at, *(k for k in pool.protocol.recall_at if k not in RECALL_AT)}))
    photos = [image_id for image_id, _ in queries]
    gallery = len(pool.texts) if queries[0][1] == "photo" else len(pool.photos)
    counts = pool.counts
    truncated, tokens_lost = cut(pool.lengths)
    scores = []
    for measure in wanted:
        of_queries = [measure.of(ranks) for ranks in found]
        score = Score(
            value=measure.over(of_queries),
            correct=int(sum(of_queries)) if measure.unit == "recall" else None,
            n=len(found),
            n_images=counts["photos"],
            n_texts=counts["texts"],
            # The bootstrap is of means.
            ci95=statistics.interval(of_queries, photos, seed=seed) if measure.unit != "rank" else None,
            chance=measure.chance([len(ranks) for ranks in found], gallery),
            ties=int(ranked.tied.sum()),
            truncated=truncated,
            tokens_lost=tokens_lost,
            left_out=pool.left_out,
            unit=measure.unit,
            higher_is_better=measure.higher_is_better,
            empty_texts=counts["empty_texts"],
            duplicate_texts=counts["duplicate_texts"],
        )
        scores.append((measure.key, score))
    return scores
