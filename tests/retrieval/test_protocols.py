"""Each protocol's text, string by string, against strings written by hand and against second versions of the rules."""

import dataclasses
import itertools
import re
from pathlib import Path

import pytest

from dci import DCIError
from dci_metrics import metric_path
from dci_metrics.retrieval.lists import read_list
from dci_metrics.retrieval.protocols import PROTOCOLS, Captions
from dci_metrics.retrieval.run import select_protocols

REPOSITORY = Path(__file__).parents[2]
METRIC = Path(metric_path("dci_retrieval"))

SHORT = ["A dog.", "", " Ein Café 🎈.\n", "3.5 m of rope...", "cut</s>here", "a\r\nb", "\t.\n", "no end"]
EXTRA = ["", "It runs. It is 3.5 m long.\n", "\n", " ", "ÄÖÜ İ ẞ", "One</s></s>two.</S>", "…\u2028line", ".5"]


def texts(key, short="", extra="", **other):
    return list(PROTOCOLS[key].texts(Captions(short, extra, **other)))


@pytest.mark.parametrize(
    ("key", "short", "extra", "expected"),
    [
        ("lotlip", "A rope.", "It is 3.5 m long.\nRed.", ["A rope. It is 3. 5 m long. Red"]),
        ("lotlip", "A dog", "", ["A dog"]),
        ("lotlip", "", "", [""]),
        ("lotlip", " a </s> b\n\n. c ... \n", "</s>d.", ["a. b. c. d"]),
        ("lotlip", "A\tcafé.", "x</S>y\r\nz", ["A\tcafé. x</S>y. z"]),
        ("lotlip", "a\u2028b", "c", ["a\u2028b. c"]),
        ("debias", "A dog.", "It runs.\n", ["A dog.It runs."]),
        ("debias", "A dog. ", " It\nruns", ["A dog.  It\nruns"]),
        ("debias", "\n", "", [""]),
        ("said", "A dog.", "It runs.\n", ["A dog. It runs."]),
        ("said", "A dog.", "", ["A dog."]),
        ("said", "A dog. \n", "3.5", ["A dog. \n 3.5"]),
        ("tulip", "A dog.", "", []),
        ("tulip", "A dog.", " It runs.\n", [" It runs.\n"]),
        ("fgclip", "A dog.", "", [""]),
        ("fgclip", "A dog.", " It </s>Runs.\n", [" It </s>Runs.\n"]),
        ("fgclip2", "A dog.", "", [""]),
        ("fgclip2", "A dog.", "ΟΔΟΣ", ["οδος"]),
        ("fgclip2", "A dog.", " It Runs ÀÉ.\n", [" it runs àé.\n"]),
    ],
)
def test_by_hand(key, short, extra, expected):
    assert texts(key, short, extra) == expected


def lotlip(short, extra):
    pieces, piece, rest = [], "", short + "\n" + extra
    while rest:
        step = 4 if rest.startswith("</s>") else 1
        if step == 4 or rest[0] in "\n.":
            pieces.append(piece)
            piece = ""
        else:
            piece += rest[0]
        rest = rest[step:]
    return [". ".join(filter(None, (piece.strip() for piece in [*pieces, piece])))]


SECOND = {
    "lotlip": lotlip,
    "debias": lambda short, extra: ["".join([short, extra]).lstrip().rstrip()],
    "said": lambda short, extra: [" ".join([short, extra]).lstrip().rstrip()],
    "tulip": lambda short, extra: [extra] * bool(len(extra)),
    "fgclip": lambda short, extra: [extra],
    "fgclip2": lambda short, extra: ["".join(map(str.lower, extra))],
}


@pytest.mark.parametrize("key", SECOND)
@pytest.mark.parametrize(("short", "extra"), list(itertools.product(SHORT, EXTRA)))
def test_as_a_second_version(key, short, extra):
    assert texts(key, short, extra) == SECOND[key](short, extra)


def test_other_sources_of_text():
    given = Captions("short", "extra", " the\ndescription \n", " first summary", ("one", "", "one"))
    found = {key: list(PROTOCOLS[key].texts(given)) for key in ("full", "sdci", "goal")}
    assert found == {"full": [" the\ndescription \n"], "sdci": [" first summary"], "goal": ["one", "", "one"]}
    assert texts("sdci") == texts("goal") == []


