"""What a function of another file does for what one call hands it: which way its conditions go."""

from __future__ import annotations

import ast
from collections.abc import Callable

from perfaudit.static.checks.host_sync_in_training_loop.syncs import Runs
from perfaudit.static.source import Function, Loop, Source
from perfaudit.static.understanding.each_time import runs_in_any_case
from perfaudit.static.understanding.elsewhere import Elsewhere
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.taint import Region

_TENSORS = {"Tensor", "Variable", "Parameter"}


def runs_for_call(there: Elsewhere, inside: Region, kind_of: Callable[[ast.expr], Kind]) -> Runs:
    """What tells whether a place of a function in another file runs for this call, of whose arguments these are the kinds.

    Where it asks whether it was handed a tensor on the device, that is known if the call hands it one.
    """
    gets_tensor = _hands_tensor(there, kind_of)

    def outcome(test: ast.expr) -> bool | None:
        if _asks_for_infinity(there, test):
            return False
        if not gets_tensor:
            return None
        asked, is_of_tensors = _asked_for_kind(there.source, test)
        return is_of_tensors if asked is not None and inside.kind(asked) >= Kind.MAYBE else None

    def runs(source: Source, place: ast.AST, root: Loop | Function) -> bool:
        return runs_in_any_case(source, place, root, outcome)

    return runs


def _asks_for_infinity(there: Elsewhere, test: ast.expr) -> bool:
    """`norm_type == inf` where the call leaves that parameter at the number that it is by default."""
    match test:
        case ast.Compare(
            left=ast.Name(id=name), ops=[ast.Eq()], comparators=[ast.Name(id="inf") | ast.Attribute(attr="inf")]
        ):
            arguments = there.function.args
            named = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
            defaults = dict(zip(named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=False))
            is_number = isinstance(default := defaults.get(name), ast.Constant) and isinstance(
                default.value, (int, float)
            )
            return is_number and name not in dict(there.named_arguments)
    return False


def _hands_tensor(there: Elsewhere, kind_of: Callable[[ast.expr], Kind]) -> bool:
    """Whether a call passes a tensor on the device: one for sure, or what is made of such and named as a loss."""
    given = [*there.call.args, *(keyword.value for keyword in there.call.keywords)]
    return any(
        kind_of(value) is Kind.TENSOR or (kind_of(value) is Kind.MAYBE and "loss" in last_name(value).lower())
        for value in given
    )


def _asked_for_kind(source: Source, test: ast.expr) -> tuple[ast.expr | None, bool]:
    """`x` of `isinstance(x, torch.Tensor)`, `type(x) == torch.Tensor` and `torch.is_tensor(x)`, with the answer for a tensor.

    Of `isinstance(x, (int, float))` the answer is False for one, and so it is of `x is None`.
    """
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            asked, answer = _asked_for_kind(source, operand)
            return asked, not answer
        case ast.Compare(left=asked, ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(value=None)]):
            return asked, isinstance(op, ast.IsNot)
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="type"), args=[asked]), ops=[ast.Eq() | ast.Is()], comparators=[kind]
        ):
            return asked, source.qualified_name(kind) == "torch.Tensor"
        case ast.Call(func=ast.Name(id="isinstance"), args=[asked, kinds]):
            named = kinds.elts if isinstance(kinds, ast.Tuple) else [kinds]
            known = [source.qualified_name(kind) or last_name(kind) for kind in named]
            return asked if all(known) else None, any(kind.rpartition(".")[2] in _TENSORS for kind in known)
        case ast.Call(args=[asked]) if source.qualified_name(test.func) == "torch.is_tensor":
            return asked, True
    return None, False
