"""A script or module run as `python` runs it: `__main__`, `sys.argv`, `sys.path[0]`, its exit code. Child only."""

from __future__ import annotations

import functools
import importlib.machinery
import io
import os
import runpy
import sys
import threading
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn


def run_file(
    name: str, arguments: Sequence[str], text: bytes | None = None, code: types.CodeType | None = None
) -> None:
    """Run a file as `python NAME ARGUMENTS` does, and raise what it raises; SystemExit too.

    text: in the place of the file's. code: in the place of what the text compiles to.
    """
    path = str(Path(name).absolute())
    if text is None and code is None:
        with io.open_code(path) as file:
            text = file.read()
    if code is None:
        assert text is not None
        code = compile(text, path, "exec", dont_inherit=True)  # the future imports of this file are not the script's
    module = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __builtins__=sys.modules["builtins"], __loader__=loader, __cached__=None)
    sys.argv[:] = [name, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))  # noqa: PTH120  # as the interpreter spells it
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def run_module(name: str, arguments: Sequence[str]) -> None:
    """Run a module as `python -m NAME ARGUMENTS` does, and raise what it raises."""
    sys.argv[:] = [name, *arguments]
    sys.path.insert(0, str(Path.cwd()))
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def before_leaving_at_once(then: Callable[[int], None]) -> None:
    """From now on call a function with the code before this thread of this process leaves by `os._exit`."""
    pid, thread, leave = os.getpid(), threading.get_ident(), os._exit

    @functools.wraps(leave)
    def watched_exit(status: int) -> NoReturn:
        if os.getpid() == pid and threading.get_ident() == thread:
            then(status)
        leave(status)

    os._exit = watched_exit


def is_missing_module(error: BaseException) -> bool:
    """Whether `run_module` raised it because there is no such module, or none that can be run; not from the script's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (
        isinstance(error, ImportError) and trace is not None and trace.tb_frame.f_code.co_name == "_get_module_details"
    )


def exit_code(leaving: SystemExit) -> tuple[int, str]:
    """The code with which Python leaves for it, and what it prints to stderr."""
    code: Any = leaving.code
    if code is None:
        return 0, ""
    return (code & 0xFF, "") if isinstance(code, int) else (1, str(code))
