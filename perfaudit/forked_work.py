"""Work in forked children, each item within a limit of time and memory: what takes more ends its child, and is named."""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

from perfaudit.records import record

try:  # without `pickle`, which CPython wraps around it: it takes four times as long to import
    from _pickle import PicklingError, dumps, loads
except ImportError:
    from pickle import PicklingError, dumps, loads

T = TypeVar("T")
R = TypeVar("R")

CPU_SECONDS = 30  # for one file: 4 MiB of names, the largest file taken, took 21 s to parse and to index
WALL_SECONDS = 300  # for one file: a network disk that does not answer
MEMORY_BYTES = 3 << 30  # for one child beyond what it starts with: these 4 MiB of names took 2.9 GiB
MAX_LOST = 10  # files that end a child; so many cost five minutes, and the others are not looked at
# Objects made and not freed, at which Python looks for cycles. Trees hold none, and are freed as the next file comes: looking
# for cycles took two thirds of the time of parsing 2,000 files at Python's own 700, and a third of a scan every 50 files.
COLLECT_AT = 1_000_000
OUT_OF_MEMORY = 97  # exit status of a child, taken by nothing else
_NEWEST = -1  # protocol
_NUMBER_BYTES = 8  # of the number of an item, and of how long an answer is


@record(frozen=True, slots=True)
class Limits:
    """What one item may take; None for what a file of code may. doing: what the process does, for the reason of a loss."""

    cpu_seconds: float | None = None
    wall_seconds: float | None = None
    memory_bytes: int | None = None
    doing: str = "audited"

    @property
    def cpu(self) -> float:
        return CPU_SECONDS if self.cpu_seconds is None else self.cpu_seconds

    @property
    def wall(self) -> float:
        return WALL_SECONDS if self.wall_seconds is None else self.wall_seconds

    @property
    def memory(self) -> int:
        return MEMORY_BYTES if self.memory_bytes is None else self.memory_bytes


OF_CODE = Limits()


@record(frozen=True, slots=True)
class Lost:
    """What an item gave that ended its child; reason: in the words of a report."""

    reason: str


def in_children(
    work: Callable[[T], R], items: Sequence[T], processes: int = 1, limits: Limits = OF_CODE
) -> Iterator[tuple[T, R | Lost]]:
    """What `work` makes of each item, as they come; in this process, without limits, where none can be forked.

    What `work` raises is raised here. The kernel counts the time, so that C code which never returns to the interpreter
    (a regular expression, the parser) is ended too.
    """
    if not can_fork():
        yield from _in_this_process(work, items)
        return
    waiting = list(enumerate(items))[::-1]
    lost = 0
    crew: list[_Child[T, R]] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < processes:
                crew.append(_Child(work, items, crew, limits))
                crew[-1].take(waiting.pop()[0])
            for child in _wait_for(crew):
                number = child.number
                result = child.result()
                if isinstance(result, Lost):
                    lost += 1
                yield items[number], result
                if lost >= MAX_LOST:
                    reason = f"not looked at: {lost} others ended the process that {limits.doing} them"
                    yield from ((items[number], Lost(reason)) for number, _ in reversed(waiting))
                    waiting.clear()
                if isinstance(result, Lost) or not waiting:
                    crew.remove(child)
                    child.end()
                else:
                    child.take(waiting.pop()[0])
    finally:
        for child in crew:
            child.end()


def can_fork() -> bool:
    """Whether a child may be forked here: not where other threads run, whose locks it would find closed for ever."""
    threading = sys.modules.get("threading")  # where nobody has imported it, there is one thread
    return hasattr(os, "fork") and (threading is None or threading.active_count() == 1)


def _in_this_process(work: Callable[[T], R], items: Sequence[T]) -> Iterator[tuple[T, R | Lost]]:
    """The heap of whoever calls is neither frozen nor thawed: they may have frozen it, and to ask takes a look at all of that."""
    usual = gc.get_threshold()
    _collect_seldom()
    try:
        for item in items:
            try:
                yield item, work(item)
            except MemoryError:
                yield item, Lost("needs more memory than there is")
    finally:
        gc.set_threshold(*usual)


def _collect_seldom() -> None:
    _, *older = gc.get_threshold()
    gc.set_threshold(COLLECT_AT, *older)


def _wait_for(crew: list[_Child[T, R]]) -> list[_Child[T, R]]:
    """The children that have answered, or ended; one is simply read from."""
    if len(crew) == 1:
        return crew[:]
    ready = select.poll()
    for child in crew:
        ready.register(child.answers, select.POLLIN)
    numbers = {number for number, _ in ready.poll()}
    return [child for child in crew if child.answers in numbers]


