"""The metric of the `evaluate` library."""

import sys

import evaluate
import numpy as np
import PIL.Image
import pytest
import tiny_models
import torch
from awkward_release import write_awkward_release

import dci
import dci_metrics
from dci_metrics import encoders
from dci_metrics.subcrops import read_row
from dci_metrics.tasks import PAPER_TASKS

COLUMNS = ["image_embeds", "text_embeds", "negative_embeds", "hard_negative_embeds", "key", "left_out"]


@pytest.fixture(scope="module")
def clip():
    return tiny_models.clip(seed=4)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    folder = write_awkward_release(tmp_path_factory.mktemp("release"), seed=4, photos=9)
    return list(dci.Release(folder).rows("test", "sdci", masks=False))


@pytest.fixture(scope="module")
def expected(clip, rows):
    return dci_metrics.evaluate(clip[0], rows, processor=clip[1], progress=False)


@pytest.fixture
def scm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return evaluate.load(dci_metrics.metric_path("dci_scm"))


@pytest.fixture(scope="module")
def columns(clip, rows):
    """Embeddings of every entry, as a user's own code would compute them."""
    encoder = encoders.load(clip[0], processor=clip[1])
    found = {name: [] for name in COLUMNS}
    known = {}

    def embed(text):
        if text is not None and text not in known:
            known[text] = encoder.encode_texts([text])[0].tolist()
        return known.get(text, [])

    for row in rows:
        photo = read_row(row)
        pixels = np.asarray(photo.open())
        for entry in photo.entries:
            x0, y0, x1, y1 = entry.crop_xyxy
            crop = PIL.Image.fromarray(pixels[y0:y1, x0:x1])
            found["image_embeds"].append(encoder.encode_images([crop])[0].tolist())
            found["text_embeds"].append([embed(caption) for caption in entry.captions])
            found["negative_embeds"].append(embed(entry.first_swap))
            found["hard_negative_embeds"].append(embed(entry.hardest_negative))
            found["key"].append(entry.key)
            found["left_out"].append(sorted(entry.left_out))
    return found


def batches(columns, size):
    n = len(columns["image_embeds"])
    for start in range(0, n, size):
        yield {name: values[start : start + size] for name, values in columns.items()}


def test_a_model_and_a_dataset(scm, clip, rows, expected):
    found = scm.compute(model=clip[0], processor=clip[1], dataset=rows, progress=False)
    assert found == expected.values()
    assert list(found) == list(PAPER_TASKS)
    assert scm.result.outcomes == expected.outcomes
    some = scm.compute(model=clip[0], processor=clip[1], dataset=rows, tests=["base_neg"], batch_size=3, progress=False)
    assert some == {"base_neg": expected.scores["base_neg"].value}


def test_a_release_folder_and_a_saved_model(scm, tmp_path):
    folder = write_awkward_release(tmp_path / "release", seed=1, photos=3, spoilt=False)
    model = tiny_models.save_clip(tmp_path / "clip")
    found = scm.compute(model=str(model), dataset=str(folder), progress=False)
    assert found == dci_metrics.evaluate(model, folder, progress=False).values()


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_embeddings_give_the_same_scores(scm, columns, expected, size):
    for batch in batches(columns, size):
        scm.add_batch(**batch)
    assert scm.compute() == pytest.approx(expected.values())


def test_one_entry_at_a_time(scm, columns, expected):
    for batch in batches(columns, 1):
        scm.add(**{name: values[0] for name, values in batch.items()})
    assert scm.compute() == pytest.approx(expected.values())


def test_all_at_once(scm, columns, expected):
    assert scm.compute(**columns) == pytest.approx(expected.values())
    # A second time, with the same object.
    assert scm.compute(**columns) == pytest.approx(expected.values())


@pytest.mark.parametrize(
    "form",
    [
        lambda values: np.array(values, dtype=np.float32),
        lambda values: np.array(values, dtype=np.float64),
        torch.tensor,
        lambda values: torch.tensor(values) * 3,
        lambda values: torch.tensor(values).requires_grad_(),
        lambda values: tuple(map(tuple, values)) if isinstance(values[0], list) else tuple(values),
    ],
)
def test_arrays_and_tensors(scm, columns, expected, form):
    whole = {name: [form(embeds) if embeds else [] for embeds in columns[name]] for name in COLUMNS[:4]}
    scm.add_batch(**columns | whole)
    assert scm.compute() == pytest.approx(expected.values())


def test_one_array_for_all_entries(scm, columns):
    """As models give them: (n, d) and (n, k, d)."""
    kept = [
        i for i, captions in enumerate(columns["text_embeds"]) if len(captions) >= 5 and columns["negative_embeds"][i]
    ]
    lists = {
        "image_embeds": [columns["image_embeds"][i] for i in kept],
        "text_embeds": [columns["text_embeds"][i][:5] for i in kept],
        "negative_embeds": [columns["negative_embeds"][i] for i in kept],
    }
    scm.add_batch(**lists)
    as_lists = scm.compute()
    assert list(as_lists) == ["all_scm", "all_neg", "pick5_scm", "pick5_neg"]
    for form in (np.array, torch.tensor, lambda values: torch.tensor(values, dtype=torch.float64)):
        scm.add_batch(**{name: form(values) for name, values in lists.items()})
        assert scm.compute() == as_lists


