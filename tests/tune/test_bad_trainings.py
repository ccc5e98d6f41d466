"""Trainings that do something wrong, budgets that are too small, runs that are killed: one clear line, the right exit code."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock
from surveys import profile_of, survey_of
from test_search import Shop, Sizes, search  # noqa: F401  # search is a fixture

from perfaudit.errors import NothingMeasured
from perfaudit.knobs import Told
from perfaudit.knobs.batch_size import KNOB as BATCH_SIZE
from perfaudit.measure.child import Child
from perfaudit.measure.journal import all_runs
from perfaudit.measure.lab import build_command
from perfaudit.measure.ledger import Block, Variant
from perfaudit.processes import descendants
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune.first_steps import needs_time
from perfaudit.tune.recording import begin
from perfaudit.tune.workshop import Json

Run = Callable[..., Any]
Search = Callable[..., Report]
Project = Callable[..., Path]

TRAIN = """
import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def build_model():
    return nn.Linear(4, 3)


def build_dataloader():
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
    return DataLoader(data, batch_size=8)
"""
MODEL = "return nn.Linear(4, 3)"
DATA = "data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))"


def model(text: str) -> str:
    assert TRAIN.count(MODEL) == 1
    return TRAIN.replace(MODEL, text)


def data(text: str) -> str:
    assert TRAIN.count(DATA) == 1
    return TRAIN.replace(DATA, text)


def optimizer(text: str) -> str:
    return f"{TRAIN}\n\ndef build_optimizer(model):\n    return {text}\n"


def step(*lines: str) -> str:
    """The program with a step of these lines, to which `loss` is known."""
    first = "loss = nn.functional.cross_entropy(model(batch[0]), batch[1])"
    return TRAIN + "\n\ndef training_step(model, batch):\n    " + "\n    ".join([first, *lines]) + "\n"


ADVICE = "return the loss and leave backward() and the optimizer to perfaudit"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "code", "said"),
    [
        (model("raise AssertionError('Torch not compiled with CUDA enabled')"), 2,
         "train.py: build_model() failed: AssertionError: Torch not compiled with CUDA enabled: it needs a GPU, and none can "
         "be used here (train.py:10 in build_model)"),
        (model("return nn.Flatten()"), 2, "train.py: the model has no parameters to train"),
        (model("time.sleep(1000)"), 2,
         "train.py: no answer within 4 s (last seen at train.py:10 in build_model); give it longer with --timeout (now 4 s)"),
        (optimizer("torch.optim.LBFGS(model.parameters())"), 2,
         "train.py: LBFGS evaluates the loss again within its step and needs a closure for it; only optimizers that step "
         "once after backward() can be measured"),
        (model("return nn.LSTM(4, 3)"), 3,
         "train.py: no loss is known for a model that returns a tuple (Tensor, tuple); define "
         "`def training_step(model, batch): ...` that returns the loss"),
        (data("data = [{'x': torch.zeros(4), 'y': 1}] * 64"), 3,
         "train.py: no loss is known for batches of a dict; define `def training_step(model, batch): ...` that returns the "
         "loss"),
        (step("loss.backward()", "return loss"), 3, f"train.py: training_step() has called backward() already; {ADVICE}"),
        (step("loss.backward()", "return loss.detach()"), 3,
         f"train.py: the loss that training_step() returned has no gradient; {ADVICE}"),
        (step("return float(loss)"), 3, "train.py: training_step() returned a float, not a loss tensor"),
        (step("return int"), 3, "train.py: training_step() returned a type, not a loss tensor"),
        (step("sys.exit(3)"), 3, "train.py: one training step: it called sys.exit(3) (train.py:20 in training_step)"),
    ],
    ids=["device", "no parameters", "slow factory", "closure", "tuple", "dict", "backward", "no graph", "float", "type", "exit"],
)  # fmt: skip
def test_a_training_that_fails_is_one_line(
    project: Project, perfaudit: Run, program: str, code: int, said: str
) -> None:
    project(**{"train.py": program})
    done = perfaudit("tune", "train.py", "--threads", "--budget", "20s", "--timeout", "4s")
    assert done.err.splitlines()[-1] == f"perfaudit: {said}"
    assert (done.code, done.out, "Traceback" in done.err) == (code, "", False)


@pytest.mark.slow
def test_a_training_that_prints_a_lot_ends_with_an_answer(project: Project, perfaudit: Run) -> None:
    project(**{"train.py": step("print('x' * 1_000_000)", "return loss")})
    done = perfaudit("tune", "train.py", "--zero-grad", "--budget", "10s")
    assert (done.code, "zero_grad: gradients are dropped already" in done.out, "xxx" in done.err) == (3, True, False)


@pytest.mark.slow
def test_what_a_training_prints_does_not_fill_the_disk(project: Project) -> None:
    project(**{"train.py": step("print('x' * 1_000_000)", "return loss")})
    with Child() as child:
        child.ask(build_command({"file": "train.py", "names": {}}, Variant("", "", {}), "cpu", 0), 60)
        for _ in range(3):
            child.ask({"do": "block", "steps": 3}, 60)
            assert len(child.output_tail()) > 1000
            assert os.fstat(child._output.fileno()).st_size <= 4 * 1_000_001


# ---- losses that are no numbers --------------------------------------------------------------------------------------


@dataclass
class Diverging(Shop):
    """A workshop whose losses are no numbers; asked for them, it gives these."""

    losses: tuple[float, ...] = ()
    looked_at: int = 0

    def open(self, variants: Sequence[Variant]) -> dict[str, Any]:
        return {key: _Diverged(steps) for key, steps in super().open(variants).items()}

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        replies = super().ask(variant, *commands)
        if commands[0]["do"] == "block":
            replies[1]["finite"] = False
        if commands[0]["do"] == "losses":
            self.looked_at = commands[0]["steps"]
            replies[1] = {"losses": [value.hex() for value in self.losses], "average": [math.nan.hex()]}
        return replies


@dataclass
class _Diverged:
    steps: Any

    def block(self, steps: int, untimed: int = 1) -> Block:
        return replace(self.steps.block(steps), finite=False)

    def close(self) -> None:
        self.steps.close()


@pytest.mark.parametrize(
    ("losses", "said"),
    [
        ((2.0, 1.9) + 48 * (math.nan,), "the losses are NaN from step 3: "),
        (50 * (math.nan,), "the losses are NaN from the first step: "),
        ((2.0,) + 49 * (math.inf,), "the losses are infinite from step 2: "),
        (50 * (2.0,), "the losses are NaN: "),
    ],
)
def test_losses_that_are_no_numbers_are_told(
    search: Search,  # noqa: F811
    clock: FakeClock,
    losses: tuple[float, ...],
    said: str,
) -> None:
    shop = Diverging(clock, {0: 1.0, 1: 0.9}, losses=losses)
    report = search(shop, Sizes("sizes", [1]))
    assert report.notes == (f"{said}times are of a training that does not learn",)
    assert shop.looked_at == 50


def test_losses_that_are_numbers_are_not_looked_at(search: Search, clock: FakeClock) -> None:  # noqa: F811
    assert search(Shop(clock, {0: 1.0, 1: 0.9}), Sizes("sizes", [1])).notes == ()


# ---- shapes that change ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("peaks", "told"),
    [
        ({8: 900, 16: 1700, 32: 3300}, False),
        ({8: 900, 16: 900}, False),
        ({16: 1700, 8: 900, 32: 1699}, False),
        ({8: 900, 16: 2600, 32: 1100}, True),
    ],
)
def test_a_step_that_takes_other_shapes_each_time(peaks: dict[int, int], told: bool) -> None:
    kept = {"limit": 99, "budget": 1 << 30, "limits": {"plain": 99}, "peaks": peaks}
    remarks = BATCH_SIZE.remarks(Told(survey_of(), [], [], kept, None))
    assert any("takes other shapes each time" in remark for remark in remarks) is told


# ---- budgets -----------------------------------------------------------------------------------------------------------


@dataclass
class Paced(Shop):
    """A workshop that tells how long a step takes, when it is asked for one."""

    def ask(self, variant: Variant, *commands: Json) -> list[Json]:
        replies = super().ask(variant, *commands)
        self.clock.sleep(2 * self.speeds[0] * 0.010)
        return [replies[0], *({"steps": 1, "wall": self.speeds[0] * 0.010} for _ in commands)]


@pytest.mark.parametrize("seconds_per_step", [20e-6, 0.003, 0.1, 0.5, 0.8])
@pytest.mark.parametrize("opening", [0.1, 2.0])
def test_the_budget_holds(
    search: Search,  # noqa: F811
    clock: FakeClock,
    seconds_per_step: float,
    opening: float,
) -> None:
    speeds = dict.fromkeys(range(5), seconds_per_step / 0.010)
    knobs = [Sizes("one", [1, 2, 3, 4]), Sizes("two", [1]), Sizes("three", [1, 2])]
    search(Paced(clock, speeds, opening=opening), *knobs, budget=30.0)
    assert clock.seconds <= 1.1 * 30


@pytest.mark.parametrize(
    ("seconds_per_step", "opening", "said"),
    [
        (5.0, 0.1, "the budget of 30 s is too small: a step takes 5.0 s, and comparing two settings 140 s"),
        (0.01, 31.0, "the budget of 30 s was over when it was loaded"),
    ],
)
def test_a_budget_too_small_for_one_comparison(
    search: Search,  # noqa: F811
    clock: FakeClock,
    seconds_per_step: float,
    opening: float,
    said: str,
) -> None:
    shop = Paced(clock, {0: seconds_per_step / 0.010, 1: 1.0}, opening=opening)
    with pytest.raises(NothingMeasured, match=f"t.py: {said}; give it longer with --budget"):
        search(shop, Sizes("sizes", [1]), budget=30.0)
    assert shop.opened == []


def test_a_budget_too_small_where_other_programs_use_the_cores() -> None:
    target, profile = Target("t.py", {}), profile_of(survey_of())
    calm, shared = (replace(profile, seconds_per_step=6.3, queued=queued) for queued in (0.1, 1.17))
    why = "a step takes 6.3 s, and comparing two settings 176 s; give it longer with --budget"
    said = f"t.py: the budget of 180 s is too small: {why}"
    with pytest.raises(NothingMeasured) as raised:
        needs_time(target, calm, 180, 60)
    assert str(raised.value) == said
    with pytest.raises(NothingMeasured) as raised:
        needs_time(target, shared, 180, 60)
    assert str(raised.value) == (
        f"{said}. Other programs use the cores: threads waited for them for 117 % of the time of that step, all threads "
        "together; on a calm machine it may need far less"
    )


def test_a_knob_for_which_no_time_is_left_says_so(search: Search, clock: FakeClock) -> None:  # noqa: F811
    knobs = [Sizes(f"knob{n}", [1]) for n in range(5)]
    report = search(Shop(clock, {0: 1.0, 1: 0.9}, opening=1.0), *knobs, budget=6.0)
    assert {"no time was left for it in the budget"} == {item.reason for item in report.not_applicable}
    assert all(trial.status == "ok" for trial in report.trials)


def test_an_interval_that_tells_nothing_is_no_bound(search: Search, clock: FakeClock) -> None:  # noqa: F811
    """Two generations that disagree wildly: "effects under 99.8 % could not have been seen" says nothing."""

    class Erratic(Shop):
        def open(self, variants: Sequence[Variant]) -> dict[str, Any]:
            self.speeds = {**self.speeds, 1: 3.0 if len(self.opened) % 2 else 0.4}
            return super().open(variants)

    report = search(Erratic(clock, {0: 1.0, 1: 1.0}), Sizes("sizes", [1]), budget=12.0)
    assert [(c.low, c.high, c.smallest) for c in report.comparisons] == [(0.0, math.inf, None)]
    assert report.winners[0].words == "keep what you have: the budget was too small to decide anything"
    assert report.notes == ("the budget was too small for sizes: give it longer with --budget",)


# ---- runs that end early -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies_at", [1, 20, 60, 100])
def test_what_was_finished_before_the_end_is_not_measured_again(
    search: Search,  # noqa: F811
    clock: FakeClock,
    dies_at: int,
) -> None:
    speeds = {0: 1.0, 1: 0.9, 2: 0.7, 3: 0.8, 4: 1.2}
    knobs = [Sizes("one", [1, 2, 3, 4]), Sizes("two", [1])]
    killed = search(Shop(clock, speeds, dies_at=dies_at), *knobs, begin=begin(Path(), False))
    assert killed.interrupted
    assert killed.notes[-1].startswith("interrupted")
    (run,) = all_runs(Path())
    kept = [record["key"] for record in run.records if record["kind"] == "generation"]
    again = Shop(clock, speeds)
    search(again, *knobs, begin=begin(Path(), True))
    (run,) = all_runs(Path())
    whole = [record["key"] for record in run.records if record["kind"] == "generation"]
    assert whole[: len(kept)] == kept
    assert len(again.opened) == len(whole) - len(kept)
    assert run.status == "finished"


def test_a_file_where_the_journal_should_be(search: Search, clock: FakeClock) -> None:  # noqa: F811
    Path(".perfaudit").write_text("mine")
    report = search(Shop(clock, {0: 1.0, 1: 0.9}), Sizes("sizes", [1]), begin=begin(Path(), False))
    assert [trial.status for trial in report.trials] == ["ok", "ok"]
    (note,) = report.notes
    assert ".perfaudit: not written: " in note
    assert note.endswith("what is measured from here on cannot be resumed")


# Once something of the race is in the journal, the next process waits while there is a file `hold`: the race lasts as long.
HELD = f"""{model("return held()")}

