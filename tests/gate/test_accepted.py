"""Acceptance: what is taken although it is worse, as far as the file says, with the reason, and no further."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from perfaudit.errors import UserError
from perfaudit.findings import Finding, Location
from perfaudit.gate.accepted import (
    acceptances_since,
    findings_with_acceptances,
    new_acceptances,
    time_with_acceptances,
    updated,
    with_acceptances,
)
from perfaudit.gate.baseline import Acceptance, Baseline, TargetState, read_gate_baseline, write_gate_baseline
from perfaudit.gate.comparable import Fingerprint, Seconds
from perfaudit.gate.counted import Counted, Spot
from perfaudit.static.baseline import Known
from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, TimeVerdict

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
        (now(BIAS, train=state(operators=120, host_syncs=1)), ("train.py operators 100 -> 120",)),
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
    after, said = updated(BEFORE, state_now, " a deeper model ", "2026-11-22")
    assert said == changes
    assert after.accepted == (
        Acceptance("2026-11-22", "a deeper model", tuple(sorted(state_now.targets)), changes, True),
    )
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
    assert updated(BEFORE, state_now, "why", "2026-11-22") == (BEFORE, ())


def test_apart_and_yet_the_same() -> None:
    exact = replace(BEFORE, targets={"train.py": state(Seconds(0.0100, 0.01, 0.01, 9), operators=1)}, findings=())
    near = now(train=state(Seconds(0.01009, 0.01009, 0.01009, 9), operators=1))
    assert updated(exact, near, "why", "2026-11-22") == (exact, ())
    far = now(train=state(Seconds(0.01011, 0.01011, 0.01011, 9), operators=1))
    assert updated(exact, far, "why", "2026-11-22")[1] == ("train.py step 10 ms -> 10.11 ms",)


def test_lines_that_moved_and_values_that_are_never_the_same_are_no_change() -> None:
    def counted(line: int, bytes_: str) -> Baseline:
        spots = {"host_syncs": [Spot("train.py", line, "loss.item()", "item", 1)]}
        found = Counted({"host_syncs": 1}, {"host_syncs": {"item": 1}}, spots, {"peak_live_bytes": bytes_})
        return now(train=TargetState(HERE, found.as_json()))

    before = counted(12, "4,096 and 8,192 in two runs")
    assert updated(before, counted(14, "4,096 and 6,000 in two runs"), "why", "2026-11-22") == (before, ())


def test_other_operators_with_the_same_sum_are_a_change() -> None:
    one, other = (
        now(train=TargetState(HERE, Counted({"operators": 1}, {"operators": {name: 1}}).as_json())) for name in "ab"
    )
    _, changes = updated(one, other, "why", "2026-11-22")
    assert changes == ("train.py counters have other parts with the same sums, or others are set aside",)


def test_without_a_file_everything_is_new() -> None:
    after, changes = updated(None, now(BIAS, train=state(operators=1)), "first", "2026-11-22")
    assert changes == ("new finding PA201 in train.py: a bias before a norm", "train.py is new")
    assert (after.findings, list(after.targets)) == ((BIAS,), ["train.py"])


def test_what_the_file_cannot_show_may_be_accepted_in_words() -> None:
    same = now(BIAS, train=state(None, operators=100, host_syncs=1))
    after, changes = updated(BEFORE, same, "slower, and right", "2026-11-22", also=["train.py step 6 % slower"])
    assert changes == ("train.py step 6 % slower",)
    assert after == replace(
        BEFORE, accepted=(Acceptance("2026-11-22", "slower, and right", ("train.py",), changes, True),)
    )


def test_without_time_the_stored_one_stays() -> None:
    slow = Seconds(0.02, 0.019, 0.021, 12)
    after, changes = updated(
        BEFORE, now(BIAS, train=state(slow, operators=120, host_syncs=1)), "w", "2026-11-22", False
    )
    assert changes == ("train.py operators 100 -> 120",)
    assert after.targets["train.py"].seconds_per_step == TIME
    assert [entry.time for entry in after.accepted] == [False]
    unchanged = now(BIAS, train=state(slow, operators=100, host_syncs=1))
    assert updated(BEFORE, unchanged, "w", "2026-11-22", time=False) == (BEFORE, ())


def test_a_time_of_other_code_does_not_stay() -> None:
    after, _ = updated(BEFORE, now(BIAS, train=state(None, operators=120, host_syncs=1)), "why", "2026-11-22")
    assert after.targets["train.py"].seconds_per_step is None


def test_accepting_twice_appends_twice_and_keeps_the_first() -> None:
    once, _ = updated(BEFORE, now(BIAS, train=state(operators=120, host_syncs=1)), "one", "2026-11-22")
    twice, _ = updated(once, now(BIAS, train=state(operators=130, host_syncs=1)), "two", "2026-11-23")
    assert [entry.reason for entry in twice.accepted] == ["one", "two"]


@pytest.mark.parametrize("reason", ["", "  \n"])
def test_a_reason_is_needed(reason: str) -> None:
    with pytest.raises(UserError, match=r"^an acceptance needs a reason"):
        updated(BEFORE, now(), reason, "2026-11-22")


OLD = Acceptance("2026-10-01", "an older one", ("train.py",), ("train.py flops 1 -> 2",))
NEW = Acceptance("2026-11-22", "a deeper model", ("train.py",), ("train.py operators 100 -> 120",))


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
    assert acceptances_since(head, there, here) == ((OLD, NEW), "")
    write_gate_baseline(here, Baseline(accepted=(OLD,)))
    here.rename(there)
    assert acceptances_since(head, there, here) == ((NEW,), "")
    there.write_text("{")
    new, note = acceptances_since(head, there, here)
    assert new == ()
    assert note.startswith(
        "nothing counts as accepted by this change, because the reference's baseline cannot be read: "
        "perfaudit-gate.json: a damaged baseline: "
    )
    assert acceptances_since(None, there, here) == ((), "")


HEAD = Baseline(targets={"train.py": state(operators=120, host_syncs=1)}, accepted=(NEW,))
OPERATORS = CounterChange("operators", 100, 120)
SYNCS = CounterChange("host_syncs", 1, 3)


def regressed(*changes: CounterChange, target: str = "train.py") -> CountersVerdict:
    return CountersVerdict(target, "regressed", changes=changes)


def test_growth_is_accepted_up_to_what_the_file_says() -> None:
    verdict = with_acceptances(regressed(OPERATORS), HEAD, (NEW,))
    assert verdict.verdict == "accepted"
    assert [change.accepted for change in verdict.changes] == ["a deeper model"]


@pytest.mark.parametrize("after", [121, 119])
def test_other_growth_than_the_file_says_has_regressed(after: int) -> None:
    verdict = with_acceptances(regressed(replace(OPERATORS, after=after)), HEAD, (NEW,))
    assert verdict.verdict == "regressed"
    assert verdict.reason == f"operators is accepted at 120, it is {after} now"
    assert not verdict.changes[0].accepted


def test_one_counter_accepted_and_one_not() -> None:
    verdict = with_acceptances(regressed(OPERATORS, SYNCS), HEAD, (NEW,))
    assert verdict.verdict == "regressed"
    assert [change.accepted for change in verdict.changes] == ["a deeper model", ""]
    assert verdict.reason == "host_syncs is accepted at 1, it is 3 now"


def test_what_fell_or_is_allowed_needs_no_acceptance() -> None:
    fell, allowed = CounterChange("launches", 9, 8), CounterChange("bytes", 10, 11, allowed=True)
    verdict = with_acceptances(regressed(fell, allowed, OPERATORS), HEAD, (NEW,))
    assert verdict.verdict == "accepted"
    assert [change.accepted for change in verdict.changes] == ["", "", "a deeper model"]


@pytest.mark.parametrize(
    ("target", "head", "new"),
    [
        ("train.py", HEAD, ()),  # an old acceptance: the reference has it
        ("eval.py", replace(HEAD, targets={"eval.py": state(operators=120)}), (NEW,)),  # of another target
        ("train.py", None, (NEW,)),
        ("train.py", Baseline(), (NEW,)),
    ],
)
def test_what_nobody_accepted_has_regressed(target: str, head: Baseline | None, new: tuple[Acceptance, ...]) -> None:
    verdict = regressed(OPERATORS, target=target)
    assert with_acceptances(verdict, head, new) == verdict


@pytest.mark.parametrize("said", ["pass", "improved", "failed", "not_judged"])
def test_other_verdicts_on_counters_stay(said: str) -> None:
    verdict = replace(regressed(OPERATORS), verdict=said)
    assert with_acceptances(verdict, HEAD, (NEW,)) == verdict


@pytest.mark.parametrize(
    ("said", "new", "verdict"),
    [
        ("regressed", (NEW,), "accepted"),
        ("regressed", (replace(NEW, time=False),), "regressed"),
        ("regressed", (replace(NEW, targets=("eval.py",)),), "regressed"),
        ("regressed", (), "regressed"),
        ("failed", (NEW,), "failed"),
        ("inconclusive", (NEW,), "inconclusive"),
        ("pass", (NEW,), "pass"),
    ],
)
def test_a_slower_step(said: str, new: tuple[Acceptance, ...], verdict: str) -> None:
    judged = time_with_acceptances(TimeVerdict("train.py", said, ratio=1.1), new)  # type: ignore[arg-type]  # a row's text
    assert (judged.verdict, judged.accepted) == (verdict, "a deeper model" if verdict == "accepted" else "")


def test_the_latest_reason_counts() -> None:
    later = replace(NEW, reason="and a wider one")
    assert time_with_acceptances(TimeVerdict("train.py", "regressed"), (NEW, later)).accepted == "and a wider one"


def finding(known: Known) -> Finding:
    place = Location(known.path, 3, 1, 3, 9)
    return Finding(known.rule, "name", "warning", known.message, place, text_digest=known.digest)


def test_new_findings_that_the_file_of_this_change_holds_are_accepted() -> None:
    verdict = FindingsVerdict("regressed", new=2, known=4)
    found = (finding(BIAS), finding(LOADER))
    head = Baseline((BIAS,), accepted=(NEW,))
    left, remaining = findings_with_acceptances(verdict, found, head, (NEW,))
    assert remaining == (finding(LOADER),)
    assert (left.verdict, left.new, left.known, left.accepted) == ("regressed", 1, 4, 1)
    both = replace(head, findings=(LOADER, BIAS))
    left, remaining = findings_with_acceptances(verdict, found, both, (NEW,))
    assert remaining == ()
    assert left == FindingsVerdict("accepted", "accepted: a deeper model", new=0, known=4, accepted=2)


@pytest.mark.parametrize(
    ("head", "new"), [(None, (NEW,)), (Baseline((BIAS,)), ()), (Baseline((LOADER,)), (NEW,)), (Baseline(), (NEW,))]
)
def test_new_findings_that_nobody_accepted(head: Baseline | None, new: tuple[Acceptance, ...]) -> None:
    verdict = FindingsVerdict("regressed", new=1)
    assert findings_with_acceptances(verdict, (finding(BIAS),), head, new) == (verdict, (finding(BIAS),))


def test_one_accepted_finding_does_not_speak_for_a_second_like_it() -> None:
    verdict = FindingsVerdict("regressed", new=2)
    left, remaining = findings_with_acceptances(verdict, (finding(BIAS), finding(BIAS)), Baseline((BIAS,)), (NEW,))
    assert (left.verdict, len(remaining)) == ("regressed", 1)


def test_an_acceptance_survives_the_file(project: Callable[..., Path]) -> None:
    file = project() / "perfaudit-gate.json"
    after, _ = updated(BEFORE, now(BIAS, train=state(operators=120, host_syncs=1)), "a deeper model", "2026-11-22")
    write_gate_baseline(file, after)
    head = read_gate_baseline(file)
    assert with_acceptances(regressed(OPERATORS), head, new_acceptances(head, BEFORE)).verdict == "accepted"
