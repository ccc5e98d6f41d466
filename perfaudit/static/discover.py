"""The Python files below the paths a user names, without what `.gitignore` excludes and without virtual environments."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.errors import UserError, refusal
from perfaudit.ownership import folders_above, is_ours
from perfaudit.reading import MAX_SETTINGS_BYTES, read_bytes
from perfaudit.records import NamedTuple

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec, Pattern

    Ignores = list[tuple[Path, GitIgnoreSpec]]  # folder of each ignore file and what it says, outermost first

NEVER = {
    ".git",
    ".hg",
    ".svn",
    "__pycache__",
    "node_modules",
    "site-packages",
    ".venv",
    ".tox",
    ".nox",
    ".mypy_cache",
    ".perfaudit",
    ".ipynb_checkpoints",
}
SUFFIXES = (".py", ".ipynb")
MARKS_OF_ENVIRONMENTS = {"pyvenv.cfg", "conda-meta"}


class File(NamedTuple):
    """A file to audit; `named` when the user wrote its path, `shown_as` is the path in reports.

    `inside` is the path below the folder in which it was found, which may be called "tests" itself. `problem` says why it
    cannot be read, where that is known already; then it may be a folder.
    """

    path: Path
    shown_as: str
    named: bool
    problem: str = ""
    inside: str = ""

    @property
    def is_stray_link(self) -> bool:
        """Whether this is a link found below a folder: it may lead anywhere, so what it leads to is not written."""
        return not self.named and self.path.is_symlink()


class RealPaths:
    """The paths of many files with links resolved: the way to their folder is followed once."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def of(self, path: Path) -> str:
        """What `os.path.realpath` gives."""
        folder, name = os.path.split(path)
        if name in ("", os.curdir, os.pardir) or path.is_symlink() or os.name == "nt":  # which knows names in any case
            return os.path.realpath(path)
        if folder not in self._folders:
            self._folders[folder] = os.path.realpath(folder)
        return os.path.join(self._folders[folder], name)  # noqa: PTH118  # a path of its own takes ten times as long


def python_files(
    paths: Iterable[str],
    exclude: tuple[str, ...] = (),
    base: Path | None = None,
    named_too: bool = False,
    seen_from: Path | None = None,
) -> list[File]:
    """Python files of the given files and folders, each once, in order of path within each argument.

    A file or folder that is named is taken even where `.gitignore` would leave it out; below a folder, the ignore
    files of the folder, its parents up to the repository's top, and its children hold. `exclude` are further patterns
    of the same language, relative to `base` (the working directory), which hold for named files with `named_too` only.
    Links to folders are not followed. seen_from: see `shown_path`.
    Raises UserError for a path that does not exist.
    """
    excluded = None
    if exclude:
        from perfaudit.patterns import spec_of  # as below

        excluded = spec_of(exclude), base or Path.cwd()
    found: dict[str, File] = {}
    real_paths = RealPaths()
    for given in paths:
        path = Path(given)
        named = [] if _is_folder(given) else [File(path, shown_path(path, seen_from), named=True)]
        files = named or _walk(path, excluded, seen_from)
        if named_too:
            files = (file for file in files if not _is_excluded(Path(os.path.abspath(file.path)), excluded, False))  # noqa: PTH100
        for file in files:
            real = real_paths.of(file.path)  # two ways to one file are one file
            if real in found and found[real].is_stray_link and not file.is_stray_link:
                del found[real]
            if real not in found or (file.named and not found[real].named):
                found[real] = file
    return list(found.values())


def files_below(
    root: Path, suffixes: tuple[str, ...], most_folders: int, most_entries: int, without: Collection[str] = ()
) -> list[str] | None:
    """Paths of files with these endings below a folder, seen from it, with "/", in order; None where it holds too much.

    Without what ignore files exclude, hidden folders, and those of the names in `without`. Links are not followed, and links to
    files are among them.
    """
    folders = entries = 0

    def is_left_out(name: str) -> bool:
        nonlocal folders
        folders += 1
        return (
            max(folders - most_folders, entries - most_entries) > 0 or name in NEVER | set(without) or name[:1] == "."
        )

    def entries_of(path: Path) -> list[os.DirEntry[str]]:
        nonlocal entries
        with os.scandir(path) as found:
            listed = list(islice(found, max(0, most_entries - entries) + 1))
        entries += len(listed)
        return listed

    files = [file for file in _walk(root, None, None, suffixes, is_left_out, entries_of) if not file.problem]
    return [file.inside for file in files] if folders <= most_folders and entries <= most_entries else None


def shown_path(path: Path, seen_from: Path | None = None) -> str:
    """The path as reports show it, always with '/': relative to a folder, the working directory without one."""
    absolute, folder = Path(os.path.normpath(path.absolute())), seen_from or Path.cwd()
    return (Path(os.path.relpath(absolute, folder)) if absolute.anchor == folder.anchor else absolute).as_posix()


def _is_folder(given: str) -> bool:
    """Whether a path is a folder and not a file. Raises UserError for everything else."""
    try:
        mode = os.stat(given).st_mode  # noqa: PTH116  # Path("") is "."
    except FileNotFoundError:
        problem = "leads nowhere" if Path(given).is_symlink() else "does not exist"
    except (OSError, ValueError) as error:  # ValueError: a null byte
        problem = f"cannot be read ({(getattr(error, 'strerror', None) or str(error)).lower()})"
    else:
        if stat.S_ISDIR(mode) or stat.S_ISREG(mode):
            return stat.S_ISDIR(mode)
        problem = "is neither a file nor a folder"
    name = given if 0 < len(given) < 200 else repr(given[:40]) + ("…" if given else "")
    raise UserError(f"{name}: {problem}; name a Python file or a folder, e.g. `perfaudit scan .`")


