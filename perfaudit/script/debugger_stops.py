"""What a debugger takes where it stops a script is left out of all steps, and where it does is known. Child only."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from perfaudit.errors import is_at_breakpoint
from perfaudit.script import replaced_functions
from perfaudit.script.after_import import after_import
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function


class DebuggerStops:
    """Notes the time of each stop as ours. An error by which a debugger ends the script gets the place of the breakpoint."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._folder = Path.cwd()  # of the command; the script may go elsewhere
        self._place = ""  # of the last breakpoint

    def wait_for_debuggers(self) -> None:
        """Put functions of ours into them as soon as they are imported."""
        after_import("bdb", self._leave_out_stops)
        after_import("pdb", self._leave_out_their_making)

    def _leave_out_stops(self) -> None:
        """`pdb` and others are a `bdb.Bdb`, and it is told here."""
        for name in ("dispatch_line", "dispatch_call", "dispatch_return", "dispatch_exception"):
            replaced_functions.replace(sys.modules["bdb"].Bdb, name, self._leave_out)
        replaced_functions.replace(sys.modules["bdb"].Bdb, "set_trace", self._note_place)

    def _leave_out_their_making(self) -> None:
        """What a `pdb.Pdb` takes to be made: it reads settings and a history of commands."""
        replaced_functions.replace(sys.modules["pdb"].Pdb, "__init__", self._leave_out)

    def _leave_out(self, original: Function) -> Function:
        notes = self._notes

        def stop(*args: Any, **kwargs: Any) -> Any:
            began = notes.clock()
            try:
                return original(*args, **kwargs)
            except Exception as error:
                if is_at_breakpoint(error) and not error.args and self._place:
                    error.args = (self._place,)
                raise
            finally:
                notes.leave_out(began)

        return stop

    def _note_place(self, original: Function) -> Function:
        def set_trace(debugger: Any, frame: FrameType | None = None, *args: Any, **kwargs: Any) -> Any:
            frame = frame or sys._getframe(1)
            file = Path(os.path.abspath(frame.f_code.co_filename))  # noqa: PTH100
            shown = file.relative_to(self._folder) if file.is_relative_to(self._folder) else file
            self._place = f"{shown}:{frame.f_lineno}"
            return original(debugger, frame, *args, **kwargs)

        return set_trace
