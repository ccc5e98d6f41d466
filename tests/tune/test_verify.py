"""What a fix promises about the losses is held to, in words that say what was checked."""

from __future__ import annotations

import contextlib
import json
import types
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from surveys import USUAL, facts, profile_of, survey_of
from test_search import Kept

from perfaudit.errors import NoBatches
from perfaudit.measure import of_script
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.facts import Facts, Script
from perfaudit.measure.lab import ChildLab, build_command
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.tune.gradients import said_of_gradients
from perfaudit.tune.questions import Questions
from perfaudit.tune.same_start import BEGAN_ALIKE
from perfaudit.tune.tolerance import (
    Curve,
    FirstGradients,
    Reference,
    Sensitivity,
    curve_of,
    gaps,
    roundoff,
    steps_to_compare,
    tolerance,
    types_of,
)
from perfaudit.tune.verify import Verifier

Project = Callable[..., Path]
Json = dict[str, Any]


class FakeChild:
    """Answers every question for losses with these. more: what else is in the reply."""

    def __init__(self, *losses: float, why: str = "", average: tuple[float, ...] = (), **more: Any) -> None:
        hexed = [[value.hex() for value in values] for values in (losses, average)]
        self.reply = {"losses": hexed[0], "average": hexed[1], "why": why, **more}

    def ask(self, command: Json, timeout: float) -> Json:
        return self.reply


ONE = [1.0, 0.5, 0.25, 0.2]
NEAR = [1.0, 0.5, 0.25 * (1 + 1e-6), 0.2]
FAR = [1.0, 0.5, 0.3, 0.2]
NAN = [1.0, float("nan"), float("nan"), 0.0]
NUDGED = [1.0, 0.5, 0.25 * (1 + 1e-5), 0.2]
OTHER = [1.1, 0.55, 0.3, 0.22]


def own(command: Json, **runs: list[float] | None) -> Curve | None:
    """What the user's code gives when it is run again, as the command says; `runs` replaces some of these."""
    kind = (
        "seed" if "build_seed" in command else "nudge" if "nudge" in command else "again" if "run" in command
        else "stream" if command["seed"] != 20_231 else "first"
    )  # fmt: skip
    losses = {"seed": OTHER, "nudge": NUDGED, "again": ONE, "stream": OTHER, "first": ONE, **runs}[kind]
    return None if losses is None else Curve(tuple(losses))


def judged(
    base: list[float],
    patched: list[float],
    *changes: str,
    why: str = "",
    facts: Facts = USUAL,
    start: Json | None = None,
    **runs: Any,
) -> str:
    """What is said of a patch, in the order of a race: the base once, then the patch; `runs` are those of `own`."""
    reference = Reference(lambda command: own(command, **runs), lambda variant: 0)
    with Verifier("base", {"patch": changes}, reference) as verifier:
        begun = {"start": "", "streams": "a"} if start is not None else {}
        verifier.check(FakeChild(*base, **begun), Variant("base", "patch", {}), facts)  # type: ignore[arg-type]  # a stand-in
        child = FakeChild(*patched, why=why, **{**begun, **(start or {})})
        verifier.check(child, Variant("patch", "patch", {}), facts)  # type: ignore[arg-type]
        return verifier.said["patch"]


AGREE = "4 steps from one seed agree within 1.0e-06 of the loss (largest at step 3; tolerance 3.8e-06)"
FURTHER = [*ONE[:2], ONE[2] * (1 + 1e-5), *ONE[3:]]
AGREE_AS_NUDGED = "4 steps from one seed agree within 1.0e-05 of the loss (largest at step 3; tolerance 1.6e-04)"


@pytest.mark.parametrize(
    ("patched", "changes", "said"),
    [
        (ONE, (), "4 steps from one seed give the same losses to the bit"),
        (ONE, ("rounding",), "4 steps from one seed give the same losses to the bit"),
        (NEAR, ("rounding",), AGREE),
        (NEAR, ("checkpoint",), AGREE),
        (FURTHER, ("rounding",), AGREE_AS_NUDGED),
        (FURTHER, ("checkpoint",), AGREE_AS_NUDGED),
        (
            FAR,
            ("rng",),
            "from the same parameters the losses of 4 steps differ by 5.0e-02 on average (largest 2.0e-01 at step 3); in "
            "your own code another random stream makes 1.3e-01",
        ),
        (
            FAR,
            ("algorithm",),
            "the losses of 4 steps are finite (they differ by up to 2.0e-01, at step 3); equality is not claimed, because "
            "the patch changes what is computed",
        ),
        (
            FAR,
            ("order",),
            "the losses of 4 steps are finite (they differ by up to 2.0e-01, at step 3); equality is not claimed, because "
            "the patch changes the order in which samples come",
        ),
    ],
)
def test_a_promise_kept(patched: list[float], changes: tuple[str, ...], said: str) -> None:
    assert judged(ONE, patched, *changes) == said


