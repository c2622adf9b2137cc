"""Counts of Table 1, against numbers counted by hand."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import tokenizers
import transformers
from release_maker import photo_annotation, write_release
from small_release import write_small_release
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing

import dci
from dci_metrics import stats
from dci_metrics.hub.folder import build


def by_letter(texts: list[str]) -> dict[str, list[list[int]]]:
    """A tokenizer of one token a letter, between two special ones."""
    return {"input_ids": [[0, *map(ord, text), 1] for text in texts]}


def rows(release: dci.Release, split: str, config: str = "both") -> list[dci.Row]:
    return list(release.rows(split, config, photos=False, masks=False))


@pytest.fixture
def release(tmp_path: Path) -> dci.Release:
    return dci.Release(write_small_release(tmp_path / "release"))


def test_counts_of_full(release):
    full = stats.count(rows(release, "train")).full
    # Photo 31: 6 words, 9 of the line between, 7 of each good mask, 2 of the uninteresting one's label. Photo 4: 6.
    assert full == stats.FullStats(
        photos=2,
        masks={"ok": 2, "low_quality": 1, "bad": 1},
        words=stats.Spread(mean=18.5, median=18.5, min=6, max=31),
        tokens=None,
    )


def test_counts_of_sdci(release):
    sdci = stats.count(rows(release, "test")).sdci
    # Photo 92: two entries with six captions each, one of them without negatives. Photo 6: no summaries.
    assert sdci == stats.SdciStats(
        photos=2,
        entries=4,
        captions=12,
        captions_per_entry=6.0,
        caption_tokens=None,
        negatives={"basic": 3, "layout": 3, "swaps": 3},
        left_out={"all": 2, "pick5": 2, "base": 1, "hard": 2},
    )


def test_tokens(tmp_path):
    note = photo_annotation("sa_1.jpg", summaries={"base": ["x" * 75, "x" * 76, "x"]}, short_caption="ab")
    release = dci.Release(write_release(tmp_path, {"1-data.json": note}))
    counted = stats.count(rows(release, "test"), by_letter)
    assert counted.full is not None
    length = len("ab\nAn extra caption.") + 2
    assert counted.full.tokens == stats.Spread(length, length, length, length)
    assert counted.sdci is not None
    # 77 tokens fit, 78 do not.
    assert counted.sdci.caption_tokens == stats.CaptionTokens(mean=(77 + 78 + 3) / 3, max=78, over_limit=1 / 3)


def test_one_config_alone_and_no_row(release):
    both = stats.count(rows(release, "train"), by_letter)
    assert stats.count(rows(release, "train", "full"), by_letter) == stats.SplitStats(full=both.full)
    assert stats.count(iter(rows(release, "train", "sdci")), by_letter) == stats.SplitStats(sdci=both.sdci)
    assert stats.count([]) == stats.SplitStats()


@pytest.mark.parametrize("configs", [("full", "sdci"), ("full",), ("sdci",)])
def test_built_folder_counts_as_its_release(release, tmp_path, configs):
    build(release, tmp_path / "dci", configs=configs)
    for split in dci.SPLITS:
        there = stats.count(stats.folder_rows(tmp_path / "dci", split), by_letter)
        wanted = stats.count(rows(release, split, "both" if len(configs) > 1 else configs[0]), by_letter)
        assert there == wanted
    with pytest.raises(dci.DCIError, match="no data/valid-"):
        next(stats.folder_rows(tmp_path / "dci", "valid"))


def test_dataset_by_its_name(release, tmp_path):
    build(release, tmp_path / "dci")
    wanted = {split: stats.count(rows(release, split)) for split in dci.SPLITS}
    assert stats.count_dataset(str(release.data_dir)) == wanted
    assert stats.count_dataset(str(tmp_path / "dci")) == wanted
    with pytest.raises(dci.DCIError, match="neither a folder of `dci build`"):
        stats.count_dataset(str(tmp_path))


def test_dataset_loaded_by_config(release, monkeypatch):
    """As one of the Hub is."""
    monkeypatch.setattr(
        stats.sources,
        "open_source",
        lambda _, config, split: SimpleNamespace(read=lambda photos: rows(release, split, config)),
    )
    wanted = {split: stats.count(rows(release, split)) for split in dci.SPLITS}
    assert stats.count_dataset("owner/dci") == wanted


def test_release_with_broken_annotation(release):
    (release.root / "complete" / "92-data.json").write_text("{")
    with pytest.raises(dci.DCIError, match=r"92-data\.json: not valid JSON"):
        stats.count_dataset(str(release.data_dir))
    counted = stats.count_dataset(str(release.data_dir), on_error="skip")["test"]
    assert counted.sdci is not None
    assert counted.sdci.photos == 1


def test_folder_rows_read_no_photo_and_no_bitmap(release, tmp_path):
    build(release, tmp_path / "dci")
    row = next(stats.folder_rows(tmp_path / "dci", "train"))
    assert set(row) == {"description", "masks", "entries", "left_out"}
    assert row["masks"][0] == {"quality": "ok"}
    assert set(row["entries"][0]) == {"captions", "negatives"}


def test_real_tokenizer_counts_special_tokens_and_does_not_cut(tmp_path, caplog):
    words = tokenizers.Tokenizer(WordLevel({"[UNK]": 0, "<s>": 1, "</s>": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = WhitespaceSplit()
    words.post_processor = TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=77)
    fast.save_pretrained(tmp_path)
    tokenizer = stats.load_tokenizer(str(tmp_path))
    long = " ".join(["word"] * 300)
    row = {"description": long, "masks": [], "entries": [{"captions": [long], "negatives": []}], "left_out": []}
    counted = stats.count([row], tokenizer)
    assert counted.full is not None
    assert counted.full.tokens == stats.Spread(302, 302, 302, 302)
    assert counted.sdci is not None
    assert counted.sdci.caption_tokens == stats.CaptionTokens(302, 302, 1.0)
    assert "longer than" not in caplog.text


def test_tokenizer_that_is_not_there(tmp_path):
    with pytest.raises(dci.DCIError, match="no tokenizer can be loaded"):
        stats.load_tokenizer(str(tmp_path))


def test_table_and_json(release):
    counted = {split: stats.count(rows(release, split), by_letter) for split in ("train", "test")}
    counted["validation"] = stats.SplitStats()
    assert stats.table(counted).splitlines()[0].split() == ["train", "test", "validation"]
    lines = {line.rsplit(maxsplit=3)[0]: line.split()[-3:] for line in stats.table(counted).splitlines()[1:]}
    assert lines["photos"] == ["2", "2", "0"]
    assert lines["masks bad"] == ["1", "0", "-"]
    assert lines["words a photo, mean"] == ["18.5", "22", "-"]
    # Photo 4 has the negatives of a single key.
    assert lines["left out of hard"] == ["1", "2", "-"]
    plain = json.loads(json.dumps(stats.to_json(counted), allow_nan=False))
    assert plain["train"]["full"]["masks"] == {"ok": 2, "low_quality": 1, "bad": 1}
    assert plain["validation"] == {"full": None, "sdci": None}
