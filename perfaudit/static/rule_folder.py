"""A folder of somebody's own rules as the bytes of its files: read once, so that what was looked at is what runs."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfaudit.errors import RuleFileError, refusal
from perfaudit.reading import digest
from perfaudit.records import field, record

USER_RULES = "perfaudit_user_rules"  # the package under which rule folders are packages of their own
# A rule is two files, and ours are 100. More is a folder of something else, whose files change all the time.
MAX_FILES = 500
MAX_BYTES = 8 << 20


@record(frozen=True, slots=True)
class RuleFolder:
    """What lay in a folder when it was read.

    path: absolute. files: content by path below it. digest: of all paths and contents.
    """

    path: Path
    digest: str
    files: Mapping[str, bytes] = field(compare=False, repr=False)

    @property
    def python(self) -> tuple[Path, ...]:
        """The files that can be run."""
        return tuple(self.path / name for name in self.files if name.endswith(".py"))

    @property
    def digests(self) -> dict[str, str]:
        """Of each file by its path below the folder."""
        return {name: digest(data) for name, data in self.files.items()}


def read_rule_folder(path: Path) -> RuleFolder:
    """All files of a folder, also those that a rule may only read; without hidden ones and byte code, which no rule gets.

    Raises RuleFileError for a folder that cannot be read, and for one that holds something else than rules: a link, whose
    other end may be changed while the folder stays as it is, or more than rules take.
    """
    try:
        files = dict(sorted(_contents(path)))
    except OSError as error:
        place = Path(os.fsdecode(error.filename)) if error.filename else path
        raise RuleFileError(f"{place}: cannot be read: {refusal(error)}") from error
    import hashlib  # most scans have no rules of the user's own

    whole = hashlib.sha256()
    for name, data in files.items():
        whole.update(os.fsencode(name) + b"\0" + hashlib.sha256(data).digest())
    return RuleFolder(path.absolute(), whole.hexdigest(), files)


def _contents(top: Path) -> Iterator[tuple[str, bytes]]:
    left = MAX_BYTES
    for count, file in enumerate(_files(top), start=1):
        name = file.relative_to(top).as_posix()
        data = _content(file, left)
        left -= len(data)
        if count > MAX_FILES or left < 0:
            raise RuleFileError(
                f"{top}: more than {MAX_FILES} files or {MAX_BYTES >> 20} MiB: a folder of rules holds rules and what they import"
            )
        yield name, data


def _files(top: Path) -> Iterator[Path]:
    waiting = [top]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == "__pycache__":
                    continue
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
                else:
                    yield path


def _content(path: Path, most: int) -> bytes:
    """The bytes of a regular file, at most one more than `most`; anything else might never end, or lead anywhere."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise RuleFileError(f"{path}: is a link; a folder of rules holds files") from error
        raise
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise RuleFileError(f"{path}: is no regular file; a folder of rules holds files")
        return file.read(most + 1)
