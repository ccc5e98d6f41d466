"""Parts of a batch: what an expression of a step takes of what a loader yields."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.generators import iterable_behind
from perfaudit.static.understanding.loaders import (
    COMPREHENSIONS,
    Calls,
    argument_for,
    given_to,
    is_handed_in,
    known_calls,
    loaders,
    passes,
    passes_side_by_side,
    perhaps_passes,
)
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import assigned_value

_VIEWS = {"view", "reshape", "squeeze", "unsqueeze", "flatten"}  # of a contiguous tensor: the same memory
_ALSO_VIEWS = _VIEWS | {"permute", "transpose", "t", "detach", "expand", "narrow"}  # the same memory, in another order
# Views whose values do not lie in memory in order, so that `.contiguous()` copies them.
_REORDERS = {"permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis", "expand", "expand_as"}
_CONVERTS = {"double", "half", "bfloat16", "int", "short", "byte", "bool", "type", "type_as"}
_COMPUTES = {
    "add",
    "sub",
    "mul",
    "div",
    "true_divide",
    "clamp",
    "round",
    "abs",
    "neg",
    "pow",
    "sqrt",
    "exp",
    "log",
    "repeat",
}
# Samples and labels mostly have these types, and the call is there to be on the safe side.
_MAY_CONVERT = {"float", "long"}
_NEW_TENSORS = {
    f"torch.{name}"
    for name in (
        *("cat", "concat", "concatenate", "stack", "hstack", "vstack", "tensor", "Tensor", "as_tensor", "from_numpy"),
        *("FloatTensor", "DoubleTensor", "LongTensor", "zeros", "ones", "full", "empty", "eye", "arange", "linspace"),
        *("rand", "randn", "randint", "randperm", "zeros_like", "ones_like", "rand_like", "randn_like", "full_like"),
    )
}
VARIABLE = "torch.autograd.Variable"
_MAPPINGS = {"munch.Munch", "easydict.EasyDict"}  # made of what their keywords give


class Part(NamedTuple):
    """A part of a batch: the loaders it may come from, the statement that takes the batch, the names on the way.

    No loaders where a training loop runs over what another file hands in.
    """

    loaders: Calls
    taken: ast.stmt
    names: tuple[str, ...]


def batch_part(source: Source, node: ast.expr, depth: int = 6) -> Part | None:
    """Where an expression is a batch of a DataLoader of this file, or something taken out of one as it is; else None."""
    node = without_variable(source, node)
    if not depth:
        return None
    if isinstance(node, ast.Subscript):
        return batch_part(source, node.value, depth - 1)
    if isinstance(node, ast.Call):
        viewed = viewed_tensor(source, node)
        return batch_part(source, viewed, depth - 1) if viewed is not None else _next_batch(source, node)
    if not isinstance(node, ast.Name):
        return None
    part = _named_part(source, node, depth)
    return part and Part(part.loaders, part.taken, (node.id, *part.names))


def viewed_tensor(source: Source, call: ast.Call) -> ast.expr | None:
    """The tensor of which a call returns the same memory: `x` of `x.view(-1)` and of `torch.unsqueeze(x, 1)`."""
    name = source.qualified_name(call.func) or ""
    if name.startswith("torch."):
        return call.args[0] if call.args and name.removeprefix("torch.") in _VIEWS else None
    if isinstance(call.func, ast.Attribute) and call.func.attr in _VIEWS:
        return call.func.value
    return None


def without_variable(source: Source, node: ast.expr) -> ast.expr:
    """What is wrapped in `Variable(...)`, which hands out the same tensor since torch 0.4; else the node."""
    while isinstance(node, ast.Call) and node.args and source.qualified_name(node.func) == VARIABLE:
        node = node.args[0]
    return node


def _named_part(source: Source, name: ast.Name, depth: int) -> Part | None:
    for ancestor in source.ancestors(name):
        if isinstance(ancestor, COMPREHENSIONS):
            for generator in ancestor.generators:
                if any(n.id == name.id for n in walk(generator.target) if isinstance(n, ast.Name)):
                    return _element(source, generator.target, generator.iter, name.id, depth)
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda)):
            break
    bound = reaching(source, name)
    parts = [_bound_part(source, binding, name.id, depth) for binding in bound]
    if not bound and (parameter := _parameter_at(source, name)) is not None:
        parts = _given_parts(source, parameter, depth)
        parts = [part for part in parts if part is not None and _is_of_training(source, part)] or parts
    found = [part for part in parts if part is not None]
    if not found or len(found) < len(parts):
        return None
    names = dict.fromkeys(each for part in found for each in part.names)
    return Part(tuple(call for part in found for call in part.loaders), found[0].taken, tuple(names))


def _is_of_training(source: Source, part: Part) -> bool:
    return any(step.loop is part.taken for step in step_loops(source))


def _parameter_at(source: Source, name: ast.Name) -> ast.arg | None:
    """The parameter that a name stands for where nothing has bound it anew before."""
    given = [binding for binding in source.lookup(name) if isinstance(binding, ast.arg)]
    here = source.span(source.statement(name)).start
    is_anew = any(source.span(b).start < here for b in source.lookup(name) if not isinstance(b, ast.arg))
    return given[0] if len(given) == 1 and not is_anew else None


def _given_parts(source: Source, parameter: ast.arg, depth: int) -> list[Part | None]:
    """What the calls in this file of a function hand to its parameter; none for a method that others may call."""
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS):
        return []
    given = [argument_for(source, call, function, parameter) for call in callers(source, function)]
    return [batch_part(source, value, depth - 1) if isinstance(value, ast.expr) else None for value in given]


def _bound_part(source: Source, binding: ast.Name, name: str, depth: int) -> Part | None:
    """What the name is where this node binds it."""
    statement = source.statement(binding)
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        known = (*passes(source), *passes_side_by_side(source), *perhaps_passes(source))
        own = [item for item in known if item.loop is statement]
        if not own:
            return _element(source, statement.target, statement.iter, name, depth)
        of_batch = next((item for item in own if any(node is binding for node in walk(item.batch))), None)
        return Part(of_batch.loaders, statement, ()) if of_batch is not None else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        place = next((n for n, element in enumerate(target.elts) if element is binding), None)
        return batch_part(source, value.elts[place], depth - 1) if place is not None else None
    return batch_part(source, value, depth - 1)


def _element(source: Source, target: ast.expr, over: ast.expr, name: str, depth: int) -> Part | None:
    """What a loop over the batch itself yields: `for t in batch`, `for k, v in batch.items()`."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and not over.args:
        is_value = isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[1], ast.Name)
        if over.func.attr == "items" and isinstance(target, ast.Tuple) and is_value:
            value = target.elts[1]
            is_asked = isinstance(value, ast.Name) and value.id == name
            return _part_of_mapping(source, over.func.value, depth - 1) if is_asked else None
        return _part_of_mapping(source, over.func.value, depth - 1) if over.func.attr == "values" else None
    return batch_part(source, over, depth - 1) if isinstance(over, (ast.Name, ast.Subscript)) else None


