"""What the measuring commands share: torch at hand, durations and sizes read, progress on stderr."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import re
import sys
import time
from collections.abc import Iterator

from perfaudit.cli.output import say
from perfaudit.errors import UserError
from perfaudit.measurements import Settings
from perfaudit.tune.watch import Watch

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def needs_torch(command: str) -> None:
    """Raise UserError if torch is not installed here, naming the extra. It is looked for, not imported."""
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            f"`perfaudit {command}` runs your model and needs torch, which this Python lacks: "
            f"pip install 'perfaudit[torch]', or install perfaudit where your model's torch is"
        )


def seconds_of(text: str) -> float:
    """Seconds of "90", "90s", "5m" or "1h". Raises UserError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match or float(match[1]) <= 0:
        raise UserError(f"{text!r} is no duration; write e.g. 90s, 5m or 1h")
    return float(match[1]) * _SECONDS[match[2]]


def bytes_of(text: str) -> int:
    """Bytes of "8GiB", "8G", "500M" or "1000000". Raises UserError."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text.lower())
    if not match or float(match[1]) <= 0:
        raise UserError(f"{text!r} is no amount of memory; write e.g. 8GiB or 500MiB")
    return math.floor(float(match[1]) * _BYTES[match[2]])


@contextlib.contextmanager
def live() -> Iterator[Watch]:
    """A watch that draws on stderr: a moving line on a terminal, one line a stage elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[last]}", style="dim", markup=False),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as progress:
        yield _Bar(progress)


class _Lines(Watch):
    def __init__(self) -> None:
        self._start = time.monotonic()

    def stage(self, title: str) -> None:
        say(f"[{time.monotonic() - self._start:5.0f} s] {title}")

    def note(self, text: str) -> None:
        say(text)


class _Bar(Watch):
    def __init__(self, progress: object) -> None:
        self._progress: object = progress
        self._task: object = None

    def stage(self, title: str) -> None:
        progress = self._progress
        if self._task is not None:
            progress.remove_task(self._task)  # type: ignore[attr-defined]  # rich.progress.Progress, imported late
        self._task = progress.add_task(title, total=None, last="")  # type: ignore[attr-defined]

    def opening(self, settings: Settings) -> None:
        self._last(f"starting {_short(settings)}")

    def block(self, settings: Settings, seconds_per_step: float) -> None:
        self._last(f"{_short(settings)}: {seconds_per_step * 1e3:.2f} ms a step")

    def note(self, text: str) -> None:
        self._progress.console.print(text, markup=False)  # type: ignore[attr-defined]

    def _last(self, text: str) -> None:
        if self._task is not None:
            self._progress.update(self._task, last=text)  # type: ignore[attr-defined]


def _short(settings: Settings) -> str:
    return ", ".join(f"{key}={value}" for key, value in settings.items() if value is not None)
