"""What losses, gradients and doubles may differ by, computed by hand: every bound from both sides, every question as asked."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from surveys import USUAL, facts
from test_verify import FakeChild

from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.tune import exact, tolerance
from perfaudit.tune.gradients import said_of_gradients
from perfaudit.tune.tolerance import (
    Curve,
    FirstGradients,
    Reference,
    Sensitivity,
    Tolerance,
    average_gap,
    coarsest,
    curve_of,
    gaps,
    largest,
    losses_command,
    roundoff,
    types_of,
)
from perfaudit.tune.verify import Verifier

Json = dict[str, Any]
MORE = 1 + 1e-9


class Own:
    """The user's code, run again: by the kind of run the losses, or a whole curve; `asked` has the commands."""

    def __init__(self, **runs: Any) -> None:
        self.runs, self.asked = runs, list[Json]()
        self.reference = Reference(self.ask, lambda variant: 0, steps=5)

    def ask(self, command: Json) -> Curve | None:
        self.asked.append(command)
        kind = (
            "sensitivity" if command["do"] == "sensitivity" else "seed" if "build_seed" in command
            else f"{command['rounded']}_{command['run']}" if "rounded" in command else "nudged" if "nudge" in command
            else "again" if "run" in command else "first" if command["seed"] == 20_231 else "stream"
        )  # fmt: skip
        found = self.runs.get(kind)
        return Curve(tuple(found)) if isinstance(found, list) else found


ONES = [1.0] * 5


def test_a_reply_is_read_whole() -> None:
    reply = {
        "losses": [(1.5).hex(), (0.5).hex()], "average": [(2.0).hex()], "why": "it has no b", "dtypes": ["bfloat16"],
        "gradients": {"gap": (0.25).hex(), "name": "a", "same_batch": False, "why": "so"},
        "sensitivity": {"again": (0.5).hex(), "stream": (0.25).hex(), "nudged": (0.125).hex()},
    }  # fmt: skip
    assert curve_of(reply) == Curve(
        (1.5, 0.5), (2.0,), "it has no b", ("bfloat16",), FirstGradients(0.25, "a", False, "so"),
        Sensitivity(0.5, 0.25, 0.125),
    )  # fmt: skip
    assert curve_of({"losses": None, "gradients": {"why": "none"}}) == Curve(
        (), gradients=FirstGradients(math.inf, "", True, "none")
    )
    assert curve_of({"gradients": {"gap": (0.0).hex()}}).gradients == FirstGradients(0.0, "", True, "")
    assert curve_of({}) == Curve(())


@pytest.mark.parametrize(
    ("curve", "finite", "still"),
    [
        (Curve((1.0, 1.0)), True, True),
        (Curve((1.0,)), True, False),  # one step says nothing
        (Curve((1.0, 1.0, 2.0)), True, False),
        (Curve((1.0, math.inf)), False, False),
        (Curve((1.0, 2.0), (math.nan,)), False, False),
    ],
)
def test_curves_that_are_numbers_and_that_stand_still(curve: Curve, finite: bool, still: bool) -> None:
    assert (curve.is_finite, curve.stands_still) == (finite, still)


@pytest.mark.parametrize(
    ("mine", "base", "found"),
    [
        ((1.5, 3.0), (1.0, 4.0), [0.5, 0.25]),
        ((-1.5, 4.0), (-1.0, 4.0), [0.5, 0.0]),
        ((0.5, 1.0, 1.0), (0.0, 1.0, 1.0), [5.0, 0.0, 0.0]),  # over a tenth of the median
        ((1e-12, 0.0), (0.0, 0.0), [1.0, 0.0]),
        ((math.inf, 1.0), (1.0, 1.0), [math.inf, 0.0]),
        ((math.nan, 1.0), (1.0, 1.0), [math.inf, 0.0]),
        ((), (), []),
    ],
)
def test_gaps_of_losses(mine: tuple[float, ...], base: tuple[float, ...], found: list[float]) -> None:
    assert gaps(Curve(mine), Curve(base)) == pytest.approx(found)


def test_the_gap_of_an_average_is_the_larger_one_and_over_its_own_sum() -> None:
    assert average_gap(Curve((), (1.5, 2.0)), Curve((), (1.0, 1.0))) == 1.0
    assert average_gap(Curve((), (1e-12, 9.0)), Curve((), (0.0, 9.0))) == 1.0  # not over the usual sum
    assert average_gap(Curve(()), Curve(())) == 0.0


