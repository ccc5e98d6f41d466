"""The forward pass and the loss of a loop that is written out, put under a context such as autocast.

As in `static.edit`, the verb returns the edits, or None where it cannot be done without a doubt.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence

from perfaudit.records import record
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, Source

# Methods of a model that compute nothing: a statement that only calls one of them is no forward pass.
_OTHER = {"train", "eval", "zero_grad", "to", "cuda", "cpu", "parameters", "named_parameters", "state_dict", "modules"}


@record(frozen=True, slots=True)
class Begun:
    """A call of `backward`, and how its function calls the models.

    names: under which it knows them ("model", "self.model"). forwards: lines at which models were seen to run, in functions that
    it calls, too. others: lines at which it calls functions with a backward pass of their own.
    """

    call: ast.Call
    names: frozenset[str] = frozenset()
    forwards: frozenset[int] = frozenset()
    others: frozenset[int] = frozenset()


def put_forwards_under(
    source: Source, backwards: Sequence[Begun], header: str, undone: Collection[int] = ()
) -> tuple[Edits, ast.stmt] | None:
    """Put what gives the loss of each backward pass, from a model's call on, under `header`; the first of these statements, too.

    undone: lines at which what the header does is undone, as an autocast that is off; None where one lies in these statements.

    Losses that are given before the first of several backward passes are put there together. A backward pass may be in a branch
    of an `if` behind these statements.
    None where a call and the backward pass are no consecutive statements of one block but for that, or where nothing in between
    gives what the backward pass begins with.
    """
    regions: list[_Region] = []
    for begun in sorted(backwards, key=lambda each: (each.call.lineno, each.call.col_offset)):
        last = source.statement(begun.call)
        if _runs_a_model(source, last, begun):
            return None
        place = _behind_its_loss(source, last, begun)
        if place is not None and (region := _own_region(source, place, last, begun)) is not None:
            if not regions or region.statements[0] is not regions[-1].statements[0]:  # two branches of one `if`
                regions.append(region)
        elif not _joins(source, last, regions):
            return None
    found = [edit.wrap_block(source, region.statements, header) for region in regions]
    if any(_has_lines(statement, undone) for region in regions for statement in region.statements):
        return None
    if not found or any(edits is None for edits in found):
        return None
    return tuple(each for edits in found if edits for each in edits), regions[0].statements[0]


@record(slots=True)
class _Region:
    """Statements of a block that are put under the header, and those behind them, up to their backward pass."""

    statements: list[ast.stmt]
    behind: list[ast.stmt]


def _behind_its_loss(source: Source, last: ast.stmt, begun: Begun) -> ast.stmt | None:
    """The statement with a backward pass, or the `if` around it in whose branch nothing runs a model; None without one.

    Other statements that end a part of a step are not left.
    """
    place = last
    while True:
        earlier = source.before(place)
        if any(_runs_a_model(source, each, begun) for each in earlier[_part_begins(earlier, begun) :]):
            return place
        outer = source.parent(place)
        if not isinstance(outer, ast.If) or _part_begins(earlier, begun) or _runs_a_model(source, outer.test, begun):
            return None
        if any(not _only_scales(earlier[at]) for at in _given_at(source, earlier, last)):
            return None
        place = outer


def _only_scales(statement: ast.stmt) -> bool:
    """Whether a statement makes a loss of the loss alone: `loss = loss / steps`, `loss = loss.mean()`."""
    if not isinstance(statement, (ast.Assign, ast.AugAssign)):
        return False
    given = _written_name(statement.target if isinstance(statement, ast.AugAssign) else statement.targets[0])
    calls = (node for node in ast.walk(statement.value) if isinstance(node, ast.Call))
    if any(not isinstance(call.func, ast.Attribute) or _written_name(call.func.value) != given for call in calls):
        return False
    return isinstance(statement, ast.AugAssign) or given in map(_written_name, ast.walk(statement.value))


def _own_region(source: Source, place: ast.stmt, last: ast.stmt, begun: Begun) -> _Region | None:
    """What lies between the backward pass or the update before and this one: None where it does not give the loss of a model.

    place: the backward pass, or the `if` around it.
    """
    earlier = source.before(place)
    earlier = earlier[_part_begins(earlier, begun) :]
    calls = [at for at, statement in enumerate(earlier) if _runs_a_model(source, statement, begun)]
    given = _given_at(source, earlier, last)
    if not calls or not given or given[-1] < calls[0]:
        return None
    return _Region(earlier[calls[0] : given[-1] + 1], earlier[given[-1] + 1 :])


def _part_begins(earlier: list[ast.stmt], begun: Begun) -> int:
    """Where among statements the part of a step begins that comes last."""
    return next((at + 1 for at in reversed(range(len(earlier))) if _ends_a_part(earlier[at], begun.others)), 0)


def _joins(source: Source, last: ast.stmt, regions: list[_Region]) -> bool:
    """Whether the region before is of the same block and gives this loss too, or can be made to."""
    earlier, region = source.before(last), regions[-1] if regions else None
    if region is None or all(each is not region.statements[0] for each in earlier):
        return False
    together = [*region.statements, *region.behind]
    begin = next(at for at, each in enumerate(earlier) if each is together[0])
    if _given_at(source, earlier[begin + len(together) :], last) or not (given := _given_at(source, together, last)):
        return False
    end = max(len(region.statements), given[-1] + 1)
    region.statements, region.behind = together[:end], together[end:]
    return True


def _given_at(source: Source, statements: list[ast.stmt], backward: ast.stmt) -> list[int]:
    """Which of these statements give a value to something that a backward pass begins with."""
    begun_with = {_written_name(node) for node in ast.walk(backward) if isinstance(node, (ast.Name, ast.Attribute))} - {
        ""
    }
    return [at for at, statement in enumerate(statements) if begun_with & _names_given(source, statement)]


def _ends_a_part(statement: ast.stmt, others: Collection[int]) -> bool:
    """Whether there is a backward pass in a statement, or it is an update: `optimizer.step()`, and no `env.step(action)`."""
    if _has_lines(statement, others):
        return True
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        is_update = method == "step" and isinstance(statement, ast.Expr) and call is statement.value and not call.args
        if method == "backward" or is_update:
            return True
    return False


def _has_lines(node: ast.stmt | ast.expr, lines: Collection[int]) -> bool:
    return any(node.lineno <= line <= (node.end_lineno or node.lineno) for line in lines)


def enclosing_names(source: Source, call: ast.Call) -> set[tuple[str, int]]:
    """The functions around a call, by their last name and where their code begins; they know each other's names."""
    around = [each for each in source.ancestors(call) if isinstance(each, FUNCTIONS)]
    return {(each.name, edit.first_line(each)) for each in around}


