"""What the time layer has seen: what a quad and a target come to, and what of it is kept in JSON."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from perfaudit.gate.records import Pair, Quad, Side, TargetRecord, TimedBlock


def block(side: Side, seconds: float, samples: float = 0.0) -> TimedBlock:
    """Ten steps of a side, of which the median is `seconds` and the mean twice as much."""
    return TimedBlock(side, 10, seconds, 2 * seconds, 0.0, 30 * seconds, 20 * seconds, 0.0, samples, 3 * samples)


def quad(base: tuple[float, float], head: tuple[float, float]) -> tuple[TimedBlock, ...]:
    return block("base", base[0]), block("head", head[0]), block("head", head[1]), block("base", base[1])


def test_what_a_block_counts_as() -> None:
    seen = replace(block("base", 0.2, 8.0), restart_per_step=0.05)
    assert (seen.seconds("median"), seen.seconds("mean")) == (pytest.approx(0.25), pytest.approx(0.45))
    assert (seen.samples("median"), seen.samples("mean")) == (8.0, 24.0)
    # Its logarithm is taken.
    assert TimedBlock("base", 1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0).seconds("median") == 1e-9
    bare = TimedBlock("base", 1, 0.1, 0.1, 0.0, 0.1, 0.1, 0.0)
    assert (bare.samples("median"), bare.samples("mean")) == (0.0, 0.0)


def test_a_round_is_the_difference_of_the_means_of_its_logs() -> None:
    seen = Quad(quad((0.1, 0.4), (0.3, 0.3)))
    assert seen.log_ratio("median") == pytest.approx(math.log(0.3 / 0.2))


def test_rounds_of_a_quad_are_four_blocks_each() -> None:
    """The centre of two rounds is their mean; blocks taken together otherwise would come to another one."""
    seen = Quad((*quad((0.1, 0.1), (0.2, 0.2)), *quad((0.1, 0.1), (0.8, 0.8))))
    assert seen.log_ratio("median") == pytest.approx((math.log(2) + math.log(8)) / 2)


@pytest.mark.parametrize(
    ("before", "after", "seen"),
    [
        (8.0, 8.0, None),
        (100.0, 101.0, None),  # ends of epochs
        (100.0, 101.1, (100.0, 101.1)),
        (100.0, 98.9, (100.0, 98.9)),
        (8.0, 16.0, (8.0, 16.0)),
        (0.0, 16.0, None),  # not known of one side
        (16.0, 0.0, None),
    ],
)
def test_samples_of_a_step(before: float, after: float, seen: tuple[float, float] | None) -> None:
    blocks = tuple(block(side, 0.1, samples) for side, samples in (("base", before), ("head", after)))  # type: ignore[arg-type]  # two sides
    record = TargetRecord("t.py", pairs=[Pair("base", 1, quads=[Quad(blocks)])])
    assert record.samples_per_step() == seen
    assert record.groups() == [[pytest.approx(math.log(seen[0] / seen[1]) if seen else 0.0)]]


def test_before_the_first_quad_nothing_is_known() -> None:
    record = TargetRecord("t.py", pairs=[Pair("base", 1)])
    assert record.pairs == [Pair("base", 1, 0.0, [], 0.0)]
    assert (record.groups(), record.samples_per_step(), record.wall_over_cpu()) == ([], None, None)
    assert (record.seconds_per_step("base"), record.seconds_per_step("head")) == (None, None)
    assert (record.typical, record.length, record.settled, record.interrupted) == ("median", "long", False, False)
    one_side = TargetRecord("t.py", pairs=[Pair("base", 1, quads=[Quad((block("base", 0.1, 8.0),))])])
    assert one_side.samples_per_step() is None


def test_seconds_of_a_step_and_how_far_the_reference_waited() -> None:
    pairs = [Pair("base", n, quads=[Quad(quad((0.1, 0.2 * n), (0.4, 0.5)))]) for n in (1, 2)]
    record = TargetRecord("t.py", pairs=pairs)
    assert record.seconds_per_step("base") == pytest.approx(0.15)  # the median of 0.1, 0.1, 0.2 and 0.4
    assert record.seconds_per_step("head") == pytest.approx(0.45)
    assert replace(record, typical="mean").seconds_per_step("head") == pytest.approx(0.9)
    assert record.wall_over_cpu() == pytest.approx(1.5)
    short = replace(block("base", 0.1), wall=0.3, cpu=0.2)
    assert TargetRecord("t.py", pairs=[Pair("base", 1, quads=[Quad((short,))])]).wall_over_cpu() == pytest.approx(1.5)
    idle = replace(block("base", 0.1), cpu=0.0)
    assert TargetRecord("t.py", pairs=[Pair("base", 1, quads=[Quad((idle,))])]).wall_over_cpu() is None
