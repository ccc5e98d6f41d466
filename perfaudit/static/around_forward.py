"""The forward pass and the loss of a loop that is written out, put under a context such as autocast.

As in `static.edit`, the verb returns the edits, or None where it cannot be done without a doubt.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, Source

# Methods of a model that compute nothing: a statement that only calls one of them is no forward pass.
_OTHER = {"train", "eval", "zero_grad", "to", "cuda", "cpu", "parameters", "named_parameters", "state_dict", "modules"}


def put_forwards_under(
    source: Source, backwards: Sequence[tuple[ast.Call, Collection[str]]], header: str
) -> tuple[Edits, ast.stmt] | None:
    """Put what gives the loss of each backward pass, from a model's call on, under `header`; the first of these statements, too.

    backwards: each call of `backward`, with the names under which its function knows the models ("model", "self.model"). Losses
    that are given before the first of several backward passes are put there together.
    None where a call and the backward pass are no consecutive statements of one block, or where nothing in between gives what
    the backward pass begins with.
    """
    regions: list[_Region] = []
    for call, names in sorted(backwards, key=lambda each: (each[0].lineno, each[0].col_offset)):
        last = source.statement(call)
        if _runs_a_model(source, last, names):
            return None
        if (region := _own_region(source, last, names)) is not None:
            regions.append(region)
        elif not _joins(source, last, regions):
            return None
    found = [edit.wrap_block(source, region.statements, header) for region in regions]
    if not found or any(edits is None for edits in found):
        return None
    return tuple(each for edits in found if edits for each in edits), regions[0].statements[0]


@dataclass(slots=True)
class _Region:
    """Statements of a block that are put under the header, and those behind them, up to their backward pass."""

    statements: list[ast.stmt]
    behind: list[ast.stmt]


def _own_region(source: Source, last: ast.stmt, names: Collection[str]) -> _Region | None:
    """What lies between the backward pass or the update before and this one: None where it does not give the loss of a model."""
    earlier = source.before(last)
    limit = next((at + 1 for at in reversed(range(len(earlier))) if _ends_a_part(earlier[at])), 0)
    earlier = earlier[limit:]
    calls = [at for at, statement in enumerate(earlier) if _runs_a_model(source, statement, names)]
    given = _given_at(source, earlier, last)
    if not calls or not given or given[-1] < calls[0]:
        return None
    return _Region(earlier[calls[0] : given[-1] + 1], earlier[given[-1] + 1 :])


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
    begun_with = {_written(node) for node in ast.walk(backward) if isinstance(node, (ast.Name, ast.Attribute))} - {""}
    return [at for at, statement in enumerate(statements) if begun_with & _names_given(source, statement)]


def _ends_a_part(statement: ast.stmt) -> bool:
    """Whether there is a backward pass in a statement, or it is an update: `optimizer.step()`, and no `env.step(action)`."""
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        is_update = method == "step" and isinstance(statement, ast.Expr) and call is statement.value and not call.args
        if method == "backward" or is_update:
            return True
    return False


def enclosing_names(source: Source, call: ast.Call) -> set[tuple[str, int]]:
    """The functions around a call, by their last name and where their code begins; they know each other's names."""
    around = [each for each in source.ancestors(call) if isinstance(each, FUNCTIONS)]
    return {(each.name, edit.first_line(each)) for each in around}


def _runs_a_model(source: Source, statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement calls one of these names, a method of it that computes, or hands it to a function.

    Whoever hands it to a function and takes nothing back computes no loss: `set_requires_grad(model, False)`.
    """
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        if source.enclosing(call, *FUNCTIONS, ast.Lambda, within=statement) is not None:
            continue
        called = _written(call.func)
        owner, _, method = called.rpartition(".")
        if called in names or (owner in names and method not in _OTHER):
            return True
        if isinstance(statement, ast.Expr) and call is statement.value:
            continue
        if any(_written(value) in names for value in (*call.args, *(each.value for each in call.keywords))):
            return True
    return False


def _written(node: ast.AST) -> str:
    """A name, with attributes or without, as it is written; "" for anything else."""
    return ast.unparse(node) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def _names_given(source: Source, statement: ast.stmt) -> set[str]:
    """Names that a statement gives a value, in its own scope, and attributes as they are written: `self.loss`."""
    scope = source.scope(statement)
    names = [node for node in ast.walk(statement) if isinstance(node, (ast.Name, ast.Attribute))]
    stored = [node for node in names if not isinstance(node.ctx, ast.Load) and source.scope(node) is scope]
    return {_written(node) for node in stored}
