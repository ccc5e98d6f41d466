"""Acceptance: what is taken although it is worse, as far as the file says, with the reason, and no further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.errors import UserError
from perfaudit.findings import Finding, Location
from perfaudit.gate.acceptance import (
    Accepted,
    acceptances_since,
    findings_with_acceptances,
    new_acceptances,
    time_with_acceptances,
    with_acceptances,
)
from perfaudit.gate.baseline import Acceptance, Baseline, TargetState, read_gate_baseline, write_gate_baseline
from perfaudit.gate.baseline_update import update_baseline
from perfaudit.gate.comparable import Fingerprint, Seconds
from perfaudit.gate.target_counters import OF_ALL, Counted, Spot
from perfaudit.static.baseline import Known
from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, GateVerdict, TimeVerdict

HERE = Fingerprint("2.13.0", "cpu", "cpu", ("float32",), "Linux x86_64", "3.12", "AMD EPYC 7B13", 2, 2, "")
BIAS = Known("train.py", "PA201", "aa", "a bias before a norm")
LOADER = Known("train.py", "PA101", "bb", "no workers")
TIME = Seconds(0.0123, 0.0121, 0.0131, 12)


def state(seconds: Seconds | None = TIME, environment: Fingerprint = HERE, **values: int) -> TargetState:
    return TargetState(environment, Counted(values).as_json(), seconds)


BEFORE = Baseline((BIAS,), {"train.py": state(operators=100, host_syncs=1), "eval.py": state(operators=7)})


def now(*findings: Known, **targets: TargetState) -> Baseline:
    return Baseline(findings, {f"{name}.py": value for name, value in targets.items()})


@pytest.mark.parametrize(
    ("state_now", "changes"),
    [
        (now(BIAS, train=state(operators=120, host_syncs=1)), (
            "train.py operators 100 -> 120", "train.py may be up to 20 % slower")),
        (now(BIAS, train=state(operators=100)), ("train.py host_syncs 1 -> not counted",)),
        (now(BIAS, train=state(operators=100, host_syncs=1, flops=5)), ("train.py flops not counted -> 5",)),
        (now(BIAS, LOADER, train=state(operators=100, host_syncs=1)), ("new finding PA101 in train.py: no workers",)),
        (now(train=state(operators=100, host_syncs=1)), ("gone: finding PA201 in train.py: a bias before a norm",)),
        # the same words on a line that was rewritten: the file must follow
        (now(replace(BIAS, digest="cc"), train=state(operators=100, host_syncs=1)), (
            "new finding PA201 in train.py: a bias before a norm", "gone: finding PA201 in train.py: a bias before a norm")),
        (now(BIAS, BIAS, train=state(operators=100, host_syncs=1)), ("new finding PA201 in train.py: a bias before a norm",)),
        (now(BIAS, train=state(operators=100, host_syncs=1), new=state(operators=1)), ("new.py is new",)),
        (now(BIAS, train=state(environment=replace(HERE, torch="2.14.0"), operators=101, host_syncs=1)), (
            "train.py torch 2.13.0 -> 2.14.0", "train.py operators 100 -> 101")),
        (now(BIAS, train=state(Seconds(0.02, 0.019, 0.021, 12), operators=100, host_syncs=1)), (
            "train.py step 12.3 ms -> 20 ms",)),
    ],
)  # fmt: skip
def test_what_changed_is_kept_in_words(state_now: Baseline, changes: tuple[str, ...]) -> None:
    after, said = update_baseline(BEFORE, state_now, " a deeper model ", "2026-11-22")
    assert said == changes
    assert [(entry.at, entry.reason, entry.changes) for entry in after.accepted] == [
        ("2026-11-22", "a deeper model", changes)
    ]
    assert after.findings == state_now.findings
    assert {**after.targets, **state_now.targets} == after.targets
    assert after.targets["eval.py"] == BEFORE.targets["eval.py"]


@pytest.mark.parametrize(
    "state_now",
    [
        now(BIAS),
        now(BIAS, train=state(operators=100, host_syncs=1)),
        now(BIAS, train=state(None, operators=100, host_syncs=1)),
        now(BIAS, train=state(Seconds(0.01235, 0.0121, 0.0131, 9), operators=100, host_syncs=1)),  # 0.4 % slower
        now(BIAS, train=state(Seconds(0.0135, 0.013, 0.0139, 9), operators=100, host_syncs=1)),  # a noisy hour
        now(BIAS, train=state(Seconds(0.01239, 0.01238, 0.0124, 9), operators=100, host_syncs=1)),
    ],
)
def test_nothing_changed_nothing_is_appended(state_now: Baseline) -> None:
    assert update_baseline(BEFORE, state_now, "why", "2026-11-22") == (BEFORE, ())


def test_apart_and_yet_the_same() -> None:
    exact = replace(BEFORE, targets={"train.py": state(Seconds(0.0100, 0.01, 0.01, 9), operators=1)}, findings=())
    near = now(train=state(Seconds(0.01009, 0.01009, 0.01009, 9), operators=1))
    assert update_baseline(exact, near, "why", "2026-11-22") == (exact, ())
    far = now(train=state(Seconds(0.01011, 0.01011, 0.01011, 9), operators=1))
    assert update_baseline(exact, far, "why", "2026-11-22")[1] == ("train.py step 10 ms -> 10.11 ms",)


def test_lines_that_moved_and_values_that_are_never_the_same_are_no_change() -> None:
    def counted(line: int, bytes_: str) -> Baseline:
        spots = {"host_syncs": [Spot("train.py", line, "loss.item()", "item", 1)]}
        found = Counted({"host_syncs": 1}, {"host_syncs": {"item": 1}}, spots, {"peak_live_bytes": bytes_})
        return now(train=TargetState(HERE, found.as_json()))

    before = counted(12, "4,096 and 8,192 in two runs")
    assert update_baseline(before, counted(14, "4,096 and 6,000 in two runs"), "why", "2026-11-22") == (before, ())


def test_a_target_whose_file_is_gone_is_dropped() -> None:
    after, changes = update_baseline(BEFORE, now(BIAS), "one model less", "2026-11-22", gone=["eval.py"])
    assert (changes, list(after.targets)) == (("eval.py is gone",), ["train.py"])


def test_other_factories_are_a_change_whose_work_says_nothing() -> None:
    other = replace(state(SLOW, operators=200, host_syncs=1), names={"model": "make_b"})
    after, changes = update_baseline(BEFORE, now(BIAS, train=other), "another model", "2026-11-22")
    assert changes[:2] == ("train.py factories found by their names -> model make_b", "train.py operators 100 -> 200")
    assert (after.targets["train.py"], after.accepted[0].slower) == (other, ())
    same = replace(BEFORE.targets["train.py"], names={"model": "make_b"})
    after, changes = update_baseline(BEFORE, now(BIAS, train=same), "another name", "2026-11-22")
    assert changes == ("train.py factories found by their names -> model make_b",)
    assert after.targets["train.py"] == same


def test_other_operators_with_the_same_sum_are_a_change() -> None:
    one, other = (
        now(train=TargetState(HERE, Counted({"operators": 1}, {"operators": {name: 1}}).as_json())) for name in "ab"
    )
    _, changes = update_baseline(one, other, "why", "2026-11-22")
    assert changes == ("train.py counters have other parts with the same sums, or others are set aside",)


@pytest.mark.parametrize(("part", "said"), [("set_aside", True), ("absent", True), ("places", False)])
def test_what_is_set_aside_or_absent_since_is_a_change(part: str, said: bool) -> None:
    counted = Counted({"operators": 1}).as_json()
    one, other = (now(train=TargetState(HERE, {**counted, part: parts})) for parts in ({}, {"flops": "why"}))
    changes = ("train.py counters have other parts with the same sums, or others are set aside",) if said else ()
    assert update_baseline(one, other, "why", "2026-11-22")[1] == changes
    assert update_baseline(other, one, "why", "2026-11-22")[1] == changes


def test_without_a_file_everything_is_new() -> None:
    after, changes = update_baseline(None, now(BIAS, train=state(operators=1)), "first", "2026-11-22")
    assert changes == ("new finding PA201 in train.py: a bias before a norm", "train.py is new")
    assert (after.findings, list(after.targets)) == ((BIAS,), ["train.py"])


SLOW = Seconds(0.02, 0.019, 0.021, 12)
DEEPER = {"operators": 300, "flops": 2000, "bytes_allocated": 64, "host_syncs": 1}
OTHER_TORCH = replace(HERE, torch="2.14.0")


@pytest.mark.parametrize(
    ("was", "is_now", "targets", "slower"),
    [
        # the one that grew most, as a share: of what is done, allocated or dispatched
        (DEEPER, {**DEEPER, "operators": 330}, ("train.py",), {"train.py": 0.1}),
        (DEEPER, {**DEEPER, "operators": 330, "flops": 2600}, ("train.py",), {"train.py": 0.3}),
        (DEEPER, {**DEEPER, "operators": 270, "bytes_allocated": 72}, ("train.py",), {"train.py": 0.125}),
        (DEEPER, {**DEEPER, "operators": 303}, ("train.py",), {}),  # 1 % fails nothing, so there is nothing to accept
        (DEEPER, {**DEEPER, "operators": 270}, ("train.py",), {}),
        # what a sync costs is not known from its count
        (DEEPER, {**DEEPER, "operators": 302, "host_syncs": 2}, ("train.py",), {}),
        # twice the batch is twice the work of a step, and times are compared by sample then
        ({**DEEPER, "samples": 8}, {**DEEPER, "flops": 4000, "samples": 16}, ("train.py",), {}),
        ({**DEEPER, "samples": 8}, {**DEEPER, "flops": 4400, "samples": 16}, ("train.py",), {"train.py": 0.1}),
        ({**DEEPER, "samples": 16}, {**DEEPER, "samples": 8}, ("train.py",), {"train.py": 1.0}),
        ({"operators": 300, "flops": 0}, {"operators": 300, "flops": 9}, ("train.py",), {}),
        ({"operators": 300}, {"operators": 300, "flops": 9}, ("train.py",), {}),
    ],
)  # fmt: skip
def test_a_slower_step_is_accepted_as_far_as_its_work_grew(
    was: dict[str, int], is_now: dict[str, int], targets: tuple[str, ...], slower: dict[str, float]
) -> None:
    before = Baseline(targets={"train.py": state(None, **was), "eval.py": state(None, operators=7)})
    after, _ = update_baseline(
        before, now(train=state(SLOW, **is_now), eval=state(None, operators=7)), "why", "2026-11-22"
    )
    assert (after.accepted[0].targets, dict(after.accepted[0].slower)) == (targets, slower)


@pytest.mark.parametrize(
    ("state_now", "targets"),
    [
        (now(BIAS, LOADER, train=state(operators=100, host_syncs=1), eval=state(operators=7)), ()),  # a finding only
        (now(BIAS, train=state(SLOW, operators=100, host_syncs=1)), ()),  # a noisy hour as likely as a slower step
        (now(BIAS, new=state(operators=1)), ("new.py",)),  # of what it grew is not known
        (now(BIAS, train=state(environment=OTHER_TORCH, operators=150, host_syncs=1)), ("train.py",)),
        (now(BIAS, train=state(environment=OTHER_TORCH, operators=100, host_syncs=1)), ()),
    ],
)
def test_what_says_nothing_of_the_work_lets_no_step_be_slower(state_now: Baseline, targets: tuple[str, ...]) -> None:
    after, _ = update_baseline(BEFORE, state_now, "why", "2026-11-22")
    assert [(entry.targets, entry.slower) for entry in after.accepted] == [(targets, ())]


def test_how_much_slower_may_be_said() -> None:
    same = now(BIAS, train=state(None, operators=100, host_syncs=1))
    after, changes = update_baseline(BEFORE, same, "slower, and right", "2026-11-22", slower=0.15)
    assert changes == ("train.py may be up to 15 % slower",)
    entry = Acceptance("2026-11-22", "slower, and right", (), changes, (("train.py", 0.15),))
    assert after == replace(BEFORE, accepted=(entry,))
    grown = now(BIAS, train=state(None, operators=200, host_syncs=1))
    after, changes = update_baseline(BEFORE, grown, "twice as deep", "2026-11-22", slower=0.15)
    assert changes == ("train.py operators 100 -> 200", "train.py may be up to 15 % slower")
    assert (after.accepted[0].targets, after.accepted[0].slower) == (("train.py",), (("train.py", 0.15),))


def test_a_slower_step_is_one_of_a_target() -> None:
    with pytest.raises(UserError, match=r"^a slower step is accepted of a target; name one"):
        update_baseline(BEFORE, now(BIAS), "why", "2026-11-22", slower=0.15)


def test_without_time_the_stored_one_stays() -> None:
    slow = SLOW
    after, changes = update_baseline(
        BEFORE, now(BIAS, train=state(slow, operators=120, host_syncs=1)), "w", "2026-11-22", False
    )
    assert changes == ("train.py operators 100 -> 120",)
    assert after.targets["train.py"].seconds_per_step == TIME
    assert [(entry.targets, entry.slower) for entry in after.accepted] == [(("train.py",), ())]
    unchanged = now(BIAS, train=state(slow, operators=100, host_syncs=1))
    assert update_baseline(BEFORE, unchanged, "w", "2026-11-22", time=False) == (BEFORE, ())


def test_a_time_of_other_code_does_not_stay() -> None:
    after, _ = update_baseline(BEFORE, now(BIAS, train=state(None, operators=120, host_syncs=1)), "why", "2026-11-22")
    assert after.targets["train.py"].seconds_per_step is None


def test_accepting_twice_appends_twice_and_keeps_the_first() -> None:
    once, _ = update_baseline(BEFORE, now(BIAS, train=state(operators=120, host_syncs=1)), "one", "2026-11-22")
    twice, _ = update_baseline(once, now(BIAS, train=state(operators=130, host_syncs=1)), "two", "2026-11-23")
    assert [entry.reason for entry in twice.accepted] == ["one", "two"]


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_reason_is_needed(reason: str) -> None:
    with pytest.raises(UserError, match=r"^an acceptance needs a reason"):
        update_baseline(BEFORE, now(), reason, "2026-11-22")


OLD = Acceptance("2026-10-01", "an older one", ("train.py",), ("train.py flops 1 -> 2",))
NEW = Acceptance(
    "2026-11-22", "a deeper model", ("train.py",), ("train.py operators 100 -> 120",), (("train.py", 0.2),)
)


@pytest.mark.parametrize(
    ("head", "base", "new"),
    [
        ((OLD, NEW), (OLD,), (NEW,)),
        ((OLD, NEW), None, (OLD, NEW)),  # the reference has no file
        ((OLD, NEW), (OLD, NEW), ()),
        ((NEW,), (OLD,), (NEW,)),
        ((NEW, NEW), (NEW,), (NEW,)),
        (None, (OLD,), ()),
        ((OLD,), (OLD, NEW), ()),
    ],
)
def test_which_acceptances_are_of_this_change(
    head: tuple[Acceptance, ...] | None, base: tuple[Acceptance, ...] | None, new: tuple[Acceptance, ...]
) -> None:
    def file(accepted: tuple[Acceptance, ...] | None) -> Baseline | None:
        return None if accepted is None else Baseline(accepted=accepted)

    assert new_acceptances(file(head), file(base)) == new


def test_the_file_of_the_reference_may_be_missing_or_damaged(project: Callable[..., Path]) -> None:
    project(**{"base/.keep": ""})
    head, there, here = Baseline(accepted=(OLD, NEW)), Path("base/perfaudit-gate.json"), Path("perfaudit-gate.json")
    assert acceptances_since(head, there, here) == (Accepted((OLD, NEW)), "")
    write_gate_baseline(here, Baseline(accepted=(OLD,)))
    here.rename(there)
    assert acceptances_since(head, there, here) == (Accepted((NEW,)), "")
    there.write_text("{")
    new, note = acceptances_since(head, there, here)
    assert new == Accepted()
    assert note.startswith(
        "nothing counts as accepted by this change, because the reference's baseline cannot be read: "
        "perfaudit-gate.json: a damaged baseline: "
    )
    assert acceptances_since(None, there, here) == (Accepted(), "")


def test_a_file_outside_the_repository_accepts_nothing() -> None:
    outside = Path("/elsewhere/gate.json")
    assert acceptances_since(Baseline(accepted=(NEW,)), None, outside) == (
        Accepted(),
        "nothing counts as accepted by this change: /elsewhere/gate.json lies outside the repository, so the reference has "
        "no such file",
    )
    assert acceptances_since(Baseline(), None, outside) == (Accepted(), "")


@pytest.mark.parametrize(
    ("head", "base", "findings"),
    [
        ((BIAS, LOADER), (BIAS,), (LOADER,)),
        ((BIAS, BIAS), (BIAS,), (BIAS,)),
        ((BIAS,), (BIAS,), ()),
        ((BIAS,), (BIAS, LOADER), ()),
        ((BIAS,), (replace(BIAS, message="worded otherwise by an older version"),), ()),
        ((replace(BIAS, digest="cc"),), (BIAS,), (replace(BIAS, digest="cc"),)),
        ((LOADER,), None, (LOADER,)),  # the reference has no file
    ],
)
def test_which_findings_are_accepted_by_this_change(
    project: Callable[..., Path], head: tuple[Known, ...], base: tuple[Known, ...] | None, findings: tuple[Known, ...]
) -> None:
    project(**{"base/.keep": ""})
    here, there = Path("perfaudit-gate.json"), Path("base/perfaudit-gate.json")
    if base is not None:
        write_gate_baseline(here, Baseline(base, accepted=(OLD,)))
        here.rename(there)
    accepted, _ = acceptances_since(Baseline(head, accepted=(OLD, NEW)), there, here)
    assert accepted.findings == findings
    old_only, _ = acceptances_since(Baseline(head, accepted=(OLD,)), there, here)
    assert old_only.findings == (() if base is not None else findings)


HEAD = Baseline(targets={"train.py": state(operators=120, host_syncs=1)}, accepted=(NEW,))
OPERATORS = CounterChange("operators", 100, 120)
SYNCS = CounterChange("host_syncs", 1, 3)


def regressed(*changes: CounterChange, target: str = "train.py") -> CountersVerdict:
    counters = {change.counter: change.after for change in changes}
    return CountersVerdict(target, "regressed", counters=counters, changes=changes)


def test_growth_is_accepted_up_to_what_the_file_says() -> None:
    verdict = with_acceptances(regressed(OPERATORS), HEAD, Accepted((NEW,)))
    assert verdict.verdict == "accepted"
    assert [change.accepted for change in verdict.changes] == ["a deeper model"]


@pytest.mark.parametrize("after", [121, 119])
def test_other_growth_than_the_file_says_has_regressed(after: int) -> None:
    verdict = with_acceptances(regressed(replace(OPERATORS, after=after)), HEAD, Accepted((NEW,)))
    assert verdict.verdict == "regressed"
    assert verdict.reason == f"operators is accepted at 120, it is {after} now"
    assert not verdict.changes[0].accepted


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (HERE, "operators is accepted at 120, it is 121 now"),
        (replace(HERE, cores=64), "operators is accepted at 120, it is 121 now"),  # the same operators
        (
            replace(HERE, torch="2.14.0"),
            "operators is accepted at 120, it is 121 now; what was accepted was counted in another environment (torch 2.13.0 "
            "when it was written, 2.14.0 now) and cannot be compared: write the file anew in an environment like this one, "
            'with `perfaudit gate update --accept "why"`',
        ),
    ],
)
def test_what_was_accepted_in_another_environment_is_said_to_be(environment: Fingerprint, reason: str) -> None:
    verdict = with_acceptances(regressed(replace(OPERATORS, after=121)), HEAD, Accepted((NEW,)), environment)
    assert (verdict.verdict, verdict.reason) == ("regressed", reason)
    same = with_acceptances(regressed(OPERATORS), HEAD, Accepted((NEW,)), environment)
    assert same.verdict == "accepted"  # the very value that was reviewed


def test_one_counter_accepted_and_one_not() -> None:
    verdict = with_acceptances(regressed(OPERATORS, SYNCS), HEAD, Accepted((NEW,)))
    assert verdict.verdict == "regressed"
    assert [change.accepted for change in verdict.changes] == ["a deeper model", ""]
    assert verdict.reason == "host_syncs is accepted at 1, it is 3 now"


def test_what_fell_or_is_allowed_needs_no_acceptance() -> None:
    fell, allowed = CounterChange("launches", 9, 8), CounterChange("bytes", 10, 11, allowed=True)
    verdict = with_acceptances(regressed(fell, allowed, OPERATORS), HEAD, Accepted((NEW,)))
    assert verdict.verdict == "accepted"
    assert [change.accepted for change in verdict.changes] == ["", "", "a deeper model"]


@pytest.mark.parametrize(
    ("target", "head", "new"),
    [
        ("train.py", HEAD, ()),  # an old acceptance: the reference has it
        ("eval.py", replace(HEAD, targets={"eval.py": state(operators=120)}), (NEW,)),  # of another target
        ("train.py", HEAD, (replace(NEW, targets=()),)),  # of a finding, or of time alone
        ("train.py", None, (NEW,)),
        ("train.py", Baseline(), (NEW,)),
    ],
)
def test_what_nobody_accepted_has_regressed(target: str, head: Baseline | None, new: tuple[Acceptance, ...]) -> None:
    verdict = regressed(OPERATORS, target=target)
    assert with_acceptances(verdict, head, Accepted(new)) == verdict


@pytest.mark.parametrize(
    ("set_aside", "verdict", "reason"),
    [
        ({"peak_live_bytes": "4,096 and 8,192 in two runs"}, "accepted", ""),  # the file says so too
        ({}, "regressed", "peak_live_bytes is accepted at nothing, it is 4096 now"),
    ],
)
def test_growth_of_what_is_no_longer_reproducible(set_aside: dict[str, str], verdict: str, reason: str) -> None:
    smallest = CounterChange("peak_live_bytes", 1024, 4096)
    counted = Counted({"operators": 120}, set_aside=set_aside)
    head = replace(HEAD, targets={"train.py": TargetState(HERE, counted.as_json())})
    found = CountersVerdict("train.py", "regressed", counters={"operators": 120}, changes=(OPERATORS, smallest))
    judged = with_acceptances(found, head, Accepted((NEW,)))
    assert (judged.verdict, judged.reason) == (verdict, reason)


def test_what_cannot_be_told_is_not_accepted_with_what_can() -> None:
    aside = {"host_syncs": "not reproducible now: 1 and 2 in two runs"}
    found = replace(regressed(OPERATORS), set_aside=aside, reason="host_syncs was reproducible before and not now")
    judged = with_acceptances(found, HEAD, Accepted((NEW,)))
    assert (judged.verdict, judged.reason) == ("inconclusive", "host_syncs was reproducible before and not now")
    without = replace(HEAD, targets={"train.py": state(operators=120)})
    assert with_acceptances(found, without, Accepted((NEW,))).verdict == "accepted"


@pytest.mark.parametrize("said", ["pass", "improved", "failed", "not_judged"])
def test_other_verdicts_on_counters_stay(said: str) -> None:
    verdict = replace(regressed(OPERATORS), verdict=said)
    assert with_acceptances(verdict, HEAD, Accepted((NEW,))) == verdict


@pytest.mark.parametrize(
    ("said", "low", "new", "verdict"),
    [
        ("regressed", 1.05, (NEW,), "accepted"),
        ("regressed", 1.2, (NEW,), "accepted"),
        ("regressed", 1.25, (replace(NEW, slower=(("train.py", 0.25),)),), "accepted"),  # exactly so much
        ("regressed", 1.21, (NEW,), "regressed"),  # all of the interval lies beyond
        ("regressed", 1.21, (replace(NEW, slower=(("train.py", 0.3),)), NEW), "accepted"),  # the largest counts
        ("regressed", 1.05, (replace(NEW, slower=()),), "regressed"),
        ("regressed", 1.05, (replace(NEW, slower=(("eval.py", 0.2),)),), "regressed"),
        ("regressed", 1.05, (), "regressed"),
        ("failed", 0.0, (NEW,), "failed"),
        ("inconclusive", 0.9, (NEW,), "inconclusive"),
        ("pass", 0.9, (NEW,), "pass"),
    ],
)
def test_a_slower_step(said: GateVerdict, low: float, new: tuple[Acceptance, ...], verdict: str) -> None:
    judged = time_with_acceptances(TimeVerdict("train.py", said, ratio=1.3, low=low, high=1.4), Accepted(new))
    assert (judged.verdict, judged.accepted) == (verdict, "a deeper model" if verdict == "accepted" else "")


def test_a_step_that_is_slower_than_accepted_says_by_how_much() -> None:
    judged = time_with_acceptances(TimeVerdict("train.py", "regressed", ratio=1.25, low=1.225), Accepted((NEW,)))
    assert judged.reason == "accepted up to 20 % slower (a deeper model), it is at least 22.5 %"


def test_of_equal_bounds_the_latest_reason_counts() -> None:
    later = replace(NEW, reason="and a wider one")
    judged = time_with_acceptances(TimeVerdict("train.py", "regressed", low=1.1), Accepted((NEW, later)))
    assert judged.accepted == "and a wider one"


def finding(known: Known) -> Finding:
    place = Location(known.path, 3, 1, 3, 9)
    return Finding(known.rule, "name", "warning", known.message, place, text_digest=known.digest)


def test_new_findings_that_the_file_of_this_change_holds_are_accepted() -> None:
    verdict = FindingsVerdict("regressed", new=2, known=4)
    found = (finding(BIAS), finding(LOADER))
    left, remaining = findings_with_acceptances(verdict, found, Accepted((NEW,), (BIAS,)))
    assert remaining == (finding(LOADER),)
    assert left == FindingsVerdict("regressed", "accepted: a deeper model", new=1, known=4, accepted=1)
    left, remaining = findings_with_acceptances(verdict, found, Accepted((NEW,), (LOADER, BIAS)))
    assert remaining == ()
    assert left == FindingsVerdict("accepted", "accepted: a deeper model", new=0, known=4, accepted=2)
    unjudged = replace(verdict, unjudged="a.py: 1 finding is not judged")
    left, _ = findings_with_acceptances(unjudged, found, Accepted((NEW,), (LOADER, BIAS)))
    assert (left.verdict, left.reason) == ("inconclusive", "accepted: a deeper model; a.py: 1 finding is not judged")


@pytest.mark.parametrize("accepted", [Accepted(), Accepted((NEW,)), Accepted((NEW,), (LOADER,))])
def test_new_findings_that_nobody_accepted(accepted: Accepted) -> None:
    verdict = FindingsVerdict("regressed", new=1)
    assert findings_with_acceptances(verdict, (finding(BIAS),), accepted) == (verdict, (finding(BIAS),))


def test_a_finding_that_the_file_has_held_for_long_is_not_taken_with_another(project: Callable[..., Path]) -> None:
    project(**{"base/.keep": ""})
    here, there = Path("perfaudit-gate.json"), Path("base/perfaudit-gate.json")
    write_gate_baseline(here, Baseline((BIAS,), accepted=(OLD,)))  # mended in the code since, and back in this change
    here.rename(there)
    accepted, _ = acceptances_since(Baseline((BIAS, LOADER), accepted=(OLD, NEW)), there, here)
    verdict = FindingsVerdict("regressed", new=2)
    left, remaining = findings_with_acceptances(verdict, (finding(BIAS), finding(LOADER)), accepted)
    assert (left.verdict, remaining) == ("regressed", (finding(BIAS),))


def test_one_accepted_finding_does_not_speak_for_a_second_like_it() -> None:
    verdict = FindingsVerdict("regressed", new=2)
    left, remaining = findings_with_acceptances(verdict, (finding(BIAS), finding(BIAS)), Accepted((NEW,), (BIAS,)))
    assert (left.verdict, len(remaining)) == ("regressed", 1)


def test_what_can_no_longer_be_read_is_not_accepted_with_what_can() -> None:
    why = "could be audited before: loader.py (no Python)"
    verdict = FindingsVerdict("regressed", "not audited: loader.py (no Python)", new=1, lost=why)
    left, remaining = findings_with_acceptances(verdict, (finding(BIAS),), Accepted((NEW,), (BIAS,)))
    assert (left.verdict, left.reason, left.accepted, remaining) == ("failed", why, 1, ())
    left, _ = findings_with_acceptances(verdict, (finding(BIAS), finding(LOADER)), Accepted((NEW,), (BIAS,)))
    assert (left.verdict, left.new) == ("regressed", 1)


def test_an_acceptance_survives_the_file(project: Callable[..., Path]) -> None:
    file = project() / "perfaudit-gate.json"
    absent, dtype = dict.fromkeys(OF_ALL[1:], "why"), ", ".join(HERE.dtypes)
    counted = Counted({}, absent=absent, device=HERE.device, torch=HERE.torch, dtype=dtype)
    before, is_now = (
        TargetState(HERE, replace(counted, values={"operators": number}).as_json()) for number in (100, 120)
    )
    known = Baseline((BIAS,), {"train.py": before})
    after, _ = update_baseline(known, now(BIAS, train=is_now), "a deeper model", "2026-11-22")
    write_gate_baseline(file, after)
    head = read_gate_baseline(file)
    accepted = Accepted(new_acceptances(head, known))
    assert with_acceptances(regressed(OPERATORS), head, accepted).verdict == "accepted"
    assert time_with_acceptances(TimeVerdict("train.py", "regressed", low=1.2), accepted).verdict == "accepted"
