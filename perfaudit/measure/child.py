"""A child process that holds one variant of a training: started, asked, paused, and ended with all it started."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from perfaudit.errors import NothingMeasured, refusal
from perfaudit.files import append_only
from perfaudit.measure.nursery import CannotFork, Nursery, child_environment, nursery, refuse, start_command
from perfaudit.measure.time_limit import seconds_left
from perfaudit.processes import descendants
from perfaudit.script.quiet_terminal import quiet_input
from perfaudit.script.stands import where_it_stands

Reply = dict[str, Any]  # JSON

_OUTPUT_KEPT = 1 << 20  # bytes of the last answers; only the last lines are ever read
_OURS = str(Path(__file__).resolve().parents[1])
_GRACE = 1.0  # seconds between the dump, TERM and KILL
# Seconds that a killed process may take to give back what it holds; pinned and device memory takes longest.
_GONE = 10.0


class ChildFailed(Exception):
    """A child that died, did not answer in time, or answered with a fault. `kind` tells which.

    kinds: "target" (the user's code while it is loaded and built), "step" (while it trains), "ended" (it has no further step),
    "no step" (it has ended without one), "oom", "timeout", "crash".
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class Asked(Protocol):
    """A child, or one on each rank of a training, asked as one. Raises as `Child` does."""

    def __enter__(self) -> Asked:
        """Itself."""

    def __exit__(self, *_: object) -> None:
        """End it."""

    def ask(self, command: Reply, timeout: float, progress: Callable[[], object] = lambda: None) -> Reply:
        """Give a command and wait for its reply."""

    def pause(self) -> None:
        """Stop it where it is until it is asked again."""

    def at_end(self, work: Callable[[], None]) -> None:
        """Do this when it has ended."""

    def close(self) -> None:
        """End it."""


class Child:
    """One worker process in a session of its own. Commands and replies are JSON lines over private pipes.

    fresh: a new interpreter rather than a fork of one that has torch imported already (for programs that set variables
    before they import torch). folder: its working directory, ours without it. Use as a context manager; leaving it ends
    the process and everything it started. Raises NothingMeasured where the machine does not let one start.
    """

    def __init__(self, fresh: bool = False, folder: Path | None = None) -> None:
        try:
            self._start(fresh, folder)
        except OSError as error:
            why = refusal(error)
            raise NothingMeasured(f"no process to measure in can be started: {why}") from error
        self._buffer = b""
        self._paused = False
        self._closed = False
        self._at_end: list[Callable[[], None]] = []

    def _start(self, fresh: bool, folder: Path | None) -> None:
        with contextlib.ExitStack() as ours, contextlib.ExitStack() as childs:
            self._output = ours.enter_context(tempfile.TemporaryFile())
            append_only(self._output.fileno())
            command_read, self._commands = os.pipe()
            childs.callback(os.close, command_read)
            ours.callback(os.close, self._commands)
            self._replies, reply_write = os.pipe()
            childs.callback(os.close, reply_write)
            ours.callback(os.close, self._replies)
            self._process = _start(command_read, reply_write, self._output.fileno(), fresh, folder)
            ours.pop_all()  # closed in close()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, command: Reply) -> None:
        """Give a command without waiting for its reply. Raises ChildFailed if the child is gone."""
        self.resume()
        self._forget_output()
        try:
            os.write(self._commands, json.dumps(command).encode() + b"\n")
        except BrokenPipeError:
            raise self._death() from None

    def receive(self, timeout: float, progress: Callable[[], object] = lambda: None) -> Reply:
        """The reply to the last command. Raises ChildFailed after `timeout` seconds, when the child dies or reports a fault.

        progress: how far the child has come; where that changes, the seconds begin anew. Raises TimeOver where all time is over
        (see `measure.time_limit`).
        """
        end, reached = time.monotonic() + timeout, progress()
        with selectors.DefaultSelector() as selector:
            selector.register(self._replies, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if (now := progress()) != reached:
                    end, reached = time.monotonic() + timeout, now
                left = end - time.monotonic()
                if left <= 0:
                    raise self._overdue(timeout)
                # A worker of the child may hold the pipe open after the child died, so its end is looked at as well.
                if selector.select(min(left, seconds_left(), 0.2)):
                    chunk = os.read(self._replies, 1 << 16)
                    if not chunk:
                        raise self._death()
                    self._buffer += chunk
                elif self._process.poll() is not None:
                    raise self._death()
                else:
                    self._forget_output()
        line, _, self._buffer = self._buffer.partition(b"\n")
        reply: Reply = json.loads(line)
        if "fault" in reply:
            raise ChildFailed(reply["fault"], reply["message"])
        return reply

    def ask(self, command: Reply, timeout: float, progress: Callable[[], object] = lambda: None) -> Reply:
        """Give a command and wait for its reply; see `receive`."""
        self.send(command)
        return self.receive(timeout, progress)

    def pause(self) -> None:
        """Stop the child and its workers where they are, so that they take no time from another variant."""
        if not self._paused and self._process.poll() is None:
            self._signal(signal.SIGSTOP)
            self._paused = True

    def resume(self) -> None:
        if self._paused:
            self._signal(signal.SIGCONT)
            self._paused = False

    def at_end(self, work: Callable[[], None]) -> None:
        """Do this when the child and everything it started have ended."""
        self._at_end.append(work)

    def close(self) -> None:
        """End the child and everything it started; at once where it does not go by itself.

        Returns when all of them are gone, or after _GONE: the driver gives memory back when the last process that holds the
        device has ended, and a loader's worker holds what it was forked with.
        """
        if self._closed:
            return
        self._closed = True
        family = descendants(self._process.pid)
        self.resume()
        with contextlib.suppress(OSError):
            os.close(self._commands)  # the worker leaves when its commands end
        self._process.wait(_GRACE)
        self._signal(signal.SIGKILL)
        for pid in family:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(_GONE)
        end = time.monotonic() + _GONE
        while any(map(_is_there, family)) and time.monotonic() < end:
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            os.close(self._replies)
        self._output.close()
        for work in self._at_end:
            work()

    def output_tail(self, lines: int = 6) -> str:
        """The last lines the child and the user's code printed."""
        self._output.seek(0, os.SEEK_END)
        size = self._output.tell()
        self._output.seek(max(0, size - 8192))
        text = self._output.read().decode(errors="replace")
        return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])

    def _forget_output(self) -> None:
        """Empty the file with what the child printed once it is large: some programs print at every step."""
        output = self._output.fileno()
        if os.fstat(output).st_size > _OUTPUT_KEPT:
            os.ftruncate(output, 0)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, number)

    def _overdue(self, timeout: float) -> ChildFailed:
        stands = where_it_stands(self._process.pid, self._output.fileno(), _is_users)
        path, _, line = stands.partition(":")
        place = f" (last seen at {_from_here(path)}:{line})" if stands else ""
        return ChildFailed("timeout", f"no answer within {timeout:.0f} s{place}")

    def _death(self) -> ChildFailed:
        code = self._process.wait(_GRACE)
        if code is None:
            return ChildFailed(
                "crash",
                "its process no longer answers but runs on: another program may have taken its place, as by os.execv",
            )
        tail = self.output_tail()
        said = f"; it said last:\n{_indent(tail)}" if tail else ""
        if code == -signal.SIGKILL:
            return ChildFailed("oom", f"the process was killed from outside, probably because memory ran out{said}")
        if code < 0 and (place := _innermost(self.output_tail(80))):
            return ChildFailed("crash", f"the process ended by signal {signal.Signals(-code).name}{place}")
        how = f"by signal {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
        return ChildFailed("crash", f"the process ended {how}{said}")


