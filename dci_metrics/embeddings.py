"""Scores from embeddings that the user's own code computed. Needs torch and this package's pure files alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from dci_metrics import scoring
from dci_metrics.similarity import EmbeddingSimilarity, unit_vectors
from dci_metrics.tasks import GROUP_SIZE, TASKS, Task


@dataclass(frozen=True)
class EmbeddedEntry:
    """One entry's embeddings, normalised or not.

    Attributes:
        image: (d,) of the photo or subcrop.
        captions: (k, d) of its captions, in the release's order.
        negative: (d,) of the first "swaps" negative, or empty.
        hard_negative: (d,) of the negative with the highest CLIP score, or empty.
        key: "base" for the photo; "" when not told, and then there are no tests on photos alone.
        left_out: The tests of `dci.TESTS` that its photo is out of.
    """

    image: Sequence[float]
    captions: Sequence[Sequence[float]]
    negative: Sequence[float]
    hard_negative: Sequence[float] = ()
    key: str = ""
    left_out: Sequence[str] = field(default_factory=tuple)

    def negative_of(self, task: Task) -> Sequence[float]:
        """The negative that a test takes."""
        return self.hard_negative if task.negative == "hardest" else self.negative


def score_embeddings(columns: Mapping[str, Sequence[Any]]) -> dict[str, float]:
    """All tests that the given embeddings allow, in the paper's mode.

    Args:
        columns: `image_embeds`, `text_embeds`, `negative_embeds`, and, where known, `hard_negative_embeds`, `key`,
            `left_out`; one item an entry, in the order of the data, which decides the groups of SCM.

    Returns:
        Fractions by test. A test without entries has no key.

    Raises:
        ValueError: If embeddings differ in size, are zero, or are not finite, or `left_out` names no test.
    """
    names = {
        "image_embeds": "image",
        "text_embeds": "captions",
        "negative_embeds": "negative",
        "hard_negative_embeds": "hard_negative",
        "key": "key",
        "left_out": "left_out",
    }
    given = {names[column]: values for column, values in columns.items() if column in names}
    entries = [EmbeddedEntry(**dict(zip(given, values, strict=True))) for values in zip(*given.values(), strict=True)]
    rules = {task.rule for task in TASKS.values()}
    for entry in entries:
        unknown = [test for test in entry.left_out if test not in rules]
        if unknown:
            raise ValueError(f"left_out: no test {unknown[0]!r}; expected some of {', '.join(sorted(rules))}")
    scores = {}
    for task in (task for task in TASKS.values() if task.is_paper):
        members = [entry for entry in entries if task.takes(entry)]
        if task.kind == "neg":
            members = [entry for entry in members if len(entry.negative_of(task))]
        if members:
            correct = _outcomes(task, members).correct
            scores[task.key] = int(correct.sum()) / len(members)
    return scores


def _outcomes(task: Task, members: Sequence[EmbeddedEntry]) -> scoring.Outcomes:
    images = _unit([member.image for member in members], "image_embeds", 2)
    texts = _unit([member.captions[: task.captions] for member in members], "text_embeds", 3, images).flatten(0, 1)
    entry = torch.arange(len(members))
    caption = torch.arange(len(texts)).reshape(len(members), task.captions)
    if task.kind == "scm":
        return scoring.match_in_groups(EmbeddingSimilarity(images, texts), entry, caption, GROUP_SIZE)
    column = "hard_negative_embeds" if task.negative == "hardest" else "negative_embeds"
    negatives = _unit([member.negative_of(task) for member in members], column, 2, images)
    similarity = EmbeddingSimilarity(images, torch.cat([texts, negatives]))
    positive = similarity.pairs(entry[:, None], caption)
    return scoring.beat_negative(positive, similarity.pairs(entry, len(texts) + entry))


def _unit(values: Sequence[Any], column: str, dim: int, images: Tensor | None = None) -> Tensor:
    try:
        tensor = torch.tensor(values, dtype=torch.float32)
    except ValueError as error:
        raise ValueError(f"{column}: embeddings differ in size ({error}); expected the same for all entries") from error
    if tensor.dim() != dim or math.prod(tensor.shape) == 0:
        raise ValueError(f"{column}: expected {dim - 1} nested lists of numbers an entry, got {tuple(tensor.shape)}")
    if images is not None and tensor.shape[-1] != images.shape[-1]:
        raise ValueError(
            f"image_embeds has embeddings of {images.shape[-1]} numbers, {column} of {tensor.shape[-1]}; "
            "expected the same"
        )
    try:
        return unit_vectors(tensor)
    except ValueError as error:
        raise ValueError(f"{column}: {error}; a comparison with it would mean nothing") from error
