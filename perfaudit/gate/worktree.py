"""The files of a commit in a temporary folder, submodules included, and nothing of it left in the repository afterwards."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from perfaudit.errors import NothingMeasured
from perfaudit.files import make_folders
from perfaudit.gate.git import CHECKOUT_SECONDS, GitFailed, filters_left_out, git, git_unless_locked
from perfaudit.gate.signals import hold_back

PREFIX = "perfaudit-gate-"
RECORD = "worktrees"  # of a temporary folder: a line [git's folder, worktree] each; locked as long as the gate lives
LONG_AGO = 3600.0  # seconds; making and removing a folder take seconds, a large one on a slow disk minutes
_NOT_SPARSE = ("-c", "core.sparseCheckout=false", "-c", "core.splitIndex=false", "-c", "advice.detachedHead=false")
_GITLINK = re.compile(r"160000 commit ([0-9a-f]+)\t(.*)", re.DOTALL)


@dataclass(slots=True)
class Worktree:
    """A commit's files below `root`. missing: folders of submodules that could not be filled, relative to `root`."""

    folder: Path
    root: Path
    notes: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


@contextlib.contextmanager
def temporary_worktree(top: Path, commit: str) -> Iterator[Worktree]:
    """The files of a commit of the repository at `top`, in a folder that is called as `top` is: that is the name of
    a package where the repository itself is one.

    Removed in every case; what a gate that was killed left behind is removed before. Raises NothingMeasured where the
    files cannot be written.
    """
    with contextlib.ExitStack() as at_end:
        try:
            sweep()
            folder, notes = _temporary_folder(top)
            _lock(folder, at_end)
            worktree = Worktree(folder, folder / (top.name or "repository"), notes)
            _fill(worktree, top, commit, worktree.root)
        except (GitFailed, OSError) as failure:
            raise NothingMeasured(f"the files of {commit[:12]} cannot be checked out: {failure}") from failure
        yield worktree


def _lock(folder: Path, at_end: contextlib.ExitStack) -> None:
    """Have a folder removed at the end, and not by other gates as long as this one lives."""
    at_end.callback(remove, folder)
    at_end.callback(hold_back)  # runs before: a signal that cut the removal would leave the worktree behind
    record = at_end.enter_context((folder / "unlocked").open("w"))
    with contextlib.suppress(OSError):  # a file system without locks: `sweep` leaves alone what it cannot lock
        fcntl.flock(record, fcntl.LOCK_EX)
    (folder / "unlocked").rename(folder / RECORD)  # nobody sees it without the lock


def _temporary_folder(top: Path) -> tuple[Path, list[str]]:
    """A new folder on the file system of `top`, where that has a place for one: reading and writing costs the same there.
    Where it has none, a note says so.

    Not in the repository, nor in its `.git`: training that looks for `**/*.png` below its own folder would find those of the
    reference too, and the two sides would differ. Not beside it, where a gate that was killed would leave its remains.
    """
    for place in _places():
        with contextlib.suppress(OSError):  # full, or not ours to read or write
            if _is_near(place, top):
                make_folders(place)
                return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=place)), []
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")).resolve()
    note = (
        f"the reference lies in {folder.parent}, on another file system than this code, where reading files may take another "
        "time; TMPDIR may name a folder on the same one, outside of the repository"
    )
    return folder, [note] if _device(folder.parent) != _device(top) else []


def _places() -> tuple[Path, ...]:
    """Folders for what is temporary. /tmp is often in memory, or another disk than that of the repository."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  # without a home: as it is
    places = (Path(tempfile.gettempdir()), Path("/var/tmp"), Path(cache, "perfaudit"))
    return tuple(place.resolve() for place in places if place.is_absolute())


def _is_near(place: Path, top: Path) -> bool:
    """Whether a folder is, or would be, on the file system of the repository and outside of it."""
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    return _device(there) == _device(top) and not place.is_relative_to(top)


def _device(folder: Path) -> int:
    return folder.stat().st_dev


def _fill(worktree: Worktree, repository: Path, commit: str, place: Path) -> None:
    """Write the files of a commit and of its submodules, recursively. Raises GitFailed."""
    try:
        _add_worktree(worktree, repository, commit, place)
    except GitFailed as failure:
        if failure.timed_out:
            raise
        _write_files(worktree.folder, repository, commit, place)
        worktree.notes.append(
            f"git could not add a worktree ({failure}): the files of {commit[:12]} were written without"
        )
        worktree.notes += filters_left_out(repository, repository)
    for path, wanted in submodules(repository, commit):
        _fill_submodule(worktree, repository, repository / path, wanted, place / path)


def _add_worktree(worktree: Worktree, repository: Path, commit: str, place: Path) -> None:
    common = _common(repository)
    with (worktree.folder / RECORD).open("a", encoding="utf-8", errors="surrogateescape") as record:
        record.write(json.dumps([str(common), str(place)]) + "\n")  # before, so that a kill in between is mended too
    # Two commands: a setting may hold in this worktree only (`includeIf "gitdir:…"`), and `git` looks at those of the folder
    # that a command runs in. So files are written by a command that runs in the worktree.
    add = ("worktree", "add", "--no-checkout", "--detach", str(place), commit)
    git_unless_locked(repository, *_NOT_SPARSE, *add, seconds=CHECKOUT_SECONDS)
    write = ("reset", "--hard", "--quiet", "--no-recurse-submodules")
    git_unless_locked(place, *_NOT_SPARSE, *write, seconds=CHECKOUT_SECONDS, of=repository)
    worktree.notes += filters_left_out(place, repository)


def _write_files(folder: Path, repository: Path, commit: str, place: Path) -> None:
    """The files of a commit without a worktree, for a repository that cannot be written: through an index of our own.

    Not through `git archive`, which leaves out what is marked `export-ignore` and does not fetch large files.
    """
    shutil.rmtree(place, ignore_errors=True)
    (place / ".git").mkdir(parents=True)  # empty, which git takes for none: it marks the top of a project for a scan
    where = ("--git-dir", git(repository, "rev-parse", "--absolute-git-dir"), "--work-tree", str(place))
    index = {"GIT_INDEX_FILE": str(folder / "index")}
    (folder / "index").unlink(missing_ok=True)
    git(repository, *_NOT_SPARSE, *where, "read-tree", commit, extra=index)
    write = ("checkout-index", "--all", "--force", "--quiet")
    git(repository, *_NOT_SPARSE, *where, *write, extra=index, seconds=CHECKOUT_SECONDS)


def submodules(repository: Path, commit: str) -> list[tuple[str, str]]:
    """Path and commit of each submodule that a commit records, as far as git could have made that commit.

    A tree that was written by hand may hold any name; git refuses to check out those that are left out here.
    """
    entries = git(repository, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    found = [(match[2], match[1]) for entry in entries if (match := _GITLINK.fullmatch(entry))]
    return [(path, wanted) for path, wanted in found if _is_plain(path)]


def _is_plain(path: str) -> bool:
    """Whether a path of a tree leads down from the tree's folder, and into no folder of git."""
    parts = path.split("/")
    return all(part not in ("", ".", "..") and part.casefold() not in (".git", "git~1") for part in parts)


