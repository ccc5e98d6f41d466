"""With `--workers N`, tests are collected once, and N forks of the process that has collected them run a file after the other.

Workers of pytest-xdist are processes of their own: each of them imports and collects all tests before it runs its part of them.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing.util
import os
import signal
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

PATIENCE = 10.0  # seconds that a worker has to end what it does, when the session stops


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--workers",
        type=int,
        default=0,
        metavar="N",
        help="run tests in N forks of the process that has collected them",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Hand files out, tell what comes back; None leaves it to pytest."""
    option = session.config.option
    if not option.workers or option.collectonly or session.testsfailed:
        return None
    workers = Workers(session)
    try:
        for _ in range(min(option.workers, len(workers.files))):
            workers.add()
        while workers.at:
            workers.listen()
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    finally:
        workers.end()
    return True


class Workers:
    """The forks of this process, and the files that none of them has yet: of each the numbers of its tests."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.hook = session.config.hook
        numbers = range(len(session.items))
        self.files = deque(deque(file) for _, file in groupby(numbers, key=lambda number: session.items[number].path))
        self.at: dict[Connection, Worker] = {}
        self._added = 0
        self._folder = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]

    def add(self) -> None:
        """One more, which gets the next file."""
        here, there = Pipe()
        folder = self._folder / f"worker{self._added}"
        self._added += 1
        gc.collect()
        gc.freeze()  # a fork copies what its collector looks at
        sys.stdout.flush(), sys.stderr.flush()
        if not (pid := os.fork()):
            status = 1
            try:
                for connection in (here, *self.at):
                    connection.close()
                _begin(self.session, there, folder)
                work(self.session, there)
                status = 0
            except KeyboardInterrupt:
                pass
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)
        there.close()
        self.at[here] = Worker(pid)
        self._give(here)

    def listen(self) -> None:
        """What one or several have to say; one that has ended might have left the connection to a child of its own."""
        ready = wait(list(self.at), timeout=1.0)
        for connection in ready or [connection for connection, worker in self.at.items() if worker.has_ended()]:
            assert isinstance(connection, Connection)
            try:
                kind, said = connection.recv() if ready else ("ended", None)
            except (EOFError, ConnectionError):
                kind, said = "ended", None
            if kind == "ended":
                self._ended(connection)
            elif kind == "next":
                self._give(connection)
            elif kind == "begins":
                self.at[connection].begins(said)
            elif kind == "warns":
                self._warn(*said)
            else:
                self._tell(self.hook.pytest_report_from_serializable(config=self.session.config, data=said))

    def _give(self, connection: Connection) -> None:
        file = self.files.popleft() if self.files else deque()
        self.at[connection].left = deque(file)
        connection.send(list(file))

    def _tell(self, report: pytest.TestReport) -> None:
        self.hook.pytest_runtest_logreport(report=report)

    def _warn(self, text: str, category: str, file: str, line: int, told: dict[str, Any]) -> None:
        """As far as it is shown: its category need not be one that this process has imported."""
        message = warnings.WarningMessage(text, type(category, (Warning,), {}), file, line)
        self.hook.pytest_warning_recorded.call_historic(kwargs={"warning_message": message, **told})

    def _ended(self, connection: Connection) -> None:
        """It has no test left, or one has ended it: that one failed, and another worker gets the rest of its file."""
        worker = self.at.pop(connection)
        connection.close()
        code = worker.code()
        if worker.runs is not None:
            item = self.session.items[worker.runs]
            said = f"the worker ended with code {code} while it ran this test"
            self._tell(pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call"))
            if worker.left:
                self.files.appendleft(worker.left)
            if self.files:
                self.add()
        elif code:
            raise self.session.Interrupted(f"a worker ended with code {code} when it ran no test")

    def end(self) -> None:
        """Those that still run, because the session stops: gently first."""
        ends = time.monotonic() + PATIENCE
        for worker in self.at.values():
            worker.send(signal.SIGINT)
        for connection, worker in self.at.items():
            connection.close()
            while not worker.has_ended() and time.monotonic() < ends:
                time.sleep(0.01)
            worker.send(signal.SIGKILL)
            worker.code()


class Worker:
    """A fork, the number of the test that it runs and those of its file that it has not begun."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.runs: int | None = None
        self.left: deque[int] = deque()
        self._code: int | None = None

    def has_ended(self) -> bool:
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code is not None

    def send(self, number: signal.Signals) -> None:
        if not self.has_ended():
            os.kill(self.pid, number)

    def code(self) -> int:
        """The code it ended with, as soon as it has."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def begins(self, number: int | None) -> None:
        self.runs = number
        if number is not None:
            self.left.remove(number)


class Teller:
    """In a worker: what the process that forked it shall know."""

    def __init__(self, connection: Connection, is_brief: bool) -> None:
        self.connection = connection
        self.is_brief = is_brief

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Set-up and end of a test are reported where these say something."""
        hook = item.config.hook
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed or not self.is_brief:
                self.connection.send(("report", hook.pytest_report_to_serializable(config=item.config, report=report)))
        return True

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        said = str(warning_message.message), warning_message.category.__name__
        place = warning_message.filename, warning_message.lineno
        self.connection.send(("warns", (*said, *place, {"when": when, "nodeid": nodeid, "location": location})))


def _begin(session: pytest.Session, connection: Connection, folder: Any) -> None:
    """Have a fork be a worker: with temporary folders and captured output of its own, and nothing to do at its parent's end."""
    config = session.config
    atexit._clear()
    atexit.register(multiprocessing.util._exit_function)  # type: ignore[attr-defined]
    folder.mkdir(mode=0o700)
    config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
    if capture := config.pluginmanager.getplugin("capturemanager"):
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    config.pluginmanager.register(Teller(connection, config.option.durations is None and not config.option.xmlpath))


def work(session: pytest.Session, connection: Connection) -> None:
    """Run tests as long as there are any. Between files only what belongs to the session stays."""
    for numbers in files_from(connection):
        for place, number in enumerate(numbers):
            following = session.items[numbers[place + 1]] if place + 1 < len(numbers) else session
            connection.send(("begins", number))
            session.items[number].ihook.pytest_runtest_protocol(item=session.items[number], nextitem=following)
        connection.send(("begins", None))
    session._setupstate.teardown_exact(None)
    atexit._run_exitfuncs()


def files_from(connection: Connection) -> Iterator[list[int]]:
    """One file after the other, until there is none."""
    while numbers := connection.recv():
        yield numbers
        connection.send(("next", None))
