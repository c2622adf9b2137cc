"""Image-text retrieval on DCI, as a metric of the `evaluate` library."""

# One module a line, and the base class by its full name: that is how `evaluate` reads a metric's file.
from typing import Any

import datasets
import evaluate

from dci_metrics.retrieval.embeddings import score_embeddings

_DESCRIPTION = """\
Retrieval with long texts on Densely Captioned Images: of all texts, does a photo find its own (image to text, i2t), and
of all photos a text its own (text to image, t2i)? Recall at K, mean average precision at 10, median rank; with a model
and a dataset in any of the protocols that papers use, whose figures cannot be compared with one another.
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
    dataset: `load_dataset("dci", "full")`, or all else that `dci_metrics.evaluate` takes.
    protocols: Some of lotlip, debias, said, tulip, fgclip, fgclip2, goal, full, sdci; by default all (goal where there
        is a list).
    Other arguments (split, goal_list, recall_at, batch_size, device, ...) go to `dci_metrics.evaluate`.
Or embeddings, one item a photo:
    image_embeds: (d) of the photo.
    text_embeds: (k, d) of its texts, one at least.
    recall_at: K of R@K; by default 1, 5 and 10.
    ties: "against" (an item with the same score counts as ahead) or "lower_index" (only if it stands before).
Returns:
    i2t_r1, i2t_r5, i2t_r10, i2t_map10: from 0 to 1, higher is better; i2t_medr: the median rank, lower is better; and
    the same of t2i. Of a model the keys begin with the protocol, as lotlip_i2t_r1.
Examples:
    >>> retrieval = evaluate.load("you/dci_retrieval")
    >>> retrieval.add_batch(image_embeds=[[1, 0], [0, 1]], text_embeds=[[[1, 0]], [[1, 1]]])
    >>> retrieval.compute(recall_at=[1])
    {'i2t_r1': 1.0, 'i2t_map10': 1.0, 'i2t_medr': 1.0, 't2i_r1': 0.5, 't2i_map10': 0.75, 't2i_medr': 1.5}
"""


@evaluate.utils.file_utils.add_start_docstrings(_DESCRIPTION, _KWARGS_DESCRIPTION)
class DciRetrieval(evaluate.Metric):
    """The metric; `result` holds the whole result (intervals, chance, ranks) of the last model it scored."""

    result: Any = None

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float32")
        return evaluate.MetricInfo(
            description=_DESCRIPTION,
            citation=_CITATION,
            inputs_description=_KWARGS_DESCRIPTION,
            features=datasets.Features({"image_embeds": [number], "text_embeds": [[number]]}),
            homepage="https://github.com/facebookresearch/DCI",
            reference_urls=["https://arxiv.org/abs/2312.08578"],
        )

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
        self.result = dci_metrics.evaluate(model, dataset, **{"tests": ["retrieval"], **kwargs})
        return self.result.values()

    def _compute(self, **columns: Any) -> dict[str, float] | ValueError:
        try:
            return score_embeddings(**columns)
        except ValueError as error:
            # Raised by `compute`: here it would keep `evaluate` from letting go of its cache file.
            return error