def _part_of_mapping(source: Source, node: ast.expr, depth: int) -> Part | None:
    """What the values of a batch that is a mapping are, or those of a dict that is made of one batch: `dict(x=x, y=y)`.

    Such a dict may hold tensors that the host made as well. The names are those of all its values.
    """
    values = _values_put_in(source, node)
    if not isinstance(node, ast.Name) or not values:
        return batch_part(source, node, depth)
    parts: list[Part] = []
    names = [node.id]
    for value in values:
        part = batch_part(source, value, depth)
        if part is not None:
            parts.append(part)
            names += part.names
        elif is_made_on_host(source, value):
            names += _names_of_parts(source, value)
        else:
            return None
    if not parts or any(part.taken is not parts[0].taken for part in parts):
        return None
    loaders_of_all = tuple(call for part in parts for call in part.loaders)
    return Part(loaders_of_all, parts[0].taken, tuple(dict.fromkeys(names)))


def _values_put_in(source: Source, node: ast.expr) -> list[ast.expr]:
    """The values of which a dict is made, `dict(x=x, y=y)` or `{"x": x}`; none where more may be put in before it is read."""
    bound = reaching(source, node) if isinstance(node, ast.Name) else []
    made = assigned_value(source, bound[0]) if len(bound) == 1 else None
    if not isinstance(node, ast.Name) or made is None:
        return []
    between = (use for use in source.uses_of(bound[0], node.id) if source.span(made).end <= source.span(use).start)
    if not all(_reads_mapping(source, use) for use in between if source.span(use).start < source.span(node).start):
        return []
    if isinstance(made, ast.Dict):
        return made.values if None not in made.keys else []
    is_by_name = isinstance(made, ast.Call) and not made.args and _makes_mapping(source, made.func)
    keywords = made.keywords if isinstance(made, ast.Call) and is_by_name else []
    return [keyword.value for keyword in keywords] if all(keyword.arg is not None for keyword in keywords) else []


