"""Subclasses of layers and loaders that take the arguments of their base and compute the same."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.source.syntax import FUNCTIONS, Function

# A subclass of one of these that takes the same arguments and computes the same is one of them to the rules.
PLAIN_BASES = frozenset(
    {"torch.utils.data.DataLoader", "torch.nn.Linear", "torch.nn.SyncBatchNorm"}
    | {f"torch.nn.Conv{way}{n}d" for way in ("", "Transpose") for n in (1, 2, 3)}
    | {f"torch.nn.{kind}Norm{n}d" for kind in ("Batch", "Instance") for n in (1, 2, 3)}
)
_OF_NORMS = {"eps", "momentum"}  # arguments of norms alone; a momentum of 0 would keep the first mean
CHANGES_ARGUMENTS = {"__init__", "__new__", "__call__", "forward", "_conv_forward"}


def same_signature(definition: ast.ClassDef) -> bool:
    """Whether a subclass takes its base's arguments as they are and leaves alone what is computed with them.

    It defines no constructor, or one that only hands everything on: `def __init__(self, *args, **kwargs)` with
    `super().__init__(*args, **kwargs)`; it is not decorated.
    """
    if definition.decorator_list:
        return False
    changing = [s for s in definition.body if isinstance(s, FUNCTIONS) and s.name in CHANGES_ARGUMENTS]
    return all(function.name == "__init__" and _hands_everything_on(function) for function in changing)


def _hands_everything_on(function: Function) -> bool:
    """Whether a constructor hands on what it is given as it is; beside it at most constants of a norm: `eps=1e-6`."""
    taken = function.args
    if taken.posonlyargs or taken.kwonlyargs or taken.defaults or taken.vararg is None or taken.kwarg is None:
        return False
    handed = [n for n in ast.walk(function) if isinstance(n, ast.Call) and _is_super_init(n)]
    if len(handed) != 1:
        return False
    own = [parameter.arg for parameter in taken.args[1:]]
    given = [ast.unparse(a) for a in handed[0].args] + [ast.unparse(k.value) for k in handed[0].keywords if not k.arg]
    fixed = [keyword for keyword in handed[0].keywords if keyword.arg]
    names = {*own, taken.vararg.arg, taken.kwarg.arg}
    inside = [node for statement in function.body for node in ast.walk(statement)]
    changed = any(isinstance(n, ast.Name) and n.id in names for s in function.body for n in _stores_into(s))
    changed = changed or any(isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Store) for n in inside)
    if given != [*own, f"*{taken.vararg.arg}", taken.kwarg.arg] or changed:
        return False
    return all(k.arg in _OF_NORMS and isinstance(k.value, ast.Constant) and k.value.value for k in fixed)


def _is_super_init(call: ast.Call) -> bool:
    """Whether a call is `super().__init__(...)` or `super(Loader, self).__init__(...)`."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__":
        return False
    above = call.func.value
    return isinstance(above, ast.Call) and isinstance(above.func, ast.Name) and above.func.id == "super"


def _stores_into(statement: ast.stmt) -> Iterator[ast.AST]:
    """Names whose items or methods a statement may change: `kwargs["x"] = 1`, `kwargs.setdefault("x", 1)`."""
    for node in ast.walk(statement):
        if isinstance(node, (ast.Subscript, ast.Attribute)):
            yield node.value
