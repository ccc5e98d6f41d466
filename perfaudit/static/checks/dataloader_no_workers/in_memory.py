"""Whether the samples of a DataLoader are tensors or numbers in memory: followed to where they are made, in the project."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.dataloader_no_workers.look_ups import looks_up, only_looks_up
from perfaudit.static.checks.dataloader_no_workers.made_of import attribute_stores, comes_later
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.called_functions import assigned_once, called_function
from perfaudit.static.understanding.calls_by_name import calls_by_derived
from perfaudit.static.understanding.defaults import default_expression
from perfaudit.static.understanding.loaders import given_to
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import ABSENT, Argument, argument, assigned_value, constant, local_class

_FOLLOW = 6  # names followed from the call to the tensors of the dataset; real code needs two or three
_SETS_OF_TENSORS = {"torch.utils.data.TensorDataset"}
_PARTS = {"torch.utils.data.Subset", "torch.utils.data.random_split"}
_LISTS = {"range", "list", "zip", "enumerate", "sorted"}
_DEFAULT_COLLATE = tuple(f"torch.utils.data.{where}default_collate" for where in ("", "dataloader.", "_utils.collate."))
_INDICES = regex(r"(^|_)(idx|index|indices|ids|nids?|eids?)$")


def is_in_memory(source: Source, dataset: ast.expr, depth: int = _FOLLOW) -> bool:
    """Whether the samples surely are tensors or numbers in memory, or parts of such a dataset.

    A TensorDataset, a tensor, a list or a range; an object of a class whose `__getitem__` only looks up what it holds. To
    hand them over from another process costs more than to take them.
    """
    if not depth:
        return False
    if isinstance(dataset, (ast.Name, ast.Attribute)) and (found := _bound_in_module(source, dataset)) is not None:
        return all(_is_bound_in_memory(found[0], binding, depth - 1) for binding in found[1])
    if isinstance(dataset, ast.Name):
        bindings = [binding for binding in source.lookup(dataset) if not comes_later(source, binding, dataset)]
        made = [assigned_value(source, binding) for binding in bindings]
        if _INDICES.search(dataset.id) and bindings and not any(isinstance(value, ast.Call) for value in made):
            return True  # `DataLoader(train_idx)`, the numbers of samples, as a function of another file gives them
        return bool(bindings) and all(_is_bound_in_memory(source, binding, depth - 1) for binding in bindings)
    if isinstance(dataset, (ast.List, ast.Tuple, ast.ListComp)):
        return True
    if isinstance(dataset, ast.Attribute) and dotted_name(dataset.value) == "self":
        stores = [
            s
            for s in attribute_stores(source).get(dataset.attr, [])
            if not _is_split_of_itself(source, s, dataset.attr)
        ]
        return bool(stores) and all(_is_bound_in_memory(source, store, depth - 1) for store in stores)
    if not isinstance(dataset, ast.Call):
        return False
    name = source.qualified_name(dataset.func) or ""
    if name in _SETS_OF_TENSORS or (isinstance(dataset.func, ast.Name) and dataset.func.id in _LISTS):
        return True
    if name in _PARTS:
        return bool(dataset.args) and is_in_memory(source, dataset.args[0], depth - 1)
    if _is_made_by_torch(source, dataset):
        return True
    if isinstance(function := called_function(source, dataset), FUNCTIONS) and local_class(source, dataset) is None:
        returned = [
            node.value
            for node in source.nodes(ast.Return)
            if source.scope(node) is function and not _is_passed_over(source, node, function, dataset)
        ]
        return bool(returned) and all(v is not None and is_in_memory(source, v, depth - 1) for v in returned)
    if source.neighbours is not None and name and depth:
        defined = source.neighbours.definition_of(name)
        if defined is not None and _returns_in_memory(*defined, depth):
            return True
    return only_looks_up(source, dataset)


def _bound_in_module(source: Source, node: ast.expr) -> tuple[Source, list[ast.AST]] | None:
    """What binds a variable of another module of the project, `data.train_set` or an imported `train_set`, and that file."""
    dotted = source.qualified_name(node) if source.neighbours is not None else None
    if source.neighbours is None or not dotted or dotted.partition(".")[0] == "torch":
        return None
    found = source.neighbours.bindings_of(dotted)
    return found if found is not None and all(isinstance(binding, ast.Name) for binding in found[1]) else None


def _is_passed_over(source: Source, node: ast.Return, function: Function, call: ast.Call) -> bool:
    """Whether a call passes another text than the one under which its function returns here: `if kind == "dev": return x`."""
    test = parent.test if isinstance(parent := source.parent(node), ast.If) and node in parent.body else None
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], ast.Eq):
        return False
    names = [parameter.arg for parameter in function.args.args]
    if not isinstance(test.left, ast.Name) or test.left.id not in names:
        return False
    expected = constant(source, test.comparators[0])
    passed = constant(source, argument(source, call, test.left.id, names.index(test.left.id)))
    return isinstance(expected, str) and isinstance(passed, str) and passed != expected


def _is_split_of_itself(source: Source, store: ast.AST, name: str) -> bool:
    """Whether an attribute gets a part of what it held before: `self.train, self.val = random_split(self.train, lengths)`."""
    statement = source.statement(store)
    value = statement.value if isinstance(statement, ast.Assign) else None
    is_part = isinstance(value, ast.Call) and source.qualified_name(value.func) in _PARTS and bool(value.args)
    return is_part and isinstance(value, ast.Call) and dotted_name(value.args[0]) == f"self.{name}"


def _is_bound_in_memory(source: Source, binding: ast.AST, depth: int) -> bool:
    """The same of a name where this node binds it, also by `train, val = random_split(tensors, ...)`, or as a parameter."""
    if isinstance(binding, ast.arg):
        given = given_to(source, binding)
        if given is None and source.neighbours is not None:
            return _is_handed_in_memory(source, binding, source.neighbours, depth)
        return bool(given) and all(is_in_memory(source, value, depth) for value in given or ())
    value = assigned_value(source, binding)
    statement = source.statement(binding) if isinstance(binding, (ast.Name, ast.Attribute)) else None
    if (
        value is None
        and isinstance(statement, ast.Assign)
        and _is_returned_in_memory(source, statement, binding, depth)
    ):
        return True
    if value is None and isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
        is_split = source.qualified_name(statement.value.func) == "torch.utils.data.random_split"
        value = statement.value if is_split else None
    elif value is None and isinstance(statement, ast.Assign):
        value = _value_in_row(statement, binding)
    return value is not None and is_in_memory(source, value, depth)


def _is_handed_in_memory(source: Source, parameter: ast.arg, neighbours: Neighbours, depth: int) -> bool:
    """Whether the files that import this one hand only tensors in memory to a parameter, as a trainer gets its data sets."""
    given = _arguments_for(source, parameter, neighbours)
    return bool(given) and all(
        value is ABSENT or (isinstance(value, ast.expr) and _is_made_in_memory(there, value, neighbours, depth))
        for there, value in given
    )


def _arguments_for(source: Source, parameter: ast.arg, neighbours: Neighbours) -> list[tuple[Source, Argument]]:
    """What files that import this one pass for a parameter, or else what the constructors of derived classes hand on."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return []
    from perfaudit.static.understanding.program_settings import name_and_place  # most files make their data themselves

    name, place = name_and_place(source, function, parameter)
    return [
        (there, argument(there, call, parameter.arg, place))
        for there in neighbours.importers_calling(name)
        for call in there.nodes(ast.Call)
        if last_name(call.func) == name
    ] or [
        (there, argument(there, call, parameter.arg, place))
        for there, call in (calls_by_derived(source, name) if function.name == "__init__" else ())
    ]


