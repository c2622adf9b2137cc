"""Dataset × encoder → result, against a scorer that shares no code with it."""

import copy
import hashlib
import io
import json
import math
from pathlib import Path

import brute_force
import datasets
import numpy as np
import PIL.Image
import pytest
import tiny_models
import torch
from awkward_release import noise_photo, write_awkward_release
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics
from dci_metrics import benchmark, encoders, encoding, walk
from dci_metrics.distributed import World
from dci_metrics.encoders.base import TextLength
from dci_metrics.hub import folder as hub_folder
from dci_metrics.results import Result
from dci_metrics.tasks import PAPER_TASKS, TASKS

REAL_CAPTIONS = Path(__file__).parents[2] / "shared" / "data" / "real_captions.json"


class HashEncoder:
    """An encoder of the test's own: what it gives depends on the pixels, or the text, alone. It keeps what it saw."""

    def __init__(self, size=16):
        self.size, self.images, self.texts = size, [], []

    def encode_images(self, images):
        self.images += [(image.size, image.tobytes()) for image in images]
        return torch.stack([self.embed(image.tobytes()) for image in images])

    def encode_texts(self, texts):
        self.texts += texts
        return torch.stack([self.embed(text.encode()) for text in texts])

    def embed(self, content):
        seed = int.from_bytes(hashlib.sha256(content).digest()[:4])
        return torch.from_numpy(np.random.default_rng(seed).normal(size=self.size))


def evaluate(model, dataset, **options):
    return dci_metrics.evaluate(model, dataset, **{"progress": False} | options)


def outcomes(result, test):
    """Right or wrong by entry, in order."""
    marks = zip(result.entries, result.outcomes[test], strict=True)
    return {entry: mark == "1" for entry, mark in marks if mark != "-"}


def same_figures(one, other):
    assert one.entries == other.entries
    assert one.outcomes == other.outcomes
    assert one.scores == other.scores
    assert one.dataset["fingerprint"] == other.dataset["fingerprint"]


@pytest.fixture(scope="module")
def clip():
    return tiny_models.clip(seed=1)


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=0)


@pytest.fixture(scope="module")
def rows(release):
    return list(dci.Release(release).rows("test", "sdci", masks=False))


@pytest.fixture(scope="module")
def result(rows):
    return evaluate(HashEncoder(), rows)


@pytest.fixture
def plain(tmp_path):
    """Rows of two photos that no rule leaves out, with one subcrop each."""
    size = (300, 280)
    notes = {
        f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size, [mask_entry(3, (5, 6, 240, 250), size=size)])
        for i in (1, 2)
    }
    photos = {f"sa_{i}.jpg": noise_photo(i, size) for i in (1, 2)}
    return list(dci.Release(write_release(tmp_path, notes, photos)).rows("test", "sdci"))


# ----------------------------------------------------------------------------------------------------------------------
# The figures
# ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_figures_are_the_brute_forces(tmp_path, seed):
    model, processor = tiny_models.clip(seed=seed)
    folder = write_awkward_release(tmp_path, seed, photos=4 + seed, spoilt=seed < 2)
    expected = brute_force.score(folder, model, processor)
    result = evaluate(model, folder, processor=processor)
    assert list(result.scores) == list(brute_force.TESTS) == list(PAPER_TASKS)
    for test, figure in expected.items():
        score = result.scores[test]
        assert outcomes(result, test) == figure.outcomes
        assert list(outcomes(result, test)) == list(figure.outcomes)
        assert (score.correct, score.n, score.n_images) == (figure.correct, figure.n, figure.n)
        assert score.value == figure.correct / figure.n
        assert [left["image_id"] for left in score.left_out] == figure.left_out


@pytest.mark.parametrize("photos", range(8, 16))
def test_the_last_group_may_have_any_size(tmp_path, clip, photos):
    size = (64, 48)
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size) for i in range(photos)}
    for i, note in enumerate(notes.values()):
        note["summaries"]["base"] = [f"{'thing ' * j}{i}" for j in range(5)]
        note["negatives"]["m-99-sc"] = {}  # a second key, without which photos are in the tests of base alone
    folder = write_release(tmp_path, notes, {f"sa_{i}.jpg": noise_photo(i, size) for i in range(photos)})
    expected = brute_force.score(folder, *clip)
    result = evaluate(clip[0], folder, processor=clip[1], tests=["base_scm", "pick5_scm"])
    for test in ("base_scm", "pick5_scm"):
        assert outcomes(result, test) == expected[test].outcomes
        if photos % 8 == 1:  # alone in its group, it has no rival
            assert expected[test].outcomes[f"{photos - 1}", "base"]


