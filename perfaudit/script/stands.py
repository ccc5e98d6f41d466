"""Where a script stands that makes no step: the lines that its threads are in, told by Python itself when a signal comes.

`begin_telling` runs in the script's process, `where_it_stands` in the one that watches. `faulthandler` writes from the signal
handler, so a process that is stuck in C, in a collective for example, tells as well. It writes the innermost hundred frames
of a thread, and imports inside of imports are more; so where Python runs a handler of ours writes all of the main thread, too.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import signal
import time
from collections.abc import Callable
from types import FrameType

SIGNAL = getattr(signal, "SIGRTMAX", signal.SIGUSR2) - 1 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
TELL_SECONDS = 2.0  # for the lines to be written; a process on a busy machine gets its turn by then
STILL_SECONDS = 0.25  # without another line, after which all of them are there
_LINE = re.compile(r'  File "(?P<file>.+)", line (?P<line>\d+) in (?P<function>.+)')
_THREAD = re.compile(r"(Current thread|Thread) 0x[0-9a-f]+")
# What a frame of torch's that the script's own line has called says of it; of several, the outermost.
_INSIDE = {"torch/distributed/": ", in a collective", "torch/autograd/": ", in a backward pass"}
# Of a process group that is being made, which waits for ranks to join.
MEETING = ", where ranks meet (init_process_group)"
MOST_BYTES = 1 << 20


def begin_telling(descriptor: int) -> None:
    """From now on write where all threads stand to a file when the signal comes."""
    with contextlib.suppress(OSError):
        os.set_inheritable(descriptor, False)
    tell_when_asked(descriptor)


def tell_when_asked(descriptor: int) -> None:
    """The same with a file that the process writes other things to as well, such as its standard error."""
    with contextlib.suppress(OSError, RuntimeError, ValueError, AttributeError):  # a system that has no such signal
        with contextlib.suppress(ValueError):  # of the main thread only

            def write_all(number: int, frame: FrameType | None) -> None:
                with contextlib.suppress(OSError):
                    os.write(descriptor, _lines_of(frame).encode(errors="replace"))

            signal.signal(SIGNAL, write_all)
        faulthandler.register(SIGNAL, descriptor, all_threads=True, chain=True)


def _lines_of(frame: FrameType | None) -> str:
    """All frames of a thread as `faulthandler` writes them."""
    lines = ["", "Current thread 0x0 (most recent call first):"]
    while frame is not None:
        lines.append(f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        frame = frame.f_back
    return "\n".join([*lines, ""])


def where_it_stands(pid: int, descriptor: int, is_own: Callable[[str], bool]) -> str:
    """The innermost line of the script's own, as `file:line in function`; "" where it does not tell.

    The file is relative to the working directory where it lies below. descriptor: of the file that the process writes to,
    which is read again. Sends a signal.
    """
    before = os.fstat(descriptor).st_size
    with contextlib.suppress(OSError):
        os.kill(pid, SIGNAL)
        until = time.monotonic() + TELL_SECONDS
        size, still_since = before, time.monotonic()
        while (now := time.monotonic()) < until and (size == before or now - still_since < STILL_SECONDS):
            time.sleep(0.02)
            if (written := os.fstat(descriptor).st_size) != size:
                size, still_since = written, time.monotonic()
    return _as_shown(innermost(os.pread(descriptor, MOST_BYTES, before).decode(errors="replace"), is_own))


def _as_shown(place: str) -> str:
    """A place with its file relative to the working directory, where it lies below."""
    file, _, rest = place.rpartition(":")
    shown = os.path.relpath(file) if file else ""
    return place if not shown or shown.startswith("..") else f"{shown}:{rest}"


def innermost(lines: str, is_own: Callable[[str], bool]) -> str:
    """Of what `faulthandler` writes, the first line that is the script's own: in the thread that is told last, the main one,
    if it has one, else in any; and whether it waits for ranks to join, in a collective or in a backward pass.
    """
    threads: list[list[str]] = []
    inside = ""  # of what the next line of the script's own is
    for line in lines.splitlines():
        if _THREAD.match(line):
            threads.append([])
            inside = ""
            continue
        found = _LINE.fullmatch(line)
        if threads and found and is_own(found["file"]):
            threads[-1].append(f"{found['file']}:{found['line']} in {found['function']}{inside}")
            inside = ""
        elif found and found["function"] == "init_process_group" and "torch/distributed/" in found["file"]:
            inside = MEETING
        elif found and inside != MEETING:  # torch wraps that function
            inside = next((words for part, words in _INSIDE.items() if part in found["file"]), inside)
    return next((own[0] for own in reversed(threads) if own), "")
