"""PA213: a loop over the rows of a batch that reads an index of each on the host, only to take a row of a tensor by it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import Source
from perfaudit.static.understanding.demonstrations import is_shown_only, is_test
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad

_PICKS = {"multinomial", "argmax", "argmin"}  # give an index for each row as well as for one


@check("PA213", ast.For)
def index_read_for_each_row(source: Source, loop: ast.For) -> Iterator[Seen]:
    if not isinstance(loop.target, ast.Name) or not _counts(loop.iter) or not source.imports_torch:
        return
    if not all(isinstance(statement, (ast.Assign, ast.Expr)) for statement in loop.body):
        return
    reads = [statement for statement in loop.body if _reads_index(source, statement, loop.target.id)]
    if len(reads) != 1 or not isinstance(reads[0], ast.Assign) or not isinstance(name := reads[0].targets[0], ast.Name):
        return
    if not _only_takes_rows(source, loop, reads[0], name.id) or is_test(source, loop) or is_shown_only(source, loop):
        return
    if in_no_grad(source, loop) or not runs_every_step(source, loop):
        return
    yield Seen(
        loop,
        f"`{source.brief(reads[0].value)}` makes the host wait for the device once for each row of the batch, to take a row "
        "by what it read",
        Proposal(
            "ask for the indices of all rows at once and index with the tensor: "
            "`tensor[torch.multinomial(weights, 1).squeeze(1)]` draws as many, and reads none"
        ),
        hot=True,
    )


def _counts(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "range"
        and len(node.args) == 1
    )


def _reads_index(source: Source, statement: ast.stmt, row: str) -> bool:
    """Whether a statement is `i = torch.multinomial(weights[row], 1).item()`, also by `argmax` and by `int(...)`."""
    value = statement.value if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
    match value:
        case ast.Call(func=ast.Attribute(value=ast.Call() as picked, attr="item"), args=[]):
            pass
        case ast.Call(func=ast.Name(id="int"), args=[ast.Call() as picked]):
            pass
        case _:
            return False
    if last_name(picked.func) not in _PICKS:
        return False
    from_torch = (source.qualified_name(picked.func) or "").startswith("torch.")
    tensor = picked.args[0] if from_torch and picked.args else getattr(picked.func, "value", None)
    match tensor:
        case ast.Subscript(value=ast.Name() | ast.Attribute(), slice=ast.Name(id=name)):
            return name == row
    return False


def _only_takes_rows(source: Source, loop: ast.For, read: ast.Assign, name: str) -> bool:
    """Whether the loop does nothing else than to append rows of tensors, taken by the index, to lists."""
    for statement in (item for item in loop.body if item is not read):
        match statement:
            case ast.Expr(
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(), attr="append"),
                    args=[ast.Subscript(value=ast.Name() | ast.Attribute(), slice=ast.Name(id=index))],
                )
            ) if index == name:
                continue
        return False
    inside = {id(node) for node in ast.walk(loop)}
    return len(loop.body) > 1 and all(id(use) in inside for use in _uses(source, read))


def _uses(source: Source, read: ast.Assign) -> list[ast.Name]:
    """The reads of the index behind this loop and before the next one that sets it anew."""
    target = read.targets[0]
    if not isinstance(target, ast.Name):
        return []
    later = [b.lineno for b in source.lookup(target) if isinstance(b, ast.Name) and b.lineno > read.lineno]
    until = min(later, default=1 << 31)
    return [use for use in source.uses_of(target, target.id) if read.lineno <= use.lineno < until]
