"""Import the user's code as patched, without touching the disk, in this process and in those it spawns."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.machinery
import importlib.util
import io
import linecache
import os
import sys
import tokenize
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit.target.installed_copies import is_below, is_installed_below
from perfaudit.target.provenance import is_library
from perfaudit.target.real_paths import real_path
from perfaudit.target.working_folder import full_path, working_folder

Compiler = Callable[[bytes], types.CodeType | None]  # None for what the file says
PACKAGE = str(Path(__file__).resolve().parents[2])  # the folder from which perfaudit is imported
_LOADER = importlib.machinery.SourceFileLoader
_code_on_disk = _LOADER.get_code
_data_on_disk = _LOADER.get_data

_texts: dict[str, str] = {}  # patched text by real path
_bytes: dict[str, bytes] = {}  # the same as they would be written
_ran: dict[str, str] = {}  # digest of the text that was imported, by real path: the project's files, and patched ones
_compilers: dict[str, Compiler] = {}  # by real path
_files: dict[str, str] = {}  # by the names under which `load` has imported them
_project = ""  # the top of the project; the folder of the command without it


def install(texts: dict[str, str]) -> None:
    """From now on, files at these paths import with these texts; for a process that has not imported them yet.

    Every loader of source files is concerned, also those that an editable install or the user's own
    `spec_from_file_location` make. Tracebacks and `inspect.getsource` show the patched text too, and processes that are
    started by "spawn" or "forkserver" do the same. Byte code on disk is neither read nor written, for no file of the
    project: what runs is the text, as far as there are `digests` of it.
    """
    for path, text in texts.items():
        real = os.path.realpath(full_path(path))
        _texts[real], _bytes[real] = text, _encode(text, real)
        for name in {real, full_path(path)}:
            _show(name, text)
    if _LOADER.get_code is not _code_on_disk:
        return
    _LOADER.get_code = _get_code  # type: ignore[assignment,method-assign]  # for the life of this child
    _LOADER.get_data = _get_data  # type: ignore[assignment,method-assign]
    _carry_to_spawned()


@dataclass(frozen=True, slots=True)
class Installed:
    """What files are imported with: texts and bytes by real path; digests of those that were, to which others are added."""

    texts: dict[str, str]
    bytes: dict[str, bytes]
    ran: dict[str, str]


def in_force() -> Installed:
    """What holds at present in this process, and in those it spawns."""
    return Installed(_texts, _bytes, _ran)


def put_in_force(installed: Installed) -> None:
    """From now on these hold. `install` must have been called."""
    global _texts, _bytes, _ran
    _texts, _bytes, _ran = installed.texts, installed.bytes, installed.ran


@contextlib.contextmanager
def imported_instead(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Inside, files are imported with these texts in the place of those installed; gives the digests of what is imported.

    For a second copy of the project's modules in this process. Afterwards everything is as it was.
    """
    kept, shown = in_force(), dict(linecache.cache)
    put_in_force(Installed(dict(_texts), dict(_bytes), {}))
    try:
        install(dict(texts))
        yield _ran
    finally:
        put_in_force(kept)
        linecache.cache.clear()
        linecache.cache.update(shown)


def project_modules() -> dict[str, types.ModuleType]:
    """The modules in this process that are the project's own, by the name under which they are imported."""
    root = _root()  # once: between two steps of a race there are thousands of modules to go through
    return {name: module for name, module in list(sys.modules.items()) if _is_of(root, module)}


def _is_of(root: str, module: object) -> bool:
    if not isinstance(module, types.ModuleType):
        return False
    own = vars(module)  # a lazy module imports what it is asked for
    file = own.get("__file__")
    if isinstance(file, str):
        return _lies_in(root, file)
    folders = own.get("__path__")
    return any(isinstance(folder, str) and _lies_in(root, folder) for folder in folders or ())


def belongs_to_project(root: str) -> None:
    """From now on, what lies below this folder is the project's, also where the command was typed in a folder in it."""
    global _project
    _project = os.path.realpath(root)


