"""Intervals and paired tests, against a bootstrap in loops, sums by hand, and data whose true value is known."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dci_metrics.statistics import McNemar, interval, mcnemar, paired_difference


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


# ----------------------------------------------------------------------------------------------------------------------
# Two models on the same entries
# ----------------------------------------------------------------------------------------------------------------------


def loops_difference(a, b, clusters, resamples=4000, seed=1):
    """Draw photos, take all entries of each, and score both models on what was drawn."""
    rng = np.random.default_rng(seed)
    photos = sorted(set(clusters))
    entries = {photo: [i for i, cluster in enumerate(clusters) if cluster == photo] for photo in photos}
    found = []
    for _ in range(resamples):
        drawn = [i for k in rng.integers(0, len(photos), len(photos)) for i in entries[photos[k]]]
        found.append(np.mean([b[i] for i in drawn]) - np.mean([a[i] for i in drawn]))
    return np.quantile(found, [0.025, 0.975])


def two_models(seed, photos):
    rng = np.random.default_rng(seed)
    a, clusters = clustered(rng, photos)
    b = [int(right if rng.random() < 0.8 else rng.random() < 0.7) for right in a]
    return a, b, clusters


@pytest.mark.parametrize("photos", [20, 108])
def test_paired_difference_is_that_of_a_bootstrap_over_photos(photos):
    a, b, clusters = two_models(photos, photos)
    difference, found = paired_difference(a, b, clusters)
    assert difference == pytest.approx(sum(b) / len(b) - sum(a) / len(a))
    np.testing.assert_allclose(found, loops_difference(a, b, clusters), atol=0.01)
    # Taken apart, the same two models tell less.
    (low_a, high_a), (low_b, high_b) = interval(a, clusters), interval(b, clusters)
    assert found[1] - found[0] < (high_a - low_a + high_b - low_b) / 1.3


def test_paired_difference_turns_with_the_models():
    a, b, clusters = two_models(7, 30)
    forward, (low, high) = paired_difference(a, b, clusters, seed=3)
    back, (back_low, back_high) = paired_difference(b, a, clusters, seed=3)
    assert (forward, low, high) == pytest.approx((-back, -back_high, -back_low), abs=0.02)
    assert paired_difference(a, b, clusters, seed=3) == (forward, (low, high))
    assert paired_difference(a, a, clusters) == (0, (0, 0))
    assert paired_difference([0.25, 0.5], [0.5, 0.75], ["a", "a"]) == (0.25, None)


def by_hand(only_a, only_b):
    """Twice the smaller tail of the binomial with p = 1/2, in whole numbers; 1 at most."""
    n = only_a + only_b
    tail = sum(math.comb(n, k) for k in range(min(only_a, only_b) + 1))
    return min(Fraction(1), Fraction(2 * tail, 2**n))


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (1, 0), (0, 6), (5, 5), (26, 18), (51, 11), (3, 400)])
def test_mcnemar_is_the_binomial_sum(only_a, only_b):
    a = [1] * only_a + [0] * only_b + [1, 1, 0]
    b = [0] * only_a + [1] * only_b + [1, 1, 0]
    found = mcnemar(a, b)
    assert (found.only_a, found.only_b) == (only_a, only_b)
    assert found.p == pytest.approx(float(by_hand(only_a, only_b)), rel=1e-9)
    assert mcnemar(b, a) == McNemar(only_b, only_a, found.p)


def test_mcnemar_rejects_as_often_as_it_says_at_most():
    # All outcomes of eight discordant entries that are as likely: 5 % of them at most have p <= 0.05.
    rejected = [mcnemar(a, [1 - x for x in a]).p <= 0.05 for a in itertools.product([0, 1], repeat=8)]
    assert 0 < np.mean(rejected) <= 0.05


def test_values_of_other_entries_are_refused():
    for a, b in (([1, 0], [1]), ([], []), ([[1, 0]], [[1, 0]])):
        with pytest.raises(ValueError, match="same entries"):
            mcnemar(a, b)
        with pytest.raises(ValueError, match="same entries"):
            paired_difference(a, b, ["a"] * len(a))
