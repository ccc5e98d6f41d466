"""Where code stands in a training program: in the training loop, in evaluation, in a demonstration, seldom run."""

from __future__ import annotations

import ast
import functools
import itertools
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source

_OPTIMIZER_NAME = regex(r"opt|scaler|solver|adam|sgd", re.IGNORECASE)
_LOSS_SCALER = regex(r"(^|_)loss_scaler$")
_RARE_NAME = regex(
    r"(?<![a-z])(debug|verbose|log(?!it|in|ic)|print|profil|last|first|save|report|vis|plot|should|dump|display|summar|every)"
)
_COUNTER = regex(r"(?:^|_)(?:steps?|iters?|iterations?|frames?|timesteps?|counter|count|size)$")
_LEAVES = (ast.Break, ast.Return, ast.Raise, ast.Continue)
_TROUBLE = regex(r"debug|verbose|profil", re.IGNORECASE)
_EPOCH = regex(r"(?<!per_)epoch")  # the number of one: `epoch`, not `step_per_epoch`
_EPOCHS = regex(r"(?<!per_)epochs?$")  # a number of them: `n_epochs`, not `iters_per_epoch`
_FEW_STEPS = 100  # with a wait of some 50 microseconds in each, 5 ms in all
_MAX_BASES = 4  # base classes looked through for a method
_CALLS_DEEP = 2  # calls followed from a training loop
_ASIDE = regex(r"(^|_)(sav|check_?point|ckpt|snapshot|dump|export|plot|draw|vis(_|ual)|report|display)")
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
}
STEP_METHODS = {"forward", "training_step"}
_OFTEN = {*STEP_METHODS, "__getitem__", "__call__", "collate", "collate_fn"}
_ONCE = {"__init__", "__post_init__", "main", "setup"}
_ITERATED = (*LOOPS, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_CALLS_OUTWARDS = 4
EVALUATION_NAME = regex(
    r"(^|_)(eval|evaluate|evaluation|val|valid|validate|validation|test|sample"
    r"|generate(?!_(?:model|net|network|backbone|classifier)(?:_|$)))(_|$)"  # `generate_model` builds one
)
NO_GRAD = {
    f"torch.{module}{name}"
    for module in ("", "autograd.", "autograd.grad_mode.")
    for name in ("no_grad", "inference_mode")
}
SET_GRAD = {"torch.set_grad_enabled", "torch.autograd.set_grad_enabled", "torch.autograd.grad_mode.set_grad_enabled"}


class StepLoop(NamedTuple):
    """A loop that makes one training step per iteration.

    It is the innermost loop that reaches `backward`; the next one out, which may call the function of the inner one, where
    only that one updates the weights (accumulation of gradients). `helpers` are the functions of this file it reaches
    `backward` through, two calls deep at most.
    """

    loop: Loop
    helpers: tuple[Function, ...]


class StepCode(NamedTuple):
    """Code that runs on every step: the loop itself, or a function of this file that is called each time, two calls deep.

    `calls` are the calls that reach the function, `caller` the code that has them; none for the loop itself.
    """

    root: Loop | Function
    calls: tuple[ast.Call, ...]
    caller: StepCode | None = None

    @property
    def is_near(self) -> bool:
        """Whether the code is at most one call away from the loop, so that what it calls is followed too."""
        return self.caller is None or self.caller.caller is None

    @property
    def way(self) -> str:
        """By what call a function two calls deep is reached, for messages: " (in `clean`, which `step` calls)"; else ""."""
        around = self.caller.root if self.caller is not None else None
        if not isinstance(self.root, FUNCTIONS) or not isinstance(around, FUNCTIONS):
            return ""
        return f" (in `{self.root.name}`, which `{around.name}` calls)"


# ---- names and gradients -------------------------------------------------------------------------------------------


def last_name(node: ast.AST) -> str:
    """The last part of a name or an attribute chain: "loss" of `loss` and of `self.out.loss`; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def dotted_name(node: ast.AST) -> str:
    """`self.model.head` as text where an expression is a name with attributes and nothing else; otherwise ""."""
    if isinstance(node, ast.Attribute):
        base = dotted_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def in_no_grad(source: Source, node: ast.AST) -> bool:
    """Whether a `with torch.no_grad()` (or `inference_mode`) or a decorator of that kind is around the node."""
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            if any(turns_grad_off(source, item.context_expr) for item in ancestor.items):
                return True
        elif isinstance(ancestor, FUNCTIONS) and any(turns_grad_off(source, d) for d in ancestor.decorator_list):
            return True
    return False


def turns_grad_off(source: Source, node: ast.expr) -> bool:
    """Whether an expression is `torch.no_grad()`, `inference_mode()` or `set_grad_enabled(False)`, called or not."""
    name = source.qualified(node.func if isinstance(node, ast.Call) else node)
    if name in NO_GRAD:
        arguments = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
        return not any(isinstance(argument, ast.Constant) and argument.value is False for argument in arguments)
    if name in SET_GRAD and isinstance(node, ast.Call):
        mode = [*node.args, *(k.value for k in node.keywords if k.arg == "mode")]
        return bool(mode) and isinstance(mode[0], ast.Constant) and mode[0].value is False
    return False


# ---- the training loop ---------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def backward_calls(source: Source) -> tuple[ast.Call, ...]:
    """Calls that run a backward pass: `x.backward()`, `accelerator.backward(x)`, `loss_scaler(x, optimizer)`.

    And those that hand the loss to a function of another file that does: `update(optimizer, model, loss)`.
    """
    scalers = [
        call
        for call in source.calls_named(_LOSS_SCALER)
        if len(call.args) > 1 and _OPTIMIZER_NAME.search(last_name(call.args[1]))
    ]
    handing = [call for call, _ in losses_handed_over(source).values()]
    return (*source.calls(".backward"), *source.calls(".manual_backward"), *scalers, *handing)


@functools.lru_cache(maxsize=4)
def losses_handed_over(source: Source) -> dict[int, tuple[ast.Call, ast.expr]]:
    """Calls of functions of other files that run a backward pass on what they are given, with what that is; by the call's id.

    Calls that pass an optimizer, by its name. A function with a loop around its backward pass makes steps of its own.
    """
    found: dict[int, tuple[ast.Call, ast.expr]] = {}
    for call in source.nodes(ast.Call) if source.neighbours is not None else ():
        given = [*call.args, *(keyword.value for keyword in call.keywords)]
        if not any(_OPTIMIZER_NAME.search(last_name(value)) for value in given):
            continue
        there = _defined_elsewhere(source, call.func)
        if there is not None and isinstance(there[1], FUNCTIONS):
            loss = _given_to_backward(there[0], there[1], call)
            if loss is not None:
                found[id(call)] = (call, loss)
    return found


def _defined_elsewhere(source: Source, func: ast.expr) -> tuple[Source, ast.AST] | None:
    """What another file defines that a call runs: an imported function, or a method of `self` that a base class has there."""
    own = source.enclosing(func, ast.ClassDef)
    is_method = dotted_name(func) == f"self.{last_name(func)}"
    if is_method and (own is None or not own.bases or last_name(func) in source.bound_in(own)):
        return None
    dotted = source.qualified(own.bases[0] if is_method and own is not None else func) or ""
    if dotted.partition(".")[0] in ("", "torch") or source.neighbours is None:
        return None
    there = source.neighbours.defined(dotted)
    if there is None or not is_method:
        return there
    bound = there[0].bound_in(there[1]).get(last_name(func), []) if isinstance(there[1], ast.ClassDef) else []
    return (there[0], bound[0]) if len(bound) == 1 else None


def _given_to_backward(there: Source, function: Function, call: ast.Call) -> ast.expr | None:
    """What a call hands to the parameter of a function of another file on which that calls `backward`, in no loop."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    names = names[1:] if names[:1] == ["self"] else names
    for backward in there.calls(".backward"):
        if not _lies_in(backward, function) or there.enclosing(backward, *LOOPS, within=function) is not None:
            continue
        name = last_name(backward.func.value) if isinstance(backward.func, ast.Attribute) else ""
        by_keyword = [keyword.value for keyword in call.keywords if keyword.arg == name]
        place = names.index(name) if name in names else len(call.args)
        if by_keyword or place < len(call.args):
            return by_keyword[0] if by_keyword else call.args[place]
    return None


@functools.lru_cache(maxsize=4)  # several rules ask for the same file
def step_loops(source: Source) -> tuple[StepLoop, ...]:
    """The training loops of a file, in document order."""
    backward = backward_calls(source)
    if not backward:
        return ()
    found: dict[int, tuple[Loop, list[Function]]] = {}
    reached: dict[int, list[Function]] = {}
    accumulating: dict[int, Loop] = {}  # loops that update no weights, by the functions that they are in
    for call in backward:
        loop = _step_loop_around(source, call)
        if isinstance(function := source.enclosing(call, *FUNCTIONS), FUNCTIONS):
            reached[id(function)] = [function]
            if loop is not None and not _updates(source, function):
                accumulating[id(function)] = loop
        if loop is not None:
            found.setdefault(id(loop), (loop, []))
    known = set(reached)
    for _ in range(_CALLS_DEEP if reached else 0):
        further: dict[int, list[Function]] = {}
        with_loop = {id(ancestor) for loop, _ in found.values() for ancestor in source.ancestors(loop)}
        with_loop -= accumulating.keys()
        for call, function in _calls_of_functions(source):
            helpers = reached.get(id(function)) if id(function) not in with_loop else None
            if helpers is None:
                continue
            loop = _step_loop_around(source, call)
            inner = next((accumulating[id(helper)] for helper in helpers if id(helper) in accumulating), None)
            if loop is not None and inner is not None:
                if _updates(source, loop):
                    found.pop(id(inner), None)
                    _add(found.setdefault(id(loop), (loop, []))[1], helpers)
            elif loop is not None:
                _add(found.setdefault(id(loop), (loop, []))[1], helpers)
            elif (around := _calls_it_each_time(source, call)) is not None and id(around) not in known:
                _add(further.setdefault(id(around), [around]), helpers)
        known |= further.keys()
        reached = further
    loops = [StepLoop(loop, tuple(helpers)) for loop, helpers in found.values()]
    return tuple(sorted(loops, key=lambda item: item.loop.lineno))


def _updates(source: Source, root: Loop | Function) -> bool:
    """Whether a loop or function updates weights, by itself or in what it calls, two calls deep, and in no loop there."""
    updates = [call for call in source.calls(".step") if _updates_weights(call)]
    roots = [root]
    for _ in range(_CALLS_DEEP + 1):
        if any(
            _lies_in(call, part) and (part is root or source.enclosing(call, *LOOPS, within=part) is None)
            for part in roots
            for call in updates
        ):
            return True
        roots = [function for part in roots for call, function in _calls_of_functions(source) if _lies_in(call, part)]
    return False


def _add(known: list[Function], functions: list[Function]) -> None:
    known.extend(function for function in functions if not any(other is function for other in known))


@functools.lru_cache(maxsize=4)
def _calls_of_functions(source: Source) -> tuple[tuple[ast.Call, Function], ...]:
    """The calls of a file that run a function of it, each with that function."""
    called = ((call, called_function(source, call)) for call in source.nodes(ast.Call))
    return tuple((call, function) for call, function in called if function is not None)


def _calls_it_each_time(source: Source, call: ast.Call) -> Function | None:
    """The function around a call, if it makes the call whenever it runs, as far as the text tells."""
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or EVALUATION_NAME.search(function.name.lower()):
        return None
    return None if runs_rarely(source, call, function) else function


def _step_loop_around(source: Source, call: ast.Call) -> Loop | None:
    """The loop whose iterations are the steps of this backward pass."""
    inner = _loop_around(source, call)
    outer = _loop_around(source, inner) if inner is not None else None
    if outer is None:
        return inner
    updated_in = [_loop_around(source, update) for update in source.calls(".step") if _updates_weights(update)]
    if any(loop is inner for loop in updated_in) or not any(loop is outer for loop in updated_in):
        return inner
    return outer


def _loop_around(source: Source, node: ast.AST) -> Loop | None:
    """The innermost loop around a node in the same function.

    A pass over a few written values belongs to the loop around it, and counts itself where there is no other one.
    """
    written: Loop | None = None
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, LOOPS):
            if not is_over_written_values(ancestor):
                return ancestor
            written = written or ancestor
        elif isinstance(ancestor, (*FUNCTIONS, ast.Lambda)):
            break
    return written


