"""How a script has come to its end, in the words of the error that says that it has no further step. Child only."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence

from perfaudit.errors import NoBatches, NoStep, TargetError
from perfaudit.script import as_main
from perfaudit.script.counts import Counts
from perfaudit.target.names import Target, factories
from perfaudit.target.working_folder import full_path

# Lines and bytes of what a script printed before it left: a usage message has some lines.
LINES_SAID, MOST_SAID = 12, 4000


class ScriptEnd:
    """The end of one script. is_at_once: it has left by `os._exit`, and stands there for good."""

    def __init__(self) -> None:
        self.is_at_once = False
        self._how, self._code, self._said, self._left_saying = "ended", 0, "", ""

    def leave(self, leaving: SystemExit) -> None:
        """It has left by this exception."""
        self._code, words = as_main.exit_code(leaving)
        self._how, self._left_saying = f"left with code {self._code}", f": {words}" if words else ""
        self._said = _said_last() if self._code and not words else ""

    def leave_at_once(self, code: int) -> None:
        """It has left by `os._exit` with this code."""
        self.is_at_once, self._code, self._how = True, code, f"left by os._exit with code {code}"
        self._said = _said_last() if code else ""

    def behind(self, target: Target, updates: int) -> TargetError:
        """That there is no further step behind so many updates: NoBatches, but for a code of a failure."""
        kind = TargetError if self._code else NoBatches  # `if not isfinite(loss): sys.exit(1)` is no end of a loop
        return kind(f"{target}: the script {self._how} after {updates} updates of its optimizers{self._left_saying}")

    def before_first_step(self, target: Target, counts: Counts, started: Sequence[str]) -> TargetError:
        """That there was none: NoStep, but for a code of a failure. started: what other processes are for."""
        if roles := factories(full_path(target.file)).keys() & {"model", "dataloader"}:
            (role,) = roles if len(roles) == 1 else ("model",)
            other = "dataloader" if role == "model" else "model"
            seen = f"it defines a {role} factory, and with one of the {other} it is no script"
        elif counts.backwards:
            seen = f"there were {counts.backwards} backward passes, but no update of an optimizer"
        else:
            seen = f"there were {counts.batches} batches of a DataLoader, and no backward pass"
            if started:
                seen += (
                    f"; it started other processes ({', '.join(dict.fromkeys(started))}), and did not train in this one"
                )
        why = self._left_saying or f"; {self._said or seen}"
        kind = TargetError if self._code or roles else NoStep
        return kind(f"{target}: the script {self._how} before its first step{why}")


def _said_last() -> str:
    """The last lines that this process has printed, as how the script is used; "" where stderr is no file of perfaudit's."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        size = os.fstat(2).st_size
        lines = os.pread(2, MOST_SAID, max(0, size - MOST_SAID)).decode(errors="replace").splitlines()[-LINES_SAID:]
        if lines:
            return "it said last:\n" + "\n".join(f"    {line}" for line in lines)
    return ""
