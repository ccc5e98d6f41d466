"""What `perfaudit tune` prints, as whole texts, and which of it is in colour."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from tunes import BATCHES, LOADER, MACHINE, TUNE

from perfaudit.measurements import Calibration, Trial, Winner
from perfaudit.render.paint import plain
from perfaudit.render.tables import calibration, environment, knobs, size, table
from perfaudit.render.text import render
from perfaudit.report import Report

WHOLE = """\
t.py on NVIDIA H200, driver 570.1, 2 cores, 1 thread, 1.5 GiB, torch 2.13.0, Python 3.11.7
the machine was busy (load 1.6 on 2 cores): intervals are wider for it

a step takes 40.00 ms: loading 50 %, backward 36 %, forward 12 %, optimizer 1 %
control: identical code, put in place as a patch is: too few comparisons for an interval (4)

dataloader

 num_workers   pin_memory        ms/step       quartiles   blocks   peak memory
 ──────────────────────────────────────────────────────────────────────────────
 0                  False          40.00   36.00 … 48.00        5       3.0 MiB
 2                  False          30.00   27.00 … 36.00        5
 2                   True         failed       see below                 1023 B
 4                   True   not measured        too slow
  num_workers=2, pin_memory=True, timeout=0: no device to pin for

against num_workers=0, in fresh processes, time per step:
  num_workers=2: 0.751 [0.720, 0.782] faster (12 rounds)
  num_workers=8: 0.900 [0.850, 1.020] undecided (1 round, processor time; under 5.1 % nothing could
  be seen)
  num_workers=9: 1.310 stopped early (3 rounds: it looked slower in every generation)

→ load with 2 workers
  saves 21.8 to 28.0 % of the step, 9.95 ms a step (measured; more than the 0 to 20 % that others document)
  checked: 5 steps agree
  each worker holds a copy of the dataset
  fix (unsafe: changes order, rng) at t.py:5:10:
    --- a/t.py
    +++ b/t.py
    @@ -5 +5 @@
    -loader = DataLoader(ds)
    +loader = DataLoader(ds, num_workers=2)

batch_size

 batch_size   samples/s       quartiles   blocks   peak memory
 ─────────────────────────────────────────────────────────────
 8                1,234   1,111 … 1,481        5
 16               2,000   1,800 … 2,400        5       2.0 KiB

against batch_size=8, in fresh processes, time per sample, loading left out:
  batch_size=16: 0.600 [0.500, 0.700] faster (8 rounds)

→ use batches of 16
  saves 30.0 to 50.0 % of the step's processor time (measured)
  no line of your project builds this in a way that can be patched: change it by hand as said above

ema

 ema           ms/step       quartiles   blocks   peak memory          adds, ms [95 %]
 ─────────────────────────────────────────────────────────────────────────────────────
 python loop     50.00   45.00 … 60.00        5                 +10.00 [+8.00, +12.50]
 foreach         41.00   36.90 … 49.20        5       5.0 GiB       -0.50 [few rounds]
 -               40.50   36.45 … 48.60        5       1.0 MiB

against ema=a, in fresh processes, time per step:
  ema=b, if only optimizer and zero grad changed: 1.100 [1.050, 1.150] slower (8 rounds)
  ema=c, if only optimizer changed: 1.000 [0.900, 1.150] undecided (8 rounds)

→ keep what you have (ema=a)
  nothing was faster

cudnn

 benchmark   ms/step       quartiles   blocks
 ────────────────────────────────────────────
 False         40.00   36.00 … 48.00        5

→ search algorithms
  saves 1.0 to 2.0 % of the step, 500 µs a step (measured)
  fix (safe) at t.py:1:1:
    --- a/t.py
    +++ b/t.py
    @@ -1 +1,2 @@
     import torch

    +search()

patched source against the source as it is, time per step
  PA601 in t.py: 0.900 [0.850, 0.950] faster (9 rounds)
  all of them: 0.800 [0.750, 0.850] faster (9 rounds)

not searched:
  threads, affinity: the step runs on the device
  precision: there is no time

RANKED: measured one by one against your code, by the lower bound; savings do not add up

                             setting         saves of the whole step                 patch
 ─────────────────────────────────────────────────────────────────────────────────────────
 1   num_workers=2, pin_memory=False                   21.8 … 28.0 %   t.py:5 (order, rng)
 2                     batch_size=16   30.0 … 50.0 %, processor time               by hand
 3                    benchmark=True                     1.0 … 2.0 %                t.py:1
 4                      mode=default                   10.0 … 20.0 %             see above