def is_over_written_values(loop: Loop) -> bool:
    """Whether a loop goes through a few values written there (`for mode in ("train", "test")`): no loop over batches."""
    if isinstance(loop, ast.While):
        return False
    is_numbered = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("enumerate", "zip")
    values = loop.iter.args if is_numbered and isinstance(loop.iter, ast.Call) else [loop.iter]
    return any(isinstance(value, (ast.Tuple, ast.List, ast.Set)) for value in values)


def _updates_weights(call: ast.Call) -> bool:
    """Whether `x.step()` is an optimizer's, by its name; a scheduler's is not."""
    name = last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    return bool(_OPTIMIZER_NAME.search(name)) and "sched" not in name.lower()


def called_function(source: Source, call: ast.Call) -> Function | None:
    """The function of this file that a call runs.

    A function by its name; a method by `self.name`, also of a base class in this file, or on a name bound once to an
    object of a class of this file; the closure of `optimizer.step(closure)`.
    """
    func = call.func
    if isinstance(func, ast.Name):
        candidates = source.lookup(func)
    elif not isinstance(func, ast.Attribute):
        return None
    elif func.attr == "step" and len(call.args) == 1 and isinstance(call.args[0], ast.Name) and _updates_weights(call):
        candidates = source.lookup(call.args[0])
    elif func.attr in _function_names(source):
        candidates = _method(source, _class_of(source, func.value), func.attr)
    else:
        return None
    only = candidates[0] if len(candidates) == 1 else None  # a name may have thousands
    return only if isinstance(only, FUNCTIONS) else None


