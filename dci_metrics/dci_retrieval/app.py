"""The metric as a Gradio app: embeddings in, scores out.

pip install -r requirements.txt gradio
python app.py
"""

import json
from pathlib import Path
from typing import Any

import evaluate
import gradio as gr  # type: ignore[import-not-found, unused-ignore]  # no dependency of the package

EXAMPLE = """{
  "image_embeds": [[1, 0], [0, 1], [1, 1]],
  "text_embeds": [[[0.9, 0.1]], [[0.2, 0.8]], [[0.1, 0.9], [1, 1]]]
}"""

metric = evaluate.load(str(Path(__file__).with_name("dci_retrieval.py")))


def score_embeddings(text: str, file: str | None) -> list[list[str]]:
    """Scores of a JSON object with the metric's columns: in percent, ranks as they are."""
    try:
        columns = json.loads(Path(file).read_bytes() if file else text)
    except (ValueError, RecursionError) as error:
        raise _refusal(f"Not valid JSON: {error}") from error
    # Nothing but columns: other arguments of the metric would let a visitor load models on this machine.
    if not isinstance(columns, dict) or set(columns) != set(metric.features):
        raise _refusal(f"Expected a JSON object with {' and '.join(metric.features)}.")
    try:
        # One at a time: Gradio queues the calls of one button.
        scores = metric.compute(**columns)
    # What is wrong with the user's numbers, in the words of the metric, of `evaluate` or of Arrow.
    except Exception as error:
        raise _refusal(str(error)) from error
    return [[k, f"{score:g}" if k.endswith("medr") else f"{100 * score:.2f}"] for k, score in scores.items()]


def _refusal(message: str) -> Any:
    return gr.Error(message, print_exception=False)


def build() -> Any:
    """The page."""
    with gr.Blocks(title="DCI Retrieval", analytics_enabled=False) as page:
        gr.Markdown(
            "# DCI Retrieval\nDo photos find their texts, and texts their photos? From embeddings of any model: JSON "
            "with `image_embeds` (n × d) and `text_embeds` (n × k × d), the texts of each photo."
        )
        text = gr.Textbox(EXAMPLE, label="Paste JSON", lines=8)
        file = gr.File(label="or upload it", file_types=[".json"], type="filepath")
        button = gr.Button("Score", variant="primary")
        scores = gr.Dataframe(headers=["score", "%, or rank"], label="Scores")
        button.click(score_embeddings, [text, file], scores, api_name="score_embeddings")
    return page


if __name__ == "__main__":
    build().launch(max_file_size="50mb")
