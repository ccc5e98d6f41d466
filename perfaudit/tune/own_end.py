"""Whether a script in which candidates are raced has ended by an error of its own, or by one of a candidate that was in place.

A script that raises ends. What was in place is to blame at first, since that can be tried; where the same error comes with
nothing in place, or with others, it is the script's own: nobody is to blame, and the race goes on in a new process.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from perfaudit.errors import AT_BREAKPOINT

# As `measure.preparation` tells it of a candidate, and of the training as it is.
_TOLD = re.compile(
    r"((after a step )?with it, )?"
    r"(a step (of your code )?raises (?P<raised>.*?)|(?P<left>.*?: the script left with code .*?))"
    r"(; that ended the script)?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class End:
    """An error by which a script has ended, what was in place, and after how many updates, 0 where that is not known."""

    error: str
    inside: frozenset[str] = frozenset()
    updates: int = 0

    def words(self, target: object) -> str:
        """That the script ends so by itself."""
        if ": the script left with code" in self.error:
            return self.error
        if AT_BREAKPOINT in self.error:
            return f"{target}: {self.error}"
        after = f" after {self.updates} updates of its optimizers" if self.updates else ""
        return f"{target} ends by itself with {self.error}{after}"


def error_of(words: str) -> str:
    """The error that these words are about, with which a step raises; "" where they are about something else."""
    found = _TOLD.fullmatch(words)
    return (found["raised"] or found["left"]) if found else ""


def is_own(end: End, former: Iterable[End]) -> bool:
    """Whether it is the script's own. former: the ends of processes before."""
    return not end.inside or any(
        each.error == end.error and each.inside and not each.inside & end.inside for each in former
    )