def test_the_awkward_release_has_ties_and_every_reason(result):
    assert result.scores["all_scm"].ties
    assert result.scores["all_neg"].ties
    reasons = {left["reason"] for score in result.scores.values() for left in score.left_out}
    assert len(reasons) >= 12
    assert all(0 < score.n < len(result.entries) for score in result.scores.values())


@pytest.mark.parametrize("dim", [3, 16, 515])
def test_equal_texts_tie_wherever_they_stand(tmp_path, dim):
    size = (40, 30)
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size) for i in range(21)}
    for note in notes.values():
        note["summaries"]["base"] = ["the same"] * 5
        note["negatives"] = {"base": {"swaps": ["the same"]}, "m-99-sc": {}}
    photos = {f"sa_{i}.jpg": noise_photo(i, size) for i in range(21)}
    result = evaluate(HashEncoder(dim), write_release(tmp_path, notes, photos))
    for test, score in result.scores.items():
        assert result.outcomes[test] == ("100000001000000010000" if TASKS[test].kind == "scm" else "0" * 21)
        assert (score.ties, score.n) == (21, 21)


def test_a_model_that_gives_one_score_for_all(rows):
    class Constant:
        def encode_images(self, images):
            return torch.full((len(images), 100), 0.1)

        encode_texts = encode_images

    result = evaluate(Constant(), rows)
    for test, score in result.scores.items():
        if TASKS[test].kind == "neg":
            assert (score.correct, score.ties) == (0, score.n)
        else:
            assert score.correct == math.ceil(score.n / 8)
            assert score.ties == score.n - (score.n % 8 == 1)


def test_batch_size_changes_nothing(release, clip):
    one, other = (evaluate(clip[0], release, processor=clip[1], batch_size=size) for size in (1, 64))
    same_figures(one, other)


def test_some_tests_give_the_figures_of_all(rows, result):
    for tests in (["all_neg"], ["base_neg", "base_scm"], ["hard_negs", "pick5_scm"], ["pick5_neg"]):
        some = evaluate(HashEncoder(), rows, tests=tests)
        assert list(some.scores) == [test for test in TASKS if test in tests]
        assert some.dataset["fingerprint"] == result.dataset["fingerprint"]
        for test in tests:
            assert some.scores[test] == result.scores[test]
            assert outcomes(some, test) == outcomes(result, test)


def test_values_intervals_and_chance_belong_together(result):
    for test, score in result.scores.items():
        assert score.value == score.correct / score.n
        assert score.ci95[0] <= score.value <= score.ci95[1]
        assert score.chance == TASKS[test].chance(["photo"] * score.n)


# ----------------------------------------------------------------------------------------------------------------------
# What is encoded
# ----------------------------------------------------------------------------------------------------------------------


def test_photos_are_decoded_once_and_each_crop_and_text_is_encoded_once(rows, monkeypatch):
    opened = []

    def open_photo(content, size, name):
        opened.append(name)
        return original(content, size, name)

    original = dci.open_photo
    monkeypatch.setattr(dci, "open_photo", open_photo)
    encoder = HashEncoder()
    result = evaluate(encoder, rows, batch_size=3)
    scored = {image_id for image_id, _ in result.entries}
    assert sorted(opened) == sorted(row["file_name"] for row in rows if row["image_id"] in scored)
    assert len(encoder.images) == len(set(encoder.images)) == result.timing["images"]
    assert len(encoder.texts) == len(set(encoder.texts)) == result.timing["texts"]


