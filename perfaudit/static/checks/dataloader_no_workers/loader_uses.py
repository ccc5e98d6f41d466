"""Who takes batches from a DataLoader, as far as one file shows: a loop, a function it is handed to, or nobody."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Loop, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import calls_of_functions
from perfaudit.static.understanding.calls_by_name import calls_in_sight
from perfaudit.static.understanding.demonstrations import is_shown_only
from perfaudit.static.understanding.each_time import runs_each_time
from perfaudit.static.understanding.epochs import counts_epochs
from perfaudit.static.understanding.evaluation import only_evaluates
from perfaudit.static.understanding.lightning_hooks import hooks_around
from perfaudit.static.understanding.loaders import COMPREHENSIONS, Pass, passes
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import (
    ABSENT,
    Argument,
    argument,
    assigned_value,
    constant,
    enclosing_function,
    is_false,
)

FOLLOW = 6  # expressions from the call outwards; real code needs two or three

_PASSES_ON = {"enumerate", "tqdm", "trange", "cycle", "zip", "islice", "track", "progress_bar", "reversed"}
_BARS = {"tqdm", "track", "progress_bar"}
_ONLY_LOOKS = {"len", "print", "isinstance", "type", "id", "repr", "str", "display"}
_HOLDERS = (ast.Dict, ast.Tuple, ast.List, ast.IfExp, ast.DictComp, ast.ListComp, ast.NamedExpr, ast.Starred)
_DEVICE = regex(r"cuda|device|gpu|\.to\(|accelerat|fabric|half\(", words="cuda|device|gpu|.to(|accelerat|fabric|half(")
_REASON = regex(r"worker|multi.?process|thread|fork|crash|hang|deadlock|in memory|pickl", re.IGNORECASE)
_HOOKS_OF_ONE_PASS = ("test_dataloader", "predict_dataloader")  # of Lightning: asked when a training is over
_MODE_OF_TEST = regex(r"^(?!.*train).*(?<![^_])(test|eval)(_|$)")
_FOR_TEST = regex(  # not one that tests itself
    r"_(test|eval)_?(data|set|dataset|loader|dataloader)s?(_|$)|[a-z]Test(ing)?(Data|Set|Loader)|^(data)?loader_\w+_test$"
)
_FOR_TRAINING = regex(r"^((run|do|start)_)?(train|training|fit|fine_?tune)(_model|_net|_network)?$", re.IGNORECASE)
# What trains, or what it trains on: a file without any of these words only looks at its batches.
_TRAINS = regex(
    r"backward|cuda|device|gpu|\bmps\b|\.to\(|accelerat|trainer|optim|model|net\b|\.fit\(|\.step\(|lightning",
    re.IGNORECASE,
)


def is_asked_for_batches(source: Source, call: ast.Call) -> bool:
    """Whether a loop runs over a loader, or may: it is returned, kept in an object or handed to somebody.

    Not one that is built and never used, or of which `next(iter(loader))` takes one batch. A variable of a module may be
    imported by another file, a variable of a notebook may not.
    """
    return _is_asked(source, call, FOLLOW)


def only_looks_at_batches(source: Source, call: ast.Call) -> bool:
    """Whether loops of a notebook alone take the batches, without a model or a device: they count, print or draw."""
    if _TRAINS.search(source.text) or _may_be_imported(source) or source.scope(call) is not source.tree:
        return False
    return any(any(loader is call for loader in item.loaders) for item in passes(source))


def only_names_batch(source: Source, call: ast.Call) -> bool:
    """Whether each loop over a loader only gives its batch other names: `for x, y in loader: images, labels = x, y`."""
    own = [item for item in passes(source) if any(loader is call for loader in item.loaders)]
    return bool(own) and all(_only_names(item.loop) for item in own)


def _only_names(loop: ast.For | ast.AsyncFor) -> bool:
    named = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    return all(
        isinstance(statement, ast.Assign)
        and all(isinstance(node, ast.Name) for target in statement.targets for node in _parts(target))
        and all(last_name(_whole(node)) in named for node in _parts(statement.value))
        for statement in loop.body
    )


def _parts(node: ast.expr) -> list[ast.expr]:
    return list(node.elts) if isinstance(node, (ast.Tuple, ast.List)) else [node]


def _whole(node: ast.expr) -> ast.expr:
    """What an element is taken of: `batch` of `batch[0]`."""
    return node.value if isinstance(node, ast.Subscript) else node


def feeds_no_long_training(source: Source, call: ast.Call) -> bool:
    """Whether workers would pay little: a module tries itself out, a test, a few samples, one of many clients, an episode."""
    return gives_few_batches(source, call) or serves_evaluation_only(source, call)


def gives_few_batches(source: Source, call: ast.Call) -> bool:
    """The same of what does not hang on what the program is for: a few samples, one of many clients, an episode."""
    is_trial = is_shown_only(source, call) and source.neighbours is not None and source.neighbours.is_imported()
    return (
        (is_trial and not _is_built_for_others(source, call))
        or takes_few_batches(source, call)
        or judges_single_samples(source, call)
        or is_built_for_each_object(source, call)
        or is_made_each_step(source, call)
    )


def takes_few_batches(source: Source, call: ast.Call) -> bool:
    """Whether each loop over a loader is left by a `break` that counts its batches, and none of them trains: a few samples.

    A loop that ends with `break` takes one batch.
    """
    own = [item for item in passes(source) if any(loader is call for loader in item.loaders)]
    training = [step.loop for step in step_loops(source)]
    if _is_built_for_others(source, call):
        return False
    return bool(own) and all(
        item.loop not in training
        and (_takes_one(item.loop) or any(_leaves_by_count(statement, item.loop) for statement in item.loop.body))
        for item in own
    )


def _is_built_for_others(source: Source, call: ast.Call) -> bool:
    """Whether a file that imports this one calls the function that builds the loader."""
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or source.neighbours is None:
        return False
    return source.neighbours.is_called_by_importers(function.name)


def is_built_for_each_object(source: Source, call: ast.Call) -> bool:
    """Whether the constructor of a class builds the loader, and a loop builds its objects: a loader for each of many clients."""
    function = source.enclosing(call, *FUNCTIONS)
    owner = source.parent(function) if function is not None else None
    if not isinstance(owner, ast.ClassDef) or not isinstance(function, FUNCTIONS) or function.name != "__init__":
        return False
    built = calls_in_sight(source, owner.name)
    return any(there.enclosing(c, *LOOPS, ast.ListComp, ast.DictComp) is not None for there, c in built)


def is_made_each_step(source: Source, call: ast.Call) -> bool:
    """Whether a training loop calls the function that builds the loader, on every step: workers would start anew each time.

    Such a loader gives the few batches of an episode. A loop over epochs, whose pass stands inside, is none.
    """
    function = source.enclosing(call, *FUNCTIONS)
    if not isinstance(function, FUNCTIONS) or source.scope(function) is not source.tree:
        return False
    here = (made for made, called in calls_of_functions(source) if called is function)
    if any(_runs_each_step(source, made) for made in here):
        return True
    return source.neighbours is not None and any(
        _is_call_of(source, function, there, made)
        for there in source.neighbours.importers_calling(function.name)
        if _step_loops_by_id(there)
        for made in there.nodes(ast.Call)
        if _runs_each_step(there, made)
    )


def _runs_each_step(source: Source, call: ast.Call) -> bool:
    loops = _step_loops_by_id(source)
    around = (loops[id(ancestor)] for ancestor in source.ancestors(call) if id(ancestor) in loops)
    return any(runs_each_time(source, call, loop) for loop in around)


@remember
def _step_loops_by_id(source: Source) -> dict[int, Loop]:
    """The training loops of a file that number no epochs."""
    return {id(step.loop): step.loop for step in step_loops(source) if not counts_epochs(step.loop)}


def _is_call_of(source: Source, function: Function, there: Source, call: ast.Call) -> bool:
    """Whether a call in another file is one of a function of this file, by what it imports: `model.train()` is none of `train`.

    Nor is it one of another module that has a function of that name.
    """
    dotted = there.qualified_name(call.func) or ""
    if dotted.rpartition(".")[2] != function.name or source.neighbours is None:
        return False
    is_ours = source.neighbours.is_own_module(dotted, there)
    return is_ours and source.neighbours.bindings_of(dotted, there) is None  # else it is that of a third file


def is_script_that_evaluates(source: Source) -> bool:
    """Whether the file is a script that evaluates and that no other file imports: its loaders feed no training."""
    return only_evaluates(source) and (source.neighbours is None or not source.neighbours.is_imported())


def serves_evaluation_only(source: Source, call: ast.Call) -> bool:
    """Whether a loader is of a script that evaluates, of a function that by its name is there for a test, `load_test_data`, or of
    the branch of a mode that is one: `mode == "online_eval"`. So is that of Lightning's hook for a test, which runs once.

    Not of `train()` in a script of several modes, which hands the loader to what trains in another file.
    """
    function = source.enclosing(call, *FUNCTIONS)
    if isinstance(function, FUNCTIONS) and _FOR_TEST.search(function.name):
        return True
    hooks = hooks_around(source, call)
    is_hook_of_test = bool(hooks) and hooks.issubset(_HOOKS_OF_ONE_PASS)
    is_for_training = isinstance(function, FUNCTIONS) and _FOR_TRAINING.search(function.name) is not None
    is_of_script = is_script_that_evaluates(source) and not is_for_training
    return is_hook_of_test or _is_in_mode_of_test(source, call) or is_of_script


def _is_in_mode_of_test(source: Source, call: ast.Call) -> bool:
    child: ast.AST = call
    for ancestor in source.ancestors(call):
        if isinstance(ancestor, ast.If) and any(item is child for item in ancestor.body):
            match ancestor.test:
                case ast.Compare(ops=[ast.Eq()], comparators=[ast.Constant(value=str() as mode)]):
                    if _MODE_OF_TEST.search(mode):
                        return True
        child = ancestor
    return False


def _takes_one(loop: ast.For | ast.AsyncFor) -> bool:
    """`for batch in loader: show(batch); break`, also by a `return`."""
    return isinstance(loop.body[-1], (ast.Break, ast.Return)) and not any(
        isinstance(node, ast.Continue) for node in ast.walk(loop)
    )


def takes_samples_in_order(source: Source, call: ast.Call) -> bool:
    """Whether the loader yields single samples in order, as for a test: each is a small part of what is done with it."""
    is_single = constant(source, argument(source, call, "batch_size", 1)) == 1
    shuffle = argument(source, call, "shuffle", 2)
    return (
        is_single
        and argument(source, call, "sampler", 3) is ABSENT
        and (shuffle is ABSENT or is_false(source, shuffle))
    )


def judges_single_samples(source: Source, call: ast.Call) -> bool:
    """Whether a training takes single samples in order, in loops that do not train: the pictures by which it is judged."""
    own = [item for item in passes(source) if any(loader is call for loader in item.loaders)]
    training = [step.loop for step in step_loops(source)]
    is_beside = bool(own and training) and all(item.loop not in training for item in own)
    return is_beside and takes_samples_in_order(source, call)


def _leaves_by_count(statement: ast.stmt, loop: ast.For | ast.AsyncFor) -> bool:
    """`if i == few - 1: break`, of the `i` that `enumerate` counts, also behind a bar of progress."""
    counter = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) and loop.target.elts else None
    over = loop.iter
    while isinstance(over, ast.Call) and over.args and last_name(over.func) in _BARS:
        over = over.args[0]
    is_counted = isinstance(over, ast.Call) and last_name(over.func) == "enumerate"
    if not is_counted or not isinstance(statement, ast.If) or not isinstance(statement.test, ast.Compare):
        return False
    is_left = any(isinstance(inner, ast.Break) for inner in statement.body)
    return is_left and isinstance(counter, ast.Name) and last_name(statement.test.left) == counter.id


def stays_on_host(source: Source, call: ast.Call) -> bool:
    """Whether the one function that runs over a loader never names a device and builds its model itself: it works on the CPU."""
    function = enclosing_function(source, call)
    own = [item for item in passes(source) if any(loader is call for loader in item.loaders)]
    if function is None or not own or _DEVICE.search(source.text_of(function)):
        return False
    is_local = all(enclosing_function(source, item.loop) is function for item in own)
    return is_local and not _is_handed_on(source, call) and all(_uses_own_names(source, item, function) for item in own)


def _uses_own_names(source: Source, item: Pass, function: ast.AST) -> bool:
    """Whether everything that a loop calls by a name is a variable of its function, an import or a definition of the file."""
    for called in (node.func for node in ast.walk(item.loop) if isinstance(node, ast.Call)):
        if not isinstance(called, ast.Name):
            continue
        for binding in source.lookup(called):
            is_variable = isinstance(binding, (ast.Name, ast.arg))
            if isinstance(binding, ast.arg) or (is_variable and source.scope(binding) is not function):
                return False
            if isinstance(binding, FUNCTIONS) and _DEVICE.search(source.text_of(binding)):
                return False
    return not backward_calls(source) or not any(
        any(ancestor is item.loop for ancestor in source.ancestors(call)) for call in backward_calls(source)
    )


def _is_handed_on(source: Source, call: ast.Call) -> bool:
    """Whether somebody else than loops where it is made gets the loader."""
    return _is_asked(source, call, FOLLOW, by_loops=False)


def _is_asked(source: Source, node: ast.AST, depth: int, by_loops: bool = True) -> bool:
    parent = source.parent(node)
    if not depth or parent is None:
        return True
    if isinstance(parent, (ast.For, ast.AsyncFor, ast.comprehension)):
        return by_loops and parent.iter is node
    if isinstance(parent, ast.Call) and parent.func is not node:
        return _is_asked_by(source, parent, depth, by_loops)
    if isinstance(parent, (*_HOLDERS, ast.withitem)):
        return _is_asked(source, parent, depth - 1, by_loops)
    if isinstance(parent, ast.Expr):  # written alone: shown by a notebook, or built for nothing
        return isinstance(node, ast.Call) and last_name(node.func) == "__init__"
    if isinstance(parent, ast.Attribute):  # `loader.dataset`; `loader.__iter__()` and methods of one's own are uses
        around = source.parent(parent)
        return isinstance(around, ast.Call) and around.func is parent and parent.attr not in ("__len__", "__next__")
    if isinstance(parent, (ast.Assign, ast.AnnAssign)):
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
        return any(_is_asked_by_name(source, target, depth, by_loops) for target in targets)
    return True


def _is_asked_by(source: Source, call: ast.Call, depth: int, by_loops: bool) -> bool:
    name = last_name(call.func)
    if name == "iter":
        around = source.parent(call)
        taken = around.func if isinstance(around, ast.Call) else around
        return last_name(taken) not in ("next", "__next__") if taken is not None else True
    if name in _ONLY_LOOKS:
        return False
    return _is_asked(source, call, depth - 1, by_loops) if name in _PASSES_ON else True


def _is_asked_by_name(source: Source, target: ast.expr, depth: int, by_loops: bool) -> bool:
    if isinstance(target, (ast.Tuple, ast.List)):
        return any(_is_asked_by_name(source, element, depth, by_loops) for element in target.elts)
    if not isinstance(target, ast.Name):
        return True
    if source.scope(target) is source.tree and _may_be_imported(source):
        return True
    end = _bound_again(source, target)
    uses = [use for use in source.uses_of(target, target.id) if end is None or source.span(use).start < end]
    return any(_is_asked(source, use, depth - 1, by_loops) for use in uses)


def _bound_again(source: Source, name: ast.Name) -> int | None:
    """Where the next statement of the same block ends that gives a name something else; None where none does, or in a loop."""
    own = source.statement(name)
    if source.enclosing(name, *LOOPS) is not None:
        return None
    later = {id(statement) for statement in source.block(own) if source.span(statement).start > source.span(own).end}
    bound = [source.statement(binding) for binding in source.lookup(name) if isinstance(binding, ast.Name)]
    ends = [source.span(statement).end for statement in bound if id(statement) in later]
    return min(ends, default=None)


def _may_be_imported(source: Source) -> bool:
    """Whether another file, of this scan or not, may import what a file binds; nobody imports a notebook."""
    return not source.path.endswith(".ipynb")


def says_why_not(source: Source, call: ast.Call, workers: Argument) -> bool:
    """Whether a comment beside a literal 0, or above it or above the call, speaks of workers: somebody had a reason."""
    lines = source.text.splitlines()
    said = _above(lines, source.statement(call).lineno - 1)
    if isinstance(workers, ast.Constant):
        line = (workers.end_lineno or workers.lineno) - 1
        said += [lines[line][workers.end_col_offset or 0 :].partition("#")[2], *_above(lines, line)]
    return any(_REASON.search(comment) for comment in said)


def _above(lines: list[str], line: int) -> list[str]:
    """The comments in the lines above one."""
    found = []
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        found.append(lines[line])
    return found


def takes_one_batch(source: Source, call: ast.Call) -> bool:
    """Whether there is one batch in all: `batch_size=len(dataset)`, or a loader used only in `next(iter(loader))`.

    Likewise where a loop only names its batch, and what follows reads it: of more batches it would keep the last.
    """
    batch_size = argument(source, call, "batch_size", 1)
    if isinstance(batch_size, ast.Call) and isinstance(batch_size.func, ast.Name) and batch_size.func.id == "len":
        return True
    if isinstance(batch_size, ast.expr) and _is_length_of(batch_size, argument(source, call, "dataset", 0)):
        return True
    if _is_next_of_iter(source, call) or only_names_batch(source, call):
        return True
    assignment = source.parent(call)
    if not isinstance(assignment, ast.Assign) or not isinstance(name := assignment.targets[0], ast.Name):
        return False
    if assigned_value(source, name) is not call or len(source.lookup(name)) != 1:
        return False
    uses = source.uses_of(name, name.id)
    return bool(uses) and all(_is_next_of_iter(source, use) for use in uses)


def _is_length_of(size: ast.expr, dataset: Argument) -> bool:
    """Whether a number is how many rows the dataset has, a tensor: `x.shape[0]`, `x.size(0)`."""
    match size:
        case ast.Subscript(value=ast.Attribute(value=rows, attr="shape"), slice=ast.Constant(value=0)):
            pass
        case ast.Call(func=ast.Attribute(value=rows, attr="size"), args=[ast.Constant(value=0)]):
            pass
        case _:
            return False
    return isinstance(dataset, ast.expr) and ast.dump(rows) == ast.dump(dataset)


def _is_next_of_iter(source: Source, node: ast.expr) -> bool:
    """Whether an expression is the loader in `next(iter(loader))`, `loader.__iter__().next()`, or in `batches = iter(loader)` of
    which one batch is taken.
    """
    once = source.parent(node)
    if isinstance(once, ast.Attribute) and once.attr == "__iter__":
        once = source.parent(once)
    elif not isinstance(once, ast.Call) or last_name(once.func) != "iter":
        return False
    taken = source.parent(once) if isinstance(once, ast.Call) else None
    if isinstance(taken, ast.Assign) and isinstance(batches := taken.targets[0], ast.Name) and len(taken.targets) == 1:
        return _is_asked_once(source, batches)
    return last_name(taken.func if isinstance(taken, ast.Call) else taken) in ("next", "__next__") if taken else False


def _is_asked_once(source: Source, batches: ast.Name) -> bool:
    """Whether a name stands for one iterator, of which one batch is taken where it is made: `batch = next(batches)`."""
    uses = source.uses_of(batches, batches.id) if len(source.lookup(batches)) == 1 else []
    if len(uses) != 1:
        return False
    own, around = source.statement(uses[0]), source.parent(uses[0])
    if source.block(own) is not source.block(source.statement(batches)) or _runs_again(source, uses[0], own):
        return False
    if isinstance(around, ast.Attribute):  # not where the method alone is kept, to be called later
        called = source.parent(around)
        return around.attr in ("next", "__next__") and isinstance(called, ast.Call) and called.func is around
    return isinstance(around, ast.Call) and last_name(around.func) in ("next", "__next__")


def _runs_again(source: Source, node: ast.expr, statement: ast.stmt) -> bool:
    """Whether an expression may run several times in its statement: in the test of a `while`, a comprehension or a lambda."""
    if isinstance(statement, ast.While):
        return True
    for ancestor in source.ancestors(node):
        if ancestor is statement:
            return False
        if isinstance(ancestor, ast.Lambda):
            return True
        if isinstance(ancestor, COMPREHENSIONS) and not any(n is node for n in walk(ancestor.generators[0].iter)):
            return True
    return False
