"""The parts of a script that become another in a process per GPU: where it wraps, loads, counts epochs and steps."""

from __future__ import annotations

import ast

from perfaudit.records import record
from perfaudit.static.source import FUNCTIONS, LOOPS, Function, Source
from perfaudit.static.understanding.backward import backward_calls, losses_handed_over
from perfaudit.static.understanding.called_functions import called_function, callers
from perfaudit.static.understanding.demonstrations import is_main_guard
from perfaudit.static.understanding.distributed import DATA_PARALLEL
from perfaudit.static.understanding.loaders import LOADER, passes, seen_by_caller
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.step_loops import step_loops
from perfaudit.static.understanding.values import argument, assigned_value

SCOPES = (*FUNCTIONS, ast.Lambda, ast.ClassDef)
MOVES = {"to", "cuda"}  # methods of a module that return it
_COUNTS = {"range", "tqdm.trange", "tqdm.auto.trange"}
_BARS = {"tqdm.tqdm", "tqdm.auto.tqdm"}
_PREAMBLE = (ast.Import, ast.ImportFrom, *FUNCTIONS, ast.ClassDef)


class Refused(Exception):
    """Why a script gets no patch, as the end of a sentence: "no patch: …"."""


@record(frozen=True)
class Program:
    """A script that trains one wrapped model over one loader.

    wrapping: the call of DataParallel. wrapped: the variable that gets it. bare: the variable that is wrapped, where that is
    another one. test: what asks for several GPUs around it. start: the statement before which a process joins the others.
    steps: the loop over the batches, `batch` its target without a counter. loader: what is read there. epochs: the loop
    around it, `loader_text` what the loader is called there.
    """

    source: Source
    wrapping: ast.Call
    wrapped: ast.Name
    bare: ast.Name | None
    test: ast.expr | None
    start: ast.stmt
    steps: ast.For
    batch: ast.expr
    loader: ast.Call
    epochs: ast.For
    loader_text: str


def read_program(source: Source, call: ast.Call) -> Program:
    """The parts of the script that wraps a model by this call. Raises Refused for whatever else it is."""
    if source.path.endswith(".ipynb"):
        raise Refused("torchrun starts scripts, and this is a notebook")
    wrapped, bare = _variables(source, call)
    test = _test_around(source, source.statement(call))
    start = _start(source, source.statement(call))
    steps, batch, loader = _steps(source)
    epochs, loader_text = _epochs(source, steps)
    return Program(source, call, wrapped, bare, test, start, steps, batch, loader, epochs, loader_text)