def _makes_mapping(source: Source, function: ast.expr) -> bool:
    """Whether a function makes a mapping of its keywords: `dict`, or `Munch` of a library."""
    if isinstance(function, ast.Name) and function.id == "dict":
        return not source.lookup(function)
    return source.qualified_name(function) in _MAPPINGS


def _reads_mapping(source: Source, use: ast.Name) -> bool:
    """Whether a name is only asked for what the mapping holds: `batch["x"]`, `batch.keys()`."""
    parent = source.parent(use)
    if isinstance(parent, ast.Subscript):
        return parent.value is use and isinstance(parent.ctx, ast.Load)
    return isinstance(parent, ast.Attribute) and parent.attr in ("items", "values", "keys", "get")


def _names_of_parts(source: Source, node: ast.expr, depth: int = 3) -> tuple[str, ...]:
    """The names of parts of batches that an expression is computed of, also through variables: it may share their memory."""
    found: tuple[str, ...] = ()
    for name in (each for each in walk(node) if isinstance(each, ast.Name)):
        part = batch_part(source, name)
        if part is not None:
            found += part.names
        elif depth:
            values = [assigned_value(source, binding) for binding in reaching(source, name)]
            found += tuple(n for v in values if v is not None for n in _names_of_parts(source, v, depth - 1))
    return found


def _next_batch(source: Source, call: ast.Call) -> Part | None:
    """`next(batches)` where `batches` is always `iter(loader)`."""
    taken_from = iterator_asked(call)
    if taken_from is None:
        return None
    calls = _what_is_iterated(source, taken_from)
    if calls is None and any(call is taken for taken in unseen_takes(source)):
        return Part((), source.statement(call), ())
    return Part(calls, source.statement(call), ()) if calls else None


def iterator_asked(call: ast.Call) -> ast.expr | None:
    """`it` of `next(it)`, `it.__next__()` and `it.next()`."""
    if isinstance(call.func, ast.Name):
        return call.args[0] if call.func.id == "next" and len(call.args) == 1 else None
    is_method = isinstance(call.func, ast.Attribute) and call.func.attr in ("__next__", "next") and not call.args
    return call.func.value if is_method and isinstance(call.func, ast.Attribute) else None


def _what_is_iterated(source: Source, iterator: ast.expr | None, depth: int = 3) -> Calls | None:
    """The loaders that an expression goes through by `iter(loader)`, also where a function is handed that.

    Of several that are taken side by side, and of those that a generator of the project passes on, again and again.
    """
    if isinstance(iterator, ast.Call):
        name = iterator.func.id if isinstance(iterator.func, ast.Name) else ""
        if name in ("iter", "enumerate") and iterator.args:  # of the pairs that come of it, the number is no tensor
            return _loaders_passed_on(source, iterator.args[0], depth)
        if name == "zip" and iterator.args and depth:
            return known_calls([_loaders_passed_on(source, part, depth) for part in iterator.args])
        return _loaders_passed_on(source, iterator, depth) if iterable_behind(source, iterator) is not None else None
    values: list[ast.expr | None] = []
    if isinstance(iterator, ast.Attribute) and is_own(iterator) and depth:
        values += own_values(source, iterator, iterator.attr)
        return known_calls([_what_is_iterated(source, value, depth - 1) for value in values])
    if not isinstance(iterator, ast.Name) or not depth:
        return None
    for binding in source.lookup(iterator):
        given = given_to(source, binding) if isinstance(binding, ast.arg) else [_value_bound(source, binding)]
        values += [None] if given is None else given
    return known_calls([_what_is_iterated(source, value, depth - 1) for value in values])


def _loaders_passed_on(source: Source, node: ast.expr, depth: int) -> Calls | None:
    """The loaders that an iterable is, or that it is an iterator over."""
    behind = iterable_behind(source, node) if isinstance(node, ast.Call) and depth else None
    if behind is not None:
        return _loaders_passed_on(source, behind, depth - 1)
    own = loaders(source, node)
    return _what_is_iterated(source, node, depth - 1) if own is None and depth else own


