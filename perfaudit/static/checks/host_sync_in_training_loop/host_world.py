"""Values that an environment or a replay buffer takes, which live on the host and cannot do without them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import Source
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_code import StepCode

_HOST_WORLD = regex(r"(^|_)step(_async|_wait)?$|priorit")
_NO_WORLD = regex(r"opt|sched|scaler|prof|track|meter|stop|engine|model", re.IGNORECASE)


def goes_into_host_world(source: Source, place: ast.expr, code: StepCode) -> bool:
    """Whether what was read at a place of this code goes there, under whichever name."""
    return any(_enters_host_world(source, node) for node in _holders(source, place, code))


def _holders(source: Source, place: ast.expr, code: StepCode, depth: int = 3) -> Iterator[ast.expr]:
    """The expressions that hold what was read: the place, reads of the name it is assigned to, calls that return it."""
    yield place
    statement = source.statement(place)
    if isinstance(statement, ast.Return):
        for call in code.calls if depth else ():
            yield from _holders(source, call, code.caller or code, depth - 1)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
        for use in source.uses_of(statement.targets[0], statement.targets[0].id) if depth else ():
            yield from _holders(source, use, code, depth - 1)


def _enters_host_world(source: Source, node: ast.expr) -> bool:
    """Whether a value goes into `env.step(action)` or a replay buffer's priorities, which cannot do without it."""
    child: ast.AST = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return False
        if isinstance(ancestor, ast.Call) and child is not ancestor.func and isinstance(ancestor.func, ast.Attribute):
            receiver = last_name(ancestor.func.value)
            if _HOST_WORLD.search(ancestor.func.attr) and not _NO_WORLD.search(receiver):
                return True
        child = ancestor
    return False
