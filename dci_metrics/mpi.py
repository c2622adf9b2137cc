"""MPI's names for what torch, and this package, look up in the environment: which process this is, of how many."""

import os

NAMES = {
    "RANK": ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK"),
    "WORLD_SIZE": ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE"),
    "LOCAL_RANK": ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),
    "LOCAL_WORLD_SIZE": ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
}
"""torch's name: those of Intel MPI and MPICH, of Open MPI, of MVAPICH."""


def adopt() -> None:
    """Set torch's names from MPI's, by which alone `accelerate launch --mpirun_hostfile` starts processes.

    Without the address where they meet, which accelerate sets, MPI's processes are no group of torch's.
    """
    if "RANK" in os.environ or "MASTER_PORT" not in os.environ:
        return
    for name, theirs in NAMES.items():
        found = next((os.environ[their] for their in theirs if their in os.environ), None)
        if found is not None:
            os.environ[name] = found
