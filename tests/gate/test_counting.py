"""Counters taken in two fresh processes: what agrees is kept, the rest set aside; and what a baseline may hold of them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from surveys import facts

from perfaudit.errors import TargetError
from perfaudit.gate import counting
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.comparable import fingerprint
from perfaudit.gate.counters_compared import compare_counters
from perfaudit.gate.counting import count, hash_seeds, merge_answers
from perfaudit.gate.target_counters import Counted, Spot
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.facts import to_json
from perfaudit.target.names import Target

Project = Callable[..., Path]

REPLY: dict[str, Any] = {
    "values": {"operators": 5, "host_syncs": 1},
    "by_name": {"operators": {"aten::mul": 3, "aten::add": 2}},
    "places": {"host_syncs": [["a.py", 3, "loss.item()", "item", 1]]},
    "unsteady": {},
    "steps": {},
    "absent": {"flops": "no formula"},
    "as_run": False,
    "device": "cpu",
    "torch": "2.13.0",
    "dtype": "float32",
}


TURNS = {"unsteady": {"operators": "5 and 4 in two steps"}, "steps": {"operators": [5, 4, 5, 4]}}
ONCE = {**TURNS, "steps": {"operators": [5, 4, 4, 4]}}


def reply(**parts: Any) -> dict[str, Any]:
    return {**REPLY, **parts}


@pytest.mark.parametrize(
    ("other", "aside"),
    [
        (reply(), {}),
        (reply(values={"operators": 7, "host_syncs": 1}), {"operators": "5 and 7 in two runs"}),
        (reply(values={"operators": 5}), {"host_syncs": "1 in one run, not counted in another"}),
        (reply(values={"operators": 5}, absent={"host_syncs": "a step failed"}),
         {"host_syncs": "1 in one run, not counted in another (a step failed)"}),
        (reply(by_name={"operators": {"aten::mul": 2, "aten::add": 3}}),
         {"operators": "2 and 3 of aten::add in two runs"}),
        (reply(unsteady={"operators": "5 and 6 in two steps"}), {"operators": "5 and 6 in two steps"}),
        (reply(values={"operators": 12_288, "host_syncs": 1}), {"operators": "5 and 12,288 in two runs"}),
    ],
)  # fmt: skip
def test_what_two_runs_do_not_agree_on_is_set_aside(other: dict[str, Any], aside: dict[str, str]) -> None:
    found = merge_answers(REPLY, other)
    assert found.set_aside == aside
    assert sorted(found.values) == sorted({"operators", "host_syncs"} - set(aside))
    assert set(found.by_name) <= set(found.values) and set(found.places) <= set(found.values)
    assert found.absent.keys() == {"flops"} or "host_syncs" in aside


@pytest.mark.parametrize(
    ("one", "other", "seen", "turns"),
    [
        ({}, {}, None, False),
        ({}, {"values": {"operators": 7, "host_syncs": 1}}, (5, 7), False),
        ({"values": {"operators": 7, "host_syncs": 1}}, {}, (5, 7), False),
        ({}, {"values": {"operators": 5}}, None, False),  # a run that says nothing of it may have had none
        ({}, {"by_name": {"operators": {"aten::mul": 2, "aten::add": 3}}}, (5, 5), False),
        (TURNS, {}, (4, 5), False),
        ({}, TURNS, (4, 5), False),
        (TURNS, TURNS, (4, 5), True),
        (ONCE, ONCE, (4, 5), False),
        (TURNS, {**TURNS, "steps": {"operators": [5, 3, 5, 3]}}, (3, 5), False),
        (TURNS, {**TURNS, "by_name": {"operators": {"aten::mul": 5}}}, (4, 5), False),
    ],
)
def test_the_values_of_all_steps_and_whether_they_take_turns(
    one: dict[str, Any], other: dict[str, Any], seen: tuple[int, int] | None, turns: bool
) -> None:
    found = merge_answers(reply(**one), reply(**other))
    assert (found.least, found.most) == (({}, {}) if seen is None else ({"operators": seen[0]}, {"operators": seen[1]}))
    assert found.turns == ({"operators"} if turns else set())
    assert ("operators" in found.by_name) == (turns or "operators" in found.values)
    assert ("operators" in found.as_json()["by_name"]) == ("operators" in found.values)


@pytest.mark.parametrize("ours", ["", "0", "1", "2", "3", "random"])
def test_the_second_process_hashes_otherwise_than_the_first_and_than_we(
    monkeypatch: pytest.MonkeyPatch, ours: str
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", ours)
    assert hash_seeds(fresh=False)[0] is None
    assert hash_seeds(fresh=False)[1] != ours
    first, second = hash_seeds(fresh=True)
    assert second not in (first, ours)


TRAIN = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def build_dataloader():
    return DataLoader(TensorDataset(torch.ones(64, 4), torch.zeros(64, dtype=torch.long)), batch_size=8)


def training_step(model, batch):
    x, y = batch
    {extra}
    return nn.functional.cross_entropy(model(x), y)
"""


