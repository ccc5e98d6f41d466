"""The parts of a knob's search by themselves: who is looked at, who is raced, in what room, and what is checked of them."""

from __future__ import annotations

import sys
import types
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import facts, profile_of, survey_of
from test_search import Sizes

from perfaudit.findings import Fix, Location
from perfaudit.knobs import Prediction, Survey
from perfaudit.knobs._code import Code, Patch
from perfaudit.measure.clock import Deadline
from perfaudit.measure.entrants import CONTROL
from perfaudit.measure.ledger import Block, Generation, Ledger, Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import Settings
from perfaudit.tune import search
from perfaudit.tune.bout import Bout, key_of, patch_for
from perfaudit.tune.first_look import known_seconds
from perfaudit.tune.outcome import winner_of
from perfaudit.tune.race_results import Raced, Seen
from perfaudit.tune.search import least_gain, pointless

KNOWN = survey_of(profile={"forward": 1.0})
SEEN = facts(has_ema=True)


def variant(size: int) -> Variant:
    settings: Settings = {"size": size}
    return Variant(key_of("sizes", settings), "sizes", settings)


def bout(*sizes: int, **more: Any) -> Bout:
    found = Bout("sizes", KNOWN, variant(0), **more)
    found.variants = {v.key: v for v in map(variant, sizes)}
    return found


def sizes_of(variants: list[Variant]) -> list[object]:
    return [v.settings["size"] for v in variants]


def test_a_look_tells_how_long_steps_are_that_of_your_code_with_them() -> None:
    """Without these, each generation of the race begins with a block that only finds them out."""
    looked = bout(0, 1, 2)
    looked.look = Raced(
        {
            CONTROL: Seen(3, "", seconds=(0.2, 0.21, 0.3)),
            variant(1).key: Seen(2, "", seconds=(0.1, 0.1)),
            variant(2).key: Seen(0, ""),
        }
    )
    assert known_seconds(looked) == {variant(0).key: 0.21, variant(1).key: 0.1}
    looked.prediction = Prediction({"size": 2}, 0.2, 0.3)
    assert known_seconds(looked) == {variant(0).key: 0.3, variant(2).key: 0.2}


def first_look(samples: int = 1, **seconds: float) -> Ledger:
    """Two rounds, of whose four blocks the third in order of speed tells: the first two hiccup downwards, the last upwards."""
    return Ledger([
        Generation("look", [
            {variant(int(k[1:])).key: (Block(1, 0.1, 1.0, samples), Block(1, s, 1.0, samples)) for k, s in seconds.items()},
            {variant(int(k[1:])).key: (Block(1, 0.1, 1.0, samples), Block(1, 9.0, 1.0, samples)) for k in seconds},
        ])
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "finalists"),
    [
        # The smallest within a tenth is beside them.
        ({"s0": 0.5, "s5": 1.0, "s4": 1.05, "s2": 1.1, "s1": 1.1000001}, [5, 4, 2]),
        ({"s5": 1.0, "s4": 1.05, "s1": 1.2}, [5, 4]),  # it is one of the two
        ({"s5": 1.0, "s9": 0.5}, [5]),  # not the reference, which runs beside them
        ({"s0": 1.0}, []),
        ({}, []),
    ],
)
def test_the_two_fastest_are_raced_and_the_smallest_that_is_not_much_slower(
    seconds: dict[str, float], finalists: list[int]
) -> None:
    one = bout(0, 1, 2, 3, 4, 5, 9, ledger=first_look(**seconds))  # 3 was not measured
    assert sizes_of(search._finalists(one, Sizes("sizes", [], reference={"size": 9}))) == finalists


def test_speed_is_by_the_sample() -> None:
    one = bout(1, 2, ledger=first_look(s1=1.0))
    two = first_look(samples=4, s2=2.0)
    one.ledger.generations += two.generations
    assert sizes_of(search._finalists(one, Sizes("sizes", []))) == [2, 1]
    assert [search._speed(one)(v) for v in one.variants.values()] == [1.0, 0.5]


