"""Wrong captions made by spaCy: two noun phrases, adjectives or verbs of a caption change places (appendix C.1.4).

One exchange a negative. Two at once can undo each other: "A cat sleeps, a dog barks." with both its nouns and its
verbs exchanged says the same as before.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from dci import DCIError
from dci_metrics.training.antonyms import Antonyms

if TYPE_CHECKING:
    from spacy.language import Language
    from spacy.tokens import Doc, Span, Token

PREFERRED = ("en_core_web_lg", "en_core_web_md", "en_core_web_sm", "en_core_web_trf")
"""Of several pipelines, the most accurate that is fast on a CPU; `trf` is more accurate, and far slower there."""

INSTALL = "pip install 'dci-metrics[spacy]'"
INSTALL_PIPELINE = "python -m spacy download en_core_web_sm"

EMPTY_WORDS = ("DET", "PRON", "PUNCT", "PART", "SPACE")
"""Parts of speech that do not make two noun phrases different: "a dog" and "the dog" are the same."""


@dataclass(frozen=True)
class _Edit:
    """What stands from character `start` to `end` of a caption instead of what did."""

    start: int
    end: int
    text: str


class Swaps:
    """Makes wrong captions.

    Args:
        pipeline: Name or folder of a spaCy pipeline; None takes an English one that is installed.
        antonyms: Whether adjectives are also replaced by their opposites in WordNet.

    Attributes:
        pipeline: Name and version of the pipeline; negatives depend on them.
        source: What makes the negatives, in words.

    Raises:
        DCIError: If spaCy, a pipeline or WordNet is not installed; it says how to get it.
    """

    def __init__(self, pipeline: str | None = None, antonyms: bool = False) -> None:
        self._nlp = _load(pipeline)
        self._antonyms = Antonyms() if antonyms else None
        meta = self._nlp.meta
        self.pipeline = f"{meta['lang']}_{meta['name']} {meta['version']}"
        self.source = f"spaCy swaps ({self.pipeline})" + (" and antonyms of WordNet" if antonyms else "")

    def negatives(
        self, texts: Iterable[str], count: int, seed: int, fits: Callable[[str], bool] = lambda text: True
    ) -> Iterator[list[str]]:
        """Wrong captions for each caption, in the order of the captions.

        Those of a caption depend on it, on `count`, `fits` and `seed` alone, and not on the other captions.

        Args:
            texts: Captions.
            count: Most negatives a caption.
            seed: Of the choice.
            fits: Whether a text is short enough for the model. One that is not is replaced by another.

        Yields:
            Up to `count` different texts, each different from the caption in more than case and blanks. Fewer, or
            none, where there is too little to exchange.
        """
        for text in texts:
            yield self._negatives_of(text, count, seed, fits)

    def _negatives_of(self, text: str, count: int, seed: int, fits: Callable[[str], bool]) -> list[str]:
        # One by one: the arithmetic of a batch differs in its last bits with what else is in it.
        doc = self._nlp(" ".join(text.split()))
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        rng = np.random.default_rng([seed, int.from_bytes(digest[:8])])
        # Kinds are drawn first: noun phrases are the most, and with their pairs would crowd out the rest.
        pools = [pool for pool in self._edits(doc) if pool]
        seen, found = {_fold(text)}, list[str]()
        while pools and len(found) < count:
            pool = pools[rng.integers(len(pools))]
            wrong = _apply(doc.text, pool.pop(rng.integers(len(pool))))
            pools = [pool for pool in pools if pool]
            if _fold(wrong) not in seen and fits(wrong):
                seen.add(_fold(wrong))
                found.append(wrong)
        return found

    def _edits(self, doc: "Doc") -> list[list[tuple[_Edit, ...]]]:
        """All that can be done to a caption, by kind."""
        # "it" or "which" in the place of a noun phrase makes no sentence.
        phrases = [phrase for phrase in doc.noun_chunks if phrase.root.pos_ != "PRON"]
        adjectives = [doc[word.i : word.i + 1] for word in doc if word.pos_ == "ADJ"]
        verbs = [doc[word.i : word.i + 1] for word in doc if word.pos_ == "VERB"]
        pools = [_exchanges(kind) for kind in (phrases, adjectives, verbs)]
        if self._antonyms is not None:
            # WordNet has no forms: of "larger" it would give "small". Nor shall there be "a white and white photo".
            plain = [adjective for adjective in adjectives if adjective.root.tag_ == "JJ"]
            pairs = [(word, other) for word in plain for other in self._antonyms.of(word.root.lower_)]
            there = {word.lower_ for word in doc}
            pools.append([(_place(word, other),) for word, other in pairs if other not in there])
        return pools


def _exchanges(phrases: list["Span"]) -> list[tuple[_Edit, ...]]:
    pairs = [(a, b) for a, b in combinations(phrases, 2) if _differ(a, b) and not _interchangeable(a.root, b.root)]
    return [(_place(a, _bare(b)), _place(b, _bare(a))) for a, b in pairs]


def _differ(a: "Span", b: "Span") -> bool:
    """Whether neither phrase has all the words of the other, in whatever form."""
    words_a, words_b = _words(a), _words(b)
    return not (words_a <= words_b or words_b <= words_a)


def _words(phrase: "Span") -> set[str]:
    return {(word.lemma_ or word.text).lower() for word in phrase if word.pos_ not in EMPTY_WORDS}


def _interchangeable(a: "Token", b: "Token") -> bool:
    """Whether an exchange leaves the meaning: "a cat and a dog", "a large red ball", "the animal is a cat"."""
    if b in a.conjuncts or (b.dep_ == "appos" and b.head == a):
        return True
    return a.head == b.head and {a.dep_, b.dep_} in ({"amod"}, {"nsubj", "attr"})


def _opens_sentence(phrase: "Span") -> bool:
    """Whether a phrase has a capital only for its place: the caption's other sentences may have none."""
    sentence = phrase[0].sent
    return phrase.text[0].isupper() and not any(word.is_alpha for word in phrase.doc[sentence.start : phrase.start])


