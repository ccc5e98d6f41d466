"""Findings priced, with steps that take as long as their source says: what is raced, checked, handed over and said."""

from __future__ import annotations

import math
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from pricing import KNOWN, PROGRAM, Dial, gains, switch
from switches import STEP, Agreeing, Engine, Shop, Speed, Switches

from perfaudit.errors import NothingMeasured, UserError
from perfaudit.findings import Expected, Finding, Fix, Location, Saving
from perfaudit.measure.entrants import CONTROL, TWIN_CONTROL
from perfaudit.measure.journal import all_runs
from perfaudit.measure.ledger import Variant
from perfaudit.measure.watch import Watch
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune import price as pricing_module
from perfaudit.tune import pricing_races
from perfaudit.tune.candidates import PATCH, Candidate
from perfaudit.tune.history import comparisons
from perfaudit.tune.observed_findings import Merged
from perfaudit.tune.price import price
from perfaudit.tune.priced_findings import Priced, Waiting, _with_saving, findings_of
from perfaudit.tune.race_results import Raced, Seen
from perfaudit.tune.recording import Begin, Record, begin

MEASURED = Saving("measured", 0.1, 0.2, 0.004)
Pricing = Callable[..., Report]


class Stages(Watch):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def stage(self, words: str) -> None:
        self.seen.append(words)


@pytest.fixture
def pricing(monkeypatch: pytest.MonkeyPatch, clock: FakeClock, project: Callable[..., Path]) -> Pricing:
    """`pricing(speed, finding, ...)`: their report; `shown`, `withdrawn`, `problems`: what observing it shows."""
    project(**{"t.py": PROGRAM})
    monkeypatch.setattr("perfaudit.tune.patched_source.Verifier", Agreeing)

    def run(
        speed: Speed | Shop, *findings: Finding, budget: float = 400.0, selected: frozenset[str] | None = None,
        shown: Sequence[Finding] | None = None, withdrawn: Sequence[Finding] = (), problems: Sequence[str] = (),
        looked: list[float] | None = None, watch: Watch | None = None, begin: Begin = lambda start: Record(),
    ) -> Report:  # fmt: skip
        def observed(session: Any, survey: Any, seconds: float) -> Any:
            if looked is not None:
                looked.append(seconds)
            kept = survey.findings if shown is None else shown
            return Merged(tuple(kept), tuple(withdrawn), tuple(problems))

        monkeypatch.setattr(pricing_module, "observed_findings", observed)
        shop = speed if isinstance(speed, Shop) else Shop(clock, speed)
        report = Report("scan", findings, notes=("scanned",))
        return price(Target("t.py", {}), report, budget, "cpu", watch or Watch(), 7.0, selected, shop, clock, begin)

    return run


def saved(finding: Finding) -> tuple[str, float, float, float | None] | None:
    s = finding.saving
    return s and (s.basis, round(s.low, 4), round(s.high, 4), s.seconds_per_step and round(s.seconds_per_step, 6))


def notes(report: Report) -> dict[str, str]:
    return {finding.rule: finding.note for finding in report.findings}


CHECKED = "checked: the losses agree"
NOT_SHOWN = "its patch is not handed over: it was not shown to pay"


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (None, None),
        (Saving("documented", 0.0, 0.3, source="https://a.org"), Expected("documented", 0.0, 0.3)),
        (Saving("benchmarked", 0.3, 0.4, source="make bench"), Expected("benchmarked", 0.3, 0.4)),
    ],
)
def test_a_measured_saving_remembers_what_was_known(known: Saving | None, expected: Expected | None) -> None:
    priced = _with_saving(Finding("PA000", "slow", "info", "slow", saving=known), MEASURED)
    assert priced.saving is not None
    assert (priced.saving.basis, priced.saving.low, priced.saving.high) == ("measured", 0.1, 0.2)
    assert priced.saving.expected == expected


def test_nothing_measured_takes_the_known_saving_away() -> None:
    known = Saving("documented", 0.0, 0.3)
    assert _with_saving(Finding("PA000", "slow", "info", "slow", saving=known), None).saving is None


# ---- one training ------------------------------------------------------------------------------------------------------


def test_patches_are_raced_in_one_training_and_all_that_pays_at_once(pricing: Pricing, clock: FakeClock) -> None:
    """Savings do not add up: 20 % and 10 % are 25 % together, and that is measured, not computed."""

    def speed(on: Switches) -> float:
        return 0.75 if on["a"] and on["b"] else 0.8 if on["a"] else 0.9 if on["b"] else 1.0

    shop, watch = Shop(clock, speed), Stages()
    report = pricing(shop, switch("b"), switch("a", KNOWN), watch=watch)
    assert [(f.rule, saved(f), f.note) for f in report.findings] == [
        ("PA003", ("screened", 0.2, 0.2, 0.002), CHECKED),
        ("PA004", ("screened", 0.1, 0.1, 0.001), CHECKED),
    ]
    assert report.findings[0].saving is not None
    assert report.findings[0].saving.expected == Expected("documented", 0.0, 0.05)
    assert report.notes == (
        "all 2 patches that pay, applied together: 10.00 ms → 7.50 ms a step, saves 25.0 to 25.0 % (measured); "
        f"{CHECKED}",
    )
    alone = [["as it is"], ["PA004 t.py"], ["PA003 t.py"]]
    assert shop.opened == alone + [["as it is", "together"]] * 4
    assert watch.seen == [
        "loading t.py",
        "observing a step",
        "racing every patch in one training, in turn with your code",
        "checking PA004, PA003",
        "measuring 2 patches together",
    ]
    assert [(c.candidate["patch"], round(c.ratio, 4), c.basis, c.way) for c in report.comparisons] == [
        ("PA004", 0.9, "screened", "code"),
        ("PA003", 0.8, "screened", "code"),
        ("PA004 + PA003", 0.75, "measured", ""),
    ]
    assert [(t.settings["patch"], t.n) for t in report.trials] == [("none", 24), ("PA004 + PA003", 24)]
    control = report.calibration
    assert control is not None and (control.ratio, control.low, control.high) == (1.0, 1.0, 1.0)
    assert Path("t.py").read_text() == PROGRAM