def test_texts_that_are_the_same_tokens_are_encoded_once(rows, clip, monkeypatch):
    """In batches of their own, padded otherwise, they would differ in the last bit, and not tie."""
    seen = []
    encoder = encoders.load(clip[0], processor=clip[1])
    encode_texts = encoder.encode_texts
    monkeypatch.setattr(encoder, "encode_texts", lambda texts: seen.extend(texts) or encode_texts(texts))
    beyond = "one two three " * 40
    same = [" the red  thing", "The red thing", "the\nred thing ", f"{beyond}four", f"{beyond}five"]
    other = ["the red things", "the red thing.", "", *(f"a thing {n} " * n for n in range(1, 20))]
    texts = dict.fromkeys([*same, *other])
    embeds, _ = encoding.encode_texts(list(texts), encoder, walk.Settings(4, "box", "raise", False), World(), None)
    found = embeds.vectors
    assert len(seen) == len(texts) - 3
    rows_of = dict(zip(texts, found, strict=True))
    assert all(torch.equal(rows_of[text], rows_of[same[0]]) for text in same[:3])
    assert torch.equal(rows_of[same[3]], rows_of[same[4]])
    assert len({tuple(row.tolist()) for row in found}) == len(seen)
    alone = encoding.normalised(torch.cat([encode_texts([text]) for text in texts]), len(texts), "text")
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=0)


def test_the_order_of_photos_does_not_change_embeddings(rows, clip):
    def embeddings(rows):
        encoder = encoders.load(clip[0], processor=clip[1])
        source = benchmark.open_source(rows)
        settings = walk.Settings(7, "box", "raise", False)
        found = encoding.encode(source, encoder, list(TASKS.values()), settings, walk.Clock(), World())
        embeds = found.similarity
        images = {(e.image_id, e.key): embed for e, embed in zip(found.entries, embeds.image_embeds, strict=True)}
        return images, {text: embeds.texts.vectors[i] for text, i in found.text_index.items()}

    for one, other in zip(embeddings(rows), embeddings(rows[::-1]), strict=True):
        assert one.keys() == other.keys()
        for key, embed in one.items():
            torch.testing.assert_close(embed, other[key], atol=1e-5, rtol=0)


def test_threads_keep_the_order(plain):
    rows = [plain[i % 2] | {"image_id": f"{i}"} for i in range(40)]
    result = evaluate(HashEncoder(), rows)
    assert [image_id for image_id, key in result.entries if key == "base"] == [f"{i}" for i in range(40)]