@remember
def unseen_takes(source: Source) -> tuple[ast.Call, ...]:
    """The `next(batches)` that show no loader, in training loops and in the `__next__` of a class that hands batches to others.

    `batches` is an attribute that a function of another file gives, or an iterator over a parameter.
    """
    iterators = [method for method in source.definitions if method.name == "__next__"]
    inside = {id(node) for around in (*(step.loop for step in step_loops(source)), *iterators) for node in walk(around)}
    asked = ((call, iterator_asked(call)) for call in source.nodes(ast.Call) if id(call) in inside)
    return tuple(
        call
        for call, taken_from in asked
        if taken_from is not None
        and ((is_own(taken_from) and _is_made_elsewhere(source, taken_from)) or _goes_through_given(source, taken_from))
    )


def _value_bound(source: Source, binding: ast.AST) -> ast.expr | None:
    """What an assignment gives a name, also one of several: `first, second = iter(a), iter(b)`."""
    targets = source.parent(binding)
    statement = source.parent(targets) if isinstance(targets, ast.Tuple) else None
    if not isinstance(statement, ast.Assign) or not isinstance(targets, ast.Tuple):
        return assigned_value(source, binding)
    values = statement.value.elts if isinstance(statement.value, ast.Tuple) else []
    if len(values) != len(targets.elts) or any(isinstance(e, ast.Starred) for e in (*targets.elts, *values)):
        return None
    return values[next(n for n, element in enumerate(targets.elts) if element is binding)]


def _goes_through_given(source: Source, iterator: ast.expr) -> bool:
    """Whether a name, or an attribute of `self`, is always `iter(loader)` or `enumerate(loader)` of a parameter."""
    values = [_value_bound(source, b) for b in source.lookup(iterator)] if isinstance(iterator, ast.Name) else []
    if isinstance(iterator, ast.Attribute) and is_own(iterator):
        values = own_values(source, iterator, iterator.attr)
    over = [
        value.args[0]
        for value in values
        if isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id in ("iter", "enumerate")
        and value.args
    ]
    return 0 < len(over) == len(values) and all(
        isinstance(node, (ast.Name, ast.Attribute)) and is_handed_in(source, node) and loaders(source, node) is None
        for node in over
    )


def _is_made_elsewhere(source: Source, node: ast.expr) -> bool:
    values = own_values(source, node, node.attr) if isinstance(node, ast.Attribute) else []
    made = [value.func for value in values if isinstance(value, ast.Call)]
    modules = [source.aliases.get(func.id, "") for func in made if isinstance(func, ast.Name)]
    return (
        bool(values)
        and len(modules) == len(values)
        and all(
            module and source.neighbours is not None and source.neighbours.is_own_module(module) for module in modules
        )
    )


def reaching(source: Source, name: ast.Name) -> list[ast.Name]:
    """The bindings of a name of which one surely holds where it is read; none where branches or loops leave a doubt.

    Several only behind `try: batch = next(batches)` with an `except` that binds the name as well.
    """
    here = source.statement(name)
    bindings = [b for b in source.lookup(name) if isinstance(b, ast.Name)]
    before = [b for b in bindings if source.span(b).start < source.span(here).start]
    before = [b for b in before if not _is_in_other_branch(source, b, here)]
    if not before:
        return []
    last = max(before, key=lambda b: source.span(b).start)
    statement = source.statement(last)
    around = [here, *source.ancestors(here)]
    found = [last]
    block = source.parent(statement)
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        block = statement
    elif isinstance(block, ast.ExceptHandler) and isinstance(tried := source.parent(block), ast.Try):
        found += [b for b in before if source.parent(source.statement(b)) is tried]
        is_whole = len(tried.handlers) == 1 and len(found) == 2 and not tried.orelse
        statement, block = tried, source.parent(tried) if is_whole else None
    if not any(item is block for item in around) or _set_anew_in_loop(source, here, statement, bindings):
        return []
    return found


def _is_in_other_branch(source: Source, binding: ast.AST, here: ast.AST) -> bool:
    """Whether a binding stands in one branch of an `if` and a statement in the other one: `if old: x = ...`, `else: y = x`."""
    branches = _branches(source, here)
    return any(branches.get(test, is_then) is not is_then for test, is_then in _branches(source, binding).items())


def _branches(source: Source, node: ast.AST) -> dict[int, bool]:
    """The `if` statements around a node by id, and whether it stands in the first branch of each."""
    found = {}
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.If):
            found[id(ancestor)] = any(item is child for item in ancestor.body)
        child = ancestor
    return found


