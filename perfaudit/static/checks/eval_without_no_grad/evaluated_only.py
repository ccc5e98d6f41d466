"""Loops that evaluate a model and no more, here and in other files, and what is said of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.records import record
from perfaudit.static import edit
from perfaudit.static.checks.eval_without_no_grad.callers import calls_elsewhere
from perfaudit.static.checks.eval_without_no_grad.escape import graph_escapes, leaves_no_graph, proves_no_graph
from perfaudit.static.checks.eval_without_no_grad.eval_mode import (
    ends_eval_mode,
    handed_name,
    in_eval_mode,
    is_eval,
)
from perfaudit.static.checks.eval_without_no_grad.evaluations import (
    MAX_CALLS,
    evaluations,
    in_eval_mode_still,
    outermost_loops,
)
from perfaudit.static.checks.eval_without_no_grad.frozen import may_be_frozen
from perfaudit.static.checks.eval_without_no_grad.model_runs import records_graph, runs_inside, runs_model
from perfaudit.static.checks.eval_without_no_grad.surroundings import (
    functions_around,
    gradients_are_off,
    plain_decorators,
    plain_surroundings,
)
from perfaudit.static.checks.eval_without_no_grad.unseen_calls import gives_data, unseen_call
from perfaudit.static.checks.eval_without_no_grad.wanted_gradients import EVALUATION, gets, needs_gradients
from perfaudit.static.registry import Proposal, Seen
from perfaudit.static.source import FUNCTIONS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.elsewhere import called_elsewhere
from perfaudit.static.understanding.models import is_visible
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.values import enclosing_function

_Found = tuple[Loop, list[ast.Call], list[ast.Call], Seen]  # with its runs, and those in functions that it calls
_OF_TRAINING = ("optim", "autograd", "requires_grad", "requires_grad_", "grad_fn", "grad")
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


def evaluated_only(
    source: Source, call: ast.Call, statement: ast.stmt, model: str, ways: frozenset[str]
) -> Iterator[tuple[Loop, Seen]]:
    """Loops that evaluate the model and no more; `ways` are methods by which it is run."""
    value = statement.value if isinstance(statement, ast.Assign) else call.func
    found: list[_Found] = []
    for loop, name in (*evaluations(source, statement, model), *_in_methods(source, statement, model)):
        runs = [node for node in walk(loop) if isinstance(node, ast.Call) and runs_model(source, node, name, ways)]
        if not runs or not all(records_graph(source, run) for run in runs):
            continue
        if needs_gradients(source, loop, name) or _proves_no_graph(source, loop, runs, name, ways):
            continue
        if (seen := _seen_loop(source, loop, runs, name, value, ways)) is not None:
            inside = [runs_inside(source, run, name, ways) for run in runs]
            inner = [each for some in inside for each in some] if all(inside) else []
            found.append((loop, runs, inner, seen))
    told = {id(run) for run in _runs_told(source, found)} if any(inner for _, _, inner, _ in found) else set()
    for loop, _, inner, seen in found:
        if not (inner and all(id(run) in told for run in inner)):  # by the loops of the functions that it calls
            yield loop, seen


def _runs_told(source: Source, found: list[_Found]) -> Iterator[ast.Call]:
    """The runs in loops that are told as more than a demonstration."""
    # Imported here: few loops call a function that runs the model.
    from perfaudit.static.checks.eval_without_no_grad.demonstrated import demonstrates

    for loop, runs, _, _ in found:
        if functions_around(source, loop) is not None and not demonstrates(source, loop):
            yield from runs


def _in_methods(source: Source, statement: ast.stmt, model: str) -> Iterator[tuple[Loop, str]]:
    """The loops of the other methods of an object whose constructor puts its model into eval mode, where nothing ends that.

    Also by a method that it calls in any case. Not of methods that are called where gradients are off, here or elsewhere.
    """
    setter = source.parent(statement)
    owner = source.parent(setter) if isinstance(setter, FUNCTIONS) else None
    if (
        not isinstance(setter, FUNCTIONS)
        or not isinstance(owner, ast.ClassDef)
        or not _is_constructed_by(owner, setter)
    ):
        return
    methods = [item for item in owner.body if isinstance(item, FUNCTIONS) and item is not setter]
    if not model.startswith("self.") or any(
        ends_eval_mode(source, node, model) for method in methods for node in walk(method)
    ):
        return
    methods = [method for method in methods if method.name != "__init__"]
    # Imported here: few constructors put a model into eval mode.
    from perfaudit.static.checks.eval_without_no_grad.objects import may_train

    for method in (method for method in methods if not may_train(source, owner, method, model)):
        for loop in (loop for item in method.body for loop in outermost_loops(item)):
            around = functions_around(source, loop)
            if around is not None and not calls_elsewhere(source, around).off:
                yield loop, model


def _is_constructed_by(owner: ast.ClassDef, method: Function) -> bool:
    """Whether a method is the constructor of a class, or one that the constructor calls in any case: `self.load_model()`."""
    if method.name == "__init__":
        return True
    constructors = [item for item in owner.body if isinstance(item, FUNCTIONS) and item.name == "__init__"]
    statements = [item for constructor in constructors for item in constructor.body]
    calls = [item.value for item in statements if isinstance(item, (ast.Expr, ast.Assign))]
    return any(isinstance(call, ast.Call) and dotted_name(call.func) == f"self.{method.name}" for call in calls)


def evaluated_elsewhere(
    source: Source, statement: ast.stmt, model: str, ways: frozenset[str]
) -> Iterator[tuple[Loop, Seen]]:
    """Loops of functions of other files that are handed the model behind the statement which puts it into eval mode."""
    for item in in_eval_mode(source, statement, model):
        for call in (node for node in walk(item) if isinstance(node, ast.Call) and gets(node, model)):
            there = called_elsewhere(source, call)
            if there is None or there.source is source or not plain_decorators(there.function):
                continue
            if not plain_surroundings(source, call) or _sets_modes(there.function):
                continue  # where the other file puts it into eval mode, that file is told
            for given in {name for name, value in there.named_arguments if handed_name(value) == model}:
                for loop, name in in_eval_mode_still(there.source, there.function, given, MAX_CALLS - 1):
                    if _is_told_there(there.source, there.function, loop):
                        continue  # as one that trains and evaluates by turns
                    if (first := _recorded_for_nothing(there.source, loop, name, ways)) is not None:
                        where = f"{there.source.path.rpartition('/')[2]} line {first.lineno}"
                        message = (
                            f"`{source.brief(call)}` runs `{model}` in eval mode, but records a graph, which no backward pass "
                            f"uses: `{there.source.brief(first)}`, {where}"
                        )
                        yield loop, Seen(call, message, Proposal("call it under `torch.no_grad()`"))


def _is_told_there(source: Source, called: Function, loop: Loop) -> bool:
    """Whether the function around a loop puts something into eval mode, or one on the way to it from what is called."""
    reached = _functions_run(source, called)
    around = [enclosing_function(source, loop)]
    for _ in range(MAX_CALLS):
        if any(map(_sets_modes, around)):
            return True
        calls = [call for function in around if function is not None for call in callers(source, function)]
        # Each function once: one may be called from many places.
        next_ones = {
            id(function): function for call in calls if (function := enclosing_function(source, call)) is not None
        }
        around = [function for key, function in next_ones.items() if key in reached]
    return False


def _functions_run(source: Source, function: Function) -> set[int]:
    """The ids of a function and of those of its file that it runs, directly or through others."""
    found: set[int] = set()
    pending = [function]
    for _ in range(MAX_CALLS):
        found |= set(map(id, pending))
        calls = [node for one in pending for node in walk(one) if isinstance(node, ast.Call)]
        called = {id(inner): inner for call in calls if (inner := called_function(source, call)) is not None}
        pending = [inner for key, inner in called.items() if key not in found]
    return found


def _sets_modes(function: Function | None) -> bool:
    """Whether a function puts something into eval mode."""
    return function is not None and any(is_eval(node) for node in walk(function))


def _recorded_for_nothing(source: Source, loop: Loop, model: str, ways: frozenset[str]) -> ast.Call | None:
    """The first call of the model in a loop, where all of them surely record a graph and nothing of it leaves the loop."""
    runs = [node for node in walk(loop) if isinstance(node, ast.Call) and runs_model(source, node, model, ways)]
    if not runs or not all(records_graph(source, run) for run in runs) or gradients_are_off(source, runs[0]):
        return None
    if may_be_frozen(source, model) or needs_gradients(source, loop, model) or proves_no_graph(loop, runs):
        return None
    if graph_escapes(source, loop, runs) or unseen_call(source, loop, runs, model, ways) is not None:
        return None
    return min(runs, key=lambda run: (run.lineno, run.col_offset))


def _proves_no_graph(source: Source, loop: Loop, runs: list[ast.Call], name: str, ways: frozenset[str]) -> bool:
    """Whether the loop, or a function of this file that runs the model for it, raises where gradients are recorded."""
    inside = [(called_function(source, run), runs_inside(source, run, name, ways)) for run in runs]
    return proves_no_graph(loop, runs) or any(f is not None and proves_no_graph(f, inner) for f, inner in inside)


def _gives_none(source: Source, run: ast.Call, inner: list[ast.Call]) -> bool:
    """Whether a call is that of a function which runs the model and returns only what carries no graph, as an array."""
    function = called_function(source, run)
    return function is not None and bool(inner) and leaves_no_graph(source, function, inner)


def _seen_loop(
    source: Source, loop: Loop, runs: list[ast.Call], name: str, value: ast.expr, ways: frozenset[str]
) -> Seen | None:
    first = min(runs, key=lambda run: (run.lineno, run.col_offset))
    message = f"`{source.brief(first)}` runs in eval mode, but records a graph, which no backward pass"
    carrying = [run for run in runs if not _gives_none(source, run, runs_inside(source, run, name, ways))]
    if graph_escapes(source, loop, carrying):
        if not graph_escapes(source, loop, carrying, in_order=True):
            return Seen(first, f"{message} uses", Proposal("run the loop under `torch.no_grad()`"))
        kept = f"`{source.brief(first)}` runs in eval mode, but records a graph, and what is kept of it holds on to it"
        if _only_evaluates(source, enclosing_function(source, loop)):
            advice = "run the function under `torch.no_grad()`, if nothing differentiates what it returns"
            return Seen(first, kept, Proposal(advice))
        if not _is_script_that_evaluates(source, enclosing_function(source, loop)):
            return None
        return Seen(
            first, kept, Proposal("run the loop under `torch.no_grad()`, if nothing differentiates what is kept")
        )
    if (unseen := unseen_call(source, loop, runs, name, ways)) is not None:
        condition = f", if `{source.brief(unseen)}` differentiates nothing"
        advice = f"run the loop under `torch.no_grad()`{'' if gives_data(source, unseen) else condition}"
        return Seen(first, f"{message} in this file uses", Proposal(advice))
    if _keeps_results(source):
        advice = "run the loop under `torch.no_grad()`, if training does not use what `forward` keeps on `self`"
        return Seen(first, f"{message} in this file uses", Proposal(advice))
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


@remember
def _keeps_results(source: Source) -> bool:
    """Whether some `forward` of the file keeps something on `self`: made without gradients, it may be used with them."""
    kept = (node for node in source.nodes(ast.Attribute) if isinstance(node.ctx, ast.Store))
    return any(
        last_name(node.value) == "self" and (around := enclosing_function(source, node)) and around.name == "forward"
        for node in kept
    )


def _is_script_that_evaluates(source: Source, function: Function | None) -> bool:
    """Whether a function is run by its own file, which no file imports and which speaks of no backward pass and no optimizer."""
    if source.neighbours is None or backward_calls(source) or any(map(source.mentions, _OF_TRAINING)):
        return False
    is_run = function is None or function.name == "main" or bool(callers(source, function))
    return is_run and not source.neighbours.is_imported()


def _only_evaluates(source: Source, function: Function | None) -> bool:
    """Whether a function evaluates, by its name, and no function that calls it runs a backward pass, here or in another file."""
    if function is None or not EVALUATION.fullmatch(function.name):
        return False
    training = [enclosing_function(source, call) for call in backward_calls(source)]
    uses = calls_by_last_name(source).get(function.name, [])
    if not uses:
        return source.neighbours is not None and bool(
            source.neighbours.some_importer(_CallsWithoutBackward(function.name), calling=(function.name,))
        )
    return not any(enclosing_function(source, use) is known for use in uses for known in training)


@record(frozen=True, slots=True)
class _CallsWithoutBackward:
    """Whether a file calls a function or method of this name, and never in a function that runs a backward pass."""

    name: str

    def __call__(self, source: Source) -> bool:
        training = {id(enclosing_function(source, call)) for call in backward_calls(source)}
        uses = calls_by_last_name(source).get(self.name, [])
        return bool(uses) and not any(id(enclosing_function(source, use)) in training for use in uses)