@pytest.mark.parametrize(
    ("names", "one", "name"),
    [
        ([], 2**-24, ""),
        (["float64", "float32"], 2**-24, ""),
        (["float32", "tf32"], 2**-11, "tf32"),
        (["float16", "bfloat16"], 2**-8, "bfloat16"),
        (["strange"], 2**-24, ""),
        (["strange", "tf32"], 2**-11, "tf32"),
    ],
)
def test_coarseness(names: list[str], one: float, name: str) -> None:
    assert (roundoff(names), coarsest(names)) == (one, name)


@pytest.mark.parametrize(
    ("precision", "device", "allowed", "convolutions", "found"),
    [
        ("highest", "cpu", False, 0, []),
        ("high", "cpu", False, 0, ["tf32"]),
        ("medium", "cpu", False, 0, ["bfloat16"]),
        ("medium", "cuda", False, 0, ["tf32"]),
        ("highest", "cuda", True, 1, ["tf32"]),
        ("highest", "cuda", True, 0, []),
        ("highest", "cuda", False, 1, []),
        ("highest", "mps", True, 1, []),
    ],
)
def test_types_that_a_training_computes_in(
    precision: str, device: str, allowed: bool, convolutions: int, found: list[str]
) -> None:
    flags = {"matmul_precision": precision, "cudnn.allow_tf32": allowed}
    given = facts(device={"type": device}, flags=flags, model={"convolutions": convolutions})
    assert types_of(given) == ["float32", "", *found]
    assert types_of(replace(given, step_autocast="float16")) == ["float32", "float16", *found]


# ---- running the user's code again -------------------------------------------------------------------------------------


def test_each_way_of_running_again_as_it_is_asked() -> None:
    own = Own(
        first=Curve((1.0, 1.0), (4.0,)), again=Curve((1.0, 1.5), (8.0,)), seed=Curve((1.5, 2.0), dtypes=("float16",)),
        stream=[1.25, 1.25], nudged=Curve((1.0, 1.125), (4.5,)), tf32_0=[1.0, 1.5], tf32_2=Curve((1.25, 1.0), (6.0,)),
    )  # fmt: skip
    one = own.reference
    for _ in range(2):  # the second time nothing is asked
        assert one.again() == [0.0, 0.5, 1.0]
        assert one.seed() == (0.75, ("float16",))
        assert one.stream() == 0.25
        assert one.nudged_gaps(0.5) == ([0.0, 0.125], 0.125)
        assert one.rounded_gaps("tf32") == ([0.25, 0.5], 0.5)
    more = {"do": "losses", "steps": 5, "seed": 20_231}
    assert own.asked == [
        more,
        {**more, "run": 2},
        {**more, "seed": 74_207, "build_seed": 74_207, "observe": True},
        {**more, "seed": 74_207},
        {**more, "nudge": 0.5},
        *({**more, "rounded": "tf32", "run": n} for n in range(3)),
    ]
    assert losses_command(3) == {"do": "losses", "steps": 3, "seed": 20_231}


@pytest.mark.parametrize("first", [None, ONES])
def test_what_cannot_be_run_again_is_not_known(first: list[float] | None) -> None:
    one = Own(first=first).reference
    assert (one.again(), one.seed(), one.stream()) == (None, (None, ()), None)
    assert one.nudged_gaps(0.5) == one.rounded_gaps("tf32") == ([], 0.0)
    assert one.sensitivity(0.5) is None
    assert Own(first=first, tf32_0=None if first else ONES).reference.rounded_gaps("tf32") == ([], 0.0)


def test_runs_that_are_no_numbers_or_move_nothing_tell_nothing() -> None:
    nan = [math.nan] * 5
    one = Own(first=ONES, nudged=nan, seed=nan, stream=[], tf32_0=nan, tf32_1=ONES, float16_1=nan).reference
    assert one.nudged_gaps(0.5) == one.rounded_gaps("tf32") == one.rounded_gaps("float16") == ([], 0.0)
    assert (one.seed(), one.stream()) == ((None, ()), None)
    assert Own(first=nan, seed=ONES).reference.seed() == (None, ())


def test_the_first_losses_are_those_that_were_seen_elsewhere() -> None:
    own = Own(first=ONES, stream=[2.0] * 5)
    own.reference.know(Curve((4.0,) * 5))
    own.reference.know(Curve((8.0,) * 5))
    assert own.reference.stream() == 0.5
    assert len(own.asked) == 1