def test_long_and_empty_texts(tmp_path):
    model, processor = tiny_models.clip(seed=2)
    size = (64, 48)
    texts = ["", " ", "thing " * 300, "café 塔 " * 200, "thing " * 75, "thing " * 76, "red\nthing\n"]
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size) for i in range(len(texts))}
    for text, note in zip(texts, notes.values(), strict=True):
        note["summaries"]["base"] = [text]
        note["negatives"]["base"]["swaps"] = [f"the {text}"]
    folder = write_release(tmp_path, notes, {f"sa_{i}.jpg": noise_photo(i, size) for i in range(len(texts))})
    expected = brute_force.score(folder, model, processor)
    result = evaluate(model, folder, processor=processor, tests=["base_scm", "base_neg"])
    for test, used in (("base_scm", texts), ("base_neg", texts + [f"the {text}" for text in texts])):
        tokens = [len(processor.tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in used]
        score = result.scores[test]
        assert outcomes(result, test) == expected[test].outcomes
        assert score.n_texts == len(used)
        assert score.truncated == pytest.approx(sum(n > 77 for n in tokens) / len(used))
        assert score.tokens_lost == sum(max(0, n - 77) for n in tokens)
    assert result.scores["base_scm"].truncated == pytest.approx(3 / 7)


def test_real_texts_get_through():
    if REAL_CAPTIONS.is_file():
        texts = [item["caption"] for item in json.loads(REAL_CAPTIONS.read_bytes())]
    else:
        texts = [f"{i}.\n{' '.join(['naïve — “quoted” 🙂'] * (i % 60))} " for i in range(1999)]
    model, processor = tiny_models.clip(seed=3)
    rows = []
    for i, (text, negative) in enumerate(zip(texts, texts[1:] + texts[:1], strict=True)):
        negatives = [{"kind": "swaps", "text": negative, "clip_score": 0.1}]
        entry = {"key": "base", "mask_id": -1, "crop_xyxy": (0, 0, 8, 6), "captions": [text], "negatives": negatives}
        row = {"image": PIL.Image.new("RGB", (8, 6)), "image_id": f"{i}", "file_name": "a.jpg", "width": 8, "height": 6}
        rows.append(row | {"entries": [entry], "left_out": []})
    result = evaluate(OneImage(encoders.load(model, processor=processor)), rows, tests=["base_neg"])
    tokens = [len(processor.tokenizer(text, truncation=False, verbose=False)["input_ids"]) for text in set(texts)]
    score = result.scores["base_neg"]
    assert (score.n, score.n_texts) == (len(texts), len(tokens))
    assert score.truncated == pytest.approx(sum(n > 77 for n in tokens) / len(tokens))
    assert score.tokens_lost == sum(max(0, n - 77) for n in tokens)


class OneImage:
    """The texts of a model, with one made-up image for all photos, which costs nothing."""

    def __init__(self, encoder):
        self.encode_texts, self.text_lengths = encoder.encode_texts, encoder.text_lengths

    def encode_images(self, images):
        return torch.arange(1, 13).repeat(len(images), 1)


# ----------------------------------------------------------------------------------------------------------------------
# Where rows come from
# ----------------------------------------------------------------------------------------------------------------------


def test_all_forms_of_a_dataset_agree(release, rows, result, tmp_path):
    loaded = datasets.Dataset.from_list(rows, features=dci.features("sdci"), split="test")
    streamed = loaded.to_iterable_dataset()
    built = tmp_path / "dci"
    hub_folder.build(dci.Release(release), built)
    forms = {
        "a release folder": release,
        "a release": dci.Release(release),
        "a built folder": built,
        "its name": str(built),
        "a generator": (row for row in rows),
        "a tuple": tuple(rows),
        "map-style": loaded,
        "streaming": streamed,
        "a dict of splits": datasets.DatasetDict(train=loaded.select([0]), test=loaded),
        "a dict of streams": datasets.IterableDatasetDict(test=streamed),
        "as numpy": loaded.with_format("numpy"),
        "a stream as torch": streamed.with_format("torch"),
        "undecoded already": loaded.cast_column("image", datasets.Image(decode=False)),
        "more columns": loaded.add_column("another", [1] * len(loaded)),
        "from pandas": loaded.cast_column("image", datasets.Image(decode=False)).to_pandas().to_dict("records"),
    }
    for name, form in forms.items():
        try:
            same_figures(evaluate(HashEncoder(), form), result)
        except Exception as error:
            error.add_note(f"with {name}")
            raise
    assert evaluate(HashEncoder(), loaded).dataset["split"] == "test"


def test_photos_as_pixels_give_the_same_scores(rows, result, tmp_path):
    decoded, opened = copy.deepcopy(rows), copy.deepcopy(rows)
    for row, other in zip(decoded, opened, strict=True):
        row["image"] = dci.open_photo(row["image"]["bytes"], (row["width"], row["height"]), "photo")
        other["image"] = PIL.Image.open(io.BytesIO(other["image"]["bytes"]))  # neither read nor turned yet
    for form in (decoded, opened):
        found = evaluate(HashEncoder(), form)
        assert (found.scores, found.outcomes) == (result.scores, result.outcomes)
        assert found.dataset["fingerprint"] != result.dataset["fingerprint"]
    paths = copy.deepcopy(rows)
    for i, row in enumerate(paths):
        path = tmp_path / row["file_name"]
        path.write_bytes(row["image"]["bytes"])
        row["image"] = [path, str(path), path.read_bytes(), {"path": str(path), "bytes": None}][i % 4]
    same_figures(evaluate(HashEncoder(), paths), result)


def test_the_fingerprint_is_of_all_that_scoring_depends_on(plain):
    def fingerprint(rows):
        return evaluate(HashEncoder(), rows).dataset["fingerprint"]

    def changed(change):
        rows = copy.deepcopy(plain)
        change(rows[1])
        return fingerprint(rows)

    original = fingerprint(plain)
    assert len(original) == 64
    assert fingerprint(plain) == original
    assert fingerprint(plain[::-1]) != original
    assert fingerprint(plain[:1]) != original
    photo = plain[1]["image"]["bytes"]
    changes = [
        lambda row: row.update(image_id="3"),
        lambda row: row["entries"][0]["captions"].__setitem__(1, "another"),
        lambda row: row["entries"][1]["captions"].pop(),
        lambda row: row["entries"][1].update(crop_xyxy=[0, 0, 299, 280]),
        lambda row: row["entries"][1]["negatives"][0].update(text="another"),
        lambda row: row["entries"][1]["negatives"][0].update(clip_score=0.5),
        lambda row: row.update(image={"bytes": photo + b"\0", "path": None}),
        lambda row: row.update(left_out=[{"test": "hard", "reason": "so"}]),
    ]
    found = [changed(change) for change in changes]
    assert len({original, *found}) == len(changes) + 1
    # What scoring does not look at.
    assert changed(lambda row: row.update(image={"bytes": photo, "path": "elsewhere.jpg"})) == original
    assert changed(lambda row: row["entries"][1]["negatives"][0].update(clip_score=np.float64(0.25))) == original


def test_rows_built_by_hand_need_no_more_than_what_is_scored(plain):
    rows = [
        {
            "image": row["image"]["bytes"],
            "image_id": int(row["image_id"]),
            "file_name": "any.jpg",
            "width": row["width"],
            "height": row["height"],
            "left_out": [],
            "entries": [
                {name: entry[name] for name in ("key", "mask_id", "crop_xyxy", "captions", "negatives")}
                for entry in row["entries"]
            ],
        }
        for row in plain
    ]
    same_figures(evaluate(HashEncoder(), rows), evaluate(HashEncoder(), plain))


# ----------------------------------------------------------------------------------------------------------------------
# Input that is not as it must be: one clear error
# ----------------------------------------------------------------------------------------------------------------------


def test_photos_that_cannot_be_read_are_errors_or_listed(plain):
    broken = copy.deepcopy(plain)
    broken[0]["image"]["bytes"] = broken[0]["image"]["bytes"][:-800]
    null = copy.deepcopy(plain)
    null[0]["image"] = None
    gone = copy.deepcopy(plain)
    gone[0]["image"] = {"path": "/nowhere/sa_1.jpg", "bytes": None}
    small = copy.deepcopy(plain)
    small[0]["image"] = PIL.Image.new("RGB", (30, 28))
    strange = copy.deepcopy(plain)
    strange[0]["image"] = 3
    for rows, message in (
        (broken, "sa_1.jpg: cannot be read as a photo"),
        (null, "1: the row has no photo"),
        (gone, "/nowhere/sa_1.jpg: cannot be read"),
        (small, "1: field `image`: expected 300x280 pixels"),
        (strange, "1: field `image`: expected a photo, got int"),
    ):
        with pytest.raises(dci.DCIError, match=message):
            evaluate(HashEncoder(), rows)
        result = evaluate(HashEncoder(), rows, on_error="skip")
        assert {image_id for image_id, _ in result.entries} == {"2"}
        for score in result.scores.values():
            assert [left["image_id"] for left in score.left_out] == ["1"]
            assert message in score.left_out[0]["reason"]
    with pytest.raises(dci.DCIError, match="2 photos are left out, the first one, 1, because: 1: the row has no photo"):
        evaluate(HashEncoder(), [row | {"image": None} for row in plain], on_error="skip")


def test_skip_lists_what_a_release_lacks(tmp_path):
    size = (64, 48)
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size) for i in range(5)}
    for note in notes.values():
        note["negatives"]["m-99-sc"] = {}
    folder = write_release(tmp_path, notes, {f"sa_{i}.jpg": noise_photo(i, size) for i in range(4)})
    root = folder / "densely_captioned_images"
    (root / "complete" / "1-data.json").write_text("{")
    (root / "photos" / "sa_2.jpg").write_bytes(noise_photo(2, size)[:200])
    for part in ("complete", "annotations"):
        (root / part / "3-data.json").unlink()
    with pytest.raises(dci.DCIError, match="1 of 5 annotation files"):
        evaluate(HashEncoder(), folder)
    result = evaluate(HashEncoder(), folder, on_error="skip")
    assert result.entries == [("0", "base")]
    for score in result.scores.values():
        assert sorted(left["image_id"] for left in score.left_out) == ["1", "2", "3", "4"]


