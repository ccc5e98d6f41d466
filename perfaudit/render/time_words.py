"""Words on a step's time as a gate judged it: ratio, interval and what they exclude; never the same for measured and stored."""

from __future__ import annotations

from perfaudit.render.words import count, seconds
from perfaudit.verdicts import PER_SAMPLE, Gate, SelfTest, TimeVerdict

AS_PRINTED = 0.002  # of a ratio; three digits and the rounding of two times hide as much
MEDIANS = "medians of all blocks; the ratio compares neighbouring blocks"


def at_most(timed: TimeVerdict) -> str:
    """What a step that passed can be at worst, by its interval."""
    return f"at most {percent(max(timed.high - 1, 0.0))} slower" if timed.high >= 1 else "not slower"


def slower(ratio: float) -> str:
    """A ratio of seconds per step in words: "8.1 % slower"."""
    return f"{percent(abs(ratio - 1))} {'slower' if ratio >= 1 else 'faster'}"


def percent(share: float) -> str:
    """A share with one digit, and none where it is whole: 0.05 is "5 %"."""
    return f"{100 * share:.1f} %".replace(".0 %", " %")


def time_sentences(timed: TimeVerdict, gate: Gate) -> list[str]:
    """What was measured of one target's step, on what it rests, and what that means; a sentence each."""
    if timed.advice:
        return _advice(timed, gate)
    said = []
    if timed.ratio is not None:
        said.append(f"{interval_words(timed)}: {_ratio(timed)}{_steps(timed, ' → ')}")
    if timed.pairs:
        pairs = f"{count(timed.pairs, 'pair')} of processes"
        said.append(f"{count(timed.quads, 'comparison')} in {pairs}, interleaved in this run")
    elif timed.way == "one training":
        said.append(f"{count(timed.quads, 'comparison')} in one training{same_again(timed)}")
    said += [why_this_way(timed)] if timed.why_so else []
    said += filter(None, [_meaning(timed), timed.reason, f"accepted: {timed.accepted}" if timed.accepted else ""])
    return said


def same_again(timed: TimeVerdict) -> str:
    """What identical code came to beside it: behind what it rests on, "" where that is not known."""
    return f"; identical code beside it: {timed.control[0]:.3f} to {timed.control[1]:.3f}" if timed.control else ""


def why_this_way(timed: TimeVerdict) -> str:
    """Why both versions were compared in one training or in pairs of processes."""
    return timed.why_so if timed.way == "one training" else f"in pairs of processes, because {timed.why_so}"


def interval_words(timed: TimeVerdict) -> str:
    """What the interval says: "8.1 % slower" where it excludes no difference, else both of its ends."""
    assert timed.ratio is not None
    if timed.high == float("inf"):
        return "nothing shown"
    if timed.low > 1 or timed.high < 1:
        return slower(timed.ratio)
    return f"between {slower(timed.low)} and {slower(timed.high)}"


def _ratio(timed: TimeVerdict) -> str:
    if timed.high == float("inf"):
        return f"ratio {timed.ratio:.3f} of time per step, no interval"
    return f"ratio {timed.ratio:.3f} of time per step, interval {timed.low:.3f} to {timed.high:.3f}"


def _steps(timed: TimeVerdict, between: str) -> str:
    if timed.seconds_before is None or timed.seconds_after is None:
        return ""
    of_all = f" ({MEDIANS})" if has_other_medians(timed) else ""
    return f", {seconds(timed.seconds_before)}{between}{seconds(timed.seconds_after)} a step{of_all}"


def has_other_medians(timed: TimeVerdict) -> bool:
    """Whether the ratio is visibly not that of the two times: a drift of the machine is in these, and not in the ratio.

    Where the ratio is per sample, its reason says so.
    """
    before, after = timed.seconds_before, timed.seconds_after
    if not before or not after or not timed.ratio or timed.advice or PER_SAMPLE in timed.reason:
        return False
    return abs(after / before / timed.ratio - 1) > AS_PRINTED


def _advice(timed: TimeVerdict, gate: Gate) -> list[str]:
    said = []
    if timed.seconds_before is not None:
        ratio = f", ratio {timed.ratio:.3f} without an interval" if timed.ratio is not None else ""
        now = f"{seconds(timed.seconds_after)} measured now" if timed.seconds_after is not None else "not measured now"
        said.append(f"a step took {seconds(timed.seconds_before)} when it was stored in {gate.against}, {now}{ratio}")
    return [*said, "advice only, it decides nothing", *([timed.reason] if timed.reason else [])]


def _meaning(timed: TimeVerdict) -> str:
    """What the interval excludes; of an inconclusive one, what could not be seen, and how busy the machine was."""
    if timed.ratio is None:
        return could_not_see(timed) if timed.verdict == "inconclusive" else ""
    if timed.verdict == "regressed":
        return f"the whole interval lies above the {percent(timed.tolerated)} slowdown that is tolerated"
    if timed.verdict == "pass":
        return f"the whole interval lies below the {percent(timed.limit)} slowdown that has to be excluded"
    return could_not_see(timed) if timed.verdict == "inconclusive" else ""


def could_not_see(timed: TimeVerdict) -> str:
    """What an undecided measurement has left open, with the load and the ratio of wall to processor time."""
    busy = []
    if timed.load is not None:
        busy.append(f"load {timed.load:.1f} (1-minute average)")
    if timed.wall_over_cpu is not None:
        whose = "your code's" if timed.way == "one training" else "the reference's"
        busy.append(f"wall/CPU time {timed.wall_over_cpu:.2f} in {whose} steps")
    if timed.smallest is None:
        said = "could not tell: no interval, so no slowdown of any size is excluded"
    else:
        said = f"could not tell: the smallest slowdown that could have been seen is {percent(timed.smallest)} of a step"
    return said + (f"; {', '.join(busy)}" if busy else "")


def self_test_sentences(test: SelfTest) -> list[str]:
    """What a gate on identical code has said, and which slowdowns it can and cannot see."""
    said = [
        f"{count(test.runs, 'gate')} on identical code: {test.false_alarms} called it regressed, {test.undecided} could "
        f"not tell; one took {seconds(test.seconds)} (median)"
    ]
    said.append(_resolution_words(test.smallest))
    if test.false_alarms:
        said.append(
            "identical code was called slower: here times should not fail a build (`--layers findings,counters`)"
        )
    return said


def _resolution_words(smallest: tuple[float, ...]) -> str:
    if not smallest:
        return "no gate came to an interval: no slowdown of any size can be seen here within the budget"
    ordered = sorted(smallest)
    low, middle, high = (percent(ordered[at]) for at in (0, (len(ordered) - 1) // 2, -1))
    if len(ordered) == 1:
        return f"it can see a slowdown of {high} of a step or more; what is smaller is not called"
    return (
        f"smallest slowdown that such a gate can see here: {middle} of a step (median), between {low} and {high}; what is "
        "smaller is not called: it passes or stays inconclusive"
    )
