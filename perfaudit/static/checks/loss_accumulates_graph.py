"""PA603: a sum of losses that keeps the graph of every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.each_time import runs_in_any_case
from perfaudit.static.understanding.elsewhere import Elsewhere, called_elsewhere
from perfaudit.static.understanding.losses import backpropagated_names, backward_operand, key, makes_loss, summands
from perfaudit.static.understanding.members import is_own
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import in_no_grad
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_loops import StepLoop, step_loops
from perfaudit.static.understanding.values import UNKNOWN, assigned_value, constant, enclosing_function, resolve

GRAPH_FREE = regex(r"(item|tolist|detach|data|numpy|shape|device|dtype)$")  # attributes behind which no graph is
READER = regex(
    r"(print|float|int|str|round|format|len|isinstance|min|max|isnan|isfinite|exp|sqrt|append|write|log|info|debug|warning|"
    r"add_scalars?|set_postfix|set_description|update|all_reduce|reduce|log_metrics?|log_dict)$"
)
SCHEDULER = regex(r"sched")  # is told a loss, and may lower the rate where it no longer falls
GATHERS = {"torch.stack", "torch.cat", "torch.mean", "torch.sum", "torch.tensor", "torch.as_tensor"}
BEGINS_AGAIN = regex(r"reset|clear|zero|restart|init")
_READS = {"item", "tolist", "detach", "numpy"}
MAX_ALIASES = 3  # names followed from the sum to its readers


@check("PA603", ast.Module)
def loss_accumulates_graph(source: Source, module: ast.Module) -> Iterator[Seen]:
    if not source.imports_torch:
        return
    for step in step_loops(source):
        if _uses_graphs_again(source):
            return
        returned = _returned_losses(source, step)
        losses = backpropagated_names(source, step.loop) | returned
        yield from _handed_over(source, step, losses, returned)
        parts = _parts_beside(source, step, losses)
        for statement in ast.walk(step.loop):
            target, added = _addition(statement)
            if (
                target is None
                or added is None
                or enclosing_function(source, target) is not enclosing_function(source, step.loop)
            ):
                continue
            terms = [term for term in _terms(added, losses) if _is_tensor(source, term, step.loop, returned)]
            beside = () if terms else [*_terms(added, parts)]
            if not (terms or beside) or key(target) in losses or in_no_grad(source, target):
                continue
            if _restarts_each_step(source, step, target) or not _is_only_read(source, target):
                continue
            ends = [source.span(term).end for term in terms]
            yield Seen(
                statement,
                _message(source, step, statement, target),
                Proposal("add up the detached loss", tuple(Edit(Span(end, end), ".detach()") for end in ends)),
                hot=True,
            )


def _parts_beside(source: Source, step: StepLoop, losses: set[str] | frozenset[str]) -> frozenset[str]:
    """Names that get, beside the loss, a part of it from the same call: of `loss, fit, penalty = model.loss(x)`."""
    found: set[str] = set()
    for node in ast.walk(step.loop):
        if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)):
            continue
        names = [key(element) for element in node.targets[0].elts]
        place = next((n for n, name in enumerate(names) if name in losses), None)
        if not isinstance(node.value, ast.Call) or place is None or "" in names:
            continue
        function = called_function(source, node.value)
        there = (
            Elsewhere(source, function, node.value) if function is not None else called_elsewhere(source, node.value)
        )
        if there is not None:
            parts = _parts_returned(there, place, len(names))
            found |= {name for n, name in enumerate(names) if n in parts and _is_bound_once(step.loop, name)}
    return frozenset(found - losses)


def _is_bound_once(root: Loop, name: str) -> bool:
    return sum(_binds(node, name) for node in ast.walk(root)) == 1


def _parts_returned(there: Elsewhere, place: int, size: int) -> set[int]:
    """Which of the values that a function returns are summands of the one at a place, and tensors as far as it shows."""
    returned = [node.value for node in ast.walk(there.function) if isinstance(node, ast.Return)]
    if not returned or not all(isinstance(value, ast.Tuple) and len(value.elts) == size for value in returned):
        return set()
    found = set(range(size)) - {place}
    for value in returned:
        elements = value.elts if isinstance(value, ast.Tuple) else []
        wholes = [elements[place], *_values_of(there, elements[place])]
        added = {key(term) for whole in wholes for term in summands(there.source, whole)}
        for n in [*found]:
            made = _values_of(there, elements[n])
            is_made = bool(made) and not any(v is None or _is_number(there.source, v) for v in made)
            if key(elements[n]) not in added or not is_made or in_no_grad(there.source, value):
                found.discard(n)
    return found


def _values_of(there: Elsewhere, node: ast.expr) -> list[ast.expr]:
    """What the assignments of a function give a name in it."""
    name = key(node)
    bound = [n for n in ast.walk(there.function) if name and _binds(n, name)]
    return [value for n in bound if (value := _value(there.source, n)) is not None]


def _handed_over(
    source: Source, step: StepLoop, losses: set[str] | frozenset[str], returned: set[str]
) -> Iterator[Seen]:
    """Calls in the loop that hand the loss to a method which adds it to a sum, here or in another file: `meter.update(loss)`."""
    for call in (node for part in step.loop.body for node in ast.walk(part) if isinstance(node, ast.Call)):
        given = [argument for argument in call.args if key(argument) in losses]
        if not given or not isinstance(call.func, ast.Attribute) or in_no_grad(source, call):
            continue
        if enclosing_function(source, call) is not enclosing_function(source, step.loop):
            continue
        if not all(_is_tensor(source, term, step.loop, returned) for term in given):
            continue
        function = called_function(source, call)
        here = Elsewhere(source, function, call) if function is not None else called_elsewhere(source, call)
        if here is None or here.owner is None or _begins_again(step, call.func.value):
            continue
        names = {name for name, argument in here.named_arguments if any(argument is term for term in given)}
        statement = next((s for s in _statements(here.function) if _adds_to_self(here, s, names)), None)
        if statement is not None:
            place = f"`{here.source.brief(statement)}` in `{here.function.name}`"
            where = (
                f", {here.source.path.rpartition('/')[2]} line {statement.lineno}" if here.source is not source else ""
            )
            yield Seen(
                call,
                f"`{source.brief(call)}` ties the graphs of all steps together, so none of them is freed: {place}{where}",
                Proposal(f"pass `{source.brief(given[0])}.detach()`"),
                hot=True,
            )


def _statements(function: Function) -> Iterator[ast.stmt]:
    return (node for node in ast.walk(function) if isinstance(node, ast.stmt))


def _begins_again(step: StepLoop, receiver: ast.expr) -> bool:
    """Whether the loop makes the object that holds the sum, or calls what sets it to zero; a name that is not plain may."""
    name = dotted_name(receiver)
    if not name:
        return True
    for node in ast.walk(step.loop):
        if (
            isinstance(node, (ast.Name, ast.Attribute))
            and isinstance(node.ctx, ast.Store)
            and dotted_name(node) == name
        ):
            return True
        if isinstance(node, ast.Attribute) and dotted_name(node.value) == name and BEGINS_AGAIN.search(node.attr):
            return True
    return False


def _adds_to_self(here: Elsewhere, statement: ast.AST, names: set[str]) -> bool:
    """Whether a statement that surely runs adds a parameter, as it was given, to something `self` keeps."""
    target, added = _addition(statement)
    if target is None:
        target = added = _mean_that_runs(statement)
    if target is None or added is None or not is_own(target) or in_no_grad(here.source, target):
        return False
    value = statement.value if added is target and isinstance(statement, ast.Assign) else added
    if not any(isinstance(term, ast.Name) for term in _terms(value, names)):
        return False
    bound = {n.id for n in ast.walk(here.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return not names & bound and runs_in_any_case(here.source, statement, here.function)


def _mean_that_runs(statement: ast.AST) -> ast.expr | None:
    """`self.mean` of `self.mean = (self.mean * self.n + x) / (self.n + 1)`, which holds on to what it was."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or not is_own(statement.targets[0]):
        return None
    target = statement.targets[0]
    leaves: list[ast.expr] = [statement.value]
    while any(isinstance(leaf, ast.BinOp) for leaf in leaves):
        leaves = [s for leaf in leaves for s in ((leaf.left, leaf.right) if isinstance(leaf, ast.BinOp) else (leaf,))]
    is_arithmetic = isinstance(statement.value, ast.BinOp)
    return target if is_arithmetic and any(dotted_name(leaf) == dotted_name(target) for leaf in leaves) else None


