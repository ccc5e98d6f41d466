"""`perfaudit run` in a fork of a process that has torch imported, and its script in a fork of that: see `forked_programs`."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NoReturn

from perfaudit.cli import main
from perfaudit.script import observe, start


class Fork:
    """So much of a Popen as `script.observe` asks of the process in which a script begins."""

    def __init__(self, command: Sequence[str], *, pass_fds: Sequence[int], env: dict[str, str], **streams: Any) -> None:
        self._code: int | None = None
        self.pid = os.fork()
        if not self.pid:
            begin(command[-1], pass_fds, env, [streams[name] for name in ("stdin", "stdout", "stderr")])

    def poll(self) -> int | None:
        if self._code is None and os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def wait(self, seconds: float) -> int:
        end = time.monotonic() + seconds
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("a fork", seconds)
            time.sleep(0.01)
        return code


def begin(request: str, kept: Sequence[int], environment: dict[str, str], streams: Sequence[Any]) -> NoReturn:
    """What `python -c` does with this request: with these descriptors, variables and standard streams (None: as they are)."""
    code = 1
    try:
        os.setsid()
        for number, stream in enumerate(streams):
            if stream is not None:
                file = os.open(os.devnull, os.O_RDWR) if stream == subprocess.DEVNULL else stream.fileno()
                os.dup2(file, number)
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        os.environ.clear()
        os.environ.update(environment)
        del sys.path[0]
        sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)  # noqa: SIM115
        start.begin(request)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        os._exit(code)


def run() -> None:
    """The command that `sys.argv` names."""
    names = {name: getattr(subprocess, name) for name in ("DEVNULL", "TimeoutExpired")}
    vars(observe)["subprocess"] = SimpleNamespace(Popen=Fork, **names)
    main()
