"""PA403: weights that are updated one tensor at a time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.values import ABSENT, argument, constant, resolve

HAVE_FOREACH = (
    "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
)  # fmt: skip
SHARDED = regex(r"fully_shard|fsdp|DTensor|distribute_tensor", re.IGNORECASE)  # lists of these may not work
FOREACH_OF_ADAGRAD = 6  # position; keyword-only in the others


@check("PA403", call=tuple(f"torch.optim.{name}" for name in HAVE_FOREACH))
def foreach_is_off(source: Source, call: ast.Call) -> Iterator[Seen]:
    name = source.qualified_name(call.func) or ""
    foreach = argument(source, call, "foreach", FOREACH_OF_ADAGRAD if name.endswith("Adagrad") else None)
    if foreach is ABSENT or constant(source, foreach) is not False:
        return
    if any(argument(source, call, option) is not ABSENT for option in ("fused", "differentiable")):
        return
    if SHARDED.search(source.text) or is_test(source, call):
        return
    yield Seen(
        call,
        f"`{source.brief(call.func)}` with `foreach=False` takes the kernels of the update once per parameter",
        Proposal(
            "leave `foreach` out: over lists on a GPU, for memory of about the size of the parameters; "
            "`fused=True` takes none"
        ),
    )


@check("PA403", ast.For)
def update_by_hand(source: Source, loop: ast.For) -> Iterator[Seen]:
    parameters = loop.iter
    if not (isinstance(parameters, ast.Call) and isinstance(parameters.func, ast.Attribute)):
        return
    if parameters.func.attr != "parameters" or not isinstance(loop.target, ast.Name) or not source.imports_torch:
        return
    updates = [statement for statement in _plain(loop.body) if _descends(source, statement, loop.target.id)]
    if len(updates) != 1 or not runs_every_step(source, loop) or is_test(source, loop):
        return
    model = resolve(source, parameters.func.value)
    if isinstance(model, ast.Call) and (source.qualified_name(model.func) or "").startswith("torch.nn."):  # one layer
        return
    yield Seen(
        loop,
        f"`{source.brief(updates[0])}` updates the weights in a Python loop: every parameter takes kernels of its own",
        Proposal(
            f"`torch.optim.SGD({source.brief(parameters)}, lr=..., fused=True)`, which needs a few kernels in all"
        ),
        hot=True,
    )


def _plain(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements, those under a condition or a `with` included."""
    for statement in statements:
        if isinstance(statement, (ast.If, ast.With)):
            yield from _plain(statement.body)
        else:
            yield statement


def _descends(source: Source, statement: ast.stmt, name: str) -> bool:
    """Whether a statement changes `p` in place to p - rate · p.grad, with or without more terms."""
    if isinstance(statement, ast.AugAssign):
        target: ast.expr = statement.target
        value: ast.expr = ast.BinOp(target, statement.op, statement.value)
    elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Attribute):
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        function = statement.value.func
        if not isinstance(function, ast.Attribute) or function.attr not in ("add_", "sub_", "copy_"):
            return False
        target, value = function.value, statement.value
    else:
        return False
    from perfaudit.static.understanding.averages import Values  # few loops update by hand

    values = Values(source)
    if values.key(target) != name:
        return False
    after = values.of(value) or {}
    gradient = f"{name}.grad"
    return after.get((name,)) == 1.0 and any(gradient in operands and len(operands) <= 2 for operands in after)
