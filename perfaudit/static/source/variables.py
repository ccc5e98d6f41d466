"""Which nodes of a file bind a name, and where it is read."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Set
from functools import cached_property

from perfaudit.static.source.places import Places
from perfaudit.static.source.syntax import FUNCTIONS

_SCOPES_OF_VARIABLES = {*FUNCTIONS, ast.Lambda, ast.Module}  # classes are skipped


class Variables(Places):
    """A tree with the variables of each of its scopes. Imports are none of them."""

    def __init__(self, path: str, text: str) -> None:
        super().__init__(path, text)
        self._variables: dict[str, list[tuple[list[ast.AST], list[ast.Name]]]] = {}  # by name: what binds it, its reads

    @cached_property
    def _names_bound(self) -> list[ast.Name]:
        """Names that are assigned, deleted or looped over, in document order."""
        return [node for node in self.nodes(ast.Name) if node.ctx.__class__ is not ast.Load]

    @cached_property
    def names_stored(self) -> frozenset[str]:
        """Names that are assigned or looped over somewhere in the file."""
        return frozenset(node.id for node in self._names_bound if isinstance(node.ctx, ast.Store))

    @cached_property
    def _binders(self) -> Counter[str]:
        """How often each name is bound in the file, by something else than an import."""
        found = Counter(node.id for node in self._names_bound)
        found.update(argument.arg for argument in self.nodes(ast.arg))
        found.update(definition.name for definition in self.definitions)
        return found

    @cached_property
    def assigned_names(self) -> frozenset[str]:
        """Every name bound in the file by something else than an import: assigned, looped over, a parameter, defined."""
        names = {node.id for node in self._names_bound}
        names.update(argument.arg for argument in self.nodes(ast.arg))
        names.update(definition.name for definition in self.definitions)
        return frozenset(names)

    def bound_in(self, scope: ast.AST) -> dict[str, list[ast.AST]]:
        """Names bound in one function, class or module (not in nested ones), each with the nodes that bind it.

        A binding node is the target `ast.Name`, the `ast.arg`, or the definition. Imports are not in it.
        """
        return self._bindings.get(id(scope), {})

    @cached_property
    def _bindings(self) -> dict[int, dict[str, list[ast.AST]]]:
        table: dict[int, dict[str, list[ast.AST]]] = {}
        elsewhere: dict[tuple[int, str], ast.AST] = {}  # names that a function binds further out
        declared: list[ast.Global | ast.Nonlocal] = [*self.nodes(ast.Global), *self.nodes(ast.Nonlocal)]
        for statement in declared:
            scope = self.scope(statement)
            outer = self.enclosing(scope, *FUNCTIONS) if isinstance(statement, ast.Nonlocal) else None
            elsewhere.update(((id(scope), name), outer or self.tree) for name in statement.names)
        bound: list[tuple[str, ast.AST]] = [(name.id, name) for name in self._names_bound]
        bound += [(argument.arg, argument) for argument in self.nodes(ast.arg)]
        bound += [(definition.name, definition) for definition in self.definitions]
        for name, node in bound:
            owner = self.scope(node)
            if elsewhere:
                owner = elsewhere.get((id(owner), name), owner)
            table.setdefault(id(owner), {}).setdefault(name, []).append(node)
        return table

    def lookup(self, name: ast.Name) -> list[ast.AST]:
        """The nodes that bind this name in the nearest scope that binds it (classes are skipped, as Python does)."""
        if name.id not in self.assigned_names:
            return []
        parents, bindings = self._parents, self._bindings
        scope = parents.get(id(name))
        while scope is not None:
            if scope.__class__ in _SCOPES_OF_VARIABLES and id(scope) in bindings:
                bound = bindings[id(scope)].get(name.id)
                if bound:
                    return bound
            scope = parents.get(id(scope))
        return []

    @cached_property
    def _loads(self) -> dict[str, list[ast.Name]]:
        table: dict[str, list[ast.Name]] = {}
        for name in self.nodes(ast.Name):
            if name.ctx.__class__ is ast.Load:
                table.setdefault(name.id, []).append(name)
        return table

    @property
    def names_read(self) -> Set[str]:
        """Every name that is read somewhere in the file."""
        return self._loads.keys()

    def reads_of(self, name: str) -> list[ast.Name]:
        """Every read of a name, whatever it stands for."""
        return self._loads.get(name, [])

    def uses_of(self, binding: ast.AST, name: str) -> list[ast.Name]:
        """Every read of the variable that this node binds, in its scope and the functions nested in it."""
        if name not in self._variables:
            by_variable: dict[int, tuple[list[ast.AST], list[ast.Name]]] = {}
            for use in self.reads_of(name):
                bound = self.lookup(use)
                by_variable.setdefault(id(bound), (bound, []))[1].append(use)
            self._variables[name] = list(by_variable.values())
        return [u for bound, uses in self._variables[name] if any(node is binding for node in bound) for u in uses]
