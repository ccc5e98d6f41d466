"""Parts of a batch: what an expression of a step takes of what a loader yields."""

from __future__ import annotations

import ast

from perfaudit.records import NamedTuple
from perfaudit.static.checks.transfer_blocks_host.batch_iterators import iterator_asked, unseen_takes, what_is_iterated
from perfaudit.static.checks.transfer_blocks_host.host_tensors import is_made_on_host
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.loaders import (
    COMPREHENSIONS,
    Calls,
    argument_for,
    passes,
    passes_side_by_side,
    perhaps_passes,
)
from perfaudit.static.understanding.reaching import reaching
from perfaudit.static.understanding.same_memory import viewed_tensor, without_variable
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import assigned_value

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
    calls = what_is_iterated(source, taken_from)
    if calls is None and any(call is taken for taken in unseen_takes(source)):
        return Part((), source.statement(call), ())
    return Part(calls, source.statement(call), ()) if calls else None
