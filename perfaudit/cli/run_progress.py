"""How a run of a script goes on: one line that stays current at the foot of a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from perfaudit.cli.output import say
from perfaudit.render.run import figures, milliseconds
from perfaudit.render.words import count, one_line

if TYPE_CHECKING:
    from perfaudit.script.observe import Seen
    from perfaudit.script.request import Request

_QUIET = 10.0  # seconds between lines where there is no terminal
_RECENT = 200  # updates whose figures the line shows
_LAST = 20  # updates whose time a line of its own tells
_FEWEST_ROWS = 4  # of a terminal that gives one of them to the line
_LEAST = 0.05  # of a step, from which on the line has a phase
_SHORT = {"data_wait": "data", "host_to_device": "copies", "host_reads": "reads"}  # words of phases that are long


def is_live(stream: IO[str]) -> bool:
    """Whether a line can stay at the foot of what a stream is shown on."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb")


@contextlib.contextmanager
def progress(request: Request, stream: IO[str]) -> Iterator[Callable[[Seen], None]]:
    """What is to be called with what is known of a run."""
    if not request.is_live:
        yield _Lines(request.script.name).tell
        return
    foot = _Foot(stream)
    try:
        yield lambda seen: foot.show(live_line(seen, request, time.monotonic(), foot.width))
    finally:
        foot.close()


class _Lines:
    """Says now and then how far a run is; the lines of the script stand between."""

    def __init__(self, name: str) -> None:
        self._name, self._told = name, time.monotonic()
        self._number, self._since = 0, 0.0  # of updates, and when the last of them came

    def tell(self, seen: Seen) -> None:
        now = time.monotonic()
        if seen.number != self._number:
            self._number, self._since = seen.number, now
        if now - self._told < _QUIET:
            return
        self._told = now
        if not seen.number:
            so_far = f"; {count(seen.backwards, 'backward pass', 'backward passes')}" if seen.backwards else ""
            say(f"{self._name}: no step yet, {now - seen.began:.0f} s{so_far}")
        elif now - self._since >= _QUIET:
            doing = (
                f"; it evaluates ({count(seen.evaluated, 'batch or call', 'batches and calls')} so far)"
                if seen.evaluated
                else ""
            )
            say(f"{self._name}: {count(seen.number, 'update')}, the last one {now - self._since:.0f} s ago{doing}")
        elif last := [update["seconds"] for update in _behind_start(seen, _LAST)]:
            say(f"{self._name}: {count(seen.number, 'update')}, about {milliseconds(sum(last) / len(last))} each")
        else:
            say(f"{self._name}: {count(seen.number, 'update')}, after {now - seen.began:.0f} s")


def _behind_start(seen: Seen, most: int) -> list[dict[str, Any]]:
    """The last updates, so many at most, without the first one of all: the start of the script is in its time."""
    whole = seen.updates[1:] if len(seen.updates) == seen.number else seen.updates
    return whole[-most:]


