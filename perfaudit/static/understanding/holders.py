"""Which layers an initialiser goes through: those of one class and of what that class builds, or any.

`for m in self.modules()` in a class meets its own layers and those of the classes that it builds. It does not meet the layers of
a class beside it that it never names, unless somebody may hand it one of those.
"""

from __future__ import annotations

import ast
from functools import lru_cache

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.members import attributes

_THROUGH = {"modules", "named_modules", "children", "named_children"}
_HOLD = {"Sequential", "ModuleList", "ModuleDict", "add_module", "append", "extend", "register_module", "setattr"}


def class_gone_through(source: Source, owner: ast.Name) -> ast.ClassDef | None:
    """The class whose own layers alone this variable stands for; None where it may be a layer of any model.

    The variable of a loop over `self.modules()`, and the parameter of a method that is only given to `self.apply`.
    """
    bindings = source.lookup(owner)
    found = {id(definition): definition for b in bindings if (definition := _bound_to_own(source, b)) is not None}
    return next(iter(found.values())) if len(found) == 1 and bindings and _all_own(source, bindings) else None


def _all_own(source: Source, bindings: list[ast.AST]) -> bool:
    return all(_bound_to_own(source, binding) is not None for binding in bindings)


def _bound_to_own(source: Source, binding: ast.AST) -> ast.ClassDef | None:
    definition = source.enclosing(binding, ast.ClassDef)
    if not isinstance(definition, ast.ClassDef):
        return None
    if isinstance(binding, ast.arg):
        method = source.enclosing(binding, *FUNCTIONS, ast.Lambda)
        return definition if isinstance(method, FUNCTIONS) and _is_applied_to_self(source, method) else None
    for ancestor in source.ancestors(binding):
        if isinstance(ancestor, (ast.For, ast.comprehension)):
            return definition if _goes_through_self(ancestor.iter) else None
        if isinstance(ancestor, FUNCTIONS):
            return None
    return None


def _goes_through_self(over: ast.expr) -> bool:
    while (
        isinstance(over, ast.Call)
        and isinstance(over.func, ast.Name)
        and over.func.id in ("enumerate", "list")
        and over.args
    ):
        over = over.args[0]
    function = over.func if isinstance(over, ast.Call) else None
    return (
        isinstance(function, ast.Attribute)
        and function.attr in _THROUGH
        and isinstance(function.value, ast.Name)
        and function.value.id == "self"
    )


def _is_applied_to_self(source: Source, method: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether every mention of a method in its file is `self.apply(self.method)`, and it has a name of its own kind."""
    uses = [node for node in attributes(source).get(method.name, []) if isinstance(node.ctx, ast.Load)]
    if not uses or source.parent(method) is source.tree:
        return False
    for use in uses:
        call = source.parent(use)
        applies = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "apply"
        if not applies or not isinstance(call, ast.Call) or source.text_of(call.func) != "self.apply":
            return False
    return True


def may_hold(source: Source, definition: ast.ClassDef, layer: ast.Call) -> bool:
    """Whether an object of a class may hold a layer that is built in this file: its own, or of something that it builds.

    What it builds are the functions and classes of the file that it names, and those that they name. A class that keeps or
    calls a parameter may hold anything.
    """
    around = [node for node in source.ancestors(layer) if source.parent(node) is source.tree]
    top = around[0] if around and isinstance(around[0], (*FUNCTIONS, ast.ClassDef)) else None
    if top is None or top is definition:
        return True
    reached = _reached(source)
    names = reached.get(definition.name)
    if names is None or top.name in names:
        return True
    return isinstance(top, ast.ClassDef) and definition.name in _bases(source, top)


@lru_cache(maxsize=4)
def _reached(source: Source) -> dict[str, frozenset[str] | None]:
    """The functions and classes of the module that each of its classes names, directly or through others; None for any."""
    tops = {node.name: node for node in source.tree.body if isinstance(node, (*FUNCTIONS, ast.ClassDef))}
    named = {
        name: {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)} & set(tops)
        for name, node in tops.items()
    }
    others = {n.id for s in source.tree.body if not isinstance(s, (*FUNCTIONS, ast.ClassDef)) for n in ast.walk(s)
              if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}  # fmt: skip
    found: dict[str, frozenset[str] | None] = {}
    for name, node in tops.items():
        if not isinstance(node, ast.ClassDef):
            continue
        seen: set[str] = set()
        pending = [name]
        while pending:
            item = pending.pop()
            if item not in seen:
                seen.add(item)
                pending += named[item]
        # A table of classes at the top of the module may lead anywhere in it.
        through_table = any(isinstance(n, ast.Name) and n.id in others for each in seen for n in ast.walk(tops[each]))
        is_open = through_table or any(_takes_layers(source, tops[each]) for each in seen)
        found[name] = None if is_open else frozenset(seen)
    return found


def _bases(source: Source, definition: ast.ClassDef) -> set[str]:
    found: set[str] = set()
    pending = [definition]
    while pending:
        for base in pending.pop().bases:
            if isinstance(base, ast.Name) and base.id not in found:
                found.add(base.id)
                pending += [d for d in source.bound_in(source.tree).get(base.id, []) if isinstance(d, ast.ClassDef)]
    return found


def _takes_layers(source: Source, node: ast.AST) -> bool:
    """Whether a parameter of what is defined here is called, kept as it is or put into a container: it may be a layer."""
    for name in ast.walk(node):
        if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load) or name.id in ("self", "cls"):
            continue
        bindings = source.lookup(name)
        if not any(isinstance(binding, ast.arg) for binding in bindings):
            continue
        if _is_number(source, bindings):
            continue
        parent = source.parent(name)
        while isinstance(parent, (ast.Starred, ast.List, ast.Tuple, ast.IfExp, ast.BoolOp)):
            parent = source.parent(parent)
        if isinstance(parent, ast.Call) and parent.func is name:
            return True
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and any(
            isinstance(target, ast.Attribute)
            for target in (parent.targets if isinstance(parent, ast.Assign) else [parent.target])
        ):
            return True
        if isinstance(parent, ast.Call) and _last(parent.func) in _HOLD:
            return True
    return False


def _is_number(source: Source, bindings: list[ast.AST]) -> bool:
    """Whether every binding is a parameter whose default or annotation says that it is a number, a text or a truth value."""
    for binding in bindings:
        if not isinstance(binding, ast.arg):
            return False
        written = binding.annotation
        if isinstance(written, ast.Name) and written.id in ("int", "float", "bool", "str"):
            continue
        function = source.enclosing(binding, *FUNCTIONS, ast.Lambda)
        if function is None or not _has_plain_default(function, binding):
            return False
    return True


def _has_plain_default(function: ast.AST, parameter: ast.arg) -> bool:
    arguments = function.args  # type: ignore[attr-defined]  # a function or a lambda
    positional = [*arguments.posonlyargs, *arguments.args]
    defaults = dict(zip([a.arg for a in reversed(positional)], reversed(arguments.defaults), strict=False))
    defaults.update(
        {a.arg: d for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None}
    )
    default = defaults.get(parameter.arg)
    return isinstance(default, ast.Constant) and default.value is not None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