@functools.lru_cache(maxsize=4)  # asked for every call of a file
def _function_names(source: Source) -> frozenset[str]:
    awaited = (function.name for function in source.nodes(ast.AsyncFunctionDef))
    return frozenset((*awaited, *(function.name for function in source.nodes(ast.FunctionDef))))


def assigned_once(source: Source, name: ast.Name) -> ast.expr:
    """What the one plain assignment of a name gives it, else the name."""
    bindings = source.lookup(name)
    parent = source.parent(bindings[0]) if len(bindings) == 1 else None
    return parent.value if isinstance(parent, ast.Assign) and parent.targets[0] is bindings[0] else name


def _class_of(source: Source, node: ast.expr) -> ast.ClassDef | None:
    """The class of this file that `self`, or a name bound once to `Class(...)`, is an object of."""
    if not isinstance(node, ast.Name):
        return None
    if node.id == "self":
        return source.enclosing(node, ast.ClassDef)
    value = assigned_once(source, node)
    return _class_named(source, value.func) if isinstance(value, ast.Call) else None


def _class_named(source: Source, node: ast.expr) -> ast.ClassDef | None:
    bindings = source.lookup(node) if isinstance(node, ast.Name) else []
    return bindings[0] if len(bindings) == 1 and isinstance(bindings[0], ast.ClassDef) else None