def _bare(phrase: "Span") -> str:
    """A phrase as it is written inside a sentence."""
    first = phrase[0]
    is_name = first.pos_ == "PROPN" or first.text[1:] != first.text[1:].lower()
    return phrase.text if is_name or not _opens_sentence(phrase) else phrase.text[0].lower() + phrase.text[1:]


def _place(phrase: "Span", text: str) -> _Edit:
    """Put a text in the place of a phrase."""
    text = text[0].upper() + text[1:] if _opens_sentence(phrase) else text
    return _Edit(phrase.start_char, phrase.end_char, text)


def _apply(text: str, edits: tuple[_Edit, ...]) -> str:
    for edit in sorted(edits, key=lambda edit: edit.start, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    return text


def _fold(text: str) -> str:
    return " ".join(text.casefold().split())


def _load(name: str | None) -> "Language":
    try:
        import spacy
    except ImportError as error:
        raise DCIError(f"negatives by swaps need spaCy ({error}); {INSTALL}, then {INSTALL_PIPELINE}") from error
    if name is None:
        found = sorted(spacy.util.get_installed_models(), key=_rank)
        name = next((model for model in found if model.startswith("en_")), None)
    if name is None:
        raise DCIError(f"negatives by swaps need an English spaCy pipeline, and none is installed; {INSTALL_PIPELINE}")
    try:
        # Names of people and places are not needed.
        nlp = spacy.load(name, exclude=["ner"])
        parsed = nlp("A dog.")
    # spaCy raises whatever it misses: OSError, ImportError, ValueError, its own ConfigValidationError, ...
    except Exception as error:
        raise DCIError(f"{name}: cannot be loaded as a spaCy pipeline ({error}); {INSTALL_PIPELINE}") from error
    if nlp.lang != "en" or not all(parsed.has_annotation(layer) for layer in ("POS", "TAG", "DEP")):
        raise DCIError(f"{name}: is no English spaCy pipeline with a tagger and a parser; {INSTALL_PIPELINE}")
    return nlp


def _rank(model: str) -> tuple[int, str]:
    """The place of a pipeline; packages that others have made of the known ones add to the name."""
    known = [place for place, prefix in enumerate(PREFERRED) if model.startswith(prefix)]
    return (known[0] if known else len(PREFERRED)), model