def _walk(
    root: Path,
    excluded: tuple[GitIgnoreSpec, Path] | None,
    seen_from: Path | None,
    suffixes: tuple[str, ...] = SUFFIXES,
    leaves_out: Callable[[str], bool] = NEVER.__contains__,
    entries_of: Callable[[Path], Iterable[os.DirEntry[str]]] | None = None,
) -> Iterator[File]:
    """Files with these endings below a folder. leaves_out: whether folders of a name are passed over. entries_of: lists one."""
    top = Path(os.path.normpath(root.absolute()))
    problems: list[tuple[Path, str]] = []
    above = _ignores_above(top, problems)
    ignores = [] if _is_ignored(top, above) else above
    waiting: list[tuple[Path, bool, Ignores]] = [(top, True, ignores)]  # the next one last
    while waiting:
        path, is_folder, ignores = waiting.pop()
        given = root / path.relative_to(top)
        if not is_folder:
            yield File(given, shown_path(given, seen_from), named=False, inside=path.relative_to(top).as_posix())
            continue
        try:
            entries = sorted((entries_of or os.scandir)(path), key=lambda entry: entry.name, reverse=True)
        except OSError as error:
            reason = f"folder not read: {refusal(error)}"
            yield File(given, shown_path(given, seen_from), False, reason)
            continue
        names = {entry.name for entry in entries}
        if path != top and names & MARKS_OF_ENVIRONMENTS:
            continue
        if ".gitignore" in names and not is_ours(path / ".gitignore"):
            problems.append((path / ".gitignore", "not used, because another user owns it"))
        elif ".gitignore" in names:
            ignores = [*ignores, *_read_ignore(path, ignores, problems)]
        while problems:
            ignore, reason = problems.pop()
            yield File(ignore, shown_path(ignore, seen_from), False, reason)
        for entry in entries:
            below = path / entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if leaves_out(entry.name) if is_folder else not _is_file_of(entry, suffixes):
                continue
            if not _is_ignored(below, ignores, is_folder) and not _is_excluded(below, excluded, is_folder):
                waiting.append((below, is_folder, ignores))


def _is_file_of(entry: os.DirEntry[str], suffixes: tuple[str, ...]) -> bool:
    """A file, or a link that leads to none: reading it will say why. An editor's lock (`.#train.py`) is such a link."""
    if not entry.name.endswith(suffixes) or entry.name.startswith(".#"):
        return False
    try:
        return entry.is_file() or (entry.is_symlink() and not entry.is_dir())
    except OSError:
        return True


def _is_excluded(path: Path, excluded: tuple[GitIgnoreSpec, Path] | None, is_folder: bool) -> bool:
    if excluded is None:
        return False
    spec, base = excluded
    relative = os.path.relpath(path, base)
    return not relative.startswith(os.pardir) and spec.match_file(relative + ("/" if is_folder else ""))


def _ignores_above(top: Path, problems: list[tuple[Path, str]]) -> Ignores:
    """Ignore files of the parents up to the top of the repository, outermost first; none outside a repository.

    Without those of another user, who would say what is scanned of this one's.
    """
    folders = folders_above(top)
    if not os.path.lexists(folders[-1] / ".git"):
        return []
    found: Ignores = []
    for folder in reversed(folders[1:]):
        if is_ours(folder / ".gitignore"):
            found += _read_ignore(folder, found, problems)
    return found


def _read_ignore(folder: Path, above: Ignores, problems: list[tuple[Path, str]]) -> Ignores:
    """What the ignore file of a folder says, nothing where it cannot be read; `problems` takes why not all of it holds.

    above: the ignore files that hold there already.
    """
    path = folder / ".gitignore"
    try:
        text = read_bytes(path, MAX_SETTINGS_BYTES).decode("utf-8-sig", "replace")
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append((path, f"ignore file not read: {refusal(error)}"))
        return []
    # Imported here: a file that is named asks for no ignore file.
    from perfaudit.patterns import MAX_LENGTH, MAX_PATTERNS, join_patterns, pattern_of

    room = MAX_PATTERNS - sum(len(spec.patterns) for _, spec in above)
    patterns: list[Pattern] = []
    refused = 0
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        if len(patterns) >= room or len(line) > MAX_LENGTH:
            refused += 1
            continue
        with contextlib.suppress(ValueError, re.error):  # git passes over what is no pattern
            patterns.append(pattern_of(line))
    if refused:
        bound = f"{MAX_PATTERNS:,} hold for a path, of {MAX_LENGTH:,} characters at most"
        problems.append((path, f"{refused:,} of its patterns not used: {bound}"))
    return [(folder, join_patterns(patterns))]


def _is_ignored(path: Path, ignores: Ignores, is_folder: bool = True) -> bool:
    """Whether the nearest ignore file that speaks of the path excludes it."""
    for folder, spec in reversed(ignores):
        verdict = spec.check_file(path.relative_to(folder).as_posix() + ("/" if is_folder else "")).include
        if verdict is not None:
            return verdict
    return False
