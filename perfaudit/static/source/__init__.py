"""One Python file as checks see it: text, tree, positions, parents, names. Must not import torch, pandas or rich."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.expressions import names_found
from perfaudit.static.source.imports import Imports
from perfaudit.static.source.plain_subclass import PLAIN_BASES
from perfaudit.static.source.reading import Unreadable, decode_source, read_text
from perfaudit.static.source.syntax import FUNCTIONS, LOOPS, Function, Loop

if TYPE_CHECKING:
    from perfaudit.static.project.neighbours import Neighbours

__all__ = [
    "FUNCTIONS",
    "LOOPS",
    "Function",
    "Loop",
    "Source",
    "Unreadable",
    "decode_source",
    "read_source",
    "read_text",
]

# What is no letter, digit or underscore of ASCII becomes a space.
_WORDS_ALONE = bytes(n if n < 128 and (chr(n).isalnum() or n == ord("_")) else ord(" ") for n in range(256))
_LAST_NAMES = {"StatefulDataLoader": "DataLoader"}  # as written, and of what it stands for


class Source(Imports):
    """The text and tree of one file, with everything checks ask about places and names.

    It is built in layers, each of which asks only those below it: `Tree`, `Places`, `Variables`, `Imports`, and the calls here.

    path: as it is reported, relative to the working directory, with '/'; of a neighbour its name alone, and `reported_as` is
    what path would be. neighbours: what the other files of the project say; without it every name of theirs is unknown.
    Raises Unreadable when the text does not parse.
    """

    def __init__(self, path: str, text: str, neighbours: Neighbours | None = None) -> None:
        super().__init__(path, text, neighbours)
        self.reported_as = path
        self._mentioned: dict[str, bool] = {}  # by word, which some ask for at every node
        self._called: dict[str, list[ast.Call]] = {}  # by documented name, which several checks ask for

    @functools.cached_property
    def _calls_by_last_name(self) -> dict[str, list[ast.Call]]:
        """Calls by the last part of what is called, as written, and of what it stands for where it is an alias."""
        table: dict[str, list[ast.Call]] = {}
        written: set[str] = set()
        for call in self.nodes(ast.Call):
            if isinstance(call.func, ast.Attribute):
                written.add(call.func.attr)
                table.setdefault(self._last_name_meant(call.func), []).append(call)
            elif isinstance(call.func, ast.Name):
                name = call.func.id
                written.add(name)
                target = self.aliases.get(name) or self.subclasses.get(name) or self._name_from_star(name)
                target = target or self._assigned_aliases.get(name) or name
                table.setdefault(target.rpartition(".")[2], []).append(call)
        self._names_lent += table.keys() - written
        return table

    def _last_name_meant(self, function: ast.Attribute) -> str:
        """The last name of an attribute, of what it stands for where it is that of another file of the project."""
        owner = function.value
        if self.neighbours is None or not isinstance(owner, ast.Name) or owner.id not in self.aliases:
            return _LAST_NAMES.get(function.attr, function.attr)
        is_torchs = self.aliases[owner.id].partition(".")[0] == "torch"
        return function.attr if is_torchs else (self._imported_name(function) or function.attr).rpartition(".")[2]

    def mentions(self, word: str) -> bool:
        """Whether a word stands in the text, or in a name of torch's for which another one stands here.

        The cheapest question about a file; other files of the project may lend it names of torch's that it never spells.
        """
        if word not in self._mentioned:
            is_name = word.isascii() and word.isidentifier()
            is_here = word.encode() in self._vocabulary if is_name else word in self.text
            self._mentioned[word] = is_here or (self.neighbours is not None and word in self._names_meant)
        return self._mentioned[word]

    @functools.cached_property
    def _vocabulary(self) -> bytes:
        """Each word of the text once: a fifth of the text, which is asked for a hundred words."""
        return b" ".join(set(self.text.encode("utf-8", "surrogatepass").translate(_WORDS_ALONE).split()))

    @functools.cached_property
    def _names_meant(self) -> str:
        """What imported names and the last names of what is called stand for, one a line, where the text spells another name."""
        assert self.aliases is not None and self._calls_by_last_name is not None, "which both note what is lent"
        return "\n".join(self._names_lent)

    def calls_named(self, pattern: re.Pattern[str]) -> list[ast.Call]:
        """Calls whose last name, as in `_calls_by_last_name`, the pattern finds."""
        table = self._calls_by_last_name
        found = names_found(pattern, table.keys())
        return [call for name in table if name in found for call in table[name]] if found else []

    def calls(self, name: str) -> list[ast.Call]:
        """Calls of a documented dotted name ("torch.nn.Conv2d"), or of any method of a name (".item")."""
        candidates = self._calls_by_last_name.get(name.rpartition(".")[2])
        if candidates is None:
            candidates = []
            if name not in PLAIN_BASES:
                return candidates
        if name.startswith("."):
            return [call for call in candidates if isinstance(call.func, ast.Attribute)]
        if name not in self._called:
            found = [call for call in candidates if self.qualified_name(call.func) == name]
            if name in PLAIN_BASES:
                found += self._super_inits.get(name, [])
                found += [call for call, made in self._partials.values() if self.qualified_name(made.args[0]) == name]
            self._called[name] = found
        return self._called[name][:]

    def partial_behind(self, call: ast.Call) -> ast.Call | None:
        """The `functools.partial(DataLoader, ...)` for whose name a call stands, None for any other call."""
        return self._partials.get(id(call), (call, None))[1]

    @functools.cached_property
    def _partials(self) -> dict[int, tuple[ast.Call, ast.Call]]:
        """By id each call of a name that is once bound, to a loader with some of its arguments; beside that binding."""
        found = {}
        for made in self._calls_by_last_name.get("partial", []):
            statement = self.parent(made)
            if not isinstance(statement, ast.Assign) or not isinstance(name := statement.targets[0], ast.Name):
                continue
            if self.qualified_name(made.func) != "functools.partial" or not made.args or len(self.lookup(name)) != 1:
                continue
            if self.qualified_name(made.args[0]) != "torch.utils.data.DataLoader" or len(statement.targets) != 1:
                continue
            for use in self.uses_of(name, name.id):
                call = self.parent(use)
                if isinstance(call, ast.Call) and call.func is use:
                    found[id(call)] = call, made
        return found

    @functools.cached_property
    def _super_inits(self) -> dict[str, list[ast.Call]]:
        """Calls of `super().__init__(...)` in direct subclasses of a loader: they hand its arguments over, by its base."""
        found: dict[str, list[ast.Call]] = {}
        for call in self._calls_by_last_name.get("__init__", []):
            func = call.func
            if not (isinstance(func, ast.Attribute) and isinstance(func.value, ast.Call)):
                continue
            if not (isinstance(func.value.func, ast.Name) and func.value.func.id == "super"):
                continue
            around = self.enclosing(call, ast.ClassDef)
            if around is not None and len(around.bases) == 1 and not around.keywords:
                base = self.qualified_name(around.bases[0])
                if base == "torch.utils.data.DataLoader":
                    found.setdefault(base, []).append(call)
        return found


def read_source(path: Path, shown_as: str) -> Source:
    """The file as a Source. Raises Unreadable with the reason, in words, when it cannot be audited."""
    return Source(shown_as, read_text(path)[0])
