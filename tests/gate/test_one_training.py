"""Both versions in one training: what is asked of it, what comes of it, and when a target goes to pairs of processes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from git_repository import Repository, settled

from perfaudit.gate import timing
from perfaudit.gate.checkout import Checkout
from perfaudit.gate.decision import Settles, is_settled, judged_together, time_verdict
from perfaudit.gate.gitref import checked_out
from perfaudit.gate.one_lab import ChildOneLab, refuse_other_differences
from perfaudit.gate.one_training import SAME, SWAPPED, time_in_one_training
from perfaudit.gate.one_training_quads import QUADS
from perfaudit.gate.pair_lab import PairLab
from perfaudit.gate.records import TargetRecord
from perfaudit.gate.swappable import NotInOneTraining
from perfaudit.gate.timing import mark_interrupted, time_targets
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.journal import begin
from perfaudit.measure.watch import Standing, Watch
from perfaudit.target.names import Target
from perfaudit.verdicts import TimeVerdict

SWAP = "swapped"


class FakeRunning:
    """A training whose steps of the code as it is take `slower` times those of the reference, and a control's `control`."""

    def __init__(
        self, clock: FakeClock, slower: float = 1.0, control: float = 1.0, step: float = 0.01, noise: float = 0.01
    ) -> None:
        self.clock, self.slower, self.same, self.step = clock, slower, control, step
        self.draw, self.noise = random.Random(5), noise
        self.quads: dict[str, list[float]] = {"reference": [], "control": []}
        self.left = self.control_left = ""
        self.trouble = ""
        self.fails: BaseException | None = None
        self.asked: list[tuple[float, bool]] = []
        self.is_closed = False

    def race(self, seconds: float, last: bool) -> dict[str, Any]:
        self.asked.append((seconds, last))
        if self.fails is not None:
            raise self.fails
        for _ in range(round(seconds / (6 * self.step))):
            self.quads["reference"].append(self.draw.gauss(-math.log(self.slower), self.noise))
            self.quads["control"].append(self.draw.gauss(math.log(self.same), self.noise))
        self.clock.sleep(seconds)
        rows = {
            key: {"log_ratios": logs, "seconds": [self.step] * len(logs), "left": ""}
            for key, logs in self.quads.items()
        }
        rows["reference"]["left"], rows["control"]["left"] = self.left, self.control_left
        return {"entrants": rows, "base": {"wall": 3.0, "cpu": 2.0}, "trouble": self.trouble}

    def close(self) -> None:
        self.is_closed = True


class FakeLab:
    """Trainings by the number of the target, or why there is none."""

    def __init__(self, *found: FakeRunning | Exception) -> None:
        self.found = found
        self.given: list[tuple[int, int, float]] = []

    def together(self, number: int, seed: int, seconds: float) -> tuple[FakeRunning, str]:
        self.given.append((number, seed, seconds))
        found = self.found[number]
        if isinstance(found, Exception):
            raise found
        return found, SWAP


def judge(records: list[TargetRecord]) -> Settles:
    return partial(is_settled, limit=0.05, tolerated=0.01, family=len(records))


def run(clock: FakeClock, lab: FakeLab, budget: float = 60.0, watch: Watch | None = None) -> list[TargetRecord]:
    records = [TargetRecord(f"{number}.py", seed=9) for number in range(len(lab.found))]
    time_in_one_training(lab, records, Deadline(budget, clock), judge(records), watch or Watch())
    return records


@pytest.mark.parametrize(("slower", "verdict"), [(1.1, "regressed"), (0.9, "improved"), (1.0, "pass")])
def test_a_target_is_raced_until_the_data_settle_it(clock: FakeClock, slower: float, verdict: str) -> None:
    running = FakeRunning(clock, slower)
    (record,) = run(clock, lab := FakeLab(running))
    found = time_verdict(record)
    assert (found.verdict, found.ratio) == (verdict, pytest.approx(slower, rel=0.01))
    assert (found.way, found.why_so, found.pairs) == ("one training", SWAP, 0)
    assert found.quads == len(running.quads["reference"]) < 40
    assert found.seconds_before == pytest.approx(0.01)
    assert found.seconds_after == pytest.approx(0.01 * slower, rel=0.01)
    assert found.wall_over_cpu == 1.5
    assert found.control is not None and found.control[0] < 1 < found.control[1]
    assert (record.settled, running.is_closed, lab.given) == (True, True, [(0, 9, 60.0)])


