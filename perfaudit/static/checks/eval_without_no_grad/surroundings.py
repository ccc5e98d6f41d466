"""What stands around an evaluation that may switch gradients off: contexts, decorators, and who calls it in this file."""

from __future__ import annotations

import ast
import builtins
import functools

from perfaudit.expressions import regex
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.answers import remember
from perfaudit.static.understanding.backward import backward_calls
from perfaudit.static.understanding.called_functions import called_function
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.names import dotted_name, last_name
from perfaudit.static.understanding.no_grad import SET_GRAD, in_no_grad
from perfaudit.static.understanding.values import enclosing_function

HOOK = regex(  # functions that a framework calls, without gradients as a rule
    r"(training|validation|test|predict)_step|(on_|configure_).*|.*_epoch_(end|start)|forward",
    words="_step|on_|configure_|_epoch_|forward",
)
DIFFERENTIATES = ("torch.autograd.grad", "torch.autograd.functional.", "torch.func.", "functorch.")
_RUN_BY_CALLS = ("forward", "__call__", "__init__")
PLAIN_CONTEXT = regex(
    r"(^|[._])(autocast|nullcontext|suppress|open|tqdm|trange|progress\w*|\w*bar|timer?|record_function|profile\w*"
    r"|catch_warnings|redirect_std(out|err)|TemporaryDirectory|\w*[Ww]riter|start_run|begin|\w*File|\w*Executor|Pool"
    r"|fork_rng|sdpa?_kernel)$|^wandb\.init$|^torch\.(cuda\.)?(device|stream)$"
)
_OF_GRADIENTS = regex(r"grad|inference|eval|train|mode|stack|enter", words="grad|inference|eval|train|mode|stack|enter")
# modules that set no gradients
_MEASURES = {"time", "timeit", "datetime", "sys", "os", "psutil", "logging", "math", "gc", "resource", "logger", "log"}
PLAIN_DECORATORS = {"staticmethod", "classmethod", "wraps", "record", "main", "command", "option", "argument"}


@functools.lru_cache(maxsize=4)  # the same for every loop of a file
def _program_sets_gradients(source: Source) -> bool:
    """Whether the file switches gradients off in general, or differentiates by itself where no function is around."""
    if any(isinstance(source.parent(c), ast.Expr) for name in SET_GRAD for c in source.calls(name)):
        return True
    return any(enclosing_function(source, call) is None for call in _differentiating_calls(source))


@functools.lru_cache(maxsize=4)
def _differentiating_calls(source: Source) -> tuple[ast.Call, ...]:
    """Where the file differentiates by itself, other than in a function that trains."""
    calls = (c for c in source.nodes(ast.Call) if (source.qualified_name(c.func) or "").startswith(DIFFERENTIATES))
    return tuple(call for call in calls if not _is_in_training(source, call))


def _may_differentiate(source: Source, node: ast.AST) -> bool:
    """Whether the function around a node, or one that it may call, differentiates by itself; of no function, any of the file.

    Functions are followed by their names, and a model that is called may run any `forward` of the file. What nobody here calls
    may be for a model of another file.
    """
    if not _differentiating_calls(source):
        return False
    around = [a for a in source.ancestors(node) if isinstance(a, FUNCTIONS)]
    may = _that_may_differentiate(source) if around else None
    return may is None or any(id(function) in may for function in around)


@remember
def _that_may_differentiate(source: Source) -> frozenset[int] | None:
    """The functions of a file that differentiate by themselves, or may call one that does, by id; None where any code may."""
    pending: list[Function] = []
    for call in _differentiating_calls(source):
        functions = [a for a in source.ancestors(call) if isinstance(a, FUNCTIONS)]
        if not any(calls_by_last_name(source).get(function.name) for function in functions):
            return None
        pending += functions
    own = [definition for definition in source.definitions if isinstance(definition, FUNCTIONS)]
    names = {function.name for function in own}
    naming: dict[str, dict[int, Function]] = {}  # by name of a function: those that name it
    for node in (*source.nodes(ast.Name), *source.nodes(ast.Attribute)):
        if (name := last_name(node)) in names:
            naming.setdefault(name, {}).update((id(a), a) for a in source.ancestors(node) if isinstance(a, FUNCTIONS))
    found: set[int] = set()
    while pending:
        function = pending.pop()
        if id(function) not in found:
            found.add(id(function))
            pending += naming.get(function.name, {}).values()
    if any(id(function) in found for function in own if function.name in _RUN_BY_CALLS):
        return None
    return frozenset(found)


