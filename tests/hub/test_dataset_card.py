"""The dataset card: its YAML against the features and a built folder, its tables and links against what is there."""

import re
from pathlib import Path

import datasets
import pytest
import yaml
from huggingface_hub import DatasetCard
from small_release import write_small_release

import dci
from dci_metrics.hub import folder

CARD = Path(folder.__file__).parent / "templates" / "dataset_card.md"
CONFIGS = ("full", "sdci")


@pytest.fixture(scope="module")
def card() -> DatasetCard:
    return DatasetCard(CARD.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    made = tmp_path_factory.mktemp("card")
    folder.build(dci.Release(write_small_release(made / "release")), made / "dci", photos=False, progress=False)
    return made / "dci"


def test_yaml_is_that_of_a_built_folder_but_for_what_it_holds(card, built):
    """So that `load_dataset` reads both the same; a copy's own sizes are put in when it is pushed."""
    made = DatasetCard((built / "README.md").read_text(encoding="utf-8")).data
    for key in ("pretty_name", "license", "license_details", "language", "task_categories", "configs"):
        assert card.data[key] == made[key], key
    assert set(made["tags"]) <= set(card.data["tags"])
    for ours, theirs in zip(card.data["dataset_info"], made["dataset_info"], strict=True):
        assert (ours["config_name"], ours["features"]) == (theirs["config_name"], theirs["features"])


def test_features_and_splits_as_datasets_reads_them(card):
    infos = datasets.info.DatasetInfosDict.from_dataset_card_data(card.data)
    assert set(infos) == set(CONFIGS)
    for config, info in infos.items():
        assert info.features == dci.features(config)
        assert {name: split.num_examples for name, split in info.splits.items()} == {
            "train": 7599,
            "validation": 98,
            "test": 108,
        }
    assert [(config["config_name"], config.get("default")) for config in card.data.configs] == [
        ("full", True),
        ("sdci", None),
    ]


@pytest.mark.parametrize("config", CONFIGS)
def test_a_folder_with_this_yaml_loads(card, built, config, tmp_path):
    """Of the counts, which are the real data's, only those of this folder are put in."""
    made = DatasetCard((built / "README.md").read_text(encoding="utf-8"))
    data = card.data.to_dict() | {"dataset_info": made.data["dataset_info"]}
    (tmp_path / "dci").mkdir()
    (tmp_path / "dci" / "data").symlink_to(built / "data")
    readme = f"---\n{yaml.safe_dump(data, sort_keys=False, allow_unicode=True)}---\n{card.text}"
    (tmp_path / "dci" / "README.md").write_text(readme, encoding="utf-8")
    loaded = datasets.load_dataset(str(tmp_path / "dci"), config, cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 2, "validation": 1, "test": 2}
    assert loaded["test"].features == dci.features(config)


def test_gate_asks_for_agreement(card):
    assert "forbids redistribution" in " ".join(card.data["extra_gated_prompt"].split())
    assert set(card.data["extra_gated_fields"].values()) == {"checkbox"}


def fields(columns, above: str = ""):
    """Name and type of every field, those of structs and of lists of structs with the names above them."""
    for name, feature in columns.items():
        inner = feature[0] if isinstance(feature, list) else getattr(feature, "feature", feature)
        listed = inner is not feature
        if isinstance(inner, dict):
            yield above + name, "list" if listed else "struct"
            yield from fields(inner, f"{above}{name}.")
        else:
            kind = "image" if isinstance(inner, datasets.Image) else inner.dtype
            yield above + name, f"list of {kind}" if listed else kind


def test_tables_name_every_field_with_its_type(card):
    told = re.findall(r"^\| `([\w.]+)` \| ([\w ]+) \| .+ \|$", card.text, re.MULTILINE)
    photo = [field for field in fields(dci.features("full")) if field in list(fields(dci.features("sdci")))]
    expected = [
        *photo,
        *(field for config in CONFIGS for field in fields(dci.features(config)) if field not in photo),
    ]
    assert told == expected


def test_links_lead_to_what_is_there(card):
    headings = re.findall(r"^#+ (.+)$", card.text, re.MULTILINE)
    # As the Hub makes them: lower case, no punctuation, hyphens for blanks.
    anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    links = re.findall(r"\]\(([^)]+)\)", card.text)
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    # Nothing relative: the card lies in a repo of its own.
    assert all(link.startswith(("#", "https://")) for link in links)
    assert {dci.ANNOTATIONS_URL, dci.PHOTOS_PAGE} <= set(links)
    assert dci.CITATION.strip() in card.text


def test_sections_of_a_datasheet(card):
    parts = re.findall(r"^## (.+)$", card.text, re.MULTILINE)
    for part in ("Motivation", "Composition", "Collection", "Preprocessing", "Uses", "Distribution", "Maintenance"):
        assert part in parts
    assert card.text.count("<!-- this copy -->") == 1


def test_python_in_it_runs(card, built, tmp_path, monkeypatch):
    """With the small folder in place of the Hub's copy, and its photos in place of the archive."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", card.text, re.DOTALL))
    code = code.replace('"you/dci"', repr(str(built)))
    code = code.replace('"sa_000138.tar"', repr(str(built.parent / "release" / "densely_captioned_images" / "photos")))
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    names: dict = {}
    exec(code, names)
    assert names["ds"][0]["image"].size == (400, 300)