def test_what_an_earlier_gate_raced_to_its_end_is_not_raced_again(
    clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first target was settled and the second refused; the third was being raced when the gate was cut off."""
    third = FakeRunning(clock)
    third.fails = KeyboardInterrupt()
    labs = iter([FakeLab(FakeRunning(clock, 1.1), NotInOneTraining("why"), third), FakeLab(*[FakeRunning(clock)] * 3)])
    used: list[FakeLab] = []
    monkeypatch.setattr(timing, "PairLab", lambda *_: None)
    monkeypatch.setattr(timing, "ChildOneLab", lambda _: used.append(next(labs)) or used[-1])
    monkeypatch.setattr(timing, "time_pairs", lambda *_: None)
    targets = [Target(f"{number}.py") for number in range(3)]
    start = begin(tmp_path, resume=False)({"command": "gate", "seed": 9})
    cut, again = list[TargetRecord](), list[TargetRecord]()
    with pytest.raises(KeyboardInterrupt):
        time_targets(targets, None, cut, 60.0, clock=clock, journal=start)
    time_targets(targets, None, again, 60.0, clock=clock, journal=begin(tmp_path, resume=True)({"command": "gate"}))
    assert ([number for number, *_ in used[1].given], [record.seed for record in again]) == ([2], [9, 9, 9])
    assert [(record.one is not None, record.why) for record in again] == [(True, SWAP), (False, "why"), (True, SWAP)]
    assert time_verdict(again[0]) == time_verdict(cut[0]) and again[0].settled


def test_what_stays_open_is_raced_to_the_end_of_its_share(clock: FakeClock) -> None:
    """Two targets, of which neither is settled, share the time; the last slice is told to be the last."""
    runnings = [FakeRunning(clock, step=0.3, noise=0.1) for _ in range(2)]
    records = run(clock, lab := FakeLab(*runnings), budget=30.0)
    assert [given[2] for given in lab.given] == [15.0, 15.0]
    assert clock.now() == pytest.approx(30.0)
    for record, running in zip(records, runnings, strict=True):
        assert not record.settled
        assert [last for _, last in running.asked] == [False] * (len(running.asked) - 1) + [True]
        assert time_verdict(record, ended=True).verdict == "inconclusive"


def test_after_the_last_look_nothing_more_is_measured(clock: FakeClock) -> None:
    (record,) = run(clock, FakeLab(running := FakeRunning(clock, step=0.005, noise=2.0)), budget=300.0)
    assert not record.settled
    assert QUADS <= len(record.log_ratios()) < 2 * QUADS
    assert clock.now() < 100
    assert running.asked[-1][1]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (NotInOneTraining("data.csv differs, and is no Python"), "data.csv differs, and is no Python"),
        (ChildFailed("crash", "the process ended"), "the process ended"),  # before anything was in place
    ],
)
def test_what_cannot_be_in_one_training_says_why(clock: FakeClock, found: Exception, why: str) -> None:
    (record,) = run(clock, FakeLab(found))
    assert (record.one, record.why, record.way, record.failures) == (None, why, "pairs of processes", {})


def test_where_the_control_differs_from_itself_the_target_goes_to_pairs(clock: FakeClock) -> None:
    running = FakeRunning(clock, control=1.03, step=0.1)
    (record,) = run(clock, FakeLab(running))
    assert (record.one, record.settled, running.is_closed) == (None, False, True)
    assert record.why.startswith("in one training the same code differed from itself (ratio 1.02")
    assert clock.now() < 20  # the first look of the control says it; the rest of the time is for pairs


def test_a_control_that_differs_from_itself_when_the_time_is_over_leaves_the_target_open(clock: FakeClock) -> None:
    """Six quads, which no look has seen; for pairs there is no time any more."""
    (record,) = run(clock, FakeLab(FakeRunning(clock, 1.1, control=1.5, step=0.1)), budget=3.5)
    assert record.one is not None and not record.settled
    found = time_verdict(record, ended=True)
    assert (found.verdict, found.way) == ("inconclusive", "one training")
    assert found.reason.startswith("in one training the same code differed from itself (ratio 1.4")


def test_a_step_that_raises_with_the_reference_in_place_sends_the_target_to_pairs(clock: FakeClock) -> None:
    running = FakeRunning(clock)
    running.left = "with it, a step raises ValueError: no"
    (record,) = run(clock, FakeLab(running))
    why = "with the reference's functions in place, a step raises ValueError: no"
    assert (record.one, record.why, running.is_closed) == (None, why, True)


def test_a_step_that_raises_with_the_control_in_place_sends_the_target_to_pairs(clock: FakeClock) -> None:
    running = FakeRunning(clock)
    running.control_left = "with it, a step raises ValueError: no"
    (record,) = run(clock, FakeLab(running))
    why = "with identical code in place of the same code, a step raises ValueError: no"
    assert (record.one, record.settled, record.why, running.is_closed) == (None, False, why, True)


@pytest.mark.parametrize(
    ("kind", "said", "why"),
    [
        ("crash", "the process ended by signal SIGSEGV",
         "with the reference's functions in place, the process ended by signal SIGSEGV"),
        ("step", "with it, a step raises ValueError: no; that ended the script",
         "with the reference's functions in place, a step raises ValueError: no; that ended the script"),
        ("step", "after a step with it torch.get_num_threads() is not what it was",
         "after a step with the reference's functions in place, torch.get_num_threads() is not what it was"),
    ],
)  # fmt: skip
def test_a_training_that_fails_sends_the_target_to_pairs_without_what_it_had(
    clock: FakeClock, kind: str, said: str, why: str
) -> None:
    running = FakeRunning(clock)
    running.fails = ChildFailed(kind, said)
    (record,) = run(clock, FakeLab(running))
    assert (record.one, running.is_closed) == (None, True)
    assert record.why == why


def test_a_training_that_cannot_go_on_sends_the_target_to_pairs_which_say_whose_fault_it_is(clock: FakeClock) -> None:
    running = FakeRunning(clock)
    running.trouble = "a step raises ValueError: no"
    (record,) = run(clock, FakeLab(running))
    assert (record.one, record.why) == (None, "a step raises ValueError: no")


def test_interrupted_it_keeps_what_was_measured(clock: FakeClock) -> None:
    running = FakeRunning(clock, step=0.05, noise=0.1)
    records = [TargetRecord("t.py")]

    class Impatient(Watch):
        def standings(self, rows: Any) -> None:
            if len(running.asked) == 5:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_in_one_training(FakeLab(running), records, Deadline(60.0, clock), judge(records), Impatient())
    assert running.is_closed
    assert len(records[0].log_ratios()) == len(running.quads["reference"]) > 0


def test_interrupted_while_its_training_is_built_a_target_was_reached(clock: FakeClock) -> None:
    class Interrupted(FakeLab):
        def together(self, number: int, seed: int, seconds: float) -> tuple[FakeRunning, str]:
            raise KeyboardInterrupt

    records = [TargetRecord("a.py"), TargetRecord("b.py")]
    with pytest.raises(KeyboardInterrupt):
        time_in_one_training(Interrupted(), records, Deadline(60.0, clock), judge(records), Watch())
    mark_interrupted(records)
    assert [verdict.reason for verdict in judged_together(records)] == [
        "interrupted before anything was measured",
        "not reached: interrupted before its turn",
    ]


def test_those_who_watch_see_the_reference_beside_the_control(clock: FakeClock) -> None:
    class Rows(Watch):
        def __init__(self) -> None:
            self.rows: list[Standing] = []

        def standings(self, rows: Any) -> None:
            self.rows = list(rows)

    run(clock, FakeLab(FakeRunning(clock, 1.1)), watch=(watch := Rows()))
    reference, control = watch.rows
    assert (reference.name, control.name) == ("the reference", "control")
    assert (reference.is_control, control.is_control) == (False, True)
    assert reference.ratio == pytest.approx(1 / 1.1, rel=0.01)
    assert control.low is not None and control.high is not None and control.low < 1 < control.high


# ---- what decides it -------------------------------------------------------------------------------------------------

BASE = Checkout(Path("/base"), Path("/head"), Path("/head"))
SHARED = {"threads": 2, "environment": {"HOME": "/root"}}


def state(root: str, files: dict[str, str], workers: int = 0, **shared: Any) -> dict[str, Any]:
    named = {f"{root}/{name}": digest for name, digest in files.items()}
    return {"files": named, "shared": {**SHARED, **shared}, "workers": workers}


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        (state("/base", {"t.py": "a"}), state("/head", {"t.py": "b"}), ""),
        (state("/base", {"t.py": "a"}, environment={"DATA": "/base/data"}),
         state("/head", {"t.py": "b"}, environment={"DATA": "/head/data"}), ""),
        (state("/base", {"t.py": "a"}), state("/head", {"t.py": "b"}, workers=2), "the loader has workers"),
        (state("/base", {"t.py": "a"}, workers=1), state("/head", {"t.py": "b"}), "the loader has workers"),
        (state("/base", {"t.py": "a", "m.py": "a"}), state("/head", {"t.py": "b"}), "m.py is imported by one version only"),
        (state("/base", {"t.py": "a"}), state("/head", {"t.py": "b", "n.py": "a"}), "n.py is imported by one version only"),
        (state("/base", {"u.py": "a"}), state("/head", {"u.py": "a"}), "t.py differs, and is not imported"),
        (state("/base", {"t.py": "a", "tests/x.py": "a"}), state("/head", {"t.py": "b", "tests/x.py": "b"}),
         "tests/x.py differs, which is imported although it is a test"),
        (state("/base", {"t.py": "a"}), state("/head", {"t.py": "b"}, threads=1),
         "both versions would share one setting of the process, and set it otherwise: threads"),
        (state("/base", {"t.py": "a"}, anomaly=True), state("/head", {"t.py": "b"}), "set it otherwise: anomaly"),
        (state("/base", {"t.py": "a"}, environment={}), state("/head", {"t.py": "b"}), "set it otherwise: environment"),
    ],
)  # fmt: skip
def test_what_else_may_differ_between_two_processes(before: dict[str, Any], after: dict[str, Any], reason: str) -> None:
    texts = {"t.py": ("after", "before")}
    if not reason:
        refuse_other_differences(before, after, BASE, texts)
        return
    with pytest.raises(NotInOneTraining) as refused:
        refuse_other_differences(before, after, BASE, texts)
    assert reason in str(refused.value)


def test_a_target_of_another_name_goes_to_pairs() -> None:
    pairs = PairLab([], BASE, former={"new.py": "old.py"})
    pairs.targets = [Target("new.py")]
    with pytest.raises(NotInOneTraining, match=r"it was old\.py in the reference"):
        ChildOneLab(pairs).together(0, 1, 60.0)


# ---- real trainings --------------------------------------------------------------------------------------------------

TRAIN = """\
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 2))


