"""`perfaudit run` as one of several ranks: they meet, watch each other, and end where one of them is gone."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfaudit.cli.ranks_report import last_word
from perfaudit.distributed.launch import Launcher, RankPlace, key_on_node, launcher_of
from perfaudit.distributed.meeting import SILENT_SECONDS, Here, Meeting
from perfaudit.errors import NothingMeasured, UserError

if TYPE_CHECKING:
    from perfaudit.runs import Run
    from perfaudit.script.observe import Seen
    from perfaudit.script.request import Script

Json = dict[str, Any]  # Any: nested JSON
LOOK_SECONDS = 0.5  # between two looks at the other ranks
# After another rank has ended, for steps that this one may still make; gloo and NCCL may never give up.
ALONE_SECONDS = 15.0
JOIN_SECONDS = 120.0  # for all ranks to be here, from the first one on: a launcher starts them together
LEAVE_SECONDS = 20.0  # for the others' last words, once this rank has ended; of other nodes until they count as gone
GREET_SECONDS = 20.0  # for two ranks to see each other, before which what they tell is not read
REPORT_SECONDS = 60.0  # for the report of the first rank, before which no other one may leave: a launcher ends all then
MOST_NAMED = 8  # ranks, in one sentence
PAUSE = 0.05  # seconds between two looks at a file that is waited for


class LauncherGone(NothingMeasured):
    """What has started the ranks was killed: nobody would end them, or read what they say."""


@contextlib.contextmanager
def together(place: RankPlace, script: Script, steps: int, meet: Path | None) -> Iterator[Ranks]:
    """The other ranks of this start, on this node or, where `meet` names a folder that all nodes see, on all of them.

    Raises UserError where there is no place to meet.
    """
    from perfaudit import __version__
    from perfaudit.script.scratch_folders import remove_scratch, sweep

    base = meet or Path(tempfile.gettempdir())
    members = place.ranks if meet else place.local_ranks
    first = 0 if meet else place.rank - place.local_rank
    torch = next((found.version for found in distributions(name="torch")), "")
    try:
        sweep(base)
        meeting = Meeting.join(
            base, place if meet else replace(place, key=key_on_node(place)), str(script), __version__, steps, first,
            _content_of(script), torch, platform.python_version(),
        )  # fmt: skip
        if meet:
            meeting.keep_telling()
    except OSError as error:
        raise UserError(f"ranks cannot meet in {base}: {error}; --meet names another folder") from error
    ranks = Ranks(place, meeting, first, members, launcher=launcher_of(os.getpid(), place.variable))
    try:
        yield ranks
    finally:
        meeting.close()
        if place.rank == first:
            remove_scratch(meeting.path)


def _content_of(script: Script) -> str:
    """A hash of the script's file; of a module, of its file in the working folder; "" where there is none."""
    path = Path(script.name)
    if script.is_module:
        path = Path(*script.name.split("."))
        path = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    with contextlib.suppress(OSError):
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


