"""Which reads of device tensors are made on every step, so that the host waits for the device there."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from perfaudit.static.checks.host_sync_in_training_loop.branches import in_each_branch
from perfaudit.static.checks.host_sync_in_training_loop.device_reads import reads_at
from perfaudit.static.checks.host_sync_in_training_loop.host_world import goes_into_host_world
from perfaudit.static.source import LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.taint import Region

Runs = Callable[[Source, ast.AST, Loop | Function], bool]


def syncs_in(
    source: Source,
    region: Region,
    other_loops: set[int],
    runs: Runs = runs_each_time,
) -> Iterator[ast.expr]:
    """What reads a device tensor in this region on every step, in document order. runs: whether a place does run then."""
    root = region.code.root
    found = [place for node in walk(root) for place in reads_at(source, region, node)]
    unique = {id(place): place for place in found}.values()
    in_each = in_each_branch(source, root, unique) if runs is runs_each_time else frozenset()
    for place in sorted(unique, key=lambda node: (node.lineno, node.col_offset)):
        is_run = id(place) in in_each or runs(source, place, root)
        if not is_run or belongs_elsewhere(source, place, root, other_loops):
            continue
        if not goes_into_host_world(source, place, region.code):
            yield place


def belongs_elsewhere(source: Source, place: ast.AST, root: Loop | Function, other_loops: set[int]) -> bool:
    """Whether the place is in a step loop of its own inside this one, or in a loop that evaluates without gradients."""
    for ancestor in source.ancestors(place):
        if ancestor is root:
            return False
        if id(ancestor) in other_loops or (isinstance(ancestor, LOOPS) and in_no_grad(source, place)):
            return True
    return True
