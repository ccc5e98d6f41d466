"""A few steps under torch.profiler, and what of their time goes to which operator. Child only.

The profiler makes steps slower, each operator by about as much. So its times are given as shares, and never as those of a step.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]  # Any: nested JSON
STEPS = 4  # that are profiled: enough that a rare operator is told from one of every step
MOST_ROWS = 10  # operators and kernels that are told
OUTSIDE = "outside operators"
MARK = "ProfilerStep"  # how torch.profiler calls a step in its trace, with its number, and in its table without


class StepProfile:
    """Profiles from `begin` to `end`, both called by the thread that trains."""

    def __init__(self) -> None:
        self._profiler: Any = None  # Any: torch.profiler.profile
        self._began = 0.0
        self._thread = 0
        self._step: Any = None  # Any: torch.profiler.record_function, of the step under way
        self._steps = 0  # begun
        self.why = ""  # it was not possible

    def begin(self) -> None:
        """Profile from now on."""
        import torch

        try:
            self._profiler = torch.profiler.profile()
            with _without_lines_of_torch():
                self._profiler.start()
        except RuntimeError as error:  # the script profiles by itself
            self._profiler, self.why = None, " ".join(str(error).split())[:200]
            return
        with torch.profiler.record_function(OUTSIDE):
            self._began = time.perf_counter()
        self.begin_step()

    def begin_step(self) -> None:
        """Mark in the trace that a step ends here and the next one begins."""
        if self._profiler is None:
            return
        import torch

        self._end_step()
        self._steps += 1
        self._step = torch.profiler.record_function(f"{MARK}#{self._steps}")
        self._step.__enter__()

    def _end_step(self) -> None:
        if self._step is not None:
            self._step.__exit__(None, None, None)
        self._step = None

    def end(self, steps: int, trace: int = -1, is_exported: bool = True) -> Json:
        """The table of so many steps: `steps`, and `operators` and `kernels`, see `rows`; `why` where there is none.

        trace: a descriptor to which the trace is written, as chrome://tracing opens it. Of a CPU alone only where it is exported:
        the table has all that it tells.
        """
        if self._profiler is None:
            return {"steps": 0, "why": self.why}
        import torch

        cpu = torch.autograd.DeviceType.CPU  # type: ignore[attr-defined]  # documented, and not exported
        seconds = time.perf_counter() - self._began
        self._end_step()
        with _without_lines_of_torch():
            self._profiler.stop()
        events = self._profiler.events()
        host = [each for each in events if each.device_type == cpu]
        own = next((each.thread for each in host if each.name == OUTSIDE), None)
        on_host = [each for each in host if each.name != OUTSIDE and not each.name.startswith(MARK)]
        operators = [(each.name, each.self_cpu_time_total / 1e6) for each in on_host]
        in_thread = sum(each.self_cpu_time_total for each in on_host if each.thread == own) / 1e6
        kernels = [
            (each.name, each.time_range.elapsed_us() / 1e6)
            for each in events
            if each.device_type != cpu and not each.is_user_annotation
        ]
        if trace >= 0 and (is_exported or kernels):
            self._write(trace)
        return {
            "steps": steps,
            "operators": rows(operators, steps, max(0.0, seconds - in_thread)),
            "kernels": rows(kernels, steps),
        }

    def _write(self, trace: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            self._profiler.export_chrome_trace(str(path))
            with path.open("rb") as file:
                while data := file.read(1 << 20):
                    while data:
                        data = data[os.write(trace, data) :]


@contextlib.contextmanager
def _without_lines_of_torch() -> Iterator[None]:
    """Inside, nothing comes to stderr: the profiler writes there when it begins and ends, past `sys.stderr`."""
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # the script has closed it
        yield
        return
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def rows(events: Iterable[tuple[str, float]], steps: int, outside: float = 0.0) -> list[Json]:
    """What takes most time first: `name`, `share` of the time of all events, `calls` a step. events: names and seconds.

    outside: seconds of the thread in no operator: Python, waiting, and what the profiler itself takes. A row without calls.
    """
    seconds: dict[str, float] = {OUTSIDE: outside} if outside else {}
    calls: dict[str, int] = {}
    for name, took in events:
        seconds[name] = seconds.get(name, 0.0) + took
        calls[name] = calls.get(name, 0) + 1
    whole = sum(seconds.values())
    largest = sorted(seconds, key=lambda name: -seconds[name])[:MOST_ROWS]
    return [
        {"name": name, "share": seconds[name] / whole, "calls": calls.get(name, 0) / max(1, steps)}
        for name in largest
        if whole > 0
    ]
