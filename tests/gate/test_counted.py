"""Counters as a file holds them: what is written is read, and what is missing, misspelt or damaged is an error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from surveys import facts

from perfaudit.gate.counted import Counted, Spot
from perfaudit.gate.counters_compared import compared

COUNTED = Counted(
    {
        "operators": 5,
        "host_syncs": 1,
        "bytes_allocated": 64,
        "parameters": 8,
        "trainable_parameters": 8,
        "samples": 4,
        "dataset_samples": 32,
        "samples_repeated": 0,
        "samples_skipped": 0,
    },
    {"operators": {"aten::add": 2, "aten::mul": 3}},
    {
        "host_syncs": [Spot("a.py", 3, "loss.item()", "item", 1)],
        "operators": [Spot("a.py", 2, "x * 2", "aten::mul", 3)],
    },
    {"peak_live_bytes": "10,240 and 12,288 in two runs"},
    {"flops": "no formula"},
    "cpu",
    "2.13.0",
    "float32",
    {"peak_live_bytes": 10_240},
    {"threads": 2},
)


def test_a_file_holds_all_but_the_lines_of_operators() -> None:
    text = json.dumps(COUNTED.as_json())
    assert text == json.dumps(COUNTED.as_json(), sort_keys=True)  # in order already
    read = Counted.from_json(json.loads(text))
    assert read.places == {"host_syncs": COUNTED.places["host_syncs"]}
    assert read.as_json() == COUNTED.as_json()
    assert (read.least, read.facts) == ({}, None)  # of what has just been counted only
    assert compared("t.py", read, COUNTED, {}).verdict == "pass"


def test_what_was_seen_besides_makes_no_other_counters() -> None:
    more = replace(COUNTED, least={"flops": 1}, most={"flops": 2}, turns=frozenset({"flops"}), facts=facts())
    assert more == COUNTED and more.as_json() == COUNTED.as_json()
    assert "Facts" not in repr(more) and "turns=frozenset({'flops'})" in repr(more)
    assert replace(COUNTED, dtype="bfloat16") != COUNTED


def edited(*path: Any, to: Any) -> Any:
    found = json.loads(json.dumps(COUNTED.as_json()))
    inner = found
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = to
    return found


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "the counters is null, not an object"),
        ([], "the counters is a list, not an object"),
        ({}, "the counters lack 'absent'"),
        (edited("valeus", to={}), "the counters have 'valeus', which is none of values, by_name"),
        (edited("facts", to={}), "the counters have 'facts', which is none of values, by_name"),
        (edited("values", to=[]), "values is a list, not an object"),
        (edited("values", "operators", to="5"), "values.operators is '5', not a whole number from 0"),
        (edited("values", "operators", to=5.0), "values.operators is 5.0, not a whole number from 0"),
        (edited("values", "operators", to=-5), "values.operators is -5, not a whole number from 0"),
        (edited("values", "operators", to=True), "values.operators is True, not a whole number from 0"),
        (edited("values", "operators", to=6), "by_name.operators adds up to 5, and values.operators is 6"),
        (edited("by_name", "flops", to={}), "by_name.flops adds up to 0, and values.flops is not there"),
        (edited("places", "host_syncs", to={}), "places.host_syncs is an object, not a list"),
        (edited("places", "host_syncs", 0, "line", to=None), "places.host_syncs[0].line is null, not a whole number from 0"),
        (edited("places", "host_syncs", 0, "text", to=3), "places.host_syncs[0].text is 3, not a text"),
        (edited("places", "host_syncs", 0, to={"line": 3}), "places.host_syncs[0] has line, not path, line, text, what, count"),
        (edited("places", "host_syncs", 0, to=7), "places.host_syncs[0] is 7, not an object"),
        (edited("set_aside", "flops", to=None), "set_aside.flops is null, not a text"),
        (edited("set_aside", "flops", to="5 and 6"), "'flops' stands 2 times in values, set_aside and absent"),
        (edited("set_aside", "samples", to="4 and 5"), "'samples' stands 2 times in values, set_aside and absent"),
        (edited("absent", "flips", to="no formula"), "'flips' is no counter; there are operators, flops, bytes_allocated"),
        (edited("values", "sample", to=4), "'sample' is no counter; there are operators, flops, bytes_allocated"),
        (edited("places", "operaters", to=[]), "places has 'operaters', which is not among values"),
        (edited("device", to="cuda"), "'copies_to_device' is neither in values nor in set_aside nor in absent"),
        (edited("values", "graph_breaks", to=0), "'recompilations' is neither in values nor in set_aside nor in absent"),
        (edited("torch", to=None), "torch is null, not a text"),
    ],
)  # fmt: skip
def test_what_a_file_cannot_hold(found: Any, said: str) -> None:
    with pytest.raises(ValueError) as raised:
        Counted.from_json(found)
    assert str(raised.value).startswith(said)


@pytest.mark.parametrize("name", [*COUNTED.values, "peak_live_bytes", "flops"])
def test_a_counter_that_was_taken_out_is_noticed(name: str) -> None:
    found = COUNTED.as_json()
    for part in ("values", "set_aside", "absent", "by_name", "places"):
        found[part].pop(name, None)
    with pytest.raises(ValueError, match=rf"^'{name}' is neither in values nor in set_aside nor in absent$"):
        Counted.from_json(found)


def test_a_loader_without_indices_says_nothing_of_its_dataset() -> None:
    found = json.loads(json.dumps(COUNTED.as_json()))
    for name in ("dataset_samples", "samples_repeated", "samples_skipped"):
        del found["values"][name]
    found["absent"] |= dict.fromkeys(("samples_repeated", "samples_skipped"), "the dataset is iterable")
    assert set(Counted.from_json(found).absent) == {"flops", "samples_repeated", "samples_skipped"}


def on_cuda(kernels: int, graphs: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(COUNTED.as_json()))
    of_device = {"copies_to_device": 1, "bytes_to_device": 8, "unpinned_copies": 0}
    found["values"] |= {**of_device, "kernels_launched": kernels, "graphs_replayed": graphs}
    return {**found, "device": "cuda"}


@pytest.mark.parametrize(
    ("kernels", "graphs", "known"),
    [
        (9, 0, {"kernels_launched": 9, "graphs_replayed": 0}),
        (0, 1, {"kernels_launched": 0, "graphs_replayed": 1}),
        (0, 0, {}),  # written where the profiler saw nothing
    ],
)
def test_no_launch_at_all_was_never_counted(kernels: int, graphs: int, known: dict[str, int]) -> None:
    read = Counted.from_json(on_cuda(kernels, graphs))
    launched = {name: value for name, value in read.values.items() if name in ("kernels_launched", "graphs_replayed")}
    assert launched == known
    assert set(read.absent) - {"flops"} == {"kernels_launched", "graphs_replayed"} - known.keys()
    assert Counted.from_json(read.as_json()) == read


@pytest.mark.parametrize(
    ("before", "after", "verdict", "said"),
    [
        ((0, 0), (9, 0), "pass", "9 now, not counted before: the file has none, which no step on CUDA has"),
        ((9, 0), (0, 0), "inconclusive", "9 before, not counted now"),
        ((0, 0), (0, 0), "pass", "not counted: the file has none"),
    ],
)
def test_launches_that_one_side_lacks_are_no_growth_and_no_gain(
    before: tuple[int, int], after: tuple[int, int], verdict: str, said: str
) -> None:
    found = compared("t.py", *(Counted.from_json(on_cuda(*side)) for side in (before, after)), {})
    assert (found.verdict, found.changes) == (verdict, ())
    assert found.set_aside["kernels_launched"].startswith(said)
