"""Patches of several files: made, printed as git has them, and checked against what lies on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from perfaudit.errors import UserError
from perfaudit.findings import Edit, FilePatch
from perfaudit.forked_work import Lost, in_children
from perfaudit.reading import digest
from perfaudit.static import edit, unified_diff
from perfaudit.static.ondisk import Opened, Planned, named_twice, open_file, refuse, require_unchanged
from perfaudit.static.source.lines import location

T = TypeVar("T")


def file_patch(path: str, before: str, edits: Sequence[Edit], encoding: str = "utf-8") -> FilePatch:
    """The patch that makes these edits of this file; text and encoding as `source.read_text` gives them.

    path: as `discover.shown_path` has it. Raises UserError where the encoding cannot hold the new text.
    """
    after = edit.apply(before, edits)
    old, new = _encode(path, before, encoding), _encode(path, after, encoding)
    placed = (replace(e, place=location(path, before, e.span)) for e in edit.in_order(edits, len(before)))
    diff = unified_diff.diff_of_file(path, before, after, encoding)
    return FilePatch(path, digest(old), digest(new), diff, unified_diff.plain(encoding), tuple(placed))


def git_patch(files: Iterable[FilePatch]) -> bytes:
    """One patch of all these files that `git apply` and `patch -p1` take, each file in its encoding."""
    return b"".join(_in_git_format(unified_diff.in_bytes(item.diff, item.encoding)) for item in files if item.diff)


def git_patch_of(planned: Iterable[Planned]) -> bytes:
    """The same of files that were checked."""
    return b"".join(_in_git_format(item.diff) for item in planned)


def plan_writes(files: Sequence[FilePatch], root: Path) -> list[Planned]:
    """What has to be written so that every file is what it was when the patch was measured; empty where all are already.

    Raises UserError with every reason, unless each file lies in the project, is the one that was measured or has its
    patch already, and becomes what was measured.
    """
    refused = named_twice([item.path for item in files], root)
    by_path = {item.path: item for item in files}
    found = within_limits(lambda path: _plan_write(by_path[path], root), by_path, refused)
    refuse(refused)
    return [file for file in found if file is not None]


def within_limits(work: Callable[[str], T], paths: Iterable[str], refused: list[str]) -> list[T]:
    """What `work` makes of each file, within the limits of time and memory that a scan gives one; `refused` takes why it
    makes nothing: a report from outside may have patches that take days to try.
    """

    def result_or_reason(path: str) -> tuple[T | None, str]:
        try:
            return work(path), ""
        except UserError as error:
            return None, str(error)

    made: list[T] = []
    for path, done in in_children(result_or_reason, list(paths)):
        result, why = (None, f"{path}: its patch: {done.reason}") if isinstance(done, Lost) else done
        if why:
            refused.append(why)
        else:
            made.append(result)  # type: ignore[arg-type]  # T may hold None
    return made


def _plan_write(item: FilePatch, root: Path) -> Planned | None:
    file = open_file(item.path, root)
    if file.digest == item.after:
        return None
    require_unchanged(file, item.before, "tune")
    try:
        done = replace_text(file, edit.apply(file.text, item.edits))
    except ValueError as error:
        raise UserError(f"{item.path}: its edits do not fit: {error}") from error
    return as_promised(done, item.after)


def as_promised(done: Planned, after: str) -> Planned:
    """The file itself. Raises UserError unless it becomes what the report says."""
    if digest(done.after) != after:
        raise UserError(f"{done.path}: its edits do not give the file that the report says")
    return done


def replace_text(file: Opened, after: str) -> Planned:
    """The file with another text. Raises UserError where its encoding cannot hold it, or does not give its bytes again."""
    same = _encode(file.path, file.text, file.encoding)
    if same != file.data:  # some old encodings write one character in several ways
        raise UserError(f"{file.path}: its text in {file.encoding} would not give the same bytes again")
    data = _encode(file.path, after, file.encoding)
    diff = unified_diff.diff_of_file(file.path, file.text, after, file.encoding)
    return Planned(file.path, file.real, file.data, data, unified_diff.in_bytes(diff, file.encoding))


def _in_git_format(diff: bytes) -> bytes:
    a, b, _ = (line[4:].rstrip(b"\t") for line in diff.split(b"\n", 2))
    return b"diff --git " + a + b" " + b + b"\n" + diff


def _encode(path: str, text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise UserError(f"{path}: its text cannot be written in {encoding}") from error
