"""What is said of a ledger, in whole outputs: savings with both ends, trials with quartiles, the clock, the twin."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from test_runner import block, generations, variants

from perfaudit.findings import Saving
from perfaudit.measure import judge
from perfaudit.measure.judge import (
    clock_for,
    comparison,
    hopeless_variants,
    own_clock,
    saving,
    settled_variants,
    trial,
)
from perfaudit.measure.ledger import Generation, Ledger
from perfaudit.measure.stats import LOOKS_OF_LARGE, ratio_interval
from perfaudit.measurements import Comparison, Trial

A, B, C = variants("a", "b", "c")


def compared(ratio: float, low: float, high: float, **other: object) -> Comparison:
    return replace(Comparison("knob", {}, {}, ratio, low, high, "faster", 12, "wall", "step", None, False), **other)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ratio", "low", "high", "share", "clock", "expected"),
    [
        # The lower end of the saving is the upper end of the ratio, and the other way round.
        (0.8, 0.75, 0.9, 1.0, "wall", Saving("measured", 0.1, 0.25, 0.002, clock="wall")),
        (0.8, 0.75, 0.9, 0.5, "wall", Saving("measured", 0.05, 0.125, 0.002, clock="wall")),
        (0.8, 0.75, 0.9, 1.0, "cpu", Saving("measured", 0.1, 0.25, 0.001, clock="cpu")),
        (1.5, 1.25, 1.75, 1.0, "wall", Saving("measured", -0.75, -0.25, -0.005, clock="wall")),
    ],
)
def test_a_saving_has_both_ends_and_seconds(
    ratio: float, low: float, high: float, share: float, clock: str, expected: Saving
) -> None:
    ledger = Ledger(generations((block(0.010, cpu=0.005), block(0.008))))
    found = saving(ledger, A, compared(ratio, low, high, clock=clock), share)
    assert (found.basis, found.clock) == (expected.basis, expected.clock)
    assert (found.low, found.high, found.seconds_per_step) == pytest.approx(
        (expected.low, expected.high, expected.seconds_per_step)
    )


def test_without_a_block_of_the_base_a_saving_has_no_seconds() -> None:
    assert saving(Ledger(), A, compared(0.8, 0.75, 0.9)) == Saving("measured", 1 - 0.9, 0.25, None, clock="wall")


def uneven(*seconds: float, key: str = "a", samples: int = 8) -> Ledger:
    """One round for every two blocks."""
    blocks = [block(s, samples) for s in seconds]
    return Ledger([Generation("race", [{key: (x, y)} for x, y in zip(blocks[::2], blocks[1::2], strict=True)])])


def test_a_trial_is_told_whole() -> None:
    ledger = uneven(0.001, 0.002, 0.003, 0.004, 0.005, 0.006)
    ledger.failures["a"] = "died later"
    found = trial(ledger, A, peak_bytes=7)
    assert (found.median, found.low, found.high) == pytest.approx((0.0035, 0.00225, 0.00475))
    assert replace(found, median=0.0, low=0.0, high=0.0, samples=()) == Trial(
        "knob", {"name": "a"}, "ok", "seconds_per_step", 0.0, 0.0, 0.0, 6, 7, reason="died later"
    )
    assert found.samples == pytest.approx((0.001, 0.002, 0.003, 0.004, 0.005, 0.006))
    fast = trial(ledger, A, metric="samples_per_second")
    assert (fast.median, fast.low, fast.high) == pytest.approx((8 / 0.0035, 8 / 0.00475, 8 / 0.00225))
    assert fast.metric == "samples_per_second"


def test_a_trial_without_a_block_says_why() -> None:
    ledger = Ledger(failures={"b": "out of memory"})
    assert trial(ledger, A, 5) == Trial(
        "knob", {"name": "a"}, "not_measured", "seconds_per_step", peak_memory_bytes=5, reason="not reached"
    )
    assert trial(ledger, B, 5, "samples_per_second") == Trial(
        "knob", {"name": "b"}, "failed", "samples_per_second", peak_memory_bytes=5, reason="out of memory"
    )


def scattered(*ratios: float, stage: str = "race", rounds: int = 3) -> Ledger:
    """One generation for each ratio of b to a."""
    return Ledger(
        [
            Generation(stage, [{"a": (block(0.010),) * 2, "b": (block(0.010 * ratio),) * 2} for _ in range(rounds)])
            for ratio in ratios
        ]
    )


def test_a_comparison_is_told_whole() -> None:
    found = comparison(scattered(*[0.8] * 4), A, B, "race")
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((0.8, 0.8, 0.8))
    assert found.smallest == pytest.approx(0.0, abs=1e-9)
    assert replace(found, ratio=0.0, low=0.0, high=0.0, smallest=None) == Comparison(
        "knob", {"name": "a"}, {"name": "b"}, 0.0, 0.0, 0.0, "faster", 12, "wall", "step", None, False
    )
    assert comparison(scattered(0.8), A, B, "another stage") is None


def test_an_interval_that_says_next_to_nothing_is_none() -> None:
    """Four times from end to end, and undecided: effects of half a step could hide in it."""
    open_ = comparison(scattered(0.5, 2.0, 0.5, 2.0), A, B)
    assert open_ is not None
    assert (open_.low, open_.high, open_.smallest, open_.verdict) == (0.0, math.inf, None, "undecided")
    told = comparison(scattered(0.9, 1.1, 0.9, 1.1), A, B)
    assert told is not None
    assert (told.low, told.high) == pytest.approx((0.8275, 1.1964), abs=1e-4)  # t with three degrees of freedom: 3.182
    assert told.smallest == pytest.approx(1 - math.sqrt(told.low / told.high))


def test_of_one_generation_only_the_ratio_is_told() -> None:
    ledger = Ledger(
        [Generation("race", [{"a": (block(0.01),) * 2, "b": (block(0.01 * r),) * 2} for r in (0.7, 0.8, 1.2)])]
    )
    found = comparison(ledger, A, B)
    assert found is not None
    assert (found.ratio, found.low, found.high) == (pytest.approx(0.8), 0.0, math.inf)


def test_what_a_look_settled_is_told_at_its_own_alpha() -> None:
    """Ended by the data at the first look: 1 % of the error; ended by the budget there, all that is left: 5 %."""
    ledger = scattered(0.79, 0.81, 0.79, 0.81)
    settled, ended = comparison(ledger, A, B, least=0.01), comparison(ledger, A, B)
    assert settled is not None and ended is not None
    assert settled.high - settled.low == pytest.approx(5.841 / 3.182 * (ended.high - ended.low), rel=1e-2)


def test_what_no_look_settled_is_told_by_the_budget() -> None:
    ledger = scattered(0.97, 1.03, 0.97, 1.03)
    assert comparison(ledger, A, B, least=0.01) == comparison(ledger, A, B)


def test_the_processor_clock_compares_processor_seconds() -> None:
    ledger = Ledger(generations((block(0.010, cpu=0.005), block(0.020, cpu=0.004))))
    by = {clock: comparison(ledger, A, B, clock=clock) for clock in ("wall", "cpu")}  # type: ignore[arg-type]
    assert {clock: found and (round(found.ratio, 6), found.clock) for clock, found in by.items()} == {
        "wall": (2.0, "wall"),
        "cpu": (0.8, "cpu"),
    }


@pytest.mark.parametrize(
    ("ratios", "gone"),
    [
        ((1.06, 1.06), {"b"}),
        ((1.06, 1.06, 1.06), {"b"}),
        ((1.06, 1.04), set()),  # in each of them
        ((1.06,), set()),
        ((1.05, 1.05), set()),  # above it, not at it
        ((1.06, 1.06, 1.06, 1.06), set()),  # here a look decides
    ],
)
def test_what_is_given_up(ratios: tuple[float, ...], gone: set[str]) -> None:
    ledger = scattered(*(r - 1e-9 for r in ratios))
    assert hopeless_variants(ledger, A, [B], "race") == gone
    assert hopeless_variants(ledger, A, [B], "first look") == set()


def test_the_bounds_themselves_are_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the bounds at 1, equal blocks lie exactly on them: nothing is given up, and an interval is told."""
    monkeypatch.setattr(judge, "HOPELESS", 1.0)
    monkeypatch.setattr(judge, "TELLS_NOTHING", 1.0)
    ledger = scattered(1.0, 1.0)
    assert hopeless_variants(ledger, A, [B], "race") == set()
    found = comparison(ledger, A, B)
    assert found is not None and (found.low, found.high) == (1.0, 1.0)


