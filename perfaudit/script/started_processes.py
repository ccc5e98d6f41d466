"""The processes that a script starts, other than workers of its loaders: training in them may not be seen. Child only."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from perfaudit.script.after_import import after_import

# Programs in which something may train.
_LAUNCHERS = ("python", "torchrun", "accelerate", "deepspeed", "mpirun", "horovodrun")
_OF_LIBRARIES = ("torch.utils.data", "multiprocessing")  # modules whose processes train nothing


def watch_started(tell: Callable[[str], None]) -> None:
    """From now on tell what each process is for that the script starts: the name of a function, or the command."""
    after_import("multiprocessing.process", functools.partial(_watch_processes, tell))
    after_import("subprocess", functools.partial(_watch_commands, tell))


def watch_replaced(tell: Callable[[str], None]) -> None:
    """From now on tell which program takes this process's place, of which nothing is seen; "" where it could not be run."""

    pid = os.getpid()  # what this process forks may run another program without that anything is lost

    def watch(name: str) -> None:
        begin = getattr(os, name)

        @functools.wraps(begin)
        def watched_exec(path: Any, argv: Any, *more: Any, **named: Any) -> None:
            if os.getpid() == pid:
                tell(_command_name([os.fsdecode(word) for word in (path, *argv[1:])]))
            try:
                begin(path, argv, *more, **named)
            finally:  # it comes back only where it fails
                if os.getpid() == pid:
                    tell("")

        setattr(os, name, watched_exec)  # which the others of the family call

    watch("execv")
    watch("execve")


def _command_name(words: Sequence[str]) -> str:
    """A command by the name of its program and its first file of Python."""
    files = [word for word in words[1:] if word.endswith(".py")]
    return " ".join([os.path.basename(words[0]), *files[:1]])  # noqa: PTH119


def _watch_processes(tell: Callable[[str], None]) -> None:
    from multiprocessing.process import BaseProcess

    start = BaseProcess.start

    @functools.wraps(start)
    def watched_start(self: BaseProcess) -> None:
        start(self)
        work: Any = getattr(self, "_target", None) or type(self).run
        arguments = getattr(self, "_args", ())
        if getattr(work, "__module__", "") == "torch.multiprocessing.spawn" and arguments:
            work = arguments[0]  # which calls it in each process
        if not str(getattr(work, "__module__", "")).startswith(_OF_LIBRARIES):
            tell(getattr(work, "__qualname__", type(work).__qualname__))

    BaseProcess.start = watched_start  # type: ignore[method-assign]  # for the life of this process


def _watch_commands(tell: Callable[[str], None]) -> None:
    import subprocess

    begin = subprocess.Popen.__init__

    @functools.wraps(begin)
    def watched_init(self: Any, args: Any, *more: Any, **named: Any) -> None:
        begin(self, args, *more, **named)
        words = args.split() if isinstance(args, str) else args if isinstance(args, Sequence) else [args]
        if words and (name := _command_name([os.fsdecode(word) for word in words])).startswith(_LAUNCHERS):
            tell(name)

    subprocess.Popen.__init__ = watched_init  # type: ignore[method-assign]  # for the life of this process
