"""What a gate says beside its verdict: the order of counters and complaints, the machine, and what to type next."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gates import EVEN, GREW, MACHINE, MAIN, OPEN, OPEN_PASSES, SELF_TEST, SLOWER, report

from perfaudit.measurements import Environment
from perfaudit.render import renderer
from perfaudit.render.complaints import Complaint, complaints
from perfaudit.render.counter_words import amount, counter_name, in_order, with_basis
from perfaudit.render.gate import machine, what_next
from perfaudit.render.gate_words import counters_phrase, findings_phrase, headline
from perfaudit.render.text import render
from perfaudit.render.time_words import at_most, time_sentences
from perfaudit.verdicts import CounterChange, CountersVerdict, FindingsVerdict, Gate, GateVerdict, TimeVerdict


def change(counter: str, before: int, after: int, allowed: bool = False) -> CounterChange:
    return CounterChange(counter, before, after, allowed=allowed)


def test_what_costs_most_time_comes_first() -> None:
    names = [
        "host_syncs", "unpinned_copies", "copies_to_device", "graph_breaks", "recompilations", "operators",
        "kernels_launched", "flops", "bytes_to_device", "peak_live_bytes", "bytes_allocated", "another",
    ]  # fmt: skip
    assert [c.counter for c in in_order([change(name, 1, 2) for name in reversed(names)])] == names
    three = [change("host_syncs", 2, 1), change("operators", 1, 2, allowed=True), change("another", 1, 2)]
    assert [c.counter for c in in_order(three)] == ["another", "operators", "host_syncs"]


def test_of_counters_that_did_not_grow_the_first_whose_parts_did_is_told() -> None:
    fewer, swapped = change("flops", 9, 8), CounterChange("operators", 9, 8, {"aten::add": 2, "aten::mul": -3})
    phrase = "no counter grew (operators: 2 more and 3 fewer by name)"
    assert counters_phrase(CountersVerdict("t.py", "pass", changes=(fewer, swapped))) == phrase
    assert counters_phrase(CountersVerdict("t.py", "pass", changes=(fewer,))) == "no counter grew"


def test_a_time_that_is_stored_and_not_measured_now() -> None:
    timed = TimeVerdict("t.py", "not_judged", "why", seconds_before=0.1, advice=True)
    assert time_sentences(timed, Gate("gate.json", "baseline", "pass")) == [
        "a step took 100.00 ms when it was stored in gate.json, not measured now",
        "advice only, it decides nothing",
        "why",
    ]


@pytest.mark.parametrize(
    ("verdict", "said"),
    [("not_judged", "findings not judged"), ("failed", "findings could not be compared"), ("pass", "no new finding")],
)
def test_findings_in_a_few_words(verdict: GateVerdict, said: str) -> None:
    assert findings_phrase(FindingsVerdict(verdict)) == said


def test_what_could_not_be_told_is_yellow() -> None:
    painted = render(OPEN_PASSES, in_colour=True)
    line = "could not tell: the smallest slowdown that could have been seen is 7.4 % of a step; load 3.2"
    assert f"\x1b[33m  {line}" in painted
    assert "\x1b[33m  16 pairs" not in painted


def test_an_inconclusive_gate_says_the_rest_in_its_order() -> None:
    improved = CountersVerdict("t.py", "improved", changes=(change("operators", 3, 2),))
    gate = Gate("main", "ref", "inconclusive", findings=FindingsVerdict("pass"), counters=(improved,), times=(OPEN,))
    assert headline(gate) == (
        "gate: inconclusive, which does not fail the build, against main: could not tell whether train.py is slower, "
        "1 fewer operator per step, no new finding"
    )


def test_what_a_self_test_without_times_says() -> None:
    aside = CountersVerdict("t.py", "pass", set_aside={"flops": "why", "samples": "why"})
    broken = CountersVerdict("u.py", "failed", set_aside={"flops": "why"})
    said = "counters of u.py could not be measured, 3 counters not reproducible"
    assert headline(Gate("itself", "self_test", "failed", counters=(aside, broken))) == (
        f"gate: self-test on identical code: {said}"
    )


@pytest.mark.parametrize(
    ("high", "said"), [(0.999, "not slower"), (1.0, "at most 0 % slower"), (1.05, "at most 5 % slower")]
)
def test_what_a_step_that_passed_is_at_worst(high: float, said: str) -> None:
    assert at_most(replace(EVEN, low=0.9, high=high)) == said


@pytest.mark.parametrize("lacking", ["seconds_before", "seconds_after"])
def test_a_time_that_is_not_known_is_not_said(lacking: str) -> None:
    timed = replace(EVEN, **{lacking: None})  # type: ignore[arg-type]  # a row's name
    first = "between 0.6 % faster and 1.3 % slower: ratio 1.002 of time per step, interval 0.994 to 1.013"
    assert time_sentences(timed, Gate("main", "ref", "pass"))[0] == first


@pytest.mark.parametrize(
    ("counter", "name", "basis"),
    [
        ("host_syncs", "host syncs", "host syncs per step"),
        ("flops", "floating-point operations", "floating-point operations per step"),
        ("copies_to_device", "copies to the device", "copies to the device per step"),
        ("bytes_to_device", "bytes copied to the device", "bytes copied to the device per step"),
        ("dataset_samples", "samples of the dataset", "samples of the dataset"),
        ("parameters", "parameters", "parameters"),
        ("trainable_parameters", "trainable parameters", "trainable parameters"),
        ("samples_repeated", "samples repeated per epoch", "samples repeated per epoch"),
        ("samples_skipped", "samples skipped per epoch", "samples skipped per epoch"),
        ("graph_breaks", "graph breaks in the first steps", "graph breaks in the first steps"),
        ("recompilations", "recompilations in the first steps", "recompilations in the first steps"),
    ],
)
def test_counters_by_name(counter: str, name: str, basis: str) -> None:
    assert (counter_name(counter), with_basis(counter)) == (name, basis)


@pytest.mark.parametrize(
    ("counter", "value", "said"),
    [
        ("peak_live_bytes", 1023, ""),
        ("peak_live_bytes", 1024, "1.0 KiB"),
        ("peak_live_bytes", 1 << 20, "1.0 MiB"),
        ("peak_live_bytes", -3 << 29, "-1.5 GiB"),
        ("peak_live_bytes", 5 << 40, "5.0 TiB"),
        ("flops", 999, ""),
        ("flops", 1000, "1.0 kFLOP"),
        ("flops", 2_500_000, "2.5 MFLOP"),
        ("flops", 10**9, "1.0 GFLOP"),
        ("flops", 10**12, "1.0 TFLOP"),
        ("flops", 10**15, "1.0 PFLOP"),
        ("operators", 10**15, ""),
    ],
)
def test_amounts_in_readable_units(counter: str, value: int, said: str) -> None:
    assert amount(counter, value) == said


def test_what_a_self_test_complains_of() -> None:
    """One that called identical code slower is a warning, before what went well."""
    assert SELF_TEST.gate is not None
    found = [c for c in complaints(SELF_TEST.gate) if c.check == "gate/self-test"]
    assert [(c.level, c.target, c.message.splitlines()[0], c.counter) for c in found] == [
        ("warning", "eval.py", "self-test of eval.py", ""),
        ("notice", "train.py", "self-test of train.py", ""),
    ]
    assert Complaint("gate/failed", "error", "why").counter == ""


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        (MACHINE, "run on cpu, 2 cores, 8.0 GiB, torch 2.13, Python 3.11"),
        (replace(MACHINE, torch="", cores=1), "run on cpu, 1 core, 8.0 GiB, Python 3.11"),
        (
            replace(MACHINE, device="H200", driver="CUDA 12.6"),
            "run on H200, CUDA 12.6, 2 cores, 8.0 GiB, torch 2.13, Python 3.11",
        ),
        (None, ""),
    ],
)
def test_the_machine(environment: Environment | None, words: str) -> None:
    made = report(Gate(MAIN, "ref", "pass", times=(EVEN,)))
    assert machine(replace(made, environment=environment)) == words


def test_findings_alone_were_taken_on_no_machine() -> None:
    assert machine(report(Gate(MAIN, "ref", "pass"))) == ""


def slower(target: str, high: float, ratio: float = 1.08) -> TimeVerdict:
    return replace(SLOWER, target=target, ratio=ratio, high=high)


@pytest.mark.parametrize(
    ("times", "bound"),
    [
        ((slower("a b.py", 1.02),), "'a b.py' --accept \"why\" --slower 5%"),
        ((slower("t.py", 1.10),), 't.py --accept "why" --slower 10%'),
        ((slower("t.py", 1.101),), 't.py --accept "why" --slower 15%'),
        ((slower("t.py", 1.03), slower("u.py", 1.31)), 't.py u.py --accept "why" --slower 35%'),
        ((slower("t.py", float("inf"), 1.26),), 't.py --accept "why" --slower 30%'),
        ((slower("t.py", 2.0),), 't.py --accept "why" --slower 100%'),
        ((slower("t.py", 1.03), replace(EVEN, high=3.0)), 't.py --accept "why" --slower 5%'),
    ],
)
def test_how_a_slower_step_is_accepted(times: tuple[TimeVerdict, ...], bound: str) -> None:
    said = what_next(report(Gate(MAIN, "ref", "regressed", times=times)))
    assert said == [f"a wanted change is accepted, with its reason, by `perfaudit gate update {bound}`"]


def test_what_grew_is_accepted_before_what_is_slower() -> None:
    gate = Gate(MAIN, "ref", "regressed", counters=(replace(GREW, target="t.py"),), times=(slower("u.py", 1.1),))
    (said,) = what_next(report(gate))
    assert said == 'a wanted change is accepted, with its reason, by `perfaudit gate update t.py u.py --accept "why"`'


@pytest.mark.parametrize(
    ("after", "reason", "is_said"),
    [
        (0.1081, "", False),
        (0.1082, "", False),  # as printed
        (0.1120, "", True),  # the machine has slowed down meanwhile
        (0.1120, "per sample: a step has 32 samples now, 31 before", False),
    ],
)
def test_a_ratio_that_is_not_that_of_the_two_times_is_explained(after: float, reason: str, is_said: bool) -> None:
    timed = replace(SLOWER, seconds_after=after, reason=reason)
    said = time_sentences(timed, Gate("main", "ref", "regressed"))[0]
    assert said.endswith("a step (medians of all blocks; the ratio compares neighbouring blocks)") is is_said
    row = renderer("markdown")(report(Gate(MAIN, "ref", "regressed", times=(timed,))))
    assert ("both measured; medians of all blocks; the ratio compares neighbouring blocks |" in row) is is_said


def test_how_both_versions_were_compared_and_why() -> None:
    one = replace(
        EVEN,
        way="one training",
        why_so="only functions differ",
        pairs=0,
        quads=24,
        control=(0.991, 1.004),
        verdict="inconclusive",
    )
    said = time_sentences(one, Gate("main", "ref", "pass"))
    assert said[1:3] == [
        "24 comparisons in one training; identical code beside it: 0.991 to 1.004",
        "only functions differ",
    ]
    assert "wall/CPU time 1.01 in your code's steps" in said[3]
    row = "in one training; identical code beside it: 0.991 to 1.004; only functions differ |"
    assert row in renderer("markdown")(report(Gate(MAIN, "ref", "pass", times=(one,))))
    assert (
        time_sentences(replace(one, control=None), Gate("main", "ref", "pass"))[1] == "24 comparisons in one training"
    )
    pairs = replace(EVEN, way="pairs of processes", why_so="data.csv differs, and is no Python")
    assert time_sentences(pairs, Gate("main", "ref", "pass"))[1:3] == [
        "16 comparisons in 4 pairs of processes, interleaved in this run",
        "in pairs of processes, because data.csv differs, and is no Python",
    ]