torch.autograd.set_detect_anomaly(True)


def held():
    journals = Path(".perfaudit/runs").glob("*.jsonl")
    while any('"anomaly race"' in path.read_text() for path in journals) and Path("hold").exists():
        time.sleep(0.05)
        journals = Path(".perfaudit/runs").glob("*.jsonl")
    return nn.Linear(4, 3)
""".replace("import sys\n", "import sys\nfrom pathlib import Path\n")


@pytest.mark.slow
def test_a_killed_run_leaves_no_process_and_no_lock_and_is_resumed(
    project: Project, perfaudit: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a knob whose setting is raced in fresh processes at once: no first look decides whether there is a race."""
    here = project(**{"train.py": HELD, "hold": ""})
    command = [
        sys.executable,
        "-m",
        "perfaudit",
        "tune",
        "train.py",
        "--anomaly",
        "--budget",
        "10m",
        "--timeout",
        "10m",
    ]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        _waited(lambda: any('"anomaly race"' in path.read_text() for path in here.glob(".perfaudit/runs/*.jsonl")))
        for second in (perfaudit("tune", "train.py", "--anomaly"), perfaudit("scan", "train.py", "--measure")):
            assert second.code == 2
            assert f"another perfaudit (pid {first.pid}, since " in second.err
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(30)
    _waited(lambda: not _working_in(here))
    (here / "hold").unlink()
    monkeypatch.setattr(
        "perfaudit.tune.search.BLOCK_SECONDS", 0.05
    )  # the race goes on with as many rounds, of fewer steps
    done = perfaudit("tune", "train.py", "--anomaly", "--budget", "60s", "--resume", "--format", "json")
    assert done.code in (0, 1), done.err
    assert {trial["status"] for trial in json.loads(done.out)["trials"]} == {"ok"}
    (run,) = all_runs(here)
    assert (run.status in ("finished", "out of time"), len(run.sessions())) == (True, 2)


def _waited(until: Callable[[], bool], seconds: float = 240.0) -> None:
    """Wait until something is so; how long it takes is no matter, minutes on a busy machine. Fails after `seconds`."""
    end = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < end
        time.sleep(0.05)


def _working_in(folder: Path) -> list[str]:
    """Processes whose working directory this is, other than this one and what it started."""
    found, ours = [], (os.getpid(), *descendants(os.getpid()))
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder and int(process.name) not in ours:
                found.append(process.name)
        except OSError:
            continue
    return found
