"""Several variants put in place at once: a patch's code and settings beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from perfaudit.training import Variant


@dataclass(frozen=True, slots=True)
class Together:
    """Variants that are entered in order and left in the reverse one.

    Two that swap the same code are entered as if the first were not there, and leave the code as it was.
    """

    variants: Sequence[Variant]

    def enter(self) -> None:
        """Enter all of them."""
        for variant in self.variants:
            variant.enter()

    def leave(self) -> None:
        """Leave all of them, those that were not entered too, also where leaving one of them raises."""
        with contextlib.ExitStack() as leaving:  # the last one first
            for variant in self.variants:
                leaving.callback(variant.leave)

    def parts_not_run(self, work: Callable[[], object]) -> list[str]:
        """What `work` does not run of any of them; it runs once."""
        missing: list[str] = []

        def around(inner: Callable[[], object], variant: Variant) -> Callable[[], object]:
            return lambda: missing.extend(variant.parts_not_run(inner))

        reduce(around, self.variants, work)()
        return missing