def test_sensitivity_as_it_is_asked() -> None:
    own = Own(sensitivity=Curve((), sensitivity=Sensitivity(0.0, 0.5, 0.0)))
    assert own.reference.sensitivity(0.5) == own.reference.sensitivity(0.5) == Sensitivity(0.0, 0.5, 0.0)
    assert own.reference.sensitivity(0.0, "tf32") is None  # it moves nothing there
    assert own.reference.sensitivity(0.25) == Sensitivity(0.0, 0.5, 0.0)
    command = {"do": "sensitivity", "seed": 20_231, "other_seed": 74_207}
    assert own.asked == [
        {**command, "nudge": 0.5}, {**command, "nudge": 0.0, "rounded": "tf32"}, {**command, "nudge": 0.25}
    ]  # fmt: skip
    coarse = Own(sensitivity=Curve((), sensitivity=Sensitivity(0.0, 0.5, 0.25)))
    assert coarse.reference.sensitivity(0.0, "tf32") == Sensitivity(0.0, 0.5, 0.25)


def test_doubles_are_asked_once_for_each_text_and_nudge() -> None:
    asked: list[Any] = []

    def ask_of(variant: Variant, command: Json) -> Json:
        asked.append((variant.key, command))
        return {"losses": [(1.0).hex()], "rows": {"update of a": ["3", (2.0).hex(), (1.0).hex()]}}

    one = Reference(lambda command: None, lambda variant: 0, ask_of=ask_of)
    base, patch = Variant("a", "", {"x": 1, "y": 2}), Variant("a", "", {}, {"t.py": "x = 1"})
    again = Variant("a", "", {"y": 2, "x": 1})
    found = [one.exact(base), one.exact(base), one.exact(patch), one.exact(base, 0.5), one.exact(again, 0.5)]
    assert found == [exact.Exact((1.0,), {"update of a": (3.0, 2.0, 1.0)})] * 5
    command = {"do": "exact", "steps": 2, "seed": 20_231}
    assert asked == [
        ("a", {**command, "nudge": 0.0}),
        ("a", {**command, "nudge": 0.0}),
        ("a", {**command, "nudge": 0.5}),
    ]
    assert Reference(lambda command: None, lambda variant: 0).exact(base).why == "nobody is there to ask"