def test_given_up_is_judged_by_the_clock_that_is_trusted() -> None:
    ledger = Ledger(generations((block(0.010, cpu=0.010), block(0.020, cpu=0.005)), n=2))
    assert hopeless_variants(ledger, A, [B], "race", "wall") == {"b"}
    assert hopeless_variants(ledger, A, [B], "race", "cpu") == set()


def test_a_candidate_that_is_not_at_a_look_does_not_hide_the_next_one() -> None:
    ledger = scattered(0.8, 0.8, 0.8, 0.8)
    assert settled_variants(ledger, A, [C, B], 0.01, "race") == {"b"}
    assert settled_variants(ledger, A, [B], 0.01, "first look") == set()
    assert settled_variants(scattered(*[0.8] * 5), A, [B], 0.01, "race") == set()  # no look after five


def test_a_large_gain_is_looked_at_after_three_generations_with_the_interval_of_that_look() -> None:
    ledger = scattered(0.30, 0.31, 0.32)
    assert settled_variants(ledger, A, [B], 0.01, "race") == set()
    assert settled_variants(ledger, A, [B], 0.01, "race", looks=LOOKS_OF_LARGE) == {"b"}
    found = comparison(ledger, A, B, least=0.01, looks=LOOKS_OF_LARGE)
    assert found is not None
    told = ratio_interval([[math.log(r)] for r in (0.30, 0.31, 0.32)], 0.010)
    assert (found.ratio, found.low, found.high) == pytest.approx(told)
    wide = scattered(0.70, 0.82, 0.94)
    assert settled_variants(wide, A, [B], 0.01, "race", looks=LOOKS_OF_LARGE) == set()


