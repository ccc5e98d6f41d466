"""Building the user's loaders and optimizers with other arguments than theirs, and knowing where they were built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfaudit.target.construction import Arguments, Note, SiteOf, constructors_observed

_NEEDS_WORKERS = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
_EXCLUDES = {"fused": "foreach", "foreach": "fused"}  # torch.optim refuses an optimizer that is asked to be both


@contextmanager
def loaders_built(overrides: dict[str, Any], note: Note | None = None) -> Iterator[SiteOf]:
    """While it is open, every DataLoader is built with these keyword arguments replaced, and its call site is kept.

    Yields a function from a loader to its site. overrides may hold num_workers, pin_memory, prefetch_factor, batch_size, …;
    what a setting rules out is dropped (prefetch_factor and persistent_workers without workers). note: as
    `constructors_observed` has it.
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

    with constructors_observed([DataLoader], lambda _: change if overrides else None, note=note) as site_of:
        yield site_of


@contextmanager
def optimizers_built(overrides: dict[str, Any] | None = None, note: Note | None = None) -> Iterator[SiteOf]:
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

    classes = _with_constructor(Optimizer) if overrides else [Optimizer]
    with constructors_observed(classes, change_for, note=note) as site_of:
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
