"""Edits by which a setting becomes source text: what a factory returns, a decorator.

As in `static.edit`, each verb returns the edits, or None: it cannot be done without a doubt, or it stands there already.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.static import edit
from perfaudit.static.edit import Edits
from perfaudit.static.source import Source

_RETURN = len("return")
_SPACE = regex(r"[\s\\]*")
_NOT_ONE_OBJECT = (
    *(ast.Tuple, ast.List, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
    *(ast.Constant, ast.JoinedStr, ast.Compare, ast.Lambda, ast.Await),
)


def function_named(source: Source, dotted: str) -> ast.FunctionDef | None:
    """The top-level function of this name, or the method for "Class.method"; it may stand under `if` and `try`.

    None if the name is bound more than once, imported as well, or is no plain function (async, a generator).
    """
    *classes, name = dotted.split(".")
    scope: ast.AST = source.tree
    for part in classes:
        found = _only_binding(source, scope, part)
        if not isinstance(found, ast.ClassDef):
            return None
        scope = found
    function = _only_binding(source, scope, name)
    return function if isinstance(function, ast.FunctionDef) and not _yields(source, function) else None


def _only_binding(source: Source, scope: ast.AST, name: str) -> ast.AST | None:
    bound = source.bound_in(scope).get(name, [])
    if len(bound) != 1 or (scope is source.tree and name in source.module_imports):
        return None
    for around in source.ancestors(bound[0]):
        if around is scope:
            return bound[0]
        if not isinstance(around, (ast.If, ast.Try, ast.TryStar, ast.ExceptHandler)):
            return None
    return None


def _yields(source: Source, function: ast.FunctionDef) -> bool:
    return any(source.scope(node) is function for node in [*source.nodes(ast.Yield), *source.nodes(ast.YieldFrom)])


# ---- what a function returns -------------------------------------------------------------------------------------


def wrap_returned(source: Source, function: ast.FunctionDef, before: str, after: str) -> Edits | None:
    """Make every `return EXPR` of the function `return {before}EXPR{after}`, in brackets where precedence needs them.

    None if the function returns nothing, None, several values or a literal somewhere, yields, or calls itself.
    """
    returns = _returns(source, function)
    edits = [_wrap_edits(source, statement, before, after) for statement in returns or ()]
    return edit.together(*edits) or None


def change_returned(
    source: Source, function: ast.FunctionDef, lines: Sequence[str], name: str = "model"
) -> Edits | None:
    """Put statements about the returned object before each return; `{}` in them stands for the object.

    A local name is returned as it is; any other expression gets `name` first, or `name_2` … where that is taken. None as
    for `wrap_returned`, and for an object that the function did not make: a global, an attribute.
    """
    returns = _returns(source, function)
    free = _free_name(function, name)
    edits = [_change_edits(source, function, statement, lines, free) for statement in returns or ()]
    return edit.together(*edits) or None


def _returns(source: Source, function: ast.FunctionDef) -> list[ast.Return] | None:
    """The function's own return statements; None unless each returns one object, once per call."""
    returns = [statement for statement in source.nodes(ast.Return) if source.scope(statement) is function]
    if _yields(source, function) or _calls_itself(source, function):
        return None
    return returns if all(r.value is not None and _is_one_object(r.value) for r in returns) else None


def _is_one_object(value: ast.expr) -> bool:
    """Whether an expression may be a model, an optimizer, …; of a choice, whether each branch may be."""
    if isinstance(value, ast.IfExp):
        return _is_one_object(value.body) and _is_one_object(value.orelse)
    if isinstance(value, ast.BoolOp):  # `enabled and Model()` is False at times
        return isinstance(value.op, ast.Or) and all(_is_one_object(v) for v in value.values)
    if isinstance(value, ast.NamedExpr):
        return _is_one_object(value.value)
    is_not = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    return not is_not and not isinstance(value, _NOT_ONE_OBJECT)


