"""Import a target and call its factories, with every fault of the user's code as one clear message. Runs in a child only."""

from __future__ import annotations

import ast
import contextlib
import importlib
import os
import sys
import traceback
import types
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perfaudit.errors import TargetError, is_at_breakpoint, words_of
from perfaudit.reading import MAX_FILE_BYTES, read_bytes
from perfaudit.target.names import ROLES, Target, defined_names, factories, how_to_define
from perfaudit.target.overlay import imported_as
from perfaudit.target.working_folder import full_path, shown_path, working_folder

Factory = Callable[..., Any]  # Any: the user's own function


def load(target: Target) -> dict[str, Factory]:
    """The factories of a target by role, its file imported as `python file.py` would find it.

    A file inside a package is imported as part of it, so that relative imports work.
    Raises TargetError when the file does not import or a named factory is not there.
    """
    module = import_file(target.file)
    found: dict[str, Factory] = {}
    by_text = factories(full_path(target.file))
    for role in ROLES:
        name = target.names.get(role)
        if name is not None:
            found[role] = _factory_by_name(name, module, role)
        elif role in by_text and callable(getattr(module, by_text[role], None)):
            found[role] = getattr(module, by_text[role])
    return found


def missing(target: Target, role: str) -> TargetError:
    """The error for a role that a target does not offer, with what it does define."""
    defined = ", ".join(defined_names(full_path(target.file))) or "no function"
    names = ", ".join(ROLES[role])
    return TargetError(
        f"{target.file} defines no {role} factory (looked for {names}; it has: {defined}). Define one, "
        f"or name it: --factory {role}=NAME. A target offers {how_to_define()}"
    )


def _factory_by_name(name: str, module: types.ModuleType, role: str) -> Factory:
    if ":" in name:
        file, _, name = name.rpartition(":")
        if not Path(full_path(file)).is_file():
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
    """The module of a file. Raises TargetError that says where in the user's code the import failed.

    A file is imported once, whoever asks, and wherever the user's code has gone since. It finds modules beside itself first,
    and after all others those in the folder of the command, which `python -m` would have put first.
    """
    path = Path(full_path(file))
    root, parts = _place(path)
    name = ".".join(parts)
    for folder in dict.fromkeys((str(root), str(path.parent)) if len(parts) > 1 else (str(path.parent),)):
        if folder not in sys.path:
            sys.path.insert(0, folder)
    if (here := str(working_folder())) not in sys.path:
        sys.path.append(here)
    with faults_named(f"{file} does not import"):
        if len(parts) > 1 or path.stem == "__init__":
            return _of_package(name, path)
        for candidate in (name, _stand_in(path)):
            known = sys.modules.get(candidate)
            if known is not None and _is_file(known, path):
                return known
        if name in sys.modules or name in sys.stdlib_module_names or not name.isidentifier():
            name = _stand_in(path)
        imported_as(name, str(path))
        return importlib.import_module(name)


def _place(path: Path) -> tuple[Path, list[str]]:
    """The folder from which a file is imported, and the parts of its name there.

    A file below folders without `__init__.py` belongs to a namespace package if it imports relatively: the one that
    begins in the folder of the command, as `python -m` has it.
    """
    parts = [path.stem] if path.stem != "__init__" else []
    root = path.parent
    while (root / "__init__.py").is_file() and root != root.parent:
        parts.insert(0, root.name)
        root = root.parent
    here = working_folder()
    if root == path.parent != here and path.parent.is_relative_to(here) and _imports_relatively(str(path)):
        whole = [*path.parent.relative_to(here).parts, *parts]
        if not any("." in part for part in whole):
            return here, whole
    return root, parts


def _of_package(name: str, path: Path) -> types.ModuleType:
    module = importlib.import_module(name)
    if not _is_file(module, path):
        other = getattr(module, "__file__", None) or "a module without a file"
        raise TargetError(
            f"{shown_path(str(path))}: its name {name} stands for {other} already; give the folder another name"
        )
    return module