def _method(source: Source, definition: ast.ClassDef | None, name: str) -> list[ast.AST]:
    """What binds a method's name in a class, else in the nearest of its bases in this file (first bases only)."""
    for _ in range(_MAX_BASES):
        if definition is None:
            return []
        if bound := source.bound_in(definition).get(name):
            return bound
        definition = _class_named(source, definition.bases[0]) if definition.bases else None
    return []


@functools.lru_cache(maxsize=32)  # several rules ask for the same loops
def step_code(source: Source, step: StepLoop) -> tuple[StepCode, ...]:
    """The loop, and each function of this file that runs on every iteration: first those that it calls, then theirs.

    No call of a function is followed that evaluates or saves.
    """
    code = callers = [StepCode(step.loop, ())]
    known = {id(ancestor) for other in step_loops(source) for ancestor in source.ancestors(other.loop)}
    for _ in range(_CALLS_DEEP):
        reached: dict[int, tuple[Function, list[ast.Call], StepCode]] = {}
        for caller in callers:
            for call, function in _called_each_time(source, caller.root):
                if id(function) not in known:
                    reached.setdefault(id(function), (function, [], caller))[1].append(call)
        found = [StepCode(function, tuple(calls), caller) for function, calls, caller in reached.values()]
        followed = [part for part in found if not evaluates(step, part.root) and not leaves_step(part.root)]
        code = [*code, *(found if callers is code else followed)]
        known |= reached.keys()
        callers = followed
    return tuple(code)


def _called_each_time(source: Source, root: Loop | Function) -> Iterator[tuple[ast.Call, Function]]:
    """The calls in a loop or function that run functions of this file on each of its turns; not one that ends the loop."""
    first, last = root.lineno, root.end_lineno or 0
    for call, function in _calls_of_functions(source):
        if not first <= call.lineno <= last or function is root or not runs_each_time(source, call, root):
            continue
        block = source.block(source.statement(call))
        if isinstance(root, FUNCTIONS) or block is root.body or not isinstance(block[-1], (ast.Return, ast.Break)):
            yield call, function


def leaves_step(root: Loop | Function) -> bool:
    """Whether a function by its name writes to disk or draws a picture: what it calls is not followed as code of a step."""
    return isinstance(root, FUNCTIONS) and bool(_ASIDE.search(root.name.lower()))


