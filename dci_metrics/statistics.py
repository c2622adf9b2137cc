"""Intervals over per-entry outcomes. The entries of one photo are not independent, so photos are what is resampled."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import stats

RESAMPLES = 9_999


def interval(
    outcomes: npt.ArrayLike, clusters: Sequence[str], *, level: float = 0.95, seed: int = 0
) -> tuple[float, float] | None:
    """Percentile bootstrap interval of a share of right entries, over photos.

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
        # Bounds memory at photos × batch, whatever the number of photos.
        batch=500,
        confidence_level=level,
        method="percentile",
        rng=np.random.default_rng(seed),
    )
    low, high = found.confidence_interval
    return float(low), float(high)
