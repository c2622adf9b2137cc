"""The dataset on the Hub: the folder of `dci build` with the dataset card as its README, by default without photos."""

import re
from pathlib import Path
from typing import Any

import datasets
import jinja2
import yaml
from huggingface_hub import DatasetCard, DatasetCardData

import dci
from dci_metrics import sample
from dci_metrics.hub import benchmark_files, card, croissant
from dci_metrics.hub.card import CARD, MARKER
from dci_metrics.hub.folder import build
from dci_metrics.hub.publishing import Destination, publish
from dci_metrics.hub.without_photos import Contents, place
from dci_metrics.sources import NEITHER, is_built, is_release

PHOTOS_OPTION = "--with-photos-under-sa-1b-licence"
TEMPLATES = Path(__file__).parent / "templates"
PLACEHOLDER = "you/dci"
"""What the card calls its repo."""
MESSAGE = "Upload Densely Captioned Images"
OF_THIS_COPY = ("configs", "dataset_info", "size_categories", "license_details")
"""What the README's YAML says about the files beside it; the rest is the card's."""


def push(dataset: str, destination: Destination, photos: bool = False, progress: bool = True) -> str:
    """Upload a dataset.

    Args:
        dataset: A folder of `dci build`, a release folder, or an embedded sample.
        destination: Where to.
        photos: Whether the photos go with it: only to a private repo, since their licence forbids redistribution.
        progress: Whether to show it.

    Returns:
        As `publish`.

    Raises:
        DCIError: If there is no such dataset, the photos would be published or are missing, or the Hub refuses.
    """
    if photos and not destination.private:
        raise dci.DCIError(
            f"{PHOTOS_OPTION}: the photos' licence forbids redistribution, so they go to a private repo only: add "
            "--private"
        )
    source = _find(dataset)

    def write(folder: Path) -> None:
        write_folder(folder, source, photos, destination, progress)

    return publish(write, destination, MESSAGE, progress, replaces=["data/*.parquet"])


def write_folder(
    folder: Path, source: Path | dci.Release, photos: bool, destination: Destination, progress: bool = True
) -> None:
    """Write what is uploaded into a new folder.

    Args:
        folder: The folder, empty.
        source: A folder of `dci build`, or a release.
        photos: Whether the photos go with it.
        destination: Where it goes; if it is gated, the card has the conditions that readers must agree to.
        progress: Whether to show it.

    Raises:
        DCIError: If the source cannot be used, or has no photos and they are asked for.
    """
    if isinstance(source, dci.Release):
        build(source, folder, photos=photos, progress=progress)
    data = folder if isinstance(source, dci.Release) else source
    built = _read_card(data / "README.md")
    columns = {config["config_name"]: config["columns"] for config in built.data["configs"]}
    contents = place(data, folder, columns, photos)
    if photos and not contents.photos:
        raise dci.DCIError(f"{data}: has no photos; build it with them, or push it without {PHOTOS_OPTION}")
    if contents.num_bytes:
        _count_bytes(built, contents)
    (folder / "README.md").write_text(_card(built, contents, destination), encoding="utf-8")
    if benchmark_files.CONFIG in columns:
        benchmark_files.write(folder, source)
    croissant.write(folder)


def _find(dataset: str) -> Path | dci.Release:
    if dataset.startswith(sample.PREFIX):
        return dci.Release(sample.release_folder(dataset))
    path = Path(dataset).expanduser()
    if is_built(path):
        return path.resolve()
    if is_release(path):
        return dci.Release(path)
    raise dci.DCIError(f"{dataset}: {NEITHER}")


# -- the card


def _read_card(path: Path) -> DatasetCard:
    try:
        found = DatasetCard(path.read_text(encoding="utf-8"))
    except (ValueError, yaml.YAMLError) as error:
        raise dci.DCIError(f"{path}: its YAML cannot be read ({error}); build the folder again") from error
    missing = [key for key in ("configs", "dataset_info") if not found.data.get(key)]
    if missing:
        raise dci.DCIError(f"{path}: its YAML has no {' and no '.join(missing)}; build the folder again")
    return found


def _count_bytes(built: DatasetCard, contents: Contents) -> None:
    """Let the YAML tell the sizes of files that have been written anew."""
    infos = datasets.info.DatasetInfosDict.from_dataset_card_data(built.data)
    for config, info in infos.items():
        for name, split in info.splits.items():
            split.num_bytes = contents.num_bytes[config][name]
        info.dataset_size = sum(contents.num_bytes[config].values())
        info.download_size = contents.file_bytes
    infos.to_dataset_card_data(built.data)
    built.data["license_details"] = card.license_details(photos=False)


def _card(built: DatasetCard, contents: Contents, destination: Destination) -> str:
    """The dataset card, about the files beside it."""
    made = DatasetCard(CARD.read_text(encoding="utf-8"))
    data: dict[str, Any] = made.data.to_dict() | {key: built.data[key] for key in OF_THIS_COPY if key in built.data}
    if not destination.gated:
        data = {key: value for key, value in data.items() if not key.startswith("extra_gated_")}
    made.data = DatasetCardData(**data)
    made.text = made.text.replace(PLACEHOLDER, destination.repo).replace(MARKER, _this_copy(built, contents))
    return str(made)


def _this_copy(built: DatasetCard, contents: Contents) -> str:
    template = jinja2.Template((TEMPLATES / "this_copy.md").read_text("utf-8"), undefined=jinja2.StrictUndefined)
    splits = {split: contents.splits[split] for split in dci.SPLITS if split in contents.splits}
    return str(template.render(splits=splits, photos=contents.photos, left_out=_left_out(built.text))).strip()


def _left_out(text: str) -> list[str]:
    """The photos that the build has passed over, as its README lists them."""
    section = re.search(r"^## Photos left out\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return [line for line in section[1].splitlines() if line.startswith("- `")] if section else []
