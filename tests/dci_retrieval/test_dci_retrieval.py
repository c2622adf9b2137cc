"""The `evaluate` metric of retrieval: from embeddings, of a model, and as a Space without this package."""

import json
import subprocess

import evaluate
import fresh_venv
import gradio_app
import numpy as np
import pytest

import dci_metrics
from dci_metrics.hub import metric_space

LOAD = """
import json
import sys

import evaluate

metric = evaluate.load(sys.argv[1])
metric.add_batch(**json.loads(sys.stdin.read()))
found = {"scores": metric.compute()}
try:
    metric.compute(model="sample:tiny-clip", dataset="sample:photographs")
except ModuleNotFoundError as error:
    found["error"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture
def metric():
    return evaluate.load(dci_metrics.metric_path("dci_retrieval"))


@pytest.fixture(scope="module")
def space(tmp_path_factory):
    folder = tmp_path_factory.mktemp("space") / "dci_retrieval"
    metric_space.push("owner/dci_retrieval", dry_run=folder, progress=False)
    return folder


def columns(seed, n=30, d=6):
    """One to three texts a photo, of which some are equal, as are two photos; most are near their photo."""
    rng = np.random.default_rng(seed)
    words = rng.normal(size=(40, d))
    texts = [[words[rng.integers(40)].tolist() for _ in range(rng.integers(1, 4))] for _ in range(n)]
    images = [(np.array(own[0]) + 0.4 * rng.normal(size=d)).tolist() for own in texts]
    return {"image_embeds": [*images[:-1], images[0]], "text_embeds": texts}


def brute_force(given, ks=(1, 5, 10), by_index=False):
    unit = [np.array(v) / np.linalg.norm(v) for v in given["image_embeds"]]
    flat = [(i, np.array(v) / np.linalg.norm(v)) for i, texts in enumerate(given["text_embeds"]) for v in texts]
    # Cosines of equal vectors are equal once they are rounded.
    scores = np.array([[round(float(a @ b), 6) for _, b in flat] for a in unit])
    owner = np.array([i for i, _ in flat])
    found = {}
    for direction, rows, owns in (
        ("i2t", scores, [owner == i for i in range(len(unit))]),
        ("t2i", scores.T, [np.arange(len(unit)) == i for i in owner]),
    ):
        ranks = []
        for row, own in zip(rows, owns, strict=True):
            tie = np.arange(len(row)) if by_index else own
            order = np.lexsort((tie, -row))
            ranks.append([place + 1 for place, j in enumerate(order) if own[j]])
        found |= {f"{direction}_r{k}": np.mean([r[0] <= k for r in ranks]) for k in ks}
        precision = [sum((n + 1) / r for n, r in enumerate(of) if r <= 10) / min(10, len(of)) for of in ranks]
        found |= {f"{direction}_map10": np.mean(precision), f"{direction}_medr": np.median([r[0] for r in ranks])}
    return found


def test_from_embeddings(metric):
    given = columns(0)
    for start in range(0, 30, 7):
        metric.add_batch(**{name: values[start : start + 7] for name, values in given.items()})
    found = metric.compute()
    assert found == pytest.approx(brute_force(given), abs=1e-9)
    assert 0 < found["i2t_r1"] < found["i2t_r10"] < 1
    by_index = metric.compute(**given, recall_at=[50, 2], ties="lower_index")
    assert by_index == pytest.approx(brute_force(given, (2, 50), by_index=True), abs=1e-9)
    assert by_index["i2t_map10"] > found["i2t_map10"]


def test_the_example_of_its_documentation(metric):
    metric.add_batch(image_embeds=[[1, 0], [0, 1]], text_embeds=[[[1, 0]], [[1, 1]]])
    assert str(metric.compute(recall_at=[1])) in metric.inputs_description


def test_of_a_model(metric):
    options = {"split": "test", "protocols": ["lotlip", "sdci"], "progress": False, "cache": False, "device": "cpu"}
    found = metric.compute(model="sample:tiny-clip", dataset="sample:photographs", **options)
    result = dci_metrics.evaluate("sample:tiny-clip", "sample:photographs", **options)
    assert found == result.values()
    assert metric.result.ranks == result.ranks
    assert "lotlip_i2t_r1" in found


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"text_embeds": [[[1, 0]], []]}, "with one at least"),
        ({"text_embeds": [[[1, 0]], [[1]]]}, "text_embeds: embeddings differ in size"),
        ({"text_embeds": [[[1, 0, 0]], [[1, 1, 1]]]}, "of 2 numbers, text_embeds of 3"),
        ({"text_embeds": [[[1, 0]], [[0, 0]]]}, "text_embeds: an embedding is zero"),
        ({"image_embeds": [[1, 0], [float("nan"), 0]]}, "image_embeds: an embedding is zero or not finite"),
        ({"recall_at": [0]}, "whole numbers from 1"),
        ({"recall_at": 5}, "whole numbers from 1"),
        ({"recall_at": [True]}, "whole numbers from 1"),
        ({"ties": "mine"}, "against, lower_index"),
    ],
)
def test_what_cannot_be_scored(metric, given, words):
    with pytest.raises(ValueError, match=words):
        metric.compute(**{"image_embeds": [[1, 0], [0, 1]], "text_embeds": [[[1, 0]], [[1, 1]]], **given})
    assert metric.compute(image_embeds=[[1, 0]], text_embeds=[[[1, 0]]])["i2t_r1"] == 1


def test_a_model_needs_a_dataset(metric):
    with pytest.raises(ValueError, match="both `model` and `dataset`"):
        metric.compute(model="sample:tiny-clip")


def test_the_space_without_the_package(space, tmp_path):
    assert sorted(path.name for path in space.iterdir()) == [
        "README.md", "app.py", "dci_retrieval.py", "embeddings.py", "index.html", "measures.py", "ranking.py",
        "requirements.txt", "similarity.py",
    ]  # fmt: skip
    for path in space.iterdir():
        assert "you/dci_retrieval" not in path.read_text("utf-8")
    given = columns(1)
    (tmp_path / "empty").mkdir()
    done = subprocess.run(
        [fresh_venv.make(tmp_path / "venv"), "-c", LOAD, space],
        cwd=tmp_path / "empty", input=json.dumps(given), env=fresh_venv.environment(tmp_path / "home"),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["scores"] == pytest.approx(brute_force(given), abs=1e-9)
    assert "needs the package dci-metrics" in found["error"]


def test_the_app_answers(space, tmp_path):
    given = columns(2)
    (scores,) = gradio_app.ask(space, tmp_path, [("/score_embeddings", [json.dumps(given), None])])
    expected = brute_force(given)
    assert scores["data"] == [
        [key, f"{score:g}" if key.endswith("medr") else f"{100 * score:.2f}"] for key, score in expected.items()
    ]


@pytest.mark.parametrize("width", [1280, 390])
def test_its_page(browser, space, width):
    browser.open(space / "index.html", width=width)
    assert browser.evaluate("document.documentElement.scrollWidth") == width
    assert browser.messages == []
    assert [url for url in browser.requests if not url.startswith("file:")] == []
    assert "owner/dci_retrieval" in browser.evaluate("document.body.innerText")
