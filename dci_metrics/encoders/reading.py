"""How a text that is longer than a model's limit is read: `--reading`, by name, so that results can be compared.

    truncate         its beginning, up to the limit
    sentences-mean   in pieces of whole sentences; the mean of the pieces' unit vectors, normalised again
    sentences-max    in pieces of whole sentences; the piece that is nearest to an image counts

Sentences are those of spaCy's rule-based sentencizer. As many as fit are one piece, from the beginning on. One that is
longer than the limit is a piece by itself, and is cut. A text that fits is one piece, the same in all three.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from dci import DCIError
from dci_metrics.encoders.base import MeasuresTexts, PairScorer, TextLength
from dci_metrics.encoders.texts import readable
from dci_metrics.similarity import MultiVector, unit_vectors

if TYPE_CHECKING:
    from spacy.language import Language

READINGS = ("truncate", "sentences-mean", "sentences-max")

TEXTS_AT_ONCE = 256
"""Long texts that are split at once: bounds memory whatever their number."""

GROUPS_AT_ONCE = 16
"""Pieces of a text that are measured at once."""

Span = tuple[int, int]
"""First character of a sentence, and the one behind its last."""


@dataclass(frozen=True)
class Pieces:
    """Texts as they are read.

    Attributes:
        texts: The pieces of all texts, each once.
        of: The pieces of each text by index, one at least.
        lengths: Of each text: the tokens of its pieces, and those that are lost all the same.
    """

    texts: list[str]
    of: list[list[int]]
    lengths: list[TextLength]

    def joined(self, embeds: Tensor, reading: str) -> MultiVector:
        """Embeddings of the texts from those of their pieces.

        Args:
            embeds: (pieces, d) unit vectors.
            reading: "sentences-mean" for one unit vector a text, or "sentences-max" for one a piece.

        Raises:
            DCIError: If the mean of a text's pieces has no direction.
        """
        if reading == "sentences-mean":
            return MultiVector.of(torch.stack([_mean(embeds[own]) for own in self.of]))
        return MultiVector(
            embeds, torch.tensor(list(chain.from_iterable(self.of))), torch.tensor(list(map(len, self.of)))
        )


def check_name(reading: str) -> None:
    """Look at what is asked for before a model is read.

    Raises:
        DCIError: If there is no such reading, or spaCy is not installed.
    """
    if reading not in READINGS:
        raise DCIError(f"no reading {reading!r}: expected one of {', '.join(READINGS)}")
    if reading != READINGS[0]:
        _sentencizer()


def check(reading: str, encoder: Any, name: str) -> None:
    """Make sure that an encoder can be read with.

    Raises:
        DCIError: If it looks at image and text together, or does not tell the length of a text.
    """
    if reading == READINGS[0]:
        return
    if isinstance(encoder, PairScorer):
        raise DCIError(
            f"{name}: looks at image and text together, and has no embeddings of pieces; go without --reading {reading}"
        )
    if not isinstance(encoder, MeasuresTexts):
        raise DCIError(f"{name}: does not tell what fits into its limit; --reading {reading} needs its `text_lengths`")


def split(texts: Sequence[str], encoder: MeasuresTexts) -> Pieces:
    """Split those texts that are over the model's limit into pieces under it."""
    index: dict[str, int] = {}
    of: list[list[int]] = []
    lengths: list[TextLength] = []
    for start in range(0, len(texts), TEXTS_AT_ONCE):
        batch = list(texts[start : start + TEXTS_AT_ONCE])
        whole = encoder.text_lengths(batch)
        long = [text for text, length in zip(batch, whole, strict=True) if length.lost]
        # What is cut is cut to the limit.
        limit = max((length.tokens for length in whole if length.lost), default=0)
        found = iter(_pieces(long, encoder, limit))
        for text, length in zip(batch, whole, strict=True):
            own = next(found) if length.lost else [(text, length)]
            of.append([index.setdefault(piece, len(index)) for piece, _ in own])
            lengths.append(TextLength(sum(n.tokens for _, n in own), sum(n.lost for _, n in own)))
    return Pieces(list(index), of, lengths)


