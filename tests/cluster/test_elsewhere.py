"""Sets of processes on nodes that are not real: who gets what, in which order it is kept, and what a lost node costs."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import Any

import pytest
from fake_nodes import FakeNodes

from perfaudit.errors import NothingMeasured
from perfaudit.measure.elsewhere import Work, run_on
from perfaudit.measure.journal import Journal, Json, Kept


class Counted:
    """A series that is enough with `wanted` sets, looked at after each `look`; a set is its number."""

    def __init__(self, stage: str, wanted: int, look: int, first_here: bool = False) -> None:
        self.stage, self.wanted, self.look, self.first_here = stage, wanted, look, first_here
        self.seen: list[int] = []
        self.here: list[int] = []

    def is_open(self) -> bool:
        return len(self.seen) < self.wanted

    def has_time(self) -> bool:
        return True

    def measure(self) -> None:
        self.here.append(len(self.seen))
        self.seen.append(len(self.seen))

    def work(self, ahead: int) -> Work | None:
        number = len(self.seen) + ahead
        if (self.first_here and not self.seen) or number >= (len(self.seen) // self.look + 1) * self.look:
            return None
        return partial(int, number)

    def take(self, found: int) -> None:
        self.seen.append(found)

    def recall(self, piece: int, state: Json) -> None:
        self.seen.append(piece)

    def set_to_keep(self) -> tuple[int, Json]:
        return self.seen[-1], {}


class Memo(Kept):
    def __init__(self, **earlier: list[int]) -> None:
        super().__init__(Journal.none(), dict, dict)
        self.earlier, self.lines = earlier, deque[tuple[str, int]]()

    def earlier_sets(self, stage: str) -> list[tuple[Any, Json]]:
        return [(piece, {}) for piece in self.earlier.get(stage, [])]

    def keep_set(self, stage: str, piece: Any, state: Json) -> None:
        self.lines.append((stage, piece))


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_sets_are_kept_in_the_order_in_which_they_were_sent(width: int, newest: bool) -> None:
    every, memo, nodes = [Counted("a", 8, 4), Counted("b", 4, 4)], Memo(), FakeNodes(width, newest=newest)
    run_on(nodes, every, memo)
    assert [series.seen for series in every] == [[*range(8)], [*range(4)]]
    assert [piece for stage, piece in memo.lines if stage == "a"] == [*range(8)]
    assert nodes.most_out == width


def test_series_come_equally_far() -> None:
    memo = Memo()
    run_on(FakeNodes(1), [Counted("a", 2, 2), Counted("b", 2, 2)], memo)
    assert [stage for stage, _ in memo.lines] == ["a", "b", "a", "b"]


def test_nothing_is_measured_beyond_the_next_look() -> None:
    nodes = FakeNodes(9)
    run_on(nodes, [Counted("a", 4, 4)])
    assert nodes.most_out == 4


def test_a_series_whose_first_set_must_be_here_goes_out_afterwards() -> None:
    series, nodes = Counted("a", 4, 4, first_here=True), FakeNodes(3)
    run_on(nodes, [series])
    assert (series.here, series.seen, nodes.most_out) == ([0], [0, 1, 2, 3], 3)


def test_without_nodes_all_is_measured_here() -> None:
    series = Counted("a", 4, 4)
    run_on(None, [series])
    assert series.here == [0, 1, 2, 3]


def test_sets_of_an_earlier_session_are_not_measured_again() -> None:
    series, memo, nodes = Counted("a", 4, 4), Memo(a=[0, 1, 2]), FakeNodes(2)
    run_on(nodes, [series], memo)
    assert ([*memo.lines], nodes.most_out) == ([("a", 3)], 1)


def test_a_lost_node_costs_the_set_it_had() -> None:
    series, nodes = Counted("a", 4, 4), FakeNodes(2, lose=(2,))
    run_on(nodes, [series])
    assert (series.seen, nodes.width, nodes._sent) == ([0, 1, 2, 3], 1, 5)


def test_where_no_node_is_left_what_was_kept_stays() -> None:
    memo = Memo()
    with pytest.raises(
        NothingMeasured, match="no node is left: node 2 was lost; what was finished is kept, and --resume"
    ):
        run_on(FakeNodes(1, lose=(2,)), [Counted("a", 4, 4)], memo)
    assert [*memo.lines] == [("a", 0)]


def test_a_set_that_loses_one_node_after_the_other_is_given_up() -> None:
    with pytest.raises(NothingMeasured, match="3 nodes were lost with the same work"):
        run_on(FakeNodes(5, lose=(1, 2, 3, 4, 5)), [Counted("a", 1, 1)])


def test_ctrl_c_keeps_what_was_taken() -> None:
    memo, nodes = Memo(), FakeNodes(2)

    def interrupt(number: int) -> None:
        if number == 3:
            raise KeyboardInterrupt

    nodes.on_work = interrupt
    with pytest.raises(KeyboardInterrupt):
        run_on(nodes, [Counted("a", 4, 4)], memo)
    assert [*memo.lines] == [("a", 0), ("a", 1)]