note: a note
"""


def test_a_whole_search() -> None:
    assert render(TUNE) == WHOLE


def test_what_is_in_colour() -> None:
    painted = render(TUNE, in_colour=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == WHOLE
    # Heads of tables are painted by rich.
    lines = [line for line in painted.splitlines() if not line.startswith(" \x1b[1m")]
    names = {"1": "bold", "31": "red", "32": "green", "33": "yellow", "36": "cyan", "1;32": "bold green"}
    pieces = re.findall("\x1b\\[([0-9;]+)m(.*?)\x1b\\[0m", "\n".join(lines))
    patch = [("bold", "--- a/t.py"), ("bold", "+++ b/t.py")]
    assert [(names[code], text) for code, text in pieces] == [
        ("bold", "t.py"),
        ("yellow", "the machine was busy (load 1.6 on 2 cores): intervals are wider for it"),
        ("bold", "dataloader"),
        ("green", "faster"),
        ("yellow", "undecided"),
        ("yellow", "stopped early"),
        ("bold", "→ load with 2 workers"),
        ("bold green", "saves 21.8 to 28.0 % of the step, 9.95 ms a step"),
        ("cyan", "fix (unsafe: changes order, rng)"),
        *patch,
        ("cyan", "@@ -5 +5 @@"),
        ("red", "-loader = DataLoader(ds)"),
        ("green", "+loader = DataLoader(ds, num_workers=2)"),
        ("bold", "batch_size"),
        ("green", "faster"),
        ("bold", "→ use batches of 16"),
        ("bold green", "saves 30.0 to 50.0 % of the step's processor time"),
        ("bold", "ema"),
        ("red", "slower"),
        ("yellow", "undecided"),
        ("bold", "cudnn"),
        ("bold", "→ search algorithms"),
        ("bold green", "saves 1.0 to 2.0 % of the step, 500 µs a step"),
        ("cyan", "fix (safe)"),
        *patch,
        ("cyan", "@@ -1 +1,2 @@"),
        ("green", "+search()"),
        ("bold", "patched source against the source as it is, time per step"),
        ("green", "faster"),
        ("green", "faster"),
        ("bold", "threads"),
        ("bold", "affinity"),
        ("bold", "precision"),
        ("bold", "RANKED: measured one by one against your code, by the lower bound; savings do not add up"),
    ]
    assert "\x1b[1mms/step\x1b[0m" in painted
    assert "\x1b" not in render(TUNE)


def environment_text(**changes: object) -> str:
    return environment(Report("tune", target="t.py", environment=replace(MACHINE, **changes)), plain, 100)  # type: ignore[arg-type]  # a row's values


@pytest.mark.parametrize(("load", "is_busy"), [(None, False), (0.0, False), (1.5, False), (1.51, True)])
def test_a_machine_is_busy_above_three_quarters_of_its_cores(load: float | None, is_busy: bool) -> None:
    said = f"the machine was busy (load {load} on 2 cores): intervals are wider for it\n" if is_busy else ""
    assert environment_text(load=load).partition("\n")[2] == said


def test_a_machine_of_one_core_without_a_driver() -> None:
    said = "t.py on cpu, 1 core, 4 threads, 1.5 GiB, torch 2.13.0, Python 3.11.7\n"
    assert environment_text(device="cpu", driver="", cores=1, threads=4, load=0.5) == said


@pytest.mark.parametrize(
    ("phases", "scatter", "ratio", "text"),
    [
        (
            {"loading": 0.001, "forward": 0.199},  # half a percent is said
            None,
            1.25,
            "a step takes 200.00 ms: forward 100 %, loading 0 %\n"
            "control: identical code, put in place as a patch is: too few comparisons for an interval (3)\n",
        ),
        (
            {"loading": 0.0009, "forward": 0.1991},
            0.0,
            1.0,
            "a step takes 200.00 ms: forward 100 %\n"
            "control: identical code, put in place as a patch is: too few comparisons for an interval (3)\n",
        ),
        (
            {"loading": 0.0},
            0.01,
            1.0,
            "a step takes 200.00 ms:\n"
            "control: identical code, put in place as a patch is: too few comparisons for an interval (3)\n",
        ),
    ],
)
def test_what_a_step_consists_of(phases: dict[str, float], scatter: float | None, ratio: float, text: str) -> None:
    seen = Calibration(0.2, 1.0, scatter, ratio, 3, True, phases)
    assert calibration(Report("tune", calibration=seen)) == text


def test_what_a_script_does_between_its_phases_is_a_part_of_its_step() -> None:
    seen = Calibration(0.1, 1.0, 0.01, 1.0, 3, True, {"optimizer": 0.006, "backward": 0.004})
    assert calibration(Report("tune", calibration=seen)).startswith(
        "a step takes 100.00 ms: other 90 %, optimizer 6 %, backward 4 %\n"
    )


def test_a_control_is_said_with_its_interval_in_place_of_two_copies() -> None:
    seen = Calibration(0.2, 1.0, 0.01, 1.02, 1, True, {"forward": 0.2}, low=0.99, high=1.05)
    assert calibration(Report("tune", calibration=seen)) == (
        "a step takes 200.00 ms: forward 100 %\ncontrol: identical code, put in place as a patch is, took 1.020 "
        "[0.990, 1.050] of the time of your\ncode (1 comparison)\n"
    )


@pytest.mark.parametrize(
    ("scatter", "wall_over_cpu", "queued", "noise"),
    [
        (0.021, 0.5, 0.0, "single comparisons of the control scatter by 2.1 %; a step takes 400.00 ms of processor time, "
         "all threads"),
        (None, 1.0, 0.009, "a step takes 200.00 ms of processor time, all threads"),
        (None, 4.0, 0.25, "a step takes 50.00 ms of processor time, all threads, and they wait 50.00 ms together for cores that "
         "others hold"),
        (None, 4.0, 1.05, "a step takes 50.00 ms of processor time, all threads, and they wait 210.00 ms together for cores that "
         "others hold"),
    ],
)  # fmt: skip
def test_noise_and_processor_time_of_a_measured_scan_are_told_to_who_asks(
    scatter: float | None, wall_over_cpu: float, queued: float, noise: str
) -> None:
    seen = Calibration(0.2, wall_over_cpu, scatter, 1.02, 9, True, {"forward": 0.2}, queued, low=0.99, high=1.05)
    report = Report("scan", calibration=seen)
    assert render(report, verbose=True, width=200).splitlines()[2] == f"noise: {noise}"
    assert "noise" not in render(report)


def test_processor_time_is_what_was_seen_where_steps_leave_waiting_out() -> None:
    """The step is told without waiting for cores, and wall over CPU with it."""
    seen = Calibration(
        0.031, 5.0, None, 1.02, 9, True, {}, 5.4, low=0.99, high=1.05, control_way="twin", cpu_per_step=0.034
    )
    lines = render(Report("scan", calibration=seen), verbose=True, width=200).splitlines()
    assert lines[1].startswith("control: identical code, in a second training, took 1.020")
    assert lines[2].startswith("noise: a step takes 34.00 ms of processor time, all threads, and they wait 167.40 ms")


def test_a_control_that_excludes_one_comes_before_everything_else() -> None:
    assert TUNE.calibration is not None
    doubted = TUNE.with_(calibration=replace(TUNE.calibration, low=1.01, high=1.05))
    assert render(doubted).startswith("this run cannot be trusted: the control, identical code")


def test_a_control_that_excludes_one_says_nothing_against_what_fresh_processes_showed() -> None:
    assert TUNE.calibration is not None
    raced = TUNE.comparisons[0]
    winner = Winner(raced.knob, raced.candidate, False, "take it")
    doubted = TUNE.with_(calibration=replace(TUNE.calibration, low=1.01, high=1.05), winners=(winner,))
    text = " ".join(render(doubted).split())
    assert text.startswith("the screened ratios of this run may be off: the control, identical code")
    assert "What it advises was measured in fresh processes" in text
    screened = doubted.with_(comparisons=tuple(replace(each, basis="screened") for each in TUNE.comparisons))
    assert render(screened).startswith("this run cannot be trusted")


def test_what_was_screened_is_raced_in_one_training_and_counts_comparisons() -> None:
    raced = tuple(replace(c, basis="screened", way="setting") for c in TUNE.comparisons[:2])
    text = render(TUNE.with_(comparisons=raced))
    assert "against num_workers=0, in one running training, time per step:\n" in text
    assert "num_workers=2: 0.751 [0.720, 0.782] faster (12 comparisons, screened)\n" in text


def test_one_knob_is_not_ranked_and_a_search_without_a_saving_says_so() -> None:
    one = tuple(t for t in TUNE.trials if t.knob in ("cudnn", "patch"))
    text, raced = knobs(Report("tune", trials=one, winners=(BATCHES,), comparisons=TUNE.comparisons[-2:]), plain, 100)
    assert text.startswith("cudnn\n") and raced.startswith("patched source")
    kept = replace(LOADER, keeps_current=True)
    unknown = replace(BATCHES, saving=None)
    parts = knobs(Report("tune", trials=TUNE.trials, winners=(kept, unknown)), plain, 100)
    assert parts[-1] == "RANKED: nothing was shown to pay here\n"


def test_trials_that_failed_have_their_reasons_below_the_table() -> None:
    failed = [Trial("ema", {"ema": name}, "failed", reason=f"no {name}") for name in ("a", "b")]
    (text,) = knobs(Report("tune", trials=tuple(failed)), plain, 100)
    assert text.splitlines()[-3:] == [" b      failed   see below", "  ema=a: no a", "  ema=b: no b"]


def test_a_winner_without_a_saving_and_with_a_line_but_no_patch() -> None:
    winner = replace(LOADER, saving=None, fix=None, verified="", remarks=())
    (_, said) = knobs(Report("tune", trials=TUNE.trials[:1], winners=(winner,)), plain, 100)
    by_hand = "no line of your project builds this in a way that can be patched: change it by hand as said above"
    assert said == f"→ load with 2 workers\n  {by_hand}\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), ((1 << 20) - 1, "1024.0 KiB"), (1 << 20, "1.0 MiB"),
     ((1 << 30) - 1, "1024.0 MiB"), (1 << 30, "1.0 GiB"), (5 << 40, "5120.0 GiB")],
)  # fmt: skip
def test_bytes(count: int, text: str) -> None:
    assert size(count) == text


def test_a_table_folds_its_cells_and_reads_no_markup() -> None:
    drawn = table(["[bold]name"], [["abcdefghijklmn"], ["[red]x"]], False, 10)
    assert drawn == "\n [bold]na\n me\n ────────\n abcdefgh\n ijklmn\n [red]x\n"
