"""What runs on every turn of a loop, or on every call of a function."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import lies_in, walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import updates_weights
from perfaudit.static.understanding.called_functions import called_function, calls_of_functions
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import is_rare_part, skip_before
from perfaudit.static.understanding.values import assigned_value

_COUNTER = regex(r"(?:^|_)(?:steps?|iters?|iterations?|frames?|timesteps?|counter|count|size)$")
_LEAVES = (ast.Break, ast.Return, ast.Raise, ast.Continue)
_COUNT_NAME = regex(r"(^|_)(step|steps|iter|iters|iteration|it|i|count|counter|idx|index|num|n)(_|$)")
_STEADY_CALLS = {
    "is_main_process",
    "is_main",
    "is_primary",
    "is_rank_0",
    "is_rank_zero",
    "is_master",
    "get_world_size",
    "get_rank",
    "is_initialized",
    "is_available",
    "isinstance",
    "hasattr",
    "getattr",
    "type",
    "is_tensor",
}


def runs_each_time(source: Source, node: ast.AST, within: Loop | Function) -> bool:
    """Whether the node runs on every iteration of a loop, or on every call of a function, as far as the text tells.

    A condition on the way counts as met when nothing in it changes inside `within` (`if args.amp`, `if rank == 0`), when
    it asks whether the loader gave something, when it is false in the first turns only (`if steps > warm_up`, the `else` of
    `if mean is None: mean = ...`), and when it holds all updates of the weights, so that what runs under it runs on every
    training step (`if (i + 1) % accumulate == 0`).
    """
    known = _answers(source, within)
    on_the_way: list[int] = []  # what runs each time if what stands around it does
    answer: bool | None = False
    for ancestor, child in source.way_out(node):
        answer = known.get(id(child))
        if answer is None:
            on_the_way.append(id(child))
            answer = _is_passed(source, ancestor, child, within)
        if answer is not None:
            break
    known.update(dict.fromkeys(on_the_way, bool(answer)))
    return bool(answer)


@remember
def _answers(source: Source, within: Loop | Function) -> dict[int, bool]:
    """Of `runs_each_time` by the node's id: a chain of `elif` is not gone through anew for each of its branches."""
    return {}


def _is_passed(source: Source, ancestor: ast.AST, child: ast.AST, within: Loop | Function) -> bool | None:
    """Whether a part of what stands around it runs each time that this does; None where that hangs on what is further out."""
    skip = skip_before(source, child) if isinstance(child, ast.stmt) else None
    if skip is not None and not _holds_updates(source, source.block(skip), skip, within):
        return False
    if ancestor is within:
        if isinstance(within, ast.While) and child is within.test:
            return True
        return isinstance(child, ast.stmt) and source.block(child) is within.body
    if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.match_case)):
        return False
    if isinstance(ancestor, ast.If) and child is not ancestor.test:
        in_body = isinstance(child, ast.stmt) and source.block(child) is ancestor.body
        is_met = not is_rare_part(source, ancestor, child) and _is_met(source, ancestor.test, within, in_body)
        branch = ancestor.body if in_body else ancestor.orelse
        is_met = is_met or _is_met_but_at_first(ancestor, branch, in_body)
        if not is_met and not _holds_updates(source, branch, None, within):
            return False
    elif is_rare_part(source, ancestor, child):
        return False
    elif isinstance(ancestor, ast.IfExp):
        if child is not ancestor.test and not _is_steady(source, ancestor.test, within):
            return False
    elif isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]:
        before = ancestor.values[: next((n for n, value in enumerate(ancestor.values) if value is child), 0)]
        if not all(_is_steady(source, value, within) for value in before):
            return False
    return None


def runs_in_any_case(
    source: Source,
    node: ast.AST,
    within: Loop | Function,
    outcome: Callable[[ast.expr], bool | None] = lambda test: None,
) -> bool:
    """Whether the node runs on every call of a function, whatever its flags are; parameters of a model count as trained.

    Stricter than `runs_each_time`: of a function in another file nobody here knows how it was set up. outcome: what a
    condition comes to for what this call hands over; None where that is not clear.
    """
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(child, ast.stmt) and any(_may_leave(source, s, outcome) for s in source.before(child)):
            return False
        if ancestor is within:
            return True
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            parts = ancestor.test.values if isinstance(ancestor.test, ast.BoolOp) else [ancestor.test]
            if not any(part is child for part in body):
                if outcome(ancestor.test) is not False:
                    return False
            elif not all(_is_given_by_loop(source, part) or outcome(part) for part in parts):
                return False
        is_later = isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]
        is_message = isinstance(ancestor, ast.Assert) and child is ancestor.msg
        seldom = (ast.ExceptHandler, ast.Raise, ast.match_case, ast.While, ast.Lambda, *FUNCTIONS)
        if is_later or is_message or isinstance(ancestor, seldom):
            return False
        child = ancestor
    return False


