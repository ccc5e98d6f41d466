"""PA801: an evaluation loop that records a graph for every batch."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static import edit
from perfaudit.static.checks.eval_without_no_grad.callers import CallsInLoops, calls_elsewhere
from perfaudit.static.checks.eval_without_no_grad.chosen_by_call import test_that_leaves_out
from perfaudit.static.checks.eval_without_no_grad.escape import graph_escapes, proves_no_graph
from perfaudit.static.checks.eval_without_no_grad.surroundings import (
    functions_around,
    gradients_are_off,
    plain_decorators,
    plain_surroundings,
)
from perfaudit.static.old_torch import needs_old_torch
from perfaudit.static.registry import Proposal, Seen, check
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.elsewhere import called_elsewhere
from perfaudit.static.understanding.loaders import VARIABLE
from perfaudit.static.understanding.models import is_visible
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import NO_GRAD, SET_GRAD
from perfaudit.static.understanding.opaque import is_opaque, made_of, reports
from perfaudit.static.understanding.values import argument, assigned_value, enclosing_function, is_false, resolve

GRADIENT = regex(
    r"grad(?!_fn)|backward|optim|attack|adversar|perturb|fgsm|pgd|saliency|explain|captum|(^|_)shap(ley)?($|_)|(^|_)cam($|_)|jacobian|hessian|"
    r"forces?$|energy|potential|stress|langevin|pinn|pde($|_)|influence"  # models that differentiate in `forward`
)
EVALUATION = regex(r"_?(test|eval|evaluate|evaluation|validate|validation)(_(epoch|one_epoch|loop|model|set))?")
MODEL = regex(r"model|net(work)?$|encoder|decoder|backbone", re.IGNORECASE)
MODEL_METHODS = {
    "eval",
    "generate",
    "predict",
    "encode",
    "decode",
    "parameters",
    "named_parameters",
    "state_dict",
    "modules",
    "zero_grad",
}
MAX_CALLS = 3  # functions through which the model is handed from the one that puts it into eval mode
MOVES = {"cuda", "to", "cpu", "float"}  # methods of a model that return it as it is, in the mode it was in
FAST_PATHS = {
    f"torch.nn.{name}"
    for name in (
        "MultiheadAttention",
        "Transformer",
        "TransformerEncoder",
        "TransformerEncoderLayer",
        "LSTM",
        "GRU",
        "RNN",
    )
}


@check("PA801", call=(".eval", ".train"))
def eval_without_no_grad(source: Source, call: ast.Call) -> Iterator[Seen]:
    yield from _seen_in(source).get(id(call), ())


@functools.lru_cache(maxsize=4)  # two models that are put into eval mode for one loop make one finding
def _seen_in(source: Source) -> dict[int, list[Seen]]:
    """What is said of each `eval()` of a file; each loop once, for the first model that it evaluates."""
    found: dict[int, list[Seen]] = {}
    known: set[int] = set()
    for call in (*source.calls(".eval"), *filter(_is_train_false, source.calls(".train"))):
        for loop, seen in _unrecorded_evaluations(source, call):
            if id(loop) not in known:
                known.add(id(loop))
                found.setdefault(id(call), []).append(seen)
    return found


def _unrecorded_evaluations(source: Source, call: ast.Call) -> Iterator[tuple[Loop | Function, Seen]]:
    model = _put_in_eval_mode(source, call)
    if not model or not source.imports_torch or gradients_are_off(source, call) or _may_be_frozen(source, model):
        return
    if source.mentions("volatile") and needs_old_torch(source):  # `Variable(x, volatile=True)` records nothing there
        return
    if any(_records_nothing(inside, definition) for inside, definition in _classes_elsewhere(source, call)):
        return
    statement = source.statement(call)
    for loop, seen in (
        *_trained_or_evaluated(source, statement, model),
        *_evaluated_only(source, call, statement, model),
        *_evaluated_by_arguments(source, statement, model),
        *_evaluated_elsewhere(source, statement, model),
        *_one_step(source, statement, model),
    ):
        elsewhere = calls_elsewhere(source, functions_around(source, call) or [])
        if not elsewhere.off:
            yield loop, seen
        elif elsewhere.on:  # the reader may look at the call that is as it should be
            yield loop, seen._replace(message=f"{seen.message}, where {elsewhere.on} calls it outside of `no_grad`")


def _evaluated_only(source: Source, call: ast.Call, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, Seen]]:
    """Loops that evaluate the model and no more."""
    value = statement.value if isinstance(statement, ast.Assign) else call.func
    for loop, name in _evaluations(source, statement, model):
        runs = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and _runs_model(source, node, name)]
        if not runs or not all(_records_graph(source, run) for run in runs):
            continue
        if _needs_gradients(source, loop, name) or proves_no_graph(loop, runs):
            continue
        if (seen := _seen_loop(source, loop, runs, name, value)) is not None:
            yield loop, seen


def _in_eval_mode(source: Source, statement: ast.stmt, model: str) -> Iterator[ast.stmt]:
    """The plain statements behind the one that puts a model into eval mode, until one may end that."""
    block = source.block(statement)
    for item in block[next(n for n, item in enumerate(block) if item is statement) + 1 :]:
        if any(_ends_eval_mode(source, node, model) for node in ast.walk(item)):
            return
        if isinstance(item, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)):
            yield item


def _evaluated_elsewhere(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, Seen]]:
    """Loops of functions of other files that are handed the model behind the statement which puts it into eval mode."""
    for item in _in_eval_mode(source, statement, model):
        for call in (node for node in ast.walk(item) if isinstance(node, ast.Call) and _gets(node, model)):
            there = called_elsewhere(source, call)
            if there is None or there.source is source or not plain_decorators(there.function):
                continue
            if not plain_surroundings(source, call) or any(_is_eval(node) for node in ast.walk(there.function)):
                continue  # where the other file puts it into eval mode, that file is told
            for given in {name for name, value in there.named_arguments if dotted_name(value) == model}:
                for loop, name in _in_eval_mode_still(there.source, there.function, given, MAX_CALLS - 1):
                    if (first := _recorded_for_nothing(there.source, loop, name)) is not None:
                        where = f"{there.source.path.rpartition('/')[2]} line {first.lineno}"
                        message = (
                            f"`{source.brief(call)}` runs `{model}` in eval mode, but records a graph, which no backward pass "
                            f"uses: `{there.source.brief(first)}`, {where}"
                        )
                        yield loop, Seen(call, message, Proposal("call it under `torch.no_grad()`"))


def _is_eval(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "eval"


def _recorded_for_nothing(source: Source, loop: Loop, model: str) -> ast.Call | None:
    """The first call of the model in a loop, where all of them surely record a graph and nothing of it leaves the loop."""
    runs = [node for node in ast.walk(loop) if isinstance(node, ast.Call) and _runs_model(source, node, model)]
    if not runs or not all(_records_graph(source, run) for run in runs) or gradients_are_off(source, runs[0]):
        return None
    if _may_be_frozen(source, model) or _needs_gradients(source, loop, model) or proves_no_graph(loop, runs):
        return None
    if graph_escapes(source, loop, runs) or _unseen_call(source, loop, runs, model) is not None:
        return None
    return min(runs, key=lambda run: (run.lineno, run.col_offset))


def _seen_loop(source: Source, loop: Loop, runs: list[ast.Call], name: str, value: ast.expr) -> Seen | None:
    first = min(runs, key=lambda run: (run.lineno, run.col_offset))
    message = f"`{source.brief(first)}` runs in eval mode, but records a graph, which no backward pass"
    if graph_escapes(source, loop, runs):
        if not graph_escapes(source, loop, runs, in_order=True):
            return Seen(first, f"{message} uses", Proposal("run the loop under `torch.no_grad()`"))
        if not _only_evaluates(source, enclosing_function(source, loop)):
            return None
        return Seen(
            first,
            f"`{source.brief(first)}` runs in eval mode, but records a graph, and what is kept of it holds on to it",
            Proposal("run the function under `torch.no_grad()`, if nothing differentiates what it returns"),
        )
    if (unseen := _unseen_call(source, loop, runs, name)) is not None:
        advice = f"run the loop under `torch.no_grad()`, if `{source.brief(unseen)}` differentiates nothing"
        return Seen(first, f"{message} in this file uses", Proposal(advice))
    if _keeps_results(source):
        advice = "run the loop under `torch.no_grad()`, if training does not use what `forward` keeps on `self`"
        return Seen(first, f"{message} uses", Proposal(advice))
    no_grad, imported = edit.name_for(source, "torch.no_grad")
    exact = is_visible(source, value) and not any(source.calls(path) for path in FAST_PATHS)
    changes = () if exact else ("rounding",)
    return Seen(
        first,
        f"{message} uses",
        Proposal(
            f"run the loop under `{no_grad}()`",
            edit.together(edit.wrap_block(source, [loop], f"with {no_grad}():"), imported),
            "unsafe" if changes else "safe",  # without gradients, attention and recurrent layers take other kernels
            changes,
        ),
    )


def _keeps_results(source: Source) -> bool:
    """Whether some `forward` of the file keeps something on `self`: made without gradients, it may be used with them."""
    kept = (node for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return any(
        last_name(node.value) == "self" and (around := enclosing_function(source, node)) and around.name == "forward"
        for node in kept
    )


def _only_evaluates(source: Source, function: Function | None) -> bool:
    """Whether a function evaluates, by its name, and no function that calls it runs a backward pass."""
    if function is None or not EVALUATION.fullmatch(function.name):
        return False
    training = [enclosing_function(source, call) for call in backward_calls(source)]
    uses = [use for use in source.nodes(ast.Call) if last_name(use.func) == function.name]
    return bool(uses) and not any(enclosing_function(source, use) is known for use in uses for known in training)


def _is_train_false(call: ast.AST) -> bool:
    """`model.train(False)`, which is `model.eval()`."""
    if not isinstance(call, ast.Call) or last_name(call.func) != "train":
        return False
    mode = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return len(mode) == 1 and isinstance(mode[0], ast.Constant) and mode[0].value is False


def _put_in_eval_mode(source: Source, call: ast.Call) -> str:
    """The model of `model.eval()`, `model.train(False)` and `model = build().eval().to(device)`; "" for any other `eval`."""
    has_arguments = bool(call.args or call.keywords) and not _is_train_false(call)
    if has_arguments or not isinstance(call.func, ast.Attribute):
        return ""
    statement = source.statement(call)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return dotted_name(call.func.value)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    value: ast.AST = statement.value
    while value is not call:  # `.eval().to(device)`: only method calls behind it
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
            return ""
        value = value.func.value
    return dotted_name(statement.targets[0])


def _loops_behind(source: Source, statement: ast.stmt, model: str) -> Iterator[Loop]:
    """The outermost loops behind a statement in its block, as long as the model stays in eval mode."""
    block = source.block(statement)
    after = block[next(n for n, item in enumerate(block) if item is statement) + 1 :]
    for item in after:
        yield from _outermost_loops(item)
        if any(_ends_eval_mode(source, node, model) for node in ast.walk(item)):
            return


def _evaluations(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, str]]:
    """The loops in which the model is in eval mode, with its name there.

    Behind the statement, around it where each turn puts the model into eval mode, and in functions that are handed the model.
    """
    around = source.parent(statement)
    if isinstance(around, LOOPS) and not _ends_eval_mode(source, around, model):
        yield around, model
    block = source.block(statement)
    for item in block[next(n for n, item in enumerate(block) if item is statement) + 1 :]:
        yield from ((loop, model) for loop in _outermost_loops(item))
        if any(_ends_eval_mode(source, node, model) for node in ast.walk(item)):
            return
        yield from _evaluations_by_call(source, item, model)


def _evaluations_by_call(
    source: Source, statement: ast.stmt, model: str, calls: int = MAX_CALLS
) -> Iterator[tuple[Loop, str]]:
    """The loops of functions of this file that a statement calls with the model, directly or through others."""
    if not isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)):
        return
    for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
        function = called_function(source, call)
        if function is None or not plain_decorators(function) or not plain_surroundings(source, call):
            continue
        for name in _names_given(call, function, {model}) | _own_names(call, model):
            yield from _in_eval_mode_still(source, function, name, calls - 1)


def _in_eval_mode_still(source: Source, function: Function, model: str, calls: int) -> Iterator[tuple[Loop, str]]:
    for item in function.body:
        yield from ((loop, model) for loop in _outermost_loops(item))
        if any(_ends_eval_mode(source, node, model) for node in ast.walk(item)):
            return
        if calls:
            yield from _evaluations_by_call(source, item, model, calls)


def _one_step(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Function, Seen]]:
    """A method that evaluates one batch and returns numbers, which files that import this one call in loops."""
    function = source.parent(statement)
    if not isinstance(function, FUNCTIONS) or not isinstance(source.parent(function), ast.ClassDef):
        return
    behind = function.body[next(n for n, item in enumerate(function.body) if item is statement) + 1 :]
    if any(isinstance(node, LOOPS) for node in ast.walk(function)) or not _returns_numbers(source, function):
        return
    runs = [n for s in behind for n in ast.walk(s) if isinstance(n, ast.Call) and _runs_model(source, n, model)]
    if not runs or not all(_records_graph(source, run) for run in runs) or _needs_gradients(source, function, model):
        return
    if any(_ends_eval_mode(source, n, model) and n.lineno < runs[0].lineno for s in behind for n in ast.walk(s)):  # type: ignore[attr-defined]  # of statements
        return
    if source.neighbours is None or not source.neighbours.some_importer(CallsInLoops(function.name)):
        return
    message = f"`{source.brief(runs[0])}` runs in eval mode, but records a graph, which no backward pass uses"
    yield function, Seen(runs[0], message, Proposal(f"decorate `{function.name}` with `@torch.no_grad()`"))


def _returns_numbers(source: Source, function: Function) -> bool:
    """Whether a function returns plain numbers or arrays, and keeps nothing on its object: no graph leaves it."""
    if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) for n in ast.walk(function)):
        return False
    returned = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
    values = [v for value in returned for v in (value.elts if isinstance(value, ast.Tuple) else [value])]
    return bool(values) and all(_is_number(source, value) for value in values)


def _is_number(source: Source, value: ast.expr) -> bool:
    made = resolve(source, value)
    return isinstance(made, ast.Call) and last_name(made.func) in ("item", "numpy", "tolist", "float")


def _trained_or_evaluated(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop | Function, Seen]]:
    """Code that trains or evaluates, as a flag says that also chose the mode: `if train: model.train() else: model.eval()`.

    A loop, or a function that makes one step and is called in a loop.
    """
    choice = source.parent(statement)
    if not isinstance(choice, ast.If) or not choice.orelse:
        return
    other = choice.body if any(item is statement for item in choice.orelse) else choice.orelse
    is_train = any(
        f"{model}.train" == dotted_name(n.func) for s in other for n in ast.walk(s) if isinstance(n, ast.Call)
    )
    if not is_train:
        return
    test = source.text_of(choice.test)
    flag = test if other is choice.body else f"not ({test})"
    around = source.parent(choice)
    each = (around,) if isinstance(around, LOOPS) else ()  # each turn chooses anew
    for loop in (*each, *_loops_behind(source, choice, model), *_step_around(source, choice)):
        calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
        runs = [call for call in calls if _runs_model(source, call, model)]
        steps = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"]
        if not runs or not steps or not all(_records_graph(source, run) for run in runs):
            continue
        if not all(_is_under(source, step, choice.test, other is choice.body) for step in steps):
            continue
        if not any(_is_under(source, run, choice.test, other is choice.body) for run in runs):
            first = min(runs, key=lambda run: (run.lineno, run.col_offset))
            message = f"`{source.brief(first)}` also evaluates, in eval mode, and records a graph then"
            advice = f"run the forward pass and the loss under `torch.set_grad_enabled({flag})`"
            yield loop, Seen(first, f"{message}, which no backward pass uses", Proposal(advice))


def _step_around(source: Source, choice: ast.If) -> Iterator[Function]:
    """The function whose body a choice of the mode stands in, if a loop calls it and no backward pass of it is in a loop."""
    function = source.parent(choice)
    if not isinstance(function, FUNCTIONS):
        return
    is_in_loop = any(source.enclosing(call, *LOOPS) is not None for call in callers(source, function))
    own = [call for call in backward_calls(source) if source.enclosing(call, *FUNCTIONS) is function]
    if is_in_loop and own and all(source.enclosing(call, *LOOPS, within=function) is None for call in own):
        yield function


def _evaluated_by_arguments(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, Seen]]:
    """Loops that train or evaluate, called behind a statement with arguments that leave the backward pass out."""
    for item in _in_eval_mode(source, statement, model):
        for call in (node for node in ast.walk(item) if isinstance(node, ast.Call)):
            function = called_function(source, call)
            if function is None or not plain_decorators(function) or not plain_surroundings(source, call):
                continue
            for name in _names_given(call, function, {model}) | _own_names(call, model):
                yield from _loops_that_train_too(source, function, call, name)


def _loops_that_train_too(
    source: Source, function: Function, call: ast.Call, model: str
) -> Iterator[tuple[Loop, Seen]]:
    if any(_ends_eval_mode(source, node, model) for node in ast.walk(function)):
        return
    for loop in (loop for item in function.body for loop in _outermost_loops(item)):
        calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
        runs = [run for run in calls if _runs_model(source, run, model)]
        steps = [c for c in calls if isinstance(c.func, ast.Attribute) and c.func.attr == "backward"]
        tests = {test_that_leaves_out(source, step, function, call) for step in steps}
        if not runs or len(tests) != 1 or "" in tests or not all(_records_graph(source, run) for run in runs):
            continue
        first = min(runs, key=lambda run: (run.lineno, run.col_offset))
        if any(test_that_leaves_out(source, run, function, call) for run in runs):
            continue
        message = f"`{source.brief(first)}` also evaluates, in eval mode, and records a graph then"
        test = tests.pop()
        flag = test if test.startswith("not ") or " is " in test else f"bool({test})"
        advice = f"run the forward pass and the loss under `torch.set_grad_enabled({flag})`"
        yield loop, Seen(first, f"{message}, which no backward pass uses", Proposal(advice))


def _own_names(call: ast.Call, model: str) -> set[str]:
    """The name of a model that an object keeps, in a method that is called on the same object."""
    is_own = isinstance(call.func, ast.Attribute) and dotted_name(call.func.value) == "self"
    return {model} if is_own and model.startswith("self.") else set()


def _is_under(source: Source, node: ast.AST, test: ast.expr, in_body: bool) -> bool:
    """Whether a condition with the same words decides that the node runs, with the same answer."""
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, ast.If) and ast.dump(ancestor.test) == ast.dump(test):
            branch = ancestor.body if in_body else ancestor.orelse
            return any(child is item for item in branch)
        if isinstance(ancestor, FUNCTIONS):
            return False
        child = ancestor
    return False


def _outermost_loops(statement: ast.stmt) -> Iterator[Loop]:
    if isinstance(statement, LOOPS):
        yield statement
    if isinstance(statement, (*LOOPS, *FUNCTIONS, ast.ClassDef)):
        return
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            yield from _outermost_loops(child)
        elif isinstance(child, (ast.ExceptHandler, ast.match_case)):
            for inner in child.body:
                yield from _outermost_loops(inner)


def _ends_eval_mode(source: Source, node: ast.AST, model: str) -> bool:
    """Whether a node puts the model into another mode, or another model under its name; `net = net.cuda()` does neither."""
    if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
        return dotted_name(node) == model and not _is_moved(source, node, model)
    is_mode = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train"
    return is_mode and not _is_train_false(node)


def _is_moved(source: Source, target: ast.AST, model: str) -> bool:
    """Whether a model is bound to what moves it: `net = net.cuda()`, `model = model.to(device)`."""
    value = source.parent(target)
    if not isinstance(value, ast.Assign) or len(value.targets) != 1 or value.targets[0] is not target:
        return False
    moved = value.value
    if not isinstance(moved, ast.Call) or not isinstance(moved.func, ast.Attribute) or moved.func.attr not in MOVES:
        return False
    return dotted_name(moved.func.value) == model


def _runs_model(source: Source, call: ast.Call, model: str) -> bool:
    """Whether a call is `model(x)`, or one of a function of this file that gets the model and calls it."""
    if dotted_name(call.func) in (model, f"{model}.forward", f"{model}.module"):
        return True
    function = called_function(source, call)
    if function is None:
        return False
    parameters = [a.arg for a in function.args.args]
    if isinstance(call.func, ast.Attribute):
        parameters = parameters[1:]
    given = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    names = {name for name, value in given if dotted_name(value) == model}
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in names for n in ast.walk(function)
    )


# ---- what may need or forbid gradients -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def _frozen_modules(source: Source) -> frozenset[str] | None:
    """The modules whose parameters the file freezes, as they are written; None where it is not clear whose it sets."""
    found = set()
    for node in source.nodes(ast.Attribute):
        if node.attr == "requires_grad" and isinstance(node.ctx, ast.Store):
            value = assigned_value(source, node)
            if value is None or not is_false(source, value):
                return None
            found.add(_whose(source, node.value))
    for call in source.calls(".requires_grad_"):
        if not isinstance(call.func, ast.Attribute) or not is_false(source, argument(source, call, "requires_grad", 0)):
            return None
        found.add(_whose(source, call.func.value))
    return None if "" in found else frozenset(found)


def _whose(source: Source, node: ast.expr) -> str:
    """The module of a parameter, `net.stem` of `p` in `for p in net.stem.parameters()`; else what is written; "" if neither."""
    loop = source.enclosing(node, ast.For)
    if not isinstance(loop, ast.For) or not isinstance(node, ast.Name):
        return dotted_name(node)
    if not any(isinstance(n, ast.Name) and n.id == node.id for n in ast.walk(loop.target)):
        return dotted_name(node)
    listed = loop.iter.func if isinstance(loop.iter, ast.Call) else None
    is_listed = isinstance(listed, ast.Attribute) and listed.attr in ("parameters", "named_parameters")
    return dotted_name(listed.value) if isinstance(listed, ast.Attribute) and is_listed else ""


def _may_be_frozen(source: Source, model: str) -> bool:
    """Whether all parameters of a model may be frozen: it, or what holds it; a part of it leaves the others."""
    frozen = _frozen_modules(source)
    if frozen is None:
        return True
    last = model.rpartition(".")[2]
    return any(m == model or model.startswith(f"{m}.") or m.rpartition(".")[2] == last for m in frozen)


def _classes_elsewhere(source: Source, call: ast.Call) -> Iterator[tuple[Source, ast.ClassDef]]:
    """The classes of other files of the project that the model of `model.eval()` may be built of.

    Of a parameter, those of all models that the file builds.
    """
    if source.neighbours is None or not isinstance(call.func, ast.Attribute):
        return
    model = call.func.value
    made = resolve(source, model)
    is_given = isinstance(model, ast.Name) and any(isinstance(b, ast.arg) for b in source.lookup(model))
    for built in source.nodes(ast.Call) if is_given else [made]:
        dotted = source.qualified_name(built.func) if isinstance(built, ast.Call) else None
        if (
            dotted
            and dotted.rpartition(".")[2][:1].isupper()
            and dotted.partition(".")[0] not in ("torch", "torchvision")
        ):
            found = source.neighbours.definition_of(dotted)
            if found is not None and isinstance(found[1], ast.ClassDef):
                yield found[0], found[1]


def _records_nothing(source: Source, definition: ast.ClassDef) -> bool:
    """Whether a class of models freezes all its parameters when it is built, or may leave gradients out in `forward`."""
    for method in (item for item in definition.body if isinstance(item, FUNCTIONS)):
        if method.name == "forward" and _leaves_gradients_out(source, method):
            return True
        for loop in (node for node in ast.walk(method) if isinstance(node, ast.For) and method.name == "__init__"):
            if dotted_name(loop.iter.func if isinstance(loop.iter, ast.Call) else loop.iter) != "self.parameters":
                continue
            for store in (n for n in ast.walk(loop) if isinstance(n, ast.Attribute) and n.attr == "requires_grad"):
                value = assigned_value(source, store)
                if value is not None and (is_false(source, value) or _is_false_by_default(method, value)):
                    return True
    return False


def _leaves_gradients_out(source: Source, method: Function) -> bool:
    nodes = (node for node in ast.walk(method) if isinstance(node, (ast.Name, ast.Attribute)))
    return any(source.qualified_name(node) in NO_GRAD | SET_GRAD for node in nodes)


def _is_false_by_default(method: Function, value: ast.expr) -> bool:
    names = [argument.arg for argument in method.args.args]
    if not isinstance(value, ast.Name) or value.id not in names:
        return False
    place = names.index(value.id) - len(names) + len(method.args.defaults)
    default = method.args.defaults[place] if place >= 0 else None
    return isinstance(default, ast.Constant) and default.value is False


def _records_graph(source: Source, run: ast.Call) -> bool:
    """Whether the forward pass provably records gradients, in this place and inside the function that is called."""
    function = called_function(source, run)
    if function is not None and (not plain_decorators(function) or _switches_gradients(source, function)):
        return False
    return plain_surroundings(source, run)


def _switches_gradients(source: Source, function: Function) -> bool:
    nodes = [n for n in ast.walk(function) if isinstance(n, (ast.Name, ast.Attribute))]
    return any(source.qualified_name(node) in NO_GRAD | SET_GRAD or GRADIENT.search(last_name(node)) for node in nodes)


def _needs_gradients(source: Source, loop: Loop | Function, model: str) -> bool:
    """Whether something in the loop, or in a function of this file that it calls, speaks of gradients or training."""
    calls = [node for node in ast.walk(loop) if isinstance(node, ast.Call)]
    if any(_hands_model_out(source, call, model) for call in calls):
        return True
    functions = [function for call in calls if (function := called_function(source, call))]
    around = enclosing_function(source, loop)
    is_evaluation = around is not None and bool(EVALUATION.fullmatch(around.name))
    for node in [n for root in (loop, *functions) for n in ast.walk(root)]:
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):  # the caller would run under no_grad in between
            return True
        is_habit = is_evaluation and dotted_name(node) == f"{model}.zero_grad"  # nothing fills them there
        is_habit = (
            is_habit or source.qualified_name(source.parent(node)) == VARIABLE
        )  # `torch.autograd` of its `Variable`
        if isinstance(node, (ast.Name, ast.Attribute)) and GRADIENT.search(last_name(node).lower()) and not is_habit:
            return True
        if isinstance(node, ast.keyword) and GRADIENT.search(node.arg or "") and not is_false(source, node.value):
            return True
        is_switch = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not _is_train_false(node)
        if is_switch and last_name(getattr(node, "func", node)) in ("train", "step"):
            return True
    return False


def _hands_model_out(source: Source, call: ast.Call, model: str) -> bool:
    """Whether a call lets code that is not in this file work on the model: `attack(model, x)`, `Attack(model)(x)`."""
    if called_function(source, call) is None and _gets(call, model):
        return True
    root: ast.AST = call.func
    while isinstance(root, (ast.Attribute, ast.Call)):
        root = root.value if isinstance(root, ast.Attribute) else root.func
    if not isinstance(root, ast.Name) or root.id == model:
        return False
    made = resolve(source, root)
    return isinstance(made, ast.Call) and called_function(source, made) is None and _gets(made, model)


def _unseen_call(source: Source, loop: Loop, runs: list[ast.Call], model: str) -> ast.Call | None:
    """A call in the loop that may differentiate in code this file does not show; the model's own call if it may."""
    if any(_wraps_a_model(source, made) for run in runs for made in made_of(source, run.func)):
        return runs[0]
    models = {model, *(dotted_name(c.func.value) for c in source.calls(".eval") if isinstance(c.func, ast.Attribute))}
    holders = _holders(source, models)
    pending: list[tuple[ast.AST, set[str]]] = [(loop, models)]
    known: set[int] = set()
    while pending:
        root, run_here = pending.pop()
        known.add(id(root))
        for call in (node for node in ast.walk(root) if isinstance(node, ast.Call)):
            function = called_function(source, call)
            if function is not None and id(function) not in known:
                pending.append((function, models | _names_given(call, function, run_here)))
            is_model = dotted_name(call.func).removesuffix(".forward").removesuffix(".module") in run_here - {""}
            if is_model or _is_method_of(call, run_here):
                continue
            if is_opaque(source, call) or (_root(call.func) & holders and not reports(call)):
                return call
    return None


