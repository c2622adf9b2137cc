"""`dci compare`: differences, what is refused, what is noted."""

import copy
import json

import command
import numpy as np
import pytest

from dci import DCIError
from dci_metrics.comparison import compare
from dci_metrics.results import Result, Score
from dci_metrics.statistics import mcnemar, paired_difference

TESTS = {"all_scm": range(40), "base_neg": range(0, 40, 4)}
"""By test, the entries that are in it: ten photos with three subcrops each."""


def score(values, is_rate=False):
    correct = None if is_rate else int(sum(values))
    value = sum(values) / len(values) if values else None
    return Score(value, correct, len(values), len(values), len(values), None, 0.5, 0, None, None, [])


def make_result(name, outcomes, rates=None):
    """A result of the given outcomes by test, and of rates on random groups."""
    entries = [(f"{i // 4}", "base" if i % 4 == 0 else f"m-{i % 4}-sc") for i in range(40)]
    marks = {test: ["-"] * 40 for test in outcomes}
    for test, values in outcomes.items():
        for i, value in zip(TESTS[test], values, strict=True):
            marks[test][i] = str(value)
    scores = {test: score([int(v) for v in values]) for test, values in outcomes.items()}
    scores |= {"random_scm_i2t": score(rates, is_rate=True)} if rates else {}
    return Result(
        model={"id": name},
        dataset={"id": "dci", "revision": None, "config": "sdci", "split": "test", "fingerprint": "f" * 64},
        settings={"mode": "paper", "group_size": 8, "crop": "box", "batch_size": 16, "dtype": "float32", "seed": 0},
        scores=scores,
        entries=entries,
        outcomes={test: "".join(found) for test, found in marks.items()},
        timing={"seconds": 1.0, "images": 40, "texts": 40, "stages": {}},
        environment={"torch": "2.13.0"},
        rates={"random_scm_i2t": rates} if rates else {},
    )


@pytest.fixture
def pair():
    rng = np.random.default_rng(0)
    a, b = ((rng.random(40) < p).astype(int).tolist() for p in (0.2, 0.9))
    same = [1, 0] * 5
    rates = rng.random(40).tolist()
    one = make_result("org/one", {"all_scm": a, "base_neg": same}, rates)
    other = make_result("org/other", {"all_scm": b, "base_neg": same}, [rate / 2 for rate in rates])
    for result in (one, other):
        result.check()
    return one, other


def test_every_test_of_both(pair):
    a, b = pair
    found = compare(a, b, seed=5)
    assert list(found.tests) == ["all_scm", "base_neg", "random_scm_i2t"]
    for test, entry in found.tests.items():
        values = [list(result.values_of(test).values()) for result in pair]
        photos = [image_id for image_id, _ in a.values_of(test)]
        assert (entry.difference, entry.ci95) == paired_difference(*values, photos, seed=5)
        assert entry.difference == pytest.approx(entry.b - entry.a)
        assert (entry.a, entry.b, entry.n) == (a.scores[test].value, b.scores[test].value, a.scores[test].n)
    scm, neg, random = found.tests.values()
    expected = mcnemar(*(list(result.values_of("all_scm").values()) for result in pair))
    assert (scm.only_a, scm.only_b, scm.p) == (expected.only_a, expected.only_b, expected.p)
    assert (neg.difference, neg.ci95, neg.only_a, neg.only_b, neg.p) == (0, (0, 0), 0, 0, 1)
    assert (random.only_a, random.only_b, random.p) == (None, None, None)
    assert [entry.better for entry in found.tests.values()] == ["b", None, "a"]


def test_report(pair):
    lines = compare(*pair).report().splitlines()
    assert lines[:3] == ["A: org/one", "B: org/other", "On dci (sdci, test), paper mode"]
    rows = {line.split("  ")[0]: line for line in lines}
    assert rows["All SCM"].endswith("B is better")
    assert rows["Base Neg"].split()[-7:] == ["0", "/", "0", "1.0000", "no", "difference", "shown"]
    assert rows["Random SCM, image → text"].split("  ")[-1] == "A is better"
    assert not any(line.startswith(("Note", "Not compared")) for line in lines)


