"""transformers' Trainer for dual encoders: one loss over the whole batch, however it is split up."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import Trainer

from dci import DCIError
from dci_metrics.training.batches import BatchSampler, EntryDataset, EpochLoader, make_loader
from dci_metrics.training.config import Batches
from dci_metrics.training.folder import save_weights
from dci_metrics.training.objective import Losses, Objective
from dci_metrics.training.towers import Embeds, TwoTowers


class ContrastiveTrainer(Trainer):
    """Trains a dual encoder on entries.

    The loss compares every image of a batch with every caption of it, over all processes and all micro-batches: it is
    that of one process that holds the whole batch. A batch that does not fit into memory is embedded piece by piece,
    and its gradients are those of the whole (GradCache, https://arxiv.org/abs/2101.06983).

    Args:
        towers: The model.
        objective: The loss.
        args: As for any Trainer. A batch has `per_device_train_batch_size` × processes entries;
            `gradient_accumulation_steps` must be 1.
        train_dataset: Entries to train on.
        eval_dataset: Entries for the loss on validation; the same are drawn each time.
        batches: What stands in a training batch.
        micro_batch_size: Entries embedded at once in each process; None for the whole share of the process.
        peft_model: What saves the adapter, if there is one; without it the whole model is saved.
        **options: More of Trainer's.

    Raises:
        DCIError: If gradients are to be accumulated over batches: that would be a loss over smaller batches. If there
            are too few entries for one batch.
    """

    def __init__(
        self,
        towers: TwoTowers,
        objective: Objective,
        args: Any,
        train_dataset: EntryDataset,
        eval_dataset: EntryDataset,
        batches: Batches = "random",
        micro_batch_size: int | None = None,
        peft_model: Any = None,
        **options: Any,
    ) -> None:
        if args.gradient_accumulation_steps != 1:
            raise DCIError(
                "gradient_accumulation_steps: expected 1, since a contrastive loss is not the mean of the losses of "
                "parts of its batch; set micro_batch_size instead"
            )
        self.objective, self.batches, self.micro_batch_size = objective, batches, micro_batch_size
        self.peft_model = peft_model
        self._parts: list[Losses] = []
        # transformers would take several GPUs without processes of their own for DataParallel.
        args._n_gpu = min(1, args.n_gpu)
        args.remove_unused_columns, args.label_names = False, []
        least = max(2, args.world_size)
        for name, data in (("training", train_dataset), ("validation", eval_dataset)):
            if len(data) < least:
                raise DCIError(
                    f"{name}: expected at least {least} entries, since a contrastive loss tells the entries of a batch "
                    f"from each other, and every process needs one; got {len(data)}"
                )
        super().__init__(model=towers, args=args, train_dataset=train_dataset, eval_dataset=eval_dataset, **options)

    # Batches

    def get_train_dataloader(self) -> EpochLoader:
        """The batches of training, this process's share of each."""
        return self._loader(self.train_dataset, self.args.per_device_train_batch_size, self.batches, fixed=False)

    def get_eval_dataloader(self, eval_dataset: EntryDataset | None = None) -> EpochLoader:
        """The batches of validation, which are the same each time."""
        data = eval_dataset if eval_dataset is not None else self.eval_dataset
        return self._loader(data, self.args.per_device_eval_batch_size, "sequential", fixed=True)

    def _loader(self, data: EntryDataset, batch_size: int, kind: Batches, fixed: bool) -> EpochLoader:
        world_size, rank = self.args.world_size, self.args.process_index
        sampler = BatchSampler(data.entries, batch_size * world_size, kind, self.args.seed, rank, world_size, fixed)
        return make_loader(data, sampler, self.args.dataloader_num_workers, self.args.device.type == "cuda")

    # Loss

    def compute_loss(
        self, model: Any, inputs: Mapping[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The loss of the whole batch, of which this process has a share."""
        embeds = Embeds(*model(inputs["images"], inputs["texts"]))
        losses = self.objective(Embeds(*map(_gathered, embeds)), self.model.logits)
        self._parts.append(losses.detached())
        return (losses.total, {"embeds": embeds}) if return_outputs else losses.total

    def training_step(self, model: Any, inputs: Mapping[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Forward and backward of one batch."""
        entries = len(next(iter(inputs["images"].values())))
        if self.micro_batch_size is None or entries <= self.micro_batch_size:
            loss: Tensor = super().training_step(model, inputs, num_items_in_batch)
            return loss
        model.train()
        return self._cached_step(model, list(_pieces(self._prepare_inputs(inputs), entries, self.micro_batch_size)))

    def _cached_step(self, model: Any, pieces: Sequence[Mapping[str, Any]]) -> Tensor:
        """Embed all pieces, derive the loss by the embeddings, then derive the embeddings piece by piece."""
        states, found = [], []
        with torch.no_grad(), self.compute_loss_context_manager():
            for piece in pieces:
                states.append(_random_state())
                found.append(Embeds(*model(piece["images"], piece["texts"])))
        local = [torch.cat(part).requires_grad_() for part in zip(*found, strict=True)]
        losses = self.objective(Embeds(*map(_gathered, local)), self.model.logits)
        self._parts.append(losses.detached())
        scales = self.model.scales()
        grads = torch.autograd.grad(losses.total, [*local, *scales])
        by_piece = zip(*(grad.split([len(e[i]) for e in found]) for i, grad in enumerate(grads[:2])), strict=True)
        for number, (piece, state, piece_grads) in enumerate(zip(pieces, states, by_piece, strict=True)):
            is_last = number == len(pieces) - 1
            with contextlib.nullcontext() if is_last else self.accelerator.no_sync(model), _replayed(state):
                with self.compute_loss_context_manager():
                    embeds = Embeds(*model(piece["images"], piece["texts"]))
                surrogate = sum((e * g).sum() for e, g in zip(embeds, piece_grads, strict=True))
                if is_last:
                    surrogate = surrogate + sum((s * g).sum() for s, g in zip(scales, grads[2:], strict=True))
                self.accelerator.backward(surrogate)
        return losses.total.detach()

    def prediction_step(
        self, model: Any, inputs: Mapping[str, Any], prediction_loss_only: bool, ignore_keys: Any = None
    ) -> tuple[Tensor, None, None]:
        """The loss of one validation batch."""
        with torch.no_grad(), self.compute_loss_context_manager():
            loss = self.compute_loss(model, self._prepare_inputs(inputs))
        return loss.detach(), None, None

    # Logs and files

    def evaluation_loop(self, *arguments: Any, metric_key_prefix: str = "eval", **options: Any) -> Any:
        """As Trainer's, with the parts of the loss."""
        training, self._parts = self._parts, []
        output = super().evaluation_loop(*arguments, metric_key_prefix=metric_key_prefix, **options)
        output.metrics.update({f"{metric_key_prefix}_{name}": value for name, value in self._mean_parts().items()})
        self._parts = training
        return output

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """As Trainer's, with the parts of the loss."""
        if "loss" in logs:
            logs |= self._mean_parts()
            self._parts = []
        super().log(logs, *arguments, **options)

    def _mean_parts(self) -> dict[str, float]:
        means = {}
        for name, of in (("clip_loss", "clip"), ("negatives_loss", "negatives")):
            values = [getattr(part, of) for part in self._parts if getattr(part, of) is not None]
            if values:
                means[name] = float(torch.stack(values).mean())
        return means

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        """Save the adapter, or the model where all of it is trained."""
        folder = output_dir if output_dir is not None else self.args.output_dir
        save_weights(folder, self.model.encoder, self.peft_model)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        self._load_weights(Path(resume_from_checkpoint))

    def _load_best_model(self) -> None:
        self._load_weights(Path(self.state.best_model_checkpoint))

    def _load_weights(self, folder: Path) -> None:
        if self.peft_model is not None:
            self.peft_model.load_adapter(str(folder), "default", is_trainable=True)
            return
        own = self.model.encoder.model
        own.load_state_dict(type(own).from_pretrained(folder).state_dict())


def _pieces(inputs: Mapping[str, Any], entries: int, size: int) -> Iterator[dict[str, Any]]:
    """A batch in pieces of some entries: rows of images, and as many times more of texts."""
    for start in range(0, entries, size):
        piece: dict[str, Any] = {}
        for part, tensors in inputs.items():
            per_entry = {name: len(values) // entries for name, values in tensors.items()}
            piece[part] = {n: v[start * per_entry[n] : (start + size) * per_entry[n]] for n, v in tensors.items()}
        yield piece


def _gathered(embeds: Tensor) -> Tensor:
    """The embeddings of all processes in their order, with gradients for this one's.

    Each process derives the whole loss by its own embeddings; gradients are then averaged over the processes, and are
    made as many times larger here.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return embeds
    parts = [torch.empty_like(embeds) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, embeds.detach().contiguous())
    own = parts[dist.get_rank()] = embeds.clone()
    if own.requires_grad:
        own.register_hook(lambda grad: grad * dist.get_world_size())
    return torch.cat(parts)


State = tuple[Tensor, Tensor | None]
"""Of torch's random generators on the CPU and on this process's GPU."""


def _random_state() -> State:
    on_gpu = torch.cuda.get_rng_state() if torch.cuda.is_available() and torch.cuda.is_initialized() else None
    return torch.get_rng_state(), on_gpu


@contextlib.contextmanager
def _replayed(state: State) -> Iterator[None]:
    """Draws the same numbers as after that state, such as dropout's, and then goes on as if it had not."""
    before = _random_state()
    _set_random_state(state)
    try:
        yield
    finally:
        _set_random_state(before)


def _set_random_state(state: State) -> None:
    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state(state[1])