def counted(project: Project, text: str) -> Counted:
    project(**{"train.py": text})
    return count(Target("train.py"), None, "cpu", 120.0)


@pytest.mark.slow
def test_a_step_counted_and_what_chance_decides_set_aside(project: Project) -> None:
    plain = counted(project, TRAIN.replace("{extra}", "pass"))
    assert (plain.set_aside, plain.absent) == ({}, {})
    assert (plain.values["samples"], plain.values["parameters"], plain.values["host_syncs"]) == (8, 67, 0)
    # Texts hash otherwise in each process: two agree once in a thousand runs of this test.
    by_order = "for _ in range(min(range(100, 1100), key=lambda i: hash(str(i)))): x = x * 1"
    by_chance = counted(project, TRAIN.replace("{extra}", by_order))
    assert by_chance.set_aside["operators"].endswith(" in two runs")
    assert by_chance.least["operators"] >= plain.values["operators"] + 100
    grown = next(c for c in compare_counters("train.py", plain, by_chance, {}).changes if c.counter == "operators")
    assert grown.after == by_chance.least["operators"]
    by_time = counted(
        project, TRAIN.replace("{extra}", "for _ in range(int.from_bytes(os.urandom(2)) % 1000): x = x * 1")
    )
    assert {"operators", "bytes_allocated"} <= set(by_time.set_aside)


@pytest.mark.slow
def test_a_sync_in_every_second_step_is_growth_with_its_line(project: Project) -> None:
    steps = TRAIN.replace("def training_step", "steps = []\n\n\ndef training_step")
    plain = counted(project, steps.replace("{extra}", "steps.append(1)"))
    for parity in (0, 1):  # whichever of the steps that are looked at it is in
        extra = f"steps.append(1)\n    if len(steps) % 2 == {parity}:\n        y.sum().item()"
        turns = counted(project, steps.replace("{extra}", extra))
        assert turns.set_aside["host_syncs"] in ("0 and 1 in two steps", "1 and 0 in two steps")
        found = compare_counters("train.py", plain, turns, {})
        (syncs,) = [change for change in found.changes if change.counter == "host_syncs"]
        assert (found.verdict, syncs.before, syncs.after) == ("regressed", 0, 1)
        assert [(place.path, place.line, place.what) for place in syncs.places] == [("train.py", 22, "item")]
        assert "host_syncs takes turns from step to step now: 1 in every second step, 0 in the others" in found.reason


@pytest.mark.slow
def test_a_sync_that_is_made_once_is_no_growth_that_can_be_told(project: Project) -> None:
    steps = TRAIN.replace("def training_step", "steps = []\n\n\ndef training_step")
    plain = counted(project, steps.replace("{extra}", "steps.append(1)"))
    for step in (2, 3):
        once = f"steps.append(1)\n    if len(steps) == {step}:\n        y.sum().item()"
        found = compare_counters("train.py", plain, counted(project, steps.replace("{extra}", once)), {})
        assert (found.verdict, found.changes) == ("inconclusive", ())


@pytest.mark.slow
def test_another_type_of_the_parameters_is_the_change_that_is_judged(project: Project) -> None:
    text = TRAIN.replace("{extra}", "x = x.to(model[0].weight.dtype)")
    single = counted(project, text)
    double = counted(project, text.replace("nn.Linear(8, 3))", "nn.Linear(8, 3)).double()"))
    assert (single.dtype, double.dtype) == ("float32", "float64")
    found = compare_counters("train.py", single, double, {})
    assert found.verdict == "regressed"
    assert {"bytes_allocated", "peak_live_bytes"} <= {change.counter for change in found.changes if change.grew}
    here = fingerprint(double.facts, host())  # as a file would hold it
    assert (here.device, here.dtypes, here.torch) == ("cpu", ("float64",), double.torch)
    assert here.cores > 0 and here.threads > 0