@pytest.mark.parametrize(
    ("patched", "changes", "why"),
    [
        (
            NEAR,
            (),
            r"more than the promised change \(nothing but speed\): .* up to 1.0e-06 of the loss \(largest at step 3",
        ),
        (FAR, ("rounding",), r"more than the promised change \(rounding\)"),
        (FAR, ("checkpoint",), r"more than the promised change \(rounding\)"),
        ([9.0, 40.0, 1e6, 1.0], ("rng", "checkpoint"), r"more than the promised change \(another random stream\)"),
        ([1.0], ("rounding",), "gives 1 losses and 0 sums of an average, the unpatched 4 and 0"),
        (NAN, ("algorithm",), "does not train"),
    ],
)
def test_a_promise_broken_withdraws_the_patch(patched: list[float], changes: tuple[str, ...], why: str) -> None:
    with pytest.raises(TrialFailed, match=why):
        judged(ONE, patched, *changes)


def test_another_random_stream_of_a_script_is_not_called_a_fault_of_the_patch() -> None:
    script = replace(USUAL, script=Script())
    with pytest.raises(TrialFailed, match="it could not be checked: it draws other random numbers"):
        judged(ONE, [9.0, 40.0, 1e6, 1.0], "rng", "checkpoint", facts=script)
    assert "another random stream makes" in judged(ONE, FAR, "rng", facts=script)


@pytest.mark.parametrize(
    ("patched", "start", "said"),
    [
        (NEAR, {}, f"{AGREE}{BEGAN_ALIKE}"),
        (FAR, {}, r"more than the promised change \(rounding\)"),
        (FAR, {"start": "no call"}, "your own code another random stream makes"),
        ([9.0, 40.0, 1e6, 1.0], {"start": "no call"}, "could not begin with the parameters of your code: no call"),
        ([9.0, 40.0, 1e6, 1.0], {"streams": "b"}, "other random numbers than your code, and so does its first step"),
        (
            [9.0, 40.0, 1e6, 1.0],
            {"gradients": {"gap": "0x1p0", "name": "w", "same_batch": False}},
            "the first batch comes from numbers that were drawn before",
        ),
    ],
)
def test_a_script_that_began_as_the_users_is_held_to_what_it_computes(
    patched: list[float], start: Json, said: str
) -> None:
    script, changes = replace(USUAL, script=Script()), ("rounding", "rng", "checkpoint")
    if said.startswith(AGREE):
        assert judged(ONE, patched, *changes, facts=script, start=start) == said
    elif "in your own" in said or "another" in said:
        assert said in judged(ONE, patched, *changes, facts=script, start=start)
    else:
        with pytest.raises(TrialFailed, match=said):
            judged(ONE, patched, *changes, facts=script, start=start)


@pytest.mark.parametrize(("start", "when"), [({"stood": ["a", "c"]}, "before"), ({"streams": "b"}, "in")])
def test_numbers_that_a_patch_draws_without_saying_so_withdraw_it(start: Json, when: str) -> None:
    """Streams are seeded alike in both, so the losses are equal; in the user's own run they are not."""
    script = replace(USUAL, script=Script())
    for changes in ((), ("rounding",), ("checkpoint",)):
        with pytest.raises(TrialFailed, match=f"{when} its first step, other random numbers are drawn"):
            judged(ONE, ONE, *changes, facts=script, start=start)
    for changes in (("rng",), ("order",), ("algorithm",)):
        assert "the same losses to the bit" in judged(ONE, ONE, *changes, facts=script, start=start)


def test_only_patches_that_draw_other_parameters_begin_with_those_of_the_users() -> None:
    changes: dict[str, tuple[str, ...]] = {"bias": ("rounding", "rng", "checkpoint"), "loader": ("rng",)}
    base, bias, loader = (Variant(key, "patch", {}) for key in ("base", *changes))
    reference = Reference(own, lambda variant: 0, is_of_script=True)
    with Verifier("base", changes, reference) as verifier:
        saved, loaded = verifier.start_of(base), verifier.start_of(bias)
        assert saved is not None and loaded is not None and saved["save"] == loaded["load"]
        assert verifier.start_of(loader) is None
        verifier.check(FakeChild(*ONE, start="", streams="a"), base, replace(USUAL, script=Script()))  # type: ignore[arg-type]
        assert verifier.start_of(base) is None  # once is enough
    with Verifier("base", {"loader": ("rng",)}, reference) as verifier:
        assert verifier.start_of(base) is None
    with Verifier("base", changes, Reference(own, lambda variant: 0)) as verifier:
        assert verifier.start_of(base) is None  # factories are built before their parameters are copied


def test_nothing_is_run_again_for_losses_that_agree_within_single_roundings() -> None:
    def never(command: Json) -> Curve | None:
        raise AssertionError(command)

    with Verifier("base", {"a": ("rounding",)}, Reference(never, lambda variant: 0)) as verifier:
        verifier.check(FakeChild(*ONE), Variant("base", "patch", {}), USUAL)  # type: ignore[arg-type]
        verifier.check(FakeChild(*NEAR), Variant("a", "patch", {}), USUAL)  # type: ignore[arg-type]
        assert verifier.said["a"] == AGREE


