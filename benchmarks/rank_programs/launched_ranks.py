"""The training of `text_ranks.py` for launchers that do not set torchrun's variables: `mpirun` and `srun` have others."""

from __future__ import annotations

import os
import sys

import text_ranks

# By its rank and the number of ranks, as Open MPI, MPICH and Slurm have them.
LAUNCHERS = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)


def set_variables() -> None:
    """Set what `torch.distributed.init_process_group` reads, for ranks of one machine."""
    if "RANK" in os.environ:
        return
    rank, size = next(names for names in LAUNCHERS if names[0] in os.environ)
    os.environ |= {"RANK": os.environ[rank], "WORLD_SIZE": os.environ[size]}
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29517")


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    set_variables()
    text_ranks.main(sys.argv[1] if len(sys.argv) > 1 else "balanced")
