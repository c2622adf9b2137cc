"""`dci eval --tests retrieval`: the whole of it, against a ranking of everything by everything in a few lines."""

import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import command
import numpy as np
import PIL.Image
import pyarrow.parquet as pq
import pytest
import torch
from hash_encoder import HashEncoder, HashScorer
from release_maker import mask_entry, photo_annotation, write_release

import dci
import dci_metrics
from dci import DCIError
from dci_metrics import encoders
from dci_metrics.comparison import compare, refuse_mixed
from dci_metrics.encoders import reading
from dci_metrics.encoders.base import TextLength
from dci_metrics.hub.folder import build
from dci_metrics.results import Result
from dci_metrics.retrieval.table import notes
from dci_metrics.sources import open_source

EXTRAS = ["", "It is 3.5 m long.\n", "", "It is 3.5 m long.\n", "Näh Bei 🎈", "</s>", "Last One."]
SPLITS = {
    "train": ["11-data.json", "9-data.json", "30-data.json"],
    "valid": ["4-data.json"],
    "test": ["21-data.json", "2-data.json", "17-data.json"],
}
NAMES = [name for names in SPLITS.values() for name in names]
SHORTS = {name: f"Photo of {i}." for i, name in enumerate(NAMES)}


def noise(seed):
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (30, 40, 3), dtype=np.uint8)
    PIL.Image.fromarray(pixels).resize((400, 300)).save(out, "JPEG")
    return out.getvalue()


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval")
    notes = {
        name: photo_annotation(
            f"sa_{i}.jpg", masks=[mask_entry(0)], short_caption=SHORTS[name], extra_caption=EXTRAS[i],
            summaries={"base": [f"Summary {i}", "second"], "m-0-sc": "Thing"},
        )
        for i, name in enumerate(NAMES)
    }  # fmt: skip
    del notes["17-data.json"]["summaries"]
    return write_release(folder, notes, {f"sa_{i}.jpg": noise(i) for i in range(len(NAMES))}, SPLITS)


