"""Opposites of adjectives, read from WordNet's own file (`data.adj`, format: wndb(5WN)).

NLTK only finds the file. Its reader would want files that Debian's package leaves out, and reads the nouns as well.
"""

from collections.abc import Iterable
from pathlib import Path

from dci import DCIError

DEBIAN = Path("/usr/share/wordnet")
"""Where Debian's package `wordnet-base` has it."""

INSTALL = "python -m nltk.downloader wordnet, or on Debian and Ubuntu: apt install wordnet-base"


class Antonyms:
    """The adjectives of the WordNet that is installed.

    Raises:
        DCIError: If none is, or its file is broken.
    """

    def __init__(self) -> None:
        name, lines = _lines()
        try:
            self._opposites = _read(lines)
        except (ValueError, IndexError, KeyError) as error:
            raise DCIError(f"{name}: is not WordNet's data.adj ({error!r}); install it again: {INSTALL}") from error

    def of(self, adjective: str) -> list[str]:
        """The opposites of an adjective in any of its senses, sorted; none for most."""
        return sorted(self._opposites.get(adjective.lower(), ()))


def _lines() -> tuple[str, list[str]]:
    """The file's name and lines."""
    try:
        import nltk
    except ImportError:
        pass  # Debian's package needs none
    else:
        for place in ("corpora/wordnet/data.adj", "corpora/wordnet.zip/wordnet/data.adj"):
            try:
                found = nltk.data.find(place)
            except LookupError:
                continue
            with found.open() as file:
                return str(found), file.read().decode("utf-8", "replace").splitlines()
    path = DEBIAN / "data.adj"
    try:
        return str(path), path.read_text("utf-8", "replace").splitlines()
    except FileNotFoundError as error:
        raise DCIError(f"antonyms need WordNet, and it is not installed; {INSTALL}") from error


def _read(lines: Iterable[str]) -> dict[str, set[str]]:
    """The opposites of each adjective.

    A line is: offset, file, type, number of words (hexadecimal), words each with a number, number of pointers, pointers
    of four fields each, "|", gloss. An antonym's pointer is "!", the other line's offset, its part of speech, and the
    places of both words, from 1 on, as two hexadecimal digits each.
    """
    words: dict[str, list[str]] = {}
    pairs: list[tuple[str, int, str, int]] = []
    for line in lines:
        if not line or line.startswith(" "):
            continue  # the licence, which stands before the data
        fields = line.split("|", 1)[0].split()
        offset, count = fields[0], int(fields[3], 16)
        words[offset] = [_plain(word) for word in fields[4 : 4 + 2 * count : 2]]
        after = 4 + 2 * count
        for i in range(int(fields[after])):
            symbol, other, part, places = fields[after + 1 + 4 * i : after + 5 + 4 * i]
            if symbol == "!" and part in "as":
                pairs.append((offset, int(places[:2], 16) - 1, other, int(places[2:], 16) - 1))
    opposites: dict[str, set[str]] = {}
    for offset, mine, other, theirs in pairs:
        opposites.setdefault(words[offset][mine], set()).add(words[other][theirs])
    return opposites


def _plain(word: str) -> str:
    """A word without "(p)" and the like, which say where it may stand."""
    return word.split("(")[0].replace("_", " ").lower()
