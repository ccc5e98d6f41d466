"""Which process of a launcher this is, read from the environment that torchrun, accelerate, mpirun and srun make."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from perfaudit.processes import command_name, first_ancestor_without, started_at

# Rank, number of ranks, rank on this node, number of ranks on this node. The first row that is complete counts: a script
# reads torchrun's variables whoever has set them.
_NAMES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
)
# What the processes of one start have in common and those of another start have not, as far as launchers tell.
_COMMON = (
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_RESTART_COUNT",
    "OMPI_MCA_ess_base_jobid",
    "PMIX_NAMESPACE",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
)
# By whose hand ranks are started, perhaps from two terminals. Names as /proc has them.
_SHELLS = frozenset({"sh", "bash", "dash", "zsh", "fish", "ksh", "tcsh", "csh", "busybox", "xonsh", "nu"})
_KNOWN_AS = {"pt_elastic": "torchrun"}  # as a launcher names its process, and as people know it
_TASKS = re.compile(r"(\d{1,6})(?:\(x(\d{1,6})\))?")
_KEY_LENGTH = 8  # hexadecimal digits, as many as a folder's name of `tempfile.mkdtemp` has


@dataclass(frozen=True, slots=True)
class RankPlace:
    """A process of a launcher: the `rank`-th of `ranks`, and the `local_rank`-th of `local_ranks` on its node.

    key: the same for all processes of one start, as far as the launcher tells. variable: in whose value it has its rank.
    """

    rank: int = 0
    ranks: int = 1
    local_rank: int = 0
    local_ranks: int = 1
    key: str = ""
    variable: str = ""

    @property
    def is_launched(self) -> bool:
        """Whether there are others."""
        return self.ranks > 1

    @property
    def is_on_several_nodes(self) -> bool:
        return self.local_ranks < self.ranks


def place_of(environment: Mapping[str, str]) -> RankPlace:
    """The place that the environment tells; the only process without a launcher, or where its numbers make no sense.

    In a batch job of Slurm the variables are there before `srun` has started anything: without a step they say nothing.
    """
    for names in _NAMES:
        rank, ranks = (_number(environment, name) for name in names[:2])
        if rank is None or ranks is None:
            continue
        if names[0].startswith("SLURM") and not environment.get("SLURM_STEP_ID"):
            continue
        if not 0 <= rank < ranks:
            continue
        local_rank, local_ranks = (_number(environment, name) for name in names[2:])
        if local_rank is None or (local_ranks is None and names[3]):
            local_rank, local_ranks = rank, ranks
        if local_ranks is None:
            local_ranks = _tasks_of_node(environment) or ranks
        common = "\0".join(f"{name}={environment.get(name, '')}" for name in (*_COMMON, names[1]))
        return RankPlace(rank, ranks, local_rank, min(local_ranks, ranks), _hash(common), names[0])
    return RankPlace()


def _tasks_of_node(environment: Mapping[str, str]) -> int | None:
    """How many tasks of a step of Slurm run on this node, which it tells for all nodes, as `2(x3),1`; None where it does not."""
    numbers: list[int] = []
    for part in environment.get("SLURM_STEP_TASKS_PER_NODE", "").split(","):
        if (match := _TASKS.fullmatch(part)) is None:
            return None
        numbers += [int(match[1])] * int(match[2] or 1)
    node = _number(environment, "SLURM_NODEID")
    return numbers[node] if node is not None and node < len(numbers) else None


def key_on_node(place: RankPlace) -> str:
    """The key of a start for the ranks of one node, which have one launcher: variables of MPICH are the same in each start."""
    launcher = launcher_of(os.getpid(), place.variable)
    return _hash(f"{place.key} {f'{launcher.pid}-{launcher.since}' if launcher is not None else ''}")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_LENGTH]


def _number(environment: Mapping[str, str], name: str) -> int | None:
    text = environment.get(name, "") if name else ""
    return int(text) if text.isdigit() and len(text) < 10 else None


@dataclass(frozen=True, slots=True)
class Launcher:
    """The process that has started a rank. since: when it was started, as `processes.started_at` has it."""

    pid: int
    since: int
    name: str

    @property
    def is_gone(self) -> bool:
        return started_at(self.pid) != self.since


def launcher_of(pid: int, variable: str) -> Launcher | None:
    """The process that has started a rank: two starts with the same variables differ in it.

    None where nothing tells, and for a shell: ranks that are started by hand have several, and a MASTER_PORT of their own. A
    shell may end before them, too.
    """
    found = first_ancestor_without(pid, variable)
    if found is None or (name := command_name(found)) in _SHELLS:
        return None
    since = started_at(found)
    return Launcher(found, since, _KNOWN_AS.get(name, name)) if since is not None else None
