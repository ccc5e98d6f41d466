"""How the processes of a launcher tell each other where they are: files in a folder that all of them see. Knows no torch.

Each writes files of its own only, whole or not at all, and reads those of the others. Nothing listens on the network. On one
node the folder is one of this user's among the temporary files, deleted by the first rank, or by the next run where that was
killed (`script.scratch_folders.sweep`); for several nodes the user names one on a file system that all of them share.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perfaudit.distributed.launch import Place
from perfaudit.files import Folder
from perfaudit.processes import started_at

Json = dict[str, Any]  # Any: nested JSON
PREFIX = "perfaudit_scratch_"  # of `script.scratch_folders`, whose sweep deletes what nobody holds a lock of
JOINED, NOW, DONE, REPORTED, ORDER = "joined", "now", "done", "reported", "order"
TELL_SECONDS = 1.0  # between two signs of life


@dataclass(frozen=True, slots=True)
class Here:
    """What a rank says of itself when it joins: who it is, what it runs and with what.

    pid, since: of its process, and when that was started; host: its node. run: of the launcher's process, see `Meeting.join`.
    """

    rank: int
    pid: int
    since: int | None
    host: str
    script: str
    version: str
    steps: int
    run: str


class Meeting:
    """The folder where the ranks of one start meet; `close` it. All methods but `join` raise OSError where it is gone."""

    def __init__(self, folder: Folder, here: Here, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self.here, self._clock = folder, here, clock
        self._told = -TELL_SECONDS
        self.number = 0  # of the run under way, where ranks make several

    @classmethod
    def join(cls, base: Path, place: Place, script: str, version: str, steps: int, run: str) -> Meeting:
        """Enter the folder of this start in `base`, made if need be. run: what tells this start from earlier ones with the
        same key, "" where nothing does. Raises OSError.
        """
        folder = Folder.open_at(base, PREFIX + place.key, make=True, mode=0o700)
        here = Here(place.rank, os.getpid(), started_at(os.getpid()), socket.gethostname(), script, version, steps, run)
        meeting = cls(folder, here)
        folder.hold()  # no other run sweeps it away
        for what in (DONE, NOW, REPORTED, ORDER):  # of an earlier start
            folder.remove(_name(place.rank, what))
        meeting._write(JOINED, asdict(here))
        return meeting

    def close(self) -> None:
        self._folder.__exit__()

    @property
    def path(self) -> Path:
        return self._folder.path

    def ranks_here(self) -> dict[int, Here]:
        """The ranks that are here, those of earlier starts left out."""
        found = {}
        for name in self._folder.names():
            rank, _, what = name.partition(".")
            if what == JOINED and rank.isdigit() and (told := self._read(int(rank), JOINED)):
                with contextlib.suppress(TypeError):
                    here = Here(**told)
                    if here.run == self.here.run or here.host != self.here.host:
                        found[here.rank] = here
        return found

    def has_joined(self, rank: int) -> bool:
        """Whether what a rank has said of itself is still here."""
        return self._folder.status(_name(rank, JOINED)) is not None

    def tell_now(self, steps: int) -> None:
        """Tell how far this rank is, now and then."""
        now = self._clock()
        if now - self._told >= TELL_SECONDS:
            self._told = now
            self._write(NOW, {"steps": steps})

    def tell_done(self, result: Json) -> None:
        """Tell what this rank has seen: its last word of the run under way."""
        self._write(DONE, {**result, "number": self.number})

    def tell_order(self, order: Json) -> None:
        """Tell what all ranks do next: the run of this number."""
        self._write(ORDER, {**order, "number": self.number})

    def order(self, by: int) -> Json | None:
        """What another rank has told to do in the run of this number, None before."""
        return self._of_this_run(self._read(by, ORDER))

    def tell_reported(self) -> None:
        """Tell that the report is out: nobody needs to wait any more."""
        self._write(REPORTED, {})

    def steps_of(self, rank: int) -> int:
        """How far a rank said it is."""
        told = self._read(rank, NOW) or {}
        steps = told.get("steps", 0)
        return steps if isinstance(steps, int) else 0

    def last_word(self, rank: int) -> Json | None:
        """The last word of a rank on the run under way, None before."""
        return self._of_this_run(self._read(rank, DONE))

    def _of_this_run(self, told: Json | None) -> Json | None:
        return told if told is not None and told.get("number") == self.number else None

    def is_reported(self, by: int) -> bool:
        return self._folder.status(_name(by, REPORTED)) is not None

    def is_dead(self, other: Here) -> bool:
        """Whether the process of a rank on this node is gone."""
        is_known = other.host == self.here.host and other.since is not None
        return is_known and started_at(other.pid) != other.since

    def _write(self, what: str, told: Json) -> None:
        self._folder.write(_name(self.here.rank, what), json.dumps(told).encode(), 0o600, sync=False)

    def _read(self, rank: int, what: str) -> Json | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            told = json.loads(self._folder.read(_name(rank, what)))
            return told if isinstance(told, dict) else None
        return None


def _name(rank: int, what: str) -> str:
    return f"{rank}.{what}"
