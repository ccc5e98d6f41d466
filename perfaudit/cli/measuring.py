"""What the measuring commands share: torch at hand, factories named, progress on stderr."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator

from perfaudit.cli.output import say
from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Settings

_QUIET = 10.0  # seconds between lines where there is no terminal


def needs_torch(command: str) -> None:
    """Raise UserError if torch is not installed here, naming the extra. It is looked for, not imported."""
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            f"`perfaudit {command}` runs your model and needs torch, which this Python lacks: "
            f"pip install 'perfaudit[torch]', or install perfaudit where your model's torch is"
        )


def factory_names(config: Config, named: list[str]) -> dict[str, str]:
    """Names of factories by role: those of the configuration, and over them those of `--factory ROLE=NAME`. Raises UserError."""
    from perfaudit.target.names import ROLES

    names = dict(config.target)
    for entry in named:
        role, equals, name = entry.partition("=")
        if not equals or role not in ROLES or not name:
            raise UserError(f"--factory {entry}: write ROLE=NAME with one of the roles {', '.join(ROLES)}")
        names[role] = name
    return names


@contextlib.contextmanager
def live(budget: float) -> Iterator[Watch]:
    """A watch that draws on stderr: a bar against the budget (seconds) on a terminal, a line now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.fields[stage]}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn(f"of {budget:.0f} s"),
        TextColumn("{task.fields[last]}", style="dim", markup=False),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=budget, stage="starting", last="")
        yield _Bar(lambda **fields: progress.update(task, **fields))


class _Lines(Watch):
    """One line a stage, and one every few seconds with what was timed last."""

    def __init__(self) -> None:
        self._start = self._said = time.monotonic()

    def stage(self, title: str) -> None:
        self._say(title)

    def block(self, settings: Settings, seconds_per_step: float) -> None:
        if time.monotonic() - self._said > _QUIET:
            self._say(f"  {_short(settings)}: {seconds_per_step * 1e3:.2f} ms a step")

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        say(f"[{self._said - self._start:5.0f} s] {text}")


class _Bar(Watch):
    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._start = time.monotonic()

    def stage(self, title: str) -> None:
        self._show(stage=title.partition(":")[0], last="")

    def opening(self, settings: Settings) -> None:
        self._show(last=f"starting {_short(settings)}")

    def block(self, settings: Settings, seconds_per_step: float) -> None:
        self._show(last=f"{seconds_per_step * 1e3:.2f} ms a step: {_short(settings)}")

    def _show(self, **fields: str) -> None:
        self._update(completed=time.monotonic() - self._start, **fields)


def _short(settings: Settings) -> str:
    """The settings on few characters: values alone, those that are not set left out."""
    return ", ".join(str(value) for value in settings.values() if value is not None)