class Ranks:
    """One rank's view of the others. first: the one that reports; members: how many meet."""

    def __init__(
        self, place: RankPlace, meeting: Meeting, first: int, members: int, clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep, launcher: Launcher | None = None,
    ) -> None:  # fmt: skip
        self.place, self.first, self.members, self._launcher = place, first, members, launcher
        self._meeting, self._clock, self._sleep = meeting, clock, sleep
        self._began = clock()
        self._look_at = 0.0
        self._alone_since: float | None = None
        self._steps = 0
        self._were_here: set[int] = set()
        self.differ = ""  # that ranks do not run the same, in one sentence, once that is seen
        # That the ranks of this node are not numbered in a row, in one sentence, once that is seen.
        self.misnumbered_ranks = ""

    def begin(self) -> None:
        """The next run begins, in which all ranks are there again. All ranks count them alike."""
        self._meeting.number += 1
        self._alone_since, self._steps = None, 0

    def tell_order(self, order: Json) -> None:
        """Tell the others what to do in the run that has begun."""
        self._meeting.tell_order(order)

    def wait_for_order(self) -> Json | None:
        """What the first rank has told to do in the run that has begun; None where it is gone."""
        with contextlib.suppress(OSError):
            while (order := self._meeting.order(self.first)) is None:
                first = self._ranks_here().get(self.first)
                is_late = first is None and self._clock() - self._began > JOIN_SECONDS
                is_over = not self._meeting.path.exists()  # the first one deletes the folder behind its report
                if is_late or is_over or (first is not None and self._meeting.is_dead(first)):
                    return None
                self._sleep(PAUSE)
            return order
        return None

    def _ranks_here(self) -> dict[int, Here]:
        """The ranks that are here. Raises LauncherGone."""
        if gone := self._launcher_gone():
            raise LauncherGone(gone)
        here = self._meeting.ranks_here()
        self._were_here |= here.keys()
        return here

    def _launcher_gone(self) -> str:
        """That what has started this rank is gone, in one sentence; "" where it is there, or not known."""
        if self._launcher is None or not self._launcher.is_gone:
            return ""
        started = f"{self._launcher.name} (process {self._launcher.pid}), which has started rank {self.place.rank}"
        return f"{started}, is gone; this rank ends"

    def _is_awaited(self, rank: int) -> bool:
        """Whether a rank may have joined that has not been seen here: two looks of each are needed for that."""
        return rank not in self._were_here and self._clock() - self._began < GREET_SECONDS

    @property
    def is_first(self) -> bool:
        return self.place.rank == self.first

    @property
    def numbers(self) -> range:
        """The ranks that meet."""
        return range(self.first, self.first + self.members)

    def heed(self, seen: Seen) -> None:
        """Tell how far this rank is, and look at the others. Raises `Stopped` where no further step can come of it."""
        from perfaudit.script.observe import Stopped

        now = self._clock()
        if seen.number != self._steps:
            self._steps, self._alone_since = seen.number, None
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if gone := self._launcher_gone():
            raise Stopped(gone)
        # Where the folder is gone, the first rank has reported, or somebody has deleted it.
        with contextlib.suppress(OSError):
            self._meeting.tell_now(seen.number)
            self._look(now)

    def _look(self, now: float) -> None:
        from perfaudit.script.observe import Stopped

        here = self._ranks_here()
        self.misnumbered_ranks = self.misnumbered_ranks or self._not_in_a_row()
        if self.misnumbered_ranks:
            raise Stopped(self.misnumbered_ranks)
        self.differ = self.differ or _differ(here)
        if self.differ:
            raise Stopped(self.differ)
        missing = [rank for rank in self.numbers if rank not in here]
        if missing and now - self._began > JOIN_SECONDS:
            raise Stopped(f"{_rank_words(missing)} of {self.place.ranks} did not join within {JOIN_SECONDS:.0f} s")
        gone = {
            rank: how
            for rank, other in here.items()
            if rank != self.place.rank and (how := self._how_gone(rank, other))
        }
        if not gone:
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > ALONE_SECONDS:
            rank, how = next(iter(gone.items()))
            raise Stopped(f"rank {rank} {how}, and this one has waited {ALONE_SECONDS:.0f} s for it")

    def _not_in_a_row(self) -> str:
        """That this node has ranks whose numbers are not in a row, so that these cannot find each other; "" for none.

        Where several nodes are played on one, each has ranks beside those of the others, and all of its own.
        """
        if self.members == self.place.ranks:  # on one node, or in a folder that all nodes see
            return ""
        here, wanted = self._meeting.ranks_of_node(), {*self.numbers}
        if here <= wanted or wanted <= here or self._clock() - self._began < GREET_SECONDS:
            return ""
        return (
            f"{_rank_words(sorted(here))} of {self.place.ranks} are on one node, and their numbers are not in a row: name a "
            "folder that all nodes see with --meet FOLDER"
        )

    def leave_word_to_first(self) -> bool:
        """Whether this rank is the first one of its node; another one waits until that is gone, as launchers end all at once."""
        until = self._clock() + LEAVE_SECONDS
        with contextlib.suppress(OSError):
            while (
                min(self._meeting.ranks_of_node(), default=self.place.rank) < self.place.rank and self._clock() < until
            ):
                self._sleep(PAUSE)
        return self.place.local_rank == 0

    def _how_gone(self, rank: int, other: Here) -> str:
        told = self._meeting.last_word(rank)
        if told is not None:
            return f"has ended after {told.get('steps', 0)} steps"
        return f"is dead after {self._meeting.steps_of(rank)} steps" if self._meeting.is_dead(other) else ""

    def tell_reply(self, reply: Json) -> None:
        """Tell what came of an order that is no run of the script."""
        with contextlib.suppress(OSError):
            self._meeting.tell_done(reply)

    def replies(self, seconds: float) -> list[Json | None]:
        """What came of such an order on the other ranks, waited for; None of one that does not say it in time."""
        until = self._clock() + seconds
        others = [rank for rank in self.numbers if rank != self.place.rank]
        with contextlib.suppress(OSError):
            while True:
                told = [self._meeting.last_word(rank) for rank in others]
                if all(each is not None for each in told) or self._clock() > until or self.first_gone() is not None:
                    return told
                self._sleep(PAUSE)
        return [None for _ in others]

    def first_gone(self) -> int | None:
        """The first rank that is gone, None where all that have been here still are."""
        with contextlib.suppress(OSError):
            here = self._ranks_here()
            gone = (rank for rank in sorted(self._were_here) if rank not in here or self._meeting.is_dead(here[rank]))
            return next(gone, None)
        return self.first

    def tell_done(self, run: Run, seen: Seen) -> None:
        """Tell what this rank has seen, for the one that reports."""
        with contextlib.suppress(OSError):
            self._meeting.tell_done(last_word(self.place.rank, self._meeting.here.host, run, seen))

    def wait_for_report(self) -> bool:
        """Wait until the first rank has reported; whether it has."""
        until = self._clock() + REPORT_SECONDS
        with contextlib.suppress(OSError):
            while self._clock() < until:
                if self._meeting.is_reported(self.first):
                    return True
                first = self._ranks_here().get(self.first)
                if self._meeting.is_dead(first) if first is not None else not self._is_awaited(self.first):
                    # The first one deletes what is in the folder behind its report, and what it was known by with it.
                    return self.first in self._were_here and not self._meeting.has_joined(self.first)
                self._sleep(PAUSE)
        return not self._meeting.path.exists()

    def gather(self) -> list[Json]:
        """The last words of all ranks, in order, waited for; of one that does not speak what is known of it."""
        began, patience = self._clock(), LEAVE_SECONDS
        words, here = {}, {}
        with contextlib.suppress(OSError):
            here = self._ranks_here()
            if not all(map(self._meeting.is_on_this_node, here.values())):
                patience += SILENT_SECONDS
            while True:
                here = self._ranks_here()
                words = {rank: told for rank in self.numbers if (told := self._meeting.last_word(rank)) is not None}
                left = [
                    rank
                    for rank in self.numbers
                    if rank not in words
                    and (not self._meeting.is_dead(here[rank]) if rank in here else self._is_awaited(rank))
                ]
                if not left or self._clock() > began + patience:
                    break
                self._sleep(PAUSE)
        for rank in self.numbers:
            if rank not in words:
                words[rank] = self._without_word(rank, here.get(rank), patience)
        return [words[rank] for rank in sorted(words)]

    def quiet(self) -> contextlib.AbstractContextManager[None]:
        """Without a thread of ours inside, which keeps this process from forking."""
        return self._meeting.quiet()

    def _without_word(self, rank: int, other: Here | None, patience: float) -> Json:
        """What is known of a rank that has told nothing. patience: seconds for which it was waited for."""
        if other is None:
            waited = self._clock() - self._began
            return {"rank": rank, "ended": "missing", "message": f"has not joined in {waited:.0f} s"}
        steps, is_dead = 0, False
        with contextlib.suppress(OSError):
            steps, is_dead = self._meeting.steps_of(rank), self._meeting.is_dead(other)
        silence = f"told nothing for {patience:.0f} s{f' after step {steps}' if steps else ''}"
        message = "it left no word" if is_dead else silence
        return {
            "rank": rank,
            "ended": "dead" if is_dead else "late",
            "message": message,
            "steps": steps,
            "host": other.host,
        }

    def tell_reported(self) -> None:
        """The report is out: the others may leave."""
        with contextlib.suppress(OSError):
            self._meeting.tell_reported()


