"""Models that score pairs: figures against plain loops, and which pairs they are asked for."""

import gc
import hashlib
import json
import math
import threading
from collections import Counter

import brute_force
import numpy as np
import PIL.Image
import pytest
import torch
from awkward_release import noise_photo, write_awkward_release
from hash_encoder import HashEncoder, HashScorer
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics
from dci_metrics import pairs
from dci_metrics.encoders.base import TextLength
from dci_metrics.tasks import TASKS


def points(pixels, text):
    """One of six scores, by what is in the image and the text: ties are many. They are exact in float32."""
    digest = hashlib.sha256(pixels + text.encode("utf-8", "surrogatepass")).digest()
    return digest[0] % 6 / 1024


class Scorer:
    """Gives points, and remembers what it was asked for."""

    def __init__(self):
        self.asked = []
        self.batches = []

    def score(self, images, texts):
        self.batches.append((len(images), len(texts)))
        self.asked += [(image.tobytes(), text) for image in images for text in texts]
        return torch.tensor([[points(image.tobytes(), text) for text in texts] for image in images])


class Dual:
    """Embeddings whose cosines are the points: an image is an axis of its own, a text has its points on each."""

    axes = 200

    def __init__(self):
        self.known = {}

    def encode_images(self, images):
        places = [self.known.setdefault(image.tobytes(), len(self.known)) for image in images]
        return torch.nn.functional.one_hot(torch.tensor(places), self.axes + 1).double()

    def encode_texts(self, texts):
        found = torch.zeros(len(texts), self.axes + 1, dtype=torch.double)
        for row, text in zip(found, texts, strict=True):
            for pixels, place in self.known.items():
                row[place] = points(pixels, text)
            row[-1] = math.sqrt(1 - float((row * row).sum()))
        return found


class Expected:
    """All tests in plain loops, from the raw annotations, and all pairs that they look at."""

    def __init__(self, folder, broken=()):
        root = folder / "densely_captioned_images"
        self.names = json.loads((root / "splits.json").read_text())["test"]
        self.notes = {name: json.loads((root / "complete" / name).read_text()) for name in self.names}
        self.root, self.broken = root, broken
        self.pixels = {}
        self.compared = set()  # (image_id, key, text)
        self.found = {key: self.run(key) for key in TASKS}

    def entries(self, test):
        """(image_id, key, captions, negative), in the order of the data."""
        rule = {"random_scm": "all_scm", "photo_scm": "all_scm"}.get(test[:-4], test)
        walked = []
        for name in self.names:
            image_id, note = name.removesuffix("-data.json"), self.notes[name]
            found = brute_force.entries_of(note, rule) or []
            if image_id in self.broken or not found:
                continue
            photo = brute_force.read_photo(self.root / "photos" / note["image"], note)
            for key, mask, captions, negative in found:
                crop = photo if mask is None else brute_force.subcrop(photo, mask)
                self.pixels[image_id, key] = PIL.Image.fromarray(crop).tobytes()
                k = 5 if test.startswith("pick5") else 1
                if len(captions) >= k:
                    walked.append((image_id, key, captions[:k], negative))
        return walked

    def score(self, entry, text):
        self.compared.add((*entry[:2], text))
        return points(self.pixels[entry[:2]], text)

    def run(self, test):
        walked = self.entries(test)
        if test.startswith("random_scm"):
            return {e[:2]: self.at_random(walked, i, test.endswith("t2i")) for i, e in enumerate(walked)}
        found = {}
        for i, entry in enumerate(walked):
            others = [e for j, e in enumerate(walked) if e[0] == entry[0] and j != i]
            if test.startswith("photo_scm") and not others:
                continue
            own = min(self.score(entry, text) for text in entry[2])
            if test.startswith("photo_scm"):
                found[entry[:2]] = all(own > rival for rival in self.rivals(entry, others, test.endswith("t2i")))
            elif test.endswith("_scm"):
                start = i - i % 8
                group = walked[start : start + 8]
                scores = [own if e is entry else max(self.score(entry, text) for text in e[2]) for e in group]
                found[entry[:2]] = scores.index(max(scores)) == i - start
            else:
                found[entry[:2]] = own > self.score(entry, entry[3])
        return found

    def rivals(self, entry, others, by_text):
        return [self.score(e, entry[2][0]) if by_text else self.score(entry, e[2][0]) for e in others]

    def at_random(self, walked, i, by_text):
        """How many of all groups with seven others it wins."""
        others = walked[:i] + walked[i + 1 :]
        own = self.score(walked[i], walked[i][2][0])
        k = sum(rival >= own for rival in self.rivals(walked[i], others, by_text))
        drawn = min(7, len(others))
        return math.comb(len(others) - k, drawn) / math.comb(len(others), drawn)

    def asked(self):
        """Each pair once, with the pixels of its image: masks with the same box have the same."""
        return Counter({(self.pixels[image_id, key], text) for image_id, key, text in self.compared})