def evaluates(step: StepLoop, root: Loop | Function) -> bool:
    """Whether a function that a training loop calls is no part of the step: it evaluates or draws samples."""
    if not isinstance(root, FUNCTIONS) or any(root is helper for helper in step.helpers):
        return False
    called = {last_name(node.func) for node in ast.walk(root) if isinstance(node, ast.Call)}
    return "eval" in called or bool(EVALUATION_NAME.search(root.name.lower()))


def takes_few_long_steps(source: Source, step: StepLoop) -> bool:
    """Whether a step loop numbers epochs, and a wait in each of them is not worth a word.

    That is where an epoch makes its step from several passes, where it ends with an evaluation whose numbers are read in
    any case, where its optimizer reads the loss by itself, and where the epochs written there are few. Any other step on
    the whole data is a step as those on batches are: often a short one, which the wait makes longer.
    """
    if not counts_epochs(step.loop):
        return False
    if _last_epoch(step.loop) < _FEW_STEPS or source.calls("torch.optim.LBFGS"):
        return True
    inside = [node for root in (step.loop, *step.helpers) for part in root.body for node in ast.walk(part)]
    if any(isinstance(node, LOOPS) and not is_over_written_values(node) for node in inside):
        return True
    called = (last_name(node.func) for part in step.loop.body for node in ast.walk(part) if isinstance(node, ast.Call))
    return any(EVALUATION_NAME.search(name.lower()) for name in called)


def _last_epoch(loop: Loop) -> float:
    """The number of epochs where `range(20)` or `range(1, 21)` says it, else infinity."""
    match loop:
        case ast.For(iter=ast.Call(args=[ast.Constant(value=int() as last)] | [_, ast.Constant(value=int() as last)])):
            return last
    return float("inf")


def counts_epochs(loop: Loop) -> bool:
    """Whether a loop numbers epochs (`for epoch in range(100)`): a step loop of this kind trains on one full batch."""
    if not isinstance(loop, ast.For):
        return False
    counts = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange")
    limits = {last_name(node).lower() for node in ast.walk(loop.iter)} if counts else set()
    return any(_EPOCH.search(last_name(node).lower()) for node in ast.walk(loop.target)) or any(
        _EPOCHS.search(name) for name in limits
    )


# ---- how often -----------------------------------------------------------------------------------------------------


def runs_rarely(source: Source, node: ast.AST, within: ast.AST) -> bool:
    """Whether a condition between the node and the loop makes it run on few iterations (`if step % 100 == 0`)."""
    child = node
    for ancestor in source.ancestors(node):
        if _is_rare_part(ancestor, child) or (isinstance(child, ast.stmt) and _skip_before(source, child) is not None):
            return True
        if ancestor is within:
            return False
        child = ancestor
    return False


def _is_rare_part(parent: ast.AST, child: ast.AST) -> bool:
    """Whether this part of a statement or expression runs seldom: a rare branch, an error's handler or message."""
    if isinstance(parent, (ast.If, ast.IfExp)) and child is not parent.test:
        body = parent.body if isinstance(parent.body, list) else [parent.body]
        return rare_when(parent.test) is any(part is child for part in body)
    if isinstance(parent, ast.BoolOp):
        before = parent.values[: next((n for n, value in enumerate(parent.values) if value is child), 0)]
        return any(rare_when(value) is isinstance(parent.op, ast.And) for value in before)
    if isinstance(parent, ast.Assert):
        return child is parent.msg
    return isinstance(parent, (ast.ExceptHandler, ast.Raise))


def _skip_before(source: Source, statement: ast.stmt) -> ast.If | None:
    """The `if step % 100: continue` that stands before the statement in its block."""
    for earlier in source.block(statement):
        if earlier is statement:
            return None
        leaves = isinstance(earlier, ast.If) and isinstance(earlier.body[-1], (ast.Continue, ast.Return))
        if leaves and isinstance(earlier, ast.If) and rare_when(earlier.test) is False:
            return earlier
    return None