def _may_leave(source: Source, statement: ast.stmt, outcome: Callable[[ast.expr], bool | None]) -> bool:
    """Whether a statement may end the call or the turn of the loop, otherwise than for what is missing there.

    That is a parameter without gradient, an item that is None, or a value that is no number: `if math.isnan(value): return`.
    """
    leaves = (ast.Return, ast.Continue, ast.Break)
    if not any(isinstance(node, leaves) for node in walk(statement)):
        return False
    if isinstance(statement, ast.If) and not statement.orelse and outcome(statement.test) is False:
        return False
    match statement:
        case ast.If(test=ast.Compare(left=ast.Attribute(attr="grad"), ops=[ast.Is()])):
            return False
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr="requires_grad"))):
            return False
        case ast.If(test=ast.Call() as call) if last_name(call.func) in ("isnan", "isinf"):
            return False
        case ast.If(test=ast.Compare(left=ast.Name() as name, ops=[ast.Is()], comparators=[ast.Constant(value=None)])):
            return not any(_is_loop_target(source, binding) for binding in source.lookup(name))
    return True


def _holds_updates(source: Source, block: list[ast.stmt], behind: ast.stmt | None, within: ast.AST) -> bool:
    """Whether a block, or what comes behind one of its statements, holds all updates of the weights in a loop or function."""
    updates = [call for call in _updates(source) if lies_in(call, within)]
    held = block if behind is None else [statement for statement in block if statement.lineno > behind.lineno]
    return bool(updates) and all(any(lies_in(call, statement) for statement in held) for call in updates)


@remember  # asked for each condition on the way to each node of a loop
def _updates(source: Source) -> tuple[ast.Call, ...]:
    """The calls that update weights, by themselves or in a function of this file, which runs one in no loop."""
    steps = [call for call in source.calls(".step") if updates_weights(call)]
    inside = {
        id(function)
        for step in steps
        if isinstance(function := source.enclosing(step, *FUNCTIONS), FUNCTIONS)
        and source.enclosing(step, *LOOPS, within=function) is None
    }
    return (*steps, *(call for call, function in calls_of_functions(source) if id(function) in inside))