def collates_by_default(source: Source, collate: Argument) -> bool:
    """Whether a loader collates as torch does: told so, or by a parameter `collate_fn=default_collate` that nobody passes."""
    if not isinstance(collate, ast.expr):
        return collate is ABSENT
    if source.qualified_name(collate) in _DEFAULT_COLLATE:
        return True
    bindings = source.lookup(collate) if isinstance(collate, ast.Name) else []
    parameter = bindings[0] if len(bindings) == 1 else None
    function = source.enclosing(collate, *FUNCTIONS)
    if not isinstance(parameter, ast.arg) or not isinstance(function, FUNCTIONS) or source.neighbours is None:
        return False
    written = default_expression(function, parameter)
    is_default = written is not None and source.qualified_name(written) in _DEFAULT_COLLATE
    return is_default and all(v is ABSENT for _, v in _arguments_for(source, parameter, source.neighbours))


def _is_made_in_memory(there: Source, value: ast.expr, neighbours: Neighbours, depth: int) -> bool:
    """The same of what another file hands over, also by a function or a class that it imports: `load(args, mode="train")`."""
    made = assigned_once(there, value) if isinstance(value, ast.Name) else value
    if is_in_memory(there, made, depth):
        return True
    if depth and isinstance(made, ast.Attribute) and dotted_name(made.value) == "self":
        values = [assigned_value(there, store) for store in attribute_stores(there).get(made.attr, [])]
        return bool(values) and all(
            v is not None and _is_made_in_memory(there, v, neighbours, depth - 1) for v in values
        )
    dotted = there.qualified_name(made.func) if isinstance(made, ast.Call) else None
    found = neighbours.definition_of(dotted, there) if dotted and depth else None
    if found is None:
        return False
    inside, definition = found
    if isinstance(made, ast.Call) and isinstance(definition, ast.ClassDef):
        return looks_up(there, inside, definition, made)
    return _returns_in_memory(inside, definition, depth)


