"""What the names of a file stand for: what it imports, and what it makes of that."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

from perfaudit.static.source.plain_subclass import PLAIN_BASES, same_signature
from perfaudit.static.source.syntax import FUNCTIONS, LOOPS
from perfaudit.static.source.torch_names import canonical
from perfaudit.static.source.variables import Variables

if TYPE_CHECKING:
    from perfaudit.static.project.neighbours import Neighbours


class Imports(Variables):
    """A tree with what its names stand for.

    neighbours: what the other files of the project say; without it every name of theirs is unknown.
    """

    def __init__(self, path: str, text: str, neighbours: Neighbours | None = None) -> None:
        super().__init__(path, text)
        self.neighbours = neighbours
        self._names_lent: list[str] = []  # what imported names stand for that are not spelled so here
        self._qualified_names: dict[int, str | None] = {}  # by the id of a node, of which many rules ask

    @cached_property
    def aliases(self) -> dict[str, str]:
        """What each imported name stands for; a name that is also defined otherwise, or twice differently, is left out."""
        found: dict[str, set[str]] = {}
        for statement in self.nodes(ast.Import):
            for alias in statement.names:
                name = alias.asname or alias.name.partition(".")[0]
                found.setdefault(name, set()).add(alias.name if alias.asname else name)
        for from_ in self.nodes(ast.ImportFrom):
            module = "." * from_.level + (from_.module or "")
            for alias in from_.names:
                if alias.name != "*":
                    joined = module if module.endswith(".") else module + "."
                    found.setdefault(alias.asname or alias.name, set()).add(canonical(joined + alias.name))
        for definition in self.definitions:
            if self.parent(definition) is self.tree and definition.name in found:
                found[definition.name].add("")
        written = {name: next(iter(targets)) for name, targets in found.items() if len(targets) == 1}
        meant = {name: self._torch_name(target) for name, target in written.items()}
        self._names_lent += [meant[name] for name, target in written.items() if meant[name] != target]
        return meant

    def _torch_name(self, dotted: str) -> str:
        """The documented name behind an imported one where other files of the project lead to torch, else the name itself."""
        if self.neighbours is None or dotted.startswith("torch."):
            return dotted
        return self.neighbours.torch_name(dotted) or dotted

    @cached_property
    def subclasses(self) -> dict[str, str]:
        """Classes of this module that take the arguments of their one base and compute the same, by the base's name."""
        found: dict[str, str] = {}
        for definition in self.nodes(ast.ClassDef):
            if len(definition.bases) != 1 or definition.keywords or self.parent(definition) is not self.tree:
                continue
            base = definition.bases[0]
            meant = found.get(base.id) if isinstance(base, ast.Name) else None
            meant = meant or self._imported_name(base)
            if meant in PLAIN_BASES and same_signature(definition) and self._binders[definition.name] == 1:
                found[definition.name] = meant
        return found

    @cached_property
    def _assigned_aliases(self) -> dict[str, str]:
        """Names bound once, at the top of the module, to something of torch's: `Loader = torch.utils.data.DataLoader`."""
        found: dict[str, str] = {}
        for statement in self.tree.body:
            if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
                continue
            target, value = statement.targets[0], statement.value
            if not isinstance(target, ast.Name) or not isinstance(value, (ast.Name, ast.Attribute)):
                continue
            parts = []
            while isinstance(value, ast.Attribute):
                parts.append(value.attr)
                value = value.value
            if not isinstance(value, ast.Name) or self._binders[target.id] != 1 or target.id in self.aliases:
                continue
            is_taken = value.id in self.assigned_names and self._is_shadowed(value)
            root = found.get(value.id) or (None if is_taken else self.aliases.get(value.id))
            if root and root.partition(".")[0] == "torch":
                found[target.id] = canonical(".".join([root, *reversed(parts)]))
        return found

    @cached_property
    def _project_stars(self) -> tuple[str, ...]:
        """Modules of the project from which everything is imported, the last one first."""
        if self.neighbours is None:
            return ()
        found = []
        for statement in self.nodes(ast.ImportFrom):
            module = "." * statement.level + (statement.module or "")
            if statement.names[0].name == "*" and module.partition(".")[0] != "torch":
                found.append(module if module.endswith(".") else module + ".")
        return tuple(reversed(found))

    def _name_from_star(self, name: str) -> str:
        """What a name stands for that only a star import of the project can have bound, "" if that does not lead to torch."""
        if not self._project_stars or self.neighbours is None or name in self.assigned_names:
            return ""
        return next((found for star in self._project_stars if (found := self.neighbours.torch_name(star + name))), "")

    @cached_property
    def module_imports(self) -> frozenset[str]:
        """Names that imports bind for the whole file: not inside a function or class, not for type checkers only."""
        names: set[str] = set()
        imports: list[ast.Import | ast.ImportFrom] = [*self.nodes(ast.Import), *self.nodes(ast.ImportFrom)]
        for statement in imports:
            around = list(self.ancestors(statement))
            hidden = any(isinstance(a, ast.If) and "TYPE_CHECKING" in self.text_of(a.test) for a in around)
            if not hidden and not any(isinstance(a, (*FUNCTIONS, ast.ClassDef)) for a in around):
                names.update(alias.asname or alias.name.partition(".")[0] for alias in statement.names)
        return frozenset(names)

    @cached_property
    def star_modules(self) -> tuple[str, ...]:
        """Modules of torch from which everything is imported."""
        modules = [n.module or "" for n in self.nodes(ast.ImportFrom) if not n.level and n.names[0].name == "*"]
        return tuple(module for module in modules if module.partition(".")[0] == "torch")

    @cached_property
    def imports_torch(self) -> bool:
        """Whether the file imports torch, or a file of the project that does."""
        if any(name.partition(".")[0] == "torch" for name in self.aliases.values()) or self.star_modules:
            return True
        return self.neighbours is not None and self.neighbours.imports_a_marked_file("torch", self._imported_modules)

    @property
    def _imported_modules(self) -> Iterator[str]:
        for statement in self.nodes(ast.Import):
            yield from (alias.name for alias in statement.names)
        for from_ in self.nodes(ast.ImportFrom):
            module = "." * from_.level + (from_.module or "")
            joined = module if module.endswith(".") else module + "."
            yield from (module, *(joined + alias.name for alias in from_.names))

    def qualified_name(self, node: ast.AST | None) -> str | None:
        """The documented dotted name an expression refers to through imports, or None.

        `nn.Conv2d` is "torch.nn.Conv2d" after `from torch import nn`. A name that is bound as a parameter or assigned
        in the function around it is that variable, and None here.
        """
        key = id(node)
        if key in self._qualified_names:
            return self._qualified_names[key]
        if isinstance(node, ast.Name) and node.id in self.subclasses:
            name: str | None = self.subclasses[node.id]
        else:
            name = self._imported_name(node)
        if (
            key in self._parents
        ):  # one of the tree, which stays; what a check makes for itself has the id of something else soon
            self._qualified_names[key] = name
        return name

    def _imported_name(self, node: ast.AST | None) -> str | None:
        if isinstance(node, ast.Attribute):
            value = self._imported_name(node.value)
            if not value:
                return None
            dotted = f"{value}.{node.attr}"
            return canonical(dotted) if value.startswith("torch") else self._torch_name(dotted)
        if not isinstance(node, ast.Name):
            return None
        target = self.aliases.get(node.id)
        if target is None:
            if isinstance(node.ctx, ast.Load) and (meant := self._assigned_aliases.get(node.id)):
                return meant
            if found := self._name_from_star(node.id):
                return found
            if self.star_modules and node.id not in self.assigned_names:
                return canonical(f"{self.star_modules[-1]}.{node.id}")
            return None
        return None if node.id in self.assigned_names and self._is_shadowed(node) else target

    def _is_shadowed(self, name: ast.Name) -> bool:
        for scope in (name, *self.ancestors(name)):
            if isinstance(scope, (*FUNCTIONS, ast.Lambda)) and name.id in self.bound_in(scope):
                return True
        bound = self.bound_in(self.tree).get(name.id, ())
        return not all(self._replaces_import(node) or self._is_bound_later(node, name) for node in bound)

    def _is_bound_later(self, binding: ast.AST, name: ast.Name) -> bool:
        """Whether a name of the module is read before it is bound, in no loop with that: `for i, data in enumerate(...)`.

        Then it still is what was imported: `from torch.utils import data`, of which the loop before took its loader. So it is
        in what it is bound to: `model = model.Net()` behind `import model`.
        """
        if not isinstance(binding, ast.Name) or self.scope(name) is not self.tree:
            return False
        statement = self.statement(binding)
        value = statement.value if isinstance(statement, (ast.Assign, ast.AnnAssign)) else None
        is_in_value = value is not None and any(ancestor is value for ancestor in self.ancestors(name))
        if not is_in_value and not self.span(name).end <= self.span(binding).start:
            return False
        around = {id(ancestor) for ancestor in self.ancestors(name) if isinstance(ancestor, LOOPS)}
        return not any(id(ancestor) in around for ancestor in self.ancestors(binding))

    def _replaces_import(self, binding: ast.AST) -> bool:
        """Whether a name is bound to None where its import failed: `except ImportError: torch = None`."""
        statement = self.parent(binding)
        around = self.parent(statement) if isinstance(statement, ast.Assign) else None
        attempt = self.parent(around) if isinstance(around, ast.ExceptHandler) else None
        if (
            not isinstance(statement, ast.Assign)
            or not isinstance(attempt, ast.Try)
            or not isinstance(binding, ast.Name)
        ):
            return False
        if not isinstance(statement.value, ast.Constant) or statement.value.value is not None:
            return False
        imported = [item for item in attempt.body if isinstance(item, (ast.Import, ast.ImportFrom))]
        names = [alias.asname or alias.name.partition(".")[0] for item in imported for alias in item.names]
        return binding.id in names
