"""Where the nodes of a tree stand in its text, and what is written there."""

from __future__ import annotations

import ast
import bisect
import re
from functools import cached_property
from typing import TYPE_CHECKING

from perfaudit.expressions import regex
from perfaudit.findings import Location, Span
from perfaudit.static.source.lines import NEWLINE, line_starts
from perfaudit.static.source.syntax import walk
from perfaudit.static.source.tree import Tree

if TYPE_CHECKING:
    import tokenize

_NO_LINE_END = regex(r"[^\r\n]")


class Places(Tree):
    """A tree with the places of its nodes in the text."""

    @cached_property
    def code(self) -> str:
        """The text with comments and docstrings blanked: same length, same lines."""
        blank = [self.span(node) for node in self.nodes(ast.Expr) if isinstance(node.value, ast.Constant)]
        blank += self._comments()
        parts, done = [], 0
        for span in sorted(blank, key=lambda span: span.start):
            if span.start >= done:
                parts += [self.text[done : span.start], _NO_LINE_END.sub(" ", self.text[span.start : span.end])]
                done = span.end
        return "".join([*parts, self.text[done:]])

    def _comments(self) -> list[Span]:
        """From each number sign that stands in no string to the end of its line: a tokenizer takes as long as the parser."""
        found: list[Span] = []
        at = self.text.find("#")
        strings = iter(self._strings if at >= 0 else ())
        string = next(strings, None)
        while at >= 0:
            if string is not None and string.end <= at:
                string = next(strings, None)
            elif string is not None and string.start <= at:
                found += self._comments_between_pieces(string)
                at = self.text.find("#", string.end)
            else:
                end = NEWLINE.search(self.text, at)
                found.append(Span(at, end.start() if end else len(self.text)))
                at = self.text.find("#", found[-1].end)
        return found

    @property
    def _strings(self) -> list[Span]:
        """Where strings stand, in order; of strings side by side, and of one with strings inside, the whole."""
        joined = [
            node for name in ("JoinedStr", "TemplateStr") for node in self.nodes(getattr(ast, name, ast.JoinedStr))
        ]
        inside = {id(part) for node in joined for part in walk(node) if part is not node}
        texts = [node for node in self.nodes(ast.Constant) if isinstance(node.value, (str, bytes))]
        return sorted({self.span(node) for node in (*joined, *texts) if id(node) not in inside})

    def _comments_between_pieces(self, string: Span) -> list[Span]:
        """The comments between strings that stand side by side, on lines of their own."""
        text = self.text[string.start : string.end]
        quotes = text.lstrip("rRbBuUfFtT")[:3]
        is_one = quotes in ('"""', "'''") and text.index(quotes, text.index(quotes) + 3) == len(text) - 3
        if is_one or ("\n" not in text and "\r" not in text):
            return []
        return self.comments_in(string)

    def comments_in(self, span: Span) -> list[Span]:
        """The comments inside an expression that begins and ends at this span."""
        if "#" not in self.text[span.start : span.end]:
            return []
        from token import COMMENT

        return [place for token, place in self.tokens(span) if token.type == COMMENT]

    def says(self, pattern: re.Pattern[str]) -> bool:
        """Whether the pattern is found in the code, comments and docstrings left aside; cheap where it is nowhere."""
        if pattern not in self._patterns_found:  # asked for each of a rule's findings
            self._patterns_found[pattern] = (
                pattern.search(self.text) is not None and pattern.search(self.code) is not None
            )
        return self._patterns_found[pattern]

    @cached_property
    def _patterns_found(self) -> dict[re.Pattern[str], bool]:
        return {}

    @cached_property
    def _line_starts(self) -> list[int]:
        return line_starts(self.text)

    @cached_property
    def lines(self) -> list[str]:
        """Lines without their ends; index 0 is line 1."""
        return self.text.split("\n") if "\r" not in self.text else NEWLINE.split(self.text)

    @property
    def newline(self) -> str:
        """The line end this file uses (its first one)."""
        match = NEWLINE.search(self.text)
        return match.group() if match else "\n"

    def offset(self, line: int, byte_column: int) -> int:
        """Character offset of a position as `ast` gives it: 1-based line, 0-based column in UTF-8 bytes."""
        start = self._line_starts[line - 1]
        if self.text.isascii():
            return start + byte_column
        return start + len(self.lines[line - 1].encode()[:byte_column].decode(errors="ignore"))

    def line_number(self, offset: int) -> int:
        """The 1-based number of the line in which a character stands."""
        return bisect.bisect_right(self._line_starts, offset)

    def line_at(self, offset: int) -> Span:
        """The whole line in which a character stands, its line end included."""
        number = self.line_number(offset)
        starts = self._line_starts
        return Span(starts[number - 1], starts[number] if number < len(starts) else len(self.text))

    def span(self, node: ast.AST) -> Span:
        """Where the node stands. A decorated function begins at its `def`, as in `ast`."""
        return Span(
            self.offset(node.lineno, node.col_offset),  # type: ignore[attr-defined]  # expressions and statements
            self.offset(node.end_lineno, node.end_col_offset),  # type: ignore[attr-defined]
        )

    def text_of(self, node: ast.AST) -> str:
        """The node's own text, as written."""
        span = self.span(node)
        return self.text[span.start : span.end]

    def brief(self, node: ast.AST, limit: int = 60) -> str:
        """The node's text on one line, cut at `limit` characters; for messages."""
        text = " ".join(self.text_of(node).split())
        return text if len(text) <= limit else text[: limit - 1] + "…"

    def location(self, node: ast.AST) -> Location:
        span = self.span(node)
        line, end_line = node.lineno, node.end_lineno  # type: ignore[attr-defined]  # expressions and statements
        starts = self._line_starts
        return Location(
            self.path, line, span.start - starts[line - 1] + 1, end_line, span.end - starts[end_line - 1] + 1
        )

    def indent_of(self, statement: ast.stmt) -> str:
        """The white space before the statement's first line (its decorators' line, if any, has the same)."""
        line = self.lines[statement.lineno - 1]
        return line[: len(line) - len(line.lstrip())]

    def tokens(self, span: Span) -> list[tuple[tokenize.TokenInfo, Span]]:
        """The tokens of an expression that begins and ends at this span, each with its place in the file.

        The text between is tokenised alone, so it must be one whole expression, argument list or bracket.
        """
        import io
        import tokenize  # few files have to be taken apart

        text = self.text[span.start : span.end]
        starts = [0, *(match.end() for match in NEWLINE.finditer(text))]
        found = []
        # A bracket around it makes line breaks inside insignificant, so that no INDENT or NEWLINE appears.
        for token in tokenize.generate_tokens(io.StringIO("(" + text + ")", newline="").readline):
            if token.type in (tokenize.NEWLINE, tokenize.ENDMARKER):
                continue
            begin = starts[token.start[0] - 1] + token.start[1] - (token.start[0] == 1)
            end = starts[token.end[0] - 1] + token.end[1] - (token.end[0] == 1)
            if begin >= 0 and end <= len(text):
                found.append((token, Span(span.start + begin, span.start + end)))
        return found
