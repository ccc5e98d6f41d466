"""What a script's process tells of its training over a pipe, and when enough was seen. Child only."""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import signal
import sys
import time
from typing import Any

from perfaudit.script.called_functions import GRACE, LONGEST, MOST, SECONDS, CalledFunctions
from perfaudit.script.facts import bytes_in_use, facts_of, sample_lengths
from perfaudit.script.loop_progress import fraction_done
from perfaudit.script.own_files import OwnFiles, is_own
from perfaudit.script.pipe import MOST_AT_ONCE, Pipe
from perfaudit.script.rank_values import RankValues
from perfaudit.script.step_profile import STEPS, StepProfile
from perfaudit.script.steps_so_far import StepsSoFar
from perfaudit.script.values import ValuesWatch, read_values
from perfaudit.script.waiting import Waiting
from perfaudit.script.watch import Watch
from perfaudit.script.watched_process import WatchedProcess
from perfaudit.script.watched_steps import WatchedSteps

Json = dict[str, Any]  # Any: nested JSON
TELL_SECONDS = 0.25  # between two writes to the pipe, so that a fast step pays for few of them
FIRST_TELL_SECONDS = 0.05  # the same for the first updates: a script that hangs soon is known to have trained
FIRST_TOLD = 16  # so many are the first updates; they are told each time, too, that there are twice as many
LOOK_SECONDS = (0.05, 0.5)  # between two looks at who waits, each at two updates: at first, and after a while
LOOKS_LESS = 1.25  # times as long until the next look, each time
SIGN_SECONDS = 1.0  # between two signs of a script without an update
FEWEST = 4  # steps, for which a slow script is given more time: the first is not counted
PATIENCE = 60.0  # seconds behind the time that is given, for these; then LEAST are enough
LEAST = 2  # steps, of which one counts
FEW = 20  # steps: an evaluation that took most of the time leaves less; more are waited for if they come soon
SOON = 0.25  # of the time that is given
EVALUATES = 4.0  # times the seconds of the longest step so far, without a backward pass, from which on it is no step
FACTS_AFTER = 4  # updates, and after twice as many each time: a script that is killed tells nothing at its end
MOST_STARTED = 20  # processes of which it is told what they are for


