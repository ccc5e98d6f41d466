"""Edit verbs: each returns the edits that change the text as meant, or None where it cannot be done without a doubt.

All work on `ast` positions and tokens of the text itself, so comments, commas, line ends and indentation stay.
"""

from __future__ import annotations

import ast
import difflib
import re
import tokenize

from perfaudit.findings import Edit, Span
from perfaudit.static.source import FUNCTIONS, Source

Edits = tuple[Edit, ...]

_LAYOUT = (tokenize.NL, tokenize.COMMENT)


def replace(source: Source, node: ast.AST, text: str) -> Edits:
    """Put `text` where the expression stands."""
    return (Edit(source.span(node), text),)


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

    None for a call with a bare generator argument (it would need brackets), and where the tokens do not add up.
    """
    closing = source.span(call).end - 1
    opening = _opening_bracket(source, call)
    if opening is None:
        return None
    arguments = [*call.args, *(k.value for k in call.keywords)]
    if len(arguments) == 1 and isinstance(arguments[0], ast.GeneratorExp):
        inner = source.span(arguments[0])
        if inner.start == opening and inner.end == closing + 1:
            return None
    tokens = [(t, s) for t, s in source.tokens(Span(opening, closing + 1)) if opening < s.start < closing]
    solid = [(t, s) for t, s in tokens if t.type not in _LAYOUT]
    addition = f"{name}={value}"
    if not solid:
        return (Edit(Span(opening + 1, opening + 1), addition),)
    last, last_span = solid[-1]
    has_comma = last.string == ","
    end_of_argument = solid[-2][1].end if has_comma else last_span.end
    last_argument = max([*call.args, *call.keywords], key=lambda node: source.span(node).start)
    argument_line = source.offset(last_argument.lineno, 0)
    head = source.text[argument_line : source.span(last_argument).start]
    own_line = argument_line > opening and not head.strip(" \t(")
    after_last = [t for t, s in tokens if s.start >= last_span.end]
    closing_on_own_line = any(t.type == tokenize.NL for t in after_last)
    if not (own_line and closing_on_own_line):
        text = f" {addition}," if has_comma and closing_on_own_line else f", {addition}"
        at = last_span.end if has_comma and closing_on_own_line else end_of_argument
        return (Edit(Span(at, at), text),)
    # The last argument ends on a line of its own: the new one goes on the next line, behind a comment if there is one.
    indent = head[: len(head) - len(head.lstrip())]
    comment_end = next((s.end for t, s in tokens if s.start >= last_span.end and t.type == tokenize.COMMENT), None)
    newline_at = next(s.start for t, s in tokens if s.start >= last_span.end and t.type == tokenize.NL)
    if comment_end is not None and comment_end > newline_at:
        comment_end = None
    line_end = comment_end if comment_end is not None else last_span.end
    added = f"{source.newline}{indent}{addition}"
    if has_comma:
        return (Edit(Span(line_end, line_end), added + ","),)
    if line_end == last_span.end:
        return (Edit(Span(line_end, line_end), "," + added),)
    return (Edit(Span(last_span.end, last_span.end), ","), Edit(Span(line_end, line_end), added))


def remove_keyword(source: Source, call: ast.Call, name: str) -> Edits | None:
    """Take `name=...` out together with one comma; None if the call lacks it or a comment stands in between."""
    existing = keyword(call, name)
    opening = _opening_bracket(source, call)
    if existing is None or opening is None:
        return None
    closing = source.span(call).end - 1
    tokens = [(t, s) for t, s in source.tokens(Span(opening, closing + 1)) if opening < s.start < closing]
    start = source.span(existing).start
    solid = [i for i, (t, _) in enumerate(tokens) if t.type not in _LAYOUT]
    first = next((n for n, i in enumerate(solid) if tokens[i][1].start == start), None)
    if first is None:
        return None
    value_end = source.span(existing.value).end
    last = first
    while last + 1 < len(solid) and tokens[solid[last + 1]][0].string != "," or tokens[solid[last]][1].end < value_end:
        last += 1
    end = tokens[solid[last]][1].end
    if last + 1 < len(solid) and last + 2 < len(solid):  # something follows: take the comma behind, up to the next argument
        begin, finish = start, tokens[solid[last + 2]][1].start
    elif first > 0:  # the last one: take the comma before, keep a trailing comma
        begin, finish = tokens[solid[first - 2]][1].end if first > 1 else opening + 1, end
    else:
        begin, finish = start, tokens[solid[last + 1]][1].end if last + 1 < len(solid) else end
    if any(t.type == tokenize.COMMENT and begin <= s.start < finish for t, s in tokens):
        return None
    return (Edit(Span(begin, finish), ""),)


def delete_statement(source: Source, statement: ast.stmt) -> Edits | None:
    """Take out a simple statement with its line; `pass` where the block would be empty; a comment on the line stays.

    None for a compound statement and for one that shares its line with another.
    """
    if isinstance(statement, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, *FUNCTIONS, ast.ClassDef)):
        return None
    span = source.span(statement)
    line_start = source.offset(statement.lineno, 0)
    line_end = source._line_starts[statement.end_lineno or statement.lineno] if (statement.end_lineno or 0) < len(source.lines) else len(source.text)
    before, after = source.text[line_start : span.start], source.text[span.end : line_end]
    rest = after.strip()
    if before.strip() or (rest and not rest.startswith("#")):
        return None
    if len(source.block(statement)) == 1:
        return (Edit(span, "pass"),)
    if rest:
        return (Edit(Span(span.start, line_end - len(after.lstrip())), ""),)
    return (Edit(Span(line_start, line_end), ""),)


def wrap_block(source: Source, statements: list[ast.stmt], header: str) -> Edits | None:
    """Put consecutive statements of one block under `header` (such as "with torch.no_grad():"), one level deeper.

    None where a line cannot be moved: a string that spans lines is left alone inside, a statement that shares its line
    with another refuses the whole.
    """
    first, last = statements[0], statements[-1]
    start = source.offset(first_line(first), 0)
    begin = source.span(first).start if not getattr(first, "decorator_list", None) else start
    if source.text[start:begin].strip():
        return None
    end_line = last.end_lineno or last.lineno
    tail = source.lines[end_line - 1][source.location(last).end_column - 1 :].strip()
    if tail and not tail.startswith("#"):
        return None
    frozen: set[int] = set()  # lines that begin inside a string: their white space is data
    for statement in statements:
        for node in ast.walk(statement):
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and node.end_lineno != node.lineno:
                value = getattr(node, "value", "")
                if isinstance(node, ast.JoinedStr) or isinstance(value, (str, bytes)):
                    frozen.update(range(node.lineno + 1, (node.end_lineno or node.lineno) + 1))
    indent = source.indent_of(first)
    unit = _indent_unit(source)
    edits = [Edit(Span(start, start), f"{indent}{header}{source.newline}")]
    for line in range(first_line(first), end_line + 1):
        if line in frozen or not source.lines[line - 1].strip():
            continue
        at = source.offset(line, 0)
        edits.append(Edit(Span(at, at), unit))
    merged = [Edit(edits[0].span, edits[0].text + edits[1].text), *edits[2:]]  # both stand before the first line
    return tuple(merged)


def insert_before(source: Source, statement: ast.stmt, text: str) -> Edits:
    """Put one line before a statement, with the statement's indentation."""
    at = source.offset(first_line(statement), 0)
    return (Edit(Span(at, at), f"{source.indent_of(statement)}{text}{source.newline}"),)


