"""A patch of an average is held to how far each of its tensors moves, and refused where that is not seen."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fake_clock import FakeClock
from surveys import USUAL, profile_of, survey_of
from torch import nn

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Script
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Settings
from perfaudit.training import script_average
from perfaudit.tune import final
from perfaudit.tune.averages import UNSEEN, Averages, Moved, averages_of, said_of_averages
from perfaudit.tune.candidates import PATCH, Candidate
from perfaudit.tune.climb_state import Climb
from perfaudit.tune.patched_source import SourceRace
from perfaudit.tune.pricing_races import as_sources
from perfaudit.tune.tolerance import Reference
from perfaudit.tune.verify import Verifier

EMA = ("rounding",)
Run = Callable[[], Averages]


class Net(nn.Module):
    """Of shapes that no other test has."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(17, 23), nn.LayerNorm(23), nn.Linear(23, 5)


def by_hand(averages: list[Any], parameters: list[Any], decay: float) -> None:
    for e, p in zip(averages, parameters, strict=True):
        e.mul_(decay).add_(p, alpha=1 - decay)


def by_lists(averages: list[Any], parameters: list[Any], decay: float) -> None:
    torch._foreach_lerp_(averages, parameters, 1 - decay)  # type: ignore[attr-defined]


def without(*left: int) -> Any:
    def update(averages: list[Any], parameters: list[Any], decay: float) -> None:
        taken = [n for n in range(len(averages)) if n not in left]
        by_lists([averages[n] for n in taken], [parameters[n] for n in taken], decay)

    return update


def away(averages: list[Any], parameters: list[Any], decay: float) -> None:
    torch._foreach_add_(averages, torch._foreach_sub(averages, parameters), alpha=1 - decay)  # type: ignore[attr-defined]


def run(update: Any, kept: int = 1, speed: float = 1e-2, decay: float = 0.99, second: Any = None) -> Averages:
    """Four steps of a training that keeps averages, as a child tells of them."""
    torch.manual_seed(1)
    net = Net()
    optimizer = torch.optim.Adam(net.parameters(), lr=speed)
    emas = [copy.deepcopy(net).requires_grad_(False) for _ in range(kept)]
    for p in net.parameters():
        p.grad = torch.randn_like(p)
    watched = script_average.Averages(SimpleNamespace(optimizers=[optimizer], first_gradients={}))
    for _ in range(4):
        optimizer.step()
        for number, ema in enumerate(emas):
            change = second if number and second is not None else update
            change(list(ema.parameters()), list(net.parameters()), decay - 0.1 * number)
    reply = [[name, trained, *(value.hex() for value in row)] for name, trained, *row in watched.take_movements(4)]
    return averages_of(reply) or ()


def none(*_: Any) -> None:
    """An average that waits for its warm-up to end."""


def said(mine: Averages, base: Averages, changes: tuple[str, ...] = EMA, **more: Any) -> str:
    asked: dict[str, Any] = {"is_of_average": True, "is_alike": True, "again": lambda: None, "nudged": lambda: None}
    return said_of_averages(mine, base, changes, **{**asked, **more})


def test_another_formula_for_the_same_average() -> None:
    assert said(run(by_lists), run(by_hand)).startswith("; averages of the weights move as far")
    assert said(run(by_lists, kept=2), run(by_hand, kept=2)).startswith("; averages of the weights move as far")
    assert said(run(by_hand), run(by_hand), ()) == "; averages of the weights move as far"


@pytest.mark.parametrize(
    ("wrong", "base", "why"),
    [
        (
            partial(run, without(1)),
            partial(run, by_hand),
            r"differs by 1.0e\+00 of it \(worst: one.bias, tolerance 1.0e-03",
        ),
        (partial(run, without(2)), partial(run, by_hand), "worst: norm.weight"),
        (partial(run, by_hand, kept=2, second=none), partial(run, by_hand, kept=2), "differs by"),  # a second average
        (partial(run, by_lists, decay=0.98), partial(run, by_hand), "differs by"),
        (partial(run, away), partial(run, by_hand), "differs by"),  # as far, to the other side
        (partial(run, none), partial(run, by_hand), "differs by 1.0"),
        (partial(run, by_hand), partial(run, none), UNSEEN),
        (partial(run, by_lists, speed=1e-8), partial(run, by_hand, speed=1e-8), f"{UNSEEN}"),
    ],
)
def test_what_is_refused(wrong: Run, base: Run, why: str) -> None:
    with pytest.raises(TrialFailed, match=why):
        said(wrong(), base())


def tensor(by: float, name: str = "a.weight", doubt: float = 0.0, trained: bool = True) -> Moved:
    return Moved(name, trained, abs(by), abs(by), (doubt, doubt), (by, -by))


ONE = (tensor(1.0),)


