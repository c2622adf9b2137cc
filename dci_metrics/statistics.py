"""Intervals over per-entry outcomes, and paired comparisons of two models on the same entries.

The entries of one photo are not independent, so photos are what is resampled.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

RESAMPLES = 9_999


@dataclass(frozen=True)
class McNemar:
    """McNemar's exact test: of the entries that only one of two models has right, is one model's share above half?

    Attributes:
        only_a: Entries that a has right and b has wrong.
        only_b: The other way round.
        p: Two-sided; 1 when there is no such entry, since then nothing speaks against equality.
    """

    only_a: int
    only_b: int
    p: float


def interval(
    outcomes: npt.ArrayLike, clusters: Sequence[str], *, level: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of a mean over entries, such as the share of right ones, over photos.

    A resample draws as many photos as there are, with replacement, and takes all entries of each.

    Args:
        outcomes: (n,) values of the entries, 1 for a right one.
        clusters: The photo of each entry.
        level: The interval's confidence level.
        seed: Of the resampling.

    Returns:
        (low, high), or None when there are fewer than two photos, from which no spread can be told.
    """
    _, photo_of_entry = np.unique(np.asarray(clusters), return_inverse=True)
    counts = np.bincount(photo_of_entry).astype(float)
    if len(counts) < 2:
        return None
    right = np.bincount(photo_of_entry, weights=np.asarray(outcomes, dtype=float))
    found = stats.bootstrap(
        (right, counts),
        lambda right, counts, axis: right.sum(axis=axis) / counts.sum(axis=axis),
        paired=True,
        vectorized=True,
        n_resamples=RESAMPLES,
        # Bounds memory at half a million numbers an array, whatever the number of photos.
        batch=max(1, min(500, 2**19 // len(counts))),
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def paired_difference(
    a: npt.ArrayLike, b: npt.ArrayLike, clusters: Sequence[str], *, level: float = 0.95, seed: int = 0
) -> tuple[float, tuple[float, float] | None]:
    """The mean of b - a over the same entries, and its bootstrap interval over photos.

    Args:
        a: (n,) values of the entries under one model, 1 for a right one.
        b: (n,) values of the same entries under the other.
        clusters: The photo of each entry.
        level: The interval's confidence level.
        seed: Of the resampling.

    Returns:
        The difference, and (low, high) or None as `interval` gives it.
    """
    in_a, in_b = _paired(a, b)
    difference = in_b - in_a
    return float(difference.mean()), interval(difference, clusters, level=level, seed=seed)


def mcnemar(a: npt.ArrayLike, b: npt.ArrayLike) -> McNemar:
    """McNemar's exact two-sided test on outcomes of the same entries.

    Args:
        a: (n,) outcomes under one model, true or 1 for a right one.
        b: (n,) outcomes of the same entries under the other.
    """
    in_a, in_b = _paired(a, b)
    only_a, only_b = int((in_a > in_b).sum()), int((in_b > in_a).sum())
    p = float(stats.binomtest(only_b, only_a + only_b, 0.5).pvalue) if only_a + only_b else 1.0
    return McNemar(only_a, only_b, p)


def _paired(a: npt.ArrayLike, b: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    in_a, in_b = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if in_a.ndim != 1 or len(in_a) == 0 or in_a.shape != in_b.shape:
        raise ValueError(f"expected values of the same entries, got shapes {in_a.shape} and {in_b.shape}")
    return in_a, in_b