@pytest.mark.slow
def test_another_folder_is_counted_instead(project: Project) -> None:
    folder = project(
        **{"train.py": TRAIN.replace("{extra}", "pass"), "base/train.py": TRAIN.replace("{extra}", "y.sum().item()")}
    )
    base = count(Target("train.py"), Checkout(folder / "base", folder, folder), "cpu", 120.0)
    head = count(Target("train.py"), None, "cpu", 120.0)
    assert base.places["host_syncs"] == [Spot("train.py", 17, "y.sum().item()", "item", 1)]
    found = compare_counters("train.py", head, base, {})
    assert found.verdict == "regressed"
    assert [change.places[0].line for change in found.changes if change.counter == "host_syncs"] == [17]


@pytest.mark.slow
def test_a_compiled_model_is_counted_as_it_is_written_and_for_its_graph_breaks(project: Project) -> None:
    model = "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))"
    text = TRAIN.replace("{extra}", "pass")
    assert text.count(f"return {model}") == 1
    plain = counted(project, text)
    compiled = counted(project, text.replace(f"return {model}", f"return torch.compile({model}, backend='eager')"))
    assert (compiled.values["graph_breaks"], compiled.values["recompilations"]) == (0, 0)
    assert compiled.values["operators"] == plain.values["operators"]
    aside = compare_counters("train.py", plain, compiled, {}).set_aside
    assert aside == {"graph_breaks": "0 now, not counted before", "recompilations": "0 now, not counted before"}

    broken = text + "\n\nclass Net(nn.Sequential):\n    def forward(self, x):\n        torch._dynamo.graph_break()\n"
    broken += "        return super().forward(x)\n"
    broken = broken.replace(
        f"return {model}", f"return torch.compile({model.replace('nn.Sequential', 'Net')}, backend='eager')"
    )
    found = compare_counters("train.py", compiled, counted(project, broken), {})
    assert found.verdict == "regressed"
    assert {change.counter for change in found.changes} == {"graph_breaks"}


@pytest.mark.slow
def test_a_step_that_fails_is_one_line(project: Project) -> None:
    with pytest.raises(ChildFailed, match=r"ValueError: no \(train.py:17 in training_step\)"):
        counted(project, TRAIN.replace("{extra}", "raise ValueError('no')"))


SCRIPT = """
import torch
from torch import nn

model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(20):
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "last.pt")
"""