def rare_when(test: ast.expr) -> bool | None:
    """The outcome that a condition seldom has: True for `step % 100 == 0`, False for `step % 100`, None if unknown."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        outcome = rare_when(test.operand)
        return None if outcome is None else not outcome
    if isinstance(test, ast.BoolOp):
        outcomes = [rare_when(value) for value in test.values]
        return True if True in outcomes else False if False in outcomes else None
    if isinstance(test, ast.BinOp) and _is_remainder(test):
        return False
    if isinstance(test, ast.Compare):
        if any(_is_remainder(part) for part in ast.walk(test)):
            return not isinstance(test.ops[0], (ast.NotEq, ast.Gt, ast.GtE))
        if isinstance(test.ops[0], (ast.Is, ast.IsNot)) and not any(
            _TROUBLE.search(last_name(n)) for n in ast.walk(test)
        ):
            return None  # `logger is not None` is a question of set-up
        if any(dotted_name(part.func).startswith("time.") for part in ast.walk(test) if isinstance(part, ast.Call)):
            return True
    return True if any(_RARE_NAME.search(last_name(part).lower()) for part in ast.walk(test)) else None


def _is_remainder(node: ast.AST) -> bool:
    is_text = isinstance(node, ast.BinOp) and isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and not is_text


def runs_each_time(source: Source, node: ast.AST, within: Loop | Function) -> bool:
    """Whether the node runs on every iteration of a loop, or on every call of a function, as far as the text tells.

    A condition on the way counts as met when nothing in it changes inside `within` (`if args.amp`, `if rank == 0`), when
    it asks whether the loader gave something, when it is false in the first turns only (`if steps > warm_up`, the `else` of
    `if mean is None: mean = ...`), and when it holds all updates of the weights, so that what runs under it runs on every
    training step (`if (i + 1) % accumulate == 0`).
    """
    child = node
    for ancestor in source.ancestors(node):
        skip = _skip_before(source, child) if isinstance(child, ast.stmt) else None
        if skip is not None and not _holds_updates(source, source.block(skip), skip, within):
            return False
        if ancestor is within:
            body: list[ast.AST] = [*within.body, within.test] if isinstance(within, ast.While) else [*within.body]
            return any(part is child for part in body)
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef, ast.match_case)):
            return False
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            in_body = any(part is child for part in ancestor.body)
            is_met = not _is_rare_part(ancestor, child) and _is_met(source, ancestor.test, within, in_body)
            branch = ancestor.body if in_body else ancestor.orelse
            is_met = is_met or _is_met_but_at_first(ancestor, branch, in_body)
            if not is_met and not _holds_updates(source, branch, None, within):
                return False
        elif _is_rare_part(ancestor, child):
            return False
        elif isinstance(ancestor, ast.IfExp):
            if child is not ancestor.test and not _is_steady(source, ancestor.test, within):
                return False
        elif isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]:
            before = ancestor.values[: next((n for n, value in enumerate(ancestor.values) if value is child), 0)]
            if not all(_is_steady(source, value, within) for value in before):
                return False
        child = ancestor
    return False


def runs_in_any_case(
    source: Source, node: ast.AST, within: Loop | Function, is_met: Callable[[ast.expr], bool] = lambda test: False
) -> bool:
    """Whether the node runs on every call of a function, whatever its flags are; parameters of a model count as trained.

    Stricter than `runs_each_time`: of a function in another file nobody here knows how it was set up. is_met: whether a
    condition holds for what this call hands over.
    """
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(child, ast.stmt) and any(_may_leave(source, s) for s in source.before(child)):
            return False
        if ancestor is within:
            return True
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            body = ancestor.body if isinstance(ancestor.body, list) else [ancestor.body]
            parts = ancestor.test.values if isinstance(ancestor.test, ast.BoolOp) else [ancestor.test]
            if not any(part is child for part in body):
                return False
            if not all(_is_given_by_loop(source, part) or is_met(part) for part in parts):
                return False
        is_later = isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]
        is_message = isinstance(ancestor, ast.Assert) and child is ancestor.msg
        seldom = (ast.ExceptHandler, ast.Raise, ast.match_case, ast.While, ast.Lambda, *FUNCTIONS)
        if is_later or is_message or isinstance(ancestor, seldom):
            return False
        child = ancestor
    return False


def _may_leave(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement may end the call or the turn of the loop, otherwise than for what is missing there.

    That is a parameter without gradient, or an item that is None.
    """
    leaves = (ast.Return, ast.Continue, ast.Break)
    if not any(isinstance(node, leaves) for node in ast.walk(statement)):
        return False
    match statement:
        case ast.If(test=ast.Compare(left=ast.Attribute(attr="grad"), ops=[ast.Is()])):
            return False
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Attribute(attr="requires_grad"))):
            return False
        case ast.If(test=ast.Compare(left=ast.Name() as name, ops=[ast.Is()], comparators=[ast.Constant(value=None)])):
            return not any(_is_loop_target(source, binding) for binding in source.lookup(name))
    return True


