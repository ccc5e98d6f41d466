"""Counters as a file holds them: what is written is read, and what is missing, misspelt or damaged is an error."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from surveys import facts

from perfaudit.decoding import Damaged, Value
from perfaudit.gate.counters_compared import compare_counters
from perfaudit.gate.target_counters import Counted, Spot

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
    read = Counted.from_json(Value.of_json(text))
    assert read.places == {"host_syncs": COUNTED.places["host_syncs"]}
    assert read.as_json() == COUNTED.as_json()
    assert (read.least, read.facts) == ({}, None)  # of what has just been counted only
    assert compare_counters("t.py", read, COUNTED, {}).verdict == "pass"


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
    ("found", "names"),
    [
        (None, ["the file", "None"]),
        ([], ["the file", "[]"]),
        ({}, ["lacks 'absent'"]),
        (edited("valeus", to={}), ["'valeus'", "values)"]),
        (edited("facts", to={}), ["'facts'", "values)"]),
        (edited("values", to=[]), ["values must", "[]"]),
        (edited("values", "operators", to="5"), ["values.operators", "'5'"]),
        (edited("values", "operators", to=5.0), ["values.operators", "5.0"]),
        (edited("values", "operators", to=-5), ["values.operators", "-5"]),
        (edited("values", "operators", to=True), ["values.operators", "True"]),
        (edited("values", "operators", to=6), ["by_name.operators", "5", "values.operators", "6"]),
        (edited("by_name", "flops", to={}), ["by_name.flops", "values.flops", "not there"]),
        (edited("places", "host_syncs", to={}), ["places.host_syncs", "{}"]),
        (edited("places", "host_syncs", 0, "line", to=None), ["places.host_syncs[0].line", "None"]),
        (edited("places", "host_syncs", 0, "text", to=3), ["places.host_syncs[0].text", "3"]),
        (edited("places", "host_syncs", 0, to={"line": 3}), ["places.host_syncs[0]", "'count'"]),
        (edited("places", "host_syncs", 0, to=7), ["places.host_syncs[0]", "7"]),
        (edited("set_aside", "flops", to=None), ["set_aside.flops", "None"]),
        (edited("set_aside", "flops", to="5 and 6"), ["'flops'", "2 times", "values, set_aside and absent"]),
        (edited("set_aside", "samples", to="4 and 5"), ["'samples'", "2 times", "values, set_aside and absent"]),
        (edited("absent", "flips", to="no formula"), ["'flips'", "operators, flops, bytes_allocated"]),
        (edited("values", "sample", to=4), ["'sample'", "operators, flops, bytes_allocated"]),
        (edited("places", "operaters", to=[]), ["places", "'operaters'"]),
        (edited("device", to="cuda"), ["'copies_to_device'", "neither"]),
        (edited("values", "graph_breaks", to=0), ["'recompilations'", "neither"]),
        (edited("torch", to=None), ["torch", "None"]),
    ],
)
def test_what_a_file_cannot_hold(found: Any, names: list[str]) -> None:
    with pytest.raises(Damaged) as raised:
        Counted.from_json(Value(found))
    assert [name for name in names if name not in str(raised.value)] == []


@pytest.mark.parametrize("name", [*COUNTED.values, "peak_live_bytes", "flops"])
def test_a_counter_that_was_taken_out_is_noticed(name: str) -> None:
    found = COUNTED.as_json()
    for part in ("values", "set_aside", "absent", "by_name", "places"):
        found[part].pop(name, None)
    with pytest.raises(Damaged, match=f"'{name}' neither"):
        Counted.from_json(Value(found))


def test_a_loader_without_indices_says_nothing_of_its_dataset() -> None:
    found = json.loads(json.dumps(COUNTED.as_json()))
    for name in ("dataset_samples", "samples_repeated", "samples_skipped"):
        del found["values"][name]
    found["absent"] |= dict.fromkeys(("samples_repeated", "samples_skipped"), "the dataset is iterable")
    assert set(Counted.from_json(Value(found)).absent) == {"flops", "samples_repeated", "samples_skipped"}


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
    read = Counted.from_json(Value(on_cuda(kernels, graphs)))
    launched = {name: value for name, value in read.values.items() if name in ("kernels_launched", "graphs_replayed")}
    assert launched == known
    assert set(read.absent) - {"flops"} == {"kernels_launched", "graphs_replayed"} - known.keys()
    assert Counted.from_json(Value(read.as_json())) == read


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
    found = compare_counters("t.py", *(Counted.from_json(Value(on_cuda(*side))) for side in (before, after)), {})
    assert (found.verdict, found.changes) == (verdict, ())
    assert found.set_aside["kernels_launched"].startswith(said)
