"""Imports the Python files of rule folders from the bytes that were read, and lets them import nothing of the project.

A rule may import what is installed, perfaudit, and files of its own folder (`from .helper import name`). Anything else that
`sys.path` leads to belongs to the project that is scanned: whoever changes it there would change what the rule does, although
its folder is as it was.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

from perfaudit.static.rule_folder import USER_RULES, RuleFolder

_NEVER_FILES = ("built-in", "frozen")  # the origin of modules that no file holds
_folders: dict[str, RuleFolder] = {}  # by the name of the package
_here = threading.local()


def import_rule(folder: RuleFolder, stem: str) -> ModuleType:
    """The module of a file directly in a folder of rules. Raises whatever the file raises."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    key = hashlib.sha256(f"{folder.digest}\0{folder.path}".encode("utf-8", "surrogateescape")).hexdigest()[:16]
    _folders[f"{USER_RULES}.f{key}"] = folder
    with rule_is_running():
        return importlib.import_module(f"{USER_RULES}.f{key}.{stem}")


@contextlib.contextmanager
def rule_is_running() -> Iterator[None]:
    """Inside, this thread imports only what rules may import. Raises ImportError there for anything else."""
    before = getattr(_here, "is_rule", False)
    _here.is_rule = True
    try:
        yield
    finally:
        _here.is_rule = before


class _Finder(importlib.abc.MetaPathFinder):
    """Finds modules of rule folders in their bytes; while a rule runs, refuses top modules that are not installed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name == USER_RULES or name.startswith(f"{USER_RULES}."):
            return _spec_of_rule(name)
        if path is not None or not getattr(_here, "is_rule", False):
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        found = next(filter(None, (finder.find_spec(name, None, target) for finder in others)), None)
        if found is not None and not _is_installed(found):
            where = found.origin or ", ".join(found.submodule_search_locations or ())
            raise ImportError(
                f"{name} ({where}) is neither installed nor in the folder of the rule, whose own files are imported "
                f"as `from . import name`",
                name=name,
            )
        return found


def _spec_of_rule(name: str) -> importlib.machinery.ModuleSpec:
    """Raises ModuleNotFoundError for what a folder does not hold, also above it: `from ..other import name`."""
    if name == USER_RULES:
        return importlib.machinery.ModuleSpec(name, _Loader(b"", ""), is_package=True)
    package = ".".join(name.split(".")[:2])
    folder = _folders.get(package)
    if folder is None:
        raise ModuleNotFoundError("a rule imports nothing from above its own folder", name=name)
    inside = name[len(package) + 1 :].replace(".", "/")
    if not inside or any(file.startswith(f"{inside}/") for file in folder.files):
        return _spec(name, folder, f"{inside}/__init__.py".lstrip("/"), is_package=True)
    if f"{inside}.py" in folder.files:
        return _spec(name, folder, f"{inside}.py", is_package=False)
    raise ModuleNotFoundError(f"{folder.path} holds no {inside}.py", name=name)


def _spec(name: str, folder: RuleFolder, file: str, is_package: bool) -> importlib.machinery.ModuleSpec:
    place = str(folder.path / file)
    loader = _Loader(folder.files.get(file, b""), place, folder)  # a folder is a package without an __init__.py too
    spec = importlib.machinery.ModuleSpec(name, loader, origin=place, is_package=is_package)
    spec.has_location = True
    return spec


class _Loader(importlib.abc.Loader):
    """Runs bytes that were read before; byte code on the disk is never looked at."""

    def __init__(self, data: bytes, place: str, folder: RuleFolder | None = None) -> None:
        self._data, self._place, self._folder = data, place, folder

    def exec_module(self, module: ModuleType) -> None:
        with rule_is_running():
            exec(compile(self._data, self._place, "exec", dont_inherit=True), module.__dict__)

    def get_data(self, path: str) -> bytes:
        """What `pkgutil.get_data` returns: a file of the folder as it was read. Raises OSError."""
        if self._folder is None:
            raise FileNotFoundError(path)
        try:
            return self._folder.files[Path(path).relative_to(self._folder.path).as_posix()]
        except (KeyError, ValueError):
            raise FileNotFoundError(path) from None


def _is_installed(spec: importlib.machinery.ModuleSpec) -> bool:
    if spec.origin in _NEVER_FILES:
        return True
    places = [*([spec.origin] if spec.origin else []), *(spec.submodule_search_locations or ())]
    return bool(places) and all(os.path.abspath(place).startswith(_installed_folders()) for place in places)  # noqa: PTH100


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    """Where Python and its package managers install, each with "/" at its end. What they link there is installed too."""
    named = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    named += site.getsitepackages()
    if site.ENABLE_USER_SITE:
        named.append(site.getusersitepackages())
    return tuple({f"{place}{os.sep}" for folder in named for place in (folder, os.path.realpath(folder))})
