"""Places that no torch of today gets to, since the program raises before them: what is slow there costs nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from perfaudit.expressions import regex
from perfaudit.static.old_torch import indexed_numbers, raises_since_1_1
from perfaudit.static.source import FUNCTIONS, LOOPS, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.elsewhere import called_elsewhere
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.opaque import made_of
from perfaudit.static.understanding.step_loops import StepLoop
from perfaudit.static.understanding.values import enclosing_function

_CALLS = 3  # functions gone outwards from a place to what raises before it
_OF_DALI = regex(r"(?<![a-z])dali", re.IGNORECASE)  # its iterators have a `next`
_BRANCHES = (ast.If, ast.Try, ast.TryStar, ast.Match)
_LATER = (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.ExceptHandler, ast.match_case)


def raises_today(source: Source, place: ast.AST) -> bool:
    """Whether no torch since 1.13 gets to a place, or past it for a second time.

    Its file is for a torch from before 1.1; or what runs before it in any case, in its function or in those that call this
    one, indexes an array of a loss or asks an iterator of a loader for `next`: `iter(loader).next()`.
    """
    if raises_since_1_1(source):
        return True
    raising = _raising(source)
    return bool(raising) and _is_behind(source, place, raising, _CALLS)


def never_steps(source: Source, loops: Sequence[StepLoop]) -> bool:
    """Whether no torch of today gets past the backward pass of any of these training loops."""
    roots = [root for step in loops for root in (step.loop, *step.helpers)]
    passes = [call for call in backward_calls(source) if any(lies_in(call, root) for root in roots)]
    return bool(passes) and all(raises_today(source, call) for call in passes)


def training_raises(source: Source, trainings: Sequence[ast.Call]) -> bool:
    """Whether no torch of today gets to any of the calls by which a script trains in other files, or to the end of that.

    What is called before each in any case, a method of the same object or any other function of another file, asks the iterator
    of a loader for `next`, or indexes a loss; or the training does.
    """
    return bool(trainings) and all(
        any(
            (call is training or _runs_before(source, call, training)) and _raises_elsewhere(source, call)
            for call in _calls_around(source, training)
        )
        for training in trainings
    )


def _calls_around(source: Source, training: ast.Call) -> list[ast.Call]:
    function = enclosing_function(source, training)
    calls = [c for c in source.nodes(ast.Call) if c.lineno <= training.lineno]
    return [call for call in calls if enclosing_function(source, call) is function]


def _raises_elsewhere(source: Source, call: ast.Call) -> bool:
    """Whether a call runs a function of another file that raises in any case."""
    there = called_elsewhere(source, call)
    if there is None or there.source is source:
        return False
    return any(_runs_in(there.source, node, [there.function]) is not None for node in _raising(there.source))


@remember
def _raising(source: Source) -> tuple[ast.expr, ...]:
    """What raises where it is run, with the calls of functions of the file that run it in any case."""
    pending: list[ast.expr] = [*indexed_numbers(source), *_asks_for_next(source)]
    found: list[ast.expr] = []
    known: set[int] = set()
    while pending:
        found.append(node := pending.pop())
        function = enclosing_function(source, node)
        if function is not None and id(function) not in known and _runs_in(source, node, [function]):
            known.add(id(function))
            pending += callers(source, function)
    return tuple(found)


def _is_behind(source: Source, place: ast.AST, raising: tuple[ast.expr, ...], calls: int) -> bool:
    function = enclosing_function(source, place)
    inside = [node for node in raising if enclosing_function(source, node) is function]
    if any(_runs_before(source, node, place) for node in inside):
        return True
    uses = callers(source, function) if function is not None and calls else ()
    if not uses or (source.neighbours is not None and source.neighbours.is_imported()):
        return False  # other files may call it as well
    return all(_is_behind(source, use, raising, calls - 1) for use in uses)


def _runs_before(source: Source, node: ast.expr, place: ast.AST) -> bool:
    """Whether a part of a function runs before a place in it wherever that is reached, or on the same turn of a loop."""
    around = [place, *source.ancestors(place)]
    common = _runs_in(source, node, around)
    if common is None:
        return False
    ours, theirs = _child_of(source, node, common), _child_of(source, place, common)
    if isinstance(common, _BRANCHES) and isinstance(ours, ast.stmt) and not _in_one_block(source, ours, theirs):
        return False
    function = enclosing_function(source, place)
    if common is not function and source.enclosing(ours, *LOOPS, within=function) is not None:
        return True
    return (node.lineno, node.col_offset) < (getattr(place, "lineno", 0), getattr(place, "col_offset", 0))


def _runs_in(source: Source, node: ast.expr, around: Sequence[ast.AST]) -> ast.AST | None:
    """The first of these around a node, where the node runs whenever that does, and nothing there catches what it raises."""
    known = {id(one) for one in around}
    child: ast.AST = node
    for ancestor in source.ancestors(node):
        if id(ancestor) in known:
            return ancestor
        is_choice = isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test
        is_later = isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]
        is_tried_again = isinstance(ancestor, (ast.Try, ast.TryStar, ast.ExceptHandler)) and _raises_again(
            source, ancestor
        )
        if is_choice or is_later or (not is_tried_again and (isinstance(ancestor, _LATER) or _may_catch(ancestor))):
            return None
        child = ancestor
    return None


def _raises_again(source: Source, node: ast.AST) -> bool:
    """Whether what a `try` catches raises once more in each handler: `except: batches = iter(loader); x = batches.next()`."""
    tried = source.parent(node) if isinstance(node, ast.ExceptHandler) else node
    return id(tried) in _tried_again(source)


@remember
def _tried_again(source: Source) -> frozenset[int]:
    direct = [*indexed_numbers(source), *_asks_for_next(source)]
    statements = {id(source.statement(node)): node for node in direct}
    found = set()
    for tried in (node for node in source.nodes(ast.Try) if statements and node.handlers):
        blocks = [tried.body, *(handler.body for handler in tried.handlers)]
        if all(any(id(statement) in statements for statement in block) for block in blocks):
            found.add(id(tried))
    return frozenset(found)


def _may_catch(node: ast.AST) -> bool:
    """Whether a `try` catches more than the end of an iterator."""
    handlers = node.handlers if isinstance(node, (ast.Try, ast.TryStar)) else []
    return any(handler.type is None or last_name(handler.type) != "StopIteration" for handler in handlers)


def _child_of(source: Source, node: ast.AST, ancestor: ast.AST) -> ast.AST:
    """What stands right in an ancestor on the way to a node; the node where it is that itself."""
    return next((child for outer, child in source.way_out(node) if outer is ancestor), node)


def _in_one_block(source: Source, first: ast.stmt, second: ast.AST) -> bool:
    return isinstance(second, ast.stmt) and source.block(first) is source.block(second)


# ---- iterators of loaders that are asked for `next` ----------------------------------------------------------------


def _asks_for_next(source: Source) -> list[ast.Call]:
    """`iter(loader).next()` and `loader.__iter__().next()`, also of a name that such an iterator was bound to.

    None where the file has an iterator of its own, or loads by DALI.
    """
    if ".next()" not in source.text or _OF_DALI.search(source.text):
        return []
    if any(definition.name == "next" for definition in source.definitions):
        return []
    return [call for call in source.calls(".next") if _asks_iterator_of_loader(source, call)]


def _asks_iterator_of_loader(source: Source, call: ast.Call) -> bool:
    asked = call.func.value if isinstance(call.func, ast.Attribute) else call
    if isinstance(asked, ast.Name):
        bound = [source.parent(binding) for binding in source.lookup(asked)]
        made = [b.value for b in bound if isinstance(b, ast.Assign)]
        return len(made) == len(bound) > 0 and all(_is_iterator_of_loader(source, value) for value in made)
    return _is_iterator_of_loader(source, asked)


def _is_iterator_of_loader(source: Source, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    is_built_in = isinstance(node.func, ast.Name) and node.func.id == "iter" and len(node.args) == 1
    over = node.args[0] if is_built_in else node.func.value if isinstance(node.func, ast.Attribute) else node
    if not (is_built_in or last_name(node.func) == "__iter__") or "loader" not in last_name(over).lower():
        return False
    return not any(_is_of_another_class(value) for value in made_of(source, over))


def _is_of_another_class(made: ast.expr) -> bool:
    """Whether a loader is an object of a class that is none of torch's loaders, by its name."""
    name = last_name(made.func) if isinstance(made, ast.Call) else ""
    return name[:1].isupper() and not name.endswith("DataLoader")
