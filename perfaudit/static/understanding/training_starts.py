"""Where a script starts a training whose steps are in a file that it imports."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.project.neighbours import Neighbours
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.source.syntax import lies_in, walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.devices import is_on_cpu, uses_cuda
from perfaudit.static.understanding.elsewhere import Elsewhere, called_elsewhere, called_from, class_of
from perfaudit.static.understanding.entry import STARTS, imported_files_say, is_fire, is_run_by_framework
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import step_loops

_TRAINS = regex(
    r"^(fit|learn|optimi[sz]e_parameters|(run_|do_|start_)?train(_\w+|ing|ers?(_\w+)?)?|\w*train_?step"
    r"|(?!(?:is|in|set|get|load|read|build|make|prepare|eval|evaluate|test|on|for|pre)_)[a-z]+_train)$"  # `simclr_train`
)
_OF_TRAINING = regex(
    r"(^|\.)((run|start|do|launch)_)?train(ing|er)?(\.|$)"
)  # of a module or function: `run_training.main`
_RUNS = {"run", "start", "launch", "execute"}  # methods of an object that trains, among others
_MOST_CALLS = 3  # from such a method to one of the object that makes the steps
_NO_TRAINING = regex(
    r"test|eval|infer|demo|predict|sampl|generat|export|convert|visuali|plot|bench|profil|setup|preproc|prepar|extract|valid"
)


@remember  # three rules ask, and the answer may take the trees of other files
def starts_training(source: Source) -> ast.stmt | None:
    """The first statement under the main guard of a script whose training loop is in a file that it imports.

    Without a guard, the first statement of the file that calls something by the name of a training, or the first loop that
    does. None for any other file: one that others import, that does not name training, or whose program uses no accelerator
    or a framework.
    """
    if source.neighbours is None or step_loops(source) or _is_named_otherwise(source):
        return None
    start = _first_of_program(source)
    if start is None or source.neighbours.is_imported(_NO_TRAINING):
        return None  # a test that takes the options of the training from here is no other way to start it
    has_steps = imported_files_say(source, "steps")
    if not has_steps and not imported_files_say(source, "steps of a script"):  # of a file that also tries itself out
        return None
    if not _calls_training(source, has_steps):
        return None
    if is_run_by_framework(source) or imported_files_say(source, "framework"):
        return None
    if uses_cuda(source):
        return start
    return start if imported_files_say(source, "accelerator") and not is_on_cpu(source) else None


def _is_named_otherwise(source: Source) -> bool:
    """Whether a file is by its name there for something else than a training; `train_generator.py` trains one."""
    name = source.path.rpartition("/")[2]
    return _NO_TRAINING.search(name) is not None and not name.startswith("train_")


def _calls_training(source: Source, has_steps: bool) -> bool:
    """Whether a call starts a training or makes a step of one; names first, which need no tree of another file.

    has_steps: whether a file that this one imports has them, and is there to be imported.
    """
    calls = source.nodes(ast.Call)
    if has_steps and any(_TRAINS.search(_name_called(call)) or _hands_on_training(source, call) for call in calls):
        return True
    if any(_makes_steps(source, call) for call in calls):
        return True
    if has_steps and _calls_by_another_name(source, calls):
        return True
    if not has_steps:
        return any(_TRAINS.search(_name_called(call)) and _runs_left_to_others(source, call) for call in calls)
    return any(_runs_training(source, call) for call in calls)


def _runs_left_to_others(source: Source, call: ast.Call) -> bool:
    """Whether a call runs a function that trains, of a file that tries something out and calls that function nowhere."""
    neighbours, dotted = source.neighbours, source.qualified_name(call.func)
    if neighbours is None:
        return False
    if dotted:
        found = neighbours.definition_of(dotted) if neighbours.may_have_updates(dotted) else None
    elif isinstance(call.func, ast.Name) and not source.lookup(call.func):
        bound = neighbours.bound_by_star(call.func.id, source)
        found = (bound[0], bound[1][0]) if bound is not None and len(bound[1]) == 1 else None
    else:
        found = None
    if found is None or not isinstance(found[1], FUNCTIONS) or not _updates_weights(found[1]):
        return False
    there, function = found
    return not any(called_function(there, other) is function for other in there.nodes(ast.Call))


def _hands_on_training(source: Source, call: ast.Call) -> bool:
    """Whether a call is given an imported function by the name of a training: `launch(config, func=train)`."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    if not given and is_fire(source, call):  # it has the command line name any function of the file, imported or not
        return any(map(_TRAINS.search, source.aliases))
    return any(_is_training_of_others(source, each) for each in given)


