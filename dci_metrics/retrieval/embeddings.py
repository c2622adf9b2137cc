"""Retrieval from embeddings that the user's own code computed. Needs torch and this package's pure files alone."""

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from dci_metrics.retrieval.measures import measures
from dci_metrics.retrieval.ranking import own_items, rank
from dci_metrics.similarity import unit_vectors

TIES = ("against", "lower_index")


def score_embeddings(
    image_embeds: Sequence[Sequence[float]],
    text_embeds: Sequence[Sequence[Sequence[float]]],
    recall_at: Sequence[int] = (1, 5, 10),
    ties: str = "against",
) -> dict[str, float]:
    """Rank all texts for each photo, and all photos for each text.

    Args:
        image_embeds: A vector a photo, normalised or not.
        text_embeds: The vectors of each photo's texts, one at least.
        recall_at: K of R@K.
        ties: "against" counts an item with the same score as ahead, "lower_index" only if it stands before.

    Returns:
        `i2t_r1`, ..., `i2t_map10`, `i2t_medr`, and the same of `t2i`: fractions, and of `medr` the median rank.

    Raises:
        ValueError: If embeddings differ in size, are zero or not finite, or a photo has no text.
    """
    if ties not in TIES:
        raise ValueError(f"ties: expected one of {', '.join(TIES)}, got {ties!r}")
    if not isinstance(recall_at, Sequence) or not all(type(k) is int and k > 0 for k in recall_at):
        raise ValueError(f"recall_at: expected whole numbers from 1, got {recall_at!r}")
    counts = [len(texts) for texts in text_embeds]
    if not counts or len(image_embeds) != len(counts) or 0 in counts:
        raise ValueError("text_embeds: expected a list of vectors for each photo, with one at least")
    images = _unit(list(image_embeds), "image_embeds")
    texts = _unit(list(itertools.chain.from_iterable(text_embeds)), "text_embeds")
    if images.shape[1] != texts.shape[1]:
        raise ValueError(
            f"image_embeds has embeddings of {images.shape[1]} numbers, text_embeds of {texts.shape[1]}; expected the "
            "same"
        )
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    own = own_items(owner, len(counts))
    scores = {}
    for direction, queries, gallery, belongs in (("i2t", images, texts, own), ("t2i", texts, images, owner[:, None])):
        ranked = rank(queries, gallery, belongs, ties="against" if ties == "against" else "lower_index")
        ranks = [[rank for rank in row if rank] for row in ranked.ranks.tolist()]
        for measure in measures(sorted(set(recall_at))):
            value = measure.over([measure.of(row) for row in ranks])
            scores[f"{direction}_{measure.key}"] = float(value or 0.0)
    return scores


def _unit(values: list[Any], column: str) -> Tensor:
    try:
        tensor = torch.tensor(values, dtype=torch.float32)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{column}: embeddings differ in size ({error}); expected the same for all") from error
    if tensor.dim() != 2 or tensor.shape[1] == 0:
        raise ValueError(f"{column}: expected vectors of numbers, got shape {tuple(tensor.shape)}")
    try:
        return unit_vectors(tensor)
    except ValueError as error:
        raise ValueError(f"{column}: {error}; a comparison with it would mean nothing") from error