class _Child(Generic[T, R]):
    """One forked process that works on one item at a time; number: of the item. Pipes: sockets take longer to import."""

    def __init__(
        self, work: Callable[[T], R], items: Sequence[T], others: Sequence[_Child[T, R]], limits: Limits
    ) -> None:
        self.number = -1
        self._limits = limits
        self._status: int | None = None
        taken, self.orders = os.pipe()
        self.answers, given = os.pipe()
        with warnings.catch_warnings():
            # Threads of C libraries (torch's) may run; the child calls none of them.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if self._pid == 0:
            for other in (*others, self):  # else it would not see that this process has gone
                os.close(other.orders)
                os.close(other.answers)
            _live(work, items, taken, given, limits)
        os.close(taken)
        os.close(given)

    def take(self, number: int) -> None:
        self.number = number
        with contextlib.suppress(BrokenPipeError):  # it died; `result` says how
            os.write(self.orders, _as_bytes(number))

    def result(self) -> R | Lost:
        """What came of the item, Lost where the child died. Raises what the work raised."""
        head = self._read(_NUMBER_BYTES)
        body = self._read(_as_number(head)) if head is not None else None
        if body is None:
            return Lost(_reason(self._wait(), self._limits))
        value, error = loads(body)  # of our own process
        if error is not None:
            raise error
        result: R = value
        return result

    def _read(self, size: int) -> bytes | None:
        """So many bytes; None where the child ended before."""
        parts = bytearray()
        while len(parts) < size:
            if not (part := os.read(self.answers, min(size - len(parts), 1 << 20))):
                return None
            parts += part
        return bytes(parts)

    def _wait(self) -> int:
        if self._status is None:
            self._status = os.waitpid(self._pid, 0)[1]
        return self._status

    def end(self) -> None:
        os.close(self.orders)
        os.close(self.answers)
        if self._status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            self._wait()


def _as_bytes(number: int) -> bytes:
    return number.to_bytes(_NUMBER_BYTES, "big")


def _as_number(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _reason(status: int, limits: Limits) -> str:
    """Why a child ended, from its exit status."""
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == OUT_OF_MEMORY:
        return f"needs more than {limits.memory >> 30} GiB of memory"
    ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if ended_by == signal.SIGPROF:
        return f"took longer than {limits.cpu:g} s"
    if ended_by == signal.SIGALRM:
        return f"took longer than {limits.wall:g} s, most of them waiting"
    if ended_by == signal.SIGKILL:
        return f"the process that {limits.doing} it was killed, as the system does where memory is short"
    return f"the process that {limits.doing} it died; a file that does that deserves a bug report"


def _live(work: Callable[[T], R], items: Sequence[T], orders: int, answers: int, limits: Limits) -> NoReturn:
    """The life of a child, which never returns into the code of its parent."""
    status = 1
    try:
        _limit_memory(limits.memory)
        for number in (signal.SIGPROF, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPROF, signal.SIGALRM})
        _collect_seldom()
        gc.freeze()  # what is there already is not looked through again and again
        while order := os.read(orders, _NUMBER_BYTES):  # which was written in one piece
            signal.setitimer(signal.ITIMER_PROF, limits.cpu)
            signal.setitimer(signal.ITIMER_REAL, limits.wall)
            body = _answer(work, items[_as_number(order)])
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
            _write(answers, _as_bytes(len(body)) + body)
        status = 0
    except MemoryError:  # what is kept of earlier files may be half made now
        status = OUT_OF_MEMORY
    except BaseException:  # the parent went away, or Ctrl-C, which it sees itself
        status = 1
    finally:
        os._exit(status)


def _write(to: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(to, rest) :]


def _answer(work: Callable[[T], R], item: T) -> bytes:
    try:
        answer: tuple[Any, Exception | None] = (work(item), None)
    except MemoryError:
        raise
    except Exception as error:
        answer = (None, error)
    try:
        return dumps(answer, _NEWEST)
    except (PicklingError, TypeError, AttributeError, RecursionError):
        import traceback

        return dumps((None, RuntimeError(traceback.format_exc())))


def _limit_memory(most_bytes: int) -> None:
    """Let memory beyond the limit be a MemoryError; nothing where the system does not say what is taken already."""
    try:
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        wanted = taken + most_bytes
        resource.setrlimit(resource.RLIMIT_AS, (wanted if most < 0 else min(wanted, most), most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, OSError, ValueError):
        return
