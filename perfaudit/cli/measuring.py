"""What the measuring commands share: torch at hand, factories named, progress on stderr."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from perfaudit.cli.output import say
from perfaudit.config import Config
from perfaudit.errors import UserError
from perfaudit.measure.entrants import BEATEN, DECIDED, FAILED, FAR_SLOWER_WORDS, FUTILE, UNDECIDED
from perfaudit.measure.watch import Standing, Watch
from perfaudit.render.words import one_line

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from perfaudit.target.names import Target

_QUIET = 10.0  # seconds between lines where there is no terminal
_WIDE = 100  # characters of a terminal, from which on the bar has its whole length
# Of a candidate of which nothing was timed yet: its first steps do not count, and loader workers start.
NOT_TIMED = "not timed yet"
# What is said of a candidate that has left, by the reason.
_FATES = {UNDECIDED: "undecided", FUTILE: FUTILE, BEATEN: BEATEN}


def needs_torch(command: str) -> None:
    """Raise UserError if torch is not installed here, naming the extra. It is looked for, not imported."""
    if importlib.util.find_spec("torch") is None:
        raise UserError(
            f"`perfaudit {command}` runs your model and needs torch, which this Python lacks: "
            f"pip install 'perfaudit[torch]', or install perfaudit where your model's torch is"
        )


def needs_no_launcher(command: str, script: Target) -> None:
    """Raise UserError for a script in one of several processes of a launcher: patches are put in place in one training."""
    from perfaudit.distributed.launch import place_of

    ranks = place_of(os.environ).ranks
    if script.is_script and ranks > 1:
        raise UserError(
            f"{script}: this is one of {ranks} processes of a launcher, and `perfaudit {command}` measures one process; "
            "`perfaudit run` behind the launcher shows its steps"
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
def live(budget: float | None) -> Iterator[Watch]:
    """A watch that draws on stderr: a bar on a terminal, a line now and then elsewhere. budget: seconds, None for no bound."""
    if not sys.stderr.isatty():
        yield _Lines()
        return
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(stderr=True)
    progress = _progress(console, budget)
    task = progress.add_task("", total=budget, stage="starting", last="")
    bar = _Bar(lambda **fields: progress.update(task, **fields))

    def live_view() -> Group:
        rows = bar.rows
        return Group(progress, _table(rows, console.width, console.height - 4)) if rows else Group(progress)

    with Live(console=console, transient=True, refresh_per_second=4, get_renderable=live_view):
        yield bar


def _progress(console: Console, budget: float | None) -> Progress:
    """A line with the stage, a bar, the clock and the last word; where it is too long, stage and word are cut, no clock."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    bar, of_budget = 20 if console.width >= _WIDE else 8, "" if budget is None else f"of {budget:.0f} s"
    room = max(2, console.width - bar - len("0:00:00") - len(of_budget) - 5)  # spaces between columns and at the end

    def words(field: str, room: int, style: str = "none") -> TextColumn:
        column = Column(no_wrap=True, overflow="ellipsis", max_width=room)
        return TextColumn(f"{{task.fields[{field}]}}", style, markup=False, table_column=column)

    return Progress(
        words("stage", room * 3 // 5),
        BarColumn(bar_width=bar),
        TimeElapsedColumn(),
        TextColumn(of_budget),
        words("last", room - room * 3 // 5, "dim"),
        console=console,
    )


class _Lines(Watch):
    """One line a stage, and one every few seconds with what was timed last, or with how a race stands."""

    def __init__(self) -> None:
        self._start = self._said = time.monotonic()

    def stage(self, title: str) -> None:
        self._say(title)

    def block(self, name: str, seconds_per_step: float) -> None:
        if time.monotonic() - self._said > _QUIET:
            self._say(f"  {name}: {seconds_per_step * 1e3:.2f} ms a step")

    def standings(self, rows: Sequence[Standing]) -> None:
        if rows and time.monotonic() - self._said > _QUIET:
            self._say(standings_line(rows))

    def note(self, text: str) -> None:
        self._say(text)

    def _say(self, text: str) -> None:
        self._said = time.monotonic()
        say(f"[{self._said - self._start:5.0f} s] {text}")


class _Bar(Watch):
    """The fields of the bar, and in `rows` how the race stands, none between races."""

    def __init__(self, update: Callable[..., None]) -> None:
        self._update = update
        self._start = time.monotonic()
        self.rows: tuple[Standing, ...] = ()

    def stage(self, title: str) -> None:
        self.rows = ()
        self._show(stage=title.partition(":")[0], last="")

    def opening(self, name: str) -> None:
        self._show(last=f"starting {name}")

    def block(self, name: str, seconds_per_step: float) -> None:
        self._show(last=f"{seconds_per_step * 1e3:.2f} ms a step: {name}")

    def note(self, text: str) -> None:
        self._show(last=text)

    def standings(self, rows: Sequence[Standing]) -> None:
        self.rows = tuple(rows)
        self._show(last=_raced_words(rows))

    def _show(self, **fields: str) -> None:
        self._update(completed=time.monotonic() - self._start, **fields)


def standings_line(rows: Sequence[Standing]) -> str:
    """How a race stands, on one line: candidates, those that are still raced first, each by its ratio; the control; those without
    a ratio; how many are still raced."""
    candidates = [row for row in _in_order(rows) if not row.is_control]
    controls = [row for row in rows if row.is_control]
    said = [f"{row.name} {_ratio(row)}" for row in candidates if not row.left and _ratio(row)]
    said += [" ".join(filter(None, (row.name, _ratio(row), _fate(row)))) for row in candidates if row.left]
    said += [f"{row.name} {_ratio(row)}" for row in controls if _ratio(row)]
    without = [row.name for row in [*candidates, *controls] if not row.left and not _ratio(row)]
    none_yet = f"no figure yet: {', '.join(without)}" if without else ""
    return one_line("; ".join(filter(None, [", ".join(said), none_yet, _raced_words(rows)])))


def _raced_words(rows: Sequence[Standing]) -> str:
    """How many of the candidates are still raced, "" where there are none; the control is none, and stays."""
    candidates = [row for row in rows if not row.is_control]
    return f"{sum(not row.left for row in candidates)} of {len(candidates)} still racing" if candidates else ""


def _fate(row: Standing) -> str:
    """What became of a candidate that is raced no more, in a word or two; the table has the reason."""
    if row.left.startswith(FAILED):
        return "failed"
    if row.left == DECIDED:
        return _decision(row)
    return _FATES.get(row.left, "far slower" if row.left.endswith(FAR_SLOWER_WORDS) else "left out")


def _decision(row: Standing) -> str:
    """What was decided: of one that is not faster, that it cannot gain what it must."""
    if row.low is None or row.high is None:
        return "decided"
    return "faster" if row.high < 1 else "slower" if row.low > 1 else "not faster"


def _table(rows: Sequence[Standing], width: int, height: int) -> Table:
    """The candidates that are still raced, the fastest first, then those that left, in so many characters and lines at most.

    Where words do not fit they are cut, and figures stay whole.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    drawn = Table(box=SIMPLE_HEAD, pad_edge=False)
    figures = len("1.00 [0.90, 1.10]"), len("timed")
    words = max(2, width - sum(figures) - 11)  # between four columns and at their ends
    states = max(len(_state(row)) for row in rows)
    shown = max(1, height - 4)  # beside them heading, rule, and what is not shown
    hidden = f"... {len(rows) - shown} more" if len(rows) > shown else ""
    names = min(max(len(hidden), *(len(row.name) for row in rows)), max(words * 3 // 5, words - states))
    drawn.add_column("candidate", no_wrap=True, overflow="ellipsis", max_width=names)
    drawn.add_column("ratio", no_wrap=True, justify="right", min_width=figures[0])
    drawn.add_column("timed", no_wrap=True, justify="right", min_width=figures[1])
    drawn.add_column("", no_wrap=True, overflow="ellipsis", max_width=words - names)
    for row in _in_order(rows)[:shown]:
        cells = [row.name, _ratio(row), str(row.quads), _state(row)]
        drawn.add_row(*(Text(one_line(cell)) for cell in cells), style="dim" if row.left else "")
    if hidden:
        drawn.add_row(Text(hidden), style="dim")
    return drawn


def _state(row: Standing) -> str:
    """Why it has left; of one that has not, that it is raced, or that nothing of it was timed so far; what the control is."""
    if row.left == DECIDED:
        return _decision(row)
    if not row.left and not row.quads:
        return NOT_TIMED
    return row.left or ("identical code" if row.is_control else "racing")


def _in_order(rows: Sequence[Standing]) -> list[Standing]:
    """Those that are still raced before those that left, each by their ratio, those without one last."""
    return sorted(rows, key=lambda row: (bool(row.left), row.ratio is None, row.ratio or 0.0))


def _ratio(row: Standing) -> str:
    """The ratio so far with its interval, "0.89 [0.83, 0.95]"; "" where there is none."""
    if row.ratio is None:
        return ""
    is_bounded = row.low is not None and row.high is not None and math.isfinite(row.high)
    return f"{row.ratio:.2f} [{row.low:.2f}, {row.high:.2f}]" if is_bounded else f"{row.ratio:.2f}"
