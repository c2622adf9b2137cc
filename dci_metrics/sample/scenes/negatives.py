"""False captions, each made from a statement by one kind of change."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .lexicon import KINDS
from .palette import contrast
from .statements import OPPOSITES, Mention, Statement, is_true
from .world import COLOURS, PAINTS, TWO_COLOURED, Scene, pick


def make_negatives(
    statement: Statement, scene: Scene, known: set[str], rng: np.random.Generator, count: int
) -> dict[str, list[str]]:
    """Negatives of all three kinds.

    Args:
        statement: The first summary.
        scene: The scene that decides what is false.
        known: Texts that a negative may not repeat, the summaries.
        rng: Makes the choices.
        count: How many of each kind.

    Returns:
        Kind to texts: `basic` changes an attribute or a noun, `layout` a relation, place or count, and
        `swaps` exchanges words of the sentence and adds none.
    """
    seen = set(known)
    result: dict[str, list[str]] = {}
    for kind, changed in (
        ("basic", _basic(statement, rng)),
        ("layout", _layout(statement, rng)),
        ("swaps", _swaps(statement, rng)),
    ):
        texts: list[str] = []
        for candidate in changed:
            text = candidate.text()
            # a changed attribute must be false by itself, whatever the relations around it
            claim = replace(candidate, links=()) if kind == "basic" else candidate
            if text not in seen and not is_true(claim, scene):
                seen.add(text)
                texts.append(text)
            if len(texts) == count:
                break
        result[kind] = texts
    return result


def _basic(statement: Statement, rng: np.random.Generator) -> Iterator[Statement]:
    for _ in range(40):
        changed = _other_attribute(statement, rng)
        # two changes now and then, so that the hardest negative is not always of one kind
        yield _other_attribute(changed, rng) if rng.random() < 0.45 else changed


def _other_attribute(statement: Statement, rng: np.random.Generator) -> Statement:
    i = int(rng.integers(len(statement.mentions)))
    m, chance = statement.mentions[i], rng.random()
    if chance < 0.35:
        family = KINDS[m.kind].family
        m = replace(m, kind=pick(rng, [k for k, v in KINDS.items() if v.family == family and k != m.kind]))
    elif m.accent and chance < 0.55:
        m = replace(m, material=pick(rng, [other for other in TWO_COLOURED if other != m.material]))
    else:
        among = PAINTS if m.colour in PAINTS else COLOURS
        m = replace(m, colour=pick(rng, [c for c in among if contrast(c, m.colour) > 130 and c != m.accent]))
    return _with(statement, i, m)


def _layout(statement: Statement, rng: np.random.Generator) -> Iterator[Statement]:
    flipped = [
        replace(statement, links=(*statement.links[:i], replace(link, word=word), *statement.links[i + 1 :]))
        for i, link in enumerate(statement.links)
        for word in OPPOSITES[link.word]
    ]
    counts = [
        _with(statement, i, replace(m, count=other))
        for i, m in enumerate(statement.mentions)
        if KINDS[m.kind].family != "backdrop" and i > 0
        for other in ((2, 3) if m.count == 1 else (m.count + 1, m.count + 2))
    ]
    both = [replace(one, links=other.links) for one in counts for other in flipped]
    for options, share in ((flipped, 0.8), (counts, 1.0), (both, 1.0), (flipped, 1.0)):
        for k in rng.permutation(len(options)):
            if rng.random() < share:
                yield options[int(k)]


def _swaps(statement: Statement, rng: np.random.Generator) -> Iterator[Statement]:
    """Exchanges colours, nouns or whole mentions; the sentence keeps exactly its words."""
    mentions = statement.mentions
    pairs = [(i, j) for j in range(len(mentions)) for i in range(j)]
    colours, nouns, wholes = [], [], []
    for i, j in pairs:
        a, b = mentions[i], mentions[j]
        if a.colour != b.colour and b.colour != a.accent and a.colour != b.accent:
            colours.append(_with(_with(statement, i, replace(a, colour=b.colour)), j, replace(b, colour=a.colour)))
        if a.kind != b.kind and a.count == b.count:
            swapped = _with(_with(statement, i, replace(a, kind=b.kind)), j, replace(b, kind=a.kind))
            nouns.append(swapped)
            # "a door with a house" may pass for true, "a door left of a window" may not: only around a relation
            if any({link.first, link.second} == {i, j} for link in statement.links):
                wholes.append(_with(_with(statement, i, b), j, a))
    options_of_each = (colours, nouns, wholes)
    order = [options_of_each[int(k)] for k in rng.permutation(3)]
    if rng.random() < 0.6:
        order = [colours, nouns, wholes]
    for options in order:
        for k in rng.permutation(len(options)):
            yield options[int(k)]


def _with(statement: Statement, i: int, m: Mention) -> Statement:
    return replace(statement, mentions=(*statement.mentions[:i], m, *statement.mentions[i + 1 :]))
