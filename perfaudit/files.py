"""Every file and folder that perfaudit makes, writes, replaces or deletes. A test holds that nothing else in the package does.

What is perfaudit's own is a `Folder`: opened by descriptor, never through a link, and only where it is this user's. What the
user names or has patched (`replace_file`, `replace_source`) is not reached through a link inside a project, whose author
chose where that leads, and never lies in a folder of git. Imports the standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

MOST_STEPS = 400  # pieces of a path with its links followed; more are links in a circle
LARGEST_SOURCE = 64 << 20  # bytes; what is patched is never larger (`reading.MAX_FILE_BYTES`)
LOCK_SECONDS = 10.0  # for another process that is writing; it needs milliseconds
LOCK_PAUSE = 0.02  # seconds between two looks at a lock
_PIECE = 1 << 20  # bytes read at once
_OPEN = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe in the place of a file must not make anybody wait
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_MARKS = (".git", "pyproject.toml")  # of the top of a project
_NAME = re.compile(r"\.(?P<of>.*)\.perfaudit-(?P<kind>new|old)-(?P<word>[0-9a-f]{12})-(?P<sign>[0-9a-f]{12})")
_LONGEST = 255 - len(".") - len(".perfaudit-new-") - 2 * 12 - 1  # bytes of a file's name that fit into that of ours


class Refused(OSError):
    """A place in which perfaudit writes and deletes nothing; the message is whole and names the place."""

    def __init__(self, message: str) -> None:
        super().__init__(errno.EPERM, message)


def reason(error: OSError) -> str:
    """Why something could not be written, in words for a sentence."""
    return str(error.strerror) if isinstance(error, Refused) else (error.strerror or str(error)).lower()


# ---- folders of perfaudit's own ----------------------------------------------------------------------------------------


class Folder:
    """A folder of perfaudit's own, held open: what is done in it happens there, whatever its path leads to meanwhile.

    Names are of files directly in it. All methods raise OSError, `Refused` among them: for what is no regular file, has a
    second name elsewhere, or belongs to another user.
    """

    def __init__(self, path: Path, handle: int) -> None:
        self.path = path
        self._handle = handle

    @classmethod
    def opened(cls, base: Path, *names: str, make: bool = False, mode: int = 0o777) -> Folder:
        """The folder `base/names…`, of which `base` may be reached through links and belong to anybody, the rest not.

        make: what is missing is made, with this mode. Raises OSError, FileNotFoundError among them.
        """
        folder = cls(base, os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for name in names:
            with folder:
                folder = folder.below(name, make, mode)
        return folder

    def below(self, name: str, make: bool = False, mode: int = 0o777) -> Folder:
        """A folder in this one."""
        path = self.path / name
        if make:
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=self._handle)
        handle = _open_folder(name, path, self._handle)
        if os.fstat(handle).st_uid != os.geteuid():
            os.close(handle)
            raise Refused(f"{path} belongs to another user")
        return Folder(path, handle)

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(os.fstat(self._handle).st_mode)

    def close_to_others(self) -> None:
        """Take from everybody but this user what they may do in it."""
        if self.mode & 0o077:
            os.fchmod(self._handle, 0o700)

    def names(self) -> list[str]:
        """Of regular files in it, in order."""
        with os.scandir(self._handle) as entries:
            return sorted(entry.name for entry in entries if entry.is_file(follow_symlinks=False))

    def status(self, name: str) -> os.stat_result | None:
        """Of what has this name, a link not followed; None where nothing has."""
        try:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def read(self, name: str, private: bool = False) -> bytes:
        """What a file holds. private: only where nobody else may read it or belongs to it."""
        with os.fdopen(self.open(name, os.O_RDONLY), "rb") as file:
            status = os.fstat(file.fileno())
            if private and (status.st_uid != os.geteuid() or status.st_mode & 0o077):
                raise Refused(f"{self.path / name} is open to other users")
            return file.read()

    def open(self, name: str, flags: int, mode: int = 0o666) -> int:
        """A descriptor of a file; of one that is to be written only where it is this user's and has no other name."""
        handle = _open_file(name, self.path / name, flags, mode, self._handle)
        status = os.fstat(handle)
        if flags & (os.O_WRONLY | os.O_RDWR) and (status.st_nlink > 1 or status.st_uid != os.geteuid()):
            os.close(handle)
            raise Refused(f"{self.path / name} has another name elsewhere, or belongs to another user")
        return handle

    def append(self, name: str, line: bytes) -> None:
        """Write a line at the end and wait for the disk; a line that does not fit leaves the file as it was."""
        _append(self.open(name, os.O_WRONLY | os.O_APPEND), line)

    def cut(self, name: str, size: int) -> None:
        """Leave the first bytes of a file."""
        handle = self.open(name, os.O_WRONLY)
        try:
            os.ftruncate(handle, size)
        finally:
            os.close(handle)

    def write(self, name: str, data: bytes, mode: int = 0o666, sync: bool = True) -> None:
        """Give a file this content, all or nothing. sync: wait for the disk."""
        if (status := self.status(name)) is not None and not stat.S_ISREG(status.st_mode):
            raise Refused(f"{self.path / name} is no regular file")
        with _written(self._handle, name, data, mode, sync) as temporary:
            os.replace(temporary, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def create(self, name: str, data: bytes = b"", mode: int = 0o666) -> None:
        """Make a file with this content, all at once. Raises FileExistsError where something has the name, a link too."""
        with _written(self._handle, name, data, mode) as temporary:
            _take_name(temporary, name, self._handle)

    def move(self, name: str, to: str) -> None:
        """Give a file another name in the folder. Raises FileExistsError where something has it."""
        _take_name(name, to, self._handle)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Delete a regular file of this user; what is none, or is gone, stays as it is."""
        status = self.status(name)
        if status is not None and stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._handle)

    @contextlib.contextmanager
    def lock(self, name: str, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
        """Hold a lock of this name inside; on a file system without locks nothing is held. Raises TimeoutError."""
        handle = self.open(name, os.O_RDWR | os.O_CREAT)
        try:
            until = clock() + LOCK_SECONDS
            while not _has_lock(handle):
                if clock() > until:
                    raise TimeoutError(errno.ETIMEDOUT, f"another process holds {name}")
                time.sleep(LOCK_PAUSE)
            yield
        finally:
            os.close(handle)


def _has_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _open_folder(name: str, path: Path, at: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            raise Refused(f"{path} is {_kind(name, at)}, not a folder of perfaudit's own") from error
        raise


def _open_file(name: str, path: Path, flags: int, mode: int, at: int) -> int:
    try:
        handle = os.open(name, flags | _OPEN, mode, dir_fd=at)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
            raise Refused(f"{path} is {_kind(name, at)}, not a file of perfaudit's own") from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Refused(f"{path} is no regular file")
    return handle


def _kind(name: str, at: int) -> str:
    with contextlib.suppress(OSError):
        if stat.S_ISLNK(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode):
            return "a link"
    return "something else"


def _append(handle: int, line: bytes) -> None:
    try:
        before = os.fstat(handle).st_size
        try:
            rest = line
            while rest:
                rest = rest[os.write(handle, rest) :]
            to_disk(handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, before)
            raise
    finally:
        os.close(handle)


def to_disk(handle: int) -> None:
    """Wait until what was written is on disk; on a file system that cannot tell, do not."""
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def make_folders(path: Path) -> None:
    """Make a folder outside of every project, with those above it, for this user alone; one that is there stays as it is."""
    path.mkdir(0o700, parents=True, exist_ok=True)


@contextlib.contextmanager
def private_copy(data: bytes) -> Iterator[Path]:
    """A file with this content in a new folder that only this user may look into; gone in the end, with all beside it."""
    with private_folder() as folder:
        path = folder / "copy"
        path.write_bytes(data)
        yield path


@contextlib.contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder for what is temporary, which only this user may look into; gone in the end."""
    with tempfile.TemporaryDirectory(prefix="perfaudit-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


# ---- temporary files, and what a killed process left of them -------------------------------------------------------------


def _temporary_name(kind: str, of: str) -> str:
    """A name that only perfaudit gives: it holds a word and what that word and the file's name come to."""
    word = os.urandom(6).hex()
    return f".{_shortened(of)}.perfaudit-{kind}-{word}-{_sign(kind, _shortened(of), word)}"


def _shortened(name: str) -> str:
    return os.fsdecode(os.fsencode(name)[:_LONGEST])


def _sign(kind: str, of: str, word: str) -> str:
    return hashlib.sha256(f"perfaudit {kind} {word} {of}".encode("utf-8", "surrogateescape")).hexdigest()[:12]


@contextlib.contextmanager
def _written(at: int, name: str, data: bytes, mode: int, sync: bool = True) -> Iterator[str]:
    """The name of a new file beside `name` that holds the data; gone in the end unless it was given another name.

    It is locked as long as this process lives, so that another one can tell that it was left behind.
    """
    temporary = _temporary_name("new", name)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, mode, dir_fd=at)
    try:
        _has_lock(handle)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        if sync:
            to_disk(handle)
        yield temporary
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=at)
        os.close(handle)