@pytest.mark.slow
def test_a_script_is_counted_in_its_own_loop_and_its_files_stay(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    # That its processes are started, and with which seeds, is a test of its own; forks have torch imported.
    monkeypatch.setattr(counting, "Child", lambda fresh, folder: Child(folder=folder))
    monkeypatch.setattr(counting, "hash_seeds", lambda fresh: hash_seeds(fresh=False))
    more = SCRIPT.replace("    torch.save", "    loss.item()\n    torch.save")
    folder = project(**{"train.py": more, "last.pt": "mine", "base/train.py": SCRIPT, "base/last.pt": "theirs"})
    target, base = Target("train.py", {}, (), name="small"), Checkout(folder / "base", folder, folder)
    before, after = (count(target, side, "cpu", 120.0, twice=False) for side in (base, None))
    verdict = compare_counters(target.label, before, after, {})
    assert (verdict.target, verdict.verdict) == ("small", "regressed")
    assert [(change.counter, change.after - change.before) for change in verdict.changes] == [
        ("host_syncs", 1), ("operators", 1),
    ]  # fmt: skip
    assert [(place.path, place.line) for place in verdict.changes[0].places] == [("train.py", 11)]
    assert [Path(name).read_text() for name in ("last.pt", "base/last.pt")] == ["mine", "theirs"]


BASE = Checkout(Path("/base"), Path("/head"), Path("/head/sub"))


class FakeChild:
    """Answers as told and writes down when it is started and asked."""

    log: ClassVar[list[str]] = []
    strays: ClassVar[list[str]] = []
    as_run = False

    def __init__(self, fresh: bool, folder: Path | None) -> None:
        self.seed = os.environ["PYTHONHASHSEED"]
        self.log.append(f"{'start' if fresh else 'fork'} {self.seed} in {folder}")

    def __enter__(self) -> FakeChild:
        return self

    def __exit__(self, *_: object) -> None:
        self.log.append(f"end {self.seed}")

    def send(self, command: dict[str, Any]) -> None:
        self.command = command
        self.log.append(f"{command['do']} {self.seed}" + (" as run" if command.get("as_run") else ""))

    def ask(self, command: dict[str, Any], timeout: float) -> dict[str, Any]:
        assert command == {"do": "strays"}
        return {"strays": self.strays}

    def receive(self, timeout: float) -> dict[str, Any]:
        if self.command["do"] == "build":
            return to_json(facts(strays=tuple(self.strays), host={"threads": int(self.seed)}))
        if self.command.get("as_run"):
            ran = {"graph_breaks": int(self.seed), "kernels_launched": 7}
            return {"values": ran, "by_name": {}, "places": {}, "unsteady": {}, "absent": {}}
        return {**REPLY, "as_run": self.as_run}


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    for name, value in (("log", []), ("strays", []), ("as_run", False)):
        monkeypatch.setattr(FakeChild, name, value)
    monkeypatch.setattr(counting, "Child", FakeChild)
    monkeypatch.setattr(counting, "usable_cores", lambda: 2)
    monkeypatch.setenv("PYTHONHASHSEED", "99")
    return FakeChild


def test_two_processes_side_by_side_and_one_after_another_on_one_core(
    children: type[FakeChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    count(Target("t.py"), BASE, "cpu", 1.0)
    first = [
        "fork 99 in /base/sub",
        "build 99",
        "fork 2 in /base/sub",
        "build 2",
        "count 99",
        "count 2",
        "end 2",
        "end 99",
    ]
    assert children.log == first
    children.log.clear()
    monkeypatch.setattr(counting, "usable_cores", lambda: 1)
    count(Target("t.py"), None, "cpu", 1.0)
    assert children.log == [
        "fork 99 in None", "build 99", "count 99", "end 99", "fork 2 in None", "build 2", "count 2", "end 2",
    ]  # fmt: skip
    assert os.environ["PYTHONHASHSEED"] == "99"


def test_the_facts_are_those_of_the_first_process(children: type[FakeChild]) -> None:
    children.as_run = True
    assert count(Target("t.py"), None, "cpu", 1.0).training_facts.host.threads == 99


def test_a_child_is_told_what_to_build(children: type[FakeChild], monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    send = FakeChild.send
    monkeypatch.setattr(FakeChild, "send", lambda self, command: (told.append(command), send(self, command))[1])
    count(Target("t.py", {"model": "m.py:net"}), BASE, "cpu", 1.0, twice=False)
    assert told[0] == {
        "do": "build", "target": Target("t.py", {"model": "m.py:net"}).to_json() | {"scratch": "", "shared": ""},
        "overlay": {}, "knob": "",
        "settings": {}, "device": "cpu", "seed": 0, "fixed_batch": False, "relocated": ["/head", "/base"], "in_place": False,
        "scattered": False,
    }  # fmt: skip


def test_once_is_one_process(children: type[FakeChild]) -> None:
    assert count(Target("t.py"), None, "cpu", 1.0, twice=False).values == REPLY["values"]
    assert children.log == ["fork 99 in None", "build 99", "count 99", "end 99"]


def test_a_file_that_sets_variables_before_it_imports_torch_gets_fresh_processes(
    children: type[FakeChild], project: Project
) -> None:
    project(**{"t.py": "import os\nos.environ['OMP_NUM_THREADS'] = '1'\nimport torch\n"})
    count(Target("t.py"), None, "cpu", 1.0)
    assert [line for line in children.log if "in None" in line] == ["start 1 in None", "start 2 in None"]


def test_what_only_an_unobserved_training_shows_is_counted_in_other_processes(children: type[FakeChild]) -> None:
    children.as_run = True
    found = count(Target("t.py"), None, "cpu", 1.0)
    assert found.values == {**REPLY["values"], "kernels_launched": 7}
    assert found.set_aside == {"graph_breaks": "99 and 2 in two runs"}
    assert [line for line in children.log if line.startswith("count")] == [
        "count 99", "count 2", "count 99 as run", "count 2 as run",
    ]  # fmt: skip


def test_a_reference_that_imports_the_working_tree_is_refused(children: type[FakeChild]) -> None:
    children.strays = ["a.py", "b.py", "c.py", "d.py"]
    with pytest.raises(TargetError, match=r"it imports a.py, b.py, c.py and 1 more from the working tree"):
        count(Target("t.py"), BASE, "cpu", 1.0)
    assert children.log[-2:] == ["end 2", "end 99"]


@pytest.mark.slow
def test_a_compiled_function_outside_the_model_is_counted_too(project: Project) -> None:
    bend = "@torch.compile(backend='eager')\ndef bend(x, n):\n    return x * n\n\n\nSTEPS = []\n\n\ndef training_step"
    step = TRAIN.replace("{extra}", "STEPS.append(1); x = bend(x, {1: 1, 2: 3}.get(len(STEPS), 5))")
    found = counted(project, step.replace("def training_step", bend))
    # The second number makes torch compile for any number.
    assert (found.values["graph_breaks"], found.values["recompilations"]) == (0, 1)
