"""The user's source as a knob edits it: calls that built things, factories, the top of the file, fixes of findings."""

from __future__ import annotations

import ast
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit.findings import Edit, Location
from perfaudit.knobs._survey import Survey
from perfaudit.reading import read_bytes
from perfaudit.static import edit, unified_diff
from perfaudit.static.discover import shown_path
from perfaudit.static.fix import together
from perfaudit.static.source import Source, Unreadable, read_source

Site = Sequence[Any]  # path, line, end line, byte column, end byte column: a `CallSite`, or as a child sends it


@dataclass(frozen=True, slots=True)
class Patch:
    """Edits of one file. `after` is the whole text with them; edits count characters from its start."""

    path: str
    edits: tuple[Edit, ...]
    before: str
    after: str
    location: Location
    changes: tuple[str, ...] | None = None  # what the fixes of findings change; None where the knob says it

    @property
    def diff(self) -> str:
        return unified_diff.diff(self.path, self.before, self.after)


@dataclass(frozen=True, slots=True)
class Code:
    """What can be edited: files of the project, found through what a child said of the training it built."""

    file: str  # of the target
    survey: Survey

    def source(self, path: str | None) -> Source | None:
        """A file of the project; None for one outside of it, that cannot be read, or that is not what the child ran any more."""
        return read_project(path, self.survey.facts.digests)

    def entry(self) -> Source | None:
        """The target's file."""
        return self.source(self.file)

    def call(self, site: Site | None) -> tuple[Source, ast.Call] | None:
        """The call that stands at exactly this place; None where it cannot be found or is not the project's."""
        return call_at(self.source(site[0]), site) if site is not None else None

    def factory(self, role: str) -> tuple[Source, ast.FunctionDef] | None:
        """The function that is called for a role ("model", "step", …), None where it is no plain function of the project."""
        from perfaudit.static.rewrite import function_named

        facts = self.survey.facts
        name = facts.factories.get(role, "")
        source = self.source(facts.factory_files.get(role)) if name else None
        function = function_named(source, name) if source is not None else None
        return (source, function) if source is not None and function is not None else None

    def patch(self, source: Source, node: ast.AST | None, edits: tuple[Edit, ...] | None) -> Patch | None:
        """These edits as a patch at this node's place (the first line without one); None if they leave no valid file."""
        if not edits:
            return None
        after = edit.apply(source.text, edits)
        try:
            ast.parse(after)
        except SyntaxError:
            return None
        place = source.location(node) if node is not None else Location(source.path, 1, 1, 1, 1)
        return Patch(source.path, tuple(edits), source.text, after, place)

    def fixes(self, rules: tuple[str, ...]) -> Patch | None:
        """All fixes of these rules' findings in one file (the first that has any) together."""
        wanted = [
            f
            for f in self.survey.findings
            if f.rule in rules and f.location is not None and inside_project(f.location.path)
        ]
        done = together(wanted)
        if done is None or done.applied[0].location is None:
            return None
        return Patch(done.path, done.edits, done.before, done.after, done.applied[0].location, done.changes)


def read_project(path: str | None, digests: Mapping[str, str]) -> Source | None:
    """A file of the project; None for one outside of it, that cannot be read, or whose digest is another one here.

    digests: SHA-256 of what a child imported, by real path. In a file that has changed since, places mean other calls.
    """
    if path is None or not inside_project(path):
        return None
    ran = digests.get(os.path.realpath(path))
    try:
        if ran is not None and hashlib.sha256(read_bytes(path)).hexdigest() != ran:
            return None
        return read_source(Path(path), shown_path(Path(path)))
    except (OSError, Unreadable):
        return None


def call_at(source: Source | None, site: Site) -> tuple[Source, ast.Call] | None:
    """The call that stands at exactly this place of a text; None where it cannot be found."""
    for call in source.nodes(ast.Call) if source is not None else ():
        if (call.lineno, call.end_lineno, call.col_offset, call.end_col_offset) == tuple(site[1:]):
            assert source is not None
            return source, call
    return None


def built_at(site: Site | None) -> str:
    """ " (train.py:12)" for a call of the project, "" for what no line of it has built."""
    if not site or not inside_project(site[0]):
        return ""
    return f" ({os.path.relpath(site[0])}:{site[1]})"


def inside_project(path: str) -> bool:
    """Whether a file lies below the working directory: patches touch nothing else."""
    return not os.path.relpath(os.path.realpath(path), os.path.realpath(Path.cwd())).startswith("..")