def _set_anew_in_loop(source: Source, here: ast.stmt, statement: ast.stmt, bindings: list[ast.Name]) -> bool:
    """Whether a loop between the binding and its use binds the name again, elsewhere than in the using statement."""
    for ancestor in source.ancestors(here):
        if ancestor is statement or ancestor is source.parent(statement):
            return False
        if isinstance(ancestor, LOOPS):
            inside = [b for b in bindings if any(a is ancestor for a in source.ancestors(b))]
            if any(source.statement(b) is not here for b in inside):
                return True
    return False


def is_made_on_host(source: Source, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is, or may well be, a tensor that the training process made in host memory itself.

    Converted, joined, computed or filled there: nobody has page-locked its memory, whatever the loader did with the
    batch. `.type(torch.FloatTensor)` may find nothing to do; who writes it expects that it does.
    """
    if isinstance(node, ast.BinOp):
        return True
    if not depth:
        return False
    if isinstance(node, ast.Subscript):
        return is_made_on_host(source, node.value, depth - 1)
    if isinstance(node, ast.Call):
        name = source.qualified_name(node.func) or ""
        if name == VARIABLE:
            return bool(node.args) and is_made_on_host(source, node.args[0], depth - 1)
        if name in _NEW_TENSORS:
            return not any(keyword.arg in ("pin_memory", None) for keyword in node.keywords)
        if not isinstance(node.func, ast.Attribute):
            return False
        if node.func.attr == "contiguous" and (_is_reordered(source, node.func.value) or _is_turned(source, node)):
            return True
        if node.func.attr in _ALSO_VIEWS | _MAY_CONVERT | {"contiguous"}:
            return is_made_on_host(source, node.func.value, depth - 1)
        return node.func.attr in _CONVERTS | _COMPUTES
    if not isinstance(node, ast.Name):
        return False
    values = [assigned_value(source, binding) for binding in reaching(source, node)]
    return bool(values) and all(value is not None and is_made_on_host(source, value, depth - 1) for value in values)


def _is_reordered(source: Source, node: ast.expr, depth: int = 6) -> bool:
    """Whether an expression is a view in another order than that of the memory: `x.transpose(1, 0)`, `x.T`, `x[:, 0]`."""
    if not depth:
        return False
    if isinstance(node, ast.Subscript):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        is_whole_first = bool(parts) and (isinstance(parts[0], ast.Slice) or _is_constant(parts[0], ...))
        picks = [p for p in parts[1:] if not _is_constant(p, None) and not _is_full_slice(p)]
        return bool(is_whole_first and picks) or _is_reordered(source, node.value, depth - 1)
    if isinstance(node, ast.Attribute):
        return node.attr in ("T", "mT")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        is_view = node.func.attr in _ALSO_VIEWS | _MAY_CONVERT
        return node.func.attr in _REORDERS or (is_view and _is_reordered(source, node.func.value, depth - 1))
    values = [assigned_value(source, b) for b in reaching(source, node)] if isinstance(node, ast.Name) else []
    return bool(values) and all(value is not None and _is_reordered(source, value, depth - 1) for value in values)


def _is_turned(source: Source, call: ast.Call) -> bool:
    """Whether a call asks for channels last: `x.contiguous(memory_format=torch.channels_last)`."""
    given = [source.qualified_name(keyword.value) or "" for keyword in call.keywords]
    return any(name.startswith("torch.channels_last") for name in given)


def _is_constant(node: ast.expr, value: object) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _is_full_slice(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and node.lower is None and node.upper is None and node.step is None


def holds_tensors(source: Source, node: ast.expr) -> bool:
    """Whether an expression is a list of nothing but tensors made in host memory: an empty one, filled by `append`, or its like.

    A loader that pins goes through lists.
    """
    if isinstance(node, ast.ListComp):
        return is_made_on_host(source, node.elt)
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    value = _value_bound(source, bindings[0]) if len(bindings) == 1 else None
    if isinstance(value, ast.ListComp):
        return is_made_on_host(source, value.elt)
    if not isinstance(value, ast.List) or value.elts or not isinstance(node, ast.Name):
        return False
    methods = [source.parent(use) for use in source.uses_of(bindings[0], node.id) if use is not node]
    calls = [source.parent(method) for method in methods if isinstance(method, ast.Attribute)]
    put = [call for call in calls if isinstance(call, ast.Call) and last_name(call.func) == "append" and call.args]
    return 0 < len(put) == len(methods) and all(is_made_on_host(source, call.args[0]) for call in put)
