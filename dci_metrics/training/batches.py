"""Batches: which entries stand in one, what is drawn of each, and how they become tensors.

All draws are made from (seed, epoch, entry), so the same seed gives the same batches, with any number of processes and
of workers, and from the middle of an interrupted run on.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import PIL.Image
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from dci_metrics.encoders.huggingface import HuggingFaceEncoder, Inputs
from dci_metrics.training import config
from dci_metrics.training.crops import PreparedCrops
from dci_metrics.training.entries import Entries

Drawn = tuple[int, int]
"""An epoch and an entry's number."""


class EntryDataset(Dataset[tuple[Inputs, list[str]]]):
    """Entries as the model's image inputs and texts: N captions, then a negative, if there is one.

    Args:
        entries: Of the split.
        encoder: Whose preprocessing is used.
        captions: "first", "pick1", "pickN".
        has_negative: Whether a negative is given too.
        negative_draw: Which of several.
        seed: Of all draws.
        crops: Keeps what is prepared; without it a crop is prepared anew each time.
    """

    def __init__(
        self,
        entries: Entries,
        encoder: HuggingFaceEncoder,
        captions: str,
        has_negative: bool,
        negative_draw: config.NegativeDraw,
        seed: int,
        crops: PreparedCrops | None = None,
    ) -> None:
        self.entries, self.encoder, self.seed, self.crops = entries, encoder, seed, crops
        self.is_first, self.count = captions == "first", config.captions_per_entry(captions)
        self.has_negative, self.negative_draw = has_negative, negative_draw
        # Of the photo that was read last: where a photo's entries stand together it is decoded once.
        self._open: tuple[int, PIL.Image.Image] | None = None

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, drawn_entry: Drawn) -> tuple[Inputs, list[str]]:
        epoch, index = drawn_entry
        kept = self.crops.get(index) if self.crops is not None else None
        return kept if kept is not None else self._prepared(index), self.texts(epoch, index)

    def _prepared(self, index: int) -> Inputs:
        """An entry's image inputs; the photo's other entries are prepared with it, since it is decoded now."""
        prepared = self._crop(index)
        if self.crops is not None and self.crops.keeps:
            self.crops.keep(index, prepared)
            for other in self.entries.of_same_photo(index):
                if self.crops.keeps and other not in self.crops:
                    self.crops.keep(other, self._crop(other))
        return prepared

    def _crop(self, index: int) -> Inputs:
        entry = self.entries[index]
        if self._open is None or self._open[0] != entry.place:
            image = self.entries.open_image(entry.place, entry.photo.file_name)
            self._open = entry.place, replace(entry.photo, image=image).open()
        return self.encoder.prepare_images([self._open[1].crop(entry.crop_xyxy)])[0]

    def texts(self, epoch: int, index: int) -> list[str]:
        """The captions that are drawn of an entry, and the negative."""
        captions, negatives = self.entries.texts(index)
        now = np.random.default_rng((self.seed, 1 + epoch, index))
        if self.is_first:
            texts = captions[:1]
        else:
            texts = [captions[i] for i in now.choice(len(captions), self.count, replace=False)]
        if self.has_negative:
            texts.append(self._negative(negatives, index, now))
        return texts

    def _negative(self, negatives: Sequence[str], index: int, now: np.random.Generator) -> str:
        if self.negative_draw == "first":
            return negatives[0]
        # Of a generator that is the same in every epoch, or of this epoch's.
        rng = np.random.default_rng((self.seed, 0, index)) if self.negative_draw == "once" else now
        return negatives[int(rng.integers(len(negatives)))]

    def collate(self, items: Sequence[tuple[Inputs, list[str]]]) -> dict[str, Any]:
        """A batch on the CPU: `images` of B rows, `texts` of B·K rows in the same order."""
        images = {name: torch.stack([item[name] for item, _ in items]) for name in items[0][0]}
        return {"images": images, "texts": self.encoder.tokens([text for _, texts in items for text in texts])}


class BatchSampler(Sampler[list[Drawn]]):
    """The batches of an epoch, or this process's share of each, as large as the others'.

    Of a last short batch that the processes cannot share evenly, the entries that are over are left out.

    Args:
        entries: Of the split.
        batch_size: Entries of a whole batch, over all processes.
        kind: What stands in a batch.
        seed: Of the order.
        rank: Number of this process.
        world_size: How many there are.
        fixed: Whether every epoch is like the first, as validation is.
    """

    def __init__(
        self,
        entries: Entries,
        batch_size: int,
        kind: config.Batches,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        fixed: bool = False,
    ) -> None:
        self.entries, self.whole, self.kind, self.seed = entries, batch_size, kind, seed
        self.rank, self.world_size, self.fixed = rank, world_size, fixed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before each pass over the data, also when it resumes."""
        self.epoch = 0 if self.fixed else epoch

    def __len__(self) -> int:
        full, rest = divmod(len(self.entries), self.whole)
        return full + (rest >= self._least(full))

    def _least(self, full: int) -> int:
        """Entries that a last short batch must have to be kept.

        As in the paper's code it is dropped, but in ImgGroup, where it would be the same photo's each time, and where
        there is no other. Each process needs an entry, and a batch two to tell from each other.
        """
        return max(2, self.world_size) if self.kind == "image" or not full else self.whole

    def __iter__(self) -> Iterator[list[Drawn]]:
        order = self._order()
        for batch in range(len(self)):
            members = order[batch * self.whole : (batch + 1) * self.whole]
            share = len(members) // self.world_size
            yield [(self.epoch, int(i)) for i in members[self.rank * share : (self.rank + 1) * share]]

    def _order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        if self.kind == "sequential":
            return np.arange(len(self.entries))
        rng = np.random.default_rng((self.seed, self.epoch))
        if self.kind == "random":
            return rng.permutation(len(self.entries))
        photos = self.entries.photos()
        return np.concatenate([rng.permutation(np.asarray(photos[i])) for i in rng.permutation(len(photos))])


class EpochLoader(DataLoader[Any]):
    """A DataLoader that tells its batch sampler which epoch it is; transformers asks the loader."""

    def set_epoch(self, epoch: int) -> None:
        """Called by the trainer before each pass over the data."""
        sampler: Any = self.batch_sampler
        sampler.set_epoch(epoch)


def make_loader(data: EntryDataset, batches: BatchSampler, num_workers: int, pin_memory: bool) -> EpochLoader:
    """Loads batches ahead in worker processes, or in this one for 0."""
    return EpochLoader(
        data,
        batch_sampler=batches,
        collate_fn=data.collate,
        num_workers=num_workers,
        pin_memory=pin_memory,
        # What the entries need to be read (an archive's index, a dataset) is inherited, not copied.
        multiprocessing_context="fork" if num_workers else None,
    )
