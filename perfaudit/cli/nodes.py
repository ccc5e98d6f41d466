"""`--on`: which machines measure, for the commands that can measure on others."""

from __future__ import annotations

import importlib.util
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfaudit.cli.output import say
from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.measure.elsewhere import Nodes, OpenNodes

On = Annotated[
    str,
    typer.Option("--on", metavar="ray|slurm", help="Measure on nodes of a cluster, several sets of processes at once."),
]
CLUSTERS = {"ray": "ray", "slurm": "submitit"}  # and the package that speaks to each
_WORDS = {"ray": "Ray", "slurm": "submitit, which speaks to Slurm"}


def opener(on: str, like_here: bool = False) -> OpenNodes:
    """What opens the nodes that `--on` names.

    Raises UserError for a name there is none of, and without the package, or with one that is broken; NothingMeasured where
    there is no cluster, so that nobody waits for what is measured before the nodes are needed. like_here: nodes of the kind that
    this machine is.
    """
    from perfaudit.measure.elsewhere import no_nodes

    if not on:
        return no_nodes
    if on not in CLUSTERS:
        raise UserError(f"--on {on}: it is one of {', '.join(CLUSTERS)}")
    if importlib.util.find_spec(CLUSTERS[on]) is None:
        raise UserError(f"--on {on} needs {_WORDS[on]}, which this Python lacks: pip install 'perfaudit[{on}]'")
    from perfaudit.cluster import ray_nodes as ray
    from perfaudit.cluster import slurm

    try:
        {"ray": ray.load, "slurm": slurm.load}[on]()
    except ImportError as error:  # there, and broken: it lacks a package of its own, or was built for another Python
        raise UserError(f"--on {on} needs {_WORDS[on]}, and {CLUSTERS[on]} cannot be imported: {error}") from error
    {"ray": ray.ensure_reachable, "slurm": slurm.ensure_reachable}[on]()

    def open_nodes(like: dict[str, Any] | None) -> AbstractContextManager[Nodes | None]:  # Any: JSON
        from perfaudit.cluster.kind import Kind, kind_here
        from perfaudit.cluster.node import UserPlace

        kind = kind_here() if like_here else Kind.from_json(like) if like else None

        def tell(text: str) -> None:
            say(f"perfaudit: {text}")

        if on == "slurm":
            return slurm.slurm_nodes(UserPlace.here(), tell, kind)
        return ray.ray_nodes(UserPlace.here(), tell, kind)

    return open_nodes