def test_half_precision_tensors(scm, columns):
    images = torch.tensor(columns["image_embeds"])
    texts = torch.tensor([captions[:1] for captions in columns["text_embeds"] if captions])
    images = images[torch.tensor([bool(captions) for captions in columns["text_embeds"]])]
    for dtype in (torch.bfloat16, torch.float16):
        scm.add_batch(image_embeds=images.to(dtype), text_embeds=texts.to(dtype))
        rounded = scm.compute()
        scm.add_batch(image_embeds=images.to(dtype).float(), text_embeds=texts.to(dtype).float())
        assert rounded == scm.compute()


def test_the_order_of_columns_and_columns_left_out(scm, columns, expected):
    values = expected.values()
    scm.add_batch(**dict(reversed(columns.items())))
    assert scm.compute() == pytest.approx(values)
    without = {name: columns[name] for name in COLUMNS if name not in ("hard_negative_embeds", "key")}
    scm.add_batch(**without)
    assert scm.compute() == pytest.approx({test: values[test] for test in list(PAPER_TASKS)[:4]})
    scm.add_batch(**without | {"hard_negative_embeds": None, "key": None})
    assert scm.compute() == pytest.approx({test: values[test] for test in list(PAPER_TASKS)[:4]})
    scm.add_batch(image_embeds=columns["image_embeds"], text_embeds=columns["text_embeds"], key=columns["key"])
    assert list(scm.compute()) == ["all_scm", "pick5_scm", "base_scm"]


def test_scores_by_hand(scm):
    images = [[1, 0], [0, 1]]
    scm.add_batch(image_embeds=images, text_embeds=[[[1, 0]], [[1, 1]]], negative_embeds=[[0, 1], [1, 0]])
    assert scm.compute() == {"all_scm": 1.0, "all_neg": 1.0}
    scm.add(image_embeds=[1, 0], text_embeds=[[1, 0]], negative_embeds=None, key="base", left_out=["hard"])
    assert scm.compute() == {"all_scm": 1.0, "base_scm": 1.0}
    scm.add_batch(image_embeds=images, text_embeds=[[[1, 1]], [[1, 1]]], negative_embeds=[[1, 1], [0, 2]])
    assert scm.compute() == {"all_scm": 0.5, "all_neg": 0.0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_embeds": [[1, 0], [0, 1, 2]]}, "image_embeds: embeddings differ in size"),
        ({"image_embeds": [[1, 0], []]}, "image_embeds: embeddings differ in size"),
        ({"image_embeds": [[0, 0], [0, 1]]}, "image_embeds: an embedding is zero or not finite"),
        ({"image_embeds": [[float("nan"), 0], [0, 1]]}, "image_embeds: an embedding is zero or not finite"),
        ({"text_embeds": [[[1, 0]], [[float("inf"), 0]]]}, "text_embeds: an embedding is zero or not finite"),
        ({"text_embeds": [[[1, 0]], [[1, 0, 0]]]}, "text_embeds: embeddings differ in size"),
        ({"text_embeds": [[[1, 0, 0]], [[1, 0, 0]]]}, "embeddings of 2 numbers, text_embeds of 3"),
        ({"negative_embeds": [[1, 0, 0], [1, 0, 0]]}, "embeddings of 2 numbers, negative_embeds of 3"),
        ({"negative_embeds": [[0, 0], [1, 0]]}, "negative_embeds: an embedding is zero or not finite"),
        ({"left_out": [["hard_negs"], []]}, "left_out: no test 'hard_negs'"),
        ({"image_embeds": [[1, 0]]}, "Mismatch in the number of image_embeds"),
        ({"text_embeds": [[1, 0], [0, 1]]}, "expected format"),
        ({"image_embeds": [["a", "b"], ["c", "d"]]}, "expected format"),
        ({"key": ["base"]}, "Mismatch in the number of image_embeds"),
    ],
)
def test_bad_embeddings_are_one_clear_error(scm, changes, message):
    good = {"image_embeds": [[1, 0], [0, 1]], "text_embeds": [[[1, 0]], [[1, 1]]], "negative_embeds": [[0, 1], [1, 0]]}
    with pytest.raises(ValueError, match=message):
        scm.compute(**good | changes)
    # What was wrong is forgotten, and holds no file.
    assert scm.compute(**good) == {"all_scm": 1.0, "all_neg": 1.0}


def test_calls_that_say_too_little(scm, clip, rows):
    for call in ({"model": clip[0]}, {"dataset": rows}):
        with pytest.raises(ValueError, match="both `model` and `dataset`"):
            scm.compute(**call)
    with pytest.raises(ValueError, match="at least once before calling `compute`"):
        scm.compute()
    for call in ({"image_embeds": [[1, 0]]}, {"text_embeds": [[[1, 0]]]}):
        with pytest.raises(ValueError, match="expected `image_embeds` and `text_embeds`"):
            scm.compute(**call)
    with pytest.raises(TypeError, match="text_embeds"):
        scm.add(image_embeds=[1, 0])
    with pytest.raises(ValueError, match="strange"):
        scm.add_batch(image_embeds=[[1, 0]], text_embeds=[[[1, 0]]], strange=[1])


def test_errors_of_the_benchmark_come_through(scm, clip):
    with pytest.raises(dci.DCIError, match="the dataset is empty"):
        scm.compute(model=clip[0], processor=clip[1], dataset=[], progress=False)


def test_metric_path():
    with pytest.raises(dci.DCIError, match="no metric 'dci': expected dci_retrieval or dci_scm"):
        dci_metrics.metric_path("dci")


def test_the_modules_cache_is_not_the_users():
    assert any("dci-tests-" in path for path in sys.path)
