"""The random streams of a process, left as they stood. Child only."""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from perfaudit.target.accelerator import random_states, same_random_numbers


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


def digest_of_streams() -> str:
    """What tells apart where the random streams of Python, NumPy (where imported) and torch on all its devices stand.

    The global ones: a `torch.Generator` or `numpy.random.Generator` of the user's own is not among them.
    """
    seen: list[object] = [random.getstate()]
    if "numpy" in sys.modules:
        kind, words, *rest = sys.modules["numpy"].random.get_state()
        seen += [kind, words.tobytes(), rest]
    if "torch" in sys.modules:
        states = [sys.modules["torch"].get_rng_state(), *(state for _, state in random_states())]
        seen += [state if state is None else bytes(state.cpu().numpy()) for state in states]
    return hashlib.sha256(repr(seen).encode()).hexdigest()[:16]
