"""What holds for a whole process: settings that every training in it shares, and the project's files that it has imported.

Child only. Two versions of a training can stand in one process only where each sets the same things when it is alone.
"""

from __future__ import annotations

import gc
import os
import re
import sys
import threading
from typing import Any

from perfaudit.target.flags import flags
from perfaudit.target.overlay import digests

Json = dict[str, Any]  # Any: nested JSON
_OF_THE_COMMAND = {"PYTHONPATH", "PWD", "OLDPWD"}  # where the code lies


def process_state(scratch: str) -> Json:
    """Under "files", digests by real path; under "shared", what all trainings of the process have in common, by name.

    scratch: below it each process has a folder of another name, which variables may name.
    """
    from torch.nn.modules import module

    hooks = {
        name: len(value)
        for name, value in vars(module).items()
        if name.startswith("_global_") and isinstance(value, dict)
    }
    shared = {
        **flags(),
        **hooks,
        "environment": {
            name: re.sub(re.escape(scratch) + "/[^/]*", "its scratch folder", value) if scratch else value
            for name, value in sorted(os.environ.items())
            if name not in _OF_THE_COMMAND
        },
        "garbage collection": [gc.isenabled(), *gc.get_threshold()],
        "objects kept from garbage collection": gc.get_freeze_count() > 0,
        "Python threads": threading.active_count(),
        "recursion limit": sys.getrecursionlimit(),
        "switch interval": sys.getswitchinterval(),
        "tracing": [sys.gettrace() is not None, sys.getprofile() is not None],
    }
    return {"files": digests(), "shared": shared}
