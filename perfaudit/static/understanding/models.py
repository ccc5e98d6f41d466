"""Whether a file shows all layers of a model: built here from torch's own layers and from classes of this file."""

from __future__ import annotations

import ast
import builtins

from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import argument, assigned_value, enclosing_function

_RETURN_MODEL = {"to", "cuda", "cpu", "train", "eval", "float", "double", "half", "bfloat16", "requires_grad_"}
_WRAPPERS = {"torch.compile", "torch.nn.DataParallel", "torch.nn.parallel.DistributedDataParallel"}
_HOLD_MODULES = {f"torch.nn.{name}" for name in ("Sequential", "ModuleList", "ModuleDict")}
_BUILTINS = set(dir(builtins)) - {"getattr", "eval", "exec", "__import__"}


Known = set[tuple[str, int]]  # what was asked of which node: asked once, for one no anywhere is the answer


def is_visible(source: Source, model: ast.expr, known: Known | None = None) -> bool:
    """Whether an expression is a model of which this file shows every layer; False wherever that is not clear.

    Names are followed to all that binds them, parameters to the calls in this file.
    """
    known = set() if known is None else known
    if isinstance(model, ast.Name):
        bindings = source.lookup(model)
        return bool(bindings) and all(_is_bound_to_visible(source, binding, known) for binding in bindings)
    if isinstance(model, ast.Attribute):
        if isinstance(model.value, ast.Call) or last_name(model) in _RETURN_MODEL:
            return last_name(model) in _RETURN_MODEL and is_visible(source, model.value, known)
        stores = [n for n in source.nodes(ast.Attribute) if isinstance(n.ctx, ast.Store) and n.attr == model.attr]
        return bool(stores) and all(_is_bound_to_visible(source, store, known) for store in stores)
    return isinstance(model, ast.Call) and _builds_visible(source, model, known)


def _is_bound_to_visible(source: Source, binding: ast.AST, known: Known) -> bool:
    if ("bound", id(binding)) in known:
        return True
    known.add(("bound", id(binding)))
    if isinstance(binding, ast.arg):
        passed = _arguments_for(source, binding)
        return bool(passed) and all(value is not None and is_visible(source, value, known) for value in passed)
    value = assigned_value(source, binding)
    return value is not None and is_visible(source, value, known)


def _arguments_for(source: Source, parameter: ast.arg) -> list[ast.expr | None]:
    """What the calls in this file pass for a parameter; None for one that cannot be told."""
    function = enclosing_function(source, parameter)
    if function is None:
        return []
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    method = isinstance(source.parent(function), ast.ClassDef)
    position = names.index(parameter.arg) - method if parameter.arg in names else None
    calls = calls_by_last_name(source).get(function.name, [])
    given = [argument(source, call, parameter.arg, position) for call in calls]
    return [value if isinstance(value, ast.expr) else None for value in given]


def _builds_visible(source: Source, call: ast.Call, known: Known) -> bool:
    name = source.qualified_name(call.func)
    if name in _WRAPPERS:
        return bool(call.args) and is_visible(source, call.args[0], known)
    if name and name.startswith("torch.nn."):
        return _calls_are_visible(source, call, known)
    if isinstance(call.func, ast.Attribute) and call.func.attr in _RETURN_MODEL:
        return is_visible(source, call.func.value, known)
    definition = _definition(source, call.func)
    if isinstance(definition, ast.ClassDef):
        return _is_visible_class(source, definition, known)
    if definition is None or ("returned", id(definition)) in known:
        return definition is not None
    returned = [n.value for n in ast.walk(definition) if isinstance(n, ast.Return)]
    known.add(("returned", id(definition)))
    return bool(returned) and all(value is not None and is_visible(source, value, known) for value in returned)