def test_what_they_change_together_is_checked_as_a_patch_that_changes_all_of_it(
    pricing: Pricing, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[dict[str, tuple[str, ...]]] = []

    class Noting(Agreeing):
        def __init__(self, base: str, changes: dict[str, Any], *rest: Any, **more: Any) -> None:
            asked.append(changes)
            super().__init__(base, changes, *rest, **more)

    monkeypatch.setattr("perfaudit.tune.patched_source.Verifier", Noting)
    pricing(gains(a=0.8, b=0.9), switch("a", changes=("rng",)), switch("b", changes=("order", "rng")))
    assert asked == [{"PA003 t.py": ("rng",), "PA004 t.py": ("order", "rng")}, {"together": ("order", "rng")}]


def test_a_patch_that_saves_memory_stays_though_it_is_no_faster(pricing: Pricing) -> None:
    (found,) = pricing(gains(), switch("a").with_(rule="PA603")).findings
    assert (
        found.note
        == "it looked no faster in 4 comparisons and was not measured further; what its patch saves is memory"
    )
    assert found.fix is not None


def test_only_what_pays_is_applied_together_and_one_alone_is_not_raced_again(
    pricing: Pricing, clock: FakeClock
) -> None:
    shop = Shop(clock, gains(a=0.8))
    report = pricing(shop, switch("a"), switch("b"), switch("c", KNOWN))
    assert [(f.rule, saved(f) and saved(f)[1:3]) for f in report.findings[:1]] == [("PA003", (0.2, 0.2))]  # type: ignore[index]
    assert shop.opened == [["as it is"], ["PA003 t.py"]]
    assert report.notes == ()
    left = f"it looked no faster in 4 comparisons and was not measured further; {NOT_SHOWN}"
    assert {rule: note for rule, note in notes(report).items() if rule != "PA003"} == {"PA004": left, "PA005": left}
    assert [f.rule for f in report.findings if f.fix is not None] == ["PA003"]
    assert {f.rule: saved(f) for f in report.findings if f.rule != "PA003"} == {
        "PA004": None,
        "PA005": ("documented", 0.0, 0.05, None),
    }
    assert {(c.candidate["patch"], c.given_up) for c in report.comparisons} == {
        ("PA003", False), ("PA004", True), ("PA005", True)
    }  # fmt: skip


def test_an_effect_that_stays_undecided_does_not_hold_the_others_up(pricing: Pricing, clock: FakeClock) -> None:
    report = pricing(Shop(clock, gains(a=0.8, b=0.985), noise=0.03), switch("a"), switch("b"))
    quads = {c.candidate["patch"]: c.n for c in report.comparisons if c.basis == "screened"}
    assert quads["PA003"] == 8
    assert 32 <= quads["PA004"] < 64
    (small,) = [f.saving for f in report.findings if f.rule == "PA004"]
    assert small is not None and small.low < 0.01 < small.high


@pytest.mark.parametrize("raises", [False, True])
def test_a_patch_that_is_refused_is_withdrawn_with_the_reason(pricing: Pricing, clock: FakeClock, raises: bool) -> None:
    """By the check that compares losses, or by a step that raises with it in the race."""

    def crash(on: Switches) -> None:
        if raises and on["a"]:
            raise ValueError("no such kernel")

    shop = Shop(clock, gains(a=0.8, b=0.9))
    if raises:
        shop.fails = crash
    else:
        shop.differs = lambda on: "losses differ" if on["a"] else ""
    report = pricing(shop, switch("a", KNOWN), switch("b"))
    found = {finding.rule: finding for finding in report.findings}
    why = "with it, a step raises no such kernel" if raises else "losses differ"
    assert (found["PA003"].fix, found["PA003"].note) == (None, f"its patch is withdrawn: {why}")
    assert saved(found["PA003"]) == ("documented", 0.0, 0.05, None)
    assert (found["PA004"].fix is not None, found["PA004"].note) == (True, CHECKED)
    assert report.notes == ()  # one that pays is no more than itself


@pytest.mark.parametrize("behind", [0, 3, 20])
def test_a_patch_with_which_a_later_step_raises_is_withdrawn_though_nothing_else_was_compared(
    pricing: Pricing, clock: FakeClock, behind: int
) -> None:
    made: list[int] = []

    def fails(on: Switches) -> None:
        made.extend([1] * on["a"])
        if on["a"] and len(made) > behind:
            raise ValueError("no such kernel")

    report = pricing(Shop(clock, gains(a=0.985), fails=fails, noise=0.05), switch("a", KNOWN))
    (finding,) = report.findings
    assert (finding.fix, finding.note) == (None, "its patch is withdrawn: with it, a step raises no such kernel")
    assert (saved(finding), report.comparisons) == (("documented", 0.0, 0.05, None), ())


def test_a_patch_with_which_the_first_step_raises_is_withdrawn_where_no_time_is_left_for_fresh_processes(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.pricing_races.FEWEST_SECONDS", 1e6)
    raises = "with it, a step raises ValueError: no such kernel"
    shop = Shop(clock, gains(a=0.8, b=0.9), refused=lambda on: raises if on["a"] else "")
    found = {finding.rule: finding for finding in pricing(shop, switch("a"), switch("b")).findings}
    assert (found["PA003"].fix, found["PA003"].note) == (None, f"its patch is withdrawn: {raises}")
    assert found["PA004"].fix is not None


@pytest.mark.parametrize("as_source", [False, True])
def test_a_patch_whose_losses_could_not_be_compared_is_not_handed_over(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, as_source: bool
) -> None:
    class Blind(Agreeing):
        def check(self, child: object, variant: Variant, facts: object) -> None:
            self.said[variant.key] = "not compared: the losses of the unpatched code are not finite"

    monkeypatch.setattr("perfaudit.tune.patched_source.Verifier", Blind)
    shop = Shop(clock, gains(a=0.8, b=0.9), refused=lambda on: "it runs now" if as_source else "")
    report = pricing(shop, switch("a"), switch("b"))
    why = "its patch is not handed over: not compared: the losses of the unpatched code are not finite"
    assert [(f.fix, f.note) for f in report.findings] == [(None, why)] * 2
    assert [saved(f) and saved(f)[0] for f in report.findings] == ["measured" if as_source else "screened"] * 2  # type: ignore[index]
    assert report.notes == () and not any("together" in keys for keys in shop.opened)


@pytest.mark.parametrize("as_source", [False, True])
def test_a_patch_that_is_slower_is_not_handed_over_and_one_that_is_undecided_stays(
    pricing: Pricing, clock: FakeClock, as_source: bool
) -> None:
    speeds = gains(a=1.2, b=1.0) if as_source else gains(a=1.05, b=0.99)
    shop = Shop(clock, speeds, refused=lambda on: "it runs now" if as_source else "", noise=0.03)
    report = pricing(shop, switch("a"), switch("b"), switch("c"))
    found = {f.rule: f for f in report.findings}
    assert found["PA003"].fix is None and NOT_SHOWN in found["PA003"].note
    assert found["PA004"].fix is not None and NOT_SHOWN not in found["PA004"].note


def test_a_patch_that_was_raced_as_a_twin_says_what_its_interval_leaves_out(pricing: Pricing, clock: FakeClock) -> None:
    (found,) = pricing(Shop(clock, gains(a=0.8), way="twin"), switch("a")).findings
    assert found.fix is not None
    memory = "whose place in memory changes its time too: that is not in the interval"
    assert found.note == f"{CHECKED}; timed in a second training beside yours, {memory}"


def test_patches_that_do_not_run_together_are_told_so(pricing: Pricing, clock: FakeClock) -> None:
    shop = Shop(clock, gains(a=0.8, b=0.9))
    shop.differs = lambda on: "losses differ" if on["a"] and on["b"] else ""
    report = pricing(shop, switch("a"), switch("b"))
    assert report.notes == ("the 2 patches that pay were not measured together: losses differ",)


def test_patches_of_the_same_text_are_not_stacked(pricing: Pricing) -> None:
    other = switch("a")
    assert other.fix is not None
    other = replace(other, rule="PA009", fix=replace(other.fix, edits=(replace(other.fix.edits[0], text="2"),)))
    report = pricing(gains(a=0.8), switch("a"), other)
    said = "the 2 patches that pay were not measured together: two patches change the same text of t.py"
    assert report.notes == (said,)


def test_patches_of_two_files_are_applied_together(
    pricing: Pricing, clock: FakeClock, project: Callable[..., Path]
) -> None:
    project(**{"u.py": PROGRAM})
    ran: list[dict[str, str]] = []

    class Seen(Shop):
        def open(self, variants: Sequence[Variant]) -> Any:
            ran.extend(variant.overlay for variant in variants if variant.key == "together")
            return super().open(variants)

    pricing(Seen(clock, gains(a=0.8, b=0.9)), switch("a"), switch("b", path="u.py"))
    assert ran[0] == {"t.py": PROGRAM.replace("a = 0", "a = 1"), "u.py": PROGRAM.replace("b = 0", "b = 1")}


# ---- fresh processes ---------------------------------------------------------------------------------------------------


def test_what_cannot_be_put_in_place_is_raced_in_fresh_processes(pricing: Pricing, clock: FakeClock) -> None:
    shop = Shop(clock, gains(a=0.8, b=0.9, c=1.0), refused=lambda on: "it runs now" if on["b"] or on["c"] else "")
    report = pricing(shop, switch("a"), switch("b"), switch("c"))
    assert {f.rule: saved(f) for f in report.findings} == {
        "PA003": ("screened", 0.2, 0.2, 0.002),
        "PA004": ("measured", 0.1, 0.1, 0.001),
        "PA005": ("measured", 0.0, 0.0, 0.0),
    }
    assert set(notes(report).values()) == {CHECKED}
    assert ["as it is", "PA004 t.py", "PA005 t.py"] in shop.opened
    assert shop.opened[-1] == ["as it is", "together"]
    assert "28.0 to 28.0 % (measured)" in report.notes[0]
    assert [(c.candidate["patch"], c.basis) for c in report.comparisons] == [
        ("PA003", "screened"), ("PA004", "measured"), ("PA005", "measured"), ("PA003 + PA004", "measured")
    ]  # fmt: skip


def test_four_patches_are_raced_at_once_and_half_a_share_is_kept(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[tuple[list[str], float]] = []
    real = pricing_races.race_patched

    def noting(session: Any, profile: Any, race: Any, deadline: Any) -> None:
        raced.append(([variant.key for variant in race.patches], deadline.seconds_left() / whole.seconds_left()))
        real(session, profile, race, deadline)

    monkeypatch.setattr(pricing_races, "race_patched", noting)
    from perfaudit.measure.clock import Deadline

    whole = Deadline(400.0, clock)
    findings = [replace(switch("a"), rule=f"PA90{n}") for n in range(6)]
    pricing(Shop(clock, gains(a=1.2), refused=lambda on: "it runs now" if on["a"] else ""), *findings)
    assert [keys for keys, _ in raced] == [[f"PA90{n} t.py" for n in range(4)], ["PA904 t.py", "PA905 t.py"]]
    assert [share for _, share in raced] == [pytest.approx(1 / 2.5, rel=0.01), pytest.approx(1 / 1.5, rel=0.01)]


def test_what_failed_in_fresh_processes_is_withdrawn(pricing: Pricing, clock: FakeClock) -> None:
    shop = Shop(clock, gains(b=0.9), refused=lambda on: "it runs now", broken=lambda on: "no kernel" if on["a"] else "")
    report = pricing(shop, switch("a"), switch("b"))
    found = {finding.rule: finding for finding in report.findings}
    assert (found["PA003"].fix, found["PA003"].note) == (None, "its patch is withdrawn: no kernel")
    assert (found["PA004"].fix is not None, saved(found["PA004"])) == (True, ("measured", 0.1, 0.1, 0.001))


# ---- time --------------------------------------------------------------------------------------------------------------


def test_what_the_time_was_too_short_for_is_said(pricing: Pricing, clock: FakeClock) -> None:
    report = pricing(Shop(clock, gains(a=0.8, b=0.9)), switch("a"), switch("b"), budget=1.35)
    brief = "measured too briefly for an interval, give it longer with --budget"
    assert notes(report) == {"PA003": brief, "PA004": brief}
    refused = Shop(clock, gains(a=0.8, b=0.9), refused=lambda on: "it runs now" if on["b"] else "")
    report = pricing(refused, switch("a"), switch("b"), budget=1.6)
    said = "not measured: the budget ended before a race of fresh processes, which it needs: it runs now"
    assert notes(report)["PA004"] == said


@pytest.mark.parametrize(
    ("ends", "said"), [(2, "give it longer with --budget"), (3, "as the training ended by itself")]
)
def test_a_longer_budget_is_not_asked_for_where_the_script_ended_again_and_again(ends: int, said: str) -> None:
    finding = switch("a")
    assert finding.fix is not None and finding.location is not None
    own = Candidate("PA003 t.py", PATCH, {"patch": "PA003"}, finding.fix, finding.location, PROGRAM, "code")
    end = "t.py: the script ended after 90 updates of its optimizers"
    raced = Raced({own.key: Seen(2, "")}, own_end=end, own_ends=ends, updates_to_end=90)
    priced = Priced(waiting={own.key: Waiting(finding, own, [own])}, raced=raced)
    (found,) = findings_of(priced, "the budget ended")
    assert found.note == f"measured too briefly for an interval, {said}"


def test_while_nothing_pays_the_time_that_is_kept_for_checks_is_raced_in(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless something waits for fresh processes."""

    def quads(kept: float, refused: str = "") -> int:
        shop = Shop(clock, gains(a=0.995), noise=0.03, refused=lambda on: refused if on["b"] else "")
        monkeypatch.setattr("perfaudit.tune.climb_time.SLICE", kept)
        report = pricing(shop, switch("a"), *([switch("b")] if refused else []), budget=2.0)
        return next(c.n for c in report.comparisons if c.candidate["patch"] == "PA003" and c.basis == "screened")

    never = 100.0
    assert quads(0.1) > 1.5 * quads(never)
    assert quads(0.1, "it runs now") == quads(never, "it runs now")


def test_where_one_pays_the_others_are_raced_on_until_its_check(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quads_and_note(check: float) -> tuple[int, str]:
        monkeypatch.setattr(pricing_races, "seconds_to_check", lambda profile: check)
        shop = Shop(clock, gains(a=0.3, b=0.99), noise=0.03)
        report = pricing(shop, switch("a"), switch("b"), budget=2.0)
        return next(c.n for c in report.comparisons if c.candidate["patch"] == "PA004"), notes(report)["PA003"]

    longer, checked = quads_and_note(0.7)
    assert longer > 1.3 * quads_and_note(1.9)[0]
    assert checked == CHECKED


def test_a_patch_whose_losses_there_was_no_time_to_compare_is_not_handed_over(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing_races, "SCREENING_SHARE", 1.0)
    report = pricing(Shop(clock, gains(a=0.8, b=0.985), noise=0.02), switch("a"), switch("b"), budget=2.0)
    (found,) = [f for f in report.findings if f.rule == "PA003"]
    assert found.note == "its patch is not handed over: the budget ended before its losses were compared"
    assert found.fix is None and found.saving is not None and found.saving.low > 0


def test_where_the_last_race_does_not_decide_the_figure_is_that_of_the_training(
    pricing: Pricing, clock: FakeClock
) -> None:
    report = pricing(gains(a=0.8, b=0.9), switch("a"), switch("b"), budget=3.0)
    (note,) = report.notes
    saves = "10.00 ms → 7.20 ms a step, saves 28.0 to 28.0 % (screened)"
    assert note == f"all 2 patches that pay, applied together: {saves}"  # which nobody has checked together
    assert all(f.note == CHECKED for f in report.findings)


@pytest.mark.parametrize("dies_at", [1, 30, -10])
def test_what_is_interrupted_tells_what_there_is(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, dies_at: int
) -> None:
    """In the first steps of the race, amid it, and in that of all together."""
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    whole = Shop(clock, gains(a=0.8, b=0.9))
    pricing(whole, switch("a"), switch("b"))
    dies_at = dies_at % whole.blocks
    report = pricing(Shop(clock, gains(a=0.8, b=0.9), dies_at=dies_at), switch("a"), switch("b"))
    assert report.interrupted and report.target == "t.py"
    assert report.notes[0] == "interrupted; what was measured until then is in this report"
    expected = {
        1: {"not measured: interrupted before it"},
        30: {"measured too briefly for an interval, give it longer with --budget"},
    }
    assert set(notes(report).values()) == expected.get(dies_at, {CHECKED})
    assert [note.partition(":")[0] for note in report.notes[1:]] == (
        ["all 2 patches that pay, applied together"] if dies_at > 30 else []
    )


def test_what_is_interrupted_before_anything_was_sorted_is_the_scan_s(pricing: Pricing, clock: FakeClock) -> None:
    class Stopping(Shop):
        def trace(self, files: list[str]) -> Any:
            raise KeyboardInterrupt

    report = pricing(Stopping(clock, gains()), switch("a"))
    assert (report.interrupted, report.findings, report.trials) == (True, (switch("a"),), ())


def test_without_a_comparison_or_the_code_as_it_is_there_is_nothing(pricing: Pricing, clock: FakeClock) -> None:
    everything = Shop(clock, gains(), refused=lambda on: "it runs now", broken=lambda on: "out of memory")
    with pytest.raises(NothingMeasured, match=r"t\.py: your code as it is could not be measured: out of memory"):
        pricing(everything, switch("a"))
    with pytest.raises(NothingMeasured, match="no comparison was finished within the budget of 1 s"):
        pricing(gains(a=0.8), switch("a"), budget=0.6)
    assert pricing(gains(), replace(switch("a"), fix=None)).trials == ()  # nothing to measure is no failure


# ---- runs that end early, and are resumed ------------------------------------------------------------------------------


class Killed(BaseException):
    """What nothing catches, as a process that is killed."""


@dataclass
class Telling(Shop):
    """A shop that tells in `ran` which switches a step of a race was made with, and is killed in that of `killed_at`."""

    ran: list[str] = field(default_factory=list)
    killed_at: int = sys.maxsize

    def __post_init__(self) -> None:
        def told(on: Switches) -> None:
            if self.blocks > self.killed_at:
                raise Killed
            self.ran.append("".join(name for name, value in on.items() if value))

        self.crashes = told


def killed_when_a_was_decided(pricing: Pricing, clock: FakeClock, speed: Speed) -> Telling:
    """A shop whose scan was killed in its second slice behind the decision on a; b was not decided."""
    whole = Telling(clock, speed, noise=0.02)
    pricing(whole, switch("a"), switch("b"))
    shop = Telling(clock, speed, noise=0.02, killed_at=max(n for n, on in enumerate(whole.ran) if on == "a") + 30)
    with pytest.raises(Killed):
        pricing(shop, switch("a"), switch("b"), begin=begin(Path(), False))
    return shop


def test_what_a_killed_scan_had_decided_is_not_raced_again(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    speed = gains(a=0.8, b=0.985)
    killed = killed_when_a_was_decided(pricing, clock, speed)
    assert {"a", "b", ""} == {*killed.ran}
    again = Telling(clock, speed, noise=0.02)
    report = pricing(again, switch("a"), switch("b"), begin=begin(Path(), True))
    assert {"b", ""} == {*again.ran}
    (found,) = [f for f in report.findings if f.rule == "PA003"]
    assert (found.note, found.saving is not None and found.saving.low > 0.15) == (CHECKED, True)
    (run,) = all_runs(Path())
    assert (run.status, len(run.sessions()), run.start["command"]) == ("finished", 2, "scan")


def test_the_history_of_a_killed_scan_has_what_was_compared(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perfaudit.tune.screening.SLICE", 0.1)
    killed_when_a_was_decided(pricing, clock, gains(a=0.8, b=0.985))
    (run,) = all_runs(Path())
    seen = {row["candidate"]["patch"]: row for row in comparisons(run)}
    assert run.status == "unfinished"
    assert (seen["PA003"]["verdict"], seen["PA003"]["basis"]) == ("faster", "screened")
    assert seen["PA003"]["high"] < 0.85
    assert (seen["PA004"]["verdict"], seen["PA004"]["n"] > 0) == ("undecided", True)


def test_what_an_earlier_scan_has_checked_is_not_checked_again(pricing: Pricing, clock: FakeClock) -> None:
    speed = gains(a=0.8, b=0.9)
    whole = Shop(clock, speed)
    pricing(whole, switch("a"), switch("b"))
    first = Shop(clock, speed, dies_at=whole.firsts_of_labs + 2)  # in the race of all together
    assert pricing(first, switch("a"), switch("b"), begin=begin(Path(), False)).interrupted
    again = Shop(clock, speed)
    report = pricing(again, switch("a"), switch("b"), begin=begin(Path(), True))
    assert {*map(tuple, again.opened)} == {("as it is", "together")}
    assert all(f.note == CHECKED and f.fix is not None for f in report.findings)


def test_a_scan_does_not_go_on_with_a_run_of_something_else(pricing: Pricing, clock: FakeClock) -> None:
    begin(Path(), False)({"command": "tune", "target": "t.py", "knobs": []})
    with pytest.raises(UserError, match="--resume: no run of `perfaudit scan` in this folder is unfinished"):
        pricing(gains(a=0.8), switch("a"), begin=begin(Path(), True))


# ---- a control that excludes 1 -----------------------------------------------------------------------------------------


DOUBTED = (
    "its patch is not handed over: it was raced in one training only, and there the control, which is identical code"
)


def test_where_the_control_excludes_1_what_pays_is_measured_in_fresh_processes(
    pricing: Pricing, clock: FakeClock
) -> None:
    """As a climb does: a figure that is only screened hands nothing over, one of fresh processes stands."""
    shop = Shop(clock, gains(a=0.8, b=0.9), control=1.05)
    report = pricing(shop, switch("a"), switch("b"), switch("c"))
    assert shop.opened[0] == ["as it is", "PA003 t.py", "PA004 t.py"]  # what does not pay is not raced
    found = {f.rule: f for f in report.findings}
    assert saved(found["PA003"]) == ("measured", 0.2, 0.2, 0.002)
    assert saved(found["PA004"]) == ("measured", 0.1, 0.1, 0.001)
    assert all(found[rule].fix is not None for rule in ("PA003", "PA004"))
    assert all(found[rule].note == CHECKED for rule in ("PA003", "PA004"))
    assert report.notes[0].startswith("all 2 patches that pay, applied together") and "(measured)" in report.notes[0]
    assert report.calibration is not None and report.calibration.low == pytest.approx(1.05)


def test_where_the_control_of_twins_excludes_1_only_what_is_a_twin_is_measured_in_fresh_processes(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    race = Engine.race

    def beside_a_twin(engine: Engine, seconds: float, last: bool) -> Any:
        state = race(engine, seconds, last)
        off = {**state["entrants"][CONTROL], "interval": [1.05, 1.04, 1.06, 20]}
        ways = {**state["ways"], "PA004 t.py": "twin", TWIN_CONTROL: "twin"}
        return {**state, "ways": ways, "entrants": {**state["entrants"], TWIN_CONTROL: off}}

    monkeypatch.setattr(Engine, "race", beside_a_twin)
    shop = Shop(clock, gains(a=0.8, b=0.9))
    found = {f.rule: f for f in pricing(shop, switch("a"), switch("b")).findings}
    assert ["as it is", "PA004 t.py"] in shop.opened
    assert {rule: each.saving and each.saving.basis for rule, each in found.items()} == {
        "PA003": "screened",
        "PA004": "measured",
    }
    assert all(each.fix is not None and each.note == CHECKED for each in found.values())


def test_where_the_control_excludes_1_and_no_time_is_left_nothing_is_handed_over(
    pricing: Pricing, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pricing_races, "SCREENING_SHARE", 1.0)
    shop = Shop(clock, gains(a=0.8, b=0.985), control=1.05, noise=0.02)
    report = pricing(shop, switch("a"), switch("b"), budget=2.0)
    (found,) = [f for f in report.findings if f.rule == "PA003"]
    assert (shop.opened, found.fix) == ([], None)
    assert found.note.startswith(DOUBTED) and found.saving is not None and found.saving.basis == "screened"


def test_where_the_control_excludes_1_a_race_of_fresh_processes_that_tells_nothing_hands_nothing_over(
    pricing: Pricing, clock: FakeClock
) -> None:
    report = pricing(Shop(clock, gains(a=0.8, b=0.9), control=1.05), switch("a"), switch("b"), budget=2.6)
    assert all(f.fix is None and f.note.startswith(DOUBTED) for f in report.findings)
    assert not [note for note in report.notes if "saves" in note]


def test_where_the_control_excludes_1_a_setting_that_pays_is_measured_and_handed_over(
    pricing: Pricing, clock: FakeClock, dial: Any
) -> None:
    dial([1])
    report = pricing(Shop(clock, gains(a=0.8), control=1.05), switch("a"))
    (found,) = report.findings
    assert saved(found) == ("measured", 0.2, 0.2, 0.002)
    assert found.fix is not None and found.fix.title == "dial 1"
    assert found.note == f"found by searching dial; {CHECKED}"


# ---- what is looked for --------------------------------------------------------------------------------------------


def test_a_scan_is_priced_whole(pricing: Pricing, clock: FakeClock) -> None:
    shop, outside, looked = Shop(clock, gains(a=0.8, b=0.9)), Path("..", "u.py").as_posix(), list[float]()
    away = replace(switch("b"), rule="PA900", location=Location(outside, 4, 1, 4, 6))
    nowhere = replace(switch("a"), rule="PA901", location=None)
    report = pricing(shop, switch("b"), switch("a"), away, nowhere, budget=1000.0, looked=looked)
    assert shop.traced == ["t.py"]
    assert looked == [100.0]  # a tenth of the budget for observing
    assert [(f.rule, f.note) for f in report.findings] == [
        ("PA003", CHECKED),
        ("PA004", CHECKED),
        ("PA901", "not measured: there is no patch to measure"),
        ("PA900", "not measured: the file lies outside the working directory"),
    ]
    assert (report.target, report.interrupted, len(report.trials), len(report.comparisons)) == ("t.py", False, 2, 3)
    assert report.environment is not None and report.calibration is not None


def test_what_a_run_shows_adds_takes_back_and_is_selected(pricing: Pricing, clock: FakeClock) -> None:
    new = replace(switch("b"), rule="PA006", location=Location("t.py", 2, 1, 2, 6))
    other = replace(new, rule="PA007", location=Location("t.py", 1, 1, 1, 6))
    shop, looked = Shop(clock, gains(a=0.8, b=0.9), lines=range(3, 5)), list[float]()
    report = pricing(
        shop, switch("a"), switch("b"), shown=[switch("a"), new, other], withdrawn=[switch("b").with_(note="it is on")],
        problems=["no sync was seen"], selected=frozenset({"PA003", "PA006"}), budget=90.0, looked=looked,
    )  # fmt: skip
    assert [(f.rule, f.note) for f in report.findings] == [("PA003", CHECKED), ("PA006", CHECKED)]
    assert report.notes[:2] == ("not observed: no sync was seen", "t.py:4:1: PA004 is taken back: it is on")
    assert looked == [10.0]  # at least
    everything = pricing(Shop(clock, gains(a=0.8, b=0.9)), switch("a"), shown=[switch("a"), other])
    assert [f.rule for f in everything.findings] == ["PA003", "PA007"]


@pytest.mark.parametrize(("seconds", "is_observed"), [(1.0, True), (1.01, False)])
def test_steps_that_are_too_long_are_not_observed(
    pricing: Pricing, clock: FakeClock, seconds: float, is_observed: bool
) -> None:
    """Ten of them in a tenth of the budget."""
    looked = list[float]()
    report = pricing(Shop(clock, gains(a=0.8), per_step=seconds), switch("a"), budget=100.0, looked=looked)
    note = "the training was not observed: its steps are too long for this --budget"
    assert (note in report.notes, len(looked)) == ((False, 1) if is_observed else (True, 0))


# ---- settings with a best value ----------------------------------------------------------------------------------------


@pytest.fixture
def dial(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`dial([1, 2])`: a knob with these values settles PA003."""

    def put(values: list[int], **attributes: Any) -> None:
        module = types.ModuleType("perfaudit.knobs.dial")
        module.KNOB = Dial(values, **attributes)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setattr(pricing_module, "all_knobs", lambda: ["dial"])

    return put


def dialled(*takes: float) -> Speed:
    """The time of a step with the dial at 0, 1, 2 and so on."""
    return lambda on: takes[on["a"]]


def test_a_setting_with_a_best_value_is_searched_and_its_winner_handed_over(pricing: Pricing, dial: Any) -> None:
    dial([1, 2, 3])
    report = pricing(dialled(1.0, 0.9, 0.7, 0.69), switch("a"))
    (found,) = report.findings
    assert (saved(found), found.note) == (("screened", 0.3, 0.3, 0.003), f"found by searching dial; {CHECKED}")
    assert found.fix is not None and found.fix.title == "dial 2"  # as good as 3, and smaller
    assert [(c.knob, c.candidate["dial"], c.basis) for c in report.comparisons] == [
        ("dial", value, "screened") for value in (1, 2, 3)
    ]


def test_where_nothing_is_faster_the_best_that_was_tried_is_told(pricing: Pricing, clock: FakeClock, dial: Any) -> None:
    dial([1, 2])
    (found,) = pricing(dialled(1.0, 1.03, 1.02), switch("a")).findings
    assert found.note == "keep what you have: dial=1: looked no faster; dial=2: looked no faster"
    dial([1], min_gain=0.05)
    (found,) = pricing(Shop(clock, dialled(1.0, 0.98), noise=0.05), switch("a")).findings
    said = "keep what you have: nothing else was shown to gain 5 % or more; the best other setting tried: dial=1"
    assert found.note == said
    assert saved(found) is not None and found.fix is None


def test_faster_by_less_than_it_must_is_told_without_a_patch(pricing: Pricing, dial: Any) -> None:
    dial([1], min_gain=0.304)
    (found,) = pricing(dialled(1.0, 0.7), switch("a")).findings
    assert (saved(found), found.fix) == (("screened", 0.3, 0.3, 0.003), None)
    assert found.note == "faster, but not by 30 % for certain, so your setting stays; the best tried: dial=1"


def test_a_setting_that_sets_more_than_the_finding_says_is_not_its_fix(pricing: Pricing, dial: Any) -> None:
    dial([1, 2], covers=lambda settings: ("threads",) if settings["dial"] == 2 else ())
    report = pricing(dialled(1.0, 0.9, 0.5), switch("a"))
    (found,) = report.findings
    assert found.fix is not None and found.fix.title == "dial 1"
    assert [compared.candidate["dial"] for compared in report.comparisons] == [1]


def test_a_knob_that_cannot_matter_leaves_the_finding_s_own_patch(pricing: Pricing, dial: Any) -> None:
    dial([1, 2], share=lambda survey: 0.0, phases=("loading",))
    report = pricing(dialled(1.0, 0.9, 0.8), switch("a"))
    assert [(f.fix and f.fix.title, f.note) for f in report.findings] == [("turn a on", CHECKED)]
    (left,) = report.not_applicable
    assert (left.knob, left.reason) == ("dial", "loading takes 0.0 % of the step, so there is next to nothing to gain")


def test_a_knob_on_a_fixed_batch_settles_nothing(pricing: Pricing, dial: Any) -> None:
    dial([2], fixed_batch=True)
    (found,) = pricing(dialled(1.0, 0.9, 0.8), switch("a")).findings
    assert found.fix is not None and found.fix.title == "turn a on"


def test_a_knob_is_searched_once_for_all_its_findings(pricing: Pricing, dial: Any) -> None:
    """A second finding of it, and those of no knob, have their own patches raced."""
    dial([2], rules=("PA004", "PA003"))
    report = pricing(dialled(1.0, 0.9, 0.8), *(replace(switch("a"), rule=rule) for rule in ("PA009", "PA003", "PA004")))
    titles = {finding.rule: finding.fix and finding.fix.title for finding in report.findings}
    assert titles == {"PA003": "dial 2", "PA004": "turn a on", "PA009": "turn a on"}


def test_settings_that_cannot_be_put_in_place_leave_the_finding_s_own_patch(
    pricing: Pricing, clock: FakeClock, dial: Any
) -> None:
    dial([2, 3])
    shop = Shop(clock, dialled(1.0, 0.9, 0.8, 0.7), refused=lambda on: "it runs now" if on["a"] > 1 else "")
    (found,) = pricing(shop, switch("a")).findings
    assert (found.fix and found.fix.title, saved(found)) == ("turn a on", ("measured", 0.1, 0.1, 0.001))


def test_a_search_that_was_too_brief_is_said(pricing: Pricing, dial: Any) -> None:
    dial([1, 2])
    (found,) = pricing(dialled(1.0, 0.9, 0.8), switch("a"), budget=1.35).findings
    said = "keep what you have: the budget was too small to decide anything; give it longer with --budget"
    assert (found.note, found.saving) == (said, None)


def test_the_ends_of_what_all_of_them_save_are_those_of_the_interval(pricing: Pricing, clock: FakeClock) -> None:
    """Two copies of one text are not alike: each generation has a speed of its own."""

    class Swinging(Shop):
        def open(self, variants: Sequence[Variant]) -> Any:
            self.swing = 1.0 + 0.02 * (-1) ** len(self.opened)
            opened = super().open(variants)
            for key, item in opened.items():
                if key != "as it is":
                    item.on = {**item.on, "swing": 1}
            return opened

    def speed(on: Switches) -> float:
        return gains(a=0.8, b=0.9)(on) * (shop.swing if "swing" in on else 1.0)  # type: ignore[no-any-return]

    shop = Swinging(clock, speed)
    report = pricing(shop, switch("a"), switch("b"))
    (whole,) = [c for c in report.comparisons if c.basis == "measured"]
    assert math.isfinite(whole.high) and whole.high - whole.low > 0.01
    assert f"saves {100 * (1 - whole.high):.1f} to {100 * (1 - whole.low):.1f} % (measured)" in report.notes[0]
    assert f"{1e3 * STEP:.2f} ms → {1e3 * STEP * whole.ratio:.2f} ms a step" in report.notes[0]


def test_a_fix_by_hand_is_never_measured(pricing: Pricing) -> None:
    report = pricing(gains(a=0.8), replace(switch("a"), fix=Fix("think", "manual")))
    assert notes(report) == {"PA003": "not measured: there is no patch to measure"}
