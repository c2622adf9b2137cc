"""The README of a dataset folder: YAML that `load_dataset` reads, and a short text."""

from pathlib import Path

import datasets
from huggingface_hub import DatasetCard, DatasetCardData

import dci
from dci_metrics.hub.summary import BuildSummary

TEMPLATE = Path(__file__).parent / "templates" / "dataset_folder.md"
CARD = TEMPLATE.with_name("dataset_card.md")
"""The whole datasheet, which goes to the Hub."""
MARKER = "<!-- this copy -->"
"""Where it says what the files beside it hold."""
# The Hub's size classes, by the number of rows at which each ends.
SIZES = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K"}


def write(path: Path, summary: BuildSummary) -> None:
    """Write the README of a built folder."""
    card = DatasetCard.from_template(
        _metadata(summary),
        template_path=str(TEMPLATE),
        summary=summary,
        photos_page=dci.PHOTOS_PAGE,
        citation=dci.CITATION,
        left_out=[(skipped.image_id, " ".join(skipped.reason.split())) for skipped in summary.skipped],
    )
    # Not card.save(): it would replace the text's line ends.
    path.write_text(str(card), encoding="utf-8")


def license_details(photos: bool) -> str:
    """The licences of a folder with or without photos."""
    of_photos = "photos under the SA-1B research licence, which forbids redistribution" if photos else "no photos"
    return f"annotations CC-BY-NC 4.0; {of_photos}"


def _metadata(summary: BuildSummary) -> DatasetCardData:
    rows = sum(split.counts.photos for split in summary.splits.values())
    data = DatasetCardData(
        pretty_name="Densely Captioned Images",
        language=["en"],
        license="cc-by-nc-4.0",
        license_details=license_details(summary.photos),
        task_categories=["image-to-text", "text-to-image", "zero-shot-image-classification"],
        size_categories=[next((name for end, name in SIZES.items() if rows < end), "100K<n<1M")],
        tags=["dense-captions", "vision-language", "clip", "segmentation", "hard-negatives"],
        configs=[_config(summary, config) for config in summary.configs],
    )
    infos = {config: _info(summary, config) for config in summary.configs}
    datasets.info.DatasetInfosDict(infos).to_dataset_card_data(data)
    return data


def _config(summary: BuildSummary, config: str) -> dict[str, object]:
    names = [name for name, split in summary.splits.items() if split.files]
    return {
        "config_name": config,
        "data_files": [{"split": name, "path": f"data/{name}-*.parquet"} for name in names],
        "columns": list(dci.features(config)),
        # A name that `load_dataset` is not told is this one.
        **({"default": True} if config == summary.configs[0] else {}),
    }


def _info(summary: BuildSummary, config: str) -> datasets.DatasetInfo:
    splits = datasets.SplitDict()
    for name, split in summary.splits.items():
        if split.files:
            splits.add(datasets.SplitInfo(name, split.num_bytes[config], split.counts.photos))
    return datasets.DatasetInfo(
        config_name=config,
        features=dci.features(config),
        splits=splits,
        download_size=sum(split.file_bytes for split in summary.splits.values()),
        dataset_size=sum(split.num_bytes[config] for split in summary.splits.values()),
    )
