"""Which source call built an object, and building it with other arguments: loaders and optimizers under observation."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_LIBRARIES = tuple(
    os.path.realpath(path) + os.sep
    for path in {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_NEEDS_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
_EXCLUDES = {"fused": "foreach", "foreach": "fused"}  # torch.optim refuses an optimizer that is asked to be both

Arguments = dict[str, Any]  # Any: whatever the user passes on
SiteOf = Callable[[Any], "Site | None"]


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
        """ "a.py:3, called from b.py:9", with paths as seen from the working directory."""
        return ", called from ".join(f"{_shown(site.path)}:{site.line}" for site in (self, *self.stack))


def _shown(path: str) -> str:
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative


def call_site(frame: types.FrameType | None, built: object = None) -> Site | None:
    """The innermost call on the stack that stands in the user's own code, with the exact span of the expression.

    built: an object under construction, whose own constructors are no place where it was built. None if no user code is
    on the stack, and where Python was told to forget positions (`-X no_debug_ranges`).
    """
    inside, outside = _split(frame, built)
    sites = [_site(f) for f in outside if _is_users(f)]
    if not sites or sites[0] is None:
        return None
    through = [_site(f) for f in inside if _is_users(f)]
    return replace(
        sites[0], stack=tuple(s for s in sites[1:] if s is not None), through=tuple(s for s in through if s is not None)
    )


def _split(frame: types.FrameType | None, built: object) -> tuple[list[types.FrameType], list[types.FrameType]]:
    """The frames from this one outwards: those up to the outermost constructor of the object, and those that called it."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    inside = max((n + 1 for n, f in enumerate(frames) if _constructs(f, built)), default=0)
    return frames[:inside], frames[inside:]


def _constructs(frame: types.FrameType, built: object) -> bool:
    """Whether a frame is `__init__` of this object, or `__call__` of the metaclass that makes it."""
    code = frame.f_code
    if built is None or code.co_name not in ("__init__", "__call__") or not code.co_varnames:
        return False
    first = frame.f_locals.get(code.co_varnames[0])
    if not code.co_argcount and isinstance(first, tuple):  # `def __init__(*args, **kwargs)`
        first = first[0] if first else None
    return first is built or (code.co_name == "__call__" and first is type(built))


def _is_users(frame: types.FrameType) -> bool:
    path = os.path.realpath(frame.f_code.co_filename)
    return Path(path).is_file() and not path.startswith((*_LIBRARIES, _OURS))


def _site(frame: types.FrameType) -> Site | None:
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, end_line, column, end_column = positions
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Site(os.path.realpath(frame.f_code.co_filename), line, end_line, column, end_column)


@contextmanager
def loaders_built(overrides: dict[str, Any]) -> Iterator[SiteOf]:
    """While it is open, every DataLoader is built with these keyword arguments replaced, and its call site is kept.

    Yields a function from a loader to its site. overrides may hold num_workers, pin_memory, prefetch_factor, batch_size, …;
    what a setting rules out is dropped (prefetch_factor and persistent_workers without workers).
    """
    from torch.utils.data import DataLoader

    unknown = overrides.keys() - inspect.signature(DataLoader.__init__).parameters.keys()
    if unknown:
        raise TypeError(f"DataLoader takes no {', '.join(sorted(unknown))}")

    def change(named: Arguments) -> None:
        batches_itself = named.get("batch_sampler") is not None or named.get("batch_size", 1) is None
        named.update({k: v for k, v in overrides.items() if not (k == "batch_size" and batches_itself)})
        if named.get("num_workers", 0) == 0:
            for name in _NEEDS_WORKERS:
                named.pop(name, None)

    with _observed([DataLoader], lambda _: change if overrides else None) as site_of:
        yield site_of


@contextmanager
def optimizers_built(overrides: dict[str, Any] | None = None) -> Iterator[SiteOf]:
    """While it is open, the call site of every optimizer is kept; those that name these arguments are built with them.

    Yields a function from an optimizer to its site. An optimizer whose `__init__` does not name an override is built without
    it, its bases as far as they do. `fused=True` drops the user's `foreach`, and the other way round.
    """
    from torch.optim import Optimizer

    def change_for(names: frozenset[str]) -> Callable[[Arguments], None] | None:
        accepted = {k: v for k, v in (overrides or {}).items() if k in names}

        def change(named: Arguments) -> None:
            for name, value in accepted.items():
                named[name] = value
                other = _EXCLUDES.get(name)
                if value and other and other not in accepted:
                    named.pop(other, None)

        return change if accepted else None

    with _observed(_with_constructor(Optimizer) if overrides else [Optimizer], change_for) as site_of:
        yield site_of


def _with_constructor(base: type) -> list[type]:
    """A class and all its subclasses so far, those that define `__init__` themselves."""
    found, queue = dict[type, None](), [base]
    while queue:
        kind = queue.pop()
        queue += kind.__subclasses__()
        if "__init__" in vars(kind):
            found[kind] = None
    return list(found)


@contextmanager
def _observed(
    classes: Iterable[type], change_for: Callable[[frozenset[str]], Callable[[Arguments], None] | None]
) -> Iterator[SiteOf]:
    """While it is open, constructors of these classes keep the site of what they build.

    change_for: from the names of a constructor's arguments to what changes them in place, None where nothing does.
    """
    sites: dict[int, tuple[Any, Site | None]] = {}  # with the object itself, so that no other takes over its id

    def observer(original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        change = change_for(frozenset(p.name for p in signature.parameters.values() if p.kind in kinds))

        @functools.wraps(original)  # user code asks `"fused" in inspect.signature(torch.optim.AdamW).parameters`
        def observed(self: Any, *args: Any, **kwargs: Any) -> None:  # Any: whatever the user passes on
            if id(self) not in sites:
                sites[id(self)] = (self, call_site(sys._getframe(1), self))
            if change is None:
                return original(self, *args, **kwargs)
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError:  # the user's mistake, told by the constructor itself
                return original(self, *args, **kwargs)
            change(bound.arguments)
            return original(*bound.args, **bound.kwargs)

        return observed

    originals = {kind: vars(kind)["__init__"] for kind in classes}
    for kind, original in originals.items():
        kind.__init__ = observer(original)  # type: ignore[misc]  # put back below
    try:
        yield lambda built: sites[id(built)][1] if id(built) in sites else None
    finally:
        for kind, original in originals.items():
            kind.__init__ = original  # type: ignore[misc]
