"""The id that all files of one run share, so that lines of several processes and ranks can be joined.

Inside a run it is the run's `run_id`: `Run` puts it into the environment, so that every process that the
training starts has it too. A launcher of several ranks exports the variable before it starts them.
"""

from __future__ import annotations

import os
import secrets

CORRELATION_ID = "MONITORING_CORRELATION_ID"


def correlation_id() -> str:
    """That of the environment, else a new one of 16 hexadecimal digits."""
    return os.environ.get(CORRELATION_ID) or secrets.token_hex(8)


def own_local_rank() -> int | None:
    """The number of this process among those of its host, as its launcher gives it; None where none does."""
    for name in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return None


def own_rank() -> int:
    """The rank of this process as torchrun, or else Slurm or Open MPI, gives it; 0 where none does."""
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        if os.environ.get(name, "").isdecimal():
            return int(os.environ[name])
    return 0
