"""Result files of retrieval that somebody has edited: each is one clear line."""

import copy
import json

import pytest

import dci_metrics
from dci import DCIError
from dci_metrics.results import Result


@pytest.fixture(scope="module")
def data():
    result = dci_metrics.evaluate(
        "sample:tiny-clip", "sample:photographs", protocols=["lotlip", "sdci"], device="cpu", progress=False
    )
    return json.loads(result.to_json())


def set_in(*path):
    """Sets a field; the last of `path` is its value."""
    *steps, last, value = path

    def spoil(data):
        for step in steps:
            data = data[step]
        data[last] = value

    return spoil


def words(change):
    """Changes the words of one text of ranks."""

    def spoil(data):
        found = data["ranks"]["lotlip_i2t"].split()
        change(found)
        data["ranks"]["lotlip_i2t"] = " ".join(found)

    return spoil


def first(value):
    return words(lambda found: found.__setitem__(0, value))


def move(data):
    data["scores"]["lotlip_i2t_rank"] = data["scores"].pop("lotlip_i2t_r1")


def swap(data):
    for part in ("ranks", "scores"):
        data[part] = {key.replace("lotlip_i2t", "lotlip_i2i"): value for key, value in data[part].items()}


def without_ranks(data):
    data["ranks"], data["scores"] = {}, {}


SPOILT = {
    "a rank too many": (words(lambda found: found.append("1")), "`ranks` of lotlip_i2t are 11, and there are 10"),
    "a rank too few": (words(list.pop), "`ranks` of lotlip_i2t are 9, and there are 10 `entries`"),
    "rank 0": (first("0"), "`ranks` of lotlip_i2t: expected ranks from 1, in ascending order, got 0"),
    "a rank twice": (first("2,2"), "`ranks` of lotlip_i2t: expected ranks from 1, in ascending order, got 2,2"),
    "a word": (first("one"), "`ranks` of lotlip_i2t", "'one'"),
    "a query less": (first("-"), "`ranks` of lotlip_i2t are not of the 5 photos"),
    "a text for a photo": (words(list.reverse), "`ranks` of lotlip_i2t are not of the 5 photos"),
    "a rank beyond the last": (first("6"), "`ranks` of lotlip_i2t have one beyond the last, 5"),
    "another rank": (first("5"), "`scores` of lotlip_i2t_", "are not those of its `ranks`"),
    "no text of ranks": (set_in("ranks", "lotlip_i2t", [1]), "not a result file"),
    "no ranks": (set_in("ranks", {}), "`ranks` and `scores` are of other protocols"),
    "neither ranks nor scores": (without_ranks, "`ranks` and `scores` are of other protocols"),
    "ranks of another direction": (swap, "`ranks` have 'lotlip_i2i', which ends in none of i2t, t2i"),
    "no measure": (move, "no measure 'rank': expected r1, r5, ..., map10 or medr"),
    "a recall beyond 1": (set_in("scores", "lotlip_i2t_r5", "value", 1.5), "`scores` of lotlip_i2t_r5 have 1.5"),
    "another figure": (set_in("scores", "sdci_t2i_r1", "value", 0.9), "`scores` of sdci_t2i_r1 are not those"),
    "another count": (set_in("scores", "sdci_t2i_r1", "correct", 4), "`scores` of sdci_t2i_r1 are not those"),
    "another n": (set_in("scores", "sdci_t2i_r1", "n", 4), "`scores` of sdci_t2i_r1 are not those of its `ranks`"),
    "another median": (set_in("scores", "sdci_t2i_medr", "value", 1.0), "`scores` of sdci_t2i_medr are not those"),
    "other photos": (set_in("scores", "sdci_t2i_r1", "n_images", 7805), "sdci_t2i_r1 are of other photos or texts"),
    "a unit that is none": (set_in("scores", "sdci_t2i_r1", "unit", "rank"), "in 'rank', not in 'recall'"),
    "no protocols": (set_in("settings", "protocols", {}), "`settings.protocols` do not tell of lotlip"),
    "a protocol in a word": (set_in("settings", "protocols", "lotlip", 1), "do not tell of lotlip"),
    "a protocol too many": (
        set_in("settings", "protocols", "x", {}),
        "`settings.protocols` are not those of `ranks`",
    ),
    "protocols in a word": (set_in("settings", "protocols", "x"), "`settings.protocols` are not those of `ranks`"),
    "a query twice": (lambda data: data["entries"].__setitem__(1, data["entries"][0]), "`entries` have a query twice"),
    "no fingerprint": (
        set_in("settings", "protocols", "sdci", "fingerprint", None),
        "`settings.protocols.sdci.fingerprint` is None",
    ),
    "outcomes": (set_in("outcomes", {"all_scm": "1" * 10}), "`ranks` are of the mode retrieval"),
    "another mode": (set_in("settings", "mode", "paper"), "`ranks` are of the mode retrieval"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_what_is_spoilt(what, data, tmp_path):
    spoil, *parts = SPOILT[what]
    spoilt = copy.deepcopy(data)
    spoil(spoilt)
    path = tmp_path / "spoilt.json"
    path.write_text(json.dumps(spoilt))
    with pytest.raises(DCIError) as caught:
        Result.load(path)
    said = str(caught.value)
    assert said.startswith(f"{path}: not a result file (")
    assert "\n" not in said
    for part in parts:
        assert part in said


def test_what_is_whole(data, tmp_path):
    path = tmp_path / "whole.json"
    path.write_text(json.dumps(data))
    assert json.loads(Result.load(path).to_json()) == data
