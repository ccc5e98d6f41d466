"""Which call in the user's source built an object: found on the stack while it is built."""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import sys
import sysconfig
import types
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from perfaudit.target.pip_folders import folders_of_pip
from perfaudit.target.working_folder import shown_path

_INSTALLED = ("site-packages", "dist-packages")
# Where packages are installed: for this interpreter, for this user, and where a file `*.pth` leads to.
LIBRARIES = tuple(
    os.path.realpath(path) + os.sep
    for path in {
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        *(path for path in sys.path if Path(path).name in _INSTALLED),
    }
)
OURS = str(Path(__file__).resolve().parents[1]) + os.sep


def is_library(path: str) -> bool:
    """Whether a real path lies where packages are installed, in a folder that pip has filled, or in perfaudit."""
    return path.startswith((*LIBRARIES, OURS, *folders_of_pip(tuple(sys.path))))


@dataclass(frozen=True, slots=True)
class Site:
    """A call in the user's code: lines from 1, columns from 0 in UTF-8 bytes, as `ast` counts them.

    stack: the user's calls around it, innermost first. through: the user's calls between it and the constructor that was
    observed, innermost first: `super().__init__(...)` in a class of theirs, () for a class of a library.
    """

    path: str
    line: int
    end_line: int
    column: int
    end_column: int
    stack: tuple[Site, ...] = field(default=(), compare=False, repr=False)
    through: tuple[Site, ...] = field(default=(), compare=False, repr=False)

    def __str__(self) -> str:
        """ "a.py:3, called from b.py:9", with paths as seen from the folder of the command."""
        return ", called from ".join(f"{shown_path(site.path)}:{site.line}" for site in (self, *self.stack))

    @property
    def calls(self) -> tuple[Site, ...]:
        """All the user's calls from the constructor outwards; the first is the one that passes the arguments on."""
        return (*self.through, self, *self.stack)


def span(site: Site | None) -> list[str | int] | None:
    """[path, line, end line, byte column, end byte column] of the innermost of the calls, for JSON."""
    if site is None:
        return None
    place = site.calls[0]
    return [place.path, place.line, place.end_line, place.column, place.end_column]


def site_as_json(site: Site | None) -> dict[str, Any]:
    """Where something was built, for JSON: the call that passes its arguments on, and the calls around it."""
    return {"site": span(site), "stack": [span(call) for call in site.calls[1:]] if site is not None else []}


def call_site(frame: types.FrameType | None, built: object = None) -> Site | None:
    """The call in the user's own code that built an object, with the exact span of the expression.

    built: an object under construction, whose own constructors are no place where it was built. None where code of a
    library, or code without a file (`exec`), built it: no call in the user's text has its arguments. None, too, where
    Python was told to forget positions (`-X no_debug_ranges`).
    """
    inside, outside = _split(frame, built)
    if not outside or not is_users(outside[0]):
        return None
    site = _site(outside[0])
    if site is None:
        return None
    stack = [_site(f) for f in outside[1:] if is_users(f)]
    through = [_site(f) for f in inside if is_users(f)]
    return replace(
        site, stack=tuple(s for s in stack if s is not None), through=tuple(s for s in through if s is not None)
    )


def users_call(frame: types.FrameType | None) -> Site | None:
    """The innermost call of the user's own code that is under way; None where there is none, or its place is not known."""
    innermost = next(users_frames(frame), None)
    return _site(innermost) if innermost is not None else None


def users_frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """The user's own functions that run, from this frame outwards."""
    while frame is not None:
        if is_users(frame):
            yield frame
        frame = frame.f_back


def _split(frame: types.FrameType | None, built: object) -> tuple[list[types.FrameType], list[types.FrameType]]:
    """The frames from this one outwards: those up to the outermost constructor of the object, and those that called it."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    inside = max((n + 1 for n, f in enumerate(frames) if _constructs(f, built)), default=0)
    return frames[:inside], frames[inside:]


def _constructs(frame: types.FrameType, built: object) -> bool:
    """Whether a frame is `__init__` of this object, a library's wrapper of it, or `__call__` of the metaclass.

    A library's function that is given an object under construction takes part in it, whatever its name.
    """
    code = frame.f_code
    if built is None:
        return False
    if code.co_name == "__call__":
        return first_argument(frame) is type(built)
    if code.co_name == "__init__":
        return first_argument(frame) is built
    return not is_users(frame) and first_argument(frame) is built


def first_argument(frame: types.FrameType) -> object:
    """What a running function was given first by position; None without one."""
    code = frame.f_code
    if code.co_argcount:
        return frame.f_locals.get(code.co_varnames[0])
    if not code.co_flags & inspect.CO_VARARGS:
        return None
    rest = frame.f_locals.get(code.co_varnames[code.co_kwonlyargcount])  # `def __init__(*args, **kwargs)`
    return rest[0] if isinstance(rest, tuple) and rest else None


def is_users(frame: types.FrameType) -> bool:
    name = frame.f_code.co_filename
    return _is_users_file(name, "" if os.path.isabs(name) else os.getcwd())  # noqa: PTH109, PTH117  # Path is far slower


@functools.lru_cache(maxsize=1024)  # asked for each frame of each module that is built
def _is_users_file(name: str, folder: str) -> bool:
    path = os.path.realpath(Path(folder, name))
    return Path(path).is_file() and not is_library(path)


def _site(frame: types.FrameType) -> Site | None:
    return _site_in(frame.f_code, frame.f_lasti, frame.f_code.co_filename)


@functools.lru_cache(maxsize=4096)  # the outer frames are the same for all modules of a model
def _site_in(code: types.CodeType, instruction: int, file: str) -> Site | None:
    """The call of an instruction. The file is asked for because code is equal to that of a copy of its file."""
    line, end_line, column, end_column = next(itertools.islice(code.co_positions(), instruction // 2, None))
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Site(os.path.realpath(file), line, end_line, column, end_column)
