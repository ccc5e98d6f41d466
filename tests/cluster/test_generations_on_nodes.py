"""Generations of a race on nodes that are not real, with steps that take as long as told."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from fake_nodes import FakeNodes

sys.path.insert(0, str(Path(__file__).parent.parent / "measure"))

from test_runner import FakeLab, variants  # found there

from perfaudit.measure.clock import Deadline
from perfaudit.measure.generations import measure
from perfaudit.measure.journal import Journal, Json, Kept
from perfaudit.measure.judge import comparison, settled_variants
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Ledger, Variant, from_json, to_json


class Lab(FakeLab):
    opened = 0

    def open(self, given: Sequence[Variant]) -> Any:
        self.opened += 1
        return super().open(given)

    def here(self) -> FakeLab:
        return FakeLab(FakeClock(), self.speeds)


class Memo(Kept):
    def __init__(self, *earlier: tuple[Any, Json]) -> None:
        super().__init__(Journal.none(), to_json, from_json)
        self.earlier, self.lines = earlier, list[tuple[Any, Json]]()

    def earlier_sets(self, stage: str) -> list[tuple[Any, Json]]:
        return list(self.earlier)

    def keep_set(self, stage: str, piece: Any, state: Json) -> None:
        self.lines.append((piece, state))


def test_all_but_the_first_generation_go_out_up_to_the_next_look(clock: FakeClock) -> None:
    lab, ledger, nodes, memo = Lab(clock, {"a": 0.010, "b": 0.008}), Ledger(), FakeNodes(8, newest=True), Memo()
    a, b = variants("a", "b")
    measure(
        lab, [a, b], ledger, Deadline(1000, clock), 1, memo=memo, nodes=nodes,
        settled=lambda ledger: settled_variants(ledger, a, [b], 0.01, "race"),
    )  # fmt: skip
    compared = comparison(ledger, a, b)
    assert compared is not None and (compared.ratio, compared.verdict) == (pytest.approx(0.8), "faster")
    assert (lab.opened, nodes.most_out, len(ledger.generations), len(memo.lines)) == (1, 3, 4, 4)
    assert ledger.on_nodes == 3

    lab, ledger, nodes, again = Lab(clock, lab.speeds), Ledger(), FakeNodes(8), Memo(*memo.lines[:2])
    measure(
        lab, [a, b], ledger, Deadline(1000, clock), 1, memo=again, nodes=nodes,
        settled=lambda ledger: settled_variants(ledger, a, [b], 0.01, "race"),
    )  # fmt: skip
    assert (lab.opened, nodes.most_out, len(ledger.generations), len(again.lines)) == (0, 2, 4, 2)


def test_what_fails_on_a_node_is_a_result(clock: FakeClock) -> None:
    lab, ledger, nodes = Lab(clock, {"a": 0.010, "b": 0.008, "c": 0.009}), Ledger(), FakeNodes(2)
    a, b, c = variants("a", "b", "c")

    class Failing(Lab):
        def here(self) -> FakeLab:
            there = super().here()
            there.fails_to_open["b"] = "out of memory"
            return there

    lab = Failing(clock, lab.speeds)
    measure(lab, [a, b, c], ledger, Deadline(1000, clock), 1, nodes=nodes)
    assert ledger.failures == {"b": "out of memory"}
    assert ledger.generations_with("a", "c", "race") == 12


def test_a_lab_goes_to_a_node_without_what_belongs_to_this_process() -> None:
    lab = ChildLab({"file": "train.py"}, "cpu", 3, check=lambda *_: None, on_open=lambda variant: None)
    lab.ran, lab.own_ends = {"train.py": "digest"}, {"an end"}
    there = pickle.loads(pickle.dumps(lab.here()))
    assert there == ChildLab({"file": "train.py"}, "cpu", 3, ran={"train.py": "digest"})