def test_a_dataset_built_without_photos(tmp_path, release):
    hub_folder.build(dci.Release(release), tmp_path / "dci", photos=False)
    with pytest.raises(dci.DCIError, match="has no photo"):
        evaluate(HashEncoder(), tmp_path / "dci")


def without(row, *path):
    row = copy.deepcopy(row)
    cell = row
    for step in path[:-1]:
        cell = cell[step]
    del cell[path[-1]]
    return row


def replaced(row, value, *path):
    row = copy.deepcopy(row)
    cell = row
    for step in path[:-1]:
        cell = cell[step]
    cell[path[-1]] = value
    return row


def test_rows_that_are_not_as_they_must_be(plain):
    row = plain[0]
    for rows, message in (
        ([], "the dataset is empty"),
        ([3], "expected rows of .*, got int"),
        (["row"], "expected rows of .*, got str"),
        (row, "the dataset has no split 'test'"),
        (3, "expected a dataset's name or folder, or a loaded dataset; got int"),
        ([without(row, "entries")], "no column `entries`"),
        ([without(row, "entries", 1, "captions")], "1: field `entries`.*captions"),
        ([replaced(row, "one text", "entries", 1, "captions")], "1: field `entries`.*not one text"),
        ([replaced(row, [None], "entries", 1, "captions")], "1: field `entries`.*expected text"),
        ([replaced(row, None, "entries")], "1: field `entries`"),
        ([replaced(row, None, "entries", 1, "negatives", 0, "text")], "1: field `entries`.*expected text"),
        ([replaced(row, [0, 0, 0, 9], "entries", 1, "crop_xyxy")], "1: field `entries`.*no box"),
        ([replaced(row, [0, 0, 301, 9], "entries", 1, "crop_xyxy")], "1: field `entries`.*no box"),
        ([replaced(row, None, "width")], "1: fields `width`, `height`"),
        ([replaced(row, None, "left_out")], "1: field `left_out`"),
        ([replaced(row, [{"test": "hard_negs", "reason": "so"}], "left_out")], "1: field `left_out`.*'hard_negs'"),
        ([replaced(row, [], "entries", 1, "negatives")], "1: field `entries`: m-3-sc has no negative for all_neg"),
        ([replaced(row, None, "entries", 1, "negatives", 0, "clip_score")], "no negative for hard_negs"),
        ([replaced(row, math.nan, "entries", 1, "negatives", 0, "clip_score")], "no negative for hard_negs"),
    ):
        with pytest.raises(dci.DCIError, match=message) as caught:
            evaluate(HashEncoder(), rows)
        assert "\n" not in str(caught.value)


