"""PA708: gradients that are summed over the processes with one collective per parameter, after the backward pass."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.checks.gradient_norm_per_parameter.gradient_loops import (
    is_gradient,
    parameter_of,
    plain_statements,
    runs_in_every_step,
)
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, Argument, argument, constant

_COLLECTIVES = ("torch.distributed.all_reduce", "torch.distributed.reduce")
# Parameters that every process has, whatever is asked of them; another name may choose a few (`p.shared`).
_CHOOSES_NONE = {"grad", "requires_grad", "is_initialized", "is_available", "get_world_size", "dist", "distributed"}
_WORLD = regex(r"world|distributed|ddp|n_?gpus?|num_", re.IGNORECASE)
_CLOCK = regex(r"perf_counter|time\.time\(|monotonic\(|elapsed_time")  # the collectives are what is studied


@check("PA708", ast.For)
def gradients_reduced_one_by_one(source: Source, loop: ast.For) -> Iterator[Seen]:
    parameter = parameter_of(loop)
    if not parameter or not source.mentions("distributed"):
        return
    reduce = next((call for part in plain_statements(loop.body) if (call := _reduces(source, part, parameter))), None)
    if reduce is None or not _takes_all(source, reduce, loop, parameter):
        return
    around = source.enclosing(loop, *FUNCTIONS)
    if is_test(source, loop) or _CLOCK.search(source.text_of(around or loop)) or not runs_in_every_step(source, loop):
        return
    yield Seen(
        loop,
        f"`{source.brief(reduce)}` is one collective per parameter, and all of them wait until the backward pass is over",
        Proposal(
            "wrap the model in `DistributedDataParallel`, which sums gradients in buckets while the backward pass runs; "
            "where that does not fit, copy the gradients into one flat tensor and reduce that"
        ),
        hot=True,
    )


def _reduces(source: Source, statement: ast.stmt, parameter: str) -> ast.Call | None:
    """The call that a statement is, where it reduces the gradient of one parameter over all processes and waits for it."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or source.qualified_name(call.func) not in _COLLECTIVES:
        return None
    is_reduce_to_one = last_name(call.func) == "reduce"
    group = argument(source, call, "group", 3 if is_reduce_to_one else 2)
    if not _is_everybody(source, group) or argument(source, call, "async_op") is not ABSENT:
        return None  # a part of the processes, as of a model that is cut; or started here and waited for later
    tensor = argument(source, call, "tensor", 0)
    return call if isinstance(tensor, ast.expr) and is_gradient(tensor, parameter, {}) else None


def _is_everybody(source: Source, group: Argument) -> bool:
    """Whether a collective is one of all processes: no group is given, or the one that holds all."""
    if group is ABSENT or constant(source, group) in (None, 0):  # 0 stood for all of them before torch 1.0
        return True
    return isinstance(group, ast.expr) and (source.qualified_name(group) or "").endswith("distributed.group.WORLD")


def _takes_all(source: Source, reduce: ast.Call, loop: ast.For, parameter: str) -> bool:
    """Whether the loop reduces every gradient there is: conditions ask for a gradient or for other processes only."""
    if isinstance(loop.iter, (ast.ListComp, ast.GeneratorExp)) and loop.iter.generators[0].ifs:
        return False
    tests = [a.test for a in source.ancestors(reduce) if isinstance(a, ast.If) and _lies_in(a, loop)]
    tests += [s.test for s in source.before(_child_of(source, reduce, loop)) if isinstance(s, ast.If)]
    names = {last_name(n) for test in tests for n in ast.walk(test) if isinstance(n, (ast.Name, ast.Attribute))}
    return all(name in _CHOOSES_NONE or name == parameter or _WORLD.search(name) for name in names)


def _lies_in(node: ast.stmt, loop: ast.For) -> bool:
    return loop.lineno < node.lineno <= (loop.end_lineno or 0)


def _child_of(source: Source, node: ast.AST, loop: ast.For) -> ast.stmt:
    """The statement of the loop's own body in which a node stands."""
    statement = source.statement(node)
    while source.parent(statement) is not loop:
        statement = source.statement(source.parent(statement) or loop)
    return statement