def _is_met(source: Source, test: ast.expr, within: Loop | Function, in_body: bool) -> bool:
    """Whether a condition leads to this branch on every iteration: it is steady, or asks if the loader gave something."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return all(
        _is_steady(source, part, within)
        or (in_body and (_is_given_by_loop(source, part) or _is_given_by_step(source, part, within)))
        for part in parts
    )


def _is_given_by_step(source: Source, test: ast.expr, within: Loop | Function) -> bool:
    """Whether a condition is `loss is not None` with what a function of this file returns that updates weights.

    It gives nothing in the first turns only: while something holds too little, `if len(memory) < 32: return None`.
    """
    match test:
        case ast.Compare(left=ast.Name() as name, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)]):
            inside = [b for b in source.lookup(name) if isinstance(b, ast.Name) and lies_in(b, within)]
            asking = source.statement(name)  # what it binds itself, `loss = loss.cpu()`, comes behind the question
            made = [assigned_value(source, binding) for binding in inside if not lies_in(binding, asking)]
        case _:
            return False
    functions = [called_function(source, value) for value in made if isinstance(value, ast.Call)]
    return len(functions) == len(made) > 0 and all(f is not None and _steps_once_filled(source, f) for f in functions)


def _steps_once_filled(source: Source, function: Function) -> bool:
    """Whether a function updates weights on each call, but while there is too little to do it with."""
    if not any(updates_weights(call) and lies_in(call, function) for call in source.calls(".step")):
        return False
    returns = [node for node in source.nodes(ast.Return) if source.enclosing(node, *FUNCTIONS) is function]
    empty = [r for r in returns if r.value is None or (isinstance(r.value, ast.Constant) and r.value.value is None)]
    tests = [source.enclosing(r, ast.If, within=function) for r in empty]
    return len(empty) < len(returns) and all(isinstance(t, ast.If) and _asks_how_many(t.test) for t in tests)


def _asks_how_many(test: ast.expr) -> bool:
    """`len(memory) < batch_size`, `self.memory.length() < self.batch_size`"""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Lt, ast.LtE)):
        return False
    return isinstance(test.left, ast.Call) and last_name(test.left.func) in ("len", "length", "size", "__len__")


def _is_met_but_at_first(statement: ast.If, branch: list[ast.stmt], in_body: bool) -> bool:
    """Whether a branch is left out in the first turns only: until a counter is large enough, or a value has been set."""
    test = statement.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or isinstance(branch[-1], _LEAVES):
        return False
    if in_body and isinstance(test.ops[0], (ast.Gt, ast.GtE)):
        counted = test.left
        is_length = isinstance(counted, ast.Call) and last_name(counted.func) == "len"
        return _is_setting(test.comparators[0]) and (
            is_length or _COUNTER.search(last_name(counted).lower()) is not None
        )
    if not isinstance(test.comparators[0], ast.Constant) or test.comparators[0].value is not None:
        return False
    other = statement.orelse if in_body else statement.body
    is_set_before = isinstance(test.ops[0], ast.IsNot if in_body else ast.Is)
    name = dotted_name(test.left)
    sets = (target for part in other if isinstance(part, ast.Assign) for target in part.targets)
    return is_set_before and bool(name) and any(dotted_name(target) == name for target in sets)


def _is_setting(node: ast.expr) -> bool:
    """Whether an expression is a number, a name, or what a configuration holds: `config["start"]`, `config.get("start", 0)`."""
    match node:
        case ast.Subscript(value=held, slice=ast.Constant(value=str())):
            return bool(dotted_name(held))
        case ast.Call(func=ast.Attribute(value=held, attr="get"), args=[ast.Constant(), *_]):
            return bool(dotted_name(held))
    return isinstance(node, (ast.Name, ast.Attribute, ast.Constant))


def _is_given_by_loop(source: Source, test: ast.expr) -> bool:
    """Whether a condition is `x is not None` with a name that only heads of loops bind, asks for its gradient, or whether a
    parameter is a weight by its name: some are, in each model.
    """
    match test:
        case (
            ast.Compare(left=ast.Name() as name, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)])
            | ast.Compare(
                left=ast.Attribute(value=ast.Name() as name, attr="grad"),
                ops=[ast.IsNot()],
                comparators=[ast.Constant(value=None)],
            )
            | ast.Attribute(value=ast.Name() as name, attr="requires_grad")
        ):
            bindings = source.lookup(name)
            return bool(bindings) and all(_is_loop_target(source, binding) for binding in bindings)
        case ast.Compare(left=ast.Constant(value="weight"), ops=[ast.In()], comparators=[ast.Name() as name]):
            heads = [source.enclosing(binding, ast.For) for binding in source.lookup(name)]
            walked = [loop.iter for loop in heads if isinstance(loop, ast.For)]
            return bool(walked) and all(
                isinstance(over, ast.Call) and last_name(over.func) == "named_parameters" for over in walked
            )
    return False


def _is_loop_target(source: Source, node: ast.AST) -> bool:
    parent = source.parent(node)
    while isinstance(parent, (ast.Tuple, ast.List)):
        node, parent = parent, source.parent(parent)
    return isinstance(parent, (ast.For, ast.AsyncFor)) and parent.target is node


@remember
def _is_steady(source: Source, test: ast.expr, within: Loop | Function) -> bool:
    """Whether a condition has one outcome in all iterations: nothing in it is set inside, counted or computed.

    What a parameter is (`isinstance(x, Tensor)`) and which keys a dict has (`"aux" in losses`) do not change from call to call.
    """
    if _asks_for_key(test, within):
        return True
    changing = _bound_inside(within)
    given = {a.arg for a in walk(within.args) if isinstance(a, ast.arg)} if isinstance(within, FUNCTIONS) else set()
    for part in walk(test):
        if isinstance(part, ast.Call) and last_name(part.func) not in _STEADY_CALLS:
            return False
        if isinstance(part, (ast.NamedExpr, ast.Await)) or dotted_name(part) in changing:
            return False
        if isinstance(part, ast.Attribute) and _COUNT_NAME.search(part.attr):
            return False
        if isinstance(part, ast.Name) and part.id in given and not _asks_what_is_given(source, part):
            return False
    return True


def _asks_for_key(test: ast.expr, within: Loop | Function) -> bool:
    """`"aux" in losses.keys()`, and `"aux" in losses` where `losses["aux"]` is read."""
    match test:
        case ast.Compare(left=ast.Constant(value=str()), ops=[ast.In()], comparators=[ast.Call(args=[]) as held]):
            return last_name(held.func) == "keys"
        case ast.Compare(left=ast.Constant(value=str() as name), ops=[ast.In()], comparators=[held]):
            items = (node for node in walk(within) if isinstance(node, ast.Subscript))
            return any(
                isinstance(item.slice, ast.Constant) and item.slice.value == name
                for item in items
                if dotted_name(item.value) == dotted_name(held) != ""
            )
    return False


def _asks_what_is_given(source: Source, name: ast.Name) -> bool:
    """Whether a test of a parameter is one of set-up: `scaler is None`, `args.amp`, `isinstance(x, Tensor)`."""
    parent = source.parent(name)
    if isinstance(parent, ast.Call):
        return last_name(parent.func) in ("isinstance", "type", "is_tensor") and parent.args[:1] == [name]
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], (ast.Is, ast.IsNot))
    return isinstance(parent, ast.Attribute)


@functools.lru_cache(maxsize=4)  # asked for every condition on the way to every node of one loop
def _bound_inside(within: Loop | Function) -> frozenset[str]:
    """Names and attribute chains that are assigned inside a loop or a function."""
    stores = [n for n in walk(within) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)]
    inner = {id(n) for part in walk(within) if isinstance(part, ast.comprehension) for n in walk(part.target)}
    return frozenset(dotted_name(node) for node in stores if id(node) not in inner) - {""}