class Teller:
    """What is told of a script while it trains, and the end of it when enough was seen.

    pid: the script's process, where this is one that it has started.
    """

    def __init__(self, order: Json, pipe: Pipe, turn: WatchedProcess | None = None, pid: int = 0) -> None:
        self._pipe = pipe
        self.has_ended = False  # whether it was told that the script has
        self._pid = pid or os.getpid()
        self._turn = turn or WatchedProcess()
        self._started = 0  # processes that were told
        self._steps, self._seconds = order["steps"], order["seconds"]
        self._is_live = order["is_live"]
        self._wants_profile, self._trace = order["profile"], order["trace"]
        self._is_exported = order["is_whole"]
        self._reads_samples = order["reads_samples"]
        self._profile: StepProfile | None = None  # under way
        self._profiled = 0  # updates since it began
        self._called: CalledFunctions | None = None  # of steps behind those that are timed
        self._heard: list[CalledFunctions] = []  # the same afterwards, and of the first step
        self._early: CalledFunctions | None = (
            None  # of the first step, which does not count: a script may end by itself
        )
        self._is_early = True  # until it is begun to be listened to
        self._optimizers: set[int] = set()  # of that step
        self._listened = 0  # updates since it began
        self._listens_since = 0.0
        self._told = time.monotonic()
        self._first: float | None = None
        self._so_far = StepsSoFar()
        self._enough_at = math.inf  # if there are `FEWEST` steps by then
        self._counted_at = 0.0  # the last update
        self._longest = 0.0  # seconds until an update has ended, of all so far
        self._signed = 0.0
        self._is_watched = False  # as far as is known
        os.register_at_fork(after_in_child=self._ask_again)
        self._files = OwnFiles()
        self._waiting = Waiting()
        self._look_at, self._looked, self._is_looking = 0.0, 0, False  # again when, after which update, at the next one
        self._look_after = LOOK_SECONDS[0]
        self._chosen = None if order["values"] or order["is_whole"] else WatchedSteps()
        self._change_at = math.inf  # with this update begin others that are watched, or that are not
        of_rank = RankValues() if order["is_rank"] else None
        self.watch = (ValuesWatch if order["values"] else Watch)(self.count, on_sign=self.sign, of_rank=of_rank)

    def count(self, optimizer: int) -> None:
        """Count an update, tell now and then, and end the script where enough was seen. optimizer: its number."""
        if not self._is_watched:
            self._is_watched = self._turn.is_mine()
            if not self._is_watched:
                self.watch.take_records()  # another process tells its own
                return
        if self._profile is not None:
            self._go_on_profiling()
            return
        now = time.monotonic()
        if self._called is not None:
            self._go_on_listening(now)
            return
        if self._early is not None:
            if optimizer in self._optimizers:
                self._end_listening_early()
            self._optimizers.add(optimizer)
        if self._first is None:
            self._first = now
            self._enough_at = now + self._seconds if self._seconds else math.inf
            self._files.names()  # the first time takes milliseconds, and the first step does not count
            if os.getpid() != self._pid:
                self._tell_at_its_end()
        self._so_far.add(optimizer)
        updates = self.watch.counts.updates
        if now >= self._look_at or self._is_looking:
            self._look(now, updates)
        is_power = not updates & (updates - 1)
        if is_power and updates >= FACTS_AFTER:
            self._tell_facts_so_far()
        is_early = updates <= FIRST_TOLD
        if now - self._told > (FIRST_TELL_SECONDS if is_early else TELL_SECONDS) or (is_early and is_power):
            self.tell()
            if self._is_live:
                self._tell_state()
            self._weigh(now - self._first, updates)
        before, self._counted_at = self._counted_at, now
        self._longest = max(
            self._longest, now - (before or self.watch.counts.first_batch_at or self.watch.counts.torch_at or now)
        )
        if (not self._steps and now < self._enough_at) or not self._is_enough(now, now - before):
            if self._chosen is not None and updates >= self._change_at:
                is_watched, number = self._chosen.next_row()
                self.watch.watch_next(is_watched)
                self._change_at = updates + number
            return
        if self._wants_profile:
            self.tell()
            self._profile = StepProfile()
            self._profile.begin()
            return
        if not self._begins_to_listen(now):
            self._end_script()

    def _begins_to_listen(self, now: float) -> bool:
        """Whether some steps more are to tell which functions they call. Not where ranks must make the same number of steps.

        All that is known is told before: the script may have no more steps, and end by itself or do something else for long.
        """
        seconds = (now - (self._first or now)) / max(1, self.watch.counts.updates - 1) * self._so_far.updates_per_step
        called = CalledFunctions()
        if seconds > LONGEST or self.watch.of_rank is not None or os.getpid() != self._pid:
            return False
        self.tell()
        self._pipe.tell({"facts": self._last_facts()})
        if not called.begin():
            return False
        self._pipe.tell({"enough_within": GRACE})
        self._called, self._listens_since = called, now
        return True

    def _begin_to_listen_early(self) -> None:
        self._is_early = False
        called = CalledFunctions()
        if self.watch.of_rank is None and os.getpid() == self._pid and called.begin():
            self._early = called

    def _end_listening_early(self) -> None:
        if self._early is not None:
            self._early.end()
            self._heard.append(self._early)
            self._early = None

    def _go_on_listening(self, now: float) -> None:
        self.watch.take_records()  # a step that is slowed is no time to go by
        self._listened += 1
        steps, rest = divmod(self._listened, self._so_far.updates_per_step)
        if self._called is None or rest or not steps or (steps < MOST and now - self._listens_since < SECONDS):
            return
        self._called.end()
        self._heard.append(self._called)
        self._called = None
        self._end_script()

    def _weigh(self, seconds: float, updates: int) -> None:
        """See how many of the next updates are watched."""
        if self._chosen is not None:
            self._chosen.weigh(updates, seconds, self.watch.events_per_update, self._so_far.updates_per_step)
            if self._chosen.share < 1.0 and math.isinf(self._change_at):
                self._change_at = updates  # later ones are drawn: what is told behind a long step must not begin a row

    def _ask_again(self) -> None:
        self._is_watched = False

    def _look(self, now: float, updates: int) -> None:
        """See who waits for whom, at the ends of two updates in a row."""
        self._waiting.end_update(is_next=updates - self._looked == 1)
        self._looked, self._is_looking = updates, not self._is_looking
        self._look_at = now + self._look_after
        if not self._is_looking:
            self._look_after = min(self._look_after * LOOKS_LESS, LOOK_SECONDS[1])

    def _go_on_profiling(self) -> None:
        self.watch.take_records()  # a profiled step is no time to go by
        self._profiled += 1
        if self._profiled >= STEPS * self._so_far.updates_per_step:
            self._end_script()
        if self._profile is not None and self._profiled % self._so_far.updates_per_step == 0:
            self._profile.begin_step()

    def _end_script(self) -> None:
        self._end("enough")
        sys.stdout.flush()
        if os.getpid() != self._pid:
            os.kill(self._pid, signal.SIGKILL)  # which waits for this process
        os._exit(0)  # no `finally` of the script's runs, which would save what it has

    def _tell_profile(self) -> None:
        if self._profile is None:
            return
        steps = self._profiled // self._so_far.updates_per_step
        found: Json = {"steps": 0, "why": "the profiler failed"}
        with contextlib.suppress(Exception):  # parts of torch that change; a run counts without a profile
            found = self._profile.end(steps, self._trace, self._is_exported)
        self._profile = None
        self._pipe.tell({"profile": found})

    def note_started(self, what: str) -> None:
        """Tell that the script has started a process."""
        if self._started < MOST_STARTED and os.getpid() == self._pid:
            self._started += 1
            self._pipe.tell({"started": what})

    def sign(self) -> None:
        """Tell now and then that the script trains, though no update has ended a step.

        Behind an update, an evaluation may take any time: it is told, and where the time is up, it is not waited for.
        """
        if self._is_early and not self.watch.counts.updates:
            self._begin_to_listen_early()
        now = time.monotonic()
        if now - self._signed <= SIGN_SECONDS:
            return
        self._signed = now
        if not self.watch.counts.updates:
            if now - self._told > SIGN_SECONDS and os.getpid() == self._pid:
                self._told = now
                self._tell_signs()
        elif self._is_watched and self._evaluates(now):
            self._end_listening_early()
            self.tell()
            self._pipe.tell({"evaluated": self.watch.counts.evaluated})
            if self._profile is None and self._called is None and now >= self._enough_at + SOON * self._seconds:
                self._pipe.tell({"waited_for": "evaluation"})
                self._end_script()

    def _tell_signs(self) -> None:
        counts = self.watch.counts
        self._pipe.tell({"batches": counts.batches, "backwards": counts.backwards})

    def _evaluates(self, now: float) -> bool:
        """Whether what the script has done since its last update is no step: a step has a backward pass, and comes sooner."""
        since = now - self._counted_at
        return self.watch.counts.evaluated > 1 and since > max(SIGN_SECONDS, EVALUATES * self._longest)

    def _is_enough(self, now: float, last: float) -> bool:
        """Whether steps or time are up. last: seconds of the last update, by which is told how soon more would be there."""
        steps = self._so_far.steps
        if self._steps and steps >= self._steps:
            return True
        if now < self._enough_at or steps < (FEWEST if now < self._enough_at + PATIENCE else LEAST):
            return False
        if self._so_far.is_in_first_round and now < self._enough_at + self._seconds:
            return False
        return steps >= FEW or now + (FEW - steps) * last >= self._enough_at + SOON * self._seconds

    def tell(self) -> None:
        """Tell the records since the last time."""
        records = self.watch.take_records()
        read_values(records)
        for first in range(0, len(records), MOST_AT_ONCE):
            self._pipe.tell({"updates": records[first : first + MOST_AT_ONCE]})
        self._told = time.monotonic()

    def _tell_state(self) -> None:
        fraction = None
        with contextlib.suppress(Exception):  # whatever the script's objects do when they are looked at
            fraction = fraction_done(sys._getframe(1), is_own, self.watch.fraction_of_epoch)
        self._pipe.tell({"memory": bytes_in_use(), "fraction": fraction})

    def end(self, how: str, message: str = "", code: int = 0) -> None:
        """Tell that the script has ended, and what is left; of a process that it has started, only what is left."""
        if os.getpid() == self._pid:
            self._end(how, message, code)
        elif self._turn.is_taken:
            self._tell_rest()

    def _end(self, how: str, message: str = "", code: int = 0) -> None:
        self.has_ended = True
        counts = self.watch.counts
        if not counts.updates and (counts.batches or counts.backwards):
            self._tell_signs()  # all of them: what was told before is as old as the first
        self.tell()
        self._tell_profile()
        self._pipe.tell({"ended": how, "message": message, "code": code, "facts": self._last_facts()})

    def _tell_rest(self) -> None:
        self.tell()
        self._tell_profile()
        self._pipe.tell({"facts": self._last_facts()})

    def _tell_facts_so_far(self) -> None:
        """Tell what is known of the training now. A process that was started is brief: its line must be whole, see `Pipe`."""
        facts = self._facts()
        if os.getpid() != self._pid:
            facts.pop("files", None)
        if facts:
            self._pipe.tell({"facts": facts})

    def _tell_at_its_end(self) -> None:
        """In a process of `multiprocessing`: have it tell what is left before it ends."""
        if "multiprocessing.util" in sys.modules:
            from multiprocessing.util import Finalize

            Finalize(None, self._tell_rest, exitpriority=0)

    def _facts(self) -> Json:
        with contextlib.suppress(Exception):  # facts of torch's private parts; a run counts without them
            return facts_of(self.watch, self._files) | self._waiting.facts() | {"is_started": os.getpid() != self._pid}
        return {}

    def _last_facts(self) -> Json:
        """Those of the end, with what takes longer to find."""
        facts = self._facts()
        with contextlib.suppress(Exception):  # classes of the script's may do anything when they are looked at
            facts["never_built"] = self.watch.never_built(frozenset(facts["files"]))
            known = [each for each in self._heard if each.is_known]
            if known and not self.watch.compiles:
                names = [each.names(facts["files"]) for each in known]
                facts["called"] = {
                    file: sorted({*itertools.chain(*(each[file] for each in names))}) for file in names[0]
                }
            if self._reads_samples and os.getpid() == self._pid:
                facts["sample_lengths"] = sample_lengths(self.watch)
            facts["main"] = os.path.abspath(getattr(sys.modules["__main__"], "__file__", None) or "")  # noqa: PTH100
        return facts