def insert_after(source: Source, statement: ast.stmt, text: str) -> Edits | None:
    """Put one line after a statement, with the statement's indentation. None if the line goes on behind it."""
    line = statement.end_lineno or statement.lineno
    tail = source.lines[line - 1][source.location(statement).end_column - 1 :].strip()
    if tail and not tail.startswith("#"):
        return None
    newline = source.newline
    if line < len(source.lines):
        at = source.offset(line + 1, 0)
        return (Edit(Span(at, at), f"{source.indent_of(statement)}{text}{newline}"),)
    return (Edit(Span(len(source.text), len(source.text)), f"{newline}{source.indent_of(statement)}{text}"),)


def name_for(source: Source, dotted: str) -> tuple[str, Edits]:
    """How to write a name of torch in this file, with the import it takes (none if it can be reached already).

    "torch.nn.functional.gelu" is `F.gelu` after `import torch.nn.functional as F`.
    """
    best = ""
    for alias, target in source.aliases.items():
        if (dotted == target or dotted.startswith(target + ".")) and alias not in source.assigned_names:
            text = alias + dotted[len(target) :]
            if not best or len(text) < len(best):
                best = text
    if best:
        return best, ()
    module, _, _ = dotted.partition(".")
    return dotted, insert_import(source, f"import {module}")


