"""Watching what is built: constructors, torch.compile, and the calls in the user's source behind them. Child only."""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from perfaudit.target.provenance import Site, call_site, first_argument

Arguments = dict[str, Any]  # Any: whatever the user passes on
SiteOf = Callable[[Any], Site | None]
Note = Callable[[Any, types.FrameType], None]


class Built:
    """From an object to the call that built it, None where no call is known; and all that was built."""

    def __init__(self, sites: dict[int, tuple[Any, Site | None]]) -> None:
        self._sites = sites

    def __call__(self, built: Any) -> Site | None:
        return self._sites[id(built)][1] if id(built) in self._sites else None

    def of_one_that(self, fits: Callable[[Any], bool]) -> Site | None:
        """The call that built the only one which fits; None where none does, or several."""
        sites = [site for built, site in self._sites.values() if site is not None and fits(built)]
        return sites[0] if len(sites) == 1 else None

    def everything(self) -> list[tuple[Any, Site | None]]:
        """Each object with its site, in the order in which they were built."""
        return list(self._sites.values())


@contextmanager
def constructors_observed(
    classes: Iterable[type],
    change_for: Callable[[frozenset[str]], Callable[[Arguments], None] | None],
    method: str = "__init__",
    note: Note | None = None,
) -> Iterator[Built]:
    """While it is open, constructors of these classes keep the site of what they build.

    change_for: from the names of a constructor's arguments to what changes them in place, None where nothing does. method: that
    is watched; "__post_init__" is called for dataclasses that inherit from these, too. note: called with each object when its
    construction begins, and with the function that called this constructor.
    """
    sites: dict[int, tuple[Any, Site | None]] = {}  # with the object itself, so that no other takes over its id
    is_open = True

    def observer(original: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(original)
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        change = change_for(frozenset(p.name for p in signature.parameters.values() if p.kind in kinds))

        @functools.wraps(original)  # user code asks `"fused" in inspect.signature(torch.optim.AdamW).parameters`
        def note_and_construct(self: Any, *args: Any, **kwargs: Any) -> None:  # Any: whatever the user passes on
            if is_open and id(self) not in sites:
                sites[id(self)] = (self, call_site(sys._getframe(1), self))
                if note is not None:
                    note(self, sys._getframe(1))
            if change is None or not is_open:
                return original(self, *args, **kwargs)
            try:
                bound = signature.bind(self, *args, **kwargs)
            except TypeError:  # the user's mistake, told by the constructor itself
                return original(self, *args, **kwargs)
            change(bound.arguments)
            return original(*bound.args, **bound.kwargs)

        return note_and_construct

    originals = {kind: vars(kind)[method] for kind in classes}
    ours = {kind: observer(original) for kind, original in originals.items()}
    for kind, observed in ours.items():
        setattr(kind, method, observed)
    try:
        yield Built(sites)
    finally:
        is_open = False
        for kind, original in originals.items():
            if vars(kind)[method] is ours[kind]:  # else the user's code has put its own there, around ours
                setattr(kind, method, original)


class Origins:
    """The calls that built modules, and those that compiled something, from `watch()` on until it is closed.

    Modules that were copied, unpickled or built by a library have none.
    """

    def __init__(self) -> None:
        self._until_closed = ExitStack()
        self._is_open = True
        self._site_of_module: Built | None = None
        self._compiled: dict[int, tuple[Any, Site | None]] = {}  # with the object itself, so that no other takes its id

    def watch(self) -> None:
        """Observe from now on; imports torch. Nothing happens where it is watching already."""
        if self._site_of_module is None:
            import torch

            self._site_of_module = self._until_closed.enter_context(
                constructors_observed([torch.nn.Module], lambda _: None)
            )
            self._until_closed.enter_context(_wrap_compile(torch, self._compile))
            self._until_closed.enter_context(_wrap_compile(torch.nn.Module, self._compile_in_place))

    def close(self) -> None:
        """Put everything back as it was; what was seen is still known."""
        self._is_open = False
        self._until_closed.close()

    def of_module(self, module: Any) -> Site | None:
        """The call that built a module."""
        return self._site_of_module(module) if self._site_of_module is not None else None

    def of_others(self, model: Any) -> list[Site]:
        """The calls that built modules which are no part of a model, one per module."""
        own = {id(module) for module in model.modules()}
        everything = self._site_of_module.everything() if self._site_of_module is not None else []
        return [site for module, site in everything if id(module) not in own and site is not None]

    def of_compiling(self, thing: Any) -> Site | None:
        """The call of torch.compile that returned a module or function, or of `module.compile()`."""
        return self._compiled[id(thing)][1] if id(thing) in self._compiled else None

    def _compile(self, original: Any) -> Any:
        @functools.wraps(original)
        def compile(*args: Any, **kwargs: Any) -> Any:  # Any: whatever the user passes on
            site = call_site(sys._getframe(1))
            result = original(*args, **kwargs)
            if args or kwargs.get("model") is not None:
                return self._keep(result, site)
            return lambda function: self._keep(result(function), site)  # `@torch.compile(mode=...)`

        return compile

    def _compile_in_place(self, original: Any) -> Any:
        @functools.wraps(original)
        def compile(module: Any, *args: Any, **kwargs: Any) -> Any:  # Any: whatever the user passes on
            self._keep(module, call_site(sys._getframe(1)))
            return original(module, *args, **kwargs)

        return compile

    def _keep(self, thing: Any, site: Site | None) -> Any:
        if self._is_open:
            self._compiled[id(thing)] = (thing, site)
        return thing


@contextmanager
def modules_built() -> Iterator[Origins]:
    """While it is open, the calls that build modules and compile things are kept.

    Where torch is not imported yet, that is left to the user's code, which may set variables for it: `watch()` afterwards.
    """
    origins = Origins()
    if "torch" in sys.modules:
        origins.watch()
    try:
        yield origins
    finally:
        origins.close()


@contextmanager
def _wrap_compile(owner: Any, wrapper: Any) -> Iterator[None]:
    original, ours = owner.compile, wrapper(owner.compile)
    owner.compile = ours
    try:
        yield
    finally:
        if owner.compile is ours:  # else the user's code has put its own there, around ours
            owner.compile = original


@contextmanager
def anything_built() -> Iterator[SiteOf]:
    """While it is open, the call that built any object of a class with `__init__` in Python is kept, and every call is slower.

    For objects of which nothing is known but that they are returned: an average of the user's own class.
    """
    sites: dict[int, tuple[object, Site | None]] = {}

    def note_constructor(frame: types.FrameType, event: str, _: object) -> None:
        if event != "call" or frame.f_code.co_name != "__init__":
            return
        built = first_argument(frame)
        if id(built) not in sites:  # the constructors of its bases come later
            sites[id(built)] = (built, call_site(frame.f_back, built))

    before = sys.getprofile()
    sys.setprofile(note_constructor)
    try:
        yield lambda built: sites[id(built)][1] if id(built) in sites else None
    finally:
        sys.setprofile(before)
