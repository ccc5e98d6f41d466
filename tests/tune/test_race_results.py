"""Why candidates failed in a race in one training."""

from __future__ import annotations

import pytest

from perfaudit.tune.race_results import RAISES as NOW_AND_THEN
from perfaudit.tune.race_results import Raced, Seen, notes_of
from perfaudit.tune.screening import BUILT_AGAIN

ERROR = "FileNotFoundError: no such file: 'logs.tsv' (train.py:40 in plot)"
RAISES = f"a step raises {ERROR}"


@pytest.mark.parametrize(
    ("why", "notes", "told"),
    [
        (f"with it, {RAISES}", [f"{NOW_AND_THEN}: {ERROR}"], f"with it, and without, {RAISES}"),
        (f"with it, {RAISES}", [], f"with it, {RAISES}"),
        (f"with it, {RAISES}", [f"{BUILT_AGAIN}: {RAISES}"], f"with it, {RAISES}"),  # with it in place
        (f"with it, {RAISES}", [f"{NOW_AND_THEN}: ValueError"], f"with it, {RAISES}"),
        (
            "with it, losses become NaN or infinite",
            [f"{NOW_AND_THEN}: {ERROR}"],
            "with it, losses become NaN or infinite",
        ),
    ],
)
def test_what_a_step_of_the_users_code_raises_too_is_no_patchs_fault_alone(
    why: str, notes: list[str], told: str
) -> None:
    raced = Raced({"optimizer": Seen(3, why)}, refused={"fusion": why}, notes=notes)
    assert raced.failures == raced.out == {"optimizer": told, "fusion": told}


def test_the_report_says_how_many_pairs_tell_nothing() -> None:
    raced = Raced()
    for left_out in (3, 1):
        raced.take({"entrants": {}, "ways": {}, "base": {"steps": 0.0}, "ended": False, "pairs_left_out": left_out})
    assert notes_of(raced) == [
        "the last pair of blocks is left out: since then so many were disturbed that they tell nothing, and figures are those "
        "of before"
    ]
    raced.take({"entrants": {}, "ways": {}, "base": {"steps": 0.0}, "ended": True, "pairs_left_out": 0})
    assert notes_of(raced) == []


def test_what_left_undecided_has_not_failed() -> None:
    assert Raced({"optimizer": Seen(3, "undecided after all comparisons")}).failures == {}


def test_what_a_step_takes_stays_known_where_the_training_was_built_again() -> None:
    """The next process may end before it has timed the user's code by itself."""
    told = {"steps": 2.0, "counted": 0.04, "wall": 0.04, "cpu": 0.04, "queued": 0.0, "phases": {}}
    raced = Raced()
    for base in (dict.fromkeys(told, 0.0), told, {**told, "counted": 0.06}, {**dict.fromkeys(told, 0.0), "phases": {}}):
        raced.take({"entrants": {}, "ways": {}, "base": base, "ended": False})
    assert raced.seconds_per_step == 0.03
