"""The code of a step: the loop, and the functions of the same file that it calls each time."""

from __future__ import annotations

import ast
import bisect
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import calls_of_functions
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import CALLS_DEEP, StepLoop, step_loops

_ASIDE = regex(
    r"(^|_)(sav|check_?point|ckpt|snapshot|dump|export|plot|draw|vis(_|ual)|report|display)",
    words="sav|check|ckpt|snapshot|dump|export|plot|draw|vis|report|display",
)


class StepCode(NamedTuple):
    """Code that runs on every step: the loop itself, or a function of this file that is called each time, two calls deep.

    `calls` are the calls that reach the function, `caller` the code that has them; none for the loop itself.
    """

    root: Loop | Function
    calls: tuple[ast.Call, ...]
    caller: StepCode | None = None

    @property
    def is_near(self) -> bool:
        """Whether the code is at most one call away from the loop, so that what it calls is followed too."""
        return self.caller is None or self.caller.caller is None

    @property
    def way(self) -> str:
        """By what call a function two calls deep is reached, for messages: " (in `clean`, which `step` calls)"; else ""."""
        around = self.caller.root if self.caller is not None else None
        if not isinstance(self.root, FUNCTIONS) or not isinstance(around, FUNCTIONS):
            return ""
        return f" (in `{self.root.name}`, which `{around.name}` calls)"


@remember
def step_code(source: Source, step: StepLoop) -> tuple[StepCode, ...]:
    """The loop, and each function of this file that runs on every iteration: first those that it calls, then theirs.

    No call of a function is followed that evaluates or saves.
    """
    return _code_run_by(source, step.loop, step.helpers)


@remember
def code_of_step(source: Source, function: Function) -> tuple[StepCode, ...]:
    """The same of a function that is a step, or a part of one, of a loop elsewhere."""
    return _code_run_by(source, function, (function,))


def _code_run_by(source: Source, root: Loop | Function, helpers: tuple[Function, ...]) -> tuple[StepCode, ...]:
    code = callers = [StepCode(root, ())]
    known = set(_around_steps(source))
    for _ in range(CALLS_DEEP):
        reached: dict[int, tuple[Function, list[ast.Call], StepCode]] = {}
        for caller in callers:
            for call, function in _called_each_time(source, caller.root):
                if id(function) not in known:
                    reached.setdefault(id(function), (function, [], caller))[1].append(call)
        found = [StepCode(function, tuple(calls), caller) for function, calls, caller in reached.values()]
        followed = [part for part in found if not _is_no_part(part.root, helpers) and not leaves_step(part.root)]
        code = [*code, *(found if callers is code else followed)]
        known |= reached.keys()
        callers = followed
    return tuple(code)


@remember
def _around_steps(source: Source) -> frozenset[int]:
    """The ids of what stands around a training loop of the file."""
    return frozenset(id(ancestor) for step in step_loops(source) for ancestor in source.ancestors(step.loop))


@remember
def _called_each_time(source: Source, root: Loop | Function) -> tuple[tuple[ast.Call, Function], ...]:
    """The calls in a loop or function that run functions of this file on each of its turns; not one that ends the loop."""
    return tuple(_find_calls_each_time(source, root))


def _find_calls_each_time(source: Source, root: Loop | Function) -> Iterator[tuple[ast.Call, Function]]:
    calls = _calls_by_line(source)
    first = bisect.bisect_left(calls, root.lineno, key=_line_of_call)
    last = bisect.bisect_right(calls, root.end_lineno or 0, key=_line_of_call)
    for call, function in calls[first:last]:
        if function is root or not runs_each_time(source, call, root):
            continue
        block = source.block(source.statement(call))
        if isinstance(root, FUNCTIONS) or block is root.body or not isinstance(block[-1], (ast.Return, ast.Break)):
            yield call, function


@remember
def _calls_by_line(source: Source) -> tuple[tuple[ast.Call, Function], ...]:
    """The calls of the file that run a function of it, as the text has them: in the tree a decorator follows what it is for."""
    return tuple(sorted(calls_of_functions(source), key=lambda found: (found[0].lineno, found[0].col_offset)))


def _line_of_call(found: tuple[ast.Call, Function]) -> int:
    return found[0].lineno


def leaves_step(root: Loop | Function) -> bool:
    """Whether a function by its name writes to disk or draws a picture: what it calls is not followed as code of a step."""
    return isinstance(root, FUNCTIONS) and bool(_ASIDE.search(root.name.lower()))


def evaluates(step: StepLoop, root: Loop | Function) -> bool:
    """Whether a function that a training loop calls is no part of the step: it evaluates or draws samples."""
    return _is_no_part(root, step.helpers)


def _is_no_part(root: Loop | Function, helpers: tuple[Function, ...]) -> bool:
    if not isinstance(root, FUNCTIONS) or any(root is helper for helper in helpers):
        return False
    called = {last_name(node.func) for node in walk(root) if isinstance(node, ast.Call)}
    return "eval" in called or bool(EVALUATION_NAME.search(root.name.lower()))
