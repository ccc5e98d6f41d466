"""What new interpreters that `multiprocessing` starts are given before they import anything of the user's. Child only."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from perfaudit.script.after_import import after_import


def carry(key: str, what: Callable[[], object]) -> None:
    """From now on, each process that is started by "spawn" or "forkserver" unpickles what this gives for it."""
    after_import("multiprocessing.spawn", functools.partial(_put_in_place, key, what))


def _put_in_place(key: str, what: Callable[[], object]) -> None:
    import multiprocessing.spawn as spawn

    original = spawn.get_preparation_data

    @functools.wraps(original)
    def preparation_data(name: str) -> dict[str, Any]:  # Any: as multiprocessing has it
        return {**original(name), key: what()}

    spawn.get_preparation_data = preparation_data
