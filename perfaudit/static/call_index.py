"""Who calls what: the calls of a name in all files of a scan, read from their texts without a tree of each.

A tree of every file that calls something would cost as much as the audit of these files. So a first look notes the names
that stand before a bracket, and only the brackets behind a name that somebody asks for are parsed. Where the text does not
settle what a bracket belongs to, the whole file is.
"""

from __future__ import annotations

import ast
import re
import unicodedata
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from keyword import iskeyword, issoftkeyword
from pathlib import Path

from perfaudit.expressions import regex
from perfaudit.reading import read_bytes
from perfaudit.records import NamedTuple
from perfaudit.static.bare_code import bare_code
from perfaudit.static.import_graph import FileSet, numbers_in
from perfaudit.static.source import Unreadable, decode_source, read_text
from perfaudit.static.source.lines import NEWLINE

# What may stand between a name and the bracket of its call. Nothing is tried twice (`+` behind a repetition).
_GAP = r"(?:[\s\\)]|#[^\n]*+\n)*+"
_TO_BRACKET = regex(rf"{_GAP}\(")
_CALLED = regex(rf"\b(\w++){_GAP}\(")
_BRACKET = regex(r"[()\[\]{}]")
_DEFINED = regex(r"(?<![\w.])(?:def|class)[ \t]+$")
_LOOKED_BACK = 100  # characters before a bracket or a name; what is longer than that is looked at in whole
_SPACE = b" \t\r\n\f\v\\)"
MANY = 2  # looks at each file, which take as long as noting all names of all files
_WORD = b"_0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Letters and digits of any alphabet stay, what may stand between a name and its bracket is a space, and everything else is a dot.
_WORDS_AND_REST = bytes(c if c in _WORD or c in b"(" or c > 127 else 32 if c in _SPACE else 46 for c in range(256))
_FIRST_ON_LINE = regex(rb"\n[ \t]*\(")
_CASE = regex(r"^[ \t]+case[ \t(\[{]", re.MULTILINE)  # of a match statement, whose `Point()` is a pattern and no call


class CallShape(NamedTuple):
    """How much a call passes: so many arguments by position, these names, and whether it unpacks (`*a`, `**k`)."""

    positional: int
    keywords: frozenset[str] = frozenset()
    unpacks: bool = False

    def may_pass(self, name: str, place: int | None) -> bool:
        """Whether the call may pass a parameter of this name, at this place among those that positions can fill."""
        return self.unpacks or name in self.keywords or (place is not None and self.positional > place)


def shape_of(call: ast.Call) -> CallShape:
    names = [keyword.arg for keyword in call.keywords]
    unpacks = None in names or any(isinstance(argument, ast.Starred) for argument in call.args)
    return CallShape(len(call.args), frozenset(name for name in names if name is not None), unpacks)


