"""Intervals over photos, against a bootstrap in loops, and on data whose true value is known."""

import numpy as np
import pytest

from dci_metrics.statistics import interval


def clustered(rng, photos, spread=2.0, most=12):
    """Outcomes of entries whose photos are easy or hard as a whole, and the photo of each."""
    outcomes, clusters = [], []
    for photo in range(photos):
        p = 1 / (1 + np.exp(-rng.normal(0, spread)))
        count = int(rng.integers(1, most))
        outcomes += list((rng.random(count) < p).astype(int))
        clusters += [f"{photo}"] * count
    return outcomes, clusters


def loops_interval(outcomes, clusters, resamples=4000, seed=1):
    """Draw photos with replacement, take all entries of each; the middle 95 % of the shares."""
    rng = np.random.default_rng(seed)
    by_photo = {}
    for outcome, cluster in zip(outcomes, clusters, strict=True):
        by_photo.setdefault(cluster, []).append(outcome)
    photos = list(by_photo.values())
    right, counts = [sum(photo) for photo in photos], [len(photo) for photo in photos]
    shares = []
    for _ in range(resamples):
        drawn = rng.integers(0, len(photos), len(photos)).tolist()
        shares.append(sum(right[i] for i in drawn) / sum(counts[i] for i in drawn))
    return np.quantile(shares, [0.025, 0.975])


@pytest.mark.parametrize("photos", [3, 20, 108])
def test_interval_is_that_of_a_bootstrap_over_photos(photos):
    outcomes, clusters = clustered(np.random.default_rng(photos), photos)
    order = np.random.default_rng(0).permutation(len(outcomes))  # entries of one photo need not stand together
    found = interval(np.array(outcomes)[order], [clusters[i] for i in order])
    np.testing.assert_allclose(found, loops_interval(outcomes, clusters), atol=0.02 if photos > 3 else 0.05)


def test_an_interval_needs_two_photos():
    assert interval([1, 0, 1], ["a", "a", "a"]) is None
    assert interval([], []) is None
    low, high = interval([1, 0], ["a", "b"])
    assert (low, high) == (0, 1)


@pytest.mark.filterwarnings("error")
def test_all_right_or_all_wrong():
    assert interval([1] * 6, list("aabbcc")) == (1, 1)
    assert interval([0] * 6, list("aabbcc")) == (0, 0)


def test_the_seed_decides():
    outcomes, clusters = clustered(np.random.default_rng(3), 30)
    assert interval(outcomes, clusters, seed=4) == interval(outcomes, clusters, seed=4)
    assert interval(outcomes, clusters, seed=4) != interval(outcomes, clusters, seed=5)
    low, high = interval(outcomes, clusters)
    narrow_low, narrow_high = interval(outcomes, clusters, level=0.5)
    assert low < narrow_low < narrow_high < high


def test_about_95_percent_of_intervals_hold_the_true_value(monkeypatch):
    monkeypatch.setattr("dci_metrics.statistics.RESAMPLES", 400)
    rng = np.random.default_rng(5)
    rounds, held, naive = 250, 0, 0
    for round_ in range(rounds):
        outcomes, clusters = clustered(rng, 60)
        low, high = interval(outcomes, clusters, seed=round_)
        held += low <= 0.5 <= high
        # Entries as if each were a photo of its own.
        low, high = interval(outcomes, [f"{i}" for i in range(len(outcomes))], seed=round_)
        naive += low <= 0.5 <= high
    # Five sigma below, since a percentile bootstrap on 60 photos holds a little less than it says.
    assert 0.89 <= held / rounds <= 0.985
    assert naive / rounds < 0.80