@pytest.fixture(scope="module")
def built(release, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "dci"
    build(dci.Release(release), folder, progress=False)
    return folder


class Counting(HashEncoder):
    """Notes what it is asked to embed."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.images, self.texts = [], []

    def encode_images(self, images):
        self.images += [(image.size, image.tobytes()) for image in images]
        return super().encode_images(images)

    def encode_texts(self, texts):
        self.texts += texts
        return super().encode_texts(texts)


def evaluate(dataset, *protocols, seed=0, **options):
    options = {"split": "all", "progress": False, "tests": ["retrieval"], "protocols": protocols or None} | options
    return dci_metrics.evaluate(options.pop("model", None) or HashEncoder(seed), dataset, **options)


def expected(release, texts, seed=0, square=None):
    """Ranks by photo and by text, of {number of photo: text}, from the photos' files."""
    encoder, photos = HashEncoder(seed), sorted(texts)
    images = [PIL.Image.open(release / f"densely_captioned_images/photos/sa_{i}.jpg") for i in photos]
    if square:
        images = [image.resize((square, square), PIL.Image.Resampling.BICUBIC) for image in images]
    unit = torch.nn.functional.normalize
    image_embeds, text_embeds = unit(encoder.encode_images(images)), unit(encoder.encode_texts([*texts.values()]))
    # Equal texts to the last bit: each pair is summed by itself.
    scores = np.array([[math_dot(a, b) for b in text_embeds] for a in image_embeds])

    def ranks(rows):
        found = []
        for i, row in enumerate(rows):
            others = [j for j in range(len(row)) if j != i]
            equal = [j for j in others if row[j] == row[i]]
            ahead = sum(row[j] > row[i] for j in others)
            found.append(1 + ahead + len(equal))
        return found

    return ranks(scores), ranks(scores.T)


def math_dot(a, b):
    return sum(x * y for x, y in zip(a.tolist(), b.tolist(), strict=True))


def ranks_of(result, key):
    found, _ = result.ranks_of(f"{key}_r1")
    return [ranks[0] for ranks in found if ranks is not None]


ALL = range(len(NAMES))
CASES = {
    "debias": ({i: (SHORTS[n] + EXTRAS[i]).strip() for i, n in enumerate(NAMES)}, None),
    "tulip": ({i: EXTRAS[i] for i in ALL if EXTRAS[i]}, None),
    "fgclip": ({i: EXTRAS[i] for i in ALL}, 336),
    "fgclip2": ({i: EXTRAS[i].lower() for i in ALL}, None),
    "sdci": ({i: f"Summary {i}" for i, n in enumerate(NAMES) if n != "17-data.json"}, None),
}


@pytest.mark.parametrize("kind", ["release", "built"])
def test_ranks_of_every_protocol(kind, request, release):
    result = evaluate(request.getfixturevalue(kind))
    assert {key.partition("_")[0] for key in result.scores} == {
        "lotlip", "debias", "said", "tulip", "fgclip", "fgclip2", "full", "sdci"
    }  # fmt: skip
    for key, (texts, square) in CASES.items():
        by_photo, by_text = expected(release, texts, square=square)
        assert ranks_of(result, f"{key}_i2t") == by_photo, key
        assert ranks_of(result, f"{key}_t2i") == by_text, key
        for direction, ranks in (("i2t", by_photo), ("t2i", by_text)):
            for k in (1, 5, 10):
                score = result.scores[f"{key}_{direction}_r{k}"]
                assert (score.correct, score.n) == (sum(r <= k for r in ranks), len(ranks))
                assert score.value == score.correct / score.n
            assert result.scores[f"{key}_{direction}_medr"].value == np.median(ranks)
            average = np.mean([1 / r if r <= 10 else 0 for r in ranks])
            assert result.scores[f"{key}_{direction}_map10"].value == pytest.approx(average)
    assert (result.dataset["split"], result.dataset["config"]) == ("all", "full")


def test_said_gives_a_tie_to_the_lower_index(tmp_path):
    """Two photos with one text: each ranks it first, or the other one's before it."""
    notes = {f"{i}-data.json": photo_annotation(f"sa_{i}.jpg", short_caption="a", extra_caption="b") for i in range(2)}
    same = write_release(tmp_path, notes, {f"sa_{i}.jpg": noise(i) for i in range(2)})
    result = evaluate(same, "said", "lotlip")
    assert (ranks_of(result, "said_i2t"), ranks_of(result, "lotlip_i2t")) == ([1, 2], [2, 2])
    assert result.scores["said_i2t_r1"].ties == 2
    assert result.scores["said_i2t_r1"].duplicate_texts == 1


def test_counts_and_what_is_left_out(release):
    result = evaluate(release, "tulip", "fgclip", "sdci")
    counts = {key: (s.n_images, s.n_texts, s.empty_texts, s.duplicate_texts) for key, s in result.scores.items()}
    assert counts["fgclip_i2t_r1"] == counts["fgclip_t2i_medr"] == (7, 7, 2, 2)
    assert counts["tulip_i2t_r1"] == (5, 5, 0, 1)
    assert result.scores["fgclip_i2t_r1"].ties == 4
    assert [left["image_id"] for left in result.scores["tulip_i2t_r1"].left_out] == ["11", "30"]
    assert result.scores["sdci_t2i_r1"].left_out == [{"image_id": "17", "reason": "it has no summary"}]
    assert result.scores["tulip_i2t_r1"].chance == pytest.approx(1 / 5)
    table = result.report()
    row = next(line for line in table.splitlines() if line.startswith("fgclip    image"))
    assert row.split()[-7:] == ["7", "7", "2", "2", "4", "–", "0"]
    assert "tulip: 2 × left out: its extra_caption is empty." in table
    assert "Published figures are over 7,602 (tulip); 7,805 (fgclip) photos" in table


def test_each_photo_and_text_is_encoded_once(release):
    encoder = Counting()
    result = evaluate(release, model=encoder)
    assert len(encoder.texts) == len(set(encoder.texts)) == result.timing["texts"]
    assert len(encoder.images) == len(set(encoder.images)) == result.timing["images"] == 2 * len(NAMES)
    assert sorted(size for size, _ in encoder.images) == [(336, 336)] * 7 + [(400, 300)] * 7
    encoder = Counting()
    evaluate(release, "fgclip", model=encoder)
    assert {size for size, _ in encoder.images} == {(336, 336)}


def test_one_split(release):
    result = evaluate(release, "lotlip", split="test")
    assert [image_id for image_id, key in result.entries if key == "photo"] == ["21", "2", "17"]
    assert result.dataset["split"] == "test"


def test_rows_and_loaded_datasets(release, built):
    import datasets

    whole = evaluate(release, "lotlip", "sdci", split="test")
    rows = list(dci.Release(release).rows("test", "both", masks=False))
    assert evaluate(rows, "lotlip", "sdci", split="test").ranks == whole.ranks
    loaded = datasets.load_dataset(str(built), "full")
    result = evaluate(loaded)
    assert {key.partition("_")[0] for key in result.scores} >= {"lotlip", "full"}
    assert "sdci_i2t_r1" not in result.scores
    assert result.dataset["fingerprint"] == evaluate(release, "lotlip").dataset["fingerprint"]
    with pytest.raises(DCIError, match="no column `entries`"):
        evaluate(loaded, "lotlip", "sdci")
    with pytest.raises(DCIError, match="no column short_caption"):
        evaluate(datasets.load_dataset(str(built), "sdci"), "lotlip")


def write_list(path, items):
    path.write_text(json.dumps([{"filename": f"x/{name}", "caption": text} for name, text in items]))
    return path


def test_a_list_with_several_texts_a_photo(release, tmp_path):
    items = [("sa_4.jpg", "one"), ("sa_2.jpg", "two"), ("sa_4.jpg", "three"), ("sa_4.jpg", "two")]
    result = evaluate(release, "goal", goal_list=write_list(tmp_path / "list.json", items))
    assert [key for key in result.scores if "i2t" in key] == [
        f"goal_i2t_{m}" for m in ("r1", "r5", "r10", "r25", "r50", "map10", "medr")
    ]
    assert result.entries == [("30", "photo"), ("21", "photo"), ("30", "text-0"), *(
        ("21", f"text-{i}") for i in range(3)
    )]  # fmt: skip
    by_photo, _ = result.ranks_of("goal_i2t_r1")
    assert [len(ranks or ()) for ranks in by_photo] == [1, 3, 0, 0, 0, 0]
    # "two" is each one's own, and the other one's: it is ahead of itself.
    assert by_photo[0][0] > 1
    assert (result.scores["goal_i2t_r1"].n, result.scores["goal_t2i_r1"].n) == (2, 4)
    assert result.scores["goal_t2i_r1"].chance == 1 / 2
    assert result.scores["goal_i2t_r1"].chance == pytest.approx((1 / 4 + 3 / 4) / 2)
    assert result.scores["goal_i2t_r1"].left_out == []


def test_a_list_of_other_photos(release, tmp_path):
    path = write_list(tmp_path / "list.json", [("sa_4.jpg", "one"), ("sa_9.jpg", "two")])
    with pytest.raises(DCIError, match=r"1 of the list's 2 photos are not in 'all', such as sa_9; .*--on-error skip"):
        evaluate(release, "goal", goal_list=path)
    result = evaluate(release, "goal", goal_list=path, on_error="skip")
    assert result.scores["goal_i2t_r1"].left_out == [
        {"image_id": "sa_9", "reason": "is in the list, but not in the dataset"}
    ]
    with pytest.raises(DCIError, match="no photo of 'all' is in the protocol goal"):
        evaluate(release, "goal", goal_list=write_list(tmp_path / "b.json", [("c.jpg", "")]), on_error="skip")
    with pytest.raises(DCIError, match="not in 'test', such as sa_9; take all splits with --split all, or") as of_test:
        evaluate(release, "goal", goal_list=path, split="test")
    assert "\n" not in str(of_test.value)
    with pytest.raises(DCIError, match="not in 'all', such as sa_9; pass over"):
        evaluate(release, "goal", goal_list=path)


def test_many_reasons_are_not_told_one_by_one():
    left_out = [{"image_id": f"{i}", "reason": f"sa_{i}.jpg: is missing"} for i in range(5)]
    score = dci_metrics.evaluate(
        HashEncoder(), "sample:photographs", protocols=["debias"], cache=False, progress=False
    ).scores["debias_i2t_r1"]
    found = [line for line in notes({"debias_i2t_r1": dataclasses.replace(score, left_out=left_out)}) if "×" in line]
    assert found == [
        *(f"debias: 1 × left out: sa_{i}.jpg: is missing." for i in range(3)),
        "debias: 2 × left out: other reasons, which the result file lists.",
    ]


def test_a_broken_photo_of_a_list_is_left_out_once(release, tmp_path):
    rows = [dict(row) for row in dci.Release(release).rows("test", "full", masks=False)]
    path = write_list(tmp_path / "list.json", [(row["file_name"], row["image_id"]) for row in rows])
    rows[0]["image"] = {"bytes": b"no photo", "path": None}
    result = evaluate(rows, "goal", goal_list=path, on_error="skip")
    (left,) = result.scores["goal_t2i_r1"].left_out
    assert left["image_id"] == "21"
    assert "cannot be read as a photo" in left["reason"]


def test_a_broken_photo(release, tmp_path):
    rows = [dict(row) for row in dci.Release(release).rows("train", "full", masks=False)]
    rows[1]["image"] = {"bytes": b"no photo", "path": "sa_1.jpg"}
    with pytest.raises(DCIError, match=r"sa_1\.jpg"):
        evaluate(rows, "lotlip")
    result = evaluate(rows, "lotlip", on_error="skip")
    (left,) = result.scores["lotlip_i2t_r1"].left_out
    assert left["image_id"] == "9"
    both = evaluate(rows, "lotlip", "debias", on_error="skip").report()
    assert both.count("sa_1.jpg: cannot be read") == both.count("\nlotlip, debias: 1 × left out: sa_1.jpg: ") == 1
    assert result.scores["lotlip_i2t_r1"].n_images == 2


def test_a_photo_that_is_there_twice(release, tmp_path):
    shutil.copytree(release, tmp_path / "two")
    splits = SPLITS | {"test": [*SPLITS["test"], "11-data.json"]}
    (tmp_path / "two" / "densely_captioned_images" / "splits.json").write_text(json.dumps(splits))
    with pytest.raises(DCIError, match="photo 11 is more than once in 'all'"):
        evaluate(tmp_path / "two", "lotlip")
    assert evaluate(tmp_path / "two", "lotlip", split="test").scores["lotlip_i2t_r1"].n == 4
    rows = list(dci.Release(release).rows("test", "full", masks=False))
    with pytest.raises(DCIError, match="photo 21 is more than once"):
        evaluate([*rows, rows[0]], "lotlip")


def test_a_folder_without_the_configuration(release, tmp_path):
    build(dci.Release(release), tmp_path / "full", configs=["full"], progress=False)
    for split in ("all", "test"):
        with pytest.raises(DCIError, match=rf"\(sdci, {split}\): .*; build it with the configuration 'sdci'"):
            evaluate(tmp_path / "full", split=split)


def test_rows_that_are_none(release):
    row = next(dci.Release(release).rows("test", "full", masks=False))
    bare = {name: row[name] for name in ("image", "image_id", "file_name", "width", "height")}
    wrong = [
        ([row | {"width": None}], ["lotlip"], "21: fields `width`, `height`: expected whole numbers"),
        ([3], ["lotlip"], "expected rows of DCI, got int"),
        ([bare], [], "columns image, image_id, file_name, width, height, of which no protocol is made"),
        ([{"a": 1}], [], "columns a, of which no protocol"),
        ({"val": [row]}, ["lotlip"], "dict: has nothing in any of train, validation, test"),
    ]
    for data, protocols, words in wrong:
        with pytest.raises(DCIError, match=words):
            evaluate(data, *protocols)


def test_what_a_model_of_the_users_own_cuts(release):
    class Measuring(HashEncoder):
        def text_lengths(self, texts):
            return [TextLength(min(len(text), 12), max(0, len(text) - 12)) for text in texts]

    report = evaluate(release, "debias", model=Measuring()).report()
    lost = sum(max(0, len((SHORTS[n] + EXTRAS[i]).strip()) - 12) for i, n in enumerate(NAMES))
    assert f"% of a test's texts are longer than the model's limit and were cut ({lost} tokens lost)." in report


def test_the_file_of_a_result(release, tmp_path):
    result = evaluate(release, recall_at=[50, 1])
    assert "lotlip_t2i_r50" in result.scores
    assert "lotlip_t2i_r5" not in result.scores
    result.save(tmp_path / "r.json")
    assert Result.load(tmp_path / "r.json") == result
    data = json.loads((tmp_path / "r.json").read_text())
    data["scores"]["sdci_t2i_r1"]["correct"] += 1
    (tmp_path / "wrong.json").write_text(json.dumps(data))
    with pytest.raises(DCIError, match="sdci_t2i_r1 are not those of its `ranks`"):
        Result.load(tmp_path / "wrong.json")
    data = json.loads((tmp_path / "r.json").read_text())
    data["ranks"]["sdci_t2i"] = data["ranks"]["sdci_t2i"].replace("-", "", 1)
    (tmp_path / "wrong.json").write_text(json.dumps(data))
    with pytest.raises(DCIError, match="not a result file"):
        Result.load(tmp_path / "wrong.json")


def test_comparison(release, tmp_path):
    lists = [write_list(tmp_path / f"{i}", [(f"sa_{n}.jpg", f"{n}{'!' * i}") for n in ALL]) for i in range(2)]
    a = evaluate(release, "lotlip", "fgclip", "goal", goal_list=lists[0])
    b = evaluate(release, "lotlip", "goal", seed=1, goal_list=lists[0])
    found = compare(a, b)
    assert {key.partition("_")[0] for key in found.tests} == {"lotlip", "goal"}
    assert "tokens of a text" not in found.report()
    b.model["text_limit"] = 77
    assert "A reads an unknown number of tokens of a text and B 77" in compare(a, b).report()
    test = found.tests["lotlip_i2t_r5"]
    mine, other = (np.array(ranks_of(r, "lotlip_i2t")) <= 5 for r in (a, b))
    assert (test.only_a, test.only_b) == ((mine & ~other).sum(), (other & ~mine).sum())
    assert test.difference == pytest.approx(other.mean() - mine.mean())
    median = found.tests["lotlip_t2i_medr"]
    assert median.difference == np.median(ranks_of(b, "lotlip_t2i")) - np.median(ranks_of(a, "lotlip_t2i"))
    assert (median.ci95, median.p, median.better) == (None, None, None)
    assert found.tests["lotlip_i2t_map10"].ci95 is not None
    assert "Not compared: fgclip (not in both" in found.report()
    with pytest.raises(DCIError, match="fingerprint of goal is"):
        compare(a, evaluate(release, "goal", goal_list=lists[1]))
    with pytest.raises(DCIError, match="same protocols"):
        compare(a, evaluate(release, "full"))
    with pytest.raises(DCIError, match="cannot be compared"):
        compare(a, evaluate(release, "lotlip", split="test"))
    with pytest.raises(DCIError, match=r"cannot be compared"):
        compare(a, dci_metrics.evaluate(HashEncoder(), release, progress=False))


def test_comparison_where_a_protocol_leaves_photos_out(release):
    """What is in `tulip` stands no earlier than what only `fgclip` has: the data's order is the same for all."""
    a, b = evaluate(release, "tulip", "fgclip"), evaluate(release, "fgclip", seed=1)
    photos = [name.removesuffix("-data.json") for name in NAMES]
    for result in (a, b):
        assert result.entries == [(i, key) for key in ("photo", "text-0") for i in photos]
    test = compare(a, b).tests["fgclip_t2i_r5"]
    mine, other = (np.array(ranks_of(r, "fgclip_t2i")) <= 5 for r in (a, b))
    assert (test.only_a, test.only_b) == ((mine & ~other).sum(), (other & ~mine).sum())
    refuse_mixed([a, b, evaluate(release, "lotlip", "fgclip")], ["a", "b", "c"])


def test_comparison_of_other_measures_and_ties(release):
    a, b = evaluate(release, "said", "sdci"), evaluate(release, "sdci", seed=1, recall_at=[1, 3])
    assert (a.dataset["config"], b.dataset["config"]) == ("full", "sdci")
    found = compare(a, b)
    assert {key.rpartition("_")[2] for key in found.tests} == {"r1", "map10", "medr"}
    assert "Not compared: said, R@5, R@10, R@3 (not in both results" in found.report()
    other = evaluate(release, "said")
    other.settings["protocols"]["said"]["ties"] = "against"
    with pytest.raises(DCIError, match=r"ties of said is 'against', not 'lower_index'; .* same version"):
        compare(a, other)


def test_every_result_is_compared_with_the_one_that_has_its_protocol_first(release, tmp_path):
    """Of three results the first has no list, and the others have different ones."""
    lists = [write_list(tmp_path / f"{i}", [(f"sa_{n}.jpg", f"{n}{'!' * i}") for n in ALL]) for i in range(2)]
    results = [evaluate(release, "lotlip"), *(evaluate(release, "goal", goal_list=path) for path in lists)]
    for result in results[1:]:
        refuse_mixed([results[0], result], ["a", "b"])
    with pytest.raises(DCIError, match="c cannot be compared with b: fingerprint of goal is"):
        refuse_mixed(results, ["a", "b", "c"])


def test_examples(release, tmp_path):
    result = evaluate(release, "lotlip", "fgclip", examples=tmp_path / "e.parquet")
    rows = pq.read_table(tmp_path / "e.parquet").to_pylist()
    assert len(rows) == 4 * len(NAMES)
    for row in rows:
        assert (row["rank"] == 1) == (row["margin"] > 0)
        assert row["rival_image_id"] != row["image_id"]
        assert (row["rival_text"] is None) == (row["direction"] == "t2i")
    ours = [row["rank"] for row in rows if (row["protocol"], row["direction"]) == ("fgclip", "i2t")]
    assert ours == ranks_of(result, "fgclip_i2t")
    empty = next(row for row in rows if row["protocol"] == "fgclip" and row["text"] == "")
    assert empty["tied"]


def test_a_model_without_embeddings(release):
    with pytest.raises(DCIError, match="for models with embeddings"):
        evaluate(release, "lotlip", model=HashScorer())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"tests": ["all_scm", "retrieval"]}, "stands by itself"),
        ({"tests": ["all_scm"], "protocols": ["lotlip"]}, "--tests retrieval"),
        ({"recall_at": [0]}, "whole numbers from 1"),
        ({"recall_at": []}, "whole numbers from 1"),
        ({"recall_at": 5}, "whole numbers from 1"),
        ({"recall_at": [1.5]}, "whole numbers from 1"),
        ({"recall_at": ["1"]}, "whole numbers from 1"),
        (
            {"tests": None, "protocols": None, "recall_at": [5]},
            "--recall-at is of retrieval; ask for --tests retrieval",
        ),
        ({"tests": ["all_scm"], "protocols": None, "goal_list": "a.json"}, "--goal-list is of retrieval"),
        ({"split": "everything"}, "no split 'everything'"),
        ({"crop": "masked"}, "--crop masked is of subcrops, and retrieval is of whole photos"),
        ({"protocols": []}, "no protocol given"),
    ],
)
def test_what_cannot_be_asked(release, options, words):
    with pytest.raises(DCIError, match=words):
        evaluate(release, **{"tests": ["retrieval"], **options})


