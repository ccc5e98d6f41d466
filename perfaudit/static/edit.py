"""Edit verbs: each returns the edits that change the text as meant, or None where it cannot be done without a doubt.

All work on `ast` positions and on what stands between them, so comments, commas, line ends and indentation stay.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Span
from perfaudit.records import NamedTuple
from perfaudit.static.source import Source

Edits = tuple[Edit, ...]

_SPACE = regex(r"(?:[\s\\]|#[^\r\n]*)*")  # what may stand before an argument
_BETWEEN = regex(r"#[^\r\n]*|[,)]")  # what counts behind one: a comment, its own closing bracket, the comma
_REST_OF_LINE = regex(r"[ \t\f]*(#[^\r\n]*)?")
_OPERATORS = (ast.Attribute, ast.Subscript, ast.Call, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Await)
# Parents that bind tighter than some child.
_BINDING = (*_OPERATORS, ast.IfExp, ast.Starred, ast.comprehension, ast.NamedExpr)


def together(*parts: Edits | None) -> Edits | None:
    """All these edits as one fix; None when one of them cannot be made, for half a fix is wrong."""
    edits: Edits = ()
    for part in parts:
        if part is None:
            return None
        edits += part
    return edits


def replace(source: Source, node: ast.AST, text: str) -> Edits | None:
    """Put `text` where the expression or statement stands, in brackets where an operator beside it would tear it apart.

    None inside an f-string, and where a comment stands in the old text.
    """
    span = source.span(node)
    if _in_f_string(source, node) or has_comment(source, span):
        return None
    is_bare = isinstance(node, ast.GeneratorExp) and isinstance(source.parent(node), ast.Call)  # the call's brackets
    if isinstance(node, ast.expr) and (_needs_brackets(source, node, text) or is_bare):
        text = f"({text})"
    before, after = source.text[span.start - 1 : span.start] if span.start else "", source.text[span.end : span.end + 1]
    if _is_word(before) and _is_word(text[:1]):  # `return(x)`
        text = f" {text}"
    if _is_word(after) and _is_word(text[-1:]):
        text = f"{text} "
    return (Edit(span, text),)


# ---- arguments of a call -----------------------------------------------------------------------------------------


def keyword(call: ast.Call, name: str) -> ast.keyword | None:
    """The keyword argument of this name, if the call has it."""
    return next((k for k in call.keywords if k.arg == name), None)


def set_keyword(source: Source, call: ast.Call, name: str, value: str) -> Edits | None:
    """Give the call `name=value`, whether it has the keyword already or not."""
    existing = keyword(call, name)
    if existing is not None:
        return replace(source, existing.value, value)
    return add_keyword(source, call, name, value)


def add_keyword(source: Source, call: ast.Call, name: str, value: str) -> Edits | None:
    """Add `name=value` behind the last argument, in the layout the call has.

    None if the call has the keyword, inside an f-string, and for a bare generator argument (it would need brackets).
    """
    return add_argument(source, call, f"{name}={value}") if keyword(call, name) is None else None


def add_argument(source: Source, call: ast.Call, addition: str) -> Edits | None:
    """Add an argument, as it is written, behind the last one; None as for `add_keyword`."""
    brackets = _brackets(source, call)
    if brackets is None:
        return None
    arguments = _arguments(source, call, brackets)
    if not arguments:
        return _insert(brackets.start + 1, addition)
    last = arguments[-1]
    bracket_below = source.line_at(last.end_with_comma) != source.line_at(brackets.end - 1)
    indent = source.text[source.line_at(last.start).start : last.start]
    if bracket_below and not indent.strip():
        return _add_line(source, last, f"{source.newline}{indent}{addition}")
    if bracket_below and last.comma is not None:
        return _insert(last.end_with_comma, f" {addition},")
    return _insert(last.end, f", {addition}")


def _add_line(source: Source, last: _Argument, line: str) -> Edits:
    """An argument on the next line, behind the comment of the last one; with a comma behind it, if the last has one.

    Also with a comma where a comment parts the two places: another argument added there needs it.
    """
    at = last.end_with_comma
    rest = _REST_OF_LINE.match(source.text, at)
    line_end = rest.end() if rest and rest.group(1) else at
    if last.comma is not None:
        return _insert(line_end, f"{line},")
    if line_end == at:
        return _insert(at, f",{line}")
    return (Edit(Span(at, at), ","), Edit(Span(line_end, line_end), f"{line},"))


def remove_keyword(source: Source, call: ast.Call, name: str) -> Edits | None:
    """Take `name=...` out together with one comma; None if the call lacks it or a comment belongs to it."""
    existing, brackets = keyword(call, name), _brackets(source, call)
    if existing is None or brackets is None:
        return None
    arguments = _arguments(source, call, brackets)
    place = next(n for n, item in enumerate(arguments) if item.start == source.span(existing).start)
    rest = _REST_OF_LINE.match(source.text, arguments[place].end_with_comma)
    if rest and rest.group(1):  # the comment behind it would speak of its neighbour
        return None
    for span in _removals(source, arguments, place):
        if not has_comment(source, span):
            return (Edit(span, ""),)
    return None


def _removals(source: Source, arguments: list[_Argument], place: int) -> list[Span]:
    """The ranges that take one argument out, best first: its own lines, with the comma before it, or behind it."""
    argument = arguments[place]
    first, last = source.line_at(argument.start), source.line_at(argument.end_with_comma)
    around = source.text[first.start : argument.start] + source.text[argument.end_with_comma : last.end]
    spans = [Span(first.start, last.end)] if not around.strip() else []
    if place > 0:
        spans.append(Span(arguments[place - 1].end, argument.end))
    if place + 1 < len(arguments):
        spans.append(Span(argument.start, arguments[place + 1].start))
    elif place == 0:
        spans.append(Span(argument.start, argument.end_with_comma))
    return spans


class _Argument(NamedTuple):
    """Where an argument stands, brackets around it included, and the comma behind it (None if there is none)."""

    start: int
    end: int
    comma: int | None

    @property
    def end_with_comma(self) -> int:
        return self.end if self.comma is None else self.comma + 1


def _brackets(source: Source, call: ast.Call) -> Span | None:
    """The brackets that hold the call's arguments. None where no argument can be added or taken out."""
    if _in_f_string(source, call):  # ast misplaces what stands in one before Python 3.12
        return None
    after, end = source.span(call.func).end, source.span(call).end
    # Brackets around the callee close first.
    match = re.compile(r"(?:[\s)\\]|#[^\r\n]*)*\(").match(source.text, after, end)
    if match is None:
        return None
    brackets = Span(match.end() - 1, end)
    is_bare_generator = (
        len(call.args) == 1 and isinstance(call.args[0], ast.GeneratorExp) and source.span(call.args[0]) == brackets
    )
    return None if is_bare_generator else brackets


