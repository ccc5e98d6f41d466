"""Which layers an initialiser goes through: those of one class and of what that class builds, or any.

`for m in self.modules()` in a class meets its own layers and those of the classes that it builds. It does not meet the layers of
a class beside it that it never names, unless somebody may hand it one of those.
"""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.members import attributes

_THROUGH = {"modules", "named_modules", "children", "named_children"}
# What builds a layer that only a text names: from a registry, a module, a configuration.
_BY_NAME = regex(r"^(getattr|eval|globals|locals|import_module|instantiate|build|create|(build|create|make|get)_\w+)$")
_SIZED = {"torch.ones", "torch.zeros", "torch.empty", "torch.rand", "torch.randn"}  # by numbers, never by a layer
_CONTAINERS = {"Sequential", "ModuleList", "ModuleDict"}
_HOLD = _CONTAINERS | {"add_module", "append", "extend", "register_module", "setattr"}


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


def is_closed(source: Source, definition: ast.ClassDef) -> bool:
    """Whether an object of a class of the module holds only layers that it builds itself, as far as names tell."""
    return _reachable_by_class(source).get(definition.name) is not None


def may_hold(source: Source, definition: ast.ClassDef, layer: ast.Call) -> bool:
    """Whether an object of a class may hold a layer that is built in this file: its own, or of something that it builds.

    What it builds are the functions and classes of the file that it names, and those that they name. A class that keeps or
    calls a parameter may hold anything.
    """
    around = [node for node in source.ancestors(layer) if source.parent(node) is source.tree]
    top = around[0] if around and isinstance(around[0], (*FUNCTIONS, ast.ClassDef)) else None
    if top is None or top is definition:
        return True
    reached = _reachable_by_class(source)
    names = reached.get(definition.name)
    if names is None or top.name in names:
        return True
    return isinstance(top, ast.ClassDef) and definition.name in _bases(source, top)


@remember
def _reachable_by_class(source: Source) -> dict[str, frozenset[str] | None]:
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
        is_open = through_table or any(
            _takes_layers(source, tops[each], is_built_here=each != name) or _builds_by_name(tops[each])
            for each in seen
        )
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


def _builds_by_name(node: ast.AST) -> bool:
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    run = _own_layers_run(node)
    return any(
        isinstance(call.func, (ast.Call, ast.Subscript)) and not _is_super(call.func) and id(call) not in run
        for call in calls
    ) or any(_BY_NAME.search(_last(call.func)) and not _is_own_method(call.func) for call in calls)


def _own_layers_run(node: ast.AST) -> set[int]:
    """The ids of calls in the forward pass of a class that run a layer it has: `self.stages[i](x)` builds none."""
    methods = (each for each in ast.walk(node) if isinstance(each, FUNCTIONS) and each.name.startswith("forward"))
    calls = (each for method in methods for each in ast.walk(method) if isinstance(each, ast.Call))
    own = _containers_of_layers(node)
    return {
        id(call) for call in calls
        if isinstance(call.func, ast.Subscript) and _is_own_method(call.func.value) and _last(call.func.value) in own
    }  # fmt: skip


def _containers_of_layers(node: ast.AST) -> set[str]:
    """The attributes that a class binds to containers of layers alone: of a table of classes, a call builds one."""
    kinds: dict[str, set[bool]] = {}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and _is_own_method(each):
            kinds.setdefault(each.attr, set())
        if isinstance(each, ast.Assign) and len(each.targets) == 1 and _is_own_method(each.targets[0]):
            is_container = isinstance(each.value, ast.Call) and _last(each.value.func) in _CONTAINERS
            kinds.setdefault(_last(each.targets[0]), set()).add(is_container)
    return {name for name, found in kinds.items() if found == {True}}


def _is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"


def _is_own_method(node: ast.expr) -> bool:
    """`self.make_layer(...)`, which stands in a class that is read itself."""
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"


def _takes_layers(source: Source, node: ast.AST, is_built_here: bool) -> bool:
    """Whether a parameter of what is defined here is called, kept as it is or put into a container: it may be a layer.

    is_built_here: only the calls of this file matter. Where none of them passes the parameter, it is its default.
    """
    for name in ast.walk(node):
        if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load) or name.id in ("self", "cls"):
            continue
        bindings = source.lookup(name)
        if not any(isinstance(binding, ast.arg) for binding in bindings):
            continue
        if _is_number(source, bindings) or _is_default(source, bindings, is_built_here) or _is_size(source, bindings):
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


def _is_size(source: Source, bindings: list[ast.AST]) -> bool:
    """Whether every binding is a parameter by which its function also sizes a tensor: `torch.ones(normalized_shape)`."""
    for binding in bindings:
        function = source.enclosing(binding, *FUNCTIONS, ast.Lambda)
        if not isinstance(binding, ast.arg) or function is None:
            return False
        sized = (
            argument
            for call in ast.walk(function)
            if isinstance(call, ast.Call) and source.qualified_name(call.func) in _SIZED
            for argument in call.args
        )
        if not any(isinstance(argument, ast.Name) and source.lookup(argument) == [binding] for argument in sized):
            return False
    return True


def _is_default(source: Source, bindings: list[ast.AST], is_built_here: bool) -> bool:
    """Whether every binding is a parameter with a default that no call of this file replaces."""
    for binding in bindings:
        function = source.enclosing(binding, *FUNCTIONS, ast.Lambda)
        if not isinstance(binding, ast.arg) or not isinstance(function, FUNCTIONS):
            return False
        definition = source.parent(function)
        is_method = isinstance(definition, ast.ClassDef)
        builds = is_method and function.name == "__init__"
        called = definition.name if builds and isinstance(definition, ast.ClassDef) else function.name
        if (builds and not is_built_here) or not _has_default(function, binding):
            return False
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
        place = names.index(binding.arg) - is_method if binding.arg in names else len(names)
        for call in source.nodes(ast.Call):
            if _last(call.func) != called:
                continue
            if len(call.args) > place or any(isinstance(a, ast.Starred) for a in call.args):
                return False
            if any(keyword.arg in (None, binding.arg) for keyword in call.keywords):
                return False
    return True


def _has_default(function: ast.FunctionDef | ast.AsyncFunctionDef, parameter: ast.arg) -> bool:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    with_default = [*positional[len(positional) - len(arguments.defaults) :]]
    with_default += [a for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
    return any(a is parameter for a in with_default)


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
