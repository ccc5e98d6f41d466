"""What is noted of a script's calls, and where: in which thread, and inside of which call nothing more. Knows no torch.

A step pays for each function of ours that it calls, and more where these are long, as torch has taken their place in the
processor's caches. So they are closures that note an event and nothing else, and what they look at lies in one place (slots).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from perfaudit.script.noted_events import END, MOST_NOTED, OURS, UpdateRecords
from perfaudit.script.replaced_functions import Function
from perfaudit.script.running_updates import RunningUpdates
from perfaudit.script.spans import PHASES


class Notes:
    """Events of the training's thread, and what decides whether one is noted.

    here: the thread in which calls are noted; 0 inside a model's call or a backward pass, or while a batch is loaded, as what
    runs there counts for it, and while updates are only counted. depth: phases that have begun and not ended. only_counts: no
    phases are timed until the next update. running: updates that have begun and not ended. note: adds a kind, its time and value.
    """

    __slots__ = ("clock", "depth", "events", "here", "made", "note", "only_counts", "running", "thread")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.here = self.thread = threading.get_ident()
        self.depth = 0
        self.only_counts = False
        self.running = RunningUpdates()
        self.events: list[Any] = []  # as `UpdateRecords.add` takes them
        self.note = self.events.extend
        self.clock = clock
        self.made = UpdateRecords(clock())

    def are_taken_here(self) -> bool:
        """Whether a call is noted here and now."""
        return threading.get_ident() == self.here

    def is_elsewhere(self) -> bool:
        """Whether this is another thread than that of the training."""
        return threading.get_ident() != self.thread

    def begin_in_this_thread(self) -> None:
        """The training runs in the thread that calls this."""
        self.thread = self.here = threading.get_ident()

    def time_phases(self, is_wanted: bool) -> None:
        """From now on time phases, or not. To be called between two updates, in no phase."""
        self.only_counts = not is_wanted
        self.here = self.thread if is_wanted else 0

    def leave_out(self, began: float) -> None:
        """What has passed in this thread since then is no part of a step."""
        if not self.is_elsewhere():
            self.note((OURS, self.clock(), began))
            self.add_up_many()

    def add_up(self) -> None:
        """Make records of what was noted. That takes time which is nobody's."""
        began = self.clock()
        self.made.add(self.events)
        self.events.clear()
        self.note((OURS, self.clock(), began))

    def add_up_many(self) -> None:
        """The same where there are so many that nobody seems to ask for them."""
        if len(self.events) > MOST_NOTED:
            self.add_up()

    def end_phase(self, now: float) -> None:
        """The phase of an update ends."""
        if not self.only_counts:
            self.note((END, now, None))
            self.depth -= 1

    def end_raised(self) -> None:
        """End the phases of updates that have raised; what they took is the next one's."""
        for _each in range(self.running.drop_raised()):
            self.end_phase(self.clock())

    def in_phase(self, phase: str, original: Function) -> Function:
        """A function whose calls are a phase."""
        number, note, clock, thread_now = PHASES.index(phase), self.note, self.clock, threading.get_ident

        def call(*args: Any, **kwargs: Any) -> Any:
            here = self.here
            if not here or thread_now() != here:
                return original(*args, **kwargs)
            note((number, clock(), None))
            self.depth += 1
            try:
                return original(*args, **kwargs)
            finally:
                note((END, clock(), None))
                self.depth -= 1

        return call