def test_all_splits_are_for_retrieval(release):
    with pytest.raises(DCIError, match="no split 'all'"):
        dci_metrics.evaluate(HashEncoder(), release, split="all")


def test_what_the_tests_of_sdci_embedded_is_not_embedded_again(release, tmp_path):
    options = {"model": "sample:tiny-clip", "device": "cpu", "cache": tmp_path, "split": "test"}
    dci_metrics.evaluate(dataset=release, progress=False, tests=["base_scm"], **options)
    held = len(list(tmp_path.glob("*/images/*")))
    first = evaluate(release, "lotlip", "sdci", **options)
    assert len(list(tmp_path.glob("*/images/*"))) == held + 1  # photo 17 has no summary, and was in no test
    again = evaluate(release, "lotlip", "sdci", **options)
    assert again.scores == first.scores
    assert len(list(tmp_path.glob("*/images/*"))) == held + 1


def test_the_command(release, tmp_path, monkeypatch, capsys):
    def dci_eval(*arguments):
        model = ("eval", "sample:tiny-clip", "--dataset", release, "--device", "cpu", "--no-cache")
        return command.run(monkeypatch, capsys, *model, *arguments)

    out = tmp_path / "r.json"
    code, printed, err = dci_eval(
        "--tests", "retrieval", "--protocol", "lotlip, sdci", "--split", "all", "--recall-at", "1,25", "--out", out
    )
    assert code == 0, err
    assert "R@25" in printed
    assert "R@5 " not in printed
    assert "By protocol alone R@1 image → text goes from " in printed
    assert Result.load(out).model["id"] == "sample:tiny-clip"
    code, printed, err = command.run(monkeypatch, capsys, "compare", out, out)
    assert code == 0, err
    assert "lotlip_t2i_r25" in printed
    page = tmp_path / "page.html"
    code, printed, err = command.run(monkeypatch, capsys, "report", out, out, "--dataset", release, "--out", page)
    assert code == 0, err
    median = Result.load(out).scores["sdci_t2i_medr"].value
    block = page.read_text("utf-8").partition("sdci <small>text → image</small>")[2].partition("</tbody>")[0]
    assert re.findall(r"<td><span[^>]*>([\d.]+)</span>", block)[3::4] == [f"{median:g}"] * 2
    command.refused(dci_eval("--protocol", "goal"), "--goal-list")
    command.refused(dci_eval("--protocol", "nobody"), "no protocol 'nobody'")
    command.refused(dci_eval("--protocol", "lotlip", "--recall-at", "five"), "--recall-at", "whole numbers")
    command.refused(dci_eval("--protocol", "goal", "--goal-list", Path("none.json")), "none.json", "cannot be read")