class Called:
    """What stands in the place of `measure` and of the lab."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []
        self.check: Any = None
        monkeypatch.setattr(search, "measure", lambda *given, **named: self.calls.append((given, named)))
        questions = SimpleNamespace(reference=lambda profile: "reference")
        self.session: Any = SimpleNamespace(
            workshop=SimpleNamespace(lab=self.lab), record="record", questions=questions, memory_limit=7
        )

    def lab(self, check: Any = None, start_of: Any = None, known: Any = None) -> str:
        self.check = check
        return "lab"


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> Called:
    return Called(monkeypatch)


@pytest.mark.parametrize(
    ("seconds", "looked_at"),
    [
        (4.5, [0, 1, 2, 3]),  # time for four openings
        (9.0, [0, 1, 2, 3, 4, 5]),
        (0.5, [0, 1]),  # one at least
    ],
)
def test_a_first_look_at_as_many_as_time_is_enough_for(
    called: Called, clock: FakeClock, seconds: float, looked_at: list[int]
) -> None:
    one, deadline = bout(ledger=Ledger(seconds_to_open=1.0)), Deadline(seconds, clock)
    search._screen(called.session, one, [variant(n) for n in range(1, 6)], deadline)
    ((given, named),) = called.calls
    assert (given[0], sizes_of(given[1]), *given[2:]) == (
        "lab", looked_at, one.ledger, deadline, 1, "sizes first look"
    )  # fmt: skip
    assert named == {"generations": 1, "rounds": 2, "block_seconds": search.BLOCK_SECONDS, "memo": "record"}


class Checked:
    """In the place of the verifier."""

    made: list[tuple[Any, ...]]

    def __init__(self, *given: Any, of_average: frozenset[str]) -> None:
        self.made.append(given)
        self.of_average = of_average
        self.seen: list[Any] = []

    def __enter__(self) -> Checked:
        Checked.last = self
        return self

    def __exit__(self, *_: object) -> None: ...

    def start_of(self, variant: Variant) -> None: ...

    def check(self, *given: Any) -> None:
        self.seen.append(given)


class Patched(Sizes):
    """Sizes from 2 on are patched; 1 is checked as a setting; only 2 is what its source builds."""

    def is_checked(self, settings: Settings) -> bool:
        return settings["size"] == 1

    def changes_in_place(self, settings: Settings, survey: Any) -> tuple[str, ...]:
        return ("rng",)

    def holds(self, survey: Any, settings: Settings) -> bool:
        return settings["size"] == 2 and survey == replace(KNOWN, facts=SEEN)


@pytest.mark.parametrize(
    ("seconds", "reference", "raced"),
    [
        (9.9, 9, [0, 1, 2, 9]),  # two generations of two seconds each: four variants, with the base and the reference
        (10.0, 9, [0, 1, 2, 3, 9]),
        (7.9, None, [0, 1, 2]),
        (7.9, 0, [0, 1, 2]),  # the reference is the base
        (1.0, 9, [0, 1, 9]),
    ],
)
def test_a_race_in_the_room_there_is(
    called: Called,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    seconds: float,
    reference: int | None,
    raced: list[int],
) -> None:
    Checked.made = []
    monkeypatch.setattr(search, "Verifier", Checked)

    def patch_for(session: Any, of: Bout, one: Variant) -> Any:
        if int(str(one.settings["size"])) < 2:
            return None
        return (
            Variant(one.key, one.knob, one.settings, {"t.py": "x"}),
            Fix("title", "safe", ("rounding",)),
            Location("t.py", 1, 1, 1, 2),
        )

    monkeypatch.setattr(search, "patch_for", patch_for)
    module = Patched("sizes", [], reference=None if reference is None else {"size": reference})
    one, deadline = (
        bout(0, 1, 2, 3, 9, ledger=Ledger(seconds_to_open=1.0)),
        Deadline(seconds, clock),
    )
    search._race(called.session, profile_of(KNOWN), one, module, [variant(1), variant(2), variant(3)], deadline)
    ((given, named),) = called.calls
    assert (given[0], sizes_of(given[1]), *given[2:]) == ("lab", raced, one.ledger, deadline, 2, "sizes race")
    assert named["memo"] == "record"
    chosen = [n for n in raced if n not in (0, 9)]
    assert sizes_of(one.finalists) == chosen
    promised = {variant(n).key: ("rng",) if n == 1 else ("rounding",) for n in chosen}
    assert Checked.made == [(variant(0).key, promised, "reference", {}, 7)]
    called.check("child", variant(1), SEEN)
    if 3 in chosen:
        called.check("child", variant(2), SEEN)
        with pytest.raises(TrialFailed, match="the patched source does not build take size 3"):
            called.check("child", variant(3), SEEN)
        assert Checked.last.seen == [("child", variant(1), SEEN), ("child", variant(2), SEEN)]  # type: ignore[attr-defined]


def test_a_patch_says_what_its_search_has_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loader(Sizes):
        def patch(self, code: Code, settings: Settings) -> Patch:
            return Patch("t.py", (), "a", "b", Location("t.py", 1, 1, 1, 2))

        def changes_found(self, settings: Settings, survey: Survey, kept: dict[str, Any]) -> tuple[str, ...]:
            return () if kept.get("is_plain") else ("rng",)

    monkeypatch.setattr("perfaudit.tune.bout.knob", lambda name: Loader(name, []))
    session: Any = SimpleNamespace(target=SimpleNamespace(file="t.py"))
    for kept, safety in (({"is_plain": True}, "safe"), ({}, "unsafe")):
        patched = patch_for(session, bout(0, 1, kept=kept), variant(1))
        assert patched is not None and patched[1].safety == safety


def test_without_anybody_to_race_nothing_is_measured(called: Called, clock: FakeClock) -> None:
    search._race(called.session, profile_of(KNOWN), bout(0), Sizes("sizes", []), [], Deadline(100.0, clock))
    assert called.calls == []


@pytest.mark.parametrize(("share", "least"), [(1.0, 0.03), (0.5, 0.06), (0.01, 0.5), (0.0, 0.5)])
def test_the_least_gain_of_what_is_compared(monkeypatch: pytest.MonkeyPatch, share: float, least: float) -> None:
    monkeypatch.setattr(search, "knob", lambda name: Sizes(name, [], min_gain=0.03))
    assert least_gain(bout(share=share)) == pytest.approx(least)


@pytest.mark.parametrize(
    ("share", "phases", "idle", "words"),
    [
        (0.03, ("forward",), "", ""),
        (0.029, ("zero_grad",), "", "zero grad takes 2.9 % of the step, so there is next to nothing to gain"),
        (
            0.01,
            ("forward", "backward"),
            "",
            "forward and backward take 1.0 % of the step, so there is next to nothing to gain",
        ),
        (0.01, ("forward",), "it is idle", "it is idle"),
    ],
)
def test_why_a_knob_cannot_matter(share: float, phases: tuple[str, ...], idle: str, words: str) -> None:
    module = Sizes(
        "sizes",
        [],
        share=lambda survey: share,
        min_gain=0.03,
        phases=phases,
        gains_from=(),
        idle_words=lambda survey: idle,
    )
    assert pointless(module, KNOWN) == words


@pytest.mark.parametrize(
    ("checked", "is_handed_over"),
    [("the losses agree", True), ("not compared: the losses of the unpatched code are not finite", False), ("", False)],
)
def test_a_winner_whose_losses_were_not_compared_has_no_patch(
    monkeypatch: pytest.MonkeyPatch, checked: str, is_handed_over: bool
) -> None:
    module = types.ModuleType("perfaudit.knobs.sizes")
    module.KNOB = Sizes("sizes", [1])  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    blocks = {variant(0).key: (Block(4, 4.0, 4.0, 4),), variant(1).key: (Block(4, 2.8, 2.8, 4),)}
    ledger = Ledger([Generation("sizes race", [blocks, blocks]) for _ in range(4)])
    ledger.checked = {variant(1).key: checked} if checked else {}
    one = bout(0, 1, ledger=ledger, finalists=[variant(1)])
    one.patched = {variant(1).key: (Fix("title", "unsafe", ("rounding",)), Location("t.py", 1, 1, 1, 2))}
    found = winner_of(one)
    assert (found.keeps_current, found.settings, found.fix is not None) == (False, {"size": 1}, is_handed_over)
    why = f"its patch is not handed over: {checked or 'its losses were not compared'}"
    assert found.handed_over == ("" if is_handed_over else why)
