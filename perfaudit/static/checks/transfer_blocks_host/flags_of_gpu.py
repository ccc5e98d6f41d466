"""Flags that are True wherever a program computes on a GPU: a loader that pins by one pins wherever batches are copied there."""

from __future__ import annotations

import ast

from perfaudit.expressions import regex
from perfaudit.static.checks.transfer_blocks_host.option_of_gpu import is_off_by_option_only
from perfaudit.static.source import FUNCTIONS, Source
from perfaudit.static.understanding.calls_by_name import calls_by_last_name, calls_in_sight
from perfaudit.static.understanding.defaults import default_expression
from perfaudit.static.understanding.devices import asks_for_gpu, device_text
from perfaudit.static.understanding.members import attributes_of, is_own
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import ABSENT, argument, assigned_value, constant

_FLAG = regex(r"^(use_?|is_?|on_?|has_?|with_?|enable_?)?cuda(_?available)?$|^(use|is|on|has|with|enable)_?gpus?$")
_NO_GPU = regex(r"^(no|disable|without)_?(cuda|gpu)s?$|^(use_|force_)?cpu(_only)?$")
_FOLLOW = 5  # names and choices followed to a question


def is_on_with_gpu(source: Source, node: ast.expr, depth: int = _FOLLOW, asked: frozenset[int] = frozenset()) -> bool:
    """Whether an expression is True wherever the program computes on a GPU, as it is written or by the names in it.

    `torch.cuda.is_available()`, `device.type == "cuda"`, `not args.no_cuda and torch.cuda.is_available()`,
    `True if use_cuda else False`; a name that is set to True where such a question holds, and to False before or else; and
    `args.cuda`, by its name, where nothing in the file binds it, or what it was narrows it: `args.cuda = args.cuda and ...`.

    asked: the first bindings of those names whose values are being looked at, by id.
    """
    if not depth:
        return False
    if is_off_by_option_only(source, node) or _is_switched_on(source, node, depth):
        return True
    match node:
        case ast.Name() | ast.Attribute():
            return _is_named_on(source, node, depth, asked)
        case ast.IfExp():
            return constant(source, node.body) is True and _is_of_gpu(source, node.test, depth - 1, asked)
        case ast.BoolOp(op=ast.And()):
            return all(_is_of_gpu(source, part, depth - 1, asked) for part in node.values)
    return _asks(source, node)


def _is_named_on(source: Source, node: ast.Name | ast.Attribute, depth: int, asked: frozenset[int]) -> bool:
    """Whether all that binds a name gives it True there; by the name alone where nothing does."""
    is_flag = _FLAG.search(last_name(node).lower()) is not None
    bindings = source.lookup(node) if isinstance(node, ast.Name) else _stores(source, node)
    if bindings and id(bindings[0]) in asked:
        return is_flag or isinstance(node, ast.Name)  # what it was before is asked too
    if not bindings:
        fields = _fields(source, node.attr) if is_flag and isinstance(node, ast.Attribute) else []
        return is_flag and all(_is_bound_on(source, one, depth, asked) for one in fields)
    known = asked | {id(bindings[0])}
    return all(_is_bound_on(source, one, depth, known) for one in bindings)


def _is_bound_on(source: Source, binding: ast.AST, depth: int, asked: frozenset[int]) -> bool:
    """Whether what binds a name gives it True wherever the program computes on a GPU: a parameter by what all calls pass."""
    if isinstance(binding, ast.arg):
        return _is_passed_on(source, binding, depth, asked)
    value = assigned_value(source, binding)
    return value is not None and is_on_with_gpu(source, value, depth - 1, asked)


