"""Verdicts on ratios that are known, statistics where the answer is known on paper, and error rates by simulation."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

import pytest

from perfaudit.gate import signed_rank
from perfaudit.gate.bounds import Bounds, _tail, between_pairs, both, within_quads
from perfaudit.gate.decision import ALPHA, LOOKS, is_settled, judged_together, time_verdict
from perfaudit.gate.records import (
    ORDERS,
    Pair,
    Quad,
    Side,
    TargetRecord,
    TimedBlock,
    Typical,
    pair_from_json,
    pair_to_json,
)
from perfaudit.measure.stats import student_quantile


def block(side: Side, seconds: float, restart: float = 0.0) -> TimedBlock:
    return TimedBlock(side, 10, seconds, seconds, restart, 10 * seconds, 8 * seconds, 0.0)


def quad(log_ratio: float, number: int = 0) -> Quad:
    seconds: dict[Side, float] = {"base": 0.010, "head": 0.010 * math.exp(log_ratio)}
    return Quad(tuple(block(side, seconds[side]) for side in ORDERS[number % 2]))


def record(*pairs: Sequence[float], target: str = "train.py") -> TargetRecord:
    """A target whose quads came to these log ratios, pair by pair."""
    return TargetRecord(target, "main", pairs=[Pair("base", 0, quads=[quad(v) for v in values]) for values in pairs])


def spread(centre: float, pairs: int, width: float = 0.002, quads: int = 4) -> TargetRecord:
    """Quads that lie evenly around a centre."""
    steps = [width * (i / (quads - 1) - 0.5) for i in range(quads)]
    return record(*[[centre + step + width * (p % 2 - 0.5) for step in steps] for p in range(pairs)])


@pytest.mark.parametrize(
    ("values", "centre"),
    [
        ([3.0], 3.0),
        ([1.0, 5.0], 3.0),
        ([2.0, 2.0, 2.0], 2.0),
        ([0.0, 1.0, 100.0], 25.75),  # averages 0 0.5 1 50 50.5 100
        ([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30], 1.7175),
    ],
)  # fmt: skip
def test_the_centre_is_the_median_of_all_averages_of_two(values: list[float], centre: float) -> None:
    if values == [0.0, 1.0, 100.0]:
        centre = statistics.median([0, 0.5, 1, 50, 50.5, 100])
    if len(values) == 9:
        centre = statistics.median((values[i] + values[j]) / 2 for i in range(9) for j in range(i, 9))
    assert signed_rank.hodges_lehmann(values) == pytest.approx(centre)


@pytest.mark.parametrize(
    ("n", "rank_sum", "p"),
    [
        (1, 1, 1 / 2),
        (3, 6, 1 / 8),
        (3, 5, 2 / 8),  # 1+2+3, 2+3
        (4, 10, 1 / 16),
        (5, 15, 1 / 32),
        (5, 12, 5 / 32),  # 15, 14, 13 and 12 in two ways
        (9, 40, 0.0195),  # Hollander, Wolfe & Chicken, example 3.1: depression factor
    ],
)
def test_the_null_distribution_of_positive_ranks(n: int, rank_sum: int, p: float) -> None:
    assert signed_rank._at_least(n, rank_sum) == pytest.approx(p, abs=5e-5)


def test_the_depression_factor_of_nine_patients() -> None:
    """Hollander, Wolfe & Chicken, Nonparametric Statistical Methods, table 3.1: one of the text's answers, 0.019 and -0.46."""
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    improved = [x - y for x, y in zip(before, after, strict=True)]
    assert signed_rank.p_above(improved, 0.0) == pytest.approx(0.0195, abs=5e-5)
    assert signed_rank.hodges_lehmann(improved) == pytest.approx(0.46, abs=0.005)
    # The text has it at 96.1 %, and for after - before: -0.786 to -0.010.
    low, high = signed_rank.interval(improved, 0.02, 0.02)
    assert (low, high) == (pytest.approx(0.010, abs=5e-4), pytest.approx(0.786, abs=5e-4))


