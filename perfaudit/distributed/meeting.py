"""How the processes of a launcher tell each other where they are: files in a folder that all of them see. Knows no torch.

Each writes files of its own only, whole or not at all, and reads those of the others. Nothing listens on the network. On one
node the folder is one of this user's among the temporary files, deleted by the first rank, or by the next run where that was
killed (`script.scratch_folders.sweep`); for several nodes the user names one on a file system that all of them share.

An earlier start may have left files there. Each rank draws a token when it joins. The first one repeats the tokens it finds
beside its own, which is the token of the start. A rank that finds its token repeated takes that of the start, and repeats it in
all that it writes; what has another one is not read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from perfaudit.distributed.launch import RankPlace
from perfaudit.files import Folder
from perfaudit.processes import started_at

T = TypeVar("T")
Json = dict[str, Any]  # Any: nested JSON
PREFIX = "perfaudit_scratch_"  # of `script.scratch_folders`, whose sweep deletes what nobody holds a lock of
JOINED, GREETED, NOW, DONE, REPORTED, ORDER = "joined", "greeted", "now", "done", "reported", "order"
OPEN_SECONDS = 10.0  # for another process that deletes what an earlier start has left; it needs milliseconds
TELL_SECONDS = 1.0  # between two signs of life
SILENT_SECONDS = 30.0  # without a sign of life, after which a rank of another node is gone; chosen
QUIET_SECONDS = 300.0  # the same of a rank that has said that it gives none for a while
# What a file system of several machines says of a file that another one is replacing at this moment: the next look may find it.
PASSING = frozenset({errno.ESTALE, errno.EIO, errno.EAGAIN, errno.EINTR, errno.ETIMEDOUT, errno.EBUSY})
LOOKS, LOOK_AGAIN_SECONDS = 3, 0.05
# Seconds of silence that one look at a rank may count: between two looks this process, or the file system, may have stood still.
LONGEST_LOOK = 2.0


@dataclass(frozen=True, slots=True)
class Here:
    """What a rank says of itself when it joins: who it is, what it runs and with what.

    pid, since: of its process, and when that was started; host: its node; kernel: of which that process is one, as two nodes may
    have one name. content: a hash of the script's file, "" where it is not known. torch: "" where there is none. token: of this
    rank; start: that of the first rank, "" before that has repeated this one's.
    """

    rank: int
    pid: int
    since: int | None
    host: str
    script: str
    version: str
    steps: int
    torch: str = ""
    python: str = ""
    content: str = ""
    token: str = ""
    start: str = ""
    kernel: str = ""


_FIELDS = frozenset(field.name for field in fields(Here))


class Meeting:
    """The folder where the ranks of one start meet; `close` it. All methods but `join` raise OSError where it is gone.

    first: the rank that repeats the tokens of the others.
    """

    def __init__(self, folder: Folder, here: Here, first: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder, self.here, self._first, self._clock = folder, here, first, clock
        self._written: dict[str, Json] = {}  # by this rank, by what it tells
        self._greeted: dict[str, str] = {}  # tokens that the first rank has repeated
        self._signs: dict[int, _Sign] = {}
        self._told, self._beats = -TELL_SECONDS, 0
        self._lock = threading.RLock()  # of what this rank writes
        self._heart: _Heart | None = None
        self.number = 0  # of the run under way, where ranks make several

    @classmethod
    def join(
        cls, base: Path, place: RankPlace, script: str, version: str, steps: int, first: int = 0, content: str = "",
        torch: str = "", python: str = "", clock: Callable[[], float] = time.monotonic,
    ) -> Meeting:  # fmt: skip
        """Enter the folder of this start in `base`, made if need be. The rest is as `Here` has it. Raises OSError."""
        folder = _open(base, PREFIX + place.key)
        token = secrets.token_hex(8)
        here = Here(
            place.rank, os.getpid(), started_at(os.getpid()), socket.gethostname(), script, version, steps, torch, python,
            content, token, token if place.rank == first else "", _kernel(),
        )  # fmt: skip
        meeting = cls(folder, here, first, clock)
        for what in (GREETED, DONE, NOW, REPORTED, ORDER):  # of an earlier start
            folder.remove(_name(place.rank, what))
        meeting._write(JOINED, asdict(here))
        return meeting

    def keep_telling(self) -> None:
        """Give a sign of life now and then until `close`, whatever this rank does meanwhile, and greet who joins.

        Only ranks of other nodes need it: a thread keeps this process from forking, which a scan does for its limits.
        """
        self._heart = _Heart(self._beat)

    def _beat(self) -> None:
        with contextlib.suppress(OSError):  # the file system may come back
            self._greet(dict(self._all_who_joined()))
            with self._lock:
                self._write_now(self._written.get(NOW, {}).get("steps", 0))

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """Without a thread inside: the others are told to wait for signs of life longer."""
        if self._heart is None:
            yield
            return
        with contextlib.suppress(OSError):
            self._write_now(self._written.get(NOW, {}).get("steps", 0), is_quiet=True)
        self._heart.end()
        try:
            yield
        finally:
            self.keep_telling()

    def close(self) -> None:
        if self._heart is None or self._heart.end():
            self._folder.__exit__()  # else it waits for the file system, and the folder stays open for it

    @property
    def path(self) -> Path:
        return self._folder.path

    def ranks_here(self) -> dict[int, Here]:
        """The ranks that are here, those of earlier starts left out. They greet each other in it: look again and again.

        One of another version may not greet as this one does; on this node it is here while its process lives.
        """
        joined = dict(self._all_who_joined())
        self._greet(joined)
        start, mine = self.here.start, self.here
        found = {rank: here for rank, here in joined.items() if here.start == start != ""}
        for rank, here in joined.items():
            # Of this node alone, where its process tells that it lives: on another one, an earlier start may have left it.
            is_here = here.host == mine.host and here.since is not None and started_at(here.pid) == here.since
            if rank not in found and here.version != mine.version and is_here:
                found[rank] = here
        return found | {mine.rank: mine}

    def ranks_of_node(self) -> set[int]:
        """Ranks whose processes live on this node and that have joined, also those that no first rank has greeted."""
        return {
            rank
            for rank, here in self._all_who_joined()
            if self.is_on_this_node(here) and here.since is not None and started_at(here.pid) == here.since
        }

    def _all_who_joined(self) -> Iterator[tuple[int, Here]]:
        """What ranks of any start have said of themselves."""
        for name in _patiently(self._folder.names):
            rank, _, what = name.partition(".")
            if what == JOINED and rank.isdigit() and (told := self._read_any(int(rank), JOINED)):
                here = None
                with contextlib.suppress(TypeError):  # another version may have other fields
                    here = Here(**{name: value for name, value in told.items() if name in _FIELDS})
                if here is not None:
                    yield int(rank), here

    def _greet(self, joined: dict[int, Here]) -> None:
        """Repeat the tokens of all who are here, as the first rank; as another, take the start whose first rank has repeated
        this one's.
        """
        with self._lock:
            mine = self.here
            if mine.rank == self._first:
                found = {str(rank): here.token for rank, here in joined.items()}
                if found != self._greeted:
                    self._write(GREETED, {"tokens": found})
                    self._greeted = found
                return
            told = self._read_any(self._first, GREETED) or {}
            tokens, start = told.get("tokens"), told.get("start")
            is_greeted = isinstance(tokens, dict) and tokens.get(str(mine.rank)) == mine.token
            if is_greeted and isinstance(start, str) and start != mine.start:
                self.here = replace(mine, start=start)
                for what, written in {**self._written, JOINED: asdict(self.here)}.items():
                    self._write(what, {**written, "start": start})

    def has_joined(self, rank: int) -> bool:
        """Whether what a rank has said of itself is still here."""
        return self._folder.status(_name(rank, JOINED)) is not None

    def tell_now(self, steps: int) -> None:
        """Tell how far this rank is, now and then."""
        now = self._clock()
        with self._lock:
            if now - self._told >= TELL_SECONDS:
                self._told = now
                self._write_now(steps)

    def _write_now(self, steps: int, is_quiet: bool = False) -> None:
        self._beats += 1
        self._write(NOW, {"steps": steps, "beats": self._beats, "is_quiet": is_quiet})

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
        return self._read(by, REPORTED) is not None

    def is_dead(self, other: Here) -> bool:
        """Whether a rank is gone: on this node, whether its process is; on another, whether it gives no sign of life."""
        if self.is_on_this_node(other) and other.since is not None:
            return started_at(other.pid) != other.since
        is_quiet = (self._read(other.rank, NOW) or {}).get("is_quiet")
        return self._silence(other) > (QUIET_SECONDS if is_quiet else SILENT_SECONDS)

    def is_on_this_node(self, other: Here) -> bool:
        return (other.host, other.kernel) == (self.here.host, self.here.kernel)

    def _silence(self, other: Here) -> float:
        """Seconds for which this rank has seen the same of another one; clocks of two nodes are not compared."""
        told = other.token, (self._read(other.rank, NOW) or {}).get("beats")
        now, before = self._clock(), self._signs.get(other.rank)
        seconds = before.silence + min(now - before.at, LONGEST_LOOK) if before and before.told == told else 0.0
        self._signs[other.rank] = _Sign(told, now, seconds)
        return seconds

    def _write(self, what: str, told: Json) -> None:
        with self._lock:
            self._written[what] = told = {**told, "start": self.here.start}
            self._folder.write(_name(self.here.rank, what), json.dumps(told).encode(), 0o600, sync=False)

    def _read(self, rank: int, what: str) -> Json | None:
        """What a rank of this start has told."""
        told = self._read_any(rank, what)
        return told if told is not None and told.get("start") == self.here.start != "" else None

    def _read_any(self, rank: int, what: str) -> Json | None:
        with contextlib.suppress(FileNotFoundError, ValueError):
            told = json.loads(_patiently(lambda: self._folder.read(_name(rank, what))))
            return told if isinstance(told, dict) else None
        return None


class _Heart:
    """A thread that does something each TELL_SECONDS until `end`."""

    def __init__(self, beat: Callable[[], None]) -> None:
        self._beat, self._is_over = beat, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._is_over.wait(TELL_SECONDS):
            self._beat()

    def end(self) -> bool:
        """Whether the thread has ended: it may wait for the file system."""
        self._is_over.set()
        self._thread.join(SILENT_SECONDS)
        return not self._thread.is_alive()


def _patiently(read: Callable[[], T]) -> T:
    """What is read, looked for again where the file system says what may pass. Raises OSError."""
    for _ in range(LOOKS - 1):
        try:
            return read()
        except OSError as error:
            if error.errno not in PASSING:
                raise
            time.sleep(LOOK_AGAIN_SECONDS)
    return read()


def _kernel() -> str:
    """The boot and the space of process numbers that this process is one of; "" where that is not told."""
    with contextlib.suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"
    return ""


def _open(base: Path, name: str) -> Folder:
    """The folder, made if need be, and held, so that no other run sweeps it away. Raises OSError.

    One that an earlier start has left may be swept away by another rank at this moment: then it is made anew.
    """
    end = time.monotonic() + OPEN_SECONDS
    while True:
        with contextlib.suppress(FileNotFoundError):
            folder = Folder.open_at(base, name, make=True, mode=0o700)
            if folder.hold() and folder.is_at_its_path():
                return folder
            folder.__exit__()
        if not base.is_dir():
            raise FileNotFoundError("no such folder")
        if time.monotonic() > end:
            raise TimeoutError(f"{name} is held by another process")
        time.sleep(0.02)


@dataclass(frozen=True, slots=True)
class _Sign:
    """What a rank told when it was looked at last, when that was, and for how long it had been the same."""

    told: tuple[str, Any]  # Any: of a file
    at: float
    silence: float


def _name(rank: int, what: str) -> str:
    return f"{rank}.{what}"