def _message(source: Source, step: StepLoop, statement: ast.AST, target: ast.expr) -> str:
    """What the sum does, and how long: to the end, or until the loop sets it to zero every so many steps."""
    text = f"`{source.brief(statement)}` ties the graphs of all steps together"
    if any(True for _ in _starts(source, step, target)):
        return f"{text} until `{dotted_name(target)}` starts again, and frees none of them before"
    return f"{text}, so none of them is freed"


def _uses_graphs_again(source: Source) -> bool:
    """Whether a backward pass in this file keeps its graph for another one."""
    keeps = ("retain_graph", "create_graph")
    return any(k.arg in keeps for call in source.nodes(ast.Call) for k in call.keywords)


def _returned_losses(source: Source, step: StepLoop) -> set[str]:
    """Names that get, in the loop, the loss which a function of this file has called `backward` on and returns."""
    found: set[str] = set()
    for node in ast.walk(step.loop):
        if not (
            isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.targets[0], ast.Name)
        ):
            continue
        for helper in step.helpers:
            if helper.name == last_name(node.value.func) and _returns_its_loss(source, helper):
                found.add(node.targets[0].id)
    return found


def _returns_its_loss(source: Source, function: Function) -> bool:
    returns = [n for n in ast.walk(function) if isinstance(n, ast.Return) and enclosing_function(source, n) is function]
    losses = backpropagated_names(source, function)
    reads = {"item", "detach", "data"}
    rebound = [n for n in ast.walk(function) if isinstance(n, ast.Call) and last_name(n.func) in reads]
    return (
        bool(returns)
        and not rebound
        and all(
            n.value is not None and key(n.value) in losses and _is_tensor(source, n.value, function) for n in returns
        )
    )


