"""What a climb tries: patches of a knob that are allowed or offered, texts of several, and how a child puts them in place."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import survey_of

from perfaudit.findings import Edit, Fix, Location, Span
from perfaudit.knobs import Bench, Knob, Refused, Setup, Survey, Way
from perfaudit.knobs._code import Code, Patch
from perfaudit.measure.facts import Script
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Settings
from perfaudit.reading import digest
from perfaudit.static import edit
from perfaudit.target.names import Target
from perfaudit.tune import candidates
from perfaudit.tune.bout import key_of
from perfaudit.tune.candidates import (
    PATCH,
    Candidate,
    TooLate,
    alone_in_place,
    candidates_of,
    flag_for,
    in_place,
    not_allowed,
    texts_of,
)
from perfaudit.tune.session import Session

TEXT = "import torch\n\na = 0\nb = 0\n"


class Values(Knob):
    """Sets `a` to a value; what that changes besides speed goes by the value. 0 is what the code has; None has no line."""

    title = "values"

    def __init__(self, name: str, changes: dict[int | None, tuple[str, ...]], **attributes: Any) -> None:
        self.name, self.by_value = name, changes
        vars(self).update(attributes)

    def current(self, survey: Survey) -> Settings:
        return {"a": 0}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"a": value} for value in self.by_value]

    def setup(self, settings: Settings) -> Setup:
        return Setup()

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        if settings["a"] is None:
            return None
        edits = (Edit(Span(18, 19), str(settings["a"])),)
        changes = self.by_value[int(str(settings["a"]))]
        return Patch("t.py", edits, TEXT, edit.apply(TEXT, edits), Location("t.py", 3, 1, 3, 6), changes)

    def words(self, settings: Settings, survey: Survey) -> str:
        return f"a={settings['a']}"


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, project: Callable[..., Path]) -> Callable[..., Session]:
    """`known(knob)` is a session on t.py that knows this knob."""
    project(**{"t.py": TEXT})

    def start(knob: Knob, **attributes: Any) -> Session:
        module = types.ModuleType(f"perfaudit.knobs.{knob.name}")
        module.KNOB = knob  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        nowhere: Any = None  # nothing is asked of a child
        return Session(Target("t.py", {}), nowhere, Watch(), clock=clock, **attributes)

    return start


def found(session: Session, name: str, allow: str, seconds: float = 100.0) -> list[Candidate]:
    survey = survey_of(profile={"forward": 0.9, "zero_grad": 0.1}, digests={})
    return candidates_of(session, survey, name, frozenset(allow.split(",")) - {""}, session.deadline(seconds))


def test_a_candidate_is_the_patch_of_a_setting(known: Callable[..., Session]) -> None:
    (one,) = found(known(Values("values", {0: (), 1: ("rounding",)}, way="setting")), "values", "rounding")
    assert (one.key, one.knob, one.settings) == (key_of("values", {"a": 1}), "values", {"a": 1})
    assert (one.words, one.path, one.before, one.way, one.lacks) == ("a=1", "t.py", TEXT, "setting", ())
    assert (one.fix.safety, one.fix.changes, one.fix.before) == ("unsafe", ("rounding",), digest(TEXT.encode()))
    assert edit.apply(TEXT, one.edits) == TEXT.replace("a = 0", "a = 1")


def test_a_milder_setting_takes_the_place_of_one_that_is_not_allowed(known: Callable[..., Session]) -> None:
    class Milder(Values):
        def milder(self, settings: Settings) -> tuple[Settings, ...]:
            return ({"a": 2},)

    changes: dict[int | None, tuple[str, ...]] = {1: ("rng",), 2: ()}
    assert [one.settings["a"] for one in found(known(Milder("values", changes)), "values", "rounding")] == [2]
    offers = Milder("values", changes, offers={"rng"})
    assert [(one.settings["a"], one.lacks) for one in found(known(offers), "values", "rounding")] == [(2, ())]
    assert [one.settings["a"] for one in found(known(Milder("values", changes)), "values", "rounding,rng")] == [1, 2]


@pytest.mark.parametrize(
    ("changes", "allow", "kept"),
    [
        ({0: (), 1: (), 2: ()}, "", [(1, ()), (2, ())]),  # the current setting is no candidate
        ({1: ("rounding",), 2: ("rng",)}, "rounding", [(1, ())]),
        ({None: (), 2: ()}, "", [(2, ())]),  # without a line there is nothing to hand over
        ({1: ("precision",), 2: ("rounding",)}, "rounding", [(1, ("precision",)), (2, ())]),  # offered, not taken
        ({1: ("precision", "rng"), 2: ()}, "rounding", [(2, ())]),  # not offered where more is lacking
        ({1: ("precision",), 2: ()}, "", [(2, ())]),  # `--allow safe` wants no offers
        ({1: ("precision",)}, "precision", [(1, ())]),
    ],
)
def test_which_settings_can_be_climbed(
    known: Callable[..., Session],
    changes: dict[int | None, tuple[str, ...]],
    allow: str,
    kept: list[tuple[int, tuple[str, ...]]],
) -> None:
    tried = found(known(Values("values", changes)), "values", allow)
    assert [(one.settings["a"], one.lacks) for one in tried] == kept


@pytest.mark.parametrize(
    ("knob", "allow", "seconds", "reason"),
    [
        (Values("values", {1: ("rounding", "rng"), 2: ("order",)}), "rounding", 100.0,
         "it changes rng and order; allow that with --allow rounding,rng,order"),
        (Values("values", {}), "rounding", 100.0, candidates.NO_LINE),
        (Values("values", {0: ()}), "rounding", 100.0, f"{candidates.NO_LINE}; {candidates.by_name('values')}"),
        (Values("values", {1: ()}, changes_always=("rng",)), "rounding", 100.0,
         "it changes rng; allow that with --allow rounding,rng"),
        (Values("values", {1: ("precision",)}, changes_always=("precision",)), "", 100.0,
         "it changes precision; allow that with --allow precision"),
        (Values("some_values", {1: ()}, seconds_needed=30.0), "", 29.9,
         "it needs 30 s of measuring and had 30 s; give it longer with --budget, or search it alone with --some-values"),
        (Values("some_values", {1: ()}, alone_because="steps tell nothing"), "rounding", 100.0,
         "steps tell nothing; search it alone with --some-values, without --allow"),
        (Values("values", {1: ()}, not_applicable=lambda survey: "there is no a"), "", 100.0, "there is no a"),
        (Values("values", {1: ()}, phases=("zero_grad",), min_gain=0.2), "", 100.0,
         "zero grad takes 10.0 % of the step, so there is next to nothing to gain"),
    ],
)  # fmt: skip
def test_why_a_knob_has_no_candidates(
    known: Callable[..., Session], knob: Knob, allow: str, seconds: float, reason: str
) -> None:
    with pytest.raises(Refused) as refused:
        found(known(knob, skips_idle=True), knob.name, allow, seconds)
    assert str(refused.value) == reason
    assert isinstance(refused.value, TooLate) == reason.startswith("it needs 30 s")


def test_a_knob_says_which_changes_it_offers(known: Callable[..., Session]) -> None:
    offers = Values("values", {1: ("rng",)}, changes_always=("rng",), offers={"rng"})
    (one,) = found(known(offers), "values", "rounding")
    assert one.lacks == ("rng",)
    assert candidates.how_to_allow(one, frozenset({"rounding"})) == "it changes rng: --allow rounding,rng"


def test_a_knob_whose_part_is_small_is_tried_where_it_was_named(known: Callable[..., Session]) -> None:
    (one,) = found(known(Values("values", {1: ()}, phases=("zero_grad",), min_gain=0.2)), "values", "")
    assert one.settings == {"a": 1}


def test_a_file_that_changed_is_the_reason_where_nothing_can_be_written(known: Callable[..., Session]) -> None:
    session = known(Values("values", {None: ()}), digests={"t.py": "of another text"})
    with pytest.raises(Refused, match=f"^{candidates.CHANGED}$"):
        found(session, "values", "")


def test_what_is_not_allowed_is_said_with_the_flag_for_it() -> None:
    allow = frozenset({"rounding"})
    assert (
        not_allowed(("rng", "order"), allow) == "it changes rng and order; allow that with --allow rounding,rng,order"
    )
    assert flag_for(("order",), frozenset()) == "--allow order"


def candidate(
    key: str, *edits: tuple[int, int, str], path: str = "t.py", way: Way = "code", knob: str = "fusion"
) -> Candidate:
    made = tuple(Edit(Span(start, end), text) for start, end, text in edits)
    settings: Settings = {"key": key}
    return Candidate(key, knob, settings, Fix(key, "safe", (), made), Location(path, 1, 1, 1, 1), TEXT, way)


A, B = candidate("A", (18, 19, "1")), candidate("B", (24, 25, "2"))
ELSEWHERE = candidate("C", (18, 19, "3"), path="u.py")


@pytest.mark.parametrize(
    ("patches", "texts"),
    [
        ([], {}),
        ([A], {"t.py": "import torch\n\na = 1\nb = 0\n"}),
        ([B, A], {"t.py": "import torch\n\na = 1\nb = 2\n"}),
        ([A, ELSEWHERE], {"t.py": "import torch\n\na = 1\nb = 0\n", "u.py": "import torch\n\na = 3\nb = 0\n"}),
    ],
)
def test_the_texts_of_several_patches(patches: Sequence[Candidate], texts: dict[str, str]) -> None:
    assert texts_of(patches) == texts


@pytest.mark.parametrize(
    ("patches", "words"),
    [
        ([A, candidate("D", (14, 19, "a = 4"))], "two patches change the same text of t.py"),
        ([candidate("E", (19, 19, " if torch")), A], "together the patches leave no Python in t.py"),
    ],
)
def test_patches_that_do_not_go_together(patches: Sequence[Candidate], words: str) -> None:
    with pytest.raises(ValueError, match=f"^{words}$"):
        texts_of(patches)


SET = candidate("S", (24, 25, "5"), way="setting", knob="optimizer")
FRESH = candidate("F", (24, 25, "6"), way="fresh", knob="dataloader")
BOTH = {"t.py": "import torch\n\na = 1\nb = 5\n"}


def test_code_is_swapped_settings_are_put_in_place_and_a_twin_has_the_whole() -> None:
    told = in_place("x", [A, SET])
    assert told == {
        "key": "x", "code": {"t.py": [TEXT, "import torch\n\na = 1\nb = 0\n"]},
        "settings": [["perfaudit.knobs.optimizer:KNOB", {"key": "S"}]], "whole": BOTH, "way": "in place",
    }  # fmt: skip


def test_settings_of_a_knob_exclude_each_other_and_patches_of_findings_do_not() -> None:
    def slot(key: str, knob: str) -> Any:
        return alone_in_place(candidate(key, (18, 19, "1"), knob=knob))["slot"]

    assert slot("A", "attention") == slot("B", "attention") == "attention"
    assert (slot("A", PATCH), slot("B", PATCH)) == ("A", "B")


@pytest.mark.parametrize(("patches", "way"), [([A], "in place"), ([SET], "in place"), ([A, FRESH], "twin")])
def test_one_patch_that_must_be_built_makes_a_twin_of_all(patches: Sequence[Candidate], way: str) -> None:
    told = in_place("x", patches)
    assert told["way"] == way
    assert told["whole"] == texts_of(patches)
    assert list(told["code"]) == (["t.py"] if A in patches else [])


def test_what_only_another_process_can_have_is_searched_alone_on_a_script(known: Callable[..., Session]) -> None:
    session = known(Values("values", {1: ()}, way="fresh"))
    words = "a script runs once in a process, so this is not raced beside the others; search it alone with --values"
    with pytest.raises(Refused, match=words):
        candidates_of(session, survey_of(script=Script()), "values", frozenset(), session.deadline(100.0))