def _arguments(source: Source, call: ast.Call, brackets: Span) -> list[_Argument]:
    """The call's arguments in the order of the text."""
    found: list[_Argument] = []
    position = brackets.start + 1
    for node in sorted([*call.args, *call.keywords], key=lambda node: source.span(node).start):
        space = _SPACE.match(source.text, position)
        start = space.end() if space else position
        end, comma = source.span(node).end, None
        for match in _BETWEEN.finditer(source.text, end, brackets.end - 1):
            if match.group() == ")":
                end = match.end()
            elif match.group() == ",":
                comma = match.start()
                break
        found.append(_Argument(start, end, comma))
        position = found[-1].end_with_comma
    return found


# ---- statements --------------------------------------------------------------------------------------------------


def delete_statement(source: Source, statement: ast.stmt, others: Sequence[ast.stmt] = ()) -> Edits | None:
    """Take out a simple statement with its line; `pass` where the block would be empty; a comment on the line stays.

    others: statements that other fixes take out; where these and this one are all of a block, its first one becomes `pass`.
    None for a compound statement, one that shares its line with another, and one with a comment inside.
    """
    if hasattr(statement, "body") or isinstance(statement, ast.Match) or not has_own_lines(source, statement):
        return None
    span = source.span(statement)
    if has_comment(source, span):
        return None
    block = source.block(statement)
    if block[0] is statement and all(any(item is other for other in others) for item in block[1:]):
        return (Edit(span, "pass"),)
    last_line = source.line_at(span.end)
    rest = _REST_OF_LINE.match(source.text, span.end)
    if rest and rest.group(1):
        return (Edit(Span(span.start, rest.start(1)), ""),)
    return (Edit(Span(source.line_at(span.start).start, last_line.end), ""),)


def wrap_block(source: Source, statements: list[ast.stmt], header: str) -> Edits | None:
    """Put consecutive statements of one block under `header` (such as "with torch.no_grad():"), one level deeper.

    Lines inside a string stay as they are. None where the first or the last statement shares its line with another.
    One edit of the whole block, so that no other edit inside it is made at the same time.
    """
    first, last = statements[0], statements[-1]
    if not (_begins_line(source, first) and _ends_line(source, last)):
        return None
    indent = source.indent_of(first)
    unit = "\t" if "\t" in indent else indent_unit(source)
    begin = source.offset(first_line(first), 0)
    span = Span(begin + len(indent), source.span(last).end)
    in_string = lines_in_strings(source, span)
    text = f"{header}{source.newline}{indent}{unit}"
    for number in range(first_line(first), source.location(last).end_line + 1):
        line = source.line_at(source.offset(number, 0))
        start, end = max(line.start, span.start), min(line.end, span.end)
        if number > first_line(first) and number not in in_string and source.text[start:end].strip():
            deeper = len(indent) if source.text.startswith(indent, start) else 0  # a tab never goes behind a space
            white = re.match(r"[ \t\f]*", source.text[start:end])
            deeper = max(deeper, white.group().rfind("\f") + 1 if white else 0)  # columns begin anew behind a form feed
            text += source.text[start : start + deeper] + unit
            start += deeper
        text += source.text[start:end]
    return (Edit(span, text),)


