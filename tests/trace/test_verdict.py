"""The one line above a report of traces: what devices do, why they are idle, and what could be saved most."""

from __future__ import annotations

import pytest

from perfaudit.rules import rule_heads
from perfaudit.trace.file_result import TraceFinding
from perfaudit.trace.report import verdict
from perfaudit.trace.whereabouts import Whereabouts
from perfaudit.trace.words import milliseconds
from perfaudit.traces import SHARE_WORDS, RankTrace

LATE = TraceFinding("PA902", "late", 0.5, 0.5, None, 0, "cuda:0", Whereabouts())


def device(
    *notes: str, seconds: float | None = None, of: str = "a.json", rank: int | None = 0, **shares: float
) -> RankTrace:
    whole = {**dict.fromkeys(SHARE_WORDS, 0.0), **shares}
    whole["compute"] = 1 - sum(shares.values())
    return RankTrace(of, rank, "cuda:0", 1.0, 5, whole, notes=notes, seconds_per_step=seconds)


@pytest.mark.parametrize(
    ("devices", "findings", "said"),
    [
        ([device(seconds=0.016)], (), "16 ms a step; the device computes for 100 % of the time: nothing worth doing was found"),
        (
            [device(idle_data=0.5)],
            (LATE,),
            "the device computes for 50 % of the time and is idle for 50 %, waiting for data; "
            "the largest finding (PA902 launch-bound) could save at most 50 %",
        ),
        (
            [device(idle_launch=0.3, idle_sync=0.1)] * 2,
            (),
            "devices compute for 60 % of the time and are idle for 40 %, most of it (30 %) because launches come late: "
            "no rule says what to change",
        ),
        (  # not most of it
            [device(idle_launch=0.04, idle_sync=0.03, idle_data=0.02)],
            (),
            "the device computes for 91 % of the time and is idle for 9 %, the largest part (4 %) because launches come late: "
            "nothing worth doing was found",
        ),
        (
            [device(communication_exposed=0.2, idle_other=0.1)],
            (LATE,),
            "the device computes for 70 % of the time; for 20 % it communicates and computes nothing; "
            "the largest finding (PA902 launch-bound) could save at most 50 %",
        ),
        (
            [device("no-device", idle_data=0.01)],
            (),
            "the trace has no work of a device, so nothing is known about the device; "
            "the host waits for data for 1 % of the time",
        ),
        (
            [device("sampled", idle_other=0.5)],
            (),
            "the device computes for 50 % of the time, as far as a sample of the events tells; why it is idle is not known",
        ),
        (  # a rank that was traced without its device
            [device("no-device", seconds=9.0), device(idle_data=0.5, seconds=0.01)],
            (),
            "10 ms a step; the device computes for 50 % of the time and is idle for 50 %, waiting for data: "
            "no rule says what to change",
        ),
        (
            [device(idle_launch=0.7, of="a.json", rank=None, seconds=0.01), device(of="b.json", rank=None, seconds=3.0)],
            (LATE,),
            "2 traces, not known to be of one job; devices compute for 30 to 100 % of the time; "
            "the largest finding (PA902 launch-bound) could save at most 50 % of one of them",
        ),
        (
            [device(of="a.json", rank=None), device(of="b.json", rank=0)],
            (),
            "2 traces, not known to be of one job; devices compute for 100 % of the time: nothing worth doing was found",
        ),
        (
            [device("no-device", of="a.json", rank=None), device("no-device", of="b.json", rank=None)],
            (),
            "2 traces, not known to be of one job; nothing is known about devices, of which they have no work",
        ),
        (  # two ranks of a job, and a file that is none
            [device(of="a.json", rank=0), device(of="b.json", rank=1), device(of="c.json", rank=None, idle_other=0.9)],
            (),
            "devices compute for 100 % of the time: nothing worth doing was found",
        ),
        (  # two devices of one file
            [device(idle_other=0.01, rank=None), device(idle_other=0.01, rank=None)],
            (),
            "devices compute for 99 % of the time: nothing worth doing was found",
        ),
        ([], (), "nothing could be read"),
    ],
)  # fmt: skip
def test_verdict(devices: list[RankTrace], findings: tuple[TraceFinding, ...], said: str) -> None:
    assert verdict(devices, findings, rule_heads()) == said


@pytest.mark.parametrize(
    ("microseconds", "said"),
    [
        (0.5, "0.5 µs"),
        (12.34, "12.3 µs"),
        (999.6, "1,000 µs"),
        (999_600, "1,000 ms"),
        (1e6, "1 s"),
        (1.234e9, "1,234 s"),
    ],
)
def test_a_time_has_no_exponent(microseconds: float, said: str) -> None:
    assert milliseconds(microseconds) == said