def test_nothing_is_run_again_for_losses_that_are_equal() -> None:
    def never(command: Json) -> Curve | None:
        raise AssertionError(command)

    with Verifier("base", {"a": (), "b": ("rng",)}, Reference(never, lambda variant: 0)) as verifier:
        for key in ("base", "a", "b"):
            verifier.check(FakeChild(*ONE), Variant(key, "patch", {}), USUAL)  # type: ignore[arg-type]  # a stand-in
        assert set(verifier.said) == {"a", "b"}


def test_each_way_of_running_again_is_asked_once_however_many_patches_need_it() -> None:
    asked: list[str] = []

    def ask(command: Json) -> Curve | None:
        asked.append(str(sorted(command.items())))
        return own(command)

    reference = Reference(ask, lambda variant: 0)
    for _ in range(2):
        changes = {"a": ("rounding",), "b": ("rng",), "c": ()}
        with Verifier("base", changes, reference) as verifier:
            for key, losses in (("base", ONE), ("a", NEAR), ("b", FAR), ("c", NEAR)):
                try:
                    verifier.check(FakeChild(*losses), Variant(key, "patch", {}), USUAL)  # type: ignore[arg-type]
                except TrialFailed:
                    assert key == "c"
    assert len(asked) == len(set(asked)) == 4  # from another seed, nudged, another stream, the same again


@pytest.mark.parametrize("changes", [(), ("rounding",)])
def test_code_that_nearly_repeats_itself_widens_what_is_allowed_and_is_told(changes: tuple[str, ...]) -> None:
    said = judged(ONE, [1.0, 0.5, 0.25, 0.2002], *changes, again=[1.0, 0.5, 0.25, 0.2001])
    assert "your code does not repeat its own losses: two runs from one seed differ by up to 5.0e-04" in said
    assert ("equality to the bit could not be checked" in said) == (not changes)


def test_a_patch_beyond_the_gap_of_two_runs_is_withdrawn() -> None:
    with pytest.raises(TrialFailed, match=r"nothing but speed.*your code does not repeat its own losses"):
        judged(ONE, FAR, again=[1.0, 0.5, 0.25, 0.2001])


@pytest.mark.parametrize("changes", [(), ("rounding",)])
def test_code_that_hardly_repeats_itself_proves_nothing(changes: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match=r"verification refused: your code does not repeat .* up to 2.0e-01"):
        judged(ONE, FAR, *changes, again=[1.0, 0.6, 0.25, 0.2])


def test_nan_losses_of_the_users_own_are_no_fault_of_the_patch() -> None:
    assert judged(NAN, NAN) == "not compared: the losses of the unpatched code are not finite"


def test_a_loss_that_never_moves_proves_little() -> None:
    assert judged([2.0] * 4, [2.0] * 4) == (
        "4 steps from one seed give the same losses to the bit; all of them are one loss, so that says little"
    )


def test_without_the_base_nothing_is_compared_and_nothing_is_blamed_on_the_patch() -> None:
    reference = Reference(own, lambda variant: 0)
    with Verifier("base", {"patch": ()}, reference) as verifier, pytest.raises(TrialFailed, match="could not be run"):
        verifier.check(FakeChild(*ONE), Variant("patch", "patch", {}), USUAL)  # type: ignore[arg-type]  # a stand-in


def test_other_parameters_may_train_as_another_initialisation_does_and_no_worse() -> None:
    said = judged(ONE, OTHER, "checkpoint", why="such as head.weight")
    assert said.startswith(
        "not compared step by step: the patch changes which parameters there are, such as head.weight"
    )
    with pytest.raises(TrialFailed, match="more than another initialisation explains"):
        judged(ONE, [9.0] * 4, "checkpoint", why="such as head.weight")


@pytest.mark.parametrize("change", ["rng", "algorithm", "order"])
def test_that_double_precision_was_not_asked_is_said(change: str) -> None:
    reference = Reference(own, lambda variant: 0, ask_of=lambda variant, command: pytest.fail("asked"))
    with Verifier("base", {"patch": (change, "rounding")}, reference) as verifier:
        for key in ("base", "patch"):
            verifier.check(FakeChild(*ONE), Variant(key, "patch", {}), USUAL)  # type: ignore[arg-type]  # a stand-in
        assert verifier.said["patch"].endswith(f"; not compared in double precision: it changes {change}")


def test_a_user_whose_code_cannot_be_run_again_is_held_to_roundings_of_the_loss() -> None:
    assert "tolerance 3.8e-06" in judged(ONE, NEAR, "rounding", seed=None, nudge=None)


