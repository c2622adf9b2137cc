"""Models that look at an image and a text together: only the pairs that the tests compare are scored."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import PIL.Image
import torch
from torch import Tensor

from dci import DCIError, Row
from dci_metrics.cache import ScoreCache
from dci_metrics.distributed import World
from dci_metrics.encoders.base import LooksOnce, MeasuresTexts, PairScorer
from dci_metrics.encoding import Encoded, attempt, index_texts, tensor_of
from dci_metrics.scoring import Similarity
from dci_metrics.sources import Share, Source
from dci_metrics.subcrops import Entry, Photo, read_row
from dci_metrics.tasks import Task
from dci_metrics.walk import Clock, Record, Settings, Walk, fingerprint, why_empty

WALKS = 4
"""How often the photos are walked at most: twice if some are broken, and more only if it is others each time."""

Score = Callable[[Sequence[Entry], dict[str, int], Similarity], object]
"""Runs the wanted tests on a similarity."""

Image = tuple[str, str, tuple[int, int, int, int]]
"""What stays the same of an entry when photos are left out: image_id, key, crop."""

Known = dict[Image, dict[str, float]]
"""Scores by image and text."""


class PairScores:
    """The scores of some pairs of images and texts, looked up by index; the pairs that it lacks are remembered.

    Args:
        entries: The images, by index.
        text_index: The texts.
        known: Scores, of these and other pairs.

    Attributes:
        is_complete: Whether all pairs are scored that may be asked for; then one that is lacking is an error.
    """

    def __init__(self, entries: Sequence[Entry], text_index: Mapping[str, int], known: Known) -> None:
        # A pair is one number, and a score is found by bisection: a dictionary would take ten times the memory.
        self._texts = len(text_index)
        # The last stands for all that are greater.
        numbers, scores = [torch.iinfo(torch.long).max], [0.0]
        for i, entry in enumerate(entries):
            for text, score in known.get(_image(entry), {}).items():
                if text in text_index:
                    numbers.append(i * self._texts + text_index[text])
                    scores.append(score)
        self._numbers, order = torch.tensor(numbers, dtype=torch.long).sort()
        self._scores = torch.tensor(scores)[order]
        self._vain: list[Tensor] = []
        self.is_complete = False

    def pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of pairs: index tensors of shapes that broadcast → scores of the broadcast shape; 0 if not known."""
        numbers = images * self._texts + texts
        place = torch.searchsorted(self._numbers, numbers)
        found = self._numbers[place] == numbers
        if self.is_complete and not found.all():
            raise LookupError("pairs were asked for that no test compares")
        self._vain.append(numbers[~found].unique())
        return torch.where(found, self._scores[place], 0.0)

    def matrix(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of all against all: (a,), (b,) → (a, b)."""
        return self.pairs(images[:, None], texts)

    def missing(self) -> list[tuple[int, int]]:
        """Image and text of each pair that was asked for in vain, once each, in order."""
        if not self._texts or not self._vain:
            return []
        return [divmod(number, self._texts) for number in torch.cat(self._vain).unique().tolist()]


def score_pairs(
    source: Source,
    scorer: PairScorer,
    wanted: Sequence[Task],
    settings: Settings,
    clock: Clock,
    world: World,
    run_tests: Score,
    cache: ScoreCache | None = None,
    read: Callable[[Row], Photo] = read_row,
) -> Encoded:
    """Score the pairs that the wanted tests compare, and no others.

    The tests are run once on nothing, to learn what they would look at: the groups of SCM reach from photo to photo.
    Then the photos are walked. If broken ones were left out on the way, groups have moved, and what is missing now is
    scored in another walk.

    Args:
        source: The rows.
        scorer: The model.
        wanted: The tests.
        settings: Of the run.
        clock: Told what took how long.
        world: The processes that share the photos; each of them gets the whole outcome.
        run_tests: Told what there is to score, and looks at it as the tests do.
        cache: Scores of earlier runs, and where those of this one are kept; written even when it is interrupted.
        read: Makes a photo of a row.

    Raises:
        DCIError: As `encoding.encode`, or if scores are not finite or of the wrong shape.
    """
    known: Known = {}
    entries = _planned(source, wanted, read)
    text_index, scores = _tried(entries, wanted, known, run_tests)
    for _ in range(WALKS):
        needed = _by_image(entries, text_index, scores)
        # None is known without its texts: all crops are made, but what is the same to the last pixel once.
        walk = Walk(source, wanted, settings, clock, known=frozenset(), share=Share(world.rank, world.size), read=read)
        shares = world.gather(attempt(partial(_walk, walk, scorer, needed, clock, cache)))
        records = sorted((record for share, _ in shares for record in share), key=lambda record: record.place)
        for _, found in shares:
            for image, scored in found.items():
                known.setdefault(image, {}).update(scored)
        entries = [entry for record in records for entry in record.entries]
        left_out = [out for record in records for out in record.left_out]
        if not entries:
            raise DCIError(why_empty(source, wanted, left_out, bool(records)))
        text_index, scores = _tried(entries, wanted, known, run_tests)
        if not scores.missing():
            scores.is_complete = True
            lengths = scorer.text_lengths(list(text_index)) if isinstance(scorer, MeasuresTexts) else None
            images = len({key for record in records for key in record.keys})
            return Encoded(entries, text_index, scores, lengths, left_out, fingerprint(records), images)
    raise DCIError(
        f"{source.id}: gives other entries each time it is read ({WALKS} times now); are the files being changed?"
    )


def _planned(source: Source, wanted: Sequence[Task], read: Callable[[Row], Photo]) -> list[Entry]:
    """The entries of the tests as far as the rows tell, without a look at the photos."""
    entries: list[Entry] = []
    for photo in map(read, source.read(photos=False)):
        try:
            photo.check(wanted)
        except DCIError:  # the walk meets it too, and says so or lists it
            continue
        entries += [entry for entry in photo.entries if any(task.takes(entry) for task in wanted)]
    return entries


def _tried(
    entries: Sequence[Entry], wanted: Sequence[Task], known: Known, run_tests: Score
) -> tuple[dict[str, int], PairScores]:
    """Run the tests on what is known, to see what they look at."""
    text_index = index_texts(entries, wanted)
    scores = PairScores(entries, text_index, known)
    run_tests(entries, text_index, scores)
    return text_index, scores


def _by_image(entries: Sequence[Entry], text_index: Mapping[str, int], scores: PairScores) -> dict[Image, list[str]]:
    """The texts that each image has yet to be scored against."""
    texts = list(text_index)
    needed: dict[Image, dict[str, None]] = {}
    for image, text in scores.missing():
        # A photo may stand in the data twice.
        needed.setdefault(_image(entries[image]), {})[texts[text]] = None
    return {image: list(found) for image, found in needed.items()}


def _walk(
    walk: Walk, scorer: PairScorer, needed: Mapping[Image, Sequence[str]], clock: Clock, cache: ScoreCache | None
) -> tuple[list[Record], Known]:
    """Score the needed pairs of this process's photos."""
    known: Known = {}
    # Images that are the same to the last pixel, as those of masks with the same box, share their scores.
    by_key: dict[str, dict[str, float]] = {}

    def score(key: str, crop: PIL.Image.Image, texts: Iterable[str]) -> None:
        found = by_key.setdefault(key, {})
        if cache is not None:
            found |= cache.find(key, texts)
        # Those of like length together: little is padded then.
        todo = sorted((text for text in texts if text not in found), key=len)
        for scores in _scored(scorer, crop, todo, walk.settings.batch_size):
            found |= scores
            if cache is not None:
                cache.add(key, scores)

    try:
        for loaded in walk:
            walk.records[-1].keys = loaded.keys
            texts: dict[str, dict[str, None]] = {key: {} for key in loaded.todo}
            for entry, key in zip(loaded.entries, loaded.keys, strict=True):
                texts[key] |= dict.fromkeys(needed.get(_image(entry), ()))
            with clock.stage("pairs"):
                for key, crop in zip(loaded.todo, loaded.crops, strict=True):
                    score(key, crop, texts[key])
            known |= {_image(entry): by_key[key] for entry, key in zip(loaded.entries, loaded.keys, strict=True)}
    finally:
        if cache is not None:
            cache.flush()
    return walk.records, known


def _scored(
    scorer: PairScorer, crop: PIL.Image.Image, texts: Sequence[str], batch_size: int
) -> Iterator[dict[str, float]]:
    """The scores of one image against texts, batch by batch."""
    if not texts:
        return
    seen = scorer.look(crop) if isinstance(scorer, LooksOnce) else None
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        if isinstance(scorer, LooksOnce):
            scores = _finite(scorer.score_seen(seen, batch), (len(batch),))
        else:
            scores = _finite(scorer.score([crop], batch), (1, len(batch)))
        yield dict(zip(batch, scores, strict=True))


def _finite(scores: Any, shape: tuple[int, ...]) -> list[float]:
    """What the model gave, as float32, in which scores are compared."""
    tensor = tensor_of(scores, "scores", f"{shape}")
    if tensor.shape != shape or tensor.is_complex():
        raise DCIError(
            f"the model gave scores of shape {tuple(tensor.shape)} and type {tensor.dtype} for 1 image and {shape[-1]} "
            f"texts; expected real numbers of shape {shape}"
        )
    tensor = tensor.float()
    if not torch.isfinite(tensor).all():
        raise DCIError("the model gave scores that are not finite; try --dtype float32")
    found: list[float] = tensor.flatten().tolist()
    return found


def _image(entry: Entry) -> Image:
    return entry.image_id, entry.key, entry.crop_xyxy