def _take_name(temporary: str, name: str, at: int) -> None:
    """Give a finished file a name that nothing has; it may keep its own. Raises FileExistsError."""
    try:
        os.link(temporary, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: take the name first, then replace what is ours
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, dir_fd=at))
        os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)


def sweep(folder: Path, kinds: tuple[str, ...] = ("new", "old")) -> list[str]:
    """Delete the temporary files that a killed perfaudit left in a folder; sentences on what it kept, and where.

    Deleted are regular files of this user whose name only perfaudit gives and that no process holds. What a file held before
    a patch that was cut off gets a name that can be seen, where the file no longer holds it. Never raises OSError.
    """
    said: list[str] = []
    with contextlib.suppress(OSError):
        at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.scandir(at) as entries:
                found = [match for entry in entries if (match := _NAME.fullmatch(entry.name))]
            for match in found:
                if match["kind"] in kinds and match["sign"] == _sign(match["kind"], match["of"], match["word"]):
                    with contextlib.suppress(OSError):
                        said += _sweep_one(at, folder, match)
        finally:
            os.close(at)
    return said


def _sweep_one(at: int, folder: Path, match: re.Match[str]) -> list[str]:
    name, of = match[0], match["of"]
    handle = os.open(name, os.O_RDONLY | _OPEN, dir_fd=at)
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
            return []
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)  # raises where a process holds it, or nobody can tell
        if match["kind"] == "old" and not _holds_the_same(at, of, handle):
            kept = f"{of}.before-perfaudit-{match['word']}"
            os.link(name, kept, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
            os.unlink(name, dir_fd=at)
            return [f"{folder / of}: a patch was cut off; what the file held before is kept as {folder / kept}"]
        os.unlink(name, dir_fd=at)
        return []
    finally:
        os.close(handle)


def _holds_the_same(at: int, name: str, other: int) -> bool:
    try:
        handle = os.open(name, os.O_RDONLY | _OPEN, dir_fd=at)
    except OSError:
        return False
    with os.fdopen(handle, "rb") as one, os.fdopen(os.dup(other), "rb") as two:
        status, size = os.fstat(one.fileno()), os.fstat(two.fileno()).st_size
        if not stat.S_ISREG(status.st_mode) or status.st_size != size or size > LARGEST_SOURCE:
            return False
        while part := one.read(_PIECE):
            if part != two.read(_PIECE):
                return False
        return True


# ---- files that the user names -------------------------------------------------------------------------------------------


def project_top(folder: Path) -> Path | None:
    """The top of the project that a folder lies in, None for one that lies in none.

    That is the nearest folder with `.git` or `pyproject.toml`; without one, the working directory with what is below it.
    folder: without links.
    """
    for top in (folder, *folder.parents):
        if any(os.path.lexists(top / mark) for mark in _MARKS):
            return top
    here = Path.cwd()
    return here if folder.is_relative_to(here) and here != Path(here.anchor) else None


def destination(path: Path) -> Path:
    """Where a file that the user names to be written lies, links outside of projects followed.

    Raises Refused where a link inside a project is on the way, and for what lies in a folder of git.
    """
    real, inside = _followed(path)
    if inside:
        raise Refused(
            f"{inside[0]} is a link, and nothing is written through a link inside a project; name the file it leads to: {real}"
        )
    _refuse_git(path, real)
    return real


def source_place(path: Path) -> Path:
    """Where a source file that is to be patched lies, links followed, as long as those of a project stay inside it.

    Raises Refused for others, and for what lies in a folder of git.
    """
    real, inside = _followed(path)
    for link in inside:
        top = project_top(link.parent)
        if top is not None and not real.is_relative_to(top):
            raise Refused(f"{link} is a link that leads out of the project, to {real}: name that file to patch it")
    _refuse_git(path, real)
    return real


def _followed(path: Path) -> tuple[Path, list[Path]]:
    """Where a path leads, whether that exists or not, and the links on the way that lie inside a project."""
    whole = path.absolute()
    here, parts = Path(whole.anchor), deque(whole.parts[1:])
    inside: list[Path] = []
    for _ in range(MOST_STEPS):
        if not parts:
            return here, inside
        part = parts.popleft()
        if part == os.pardir:
            here = here.parent
            continue
        place = here / part
        if not place.is_symlink():
            here = place
            continue
        if project_top(here) is not None:
            inside.append(place)
        if not parts and _is_special(place):  # /dev/stdout: what it leads to may have no name
            return place, inside
        target = place.readlink()
        here = Path(target.anchor) if target.is_absolute() else here
        parts.extendleft(reversed(target.parts[1:] if target.is_absolute() else target.parts))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))