@pytest.mark.parametrize(("budget", "fits"), [(3 << 20, True), (1 << 20, False)])
def test_the_peak_of_a_step_is_within_the_memory_budget(budget: int, fits: bool) -> None:
    reference = Reference(own, lambda variant: 2 << 20)
    with Verifier("base", {"patch": ()}, reference, memory_budget=budget) as verifier:
        verifier.check(FakeChild(*ONE), Variant("base", "patch", {}), USUAL)  # type: ignore[arg-type]  # a stand-in
        if fits:
            verifier.check(FakeChild(*ONE), Variant("patch", "patch", {}), USUAL)  # type: ignore[arg-type]
        else:
            with pytest.raises(TrialFailed, match=r"is 2\.0 MiB, more than the memory budget of 1\.0 MiB"):
                verifier.check(FakeChild(*ONE), Variant("patch", "patch", {}), USUAL)  # type: ignore[arg-type]
        assert verifier.peaks == {"base": 2 << 20, "patch": 2 << 20}


def test_the_peak_is_told_by_the_process_that_is_checked() -> None:
    reference = Reference(own, lambda variant: pytest.fail("started"), tells_memory=True)
    with Verifier("base", {"patch": ()}, reference, memory_budget=1 << 20) as verifier:
        for key in ("base", "patch"):
            child: Any = FakeChild(*ONE, memory={"peak_bytes": 2 << 20, "taken_bytes": None})
            with pytest.raises(TrialFailed, match="memory budget") if key == "patch" else contextlib.nullcontext():
                verifier.check(child, Variant(key, "patch", {}), USUAL)
        assert verifier.peaks == {"base": 2 << 20, "patch": 2 << 20}


@pytest.mark.parametrize(
    ("peak", "why"), [(1, ""), (2 << 20, "more than the memory budget"), (None, "could not be told.*: out of memory")]
)
def test_a_peak_that_the_process_that_is_checked_has_not_told_is_told_by_another(peak: int | None, why: str) -> None:
    asked = []

    def peak_of(variant: Variant) -> int:
        asked.append(variant.key)
        if peak is None:
            raise ChildFailed("oom", "out of memory")
        return peak

    reference = Reference(own, peak_of, tells_memory=True)
    with Verifier("base", {"patch": ()}, reference, memory_budget=1 << 20) as verifier:
        verifier.check(FakeChild(*ONE, memory=None), Variant("base", "patch", {}), USUAL)  # type: ignore[arg-type]
        with pytest.raises(TrialFailed, match=why) if why else contextlib.nullcontext():
            verifier.check(FakeChild(*ONE, memory=None), Variant("patch", "patch", {}), USUAL)  # type: ignore[arg-type]
    assert asked == ["patch"]  # what your own code takes decides nothing


@pytest.mark.parametrize(
    ("error", "has_ended", "told"),
    [
        (NoBatches("ended"), True, True),
        (FileNotFoundError("checkpoints/1.pt"), True, True),  # its own, where it saves
        (ValueError("a bad sample"), False, False),
        (RuntimeError("out of memory"), True, False),
    ],
)
def test_only_the_end_of_a_script_leaves_its_peak_untold(
    monkeypatch: pytest.MonkeyPatch, error: Exception, has_ended: bool, told: bool
) -> None:
    def raising(training: Any) -> None:
        raise error

    monkeypatch.setattr(of_script, "memory_of_script", raising)
    with contextlib.nullcontext() if told else pytest.raises(type(error)):
        assert of_script._memory(types.SimpleNamespace(has_ended=has_ended)) is None


def test_a_peak_that_a_process_has_told_is_known_to_whoever_asks_later() -> None:
    kept, told, variant = Kept(), {"peak_bytes": 7, "taken_bytes": None}, Variant("all", "", {})
    for questions in (Questions(Counting(), kept), Questions(Counting(), kept)):  # type: ignore[arg-type]  # what it needs
        if questions.known_peak(variant) is None:
            assert questions.keep_peak(variant, told) == 7
        assert (questions.known_peak(variant), questions.peak_of(variant)) == (7, 7)


GPU = {"type": "cuda", "name": "a GPU", "room": 1 << 30}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({}, True),
        ({"device": GPU}, False),  # its allocator keeps what it took
        ({"device": GPU, "script": Script()}, True),
    ],
)
def test_who_is_asked_for_a_peak(given: dict[str, Any], told: bool) -> None:
    profile = profile_of(survey_of(**given), seconds_per_step=0.2)
    assert Questions(Counting(), Kept()).reference(profile).tells_memory is told  # type: ignore[arg-type]  # a stand-in


class Counting:
    """A workshop that says the same losses to every question, and keeps the commands."""

    def __init__(self) -> None:
        self.commands: list[Json] = []

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        assert not variant.overlay
        self.commands += commands
        return [{}, *({"losses": [(1.0).hex()] * 4, "average": [], "why": "", "peak_bytes": 7} for _ in commands)]