def assert_is(result, expected):
    for test, found in expected.found.items():
        values = result.values_of(test)
        assert values.keys() == found.keys(), test
        for entry, value in found.items():
            assert values[entry] == pytest.approx(float(value), abs=1e-12), (test, entry)
        score = result.scores[test]
        assert score.value == pytest.approx(sum(map(float, found.values())) / len(found))


@pytest.fixture(scope="module", params=[1, 2])
def release(request, tmp_path_factory):
    return write_awkward_release(tmp_path_factory.mktemp("awkward"), seed=request.param)


@pytest.fixture(scope="module")
def rows(release):
    return list(dci.Release(release).rows("test", "sdci"))


def score(model, data, **options):
    return dci_metrics.evaluate(model, data, **{"tests": ["all"], "progress": False} | options)


def everything_but_the_model(result):
    data = json.loads(result.to_json())
    # Only dual encoders and own pair scorers differ in these.
    return {key: data.get(key) for key in ("dataset", "entries", "outcomes", "rates", "scores", "breakdown")}


def test_figures_are_those_of_plain_loops_and_no_other_pairs_are_scored(release, rows):
    scorer, expected = Scorer(), Expected(release)
    result = score(scorer, rows)
    assert_is(result, expected)
    assert Counter(scorer.asked) == expected.asked()
    assert sum(score.ties for score in result.scores.values()) > 50
    assert all(score.n for score in result.scores.values())
    assert everything_but_the_model(score(Dual(), rows)) == everything_but_the_model(result)


@pytest.mark.parametrize("tests", [["all_neg"], ["pick5_scm", "hard_negs"], ["photo_scm_t2i"], ["base_scm"]])
def test_some_tests_score_their_own_pairs_only(release, rows, tests):
    scorer, expected = Scorer(), Expected(release)
    expected.compared.clear()
    for test in tests:
        expected.run(test)
    result = score(scorer, rows, tests=tests)
    assert Counter(scorer.asked) == expected.asked()
    assert everything_but_the_model(score(Dual(), rows, tests=tests)) == everything_but_the_model(result)


@pytest.mark.parametrize("places", [[0], [-1], [1, 3, 4]])
def test_when_photos_are_broken_groups_move_and_what_is_missing_is_scored_too(release, rows, places):
    planned = Expected(release)
    in_tests = list(dict.fromkeys(image_id for image_id, _, _ in planned.compared))
    ids = [row["image_id"] for row in rows if row["image_id"] in in_tests]
    broken = {ids[i] for i in places}
    spoilt = [
        row | {"image": {"bytes": row["image"]["bytes"][:200], "path": None}} if row["image_id"] in broken else row
        for row in rows
    ]
    scorer, expected = Scorer(), Expected(release, broken)
    with pytest.raises(dci_metrics.DCIError, match="cannot be read as a photo"):
        score(Scorer(), spoilt)
    result = score(scorer, spoilt, on_error="skip")
    assert_is(result, expected)
    planned.compared = {pair for pair in planned.compared if pair[0] not in broken} | expected.compared
    assert Counter(scorer.asked) == planned.asked()
    assert broken <= {out["image_id"] for out in result.scores["all_scm"].left_out}
    assert everything_but_the_model(score(Dual(), spoilt, on_error="skip")) == everything_but_the_model(result)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_batches(rows, batch_size):
    scorer = Scorer()
    result = score(scorer, rows, batch_size=batch_size)
    assert {images for images, _ in scorer.batches} == {1}
    assert max(texts for _, texts in scorer.batches) <= batch_size
    assert result.outcomes == score(Scorer(), rows).outcomes


