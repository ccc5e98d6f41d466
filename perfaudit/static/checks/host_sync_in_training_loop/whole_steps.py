"""Functions that make a whole training step, forward, backward and update, for a loop in another file."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import lies_in
from perfaudit.static.understanding.backward import updates_weights
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.elsewhere import Elsewhere, built_by
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.members import is_own, own_values, stores_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import is_rare_part, runs_rarely, skip_before
from perfaudit.static.understanding.step_loops import is_over_written_values, step_loops
from perfaudit.static.understanding.values import constant

_IGNITE = "ignite.engine.Engine"
_ENDS = regex(r"(?<!steps_)done|terminal|terminated|truncated|finished|episode")  # what tells that a game is over
_COMMON = {
    "train",
    "update",
    "step",
    "run",
    "fit",
    "start",
    "main",
    "test",
    "forward",
}  # `agent.train()` may be anything's
_FEW_TURNS = 16  # of a game, behind which an agent learns
_PERIOD = regex(r"^(train|learn|update|optimi[sz]e)(ing)?_(period|every|freq|frequency|interval)$")
_ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)


def whole_steps(source: Source) -> Iterator[Elsewhere]:
    """The functions of a file that make one step each time another file calls them in a loop; this file has no loop for them.

    Each with a call that passes nothing, for what is passed is not in sight.
    """
    is_alone = source.neighbours is None and not source.calls(_IGNITE)
    if is_alone or not source.calls(".backward"):
        return
    known = {id(helper) for step in step_loops(source) for helper in step.helpers}
    found: dict[int, Function] = {}
    for call in source.calls(".backward"):
        function = source.enclosing(call, *FUNCTIONS)
        if isinstance(function, FUNCTIONS) and id(function) not in known and _in_no_loop(source, call, function):
            found[id(function)] = function
    for function in found.values():
        if _makes_one_update(source, function) and (
            _is_run_by_ignite(source, function)
            or _is_called_in_loop(source, function)
            or _is_called_by_method_in_loop(source, function)
        ):
            yield Elsewhere(source, function, ast.Call(ast.Name(function.name), [], []))


def _in_no_loop(source: Source, node: ast.AST, function: Function) -> bool:
    return source.enclosing(node, *LOOPS, within=function) is None


def _makes_one_update(source: Source, function: Function) -> bool:
    """Whether a function updates weights outside of loops; a method by a name of its own, no `forward` of a layer."""
    if EVALUATION_NAME.search(function.name.lower()) or is_test(source, function):
        return False
    steps = [call for call in source.calls(".step") if updates_weights(call) and lies_in(call, function)]
    return bool(steps) and all(_in_no_loop(source, step, function) for step in steps)


def _is_run_by_ignite(source: Source, function: Function) -> bool:
    """`Engine(step)` of ignite calls its function with each batch."""
    given = [call.args[0] for call in source.calls(_IGNITE) if call.args]
    return any(isinstance(value, ast.Name) and source.lookup(value) == [function] for value in given)


def _is_called_in_loop(source: Source, function: Function) -> bool:
    """Whether a file that imports this one calls the function on the turns of a loop.

    What is surely called on an object of its class decides; where no call is, all do that have its name and pass as many
    arguments: `bar.update(1)` on each turn says nothing of `agent.update(batch)` on every thousandth.
    """
    if source.neighbours is None:
        return False
    calls = [
        (there, call)
        for there in source.neighbours.importers_calling(function.name)
        for call in there.nodes(ast.Call)
        if last_name(call.func) == function.name and _fits(source, function, call)
    ]
    meant = [(_is_meant(source, function, there, call), there, call) for there, call in calls]
    if any(is_meant for is_meant, _, _ in meant):
        return any(_is_each_turn(there, call) for is_meant, there, call in meant if is_meant)
    if not _takes_anything(source, function) and function.name in _COMMON:
        return False
    unclear = [_is_each_turn(there, call) for is_meant, there, call in meant if is_meant is None]
    return bool(unclear) and all(unclear)


def _is_called_by_method_in_loop(source: Source, function: Function) -> bool:
    """Whether one method of the same class alone calls a step, and is called itself on the turns of a loop elsewhere.

    So an agent learns where it has seen enough: `if len(self.memory) > size: self.learn(self.memory.sample())`. Behind another
    condition, `if done:`, it may learn once in an episode.
    """
    owner = source.parent(function)
    if not isinstance(owner, ast.ClassDef):
        return False
    calls = [
        call
        for call in source.calls(f".{function.name}")
        if lies_in(call, owner) and dotted_name(call.func) == f"self.{function.name}"
    ]
    around = {id(method): method for call in calls if (method := source.enclosing(call, *FUNCTIONS)) is not None}
    method = next(iter(around.values())) if len(around) == 1 else None
    return (
        isinstance(method, FUNCTIONS)
        and method is not function
        and source.parent(method) is owner
        and all(_in_no_loop(source, call, method) and not runs_rarely(source, call, method) for call in calls)
        and all(_asks_for_size(source, test) for call in calls for test in _conditions(source, call, method))
        and _is_called_in_loop(source, method)
    )


def _conditions(source: Source, node: ast.AST, method: Function) -> Iterator[ast.expr]:
    """What must hold for a method to come to a node: the conditions around it, and those that leave before it."""
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(child, ast.stmt) and child is not method:
            for earlier in source.before(child):
                if any(isinstance(inner, ast.Return) for inner in ast.walk(earlier)):
                    yield earlier.test if isinstance(earlier, ast.If) else ast.Constant(None)
        if ancestor is method:
            return
        if isinstance(ancestor, (ast.If, ast.IfExp)) and child is not ancestor.test:
            yield ancestor.test
        elif isinstance(ancestor, ast.BoolOp) and child is not ancestor.values[0]:
            yield from ancestor.values[: next(n for n, value in enumerate(ancestor.values) if value is child)]
        elif isinstance(ancestor, (ast.match_case, ast.ExceptHandler)):
            yield ast.Constant(None)  # nothing that is known
        child = ancestor


def _asks_for_size(source: Source, test: ast.expr) -> bool:
    """Whether a condition asks for a size or a count: `len(memory) > size`, `self.turn % 4 == 0`; each part of it.

    Or for a setting, which the constructor of the object alone sets: `if not self.prioritized`.
    """
    if isinstance(test, ast.BoolOp):
        return all(_asks_for_size(source, part) for part in test.values)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _asks_for_size(source, test.operand)
    if any(_ENDS.search(last_name(part).lower()) for part in ast.walk(test)):
        return False
    if isinstance(test, ast.Attribute) and is_own(test):
        set_in = [source.enclosing(store, *FUNCTIONS) for store in stores_of(source, test)]
        return bool(set_in) and all(isinstance(place, FUNCTIONS) and place.name == "__init__" for place in set_in)
    is_compared = isinstance(test, ast.Compare) and any(isinstance(op, _ORDERS) for op in test.ops)
    return is_compared or any(
        (isinstance(part, ast.Call) and last_name(part.func) == "len") or _is_remainder(source, part)
        for part in ast.walk(test)
    )


def _is_remainder(source: Source, node: ast.AST) -> bool:
    """`turn % 4`, or `self.turn` that is given such a value."""
    values = own_values(source, node, node.attr) if isinstance(node, ast.Attribute) and is_own(node) else [node]
    return any(isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod) for value in values)


def _is_meant(source: Source, function: Function, there: Source, call: ast.Call) -> bool | None:
    """Whether a call of another file runs this function, by what it imports; None where that is not clear."""
    owner = source.parent(function)
    if not isinstance(owner, ast.ClassDef) or not isinstance(call.func, ast.Attribute):
        return _is_imported(source, there, call.func, function.name)
    found = {_is_built(source, there, built, owner.name) for built in built_by(there, call.func.value)}
    return found.pop() if len(found) == 1 else None


def _is_built(source: Source, there: Source, built: ast.Call, name: str) -> bool | None:
    """Whether a call builds an object of this class; None of a function, which may build one."""
    is_meant = _is_imported(source, there, built.func, name)
    return None if is_meant is False and not last_name(built.func)[:1].isupper() else is_meant


def _is_imported(source: Source, there: Source, node: ast.expr, name: str) -> bool | None:
    """Whether a name of another file stands for what is defined here by this name; None where its imports do not say."""
    dotted = there.qualified_name(node)
    if dotted is None or source.neighbours is None:
        return False if isinstance(node, ast.Name) and there.lookup(node) else None
    if dotted.rpartition(".")[2] != name or not (dotted.startswith(".") or source.neighbours.is_own_module(dotted)):
        return False
    return source.neighbours.definition_of(dotted, there) is None  # else it is that of a third file


def _fits(source: Source, function: Function, call: ast.Call) -> bool:
    """Whether a call passes what the function wants: `model.train()` is no call of a trainer's `train(x, y)`."""
    if isinstance(source.parent(function), ast.ClassDef) and not isinstance(call.func, ast.Attribute):
        return False
    names, given = _parameters(source, function), len(call.args) + len(call.keywords)
    if not names:
        return given == 0
    least = len(names) - len(function.args.defaults)
    return least <= given and (len(call.args) <= len(names) or function.args.vararg is not None) and given > 0