def _is_reached_directly(top: Path, place: Path) -> bool:
    """Whether no link is on the way from a folder to what lies, or would lie, below it."""
    return not any(step.is_symlink() for step in (place, *place.parents) if step != top and step.is_relative_to(top))


def _fill_submodule(worktree: Worktree, repository: Path, here: Path, wanted: str, place: Path) -> None:
    """A submodule from the repository that the user's own checkout has of it; nothing is fetched."""
    if not (_is_reached_directly(repository, here) and _is_reached_directly(worktree.root, place)):
        worktree.missing.append(place.relative_to(worktree.root).as_posix())
        return
    if here.is_dir() and not any(here.iterdir()):
        return  # not checked out here either: both sides are without it
    path = place.relative_to(worktree.root).as_posix()
    mend = f"git submodule update --init {path}"
    if has_repository(repository, here):
        if _has(here, wanted):
            _fill(worktree, here, wanted, place)
            return
        mend = f"git -C {path} fetch origin {wanted}"
    worktree.missing.append(path)
    worktree.notes.append(
        f"submodule {path} is empty in the reference: {wanted[:12]} is not in this clone; fetch it: {mend}"
    )


def has_repository(repository: Path, here: Path) -> bool:
    """Whether a submodule's folder holds a repository of its own, and not one that lies elsewhere."""
    return _is_reached_directly(repository, here) and (here / ".git").exists() and _is_ours(repository, here)


def _is_ours(repository: Path, here: Path) -> bool:
    """Whether a submodule's repository lies in it or in that of the repository around it, as git puts it.

    A folder that was unpacked may have a `.git` that leads to any other repository of the user's.
    """
    try:
        own, around = _common(here), _common(repository)
    except GitFailed:
        return False
    return own != around and (own.is_relative_to(around) or own.is_relative_to(here.resolve()))


def _common(repository: Path) -> Path:
    return (repository / git(repository, "rev-parse", "--git-common-dir")).resolve()


def _has(repository: Path, commit: str) -> bool:
    try:
        git(repository, "cat-file", "-e", f"{commit}^{{commit}}", extra={"GIT_NO_LAZY_FETCH": "1"})
    except GitFailed:
        return False
    return True


# ---- removing --------------------------------------------------------------------------------------------------------


def remove(folder: Path) -> None:
    """Remove a temporary folder, and from the repositories what they know of the worktrees in it.

    Not by `git worktree prune`, which would forget the user's own worktrees on a disk that is not mounted now.
    """
    for common, place in reversed(_entries_of_record(folder)):
        for _ in range(2):
            try:  # twice "force": a worktree whose making was interrupted is locked
                git(Path(common), "worktree", "remove", "--force", "--force", place)
                break
            except GitFailed:  # half made; without the folder git forgets it all the same
                shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():  # folders that the user's code made read-only
        for parent, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):
                Path(parent).chmod(stat.S_IRWXU)
        shutil.rmtree(folder, ignore_errors=True)


def _entries_of_record(folder: Path) -> list[tuple[str, str]]:
    try:
        lines = (folder / RECORD).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
        entries = [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return []
    return [(common, place) for common, place in entries if _is_below(Path(place), folder)]


def _is_below(place: Path, folder: Path) -> bool:
    """Whether a path leads to what lies in a folder, through no link."""
    plain = Path(os.path.normpath(place))
    return plain != folder and plain.is_relative_to(folder) and _is_reached_directly(folder, plain.parent)


def sweep() -> None:
    """Remove the temporary folders of gates that were killed: this user's, that no process holds locked."""
    for folder in (folder for place in dict.fromkeys(_places()) for folder in place.glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError):  # another gate removes it, or it is somebody else's
            state = folder.lstat()
            if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
                continue
            if not (folder / RECORD).exists():
                if _is_abandoned(folder, state.st_mtime):
                    remove(folder)
                continue
            with (folder / RECORD).open() as record:
                fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(folder)


def _is_abandoned(folder: Path, changed: float) -> bool:
    """Whether the gate that made a folder was killed before it signed for it, or while it removed it. changed: in seconds.

    Its process is not enough: that of another container cannot be seen from here.
    """
    pid = folder.name.removeprefix(PREFIX).partition("-")[0]
    if not pid.isdecimal() or changed > time.time() - LONG_AGO:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's
        return False
    return False