def _is_special(path: Path) -> bool:
    """Whether something is there that is neither a file nor a folder: a terminal, a pipe."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


_IGNORED = re.compile("[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]")  # in names, by HFS+: git's utf8.c has the list


def _is_git(name: str) -> bool:
    """Whether a file system may take a name for `.git`: without regard to case, to signs that HFS+ ignores, and to what NTFS
    ignores at the end (`core.protectHFS` and `core.protectNTFS` of git)."""
    plain = _IGNORED.sub("", name).casefold().partition(":")[0].rstrip(". ")
    return plain in (".git", "git~1")


def _refuse_git(path: Path, real: Path) -> None:
    for place in (path, real):
        if any(_is_git(part) for part in place.parts):
            raise Refused(f"{path} lies in a folder of git, where perfaudit writes nothing")
    for folder in real.parents:  # of another name: a bare repository, or one that lies apart from its files
        if (folder / "HEAD").is_file() and (folder / "objects").is_dir() and (folder / "refs").is_dir():
            raise Refused(f"{path} lies in {folder}, a folder of git, where perfaudit writes nothing")


def replace_file(path: Path, data: bytes) -> None:
    """Write a file that the user names: as `destination` has it, through a temporary one, so that a full disk or a crash
    leaves the old one whole.

    Mode and owner stay. What is no regular file (`/dev/stdout`, a pipe) is written to. Raises OSError, also for a file
    that is write-protected.
    """
    _replace(destination(path), data)


def replace_source(path: Path, data: bytes) -> None:
    """The same for a source file with its patch, found as `source_place` has it."""
    _replace(source_place(path), data)


def create_file(path: Path, write: Callable[[str], None], like: Path) -> int:
    """Make a file that the user names, all at once; its size. `write` gets the path of an empty one beside it to fill.

    like: a file whose mode it gets. Raises FileExistsError where something has the name, and OSError.
    """
    real = destination(path)
    with _parent(real) as at:
        temporary = _temporary_name("new", real.name)
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=at)
        try:
            _has_lock(handle)
            write(str(real.parent / temporary))
            os.fchmod(handle, stat.S_IMODE(like.stat().st_mode))
            _take_name(temporary, real.name, at)
            return os.fstat(handle).st_size
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=at)
            os.close(handle)


def append(path: Path, line: bytes) -> None:
    """Write a line at the end of a file that is there and is the user's, and wait for the disk. Raises OSError."""
    real = destination(path)
    with _parent(real) as at, Folder(real.parent, os.dup(at)) as folder:
        folder.append(real.name, line)