@pytest.mark.parametrize(
    ("mine", "base", "more", "why"),
    [
        (ONE, (tensor(1.0), tensor(1.0, "a.bias", doubt=0.6)), {}, "by more than roundings: a.bias"),
        ((tensor(2.0), tensor(1.0)), (tensor(1.0), tensor(2.0)), {}, ""),  # in another order
        ((*ONE, tensor(1.0, "b")), ONE, {}, "worst: b"),
        (ONE, (*ONE, tensor(1.0, "a.bias")), {"changes": ("checkpoint", "rounding")}, ""),  # it is left out
        (ONE, (*ONE, tensor(1.0, "b.weight")), {"changes": ("checkpoint", "rounding")}, "worst: b.weight"),
        ((tensor(1.1),), ONE, {"is_alike": False}, "tolerance 1.0e-03"),
        ((tensor(1.1),), ONE, {"is_alike": False, "nudged": lambda: (tensor(1.01),)}, ""),
        ((tensor(1.1),), ONE, {"nudged": lambda: (tensor(1.01),)}, "tolerance 1.0e-03"),  # no roundings elsewhere
        # Of another patch: no loss depends on the bias of an attention's keys, whose gradient is rounding.
        ((tensor(2.0),), ONE, {"is_of_average": False, "nudged": lambda: (tensor(-0.4),)}, ""),
        ((tensor(2.0),), ONE, {"is_of_average": False, "nudged": lambda: ONE}, "tolerance 1.0e-03"),
        ((tensor(0.0),), ONE, {"is_alike": False, "nudged": lambda: (tensor(2.0),)}, "differs by 1.0"),
        ((tensor(1.1),), ONE, {"again": lambda: (tensor(1.06),)}, ""),
        ((tensor(1.1),), ONE, {"is_alike": False, "changes": ("rng",)}, "draws other random numbers"),
        ((tensor(1.1),), ONE, {"is_alike": False, "changes": ("rng",), "is_of_average": False}, ""),
        ((tensor(1.5),), ONE, {"is_alike": False, "changes": ("rng",), "is_of_average": False}, "explain"),
        ((tensor(1.1),), ONE, {"changes": (), "is_of_average": False}, "tolerance 0.0"),
        ((), (), {"is_of_average": False}, ""),
        (None, ONE, {}, "other parameters"),
        (ONE, ONE, {"changes": ("rounding", "algorithm")}, "beside a patch that changes what is computed"),
        ((tensor(9.0),), ONE, {"changes": ("rounding", "order"), "is_of_average": False}, ""),
        (None, None, {}, ""),  # of factories
    ],
)
def test_on_paper(mine: Any, base: Any, more: dict[str, Any], why: str) -> None:
    if why:
        with pytest.raises(TrialFailed, match=why):
            said(mine, base, **more)
    else:
        said(mine, base, **more)


def test_a_patch_of_an_average_that_was_not_seen() -> None:
    """The losses are the same to the bit, and say nothing of the average."""

    class Child:
        def ask(self, command: Any, timeout: float) -> Any:
            return {"losses": [(1.0).hex(), (0.5).hex()], "averages": []}

    reference = Reference(lambda command: None, lambda variant: 0, is_of_script=True)
    changes = {"ema": EMA, "other": EMA}
    with Verifier("base", changes, reference, of_average={"ema"}) as verifier:
        for key in ("base", "other"):
            verifier.check(Child(), Variant(key, "", {}), USUAL)  # type: ignore[arg-type]  # a stand-in
        with pytest.raises(TrialFailed, match=UNSEEN):
            verifier.check(Child(), Variant("ema", "", {}), USUAL)  # type: ignore[arg-type]
    assert set(verifier.said) == {"other"}


def patch(knob: str, rule: str = "") -> Candidate:
    settings: Settings = {"patch": rule} if rule else {"average": "yours, patched"}
    fix = Fix("", "unsafe", EMA, (Edit(Span(0, 1), "b"),))
    return Candidate(f"{knob} {rule}", knob, settings, fix, Location(f"{knob}{rule}.py", 1, 1, 1, 1), "a\n", "code")


PATCHES = [patch(PATCH, "PA404"), patch(PATCH, "PA406"), patch("ema"), patch(PATCH, "PA405"), patch("loader")]


def test_which_patches_are_of_an_average(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [each.key for each in PATCHES[:3]]
    assert [each.key for each in PATCHES if each.is_of_average] == keys
    assert as_sources(profile_of(survey_of()), PATCHES, Ledger()).of_average == set(keys)
    seen: list[SourceRace] = []
    fails = {"all": "no"}
    monkeypatch.setattr(final, "seconds_to_check", lambda profile: 0.0)

    def race(session: Any, profile: Any, race: SourceRace, deadline: Any = None, rounds: int = 3) -> None:
        seen.append(race)
        race.ledger.failures.update({"all": fails.pop("all", "")} if "all" in fails else {})
        race.ledger.checked["all"] = "checked"

    for name in ("race_patched", "check_patched"):
        monkeypatch.setattr(final, name, race)
    monkeypatch.setattr(final, "recall_race", lambda session, race: None)
    state = Climb(frozenset(), rungs=PATCHES[3:] + PATCHES[:1])
    questions = SimpleNamespace(known_peak=lambda variant: None)
    session: Any = SimpleNamespace(watch=Watch(), questions=questions, memory_budget=1 << 30)
    profile = profile_of(survey_of(script=Script()))
    final.final_race(session, profile, state, Deadline(100.0, FakeClock()))
    assert [sorted(each.of_average) for each in seen] == [["all"], keys[:1], []]  # the last one was taken out