def test_what_looks_slower_after_three_generations_is_told_by_the_look_that_is_planned_then() -> None:
    ledger = scattered(1.10, 1.11, 1.12)
    assert hopeless_variants(ledger, A, [B], "race") == {"b"}
    assert hopeless_variants(ledger, A, [B], "race", looks=LOOKS_OF_LARGE) == set()
    assert settled_variants(ledger, A, [B], 0.01, "race", looks=LOOKS_OF_LARGE) == {"b"}


def test_settling_looks_at_the_clock_and_the_piece_it_is_told() -> None:
    """The step swings around the base, while its processor time and the average are clearly shorter."""
    swings = [
        Generation(
            "race",
            [
                {
                    "a": (block(0.010, cpu=0.005, average=0.004),) * 2,
                    "b": (block(0.010 * ratio, cpu=0.004, average=0.002),) * 2,
                }
            ]
            * 3,
        )
        for ratio in (0.9, 1.1, 0.9, 1.1)
    ]
    assert settled_variants(Ledger(swings), A, [B], 0.01, "race") == set()
    assert settled_variants(Ledger(swings), A, [B], 0.01, "race", "cpu") == {"b"}
    assert settled_variants(Ledger(swings), A, [B], 0.01, "race", phases=lambda v: ("average",)) == {"b"}


@pytest.mark.parametrize("waiting", ["a", "b"])
def test_phases_have_no_interval_where_threads_waited_for_cores(waiting: str) -> None:
    """Of a phase nothing says how much of it was waiting: agreeing rounds would call what others on the cores did."""
    both = {
        "a": block(0.010, average=0.004, queued=0.010 if waiting == "a" else 0.0),
        "b": block(0.010, average=0.002, queued=0.010 if waiting == "b" else 0.0),
    }
    ledger = Ledger([Generation("race", [{key: (each,) * 2 for key, each in both.items()}] * 3)] * 4)
    found = comparison(ledger, A, B, "race", ("average",))
    assert found is not None and (found.verdict, found.high) == ("undecided", math.inf)
    assert settled_variants(ledger, A, [B], 0.01, "race", phases=lambda v: ("average",)) == set()
    whole = comparison(ledger, A, B, "race")
    assert whole is not None and whole.high < math.inf