def _holds_updates(source: Source, block: list[ast.stmt], behind: ast.stmt | None, within: ast.AST) -> bool:
    """Whether a block, or what comes behind one of its statements, holds all updates of the weights in a loop or function."""
    updates = [call for call in source.calls(".step") if _updates_weights(call) and _lies_in(call, within)]
    held = block if behind is None else [statement for statement in block if statement.lineno > behind.lineno]
    return bool(updates) and all(any(_lies_in(call, statement) for statement in held) for call in updates)


def _lies_in(node: ast.expr | ast.stmt, around: ast.AST) -> bool:
    first, last = getattr(around, "lineno", 0), getattr(around, "end_lineno", 0)
    return bool(first <= node.lineno <= last)


def _is_met(source: Source, test: ast.expr, within: Loop | Function, in_body: bool) -> bool:
    """Whether a condition leads to this branch on every iteration: it is steady, or asks if the loader gave something."""
    parts = test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]
    return all(_is_steady(source, part, within) or (in_body and _is_given_by_loop(source, part)) for part in parts)


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
    """Whether a condition is `x is not None` with a name that only heads of loops bind, or asks for its gradient."""
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
    return False


def _is_loop_target(source: Source, node: ast.AST) -> bool:
    parent = source.parent(node)
    while isinstance(parent, (ast.Tuple, ast.List)):
        node, parent = parent, source.parent(parent)
    return isinstance(parent, (ast.For, ast.AsyncFor)) and parent.target is node


def _is_steady(source: Source, test: ast.expr, within: Loop | Function) -> bool:
    """Whether a condition has one outcome in all iterations: nothing in it is set inside, counted or computed."""
    changing = _bound_inside(within)
    given = {a.arg for a in ast.walk(within.args) if isinstance(a, ast.arg)} if isinstance(within, FUNCTIONS) else set()
    for part in ast.walk(test):
        if isinstance(part, ast.Call) and last_name(part.func) not in _STEADY_CALLS:
            return False
        if isinstance(part, (ast.NamedExpr, ast.Await)) or dotted_name(part) in changing:
            return False
        if isinstance(part, ast.Attribute) and _COUNT_NAME.search(part.attr):
            return False
        if isinstance(part, ast.Name) and part.id in given and not _asks_what_is_given(source, part):
            return False
    return True


def _asks_what_is_given(source: Source, name: ast.Name) -> bool:
    """Whether a test of a parameter is one of set-up: `scaler is None`, `args.amp`."""
    parent = source.parent(name)
    if isinstance(parent, ast.Compare):
        return isinstance(parent.ops[0], (ast.Is, ast.IsNot))
    return isinstance(parent, ast.Attribute)


@functools.lru_cache(maxsize=4)  # asked for every condition on the way to every node of one loop
def _bound_inside(within: Loop | Function) -> frozenset[str]:
    """Names and attribute chains that are assigned inside a loop or a function."""
    stores = [n for n in ast.walk(within) if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store)]
    inner = {id(n) for part in ast.walk(within) if isinstance(part, ast.comprehension) for n in ast.walk(part.target)}
    return frozenset(dotted_name(node) for node in stores if id(node) not in inner) - {""}


# ---- scripts, tests and demonstrations -----------------------------------------------------------------------------


def is_main_guard(statement: ast.AST) -> bool:
    """Whether a statement is `if __name__ == "__main__":`."""
    if not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    left = statement.test.left
    return isinstance(left, ast.Name) and left.id == "__name__"


def is_test(source: Source, node: ast.AST) -> bool:
    """Whether the node stands in a test, by the name of a function around it or of the file."""
    if source.path.rpartition("/")[2].startswith("test_"):
        return True
    return any(isinstance(a, FUNCTIONS) and a.name.startswith("test_") for a in source.ancestors(node))


def only_evaluates(source: Source) -> bool:
    """Whether the file puts a model into eval mode, or runs without gradients, and trains nothing: a test, a demonstration."""
    if backward_calls(source):
        return False
    return bool(source.calls(".eval")) or any(source.calls(name) for name in NO_GRAD)


def is_shown_only(source: Source, node: ast.AST) -> bool:
    """Whether the node is under a main guard in which nothing is trained."""
    guard = next((ancestor for ancestor in source.ancestors(node) if is_main_guard(ancestor)), None)
    return guard is not None and not any(_lies_in(step.loop, guard) for step in step_loops(source))


