"""PA210: a Python loop that takes a tensor apart row by row in the forward pass or the step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.how_often import runs_every_step
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.reaching import reaching
from perfaudit.static.understanding.values import assigned_value

BY_SAMPLE = {  # calls whose result has another size for every row
    *(
        "nms",
        "batched_nms",
        "unique",
        "unique_consecutive",
        "nonzero",
        "masked_select",
        "linear_sum_assignment",
        "where",
    ),
    *("item", "tolist", "numpy", "print"),
}
COLLECTS = {"append", "extend", "insert", "backward"}  # calls whose result nobody takes that keep no state of a row
CONDITIONS = (ast.If, ast.While, ast.Try, ast.Break, ast.Continue, ast.Return, ast.Yield, ast.Await, ast.IfExp)


@check("PA210", ast.For)
def loop_over_tensor_rows(source: Source, loop: ast.For) -> Iterator[Seen]:
    if not isinstance(loop.target, ast.Name) or not source.imports_torch:
        return
    counted = _counted_axis(source, loop.iter)
    if counted is None or not runs_every_step(source, loop):
        return
    tensor, axis = counted
    rows = [node for node in _subscripts(loop) if _takes_row(node, tensor, axis, loop.target.id)]
    if not rows or not _rows_stand_alone(loop, loop.target.id) or _is_array(source, rows[0].value):
        return
    yield Seen(
        loop,
        f"`{source.brief(loop.iter)}` goes through `{tensor}` row by row in Python: every operator in the loop is "
        "launched once per row, on a fraction of the data",
        Proposal(f"write the body for the whole of `{tensor}` (a batched operator, broadcasting, torch.vmap)"),
        tuple(rows[:1]),
        hot=True,
    )


def _is_array(source: Source, name: ast.expr) -> bool:
    """Whether what is gone through is an array there, by now: `x = x.cpu().numpy()`."""
    values = [assigned_value(source, one) for one in reaching(source, name)] if isinstance(name, ast.Name) else []
    return any(isinstance(value, ast.Call) and last_name(value.func) == "numpy" for value in values)


def _counted_axis(source: Source, node: ast.expr) -> tuple[str, int] | None:
    """The tensor and the axis that `range(x.size(0))`, `range(x.shape[1])` or `range(batch)` counts."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "range":
        return None
    if len(node.args) != 1 or node.keywords:
        return None
    return _size(source, node.args[0]) or _named_size(source, node.args[0])


def _size(source: Source, node: ast.expr) -> tuple[str, int] | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "size":
        owner, axis = node.func.value, node.args[0] if len(node.args) == 1 else None
    elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
        owner, axis = node.value.value, node.slice
    else:
        return None
    if not isinstance(owner, ast.Name) or not isinstance(axis, ast.Constant) or axis.value not in (0, 1):
        return None
    return (owner.id, 1 if axis.value else 0) if source.qualified_name(owner) is None else None


def _named_size(source: Source, node: ast.expr) -> tuple[str, int] | None:
    """The same through one name: `batch = x.size(0)`, `batch, length, _ = x.shape`."""
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    if len(bindings) != 1:
        return None
    parent = source.parent(bindings[0])
    if isinstance(parent, ast.Assign) and parent.targets[0] is bindings[0]:
        return _size(source, parent.value)
    assignment = source.parent(parent) if isinstance(parent, ast.Tuple) else None
    if (
        not isinstance(parent, ast.Tuple)
        or not isinstance(assignment, ast.Assign)
        or assignment.targets[0] is not parent
    ):
        return None
    axis = next(n for n, element in enumerate(parent.elts) if element is bindings[0])
    value = assignment.value.func if isinstance(assignment.value, ast.Call) else assignment.value
    if not isinstance(value, ast.Attribute) or value.attr not in ("shape", "size") or axis > 1:
        return None
    is_whole = not isinstance(assignment.value, ast.Call) or not assignment.value.args
    return (value.value.id, axis) if is_whole and isinstance(value.value, ast.Name) else None


def _subscripts(loop: ast.For) -> list[ast.Subscript]:
    return [node for statement in loop.body for node in walk(statement) if isinstance(node, ast.Subscript)]