def test_an_image_is_looked_at_once(rows):
    class Looking(Scorer):
        looks = 0

        def look(self, image):
            Looking.looks += 1
            return image

        def score_seen(self, seen, texts):
            return self.score([seen], texts)[0]

    result = score(Looking(), rows, batch_size=2)
    assert Looking.looks == result.timing["images"] == score(Dual(), rows).timing["images"] < len(result.entries)
    assert result.outcomes == score(Scorer(), rows).outcomes


def test_the_helpers_agree(rows):
    assert score(HashScorer(3), rows).outcomes == score(HashEncoder(3), rows).outcomes


def test_text_lengths_are_told(rows):
    class Measuring(Scorer):
        def text_lengths(self, texts):
            return [TextLength(min(len(text), 5), max(0, len(text) - 5)) for text in texts]

    found = score(Measuring(), rows, tests=["all_neg"]).scores["all_neg"]
    assert 0 < found.truncated < 1
    assert found.tokens_lost > 0
    assert score(Scorer(), rows, tests=["all_neg"]).scores["all_neg"].truncated is None


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (lambda n: torch.full((1, n), torch.nan), "scores that are not finite"),
        (lambda n: torch.full((1, n), torch.inf), "scores that are not finite"),
        (lambda n: torch.full((1, n), 1e300, dtype=torch.double), "scores that are not finite"),
        (lambda n: torch.zeros(n + 1, 1), r"scores of shape \(\d+, 1\) .* expected real numbers of shape \(1, \d+\)"),
        (lambda n: torch.zeros(n), r"scores of shape \(\d+,\)"),
        (lambda n: torch.zeros(1, n, 1), "scores of shape"),
        (lambda n: torch.zeros(1, n, dtype=torch.complex64), "type torch.complex64"),
        (lambda n: None, "scores as NoneType"),
        (lambda n: "high", "scores as str"),
    ],
)
def test_scores_that_mean_nothing(rows, gives, message):
    class Wrong:
        def score(self, images, texts):
            return gives(len(texts))

    with pytest.raises(dci_metrics.DCIError, match=message):
        score(Wrong(), rows)


@pytest.mark.parametrize(
    "form",
    [torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.double, torch.Tensor.bfloat16, lambda t: (t * 1024).int()],
)
def test_scores_in_other_forms(rows, form):
    class Formed(Scorer):
        def score(self, images, texts):
            return form(super().score(images, texts))

    assert score(Formed(), rows).outcomes == score(Scorer(), rows).outcomes


# ----------------------------------------------------------------------------------------------------------------------
# Data of other kinds
# ----------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    size = (300, 280)
    masks = [mask_entry(3, (5, 6, 240, 250), size=size), mask_entry(4, (40, 10, 290, 260), size=size)]
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", size, masks) for i in range(5)}
    for name, note in notes.items():  # no caption is another photo's too
        note["summaries"] = {key: [f"{name} {text}" for text in texts] for key, texts in note["summaries"].items()}
    photos = {f"sa_{i}.jpg": noise_photo(i, size) for i in range(5)}
    return list(dci.Release(write_release(tmp_path_factory.mktemp("plain"), notes, photos)).rows("test", "sdci"))


def test_a_photo_that_stands_in_the_data_twice(plain):
    scorer = Scorer()
    result = score(scorer, [*plain, plain[0], plain[2]])
    assert result.outcomes == score(Dual(), [*plain, plain[0], plain[2]]).outcomes
    assert max(Counter(scorer.asked).values()) == 1


def test_images_that_are_the_same_to_the_last_pixel_are_scored_once(plain):
    whole, first, second = plain[0]["entries"]
    same = plain[0] | {"entries": [whole, first, second | {"crop_xyxy": first["crop_xyxy"]}]}
    scorer = Scorer()
    result = score(scorer, [same, *plain[1:]])
    assert result.outcomes == score(Dual(), [same, *plain[1:]]).outcomes
    assert max(Counter(scorer.asked).values()) == 1


