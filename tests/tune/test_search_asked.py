"""How a knob's search begins: whether there is time, what is looked at and asked before the race."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import profile_of, survey_of
from test_search import Shop, Sizes

from perfaudit.knobs import Bench, Knob, Unanswered
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Watch
from perfaudit.measurements import NO_TIME, NotApplicable, Settings
from perfaudit.target.names import Target
from perfaudit.tune import search
from perfaudit.tune.bout import Bout, key_of
from perfaudit.tune.questions import Questions
from perfaudit.tune.session import Session

Begin = Callable[..., Session]
PROFILE = profile_of(survey_of(project_files=("t.py",), factories={}, factory_files={}))


class Noted(Watch):
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def stage(self, name: str) -> None:
        self.told.append(name)

    def opening(self, name: str) -> None:
        self.told.append(name)


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, project: Callable[..., Path]) -> Begin:
    """`begin(knob, ...)` is a session that knows this knob; races and looks are noted under `asked` and not made."""
    project(**{"t.py": "import torch\n"})

    def start(knob: Knob) -> Session:
        module = types.ModuleType(f"perfaudit.knobs.{knob.name}")
        module.KNOB = knob  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        shop = Shop(clock, {0: 1.0})
        return Session(Target("t.py", {}), shop, Noted(), clock=clock, timeout=60.0)

    return start


@pytest.fixture
def raced(monkeypatch: pytest.MonkeyPatch) -> list[list[Any]]:
    """Sizes of those that were raced, of each search."""
    races: list[list[Any]] = []
    monkeypatch.setattr(
        search,
        "_race",
        lambda session, profile, bout, module, tried, deadline: races.append([v.settings["size"] for v in tried]),
    )
    return races


# A step of a second and two to open: the shortest generation of a variant takes 2 + 3 * 3 * 1 = 11 seconds.
SLOW: Any = {"calibration": SimpleNamespace(seconds_per_step=1.0, phases={}), "seconds_to_open": 2.0}


@pytest.mark.parametrize(
    ("seconds", "attributes", "is_raced"), [(21.9, SLOW, False), (22.1, SLOW, True), (0.1, {}, True)]
)
def test_a_search_needs_time_for_the_base_and_one_other(
    begin: Begin, raced: list[Any], seconds: float, attributes: dict[str, Any], is_raced: bool
) -> None:
    session, begun = begin(Sizes("sizes", [1])), list[Bout]()
    found = search.search(session, replace(PROFILE, **attributes), "sizes", session.deadline(seconds), begun)
    assert raced == ([[1]] if is_raced else [])
    assert begun == ([found] if is_raced else [])
    if not is_raced:
        assert found == NotApplicable("sizes", NO_TIME, late=True)
    elif attributes:
        (bout,) = begun
        assert (bout.ledger.seconds_to_open, bout.ledger.seconds_per_step) == (2.0, 1.0)


@pytest.mark.parametrize(("seconds", "reason"), [(29.9, "it needs 30 s of measuring and had 30 s"), (30.0, "")])
def test_a_knob_that_takes_long_is_not_begun_without_its_time(
    begin: Begin, raced: list[Any], seconds: float, reason: str
) -> None:
    session = begin(Sizes("some_sizes", [1], seconds_needed=30.0))
    found = search.search(session, PROFILE, "some_sizes", session.deadline(seconds), [])
    said = [(found.reason, found.late)] if isinstance(found, NotApplicable) else []
    whole = f"{reason}; give it longer with --budget"  # it is searched alone, or beside others that are named
    assert said == ([(whole, True)] if reason else [])


def test_a_search_is_told_as_it_begins(begin: Begin, raced: list[Any]) -> None:
    session = begin(Sizes("sizes", [1]))
    search.search(session, PROFILE, "sizes", session.deadline(100), [])
    assert session.watch.told[0] == "sizes: sizes"  # type: ignore[attr-defined]


@pytest.mark.parametrize("applied", [True, False])
def test_the_base_is_built_as_the_knob_says(begin: Begin, raced: list[Any], applied: bool) -> None:
    session = begin(Sizes("sizes", [1], base_is_applied=applied))
    bout = search.search(session, PROFILE, "sizes", session.deadline(100), [])
    assert isinstance(bout, Bout)
    assert (bool(bout.base.applied), bout.base.overlay, bout.base.settings) == (applied, {}, {"size": 0})
    assert bout.variants[key_of("sizes", {"size": 1})].overlay == {}


def test_memory_is_asked_of_those_that_have_not_failed_and_were_not_asked(
    begin: Begin, raced: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def ask(self: Questions, key: str, variant: Variant, *commands: Any) -> list[Any]:
        asked.append(key)
        if variant.settings["size"] == 3:
            raise ChildFailed("oom", "out of memory")
        return [{}, {"peak_bytes": 100, "resident_bytes": 200}]

    class Measured(Sizes):
        def candidates(self, bench: Bench) -> list[Settings]:
            seen = [bench.probe({"size": size}) for size in (2, 3)]
            assert [(p.peak_bytes, p.resident_bytes, p.failure, p.out_of_memory) for p in seen] == [
                (100, 200, "", False), (None, None, "out of memory", True),
            ]  # fmt: skip
            return super().candidates(bench)

    monkeypatch.setattr(Questions, "ask", ask)
    session, begun = begin(Measured("sizes", [1, 2, 3], measures_memory=True)), list[Bout]()
    search.search(session, PROFILE, "sizes", session.deadline(1000), begun)
    keys = {size: key_of("sizes", {"size": size}) for size in range(4)}
    assert asked == [f"memory {keys[size]}" for size in (2, 3, 0, 1)]
    assert raced == [[1, 2]]
    assert begun[0].peaks == dict.fromkeys((keys[2], keys[0], keys[1]), 100)
    assert session.watch.told[1:] == [f"size={size}" for size in (2, 3, 0, 1)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("left", "timeout"), [(1000.0, 60.0), (100.0, 60.0), (40.0, 40.0), (10.0, 20.0)])
@pytest.mark.parametrize("kind", ["oom", "step", ""])
def test_a_question_of_a_knob(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, left: float, timeout: float, kind: str
) -> None:
    asked: list[Any] = []

    def ask(self: Questions, key: str, variant: Variant, command: Any) -> list[Any]:
        asked.append((key, command))
        if kind:
            raise ChildFailed(kind, "no")
        return [{}, {"answer": 1}]

    monkeypatch.setattr(Questions, "ask", ask)
    session = replace(begin(Sizes("sizes", [1])), memory_budget=7)
    bout = Bout("sizes", survey_of(), Variant("base", "sizes", {"size": 0}))
    bench = search.bench_of(session, bout, session.deadline(search.PROBING_SHARE * left), left)
    assert (bench.memory_budget, bench.seconds) == (7, left)
    if kind:
        with pytest.raises(Unanswered, match="no") as raised:
            bench.ask({"size": 1}, "room", more=2)
        assert raised.value.out_of_memory == (kind == "oom")
    else:
        assert bench.ask({"size": 1}, "room", more=2) == {"answer": 1}
    ((key, command),) = asked
    assert key == f"room {key_of('sizes', {'size': 1})}"
    assert command.pop("timeout") == pytest.approx(timeout)
    assert command == {"do": "ask", "knob": f"{Sizes.__module__}:KNOB", "question": "room", "arguments": {"more": 2}}
