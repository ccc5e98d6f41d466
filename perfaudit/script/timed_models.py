"""The classes of models whose calls are timed. Child only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.built_modules import BuiltModules
from perfaudit.script.replaced_functions import Function


class TimedModels:
    """Has a function of ours around the calls of models.

    watch_calls: makes that function of the one that a class has. times_forwards: whether there may be one around `forward`.
    built: the modules among which the models are.
    """

    def __init__(self, watch_calls: Callable[[Function], Function], times_forwards: bool, built: BuiltModules) -> None:
        self._watch_calls, self._times_forwards, self._built = watch_calls, times_forwards, built
        self._classes: dict[type, Function] = {}  # with the function of ours
        self._parts: set[type] = set()  # classes that are timed no more: only their whole calls them
        self._forwards: set[type] = set()

    def time_what_is_there(self, compiles: bool, called: Set[type]) -> None:
        """Time the calls of the classes of all modules that are no part of another one; of parts, where the whole is not called.

        A LightningModule is not called, but has parts that are. Of the script's own classes that are not called, `forward` is
        timed too, which some call by its name. A layer that was built alone and copied into a model is called by that, and is
        timed no more. compiles: whether torch.compile was called. called: the classes, of those that are timed, that the script
        itself has called.
        """
        everything = self._built.alive()
        parts = {id(part) for each in everything for part in _children(each)}
        models = [each for each in everything if id(each) not in parts]
        uncalled = {kind for kind in self._classes if not any(kind in each.__mro__ for each in called)}
        for kind in uncalled & _classes_inside(each for each in everything if type(each) in called):
            uncalled.remove(kind)
            self._parts.add(kind)
            replaced_functions.put_back(kind, "__call__", self._classes.pop(kind))
        models += [part for each in everything if type(each) in uncalled for part in _children(each)]
        if compiles:  # a call of ours would break the graph of what is compiled
            models = [each for each in models if type(each).__name__ == "OptimizedModule"]
        for kind in {type(each) for each in models if getattr(each, "_compiled_call_impl", None) is None} - self._parts:
            if not any(known in kind.__mro__ for known in self._classes):
                self._classes[kind] = replaced_functions.replace(kind, "__call__", self._watch_calls)
        if self._times_forwards and not compiles:
            for kind in uncalled - self._forwards:
                self._forwards.add(kind)
                if "forward" in vars(kind) and not kind.__module__.startswith("torch."):
                    replaced_functions.replace(kind, "forward", self._watch_calls)


def _classes_inside(models: Iterable[Any]) -> set[type]:
    """Of all that is inside of these models."""
    found: dict[int, type] = {}
    pending = [part for model in models for part in _children(model)]
    while pending:
        part = pending.pop()
        if id(part) not in found:
            found[id(part)] = type(part)
            pending += _children(part)
    return set(found.values())


def _children(module: Any) -> Sequence[Any]:
    return [child for child in vars(module).get("_modules", {}).values() if child is not None]
