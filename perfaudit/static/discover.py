"""The Python files below the paths a user names, without what `.gitignore` excludes and without virtual environments."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.errors import UserError

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NEVER = {".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".tox", ".nox", ".mypy_cache", ".perfaudit"}


@dataclass(frozen=True, slots=True)
class File:
    """A file to audit; `named` when the user wrote its path, `shown_as` is the path in reports."""

    path: Path
    shown_as: str
    named: bool


def python_files(paths: Iterable[str], exclude: tuple[str, ...] = ()) -> list[File]:
    """Python files of the given files and folders, each once, in order of path within each argument.

    A file or folder that is named is taken even where `.gitignore` would leave it out; below a folder, the ignore
    files of the folder, its parents up to the repository's top, and its children hold. `exclude` are further patterns
    of the same language, relative to the working directory. Links to folders are not followed.
    Raises UserError for a path that does not exist.
    """
    found: dict[str, File] = {}
    for given in paths:
        path = Path(given)
        if path.is_file():
            found.setdefault(str(path.absolute()), File(path, shown(path), named=True))
        elif path.is_dir():
            for file in _walk(path, exclude):
                found.setdefault(str(file.absolute()), File(file, shown(file), named=False))
        else:
            what = "cannot be read" if path.is_symlink() else "does not exist"
            raise UserError(f"{given}: {what}; name a Python file or a folder, e.g. `perfaudit scan .`")
    return list(found.values())


def shown(path: Path) -> str:
    """The path as reports show it: relative to the working directory where it lies below, always with '/'."""
    absolute = Path(os.path.normpath(path.absolute()))
    try:
        return absolute.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return (
            Path(os.path.relpath(absolute)).as_posix() if absolute.anchor == Path.cwd().anchor else absolute.as_posix()
        )


def _walk(root: Path, exclude: tuple[str, ...]) -> list[Path]:
    top = Path(os.path.normpath(root.absolute()))
    ignores = [] if _ignored(top, above := _ignores_above(top)) else above
    excluded = _spec(exclude) if exclude else None
    files: list[Path] = []

    def visit(folder: Path, ignores: list[tuple[Path, GitIgnoreSpec]]) -> None:
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            return
        if any(entry.name == ".gitignore" for entry in entries):
            ignores = [*ignores, *_read_ignore(folder)]
        for entry in entries:
            path = folder / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if is_folder:
                if entry.name in NEVER or (path / "pyvenv.cfg").exists():
                    continue
            elif not entry.name.endswith(".py") or not entry.is_file():
                continue
            if _ignored(path, ignores, is_folder):
                continue
            if excluded is not None and excluded.match_file(shown(path) + ("/" if is_folder else "")):
                continue
            if is_folder:
                visit(path, ignores)
            else:
                files.append(root / path.relative_to(top))

    visit(top, ignores)
    return files


def _ignores_above(top: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    """Ignore files of the parents up to the top of the repository, outermost first; none outside a repository."""
    chain: list[Path] = []
    for folder in (top, *top.parents):
        if (folder / ".git").exists():
            return [spec for parent in reversed(chain) for spec in _read_ignore(parent)]
        chain.append(folder.parent)
    return []


def _read_ignore(folder: Path) -> list[tuple[Path, GitIgnoreSpec]]:
    try:
        text = (folder / ".gitignore").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(folder, _spec(text.splitlines()))]


def _spec(lines: Iterable[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _ignored(path: Path, ignores: list[tuple[Path, GitIgnoreSpec]], is_folder: bool = True) -> bool:
    """Whether the nearest ignore file that speaks of the path excludes it."""
    for folder, spec in reversed(ignores):
        verdict = spec.check_file(path.relative_to(folder).as_posix() + ("/" if is_folder else "")).include
        if verdict is not None:
            return verdict
    return False
