"""What a script draws without a seed of its own, here and in what it starts: alike in two runs from one seed. Child only.

Nothing heavy is imported: it goes along into new interpreters, before they import anything of the user's.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Sequence

from perfaudit.script.after_import import after_import
from perfaudit.script.carried import carry
from perfaudit.target.overlay import PACKAGE, Carried

_IN_STARTED = """
import sys
sys.path.append({package!r})
from perfaudit.script.unseeded_streams import seed_new_interpreter
sys.path.remove({package!r})
seed_new_interpreter({place!r})
"""


def seed_unseeded(seed: int) -> None:
    """From now on, NumPy's generators that are given no seed take theirs from this one, in the order in which they are made.

    For the life of the process. What a program draws from `np.random.default_rng()`, or an environment of gymnasium that is reset
    without a seed, is then the same in each process that makes the same steps. Each process that it starts, by a fork or as a new
    interpreter of `multiprocessing`, has a stream of its own, which follows from the seed and from how many were started before.
    A fork goes on with the global streams of Python and NumPy; in a new interpreter they begin alike too.
    """
    _begin([seed])


def seed_new_interpreter(place: Sequence[int]) -> None:
    """The same in a process that was started as a new interpreter.

    place: the seed, and which one it was of those that each process above it has started.
    """
    numbers = random.Random(repr([*place]))
    own, of_numpy = numbers.getrandbits(64), numbers.getrandbits(32)
    random.seed(own)
    after_import("numpy.random", lambda: sys.modules["numpy.random"].seed(of_numpy))
    _begin([*place])


def _begin(place: list[int]) -> None:
    started = 0

    def begin_stream() -> None:
        kept = sys.modules.get("numpy.random.bit_generator")
        if hasattr(kept, "randbits"):  # what it asks the system for
            kept.randbits = random.Random(repr(place)).getrandbits  # type: ignore[union-attr]

    def count() -> None:
        nonlocal started
        started += 1

    def begin_fork() -> None:
        nonlocal started
        place.append(started)
        started = 0
        begin_stream()

    def text_for_next() -> Carried:
        count()
        return Carried(_IN_STARTED.format(package=PACKAGE, place=[*place, started]))

    after_import("numpy.random", begin_stream)
    os.register_at_fork(before=count, after_in_child=begin_fork)
    carry("seeded by perfaudit", text_for_next)
