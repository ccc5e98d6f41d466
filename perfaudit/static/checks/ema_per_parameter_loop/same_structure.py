"""Whether two modules provably have the same parameters: one is a copy of the other, or both are built alike."""

from __future__ import annotations

import ast

from perfaudit.static.checks.ema_per_parameter_loop.plain_numbers import given_elsewhere, has_common_name, values_given
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.members import attributes, is_own, own_values, stores_of
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import assigned_value

_KEEPS = {"to", "cuda", "cpu", "eval", "train", "requires_grad_"}
_TAKES_NEXT = {"next", "pop", "popleft", "deepcopy"}  # not the same twice
_ASIDE = {"training", "requires_grad"}


def have_same_structure(source: Source, first: ast.expr, second: ast.expr, depth: int = 2) -> bool:
    """Whether the parameters of two modules pair up, one by one."""
    if _is_changed(source, first) or _is_changed(source, second):
        return False
    if _is_loaded(source, first, second) or _is_loaded(source, second, first):
        return True
    if _is_copy(source, first, second) or _is_copy(source, second, first):
        return True
    if _are_built_alike(source, first, second):
        return True
    return bool(depth) and _is_so_for_callers(source, first, second, depth - 1)


def _is_changed(source: Source, module: ast.expr) -> bool:
    """Whether a layer of a module is set from outside: `model.head = ...`."""
    return ast.unparse(module) in _modules_set_into(source)


@remember
def _modules_set_into(source: Source) -> frozenset[str]:
    """What has an attribute set, as it is written."""
    return frozenset(
        ast.unparse(node.value)
        for nodes in attributes(source).values()
        for node in nodes
        if not isinstance(node.ctx, ast.Load) and node.attr not in _ASIDE
    )


def _is_loaded(source: Source, into: ast.expr, out_of: ast.expr) -> bool:
    """`into.load_state_dict(out_of.state_dict())`, around in the same class or module."""
    for call in source.calls(".load_state_dict"):
        if not isinstance(call.func, ast.Attribute) or len(call.args) != 1 or call.keywords:
            continue
        state = call.args[0]
        is_state = isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute)
        if not (isinstance(state, ast.Call) and isinstance(state.func, ast.Attribute) and is_state):
            continue
        if state.func.attr != "state_dict" or _is_optional(source, call):
            continue
        if _is_same(source, call.func.value, into) and _is_same(source, state.func.value, out_of):
            return True
    return False


def _is_optional(source: Source, call: ast.Call) -> bool:
    """Whether a call stands under a condition other than that the file is run as a program."""
    around = [a for a in source.ancestors(call) if isinstance(a, (ast.If, ast.Try, ast.Match))]
    return any(not isinstance(a, ast.If) or "__name__" not in source.text_of(a.test) for a in around)


def _is_copy(source: Source, copy: ast.expr, original: ast.expr) -> bool:
    made = _module_value(source, copy)
    if not isinstance(made, ast.Call) or source.qualified_name(made.func) != "copy.deepcopy" or len(made.args) != 1:
        return False
    if _is_same(source, made.args[0], original):
        return True
    value = _module_value(source, original)  # self.model = model; self.average = deepcopy(model)
    return isinstance(value, ast.Name) and isinstance(made.args[0], ast.Name) and _is_same(source, made.args[0], value)


def _are_built_alike(source: Source, first: ast.expr, second: ast.expr) -> bool:
    """Whether both come from the same call, word for word."""
    a, b = _module_value(source, first), _module_value(source, second)
    if not isinstance(a, ast.Call) or not isinstance(b, ast.Call) or ast.dump(a) != ast.dump(b):
        return False
    if any(isinstance(n, ast.Call) and last_name(n.func) in _TAKES_NEXT for n in ast.walk(a)):
        return False
    inside = source.enclosing(a, *FUNCTIONS) is source.enclosing(b, *FUNCTIONS)
    names = [n for n in ast.walk(a) if isinstance(n, ast.Name)]
    return inside and all(len(source.lookup(name)) <= 1 for name in names)


def _module_value(source: Source, module: ast.expr) -> ast.expr | None:
    """The one expression that a module is given, without what leaves its parameters: `.to(device)`, `.eval()`."""
    if isinstance(module, ast.Name):
        bindings = source.lookup(module)
        value = assigned_value(source, bindings[0]) if len(bindings) == 1 else None
    elif is_own(module) and isinstance(module, ast.Attribute):
        values = own_values(source, module, module.attr)
        texts = {ast.dump(v) if v is not None else "" for v in values}  # copied again after loading: the same text
        value = values[0] if len(texts) == 1 and len(values) == len(stores_of(source, module)) else None
    else:
        return None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _KEEPS:
        if source.qualified_name(value.func) is not None:
            break
        value = value.func.value
    return value


def _is_same(source: Source, first: ast.expr, second: ast.expr) -> bool:
    """Whether two names or attributes of the object are one: a parameter too, where one class hands it to both methods."""
    if isinstance(first, ast.Name) and isinstance(second, ast.Name) and first.id == second.id:
        a, b = source.lookup(first), source.lookup(second)
        if len(a) == len(b) == 1 and a[0] is b[0]:
            return True
        both_given = len(a) == len(b) == 1 and isinstance(a[0], ast.arg) and isinstance(b[0], ast.arg)
        return (
            both_given
            and _class_of(source, first) is not None
            and _class_of(source, first) is _class_of(source, second)
        )
    both_own = is_own(first) and is_own(second) and ast.dump(first) == ast.dump(second)
    return both_own and _class_of(source, first) is _class_of(source, second)


def _class_of(source: Source, node: ast.AST) -> ast.ClassDef | None:
    return source.enclosing(node, ast.ClassDef)


def _is_so_for_callers(source: Source, first: ast.expr, second: ast.expr, depth: int) -> bool:
    """Whether both are parameters of one function, and every call in sight gives it two such modules."""
    given = [_function_and_values(source, module) for module in (first, second)]
    if given[0] is None or given[1] is None or given[0][0] is not given[1][0]:
        return False
    function = given[0][0]
    if has_common_name(source, function) or given_elsewhere(source, function):
        return False
    pairs = list(zip(given[0][1], given[1][1], strict=False))
    complete = bool(pairs) and len(given[0][1]) == len(given[1][1])
    return complete and all(have_same_structure(source, a, b, depth) for a, b in pairs)


def _function_and_values(source: Source, module: ast.expr) -> tuple[Function, list[ast.expr]] | None:
    bindings = source.lookup(module) if isinstance(module, ast.Name) else []
    parameter = bindings[0] if len(bindings) == 1 else None
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda) if isinstance(parameter, ast.arg) else None
    if not isinstance(parameter, ast.arg) or not isinstance(function, FUNCTIONS):
        return None
    values = values_given(source, function, parameter)
    return (function, values) if values is not None else None
