"""Whatever a script writes goes to a scratch folder: overlay mounts in a mount namespace of its own. Linux, child only.

The kernel does it, so no way of writing is missed: a library in C, `torch.save`, a process that the script starts. Reads go to
the files as they are. The mounts end with the last process of the namespace.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_NEW_MOUNTS, _NEW_USERS = 0x00020000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER of <sched.h>
_PRIVATE, _BIND = (1 << 18) | (1 << 14), 1 << 12  # MS_PRIVATE | MS_REC, MS_BIND of <sys/mount.h>
# Kinds of file systems that hold no files of anybody's, or that must be shared to work (/dev/shm: workers hand over batches).
PSEUDO = frozenset(
    {
        "autofs",
        "binfmt_misc",
        "bpf",
        "cgroup",
        "cgroup2",
        "configfs",
        "debugfs",
        "devpts",
        "devtmpfs",
        "efivarfs",
        "fusectl",
        "hugetlbfs",
        "mqueue",
        "nsfs",
        "proc",
        "pstore",
        "ramfs",
        "securityfs",
        "selinuxfs",
        "sysfs",
        "tracefs",
    }
)
NOT_COVERED = ("/dev", "/proc", "/run", "/sys")


class NotKeptAway(OSError):
    """Writes cannot be kept away here, and why."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A line of /proc/self/mountinfo: where it is mounted and what kind of file system it is; is_writable."""

    place: str
    kind: str
    is_writable: bool


def parse_mounts(mountinfo: str) -> list[Mount]:
    """The mounts of /proc/self/mountinfo, in the order in which they were made."""
    mounts = []
    for line in mountinfo.splitlines():
        own, _, rest = line.partition(" - ")
        fields, kind = own.split(), rest.split()[0] if rest else ""
        if len(fields) < 6:
            continue
        place = fields[4].encode().decode("unicode_escape")
        mounts.append(Mount(place, kind, "rw" in fields[5].split(",")))
    return mounts


def folders_to_cover(mounts: Sequence[Mount], top: Sequence[str]) -> list[str]:
    """The folders that overlays are mounted on, outer ones first: those below the root, and other file systems that hold files.

    top: the folders in "/", links left out.
    """
    places = {mount.place: mount for mount in mounts}  # the last one mounted on a place is what is seen
    roots = [name for name in top if name not in places and not _is_below(name, NOT_COVERED)]
    others = [
        place
        for place, mount in places.items()
        if place != "/" and mount.kind not in PSEUDO and mount.is_writable and not _is_below(place, NOT_COVERED)
    ]
    return sorted({*roots, *others}, key=lambda place: (place.count("/"), place))


def _is_below(place: str, folders: Sequence[str]) -> bool:
    return any(place == folder or place.startswith(folder + "/") for folder in folders)


@dataclass(frozen=True, slots=True)
class Layer:
    """A folder that is covered, and where what is written below it goes, as this process and those it starts can open it."""

    place: str
    upper: Path


@dataclass(frozen=True, slots=True)
class Cover:
    """layers: the folders that are covered. bare: those that cannot be, in which writes reach the files themselves."""

    layers: tuple[Layer, ...]
    bare: tuple[str, ...]

    def written_files(self) -> Iterator[str]:
        """The files that were written, by the names the script knows them by. What was deleted, or is a folder, is none."""
        for layer in self.layers:
            for folder, _, names in os.walk(layer.upper):
                for name in names:
                    path = Path(folder, name)
                    if path.is_symlink() or path.is_file():
                        yield str(Path(layer.place) / path.relative_to(layer.upper))


