"""The protocols as data: which text stands for a photo, which photos take part, what ties do.

Figures of different protocols cannot be compared: the same model moves by many points. To add a protocol, add it to
`PROTOCOLS`; no other code names them. Nothing is imported here that takes time: the command has them in its help.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Captions(NamedTuple):
    """What a protocol may make a photo's text of.

    Attributes:
        short: `short_caption`, as released.
        extra: `extra_caption`, as released; empty for 203 photos.
        description: The full description, with the texts of the masks.
        summary: The first summary of the whole photo, from the configuration `sdci`; None where there is none.
        listed: The texts that the user's own list has for the photo.
    """

    short: str = ""
    extra: str = ""
    description: str = ""
    summary: str | None = None
    listed: tuple[str, ...] = ()


DIRECTIONS = {"i2t": "image → text", "t2i": "text → image"}
"""What looks for what; each protocol is scored in both."""

Needs = Literal["full", "sdci", "list"]
"""Where a protocol's texts come from: a configuration of the dataset, or a list that the user has."""


@dataclass(frozen=True)
class Protocol:
    """One way to evaluate retrieval on DCI.

    Attributes:
        key: Its name in commands and results, of small letters and digits.
        source: Who published figures in it.
        composition: How its text is made, in words.
        texts: The texts of a photo; a photo that gets none is left out.
        needs: Where its texts come from.
        photos: How many photos of the real data it is published on, over all splits; None where a split is enough.
        without: Why a photo that gets no text is left out.
        is_square: Whether photos are squashed to a square before the model's own preprocessing.
        ties: "against" counts an equally scored other item as ahead, "lower_index" gives a tie to the lower index.
        recall_at: The K of R@K that its figures are published for.
        notes: What else its figures depend on.
    """

    key: str
    source: str
    composition: str
    texts: Callable[[Captions], Sequence[str]]
    needs: Needs = "full"
    photos: int | None = None
    without: str = ""
    is_square: bool = False
    ties: Literal["against", "lower_index"] = "against"
    recall_at: tuple[int, ...] = (1,)
    notes: str = ""

    def __post_init__(self) -> None:
        """Refuse a key that keys of scores could not be told from, as `my_own_i2t_r1`."""
        if not re.fullmatch("[a-z0-9]+", self.key):
            raise ValueError(f"key {self.key!r}: expected small letters and digits alone")


ALL_PHOTOS = 7_805
"""Photos of the three splits together."""

WITH_EXTRA = 7_602
"""Those whose `extra_caption` is not empty."""

_SENTENCE_ENDS = re.compile(r"\n|</s>|\.")


def _as_sentences(text: str) -> str:
    """Pieces between line ends, `</s>` and full stops, joined by ". ": "It is 3.5 m." becomes "It is 3. 5 m"."""
    pieces = (piece.strip() for piece in _SENTENCE_ENDS.split(text))
    return ". ".join(piece for piece in pieces if piece)


PROTOCOLS: dict[str, Protocol] = {
    protocol.key: protocol
    for protocol in (
        Protocol(
            "lotlip",
            "LoTLIP, also FLAIR and ColXLIP",
            'short + newline + extra, cut at line ends, "</s>" and "."; pieces stripped and joined with ". "',
            lambda photo: [_as_sentences(f"{photo.short}\n{photo.extra}")],
            photos=ALL_PHOTOS,
            recall_at=(1, 5, 10),
            notes="a decimal such as 3.5 becomes 3. 5",
        ),
        Protocol(
            "debias",
            "DeBias-CLIP",
            "short + extra with nothing between them, stripped",
            lambda photo: [f"{photo.short}{photo.extra}".strip()],
            photos=ALL_PHOTOS,
        ),
        Protocol(
            "said",
            "SAID",
            "short + blank + extra, stripped",
            lambda photo: [f"{photo.short} {photo.extra}".strip()],
            photos=ALL_PHOTOS,
            ties="lower_index",
            notes="exact ties go to the lower index",
        ),
        Protocol(
            "tulip",
            "TULIP (Long-DCI)",
            "extra alone",
            lambda photo: [photo.extra] if photo.extra else [],
            photos=WITH_EXTRA,
            without="its extra_caption is empty",
            recall_at=(1, 5, 10),
            notes="photos with an empty extra_caption are left out",
        ),
        Protocol(
            "fgclip",
            "FG-CLIP",
            "extra alone, the empty ones too",
            lambda photo: [photo.extra],
            photos=ALL_PHOTOS,
            is_square=True,
            notes="photos are squashed to a square; published with 248 tokens and 336 pixels",
        ),
        Protocol(
            "fgclip2",
            "FG-CLIP 2",
            "extra alone in lower case, the empty ones too",
            lambda photo: [photo.extra.lower()],
            photos=ALL_PHOTOS,
            notes="published with 64 or 196 tokens",
        ),
        Protocol(
            "goal",
            "GOAL",
            "the texts of that project's list",
            lambda photo: photo.listed,
            needs="list",
            photos=1_999,
            without="it is not in the list",
            recall_at=(1, 5, 25, 50),
            notes="published with 248 tokens",
        ),
        Protocol(
            "full",
            "nobody yet",
            "the full description, with the texts of all masks",
            lambda photo: [photo.description],
            notes="1,279 tokens of CLIP on average",
        ),
        Protocol(
            "sdci",
            "nobody yet",
            "the first summary of the photo",
            lambda photo: [] if photo.summary is None else [photo.summary],
            needs="sdci",
            without="it has no summary",
            notes="fits in 77 tokens",
        ),
    )
}