# ---- on every step, often ------------------------------------------------------------------------------------------


def runs_every_step(source: Source, node: ast.AST) -> bool:
    """Whether the node stands in a training loop, in a function it calls, or in `forward` or `training_step`.

    The `forward` of a class under `if __name__ == "__main__":` is a demonstration's, unless a loop there trains it.
    """
    around = {id(ancestor) for ancestor in source.ancestors(node)}
    in_step_method = any(isinstance(a, FUNCTIONS) and a.name in STEP_METHODS for a in source.ancestors(node))
    if in_step_method and not is_shown_only(source, node):
        return True
    return any(id(step.loop) in around or any(id(h) in around for h in step.helpers) for step in step_loops(source))


def runs_often(source: Source, node: ast.AST) -> bool:
    """Whether the node runs on every step, batch or sample: there, or in a function of this file that is called there."""
    if runs_every_step(source, node):
        return True
    if is_shown_only(source, node):
        return False
    places: tuple[ast.AST, ...] = (node,)
    for _ in range(3):  # the function itself, and two calls followed outwards
        functions = [f for place in places if isinstance(f := source.enclosing(place, *FUNCTIONS), FUNCTIONS)]
        if any(function.name in _OFTEN for function in functions):
            return True
        places = tuple(call for function in functions for call in callers(source, function))
        if any(runs_every_step(source, call) for call in places):
            return True
    return False


def runs_seldom(source: Source, node: ast.AST) -> bool:
    """Whether the node surely runs on few of the steps of a training: in set-up code, once an epoch, under `if step % 100 == 0`.

    A function runs as seldom as all calls of it do, all of which this file must show. What stands outside of every loop in
    a function that holds the training loop is set-up code, and so are `main` and the building of an object.
    """
    places: list[ast.AST] = [node]
    for _ in range(_CALLS_OUTWARDS):
        asked: list[Function] = []
        for place in places:
            function = source.enclosing(place, *FUNCTIONS, ast.Lambda)
            is_seldom = _is_seldom_inside(source, place, function)
            if is_seldom is None and isinstance(function, FUNCTIONS):
                asked.append(function)
            elif not is_seldom:
                return False
        calls = [_all_calls(source, function) for function in asked]
        if not all(calls):
            return False
        places = [call for found in calls for call in found]
    return not places


def _is_seldom_inside(source: Source, node: ast.AST, function: ast.AST | None) -> bool | None:
    """Whether the node runs seldom, as far as the function around it says; None where that is up to those who call it."""
    steps = step_loops(source)
    loops = [node for node in _around(source, node, function) if isinstance(node, _ITERATED)]
    if any(not _makes_no_step(loop, steps) for loop in loops):
        return runs_rarely(source, node, function or source.tree)
    if loops or function is None:
        return True
    if not isinstance(function, FUNCTIONS) or function.name in _OFTEN:
        return False
    return True if function.name in _ONCE or any(_lies_in(step.loop, function) for step in steps) else None


def _around(source: Source, node: ast.AST, function: ast.AST | None) -> Iterator[ast.AST]:
    return itertools.takewhile(lambda ancestor: ancestor is not function, source.ancestors(node))


def _makes_no_step(loop: ast.AST, steps: tuple[StepLoop, ...]) -> bool:
    """Whether a loop runs over the epochs of a training, each of which has steps of its own."""
    if not isinstance(loop, LOOPS) or any(step.loop is loop for step in steps):
        return False
    return counts_epochs(loop) or any(_lies_in(step.loop, loop) for step in steps)


def _all_calls(source: Source, function: Function) -> tuple[ast.Call, ...]:
    """The calls that run a function of this file; none where it is also used otherwise, or not in this file alone."""
    calls = callers(source, function)
    is_method = isinstance(source.parent(function), ast.ClassDef)
    return calls if is_method or len(source.uses_of(function, function.name)) == len(calls) else ()


def callers(source: Source, function: Function) -> tuple[ast.Call, ...]:
    """The calls in this file that surely run a function of it."""
    return _callers(source).get(id(function), ())


@functools.lru_cache(maxsize=4)
def _callers(source: Source) -> dict[int, tuple[ast.Call, ...]]:
    table: dict[int, tuple[ast.Call, ...]] = {}
    names = {definition.name for definition in source.definitions}
    for call in source.nodes(ast.Call):
        if last_name(call.func) in names and (function := called_function(source, call)) is not None:
            table[id(function)] = (*table.get(id(function), ()), call)
    return table
