"""Counters of two states of the code: what grew, by how much, on which lines, and what is not compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from perfaudit.gate.counters_compared import compare_counters, grown_places
from perfaudit.gate.target_counters import Counted, Spot
from perfaudit.verdicts import CounterChange, Place

BEFORE = Counted(
    values={"operators": 686, "host_syncs": 2, "flops": 1000, "samples": 32},
    by_name={"operators": {"aten::mul": 600, "aten::add": 86}, "host_syncs": {"item": 2}},
    places={
        "operators": [Spot("train.py", 7, "x = x * 2", "aten::mul", 4)],
        "host_syncs": [Spot("train.py", 88, "total += loss.item()", "item", 2)],
    },
    device="cpu",
    torch="2.13.0",
    dtype="float32",
)


def now(**values: int | None) -> Counted:
    """BEFORE with these values; None for a counter that is not there."""
    known = {**BEFORE.values, **values}
    return replace(BEFORE, values={name: value for name, value in known.items() if value is not None})


@pytest.mark.parametrize(
    ("after", "tolerated", "verdict", "changed"),
    [
        (now(), {}, "pass", {}),
        (now(operators=687), {}, "regressed", {"operators": (686, 687, False)}),
        (now(operators=687), {"operators": 0.01}, "pass", {"operators": (686, 687, True)}),
        (now(operators=693), {"operators": 0.01}, "regressed", {"operators": (686, 693, False)}),
        (now(operators=687), {"host_syncs": 0.5}, "regressed", {"operators": (686, 687, False)}),
        (now(host_syncs=1), {}, "improved", {"host_syncs": (2, 1, False)}),
        (now(host_syncs=1, operators=700), {}, "regressed", {"host_syncs": (2, 1, False), "operators": (686, 700, False)}),
        (now(host_syncs=1, operators=687), {"operators": 0.1}, "pass",
         {"host_syncs": (2, 1, False), "operators": (686, 687, True)}),
    ],
)  # fmt: skip
def test_the_verdict(after: Counted, tolerated: dict[str, float], verdict: str, changed: dict[str, Any]) -> None:
    found = compare_counters("train.py", BEFORE, after, tolerated)
    assert found.verdict == verdict
    assert {c.counter: (c.before, c.after, c.allowed) for c in found.changes} == changed
    assert (found.target, found.reason, found.counters, found.set_aside) == ("train.py", "", after.values, {})


def test_nothing_grows_from_nothing_within_a_share() -> None:
    before = replace(BEFORE, values={"host_syncs": 0}, by_name={}, places={})
    found = compare_counters("t.py", before, replace(before, values={"host_syncs": 1}), {"host_syncs": 100.0})
    assert found.verdict == "regressed"


def parts(**operators: int) -> Counted:
    """BEFORE with these operators, `mul` for "aten::mul"."""
    named = {f"aten::{name}": count for name, count in operators.items()}
    return replace(now(operators=sum(operators.values())), by_name={**BEFORE.by_name, "operators": named})


@pytest.mark.parametrize(
    ("after", "verdict", "by_name"),
    [
        (parts(mul=600, add=86), "pass", None),
        (parts(mul=580, add=106), "pass", {"aten::add": 20, "aten::mul": -20}),  # as many, of other kinds
        (parts(mul=570, add=106), "pass", {"aten::add": 20, "aten::mul": -30}),  # fewer, which may cost more
        (parts(mul=570, add=86), "improved", {"aten::mul": -30}),
        (parts(mul=570, add=120), "regressed", {"aten::add": 34, "aten::mul": -30}),
        (parts(add=86), "improved", {"aten::mul": -600}),  # all of a kind
        (replace(now(), by_name={"host_syncs": {"item": 2}}), "pass", None),  # parts that are not known differ in nothing
        (replace(now(), by_name={**BEFORE.by_name, "host_syncs": {"item": 1, "bool": 1}}), "pass", {"bool": 1, "item": -1}),
    ],
)  # fmt: skip
def test_parts_that_differ_are_told_and_fail_nothing(
    after: Counted, verdict: str, by_name: dict[str, int] | None
) -> None:
    found = compare_counters("train.py", BEFORE, after, {})
    assert (found.verdict, [change.by_name for change in found.changes]) == (verdict, [by_name] if by_name else [])


def test_a_gain_elsewhere_does_not_outweigh_operators_that_may_cost_more() -> None:
    found = compare_counters("train.py", BEFORE, replace(parts(mul=580, add=106), values=now(flops=900).values), {})
    assert (found.verdict, [c.counter for c in found.changes]) == ("pass", ["flops", "operators"])


def test_changes_are_in_the_order_of_names_however_they_were_found() -> None:
    words, least, most = {"host_syncs": "words"}, {"host_syncs": 4}, {"host_syncs": 5}
    before = replace(now(host_syncs=None), set_aside=words, least=least, most=most)
    after = replace(
        now(host_syncs=None, operators=687), set_aside=words, least={"host_syncs": 9}, most={"host_syncs": 9}
    )
    assert [change.counter for change in compare_counters("t.py", before, after, {}).changes] == [
        "host_syncs",
        "operators",
    ]


def test_growth_is_told_by_kind_and_line() -> None:
    spots = [*BEFORE.places["host_syncs"], Spot("train.py", 91, "if loss.isnan():", "bool", 14)]
    after = replace(
        now(host_syncs=16),
        by_name={**BEFORE.by_name, "host_syncs": {"item": 2, "bool": 14}},
        places={"host_syncs": spots},
    )
    [change] = compare_counters("t.py", BEFORE, after, {}).changes
    assert change == CounterChange("host_syncs", 2, 16, {"bool": 14}, (Place("train.py", 91, 14, "bool"),))


def test_parts_that_fell_come_last() -> None:
    after = replace(now(operators=690), by_name={"operators": {"aten::mul": 590, "aten::add": 88, "aten::exp": 12}})
    [change] = compare_counters("t.py", BEFORE, after, {}).changes
    assert list(change.by_name.items()) == [("aten::exp", 12), ("aten::add", 2), ("aten::mul", -10)]
    assert change.places == ()  # where the operators stood is not known of this state


def test_at_most_ten_lines_of_operators_are_named() -> None:
    spots = [Spot("m.py", n, f"x{n} = x * {n}", "aten::mul", n) for n in range(1, 13)]
    after = replace(now(operators=700), places={"operators": spots})
    [change] = compare_counters("t.py", BEFORE, after, {}).changes
    assert [place.count for place in change.places] == list(range(12, 2, -1))


def test_a_line_that_was_edited_is_blamed_for_what_grew_in_all() -> None:
    def counted(text: str, operators: dict[str, int]) -> Counted:
        spots = [Spot("m.py", 32, text, name, n) for name, n in operators.items()]
        side = replace(BEFORE, values={"operators": sum(operators.values())}, by_name={"operators": operators})
        return replace(side, places={"operators": spots})

    before, after = (
        counted("y = model(x)", {"aten::addmm": 5}),
        counted("y = model(x.clone())", {"aten::addmm": 5, "aten::clone": 1}),
    )
    [change] = compare_counters("t.py", before, after, {}).changes
    assert change.places == (Place("m.py", 32, 1, "aten::clone"),)


ITEM = Spot("a.py", 8, "loss.item()", "item", 1)


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        ([ITEM], [ITEM], []),
        ([ITEM], [replace(ITEM, line=80)], []),  # moved down
        ([ITEM], [replace(ITEM, path="b.py", line=3)], []),  # moved to another file
        ([ITEM], [replace(ITEM, path="b.py", line=3, count=3)], [Place("b.py", 3, 2, "item")]),
        ([ITEM], [ITEM, replace(ITEM, path="b.py", line=3)], [Place("b.py", 3, 1, "item")]),  # copied
        ([ITEM], [replace(ITEM, count=5)], [Place("a.py", 8, 4, "item")]),
        ([ITEM], [ITEM, replace(ITEM, line=9)], [Place("a.py", 9, 1, "item")]),  # once more the same line
        ([ITEM], [replace(ITEM, text="total += loss.item()")], [Place("a.py", 8, 1, "item")]),
        ([ITEM], [ITEM, replace(ITEM, what="bool")], [Place("a.py", 8, 1, "bool")]),
        ([], [ITEM, replace(ITEM, path="c.py", count=2)], [Place("c.py", 8, 2, "item"), Place("a.py", 8, 1, "item")]),
        ([ITEM], [], []),
        ([], [], []),
    ],
)
def test_lines_are_told_by_their_text(before: list[Spot], after: list[Spot], places: list[Place]) -> None:
    assert list(grown_places(before, after)) == places


@pytest.mark.parametrize(
    ("before", "after", "aside"),
    [
        (now(flops=None), now(), {"flops": "1,000 now, not counted before"}),
        (now(), now(flops=None), {"flops": "1,000 before, not counted now"}),
        (replace(now(flops=None), absent={"flops": "torch cannot count those of aten::bmm"}), now(),
         {"flops": "1,000 now, not counted before: torch cannot count those of aten::bmm"}),
        (replace(now(flops=None), set_aside={"flops": "1 and 2 in two runs"}), now(),
         {"flops": "not reproducible before: 1 and 2 in two runs (1,000 now)"}),
        (replace(now(flops=None), set_aside={"flops": "1 and 2 in two runs"}),
         replace(now(flops=None), set_aside={"flops": "3,000 and 4,000 in two runs"}, least={"flops": 3000}),
         {"flops": "not reproducible before: 1 and 2 in two runs"}),
        (replace(now(flops=None), absent={"flops": "none"}), replace(now(flops=None), set_aside={"flops": "1 and 2"}),
         {"flops": "not reproducible now: 1 and 2"}),
        (replace(now(), absent={"samples_skipped": "the dataset is iterable"}),
         replace(now(), absent={"samples_skipped": "the dataset is iterable"}),
         {"samples_skipped": "not counted: the dataset is iterable"}),
        (replace(now(samples=None), set_aside={"samples": "8 and 9 in two steps"}), now(flops=2000),
         {"flops": "32 samples a step now and an unknown number before: 1,000 and 2,000 are not of the same work",
          "samples": "not reproducible before: 8 and 9 in two steps (32 now)"}),
        (now(), now(samples=64, flops=2000),
         {"flops": "32 samples a step before and 64 now: 1,000 and 2,000 are not of the same work",
          "samples": "32 samples a step before and 64 now"}),
        (now(dataset_samples=100, samples_skipped=4), now(dataset_samples=105, samples_skipped=9),
         {"dataset_samples": "100 samples in the dataset before and 105 now",
          "samples_skipped": "100 samples in the dataset before and 105 now: 4 and 9 are not of the same work"}),
    ],
)  # fmt: skip
def test_what_is_set_aside(before: Counted, after: Counted, aside: dict[str, str]) -> None:
    found = compare_counters("t.py", before, after, {})
    assert (found.verdict, found.changes, found.set_aside) == ("pass", (), aside)


def test_operators_and_syncs_are_compared_whatever_the_batch() -> None:
    found = compare_counters("t.py", BEFORE, now(samples=64, flops=2000, operators=700), {})
    assert (found.verdict, [c.counter for c in found.changes]) == ("regressed", ["operators"])


@pytest.mark.parametrize(
    ("values", "verdict", "changed", "aside"),
    [
        ({"samples": 31, "flops": 5000}, "regressed", ["flops"], ["samples"]),
        ({"samples": 31, "flops": 1001}, "regressed", ["flops"], ["samples"]),
        ({"samples": 31, "flops": 1000}, "pass", [], ["flops", "samples"]),  # may be more of each sample, or what does not grow
        ({"samples": 31, "flops": 10}, "pass", [], ["flops", "samples"]),
        ({"samples": 33, "flops": 999}, "improved", ["flops"], ["samples"]),
        ({"samples": 33, "flops": 1000}, "pass", [], ["samples"]),
        ({"samples": 33, "flops": 1001}, "pass", [], ["flops", "samples"]),
        ({"samples": 33, "flops": 999, "operators": 700}, "regressed", ["flops", "operators"], ["samples"]),
        # what `drop_last` leaves is a remainder: it grows with neither
        ({"samples": 31, "flops": 900, "samples_skipped": 9}, "pass", [], ["flops", "samples", "samples_skipped"]),
        ({"samples": 33, "flops": 1100, "samples_skipped": 0}, "pass", [], ["flops", "samples", "samples_skipped"]),
        ({"dataset_samples": 90, "samples_skipped": 9}, "pass", [], ["dataset_samples", "samples_skipped"]),
        ({"dataset_samples": 110, "samples_skipped": 0}, "pass", [], ["dataset_samples", "samples_skipped"]),
        ({"dataset_samples": 100, "samples_skipped": 9}, "regressed", ["samples_skipped"], []),
    ],
)  # fmt: skip
def test_work_on_other_samples_is_compared_where_the_conclusion_holds_anyway(
    values: dict[str, int], verdict: str, changed: list[str], aside: list[str]
) -> None:
    loader = {
        name: old for name, old in (("dataset_samples", 100), ("samples_skipped", 4)) if "samples_skipped" in values
    }
    found = compare_counters("t.py", now(**loader), now(**{**loader, **values}), {})
    assert (found.verdict, [c.counter for c in found.changes], list(found.set_aside)) == (verdict, changed, aside)


def test_more_work_for_fewer_samples_is_tolerated_as_any_growth() -> None:
    [change] = compare_counters("t.py", BEFORE, now(samples=31, flops=1010), {"flops": 0.01}).changes
    assert (change.counter, change.allowed) == ("flops", True)


def unsteady(
    words: str, least: int | None = None, name: str = "operators", most: int | None = None, **values: int | None
) -> Counted:
    """BEFORE with a counter that two runs do not agree on, or, with `most`, that takes turns in both."""
    smallest = {} if least is None else {name: least}
    largest = {} if least is None else {name: most or least}
    turns = frozenset({name}) if most else frozenset[str]()
    gone = now(**{name: None, **values})
    return replace(gone, set_aside={name: words}, least=smallest, most=largest, turns=turns)


@pytest.mark.parametrize(
    ("after", "tolerated", "verdict", "reason", "changes"),
    [
        (unsteady("100 and 900 in two runs", 100), {}, "inconclusive",
         "operators was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("686 and 687 in two runs", 686), {}, "inconclusive",
         "operators was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("900 in one run, not counted in another"), {}, "inconclusive",
         "operators was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("900 and 905 in two runs", 900), {}, "regressed",
         "operators is not reproducible now and judged by the smallest value that was seen, 900",
         (CounterChange("operators", 686, 900),)),
        (unsteady("900 and 905 in two runs", 900), {"operators": 0.5}, "inconclusive",
         "operators was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("2 and 3 in two steps", 2, "host_syncs", flops=900), {}, "inconclusive",  # a gain does not outweigh it
         "host_syncs was reproducible before and not now, so growth cannot be told",
         (CounterChange("flops", 1000, 900),)),
        (unsteady("2 and 3 in two steps", 2, "host_syncs", flops=1100), {}, "regressed",
         "host_syncs was reproducible before and not now, so growth cannot be told",
         (CounterChange("flops", 1000, 1100),)),
        (replace(now(flops=None), absent={"flops": "torch cannot count those of aten::bmm"}), {}, "inconclusive",
         "flops was counted before and cannot be now, so growth cannot be told", ()),
        (replace(now(flops=None, operators=None), absent={"flops": "no", "operators": "no"}), {}, "inconclusive",
         "flops, operators were counted before and cannot be now, so growth cannot be told", ()),
        # what changes from step to step, in both runs alike
        (unsteady("686 and 690 in two steps", 686, most=690), {}, "regressed",
         "operators takes turns from step to step now: 690 in every second step, 686 in the others",
         (CounterChange("operators", 686, 690),)),
        (unsteady("690 and 685 in two steps", 685, most=690), {}, "inconclusive",
         "operators was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("686 and 690 in two steps", 686, most=690), {"operators": 0.003}, "inconclusive",  # 688 on average
         "operators was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("690 and 700 in two steps", 690, most=700), {}, "regressed",
         "operators is not reproducible now and judged by the smallest value that was seen, 690",
         (CounterChange("operators", 686, 690),)),
        (unsteady("1,000 and 2,100 in two steps", 1000, "flops", 2100, samples=64), {}, "inconclusive",
         "flops was reproducible before and not now, so growth cannot be told", ()),
        # a larger batch, or one of chance, explains growth, and a sample more is no fault
        (unsteady("2,000 and 2,100 in two runs", 2000, "flops", samples=64), {}, "inconclusive",
         "flops was reproducible before and not now, so growth cannot be told", ()),
        (unsteady("2,000 and 2,100 in two runs", 2000, "flops", samples=31), {}, "regressed",
         "flops is not reproducible now and judged by the smallest value that was seen, 2,000",
         (CounterChange("flops", 1000, 2000),)),
        (unsteady("40 and 64 in two steps", 40, "samples", flops=2000), {}, "inconclusive",
         "samples was reproducible before and not now, so growth cannot be told", ()),
    ],
)  # fmt: skip
def test_a_counter_that_is_lost_is_no_pass(
    after: Counted, tolerated: dict[str, float], verdict: str, reason: str, changes: tuple[CounterChange, ...]
) -> None:
    found = compare_counters("t.py", BEFORE, after, tolerated)
    assert (found.verdict, found.reason, found.changes) == (verdict, reason, changes)
    judged = {change.counter for change in changes}
    assert {*after.set_aside, *after.absent} - judged <= set(found.set_aside)
    assert not judged & set(found.set_aside)


@pytest.mark.parametrize(
    ("was", "is_now", "tolerated", "verdict"),
    [
        ((4, 5), (10, 13), {}, "regressed"),
        ((4, 5), (6, 7), {}, "not_judged"),  # other batches may be as far apart
        ((4, 5), (7, 7), {}, "regressed"),
        ((4, 5), (10, 16), {}, "not_judged"),
        ((4, 5), (10, 13), {"host_syncs": 0.5}, "not_judged"),
        ((4, 5), (4, 5), {}, "not_judged"),
        ((10, 13), (4, 5), {}, "not_judged"),
    ],
)
def test_what_is_reproducible_on_neither_side(
    was: tuple[int, int], is_now: tuple[int, int], tolerated: dict[str, float], verdict: str
) -> None:
    before, after = (
        Counted({}, set_aside={"host_syncs": "words"}, least={"host_syncs": low}, most={"host_syncs": high})
        for low, high in (was, is_now)
    )
    found = compare_counters("t.py", before, after, tolerated)
    grown = (CounterChange("host_syncs", was[1], is_now[0]),) if verdict == "regressed" else ()
    assert (found.verdict, found.changes) == (verdict, grown)
    assert ("host_syncs" in found.set_aside) == (verdict != "regressed")


def test_what_is_lost_is_told_with_its_values() -> None:
    found = compare_counters("t.py", BEFORE, unsteady("600 and 905 in two runs", 600), {})
    assert found.set_aside == {"operators": "not reproducible now: 600 and 905 in two runs (686 before)"}


def test_where_nothing_is_left_to_compare_but_was_before_nothing_is_told() -> None:
    before = replace(BEFORE, values={"operators": 1}, by_name={}, places={})
    found = compare_counters("t.py", before, replace(before, values={}, absent={"operators": "a step failed"}), {})
    assert found.verdict == "inconclusive"


@pytest.mark.parametrize(
    "change", [{"dtype": "bfloat16"}, {"torch": "2.13.0+cpu"}, {"device": "cuda", "torch": "2.14.0", "dtype": ""}]
)
def test_what_the_environment_allows_is_not_asked_here(change: dict[str, Any]) -> None:
    """Another type of the parameters may be the very change that is judged."""
    found = compare_counters("train.py", BEFORE, replace(now(operators=687), **change), {})
    assert (found.verdict, [c.counter for c in found.changes], found.set_aside) == ("regressed", ["operators"], {})


def test_without_a_counter_on_both_sides_there_is_no_verdict() -> None:
    before = replace(BEFORE, values={"operators": 1}, by_name={}, places={})
    after = replace(BEFORE, values={"flops": 1}, by_name={}, places={})
    found = compare_counters("t.py", before, after, {})
    assert (found.verdict, sorted(found.set_aside)) == ("not_judged", ["flops", "operators"])