def _runs_a_model(source: Source, statement: ast.stmt | ast.expr, begun: Begun) -> bool:
    """Whether a model was seen to run in a statement, or it calls one, a method of it that computes, or hands it to a function.

    Whoever hands it to a function and takes nothing back computes no loss: `set_requires_grad(model, False)`.
    """
    if _has_lines(statement, begun.forwards):
        return True
    names = begun.names
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        if source.enclosing(call, *FUNCTIONS, ast.Lambda, within=statement) is not None:
            continue
        called = _written_name(call.func)
        owner, _, method = called.rpartition(".")
        if called in names or (owner in names and method not in _OTHER):
            return True
        if isinstance(statement, ast.Expr) and call is statement.value:
            continue
        if any(_written_name(value) in names for value in (*call.args, *(each.value for each in call.keywords))):
            return True
    return False


def _written_name(node: ast.AST) -> str:
    """A name, with attributes or without, as it is written; "" for anything else."""
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def _names_given(source: Source, statement: ast.stmt) -> set[str]:
    """Names that a statement gives a value, in its own scope, and attributes as they are written: `self.loss`."""
    scope = source.scope(statement)
    names = [node for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute))]
    stored = [node for node in names if not isinstance(node.ctx, ast.Load) and source.scope(node) is scope]
    return {_written_name(node) for node in stored}
