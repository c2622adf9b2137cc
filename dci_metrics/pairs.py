"""Models that look at an image and a text together: only the pairs that the tests compare are scored."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import PIL.Image
import torch
from torch import Tensor

from dci import DCIError
from dci_metrics.distributed import World
from dci_metrics.encoders.base import LooksOnce, MeasuresTexts, PairScorer
from dci_metrics.encoding import Encoded, attempt, index_texts, tensor_of
from dci_metrics.scoring import Similarity
from dci_metrics.sources import Share, Source
from dci_metrics.subcrops import Entry, read_photos
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
) -> Encoded:
    """Score the pairs that the wanted tests compare, and no others.

    The tests are run once on nothing, to learn what they would look at: the groups of SCM reach from photo to photo.
    Then the photos are walked. If broken ones were left out on the way, groups have moved, and what is missing now is
    scored in another walk.

    Raises:
        DCIError: As `encoding.encode`, or if scores are not finite or of the wrong shape.
    """
    known: Known = {}
    entries = _planned(source, wanted)
    text_index, scores = _tried(entries, wanted, known, run_tests)
    for _ in range(WALKS):
        needed = _by_image(entries, text_index, scores)
        walk = Walk(source, wanted, settings, clock, share=Share(world.rank, world.size))
        shares = world.gather(attempt(partial(_walk, walk, scorer, needed, clock)))
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
            return Encoded(entries, text_index, scores, lengths, left_out, fingerprint(records), len(entries))
    raise DCIError(
        f"{source.id}: gives other entries each time it is read ({WALKS} times now); are the files being changed?"
    )


def _planned(source: Source, wanted: Sequence[Task]) -> list[Entry]:
    """The entries of the tests as far as the rows tell, without a look at the photos."""
    entries: list[Entry] = []
    for photo in read_photos(source.read(photos=False)):
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
    """The texts that each image has yet to be scored against, those of like length together: little is padded then."""
    texts = list(text_index)
    needed: dict[Image, dict[str, None]] = {}
    for image, text in scores.missing():
        # A photo may stand in the data twice.
        needed.setdefault(_image(entries[image]), {})[texts[text]] = None
    return {image: sorted(found, key=len) for image, found in needed.items()}


def _walk(
    walk: Walk, scorer: PairScorer, needed: Mapping[Image, Sequence[str]], clock: Clock
) -> tuple[list[Record], Known]:
    """Score the needed pairs of this process's photos."""
    known: Known = {}
    for loaded in walk:
        for entry, crop in zip(loaded.entries, loaded.crops, strict=True):
            image = _image(entry)
            if image in needed and image not in known:
                with clock.stage("pairs"):
                    known[image] = _scored(scorer, crop, needed[image], walk.settings.batch_size)
    return walk.records, known


def _scored(scorer: PairScorer, crop: PIL.Image.Image, texts: Sequence[str], batch_size: int) -> dict[str, float]:
    """The scores of one image against texts."""
    found: dict[str, float] = {}
    seen = scorer.look(crop) if isinstance(scorer, LooksOnce) else None
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        if isinstance(scorer, LooksOnce):
            scores = _finite(scorer.score_seen(seen, batch), (len(batch),))
        else:
            scores = _finite(scorer.score([crop], batch), (1, len(batch)))
        found.update(zip(batch, scores, strict=True))
    return found


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
