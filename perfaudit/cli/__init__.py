"""The command line. Each command imports what it needs inside its function, so that the others start fast."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import sys


def main() -> None:
    """Entry point of the `perfaudit` script."""
    _open_missing_streams()
    if sys.argv[1:] in (["--version"], ["-V"]):
        from perfaudit import __version__

        try:
            print(f"perfaudit {__version__}", flush=True)
        except OSError as error:  # a full disk: Python would leave with 1, which says that there are findings
            sys.exit(say_not_written(error))
        return
    only_reads = sys.argv[1:2] == ["scan"] and "--measure" not in sys.argv
    if only_reads:
        gc.set_threshold(1_000_000)  # what is there are modules, which stay: looking for cycles in them took 6 ms
    from perfaudit.cli.entry import run

    code = run()
    if only_reads and not (sys.gettrace() or sys.getprofile()):  # who looks on has more to say at the end
        _end_at_once(code)
    sys.exit(code)


def _end_at_once(code: int) -> None:
    """Leave to the system what it takes back anyway: Python takes its modules apart one by one, which took 12 ms."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # a full disk, which was said; a stream that is closed
            stream.flush()
    os._exit(code)


def say_not_written(error: OSError) -> int:
    """Say on stderr that stdout cannot be written; the exit code for it, as other output that is refused has it."""
    from perfaudit.errors import UserError, refusal

    print(f"perfaudit: stdout: not written: {refusal(error)}", file=sys.stderr)
    return UserError.exit_code


def _open_missing_streams() -> None:
    """Give the descriptors 0, 1 and 2 to the null device where they are closed (`2>&-`).

    Else the next file that is opened gets such a number, and what is said on stderr would be written into it.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)  # the lowest number that is free: this one
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115  # open for as long as we run