class _Fresh:
    """A worker that is a child of this process."""

    def __init__(self, commands: int, replies: int, output: int, folder: Path | None) -> None:
        self._process = subprocess.Popen(
            start_command("worker", "serve", commands, replies, os.getpid()),
            stdin=quiet_input(),
            stdout=output,
            stderr=output,
            pass_fds=(commands, replies),
            start_new_session=True,
            env=child_environment(),
            cwd=folder,
        )
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None


class _Forked:
    """A worker that is a child of the nursery."""

    def __init__(self, parent: Nursery, commands: int, replies: int, output: int, folder: Path | None) -> None:
        self._parent = parent
        self._code: int | None = None
        self.pid = parent.fork(commands, replies, output, folder)

    def poll(self) -> int | None:
        if self._code is None:
            try:
                self._code = self._parent.poll(self.pid)
            except OSError:  # the nursery is gone, and its children with it
                self._code = -signal.SIGKILL
        return self._code

    def wait(self, seconds: float) -> int | None:
        end = time.monotonic() + seconds
        while (code := self.poll()) is None and time.monotonic() < end:
            time.sleep(0.01)
        return code


def _start(commands: int, replies: int, output: int, fresh: bool, folder: Path | None) -> _Fresh | _Forked:
    parent = None if fresh else nursery()
    if parent is not None:
        try:
            return _Forked(parent, commands, replies, output, folder)
        except CannotFork as refused:
            refuse(str(refused))
        except OSError:  # the nursery is gone, and its children with it
            pass
    return _Fresh(commands, replies, output, folder)


def _indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def _innermost(dump: str) -> str:
    """ " (last seen at model.py:12 in build_model)" from a faulthandler dump: the innermost line of the user's own code."""
    for line in dump.splitlines():
        parts = line.strip().split('"')
        if len(parts) == 3 and parts[0].startswith("File"):
            path, rest = parts[1], parts[2]
            if _is_users(path):
                number, _, function = rest.removeprefix(", line ").partition(" in ")
                return f" (last seen at {_from_here(path)}:{number} in {function})"
    return ""


def _is_users(path: str) -> bool:
    return not path.startswith((_OURS, sys.prefix, sys.base_prefix, "<"))


def _from_here(path: str) -> str:
    """A file below the working directory as it is called from there; any other as it is."""
    return path if os.path.relpath(path).startswith("..") else os.path.relpath(path)


def _is_there(pid: int) -> bool:
    """Whether a process still runs; one that has ended and was not waited for holds nothing."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (OSError, IndexError):
        return False