def _wraps_a_model(source: Source, made: ast.expr) -> bool:
    """Whether a model is what code that is not in this file makes of another one: `Tent(model)`."""
    if not isinstance(made, ast.Call) or source.qualified_name(made.func) or called_function(source, made):
        return False
    return any(MODEL.search(last_name(argument)) for argument in (*made.args, *(k.value for k in made.keywords)))


def _holders(source: Source, models: set[str]) -> set[str]:
    """Names of what the model was handed to: of `craft` for `craft.bind(model)` and for `craft = Craft(model)`."""
    found: set[str] = set()
    for call in source.nodes(ast.Call):
        if any(_gets(call, model) for model in models if model) and not (
            source.qualified_name(call.func) or ""
        ).startswith("torch."):
            statement = source.statement(call)
            found |= _root(call.func) if isinstance(call.func, ast.Attribute) else set()
            is_result = called_function(source, call) is not None  # `loss = compute_loss(model, batch)` holds no model
            for target in statement.targets if isinstance(statement, ast.Assign) and not is_result else ():
                found.add(dotted_name(target))
    return found - models - {"", "self"}


def _root(node: ast.expr) -> set[str]:
    """Every name that a chain begins with: `self`, `self.a` and `self.a.run` of `self.a.run`."""
    names: set[str] = set()
    inner: ast.AST = node
    while isinstance(inner, (ast.Attribute, ast.Call, ast.Subscript)):
        names.add(dotted_name(inner))
        inner = inner.func if isinstance(inner, ast.Call) else inner.value
    return (names | {dotted_name(inner)}) - {""}


def _names_given(call: ast.Call, function: Function, models: set[str]) -> set[str]:
    """The parameters that a call of a function fills with one of the models."""
    parameters = [a.arg for a in function.args.args][isinstance(call.func, ast.Attribute) :]
    given = [*zip(parameters, call.args, strict=False), *((k.arg, k.value) for k in call.keywords)]
    return {name for name, value in given if name and dotted_name(value) in models}


def _is_method_of(call: ast.Call, models: set[str]) -> bool:
    """Whether a call is one that models are known by: `model.eval()`, `model.generate(x)`."""
    func = call.func
    return isinstance(func, ast.Attribute) and func.attr in MODEL_METHODS and dotted_name(func.value) in models


def _gets(call: ast.Call, model: str) -> bool:
    return any(dotted_name(argument) == model for argument in (*call.args, *(k.value for k in call.keywords)))