def test_no_script_is_started_to_say_that_it_computes_in_its_own_types() -> None:
    def ask_of(variant: Variant, command: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError

    reference = Reference(lambda command: None, lambda variant: 0, ask_of=ask_of, is_of_script=True)
    assert reference.exact(Variant("base", "", {})).why == "a script computes in the types that it builds"


# ---- the tolerance -----------------------------------------------------------------------------------------------------

FLOOR = 2**-18  # 64 roundings of float32


def moved(*by: float) -> list[float]:
    return [1.0 + each for each in by]


@pytest.mark.parametrize(
    ("runs", "names", "repeats", "found"),
    [
        # A nudge of 64 roundings moves the losses by these, 16 times as much is allowed, up to half of another seed's gap.
        ({"seed": moved(*[0.5] * 5), "nudged": moved(0, 2**-12, 2**-14, 2**-10, 2**-6)}, [], (),
         ((FLOOR, 2**-8, 2**-8, 2**-6, 2**-2), 1e-3, 0.5)),
        # What grows past that ends the comparing, but not in the first three steps.
        ({"seed": moved(*[0.5] * 5), "nudged": moved(0, 2**-12, 2**-14, 2**-10, 2**-5)}, [], (),
         ((FLOOR, 2**-8, 2**-8, 2**-6), 1e-3, 0.5)),
        ({"seed": moved(*[0.5] * 5), "nudged": moved(*[2**-5] * 5)}, [], (), ((0.25, 0.25, 0.25), 1e-3, 0.5)),
        # Nobody knows another seed: a quarter of the loss.
        ({"nudged": moved(*[2**-5] * 5)}, [], (), ((0.25, 0.25, 0.25), 1e-3, None)),
        ({"nudged": moved(*[2**-6] * 5)}, [], (), ((0.25,) * 5, 1e-3, None)),
        # Nothing is known: roundings of the loss.
        ({}, [], (), ((FLOOR,) * 5, 1e-3, None)),
        ({}, ["bfloat16"], (), ((2**-6,) * 5, 1e-3, None)),
        ({}, ["tf32"], (), ((2**-6,) * 5, 1e-3, None)),
        ({"seed": Curve((1.5,) * 5, dtypes=("bfloat16",))}, ["float32"], (), ((2**-6,) * 5, 1e-3, 0.5)),
        # Another seed hardly moves the losses: the floor is allowed all the same.
        ({"seed": moved(*[2**-30] * 5)}, [], (), ((FLOOR,) * 5, 1e-3, 2**-30)),
        # A coarser type is measured by rounding to it, and 8 times as much is allowed; the floor is that of float32.
        ({"bfloat16_0": moved(0, 2**-12, 0, 0, 0), "bfloat16_1": moved(0, 0, 2**-10, 0, 0), "nudged": moved(*[1] * 5)},
         ["bfloat16"], (), ((FLOOR, 2**-9, 2**-7, 2**-7, 2**-7), 1e-3, None)),
        # Two runs of the user's code differ: twice as much is allowed, whatever another seed does.
        ({"seed": moved(*[0.5] * 5)}, [], (0.0, 2**-4, 0.0, 0.0, 0.0, 0.0),
         ((FLOOR, 2**-3, 2**-3, 2**-3, 2**-3), 2**-3, 0.5)),
        ({"seed": moved(*[2**-6] * 5)}, [], (0.0, 2**-4), ((FLOOR, 2**-3, 2**-3), 2**-3, 2**-6)),
        # The average is held to what moves it.
        ({"nudged": Curve((1.0,) * 5, (1.0 + 2**-8,))}, [], (), ((0.0 + FLOOR,) * 5, 2**-4, None)),
    ],
)  # fmt: skip
def test_the_tolerance_of_each_step(runs: Any, names: list[str], repeats: Any, found: Any) -> None:
    own = Own(first=Curve((1.0,) * 5, (1.0,)), **runs)
    steps, average, spread = found
    assert tolerance.tolerance(own.reference, names, 5, repeats) == Tolerance(steps, average, spread)


@pytest.mark.parametrize(
    ("names", "share"), [([], 2**-18), (["float16"], 2**-8), (["bfloat16"], 2**-8), (["strange"], 2**-18)]
)
def test_how_far_parameters_are_nudged(names: list[str], share: float) -> None:
    own = Own(first=ONES)
    tolerance.tolerance(own.reference, names, 5, ())
    assert [command["nudge"] for command in own.asked if "nudge" in command] == [share]


@pytest.mark.parametrize(
    ("spread", "found", "average", "allowed"),
    [
        (0.25, [0.125, 0.25], 0.5, True),
        (0.25, [0.125 * MORE, 0.0], 0.0, False),
        (0.25, [0.0, 0.25 * MORE], 0.0, False),
        (0.25, [0.0, 0.0], 0.5 * MORE, False),
        (0.25, [0.0, 0.0, 0.75, 0.25], 0.0, True),  # later steps: twice what another seed makes, on average
        (0.25, [0.0, 0.0, 0.75, 0.25 * MORE], 0.0, False),
        (0.0625, [0.0, 0.0, 0.25], 0.0, True),  # or as much as any step before them
        (None, [0.0, 0.0, 0.25], 0.0, True),
        (None, [0.0, 0.0, 0.25 * MORE], 0.0, False),
    ],
)
def test_what_is_allowed(spread: float | None, found: list[float], average: float, allowed: bool) -> None:
    assert Tolerance((0.125, 0.25), 0.5, spread).allows(found, average) is allowed


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([0.0, 0.0, 0.0], "3 steps from one seed give the same losses to the bit"),
        ([0.0, 0.02], "2 steps from one seed agree within 2.0e-02 of the loss (largest at step 2; tolerance 2.5e-01)"),
        ([0.02], "1 steps from one seed agree within 2.0e-02 of the loss (largest at step 1; tolerance 1.2e-01)"),
        (
            [0.02, 0.01, 0.03, 0.5, 0.4],
            "2 steps from one seed agree within 2.0e-02 of the loss (largest at step 1; tolerance 1.2e-01); of the 3 steps "
            "after them, where roundings grow to what another seed changes, 5.0e-01 at step 4",
        ),
    ],
)
def test_words_of_an_agreement(found: list[float], words: str) -> None:
    assert Tolerance((0.125, 0.25), 0.5, None).words(found) == words
    assert largest(found) == found.index(max(found))


