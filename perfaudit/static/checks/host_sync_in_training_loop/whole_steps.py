"""Functions that make a training step, or a part of one, for a loop in another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.records import NamedTuple
from perfaudit.static.project.update_words import may_update_weights
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import lies_in, walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls, losses_handed_over, updates_weights
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.elsewhere import Elsewhere, base_elsewhere
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.kinds import Kind
from perfaudit.static.understanding.losses import backpropagated_names, key, losses_returned
from perfaudit.static.understanding.names import dotted_name, is_like_an_optimizer, last_name
from perfaudit.static.understanding.step_code import step_code
from perfaudit.static.understanding.step_loops import step_loops

_IGNITE = "ignite.engine.Engine"
_CALLERS = 3  # methods gone outwards from an update to what the loop of another file calls


class WholeStep(NamedTuple):
    """A function that a loop of another file runs on each step; `run_by` says what calls it there, for messages.

    given_back: what it returns to a caller that runs the backward pass on it. gets_batch: whether what it is given first
    is a batch whose tensors its caller has moved to the device. has_arrays: whether arrays of NumPy are seen to be put into it.
    """

    function: Function
    run_by: str = ""
    given_back: tuple[ast.expr, ...] = ()
    gets_batch: bool = False
    has_arrays: bool = False

    def at(self, source: Source) -> Elsewhere:
        """With a call that passes the batch at most, for what else is passed is not in sight."""
        given: list[ast.expr] = [ast.Name("batch")] if self.gets_batch else []
        return Elsewhere(source, self.function, ast.Call(ast.Name(self.function.name), given, []))

    def kind_of_given(self, node: ast.expr) -> Kind:
        """What the function is given: of a batch, whatever it holds may be a tensor on the device."""
        return Kind.MAYBE if self.gets_batch and not self.has_arrays else Kind.UNKNOWN


def whole_steps(source: Source) -> Iterator[WholeStep]:
    """The functions of a file that make one step, or a part of one, each time another file runs them; no loop here does."""
    if source.neighbours is None and not source.calls(_IGNITE):
        return
    known = {id(helper) for step in step_loops(source) for helper in step.helpers}
    found: dict[int, Function] = {}
    for call in backward_calls(source):
        function = source.enclosing(call, *FUNCTIONS)
        if isinstance(function, FUNCTIONS) and id(function) not in known and _in_no_loop(source, call, function):
            found[id(function)] = function
    steps: dict[int, Function] = {}
    for function in found.values():
        if not _makes_one_update(source, function):
            continue
        if _is_run_by_ignite(source, function):
            steps[id(function)] = function
        elif (step := _run_in_loop(source, function)) is not None:
            steps[id(step)] = step
    yield from (WholeStep(step) for step in steps.values())
    run_here = {id(code.root) for step in step_loops(source) for code in step_code(source, step)}
    yield from _overriding_steps(source, known | run_here | found.keys() | steps.keys())


def _in_no_loop(source: Source, node: ast.AST, function: Function) -> bool:
    return source.enclosing(node, *LOOPS, within=function) is None


def _makes_one_update(source: Source, function: Function) -> bool:
    """Whether a function updates weights outside of loops, and is no test and no evaluation."""
    if _is_aside(source, function):
        return False
    steps = [call for call in source.calls(".step") if updates_weights(call) and lies_in(call, function)]
    steps += [call for call, _ in losses_handed_over(source).values() if lies_in(call, function)]
    return bool(steps) and all(_in_no_loop(source, step, function) for step in steps)


def _is_aside(source: Source, function: Function) -> bool:
    return bool(EVALUATION_NAME.search(function.name.lower())) or is_test(source, function)


def _is_run_by_ignite(source: Source, function: Function) -> bool:
    """`Engine(step)` of ignite calls its function with each batch."""
    given = [call.args[0] for call in source.calls(_IGNITE) if call.args]
    return any(isinstance(value, ast.Name) and source.lookup(value) == [function] for value in given)


def _run_in_loop(source: Source, function: Function) -> Function | None:
    """What runs on each step of another file's loop because of an update in a function: it, or a method that always calls it.

    The loop may call a method of the same class that alone calls it, by way of two others at most. So an agent learns where
    it has seen enough: `if len(self.memory) > size: self.learn(self.memory.sample())`.
    """
    # Imported here: most updates stand in a loop of their own file.
    from perfaudit.static.checks.host_sync_in_training_loop.turns import is_called_in_loop

    step = outermost = function
    for _ in range(_CALLERS):
        if _is_in_deep_loop(source, outermost) or is_called_in_loop(source, outermost, source.neighbours):
            return step
        method = _only_caller(source, outermost)
        if method is None or _is_aside(source, method):
            return None
        if step is outermost and _always_calls(source, method, step):
            step = method
        outermost = method
    return None


def _is_in_deep_loop(source: Source, function: Function) -> bool:
    """Whether a loop of this file runs a function over more calls than are followed from a loop inwards."""
    from perfaudit.static.checks.host_sync_in_training_loop.turns import runs_on_turns  # as above

    return any(runs_on_turns(source, call) for call in callers(source, function))


def _only_caller(source: Source, function: Function) -> Function | None:
    """The one method of the same class that calls a method, if it does so wherever it may learn."""
    owner = source.parent(function)
    calls = _own_calls(source, owner, function.name) if isinstance(owner, ast.ClassDef) else []
    around = {id(method): method for call in calls if (method := source.enclosing(call, *FUNCTIONS)) is not None}
    method = next(iter(around.values())) if len(around) == 1 else None
    if not isinstance(method, FUNCTIONS) or method is function or source.parent(method) is not owner:
        return None
    from perfaudit.static.checks.host_sync_in_training_loop.turns import runs_where_it_may_learn  # as above

    is_direct = all(
        _in_no_loop(source, call, method) and runs_where_it_may_learn(source, call, method) for call in calls
    )
    return method if is_direct else None


def _own_calls(source: Source, owner: ast.AST, name: str) -> list[ast.Call]:
    calls = (call for call in source.calls(f".{name}") if lies_in(call, owner))
    return [call for call in calls if dotted_name(call.func) == f"self.{name}"]


def _always_calls(source: Source, method: Function, function: Function) -> bool:
    calls = _own_calls(source, method, function.name)
    return all(runs_each_time(source, call, method) for call in calls)


# ---- methods that a base class calls -------------------------------------------------------------------------------


def _overriding_steps(source: Source, known: set[int]) -> Iterator[WholeStep]:
    """Methods that the base of their class, in another file, calls on each training step: `compute_loss` of a trainer."""
    updates_here = _may_update(source.text) and _may_update(source.code)
    for definition in source.definitions:
        if not isinstance(definition, ast.ClassDef) or not definition.bases:
            continue
        methods = {m.name: m for m in definition.body if isinstance(m, FUNCTIONS)}
        base = _base_that_may_train(source, definition, updates_here)
        if base is None or not isinstance(base[1], ast.ClassDef):
            continue
        calls = _calls_of_own(base[0], base[1], methods)
        for name, method in methods.items():
            if id(method) in known or _is_aside(source, method) or name.startswith("__"):
                continue
            for call, root in calls.get(name, ()):
                if _is_part_of_step(source, method, base[0], call, root):
                    yield WholeStep(
                        method, _run_by(base[0], call), tuple(_given_back(source, method, base[0], call, root))
                    )
                    break


def _may_update(text: str) -> bool:
    return may_update_weights(text.encode("utf-8", "replace"))


def _calls_of_own(
    there: Source, owner: ast.ClassDef, names: dict[str, Function]
) -> dict[str, list[tuple[ast.Call, Loop | Function]]]:
    """The calls of methods of `self` in a class, by name, each with the innermost loop or function around it."""
    found: dict[str, list[tuple[ast.Call, Loop | Function]]] = {}
    calls = calls_by_last_name(there)
    for name in names.keys() & calls.keys():
        for call in calls[name]:
            if dotted_name(call.func) != f"self.{name}" or not lies_in(call, owner):
                continue
            root = there.enclosing(call, *LOOPS, *FUNCTIONS)
            if isinstance(root, (*LOOPS, *FUNCTIONS)):
                found.setdefault(name, []).append((call, root))
    return found


def _base_that_may_train(source: Source, definition: ast.ClassDef, updates_here: bool) -> tuple[Source, ast.AST] | None:
    """The base of a class, where its file may update weights, or this one does so (updates_here).

    Of a library of models each file has classes whose bases lie in others, and none of them trains: parsing those files took
    more of a scan than any rule.
    """
    if updates_here:
        return base_elsewhere(source, definition) or _base_here(source, definition)
    dotted = source.qualified_name(definition.bases[0]) or ""
    is_worth_parsing = source.neighbours is not None and source.neighbours.may_have_updates(dotted)
    return base_elsewhere(source, definition) if is_worth_parsing else None


def _base_here(source: Source, definition: ast.ClassDef) -> tuple[Source, ast.AST] | None:
    base = definition.bases[0]
    bound = source.lookup(base) if isinstance(base, ast.Name) else []
    return (source, bound[0]) if len(bound) == 1 else None


def _is_part_of_step(source: Source, method: Function, there: Source, call: ast.Call, root: Loop | Function) -> bool:
    """Whether a loop that updates weights makes a call on each turn, or a function that does and is itself run on turns.

    The method that is called may be what updates them.
    """
    if not (_updates_weights(there, root) or _updates_weights(source, method)) or not runs_each_time(there, call, root):
        return False
    if not isinstance(root, FUNCTIONS):
        return not counts_epochs(root)
    if EVALUATION_NAME.search(root.name.lower()):
        return False
    from perfaudit.static.checks.host_sync_in_training_loop.turns import is_called_in_loop, runs_on_turns  # as above

    is_run_here = any(runs_on_turns(there, call) for call in callers(there, root))
    return is_run_here or is_called_in_loop(there, root, source.neighbours)


@remember  # each method that a class overrides asks
def _updates_weights(there: Source, root: Loop | Function) -> bool:
    """Whether a loop or function runs a backward pass, or hands a loss over with an optimizer: `update(self.optim, loss)`."""
    calls = [node for part in root.body for node in walk(part) if isinstance(node, ast.Call)]
    return any(last_name(call.func) == "backward" or updates_weights(call) or _beside_optimizer(call) for call in calls)


def _beside_optimizer(call: ast.Call) -> list[ast.expr]:
    """What a call passes beside an optimizer."""
    if not call.args or not is_like_an_optimizer(last_name(call.args[0])):
        return []
    return call.args[1:] if not last_name(call.func)[:1].isupper() else []


def _given_back(
    source: Source, method: Function, there: Source, call: ast.Call, root: Loop | Function
) -> Iterator[ast.expr]:
    """What a method returns in the places of losses: of `a, b, error = self.losses(batch)` the first two."""
    statement = there.statement(call)
    if not isinstance(statement, ast.Assign) or statement.value is not call or len(statement.targets) != 1:
        return
    nodes = [node for part in root.body for node in walk(part) if isinstance(node, ast.Call)]
    losses = backpropagated_names(there, root) | {key(value) for node in nodes for value in _beside_optimizer(node)}
    target = statement.targets[0]
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield from losses_returned(source, method, None) if key(target) in losses else ()
        return
    for place, element in enumerate(target.elts):
        if key(element) in losses:
            yield from losses_returned(source, method, (place, len(target.elts)))


def _run_by(there: Source, call: ast.Call) -> str:
    function = there.enclosing(call, *FUNCTIONS)
    return f"`{function.name}` in {there.path} line {call.lineno}" if isinstance(function, FUNCTIONS) else ""
