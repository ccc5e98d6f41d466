"""Whatever a script writes goes to a scratch folder: Python's own ways of writing, with another path. Child only.

For machines that allow no overlay mounts: most containers, and other systems than Linux. A file that was written is read from
the scratch folder afterwards; one that was deleted is gone for the script alone. Libraries in C that open files themselves, and
programs that the script starts, are not reached: `landlock` refuses those, where the kernel has it.
"""

from __future__ import annotations

import builtins
import contextlib
import errno
import functools
import io
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PASSED_ON = ("/dev", "/proc", "/sys")  # no files of anybody's
_KEEP = ("builtins", "io", "_io", "os", "posix", "nt", "_frozen_importlib", "_frozen_importlib_external")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class RedirectedWrites:
    """A view of all files in which what is written lies in `scratch`. `install` puts it in place for the whole process."""

    def __init__(self, scratch: Path, shared: Sequence[Path] = ()) -> None:
        self._root = str(scratch.resolve())
        self._shared = [str(folder.resolve()) for folder in shared]  # in which files are written as they are
        self._upper = os.path.join(self._root, "files")  # noqa: PTH118  # paths of the script are strings here
        self._gone: set[str] = set()
        self._here = ""  # the working directory as the script knows it, where that lies in the scratch folder alone
        self._inside = threading.local()
        self._real = {name: getattr(os, name) for name in _OF_OS}
        self._open = builtins.open
        self._real["mkdir"](self._upper)

    def written_files(self) -> Iterator[str]:
        """The files that were written, by the names the script knows them by."""
        for folder, _, names in self._walk(self._upper):
            for name in names:
                yield folder[len(self._upper) :] + "/" + name

    def _walk(self, top: str) -> Iterator[tuple[str, list[str], list[str]]]:
        with self._real["scandir"](top) as entries:
            found = list(entries)
        folders = [entry.name for entry in found if entry.is_dir(follow_symlinks=False)]
        yield top, folders, [entry.name for entry in found if entry.name not in folders]
        for name in folders:
            yield from self._walk(f"{top}/{name}")

    def install(self) -> None:
        """Put the view in place of Python's own functions."""
        builtins.open = io.open = self.open
        in_place: dict[str, Callable[..., Any]] = {
            "open": self.os_open,
            "replace": functools.partial(self._move, "replace"),
            "rename": functools.partial(self._move, "rename"),
            "remove": self._remove,
            "unlink": self._remove,
            "mkdir": self._mkdir,
            "rmdir": self._rmdir,
            "symlink": self._symlink,
            "link": self._link,
            "chdir": self._chdir,
            "fchdir": self._fchdir,
            "getcwd": self._getcwd,
            "getcwdb": lambda: os.fsencode(self._getcwd()),
            "listdir": self._listdir,
            "scandir": self._scandir,
            **{name: self._reads(name) for name in ("stat", "lstat", "access", "readlink")},
            **{name: self._changes(name) for name in _CHANGES},
        }
        by_id: dict[int, Any] = {id(self._open): builtins.open}
        for name, ours in in_place.items():
            if name not in self._real:
                continue
            by_id[id(self._real[name])] = _named_as(self._real[name], ours)
            setattr(os, name, by_id[id(self._real[name])])
        _put_into_modules(by_id)
        shutil.rmtree = self._rmtree  # type: ignore[assignment]  # which works on descriptors of folders

    def install_for_torch(self) -> None:
        """Let `torch.save` write by `open`: by itself it opens the file in C++."""
        torch: Any = sys.modules["torch"]
        save = torch.save

        @functools.wraps(save)
        def save_in_view(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(f, (str, os.PathLike)):
                return save(obj, f, *args, **kwargs)
            with self.open(f, "wb") as file:
                return save(obj, file, *args, **kwargs)

        torch.save = torch.serialization.save = save_in_view

    def install_for_safetensors(self) -> None:
        """Let safetensors, which opens files in Rust, write where the view has them."""
        module: Any = sys.modules["safetensors.torch"]
        serialize = module.serialize_file
        module.serialize_file = lambda data, filename, *args, **kwargs: serialize(
            data, self._to_write(filename, with_content=False), *args, **kwargs
        )

    # ---- paths -------------------------------------------------------------------------------------------------------

    def _full(self, path: Any) -> str | None:
        """The path as a name in the view; None where it is no path, or one that is passed on as it is."""
        if isinstance(path, int) or getattr(self._inside, "is_busy", False):
            return None
        name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100  # links in the middle are followed below
        folder, base = os.path.split(name)
        self._inside.is_busy = True  # `realpath` reads links by the functions that stand in place of the real ones
        try:
            name = os.path.join(os.path.realpath(folder), base)  # noqa: PTH118
        finally:
            self._inside.is_busy = False
        return None if _is_below(name, (self._root, *self._shared, *PASSED_ON)) else name

    def _in_scratch(self, name: str) -> str:
        return self._upper + name

    def _has_copy(self, name: str) -> bool:
        with contextlib.suppress(OSError):
            self._real["lstat"](self._in_scratch(name))
            return True
        return False

    def _is_gone(self, name: str) -> bool:
        return name in self._gone or any(_is_below(name, (gone,)) for gone in self._gone if not self._has_copy(name))

    def _to_read(self, path: Any) -> Any:
        """Where a path is read from. Raises FileNotFoundError for what the script has deleted."""
        name = self._full(path)
        if name is None:
            return path
        if self._has_copy(name):
            return self._in_scratch(name)
        if self._is_gone(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        return (os.fsencode(name) if isinstance(path, bytes) else name) if self._here else path

    def _to_write(self, path: Any, with_content: bool) -> Any:
        """Where a path is written. with_content: what is there already is to be there, too."""
        name = self._full(path)
        if name is None:
            return path
        place = self._in_scratch(name)
        folder = os.path.dirname(name)  # noqa: PTH120
        if not self._exists(folder):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        self._make_folders(folder)
        if with_content and not self._has_copy(name) and not self._is_gone(name):
            with contextlib.suppress(FileNotFoundError, IsADirectoryError):
                self._copy(name, place)
        self._gone.discard(name)
        return place

    def _copy(self, source: str, place: str) -> None:
        with self._open(source, "rb") as old, self._open(place, "wb") as new:
            while chunk := old.read(1 << 20):
                new.write(chunk)

    def _exists(self, name: str) -> bool:
        try:
            self._real["stat"](self._to_read(name))
        except OSError:
            return False
        return True

    def _make_folders(self, name: str) -> None:
        place = self._upper
        for part in name.strip("/").split("/"):
            place = f"{place}/{part}"
            with contextlib.suppress(FileExistsError):
                self._real["mkdir"](place)

    # ---- in the place of Python's --------------------------------------------------------------------------------------

    def open(self, file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        """As `open`, in the view."""
        if not any(sign in mode for sign in "wax+") or isinstance(file, int):
            return self._open(self._to_read(file), mode, *args, **kwargs)
        if "x" in mode and (name := self._full(file)) is not None and self._exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(file))
        return self._open(self._to_write(file, "a" in mode or "r" in mode), mode, *args, **kwargs)

    def os_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """As `os.open`, in the view; paths relative to a descriptor are passed on."""
        if dir_fd is not None:
            return int(self._real["open"](path, flags, mode, dir_fd=dir_fd))
        if not flags & _WRITES:
            return int(self._real["open"](self._to_read(path), flags, mode))
        name = self._full(path)
        if name is not None and flags & os.O_EXCL and self._exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        if name is not None and not flags & os.O_CREAT and not self._exists(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        return int(self._real["open"](self._to_write(path, not flags & os.O_TRUNC), flags, mode))

    def _move(self, how: str, source: Any, target: Any, **kwargs: Any) -> None:
        old, new = self._full(source), self._full(target)
        if old is None and new is None:
            self._real[how](source, target, **kwargs)
            return
        if old is not None and not self._has_copy(old):
            self._to_read(source)  # whether it is there
            if os.path.isdir(source):  # noqa: PTH112
                self._copy_tree(old)
            else:
                self._to_write(source, with_content=True)
        place = source if old is None else self._in_scratch(old)
        self._real[how](place, self._to_write(target, with_content=False))
        if old is not None:
            self._gone.add(old)

    def _copy_tree(self, name: str) -> None:
        self._make_folders(name)
        for entry in self._listdir(name):
            path = f"{name}/{entry}"
            if os.path.isdir(path):  # noqa: PTH112
                self._copy_tree(path)
            else:
                self._to_write(path, with_content=True)

    def _remove(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = self._full(path)
        if name is None or dir_fd is not None:
            self._real["remove"](path, dir_fd=dir_fd)
            return
        place = self._to_read(path)
        if self._has_copy(name):
            self._real["remove"](place)
        else:
            self._real["lstat"](place)
        self._gone.add(name)

    def _mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        name = self._full(path)
        if name is None or dir_fd is not None:
            self._real["mkdir"](path, mode, dir_fd=dir_fd)
            return
        if self._exists(name):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), os.fspath(path))
        self._real["mkdir"](self._to_write(path, with_content=False), mode)

    def _rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        name = self._full(path)
        if name is None or dir_fd is not None:
            self._real["rmdir"](path, dir_fd=dir_fd)
            return
        if self._listdir(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), os.fspath(path))
        if self._has_copy(name):
            self._real["rmdir"](self._in_scratch(name))
        self._gone.add(name)

    def _rmtree(self, path: Any, ignore_errors: bool = False, onerror: Any = None, **_: Any) -> None:
        name = self._full(path)
        if name is None:
            path = os.fsdecode(path)
            name = path
        try:
            for entry in self._listdir(path):
                inner = f"{os.fsdecode(path)}/{entry}"
                if os.path.isdir(inner) and not os.path.islink(inner):  # noqa: PTH112, PTH114
                    self._rmtree(inner, ignore_errors, onerror)
                else:
                    self._remove(inner)
            self._rmdir(path)
        except OSError:
            if not ignore_errors:
                raise

    def _chdir(self, path: Any) -> None:
        """A folder that is in the scratch folder alone is gone into there, as the tools do that give each run a folder."""
        if isinstance(path, int):
            self._fchdir(path)
            return
        name = self._full(path)
        if name is None:
            self._real["chdir"](path)
            self._here = ""
            return
        is_real = not self._is_gone(name) and not self._is_new(name)
        self._real["chdir"](name if is_real else self._to_read(path))
        self._here = "" if is_real else name

    def _fchdir(self, folder: Any) -> None:
        """Into a folder that is open, which may be the copy in the scratch folder."""
        self._real["fchdir"](folder)
        self._here = ""
        place = str(self._real["getcwd"]())
        if _is_below(place, (self._upper,)):
            self._chdir(place[len(self._upper) :] or "/")

    def _getcwd(self) -> str:
        return self._here or str(self._real["getcwd"]())

    def _is_new(self, name: str) -> bool:
        """Whether there is nothing of this name outside the scratch folder."""
        with contextlib.suppress(OSError):
            self._real["stat"](name)
            return False
        return True

    def _symlink(
        self, source: Any, target: Any, target_is_directory: bool = False, *, dir_fd: int | None = None
    ) -> None:
        self._real["symlink"](source, self._to_write(target, with_content=False), target_is_directory, dir_fd=dir_fd)

    def _link(self, source: Any, target: Any, **_: Any) -> None:
        shutil.copyfile(source, target)  # a hard link would be to the file itself

    def _listdir(self, path: Any = ".") -> list[Any]:
        name = self._full(path)
        if name is None:
            return list(self._real["listdir"](path))
        names: set[str] = set()
        if not self._is_gone(name):
            with contextlib.suppress(FileNotFoundError):
                names |= {os.fsdecode(entry) for entry in self._real["listdir"](name)}
        names = {entry for entry in names if not self._is_gone(f"{name.rstrip('/')}/{entry}")}
        if self._has_copy(name):
            names |= set(self._real["listdir"](self._in_scratch(name)))
        elif not self._exists(name):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), os.fspath(path))
        return [os.fsencode(entry) for entry in names] if isinstance(path, bytes) else sorted(names)

    def _scandir(self, path: Any = ".") -> Any:
        name = self._full(path)
        if name is None or not (self._has_copy(name) or any(_is_below(gone, (name,)) for gone in self._gone)):
            return self._real["scandir"](path if name is None else self._to_read(path))
        return _Entries([_Entry(os.fspath(path), entry) for entry in self._listdir(path)])

    def _reads(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def read(path: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is not None:
                return real(path, *args, **kwargs)
            try:
                place = self._to_read(path)
            except FileNotFoundError:
                if name == "access":
                    return False
                raise
            return real(place, *args, **kwargs)

        return read

    def _changes(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def change(path: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("dir_fd") is not None or self._full(path) is None:
                return real(path, *args, **kwargs)
            place = self._to_read(path)
            if os.path.isdir(path):  # noqa: PTH112
                return real(place, *args, **kwargs) if _is_below(os.fsdecode(place), (self._upper,)) else None
            return real(self._to_write(path, with_content=True), *args, **kwargs)

        return change


def _put_into_modules(by_id: dict[int, Any]) -> None:
    """Put functions in the place of others, given by their ids, where modules that were imported before hold them by a name.

    As `bz2`, which is imported with `shutil`, has `open`. The import system keeps its own.
    """
    for module_name, module in [*sys.modules.items()]:
        if module_name in _KEEP or module_name.startswith(("importlib.", "perfaudit.")):
            continue
        for name, value in [*getattr(module, "__dict__", {}).items()]:
            if id(value) in by_id:
                setattr(module, name, by_id[id(value)])


def _named_as(real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(real)
    def in_view(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    return in_view


class _Entry:
    """An entry of a folder in the view, as `os.DirEntry`."""

    def __init__(self, folder: Any, name: str) -> None:
        self.name = name
        self.path = os.path.join(folder, name)  # noqa: PTH118

    def __fspath__(self) -> str:
        return str(self.path)

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())  # noqa: PTH112

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())  # noqa: PTH113

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)  # noqa: PTH114

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path) if follow_symlinks else os.lstat(self.path)  # noqa: PTH116

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino


class _Entries(list[_Entry]):
    """Entries as `os.scandir` gives them: to be gone through once, and closed."""

    def __enter__(self) -> Iterator[_Entry]:
        return iter(self)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is open."""


_CHANGES = tuple(
    name for name in ("chmod", "chown", "utime", "truncate", "setxattr", "removexattr") if hasattr(os, name)
)
_OF_OS = (
    "open", "replace", "rename", "remove", "unlink", "mkdir", "rmdir", "symlink", "link", "listdir", "scandir",
    "stat", "lstat", "access", "readlink", "chdir", "getcwd", "getcwdb", *_CHANGES,
    *(["fchdir"] if hasattr(os, "fchdir") else []),  # not on every Windows
)  # fmt: skip


def _is_below(name: str, folders: tuple[str, ...]) -> bool:
    return any(name == folder or name.startswith(folder.rstrip("/") + "/") for folder in folders)
