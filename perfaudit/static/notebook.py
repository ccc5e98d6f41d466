"""A notebook as one Python text: its code cells one after the other, edits written back without touching anything else."""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterable, Iterator

from perfaudit.expressions import regex
from perfaudit.findings import Edit, Location, Span
from perfaudit.records import NamedTuple, replace
from perfaudit.static import edit, unified_diff
from perfaudit.static.source import Unreadable
from perfaudit.static.source.lines import NEWLINE
from perfaudit.static.source.reading import why_not_parsed

# A line of IPython's own: `%matplotlib inline`, `!pip install x`, `files = !ls`, `?name`, `name?`, `name??`.
_MAGIC = regex(r"^(?P<before>[ \t]*(?:[\w., ]+=[ \t]*)?)(?P<sign>[%!?])(?P<rest>.*)$|^[ \t]*[\w.]+\?{1,2}[ \t]*$")
# Cell magics whose body is Python all the same; under every other one the cell is another language, or hidden.
_PYTHON_CELLS = {"time", "timeit", "capture", "prun"}
_SPACE = regex(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


class Cell(NamedTuple):
    """One code cell: its number from 1 over all cells, its text, where that begins in the joint text, and its JSON value."""

    number: int
    source: str
    start: int
    first_line: int
    value: Span


class Notebook(NamedTuple):
    """raw: the JSON as it is in the file. text: the code cells as one Python text, character for character in place, with
    lines that only IPython understands blanked out. problems: cells that are not Python, with the reason.
    """

    raw: str
    text: str
    cells: tuple[Cell, ...]
    problems: tuple[tuple[int, str], ...]

    def cell_of_line(self, line: int) -> Cell:
        """The cell in which a line of the joint text stands."""
        return next(cell for cell in reversed(self.cells) if cell.first_line <= line)

    def place(self, location: Location) -> Location:
        """A place in the joint text as cell, line and column."""
        cell = self.cell_of_line(location.line)
        before = cell.first_line - 1
        return replace(location, line=location.line - before, end_line=location.end_line - before, cell=cell.number)

    def rewritten(self, edits: Iterable[Edit]) -> str:
        """The JSON with edits of the joint text in their cells.

        Raises ValueError for an edit across two cells, or of a line that was blanked out.
        """
        by_cell: dict[int, list[Edit]] = {}
        for item in edits:
            index = max(i for i, cell in enumerate(self.cells) if cell.start <= item.span.start)
            cell = self.cells[index]
            end = cell.start + len(cell.source)
            if item.span.start > end or item.span.end > end:
                raise ValueError("an edit across two cells")
            if self._touches_magic(cell, item):
                raise ValueError("an edit of lines that only IPython understands")
            span = Span(item.span.start - cell.start, item.span.end - cell.start)
            by_cell.setdefault(index, []).append(Edit(span, item.text))
        changes = []
        for index, inside in by_cell.items():
            value = self.cells[index].value
            before = self.raw[value.start : value.end]
            changes.append(Edit(value, _written_as(before, edit.apply(self.cells[index].source, inside))))
        return edit.apply(self.raw, changes)

    def diff_of_cells(self, path: str, edits: Iterable[Edit]) -> str:
        """What edits change in the text of each cell, one diff after the other."""
        parts = []
        for cell in self.cells:
            end = cell.start + len(cell.source)
            inside = [item for item in edits if cell.start <= item.span.start <= end]
            moved = [Edit(Span(e.span.start - cell.start, e.span.end - cell.start), e.text) for e in inside]
            parts.append(unified_diff.diff(f"{path}#cell-{cell.number}", cell.source, edit.apply(cell.source, moved)))
        return "".join(parts)

    def _touches_magic(self, cell: Cell, item: Edit) -> bool:
        """Whether an edit replaces, or carries a copy of, a line that was blanked out: it would write the blank."""
        python = self.text[cell.start : cell.start + len(cell.source)]
        begin, end = item.span.start - cell.start, item.span.end - cell.start
        if python[begin:end] != cell.source[begin:end]:
            return True
        lines = zip(python.split("\n"), cell.source.split("\n"), strict=True)
        return any(blank != own and blank.strip() and blank.strip() in item.text for blank, own in lines)


def read_notebook(raw: str) -> Notebook:
    """The notebook in a JSON text of nbformat 4. Raises Unreadable when it is none, or is not Python."""
    try:
        found = list(_cells(raw))
        language = _language(json.loads(raw))
    except (ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
        raise Unreadable(f"not a notebook that can be read: {error}") from error
    if language not in ("", "python"):
        raise Unreadable(f"a notebook in {language}")
    cells: list[Cell] = []
    problems: list[tuple[int, str]] = []
    parts: list[str] = []
    start, line = 0, 1
    for number, kind, source, value in found:
        if kind != "code":
            continue
        python, problem = _python_of(source)
        if problem:
            problems.append((number, problem))
        cells.append(Cell(number, source, start, line, value))
        joined = python if python.endswith("\n") else python + "\n"
        parts.append(joined)
        start, line = start + len(joined), line + len(NEWLINE.findall(joined))
    return Notebook(raw, "".join(parts), tuple(cells), tuple(problems))


def _language(notebook: dict[str, object]) -> str:
    """The kernel's language in small letters, "" where the notebook does not say."""
    metadata = notebook.get("metadata")
    for key in ("language_info", "kernelspec"):
        part = metadata.get(key) if isinstance(metadata, dict) else None
        name = part.get("name" if key == "language_info" else "language") if isinstance(part, dict) else None
        if isinstance(name, str):
            return "python" if "python" in name.lower() else name.lower()
    return ""


def _python_of(source: str) -> tuple[str, str]:
    """A cell's text with IPython's lines blanked out, of the same length, and why nothing of it can be read, or ""."""
    blank = re.sub(r"[^\n]", " ", source)
    first = source.lstrip()
    if first.startswith("%%"):
        if re.split(r"\W", first[2:], maxsplit=1)[0] not in _PYTHON_CELLS:
            return blank, ""  # another language, and meant so
        at = source.index("%%")
        end = source.find("\n", at)
        end = len(source) if end < 0 else end
        source = source[:at] + " " * (end - at) + source[end:]
    try:
        _parse(source)
        return source, ""
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    python = "\n".join(_without_magic(line) for line in source.split("\n"))
    try:
        _parse(python)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        if isinstance(error, SyntaxError):
            return blank, why_not_parsed(error)
        return blank, f"does not parse: {str(error) or 'nested too deeply'}"
    return python, ""


def _parse(text: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ast.parse(text)


def _without_magic(line: str) -> str:
    """The line itself, or a `0` and a comment of the same length where it is IPython's."""
    match = _MAGIC.match(line)
    if not match:
        return line
    if match["sign"] is None:
        indent = len(line) - len(line.lstrip())
        return (line[:indent] + "0#" + line[indent + 2 :])[: len(line)]
    return match["before"] + ("0#" + match["rest"][1:] if match["rest"] else "0")


# ---- JSON with positions ---------------------------------------------------------------------------------------------


def _cells(raw: str) -> Iterator[tuple[int, str, str, Span]]:
    """Number, kind, text and the place of the `source` value of every cell.

    Of a key that stands there twice the last counts, as for every reader of JSON: else other cells would be audited than
    Jupyter runs.
    """
    places = [at for key, at in _members(raw, _skip(raw, 0)) if key == "cells"]
    if not places:
        raise ValueError("it has no cells (nbformat 4 or later)")
    for number, begin in enumerate(_elements(raw, places[-1]), start=1):
        kind, source, place = "", "", None
        for name, where in _members(raw, begin):
            if name in ("cell_type", "source"):
                value, end = _DECODER.raw_decode(raw, where)
                if name == "cell_type":
                    kind = value
                else:
                    source = value if isinstance(value, str) else "".join(value)
                    place = Span(where, end)
        if place is not None:
            yield number, kind, source, place


def _skip(raw: str, at: int) -> int:
    match = _SPACE.match(raw, at)
    return match.end() if match else at


def _members(raw: str, at: int) -> Iterator[tuple[str, int]]:
    """Each key of the object that begins here, with where its value begins."""
    if raw[at : at + 1] != "{":
        raise ValueError(f"an object is missing at character {at}")
    at = _skip(raw, at + 1)
    while raw[at] != "}":
        key, at = _DECODER.raw_decode(raw, at)
        at = _skip(raw, _skip(raw, at) + 1)  # the colon
        yield key, at
        _, at = _DECODER.raw_decode(raw, at)
        at = _skip(raw, at)
        if raw[at] == ",":
            at = _skip(raw, at + 1)


def _elements(raw: str, at: int) -> Iterator[int]:
    """Where each element of the array that begins here begins."""
    if raw[at : at + 1] != "[":
        raise ValueError(f"a list is missing at character {at}")
    at = _skip(raw, at + 1)
    while raw[at] != "]":
        yield at
        _, at = _DECODER.raw_decode(raw, at)
        at = _skip(raw, at)
        if raw[at] == ",":
            at = _skip(raw, at + 1)


def _written_as(before: str, text: str) -> str:
    """The JSON value of a cell's new text in the form of its old one; lines that stay keep their very characters."""
    escape = before.isascii() and "\\u" in before
    if not before.startswith("["):
        return json.dumps(text, ensure_ascii=escape)
    kept: dict[str, str] = {}
    gap, first, last = "", "", ""
    ends: list[tuple[int, int]] = []
    for at in _elements(before, 0):
        line, end = _DECODER.raw_decode(before, at)
        kept[line] = before[at:end]
        ends.append((at, end))
    if ends:
        first, last = before[1 : ends[0][0]], before[ends[-1][1] : -1]
        gap = before[ends[0][1] : ends[1][0]] if len(ends) > 1 else "," + (first or " ")
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    return (
        "[" + first + gap.join(kept.get(line) or json.dumps(line, ensure_ascii=escape) for line in lines) + last + "]"
    )