def insert_import(source: Source, text: str) -> Edits:
    """Put an import line before the first import that is not from `__future__`, else behind docstring and `__future__`."""
    anchor: ast.stmt | None = None
    for statement in source.tree.body:
        is_docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        is_future = isinstance(statement, ast.ImportFrom) and statement.module == "__future__"
        if not (is_docstring or is_future):
            return insert_before(source, statement, text)
        anchor = statement
    if anchor is None:
        return (Edit(Span(0, 0), text + source.newline),)
    return insert_after(source, anchor, text) or ()


def first_line(statement: ast.stmt) -> int:
    """The line on which the statement begins, decorators included."""
    decorators = getattr(statement, "decorator_list", None)
    return min([statement.lineno, *(d.lineno for d in decorators)]) if decorators else statement.lineno


def apply(text: str, edits: Edits | list[Edit]) -> str:
    """The text with all edits made at once. Edits that stand twice count once. Raises ValueError where two overlap."""
    result, position = [], 0
    for edit in sorted(set(edits), key=lambda e: (e.span.start, e.span.end)):
        if edit.span.start < position:
            raise ValueError(f"edits overlap at character {edit.span.start}")
        result += [text[position : edit.span.start], edit.text]
        position = edit.span.end
    return "".join([*result, text[position:]])


def overlap(first: Edits, second: Edits) -> bool:
    """Whether two sets of edits cannot be made together: their spans cross, or both change what stands at one place.

    Two insertions at the same place go together (two keywords added to one call), the same edit twice counts once.
    """
    for a in first:
        for b in second:
            if a == b:
                continue
            if a.span.start < b.span.end and b.span.start < a.span.end:
                return True
            inserts = a.span.start == a.span.end, b.span.start == b.span.end
            if all(inserts) and a.span == b.span and not (a.text.startswith(",") and b.text.startswith(",")):
                return True
            if any(inserts) and not all(inserts):
                point, other = (a, b) if inserts[0] else (b, a)
                if other.span.start < point.span.start < other.span.end:
                    return True
    return False


def diff(path: str, before: str, after: str) -> str:
    """Unified diff that `patch -p1` and `git apply` take; empty when nothing changed. Line ends stay as they are."""
    a, b = _split_keepends(before), _split_keepends(after)
    lines = []
    for line in difflib.unified_diff(a, b, f"a/{path}", f"b/{path}"):
        lines.append(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n")
    return "".join(lines)


def _split_keepends(text: str) -> list[str]:
    """Lines as git sees them: only "\\n" ends one."""
    lines = text.split("\n")
    return [line + "\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _opening_bracket(source: Source, call: ast.Call) -> int | None:
    """Offset of the bracket that opens the call's arguments."""
    after, end = source.span(call.func).end, source.span(call).end
    match = re.compile(r"(?:[\s)\\]|#[^\n]*\n)*\(").match(source.text, after, end)  # brackets around the callee close first
    return match.end() - 1 if match else None


def _indent_unit(source: Source) -> str:
    """One level of indentation in this file: that of its first indented block, four spaces if there is none."""
    for statement in source.tree.body:
        body = getattr(statement, "body", None)
        if body and body[0].lineno > statement.lineno:
            return source.indent_of(body[0]) or "    "
    return "    "