def _definition(source: Source, function: ast.expr) -> ast.ClassDef | Function | None:
    bindings = source.lookup(function) if isinstance(function, ast.Name) else []
    found = bindings[0] if len(bindings) == 1 else None
    return found if isinstance(found, (ast.ClassDef, *FUNCTIONS)) else None


def _is_visible_class(source: Source, definition: ast.ClassDef, known: Known) -> bool:
    if ("class", id(definition)) in known:
        return True
    known.add(("class", id(definition)))
    for base in definition.bases:
        parent = _definition(source, base)
        if not (
            (source.qualified_name(base) or "").startswith("torch.nn.")
            or (isinstance(parent, ast.ClassDef) and _is_visible_class(source, parent, known))
        ):
            return False
    if not definition.bases or "__init__" not in source.bound_in(definition):
        return False
    used = {id(n.func) for n in ast.walk(definition) if isinstance(n, ast.Call)}
    used |= {id(n.iter) for n in ast.walk(definition) if isinstance(n, (ast.For, ast.comprehension))}
    layers = {n.attr for n in ast.walk(definition) if isinstance(n, ast.Attribute) and id(n) in used and _is_own(n)}
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in layers:
            value = assigned_value(source, node)
            if not isinstance(value, ast.Call) and not (source.qualified_name(value) or "").startswith("torch."):
                return False  # a layer that is handed in
            layers = layers - {node.attr}
    return layers <= set(source.bound_in(definition)) | {"register_buffer"} and _calls_are_visible(
        source, definition, known
    )


def _is_own(node: ast.Attribute) -> bool:
    return dotted_name(node.value) == "self"


def _calls_are_visible(source: Source, root: ast.AST, known: Known) -> bool:
    """Whether everything that is called below a node is torch's, of this file, builtin, or a method of a value."""
    return all(_is_visible_call(source, call, known) for call in ast.walk(root) if isinstance(call, ast.Call))


def _is_visible_call(source: Source, call: ast.Call, known: Known) -> bool:
    name = source.qualified_name(call.func)
    if name is not None and name.startswith("torch."):
        if name.startswith("torch.hub."):
            return False
        held = [a.value if isinstance(a, ast.Starred) else a for a in call.args] if name in _HOLD_MODULES else []
        return all(_is_held_visibly(source, value, known) for value in held)
    if name is not None:
        return name.startswith(("math.", "collections."))
    if isinstance(call.func, ast.Attribute):
        return True
    definition = _definition(source, call.func)
    if isinstance(definition, ast.ClassDef):
        return _is_visible_class(source, definition, known)
    if definition is not None:
        if ("called", id(definition)) in known:
            return True
        known.add(("called", id(definition)))
        return _calls_are_visible(source, definition, known)
    if not isinstance(call.func, ast.Name):
        return False
    return bool(source.lookup(call.func)) if _is_local(source, call.func) else call.func.id in _BUILTINS


def _is_local(source: Source, name: ast.Name) -> bool:
    """Whether a called name is bound by a loop or an assignment of its function: `for layer in self.layers`."""
    return any(not isinstance(b, (ast.arg, ast.alias)) for b in source.lookup(name))


def _is_held_visibly(source: Source, value: ast.expr, known: Known) -> bool:
    """Whether what a container gets is written out here; calls in it are looked at on their own."""
    if isinstance(value, (ast.List, ast.Tuple)):
        inner = [e.value if isinstance(e, ast.Starred) else e for e in value.elts]
        return all(_is_held_visibly(source, element, known) for element in inner)
    if isinstance(value, ast.Dict):
        return all(_is_held_visibly(source, element, known) for element in value.values)
    if isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        return isinstance(value.elt, ast.Call)
    if isinstance(value, ast.Name):
        bindings = source.lookup(value)
        values = [assigned_value(source, b) for b in bindings if ("held", id(b)) not in known]
        known |= {("held", id(b)) for b in bindings}
        return bool(bindings) and all(v is not None and _is_held_visibly(source, v, known) for v in values)
    return isinstance(value, ast.Call)