def build_dataloader():
    data = TensorDataset(torch.randn(512, 64), torch.randint(0, 2, (512,)))
    return DataLoader(data, batch_size=64, num_workers=0)


def training_step(model, batch):
    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
    return loss
"""
LOSS = "    loss = nn.functional.cross_entropy(model(batch[0]), batch[1])\n"
# Longer by so much, and without the processor, that a busy machine cannot hide it.
LONGER = "    time.sleep(0.02)\n" + LOSS


@pytest.fixture
def repository(project: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    settled(monkeypatch, tmp_path / "temporary")
    made = Repository(project(**{"train.py": TRAIN}))
    made.commit()
    return made


def timed(budget: float = 20.0) -> TargetRecord:
    records: list[TargetRecord] = []
    with checked_out("HEAD", Path.cwd()) as reference:
        time_targets([Target("train.py")], reference, records, budget, device="cpu", reference="HEAD")
    return records[0]


def verdict_of_step(budget: float = 20.0) -> TimeVerdict:
    """How the step was judged. A machine that does other work needs more time, so that one that is open is judged once more."""
    found = judged_together([timed(budget)])[0]
    return verdict_of_step(60.0) if found.verdict == "inconclusive" and budget < 60.0 else found


@pytest.mark.slow
def test_a_longer_step_is_found_in_one_training_and_taken_back_as_a_gain(repository: Repository) -> None:
    repository.write(**{"train.py": TRAIN.replace(LOSS, LONGER)})
    found = verdict_of_step()
    assert (found.way, found.why_so, found.pairs, found.verdict) == ("one training", SWAPPED, 0, "regressed")
    repository.commit()
    repository.write(**{"train.py": TRAIN})
    found = verdict_of_step()
    assert (found.way, found.verdict) == ("one training", "improved")


@pytest.mark.slow
def test_what_a_step_does_not_run_goes_to_pairs_of_processes(repository: Repository) -> None:
    repository.write(**{"train.py": TRAIN.replace("nn.Linear(64, 256), ", "nn.Linear(64, 128), nn.Linear(128, 256), ")})
    record = next(found for budget in (3.0, 30.0) if (found := timed(budget)).pairs or budget == 30.0)
    assert record.why == "a step does not run build_model, where the change is"
    assert (record.way, record.one) == ("pairs of processes", None)
    assert record.pairs and not record.failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("num_workers=0", "num_workers=1", "the loader has workers, which keep the code that they were started with"),
        ("batch_size=64", "batch_size=32", "a step does not run build_dataloader, where the change is"),
        ("    return nn.Seq", "    made = torch.get_num_threads()\n    torch.set_num_threads(1)\n    return nn.Seq",
         "train.py: the change is about what may last beyond a step: torch.set_num_threads(1)"),
    ],
)  # fmt: skip
def test_real_reasons_for_pairs_of_processes(repository: Repository, old: str, new: str, reason: str) -> None:
    repository.write(**{"train.py": TRAIN.replace(old, new)})
    with checked_out("HEAD", Path.cwd()) as reference:
        lab = ChildOneLab(PairLab([Target("train.py")], reference, "cpu"))
        with pytest.raises(NotInOneTraining) as refused:
            lab.together(0, 1, 60.0)
    assert str(refused.value) == reason


@pytest.mark.slow
def test_identical_code_is_swapped_too(repository: Repository) -> None:
    repository.write(**{"README.md": "words", "plan.patch": "--- a/train.py"})
    record = timed(2.0)
    assert (record.way, record.why) == ("one training", SAME)
    assert judged_together([record])[0].verdict != "failed"


@pytest.mark.slow
def test_versions_that_do_not_run_are_told_as_in_pairs(repository: Repository) -> None:
    broken = TRAIN.replace(LOSS, "    raise ValueError('no')\n" + LOSS)
    repository.commit(**{"train.py": broken})
    repository.write(**{"train.py": TRAIN})
    found = time_verdict(timed(10.0))
    assert found.verdict == "failed"
    assert "the reference HEAD does not run" in found.reason and "ValueError: no" in found.reason
    repository.write(**{"train.py": broken.replace("'no'", "'neither'")})
    assert time_verdict(timed(10.0)).reason.startswith("neither the reference HEAD nor your code runs: ")