def keep_away(scratch: Path, own: Sequence[Path] = (), shared: Sequence[Path] = ()) -> Cover:
    """From now on this process and those it starts write into `scratch`, whatever path they name.

    shared: folders that stay as they are, in which others find what is written.

    own: folders in which the script is likely to write. Without root's rights the kernel copies no folder of another user into
    an overlay, so one of ours inside such a folder gets an overlay of its own. What is written beside the scratch folder is
    kept in memory, as an overlay may not lie in itself. Raises NotKeptAway where nothing can be covered; this process may have
    a namespace of its own then and is to end.
    """
    if sys.platform != "linux":
        raise NotKeptAway("overlay mounts are Linux's")
    folder = Path.cwd()
    tops = own_tops(own) if os.geteuid() else []
    _own_namespace()
    mounts = parse_mounts(Path("/proc/self/mountinfo").read_text())
    memory = scratch / "memory"
    memory.mkdir()
    _mount("tmpfs", str(memory), "tmpfs", "mode=0700")
    # The scratch folder is hidden by the overlay on the folder it lies in: from then on it has no name but these.
    uppers = [Path(f"/proc/{os.getpid()}/fd/{os.open(each, os.O_PATH)}") for each in (scratch, memory)]
    layers: list[Layer] = []
    bare: list[str] = []
    inner = {each: os.open(each, os.O_PATH) for each in tops}  # before they are hidden
    stay = {str(each): os.open(each, os.O_PATH) for each in shared}
    waiting = folders_to_cover(mounts, _folders_in("/"))
    waiting.sort(key=lambda place: _is_below(str(scratch), [place]))  # that one last
    number = 0
    while waiting:
        place, number = waiting.pop(0), number + 1
        upper = uppers[_is_below(str(scratch), [place])] / f"{number}"
        below = [mount.place for mount in mounts if mount.place.startswith(place + "/")]
        try:
            _cover(place, place, upper)
            layers.append(Layer(place, upper))
        except NotKeptAway:
            if os.access(place, os.W_OK):
                bare.append(place)
            # Without rights outside the namespace, a folder in which something is mounted cannot be covered; others in it can.
            waiting = [each for each in _folders_in(place) if below and each not in below] + waiting
    for place, lower in inner.items():
        if place not in {layer.place for layer in layers}:
            upper = uppers[_is_below(str(scratch), [place])] / f"own{number}{len(layers)}"
            _cover(f"/proc/self/fd/{lower}", place, upper)
            layers.append(Layer(place, upper))
    if not layers:
        raise NotKeptAway("no overlay can be mounted here")
    for place, own_self in stay.items():
        _bind(f"/proc/self/fd/{own_self}", place)
    os.chdir(folder)  # the same name, now in the overlay
    return Cover(tuple(layers), tuple(bare))


def own_tops(folders: Sequence[Path]) -> list[str]:
    """The outermost folders of this user's that hold these, where folders of another user's lie around them."""
    tops = set()
    for folder in folders:
        outermost = ""
        for each in [*reversed(folder.resolve().parents), folder.resolve()]:
            if each.is_dir() and each.stat().st_uid == os.geteuid():
                outermost = outermost or str(each)
        if outermost.count("/") > 1:  # a folder of the root's is covered itself
            tops.add(outermost)
    return sorted(tops)


def _folders_in(place: str) -> list[str]:
    try:
        with os.scandir(place) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # not ours to read, so not ours to write
        return []


def _own_namespace() -> None:
    users, groups = os.geteuid(), os.getegid()
    libc = _libc()
    is_root = users == 0 and libc.unshare(_NEW_MOUNTS) == 0
    if not is_root:
        if libc.unshare(_NEW_USERS | _NEW_MOUNTS) != 0:
            raise NotKeptAway(f"this machine allows no namespaces ({os.strerror(ctypes.get_errno())})")
        try:
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{users} {users} 1")
            Path("/proc/self/gid_map").write_text(f"{groups} {groups} 1")
        except OSError as error:
            raise NotKeptAway(f"this machine maps no users into a namespace ({error.strerror})") from error
    if libc.mount(b"none", b"/", None, _PRIVATE, None) != 0:
        raise NotKeptAway(f"mounts cannot be made private ({os.strerror(ctypes.get_errno())})")


def _cover(lower: str, place: str, upper: Path) -> None:
    """Mount an overlay on a folder, over what is there or over another name of it. Raises NotKeptAway."""
    work = upper.with_name(f"{upper.name}.work")
    for each in (upper, work):
        each.mkdir()
    options = f"lowerdir={_escape(lower)},upperdir={_escape(str(upper))},workdir={_escape(str(work))}"
    try:
        _mount("overlay", place, "overlay", options + ",userxattr")
    except NotKeptAway:
        _mount("overlay", place, "overlay", options)


def _bind(source: str, place: str) -> None:
    """Have a folder show another one. Raises NotKeptAway."""
    if _libc().mount(source.encode(), place.encode(), None, _BIND, None) != 0:
        raise NotKeptAway(f"{place} cannot be left as it is ({os.strerror(ctypes.get_errno())})")


def _escape(path: str) -> str:
    return path.replace("\\", "\\\\").replace(":", "\\:").replace(",", "\\,")


def _mount(source: str, place: str, kind: str, options: str) -> None:
    if _libc().mount(source.encode(), place.encode(), kind.encode(), 0, options.encode()) != 0:
        raise NotKeptAway(f"no {kind} can be mounted on {place} ({os.strerror(ctypes.get_errno())})")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
