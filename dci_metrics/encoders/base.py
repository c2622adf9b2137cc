"""What the benchmark asks of a model. Any object with these methods can be scored; no base class is needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import PIL.Image
import torch


@runtime_checkable
class DualEncoder(Protocol):
    """A model whose images and texts meet in one space, compared by cosine."""

    def encode_images(self, images: Sequence[PIL.Image.Image]) -> torch.Tensor:
        """Embed RGB images of any size; gives (n, d), normalised or not.

        A model that sees several vectors in an image gives (n, q, d); the one nearest to a text counts.
        """
        ...

    def encode_texts(self, texts: Sequence[str]) -> torch.Tensor:
        """Embed texts, cut to the model's limit; gives (n, d), normalised or not."""
        ...


@runtime_checkable
class PairScorer(Protocol):
    """A model that looks at an image and a text together, and has no embeddings to compare."""

    def score(self, images: Sequence[PIL.Image.Image], texts: Sequence[str]) -> torch.Tensor:
        """Score every image against every text; gives (len(images), len(texts)), higher for a better match."""
        ...


@runtime_checkable
class LooksOnce(PairScorer, Protocol):
    """A pair scorer that looks at an image once for all the texts that it is scored against."""

    def look(self, image: PIL.Image.Image) -> Any:
        """All that can be computed of an image before a text is known."""
        ...

    def score_seen(self, seen: Any, texts: Sequence[str]) -> torch.Tensor:
        """Score texts against what `look` gave; gives (len(texts),), higher for a better match."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A dual encoder whose preprocessing can run ahead of it, in another thread."""

    def prepare_images(self, images: Sequence[PIL.Image.Image]) -> Sequence[Any]:
        """Preprocess images; gives one item an image."""
        ...

    def encode_prepared(self, prepared: Sequence[Any]) -> torch.Tensor:
        """Embed preprocessed images; gives (n, d)."""
        ...


class TextLength(NamedTuple):
    """How long a text is for a model.

    Attributes:
        tokens: As encoded, with the special tokens, after cutting.
        lost: Tokens cut off because the text was over the model's limit.
    """

    tokens: int
    lost: int


def cut(lengths: Sequence[TextLength] | None) -> tuple[float | None, int | None]:
    """The share of texts that are cut, and the tokens that are lost; None where the model does not tell."""
    if lengths is None:
        return None, None
    return sum(length.lost > 0 for length in lengths) / max(1, len(lengths)), sum(length.lost for length in lengths)


@runtime_checkable
class MeasuresTexts(Protocol):
    """A model that can tell how many tokens a text has and how many it cuts off."""

    def text_lengths(self, texts: Sequence[str]) -> list[TextLength]:
        """The length of each text."""
        ...


@runtime_checkable
class ReadsTokens(Protocol):
    """A dual encoder that tells what it reads of a text, so that texts that are one to it are encoded once.

    Texts that differ in blanks, in capitals, or beyond the limit only may be the same tokens. Encoded in different
    batches they would differ in the last bit, and an exact tie, which the tests have rules for, would be none.
    """

    def token_ids(self, texts: Sequence[str]) -> list[tuple[int, ...]]:
        """The tokens of each text after cutting, with the special ones."""
        ...


@dataclass(frozen=True)
class ModelInfo:
    """What a result says of its model; None where nothing is known.

    Attributes:
        id: Hub id, folder, or the name of the object's class.
        revision: Commit on the Hub, or of a checkpoint of open_clip's the hash of its file.
        family: `model_type` of the model's config.
        adapter: The adapter merged into it: folder or Hub id.
        adapter_base: The model that the adapter says it was made for, which need not be this one.
        adapter_revision: The adapter's commit on the Hub, or the hash of its weights.
        parameters: Count.
        text_limit: Tokens that it can read, special tokens counted.
        max_tokens: A text limit that was asked for instead of its own.
        stretch: How its position embeddings were stretched for that.
        image_size: Side of the square it sees, in pixels.
        image_backend: What resizes its images: "pil" as in the paper; "torch", where the model is, and "torchvision"
            differ slightly.
        dtype: Of its weights.
        device: Where it runs.
        compiled: Whether its blocks are compiled, which moves figures in their last digits.
        scorer: How it compares an image with a text: "contrastive", "matching" or "vqascore".
        question: What it is asked of an image and a text, with {} for the text.
    """

    id: str
    revision: str | None = None
    family: str | None = None
    adapter: str | None = None
    adapter_base: str | None = None
    adapter_revision: str | None = None
    parameters: int | None = None
    text_limit: int | None = None
    max_tokens: int | None = None
    stretch: str | None = None
    image_size: int | None = None
    image_backend: str | None = None
    dtype: str | None = None
    device: str | None = None
    compiled: bool = False
    scorer: str | None = None
    question: str | None = None
