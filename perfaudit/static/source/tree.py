"""The tree of a text: its nodes by kind, and what is around each."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TypeVar

from perfaudit.static.source.reading import Unreadable, why_not_parsed
from perfaudit.static.source.syntax import Function, child_fields

N = TypeVar("N", bound=ast.AST)
_SCOPES = {ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef}


class Tree:
    """A text and its tree. Raises Unreadable when it does not parse."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        try:
            with warnings.catch_warnings():  # of the code that is read ("invalid escape sequence"): not our subject
                warnings.simplefilter("ignore")
                self.tree = ast.parse(text)
        except SyntaxError as error:
            raise Unreadable(why_not_parsed(error)) from error
        except ValueError as error:  # null bytes before Python 3.12
            raise Unreadable(f"does not parse: {error}") from error
        except (RecursionError, MemoryError) as error:
            raise Unreadable("nested too deeply to parse") from error
        self._by_type: dict[type, list[ast.AST]] = {}
        self._parents: dict[int, ast.AST] = {}  # by id; attributes of the nodes would make cycles of every tree
        self.answers: dict[object, dict[tuple[object, ...], object]] = {}  # by question, see `understanding.answers`
        self._places_in_blocks: dict[
            int, dict[int, tuple[list[ast.stmt], int]]
        ] = {}  # by the id of what holds the blocks
        self._index()

    def _index(self) -> None:
        """One walk in document order: every node by type, and the parent of each. A fifth of a scan: mind each line."""
        parents = self._parents
        known: dict[type, tuple[Callable[[ast.AST], None], tuple[str, ...]]] = {}  # where a kind is noted; its fields
        stack: list[ast.AST] = [self.tree]
        take, put = stack.pop, stack.append
        while stack:
            node = take()
            kind = node.__class__
            try:
                note, names = known[kind]
            except KeyError:
                bucket = self._by_type[kind] = []
                note, names = known[kind] = bucket.append, child_fields(kind)[::-1]
            note(node)
            for name in names:
                value = getattr(node, name)
                if value.__class__ is list:
                    for child in value[::-1]:
                        if child is not None:
                            parents[id(child)] = node
                            put(child)
                elif isinstance(value, ast.AST):  # a name is a text
                    parents[id(value)] = node
                    put(value)

    def nodes(self, *kinds: type[N]) -> list[N]:
        """Every node of these exact types, in document order within each type."""
        if len(kinds) == 1:
            return self._by_type.get(kinds[0], [])[:]  # type: ignore[return-value]  # of the type by which it is kept
        return [node for kind in kinds for node in self._by_type.get(kind, ())]  # type: ignore[misc]

    def parent(self, node: ast.AST) -> ast.AST | None:
        return self._parents.get(id(node))

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """From the parent outwards to the module."""
        parents = self._parents
        current = parents.get(id(node))
        while current is not None:
            yield current
            current = parents.get(id(current))

    def way_out(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """What stands around a node, from the inside, each with its child on the way."""
        child = node
        for ancestor in self.ancestors(node):
            yield ancestor, child
            child = ancestor

    def enclosing(self, node: ast.AST, *kinds: type[N], within: ast.AST | None = None) -> N | None:
        """The nearest ancestor of one of these types, or None; looks no further out than `within` (exclusive)."""
        parents = self._parents
        ancestor = parents.get(id(node))
        while ancestor is not None and ancestor is not within:
            if isinstance(ancestor, kinds):
                return ancestor
            ancestor = parents.get(id(ancestor))
        return None

    def scope(self, node: ast.AST) -> ast.AST:
        """The function, lambda, class or module in which the node stands."""
        parents = self._parents
        ancestor = parents.get(id(node))
        while ancestor is not None and ancestor.__class__ not in _SCOPES:
            ancestor = parents.get(id(ancestor))
        return ancestor or self.tree

    def statement(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that holds the node (the node itself if it is one)."""
        while not isinstance(node, ast.stmt):
            node = self._parents[id(node)]
        return node

    def block(self, statement: ast.stmt) -> list[ast.stmt]:
        """The list of statements that this one is an element of."""
        return self.place_in_block(statement)[0]

    def before(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statements of its block that stand before this one."""
        block, place = self.place_in_block(statement)
        return block[:place]

    def place_in_block(self, statement: ast.stmt) -> tuple[list[ast.stmt], int]:
        """The list of statements that this one is an element of, and its index there."""
        parent = self._parents.get(id(statement))
        places = self._places_in_blocks.get(id(parent))
        if places is None:  # all of a block at once: some have thousands of statements
            places = self._places_in_blocks[id(parent)] = {}
            for name in ("body", "orelse", "finalbody", "handlers"):
                block = getattr(parent, name, None)
                if isinstance(block, list):
                    places.update((id(item), (block, place)) for place, item in enumerate(block))
        return places.get(id(statement)) or ([statement], 0)

    @cached_property
    def definitions(self) -> list[Function | ast.ClassDef]:
        """Every function and class of the file, nested ones too."""
        return [*self.nodes(ast.FunctionDef), *self.nodes(ast.AsyncFunctionDef), *self.nodes(ast.ClassDef)]