def test_rows_of_the_other_configuration(release):
    rows = list(dci.Release(release).rows("test", "full", masks=False))
    loaded = datasets.Dataset.from_list(rows, features=dci.features("full"))
    for form in (rows, loaded, loaded.to_iterable_dataset()):
        with pytest.raises(dci.DCIError, match=r"no column `?entries`?.*sdci"):
            evaluate(HashEncoder(), form)


def test_options_that_are_not_known(plain, tmp_path):
    for options, message in (
        ({"tests": ["every"]}, "no test 'every': expected some of all_scm"),
        ({"tests": []}, "no test given"),
        ({"batch_size": 0}, "batch size"),
        ({"on_error": "pass"}, "'pass'"),
    ):
        with pytest.raises(dci.DCIError, match=message):
            evaluate(HashEncoder(), plain, **options)
    with pytest.raises(dci.DCIError, match="no split 'tests'"):
        evaluate(HashEncoder(), tmp_path, split="tests")
    with pytest.raises(dci.DCIError, match="no split 'valid'"):
        evaluate(HashEncoder(), {"test": plain}, split="valid")
    with pytest.raises(dci.DCIError, match="neither a folder of `dci build`"):
        evaluate(HashEncoder(), tmp_path / "densely_captioned_images" / "photos")


def test_no_entry_for_a_test(plain):
    few = copy.deepcopy(plain)
    for entry in (entry for row in few for entry in row["entries"]):
        entry["captions"] = entry["captions"][:4]
    score = evaluate(HashEncoder(), few).scores["pick5_scm"]
    assert (score.value, score.correct, score.n, score.ci95, score.chance, score.left_out) == (
        None,
        0,
        0,
        None,
        None,
        [],
    )
    with pytest.raises(dci.DCIError, match="no entry has as many captions as they need"):
        evaluate(HashEncoder(), few, tests=["pick5_scm", "pick5_neg"])


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (lambda n: torch.full((n, 4), math.nan), "not finite or zero"),
        (lambda n: torch.tensor([[0.0, math.inf]] * n), "not finite or zero"),
        (lambda n: torch.zeros(n, 4), "not finite or zero"),
        (lambda n: torch.cat([torch.ones(n - 1, 4), torch.zeros(1, 4)]), "not finite or zero"),
        (lambda n: torch.ones(n), r"of shape \(\d+,\); expected"),
        (lambda n: torch.ones(n, 4, 1), "image embeddings of 1; text .* numbers|text embeddings of shape"),
        (lambda n: torch.ones(n, 1, 4, 1), "of shape"),
        (lambda n: torch.ones(n + 1, 4), "of shape"),
        (lambda n: torch.ones(n, 0), "of shape"),
        (lambda n: torch.ones(4), "of shape"),
        (lambda n: None, "as NoneType; expected a tensor"),
        (lambda n: "abc", "as str; expected a tensor"),
        (lambda n: {"embeds": torch.ones(n, 4)}, "as dict; expected a tensor"),
        (lambda n: [[1.0], [1.0, 2.0]], "as list; expected a tensor"),
        (lambda n: torch.ones(n, 4, dtype=torch.complex64), "of type torch.complex64"),
        (lambda n: torch.ones(n, 4, device="meta"), "as Tensor; expected a tensor"),
        (lambda n: torch.ones(n, 5), "image embeddings of .*; text embeddings of .* numbers"),
    ],
)
def test_embeddings_that_mean_nothing(plain, found, message):
    class Encoder:
        def __init__(self, images, texts):
            self.images, self.texts = images, texts

        def encode_images(self, images):
            return self.images(len(images))

        def encode_texts(self, texts):
            return self.texts(len(texts))

    def good(n):
        return torch.ones(n, 4)

    for encoder in (Encoder(found, good), Encoder(good, found)):
        with pytest.raises(dci.DCIError, match=message):
            evaluate(encoder, plain, batch_size=4)


