"""Patches of several files: made, printed as git has them, and checked against what lies on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from perfaudit.errors import UserError
from perfaudit.findings import FilePatch
from perfaudit.forked_work import Lost, in_children
from perfaudit.static import edit, unified
from perfaudit.static.ondisk import Opened, Planned, digest, known, named_twice, opened, refuse

T = TypeVar("T")

_MARK = "\ufeff"  # a byte-order mark is a character of a diff: git compares bytes


def file_patch(path: str, before: str, after: str, encoding: str = "utf-8") -> FilePatch:
    """The patch that turns one text of this file into the other; text and encoding as `source.read_text` gives them.

    path: as `discover.shown` has it. Raises UserError where the encoding cannot hold the new text.
    """
    mark, plain = _mark(encoding)
    old, new = _encoded(path, before, encoding), _encoded(path, after, encoding)
    return FilePatch(path, digest(old), digest(new), edit.diff(path, mark + before, mark + after), plain)


def git_patch(files: Iterable[FilePatch]) -> bytes:
    """One patch of all these files that `git apply` and `patch -p1` take, each file in its encoding.

    Raises UserError for an encoding that Python does not know or that cannot hold the diff.
    """
    return b"".join(_in_git_format(item.path, _bytes_of(item)) for item in files if item.diff)


def git_patch_of(planned: Iterable[Planned]) -> bytes:
    """The same of files that were checked."""
    return b"".join(_in_git_format(item.path, item.diff) for item in planned)


def planned(files: Sequence[FilePatch], root: Path) -> list[Planned]:
    """What has to be written so that every file is what it was when the patch was measured; empty where all are already.

    Raises UserError with every reason, unless each file lies in the project, is the one that was measured or has its
    patch already, and becomes what was measured.
    """
    refused = named_twice([item.path for item in files], root)
    by_path = {item.path: item for item in files}
    found = within_limits(lambda path: _planned(by_path[path], root), by_path, refused)
    refuse(refused)
    return [file for file in found if file is not None]


def within_limits(work: Callable[[str], T], paths: Iterable[str], refused: list[str]) -> list[T]:
    """What `work` makes of each file, within the limits of time and memory that a scan gives one; `refused` takes why it
    makes nothing: a report from outside may have patches that take days to try.
    """

    def tried(path: str) -> tuple[T | None, str]:
        try:
            return work(path), ""
        except UserError as error:
            return None, str(error)

    made: list[T] = []
    for path, done in in_children(tried, list(paths)):
        result, why = (None, f"{path}: its patch: {done.reason}") if isinstance(done, Lost) else done
        if why:
            refused.append(why)
        else:
            made.append(result)  # type: ignore[arg-type]  # T may hold None
    return made


def _planned(item: FilePatch, root: Path) -> Planned | None:
    file = opened(item.path, root)
    if file.digest == item.after:
        return None
    known(file, item.before, "tune")
    return _with_patch(file, item)


def replaced(file: Opened, after: str) -> Planned:
    """The file with another text. Raises UserError where its encoding cannot hold it, or does not give its bytes again."""
    mark, plain = _mark(file.encoding)
    same = _encoded(file.path, file.text, file.encoding)
    if same != file.data:  # some old encodings write one character in several ways
        raise UserError(f"{file.path}: its text in {file.encoding} would not give the same bytes again")
    data = _encoded(file.path, after, file.encoding)
    diff = edit.diff(file.path, mark + file.text, mark + after)
    return Planned(file.path, file.real, file.data, data, _bytes_of(FilePatch(file.path, "", "", diff, plain)))


def with_diff(file: Opened, diff: str) -> Planned:
    """The file with one diff made, which has no byte-order mark. Raises UserError where it does not fit."""
    try:
        return replaced(file, edit.apply(file.text, unified.edits(file.path, diff, file.text)))
    except unified.DoesNotFit as error:
        raise UserError(f"{file.path}: {error}") from error


def has_diff(file: Opened, diff: str, before: str) -> bool:
    """Whether the file is the one of that digest with this diff made."""
    try:
        text = edit.apply(file.text, unified.edits(file.path, unified.undoing(file.path, diff), file.text))
        return digest(_encoded(file.path, text, file.encoding)) == before
    except (unified.DoesNotFit, UserError):
        return False


def _with_patch(file: Opened, item: FilePatch) -> Planned:
    mark, _ = _mark(file.encoding)
    try:
        text = edit.apply(mark + file.text, unified.edits(item.path, item.diff, mark + file.text))
    except unified.DoesNotFit as error:
        raise UserError(f"{item.path}: {error}") from error
    done = replaced(file, text.removeprefix(mark))
    if digest(done.after) != item.after:
        raise UserError(f"{item.path}: its diff does not give the file that was measured")
    return done


def _in_git_format(path: str, diff: bytes) -> bytes:
    a, b = (os.fsencode(line[4:].rstrip("\t\n")) for line in unified.lines_of(unified.header(path)))
    return b"diff --git " + a + b" " + b + b"\n" + diff


def _bytes_of(item: FilePatch) -> bytes:
    head = unified.header(item.path)
    return os.fsencode(head) + _encoded(item.path, item.diff.removeprefix(head), item.encoding)


def _encoded(path: str, text: str, encoding: str) -> bytes:
    try:
        return text.encode(encoding)
    except (LookupError, UnicodeError) as error:
        raise UserError(f"{path}: its text cannot be written in {encoding}") from error


def _mark(encoding: str) -> tuple[str, str]:
    """The byte-order mark that a text of this encoding begins with, and the encoding of what follows."""
    return (_MARK, "utf-8") if encoding == "utf-8-sig" else ("", encoding)