def test_what_running_the_users_code_again_showed_is_remembered_by_a_resumed_run() -> None:
    record = Kept()
    for run in range(2):
        shop = Counting()
        profile = profile_of(survey_of(), seconds_per_step=0.2)
        reference = Questions(shop, record).reference(profile)  # type: ignore[arg-type]  # a stand-in
        for _ in range(2):
            assert reference.again() == [0.0, 0.0, 0.0, 0.0, 0.0]
            assert reference.peak_of(Variant("base", "", {})) == 7
        asked = [(command["do"], command.get("steps")) for command in shop.commands]
        assert asked == ([("losses", 10), ("losses", 10), ("memory", None)] if run == 0 else [])


class Rounding:
    """A workshop of a script whose first gradients lie so far apart when its matmuls round, by draw."""

    def __init__(self, *gaps: float) -> None:
        self.gaps, self.asked = gaps, list[str]()

    def ask(self, variant: Variant, command: Json) -> list[Json]:
        self.asked.append(variant.key)
        assert command["steps"] == 0
        gap = self.gaps[int(str(variant.settings["draw"]))] if variant.settings else 0.0
        return [{}, {"losses": [], "gradients": {"gap": gap.hex(), "name": "head.weight"}}]


def test_how_far_a_type_moves_a_scripts_first_gradients_is_seen_in_processes_of_their_own() -> None:
    shop, record = Rounding(0.02, 0.1), Kept()
    profile = profile_of(survey_of(script=Script()), seconds_per_step=0.2)
    for _ in range(2):  # the second run goes on with what the first one has seen
        reference = Questions(shop, record).reference(profile)  # type: ignore[arg-type]  # a stand-in
        near, far = (Curve((1.0,), gradients=FirstGradients(gap, "head.weight")) for gap in (0.05, 0.3))
        said = [said_of_gradients(curve, near, ("precision",), ["bfloat16"], reference) for curve in (near, far)]
        assert said[0].endswith("by 5 % of their norm (worst: head.weight)")
        assert said[1].endswith("by 30 % of their norm (worst: head.weight, tolerance 4.0e-01)")
        wide = Curve((1.0,), gradients=FirstGradients(0.5, "head.weight"))
        with pytest.raises(TrialFailed, match=r"tolerance 4\.0e-01"):
            said_of_gradients(wide, near, ("precision",), ["bfloat16"], reference)
    assert shop.asked == ["again", "rounded bfloat16 0", "rounded bfloat16 1"]


# ---- tolerances -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "steps"), [(0.0, 20), (0.01, 20), (0.2, 10), (0.5, 4), (60.0, 4)])
def test_steps_that_fit(seconds: float, steps: int) -> None:
    assert steps_to_compare(seconds) == steps


@pytest.mark.parametrize(
    ("given", "one"),
    [
        ({}, 2**-24),
        ({"model": {"dtypes": ("float64",)}}, 2**-24),
        ({"model": {"dtypes": ("bfloat16", "float32")}}, 2**-8),
        ({"step_autocast": "float16"}, 2**-11),
        ({"device": {"type": "cuda"}, "flags": {"matmul_precision": "high"}}, 2**-11),
        ({"device": {"type": "cuda"}, "flags": {"cudnn.allow_tf32": True}, "model": {"convolutions": 3}}, 2**-11),
        ({"device": {"type": "cuda"}, "flags": {"cudnn.allow_tf32": True}, "model": {"convolutions": 0}}, 2**-24),
        ({"device": {"type": "cpu"}, "flags": {"cudnn.allow_tf32": True}, "model": {"convolutions": 3}}, 2**-24),
        ({"device": {"type": "cpu"}, "flags": {"matmul_precision": "medium"}}, 2**-8),
    ],
)
def test_the_coarsest_type_that_takes_part(given: Json, one: float) -> None:
    assert roundoff(types_of(facts(**given))) == one


def test_where_roundings_grow_to_another_seeds_gap_no_more_steps_are_compared() -> None:
    grown = [1.0, 0.5, 0.25, 0.22]
    limit = tolerance(Reference(lambda command: own(command, nudge=grown), lambda variant: 0), [], 4, ())
    assert len(limit.steps) == 3
    assert limit.allows([0.0, 0.0, 0.0, 0.1], 0.0)
    assert limit.words([0.0, 0.0, 1e-7, 0.1]).endswith(
        "; of the 1 steps after them, where roundings grow to what another seed changes, 1.0e-01 at step 4"
    )
    assert not limit.allows([0.0, 0.0, 0.0, 9.0], 0.0)


def test_a_loss_that_crosses_zero_is_compared_with_the_usual_loss() -> None:
    assert gaps(Curve((1.0, 1e-9, 1.0)), Curve((1.0, 0.0, 1.0))) == [0.0, 1e-8, 0.0]


# ---- gradients of the first step ---------------------------------------------------------------------------------------


