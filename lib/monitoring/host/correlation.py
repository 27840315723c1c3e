"""The id that all files of one run share, so that lines of several processes and ranks can be joined.

Inside a run it is the run's `run_id`: `Run` puts it into the environment, so that every process that the
training starts has it too. A launcher of several ranks exports the variable before it starts them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

CORRELATION_ID = "MONITORING_CORRELATION_ID"

# Variables of launchers: the rank of a process, and its number among those of its host. torchrun's come
# first; those of MPI before a cluster's, which what another launcher starts inherits from a batch script.
LAUNCHERS = (
    ("RANK", "LOCAL_RANK"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"),  # Open MPI, "Environment variables set for MPI"
    ("PMI_RANK", "MPI_LOCALRANKID"),  # MPICH and Intel MPI, src/pm/hydra/proxy/pmip_cb.c
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_LOCAL_RANK"),  # MVAPICH2
    ("PALS_RANKID", "PALS_LOCAL_RANKID"),  # HPE Cray PALS
    ("PMI_RANK", "PMI_LOCAL_RANK"),  # HPE Cray MPICH
    ("FLUX_TASK_RANK", "FLUX_TASK_LOCAL_ID"),  # Flux, flux-core/src/shell/task.c
    ("JSM_NAMESPACE_RANK", "JSM_NAMESPACE_LOCAL_RANK"),  # jsrun of LSF
    ("SLURM_PROCID", "SLURM_LOCALID"),  # Slurm, srun(1)
)


def correlation_id() -> str:
    """Return the environment's id, else a new one of 16 hexadecimal digits."""
    return os.environ.get(CORRELATION_ID) or os.urandom(8).hex()


def own_local_rank() -> int | None:
    """The number of this process among those of its host, as its launcher gives it; None where none does."""
    return _number(local for _, local in LAUNCHERS)


def own_rank() -> int:
    """Return the rank of this process as its launcher gives it; 0 where none does."""
    return _number(rank for rank, _ in LAUNCHERS) or 0


def _number(names: Iterable[str]) -> int | None:
    """Return the number in the first of these variables that has one."""
    values = (os.environ.get(name, "") for name in names)
    return next((int(value) for value in values if value.isdecimal()), None)