def test_too_few_values_have_no_bounds() -> None:
    assert signed_rank.interval([0.1, 0.2, 0.3], 0.12, 0.125) == (-math.inf, pytest.approx(0.3))
    assert signed_rank.p_above([], 0.0) == 1.0


def test_p_and_lower_bound_say_the_same() -> None:
    """The bound lies above a threshold exactly where the p of that threshold is at most alpha; for both parts of the rule."""
    draw = random.Random(1)
    for part in (within_quads, between_pairs, both):
        for _ in range(200):
            groups = [[draw.gauss(0.02, 0.02) for _ in range(draw.choice([1, 2, 4]))] for _ in range(6)]
            threshold, alpha = draw.uniform(-0.01, 0.03), draw.choice([0.02, 0.05, 0.2])
            found = part(groups, threshold, alpha, alpha)
            assert (found.low > threshold) == (found.p <= alpha)


@pytest.mark.parametrize(
    ("t", "freedom", "p"), [(6.3138, 1, 0.05), (2.9200, 2, 0.05), (3.7469, 4, 0.01), (0.0, 7, 0.5)]
)
def test_student_s_tail(t: float, freedom: int, p: float) -> None:
    assert _tail(t, 1.0, freedom) == pytest.approx(p, rel=1e-4)
    assert _tail(-t, 1.0, freedom) == pytest.approx(1 - p, rel=1e-4)


def test_student_s_interval_counts_pairs_not_quads() -> None:
    found = between_pairs([[0.01, 0.01], [0.03] * 9], 0.0, 0.05, 0.025)
    error = statistics.stdev([0.01, 0.03]) / math.sqrt(2)
    assert found.low == pytest.approx(0.02 - student_quantile(1, 0.10) * error)
    assert found.high == pytest.approx(0.02 + student_quantile(1, 0.05) * error)


@pytest.mark.parametrize(
    ("slowdown", "pairs", "verdict"),
    [
        (0.00, 4, "pass"),
        (0.03, 4, "regressed"),  # shown to be above what is tolerated, although below the limit
        (0.10, 4, "regressed"),
        (-0.05, 4, "improved"),
        (-0.005, 4, "pass"),  # a gain no larger than what a loss may be is none
        (0.00, 3, "inconclusive"),  # before the first look
        (0.10, 7, "regressed"),  # the first look said so
    ],
)
def test_verdicts(slowdown: float, pairs: int, verdict: str) -> None:
    found = time_verdict(spread(math.log1p(slowdown), pairs))
    assert found.verdict == verdict
    assert found.ratio == pytest.approx(1 + slowdown, abs=1e-3)
    assert (found.pairs, found.quads) == (pairs, 4 * pairs)


def test_what_a_verdict_holds() -> None:
    found = time_verdict(spread(0.0, 4), limit=0.04, tolerated=0.02)
    assert found.low < 1 < found.high < 1.04
    assert found.smallest == pytest.approx(1.02 * math.sqrt(found.high / found.low) - 1)
    assert (found.limit, found.tolerated, found.target) == (0.04, 0.02, "train.py")
    assert found.seconds_before == pytest.approx(0.010)
    assert found.wall_over_cpu == pytest.approx(1.25)


@pytest.mark.parametrize(
    ("pairs", "ended", "verdict"),
    [
        ([[0.2, 0.2, 0.2]] * 3, False, "inconclusive"),  # no look yet
        ([[0.2, 0.2, 0.2]] * 3, True, "regressed"),  # zero spread: 9 quads, 3 pairs
        ([[0.2] * 20], True, "inconclusive"),  # nothing is known of how processes differ
        ([[0.2]] * 6, True, "inconclusive"),  # 2 ** -6 is more than 0.01
        ([[0.2]] * 7, True, "regressed"),
        ([[0.0]] * 16, False, "pass"),
        ([[0.2], [0.21] * 4, [0.19] * 2, [0.2] * 3], False, "regressed"),  # unequal numbers of quads
    ],
)
def test_edges(pairs: list[list[float]], ended: bool, verdict: str) -> None:
    assert time_verdict(record(*pairs), ended=ended).verdict == verdict


