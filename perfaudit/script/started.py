"""The processes that a script starts, other than workers of its loaders: training in them may not be seen. Child only."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

from perfaudit.script.after_import import after_import

_LAUNCHERS = (
    "python",
    "torchrun",
    "accelerate",
    "deepspeed",
    "mpirun",
    "horovodrun",
)  # programs in which something may train
_OF_LIBRARIES = ("torch.utils.data", "multiprocessing")  # modules whose processes train nothing


def watch_started(tell: Callable[[str], None]) -> None:
    """From now on tell what each process is for that the script starts: the name of a function, or the command."""
    after_import("multiprocessing.process", functools.partial(_watch_processes, tell))
    after_import("subprocess", functools.partial(_watch_commands, tell))


def _watch_processes(tell: Callable[[str], None]) -> None:
    from multiprocessing.process import BaseProcess

    start = BaseProcess.start

    @functools.wraps(start)
    def watched(self: BaseProcess) -> None:
        start(self)
        work: Any = getattr(self, "_target", None) or type(self).run
        arguments = getattr(self, "_args", ())
        if getattr(work, "__module__", "") == "torch.multiprocessing.spawn" and arguments:
            work = arguments[0]  # which calls it in each process
        if not str(getattr(work, "__module__", "")).startswith(_OF_LIBRARIES):
            tell(getattr(work, "__qualname__", type(work).__qualname__))

    BaseProcess.start = watched  # type: ignore[method-assign]  # for the life of this process


def _watch_commands(tell: Callable[[str], None]) -> None:
    import subprocess

    begin = subprocess.Popen.__init__

    @functools.wraps(begin)
    def watched(self: Any, args: Any, *more: Any, **named: Any) -> None:
        begin(self, args, *more, **named)
        words = args.split() if isinstance(args, str) else args if isinstance(args, Sequence) else [args]
        if words and (name := os.path.basename(os.fsdecode(words[0]))).startswith(_LAUNCHERS):  # noqa: PTH119
            files = [os.fsdecode(word) for word in words[1:] if os.fsdecode(word).endswith(".py")]
            tell(" ".join([name, *files[:1]]))

    subprocess.Popen.__init__ = watched  # type: ignore[method-assign]  # for the life of this process