def said_of_gap(
    gap: float, *changes: str, own: Sensitivity | None = None, same_batch: bool = True, why: str = ""
) -> str:
    """What is said of such a gap, where the user's own gradients move as `own` says."""
    curve = Curve((1.0,), gradients=FirstGradients(gap, "head.weight", same_batch, why))
    reference = Reference(
        lambda command: Curve((), sensitivity=own) if command["do"] == "sensitivity" else None, lambda _: 0
    )
    return said_of_gradients(curve, Curve((1.0,)), changes, [], reference)


CALM = Sensitivity(again=0.0, stream=0.0, nudged=1e-6)
DRAWS = Sensitivity(again=0.0, stream=0.6, nudged=1e-6)
SHAKY = Sensitivity(again=1e-6, stream=1e-6, nudged=1e-6)
WILD = Sensitivity(again=0.3, stream=0.3, nudged=0.3)
FIRST = "; the gradients of the first step "


@pytest.mark.parametrize(
    ("gap", "changes", "own", "said"),
    [
        (0.0, (), CALM, "are equal to the bit"),
        (0.0, ("rounding",), None, "are equal to the bit"),
        (1e-6, (), SHAKY, "agree within 1.0e-06 (worst: head.weight, tolerance 3.1e-05)"),
        (1e-6, ("rounding",), None, "agree within 1.0e-06 (worst: head.weight)"),
        (1e-6, ("rng", "checkpoint"), None, "agree within 1.0e-06 (worst: head.weight)"),
        (
            1e-3,
            ("rounding",),
            Sensitivity(0.0, 0.0, 1e-3),
            "agree within 1.0e-03 (worst: head.weight, tolerance 4.0e-03)",
        ),
        (0.5, ("rng",), DRAWS, "are not compared: the step draws random numbers"),
        (0.5, ("rng",), None, "are not compared: whether the step draws random numbers is not known"),
        (0.1, ("rounding",), WILD, "are not compared: two runs of your own code differ by 3.0e-01"),
    ],
)
def test_gradients_that_are_what_was_promised(
    gap: float, changes: tuple[str, ...], own: Sensitivity | None, said: str
) -> None:
    assert said_of_gap(gap, *changes, own=own) == FIRST + said


def test_what_a_patch_leaves_out_is_not_trained() -> None:
    """Other draws and nudges of the user's own code explain no gradient of the user's own code."""
    for size in (1e-6, 0.01):
        found = FirstGradients(size, "conv.bias", lost=(size, "conv.bias"))
        reference = Reference(lambda command: Curve((), sensitivity=DRAWS), lambda _: 0)
        with pytest.raises(TrialFailed, match="leaves out conv") if size > 1e-3 else contextlib.nullcontext():
            said_of_gradients(
                Curve((1.0,), gradients=found), Curve((1.0,)), ("rng", "checkpoint"), ["bfloat16"], reference
            )
    with pytest.raises(TrialFailed, match=r"what the patch leaves out is not trained: .* so it is"):
        said_of_gap(0.7, "rng", "checkpoint", why="so it is")


def test_gradients_that_are_not_compared() -> None:
    assert said_of_gap(0.7, "algorithm", "rounding") == said_of_gap(0.7, "order") == ""
    assert said_of_gap(0.7, "rng", own=CALM, same_batch=False).endswith("another random stream gives another batch")
    assert said_of_gap(0.7, "rounding", why="so it is") == FIRST + "are not compared: so it is"


@pytest.mark.parametrize(
    ("gap", "changes", "own", "why"),
    [
        (
            1e-7,
            (),
            CALM,
            r"nothing but speed\): the gradients of the first step differ by 1.0e-07 of their norm \(worst",
        ),
        (1e-7, (), None, "nothing but speed"),
        (1e-3, (), SHAKY, "nothing but speed"),
        (1e-4, ("rounding",), CALM, r"rounding\): .* differ by 1.0e-04 .*\(worst: head.weight, tolerance 3.1e-05\)"),
        (1e-4, ("rounding",), DRAWS, r"rounding\)"),  # from one seed, other draws are no excuse
        (0.9, ("rounding",), Sensitivity(0.0, 0.0, 0.9), "tolerance 7.5e-01"),
        (1e-2, ("rng",), CALM, r"rounding\)"),  # nothing is drawn, so nothing may change
        (float("inf"), ("rounding",), CALM, "differ by inf"),
    ],
)
def test_gradients_that_are_not_what_was_promised(
    gap: float, changes: tuple[str, ...], own: Sensitivity | None, why: str
) -> None:
    with pytest.raises(TrialFailed, match=why):
        said_of_gap(gap, *changes, own=own)


# ---- real children ----------------------------------------------------------------------------------------------------

TRAIN = """
import os
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return self.head(hidden)


def build_model():
    return Net()


def build_dataloader():
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
    return DataLoader(data, batch_size=8, shuffle=True)


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)
"""
TARGET: Json = {"file": "train.py", "names": {}}
HIDDEN = "hidden = torch.relu(self.body(x))"
BUILD = "return Net()"


def patched(before: str, after: str) -> str:
    assert TRAIN.count(before) == 1
    return TRAIN.replace(before, after)