def test_texts_of_several_vectors():
    """Descriptions that the model reads in pieces: the piece that is nearest to a photo counts, both ways."""
    result = evaluate("sample:scenes", "full", model="sample:tiny-clip", split="test", reading="sentences-max")
    encoder = encoders.load("sample:tiny-clip", device="cpu")
    rows = list(open_source("sample:scenes", "full", "test").read())
    pieces = reading.split([row["description"] for row in rows], encoder)
    assert max(map(len, pieces.of)) > 1
    unit = torch.nn.functional.normalize
    embeds = unit(encoder.encode_texts(pieces.texts))
    images = unit(encoder.encode_images([PIL.Image.open(io.BytesIO(row["image"]["bytes"])) for row in rows]))
    scores = torch.stack([(images @ embeds[own].T).amax(1) for own in pieces.of], dim=1)
    for direction, of_queries in (("i2t", scores), ("t2i", scores.T)):
        ranks = 1 + (of_queries > of_queries.diag()[:, None]).sum(1)
        assert ranks_of(result, f"full_{direction}") == ranks.tolist()
    assert result.scores["full_i2t_r1"].truncated == 0


def test_the_table_of_the_docs(monkeypatch, capsys):
    page = (Path(__file__).parents[2] / "docs" / "retrieval.md").read_text("utf-8")
    order, table = re.search(r"```bash\ndci (.*?)\n```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    code, printed, err = command.run(monkeypatch, capsys, *order.split(), "--device", "cpu")
    assert code == 0, err
    with_time = r" in [\d.]+ s$"
    assert re.sub(with_time, "", printed, flags=re.M) == re.sub(with_time, "", table, flags=re.M)


def test_two_processes_give_the_same(release, tmp_path):
    alone = evaluate(release, model="sample:tiny-clip", device="cpu", cache=False)
    out = tmp_path / "r.json"
    order = [sys.executable, "-m", "dci_metrics", "eval", "sample:tiny-clip", "--dataset", release, "--protocol", "all"]
    order += ["--split", "all", "--num-processes", "2", "--device", "cpu", "--no-cache", "--out", out]
    done = subprocess.run(list(map(str, order)), capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 0, done.stderr
    both = Result.load(out)
    assert (both.ranks, both.entries, both.dataset) == (alone.ranks, alone.entries, alone.dataset)
    assert both.settings["protocols"] == alone.settings["protocols"]