def changed(result, part, key, value):
    result = copy.deepcopy(result)
    getattr(result, part)[key] = value
    return result


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("dataset", "fingerprint", "e" * 64),
        ("dataset", "split", "validation"),
        ("dataset", "config", "full"),
        ("settings", "mode", "other"),
        ("settings", "group_size", 4),
        ("settings", "crop", "masked"),
    ],
)
def test_other_data_and_settings_are_refused(pair, part, key, value):
    with pytest.raises(DCIError, match=rf"B cannot be compared with A: {part}\.{key} is '?{value}'?, not"):
        compare(pair[0], changed(pair[1], part, key, value))


def test_other_resizing_is_refused_where_it_is_known(pair):
    a, b = (changed(result, "settings", "image_backend", "pil") for result in pair)
    other = changed(b, "settings", "image_backend", "torch")
    with pytest.raises(DCIError, match=r"settings\.image_backend is 'torch', not 'pil'"):
        compare(a, other)
    # Of a model of the user's own it is not known.
    own = changed(b, "settings", "image_backend", None)
    assert compare(a, b).notes == []
    assert compare(a, own).notes == ["image_backend is pil in A and None in B"]


def test_other_entries_are_refused(pair):
    a, b = pair
    moved = copy.deepcopy(b)
    moved.entries[3] = ("0", "m-9-sc")
    with pytest.raises(DCIError, match="the entries of all_scm are others"):
        compare(a, moved)
    fewer = copy.deepcopy(b)
    fewer.outcomes["base_neg"] = "-" + fewer.outcomes["base_neg"][1:]
    with pytest.raises(DCIError, match="the entries of base_neg are others"):
        compare(a, fewer)


def test_entries_that_no_common_test_has_may_differ(pair):
    a, b = pair
    base = copy.deepcopy(b)
    base.entries = b.entries[::4]
    base.scores = {"base_neg": b.scores["base_neg"]}
    base.outcomes = {"base_neg": b.outcomes["base_neg"][::4]}
    base.rates = {}
    base.check()
    found = compare(a, base)
    assert (list(found.tests), found.skipped) == (["base_neg"], ["all_scm", "random_scm_i2t"])
    assert "Not compared: all_scm, random_scm_i2t" in found.report()
    del a.scores["base_neg"], a.outcomes["base_neg"]
    with pytest.raises(DCIError, match="no test with entries in common"):
        compare(a, base)


def test_what_may_differ_is_noted(pair):
    a, b = pair
    assert compare(a, changed(b, "settings", "seed", 4)).notes == []
    b = changed(changed(b, "settings", "dtype", "bfloat16"), "environment", "torch", "2.14.0")
    found = compare(a, b)
    assert found.notes == ["dtype is float32 in A and bfloat16 in B", "torch is 2.13.0 in A and 2.14.0 in B"]
    assert found.report().endswith("Note: " + "; ".join(found.notes) + ".")
    # Files of before there were masked crops do not name the crop.
    del a.settings["crop"]
    compare(a, b)


def test_protocols_that_somebody_wrote_into_tests_of_sdci(pair):
    expected = compare(*pair)
    for protocols in (5, {"lotlip": 5}):
        for result in pair:
            result.settings["protocols"] = protocols
        assert compare(*pair) == expected


def test_command(pair, tmp_path, monkeypatch, capsys):
    a, b, other = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "other.json"
    pair[0].save(a)
    pair[1].save(b)
    changed(pair[1], "dataset", "fingerprint", "0" * 64).save(other)

    def dci(*arguments):
        return command.run(monkeypatch, capsys, "compare", *arguments)

    assert dci(a, b) == (0, compare(*pair).report() + "\n", "")
    code, out, _ = dci(a, b, "--json", "--seed", "9")
    data = json.loads(out, parse_constant=pytest.fail)
    assert (code, data["seed"], list(data["tests"])) == (0, 9, list(compare(*pair).tests))
    assert data["tests"]["all_scm"]["better"] == "b"
    assert data["tests"]["random_scm_i2t"]["p"] is None
    command.refused(dci(a, other), f"{other} cannot be compared with {a}: dataset.fingerprint is '0000")
    command.refused(dci(a, tmp_path / "nowhere.json"), "nowhere.json: cannot be read")