def own_losses(command: Json) -> Curve | None:
    try:
        with Child() as child:
            child.ask(build_command(TARGET, Variant("again", "", {}), "cpu", 0), 60.0)
            return curve_of(child.ask(command, 60.0))
    except ChildFailed:
        return None


_ANSWERS: dict[tuple[str, str, int], Curve | None] = {}


def answers() -> Callable[[Json], Curve | None]:
    """What the code in train.py answers, asked once of each text: the first time a command comes, the second time, and so on."""
    program, asked = Path("train.py").read_text(), Counter[str]()

    def answer(command: Json) -> Curve | None:
        words = json.dumps(command, sort_keys=True)
        asked[words] += 1
        key = program, words, asked[words]
        if key not in _ANSWERS:
            _ANSWERS[key] = own_losses(command)
        return _ANSWERS[key]

    return answer


def said_of(text: str, *changes: str, timeout: float = 60.0) -> str:
    """What the lab and the verifier say of this text in place of train.py: of losses, or why it failed."""
    reference = Reference(answers(), lambda variant: 0, steps=6, timeout=timeout)
    base = Variant("base", "", {})
    patch = Variant("patch", "", {}, {"train.py": text})
    with Verifier("base", {"patch": changes}, reference) as verifier:
        lab = ChildLab(TARGET, "cpu", timeout=60.0, check=verifier.check)
        subjects = [lab.open([base])["base"]]
        lab.timeout = timeout
        opened = lab.open([patch])["patch"]
        for subject in [*subjects, opened]:
            if not isinstance(subject, TrialFailed):
                subject.close()
        return str(opened) if isinstance(opened, TrialFailed) else verifier.said["patch"]


@pytest.fixture
def train(project: Project) -> Callable[[str], None]:
    """Write train.py: the program above, or another text."""
    return lambda text=TRAIN: project(**{"train.py": text}) and None  # type: ignore[return-value, misc]


TWICE = patched(BUILD, "nn.Linear(5, 5)\n    return Net()").replace(
    "def build_dataloader", "build_model()\n\n\ndef build_dataloader"
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "changes", "said"),
    [
        (TRAIN + "\n# faster\n", (), "6 steps from one seed give the same losses to the bit"),
        (TWICE, (), "more than the promised change (nothing but speed)"),  # another initialisation
        (TWICE, ("rng",), "6 steps from one seed give the same losses to the bit"),  # it takes the base's parameters
        (patched(HIDDEN, HIDDEN + ".detach()"), ("rounding",), "more than the promised change (rounding)"),
        (patched(HIDDEN, HIDDEN + ".detach()"), (), "more than the promised change (nothing but speed)"),
        (patched(HIDDEN, HIDDEN + " * (1 + 2**-22)"), ("rounding",), "6 steps from one seed agree within"),
        (patched("8)\n        self.head", "9)\n        self.head").replace("Linear(8, 3)", "Linear(9, 3)"),
         ("rng", "checkpoint"), "the patch changes which parameters there are, such as body.weight"),
        ("import nowhere\n" + TRAIN, (), "No module named 'nowhere' (train.py:1 in <module>)"),
        ("def (\n", (), "SyntaxError"),
        (patched(BUILD, "raise ValueError('no')"), (), "build_model() failed: ValueError: no (train.py:22 in build_model)"),
        (patched(HIDDEN, "raise ValueError('no')"), (), "ValueError: no (train.py:17 in forward)"),
        (patched(HIDDEN, HIDDEN + ".mul_(2) + self.body(x)"), (), "modified by an inplace operation"),
        (patched(BUILD, "os._exit(3)"), (), "the process ended with code 3"),
    ],
)  # fmt: skip
def test_patched_code_in_real_children(train: Any, text: str, changes: tuple[str, ...], said: str) -> None:
    train(TRAIN)
    assert said in said_of(text, *changes)


HANG = "while True:\n{0}    pass"
LOCK = "lock = __import__('threading').Lock(); lock.acquire(); lock.acquire()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "place"),
    [
        (HANG.format("") + "\n" + TRAIN, "(last seen at train.py:"),
        (patched(BUILD, LOCK), "(last seen at train.py:22 in build_model)"),
        (patched(HIDDEN, "__import__('queue').Queue().get()"), "(last seen at train.py:17 in forward)"),
    ],
)
def test_patched_code_that_hangs_is_given_up_with_the_place(train: Any, text: str, place: str) -> None:
    train(TRAIN)
    said = said_of(text, timeout=2.0)
    assert said.startswith("no answer within 2 s")
    assert place in said


@pytest.mark.slow
def test_code_seeded_by_the_system_is_told_apart_from_a_broken_patch(train: Any) -> None:
    seed = "torch.manual_seed(int.from_bytes(os.urandom(4), 'big'))"
    wide = "net = Net()\n    net.head.weight.data.mul_(20)"  # so that any two seeds differ by far more than 5 %
    seeded = patched(BUILD, f"{seed}\n    {wide}\n    return net")
    train(seeded)
    assert "verification refused: your code does not repeat its own losses" in said_of(seeded + "\n# faster\n")


