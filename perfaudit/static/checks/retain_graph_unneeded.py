"""PA803: a backward pass that keeps the graph although nothing goes through it again."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import LOOPS, Loop, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.losses import backward_operand
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import enclosing_function

_SECOND_PASS = {"grad", "backward", "hvp", "vjp", "jvp", "hessian", "jacobian", "manual_backward"}
_CARRIES_STATE = regex(
    r"hidden|lstm|gru\b|rnn|recurrent|memory|bptt|tbptt|detach_\(|create_graph|register_hook|register_forward|"
    r"higher|inner_loop|meta",
    re.IGNORECASE,
)


@check("PA803", call=".backward")
def retain_graph_unneeded(source: Source, call: ast.Call) -> Iterator[Seen]:
    kept = edit.keyword(call, "retain_graph")
    if (
        kept is None
        or not isinstance(kept.value, ast.Constant)
        or kept.value.value is not True
        or len(call.keywords) > 1
    ):
        return
    loop = next((s.loop for s in step_loops(source) if any(a is s.loop for a in source.ancestors(call))), None)
    if loop is None or not isinstance(loop, ast.For) or source.enclosing(call, *LOOPS) is not loop:
        return
    if _CARRIES_STATE.search(source.text) or _is_gone_through_again(source, call, loop):
        return
    if not runs_each_time(source, call, loop) or not _is_made_in_step(source, call, loop):
        return
    yield Seen(
        call,
        f"`{source.brief(call)}` keeps all activations of the step until the next one, and nothing uses them again",
        Proposal("call it without `retain_graph`, so that backward frees activations as it goes"),
    )


def _is_gone_through_again(source: Source, call: ast.Call, loop: Loop) -> bool:
    """Whether there may be another backward pass: one that is written in this function, or in one this loop calls."""
    if len(backward_calls(source)) > 1:
        function = enclosing_function(source, call)
        others = [c for c in backward_calls(source) if c is not call]
        if any(enclosing_function(source, c) is function for c in others):
            return True
        names = {f.name for c in others if (f := enclosing_function(source, c)) is not None}
        if any(last_name(n.func) in names for n in ast.walk(loop) if isinstance(n, ast.Call)):
            return True
    return any(last_name(n.func) in _SECOND_PASS and n is not call for n in source.nodes(ast.Call))


def _is_made_in_step(source: Source, call: ast.Call, loop: ast.For) -> bool:
    """Whether all that the loss is made from is made in this iteration: followed back through plain assignments.

    Other names may only be called (the model, the criterion), be what the loop yields, or be read for an attribute.
    """
    given = {n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)}
    pending: list[ast.expr] = [backward_operand(source, call)]
    followed: set[str] = set()
    while pending:
        for name in _values(pending.pop()):
            if name in given or name in followed:
                continue
            followed.add(name)
            made = [s for s in ast.walk(loop) if name in _stored_names(s)]
            if not made or not all(isinstance(s, ast.Assign) for s in made):
                return False
            first = min(made, key=lambda s: s.lineno)  # type: ignore[attr-defined]  # statements
            if not any(first is s for s in _straight(loop.body)):
                return False  # made in a branch: on other steps it is the last one's
            reads = [n for n in ast.walk(loop) if dotted_name(n) == name and isinstance(n.ctx, ast.Load)]  # type: ignore[attr-defined]  # names
            before = [n for n in reads if n.lineno <= (first.end_lineno or 0)]  # type: ignore[attr-defined]
            if before:
                return False  # comes from the step before
            pending += [s.value for s in made if isinstance(s, ast.Assign)]
    return True


def _straight(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run on each iteration: of the block itself, and of `with` blocks in it."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.With):
            yield from _straight(statement.body)


def _stored_names(statement: ast.AST) -> set[str]:
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr)):
        targets = [statement.target]
    else:
        return set()
    return {dotted_name(n) for t in targets for n in ast.walk(t) if isinstance(n, (ast.Name, ast.Attribute))} - {""}


def _values(node: ast.expr) -> Iterator[str]:
    """Names and attribute chains that an expression takes values from; not what it calls."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and not _is_callee(node.func.value):
            yield from _values(node.func.value)
        for child in [*node.args, *(k.value for k in node.keywords)]:
            yield from _values(child)
    elif isinstance(node, (ast.Name, ast.Attribute)):
        if (name := dotted_name(node)) != "":
            if not re.search(r"(^|[._])(device|dtype|args|opt|cfg|config|lambda\w*|alpha|beta|weight)s?($|\.)", name):
                yield name
        elif isinstance(node, ast.Attribute):
            yield from _values(node.value)
    elif isinstance(node, ast.Starred):
        yield from _values(node.value)
    else:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.expr):
                yield from _values(part)


def _is_callee(node: ast.expr) -> bool:
    """Whether a method is called on a module or a library: `F.relu(x)`, `self.net.encode(x)`, `torch.nn.f(x)`."""
    name = dotted_name(node)
    return name in ("F", "torch", "nn", "self", "np", "math") or name.startswith(("torch.", "nn.", "self."))
