"""The HTML page of a search: before and after first, the ladder, candidates beside their control, curves, losses, patches."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from climbs import CLIMB, LADDER, RACED, report
from html_pages import EVIL, Page, check_page, readable
from tunes import TRIALS, TUNE, trial

from perfaudit.findings import FilePatch, Fix
from perfaudit.measurements import Calibration, ClockName, Ladder, Losses, NotApplicable, TwinControl, Winner
from perfaudit.render.html import render
from perfaudit.render.html.knob_curves import knob_curves
from perfaudit.render.html.page import LIMIT
from perfaudit.report import Report

LOSSES = Losses((4.0, 3.5, 3.0), (4.0, 3.5001, 3.0), (0.01, 0.01))
TOLD = LADDER.with_(
    losses=LOSSES, phases={"forward": 0.05, "backward": 0.05}, patched_phases={"forward": 0.04, "backward": 0.03}
)


def section(text: str, id_: str) -> str:
    """What a section of a page says."""
    found = text.partition(f'<h2 id="{id_}">')[2].partition("</section>")[0]
    return readable(f"<main>{found}</main>")


def test_the_result_comes_first() -> None:
    text = render(CLIMB)
    check_page(text)
    said = readable(text).splitlines()
    assert said[:5] == [
        "perfaudit tune: t.py",
        "100.0 ms → 70.0 ms a step (1.43 x), 2 patches, verified",
        "1 undecided (attention), 1 not reached (compile)",
        "Final race, the patch against your code in fresh processes (12 rounds): 0.700 [0.650, 0.750]; saves 30.00 s "
        "[25.00 s, 35.00 s] in a thousand steps; peak memory 4.0 MiB → 2.0 MiB",
        "Verified: 5 steps agree",
    ]
    headings = re.findall(r"<h2 id=\"([\w-]+)\"", text)
    assert headings == ["before-after", "ladder", "patch", "losses", "phases", "raced", "left", "notes"]


def test_the_ladder_goes_down_rung_by_rung() -> None:
    picture = (
        render(CLIMB).partition('aria-label="The ladder: time of a step, patch by patch"')[2].partition("</ul>")[0]
    )
    bars = re.findall(r'<rect x="([\d.]+)%" y="50%" width="([\d.]+)%" \S+ \S+ \S+ class="bar (\w+)"', picture)
    ends = [(float(x), float(x) + float(width)) for x, width, _ in bars]
    assert [kind for *_, kind in bars] == ["rest", "screened", "screened", "measured"]
    base = ends[0][1]
    assert [end / base for _, end in ends] == pytest.approx([1.0, 1.0, 0.9, 0.7], abs=0.002)
    assert [start / base for start, _ in ends] == pytest.approx([0.0, 0.9, 0.72, 0.0], abs=0.002)
    said = section(render(CLIMB), "ladder")
    assert "alone 0.900 [0.880, 0.920], screened; beside the others 0.910 [0.895, 0.925]" in said
    assert "alone 0.800 [0.750, 0.850], screened; not raced beside the others" in said
    assert "the others are as fast without it" in said


def test_candidates_stand_beside_the_control() -> None:
    text = render(CLIMB)
    said = section(text, "raced").splitlines()
    rows = said[said.index("control: identical code", 3) :]
    assert "1.001 [0.993, 1.009]" in rows
    order = [rows.index(name) for name in ("fusion pointwise=library", "optimizer update=fused", "attention=library")]
    assert order == sorted(order)
    assert "0.980 [0.950, 1.010] undecided (48 comparisons, screened)" in rows
    assert "no interval yet (1 round, measured)" in rows
    assert 'class="band-control"' in text
    assert CLIMB.calibration is not None
    of_twins = replace(CLIMB.calibration, of_twins=TwinControl(8, 1.003, 0.981, 1.024))
    said = section(render(CLIMB.with_(calibration=of_twins)), "raced").splitlines()
    at = said.index("control: identical code, in a second training")
    assert "1.003 [0.981, 1.024]" in said[at : at + 3]


def test_phases_and_losses_of_both() -> None:
    text = render(CLIMB.with_(ladder=TOLD))
    check_page(text)
    assert "30.0 ms, 0.60 of it" in section(text, "before-after")
    table = section(text, "losses").partition("differ by")[2].split()
    assert table == [
        "tolerated",
        "1",
        "4",
        "4",
        "0",
        "1.0e-02",
        "2",
        "3.5",
        "3.5001",
        "2.9e-05",
        "1.0e-02",
        "3",
        "3",
        "3",
        "0",
    ]
    assert "5 steps agree" in section(text, "losses")


@pytest.mark.parametrize(
    "losses",
    [None, Losses((), ()), Losses((1.0,), (float("nan"),)), Losses((1.0, 2.0), (1.0,)), Losses((0.0,), (0.0,), (0.1,))],
)
def test_losses_that_cannot_be_drawn(losses: Losses | None) -> None:
    text = render(report(TOLD.with_(losses=losses)))
    check_page(text)
    assert "5 steps agree" in section(text, "losses")


@pytest.mark.parametrize(
    "ladder",
    [Ladder(), Ladder(trouble="not handed over: it fails"), LADDER.with_(ratio=None, basis=None, files=()),
     LADDER.with_(high=float("inf"), low=0.0, basis="screened"), LADDER.with_(not_learning="the losses are nan"),
     LADDER.with_(seconds_per_step=None, files=()), LADDER.with_(peak_memory_bytes=None)],
)  # fmt: skip
def test_ladders_of_which_less_is_known(ladder: Ladder) -> None:
    check_page(render(report(ladder)))
    check_page(render(CLIMB.with_(ladder=ladder, comparisons=(), calibration=None, environment=None)))


def test_a_search_over_named_knobs() -> None:
    text = render(TUNE)
    page = check_page(text)
    said = readable(text).splitlines()
    assert said[:2] == [
        "perfaudit tune: t.py",
        "4 settings pay here, each measured by itself against your code",
    ]
    assert "All trials as a table" in said
    loader = section(text, "knob-1")
    assert "Load with 2 workers" in loader
    assert "1.310 no interval yet" not in loader
    assert "stopped early: it looked no faster (3 rounds, measured)" in loader
    assert [one["aria-label"] for one in page.of("svg") if one.get("role") == "img"] == [
        "Time of a step by workers of the loader; the table has the numbers",
        "Peak memory of a step by workers of the loader; the table has the numbers",
        "Samples per second by samples of a batch; the table has the numbers",
    ]
    assert "30.0 to 50.0 %, measured, processor time" in section(text, "pays")


def test_workers_are_a_curve_with_their_knee() -> None:
    loaders = [
        trial("dataloader", {"num_workers": n, "pin_memory": pin, "prefetch_factor": 2 if n else None}, 100.0 * (n + 1),
              metric="samples_per_second", peak_memory_bytes=(n + 1) << 20)
        for n in (0, 1, 2)
        for pin in (False, True)
    ]  # fmt: skip
    best = Winner("dataloader", {"num_workers": 2, "pin_memory": False}, False, "load with 2 workers")
    drawn = knob_curves(loaders, [best], [replace(TUNE.comparisons[0])])
    plots = drawn.split('class="plot"')[1:]
    assert len(plots) == 2  # throughput, and memory beside it
    assert plots[0].count('class="line line0"') == plots[0].count('class="line line1"') == 2
    assert ">now: 0</text>" in plots[0]
    assert ">best: 2</text>" in plots[0]
    assert ">MiB" not in drawn
    assert "3 MiB" in drawn


def test_a_setting_that_only_some_loaders_have_makes_a_line_of_its_own() -> None:
    plain = [trial("dataloader", {"num_workers": n}, 100.0 * (n + 1), metric="samples_per_second") for n in (0, 1, 2)]
    beside = trial("dataloader", {"num_workers": 2, "threads": 1}, 900.0, metric="samples_per_second")
    drawn = knob_curves([*plain, beside], [], [])
    assert "line1" in drawn and "threads=1" in drawn
    drawn = knob_curves(plain, [], [])
    assert "line1" not in drawn and "threads" not in drawn


def test_settings_that_are_no_numbers_make_no_curve() -> None:
    assert knob_curves([t for t in TRIALS if t.knob == "ema"], [], []) == ""
    assert knob_curves([t for t in TRIALS if t.knob == "batch_size"][:1], [], []) == ""


def test_nothing_of_a_search_is_markup() -> None:
    rungs = tuple(replace(r, words=EVIL, dropped=EVIL if r.dropped else "", knob=EVIL) for r in LADDER.rungs)
    files = (FilePatch(EVIL, "0", "1", f"@@ -1 +1 @@\n-{EVIL}\n+{EVIL}x\n"),)
    ladder = TOLD.with_(
        rungs=rungs, files=files, verified=EVIL, trouble=EVIL, left=(NotApplicable(EVIL, EVIL),), changes=(EVIL,)
    )
    raced = tuple(replace(c, candidate={EVIL: EVIL}, knob=EVIL) for c in RACED)
    winner = Winner(EVIL, {EVIL: EVIL}, False, EVIL, fix=Fix(EVIL, "safe", diff=EVIL), verified=EVIL, remarks=(EVIL,))
    trials = (replace(TRIALS[2], knob=EVIL, settings={EVIL: EVIL}, reason=EVIL),)
    for shown in (
        CLIMB.with_(ladder=ladder, comparisons=raced, target=EVIL, notes=(EVIL,)),
        TUNE.with_(winners=(winner,), comparisons=raced, trials=trials, target=EVIL),
    ):
        text = render(shown)
        check_page(text)
        assert "<img" not in text


def test_a_patch_of_many_files_has_its_size() -> None:
    diff = "@@ -1,200 +1,200 @@\n" + "".join(f"-a{n} = {n}\n+b{n} = {n}\n" for n in range(200))
    files = tuple(FilePatch(f"m{n}.py", "0", "1", diff) for n in range(60))
    text = render(report(LADDER.with_(files=files)))
    assert len(text.encode()) <= LIMIT
    assert "more files not shown; " in text


def test_nothing_at_all() -> None:
    page = Page(render(Report("tune", target="t.py")))
    assert "Nothing could be raced here" in page.texts["p"]
    assert "Nothing was shown to pay here" in Page(render(TUNE.with_(winners=()))).texts["p"]
    brief = tuple(replace(c, high=math.inf, given_up=False) for c in TUNE.comparisons)
    page = Page(render(TUNE.with_(winners=(), comparisons=brief)))
    assert "Undecided: everything was raced too briefly to say anything" in page.texts["p"]


@pytest.mark.parametrize(
    ("queued", "clock", "said"),
    [
        (
            0.79,
            "wall",
            "A step of your code takes 120.0 ms, with the time in which it waits for cores that others hold.",
        ),
        (0.79, "own", "A step of your code takes 120.0 ms."),
        (0.02, "wall", "A step of your code takes 120.0 ms."),
    ],
)
def test_a_step_that_waits_for_cores_is_said_to(queued: float, clock: ClockName, said: str) -> None:
    seen = Calibration(0.12, 1.0, 0.1, 1.0, 9, True, {"forward": 0.12}, queued, low=0.9, high=1.1, clock=clock)
    assert said in Page(render(CLIMB.with_(calibration=seen))).texts["p"]
