"""The classes of other files that a model may be an object of: built here, by a function of another file, or handed in."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.elsewhere import built_by, class_of
from perfaudit.static.understanding.handed_in import handed_in
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.values import resolve

Classes = list[tuple[Source, ast.ClassDef]]  # each with its file
_MAX_FUNCTIONS = 2  # that return what another one builds


def classes_elsewhere(source: Source, call: ast.Call) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The classes of other files of the project that the model of `model.eval()` may be built of.

    Of a parameter, those of all models that the file builds, and of what other files hand in.
    """
    if source.neighbours is None or not isinstance(call.func, ast.Attribute):
        return
    model = call.func.value
    built_there = class_of(source, model)
    if built_there is not None and built_there[0] is not source and isinstance(built_there[1], ast.ClassDef):
        yield built_there[0], built_there[1]
    kept = own_values(source, model, model.attr) if isinstance(model, ast.Attribute) and is_own(model) else []
    is_given = isinstance(model, ast.Name) and any(isinstance(b, ast.arg) for b in source.lookup(model))
    for built in source.nodes(ast.Call) if is_given else [resolve(source, model), *kept]:
        found = _class_called(source, built, source) if isinstance(built, ast.Call) else None
        if found is not None and may_be_model(found[1]):
            yield found
    given = handed_in(source, model) if is_given else [(source, model)]
    meant = [_classes_built(there, value, source) for there, value in given]
    if all(meant):
        yield from (one for some in meant for one in some if one[0] is not source)


def may_be_model(definition: ast.ClassDef) -> bool:
    """Whether an object of a class may have an `eval` that is given nothing: of its own, or from a base."""
    if any(not isinstance(base, ast.Name) or base.id != "object" for base in definition.bases):
        return True
    return any(isinstance(item, FUNCTIONS) and item.name == "eval" for item in definition.body)


def _classes_built(there: Source, value: ast.expr, asking: Source, functions: int = _MAX_FUNCTIONS) -> Classes:
    """The classes that an expression is an object of, also by functions of other files; none where one is not in sight.

    asking: the file that is looked at, which knows the others.
    """
    found: Classes = []
    for call in built_by(there, value):
        own = there.lookup(call.func) if isinstance(call.func, ast.Name) else []
        if own:
            classes = [(there, one) for one in own if isinstance(one, ast.ClassDef)]
        elif (called := _class_called(there, call, asking)) is not None:
            classes = [called]
        else:
            classes = _classes_returned(there, call, asking, functions) if functions else []
        if not classes:
            return []
        found += classes
    return found


def _classes_returned(there: Source, call: ast.Call, asking: Source, functions: int) -> Classes:
    """The classes of the objects that a function of another file returns: `net = make_net(layers)`."""
    made = _definition_of(there, call, asking)
    if made is None or not isinstance(made[1], FUNCTIONS):
        return []
    returned = [node.value for node in walk(made[1]) if isinstance(node, ast.Return) and node.value is not None]
    classes = [_classes_built(made[0], value, asking, functions - 1) for value in returned]
    return [one for some in classes for one in some] if all(classes) else []


def _class_called(there: Source, call: ast.Call, asking: Source) -> tuple[Source, ast.ClassDef] | None:
    """The class of another file that a call builds an object of, where its name begins as that of a class."""
    dotted = there.qualified_name(call.func) or ""
    found = _definition_of(there, call, asking) if dotted.rpartition(".")[2][:1].isupper() else None
    return (found[0], found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None


def _definition_of(there: Source, call: ast.Call, asking: Source) -> tuple[Source, ast.AST] | None:
    dotted = there.qualified_name(call.func) or ""
    if not dotted or dotted.partition(".")[0] in ("torch", "torchvision") or asking.neighbours is None:
        return None
    return asking.neighbours.definition_of(dotted, None if there is asking else there)