def test_an_entry_without_the_negative_that_a_test_needs(plain):
    bare = plain[1] | {"entries": [entry | {"negatives": []} for entry in plain[1]["entries"]]}
    data = [plain[0], bare, *plain[2:]]
    with pytest.raises(dci_metrics.DCIError, match="has no negative for all_neg"):
        score(Scorer(), data)
    result = score(Scorer(), data, on_error="skip")
    assert everything_but_the_model(score(Dual(), data, on_error="skip")) == everything_but_the_model(result)


@pytest.mark.parametrize("data", [[], "all broken"])
def test_nothing_to_score(plain, data):
    if data:
        data = [row | {"image": {"bytes": b"no photo", "path": None}} for row in plain]
    with pytest.raises(dci_metrics.DCIError, match="no entry of 'test' is in the tests"):
        score(Scorer(), data, on_error="skip")


class Moving:
    """Rows of which another one is broken each time they are read with their photos, for a while."""

    def __init__(self, rows, readings):
        self.rows, self.left = rows, readings

    def __iter__(self):
        i, self.left = self.left % len(self.rows), self.left - 1
        for place, row in enumerate(self.rows):
            out = self.left >= 0 and place == i
            yield row | {"image": {"bytes": b"no photo", "path": None}} if out else row


def test_photos_that_break_now_and_then(plain, monkeypatch):
    """The loop ends, with the right figures or with an error."""
    result = score(Scorer(), Moving(plain, 3), on_error="skip")
    out = {left["image_id"] for left in result.scores["all_scm"].left_out}
    assert result.outcomes == score(Scorer(), [row for row in plain if row["image_id"] not in out]).outcomes
    monkeypatch.setattr(pairs, "WALKS", 1)
    with pytest.raises(dci_metrics.DCIError, match="gives other entries each time"):
        score(Scorer(), Moving(plain, 3), on_error="skip", tests=["all_scm"])


def test_an_interruption_stops_at_once(plain):
    class Interrupted(Scorer):
        def score(self, images, texts):
            if self.batches:
                raise KeyboardInterrupt
            return super().score(images, texts)

    before = threading.active_count()
    try:
        score(Interrupted(), plain)
    except KeyboardInterrupt:
        interrupted = True
    assert interrupted
    gc.collect()
    assert threading.active_count() <= before


def test_pairs_that_were_not_scored_are_no_zeros(plain):
    entry = next(iter(dci_metrics.subcrops.read_row(plain[0]).entries))
    scores = pairs.PairScores([entry], {"a": 0, "b": 1}, {pairs._image(entry): {"b": 0.5, "c": 1.0}})
    image, texts = torch.tensor([0]), torch.tensor([0, 1])
    assert scores.matrix(image, texts).tolist() == [[0, 0.5]]
    assert scores.pairs(image[:, None, None], texts[None, :, None]).shape == (1, 2, 1)
    assert scores.missing() == [(0, 0)]
    scores.is_complete = True
    assert scores.pairs(image, torch.tensor([1])).tolist() == [0.5]
    with pytest.raises(LookupError, match="that no test compares"):
        scores.matrix(image, texts)
    none = pairs.PairScores([], {}, {})
    assert none.pairs(image[:0], texts[:0]).shape == (0,)
    assert none.missing() == []


def test_memory_of_many_scores():
    """A pair takes twelve bytes, whatever the number of images and texts."""
    entries = [
        dci_metrics.subcrops.Entry(str(i), "base", -1, (0, 0, 9, 9), ("x",), (), {}) for i in range(100)
    ]  # fmt: skip
    texts = {str(t): t for t in range(1000)}
    generator = np.random.default_rng(0)
    known = {pairs._image(e): dict(zip(texts, generator.random(1000).tolist(), strict=True)) for e in entries}
    scores = pairs.PairScores(entries, texts, known)
    held = sum(t.numel() * t.element_size() for t in vars(scores).values() if isinstance(t, torch.Tensor))
    assert held == 12 * (100 * 1000 + 1)
    found = scores.matrix(torch.arange(100), torch.arange(1000))
    assert torch.equal(found, torch.tensor([list(k.values()) for k in known.values()]))
