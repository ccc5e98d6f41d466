"""The random streams of a process, left as they stood. Child only."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perfaudit.target.accelerator import same_random_numbers


@contextmanager
def same_random_streams() -> Iterator[None]:
    """Put the random streams of Python, NumPy (where imported) and torch on all its devices back at the end."""
    python = random.getstate()
    numpy = sys.modules["numpy"].random.get_state() if "numpy" in sys.modules else None
    try:
        with same_random_numbers():
            yield
    finally:
        random.setstate(python)
        if numpy is not None:
            sys.modules["numpy"].random.set_state(numpy)


def seed_all(seed: int) -> None:
    """Seed the random streams of Python and, as far as they are imported, NumPy and torch."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seed)
