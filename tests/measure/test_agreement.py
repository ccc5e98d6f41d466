"""What ranks make of what each of them sees: on all of them the same. The other rank's part is given here."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from perfaudit.errors import TargetError
from perfaudit.measure.agreement import ALONE, Alone
from perfaudit.training.code_change import NotSwappable


class Beside(Alone):
    """The first of two ranks. The other has this value and these words, as functions of the first one's."""

    here = " on rank 0"

    def __init__(
        self, value: Callable[[float], float] = lambda mine: mine, words: Callable[[str], str] = lambda mine: mine
    ) -> None:
        self.value, self.words = value, words

    def gather(self, value: float) -> list[float]:
        return [value, self.value(value)]

    def gather_words(self, words: str) -> list[str]:
        return [words, self.words(words)]


@pytest.mark.parametrize(("mine", "other", "slowest"), [(0.1, 0.3, 0.3), (0.3, 0.1, 0.3)])
def test_a_step_takes_as_long_as_on_the_slowest_rank(mine: float, other: float, slowest: float) -> None:
    assert Beside(lambda _: other).slowest(mine) == slowest
    assert math.isnan(Beside(lambda _: math.nan).slowest(mine))


def test_alone_whatever_is_seen_holds() -> None:
    assert (ALONE.slowest(0.5), ALONE.any(True), ALONE.any(False)) == (0.5, True, False)
    assert (ALONE.refusal("no"), ALONE.refusal(""), ALONE.goes_on("base", True)) == ("no", "", True)


def test_the_clock_of_the_first_rank_counts_and_all_run_the_same_next() -> None:
    late = Beside(lambda mine: mine if mine > 1 else 0.0)  # the other has no time any more
    assert late.goes_on("fused", True)
    assert not Beside().goes_on("fused", False)
    with pytest.raises(TargetError, match="do not agree on what runs next"):
        Beside(lambda mine: mine + 1).goes_on("fused", True)


def test_what_one_rank_refuses_no_rank_does() -> None:
    def refuse() -> int:
        raise NotSwappable("not here")

    assert Beside().on_all(lambda: 7) == 7
    with pytest.raises(NotSwappable, match=r"^not here$"):
        Beside().on_all(refuse)
    with pytest.raises(NotSwappable, match=r"^not there on rank 1$"):
        Beside(lambda _: 1.0, lambda _: "not there on rank 1").on_all(lambda: 7)
