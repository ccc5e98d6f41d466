"""Import a target and call its factories, with every fault of the user's code as one clear message. Runs in a child only."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.target.names import ROLES, Target, defined_names, factories, how_to_define
from perfaudit.target.overlay import OverlayLoader

Factory = Callable[..., Any]  # Any: the user's own function


def load(target: Target) -> dict[str, Factory]:
    """The factories of a target by role, its file imported as `python file.py` would find it.

    A file inside a package is imported as part of it, so that relative imports work.
    Raises TargetError when the file does not import or a named factory is not there.
    """
    module = import_file(target.file)
    found: dict[str, Factory] = {}
    by_text = factories(target.file)
    for role in ROLES:
        name = target.names.get(role)
        if name is not None:
            found[role] = _named(name, module, role)
        elif role in by_text and callable(getattr(module, by_text[role], None)):
            found[role] = getattr(module, by_text[role])
    return found


def missing(target: Target, role: str) -> TargetError:
    """The error for a role that a target does not offer, with what it does define."""
    defined = ", ".join(defined_names(target.file)) or "no function"
    names = ", ".join(ROLES[role])
    return TargetError(
        f"{target.file} defines no {role} factory (looked for {names}; it has: {defined}). Define one, "
        f"or name it: --factory {role}=NAME. A target offers {how_to_define()}"
    )


def _named(name: str, module: types.ModuleType, role: str) -> Factory:
    if ":" in name:
        file, _, name = name.rpartition(":")
        if not Path(file).is_file():
            raise TargetError(f"--factory {role}: {file}: no such file")
        module = import_file(file)
    value: object = module
    for part in name.split("."):
        value = getattr(value, part, None)
    if not callable(value):
        defined = ", ".join(
            n for n, v in vars(module).items() if callable(v) and getattr(v, "__module__", "") == module.__name__
        )
        raise TargetError(f"{module.__file__}: no function {name!r} for the {role} (it has: {defined or 'none'})")
    return value


def import_file(file: str) -> types.ModuleType:
    """The module of a file. Raises TargetError that says where in the user's code the import failed."""
    path = Path(file).absolute()
    parts = [path.stem] if path.stem != "__init__" else []
    root = path.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        parts.insert(0, root.name)
        root = root.parent
    in_package = len(parts) > 1 or path.stem == "__init__"
    for folder in dict.fromkeys((str(root), str(path.parent)) if in_package else (str(root),)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = ".".join(parts)
    with faults_named(f"{file} does not import"):
        if in_package:
            return importlib.import_module(name)
        if name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier():
            name = "_target_" + "".join(c if c.isalnum() else "_" for c in path.stem)
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path, loader=OverlayLoader(name, str(path)))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
        return module


class faults_named(contextlib.AbstractContextManager[None]):
    """Turns an exception of the user's code into a TargetError: what was being done, the error, and the user's own line."""

    def __init__(self, doing: str) -> None:
        self.doing = doing

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:  # Any: as the protocol has it
        if error is None or isinstance(error, (TargetError, KeyboardInterrupt, MemoryError)) or is_out_of_memory(error):
            return
        if isinstance(error, SystemExit):
            why = f"it called sys.exit({error.code!r}); keep the program under `if __name__ == '__main__':`"
        else:
            text = said(error)
            why = f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
        raise TargetError(f"{self.doing}: {why}{where(error)}") from error


def said(error: BaseException) -> str:
    """The error's own words on one line; of one that came out of a loader's worker, those of the worker."""
    if isinstance(error, SyntaxError):
        return error.msg
    text = str(error)
    if "Original Traceback" in text:
        return f"in a loader worker: {text.strip().splitlines()[-1].strip()}"
    if text.startswith("DataLoader worker"):  # it died; the usual reason is a full /dev/shm, which torch names or not
        return f"{' '.join(text.split())}{_shared_memory()}"
    return " ".join(text.split())


def _shared_memory() -> str:
    """ "; /dev/shm, where workers leave batches, has 12 of 64 MiB free", "" on systems without it."""
    try:
        state = os.statvfs("/dev/shm")
    except OSError:
        return ""
    free, size = (blocks * state.f_frsize >> 20 for blocks in (state.f_bavail, state.f_blocks))
    return f"; /dev/shm, where workers leave batches, has {free} of {size} MiB free"


def where(error: BaseException) -> str:
    """ " (model.py:12 in build_model)" for the innermost frame of the user's own code, "" if there is none."""
    from perfaudit.target.provenance import _LIBRARIES, _OURS

    if isinstance(error, SyntaxError) and error.filename:
        return f" ({_short(error.filename)}:{error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.realpath(frame.filename)
        if Path(path).is_file() and not path.startswith((*_LIBRARIES, _OURS)):
            return f" ({_short(path)}:{frame.lineno} in {frame.name})"
    return ""


def _short(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on the host or the device.

    oneDNN reports a failed allocation as "could not create a primitive"; the CPU allocator as DefaultCPUAllocator.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    marks = ("out of memory", "DefaultCPUAllocator", "could not create a primitive", "Cannot allocate memory")
    return isinstance(error, (RuntimeError, OSError)) and any(mark in text for mark in marks)
