"""The metric as a Gradio app: embeddings or similarities in, scores out.

pip install -r requirements.txt gradio
python app.py
"""

import json
from pathlib import Path
from typing import Any

import evaluate
import gradio as gr  # type: ignore[import-not-found, unused-ignore]  # no dependency of the package
import torch

from dci_metrics.scoring import beat_negative, match_within_group

GROUP = 8
EXAMPLE_EMBEDDINGS = """{
  "image_embeds": [[1, 0], [0, 1], [1, 1]],
  "text_embeds": [[[0.9, 0.1]], [[0.2, 0.8]], [[0.1, 0.9]]],
  "negative_embeds": [[0.5, 0.5], [0.1, 0.9], [1, 0]],
  "key": ["base", "m-3-sc", "m-4-sc"]
}"""
EXAMPLE_SIMILARITIES = """0.31 0.22 0.18   0.29
0.20 0.27 0.25   0.28
0.12 0.24 0.23   0.21"""

metric = evaluate.load(str(Path(__file__).with_name("dci_scm.py")))

Rows = list[list[str]]


def score_embeddings(text: str, file: str | None) -> Rows:
    """Scores by test, in percent, of a JSON object with the metric's columns."""
    try:
        columns = json.loads(Path(file).read_bytes() if file else text)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"Not valid JSON: {error}") from error
    # Nothing but columns: other arguments of the metric would let a visitor load models on this machine.
    if not isinstance(columns, dict) or not set(columns) <= set(metric.features):
        raise _refusal(f"Expected a JSON object with some of {', '.join(metric.features)}.")
    try:
        # One at a time: Gradio queues the calls of one button.
        scores = metric.compute(**columns)
    # What is wrong with the user's numbers, in the words of the metric, of `evaluate` or of Arrow.
    except Exception as error:
        raise _refusal(str(error)) from error
    return [[test, f"{100 * score:.2f}"] for test, score in scores.items()]


def score_similarities(text: str) -> tuple[str, Rows]:
    """What of each entry is right, in groups of 8 along the diagonal, and in all."""
    scores, negatives = _read(text)
    n = len(scores)
    matched = []
    for start in range(0, n, GROUP):
        group = scores[start : start + GROUP, start : start + GROUP]
        matched += match_within_group(group[:, :, None]).correct.tolist()
    beaten = beat_negative(scores.diagonal()[:, None], negatives).correct.tolist() if negatives is not None else None
    summary = f"SCM {sum(matched)} of {n}" + (f", Neg {sum(beaten)} of {n}" if beaten is not None else "")
    words = {True: "right", False: "wrong", None: "–"}
    return summary, [[str(i + 1), words[matched[i]], words[beaten[i] if beaten else None]] for i in range(n)]


def _read(text: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """(n, n) similarities, and (n,) those with the negatives where there is one more column."""
    rows = [line.replace(",", " ").replace(";", " ").split() for line in text.splitlines() if line.strip()]
    n = len(rows)
    if not n or any(len(row) not in (n, n + 1) or len(row) != len(rows[0]) for row in rows):
        raise _refusal(f"Expected as many numbers in each row as there are rows ({n}), or one more for the negative.")
    try:
        numbers = torch.tensor([[float(word) for word in row] for row in rows])
    except ValueError as error:
        raise _refusal(f"Not a number: {error}") from error
    if not torch.isfinite(numbers).all():
        raise _refusal("A similarity is not finite; a comparison with it would mean nothing.")
    return numbers[:, :n], numbers[:, n] if numbers.shape[1] > n else None


def _refusal(message: str) -> Any:
    return gr.Error(message, print_exception=False)


def build() -> Any:
    """The page."""
    with gr.Blocks(title="DCI Subcrop-Caption Matching", analytics_enabled=False) as page:
        gr.Markdown(
            "# DCI Subcrop-Caption Matching\nThe tests of [A Picture is Worth More Than 77 Text Tokens]"
            "(https://arxiv.org/abs/2312.08578), from embeddings or similarities of any model."
        )
        with gr.Tab("Embeddings"):
            gr.Markdown(
                "JSON with `image_embeds` (n × d), `text_embeds` (n × k × d) and, where known, `negative_embeds`, "
                "`hard_negative_embeds` (n × d), `key` and `left_out`; entries in the order of the data."
            )
            text = gr.Textbox(EXAMPLE_EMBEDDINGS, label="Paste JSON", lines=8)
            file = gr.File(label="or upload it", file_types=[".json"], type="filepath")
            button = gr.Button("Score", variant="primary")
            scores = gr.Dataframe(headers=["test", "right, %"], label="Scores")
            button.click(score_embeddings, [text, file], scores, api_name="score_embeddings")
        with gr.Tab("Similarities"):
            gr.Markdown(
                "A row for each image: its similarity with caption 1, 2, …, then, if you have it, with its negative. "
                "Entries are matched in groups of 8, in their order."
            )
            matrix = gr.Textbox(EXAMPLE_SIMILARITIES, label="Paste numbers", lines=8)
            button = gr.Button("Score", variant="primary")
            summary = gr.Textbox(label="Right")
            entries = gr.Dataframe(headers=["image", "SCM", "Neg"], label="By image")
            button.click(score_similarities, matrix, [summary, entries], api_name="score_similarities")
    return page


if __name__ == "__main__":
    build().launch(max_file_size="50mb")