def test_embeddings_of_other_sizes_from_batch_to_batch(plain):
    class Growing(HashEncoder):
        def encode_images(self, images):
            self.size += 1
            return super().encode_images(images)

    with pytest.raises(dci.DCIError, match="image embeddings of 17 and 18"):
        evaluate(Growing(), plain, batch_size=2)


@pytest.mark.parametrize(
    "form",
    [
        lambda x: x.to(torch.float64),
        lambda x: x.to(torch.float32).requires_grad_(),
        lambda x: x.numpy(),
        lambda x: x.tolist(),
        lambda x: x * 1e30,
        lambda x: (x * 1e-30).float(),
        lambda x: (x * 2.0**60).to(torch.float32),
    ],
)
def test_embeddings_in_other_forms_give_the_same(plain, form):
    class Encoder(HashEncoder):
        def encode_images(self, images):
            return form(super().encode_images(images))

        def encode_texts(self, texts):
            return form(super().encode_texts(texts))

    assert evaluate(Encoder(), plain).outcomes == evaluate(HashEncoder(), plain).outcomes


def test_whole_numbers_and_half_precision_are_scored(rows):
    for dtype in (torch.int64, torch.float16, torch.bfloat16):

        class Encoder(HashEncoder):
            def embed(self, content, dtype=dtype):
                return (8 * super().embed(content)).to(dtype)

        class Exact(HashEncoder):
            def embed(self, content, dtype=dtype):
                return (8 * super().embed(content)).to(dtype).double()

        assert evaluate(Encoder(), rows).outcomes == evaluate(Exact(), rows).outcomes


def test_an_encoder_of_the_users_own_may_tell_its_text_lengths(plain):
    class Measured(HashEncoder):
        def text_lengths(self, texts):
            return [TextLength(3, 2 if text.startswith("base") else 0) for text in texts]

    result = evaluate(Measured(), plain, tests=["all_scm"])
    score = result.scores["all_scm"]
    assert (score.truncated, score.tokens_lost, score.n_texts) == (0.5, 2, 2)
    assert evaluate(HashEncoder(), plain).scores["all_scm"].truncated is None
    assert result.model["id"] == "Measured"
    assert isinstance(result, Result)
