"""What a long measurement says while it runs: lines for a log, a bar and a table for a terminal. Time stands still here."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace

import pytest
from rich.console import Console

from perfaudit.cli import measuring
from perfaudit.cli.measuring import _Bar, _Lines, _progress, _table, standings_line
from perfaudit.measure.entrants import BEATEN, DECIDED, FAR_SLOWER_WORDS, FUTILE, UNDECIDED
from perfaudit.measure.watch import Standing
from perfaudit.tune.final import STAGE

GELU = Standing("fusion", 40, 0.89, 0.83, 0.95)
FUSED = Standing("optimizer update=fused", 36, 0.98, 0.94, 1.03)
NEW = Standing("num_workers=2", 1)
CONTROL = Standing("control", 9, 1.0, is_control=True)
SHORT = Standing("foreach", 2, 1.5, 0.0, float("inf"))
GONE = Standing("compile", 12, 1.31, 1.2, 1.42, DECIDED)
REFUSED = Standing("attention", 0, left="refused: a hook holds it")
WARMING = Standing("foreach", 0)


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(measuring, "time", clock)
    yield clock


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        (
            [FUSED, GONE, GELU, REFUSED, NEW],
            "fusion 0.89 [0.83, 0.95], optimizer update=fused 0.98 [0.94, 1.03], "
            "compile 1.31 [1.20, 1.42] slower, attention left out; no figure yet: num_workers=2; 3 of 5 still racing",
        ),
        (
            [CONTROL, FUSED, GONE, GELU],
            "fusion 0.89 [0.83, 0.95], optimizer update=fused 0.98 [0.94, 1.03], "
            "compile 1.31 [1.20, 1.42] slower, control 1.00; 2 of 3 still racing",
        ),
        (
            [*[GELU] * 5, CONTROL],
            "fusion 0.89 [0.83, 0.95], " * 5 + "control 1.00; 5 of 5 still racing",
        ),
        (
            [NEW, replace(CONTROL, ratio=None)],
            "no figure yet: num_workers=2, control; 1 of 1 still racing",
        ),
        (
            [GONE, replace(CONTROL, low=0.99, high=1.01)],
            "compile 1.31 [1.20, 1.42] slower, control 1.00 [0.99, 1.01]; 0 of 1 still racing",
        ),
        ([CONTROL], "control 1.00"),  # all patches are in place together, and nothing else is raced
        ([replace(CONTROL, ratio=None)], "no figure yet: control"),
        ([NEW, REFUSED], "attention left out; no figure yet: num_workers=2; 1 of 2 still racing"),
        ([SHORT], "foreach 1.50; 1 of 1 still racing"),
        ([GONE, REFUSED], "compile 1.31 [1.20, 1.42] slower, attention left out; 0 of 2 still racing"),
        (
            [NEW, WARMING],
            "no figure yet: num_workers=2, foreach; 2 of 2 still racing",
        ),
        (
            [replace(GELU, left=DECIDED), replace(FUSED, left=DECIDED)],
            "fusion 0.89 [0.83, 0.95] faster, optimizer update=fused 0.98 [0.94, 1.03] not faster; 0 of 2 still racing",
        ),
        (
            [
                replace(GELU, left=FUTILE), replace(FUSED, left=UNDECIDED), replace(GONE, left=BEATEN),
                Standing("transfer", 0, left=f"7 {FAR_SLOWER_WORDS}"), Standing("ema", 3, left="with it, a step raises E"),
            ],
            "fusion 0.89 [0.83, 0.95] looked no faster, optimizer update=fused 0.98 [0.94, 1.03] undecided, "
            "compile 1.31 [1.20, 1.42] another setting looked faster, transfer far slower, ema failed; 0 of 5 still racing",
        ),
        ([GELU] * 6, ", ".join(["fusion 0.89 [0.83, 0.95]"] * 6) + "; 6 of 6 still racing"),
        ([Standing("a\n\x1b[2J", 3, 1.0)], "a␊␛[2J 1.00; 1 of 1 still racing"),
    ],
)  # fmt: skip
def test_how_a_race_stands_on_one_line(rows: list[Standing], line: str) -> None:
    assert standings_line(rows) == line


def test_a_log_gets_a_line_every_ten_seconds(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    watch = _Lines()
    watch.stage("every patch beside your code")
    for _ in range(25):
        clock.now += 1.0
        watch.standings([GELU, GONE])
    clock.now += 11.0
    watch.standings([])  # nothing is raced
    watch.block("num_workers=2, pin_memory=False", 0.0123)
    line = "fusion 0.89 [0.83, 0.95], compile 1.31 [1.20, 1.42] slower; 1 of 2 still racing"
    assert capsys.readouterr().err == (
        "[    0 s] every patch beside your code\n"
        f"[   11 s] {line}\n[   22 s] {line}\n[   36 s]   num_workers=2, pin_memory=False: 12.30 ms a step\n"
    )


def test_the_bar_names_settings_and_has_rows_while_a_race_goes_on(clock: Clock) -> None:
    shown: dict[str, object] = {}
    bar = _Bar(lambda **fields: shown.update(fields))
    bar.opening("num_workers=2")
    assert shown == {"completed": 0.0, "last": "starting num_workers=2"}
    clock.now += 3.0
    bar.block("num_workers=2", 0.1)
    assert shown == {"completed": 3.0, "last": "100.00 ms a step: num_workers=2"}
    bar.standings([GELU, GONE])
    assert bar.rows == (GELU, GONE) and shown["last"] == "1 of 2 still racing"
    bar.stage("final race: all of it")
    assert not bar.rows
    assert shown == {"completed": 3.0, "stage": "final race", "last": ""}


@pytest.mark.parametrize("stage", ["loading t.py", "racing every patch in one training, in turn with your code"])
@pytest.mark.parametrize("last", ["", "2 of 3 still racing", "100.00 ms a step: num_workers=2, pin_memory=False"])
def test_the_bar_has_its_clock_on_a_narrow_terminal(stage: str, last: str) -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    progress = _progress(console, 300.0)
    progress.add_task("", total=300.0, stage=stage, last=last)
    console.print(progress.get_renderable())
    (line,) = out.getvalue().splitlines()
    assert "0:00:00 of 300 s" in line and stage[:8] in line and last[:8] in line


def test_the_final_race_is_named_whole_on_a_usual_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, width=120)
    progress = _progress(console, 300.0)
    progress.add_task("", total=300.0, stage=STAGE, last="137.02 ms a step: your code")
    console.print(progress.get_renderable())
    assert STAGE in out.getvalue() and "137.02 ms a step: your code" in out.getvalue()


def test_the_bar_promises_no_end_where_there_is_none() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    progress = _progress(console, None)
    progress.add_task("", total=None, stage="timing t.py, process 1 of 3", last="")
    console.print(progress.get_renderable())
    (line,) = out.getvalue().splitlines()
    assert "timing t.py, process 1 of 3" in line and line.rstrip().endswith("0:00:00")


def drawn(rows: list[Standing], width: int = 90, height: int = 20) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width).print(_table(rows, width, height))
    return [line.rstrip() for line in out.getvalue().splitlines() if line.strip()]


def test_a_terminal_gets_a_table_of_who_is_raced_and_who_left() -> None:
    assert drawn([GONE, NEW, FUSED, REFUSED, GELU]) == [
        " candidate                            ratio   timed",
        f" {77 * '─'}",
        " fusion                   0.89 [0.83, 0.95]      40   racing",
        " optimizer update=fused   0.98 [0.94, 1.03]      36   racing",
        " num_workers=2                                    1   racing",
        " compile                  1.31 [1.20, 1.42]      12   slower",
        " attention                                        0   refused: a hook holds it",
    ]


def test_the_table_says_what_is_done_before_anything_is_timed() -> None:
    rows = drawn([WARMING, NEW, replace(CONTROL, ratio=None)])[2:]
    assert [line.split("  ")[-1].strip() for line in rows] == ["not timed yet", "racing", "identical code"]


def test_figures_stay_whole_where_words_do_not_fit() -> None:
    long = Standing("a very long name of a patch " * 3, 400, 0.89, 0.83, 0.95, "a very long reason " * 5)
    assert drawn([long], width=60)[-1] == " a very long nam…   0.89 [0.83, 0.95]     400   a very lon…"


def test_names_have_the_room_that_reasons_do_not_need() -> None:
    name = "threads: call torch.set_num_threads(1)"
    assert drawn([Standing(name, 4)], width=80)[-1].split("  ")[0] == f" {name}"


def test_a_low_terminal_gets_the_first_rows_and_how_many_there_are_more() -> None:
    assert drawn([GELU] * 9, height=7)[-1] == " ... 6 more"
    assert drawn([GELU] * 3, height=7)[-1] == drawn([GELU])[-1]
    assert drawn([GELU] * 2, height=0)[-1] == " ... 1 more"


def test_nothing_in_the_table_is_markup_or_a_command() -> None:
    assert drawn([Standing("[red]x\x1b[2J", 1, left="[b]y")])[-1].split() == ["[red]x␛[2J", "1", "[b]y"]
