"""Where a patch changes a Python file: the smallest runs of statements that it replaces. Reads two texts, runs nothing."""

from __future__ import annotations

import ast
import copy
import difflib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from perfaudit.training.code_change import Import, added_imports, parse_source

Way = tuple[str | int, ...]  # from a module to a list of statements: field, index, field, index, …, field
_BODIES = ("body", "orelse", "finalbody")
_HOLDERS = ("handlers", "cases")  # of what has a body, and is no statement itself


@dataclass(frozen=True, slots=True)
class Place:
    """Statements `start` to `stop` of one body that a patch replaces. after: what stands there then, at the lines of before.

    key: tells apart what different patches put there.
    """

    way: Way
    start: int
    stop: int
    key: str
    after: tuple[ast.stmt, ...] = field(compare=False)

    @property
    def order(self) -> Way:
        """See `order_of`."""
        return order_of(self.way, self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Edited:
    """What a patch changes of one file: places, and imports that it adds at the top level."""

    places: tuple[Place, ...]
    imports: tuple[Import, ...] = ()


def order_of(way: Way, start: int, stop: int) -> Way:
    """A key that sorts places which do not overlap: within a list of statements, later ones are larger.

    What is put before a statement comes before what is changed in it.
    """
    return (*(step if isinstance(step, str) else 2 * step + 1 for step in way), 2 * start + (start < stop))


def edited_places(before: str, after: str, path: str = "") -> Edited:
    """What the text `after` changes of the text `before`. Raises NotSwappable where one is no Python."""
    old, new = parse_source(before, path), parse_source(after, path)
    imports, rest = added_imports(old, new)
    lines = _line_of_each(before, after)
    found = [
        Place(way, start, stop, "\n".join(map(ast.dump, replaced)), tuple(_at_lines(s, lines) for s in replaced))
        for way, start, stop, replaced in _compare(old.body, rest, ("body",))
    ]
    return Edited(tuple(found), imports)


def statements_at(tree: ast.AST, way: Sequence[str | int]) -> list[ast.stmt]:
    """The list of statements at the end of a way."""
    at: object = tree
    for step in way:
        at = getattr(at, step) if isinstance(step, str) else at[step]  # type: ignore[index]  # a list follows a field
    assert isinstance(at, list)
    return at


def nodes_on(tree: ast.AST, way: Sequence[str | int]) -> Iterator[ast.AST]:
    """The statements, handlers and cases that a way leads through, outer ones first."""
    at: object = tree
    for step in way:
        at = getattr(at, step) if isinstance(step, str) else at[step]  # type: ignore[index]  # a list follows a field
        if isinstance(at, ast.AST):
            yield at


def patched_statements(
    body: Sequence[ast.stmt], way: Way, start: int, stop: int, places: Sequence[Place]
) -> list[ast.stmt]:
    """Copies of the statements `start` to `stop` of the body at `way`, with these places, all inside of it, replaced."""
    own = [copy.deepcopy(statement) for statement in body[start:stop]]
    for place in sorted(places, key=lambda each: each.order, reverse=True):
        after = [copy.deepcopy(statement) for statement in place.after]
        if place.way == way:
            own[place.start - start : place.stop - start] = after
        else:
            index, *rest = place.way[len(way) :]
            assert isinstance(index, int)
            statements_at(own[index - start], rest)[place.start : place.stop] = after
    return own


def _compare(
    old: Sequence[ast.stmt], new: Sequence[ast.stmt], way: Way
) -> Iterator[tuple[Way, int, int, Sequence[ast.stmt]]]:
    """The smallest runs of statements that differ: where they stand, and what stands there in the new text.

    Statements that hold others are paired by their heads, so that a change in a loop's body does not replace the loop.
    """
    matcher = difflib.SequenceMatcher(None, [_head(s) for s in old], [_head(s) for s in new], autojunk=False)
    for kind, i, j, k, m in matcher.get_opcodes():
        if kind == "equal":
            for at in range(j - i):
                yield from _compare_inside(old[i + at], new[k + at], (*way, i + at))
        elif j - i == m - k:
            for at in range(j - i):
                yield way, i + at, i + at + 1, new[k + at : k + at + 1]
        else:
            yield way, i, j, new[k:m]


def _compare_inside(old: ast.AST, new: ast.AST, way: Way) -> Iterator[tuple[Way, int, int, Sequence[ast.stmt]]]:
    for name, before in ast.iter_fields(old):
        after = getattr(new, name)
        if name in _BODIES and isinstance(before, list):
            yield from _compare(before, after, (*way, name))
        elif name in _HOLDERS:
            for at, (one, other) in enumerate(zip(before, after, strict=True)):
                yield from _compare_inside(one, other, (*way, name, at))


def _head(node: ast.AST) -> str:
    """All of a statement but the statements in it; of a simple one, everything."""
    parts = [type(node).__name__]
    for name, value in ast.iter_fields(node):
        if name in _BODIES and isinstance(value, list):
            continue
        items = value if isinstance(value, list) else [value]
        parts.append(f"{name}={len(items)}")
        parts += [
            (_head(item) if name in _HOLDERS else ast.dump(item)) if isinstance(item, ast.AST) else repr(item)
            for item in items
        ]
    return " ".join(parts)


def _line_of_each(before: str, after: str) -> list[int]:
    """For each line of `after`, counted from 1, the line of `before` that it stands for; its indentation may differ."""
    old, new = ([line.strip() for line in text.split("\n")] for text in (before, after))
    found = [1] * (len(new) + 2)
    for kind, i, j, k, m in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        for at in range(k, m):
            found[at + 1] = i + (at - k if kind == "equal" else max(0, min(at - k, j - i - 1))) + 1
    return found


def _at_lines(statement: ast.stmt, lines: Sequence[int]) -> ast.stmt:
    """A copy whose nodes lie at these lines, for tracebacks; columns are given up, since those of the old text mean nothing."""
    own = copy.deepcopy(statement)
    for node in ast.walk(own):
        if isinstance(getattr(node, "lineno", None), int):
            line = lines[min(node.lineno, len(lines) - 1)]  # type: ignore[attr-defined]  # just looked at
            node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    return own