def _takes_row(node: ast.Subscript, tensor: str, axis: int, index: str) -> bool:
    """`x[i]` and `x[i, ...]` for the first axis, `x[:, i]` for the second."""
    if not isinstance(node.value, ast.Name) or node.value.id != tensor or not isinstance(node.ctx, ast.Load):
        return False
    places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    before = places[:axis]
    whole = all(isinstance(p, ast.Slice) and p.lower is p.upper is p.step is None for p in before)
    return len(places) > axis and whole and isinstance(places[axis], ast.Name) and places[axis].id == index  # type: ignore[attr-defined]  # a Name, by the test before


def _rows_stand_alone(loop: ast.For, index: str) -> bool:
    """Whether no row needs another one's result, decides what is done, or has a size or a layer of its own."""
    nodes = [node for statement in loop.body for node in walk(statement)]
    if any(isinstance(node, (*CONDITIONS, *FUNCTIONS, ast.For)) for node in nodes):
        return False
    if any(isinstance(node, ast.Call) and last_name(node.func) in BY_SAMPLE for node in nodes):
        return False
    if any(isinstance(node, ast.Subscript) and not _is_plain(node, index) for node in nodes):
        return False
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    if any(_is_called_for_its_effect(_value_nobody_takes(node, read)) for node in nodes):
        return False
    stored: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored.add(node.id)
    return not _is_carried(loop, stored)


def _value_nobody_takes(node: ast.AST, read: set[str]) -> ast.expr | None:
    """What a statement of the loop computes that no other statement of a turn reads; None for any other.

    A name that is read behind the loop alone holds the value of its last turn.
    """
    if isinstance(node, ast.Expr):
        return node.value
    is_plain = isinstance(node, ast.Assign) and all(isinstance(target, ast.Name) for target in node.targets)
    return node.value if is_plain and not {target.id for target in node.targets} & read else None  # type: ignore[attr-defined]  # an Assign to names


def _is_called_for_its_effect(node: ast.expr | None) -> bool:
    """Whether nobody takes what a call returns: `net(x[t])` feeds a model that keeps its state itself."""
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func) or ""
    return name not in COLLECTS and not name.endswith("_")


def _is_plain(node: ast.Subscript, index: str) -> bool:
    """Whether a subscript by the counter takes one row of a named tensor: no ragged slice, mask, key, or layer."""
    around = {n.id for n in walk(node.slice) if isinstance(n, ast.Name)}
    if index not in around:
        return not any(isinstance(n, ast.Constant) and isinstance(n.value, str) for n in walk(node.slice))
    if not isinstance(node.value, ast.Name):
        return False
    places = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    return all(isinstance(p, (ast.Name, ast.Constant)) or _is_free(p, index) for p in places)


def _is_free(node: ast.expr, index: str) -> bool:
    """A slice whose ends do not depend on the row."""
    return isinstance(node, ast.Slice) and not any(isinstance(n, ast.Name) and n.id == index for n in walk(node))


def _is_carried(loop: ast.For, stored: set[str]) -> bool:
    """Whether a name that the body binds is read in it before: the state of the row before."""
    bound: set[str] = set()
    for statement in loop.body:
        value = getattr(statement, "value", None)
        read = {n.id for n in walk(value) if isinstance(n, ast.Name)} if value is not None else set()
        if isinstance(statement, ast.AugAssign):
            if read & (stored - bound):
                return True
            continue  # a sum over the rows
        if not isinstance(statement, (ast.Assign, ast.Expr, ast.AnnAssign)) or read & (stored - bound):
            return True
        bound |= {n.id for n in walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        written = [n for n in walk(statement) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)]
        if any(isinstance(n.value, ast.Name) and _is_read(loop, n.value.id) for n in written):
            return True
    return False


def _is_read(loop: ast.For, name: str) -> bool:
    """Whether a tensor that is written row by row is also read in the loop."""
    targets = {
        id(n.value) for s in loop.body for n in walk(s) if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)
    }
    return any(isinstance(n, ast.Name) and n.id == name and id(n) not in targets for s in loop.body for n in walk(s))
