"""By which methods of its class a model is run: `model.predict(x)`, `model.decode(x)`, `self._score(x)` of a model itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from perfaudit.static.checks.eval_without_no_grad.frozen import methods_run
from perfaudit.static.checks.eval_without_no_grad.model_runs import switches_gradients
from perfaudit.static.checks.eval_without_no_grad.surroundings import plain_decorators
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.names import dotted_name, last_name

_BUILDS = {"__init__", "reset_parameters"}
_PARAMETERS = {"torch.nn.Parameter", "torch.nn.parameter.Parameter"}


def ways_to_run(classes: Iterable[tuple[Source, ast.ClassDef]]) -> frozenset[str]:
    """The methods of classes of models that run a layer of their own and record a graph, by themselves or by another method.

    And the parts that they keep under the name of a class: `model.Encoder(x)`.
    """
    found: set[str] = set()
    for source, definition in classes:
        methods = {item.name: item for item in definition.body if isinstance(item, FUNCTIONS)}
        for name, method in methods.items():
            reached = methods_run(method, methods)
            is_plain = all(plain_decorators(m) and not switches_gradients(source, m) for m in reached)
            if name not in _BUILDS and is_plain and any(_runs_a_layer(source, definition, m) for m in reached):
                found.add(name)
        stores = (
            n for n in walk(definition) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and is_own(n)
        )
        found.update(store.attr for store in stores if store.attr[:1].isupper() and _keeps_a_module(source, store))
    return frozenset(found)


def _keeps_a_module(source: Source, store: ast.Attribute) -> bool:
    """Whether a class assigns nothing else to an attribute than layers of torch's and objects of classes of modules."""
    values = own_values(source, store, store.attr)
    return bool(values) and all(isinstance(v, ast.Call) and _is_built_as_module(source, v.func) for v in values)


def _is_built_as_module(source: Source, built: ast.expr) -> bool:
    if (source.qualified_name(built) or "").startswith("torch.nn."):
        return True
    # Imported here: few models keep a part under a name in capitals.
    from perfaudit.static.checks.eval_without_no_grad.objects import is_module

    classes = source.lookup(built) if isinstance(built, ast.Name) else []
    found = classes[0] if len(classes) == 1 else None
    return isinstance(found, ast.ClassDef) and is_module(source, found, source.neighbours)


def _runs_a_layer(source: Source, definition: ast.ClassDef, method: Function) -> bool:
    """Whether a method calls what the class builds as a module, `self.encoder(x)`, or reads a parameter of its own."""
    for node in walk(method):
        if isinstance(node, ast.Call) and is_own(node.func) and isinstance(node.func, ast.Attribute):
            if any(_is_module(source, value) for value in own_values(source, node.func, node.func.attr)):
                return True
        elif isinstance(node, ast.Attribute) and is_own(node) and isinstance(node.ctx, ast.Load):
            values = own_values(source, node, node.attr)
            if any(isinstance(v, ast.Call) and source.qualified_name(v.func) in _PARAMETERS for v in values):
                return True
    return False


def _is_module(source: Source, value: ast.expr | None) -> bool:
    """Whether a value is built by a layer of torch's, or by a class of the program, as its name says."""
    if not isinstance(value, ast.Call):
        return False
    name = source.qualified_name(value.func) or dotted_name(value.func)
    return name.startswith("torch.nn.") or last_name(value.func)[:1].isupper()
