"""The forward pass and the loss of a loop that is written out, put under a context such as autocast.

As in `static.edit`, the verb returns the edits, or None where it cannot be done without a doubt.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import FUNCTIONS, Source

# Methods of a model that compute nothing: a statement that only calls one of them is no forward pass.
_OTHER = {"train", "eval", "zero_grad", "to", "cuda", "cpu", "parameters", "named_parameters", "state_dict", "modules"}


def put_forward_under(
    source: Source, backward: ast.Call, names: Collection[str], header: str
) -> tuple[Edits, ast.stmt] | None:
    """Put the statements from the model's call to the one that gives the loss under `header`, and the first of them.

    backward: the call of `backward`. names: under which the function of that call knows the models ("model", "self.model").
    None where the call and the backward pass are no consecutive statements of one block, or where nothing in between gives what
    the backward pass begins with.
    """
    last = source.statement(backward)
    earlier = source.before(last)
    calls = [at for at, statement in enumerate(earlier) if _runs_a_model(source, statement, names)]
    begun_with = {_written(node) for node in ast.walk(last) if isinstance(node, (ast.Name, ast.Attribute))} - {""}
    given = [at for at, statement in enumerate(earlier) if begun_with & _names_given(source, statement)]
    if _runs_a_model(source, last, names) or not calls or not given or given[-1] < calls[0]:
        return None
    together = earlier[calls[0] : given[-1] + 1]
    edits = edit.wrap_block(source, together, header)
    return (edits, together[0]) if edits else None


def enclosing_names(source: Source, call: ast.Call) -> set[tuple[str, int]]:
    """The functions around a call, by their last name and where their code begins; they know each other's names."""
    around = [each for each in source.ancestors(call) if isinstance(each, FUNCTIONS)]
    return {(each.name, edit.first_line(each)) for each in around}


def _runs_a_model(source: Source, statement: ast.stmt, names: Collection[str]) -> bool:
    """Whether a statement calls one of these names, a method of it that computes, or hands it to a function."""
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        if source.enclosing(call, *FUNCTIONS, ast.Lambda, within=statement) is not None:
            continue
        called = _written(call.func)
        owner, _, method = called.rpartition(".")
        if called in names or (owner in names and method not in _OTHER):
            return True
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