def _is_in_training(source: Source, call: ast.Call) -> bool:
    """Whether a call stands in a function of no class that runs a backward pass too: it trains, and no evaluation runs it."""
    function = enclosing_function(source, call)
    if function is None or source.enclosing(function, ast.ClassDef) is not None:
        return False
    return any(enclosing_function(source, backward) is function for backward in backward_calls(source))


def gradients_are_off(source: Source, call: ast.Call) -> bool:
    """Whether gradients are switched off for the program, for the parameters, or by who calls the function around."""
    if _program_sets_gradients(source) or _may_differentiate(source, call):
        return True
    return functions_around(source, call) is None


def gradients_may_be_off(source: Source, call: ast.Call) -> bool:
    """Whether gradients are or may be off where a call stands, or for all who call the function around it in this file."""
    return gradients_are_off(source, call) or not plain_surroundings(source, call)


def functions_around(source: Source, node: ast.AST) -> list[Function] | None:
    """The function around a node and those of this file that call it, nearest first.

    None where one of them may run without gradients, as what a framework calls does.
    """
    pending, found = [enclosing_function(source, node)], []
    known: set[str] = set()
    while pending:
        function = pending.pop(0)
        if function is None or function.name in known:
            continue
        if HOOK.fullmatch(function.name):
            return None
        known.add(function.name)
        found.append(function)
        for use in calls_by_last_name(source).get(function.name, ()):
            if not plain_surroundings(source, use):
                return None
            pending.append(enclosing_function(source, use))
    return found


def plain_surroundings(source: Source, node: ast.AST) -> bool:
    """Whether nothing around the node can switch gradients off: no `no_grad`, no context or decorator unknown here."""
    if in_no_grad(source, node):
        return False
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, (ast.With, ast.AsyncWith)):
            if not all(_is_plain_context(source, item.context_expr) for item in ancestor.items):
                return False
        elif isinstance(ancestor, FUNCTIONS) and not plain_decorators(ancestor):
            return False
    return True


def _is_plain_context(source: Source, node: ast.expr) -> bool:
    name = source.qualified_name(node.func) if isinstance(node, ast.Call) else None
    if PLAIN_CONTEXT.search(name or (last_name(node.func) if isinstance(node, ast.Call) else last_name(node))):
        return True
    return isinstance(node, ast.Call) and _is_own_context(source, node)


def _is_own_context(source: Source, call: ast.Call) -> bool:
    """Whether a call makes a context of a function of the program that leaves gradients as they are: one that takes the time.

    A generator with `contextmanager` above it that names nothing of gradients or modes, and runs nothing but what it is given
    and a few modules of Python's.
    """
    name = source.qualified_name(call.func)
    found = source.neighbours.definition_of(name) if name and source.neighbours is not None else None
    there, function = found or (source, called_function(source, call))
    if not isinstance(function, FUNCTIONS) or [last_name(d) for d in function.decorator_list] != ["contextmanager"]:
        return False
    nodes = [node for statement in function.body for node in walk(statement)]
    named = (last_name(n).lower() for n in nodes if isinstance(n, (ast.Name, ast.Attribute)))
    if any(_OF_GRADIENTS.search(name) for name in named) or any(
        isinstance(n, (ast.With, ast.AsyncWith)) for n in nodes
    ):
        return False
    return all(_measures(there, function, node) for node in nodes if isinstance(node, ast.Call))


def _measures(source: Source, function: Function, call: ast.Call) -> bool:
    """Whether a call is one of a builtin, a clock or a log, or a method of what the function around it is given or makes."""
    root = dotted_name(call.func).partition(".")[0]
    if called_function(source, call) is not None:
        return False
    if not root:  # of what another call gives, which is looked at by itself
        return isinstance(call.func, ast.Attribute)
    module = (source.qualified_name(call.func) or root).partition(".")[0]
    return module in _MEASURES or root in source.bound_in(function) or hasattr(builtins, root)


def plain_decorators(function: Function) -> bool:
    called = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return all(last_name(decorator) in PLAIN_DECORATORS for decorator in called)
