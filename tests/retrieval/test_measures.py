"""Figures of ranks: by hand, by another library's rules, and, for chance, by trying it out."""

import numpy as np
import pytest

from dci_metrics.retrieval.measures import ScoreKey, measure_of, measures, read_ranks, write_ranks


def test_by_hand():
    ranks = [(1,), (6,), (11,), (2, 3), (1, 20), (30, 31)]
    assert [measure_of("r1").of(r) for r in ranks] == [1, 0, 0, 0, 1, 0]
    assert [measure_of("r5").of(r) for r in ranks] == [1, 0, 0, 1, 1, 0]
    assert [measure_of("r25").of(r) for r in ranks] == [1, 1, 1, 1, 1, 0]
    expected = [1, 1 / 6, 0, (1 / 2 + 2 / 3) / 2, 1 / 2, 0]
    assert [measure_of("map10").of(r) for r in ranks] == pytest.approx(expected)
    median = measure_of("medr")
    assert [median.of(r) for r in ranks] == [1, 6, 11, 2, 1, 30]
    assert median.over([1, 6, 11, 2, 1, 30]) == 4
    assert median.over([3, 1, 2]) == 2
    assert median.over([]) is measure_of("r1").over([]) is None


def test_names():
    assert [m.key for m in measures([1, 50])] == ["r1", "r50", "map10", "medr"]
    assert [m.title for m in measures([1, 50])] == ["R@1", "R@50", "mAP@10", "median rank"]
    key, measure = ScoreKey.parse("fgclip2_t2i_r10")
    assert (key, measure.key, measure.unit, measure.higher_is_better) == ("fgclip2_t2i", "r10", "recall", True)
    assert not ScoreKey.parse("a_i2t_medr")[1].higher_is_better
    for wrong in ("r0", "r", "r-1", "r²", "map5", "x1", "", "all_scm"):
        with pytest.raises(ValueError, match="no measure"):
            measure_of(wrong)


@pytest.mark.parametrize(("own", "gallery"), [(1, 48), (3, 25), (2, 8), (12, 30), (1, 1), (4, 4)])
def test_chance_is_what_random_ranks_give(own, gallery):
    rng = np.random.default_rng(0)
    drawn = [sorted(int(r) + 1 for r in rng.permutation(gallery)[:own]) for _ in range(20_000)]
    for measure in measures([1, 5, 10])[:-1]:
        found = measure.over([measure.of(ranks) for ranks in drawn])
        assert measure.chance([own], gallery) == pytest.approx(found, abs=0.012)
    both = measure_of("r1").chance([own, 1], gallery)
    assert both == pytest.approx((own / gallery + 1 / gallery) / 2)
    assert measure_of("medr").chance([own], gallery) is None


def test_ranks_as_text():
    ranks = [(1,), None, (3, 9), (120,)]
    assert write_ranks(ranks) == "1 - 3,9 120"
    assert read_ranks("1 - 3,9 120") == ranks
    for wrong in ("0", "9,3", "x", "1,", "1,-", "-1"):
        with pytest.raises(ValueError, match=r"invalid literal|expected ranks"):
            read_ranks(wrong)
