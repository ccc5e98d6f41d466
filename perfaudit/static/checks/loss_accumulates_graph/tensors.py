"""Whether what is added is surely a tensor, so that it can be detached."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.static.source import LOOPS, Function, Loop, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.losses import backward_operand, key, makes_loss
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.values import UNKNOWN, assigned_value, constant, enclosing_function, resolve

_READS = {"item", "tolist", "detach", "numpy"}
_LEAVE_GRAPH = _READS | {
    "data",
    "argmax",
    "argmin",
    "argsort",
    "eq",
    "ne",
    "gt",
    "lt",
    "ge",
    "le",
    "long",
    "int",
    "bool",
}
_OF_TORCH = {
    "torch.mean",
    "torch.sum",
    "torch.norm",
}  # a part of the loss that is written out: `-0.5 * torch.sum(1 + log_var)`


def is_tensor(source: Source, term: ast.expr, root: Loop | Function, returned: set[str] | None = None) -> bool:
    """Whether a term is provably a tensor where it stands, by what binds its name in a loop or function.

    Either `backward` was called on this very name since it was bound, or all that binds it makes tensors. `returned`
    are names that a function of this file gives its loss to.
    """
    name_node = term.func.value if isinstance(term, ast.Call) and isinstance(term.func, ast.Attribute) else term
    name = key(name_node)
    bindings = [node for node in ast.walk(root) if binds(node, name)]
    bindings = [node for node in bindings if not isinstance(source.parent(node), ast.AugAssign)]  # still a tensor
    backwards = [
        call
        for call in backward_calls(source)
        if any(ancestor is root for ancestor in source.ancestors(call))
        and key(_differentiated_tensor(source, root, backward_operand(source, call))) == name
    ]
    if any(_runs_with(source, call, term, bindings) for call in backwards):
        return True
    values = {id(node): bound_value(source, node) for node in bindings}
    if any(
        value is not None and is_number(source, value) for value in (*values.values(), *_before(source, root, name))
    ):
        return False
    if name in (returned or ()):
        return len(bindings) == 1
    if not backwards:
        last = _surely_last(source, term, bindings)
        made = values.values() if last is None else [values[id(last)]]
        return bool(made) and all(value is not None and _makes_tensor(source, value, root) for value in made)
    place = _place(term)
    nearest = min(backwards, key=lambda call: (abs(call.lineno - place[0]), abs(call.col_offset - place[1])))
    if _is_bound_between(nearest, term, bindings):
        return False
    return all(any(_follows(source, call, node) for call in backwards) for node in bindings)


def _runs_with(source: Source, backward: ast.Call, term: ast.expr, bindings: list[ast.AST]) -> bool:
    """Whether a backward pass on the name runs on each way through the term, which nothing binds anew between the two.

    Its statement, or a `with` around it, stands in a block around the term.
    """
    statement = source.statement(backward)
    while isinstance(around := source.parent(statement), (ast.With, ast.AsyncWith)):
        statement = around
    outside = {id(ancestor): ancestor for ancestor in source.ancestors(term)}
    if not any(id(item) in outside for item in source.block(statement)):
        return False
    common = {id(ancestor) for ancestor in source.ancestors(statement)}
    loops = [loop for n, loop in outside.items() if isinstance(loop, LOOPS) and n not in common]
    if any(_place(loop) < _place(node) < ((loop.end_lineno or 0) + 1, 0) for node in bindings for loop in loops):
        return False  # a later turn may find another value
    return not _is_bound_between(backward, term, bindings)


def _is_bound_between(backward: ast.Call, term: ast.expr, bindings: list[ast.AST]) -> bool:
    first, last = sorted((_place(term), _place(backward)))
    return any(first < _place(node) < last for node in bindings)


def binds(node: ast.AST, name: str) -> bool:
    """Whether a node binds a name (as `key` writes it) or what it is an item or attribute of; `losses[k] = x` binds any item."""
    is_target = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(
        node.ctx, (ast.Store, ast.Del)
    )
    if is_target and isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        held = key(node.value)
        return bool(held) and name.startswith(f"{held}[")
    bound = key(node) if is_target else ""
    return bool(bound) and (name == bound or name.startswith((f"{bound}.", f"{bound}[")))


def bound_value(source: Source, binding: ast.AST) -> ast.expr | None:
    parent = source.parent(binding)
    return parent.value if isinstance(parent, ast.AugAssign) else assigned_value(source, binding)


def _before(source: Source, root: Loop | Function, name: str) -> Iterator[ast.expr | None]:
    """What the name gets in the function around, outside the loop."""
    around = enclosing_function(source, root) or source.tree
    for node in ast.walk(around):
        if binds(node, name) and _place(node) < _place(root) and enclosing_function(source, node) in (around, None):
            yield bound_value(source, node)


def is_number(source: Source, value: ast.expr) -> bool:
    """Whether an expression may be no tensor, or one without a graph: a constant, `.item()`, `float(x)`, `.detach()`."""
    if isinstance(value, ast.IfExp):
        return is_number(source, value.body) or is_number(source, value.orelse)
    if isinstance(value, ast.BoolOp):
        return any(is_number(source, part) for part in value.values)
    if isinstance(value, ast.BinOp):
        sides = (value.left, value.right)
        return any(is_number(source, s) and constant(source, s) is UNKNOWN for s in sides) or all(
            is_number(source, s) for s in sides
        )
    if isinstance(value, (ast.UnaryOp, ast.NamedExpr)):
        return is_number(source, value.operand if isinstance(value, ast.UnaryOp) else value.value)
    if isinstance(value, ast.Attribute):
        return value.attr == "data"
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name):
            return value.func.id in ("float", "int", "round", "len")
        if isinstance(value.func, ast.Attribute):
            return value.func.attr in _READS or is_number(source, value.func.value)
        return False
    return constant(source, value) is not UNKNOWN


def _differentiated_tensor(source: Source, root: Loop | Function, node: ast.expr) -> ast.expr:
    """The one tensor that a backward pass starts from: `x` of `x`, `x / 4`, `scaler.scale(x)`, `x.mean()`."""
    if isinstance(node, ast.NamedExpr):
        return node.target
    if isinstance(node, ast.BinOp):
        bound = any(binds(inner, key(node.right)) for inner in ast.walk(root))
        plain = isinstance(node.right, ast.Constant) or (key(node.right) and not bound)
        if isinstance(node.op, (ast.Div, ast.Mult)) and plain:
            return _differentiated_tensor(source, root, node.left)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "scale" and len(node.args) == 1:
            return _differentiated_tensor(source, root, node.args[0])
        if node.func.attr in ("mean", "sum", "div", "clone", "squeeze") and not source.qualified_name(node.func):
            return _differentiated_tensor(source, root, node.func.value)
    return node


def _surely_last(source: Source, term: ast.expr, bindings: list[ast.AST]) -> ast.AST | None:
    """What binds a name last before a term, where it stands in a block around the term; None where a branch may bind it."""
    before = [node for node in bindings if _place(node) < _place(term)]
    last = max(before, key=_place) if before else None
    outside = {id(ancestor) for ancestor in source.ancestors(term)}
    is_sure = last is not None and any(id(item) in outside for item in source.block(source.statement(last)))
    return last if is_sure else None


def _makes_tensor(source: Source, value: ast.expr, root: Loop | Function) -> bool:
    """Whether an expression is a tensor whatever its names hold: a criterion of torch, arithmetic with one, a mean."""
    if isinstance(value, ast.BinOp):
        return _makes_tensor(source, value.left, root) or _makes_tensor(source, value.right, root)
    if isinstance(value, ast.UnaryOp):
        return not isinstance(value.op, ast.Not) and _makes_tensor(source, value.operand, root)
    if not isinstance(value, ast.Call):
        return False
    if makes_loss(source, value) or _is_moved_criterion(source, value.func):
        return True
    if source.qualified_name(value.func) in _OF_TORCH:
        return _has_graph_of_model(source, value, root)
    if not isinstance(value.func, ast.Attribute) or value.func.attr not in ("mean", "sum", "squeeze"):
        return False
    is_given = not in_no_grad(source, value) and _is_given_by_model(source, value, value.func.value, root)
    return is_given or _makes_tensor(source, value.func.value, root)


def _has_graph_of_model(source: Source, call: ast.Call, root: Loop | Function) -> bool:
    """Whether a call computes with what a model gives, and nothing in it leaves the graph behind: `torch.mean(out.detach())`."""
    nodes = list(ast.walk(call))
    if any(isinstance(n, ast.Compare) or (isinstance(n, ast.Attribute) and n.attr in _LEAVE_GRAPH) for n in nodes):
        return False
    names = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    return not in_no_grad(source, call) and any(_is_given_by_model(source, call, name, root) for name in names)


def _is_given_by_model(source: Source, reduced: ast.Call, node: ast.expr, root: Loop | Function) -> bool:
    """Whether a name that a call reduces is, in a loop, only what a model gives: `out, penalty = model(x)`."""
    models = {
        last_name(call.func.value)
        for asks in (".parameters", ".train", ".zero_grad")
        for call in source.calls(asks)
        if isinstance(call.func, ast.Attribute)
    }
    bindings = [n for n in ast.walk(root) if key(node) and binds(n, key(node))]
    statements = [source.statement(n) for n in bindings]
    values = [s.value if isinstance(s, ast.Assign) else None for s in statements]
    runs = [value for value in values if value is not reduced]
    return bool(runs) and all(
        isinstance(run, ast.Call) and last_name(run.func) in models - {"", "self"} and not in_no_grad(source, run)
        for run in runs
    )


def _is_moved_criterion(source: Source, func: ast.expr) -> bool:
    """Whether a function that is called is a loss of torch's on its device, `nn.MSELoss().to(device)`."""
    made = resolve(source, func)
    while isinstance(made, ast.Call) and isinstance(made.func, ast.Attribute) and made.func.attr in ("to", "cuda"):
        made = made.func.value
    name = (source.qualified_name(made.func) or "") if isinstance(made, ast.Call) else ""
    return name.startswith("torch.nn.") and name.endswith("Loss")


def _follows(source: Source, call: ast.Call, binding: ast.AST) -> bool:
    """Whether a backward pass comes behind a binding, and not in another branch of the same condition."""
    if _place(call) < _place(binding):
        return False
    path = {id(ancestor): child for ancestor, child in source.way_out(binding)}
    for ancestor, child in source.way_out(call):
        if id(ancestor) in path:
            if not isinstance(ancestor, (ast.If, ast.Try, ast.Match)):
                return True
            return branch(ancestor, child) == branch(ancestor, path[id(ancestor)])
    return False


def branch(statement: ast.AST, child: ast.AST) -> str:
    """Which block of a statement a child stands in."""
    for field, value in ast.iter_fields(statement):
        if isinstance(value, list) and any(part is child for part in value):
            return field if field in ("body", "orelse", "finalbody") else f"{field} {id(child)}"
    return ""


def _place(node: ast.AST) -> tuple[int, int]:
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))