@pytest.mark.slow
def test_types_that_autocast_is_entered_with_are_seen(train: Any) -> None:
    train(
        patched(
            HIDDEN,
            f"with torch.autocast('cpu', dtype=torch.bfloat16):\n            {HIDDEN}\n        hidden = hidden.float()",
        )
    )
    assert Reference(own_losses, lambda variant: 0, steps=2).seed()[1] == ("bfloat16",)


GPT = """
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(16), nn.LayerNorm(16)
        self.qkv, self.proj = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)
        self.drop = nn.Dropout(DROP)
        self.register_buffer("mask", torch.tril(torch.ones(12, 12, dtype=torch.bool)))

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        scores = q @ k.transpose(-2, -1) / math.sqrt(16)
        scores = scores.masked_fill(~self.mask, float("-inf"))
        y = torch.softmax(scores, dim=-1) @ v
        x = x + self.drop(self.proj(y))
        return x + self.down(gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Linear(16, 20)
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.normal_(parameter, std=0.1)

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def build_model():
    return GPT()


def build_dataloader():
    tokens = torch.randint(0, 20, (64, 13))
    return DataLoader(TensorDataset(tokens[:, :-1], tokens[:, 1:]), batch_size=8)


def build_optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)


def training_step(model, batch):
    loss = F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())
    return loss
"""
STILL = GPT.replace("DROP", "0.0")
SLOW = STILL.replace("lr=1e-5", "lr=1e-12")  # the losses do not feel what the gradients are
DROPS = GPT.replace("DROP", "0.1")
SDPA = (
    "y = torch.softmax(scores, dim=-1) @ v",
    "y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=True)[:, 0]",
)
CONVOLUTIONS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
    )


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 4, (64,))), batch_size=16)


def training_step(model, batch):
    return nn.functional.cross_entropy(model(batch[0]), batch[1])
"""
REFUSED = "more than the promised change (rounding): the gradients of the first step differ by "
AGREES = "; the gradients of the first step agree within "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "before", "after", "changes", "said"),
    [
        (STILL, "softmax(scores,", "softmax(2 * scores,", ("rounding",), "more than the promised change"),
        (STILL, "masked_fill(~self.mask", "masked_fill(~self.mask & False", ("rounding",), "more than the promised change"),
        (STILL, "self.down(gelu(", "self.down(F.gelu(", ("rounding",), REFUSED),
        (SLOW, "softmax(scores,", "softmax(1.01 * scores,", ("rounding",), REFUSED),
        (SLOW, "self.proj(y)", "self.proj(y.detach())", ("rounding",), REFUSED),
        (STILL, "return loss", "return 2 * loss", ("rounding",), "losses of 6 steps from one seed differ by up to"),
        (SLOW, "self.proj(y)", "self.proj(y.detach())", ("rng",), REFUSED),
        (STILL, "self.proj(y)", "self.proj(y.detach())", ("algorithm",), "equality is not claimed"),
        (STILL, *SDPA, ("rounding",), AGREES),
        (STILL, "return 0.5 * x", "return F.gelu(x, approximate='tanh')\n    return 0.5 * x", ("rounding",), AGREES),
        (DROPS, *SDPA, ("rounding",), AGREES),
        (DROPS, "self.drop(self.proj(y))", "F.dropout(self.proj(y) + 0 * torch.rand(1), 0.1)", ("rng",),
         "; the gradients of the first step are not compared: the step draws random numbers"),
        (CONVOLUTIONS, "def training_step", "@torch.autocast('cpu', dtype=torch.bfloat16)\ndef training_step", ("precision",),
         "; fewer bits move the gradients of the first step by "),
        (CONVOLUTIONS, "def training_step", "@torch.autocast('cpu', dtype=torch.bfloat16)\ndef training_step", ("rounding",),
         "it computes in bfloat16, which is a change of precision"),
        (CONVOLUTIONS, "3, padding=1), nn.BatchNorm2d(16)", "3, padding=1, bias=False), nn.BatchNorm2d(16)",
         ("rng", "checkpoint"), AGREES),
    ],
)  # fmt: skip
def test_the_gradients_of_patched_code(
    train: Any, program: str, before: str, after: str, changes: tuple[str, ...], said: str
) -> None:
    assert program.count(before) == 1
    train(program)
    assert said in said_of(program.replace(before, after), *changes)


@pytest.mark.slow
def test_the_gradients_in_another_layout_are_those_of_the_user(train: Any) -> None:
    step = "    return nn.functional"
    train(CONVOLUTIONS)
    text = CONVOLUTIONS.replace(step, f"    batch[0] = batch[0].to(memory_format=torch.channels_last)\n{step}")
    assert AGREES in said_of(text, "rounding")
