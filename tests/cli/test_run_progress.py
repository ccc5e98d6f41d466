"""The line at the foot of a terminal while a script runs."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest

from perfaudit.cli import run_progress
from perfaudit.cli.run_progress import is_live, live_line, progress, seconds_left
from perfaudit.script.observe import Seen
from perfaudit.script.request import Request, Script
from perfaudit.script.spans import PHASES


def seen_of(number: int = 4, **more: Any) -> Seen:
    phases = [{"forward": 0.06, "data_wait": 0.03}.get(name, 0.0) for name in PHASES]
    update = {"optimizer": 0, "seconds": 0.1, "samples": 8, "batches": 1, "phases": phases}
    return Seen(0.0, [update] * number, number=number, trained_since=10.0, **more)


def request(**more: Any) -> Request:
    return Request(Script("train.py"), scratch=Path("/tmp"), is_live=True, **more)


def test_the_line_has_step_rate_phases_memory_and_end() -> None:
    seen = seen_of(memory=300 << 20, fractions=((20.0, 0.1), (30.0, 0.2)))
    line = live_line(seen, request(), 31.0, 100)
    assert line == "step 4  80 samples/s  100 ms  data 30% forward 60% other 10%  300 MiB  1:19 left"
    assert live_line(seen, request(), 31.0, 20) == "step 4  100 ms"  # no half of a figure
    assert live_line(seen, request(), 31.0, 41) == "step 4  80 samples/s  100 ms  300 MiB"
    seen.updates.append(seen.updates[0] | {"phases": [], "batches": 0, "samples": 0})  # its phases were not timed
    assert live_line(seen, request(), 31.0, 100) == line
    assert live_line(Seen(0.0), request(), 31.0, 100) == "train.py: no step yet, 31 s"


def test_the_start_of_the_script_is_in_no_figure() -> None:
    """It lies in the time of the first update."""
    seen = seen_of()
    seen.updates[0] = seen.updates[0] | {"seconds": 40.0}
    assert live_line(seen, request(), 31.0, 100) == live_line(seen_of(), request(), 31.0, 100)
    seen.updates[:], seen.number = seen.updates[:1], 1
    assert live_line(seen, request(), 41.0, 100) == "train.py: 1 update, 41 s"


def test_without_a_terminal_a_line_tells_how_far_a_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(run_progress.time, "monotonic", lambda: now)
    seen = seen_of()
    every = [seen.updates[0] | {"seconds": 12.0}, *seen.updates[1:]]
    shown = []
    with progress(Request(Script("train.py"), scratch=Path("/tmp")), io.StringIO()) as tell:
        for now, number in ((11.0, 0), (12.0, 1), (22.0, 1), (33.0, 1), (34.0, 4), (43.5, 4), (60.0, 4), (71.0, 4)):
            seen.updates[:], seen.number, seen.evaluated = every[:number], number, 57 * (now > 70)
            tell(seen)
            shown += [(now, line) for line in capsys.readouterr().err.splitlines()]
    assert shown == [
        (11.0, "train.py: no step yet, 11 s"),
        (22.0, "train.py: 1 update, the last one 10 s ago"),
        (33.0, "train.py: 1 update, the last one 21 s ago"),
        (43.5, "train.py: 4 updates, about 100 ms each"),
        (60.0, "train.py: 4 updates, the last one 26 s ago"),
        (71.0, "train.py: 4 updates, the last one 37 s ago; it evaluates (57 batches and calls so far)"),
    ]


@pytest.mark.parametrize(
    ("asked", "fractions", "left"),
    [
        ({"steps": 12}, (None, None), 4.0),
        ({"seconds": 20.0}, (None, None), 18.0),
        ({}, (None, None), None),
        ({}, (0.5, 0.5), None),
        ({}, (0.25, 0.5), 20.0),
    ],
)
def test_the_end_is_projected_where_it_is_known(
    asked: dict[str, Any], fractions: tuple[float | None, float | None], left: float | None
) -> None:
    first, last = fractions
    seen = seen_of(fractions=((2.0, first), (12.0, last)))
    found = seconds_left(seen, request(**asked), 12.0)
    assert found == (None if left is None else pytest.approx(left))


def test_with_several_optimizers_a_step_has_several_updates() -> None:
    seen = seen_of(fractions=((2.0, None), (12.0, None)))
    one = seen.updates[0]
    seen.updates[:] = [{**one, "optimizer": number % 2} for number in range(8)]
    seen.number = 8  # four steps, in two seconds
    assert seconds_left(seen, request(steps=12), 12.0) == pytest.approx(4.0)
    seen.updates[:] = [{**one, "optimizer": int(number in (1, 2, 3, 6))} for number in range(8)]
    assert seconds_left(seen, request(steps=12), 12.0) is None  # no order repeats


@pytest.mark.parametrize(
    ("order", "rate"),
    [([0, 1] * 200, "40 samples/s"), ([0] * 90 + [1] * 90, "80 samples/s")],  # a GAN; layers, one behind the other
)
def test_the_rate_of_several_optimizers_without_a_loader(order: list[int], rate: str) -> None:
    seen = seen_of(len(order))
    seen.updates[:] = [{**seen.updates[0], "batches": 0, "optimizer": optimizer} for optimizer in order]
    assert rate in live_line(seen, request(), 31.0, 100)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_its_last_row_back_and_nothing_else_gets_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(run_progress.shutil, "get_terminal_size", lambda: (80, 24))
    terminal, file = Terminal(), io.StringIO()
    assert (is_live(terminal), is_live(file)) == (True, False)
    with progress(request(), terminal) as tell:
        tell(seen_of())
    shown = terminal.getvalue()
    assert shown.startswith("\n\0337\033[1;23r\0338\033[1A\0337\033[24;1H\033[2Kstep 4  80 samples/s")
    assert shown.endswith("\0337\033[r\033[24;1H\033[2K\0338\n")
    with progress(Request(Script("train.py")), file) as tell:
        tell(seen_of())
    assert file.getvalue() == ""
