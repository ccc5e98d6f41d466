"""What puts a model into eval mode, and what ends that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TypeGuard

from perfaudit.static.checks.eval_without_no_grad.parts import whole_of_parts
from perfaudit.static.source import LOOPS, Source
from perfaudit.static.source.syntax import walk
from perfaudit.static.understanding.names import last_name
from perfaudit.static.understanding.values import resolve

MOVES = {"cuda", "to", "cpu", "float"}  # methods of a model that return it as it is, in the mode it was in


def model_name(node: ast.AST) -> str:
    """A model as it is written: `net`, `self.net`, `nets[0]` and `self.nets["encoder"]`; "" of any other expression."""
    if isinstance(node, ast.Subscript):
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        base = model_name(node.value) if isinstance(key, int) or (isinstance(key, str) and key.isidentifier()) else ""
        return f"{base}[{key!r}]" if base else ""
    if isinstance(node, ast.Attribute):
        base = model_name(node.value)
        return f"{base}.{node.attr}" if base else ""
    return node.id if isinstance(node, ast.Name) else ""


def handed_name(node: ast.expr) -> str:
    """The model that an argument hands on: of `model`, `model.cuda()`, `model.eval()` and `DataParallel(model)`.

    "" where it is no name.
    """
    while isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and (node.func.attr in MOVES or is_plain_eval(node)):
            node = node.func.value
        elif last_name(node.func).endswith("DataParallel") and node.args:
            node = node.args[0]
        else:
            return ""
    return model_name(node)


def is_plain_eval(node: ast.AST) -> bool:
    """`model.eval()`, or an `eval` of anything else that is given nothing."""
    return isinstance(node, ast.Call) and last_name(node.func) == "eval" and not node.args and not node.keywords


def hands_on(call: ast.AST | None, model: str) -> bool:
    """Whether a call is given a model that is put into eval mode as it is handed on: `test(model.eval(), loader)`."""
    if not isinstance(call, ast.Call):
        return False
    given = (argument for argument in (*call.args, *(k.value for k in call.keywords)) if handed_name(argument) == model)
    return any(is_plain_eval(node) for argument in given for node in walk(argument))


def is_handed_on(statement: ast.stmt, model: str) -> bool:
    """Whether a statement calls something with the model, and puts it into eval mode as it hands it on, each time."""
    calls = [node for node in walk(statement) if isinstance(node, ast.Call)]
    given = [c for c in calls if any(handed_name(a) == model for a in (*c.args, *(k.value for k in c.keywords)))]
    return bool(given) and all(hands_on(call, model) for call in given)


def is_eval(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and last_name(node.func) == "eval"


def is_train_false(call: ast.AST) -> bool:
    """`model.train(False)`, which is `model.eval()`."""
    if not isinstance(call, ast.Call) or last_name(call.func) != "train":
        return False
    mode = [*call.args, *(keyword.value for keyword in call.keywords if keyword.arg == "mode")]
    return len(mode) == 1 and isinstance(mode[0], ast.Constant) and mode[0].value is False


def put_in_eval_mode(source: Source, call: ast.Call) -> str:
    """The model of `model.eval()`, `model.train(False)` and `model = build().eval().to(device)`; "" for any other `eval`."""
    has_arguments = bool(call.args or call.keywords) and not is_train_false(call)
    if has_arguments or not isinstance(call.func, ast.Attribute):
        return ""
    statement = source.statement(call)
    if isinstance(statement, ast.Expr) and statement.value is call:
        return model_name(call.func.value)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ""
    value: ast.AST = statement.value
    while value is not call:  # `.eval().to(device)`: only method calls behind it
        if not (isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute)):
            return ""
        value = value.func.value
    return model_name(statement.targets[0])


def _kept_under_its_name(statement: ast.stmt, call: ast.Call) -> str:
    """The model of `_ = model.eval()`, which gives the same model a further name; "" for any other statement."""
    is_given = isinstance(statement, ast.Assign) and statement.value is call
    return model_name(call.func.value) if is_given and isinstance(call.func, ast.Attribute) else ""


def _handed_on(source: Source, statement: ast.stmt, call: ast.Call) -> str:
    """The model of `acc = test(model.eval(), loader)`; "" where the call is no argument of another, in a plain statement."""
    outer = source.parent(call)
    while isinstance(outer, (ast.Attribute, ast.keyword)) or _moves(outer):  # `model.eval().cuda()`
        outer = source.parent(outer)
    is_plain = isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return))
    model = handed_name(call)
    return model if is_plain and hands_on(outer, model) else ""


def _moves(node: ast.AST | None) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in MOVES


def models_put_in_eval_mode(source: Source, call: ast.Call) -> list[tuple[str, ast.stmt]]:
    """The models that a call of `eval` or `train(False)` is for, each with the statement behind which it is in eval mode.

    Several of `for net in (encoder, decoder): net.eval()` and `[net.eval() for net in (encoder, decoder)]`.
    """
    statement = source.statement(call)
    if not isinstance(call.func, ast.Attribute) or (not is_train_false(call) and (call.args or call.keywords)):
        return []
    around = source.parent(call)
    loop: ast.AST | None = source.parent(statement)
    if isinstance(around, (ast.ListComp, ast.GeneratorExp)) and around.elt is call and len(around.generators) == 1:
        target, models = around.generators[0].target, around.generators[0].iter
    elif isinstance(statement, ast.Expr) and isinstance(loop, ast.For) and loop.body == [statement]:
        target, models, statement = loop.target, loop.iter, loop
    else:
        names = {
            put_in_eval_mode(source, call),
            _kept_under_its_name(statement, call),
            _handed_on(source, statement, call),
        }
        if (whole := whole_of_parts(source, statement)) is not None:
            names.add(whole.name)
        return [(name, statement) for name in sorted(names - {""})]
    listed = resolve(source, models)
    if not isinstance(listed, (ast.Tuple, ast.List)) or model_name(target) != model_name(call.func.value):
        return []
    return [(name, statement) for item in listed.elts if (name := model_name(item))]


def in_eval_mode(source: Source, statement: ast.stmt, model: str) -> Iterator[ast.stmt]:
    """The plain statements behind the one that puts a model into eval mode, until one may end that.

    That itself where it hands the model on.
    """
    if is_handed_on(statement, model):
        yield statement
    block = source.block(statement)
    for item in block[next(n for n, item in enumerate(block) if item is statement) + 1 :]:
        if any(ends_eval_mode(source, node, model) for node in walk(item)):
            return
        yield from plain_statements(item)


def plain_statements(statement: ast.stmt) -> Iterator[ast.stmt]:
    """A statement that calls and binds, or those of them in its blocks: of a loop, a condition or a context."""
    if isinstance(statement, (ast.Expr, ast.Assign, ast.AugAssign, ast.Return)):
        yield statement
    for field in ("body", "orelse", "finalbody") if isinstance(statement, (*LOOPS, ast.If, ast.With, ast.Try)) else ():
        for inner in getattr(statement, field, ()):
            yield from plain_statements(inner)


def ends_eval_mode(source: Source, node: ast.AST, model: str) -> bool:
    """Whether a node puts the model into another mode, or another model under its name.

    `net = DataParallel(net)` does neither.
    """
    if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(node.ctx, ast.Store):
        if "[" in model and model.startswith(f"{model_name(node.value if isinstance(node, ast.Subscript) else node)}["):
            return True  # another list of models, or another model in it
        return model_name(node) == model and not _is_moved(source, node, model)
    is_mode = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "train"
    return is_mode and not is_train_false(node)


def _is_moved(source: Source, target: ast.AST, model: str) -> bool:
    """Whether a model is bound to what moves or wraps it: `net = net.cuda()`, `net = nn.DataParallel(net)`."""
    value = source.parent(target)
    if not isinstance(value, ast.Assign) or len(value.targets) != 1 or value.targets[0] is not target:
        return False
    return isinstance(value.value, ast.Call) and handed_name(value.value) == model