def test_what_cannot_be_told_says_why() -> None:
    one = time_verdict(record([0.2] * 3), ended=True)
    assert one.reason == "3 comparisons in 1 pair of processes are too few for an interval: raise --budget"
    assert (one.low, one.high, one.smallest) == (0.0, math.inf, None)
    wide = time_verdict(record(*[[-0.05, 0.05, -0.05, 0.05]] * 4))
    assert (wide.verdict, wide.reason) == ("inconclusive", "the interval reaches from below +1 % to above +5 %")
    none = time_verdict(record(), ended=True)  # nothing was looked at, which is never a pass, nor a fault of the code
    assert (none.verdict, none.ratio) == ("inconclusive", None)
    assert none.reason == "not reached: the budget ended before its turn; raise --budget"


BOUNDS = {4: Bounds(0.010, 0.030), 8: Bounds(-0.050, 0.012), 16: Bounds(-0.06, 0.06)}


def rule_of_looks(groups, threshold, alpha_low, alpha_high):  # type: ignore[no-untyped-def]
    return BOUNDS[len(groups)]


def test_what_could_have_been_called_is_what_the_last_look_resolves() -> None:
    """Looks say 1 to 3 %, then -5 to 1.2 %, then ±6 %: together 1 to 1.2 %. The centre of all quads, -2 %, lies outside."""
    found = time_verdict(record(*[[-0.02]] * 16), rule=rule_of_looks)
    assert (found.low, found.high) == (pytest.approx(math.exp(0.010)), pytest.approx(math.exp(0.012)))
    assert found.ratio == found.low
    assert found.smallest == pytest.approx(1.01 * math.exp(0.06) - 1)


def test_looks_that_contradict_each_other_leave_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(BOUNDS, 8, Bounds(-0.05, 0.005))
    found = time_verdict(record(*[[0.0]] * 8), rule=rule_of_looks)
    assert (found.low, found.high) == (pytest.approx(math.exp(-0.05)), pytest.approx(math.exp(0.005)))
    assert found.verdict == "pass"


def sampled(before: float, after: float, slowdown: float = 0.0, mean: bool = False) -> TargetRecord:
    """Four pairs in which steps of both sides have other samples; seconds per step grow by the slowdown."""
    seen = record(*[[math.log1p(slowdown)] * 4] * 4)
    of: dict[Side, float] = {"base": before, "head": after}
    for pair in seen.pairs:
        pair.quads = [
            Quad(tuple(replace(b, median_samples=of[b.side], mean_samples=of[b.side]) for b in q.blocks))
            for q in pair.quads
        ]
    seen.typical = "mean" if mean else "median"
    return seen


@pytest.mark.parametrize(
    ("before", "after", "slowdown", "verdict", "ratio", "told"),
    [
        (256, 32, -0.5, "regressed", 4.0, True),  # half as long, for an eighth of the samples
        (32, 256, 3.0, "improved", 0.5, True),
        (64, 64, 0.0, "pass", 1.0, False),
        (60.1, 60.4, 0.0, "pass", 1.0, False),  # blocks that end in other places of an epoch
        (0, 64, 0.0, "pass", 1.0, False),  # not known
    ],
)
def test_other_batches_are_judged_by_seconds_per_sample(
    before: float, after: float, slowdown: float, verdict: str, ratio: float, told: bool
) -> None:
    for mean in (False, True):
        found = time_verdict(sampled(before, after, slowdown, mean))
        assert (found.verdict, found.ratio) == (verdict, pytest.approx(ratio))
        words = f"per sample: a step has {after:g} samples now, {before:g} before"
        assert found.reason == (words if told else "")


def test_a_smaller_last_batch_is_no_other_batch() -> None:
    """Where the median of a block's steps counts, so does that of their samples."""
    seen = sampled(64, 64)
    seen.pairs[0].quads[0] = Quad(tuple(replace(b, median_samples=16.0) for b in seen.pairs[0].quads[0].blocks))
    assert time_verdict(seen).reason == ""