def cut(path: Path, size: int) -> None:
    """Leave the first bytes of such a file. Raises OSError."""
    real = destination(path)
    with _parent(real) as at, Folder(real.parent, os.dup(at)) as folder:
        folder.cut(real.name, size)


@contextlib.contextmanager
def _parent(real: Path) -> Iterator[int]:
    """The folder of a file, by descriptor: from the top of its project down through no link."""
    top = project_top(real.parent) or real.parent
    at = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in real.parent.relative_to(top).parts:
            below = os.open(name, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _replace(real: Path, data: bytes) -> None:
    if _is_special(real) or real.is_dir():
        with os.fdopen(os.open(real, os.O_WRONLY | os.O_CLOEXEC), "wb") as file:
            file.write(data)
        return
    with _parent(real) as at:
        _sweep_once(real.parent)
        before = _regular(real, at)
        with _written(at, real.name, data, 0o600 if before else 0o666) as temporary:
            if before is not None:
                _as_before(temporary, at, before)
            os.replace(temporary, real.name, src_dir_fd=at, dst_dir_fd=at)


def _regular(real: Path, at: int) -> os.stat_result | None:
    """What is known of the file that is to be replaced, None where there is none. Raises OSError where it must stay."""
    try:
        status = os.stat(real.name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{real} is no regular file")
    if not os.access(real.name, os.W_OK, dir_fd=at):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return status


def _as_before(temporary: str, at: int, before: os.stat_result) -> None:
    handle = os.open(temporary, os.O_RDONLY | _OPEN, dir_fd=at)
    try:
        with contextlib.suppress(PermissionError):  # only root may give a file away
            os.fchown(handle, before.st_uid, before.st_gid)
        os.fchmod(handle, stat.S_IMODE(before.st_mode))
    finally:
        os.close(handle)


_swept: set[Path] = set()


def _sweep_once(folder: Path) -> None:
    """Delete what killed processes left of files they were writing; what a file held before is for `sweep` to tell of."""
    if folder not in _swept:
        _swept.add(folder)
        sweep(folder, ("new",))


# ---- files that are put back when not all of them can be written ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Kept:
    """What a source file held, under a second name beside it; `handle` holds the lock that says so."""

    real: Path
    path: Path
    handle: int


def keep(path: Path) -> Kept:
    """Give what a source file holds a second name beside it, until `forget`: it comes back by renaming, which needs no
    room on a full disk. Raises OSError."""
    real = source_place(path)
    with _parent(real) as at:
        name = _temporary_name("old", real.name)
        try:
            os.link(real.name, name, src_dir_fd=at, dst_dir_fd=at, follow_symlinks=False)
        except OSError:  # a file system without links
            _copy(at, real.name, name)
        handle = os.open(name, os.O_RDONLY | _OPEN, dir_fd=at)
    _has_lock(handle)
    return Kept(real, real.parent / name, handle)


def put_back(kept: Kept) -> None:
    """Give a file what it held. Raises OSError; then that is still there."""
    with _parent(kept.real) as at:
        os.replace(kept.path.name, kept.real.name, src_dir_fd=at, dst_dir_fd=at)


def forget(kept: Kept) -> None:
    """Take the second name away, where it is still there."""
    with contextlib.suppress(OSError), _parent(kept.real) as at:
        os.unlink(kept.path.name, dir_fd=at)
    os.close(kept.handle)


def _copy(at: int, name: str, to: str) -> None:
    with os.fdopen(os.open(name, os.O_RDONLY | _OPEN, dir_fd=at), "rb") as source:
        status = os.fstat(source.fileno())
        target = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _OPEN, 0o600, dir_fd=at)
        with os.fdopen(target, "wb") as file:
            shutil.copyfileobj(source, file)
            os.fchmod(file.fileno(), stat.S_IMODE(status.st_mode))
