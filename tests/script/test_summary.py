"""What is said of a run: what limits it, its setup, its profile, its scalars."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.render.paint import plain
from perfaudit.render.run import run_block
from perfaudit.runs import ProfileRow
from perfaudit.script import waiting
from perfaudit.script.observe import Seen
from perfaudit.script.scalars import scalars
from perfaudit.script.spans import PHASES
from perfaudit.script.step_profile import OUTSIDE, rows
from perfaudit.script.summary import summarize
from perfaudit.script.waiting import FIRST, Waiting


def seen_of(facts: dict[str, Any], seconds: float = 1.0, ended: str = "finished", **phases: float) -> Seen:
    spent = [seconds * phases.get(name, 0.0) for name in PHASES]
    update = {
        "optimizer": 0, "seconds": seconds, "phases": spent, "batches": 1, "samples": 4, "epochs": 0, "without_gradients": 0,
        "backwards": 1,
    }  # fmt: skip
    return Seen(100.0, [update] * 8, facts, ended)


@pytest.mark.parametrize(
    ("facts", "phases", "limit"),
    [
        ({"device": "cpu"}, {"data_wait": 0.4}, "data"),
        ({"device": "cpu", "blocked": 0.4}, {"data_wait": 0.4}, "data"),
        ({"device": "cpu", "blocked": 0.05}, {"forward": 0.9}, "compute"),
        ({"device": "cpu", "blocked": 0.7}, {"data_wait": 0.25}, "compute"),  # 0.45 besides data: not clear enough
        ({"device": "cpu", "blocked": 0.9}, {"data_wait": 0.1}, "host"),
        ({"device": "cuda", "behind": 0.9}, {"forward": 0.9}, "device"),
        ({"device": "cuda", "behind": 0.0}, {"forward": 0.9}, "host"),
        ({"device": "cuda", "behind": 0.0}, {"host_reads": 0.3}, "device"),
        ({"device": "cuda", "behind": 0.9}, {"data_wait": 0.5}, "data"),
        ({"device": "mps"}, {"forward": 0.9}, "host"),
    ],
)
def test_what_limits_a_step(facts: dict[str, Any], phases: dict[str, float], limit: str) -> None:
    assert summarize(seen_of(facts, **phases), "train.py").limited_by == limit


class Device:
    """An accelerator that comes to a mark after so many others were set."""

    def __init__(self, late: int) -> None:
        self.late, self.marks = late, 0

    def mark(self) -> int:
        self.marks += 1
        return self.marks

    def has_passed(self, mark: int) -> bool:
        return self.marks - mark >= self.late


@pytest.mark.parametrize(("late", "behind"), [(0, 0.0), (2, 1.0)])
def test_a_device_is_behind_where_it_has_not_done_the_update_before(
    late: int, behind: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "device_in_use", lambda: "cpu")
    monkeypatch.setattr(waiting, "accelerator_of", lambda device: Device(late))
    monkeypatch.setitem(waiting.sys.modules, "torch", __import__("types").SimpleNamespace(device=str))
    watched = Waiting()
    for _ in range(FIRST + 5):
        watched.end_update()
    assert watched.facts()["behind"] == behind


def test_a_thread_that_neither_runs_nor_queues_is_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = iter([(0.0, 0.0, 0.0), (10.0, 2.0, 3.0)])
    monkeypatch.setattr(waiting, "_clocks", lambda: next(clocks))
    monkeypatch.setattr(waiting, "device_in_use", lambda: "")
    watched = Waiting()
    for _ in range(FIRST + 1):
        watched.end_update()
    assert watched.facts() == {"blocked": 0.5}


def test_setup_has_parts_and_advice_where_it_takes_longest() -> None:
    facts = {"device": "cpu", "torch_at": 102.0, "loader_at": 130.0, "first_batch_at": 131.0}
    run = summarize(seen_of(facts, forward=1.0), "train.py")
    assert (run.setup_seconds, run.setup) == (31.0, {"until_torch": 2.0, "until_loader": 28.0, "until_batch": 1.0})
    assert run.setup_share == pytest.approx(31 / 39)
    text = " ".join(run_block(run, plain, 100).split())
    assert (
        "Setup took 31.0 s: 2.0 s until torch was imported, 28.0 s until the loader was read, 1.0 s until the first"
        in text
    )
    assert "Setup takes longer than the training. What is computed there each time" in text
    long = summarize(seen_of(facts, seconds=10.0, forward=1.0), "train.py")
    assert "Setup takes longer" not in run_block(long, plain, 100)


def test_rows_of_a_profile_are_shares_of_all_of_it() -> None:
    found = rows([("mm", 3.0), ("add", 1.0), ("mm", 3.0)], 2, outside=1.0)
    assert found == [
        {"name": "mm", "share": 0.75, "calls": 1.0},
        {"name": OUTSIDE, "share": 0.125, "calls": 0.0},
        {"name": "add", "share": 0.125, "calls": 0.5},
    ]
    seen = seen_of({})
    seen.profile = {"steps": 2, "operators": found, "kernels": []}
    profile = summarize(seen, "train.py").profile
    assert profile is not None
    assert profile.operators[0] == ProfileRow("mm", 0.75, 1.0)


def test_scalars_of_steps() -> None:
    base = {"phases": [0.25] + [0.0] * (len(PHASES) - 1)}
    updates = [
        base | {"optimizer": number % 2, "seconds": 1.0, "loss": float(number), "gradient_norm": number / 2}
        for number in range(4)
    ]
    assert [each for each in scalars(updates, ["Adam", "SGD"]) if each[2] == 2] == [
        ("step/seconds", 2.0, 2, 3.0),
        ("step/seconds waiting for data", 0.5, 2, 3.0),
        ("training/loss", 3.0, 2, 3.0),
        ("training/gradient norm 1 Adam", 1.0, 2, 3.0),
        ("training/gradient norm 2 SGD", 1.5, 2, 3.0),
    ]