def _addition(statement: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The sum and what is added to it, for `total += x` and `total = total + x`."""
    target: ast.expr
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add):
        target, added = statement.target, statement.value
    elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.BinOp):
        target, added = statement.targets[0], statement.value.right
        is_sum = isinstance(statement.value.op, ast.Add) and dotted_name(statement.value.left) == dotted_name(target)
        if not is_sum or len(statement.targets) > 1:
            return None, None
    else:
        return None, None
    return (target, added) if dotted_name(target) else (None, None)


def _terms(added: ast.expr, losses: set[str] | frozenset[str]) -> Iterator[ast.expr]:
    """The losses in what is added: `loss`, `loss * n`, `loss / n`, `loss.mean()`, `loss_a + loss_b`."""
    if isinstance(added, ast.BinOp) and isinstance(added.op, (ast.Add, ast.Sub, ast.Mult, ast.Div)):
        yield from _terms(added.left, losses)
        yield from _terms(added.right, losses)
    elif isinstance(added, ast.Call) and isinstance(added.func, ast.Attribute):
        if added.func.attr in ("mean", "sum") and key(added.func.value) in losses:
            yield added
    elif key(added) in losses:
        yield added


# ---- whether a term is a tensor, so that it can be detached --------------------------------------------------------


def _is_tensor(source: Source, term: ast.expr, root: Loop | Function, returned: set[str] | None = None) -> bool:
    """Whether a term is provably a tensor where it stands, by what binds its name in a loop or function.

    Either `backward` was called on this very name since it was bound, or all that binds it makes tensors. `returned`
    are names that a function of this file gives its loss to.
    """
    name_node = term.func.value if isinstance(term, ast.Call) and isinstance(term.func, ast.Attribute) else term
    name = key(name_node)
    bindings = [node for node in ast.walk(root) if _binds(node, name)]
    bindings = [node for node in bindings if not isinstance(source.parent(node), ast.AugAssign)]  # still a tensor
    values = {id(node): _value(source, node) for node in bindings}
    if any(
        value is not None and _is_number(source, value) for value in (*values.values(), *_before(source, root, name))
    ):
        return False
    if name in (returned or ()):
        return len(bindings) == 1
    backwards = [
        call
        for call in backward_calls(source)
        if any(ancestor is root for ancestor in source.ancestors(call))
        and key(_differentiated_tensor(source, root, backward_operand(source, call))) == name
    ]
    if not backwards:
        return bool(bindings) and all(value is not None and _makes_tensor(source, value) for value in values.values())
    place = _place(term)
    nearest = min(backwards, key=lambda call: (abs(call.lineno - place[0]), abs(call.col_offset - place[1])))
    first, last = sorted((place, _place(nearest)))
    if any(first < _place(node) < last for node in bindings):
        return False
    return all(any(_follows(source, call, node) for call in backwards) for node in bindings)


def _binds(node: ast.AST, name: str) -> bool:
    """Whether a node binds a name (as `key` writes it) or what it is an item or attribute of; `losses[k] = x` binds any item."""
    is_target = isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(
        node.ctx, (ast.Store, ast.Del)
    )
    if is_target and isinstance(node, ast.Subscript) and not isinstance(node.slice, ast.Constant):
        held = key(node.value)
        return bool(held) and name.startswith(f"{held}[")
    bound = key(node) if is_target else ""
    return bool(bound) and (name == bound or name.startswith((f"{bound}.", f"{bound}[")))


def _value(source: Source, binding: ast.AST) -> ast.expr | None:
    parent = source.parent(binding)
    return parent.value if isinstance(parent, ast.AugAssign) else assigned_value(source, binding)


def _before(source: Source, root: Loop | Function, name: str) -> Iterator[ast.expr | None]:
    """What the name gets in the function around, outside the loop."""
    around = enclosing_function(source, root) or source.tree
    for node in ast.walk(around):
        if _binds(node, name) and _place(node) < _place(root) and enclosing_function(source, node) in (around, None):
            yield _value(source, node)


def _is_number(source: Source, value: ast.expr) -> bool:
    """Whether an expression may be no tensor, or one without a graph: a constant, `.item()`, `float(x)`, `.detach()`."""
    if isinstance(value, ast.IfExp):
        return _is_number(source, value.body) or _is_number(source, value.orelse)
    if isinstance(value, ast.BoolOp):
        return any(_is_number(source, part) for part in value.values)
    if isinstance(value, ast.BinOp):
        sides = (value.left, value.right)
        return any(_is_number(source, s) and constant(source, s) is UNKNOWN for s in sides) or all(
            _is_number(source, s) for s in sides
        )
    if isinstance(value, (ast.UnaryOp, ast.NamedExpr)):
        return _is_number(source, value.operand if isinstance(value, ast.UnaryOp) else value.value)
    if isinstance(value, ast.Attribute):
        return value.attr == "data"
    if isinstance(value, ast.Call):
        if isinstance(value.func, ast.Name):
            return value.func.id in ("float", "int", "round", "len")
        if isinstance(value.func, ast.Attribute):
            return value.func.attr in _READS or _is_number(source, value.func.value)
        return False
    return constant(source, value) is not UNKNOWN


def _differentiated_tensor(source: Source, root: Loop | Function, node: ast.expr) -> ast.expr:
    """The one tensor that a backward pass starts from: `x` of `x`, `x / 4`, `scaler.scale(x)`, `x.mean()`."""
    if isinstance(node, ast.NamedExpr):
        return node.target
    if isinstance(node, ast.BinOp):
        bound = any(_binds(inner, key(node.right)) for inner in ast.walk(root))
        plain = isinstance(node.right, ast.Constant) or (key(node.right) and not bound)
        if isinstance(node.op, (ast.Div, ast.Mult)) and plain:
            return _differentiated_tensor(source, root, node.left)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr == "scale" and len(node.args) == 1:
            return _differentiated_tensor(source, root, node.args[0])
        if node.func.attr in ("mean", "sum", "div", "clone", "squeeze") and not source.qualified_name(node.func):
            return _differentiated_tensor(source, root, node.func.value)
    return node


def _makes_tensor(source: Source, value: ast.expr) -> bool:
    """Whether an expression is a tensor whatever its names hold: a criterion of torch, arithmetic with one."""
    if isinstance(value, ast.BinOp):
        return _makes_tensor(source, value.left) or _makes_tensor(source, value.right)
    if isinstance(value, ast.UnaryOp):
        return not isinstance(value.op, ast.Not) and _makes_tensor(source, value.operand)
    if not isinstance(value, ast.Call):
        return False
    if makes_loss(source, value) or _is_moved_criterion(source, value.func):
        return True
    is_method = isinstance(value.func, ast.Attribute) and value.func.attr in ("mean", "sum", "squeeze")
    return is_method and isinstance(value.func, ast.Attribute) and _makes_tensor(source, value.func.value)


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
    path = {id(ancestor): child for ancestor, child in _steps(source, binding)}
    for ancestor, child in _steps(source, call):
        if id(ancestor) in path:
            if not isinstance(ancestor, (ast.If, ast.Try, ast.Match)):
                return True
            return _branch(ancestor, child) == _branch(ancestor, path[id(ancestor)])
    return False


def _steps(source: Source, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    child = node
    for ancestor in source.ancestors(node):
        yield ancestor, child
        child = ancestor


def _branch(statement: ast.AST, child: ast.AST) -> str:
    for field, value in ast.iter_fields(statement):
        if isinstance(value, list) and any(part is child for part in value):
            return field if field in ("body", "orelse", "finalbody") else f"{field} {id(child)}"
    return ""


def _place(node: ast.AST) -> tuple[int, int]:
    return (getattr(node, "lineno", 0), getattr(node, "col_offset", 0))


# ---- what becomes of the sum ---------------------------------------------------------------------------------------


def _restarts_each_step(source: Source, step: StepLoop, target: ast.expr) -> bool:
    """Whether the loop itself sets the sum anew on most steps, so that it never spans two of them."""
    return any(not runs_rarely(source, node, step.loop) for node in _starts(source, step, target))


def _starts(source: Source, step: StepLoop, target: ast.expr) -> Iterator[ast.AST]:
    """Where the loop sets the sum anew."""
    for node in ast.walk(step.loop):
        is_set = isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
        if not is_set or node is target or dotted_name(node) != dotted_name(target):
            continue
        if _addition(source.statement(node))[0] is None:
            yield node


def _is_only_read(source: Source, target: ast.expr) -> bool:
    """Whether the sum is a number to its readers: no backward pass starts from it, no unknown function gets it."""
    roots = {key(leaf) for call in backward_calls(source) for leaf in summands(source, backward_operand(source, call))}
    return _reads_are_harmless(source, target, roots, MAX_ALIASES)


def _reads_are_harmless(source: Source, target: ast.expr, roots: set[str], depth: int) -> bool:
    if depth == 0 or key(target) in roots:
        return False
    return all(_is_harmless(source, use, roots, depth) for use in _uses(source, target))


def _uses(source: Source, target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Name):
        bindings = source.lookup(target)
        return [*source.uses_of(bindings[0], target.id)] if bindings else []
    loads = [node for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Load)]
    return [node for node in loads if last_name(node) == last_name(target)]


def _is_harmless(source: Source, use: ast.expr, roots: set[str], depth: int) -> bool:
    """Climbs from a read to what is done with it: a number is made of it, it is shown, stored under another name."""
    child: ast.AST = use
    for ancestor in source.ancestors(use):
        if isinstance(ancestor, ast.Attribute) and GRAPH_FREE.match(ancestor.attr):
            return True
        if isinstance(ancestor, ast.Attribute) and ancestor.attr == "backward":
            return False
        if isinstance(ancestor, ast.Call) and ancestor.func is not child:
            name, path = last_name(ancestor.func), source.qualified_name(ancestor.func) or ""
            if path not in GATHERS and not (isinstance(ancestor.func, ast.Name) and name == "sum"):
                is_told = isinstance(ancestor.func, ast.Attribute) and SCHEDULER.search(
                    dotted_name(ancestor.func.value)
                )
                return bool(READER.match(name) or is_told) or path.startswith(("math.", "wandb.", "numpy."))
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            return False
        if isinstance(ancestor, (ast.JoinedStr, ast.Return, ast.AugAssign, ast.If, ast.While, ast.Assert, ast.Expr)):
            return True
        if isinstance(ancestor, (ast.Assign, ast.AnnAssign)):
            targets = ancestor.targets if isinstance(ancestor, ast.Assign) else [ancestor.target]
            aliases = [t for t in targets if dotted_name(t) != dotted_name(use) and not _is_result(t)]
            return all(dotted_name(t) and _reads_are_harmless(source, t, roots, depth - 1) for t in aliases)
        child = ancestor
    return False


def _is_result(target: ast.expr) -> bool:
    """`best["loss"]`, where results are kept by name: the losses of the sum have been differentiated by then."""
    is_by_name = isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant)
    return is_by_name and isinstance(target, ast.Subscript) and isinstance(target.slice.value, str)  # type: ignore[attr-defined]  # a constant
