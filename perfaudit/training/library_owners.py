"""Objects of libraries that build a script's optimizer or loader themselves, from arguments that the script's own call gave them.

Child only. Their constructors are watched, and nothing of them is imported here. Names of arguments are those of the libraries'
documentation (docs/scripts.md has the links).
"""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from perfaudit.target.construction import constructors_observed
from perfaudit.target.provenance import Site, first_argument, is_users, users_call


@dataclass(frozen=True, slots=True)
class _Kind:
    """A class whose subclasses hand arguments on.

    path: names of the dicts that hold those of the optimizer, the first an argument of its own; () where these are arguments of
    its own, behind `prefix`. kept_in: the attribute, of an object that it builds, which holds what the optimizer is given; "" for
    none. loader_prefix: before DataLoader's names among its own arguments, "" where it takes none of them.
    """

    name: str
    path: tuple[str, ...] = ()
    prefix: str = ""
    kept_in: str = ""
    loader_prefix: str = ""


# Functions that hand on what they are given by name beyond their own arguments, and the packages that have them.
_FUNCTIONS = {"create_optimizer_v2": "timm.optim"}
_KINDS = {
    "stable_baselines3.common.base_class": _Kind(
        "BaseAlgorithm", ("policy_kwargs", "optimizer_kwargs"), kept_in="optimizer_kwargs"
    ),
    "skorch.net": _Kind("NeuralNet", prefix="optimizer__", loader_prefix="iterator_train__"),
    "pytorch_forecasting.models.base._base_model": _Kind("BaseModel", ("optimizer_params",)),
}


@dataclass(frozen=True, slots=True)
class Owner:
    """An object, or a function, that hands arguments on.

    site: of the script's call under way when the object was built, or of the function; None for no such call. name: of its class,
    or of the function. The rest is that of its kind.
    """

    name: str
    site: Site | None
    path: tuple[str, ...] = ()
    prefix: str = ""
    kept_in: str = ""
    loader_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Origin:
    """How a library has built an optimizer. place: "file.py:12" of its own line. owner: that hands arguments on, None for none.

    kept: what it is given in this way, as texts of their values. is_given: the script's own call gave some of these.
    """

    place: str
    owner: Owner | None = None
    kept: Mapping[str, str] | None = None
    is_given: bool = False


