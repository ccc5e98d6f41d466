"""PA710: losses and metrics that are exchanged between the processes in every step, for the log alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.elsewhere import called_elsewhere
from perfaudit.static.understanding.epochs import takes_few_long_steps
from perfaudit.static.understanding.losses import backward_operand
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import StepLoop, step_loops
from perfaudit.static.understanding.values import ABSENT, argument, resolve

_COLLECTIVES = {f"torch.distributed.{n}" for n in ("all_reduce", "reduce", "all_gather", "all_gather_object")}
_ACCELERATORS = {"gather", "gather_for_metrics", "reduce"}
_SHOWN = regex(
    r"(^|_|\.)(\w*loss(es)?\w*|acc\d*|accuracy|prec\d*|top\d|metrics?|err|error|psnr|correct)(_|$|\.)", re.IGNORECASE
)
_REDUCES = regex(r"reduce|gather|average|mean|sync", re.IGNORECASE)


@check("PA710", ast.Module)
def collective_for_logging_every_step(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not any(source.mentions(word) for word in ("reduce", "gather")):
        return
    for step in step_loops(source):
        if takes_few_long_steps(source, step):
            continue
        calls = [call for root in (step.loop, *step.helpers) for call in _calls_for_the_log(source, step, root)]
        if calls:
            more = f", and {len(calls) - 1} more in this loop" if len(calls) > 1 else ""
            yield Seen(
                calls[0],
                f"`{source.brief(calls[0])}` exchanges a number between all processes on every step, which waits for the "
                f"slowest of them{more}",
                Proposal(
                    "add it up on the device (`total += loss.detach()`), and exchange the sum on the steps that log it"
                ),
                tuple(calls),
                hot=True,
            )


def _calls_for_the_log(source: Source, step: StepLoop, root: Loop | Function) -> Iterator[ast.Call]:
    """The calls in the loop, or in the function with its backward pass, that exchange a number which is only shown."""
    for call in (node for part in root.body for node in ast.walk(part) if isinstance(node, ast.Call)):
        value = _exchanged_value(source, call)
        if value is None or is_test(source, call) or not runs_each_time(source, call, root):
            continue
        if _is_for_the_log(source, step, call, value):
            yield call


def _exchanged_value(source: Source, call: ast.Call) -> ast.expr | None:
    """The loss or metric that a call exchanges between processes, by torch, by accelerate or by a function that does it."""
    value = call.args[0] if call.args else None
    if value is None or not _is_shown(value):
        return None
    if source.qualified_name(call.func) in _COLLECTIVES:
        return value if argument(source, call, "async_op") is ABSENT else None
    if last_name(call.func) in _ACCELERATORS and isinstance(call.func, ast.Attribute):
        made = resolve(source, call.func.value)
        is_accelerator = isinstance(made, ast.Call) and source.qualified_name(made.func) == "accelerate.Accelerator"
        return value if is_accelerator else None
    return value if _REDUCES.search(last_name(call.func)) and _wraps_a_collective(source, call) else None


def _wraps_a_collective(source: Source, call: ast.Call) -> bool:
    """Whether a call runs a function, of this file or another, that is a collective on what it is given."""
    return any(
        there.qualified_name(node.func) in _COLLECTIVES
        for there, function in _function_with_source(source, call)
        for node in ast.walk(function)
        if isinstance(node, ast.Call)
    )


def _function_with_source(source: Source, call: ast.Call) -> list[tuple[Source, Function]]:
    """The function that a call runs, with its file, if it defines none inside; none where that is not known."""
    function = called_function(source, call)
    elsewhere = called_elsewhere(source, call) if function is None else None
    if elsewhere is not None:
        source, function = elsewhere.source, elsewhere.function
    if function is None or any(isinstance(node, FUNCTIONS) for part in function.body for node in ast.walk(part)):
        return []
    return [(source, function)]


def _leaves_it_alone(source: Source, call: ast.Call, value: ast.expr) -> bool:
    """Whether the loss that is differentiated stays as it is: it is cut off first, copied by what is called, or gathered."""
    if any(isinstance(n, ast.Attribute) and n.attr in ("detach", "data", "item") for n in ast.walk(value)):
        return True
    if source.qualified_name(call.func) in _COLLECTIVES:
        return False
    called = _function_with_source(source, call)
    if called:
        return any(last_name(n.func) == "clone" for _, f in called for n in ast.walk(f) if isinstance(n, ast.Call))
    return last_name(call.func) in ("gather", "gather_for_metrics")


def _is_shown(value: ast.expr) -> bool:
    """Whether an expression is a loss or a metric by its name: `loss`, `loss.detach()`, `loss.repeat(8)`, `losses["a"]`."""
    node = value
    while not dotted_name(node):
        if isinstance(node, ast.Call):
            node = node.func.value if isinstance(node.func, ast.Attribute) else node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            return False
    return bool(_SHOWN.search(dotted_name(node)))


def _is_for_the_log(source: Source, step: StepLoop, call: ast.Call, value: ast.expr) -> bool:
    """Whether the backward pass cannot depend on the exchange: it comes first, or works on something else."""
    backward = [
        item for item in backward_calls(source) if any(_holds(root, item) for root in (step.loop, *step.helpers))
    ]
    if backward and all(item.lineno < call.lineno for item in backward):
        return True
    if not _leaves_it_alone(source, call, value):
        return False
    statement = source.statement(call)
    named = dotted_name(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
    operands = {dotted_name(backward_operand(source, item)) for item in backward}
    return bool(backward) and named not in operands


def _holds(root: ast.AST, node: ast.expr) -> bool:
    return bool(getattr(root, "lineno", 0) <= node.lineno <= getattr(root, "end_lineno", 0))