def test_a_quad_of_rounds_counts_as_its_centre() -> None:
    """One round of nine meets a hiccup of 2 s; the others say 1 %."""
    rounds = [quad(math.log(1.01), number).blocks for number in range(8)]
    hiccup = tuple(replace(b, median=2.0) if b.side == "head" else b for b in quad(0.0).blocks)
    seen = Quad(tuple(b for four in [*rounds, hiccup] for b in four))
    assert seen.log_ratio("median") == pytest.approx(math.log(1.01))


def test_the_end_of_the_budget_spends_what_is_left_of_the_error() -> None:
    """Between the looks all pairs count, at the error of the looks to come; what a look has settled stays as it was."""
    draw = random.Random(4)
    seen = record(*[[draw.gauss(0.02, 0.01) for _ in range(3)] for _ in range(6)])
    before, after = time_verdict(seen), time_verdict(seen, ended=True)
    assert after.high < before.high
    expected = both(seen.groups(), math.log1p(0.01), 0.008, 0.008)
    assert after.low == pytest.approx(math.exp(expected.low))
    seen.settled = True
    assert time_verdict(seen, ended=True) == time_verdict(seen)


@pytest.mark.parametrize(
    ("failures", "reason"),
    [
        ({"base": "no data"}, "the reference main does not run: no data"),
        ({"head": "no data"}, "your code does not run: no data"),
        ({"head": "b", "base": "a"}, "neither the reference main nor your code runs: a"),
    ],
)
def test_a_side_that_does_not_run_is_no_verdict_on_time(failures: dict[Side, str], reason: str) -> None:
    broken = spread(0.0, 4)
    broken.failures = failures
    found = time_verdict(broken, ended=True)
    assert (found.verdict, found.reason, found.pairs) == ("failed", reason, 4)


def test_targets_are_corrected_together() -> None:
    """Holm on paper: of p = 0.004, 0.006, 0.02 at 1 %, the first fails 1 % / 3; of 0.003, 0.004, 0.02 two are rejected."""

    def rule_of(p_values: dict[str, float]):  # type: ignore[no-untyped-def]  # a rule, by the first ratio of the record
        def rule(groups, threshold, alpha_low, alpha_high):  # type: ignore[no-untyped-def]
            p = p_values[f"{groups[0][0]:.1f}"] * LOOKS[0].alpha / ALPHA  # as the looks weigh it
            return Bounds(threshold + 0.01 if p <= alpha_low else threshold - 0.01, math.inf, p)

        return rule

    targets = [record(*[[value]] * 4, target=str(value)) for value in (0.3, 0.1, 0.2)]
    words = [
        v.verdict
        for v in judged_together(targets, ended=False, rule=rule_of({"0.1": 0.004, "0.2": 0.006, "0.3": 0.02}))
    ]
    assert words == ["inconclusive"] * 3
    found = judged_together(targets, ended=False, rule=rule_of({"0.1": 0.003, "0.2": 0.004, "0.3": 0.02}))
    assert [(v.target, v.verdict) for v in found] == [
        ("0.3", "inconclusive"),
        ("0.1", "regressed"),
        ("0.2", "regressed"),
    ]
    assert [v.p for v in found] == pytest.approx([0.02, 0.003, 0.004])


def test_more_targets_ask_for_more_before_one_is_settled() -> None:
    """12 quads that all point up have p = 2 ** -12: enough for one look of a few targets, not of ten."""
    seen = record(*[[0.03, 0.04, 0.05]] * 4)
    assert is_settled(seen, 0.05, 0.01, family=1)
    assert not is_settled(seen, 0.05, 0.01, family=10)
    assert not is_settled(record(*[[0.03, 0.04, 0.05]] * 5), 0.05, 0.01, family=1)  # no look is due