def _calls_by_another_name(source: Source, calls: list[ast.Call]) -> bool:
    """Whether an imported training is called by a name that it is given here: `run = train_all if args.all else train`."""
    called = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
    return any(
        isinstance(target, ast.Name) and target.id in called and _is_training_of_others(source, node.value)
        for node in source.nodes(ast.Assign)
        for target in node.targets
    )


def _is_training_of_others(source: Source, node: ast.expr) -> bool:
    """Whether an expression is an imported function by the name of a training, or either of two of which one is."""
    if isinstance(node, ast.IfExp):
        return _is_training_of_others(source, node.body) or _is_training_of_others(source, node.orelse)
    return isinstance(node, ast.Name) and node.id in source.aliases and _TRAINS.search(node.id) is not None


def _runs_training(source: Source, call: ast.Call) -> bool:
    """Whether a call runs an imported function that trains, whatever its name: `execution.run(mode)`, `learn_all(model)`."""
    dotted = source.qualified_name(call.func)
    neighbours = source.neighbours
    if neighbours is not None and dotted and _OF_TRAINING.search(dotted) and _hands_on(neighbours, dotted):
        return True
    if neighbours is not None and dotted and neighbours.may_have_updates(dotted):
        found = neighbours.definition_of(dotted)
    else:
        found = None
    if found is not None:
        there, function = found
        return isinstance(function, FUNCTIONS) and (
            _updates_weights(function) or any(_updates_weights(one) for one in _functions_run_by(there, function))
        )
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr not in _RUNS:  # `solver.solve()`
        own = called_elsewhere(source, call)
        has_loop = own is not None and any(isinstance(node, LOOPS) for node in walk(own.function))
        return own is not None and own.owner is not None and has_loop and _updates_weights(own.function)
    owner = class_of(source, call.func.value)
    if owner is None or owner[0] is source:
        return False
    method = called_elsewhere(source, call)
    return _updates_weights(owner[1]) or (method is not None and _runs_trainer(source, method, _MOST_CALLS))


def _hands_on(neighbours: Neighbours, dotted: str) -> bool:
    """Whether an imported function has a further file train, as its name and that of what it calls say: `run_training.main`."""
    found = neighbours.definition_of(dotted)
    if found is None or not isinstance(found[1], FUNCTIONS):
        return False
    there, function = found
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return any(_TRAINS.search(_name_called(call)) and not _switches_mode(there, call) for call in calls)


def _runs_trainer(source: Source, there: Elsewhere, calls: int) -> bool:
    """Whether a method of an object has another object make the steps: `Experiment.run` that builds a `Trainer` and runs it.

    calls: how many it may be away.
    """
    for further in called_from(source, there):
        owner, name = further.owner, further.function.name
        is_other = owner is not None and owner is not there.owner and (name in _RUNS or _TRAINS.search(name))
        if is_other and owner is not None and _updates_weights(owner):
            return True
        if calls > 1 and _runs_trainer(source, further, calls - 1):
            return True
    return False


def _functions_run_by(source: Source, function: Function) -> list[Function]:
    """The functions of its file that a function calls: `start(config)` makes its steps in `train_batch(batch)`."""
    calls = (node for node in walk(function) if isinstance(node, ast.Call))
    return [found for call in calls if (found := called_function(source, call)) is not None]


def _makes_steps(source: Source, call: ast.Call) -> bool:
    """Whether a loop calls a method, of a class in another file, that makes a step: `gan.update_generator(x)`."""
    if not isinstance(call.func, ast.Attribute) or source.enclosing(call, *LOOPS) is None:
        return False
    there = called_elsewhere(source, call)
    return there is not None and _updates_weights(there.function)