def sentences(text: str) -> list[Span]:
    """Where the sentences of a text are, blanks around them left out; none in a text of blanks."""
    doc = _sentencizer()(readable(text))
    found = ((sentence.start_char, sentence.end_char) for sentence in doc.sents)
    stripped = ((text[a:b], a) for a, b in found if text[a:b].strip())
    return [(a + len(s) - len(s.lstrip()), a + len(s.rstrip())) for s, a in stripped]


@cache
def _sentencizer() -> "Language":
    try:
        import spacy
    except ImportError as error:
        raise DCIError("splitting texts into sentences needs spaCy: pip install 'dci-metrics[spacy]'") from error
    nlp = spacy.blank("en")
    nlp.add_pipe("sentencizer")
    nlp.max_length = 1 << 40  # its own limit is for parsers, which take much memory
    return nlp


def _pieces(texts: Sequence[str], encoder: MeasuresTexts, limit: int) -> Iterator[list[tuple[str, TextLength]]]:
    """The pieces of each text, with their lengths."""
    spans = [sentences(text) or [(0, len(text))] for text in texts]
    measured = iter(_measured(encoder, [text[a:b] for text, own in zip(texts, spans, strict=True) for a, b in own]))
    special = _measured(encoder, [""])[0].tokens if texts else 0
    for text, own in zip(texts, spans, strict=True):
        counts = [max(0, length.tokens + length.lost - special) for length in islice(measured, len(own))]
        yield list(_packed(text, list(zip(own, counts, strict=True)), encoder, limit - special))


def _packed(
    text: str, counted: Sequence[tuple[Span, int]], encoder: MeasuresTexts, room: int
) -> Iterator[tuple[str, TextLength]]:
    """Pack sentences, given with their tokens, into pieces that fit."""
    done = 0
    while done < len(counted):
        # Not all at once: where one does not fit, those behind it begin elsewhere.
        groups = list(islice(_grouped(islice(counted, done, None), room), GROUPS_AT_ONCE))
        for group, (part, length) in zip(groups, _measured_parts(text, groups, encoder), strict=True):
            if length.lost and len(group) > 1:
                # Together they have more tokens than one by one, such as those of the blanks between them.
                fewer = _measured_parts(text, [group[:n] for n in range(1, len(group))], encoder)
                n = max((n for n, (_, length) in enumerate(fewer, 1) if not length.lost), default=1)
                yield fewer[n - 1]
                done += n
                break
            yield part, length
            done += len(group)


def _measured_parts(
    text: str, groups: Sequence[Sequence[tuple[Span, int]]], encoder: MeasuresTexts
) -> list[tuple[str, TextLength]]:
    """What groups of sentences are as texts, with their lengths."""
    parts = [text[group[0][0][0] : group[-1][0][1]] for group in groups]
    return list(zip(parts, _measured(encoder, parts), strict=True))


def _grouped(counted: Iterable[tuple[Span, int]], room: int) -> Iterator[list[tuple[Span, int]]]:
    group: list[tuple[Span, int]] = []
    taken = 0
    for span, count in counted:
        if group and taken + count > room:
            yield group
            group, taken = [], 0
        group.append((span, count))
        taken += count
    if group:
        yield group


def _measured(encoder: MeasuresTexts, texts: list[str]) -> list[TextLength]:
    return encoder.text_lengths(texts) if texts else []  # tokenizers refuse an empty list


def _mean(embeds: Tensor) -> Tensor:
    if len(embeds) == 1:
        return embeds[0]
    try:
        return unit_vectors(embeds.double().mean(0))
    except ValueError as error:
        raise DCIError("the model gave pieces of a text embeddings that cancel out; their mean says nothing") from error
