"""Several processes on one dataset: each takes every n-th photo, and all of them end up with the same result.

The processes are those that `accelerate launch`, `torchrun` or `dci eval --num-processes` start, and are known by the
environment that these set. Only results travel between them, as Python objects over gloo, also on GPUs.
"""

import atexit
import os
from typing import TypeVar

import torch.distributed as dist

from dci import DCIError
from dci_metrics import mpi

T = TypeVar("T")


class World:
    """The processes of this run.

    Attributes:
        rank: Number of this one.
        size: How many there are.
    """

    def __init__(self) -> None:
        mpi.adopt()
        self.rank = int(os.environ.get("RANK", "0"))
        self.size = int(os.environ.get("WORLD_SIZE", "1"))
        # Beside the user's own group, if there is one, which may not carry objects (NCCL has no CPU).
        self._group = None
        if self.size > 1:
            if not dist.is_initialized():
                dist.init_process_group("gloo")
            atexit.register(_end_group)
            self._group = dist.new_group(backend="gloo")

    def gather(self, value: T | DCIError) -> list[T]:
        """What all processes give, in their order, in each of them.

        Raises:
            DCIError: In all of them, if one of them gives an error.
        """
        values: list[T | DCIError | None] = [value]
        if self.size > 1:
            values = [None] * self.size
            dist.all_gather_object(values, value, group=self._group)
        for found in values:
            if isinstance(found, DCIError):
                raise found
        return values  # type: ignore[return-value]


def _end_group() -> None:
    """End the group before the process: its threads, still running then, would make C++ abort it."""
    if dist.is_initialized():
        dist.destroy_process_group()


def cores() -> int:
    """The cores of this machine that are this process's: what there are, shared among the processes here."""
    return (os.cpu_count() or 1) // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))


def is_main_process() -> bool:
    """Whether this process is the one that prints and writes."""
    return int(os.environ.get("RANK", "0")) == 0