# ---- gradients ---------------------------------------------------------------------------------------------------------

ONE_NUDGE = 2**-18


def said(
    gap: float, changes: tuple[str, ...], names: list[str], *, same_losses: bool = True, **runs: Any
) -> tuple[str, list[Json]]:
    own = Own(**runs)
    curve = Curve((1.0,), gradients=FirstGradients(gap, "w"))
    base = Curve((1.0 if same_losses else 2.0,))
    try:
        return said_of_gradients(curve, base, changes, names, own.reference), own.asked
    except TrialFailed as failure:
        return f"refused: {failure}", own.asked


def moves(again: float, stream: float, nudged: float) -> Curve:
    return Curve((), sensitivity=Sensitivity(again, stream, nudged))


def agree(gap: float, limit: float) -> str:
    return f"; the gradients of the first step agree within {gap:.1e} (worst: w, tolerance {limit:.1e})"


ROUNDING = ("rounding",)


@pytest.mark.parametrize(
    ("gap", "moved_by", "limit"),
    [
        (2**-13, moves(0, 0, 2**-14), 2**-13),  # up to 16 times the nudge is smooth: twice
        (2**-13 * MORE, moves(0, 0, 2**-14), None),
        (2**-12, moves(0, 0, 2**-14 * MORE), 2**-12),  # beyond, they jump: four times
        (2**-10, moves(2**-12, 0, 0), 2**-10),  # or four times what two runs differ by
        (2**-10 * MORE, moves(2**-12, 0, 0), None),
        (0.75, moves(0, 0, 0.5), 0.75),
        (0.75 * MORE, moves(0, 0, 0.5), None),
    ],
)
def test_how_far_gradients_may_lie(gap: float, moved_by: Curve, limit: float | None) -> None:
    found, asked = said(gap, ROUNDING, [], sensitivity=moved_by)
    assert (
        found == agree(gap, limit) if limit is not None else found.startswith("refused: more than the promised change")
    )
    assert [command["nudge"] for command in asked if command["do"] == "sensitivity"] == [ONE_NUDGE]


def test_gradients_within_roundings_of_their_norm_need_no_other_run() -> None:
    small, large = 2**-15, 2**-4
    for gap, names, asked in ((small, [], []), (small * MORE, [], ["losses", "losses", "sensitivity"])):
        found = said(gap, ROUNDING, names, sensitivity=moves(0, 0, 1.0))
        assert [command["do"] for command in found[1]] in (asked, asked[1:])
    assert said(large, ROUNDING, ["bfloat16"])[0] == "; the gradients of the first step agree within 6.2e-02 (worst: w)"
    assert said(large * MORE, ROUNDING, ["bfloat16"])[0].startswith("refused: ")


def test_a_coarser_type_is_measured_by_rounding_to_it() -> None:
    found, asked = said(0.25, ROUNDING, ["bfloat16"], sensitivity=moves(0, 0, 0.0625))
    assert found == agree(0.25, 0.25)  # whatever it is, it is no smooth move: four times
    assert [(command["nudge"], command.get("rounded")) for command in asked] == [(0.0, "bfloat16")]
    found, asked = said(0.25, ROUNDING, ["bfloat16"], sensitivity=moves(0, 0, 0.0))  # compiled: it moves nothing
    assert [(c["nudge"], c.get("rounded")) for c in asked if c["do"] == "sensitivity"] == [
        (0.0, "bfloat16"),
        (2**-8, None),
    ]
    assert found.startswith("refused: ")


def test_a_type_that_autocast_brings_counts() -> None:
    found, asked = said(2**-4, ROUNDING, [], seed=Curve((1.0,), dtypes=("bfloat16",)), sensitivity=moves(0, 0, 0))
    assert found == agree(2**-4, 2**-4)
    assert [command["nudge"] for command in asked if command["do"] == "sensitivity"] == [2**-8]


