"""What is said of ranks that were compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfaudit.distributed.compare import Comparison
from perfaudit.distributed.rank_findings import Caller, Head, findings_of
from perfaudit.runs import LateRank, RankRun

HEADS = {rule: Head(rule.lower(), "warning") for rule in ("PA903", "PA904", "PA905")}
RANKS = [
    RankRun(0, "enough", seconds_per_step=0.05, phases={"data_wait": 0.1, "backward": 0.9}, elements=100.0),
    RankRun(1, "enough", seconds_per_step=0.05, phases={"data_wait": 0.4, "backward": 0.6}, elements=100.0),
]
LATE = LateRank(1, 0.9, 0.015, 0.012, 0.018)
ALIKE = Comparison(50, (), 0.05, 0.05, 0.01)


def test_a_late_rank_is_told_with_its_interval_and_the_phase_it_loses_time_in() -> None:
    (found,) = findings_of(replace(ALIKE, stragglers=(LATE,)), RANKS, [], HEADS)
    assert found.rule == "PA904"
    for words in ("rank 1", "90 %", "15 ms [12, 18]", "waiting for data (15 ms)"):
        assert words in found.message
    assert "batches" not in found.message


def test_a_rank_that_idles_while_a_slow_core_keeps_the_others_is_not_said_to_keep_them() -> None:
    late = LateRank(1, 0.43, 0.005, 0.004, 0.006, only_idles=True)
    (found,) = findings_of(replace(ALIKE, stragglers=(late,)), RANKS, [], HEADS)
    assert found.rule == "PA904"
    for words in ("rank 1", "5 ms [4, 6] longer", "only 43 %", "waiting for data", "slower core", "may wait for it"):
        assert words in found.message
    assert found.severity == "info"


def test_that_the_others_wait_so_long_is_said_where_it_was_shown_only() -> None:
    """Of a rank that comes last in most steps it may be known how long it idles, and not how much later it comes."""
    late = LateRank(1, 0.64, 0.005, 0.004, 0.006, only_idles=True)
    (found,) = findings_of(replace(ALIKE, stragglers=(late,)), RANKS, [], HEADS)
    assert found.severity == "warning"
    assert "comes last in 64 % of the steps. It sleeps, reads or waits 5 ms [4, 6] longer a step" in found.message
    assert "behind the others" not in found.message


def test_a_late_rank_does_not_hide_that_others_are_late_in_turn() -> None:
    both = replace(ALIKE, stragglers=(LATE,), is_imbalanced=True, imbalance=0.4, in_turn=0.2, batches_explain=True)
    found = {each.rule: each.message for each in findings_of(both, RANKS, [], HEADS)}
    assert set(found) == {"PA904", "PA905"}
    assert "20 % of a step" in found["PA905"]


def test_a_late_rank_with_larger_batches_is_an_imbalance_too() -> None:
    ranks = [RANKS[0], replace(RANKS[1], elements=170.0)]
    found = findings_of(replace(ALIKE, stragglers=(LATE,)), ranks, [], HEADS)
    assert [each.rule for each in found] == ["PA904", "PA905"]
    assert "batches of rank 1 hold 1.70 times as much" in found[1].message


@pytest.mark.parametrize(
    ("explain", "is_busy", "said"),
    [
        (True, True, "its batches hold more"),
        (False, False, "does not explain it"),
        (None, False, "comes last"),
        (False, True, ""),  # a machine that others use makes now one rank late and now another
        (None, True, ""),
    ],
)
def test_an_imbalance_is_told_by_its_cause_and_not_where_noise_may_be_the_cause(
    explain: bool | None, is_busy: bool, said: str
) -> None:
    loads = replace(ALIKE, is_imbalanced=True, imbalance=0.2, in_turn=0.2, batches_explain=explain)
    found = findings_of(loads, RANKS, [], HEADS, is_busy)
    assert [(each.rule, said in each.message) for each in found] == ([("PA905", True)] if said else [])


def test_collectives_that_the_script_calls_are_told_with_their_line() -> None:
    caller = Caller("train.py", 31, "all_reduce", 0.3, 12.0)
    (found,) = findings_of(replace(ALIKE, exposed=0.25), RANKS, [caller], HEADS)
    assert (found.rule, str(found.location)) == ("PA903", "train.py:31:1")
    assert "12 times a step, takes 25 % of a step" in found.message


def test_buckets_that_come_late_are_told_where_they_take_long_on_an_idle_machine() -> None:
    exposed = replace(ALIKE, exposed=0.4, in_buckets=0.35)
    assert [each.rule for each in findings_of(exposed, RANKS, [], HEADS)] == ["PA903"]
    assert findings_of(exposed, RANKS, [], HEADS, is_busy=True) == ()


def test_nothing_is_said_of_ranks_that_are_alike() -> None:
    assert findings_of(ALIKE, RANKS, [Caller("train.py", 9, "barrier", 0.01, 1.0)], HEADS) == ()