def _differ(here: Mapping[int, Here]) -> str:
    """That a rank runs something else than the first of those that are here, in the same words on all of them; "" for none."""
    first = here[min(here)] if here else None
    for rank, other in sorted(here.items()):
        if first is None or rank == first.rank:
            continue
        if other.version != first.version:
            return f"rank {first.rank} runs perfaudit {first.version}, rank {rank} {other.version}"
        if other.script != first.script:
            return f"rank {first.rank} runs `{first.script}`, rank {rank} `{other.script}`: all ranks must run the same"
        if other.steps != first.steps:
            return f"rank {first.rank} ends after {first.steps} steps, rank {rank} after {other.steps}"
        if other.content != first.content:
            return f"`{first.script}` is another file on rank {rank} than on rank {first.rank}: all ranks must run the same"
        if other.torch != first.torch:
            return f"rank {first.rank} has torch {first.torch or 'none'}, rank {rank} {other.torch or 'none'}"
        if other.python != first.python:
            return f"rank {first.rank} runs Python {first.python}, rank {rank} {other.python}"
    return ""


def _rank_words(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = f" and {len(ranks) - MOST_NAMED} more" if len(ranks) > MOST_NAMED else ""
    return f"ranks {', '.join(map(str, ranks[:MOST_NAMED]))}{more}"
