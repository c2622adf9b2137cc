"""Embeddings kept on disk, so that an interrupted run goes on where it stopped and a second one starts at its end."""

import hashlib
import json
import logging
import uuid
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import datasets
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from dci import DCIError
from dci_metrics.encoders.base import ModelInfo
from dci_metrics.revisions import sha256_of

FLUSH = 512
"""Embeddings that are held back before they are written: what an interruption may cost."""

logger = logging.getLogger(__name__)


def default_folder() -> Path:
    """Where embeddings are kept unless another folder is named."""
    return Path(datasets.config.HF_CACHE_HOME) / "dci" / "embeddings"


def model_key(model: str | Path, info: ModelInfo) -> str | None:
    """A name for all that decides a model's embeddings, or None where that cannot be told.

    It holds the bytes of every file of the model and its adapter (weights, config, tokenizer, preprocessing) or their
    commit on the Hub, dtype, kind of device, and the versions of what computes them.

    Args:
        model: Hub id or folder.
        info: Of the loaded model.
    """
    parts = {"model": _state_of(Path(model), info.revision), "dtype": info.dtype, "backend": info.image_backend}
    # A repository may hold a model in two forms, each read by a library of its own.
    parts |= {"family": info.family, "device": (info.device or "").split(":")[0]}
    if info.adapter is not None:
        parts["adapter"] = _state_of(Path(info.adapter), None)
    if None in (parts["model"], parts.get("adapter", "none")):
        return None
    parts |= {package: metadata.version(package) for package in ("torch", "transformers", "pillow")}
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def _state_of(path: Path, revision: str | None) -> str | None:
    if not path.exists():
        return revision
    digest = hashlib.sha256()
    for file in sorted(path.glob("*") if path.is_dir() else [path]):
        if file.is_file():
            digest.update(f"{file.name} {sha256_of(file)}\n".encode())
    return digest.hexdigest()


class EmbeddingCache:
    """Embeddings by key. What is in the folder is read at once; what is added is written in files of its own.

    Each file holds its keys and a checksum. One that is cut off or altered is reported, removed, and computed again.

    Args:
        folder: Of one model and one kind of input; made when it is first written to.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, Tensor] = {}
        self._new: list[tuple[str, Tensor]] = []
        for path in sorted(folder.glob("*.safetensors")):
            self._read(path)

    def __contains__(self, key: object) -> bool:
        return key in self._known

    def __getitem__(self, key: str) -> Tensor:
        return self._known[key]

    def add(self, keys: Sequence[str], embeds: Tensor) -> None:
        """Keep embeddings; they are on disk after `flush`, or once there are enough of them."""
        for key, embed in zip(keys, embeds, strict=True):
            # A row of a batch would hold the whole batch in memory.
            self._known[key] = embed.clone()
            self._new.append((key, self._known[key]))
        if len(self._new) >= FLUSH:
            self.flush()

    def flush(self) -> None:
        """Write what was added.

        Raises:
            DCIError: If the folder cannot be written.
        """
        if not self._new:
            return
        keys = json.dumps([key for key, _ in self._new])
        embeds = torch.stack([embed for _, embed in self._new]).contiguous()
        target = self.folder / f"{uuid.uuid4().hex}.safetensors"
        unfinished = target.with_suffix(".unfinished")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            save_file({"embeds": embeds}, unfinished, {"keys": keys, "sha256": _checksum(keys, embeds)})
            unfinished.replace(target)
        except OSError as error:
            raise DCIError(
                f"{self.folder}: cannot be written ({error.strerror or error}); choose another folder with "
                "--cache-dir, or go without with --no-cache"
            ) from error
        self._new.clear()

    def _read(self, path: Path) -> None:
        try:
            with safe_open(path, framework="pt") as file:
                embeds, metadata = file.get_tensor("embeds"), file.metadata()
            if metadata["sha256"] != _checksum(metadata["keys"], embeds):
                raise ValueError("its checksum is wrong")
            self._known.update(zip(json.loads(metadata["keys"]), embeds, strict=True))
        # A broken file may raise anything on its way through the reader; whatever it is, the file is of no use.
        except Exception as error:
            logger.warning(f"{path}: is broken ({error}); removed, its embeddings are computed again")
            path.unlink(missing_ok=True)


def _checksum(keys: str, embeds: Tensor) -> str:
    digest = hashlib.sha256(keys.encode())
    digest.update(f"{tuple(embeds.shape)} {embeds.dtype}".encode())
    digest.update(embeds.contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
