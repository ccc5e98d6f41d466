"""Weights that an attention gives to who asks for them: `return out, weights if output_attentions else None`."""

from __future__ import annotations

import ast
import re

from perfaudit.expressions import regex
from perfaudit.records import record
from perfaudit.static.source import FUNCTIONS, Function, Source
from perfaudit.static.understanding.calls_by_name import calls_by_last_name
from perfaudit.static.understanding.defaults import written_default
from perfaudit.static.understanding.members import is_own, own_values
from perfaudit.static.understanding.names import last_name

_FLAG = regex(r"(output|return|need|ret|get)_?\w{0,8}?(att|weight|score|map|prob)|^vis(uali[sz]e)?$", re.IGNORECASE)


def asks_for_weights(source: Source, test: ast.expr) -> bool:
    """Whether a test is a flag that asks for the weights, and is off as it is written: `output_attentions=False`."""
    if not isinstance(test, (ast.Name, ast.Attribute)) or not _FLAG.search(last_name(test)):
        return False
    meant = own_values(source, test, test.attr) if isinstance(test, ast.Attribute) and is_own(test) else [test]
    written = [written_default(source, value) if value is not None else None for value in meant]
    return bool(written) and all(isinstance(w, ast.Constant) and not w.value for w in written)


def are_asked_for_elsewhere(source: Source, function: Function) -> bool:
    """Whether a file that imports this one builds the class, or calls the function, so that it gives its weights."""
    owner = source.enclosing(function, ast.ClassDef)
    name = owner.name if isinstance(owner, ast.ClassDef) else function.name
    if source.neighbours is None:
        return False
    return bool(source.neighbours.some_importer(_Asks(name), calling=(name,)))


@record(frozen=True, slots=True)
class _Asks:
    """Whether a file calls what has this name with a flag that asks for the weights, or that is on by default there."""

    name: str

    def __call__(self, source: Source) -> bool:
        calls = calls_by_last_name(source).get(self.name, [])
        given = [k.value for call in calls for k in call.keywords if _FLAG.search(k.arg or "")]
        written = [value if isinstance(value, ast.Constant) else written_default(source, value) for value in given]
        return any(isinstance(value, ast.Constant) and bool(value.value) for value in written)


def stands_where_asked(source: Source, node: ast.stmt) -> bool:
    """Whether a statement runs only where somebody asks for the weights."""
    child: ast.AST = node
    for ancestor in source.ancestors(node):
        if isinstance(ancestor, FUNCTIONS):
            return False
        if isinstance(ancestor, ast.If) and child is not ancestor.test:
            is_in_body = any(child is item for item in ancestor.body)
            flag = ancestor.test if is_in_body else _operand_of_not(ancestor.test)
            if flag is not None and asks_for_weights(source, flag):
                return True
        child = ancestor
    return False


def taken_back_unless_asked(source: Source, node: ast.If) -> str:
    """The name of `if not output_attentions: weights = None`; "" for any other condition."""
    flag = _operand_of_not(node.test)
    only = node.body[0] if len(node.body) == 1 and not node.orelse else None
    if flag is None or not isinstance(only, ast.Assign) or not asks_for_weights(source, flag):
        return ""
    is_none = isinstance(only.value, ast.Constant) and only.value.value is None
    target = only.targets[0]
    return target.id if is_none and len(only.targets) == 1 and isinstance(target, ast.Name) else ""


def _operand_of_not(test: ast.expr) -> ast.expr | None:
    return test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