def insert_before(source: Source, statement: ast.stmt, text: str) -> Edits | None:
    """Put one line before a statement, with the statement's indentation. None if it does not begin its line."""
    if not _begins_line(source, statement):
        return None
    return _insert(source.offset(first_line(statement), 0), f"{source.indent_of(statement)}{text}{source.newline}")


def insert_after(source: Source, statement: ast.stmt, text: str) -> Edits | None:
    """Put one line after a statement, with the statement's indentation. None if it shares its line with another."""
    if not has_own_lines(source, statement):
        return None
    line, addition = source.line_at(source.span(statement).end), f"{source.indent_of(statement)}{text}"
    if source.text[line.start : line.end].endswith(("\n", "\r")):
        return _insert(line.end, addition + source.newline)
    return _insert(line.end, source.newline + addition)


def first_line(statement: ast.stmt) -> int:
    """The line on which the statement begins, decorators included."""
    decorators = getattr(statement, "decorator_list", None)
    return min([statement.lineno, *(d.lineno for d in decorators)]) if decorators else statement.lineno


# ---- names and imports -------------------------------------------------------------------------------------------


def name_for(source: Source, dotted: str) -> tuple[str, Edits]:
    """How to write a name of torch in this file, with the import it takes (none if it can be reached already).

    "torch.nn.functional.gelu" is `F.gelu` after `import torch.nn.functional as F`. Only imports that every function
    of the file sees count.
    """
    names = []
    for alias, target in source.aliases.items():
        reached = dotted == target or dotted.startswith(target + ".")
        if reached and alias not in source.assigned_names and alias in source.module_imports:
            names.append(alias + dotted[len(target) :])
    if names:
        return min(names, key=len), ()
    module, _, rest = dotted.partition(".")
    if module not in source.assigned_names | source.module_imports and source.aliases.get(module, module) == module:
        return dotted, insert_import(source, f"import {module}")
    return f"_{module}.{rest}", insert_import(source, f"import {module} as _{module}")


def insert_import(source: Source, text: str) -> Edits:
    """Put an import line before the first statement that is no docstring and no import from `__future__`."""
    anchor: ast.stmt | None = None
    for statement in source.tree.body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_docstring or is_future):
            return insert_before(source, statement, text) or _insert(source.span(statement).start, f"{text}; ")
        anchor = statement
    if anchor is None:
        ends_open = source.lines[-1] != ""
        return _insert(len(source.text), (source.newline if ends_open else "") + text + source.newline)
    return insert_after(source, anchor, text) or _insert(source.span(anchor).end, f"; {text}")


# ---- edits made ------------------------------------------------------------------------------------------------


def apply(text: str, edits: Iterable[Edit]) -> str:
    """The text with all edits made at once. Raises ValueError where two overlap or one leaves the text.

    Edits that stand twice count once; insertions at one place keep the order in which they are given.
    """
    result, position = [], 0
    for edit in in_order(edits, len(text)):
        result += [text[position : edit.span.start], edit.text]
        position = edit.span.end
    return "".join([*result, text[position:]])


def in_order(edits: Iterable[Edit], length: int) -> list[Edit]:
    """Edits of a text of this length, each once, in the order of their places. Raises ValueError as `apply` does."""
    ordered, position = sorted(dict.fromkeys(edits), key=lambda e: (e.span.start, e.span.end)), 0
    for edit in ordered:
        if not position <= edit.span.start <= edit.span.end:
            raise ValueError(f"edits overlap at character {edit.span.start}")
        position = edit.span.end
    if position > length:
        raise ValueError(f"an edit ends at character {position} of a text of {length}")
    return ordered


def overlap(first: Edits, second: Edits) -> bool:
    """Whether two sets of edits cannot be made together: their spans cross, or both change what stands at one place.

    Two arguments added to one call go together, and so do two whole lines of one indentation; an insertion goes with a
    replacement that ends or begins there, but not with a removal. The same edit twice counts once.
    """
    return any(a != b and _conflict(a, b) for a in first for b in second)


def _conflict(a: Edit, b: Edit) -> bool:
    if a.span.start < b.span.end and b.span.start < a.span.end:
        return True
    if not (_is_insertion(a) or _is_insertion(b)):
        return False
    if a.span == b.span:
        return not _stackable(a.text, b.text)
    touching = a.span.end == b.span.start or b.span.end == a.span.start
    return touching and not (a.text and b.text)