@pytest.mark.parametrize(
    ("gap", "changes", "runs", "expected"),
    [
        (0.5, (), {"sensitivity": moves(0.05, 0, 0), "same_losses": False}, "refused: more than the promised change (nothing "
         "but speed): the gradients of the first step differ by 5.0e-01 of their norm (worst: w)"),
        (0.5, (), {"sensitivity": moves(0.05 * MORE, 0, 0)}, "; the gradients of the first step are not compared: two runs of "
         "your own code differ by 5.0e-02"),
        # Losses are the same to the bit and nothing may change: only code that does not repeat itself is excused.
        (2**-15, (), {"sensitivity": moves(0, 0, 1)}, "refused: more than the promised change (nothing but speed): the "
         "gradients of the first step differ by 3.1e-05 of their norm (worst: w)"),
        (2**-15, (), {"sensitivity": moves(2**-20, 0, 0)}, agree(2**-15, 2**-15)),
        (2**-15, (), {"sensitivity": moves(0, 0, 0), "same_losses": False}, agree(2**-15, 2**-15)),
        (0.5, ("rng",), {"sensitivity": moves(0, 2**-15, 0)}, "refused: more than the promised change (rounding): the "
         "gradients of the first step differ by 5.0e-01 of their norm (worst: w, tolerance 3.1e-05)"),
        (0.5, ("rng",), {"sensitivity": moves(0, 2**-15 * MORE, 0)}, "; the gradients of the first step are not compared: the "
         "step draws random numbers"),
        (2.94e-5, ("precision",), {}, "; fewer bits move the gradients of the first step by 0.0029 % of their norm (worst: w)"),
        (0.5, ("precision", "rounding"), {"sensitivity": moves(0, 0, 0)}, "refused: more than the promised change (precision): "
         "the gradients of the first step differ by 5.0e-01 of their norm (worst: w, tolerance 3.1e-05)"),
    ],
)  # fmt: skip
def test_what_is_said_of_gradients(gap: float, changes: tuple[str, ...], runs: Any, expected: str) -> None:
    assert said(gap, changes, [], **runs)[0] == expected


# ---- doubles -----------------------------------------------------------------------------------------------------------


def doubles(losses: tuple[float, ...] = (1.0,), why: str = "", **rows: tuple[float, ...]) -> exact.Exact:
    return exact.Exact(losses, {name.replace("_", " "): row for name, row in rows.items()}, why)


@pytest.mark.parametrize(
    ("mine", "base", "found"),
    [
        (doubles((1.0, 3.0)), doubles((2.0, 4.0)), {"losses": 0.5}),  # the larger one
        (doubles((1e-12,)), doubles((0.0,)), {"losses": 1.0}),
        (doubles((math.nan,)), doubles((1.0,)), {"losses": math.inf}),
        (doubles(()), doubles(()), {"losses": 0.0}),
        (doubles((1.0,)), doubles((1.0, 1.0)), {"losses": math.inf}),
        (doubles(update_of_a=(4, 2)), doubles(update_of_a=(4, 2)), {"losses": 0.0, "update of a": 0.0}),
        # |Δ| is the root mean square of what the products differ by, and the norm is the base's.
        (doubles(update_of_a=(4, 9, 3, 0)), doubles(update_of_a=(4, 5, 0, 4)), {"losses": 0, "update of a": 12.5**0.5 / 5}),
        # A tenth of the usual element, which is 10 / 4 over both: times 2 elements' root.
        (doubles(update_of_a=(96, 10, 1), update_of_b=(4, 0, 1)), doubles(update_of_a=(96, 10, 1), update_of_b=(4, 0, 0)),
         {"losses": 0, "update of a": 0, "update of b": 5.0}),
        # Of another kind there is another usual one: nothing but zeros has none.
        (doubles(update_of_a=(4, 2, 1), buffer_of_b=(4, 0, 1)), doubles(update_of_a=(4, 2, 1), buffer_of_b=(4, 0, 0)),
         {"losses": 0, "update of a": 0, "buffer of b": math.inf}),
        # No gradient counts as zeros, on either side; another number of elements is another parameter.
        (doubles(gradient_of_a=(0, 0, 0)), doubles(gradient_of_a=(4, 2, 0)), {"losses": 0, "gradient of a": 0}),
        (doubles(gradient_of_a=(4, 0, 0)), doubles(gradient_of_a=(0, 0, 0)), {"losses": 0, "gradient of a": 0}),
        (doubles(gradient_of_a=(5, 2, 0)), doubles(gradient_of_a=(4, 2, 0)), {"losses": 0, "gradient of a": math.inf}),
        (doubles(buffer_of_a=(4, 2, 0)), doubles(), {"losses": 0}),
        (doubles(), doubles(buffer_of_a=(4, 2, 0)), {"losses": 0}),
        (doubles(), doubles(update_of_a=(4, 2, 0)), {"losses": 0, "update of a": math.inf}),
    ],
)  # fmt: skip
def test_gaps_in_doubles(mine: exact.Exact, base: exact.Exact, found: dict[str, float]) -> None:
    assert exact.gaps(mine, base) == pytest.approx(found)


