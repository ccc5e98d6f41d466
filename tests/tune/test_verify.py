"""What a fix promises about the losses is held to, in words that say what was checked."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.measure.runner import TrialFailed, Variant
from perfaudit.tune.verify import Verifier


class FakeChild:
    """Answers every question for losses with these."""

    def __init__(self, *losses: float) -> None:
        self.reply = {"losses": [value.hex() for value in losses] or None, "why": ""}

    def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
        return self.reply


def judged(base: list[float], patched: list[float], *changes: str, again: list[float] | None = None) -> str:
    """What is said of a patch, in the order of a race: the base once, then the patch; `again` is the base in a fresh process."""
    with Verifier("base", {"patch": changes}, base_again=lambda: base if again is None else again) as verifier:
        verifier.check(FakeChild(*base), Variant("base", "patch", {}), {})  # type: ignore[arg-type]  # a stand-in
        verifier.check(FakeChild(*patched), Variant("patch", "patch", {}), {})  # type: ignore[arg-type]
        return verifier.said["patch"]


ONE = [1.0, 0.5, 0.25]
NEAR = [1.0, 0.5, 0.25 * (1 + 1e-6)]
FAR = [1.0, 0.5, 0.3]
NAN = [1.0, float("nan"), float("nan")]


@pytest.mark.parametrize(
    ("patched", "changes", "said"),
    [
        (ONE, (), "3 steps from one seed give the same losses to the bit"),
        (ONE, ("rounding",), "3 steps from one seed give the same losses to the bit"),
        (NEAR, ("rounding",), "3 steps from one seed agree within 1.0e-06 of the loss"),
        (
            FAR,
            ("rng",),
            "the losses of 3 steps from one seed differ by up to 2.0e-01 of the loss, as another random stream may make them",
        ),
        (FAR, ("algorithm",), "losses are finite; equality is not promised, the patch changes what is learnt from"),
        ([], ("checkpoint",), "not compared: the patch changes which parameters there are"),
    ],
)
def test_a_promise_kept(patched: list[float], changes: tuple[str, ...], said: str) -> None:
    assert judged(ONE, patched, *changes) == said


@pytest.mark.parametrize(
    ("patched", "changes", "why"),
    [
        (NEAR, (), r"more than the promised change \(nothing but speed\)"),
        (FAR, ("rounding",), r"more than the promised change \(rounding\)"),
        ([9.0, 40.0, 1e6], ("rng", "checkpoint"), r"more than the promised change \(another random stream\)"),
        ([1.0], ("rounding",), "gives 1 losses and averages, the unpatched 3"),
        (NAN, ("algorithm",), "does not train"),
    ],
)
def test_a_promise_broken_withdraws_the_patch(patched: list[float], changes: tuple[str, ...], why: str) -> None:
    with pytest.raises(TrialFailed, match=why):
        judged(ONE, patched, *changes)


def test_a_training_that_does_not_repeat_itself_cannot_prove_equality() -> None:
    assert "does not repeat its own losses" in judged(ONE, NEAR, again=FAR)


def test_nan_losses_of_the_users_own_are_no_fault_of_the_patch() -> None:
    assert judged(NAN, NAN) == "not compared: the losses of the unpatched code are not finite"


def test_without_the_base_nothing_is_compared_and_nothing_is_blamed_on_the_patch() -> None:
    with Verifier("base", {"patch": ()}) as verifier, pytest.raises(TrialFailed, match="that could not be run"):
        verifier.check(FakeChild(*ONE), Variant("patch", "patch", {}), {})  # type: ignore[arg-type]  # a stand-in
