"""The HTML page of a run: the result first, phases one after the other, setup, operators, and why no step was timed."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from html_pages import EVIL, check_page, readable
from reports import ERROR, WARNING
from tunes import MACHINE

from perfaudit.render.html import render
from perfaudit.report import Report
from perfaudit.runs import NEVER_BUILT, ProfileRow, RankRun, Run, StepsProfile

RUN = Run(
    "train.py --epochs 1", "enough", steps=140, counted=137, seconds_per_step=0.1, mean_seconds_per_step=0.16,
    quartiles=(0.09, 0.12), samples_per_second=101.0, steps_watched=137, optimizers=1, updates_per_step=1,
    phases={"data_wait": 0.25, "forward": 0.5, "average": 0.0, "other": 0.25}, setup_seconds=3.0,
    setup={"until_torch": 2.0, "until_batch": 1.0}, limited_by="data", device="cpu", peak_memory_bytes=1 << 30,
    profile=StepsProfile(3, (ProfileRow("aten::mm", 0.5, 12.0), ProfileRow("aten::add", 0.25, 3.0))),
)  # fmt: skip
REPORT = Report(
    "run", (WARNING, replace(ERROR, note=f"{NEVER_BUILT}: x")), target=RUN.script, run=RUN, environment=MACHINE
)


def test_the_result_comes_first() -> None:
    text = render(REPORT)
    check_page(text)
    said = readable(text).splitlines()
    assert said[:5] == [
        "perfaudit run: train.py --epochs 1",
        "100 ms a step",
        "median; quartiles 90 ms to 120 ms; on average 160 ms, 101 samples/s; 137 steps of 140 counted",
        "The step waits for data: a faster loader shortens it, a faster model does not.",
        "on NVIDIA H200, driver 570.1, 2 cores, 1 thread, 1.5 GiB, torch 2.13.0, Python 3.11.7",
    ]
    assert "perfaudit tune --dataloader train.py -- --epochs 1" in said
    assert "perfaudit scan pkg/a.py" in said
    assert {"until the first backward pass", "aten::mm", "50.0 %, 12 calls a step"} <= set(said)
    assert "Peak memory: 1,024 MiB of this process." in said
    assert "1 finding in models that the script has not built: see " in said
    assert "PA001" in text
    assert "PA000" not in text.partition("<main>")[2].partition("</main>")[0]


def test_phases_lie_one_after_the_other() -> None:
    picture = render(REPORT).partition('aria-label="Phases of a step"')[2].partition("</ul>")[0]
    bars = re.findall(r'<rect x="([\d.]+)%" y="50%" width="([\d.]+)%" \S+ \S+ \S+ class="bar (\w+)"', picture)
    ends = [(float(start), float(start) + float(width), kind) for start, width, kind in bars]
    assert [kind for *_, kind in ends] == ["waiting", "working", "rest"]
    assert [end for _, end, _ in ends[:-1]] == pytest.approx([start for start, *_ in ends[1:]], abs=0.02)
    assert ends[-1][1] == pytest.approx(100 / 1.02, abs=0.02)


def test_times_of_phases_add_up_to_the_mean_where_the_median_does_not_fit() -> None:
    said = readable(render(REPORT))
    assert "Phases of a step on average (160 ms), in the order of the list" in said
    assert "50.0 %, 80 ms" in said
    near = readable(render(REPORT.with_(run=replace(RUN, mean_seconds_per_step=0.1))))
    assert "Phases of a step, in the order of the list" in near
    assert "50.0 %, 50 ms" in near


def test_without_a_step_the_reason_is_the_result() -> None:
    failed = Run("train.py", "failed", "NameError: x", 1, steps=1)
    text = render(Report("run", target="train.py", run=failed))
    check_page(text)
    assert readable(text).splitlines()[:3] == [
        "perfaudit run: train.py",
        "The script failed before a step could be timed: NameError: x",
        "1 step seen; the first does not count, as the start of the script is in it.",
    ]


def test_ranks_have_a_part_of_their_own() -> None:
    ranks = (
        RankRun(
            0,
            "enough",
            steps=50,
            seconds_per_step=0.05,
            own_seconds_per_step=0.04,
            phases={"forward": 0.6, "backward": 0.4},
        ),
        RankRun(
            1, "dead", f"killed {EVIL}", steps=49, seconds_per_step=0.05, phases={"forward": 0.2, "data_wait": 0.8}
        ),
    )
    text = render(REPORT.with_(run=replace(RUN, by_rank=ranks, ranks=2, imbalance=0.2)))
    check_page(text)
    said = readable(text.partition('<h2 id="ranks">')[2].partition("</section>")[0].join(["<main>", "</main>"]))
    assert "Rank 1 died after at least 49 steps: killed" in said
    assert "Ranks wait for whichever comes last for 20 % of a step, on average." in said
    assert "50 ms a step, 40 ms of its own" in said
    assert "rank 1\n40\n10\n0" in said
    assert ">Ranks<" not in render(REPORT)


def test_nothing_of_a_run_is_markup() -> None:
    profile = StepsProfile(3, (ProfileRow(EVIL, 0.5, 12.0),))
    for run in (
        replace(RUN, script=EVIL, profile=profile, redirected=(EVIL,), message=EVIL, ended="failed"),
        Run(EVIL, "failed", EVIL),
    ):
        text = render(REPORT.with_(run=run, target=EVIL))
        check_page(text)
        assert "<img" not in text
