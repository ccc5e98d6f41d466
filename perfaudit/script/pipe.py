"""The pipe over which a script's process tells of its training."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

Json = dict[str, Any]  # Any: nested JSON
MOST_AT_ONCE = 8  # records in a line: up to 4 KiB, a pipe takes a line whole (PIPE_BUF)


class Pipe:
    """Lines of JSON to whoever started this process. Those of `MOST_AT_ONCE` records are whole where several processes write."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        os.set_inheritable(descriptor, False)

    def tell(self, line: Json) -> None:
        data = json.dumps(line).encode() + b"\n"
        with contextlib.suppress(OSError):  # nobody listens any more
            while data:
                data = data[os.write(self.descriptor, data) :]