def _updates_weights(definition: ast.AST) -> bool:
    called = {last_name(node.func) for node in walk(definition) if isinstance(node, ast.Call)}
    return {"backward", "step"} <= called


def _first_of_program(source: Source) -> ast.stmt | None:
    guard = next((s for s in source.tree.body if isinstance(s, ast.If) and is_main_guard(s)), None)
    if guard is not None:
        return guard.body[0]
    body = source.tree.body
    return next((s for s in body if _trains(source, s) or _is_call_of_training(source, s) or _fires(source, s)), None)


def _fires(source: Source, statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and is_fire(source, statement.value)


def _is_call_of_training(source: Source, statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    return isinstance(value, ast.Call) and _runs_training(source, value)


def _trains(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement calls something by the name of a training, or is a loop or a choice in which such are called."""
    if isinstance(statement, ast.If):
        blocks = (*statement.body, *statement.orelse)
        return any(
            _TRAINS.search(_call_name(inner)) or (isinstance(inner, LOOPS) and _trains(source, inner))
            for inner in blocks
        )
    if not isinstance(statement, LOOPS):
        return _TRAINS.search(_call_name(statement)) is not None
    calls = [node for node in walk(statement) if isinstance(node, ast.Call)]
    return any(_TRAINS.search(_name_called(call)) or _makes_steps(source, call) for call in calls)


def shown_start(source: Source, start: ast.stmt) -> ast.stmt:
    """The statement to point at where a training starts: what the main block calls last, not the options it reads first."""
    guard = source.parent(start)
    block = guard.body if isinstance(guard, ast.If) else [start]
    calls: list[ast.stmt] = [statement for statement in block if _call_name(statement)]
    named = [statement for statement in calls if STARTS.search(name := _call_name(statement)) or _TRAINS.search(name)]
    if isinstance(guard, ast.If) and not named:  # deeper in the block: `for topic in topics: ... trainer.train(epochs)`
        inside = (node for part in block for node in walk(part) if isinstance(node, ast.stmt))
        named = [s for s in inside if _is_named(source, s) or _is_call_of_training(source, s)][:1]
    return (named or calls or [start])[-1]


def training_call(source: Source, start: ast.stmt) -> ast.AST:
    """What to show of a statement where a training starts: of a loop or a choice the first call in it by such a name."""
    if not isinstance(start, (*LOOPS, ast.If)):
        return start
    calls = [node for node in source.nodes(ast.Call) if lies_in(node, start)]
    named = [call for call in calls if _TRAINS.search(_name_called(call)) and not _switches_mode(source, call)]
    return next(iter(named or [call for call in calls if _makes_steps(source, call)]), start)


def training_calls(source: Source) -> list[ast.Call]:
    """The calls of a script by which functions and objects of other files train."""
    others = [call for call in source.nodes(ast.Call) if called_function(source, call) is None]
    named = [call for call in others if _TRAINS.search(_name_called(call)) and not _switches_mode(source, call)]
    return named or [call for call in others if _runs_training(source, call)]


def _is_named(source: Source, statement: ast.stmt) -> bool:
    """Whether a statement is a call by the name of a training, and not only one that puts a model into train mode."""
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    is_named = isinstance(value, ast.Call) and _TRAINS.search(_name_called(value)) is not None
    return is_named and isinstance(value, ast.Call) and not _switches_mode(source, value)


def _switches_mode(source: Source, call: ast.Call) -> bool:
    """`model.train()` in a file that calls `eval()` as well."""
    return last_name(call.func) == "train" and not (call.args or call.keywords) and bool(source.calls(".eval"))


def _call_name(statement: ast.stmt) -> str:
    """The last name of what a statement calls: "fit" of `result = trainer.fit(model)`; "" where it is no call."""
    value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
    return _name_called(value) if isinstance(value, ast.Call) else ""


def _name_called(call: ast.Call) -> str:
    """The last name of what is called, of `trainers[name](...)` that of the table."""
    return last_name(call.func.value if isinstance(call.func, ast.Subscript) else call.func)
