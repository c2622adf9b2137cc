"""Models that look at an image and a text together: only the pairs that the tests compare are scored."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from dci import DCIError
from dci_metrics.encoders.base import PairScorer
from dci_metrics.encoding import Clock, Encoded, Settings, Walk, index_texts
from dci_metrics.scoring import Similarity
from dci_metrics.sources import Source
from dci_metrics.subcrops import Entry, read_photos
from dci_metrics.tasks import Task

Score = Callable[[Sequence[Entry], dict[str, int], Similarity], object]
"""Runs the wanted tests on a similarity."""


class PairScores:
    """The scores of some pairs of images and texts, looked up by index. Pairs that are not there score 0."""

    def __init__(self) -> None:
        self.scores: dict[tuple[int, int], float] = {}
        self.missing: set[tuple[int, int]] = set()

    def pairs(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of pairs: index tensors of shapes that broadcast → scores of the broadcast shape."""
        images, texts = torch.broadcast_tensors(images, texts)
        keys = list(zip(images.flatten().tolist(), texts.flatten().tolist(), strict=True))
        self.missing.update(key for key in keys if key not in self.scores)
        return torch.tensor([self.scores.get(key, 0.0) for key in keys]).reshape(images.shape)

    def matrix(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores of all against all: (a,), (b,) → (a, b)."""
        return self.pairs(images[:, None], texts)


def score_pairs(
    source: Source, scorer: PairScorer, wanted: Sequence[Task], settings: Settings, clock: Clock, run_tests: Score
) -> Encoded:
    """Score the pairs that the wanted tests compare, and no others.

    The tests are run once on nothing, to learn what they would look at: the groups of SCM reach from photo to photo.
    Then the photos are walked. If broken ones were left out on the way, groups have moved, and what is missing now is
    scored in another walk.

    Raises:
        DCIError: As `encoding.encode`.
    """
    broken: set[str] = set()
    # By what stays the same when photos are left out: (image_id, key of the entry), text.
    known: dict[tuple[str, str, str], float] = {}
    while True:
        rows = source.read(photos=False)
        entries = [e for photo in read_photos(rows) if photo.image_id not in broken for e in photo.entries]
        entries = [entry for entry in entries if any(task.takes(entry) for task in wanted)]
        needed = _needed(entries, wanted, known, run_tests)
        walk = Walk(source, wanted, settings, clock)
        for loaded in walk:
            for entry, crop in zip(loaded.entries, loaded.crops, strict=True):
                texts = needed.get((entry.image_id, entry.key), [])
                for start in range(0, len(texts), settings.batch_size):
                    batch = texts[start : start + settings.batch_size]
                    with clock.stage("pairs"):
                        found = _finite(scorer.score([crop], batch), len(batch))
                    known |= {
                        (entry.image_id, entry.key, text): score for text, score in zip(batch, found, strict=True)
                    }
        walk.refuse_empty()
        met = {entry.image_id for entry in walk.entries}
        broken = {entry.image_id for entry in entries} - met
        text_index = index_texts(walk.entries, wanted)
        scores = _look_up(walk.entries, text_index, known)
        run_tests(walk.entries, text_index, scores)
        if not scores.missing:
            return Encoded(walk.entries, text_index, scores, None, walk.left_out, walk.fingerprint)


def _needed(
    entries: Sequence[Entry], wanted: Sequence[Task], known: dict[tuple[str, str, str], float], run_tests: Score
) -> dict[tuple[str, str], list[str]]:
    """The texts that each image is compared with and whose scores are not known yet."""
    text_index = index_texts(entries, wanted)
    texts = list(text_index)
    scores = _look_up(entries, text_index, known)
    run_tests(entries, text_index, scores)
    needed: dict[tuple[str, str], list[str]] = {}
    for image, text in sorted(scores.missing):
        needed.setdefault((entries[image].image_id, entries[image].key), []).append(texts[text])
    return needed


def _look_up(
    entries: Sequence[Entry], text_index: dict[str, int], known: dict[tuple[str, str, str], float]
) -> PairScores:
    images = {(entry.image_id, entry.key): i for i, entry in enumerate(entries)}
    scores = PairScores()
    for (image_id, key, text), score in known.items():
        if (image_id, key) in images and text in text_index:
            scores.scores[images[image_id, key], text_index[text]] = score
    return scores


def _finite(scores: Tensor, n: int) -> list[float]:
    scores = torch.as_tensor(scores).detach().to("cpu", torch.float32)
    if scores.shape != (1, n):
        raise DCIError(
            f"the model gave scores of shape {tuple(scores.shape)} for 1 image and {n} texts; expected (1, {n})"
        )
    if not torch.isfinite(scores).all():
        raise DCIError("the model gave scores that are not finite; try --dtype float32")
    found: list[float] = scores[0].tolist()
    return found
