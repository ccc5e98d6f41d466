"""The classes of models whose calls are timed, found among all objects there are. Child only."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence, Set
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.replaced_functions import Function


class TimedModels:
    """Has a function of ours around the calls of models.

    watch_calls: makes that function of the one that a class has. times_forwards: whether there may be one around `forward`.
    """

    def __init__(self, watch_calls: Callable[[Function], Function], times_forwards: bool) -> None:
        self._watch_calls, self._times_forwards = watch_calls, times_forwards
        self._classes: set[type] = set()
        self._forwards: set[type] = set()

    def time_what_is_there(self, compiles: bool, called: Set[type]) -> None:
        """Time the calls of the classes of all modules that are no part of another one; of parts, where the whole is not called.

        A LightningModule is not called, but has parts that are. Of the script's own classes that are not called, `forward` is
        timed too, which some call by its name. compiles: whether torch.compile was called. called: the classes, of those that are
        timed, that the script itself has called.
        """
        import torch

        everything = [each for each in gc.get_objects() if issubclass(type(each), torch.nn.Module)]
        parts = {id(part) for each in everything for part in _children(each)}
        models = [each for each in everything if id(each) not in parts]
        uncalled = self._classes - called
        models += [part for each in everything if type(each) in uncalled for part in _children(each)]
        if compiles:  # a call of ours would break the graph of what is compiled
            models = [each for each in models if type(each).__name__ == "OptimizedModule"]
        for kind in {type(each) for each in models if getattr(each, "_compiled_call_impl", None) is None}:
            if not any(known in kind.__mro__ for known in self._classes):
                self._classes.add(kind)
                replaced_functions.replace(kind, "__call__", self._watch_calls)
        if self._times_forwards and not compiles:
            for kind in uncalled - self._forwards:
                self._forwards.add(kind)
                if "forward" in vars(kind) and not kind.__module__.startswith("torch."):
                    replaced_functions.replace(kind, "forward", self._watch_calls)


def _children(module: Any) -> Sequence[Any]:
    return [child for child in vars(module).get("_modules", {}).values() if child is not None]