def _is_insertion(edit: Edit) -> bool:
    return edit.span.start == edit.span.end


def _stackable(a: str, b: str) -> bool:
    """Whether two insertions at one place can stand one behind the other: both `, x=1`, `x=1,`, or a whole line."""
    if a.startswith(",") or b.startswith(","):
        return a.startswith(",") and b.startswith(",")
    if a.endswith(",") or b.endswith(","):
        return a.endswith(",") and b.endswith(",")
    whole = [re.fullmatch(r"([ \t]*)\S[^\r\n]*[\r\n]+|[\r\n]+([ \t]*)\S[^\r\n]*", text) for text in (a, b)]
    return whole[0] is not None and whole[1] is not None and whole[0].groups() == whole[1].groups()


# ---- what stands around ------------------------------------------------------------------------------------------


def _insert(at: int, text: str) -> Edits:
    return (Edit(Span(at, at), text),)


def _in_f_string(source: Source, node: ast.AST) -> bool:
    return any(type(ancestor).__name__ in ("JoinedStr", "TemplateStr") for ancestor in source.ancestors(node))


def has_comment(source: Source, span: Span) -> bool:
    return bool(source.comments_in(span))


def _is_word(character: str) -> bool:
    return character.isalnum() or character in ("_", '"', "'")


def _needs_brackets(source: Source, node: ast.expr, text: str) -> bool:
    """Whether the expression `text` means something else beside the operator that `node` stands next to."""
    parent = source.parent(node)
    unpacked = isinstance(parent, ast.Dict) and any(
        value is node and key is None for key, value in zip(parent.keys, parent.values, strict=True)
    )
    if not (unpacked or isinstance(parent, _BINDING)) or (isinstance(parent, ast.Call) and parent.func is not node):
        return False
    if isinstance(parent, ast.Subscript) and parent.value is not node:
        return False
    span = source.span(node)
    if source.text[: span.start].rstrip()[-1:] == "(" and source.text[span.end :].lstrip()[:1] == ")":
        return False
    try:
        alone, with_attribute = ast.parse(text, mode="eval").body, ast.parse(f"{text}.x", mode="eval").body
    except SyntaxError:
        return not text.isidentifier()
    return not (isinstance(with_attribute, ast.Attribute) and ast.dump(with_attribute.value) == ast.dump(alone))


def _begins_line(source: Source, statement: ast.stmt) -> bool:
    """Whether nothing but white space stands before the statement, on its line or one that runs on into it.

    False for an `elif`, which is a statement to `ast` and no place for another one.
    """
    number, start = first_line(statement), source.span(statement).start
    head = source.text[source.offset(number, 0) : start] if number == statement.lineno else ""
    previous = source.lines[number - 2] if number > 1 else ""
    runs_on = previous.endswith("\\") and not previous.lstrip().startswith("#")
    is_elif = isinstance(statement, ast.If) and source.text.startswith("elif", start)
    return not head.strip() and not runs_on and not is_elif


def _ends_line(source: Source, statement: ast.stmt) -> bool:
    """Whether nothing but a comment stands behind the statement on its line."""
    end = source.span(statement).end
    rest = _REST_OF_LINE.match(source.text, end)
    return rest is not None and not source.text[rest.end() : source.line_at(end).end].strip()


def has_own_lines(source: Source, statement: ast.stmt) -> bool:
    return _begins_line(source, statement) and _ends_line(source, statement)


def lines_in_strings(source: Source, span: Span) -> set[int]:
    """Numbers of the lines that begin inside a string: their white space is data."""
    found: set[int] = set()
    text = source.text[span.start : span.end]
    if not any(sign in text for sign in ('"""', "'''", "\\")):  # no string goes on in the next line
        return found
    import tokenize

    opened: list[int] = []
    first = source.line_number(span.start)
    for token, _ in source.tokens(span):
        kind = tokenize.tok_name[token.type]
        begin, end = first + token.start[0] - 1, first + token.end[0] - 1
        if kind.endswith("STRING_START"):  # f-strings are several tokens since Python 3.12
            opened.append(begin)
        elif kind.endswith("STRING_END"):
            found.update(range(opened.pop() + 1, end + 1))
        elif kind == "STRING":
            found.update(range(begin + 1, end + 1))
    return found


def indent_unit(source: Source) -> str:
    """One level of indentation in this file: that of its first indented block, four spaces if there is none."""
    for statement in source.tree.body:
        body = getattr(statement, "body", None)
        if body and body[0].lineno > statement.lineno:
            return source.indent_of(body[0]).rpartition("\f")[2] or "    "
    return "    "