class _Foot:
    """The last row of a terminal, which does not scroll with the others as long as this is open (DECSTBM)."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._rows = 0  # of the terminal when its last row was taken
        self.width = 0
        self._fit()

    def _fit(self) -> None:
        self.width, rows = shutil.get_terminal_size()
        if rows != self._rows and rows >= _FEWEST_ROWS:
            self._rows = rows
            self._write(f"\n\0337\033[1;{rows - 1}r\0338\033[1A")  # a row free, then the others scroll without it

    def show(self, line: str) -> None:
        """Show a line in place of the last one; the cursor stays where it is."""
        self._fit()
        if self._rows:
            self._write(f"\0337\033[{self._rows};1H\033[2K{line}\0338")

    def close(self) -> None:
        """Give the row back, and begin a line: the last one of the script may have no end, as that of a bar of progress."""
        if self._rows:
            self._write(f"\0337\033[r\033[{self._rows};1H\033[2K\0338\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone; the run goes on
            self._stream.write(text)
            self._stream.flush()


def live_line(seen: Seen, request: Request, now: float, width: int) -> str:
    """Step, samples a second, phases, memory and the projected end, in so many characters at most.

    What does not fit is left out: half a figure reads as another one.
    """
    recent = _behind_start(seen, _RECENT)
    seconds = sum(update["seconds"] for update in recent)
    if not recent or not seconds:
        so_far = count(seen.number, "update") if seen.number else "no step yet"
        so_far += ", it evaluates" if seen.evaluated else ""
        return one_line(f"{request.script.name}: {so_far}, {now - seen.began:.0f} s")[: width - 1]
    said = [
        f"update {seen.number:,}" if len({update["optimizer"] for update in recent}) > 1 else f"step {seen.number:,}"
    ]
    watched = [update for update in recent if update["phases"]] or recent
    in_them = sum(update["seconds"] for update in watched)
    if samples := _samples(watched):
        said.append(f"{figures(samples / in_them)} samples/s")
    said.append(milliseconds(seconds / len(recent)))
    if watched[0]["phases"]:
        said.append(_phases(watched, in_them))
    if seen.evaluated:
        said.append("evaluates")
    if seen.memory:
        said.append(f"{seen.memory / 2**20:,.0f} MiB")
    if (left := seconds_left(seen, request, now)) is not None:
        said.append(f"{_duration(left)} left")
    line, *rest = said
    for part in rest:
        if len(line) + 2 + len(part) < width:
            line += f"  {part}"
    return one_line(line)[: width - 1]


def seconds_left(seen: Seen, request: Request, now: float) -> float | None:
    """Until the end of the run, at the speed so far; None where the end is not known."""
    spent = now - seen.trained_since
    if request.steps and seen.number:
        made = seen.number / updates if (updates := _updates_per_step(seen)) else None
        return max(0.0, spent * (request.steps - made) / made) if made else None
    if request.seconds:
        return max(0.0, request.seconds - spent)
    (began, first), (at, done) = seen.fractions
    if done is None or first is None or done <= first or at <= began:
        return None
    return max(0.0, (1 - done) * (at - began) / (done - first) - (now - at))


def _updates_per_step(seen: Seen) -> int | None:
    """How many updates of the optimizers make a step, None where their order does not repeat."""
    from perfaudit.script.rhythm import find_rhythm

    order = [int(update["optimizer"]) for update in seen.updates[-_RECENT:]]
    if len({*order}) < 2:
        return 1
    rhythm = find_rhythm(order)
    if not rhythm.is_regular or not rhythm.steps:
        return None
    first, behind = rhythm.steps[-1]
    return behind - first


def _samples(recent: list[dict[str, Any]]) -> int:
    """How many these updates had; of optimizers that train one behind the other each has its own."""
    from perfaudit.script.rhythm import find_rounds
    from perfaudit.script.tally import samples_of

    rhythm = find_rounds([update["optimizer"] for update in recent])
    is_each_a_step = all(behind - first == 1 for first, behind in rhythm.steps)
    return sum(samples_of([each]) for each in recent) if is_each_a_step else samples_of(recent, rhythm.optimizers)


def _phases(recent: list[dict[str, object]], seconds: float) -> str:
    from perfaudit.script.spans import PHASES

    sums = dict.fromkeys(PHASES, 0.0)
    for update in recent:
        for name, spent in zip(PHASES, update["phases"], strict=True):  # type: ignore[call-overload]  # JSON
            sums[name] += spent
    sums["other"] = max(0.0, seconds - sum(spent for name, spent in sums.items() if name != "other"))
    shown = [(name, spent / seconds) for name, spent in sums.items() if spent / seconds >= _LEAST]
    return " ".join(f"{_SHORT.get(name, name)} {100 * share:.0f}%" for name, share in shown)


def _duration(seconds: float) -> str:
    """1:05, 2:03:45."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