def without_moves(node: ast.expr) -> ast.expr:
    """A model without the moves around it: `Net()` of `Net().cuda()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES:
        node = node.func.value
    return node


# ---- the model -------------------------------------------------------------------------------------------------------


def _variables(source: Source, call: ast.Call) -> tuple[ast.Name, ast.Name | None]:
    """The variable that gets the wrapped model, and the one that is wrapped where that is another."""
    if source.qualified_name(call.func) not in DATA_PARALLEL:
        raise Refused("the model is wrapped by another class or function than `torch.nn.DataParallel`")
    if len(call.args) != 1 or call.keywords or isinstance(call.args[0], ast.Starred):
        raise Refused("`DataParallel` is told more than the model, such as which GPUs it takes")
    statement = source.statement(call)
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if not isinstance(statement, ast.Assign) or len(targets) != 1 or not isinstance(targets[0], ast.Name):
        raise Refused("the wrapped model is not simply assigned to a variable")
    if without_moves(statement.value) is not call:
        raise Refused("the wrapped model is part of a larger expression")
    wrapped, inner = targets[0], without_moves(call.args[0])
    if not isinstance(inner, (ast.Name, ast.Call)):
        raise Refused("what is wrapped is neither a variable nor built there")
    bare = inner if isinstance(inner, ast.Name) and inner.id != wrapped.id else None
    for name in (wrapped, inner):
        if isinstance(name, ast.Name):
            _only_moves(source, name, call)
    return wrapped, bare


def _only_moves(source: Source, name: ast.Name, call: ast.Call) -> None:
    """Raises Refused unless a variable is built once, wrapped, and moved to a device, and nothing else."""
    built = 0
    for binding in source.lookup(name):
        value = assigned_value(source, binding)
        if value is None or source.enclosing(binding, *LOOPS) is not None:
            raise Refused(f"`{name.id}` is not built, moved and wrapped by plain assignments")
        inner = without_moves(value)
        if isinstance(inner, ast.Name) and inner.id == name.id:
            continue
        built += inner is not call or not isinstance(without_moves(call.args[0]), ast.Name)
    if built > 1:
        raise Refused(f"`{name.id}` stands for more than one model")


def _test_around(source: Source, statement: ast.stmt) -> ast.expr | None:
    """`torch.cuda.device_count() > 1` where the model is wrapped under it, None where it is wrapped in any case."""
    around = source.parent(statement)
    if isinstance(around, ast.If) and not is_main_guard(around):
        if not asks_for_several(source, around.test) or not any(item is statement for item in around.body):
            raise Refused("the model is wrapped under a condition other than `torch.cuda.device_count() > 1`")
        for item in around.body:
            if item is not statement and not _prints(item):
                raise Refused("more happens under `torch.cuda.device_count() > 1` than that the model is wrapped")
        test, statement, around = around.test, around, source.parent(around)
    else:
        test = None
    if not isinstance(around, (ast.Module, *FUNCTIONS)) and not (
        is_main_guard(around or source.tree) and source.parent(around or source.tree) is source.tree
    ):
        raise Refused("the model is wrapped inside another block")
    return test


def asks_for_several(source: Source, test: ast.expr) -> bool:
    """Whether a test is `torch.cuda.device_count() > 1`, also behind `torch.cuda.is_available() and`."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) and len(test.values) == 2:
        first, test = test.values
        if not (isinstance(first, ast.Call) and source.qualified_name(first.func) == "torch.cuda.is_available"):
            return False
    match test:
        case (
            ast.Compare(left=ast.Call(func=function), ops=[ast.Gt()], comparators=[ast.Constant(value=1)])
            | ast.Compare(left=ast.Call(func=function), ops=[ast.GtE()], comparators=[ast.Constant(value=2)])
        ):
            return source.qualified_name(function) == "torch.cuda.device_count"
    return False