class LibraryOwners:
    """Those that a script builds, from `watch` on, and the optimizers and loaders that they build."""

    def __init__(self) -> None:
        self._open = contextlib.ExitStack()
        self._owners: dict[int, tuple[Any, Owner]] = {}  # with the object itself, so that no other takes over its id
        self._optimizers: dict[int, tuple[Any, Origin]] = {}
        self._loaders: dict[int, tuple[Any, Owner | None, str, Site | None]] = {}

    def watch(self, after_import: Callable[[str, Callable[[], None]], None]) -> None:
        """Observe the constructors of each of them as soon as its module has been imported."""
        for module in _KINDS:
            after_import(module, partial(self._is_there, module))

    def origin(self, optimizer: Any) -> Origin | None:
        """How a library has built this optimizer; None where a call of the script's did."""
        found = self._optimizers.get(id(optimizer))
        return found[1] if found is not None else None

    def of_loader(self, loader: Any) -> Owner | None:
        """Which object has built this loader from arguments of its own; None for none."""
        found = self._loaders.get(id(loader))
        return found[1] if found is not None else None

    def behind_loader(self, loader: Any) -> tuple[str, Site | None]:
        """The line of a library that built this loader, "" where the script's own did, and the script's call under way then."""
        found = self._loaders.get(id(loader))
        return found[2:] if found is not None else ("", None)

    def note_optimizer(self, optimizer: Any, frame: types.FrameType) -> None:
        """Take an optimizer that is under construction. frame: that called its constructor, or its innermost one."""
        library = _caller(frame, optimizer)
        if library is None or is_users(library):
            return
        place = _line_of(library)
        found = self._owner_of(library)
        if found is None:
            self._optimizers[id(optimizer)] = (optimizer, Origin(place, _function_around(library)))
            return
        (its, owner), within = found
        kept, is_given = dict[str, str](), False
        if owner.kept_in:
            held = next((held for each in within if isinstance(held := _attribute(each, owner.kept_in), dict)), None)
            own = _attribute(its, owner.path[0])
            is_given = isinstance(own, dict) and owner.path[-1] in own
            if held is None or (texts := _as_texts(held)) is None:
                self._optimizers[id(optimizer)] = (optimizer, Origin(place))
                return
            kept = texts
        self._optimizers[id(optimizer)] = (optimizer, Origin(place, owner, kept, is_given))

    def note_loader(self, loader: Any, frame: types.FrameType) -> None:
        """Take a loader that is under construction, as an optimizer is taken."""
        library = _caller(frame, loader)
        if library is None or is_users(library):
            return
        found = self._owner_of(library)
        owner = found[0][1] if found is not None and found[0][1].loader_prefix else None
        self._loaders[id(loader)] = (loader, owner, _line_of(library), users_call(library))

    def _is_there(self, module: str) -> None:
        kind = _KINDS[module]
        owner_class = vars(sys.modules[module]).get(kind.name)
        if isinstance(owner_class, type) and "__init__" in vars(owner_class):
            noted = partial(self._note, kind)
            self._open.enter_context(constructors_observed([owner_class], lambda _: None, note=noted))

    def _note(self, kind: _Kind, its: Any, frame: types.FrameType) -> None:
        site = users_call(frame)
        owner = Owner(type(its).__name__, site, kind.path, kind.prefix, kind.kept_in, kind.loader_prefix)
        self._owners[id(its)] = (its, owner)

    def _owner_of(self, frame: types.FrameType | None) -> tuple[tuple[Any, Owner], list[object]] | None:
        """The innermost owner of which a method runs, and the objects of which one runs within it; None where the script's own
        code runs within it.
        """
        within: list[object] = []
        while frame is not None and not is_users(frame):
            its = first_argument(frame)
            if id(its) in self._owners:
                return self._owners[id(its)], within
            within.append(its)
            frame = frame.f_back
        return None


def _caller(frame: types.FrameType | None, built: object) -> types.FrameType | None:
    """The function that asked for an object under construction."""
    while frame is not None and (first_argument(frame) is built or first_argument(frame) is type(built)):
        frame = frame.f_back
    return frame


def _function_around(frame: types.FrameType) -> Owner | None:
    """The library's function that the script's own call has called and that hands arguments on; None for another one."""
    while frame.f_back is not None and not is_users(frame.f_back):
        frame = frame.f_back
    name, module = frame.f_code.co_name, str(frame.f_globals.get("__name__", ""))
    if name not in _FUNCTIONS or not f"{module}.".startswith(f"{_FUNCTIONS[name]}."):
        return None
    return Owner(name, users_call(frame))


def _attribute(its: object, name: str) -> object:
    """An attribute of the object's own, without any code of its class."""
    try:
        return object.__getattribute__(its, "__dict__").get(name)
    except AttributeError:
        return None


def _as_texts(values: Mapping[Any, Any]) -> dict[str, str] | None:
    """Values as Python writes them; None where one has no such text, as a tensor."""
    texts = {name: plain_text(value) for name, value in values.items() if isinstance(name, str)}
    if len(texts) < len(values) or not all(texts.values()):
        return None
    return {name: text for name, text in texts.items() if text is not None}


def plain_text(value: Any) -> str | None:
    """A number, a string, None, or a tuple of these as Python writes it; None for anything else."""
    if not isinstance(value, (bool, int, float, str, tuple, type(None))):
        return None
    try:
        return repr(value) if ast.literal_eval(repr(value)) == value else None
    except (ValueError, SyntaxError):
        return None


def _line_of(frame: types.FrameType) -> str:
    """ "stable_baselines3/common/policies.py:634" for the line of a library's function that runs."""
    return f"{_short_path(frame.f_code.co_filename)}:{frame.f_lineno}"


@functools.cache
def _short_path(path: str) -> str:
    """A library's file below the folder from which it is imported."""
    above = [folder for folder in sys.path if folder and Path(path).is_relative_to(folder)]
    return str(Path(path).relative_to(max(above, key=len))) if above else path