def test_what_is_told_of_them():
    assert list(PROTOCOLS) == ["lotlip", "debias", "said", "tulip", "fgclip", "fgclip2", "goal", "full", "sdci"]
    photos = {key: protocol.photos for key, protocol in PROTOCOLS.items()}
    assert photos == dict.fromkeys(["lotlip", "debias", "said", "fgclip", "fgclip2"], 7805) | {
        "tulip": 7805 - 203, "goal": 1999, "full": None, "sdci": None
    }  # fmt: skip
    assert [key for key, protocol in PROTOCOLS.items() if protocol.ties == "lower_index"] == ["said"]
    assert [key for key, protocol in PROTOCOLS.items() if protocol.is_square] == ["fgclip"]
    assert PROTOCOLS["goal"].recall_at == (1, 5, 25, 50)


def test_choice():
    def keys(*asked, has_list=False):
        return [protocol.key for protocol in select_protocols(asked or None, has_list)]

    assert keys() == keys("all") == [key for key in PROTOCOLS if key != "goal"]
    assert keys(has_list=True) == list(PROTOCOLS)
    for key in ("my_own", "Own", ""):
        with pytest.raises(ValueError, match="small letters and digits"):
            dataclasses.replace(PROTOCOLS["full"], key=key)
    assert keys("sdci", "lotlip") == ["lotlip", "sdci"]
    with pytest.raises(DCIError, match=r"no protocol 'lot'.*sdci, or all"):
        keys("lotlip", "lot")
    with pytest.raises(DCIError, match="--goal-list"):
        keys("goal")
    with pytest.raises(DCIError, match="add goal"):
        keys("lotlip", has_list=True)


def test_a_list_in_both_forms(tmp_path):
    json_list, lines = tmp_path / "a.json", tmp_path / "b.txt"
    json_list.write_text('[{"filename": "../x/sa_1.jpg", "caption": "é\\n"}, {"filename": "C:\\\\y\\\\sa_2.jpg", '
                         '"caption": ""}, {"filename": "sa_1.jpg", "caption": "two"}]', "utf-8")  # fmt: skip
    assert read_list(json_list) == {"sa_1": ("é\n", "two"), "sa_2": ("",)}
    lines.write_text("photos/sa_1.jpg\té\u2028x\ry \r\n\nsa_2.jpg\t\nsa_1.jpg\ta\tb\n", "utf-8", newline="")
    assert read_list(lines) == {"sa_1": ("é\u2028x\ry ", "a\tb"), "sa_2": ("",)}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"[]", "is empty"),
        (b"[{", "not valid JSON"),
        (b'{"filename": "a"}', "expected a JSON list"),
        (b'[{"filename": "a.jpg"}]', "item 0: field `caption`"),
        (b'[{"filename": "a.jpg", "caption": "x"}, {"filename": 3, "caption": ""}]', "item 1: field `filename`"),
        (b'["a.jpg"]', "item 0: field `filename`"),
        (b'[{"filename": "", "caption": "x"}]', "item 0: field `filename`"),
        (b"a.jpg\tx\nb.jpg\n", "line 2: expected a photo's file name, a tab"),
        (b"\tx\n", "line 1"),
        (b"a.jpg\t\xff\n", "not UTF-8"),
    ],
)
def test_a_list_that_is_none(tmp_path, content, words):
    path = tmp_path / "list"
    path.write_bytes(content)
    with pytest.raises(DCIError, match=words) as caught:
        read_list(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_that_is_not_there(tmp_path):
    with pytest.raises(DCIError, match="cannot be read"):
        read_list(tmp_path / "none")


def test_every_list_of_them_is_whole():
    """Pages cannot be made of the declarations, as the command's help is."""
    rows = {key: (p.source, "any" if p.photos is None else f"{p.photos:,}") for key, p in PROTOCOLS.items()}
    for path in (REPOSITORY / "docs" / "retrieval.md", METRIC / "README.md"):
        found = re.findall(r"^\| `(\w+)` \| ([^|]+) \|.*?\| (any|[\d,]+) \|", path.read_text("utf-8"), re.MULTILINE)
        assert {key: (source, photos) for key, source, photos in found if key in PROTOCOLS} == rows, path
    page = (METRIC / "index.html").read_text("utf-8")
    found = re.findall(r'<tr><th scope="row">(\w+)</th><td>(.*?)</td>.*<td>(.*?)</td></tr>', page)
    assert {key: (source, photos) for key, source, photos in found} == rows
    assert f"Some of {', '.join(PROTOCOLS)};" in (METRIC / "dci_retrieval.py").read_text("utf-8")