def _imports_relatively(file: str) -> bool:
    """Whether a file has a `from .name import …`; False where it cannot be read."""
    try:
        tree = ast.parse(read_bytes(file, MAX_FILE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _stand_in(path: Path) -> str:
    """A module name for a file whose own is taken or is none; another one for each file."""
    words = "".join(c if c.isalnum() else "_" for c in path.stem)
    return f"_target_{words}_{zlib.crc32(os.fsencode(path)):08x}"


def _is_file(module: types.ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and os.path.realpath(file) == os.path.realpath(path)


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
            text = words_of_error(error)
            why = f"{type(error).__name__}: {text[:500]}" if text else type(error).__name__
            if is_at_breakpoint(error):
                why = text
        raise TargetError(f"{self.doing}: {why}{where(error)}") from error


MOST_SAID = 500  # letters of an error that are shown: what says most comes first


def words_of_error(error: BaseException) -> str:
    """The error's own words on one line; of one that came out of a loader's worker, those of the worker."""
    if isinstance(error, SyntaxError):
        return error.msg
    text = words_of(error)
    if "Original Traceback" in text:
        return f"in a loader worker: {text.strip().splitlines()[-1].strip()}"
    if text.startswith("DataLoader worker"):  # it died; the usual reason is a full /dev/shm, which torch names or not
        return f"{' '.join(text.split())}{_shared_memory()}"
    words = " ".join(text.split())
    words = words if len(words) <= MOST_SAID else f"{words[:MOST_SAID].rstrip()} …"
    missing = missing_for(error)
    return ": ".join(filter(None, (words.rstrip(".!"), missing))) if missing else words


_NO_DEVICE = (  # of torch, Lightning, Transformers, Accelerate and bitsandbytes
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "on a CUDA device but torch.cuda.is_available() is False",
    "no GPUs found",
    "No supported gpu backend found",
    "`CUDAAccelerator` can not run on your system",
    "But your machine only has: []",
    "Your setup doesn't support bf16/gpu",
    "(`--fp16_full_eval`) can only be used on CUDA",
    "fp16 mixed precision requires a GPU",
    "fp16 mixed precision requires a device in",
    "No GPU found. A GPU is needed",
    "No GPU or Intel XPU found. A GPU or Intel XPU is needed",
)
_NEEDS_GPU = "it needs a GPU, and none can be used here"


def missing_for(error: BaseException) -> str:
    """What a program lacks here, by the words of its error, or by what it asserted; "" for other errors."""
    text = words_of(error)
    if any(words in " ".join(text.split()) for words in _NO_DEVICE) or _asserts_gpu(error):
        return _NEEDS_GPU
    return "standard input is closed, or at its end" if text == "EOF when reading a line" else ""


def _asserts_gpu(error: BaseException) -> bool:
    """Whether a line that asserts that there is a GPU has raised the error, and there is none."""
    from perfaudit.target.accelerator import lacks_cuda

    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, AssertionError) else []
    words = "assert torch.cuda.is_available()"
    return bool(frames) and (frames[-1].line or "").startswith(words) and lacks_cuda()


def as_module(error: BaseException, file: str) -> str:
    """The dotted name by which a script is to be run that imports from its package; "" for other errors, and other paths."""
    parts = Path(file).with_suffix("").parts
    is_relative = isinstance(error, ImportError) and "no known parent package" in str(error)
    return ".".join(parts) if is_relative and len(parts) > 1 and all(part.isidentifier() for part in parts) else ""


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
    from perfaudit.target.provenance import is_library

    if is_at_breakpoint(error) and str(error):
        return ""  # its words have the place
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({shown_path(error.filename)}:{error.lineno})"
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = os.path.realpath(frame.filename)
        if Path(path).is_file() and not is_library(path):
            return f" ({shown_path(path)}:{frame.lineno} in {frame.name})"
    return ""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception means that memory ran out, on the host or the device.

    oneDNN reports a failed allocation as "could not create a primitive"; the CPU allocator as DefaultCPUAllocator. A "primitive
    descriptor" that it could not create is one that it does not have, as for inputs of two types.
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    text = str(error)
    marks = ("out of memory", "DefaultCPUAllocator", "could not create a primitive", "Cannot allocate memory")
    text = text.replace("could not create a primitive descriptor", "")
    return isinstance(error, (RuntimeError, OSError)) and any(mark in text for mark in marks)