def test_the_target_with_the_smallest_p_is_tested_first_whatever_its_place() -> None:
    """At the first look one of two targets is tested at 0.001, and once it is rejected the other at 0.002."""

    def by_its_number(groups: Sequence[Sequence[float]], threshold: float, lower: float, upper: float) -> Bounds:
        p = groups[0][0]
        return Bounds(1.0 if p <= lower + 1e-9 else -1.0, 2.0, p)

    first, second = record(*[[0.0015]] * 4), record(*[[0.0005]] * 4)
    for both_of_them in ([first, second], [second, first]):
        found = judged_together(both_of_them, ended=False, rule=by_its_number)
        assert [verdict.verdict for verdict in found] == ["regressed", "regressed"]


def test_a_failed_target_counts_for_the_family_and_spoils_no_other() -> None:
    broken = record(target="b.py")
    broken.failures = {"head": "it does not import"}
    found = judged_together([broken, spread(math.log(1.1), 4)])
    assert [v.verdict for v in found] == ["failed", "regressed"]


def test_pairs_survive_json() -> None:
    import json

    seen = spread(0.01, 2)
    again = replace(seen, pairs=[pair_from_json(json.loads(json.dumps(pair_to_json(pair)))) for pair in seen.pairs])
    assert again.groups() == [pytest.approx(group, abs=1e-5) for group in seen.groups()]


def test_where_workers_load_the_mean_of_a_block_counts() -> None:
    """Four workers deliver four batches at a time: three steps of four do not wait, and the median would not see the loader."""
    slow = TimedBlock("head", 8, 0.010, 0.015, 0.0, 0.12, 0.08, 0.0)
    fast = TimedBlock("base", 8, 0.010, 0.010, 0.001, 0.08, 0.08, 0.0)
    seen = Quad((slow, fast, fast, slow))
    assert seen.log_ratio("median") == pytest.approx(math.log(10 / 11))
    assert seen.log_ratio("mean") == pytest.approx(math.log(15 / 11))


QUAD_NOISE = 0.03  # standard deviation of a quad's log ratio
PAIR_SPREAD = 2.2  # times what one pair of four quads predicts: the most that was seen
RUNS = 400


def simulated(draw: random.Random, slowdown: float) -> TargetRecord:
    """Sixteen pairs of four quads: a shift for each pair, noise that hangs together from quad to quad, some hiccups."""
    pairs = []
    own = QUAD_NOISE / 2  # of the mean of four quads
    shift = own * math.sqrt(PAIR_SPREAD**2 - 1)
    for _ in range(LOOKS[-1].generations):
        centre, noise, values = math.log1p(slowdown) + draw.gauss(0, shift), 0.0, []
        for _ in range(4):
            noise = 0.4 * noise + math.sqrt(1 - 0.4**2) * draw.gauss(0, QUAD_NOISE)
            hiccup = draw.choice([-1, 1]) * draw.expovariate(20) if draw.random() < 0.03 else 0.0
            values.append(centre + noise + hiccup)
        pairs.append(values)
    found = record(*pairs)
    for pair in found.pairs:
        pair.quads = [Remembering(quad.blocks) for quad in pair.quads]
    return found


class Remembering(Quad):
    """A quad that works each of its ratios out once, however many looks ask for it."""

    __slots__ = ("known",)

    def log_ratio(self, typical: Typical) -> float:
        if not hasattr(self, "known"):
            object.__setattr__(self, "known", {})
        if typical not in self.known:
            self.known[typical] = super().log_ratio(typical)
        return self.known[typical]


def word(full: TargetRecord) -> str:
    """The verdict as looks make it, one after the other."""
    for look in LOOKS:
        so_far = TargetRecord(full.target, pairs=full.pairs[: look.generations])
        if (found := time_verdict(so_far)).verdict != "inconclusive":
            return found.verdict
    return "inconclusive"


@pytest.mark.parametrize(
    ("slowdown", "least", "most"),
    [
        (0.01, 0.0, ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / RUNS)),  # false alarms at the edge of what is tolerated
        (0.10, 0.97, 1.0),
        (0.05, 0.85, 1.0),
    ],
)
def test_how_often_a_slowdown_is_called(slowdown: float, least: float, most: float) -> None:
    draw = random.Random(2024)
    called = sum(word(simulated(draw, slowdown)) == "regressed" for _ in range(RUNS)) / RUNS
    assert least <= called <= most