LIMIT = 2**-20  # 16 roundings of single precision


def test_what_is_said_of_doubles() -> None:
    base = doubles((1.0, 1.0), update_of_a=(4, 1, 0))
    never: Any = pytest.fail
    at = doubles((1.0, 1.0 + LIMIT), update_of_a=(4, 1, 0))
    assert exact.said_of_exact(at, base, never) == (
        "; in double precision losses, gradients and updates of 2 steps agree within 9.5e-07"
    )
    beyond = doubles((1.0, 1.0 + 2 * LIMIT), update_of_a=(4, 1, 3 * LIMIT))
    refused = "more than the promised change: in double precision, where rounding cannot explain it, the "
    for nudged, words in (
        (doubles(why="too long"), "update of a differs by 2.9e-06 (tolerance 9.5e-07)"),
        (base, "update of a differs by 2.9e-06 (tolerance 9.5e-07)"),
        # What a nudge moves is excused sixteen times: the update by more than it moved, the losses not.
        (doubles((1.0, 1.0), update_of_a=(4, 1, LIMIT)), "losses differ by 1.9e-06 (tolerance 9.5e-07)"),
        (
            doubles((1.0, 1.0 + LIMIT), update_of_a=(4, 1, LIMIT / 8)),
            "update of a differs by 2.9e-06 (tolerance 1.9e-06)",
        ),
    ):
        with pytest.raises(TrialFailed) as failed:
            exact.said_of_exact(beyond, base, lambda nudged=nudged: nudged)
        assert str(failed.value) == refused + words
    worse = doubles((1.0, 1.0 + 4 * LIMIT), update_of_a=(4, 1, 3 * LIMIT))
    with pytest.raises(TrialFailed, match=r"the losses differ by 3\.8e-06"):
        exact.said_of_exact(worse, base, lambda: base)
    both = doubles((1.0, 1.0 + LIMIT / 8), update_of_a=(4, 1, 3 * LIMIT / 16))
    assert exact.said_of_exact(beyond, base, lambda: both).endswith("agree within 2.9e-06")
    assert exact.said_of_exact(doubles(why="no"), base, never) == "; not compared in double precision: no"


def test_a_reply_in_doubles_is_read_whole() -> None:
    assert exact.exact_of(None) == exact.Exact(why="it could not be run so")
    assert exact.exact_of({"why": "complex"}) == exact.Exact(why="complex")
    assert exact.exact_of({}) == exact.Exact(why="there was nothing to compare")
    assert exact.exact_of({"losses": [(0.5).hex()], "rows": {"a": ["7", (1.5).hex(), (-2.0).hex()]}}) == exact.Exact(
        (0.5,), {"a": (7.0, 1.5, -2.0)}
    )


def test_doubles_are_compared_where_the_function_stays_and_nudged_by_64_roundings() -> None:
    """The patch moves an update that a nudge moves as well; what changes more than roundings is not compared."""
    asked: list[tuple[str, float]] = []

    def ask_of(variant: Variant, command: Json) -> Json:
        asked.append((variant.key, command["nudge"]))
        moved_by = 0.5 if variant.key != "base" or command["nudge"] else 0.0
        return {"losses": [(1.0).hex()], "rows": {"update of a": ["4", (1.0).hex(), moved_by.hex()]}}

    own = Own(first=ONES)
    own.reference.ask_of = ask_of
    changes = {"round": ("rounding",), "bits": ("precision",), "other": ("rounding", "rng"), "safe": ()}
    with Verifier("base", changes, own.reference) as verifier:
        for key in ("base", *changes):
            verifier.check(FakeChild(1.0, 0.5), Variant(key, "", {}), USUAL)  # type: ignore[arg-type]  # a stand-in
    same = "2 steps from one seed give the same losses to the bit"
    agreed = f"{same}; in double precision losses, gradients and updates of 1 steps agree within 5.0e-01"
    assert verifier.said == {
        "round": agreed, "bits": agreed, "other": f"{same}; not compared in double precision: it changes rng", "safe": same
    }  # fmt: skip
    assert asked == [("base", 0.0), ("round", 0.0), ("base", 2**-47), ("bits", 0.0)]