def _calls_itself(source: Source, function: ast.FunctionDef) -> bool:
    """Whether the function may get its object from itself, where a change would be made twice."""
    around = source.parent(function)
    own = {"self", "cls", around.name} if isinstance(around, ast.ClassDef) else set()
    for call in ast.walk(function):
        if not isinstance(call, ast.Call):
            continue
        if isinstance(call.func, ast.Name) and call.func.id == function.name and not own:
            return True
        if isinstance(call.func, ast.Attribute) and call.func.attr == function.name:
            owner = call.func.value
            if isinstance(owner, ast.Name) and owner.id in own:
                return True
    return False


def _value_place(source: Source, statement: ast.Return) -> Span:
    """Where the returned expression stands, with the brackets around it."""
    whole = source.span(statement)
    space = _SPACE.match(source.text, whole.start + _RETURN)
    return Span(space.end() if space else whole.start + _RETURN, whole.end)


def _wrap_edits(source: Source, statement: ast.Return, before: str, after: str) -> Edits | None:
    assert statement.value is not None  # as `_returns` says
    place = _value_place(source, statement)
    text = source.text[place.start : place.end]
    if _is_wrapped(text, before, after):
        return ()
    wrapping = _wrapping(text, before, after, place != source.span(statement.value))
    if wrapping is None:
        return None
    opening, closing = wrapping
    touching = source.text[place.start - 1].isalpha()  # `return(x)`
    if touching and opening and opening[0] != "(":
        opening = f" {opening}"
    edits = (Edit(Span(place.start, place.start), opening), Edit(Span(place.end, place.end), closing))
    return tuple(edit_ for edit_ in edits if edit_.text)


def _wrapping(text: str, before: str, after: str, in_brackets: bool) -> tuple[str, str] | None:
    """What to put before and behind an expression so that `before` and `after` apply to all of it; fewest brackets."""
    meant = _tree(f"{before}({text}\n){after}")
    candidates = [(before, after), (f"{before}(", f"){after}")]
    if in_brackets and before.endswith("(") and after.startswith(")"):  # its own brackets become the call's
        candidates.insert(0, (before[:-1], after[1:]))
    for opening, closing in candidates:
        if meant is not None and _tree(f"{opening}{text}{closing}") == meant:
            return opening, closing
    return None


def _is_wrapped(text: str, before: str, after: str) -> bool:
    inner = text[len(before) : len(text) - len(after)]
    if not inner or text != f"{before}{inner}{after}":
        return False
    return (tree := _tree(text)) is not None and tree == _tree(f"{before}({inner}\n){after}")


def _tree(expression: str) -> str | None:
    """The dumped tree of an expression that may run over several lines; None for what does not parse."""
    try:
        return ast.dump(ast.parse(f"({expression}\n)", mode="eval"))
    except SyntaxError:
        return None


def _change_edits(
    source: Source, function: ast.FunctionDef, statement: ast.Return, lines: Sequence[str], free: str
) -> Edits | None:
    value = statement.value
    # Others hold such a value, too, and see the change at each call.
    if isinstance(value, ast.Attribute) or (isinstance(value, ast.Name) and value.id not in source.bound_in(function)):
        return None
    if not isinstance(value, ast.Name):
        done = [line.replace("{}", free) for line in lines]
        return _laid_out(source, statement, [], f"{free} =", [*done, f"return {free}"])
    done = [line.replace("{}", value.id) for line in lines]
    above = [ast.dump(s) for s in source.before(statement)]
    if above[-len(done) :] == [ast.dump(s) for line in done for s in ast.parse(line).body]:
        return ()
    return _laid_out(source, statement, done, "return", [])