def _is_passed_on(source: Source, parameter: ast.arg, depth: int, asked: frozenset[int]) -> bool:
    """Whether all calls in sight of a function pass such a flag for a parameter, or leave out one that is so by default.

    False where no call is in sight, or the function is used otherwise than called.
    """
    function = source.enclosing(parameter, *FUNCTIONS, ast.Lambda)
    if not isinstance(function, FUNCTIONS) or function.decorator_list:
        return False
    owner = source.parent(function)
    is_method = isinstance(owner, ast.ClassDef)
    name = owner.name if isinstance(owner, ast.ClassDef) and function.name == "__init__" else function.name
    calls = calls_in_sight(source, name)
    called = {id(call.func) for _, call in calls}
    called |= {id(call.args[0]) for call in calls_by_last_name(source).get("super", ()) if call.args}
    if not calls or any(id(use) not in called for use in source.reads_of(name)):
        return False
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    place = names.index(parameter.arg) - is_method if parameter.arg in names else None
    written = default_expression(function, parameter)
    for there, call in calls:
        passed = argument(there, call, parameter.arg, place)
        file, value = (source, written) if passed is ABSENT else (there, passed)
        if not isinstance(value, ast.expr):
            return False
        if constant(file, value) is not True and not is_on_with_gpu(file, value, depth - 1, asked):
            return False
    return True


def _fields(source: Source, name: str) -> list[ast.AST]:
    """What binds a name in the bodies of classes: `class Options: use_cuda = False`."""
    bound = (one for definition in source.nodes(ast.ClassDef) for one in source.bound_in(definition).get(name, ()))
    return [one for one in bound if isinstance(one, ast.Name)]


def _stores(source: Source, node: ast.Attribute) -> list[ast.AST]:
    """What sets an attribute: of `self`, in its own class and those related to it."""
    own = source.enclosing(node, ast.ClassDef) if is_own(node) else None
    mentions = attributes_of(source, node.attr, own if isinstance(own, ast.ClassDef) else None)
    return [mention for mention in mentions if isinstance(mention.ctx, ast.Store)]


def _is_of_gpu(source: Source, node: ast.expr, depth: int, asked: frozenset[int] = frozenset()) -> bool:
    """The same, or `not args.no_cuda` beside another question: who turns the GPU off copies nothing there."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not) and _NO_GPU.search(last_name(node.operand)):
        return True
    return is_on_with_gpu(source, node, depth, asked)


def _asks(source: Source, node: ast.expr) -> bool:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        kind = device_text(node.comparators[0])
        return kind == (
            "cuda" if isinstance(node.ops[0], ast.Eq) else "cpu" if isinstance(node.ops[0], ast.NotEq) else "?"
        )
    return asks_for_gpu(source, node)


def _is_switched_on(source: Source, node: ast.expr, depth: int) -> bool:
    """Whether a flag is set to True where there is a GPU, and is False before or otherwise."""
    if isinstance(node, ast.Attribute):
        stores = _stores(source, node)
    else:
        stores = list(source.lookup(node)) if isinstance(node, ast.Name) else []
    on = [store for store in stores if _is_set_to(source, store, value=True)]
    off = [store for store in stores if _is_set_to(source, store, value=False)]
    if not on or len(on) + len(off) < len(stores):
        return False
    choices = [_choice_around(source, store) for store in on]
    if not all(choice is not None and _holds_with_gpu(source, choice, depth) for choice in choices):
        return False
    otherwise = {id(statement) for choice in choices if choice is not None for statement in choice.orelse}
    before = [store for store in off if id(source.statement(store)) not in otherwise]
    if any(source.enclosing(store, ast.If) for store in before):
        return False
    last = max((source.span(store).end for store in before), default=0)
    return all(source.span(store).start > last for store in on)


def _is_set_to(source: Source, store: ast.AST, *, value: bool) -> bool:
    written = assigned_value(source, store)
    return isinstance(written, ast.Constant) and written.value is value


def _choice_around(source: Source, node: ast.AST) -> ast.If | None:
    """The `if` whose body holds a statement directly."""
    around = source.enclosing(node, ast.If)
    is_in_body = isinstance(around, ast.If) and any(source.statement(node) is item for item in around.body)
    return around if isinstance(around, ast.If) and is_in_body else None


def _holds_with_gpu(source: Source, choice: ast.If, depth: int) -> bool:
    """Whether a condition holds wherever there is a GPU: `if not args.cpu and torch.cuda.is_available():`."""
    joined = isinstance(choice.test, ast.BoolOp) and isinstance(choice.test.op, ast.And)
    tests = choice.test.values if joined and isinstance(choice.test, ast.BoolOp) else [choice.test]
    return all(_is_of_gpu(source, test, depth - 1) for test in tests)
