"""Standard input of a script that is started from a terminal."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import termios


def quiet_input() -> int:
    """What a process that runs a script gets as its standard input: a descriptor, or `subprocess.DEVNULL`.

    Where ours is a terminal, a terminal of the same size in which there is never anything to read: some scripts ask for its
    width (`stty size`) and end without one. The user's own would have a script that asks a question wait for an answer.
    Elsewhere nothing, which is at its end at once, too.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError, termios.error):
        if sys.stdin.isatty():
            return _terminal(sys.stdin.fileno())
    return subprocess.DEVNULL


@functools.cache
def _terminal(like: int) -> int:
    """A terminal as wide and high as another one. It stays open as long as this process, and so do its children's."""
    _keeps_it_open, descriptor = os.openpty()
    mode = termios.tcgetattr(descriptor)
    mode[3] &= ~(termios.ICANON | termios.ECHO)
    mode[6][termios.VMIN] = mode[6][termios.VTIME] = 0  # a read that finds nothing is at the end of the file
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)
    termios.tcsetwinsize(descriptor, termios.tcgetwinsize(like))
    return descriptor
