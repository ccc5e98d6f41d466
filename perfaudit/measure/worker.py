"""The child's side of the talk with its parent: one command a line, one reply a line, faults of the user's code among them.

Everything of the user's runs in such a process and nowhere else. What it can be asked is in `measure.verbs`.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import traceback
from typing import Any

from perfaudit.errors import NoBatches, NoStep, TargetError, is_at_breakpoint
from perfaudit.measure.holder import Holder
from perfaudit.measure.verbs import VERBS
from perfaudit.script.stands import tell_when_asked
from perfaudit.target.load import is_out_of_memory, where, words_of_error
from perfaudit.target.working_folder import begin

Reply = dict[str, Any]  # JSON

_PR_SET_PDEATHSIG = 1
STDERR = 2


def serve(commands: int, replies: int, parent: int) -> None:
    """Answer JSON lines from one descriptor on another until they end. Faults of the user's code are replies too."""
    die_with(parent)
    faulthandler.enable()
    tell_when_asked(STDERR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Loader workers may stand still when we die, and then only a signal from the kernel ends them.
    os.register_at_fork(after_in_child=_end_with_parent)
    os.set_inheritable(commands, False)
    os.set_inheritable(replies, False)
    begin()
    holder = Holder(replies)
    with os.fdopen(commands) as lines:
        for line in lines:
            os.write(replies, json.dumps(answer(holder, json.loads(line))).encode() + b"\n")
    with contextlib.suppress(Exception):
        holder.close()
    os._exit(0)  # threads of the user's code must not keep the process


def answer(holder: Holder, command: Reply) -> Reply:
    """The reply of a verb to a command, or the fault of the user's code that kept it from one."""
    try:
        return VERBS[command.pop("do")](holder, **command)
    except NoBatches as error:
        return {"fault": "ended" if holder.built else "target", "message": str(error)}
    except NoStep as error:
        return {"fault": "no step", "message": str(error)}
    except TargetError as error:
        return {"fault": "step" if holder.built else "target", "message": str(error)}
    except (KeyboardInterrupt, SystemExit) as error:
        how = f"called sys.exit({error.code!r})" if isinstance(error, SystemExit) else "raised KeyboardInterrupt"
        return {"fault": "step" if holder.built else "target", "message": f"{holder.doing}: it {how}{where(error)}"}
    except BaseException as error:
        return _fault(holder, error)


def _fault(holder: Holder, error: BaseException) -> Reply:
    traceback.print_exc()
    text = words_of_error(error)[:500]
    if is_out_of_memory(error):
        return {"fault": "oom", "message": f"out of memory: {text}" if text else "out of memory"}
    kind = "step" if holder.built else "target"
    name = "" if is_at_breakpoint(error) else f"{type(error).__name__}: "
    return {"fault": kind, "message": f"{holder.doing}: {name}{text}{where(error)}"}


def die_with(parent: int) -> None:
    """Ask the kernel to end this process when its parent dies (Linux), and leave if that has happened already."""
    _end_with_parent()
    if os.getppid() != parent:
        os._exit(1)


def _end_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