def _laid_out(source: Source, statement: ast.Return, above: list[str], keyword: str, below: list[str]) -> Edits | None:
    """Statements above and below a return, whose keyword is replaced; in lines of their own where it has one.

    `def f(): return x` becomes a block of lines; a return that shares its line with other statements stays on it.
    """
    span = source.span(statement)
    after = source.text[span.start + _RETURN : span.start + _RETURN + 1]
    word = Span(span.start, span.start + _RETURN)
    spaced = keyword if after.isspace() or after == "\\" or keyword == "return" else f"{keyword} "
    glue = f"{source.newline}{source.indent_of(statement)}"
    if above and (edits := edit.insert_before(source, statement, glue.join(above))):
        return edits
    if below and (edits := edit.insert_after(source, statement, glue.join(below))):
        return (Edit(word, spaced), *edits)
    header = _one_line_block(source, statement)
    if header is not None:
        colon, indent = header
        glue = f"{source.newline}{indent}"
        end = _end_of_line(source, span.end)
        edits = (Edit(Span(colon, word.end), glue + glue.join([*above, spaced])),)
        return (*edits, Edit(Span(end, end), glue + glue.join(below))) if below else edits
    if not all(_is_simple(line) for line in (*above, *below)):
        return None
    edits = (Edit(word, "; ".join([*above, spaced])),)
    return (*edits, Edit(Span(span.end, span.end), "".join(f"; {line}" for line in below))) if below else edits


def _one_line_block(source: Source, statement: ast.Return) -> tuple[int, str] | None:
    """For `if x: return y`: where its colon ends and the indentation its block would have; None for anything else."""
    header = source.parent(statement)
    line = source.line_at(source.span(statement).start)
    before = source.text[line.start : source.span(statement).start].rstrip()
    if not isinstance(header, (ast.stmt, ast.ExceptHandler)) or len(source.block(statement)) != 1:
        return None
    if not before.endswith(":") or not edit._ends_line(source, statement):
        return None
    indent = source.indent_of(header)  # type: ignore[arg-type]  # a handler has its line, too
    return line.start + len(before), indent + ("\t" if "\t" in indent else _indent_unit(source))


def _indent_unit(source: Source) -> str:
    """One level of indentation in this file: that of its first block with lines of its own, four spaces without one."""
    for statement in source.tree.body:
        body = getattr(statement, "body", None)
        if body and edit._begins_line(source, body[0]):
            return source.indent_of(body[0]).rpartition("\f")[2] or "    "
    return "    "


def _end_of_line(source: Source, offset: int) -> int:
    line = source.line_at(offset)
    return line.start + len(source.text[line.start : line.end].rstrip("\r\n"))


def _is_simple(line: str) -> bool:
    """Whether a statement can stand before a semicolon: it has no block and no comment."""
    return isinstance(ast.parse(f"{line}; pass").body[-1], ast.Pass)


def _free_name(function: ast.FunctionDef, wanted: str) -> str:
    """A name that nothing in the function has or reads: `wanted`, or `wanted_2` and so on."""
    taken: set[str] = set()
    for node in ast.walk(function):
        names = [getattr(node, field, None) for field in ("id", "name", "asname", "rest")]
        names += [node.arg] if isinstance(node, ast.arg) else []
        names += node.names if isinstance(node, (ast.Global, ast.Nonlocal)) else []
        taken.update(name.partition(".")[0] for name in names if isinstance(name, str))
    number, name = 1, wanted
    while name in taken:
        number += 1
        name = f"{wanted}_{number}"
    return name


# ---- decorators --------------------------------------------------------------------------------------------------


def decorate(source: Source, function: ast.FunctionDef, text: str) -> Edits | None:
    """Put a decorator ("torch.compile" or "@torch.compile") directly above `def`, below the other decorators.

    None if the function has it already, with whatever arguments.
    """
    text = text.removeprefix("@")
    wanted = _decorator_called(source, ast.parse(text, mode="eval").body)
    if any(_decorator_called(source, decorator) == wanted for decorator in function.decorator_list):
        return None
    at = source.offset(function.lineno, 0)
    if source.text[:at].endswith((f"\\{source.newline}", "\\\n")):
        return None
    return (Edit(Span(at, at), f"{source.indent_of(function)}@{text}{source.newline}"),)


def _decorator_called(source: Source, decorator: ast.expr) -> str:
    """What a decorator is, its arguments left aside: the documented name if there is one."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    if ast.unparse(called).rpartition(".")[2] == "partial" and isinstance(decorator, ast.Call) and decorator.args:
        called = decorator.args[0]
    return source.qualified_name(called) or ast.unparse(called)