def _takes_anything(source: Source, function: Function) -> bool:
    return bool(_parameters(source, function))


def _parameters(source: Source, function: Function) -> list[str]:
    """The parameters of a function, without the `self` of a method."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if isinstance(source.parent(function), ast.ClassDef) else names


def _is_each_turn(there: Source, call: ast.Call) -> bool:
    """Whether a loop makes the call on each turn, and nothing longer beside it: no loop of its own, as one over an episode."""
    loop = there.enclosing(call, *LOOPS)
    if not isinstance(loop, LOOPS) or counts_epochs(loop):
        return False
    if runs_rarely(there, call, loop) and not _is_in_period_of_learning(there, call, loop):
        return False
    if _is_at_end(there, call, loop):
        return False
    inside = (node for part in loop.body for node in ast.walk(part) if isinstance(node, LOOPS))
    return all(is_over_written_values(node) or runs_rarely(there, node, loop) for node in inside)


def _is_in_period_of_learning(there: Source, call: ast.Call, loop: ast.AST) -> bool:
    """Whether only a count makes a call rare in its loop, of few turns or of a period of learning: `step % learn_every == 0`."""
    child: ast.AST = call
    for ancestor in there.ancestors(call):
        if is_rare_part(ancestor, child) or (isinstance(child, ast.stmt) and skip_before(there, child) is not None):
            test = ancestor.test if isinstance(ancestor, ast.If) and is_rare_part(ancestor, child) else None
            if not isinstance(test, ast.Compare) or not isinstance(test.left, ast.BinOp):
                return False
            if not isinstance(test.left.op, ast.Mod) or not _is_short(there, test.left.right):
                return False
        if ancestor is loop:
            return True
        child = ancestor
    return False


def _is_short(there: Source, period: ast.expr) -> bool:
    """Whether a period is of few turns, or one of learning by its name, as far as its length is not known."""
    length = constant(there, period)
    if isinstance(length, int):
        return length <= _FEW_TURNS
    key = period.slice if isinstance(period, ast.Subscript) else None
    name = str(key.value) if isinstance(key, ast.Constant) else last_name(period)
    return _PERIOD.search(name.lower()) is not None


def _is_at_end(there: Source, call: ast.Call, loop: ast.AST) -> bool:
    """Whether a loop makes the call where a game is over: `if done: agent.update(memory)`."""
    child: ast.AST = call
    for ancestor in there.ancestors(call):
        if ancestor is loop:
            return False
        if isinstance(ancestor, ast.If) and any(part is child for part in ancestor.body) and _tells_end(ancestor.test):
            return True
        child = ancestor
    return False


def _tells_end(test: ast.expr) -> bool:
    """`done`, `state.is_terminal()`; not `not done`."""
    is_negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
    return not is_negated and any(_ENDS.search(last_name(part).lower()) for part in ast.walk(test))