class CallIndex:
    """The calls in the files of a scan, by the last name of what is called. Nothing is read before the first question."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = files
        self._read: dict[int, CallsOfFile] = {}
        self._looked_at = 0  # files, each as often as a question asked for it

    def files_calling(self, name: str, among: FileSet) -> list[int]:
        """Those of some files in which a bracket stands behind this name, now and then only in a text that looks like a call.

        The first questions look for the name in each file; where there are many, all names of all files are noted at once.
        """
        self._looked_at += among.bit_count()
        if self._looked_at > MANY * len(self._files):
            called = self._by_name.get(name, 0) & among
            return numbers_in(called) if called else []
        return [number for number in numbers_in(among) if self._mentions(number, name)]

    def _mentions(self, number: int, name: str) -> bool:
        try:
            data = read_bytes(self._files[number])
        except OSError:
            return False
        return name.encode() in data or (not data.isascii() and _is_spelled_otherwise(name, data))

    @cached_property
    def _by_name(self) -> dict[str, FileSet]:
        numbers: dict[str, list[int]] = {}
        for number, file in enumerate(self._files):
            for name in _names_called(file):
                numbers.setdefault(name, []).append(number)
        return {name: sum(1 << number for number in some) for name, some in numbers.items()}

    def calls(self, number: int, name: str) -> list[CallShape]:
        """The calls of the name in one file; none in a file that cannot be read or parsed."""
        if number not in self._read:
            self._read[number] = CallsOfFile(self._files[number])
        return self._read[number].of(name)


def _names_called(file: str) -> set[str]:
    """Every name behind which a bracket opens; more than these where a comment stands between."""
    try:
        data = read_bytes(file)
        if not data.isascii():
            data = decode_source(data)[0].encode("utf-8", "surrogatepass")
    except (OSError, Unreadable):
        return set()
    before_brackets = data.translate(_WORDS_AND_REST).split(b"(")[:-1]
    names = {text.rstrip().rpartition(b".")[2].rpartition(b" ")[2] for text in before_brackets}
    for bracket in _FIRST_ON_LINE.finditer(data):
        names.add(_word_before_comments(data, bracket.start()))
    return _as_parsed(name.decode("utf-8", "replace") for name in names if name)


def _word_before_comments(data: bytes, end: int) -> bytes:
    """The last word of the line that ends here, or of the nearest one above that holds more than a comment."""
    while end > 0:
        start = data.rfind(b"\n", 0, end) + 1
        code = data[start:end].partition(b"#")[0].translate(_WORDS_AND_REST)
        if code.strip():
            return code.rstrip().rpartition(b"(")[2].rpartition(b".")[2].rpartition(b" ")[2]
        end = start - 1
    return b""


def _is_spelled_otherwise(name: str, data: bytes) -> bool:
    """Whether a text spells a name in letters that the parser takes for others, or in another encoding than UTF-8."""
    try:
        lines = decode_source(data)[0].splitlines()
    except Unreadable:
        return False
    return any(name in unicodedata.normalize("NFKC", line) for line in lines if not line.isascii())


def _as_parsed(names: Iterable[str]) -> set[str]:
    """Names as the parser spells them."""
    return {name if name.isascii() else unicodedata.normalize("NFKC", name) for name in names}


class CallsOfFile:
    """The calls in one file; a file that cannot be read or parsed has none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, list[CallShape]] = {}
        bare = bare_code(self._text())
        self._code = bare.code
        # Whether the text tells which brackets belong to what.
        self._is_plain = bare.is_sure and _CASE.search(bare.code) is None
        self._in_f_strings = {name for text in bare.f_strings for name in _as_parsed(_CALLED.findall(text))}

    def of(self, name: str) -> list[CallShape]:
        """The calls of whatever has this last name."""
        if name not in self._known:
            found = None
            if self._is_plain and name not in self._in_f_strings and not iskeyword(name) and not issoftkeyword(name):
                found = self._behind(name)
            self._known[name] = self._in_tree.get(name, []) if found is None else found
        return self._known[name]

    def _text(self) -> str:
        try:
            return NEWLINE.sub("\n", read_text(Path(self._path))[0])
        except Unreadable:
            return ""

    @cached_property
    def _pairs(self) -> dict[int, int]:
        """Where each bracket that opens is closed; nothing where they do not match."""
        pairs: dict[int, int] = {}
        waiting: list[int] = []
        for match in _BRACKET.finditer(self._code):
            if match[0] in "([{":
                waiting.append(match.start())
            elif not waiting:
                return {}
            else:
                pairs[waiting.pop()] = match.start()
        return {} if waiting else pairs

    def _behind(self, name: str) -> list[CallShape] | None:
        """The calls, from the brackets behind the name; None where it takes a tree to tell."""
        found: list[CallShape] = []
        to_parse = 2 * len(self._code)  # calls of a name within calls of it could be parsed over and over
        for start, gap in self._brackets_behind(name):
            opens = gap.end() - 1
            if gap[0][:-1].strip(" \t") or opens not in self._pairs:
                return None
            if _DEFINED.search(self._code[max(0, start - _LOOKED_BACK) : start]):
                continue
            arguments = self._code[opens : self._pairs[opens] + 1]
            to_parse -= len(arguments)
            call = _parsed_call(arguments) if to_parse > 0 else None
            if call is None:
                return None
            found.append(shape_of(call))
        return found

    def _brackets_behind(self, name: str) -> Iterator[tuple[int, re.Match[str]]]:
        """Where the name begins that a bracket follows, and what stands from its end to the bracket."""
        code = self._code
        start = code.find(name)
        while start >= 0:
            end = start + len(name)
            is_whole = not (code[start - 1 : start].isalnum() or code[start - 1 : start] == "_")
            if is_whole and (gap := _TO_BRACKET.match(code, end)):
                yield start, gap
            start = code.find(name, end)

    @cached_property
    def _in_tree(self) -> dict[str, list[CallShape]]:
        table: dict[str, list[CallShape]] = {}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                nodes = list(ast.walk(ast.parse(self._text())))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            nodes = []
        for node in nodes:
            if isinstance(node, ast.Call):
                last = getattr(node.func, "attr", getattr(node.func, "id", ""))
                table.setdefault(last, []).append(shape_of(node))
        return table


def _parsed_call(arguments: str) -> ast.Call | None:
    """A call with these arguments; None where the brackets hold something else."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call = ast.parse(f"f{arguments}", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return call if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) else None