@pytest.mark.parametrize(
    ("computing", "queued", "clock"),
    [
        (0.80, 0.15, "cpu"),  # at the bound of what waited
        (0.80, 0.14, "wall"),
        (0.65, 0.25, "cpu"),  # at the bound of what both explain, to the last bit
        (0.75, 0.15 + 1e-9, "cpu"),
        (0.74, 0.15, "wall"),
    ],
)
def test_which_clock_is_trusted(computing: float, queued: float, clock: str) -> None:
    ledger = Ledger(generations((block(1.0, cpu=computing, queued=queued), block(1.0))))
    assert clock_for(ledger, A, True) == clock
    assert ledger.clock == clock
    assert clock_for(Ledger(), A, True) == "wall"


@pytest.mark.parametrize(("wide", "is_told"), [(3.5, True), (4.5, False)])
def test_an_interval_is_told_up_to_four_times_its_lower_end(wide: float, is_told: bool) -> None:
    """Four generations at centre 1, off by d: half the width, in logarithms, is 3.182 * d * 2 / sqrt(3) / 2."""
    d = math.log(wide) / 2 / (3.182446 / math.sqrt(3))
    found = comparison(scattered(math.exp(d), math.exp(-d), math.exp(d), math.exp(-d)), A, B)
    assert found is not None
    assert (found.high / found.low == pytest.approx(wide) if is_told else found.high == math.inf) is True


@pytest.mark.parametrize(
    ("queued", "told"),
    [(0.005, "own"), (0.0001, "wall")],  # under 2 % less than the seconds on the wall, they are those
)
def test_waiting_for_cores_is_left_out_of_both_and_said_so(queued: float, told: str) -> None:
    """Others take the same from both steps; what is left shows what the patch gains."""
    before, after = 0.010, 0.008 if told == "own" else 0.010
    blocks = [replace(block(s), own=(s - queued) * block(s).steps) for s in (before, after)]
    ledger = Ledger(generations((blocks[0], blocks[1])))
    assert own_clock(ledger, [A]) == "own"
    found = comparison(ledger, A, B, clock="own")
    assert found is not None and found.clock == told
    assert found.ratio == pytest.approx(0.6 if told == "own" else 1.0)
    known = saving(ledger, A, replace(found, low=0.5, high=0.7))
    assert known.clock == told
    assert known.seconds_per_step == pytest.approx((1 - found.ratio) * (before - queued if told == "own" else before))


def test_where_one_block_cannot_tell_no_waiting_is_left_out() -> None:
    told, untold = replace(block(0.010), own=0.004 * block(0.010).steps), block(0.010)
    assert own_clock(Ledger(generations((told, told))), [A, B]) == "own"
    assert own_clock(Ledger(generations((told, told), (untold, told))), [A, B]) == "wall"


def test_where_a_patch_has_workers_that_hold_cores_the_wall_clock_counts_for_both() -> None:
    told, of_workers = replace(block(0.010), own=0.004 * block(0.010).steps), block(0.012)
    assert own_clock(Ledger(generations((told, of_workers))), [A, B]) == "wall"


def test_parts_of_a_step_are_as_long_as_the_step_by_the_same_clock() -> None:
    half = replace(block(0.010, average=0.004), own=0.005 * block(0.010).steps)
    ledger = Ledger(generations((half, half)))
    assert ledger.phases("a")["average"] == pytest.approx(0.004)
    assert ledger.phases("a", "own")["average"] == pytest.approx(0.002)


def test_unless_told_otherwise_it_is_the_whole_step_on_the_wall() -> None:
    ledger = Ledger(generations((block(0.010, cpu=0.005), block(0.020, cpu=0.004))))
    assert settled_variants(ledger, A, [B], 0.01, "race") == {"b"}
    assert hopeless_variants(Ledger(ledger.generations[:2]), A, [B], "race") == {"b"}
    assert saving(ledger, A, compared(0.8, 0.75, 0.9)).low == pytest.approx(0.1)
    pieces = comparison(
        Ledger(generations((block(0.010, forward=0.001, backward=0.001), block(0.010)))),
        A,
        B,
        phases=("forward", "backward"),
    )
    assert pieces is not None
    assert (pieces.of, round(pieces.ratio, 6)) == ("forward+backward", 0.8)
