"""A training in a child, in which candidates are raced: see `verbs.racing` and `measure.screening`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from perfaudit.measure.child import Asked
from perfaudit.measure.child_subject import HANGING
from perfaudit.measure.exchange import exchange_folder

Json = dict[str, Any]  # Any: nested JSON
STEPS_OF_ONE = 2  # times the limit of a step, which may pass without another candidate being put in place


class ChildEngine:
    """Races in the training that was built in a child, which is its own from now on.

    timeout: seconds that each step may take, and putting a candidate in place. of_ranks: the child is one on each rank.
    longest: the same for whoever asks, who may have less time.
    """

    longest = math.inf

    def __init__(self, child: Asked, timeout: float, of_ranks: bool = False) -> None:
        self._timeout, self._of_ranks = timeout, of_ranks
        self._marker = tempfile.NamedTemporaryFile(prefix="perfaudit-", dir=exchange_folder())  # noqa: SIM115  # closed with the engine
        self._child = child

    def screen(self, entrants: list[Json], least: float | None, seed: int, **more: Any) -> Json:  # Any: JSON
        """Put each in place once and be ready to race: see `verbs.racing.screen`, also for what more may be said.

        Raises ChildFailed.
        """
        command = {"do": "screen", "entrants": entrants, "least": least, "seed": seed, **more}
        command |= {"marker": self._marker.name, "of_ranks": self._of_ranks}
        return self._child.ask(command, min(STEPS_OF_ONE * self._timeout, self.longest), self.in_place)

    def race(self, seconds: float, last: float) -> Json:
        """Race for so long: see `measure.screening.Screening.run`. Raises ChildFailed."""
        within = min(self._timeout, self.longest) + HANGING * seconds
        return self._child.ask({"do": "race", "seconds": seconds, "last": last}, within)

    def in_place(self) -> str:
        """The key of what was put in place last, "" for nothing: who is to blame where the process ended."""
        return Path(self._marker.name).read_text(encoding="utf-8").partition("\n")[0]

    def close(self) -> None:
        """End the process."""
        self._child.close()
        self._marker.close()