def _prints(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    is_print = isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "print"
    return is_print or isinstance(value, ast.Constant)


# ---- the run ---------------------------------------------------------------------------------------------------------


def guard_of(source: Source) -> ast.If | None:
    """`if __name__ == "__main__":` of the file."""
    return next((s for s in source.tree.body if isinstance(s, ast.If) and is_main_guard(s)), None)


def _start(source: Source, wrapping: ast.stmt) -> ast.stmt:
    """The first statement that runs when the script is started, imports and definitions left aside."""
    guard = guard_of(source)
    function = source.enclosing(wrapping, *FUNCTIONS)
    if isinstance(function, FUNCTIONS):
        place: ast.AST = called_once(source, function)
        if source.enclosing(place, *LOOPS, ast.Try, ast.TryStar, ast.With) is not None:
            raise Refused(f"`{function.name}` is called inside another block")
    else:
        place = wrapping
    if source.enclosing(place, *SCOPES) is not None:
        raise Refused("the model is wrapped in a function that another function calls")
    if guard is None:
        return next(s for s in source.tree.body if not isinstance(s, _PREAMBLE) and not _is_docstring(s))
    if not any(around is guard for around in source.ancestors(place)):
        raise Refused("the model is wrapped outside of the block that runs when the script is started")
    if guard.orelse:
        raise Refused("the script does something else where it is imported")
    return guard.body[0]


def called_once(source: Source, function: Function) -> ast.Call:
    """The only call of a plain function. Raises Refused where there is another use of it, or a decorator."""
    calls = callers(source, function)
    is_plain = source.parent(function) is source.tree and isinstance(function, ast.FunctionDef)
    if not is_plain or function.decorator_list or len(source.bound_in(source.tree).get(function.name, [])) != 1:
        raise Refused(f"`{function.name}` is no plain function of the file")
    if len(calls) != 1 or len(source.uses_of(function, function.name)) != 1:
        raise Refused(f"`{function.name}` is not called exactly once")
    return calls[0]


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


# ---- loader, steps and epochs ----------------------------------------------------------------------------------------


def _steps(source: Source) -> tuple[ast.For, ast.expr, ast.Call]:
    """The loop over the batches, its target without a counter, and the loader."""
    loops = step_loops(source)
    if len(backward_calls(source)) != 1 or len(loops) != 1:
        raise Refused("the file does not have exactly one training loop with one backward pass")
    loop, helpers = loops[0]
    if helpers or losses_handed_over(source):
        raise Refused("the step is made by a function that the training loop calls")
    known = [item for item in passes(source) if item.loop is loop]
    if not isinstance(loop, ast.For) or len(known) != 1 or len(known[0].loaders) != 1:
        raise Refused("the training loop does not run over one DataLoader that is built in this file")
    loader = known[0].loaders[0]
    if source.qualified_name(loader.func) != LOADER or source.partial_behind(loader) is not None:
        raise Refused("the loader is built by something derived from DataLoader")
    if source.enclosing(loader, *LOOPS, ast.comprehension) is not None:
        raise Refused("the loader is built inside a loop")
    if loop.orelse:
        raise Refused("the training loop has an `else`")
    return loop, known[0].batch, loader


def _epochs(source: Source, steps: ast.For) -> tuple[ast.For, str]:
    """The loop over the epochs around the steps, and how the loader is called in it."""
    over = next(item.over for item in passes(source) if item.loop is steps)
    around = source.enclosing(steps, *LOOPS, *FUNCTIONS)
    if isinstance(around, FUNCTIONS):
        call = called_once(source, around)
        outer = source.enclosing(call, *LOOPS, *FUNCTIONS)
        seen = seen_by_caller(source, over, around, call)
    else:
        outer, seen = around, over
    if not isinstance(outer, ast.For) or not _counts(source, outer) or not isinstance(outer.target, ast.Name):
        raise Refused("no loop that counts epochs is found around the training loop")
    beyond = source.enclosing(outer, *LOOPS, *FUNCTIONS)
    if isinstance(beyond, FUNCTIONS):
        beyond = source.enclosing(called_once(source, beyond), *LOOPS, *FUNCTIONS)
    if beyond is not None:
        raise Refused("the loop over the epochs runs more than once, or in a function that another function calls")
    if outer.orelse:
        raise Refused("the loop over the epochs has an `else`")
    while isinstance(seen, ast.Call) and source.qualified_name(seen.func) in _BARS and seen.args:
        seen = seen.args[0]
    if not isinstance(seen, ast.Name) or not _is_seen_from(source, seen, outer):
        raise Refused("the loader has no name in the loop over the epochs")
    return outer, seen.id


def _counts(source: Source, loop: ast.For) -> bool:
    over: ast.expr = loop.iter
    if isinstance(over, ast.Call) and source.qualified_name(over.func) in _BARS and over.args:
        over = over.args[0]
    if not isinstance(over, ast.Call):
        return False
    is_range = isinstance(over.func, ast.Name) and over.func.id == "range" and not source.lookup(over.func)
    return is_range or source.qualified_name(over.func) in _COUNTS


def _is_seen_from(source: Source, name: ast.Name, loop: ast.For) -> bool:
    """Whether a name stands for the same variable in a loop, and nothing there binds it."""
    bound = source.lookup(name)
    if len(bound) != 1 or any(around is loop for around in source.ancestors(bound[0])):
        return False
    scope = source.scope(loop)
    here = source.bound_in(scope).get(name.id) if scope is not source.tree else None
    return (here or source.bound_in(source.tree).get(name.id)) == bound


def argument_for(source: Source, call: ast.Call, function: Function, parameter: ast.arg) -> ast.expr | None:
    """What a call passes for a parameter; its default where it passes nothing, None where that cannot be told."""
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    place = names.index(parameter.arg) if parameter.arg in names else None
    found = argument(source, call, parameter.arg, place)
    if isinstance(found, ast.expr):
        return found
    with_default = names[len(names) - len(function.args.defaults) :]
    if found.value == "absent" and parameter.arg in with_default:
        return function.args.defaults[with_default.index(parameter.arg)]
    return None


def function_called(source: Source, call: ast.Call) -> Function | None:
    """The plain function of this file that a call runs."""
    function = called_function(source, call)
    return function if function is not None and source.parent(function) is source.tree else None


def is_named(node: ast.AST, *names: str) -> bool:
    return last_name(node) in names
