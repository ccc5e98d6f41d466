"""Whether a loop of another file runs a function on its turns, as far as the calls in sight tell."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from perfaudit.expressions import regex
from perfaudit.records import NamedTuple
from perfaudit.static.call_index import CallShape, shape_of
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.understanding.called_functions import callers
from perfaudit.static.understanding.demonstrations import is_test
from perfaudit.static.understanding.elsewhere import built_by
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.evaluation import EVALUATION_NAME
from perfaudit.static.understanding.handed_in import fits, parameters_of
from perfaudit.static.understanding.learning_periods import is_in_learning_period
from perfaudit.static.understanding.members import is_own, own_values, stores_of
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.rarely import runs_rarely
from perfaudit.static.understanding.step_loops import is_over_written_values

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
_LEARNS = regex(
    r"agent|algo|learn|polic|brain|solver|train|model|gan|player|actor|critic|engine|runner|"
    r"(^|_)(rl|ppo|sac|dqn|ddpg|td3|a2c|nets?|network|alg|ai)(_|\d|$)"
)
_LEARNS_NOTHING = regex(
    r"bar|meter|metric|track|avg|average|stat|loss|loader|data|dict|config|cfg|args|opt|rms|norm|buffer|memory|replay|hash|"
    r"log|writer|sched|scaler|ema|timer|hist|queue|table|progress|env|world|criterion|noise|count|monitor|vis"
)
_READY = regex(r"(^|_)(update|ready|learn|train|optimi[sz]e|sample)(_|$)")  # `is_update()`, `can_learn`
_ORDERS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE)
_OUTWARDS = 3  # functions gone outwards from a call to the loop around it


class Site(NamedTuple):
    """A call in another file that may run a function, and whether it surely does; None where that is not clear."""

    there: Source
    call: ast.Call
    is_meant: bool | None


def is_called_in_loop(source: Source, function: Function, neighbours: Neighbours | None) -> bool:
    """Whether a file that runs together with the one that is scanned calls a function on the turns of a loop.

    source: where the function is, the file that is scanned or another one, neighbours those of the former.

    What is surely called on an object of its class decides; where no call is, all do that have its name, pass as many
    arguments, and are asked of something that may learn: `bar.update(1)` on each turn says nothing of `agent.update(batch)`
    on every thousandth. What a test calls trains nothing.
    """
    found = (site for site in _sites(source, function, neighbours) if site.is_meant is not False)
    sites = [site for site in found if not is_test(site.there, site.call)]
    if any(site.is_meant for site in sites):
        return any(runs_on_turns(site.there, site.call) for site in sites if site.is_meant)
    unclear = [site for site in sites if _may_learn(source, function, site)]
    return bool(unclear) and all(runs_on_turns(site.there, site.call) for site in unclear)


def _sites(source: Source, function: Function, neighbours: Neighbours | None) -> Iterator[Site]:
    if neighbours is None:
        return

    is_method = isinstance(source.parent(function), ast.ClassDef)
    for there in neighbours.program_calling(function.name, lambda shape: _fits(source, function, shape)):
        for call in there.nodes(ast.Call) if there is not source else ():
            if last_name(call.func) != function.name or (is_method and not isinstance(call.func, ast.Attribute)):
                continue
            if _fits(source, function, shape_of(call)):
                yield Site(there, call, _is_meant(source, function, there, call, neighbours))


def _may_learn(source: Source, function: Function, site: Site) -> bool:
    """Whether a call that may run the function is one of something that learns, by its name."""
    owner = source.parent(function)
    if not isinstance(site.call.func, ast.Attribute):
        return function.name not in _COMMON
    receiver = last_name(site.call.func.value).lower()
    if receiver == "self" or _LEARNS_NOTHING.search(receiver):
        return False
    if function.name not in _COMMON and parameters_of(source, function):
        return True
    if function.name == "train" and (site.there.calls(".backward") or not isinstance(owner, ast.ClassDef)):
        return False  # `model.train()` of the loop's own model
    is_module = isinstance(owner, ast.ClassDef) and any(last_name(base) == "Module" for base in owner.bases)
    is_known = isinstance(owner, ast.ClassDef) and len(receiver) > 2 and receiver in owner.name.lower()
    return not (is_module and function.name in ("train", "forward")) and (is_known or bool(_LEARNS.search(receiver)))


# ---- the loop ------------------------------------------------------------------------------------------------------


def runs_on_turns(there: Source, node: ast.Call | Loop, outwards: int = _OUTWARDS) -> bool:
    """Whether a loop of a file makes a call on each turn, there or in a function that a loop calls on each turn."""
    loop, function = _loop_around(there, node), there.enclosing(node, *FUNCTIONS)
    if loop is not None:
        if isinstance(loop, ast.For) and isinstance(node, ast.Call) and _is_of_each(loop, node):
            return runs_on_turns(there, loop, outwards)  # `for agent in agents: agent.learn()`
        return not isinstance(node, ast.Call) or _is_each_turn(there, node, loop)
    if not isinstance(function, FUNCTIONS) or not outwards or EVALUATION_NAME.search(function.name.lower()):
        return False
    if not runs_where_it_may_learn(there, node, function):
        return False
    return any(runs_on_turns(there, call, outwards - 1) for call in callers(there, function))


def _loop_around(there: Source, node: ast.AST) -> Loop | None:
    """The innermost loop around a node in the same function."""
    for ancestor in there.ancestors(node):
        if isinstance(ancestor, LOOPS):
            return ancestor
        if isinstance(ancestor, (*FUNCTIONS, ast.Lambda, ast.ClassDef)):
            return None
    return None


def _is_of_each(loop: ast.For, call: ast.Call) -> bool:
    """Whether a call is of a method of what a loop goes through: of each agent of some."""
    names = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    is_counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter.func) in ("range", "trange")
    return (
        not is_counted
        and isinstance(call.func, ast.Attribute)
        and dotted_name(call.func.value).partition(".")[0] in names
    )


def _is_each_turn(there: Source, call: ast.Call, loop: Loop) -> bool:
    """Whether a loop makes the call on each turn, and nothing longer beside it: no loop of its own, as one over an episode."""
    if counts_epochs(loop):
        return False
    if runs_rarely(there, call, loop) and not is_in_learning_period(there, call, loop):
        return False
    if _is_at_end(there, call, loop):
        return False
    inside = (node for part in loop.body for node in ast.walk(part) if isinstance(node, LOOPS))
    return all(
        is_over_written_values(node) or _goes_through_dict(node) or runs_rarely(there, node, loop) for node in inside
    )


def _goes_through_dict(loop: Loop) -> bool:
    """Whether a loop goes through what a dict holds, `for name, value in losses.items()`: that is no episode."""
    over = loop.iter if isinstance(loop, (ast.For, ast.AsyncFor)) else None
    return isinstance(over, ast.Call) and not over.args and last_name(over.func) in ("items", "keys", "values")


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


# ---- conditions on the way -----------------------------------------------------------------------------------------


def runs_where_it_may_learn(source: Source, node: ast.AST, function: Function) -> bool:
    """Whether a function makes a call wherever it may learn: behind questions of a size, a count or a setting only.

    Behind another condition, `if done:`, it may learn once in an episode.
    """
    if runs_rarely(source, node, function) and not is_in_learning_period(source, node, function):
        return False
    return all(_asks_for_size(source, test) for test in _conditions(source, node, function))


def _conditions(source: Source, node: ast.AST, function: Function) -> Iterator[ast.expr]:
    """What must hold for a function to come to a node: the conditions around it, and those that leave before it."""
    child = node
    for ancestor in source.ancestors(node):
        if isinstance(child, ast.stmt) and child is not function:
            for earlier in source.before(child):
                if any(isinstance(inner, ast.Return) for inner in ast.walk(earlier)):
                    yield earlier.test if isinstance(earlier, ast.If) else ast.Constant(None)
        if ancestor is function:
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

    Or for a setting, which the constructor of the object alone sets: `if not self.prioritized`; or whether there is
    enough to learn from, by the name of a method: `if self.is_update():`.
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
    if isinstance(test, ast.Call) and _READY.search(last_name(test.func)):
        return True
    is_compared = isinstance(test, ast.Compare) and any(isinstance(op, _ORDERS) for op in test.ops)
    return is_compared or any(
        (isinstance(part, ast.Call) and last_name(part.func) == "len") or _is_remainder(source, part)
        for part in ast.walk(test)
    )


def _is_remainder(source: Source, node: ast.AST) -> bool:
    """`turn % 4`, or `self.turn` that is given such a value."""
    values = own_values(source, node, node.attr) if isinstance(node, ast.Attribute) and is_own(node) else [node]
    return any(isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod) for value in values)


# ---- which function a call means -----------------------------------------------------------------------------------


def _is_meant(source: Source, function: Function, there: Source, call: ast.Call, neighbours: Neighbours) -> bool | None:
    """Whether a call of another file runs this function, by what it imports; None where that is not clear."""
    owner = source.parent(function)
    if not isinstance(owner, ast.ClassDef) or not isinstance(call.func, ast.Attribute):
        return _is_imported(source, function, there, call.func, neighbours)
    if dotted_name(call.func.value) == "self":
        return _are_related(owner, there.enclosing(call, ast.ClassDef))
    found = {_is_built(source, owner, there, built, neighbours) for built in built_by(there, call.func.value)}
    return found.pop() if len(found) == 1 else None


def _are_related(owner: ast.ClassDef, other: ast.AST | None) -> bool:
    """Whether one of two classes of different files is derived from the other, by their names."""
    if not isinstance(other, ast.ClassDef):
        return False
    return other.name in map(last_name, owner.bases) or owner.name in map(last_name, other.bases)


def _is_built(
    source: Source, owner: ast.ClassDef, there: Source, built: ast.Call, neighbours: Neighbours
) -> bool | None:
    """Whether a call builds an object of this class; None of a function, which may build one."""
    is_meant = _is_imported(source, owner, there, built.func, neighbours)
    return None if is_meant is False and not last_name(built.func)[:1].isupper() else is_meant


def _is_imported(
    source: Source, defined: Function | ast.ClassDef, there: Source, node: ast.expr, neighbours: Neighbours
) -> bool | None:
    """Whether a name of another file stands for what is defined here by this name; None where its imports do not say."""
    dotted = there.qualified_name(node)
    if dotted is None:
        bound = there.lookup(node) if isinstance(node, ast.Name) else []
        own = (*FUNCTIONS, ast.ClassDef, ast.Name) if isinstance(defined, FUNCTIONS) else (*FUNCTIONS, ast.ClassDef)
        return False if any(isinstance(each, own) for each in bound) else None
    if dotted.rpartition(".")[2] != defined.name or not (
        dotted.startswith(".") or neighbours.is_own_module(dotted, there)
    ):
        return False
    found = neighbours.definition_of(dotted, there)
    if source.neighbours is neighbours:
        return found is None  # else it is that of a third file
    return found is not None and found[0].path == source.path and found[1] is defined


def _fits(source: Source, function: Function, shape: CallShape) -> bool:
    """Whether a call passes what the function wants; a name that anything may have wants an argument."""
    names, given = parameters_of(source, function), shape.positional + len(shape.keywords)
    if not names and given:
        return False
    return fits(source, function, shape) and (given > 0 or not names or function.name not in _COMMON)
