"""Subcrop-Caption Matching and negatives on sDCI, as a metric of the `evaluate` library."""

# One module a line, and the base class by its full name: that is how `evaluate` reads a metric's file.
from typing import Any

import datasets
import evaluate

from dci_metrics.embeddings import score_embeddings

_DESCRIPTION = """\
The tests of "A Picture is Worth More Than 77 Text Tokens" (section 4.1) for CLIP-style models. Subcrop-Caption Matching
(SCM): does a photo, or a subcrop of it, score highest with its own caption among those of a group of 8, mostly of the
same photo? Negatives: does it score higher with its own caption than with a wrong one that a language model made of it?
"""

_CITATION = """\
@InProceedings{Urbanek_2024_CVPR,
    author    = {Urbanek, Jack and Bordes, Florian and Astolfi, Pietro and Williamson, Mary and Sharma, Vasu
                 and Romero-Soriano, Adriana},
    title     = {A Picture is Worth More Than 77 Text Tokens: Evaluating CLIP-Style Models on Dense Captions},
    booktitle = {Proceedings of the IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)},
    year      = {2024},
    pages     = {26700-26709}
}
"""

_KWARGS_DESCRIPTION = """\
Either a model and a dataset:
    model: Hub id, folder, loaded transformers model, or an object with `encode_images` and `encode_texts`.
    dataset: `load_dataset("dci", "sdci", split="test")`, or all else that `dci_metrics.evaluate` takes.
    Other arguments (tests, batch_size, device, dtype, ...) go to `dci_metrics.evaluate`.
Or embeddings, one item an entry, in the order of the data (it decides the groups of SCM):
    image_embeds: (d) of the photo or subcrop.
    text_embeds: (k, d) of its captions; the first is used, in the Pick5 tests the first five.
    negative_embeds: (d) of its first "swaps" negative; without it there are no tests on negatives.
    hard_negative_embeds: (d) of its negative with the highest CLIP score; likewise.
    key: "base" for the photo, or such as "m-3-sc"; without it there are no tests on whole photos.
    left_out: the tests ("all", "pick5", "base", "hard") that its photo is out of; without it, none.
Returns:
    all_scm, all_neg, pick5_scm, pick5_neg, base_scm, base_neg, hard_negs: shares of right entries, from 0 to 1, higher
    is better. From embeddings, tests without entries are left out.
Examples:
    >>> scm = evaluate.load("you/dci_scm")
    >>> scm.add_batch(image_embeds=[[1, 0], [0, 1]], text_embeds=[[[1, 0]], [[1, 1]]], negative_embeds=[[0, 1], [1, 0]])
    >>> scm.compute()
    {'all_scm': 1.0, 'all_neg': 1.0}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class DciScm(evaluate.Metric):
    """The metric; `result` holds the whole result (intervals, chance, outcomes) of the last model it scored."""

    result: Any = None

    def _info(self) -> evaluate.MetricInfo:
        number, text = datasets.Value("float32"), datasets.Value("string")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features(
                {
                    "image_embeds": [number],
                    "text_embeds": [[number]],
                    "negative_embeds": [number],
                    "hard_negative_embeds": [number],
                    "key": text,
                    "left_out": [text],
                }
            ),
            homepage="https://github.com/facebookresearch/DCI",
            reference_urls=["https://arxiv.org/abs/2312.08578"],
        )

    def add_batch(self, *, image_embeds: Any, text_embeds: Any, **columns: Any) -> None:
        """Add the embeddings of some entries; of the other columns those that are known."""
        if image_embeds is None or text_embeds is None:
            raise ValueError("expected `image_embeds` and `text_embeds`, or `model` and `dataset`")
        n = len(image_embeds)
        given = {name: values for name, values in columns.items() if values is not None}
        super().add_batch(image_embeds=image_embeds, text_embeds=text_embeds, **_unknown(n) | given)

    def add(self, **columns: Any) -> None:
        """Add the embeddings of one entry."""
        self.add_batch(**{name: None if value is None else [value] for name, value in columns.items()})

    def compute(self, *, model: Any = None, dataset: Any = None, **kwargs: Any) -> Any:
        """Score a model on a dataset, or the embeddings that were added."""
        if model is None and dataset is None:
            found = super().compute(**kwargs)
            if isinstance(found, ValueError):
                raise found
            return found
        if model is None or dataset is None:
            raise ValueError("expected both `model` and `dataset`, or embeddings")
        try:
            import dci_metrics
        except ModuleNotFoundError as error:
            if error.name != "dci_metrics":
                raise
            raise ModuleNotFoundError(
                "scoring a model needs the package dci-metrics (pip install dci-metrics); embeddings are scored without"
            ) from None
        self.result = dci_metrics.evaluate(model, dataset, **kwargs)
        return self.result.values()

    def _compute(self, **columns: Any) -> dict[str, float] | ValueError:
        try:
            return score_embeddings(columns)
        except ValueError as error:
            # Raised by `compute`: here it would keep `evaluate` from letting go of its cache file.
            return error


def _unknown(n: int) -> dict[str, Any]:
    """What stands for a column that was not given: `evaluate` wants every column in every batch."""
    return {
        "negative_embeds": [[]] * n,
        "hard_negative_embeds": [[]] * n,
        "key": [""] * n,
        "left_out": [[]] * n,
    }