def imported_as(name: str, path: str) -> None:
    """This name stands for this file, also where no folder on `sys.path` says so: for reloading, and for spawned processes."""
    _files[name] = path
    if _known not in sys.meta_path:
        sys.meta_path.insert(0, _known)


def digests() -> dict[str, str]:
    """SHA-256 of the bytes of the project's files as imported so far, by real path; of the patched bytes where there are.

    A patched file that is missing here has not been imported: what ran is not the patch.
    """
    return dict(_ran)


def compile_with(path: str, compiler: Compiler) -> None:
    """From now on, what a file has is compiled by this function in this process. `install` must be called too."""
    _compilers[os.path.realpath(path)] = compiler


def code_of_main(path: str) -> types.CodeType | None:
    """The code of a file that is run as the main program, where `compile_with` has a compiler that makes one."""
    real = os.path.realpath(path)
    return _compilers[real](bytes_of_main(path)) if real in _compilers else None


def bytes_of_main(path: str) -> bytes:
    """What a file that is run as the main program has, patched where it is; from now on there is a digest of it."""
    real = os.path.realpath(path)
    data = _bytes[real] if real in _bytes else Path(path).read_bytes()
    _ran[real] = hashlib.sha256(data).hexdigest()
    return data


def _get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> types.CodeType | None:
    path = self.get_filename(fullname)
    real = os.path.realpath(path)
    if real not in _texts and not _is_projects(real):
        return _code_on_disk(self, fullname)
    data = self.get_data(path)
    _ran[real] = hashlib.sha256(data).hexdigest()
    if real in _texts:
        _show(path, _texts[real])
    code = _compilers[real](data) if real in _compilers else None
    return self.source_to_code(data, path) if code is None else code


def _root() -> str:
    return _project or os.path.realpath(working_folder())


@functools.cache
def _lies_in(root: str, path: str) -> bool:
    return _is_projects(real_path(path), root)


def _is_projects(real: str, root: str = "") -> bool:
    root = root or _root()
    return is_below(real, root) and not is_library(real) and not is_installed_below(real, root)


def _get_data(self: importlib.machinery.SourceFileLoader, path: str) -> bytes:
    data = _bytes.get(os.path.realpath(path))
    return _data_on_disk(self, path) if data is None else data


def _encode(text: str, path: str) -> bytes:
    """A source text in the encoding that the file has on disk, byte-order mark included; what the text declares without one."""
    try:
        data = Path(path).read_bytes()
    except OSError:
        data = text.encode()
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    return text.encode(encoding)


def _show(path: str, text: str) -> None:
    """Have tracebacks and `inspect` read this text for a file. Lines end as Python counts them: a form feed is no end."""
    linecache.cache[path] = (len(text), None, list(io.StringIO(text, newline=None)), path)


class _Known:
    """Finds modules by the names under which `load` has imported them."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = _files.get(name)
        if file is None:
            return None
        return importlib.util.spec_from_file_location(name, file, loader=_LOADER(name, file))


_known = _Known()


class Carried:
    """Unpickled as None, after running a text: what a spawned process is told before it imports anything of the user's."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return exec, (self.text, {})


_IN_SPAWNED = """
import sys
sys.path.append({package!r})
import perfaudit.target.overlay as overlay
sys.path.remove({package!r})
for name, path in {files!r}.items():
    overlay.imported_as(name, path)
overlay.install({texts!r})
"""


def _carry_to_spawned() -> None:
    """Let what `multiprocessing` tells a new process first bring the patched texts along: it imports the user's files anew."""
    import multiprocessing.spawn as spawn

    original = spawn.get_preparation_data

    @functools.wraps(original)
    def preparation_data(name: str) -> dict[str, Any]:  # Any: as multiprocessing has it
        text = _IN_SPAWNED.format(package=PACKAGE, files=_files, texts=_texts)
        return {**original(name), "patched by perfaudit": Carried(text)}

    spawn.get_preparation_data = preparation_data
