"""The Croissant file of a dataset folder: what the data is, in the form that dataset search engines and tools read.

https://docs.mlcommons.org/croissant/docs/croissant-spec.html
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
import pyarrow.parquet as pq
from huggingface_hub import DatasetCard

import dci
from dci_metrics.hub.card import CARD, MARKER
from dci_metrics.hub.without_photos import has_photos

NAME = "croissant.json"
CONTEXT = Path(__file__).parent / "templates" / "croissant_context.json"

AUTHORS = (
    "Jack Urbanek",
    "Florian Bordes",
    "Pietro Astolfi",
    "Mary Williamson",
    "Vasu Sharma",
    "Adriana Romero-Soriano",
)

# Sections of the dataset card, by the responsible-AI property that asks for them.
RAI = {
    "dataCollection": "Collection",
    "dataPreprocessingProtocol": "Preprocessing",
    "dataUseCases": "Uses",
    "dataBiases": "Known noise, and what it is biased to",
    "dataReleaseMaintenancePlan": "Maintenance",
}

TYPES = {"string": "sc:Text", "int32": "sc:Integer", "int64": "sc:Integer", "float64": "sc:Float"}

Json = dict[str, Any]


def write(folder: Path) -> None:
    """Write `croissant.json` into a dataset folder: one record set for each of its configurations.

    Args:
        folder: Holds `data/*.parquet`, as `dci build` writes them.

    Raises:
        DCIError: If it holds no such file.
    """
    files = sorted(folder.glob("data/*.parquet"))
    if not files:
        raise dci.DCIError(f"{folder}: has no data/*.parquet; expected a folder that `dci build` wrote")
    names = set(pq.read_schema(files[0]).names)
    photos = any(has_photos(pq.ParquetFile(path)) for path in files)
    configs = [config for config in ("full", "sdci") if set(dci.features(config)) <= names]
    made = _dataset() | {
        "distribution": [
            {
                "@type": "cr:FileSet",
                "@id": "parquet",
                "name": "parquet",
                "description": "One row a photo, with the columns of both configurations.",
                "encodingFormat": "application/x-parquet",
                "includes": "data/*.parquet",
            }
        ],
        "recordSet": [_splits(), *(_record_set(config, photos) for config in configs)],
    }
    (folder / NAME).write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _dataset() -> Json:
    card = DatasetCard(CARD.read_text(encoding="utf-8"))
    return {
        "@context": json.loads(CONTEXT.read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"],
        "name": "dci",
        "alternateName": card.data["pretty_name"],
        "description": _plain(card.text.split("\n\n")[1]),
        "url": "https://github.com/facebookresearch/DCI",
        "sameAs": "https://arxiv.org/abs/2312.08578",
        "license": "https://creativecommons.org/licenses/by-nc/4.0/",
        "creator": [{"@type": "sc:Person", "name": name} for name in AUTHORS],
        "publisher": {"@type": "sc:Organization", "name": "Meta AI (FAIR)"},
        "citeAs": dci.CITATION.strip(),
        "version": str(dci.DCI.VERSION),
        "datePublished": "2024",
        "inLanguage": card.data["language"],
        "keywords": card.data["tags"],
        **{f"rai:{name}": _plain(_section(card.text, title)) for name, title in RAI.items()},
    }


def _section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]


def _plain(markdown: str) -> str:
    """Text without code blocks, links and emphasis, a paragraph a line."""
    text = re.sub(r"```.*?```", "", markdown, flags=re.DOTALL).replace(MARKER, "")
    text = re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).replace("**", "").replace("`", "")
    parts = re.split(r"\n\n|\n(?=- )", text)
    return "\n".join(" ".join(part.split()) for part in parts if part.strip())


def _splits() -> Json:
    return {
        "@type": "cr:RecordSet",
        "@id": "splits",
        "name": "splits",
        "dataType": "cr:Split",
        "key": {"@id": "splits/name"},
        "field": [{"@type": "cr:Field", "@id": "splits/name", "name": "name", "dataType": "sc:Text"}],
        "data": [{"splits/name": split} for split in dci.SPLITS],
    }


def _record_set(config: str, photos: bool) -> Json:
    fields, meanings = [_split_of(config)], _meanings()
    for name, feature in dci.features(config).items():
        if name != "image" or photos:
            fields += _fields(f"{config}/{name}", name, feature, meanings)
    description = f"The configuration `{config}`." + (
        "" if photos else " `image` is null throughout, and left out here."
    )
    if config == "sdci":
        description += (
            " `entries.negatives`, a list in a list, is in the Parquet files but not here: a JSON path of Croissant "
            "gives one value of it."
        )
    return {
        "@type": "cr:RecordSet",
        "@id": config,
        "name": config,
        "description": description,
        "key": {"@id": f"{config}/image_id"},
        "field": fields,
    }


def _split_of(config: str) -> Json:
    return {
        "@type": "cr:Field",
        "@id": f"{config}/split",
        "name": "split",
        "description": "train, validation or test, by the name of the file.",
        "dataType": "sc:Text",
        "source": {
            "fileSet": {"@id": "parquet"},
            "extract": {"fileProperty": "fullpath"},
            # It also matches what it gives, since mlcroissant applies it to that once more.
            "transform": {"regex": "(?:.*/)?([^/-]+)(?:-[^/]+)?$"},
        },
        "references": {"field": {"@id": "splits/name"}},
    }


def _fields(key: str, column: str, feature: Any, meanings: dict[str, str]) -> Iterator[Json]:
    """The field of one column, with those of a struct below it; none for what cannot be said."""
    inner, listed = _inside(feature)
    field: Json = {"@type": "cr:Field", "@id": key, "name": column, "description": meanings[column]}
    array: Json = {"isArray": True, "arrayShape": "-1"} if listed else {}
    if isinstance(inner, dict):
        parts = _parts(key, column, inner, listed, meanings)
        yield field | array | {"subField": list(parts)}
    elif isinstance(inner, datasets.Image):
        yield field | {"dataType": "sc:ImageObject", "source": _source(column, "bytes")}
    else:
        yield field | array | {"dataType": TYPES[inner.dtype], "source": _source(column)}


def _parts(
    key: str, column: str, struct: Json, listed: bool, meanings: dict[str, str], above: str = ""
) -> Iterator[Json]:
    """The fields of a struct, or of a list of structs; those of a struct in it stand beside them."""
    for name, feature in struct.items():
        inner, inner_listed = _inside(feature)
        path = f"{above}{name}"
        if isinstance(inner, dict):
            if not inner_listed:
                yield from _parts(key, column, inner, listed, meanings, f"{path}.")
            continue
        dimensions = listed + inner_listed
        array: Json = {"isArray": True, "arrayShape": ",".join(["-1"] * dimensions)} if dimensions else {}
        yield {
            "@type": "cr:Field",
            "@id": f"{key}/{path.replace('.', '_')}",
            "name": path.replace(".", "_"),
            "description": meanings[f"{column}.{path}"],
            "dataType": TYPES[inner.dtype],
            "source": _source(column, path),
        } | array


def _inside(feature: Any) -> tuple[Any, bool]:
    """What a list holds, or the feature itself; and whether it is a list."""
    if isinstance(feature, list):
        return feature[0], True
    held = getattr(feature, "feature", None)  # `List` of datasets 4 and later
    return (feature, False) if held is None else (held, True)


def _source(column: str, path: str | None = None) -> Json:
    transform = {} if path is None else {"transform": {"jsonPath": path}}
    return {"fileSet": {"@id": "parquet"}, "extract": {"column": column}} | transform


def _meanings() -> dict[str, str]:
    """What the card's tables say of each field."""
    text = CARD.read_text(encoding="utf-8")
    return {
        name: _plain(what) for name, what in re.findall(r"^\| `([\w.]+)` \| [\w ]+ \| (.+) \|$", text, re.MULTILINE)
    }
