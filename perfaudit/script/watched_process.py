"""Which one of the processes of a script is watched. Child only."""

from __future__ import annotations

import contextlib
import os


class WatchedProcess:
    """Which of the script's processes is watched: the one that updates an optimizer first, of its own and those it starts.

    token: a descriptor from which that one takes the only byte; a new one without it.
    """

    def __init__(self, token: int = -1) -> None:
        self.token = token if token >= 0 else _token()
        self._owner = 0  # as far as this process knows

    def is_mine(self) -> bool:
        """Whether this process is the one; it is from now on, if no other was before it."""
        if not self._owner:
            is_first = False
            with contextlib.suppress(OSError):  # a process may close what it inherits
                is_first = bool(os.read(self.token, 1))
            self._owner = os.getpid() if is_first else -1
        return self._owner == os.getpid()

    @property
    def is_taken(self) -> bool:
        """Whether this process was the one when it was asked; a process that it forks afterwards is not."""
        return self._owner == os.getpid()


def _token() -> int:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.write(write, b"-")
    os.close(write)
    return read