def _returns_in_memory(inside: Source, definition: ast.AST, depth: int) -> bool:
    """Whether a function returns nothing but samples in memory: `make_frames(features)`, a list that it fills."""
    if not isinstance(definition, FUNCTIONS):
        return False
    returned = [node.value for node in inside.nodes(ast.Return) if inside.scope(node) is definition]
    return bool(returned) and all(v is not None and is_in_memory(inside, v, depth - 1) for v in returned)


def _is_returned_in_memory(source: Source, statement: ast.Assign, binding: ast.AST, depth: int) -> bool:
    """Whether a name gets a dataset in memory of the row that a function of another file returns: `train, val = build()`."""
    target, call = statement.targets[0], statement.value
    if not isinstance(call, ast.Call) or not isinstance(target, ast.Tuple) or source.neighbours is None:
        return False
    place = next((n for n, element in enumerate(target.elts) if element is binding), None)
    found = source.neighbours.definition_of(source.qualified_name(call.func) or "")
    if place is None or found is None or not isinstance(found[1], FUNCTIONS):
        return False
    inside, function = found
    returned = [node.value for node in inside.nodes(ast.Return) if inside.scope(node) is function]
    rows = [value for value in returned if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)]
    return len(rows) == len(returned) > 0 and all(is_in_memory(inside, row.elts[place], depth) for row in rows)


def _value_in_row(statement: ast.Assign, binding: ast.AST) -> ast.expr | None:
    """What a name gets of `train, val = TensorDataset(a), TensorDataset(b)`; None where the two sides do not fit."""
    target, value = statement.targets[0], statement.value
    if not isinstance(target, (ast.Tuple, ast.List)) or not isinstance(value, (ast.Tuple, ast.List)):
        return None
    is_starred = any(isinstance(element, ast.Starred) for element in (*target.elts, *value.elts))
    if is_starred or len(target.elts) != len(value.elts):
        return None
    return next((v for t, v in zip(target.elts, value.elts, strict=True) if t is binding), None)


def _is_made_by_torch(source: Source, value: ast.expr) -> bool:
    """Whether an expression is a tensor in memory, or a list of them: `torch.randn(n, 3)`, `[torch.rand(2) for ...]`."""
    if isinstance(value, ast.ListComp):
        return _is_made_by_torch(source, value.elt)
    if isinstance(value, ast.Tuple):
        return all(_is_made_by_torch(source, element) for element in value.elts)
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        name = source.qualified_name(value.func)
        if name is not None:
            return name.startswith("torch.") and name.count(".") == 1 and name != "torch.load"
        value = value.func.value
    return False
