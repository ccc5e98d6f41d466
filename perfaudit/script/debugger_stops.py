"""What a debugger takes where it stops a script is left out of all steps. Child only."""

from __future__ import annotations

import sys
from typing import Any

from perfaudit.script import replaced_functions
from perfaudit.script.after_import import after_import
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function


class DebuggerStops:
    """Notes the time of each stop as ours."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def wait_for_debuggers(self) -> None:
        """Put functions of ours into them as soon as they are imported."""
        after_import("bdb", self._leave_out_stops)
        after_import("pdb", self._leave_out_their_making)

    def _leave_out_stops(self) -> None:
        """`pdb` and others are a `bdb.Bdb`, and it is told here."""
        for name in ("dispatch_line", "dispatch_call", "dispatch_return", "dispatch_exception"):
            replaced_functions.replace(sys.modules["bdb"].Bdb, name, self._leave_out)

    def _leave_out_their_making(self) -> None:
        """What a `pdb.Pdb` takes to be made: it reads settings and a history of commands."""
        replaced_functions.replace(sys.modules["pdb"].Pdb, "__init__", self._leave_out)

    def _leave_out(self, original: Function) -> Function:
        notes = self._notes

        def stop(*args: Any, **kwargs: Any) -> Any:
            began = notes.clock()
            try:
                return original(*args, **kwargs)
            finally:
                notes.leave_out(began)

        return stop
