"""Callbacks of trainers: what they tell and warn of, and that torch is left as it was.

Stand-ins of the libraries drive them as the real ones do (`make trainers` has those). Programs are forks of one process, and the
clock stands still but where a program says that something takes time, so that shares are exact.
"""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_programs

from perfaudit.callbacks.slow_phases import Limits, slow_phases

pytestmark = pytest.mark.slow

HEAD = """
import json, sys, time, types, warnings
NOW = [0.0]
def take(seconds):
    NOW[0] += seconds
time.perf_counter = lambda: NOW[0]
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

def module(name, **contents):
    sys.modules[name] = types.ModuleType(name)
    vars(sys.modules[name]).update(contents)

class Base:
    pass
module("transformers", TrainerCallback=Base)
module("lightning"), module("lightning.pytorch"), module("lightning.pytorch.callbacks", Callback=Base)

OWNERS = {
    torch.Tensor: ("item", "tolist", "numpy", "cpu", "to"),
    torch.optim.Optimizer: ("zero_grad",),
    torch.autograd: ("backward", "grad"),
    torch.utils.data.dataloader._BaseDataLoaderIter: ("__next__",),
    DataLoader: ("__iter__", "__init__"),
    nn.Module: ("__init__", "__call__"),
}
BEFORE = {(owner, name): getattr(owner, name) for owner, names in OWNERS.items() for name in names}
def is_as_before():
    from torch.optim import optimizer
    hooks = len(optimizer._global_optimizer_pre_hooks) + len(optimizer._global_optimizer_post_hooks)
    return not hooks and all(getattr(*place) is value for place, value in BEFORE.items())

class Rows(Dataset):
    def __len__(self):
        return 128
    def __getitem__(self, index):
        take(ROW)
        return torch.randn(8), torch.randn(1)

class Timed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        take(2.0)
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        take(3.0)
        return grad

model = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def loss_of(batch):
    return Timed.apply((model(batch[0]) - batch[1]).square().mean())
TOLD, SAID = [], []
warnings.showwarning = lambda message, category, *_: SAID.append([category.__name__, str(message)])
warnings.simplefilter("always")
"""
TAIL = """
print(json.dumps({"told": TOLD, "said": SAID, "as before": is_as_before()}))
"""

# As `transformers.Trainer` calls its callbacks: those of trackers before the user's own.
HUGGING_FACE = """
ROW, RAISES = 0.5, False
class Handler:
    def call(self, event, **named):
        for callback in self.callbacks:
            getattr(callback, event, lambda *_, **__: None)(None, STATE, None, **named)
class Tracker:
    def on_log(self, args, state, control, logs, **_):
        TOLD.append(dict(logs))
from perfaudit.callbacks.transformers import PerfauditCallback
STATE = types.SimpleNamespace(is_world_process_zero=True, global_step=0, log_history=[])
handler = Handler()
handler.callbacks = [Tracker(), PerfauditCallback()]
loader = DataLoader(Rows(), batch_size=4)
def train():
    handler.call("on_train_begin", train_dataloader=loader)
    for batch in loader:
        loss_of(batch).backward()
        optimizer.step()
        optimizer.zero_grad()
        take(1.0)
        STATE.global_step += 1
        if STATE.global_step % 8 == 0:
            logs = {"loss": 1.0}
            STATE.log_history.append(logs | {"step": STATE.global_step})
            handler.call("on_log", logs=logs)
    handler.call("on_log", logs={"train_runtime": 1.0})
"""
# As `lightning.Trainer` does: the closure of a step runs inside of the optimizer's update.
LIGHTNING = """
ROW = 0.0
from perfaudit.callbacks.lightning import PerfauditCallback
class Strategy:
    def training_step(self, batch):
        return loss_of(batch)
class Logger:
    def log_metrics(self, metrics, step):
        TOLD.append(metrics | {"step": step})
strategy = Strategy()
loader = DataLoader(Rows(), batch_size=4)
trainer = types.SimpleNamespace(
    is_global_zero=True, strategy=strategy, global_step=0, log_every_n_steps=8, loggers=[Logger()], train_dataloader=loader,
    fit_loop=types.SimpleNamespace(epoch_loop=types.SimpleNamespace(_batches_that_stepped=100)),
)
own = types.SimpleNamespace(automatic_optimization=True)
callback = PerfauditCallback()
callback.on_train_start(trainer, own)
for number, batch in enumerate(loader):
    def closure():
        loss = strategy.training_step(batch)
        optimizer.zero_grad()
        loss.backward()
        return loss
    optimizer.step(closure)
    take(1.0)
    trainer.global_step += 1
    callback.on_train_batch_end(trainer, own, None, batch, number)
"""
PROGRAMS = {
    "hugging face": HUGGING_FACE + 'train()\nhandler.call("on_train_end")\n',
    # A second training after one that raised, and another process than the first one of several.
    "raised": HUGGING_FACE
    + """
class Raising:
    def on_log(self, args, state, control, logs, **_):
        if state.global_step == 8:
            raise RuntimeError
handler.callbacks.append(Raising())
try:
    train()
except RuntimeError:
    assert not is_as_before()
handler.call("on_train_end")
assert is_as_before()
STATE.is_world_process_zero = False
handler.call("on_train_begin", train_dataloader=loader)
""",
    "lightning": LIGHTNING + "callback.on_train_end(trainer, own)\nassert not vars(strategy), vars(strategy)\n",
    "lightning raised": LIGHTNING
    + "callback.on_exception(trainer, own, ValueError())\ncallback.on_train_end(trainer, own)\n",
    "compiled": """
from perfaudit.callbacks.trainer_watch import TrainerWatch, is_something_compiled
assert "torch._dynamo" in sys.modules and not is_something_compiled()
watch = TrainerWatch(lambda optimizer: None)
watch.begin()
assert torch.Tensor.item is not BEFORE[torch.Tensor, "item"]
model = torch.compile(model, backend="eager")
assert is_something_compiled()
watch.leave_tensors()
assert torch.Tensor.item is BEFORE[torch.Tensor, "item"] and not watch.times_reads
watch.end()
watch = TrainerWatch(lambda optimizer: None)
watch.begin()
assert torch.Tensor.item is BEFORE[torch.Tensor, "item"] and not is_as_before()
watch.end()
""",
    # Of many steps some are watched in rows; between them nothing but the count of updates is left in place.
    "rests": """
from perfaudit.callbacks import watched_training
from perfaudit.callbacks.slow_phases import Limits
ROW, watched_training.MOST_COST, resting = 0.0, 2e-6, 0
training = watched_training.WatchedTraining(Limits())
training.begin()
for number in range(640):
    for batch in DataLoader(Rows(), batch_size=128):
        loss_of(batch).backward()
        optimizer.step()
        resting += torch.autograd.backward is BEFORE[torch.autograd, "backward"]
TOLD.append([training.take_figures(), training._watch.counts.updates, training._whole.watched, resting])
training.end()
""",
    # What somebody has put around a function of ours stays in place, and ours does nothing any more.
    "wrapped": """
from perfaudit.callbacks.trainer_watch import TrainerWatch
ROW = 0.0
watch = TrainerWatch(lambda optimizer: TOLD.append("counted"))
watch.begin()
ours = torch.autograd.backward
torch.autograd.backward = lambda *args, **kwargs: ours(*args, **kwargs)
watch.end()
for batch in DataLoader(Rows(), batch_size=64):
    loss_of(batch).backward()
    optimizer.step()
assert len(watch._notes.events) < 10 and not TOLD
torch.autograd.backward = BEFORE[torch.autograd, "backward"]
""",
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("programs")
    paths = {name: folder / f"{name.replace(' ', '_')}.py" for name in PROGRAMS}
    for name, text in PROGRAMS.items():
        paths[name].write_text(HEAD + text + TAIL)
    results = run_programs({path: [] for path in paths.values()})
    for path, result in results.items():
        assert result.code == 0, f"{path.name}: {result.err}"
    return {name: json.loads(results[path].out.splitlines()[-1]) for name, path in paths.items()}


def test_the_trainer_logs_where_steps_go_before_trackers_are_told(ended: dict[str, dict[str, Any]]) -> None:
    """Four rows of 0.5 s, 2 s forward, 3 s backward, 1 s at the end: 8 s a step."""
    *logs, last = ended["hugging face"]["told"]
    assert [set(log) & {"loss"} for log in logs] == [{"loss"}] * 4 and set(last) == {"train_runtime"}
    figures = {name.removeprefix("perfaudit/"): value for name, value in logs[1].items()}
    assert figures.pop("loss") == 1.0
    assert {name: value for name, value in figures.items() if value} == pytest.approx(
        {"seconds_per_step": 8.0, "samples_per_second": 0.5}
        | {"data_wait": 0.25, "forward": 0.25, "backward": 0.375, "other": 0.125}
    )


def test_a_warning_names_the_rule_once(ended: dict[str, dict[str, Any]]) -> None:
    ((category, words),) = ended["hugging face"]["said"]
    assert category == "PerfauditWarning"
    assert words == (
        "PA101: waiting for data takes 25 % of a step (limit 20 %, 22 steps timed); the loader has no workers. "
        "`perfaudit explain PA101` says why it costs and what helps."
    )


def test_lightnings_closure_inside_of_an_update_is_told_apart(ended: dict[str, dict[str, Any]]) -> None:
    first, second, *_ = ended["lightning"]["told"]
    assert second["step"] == 100
    shares = {name.removeprefix("perfaudit/"): value for name, value in second.items() if value and "/" in name}
    assert shares == pytest.approx(
        {"seconds_per_step": 6.0, "samples_per_second": 4 / 6, "forward": 2 / 6, "backward": 3 / 6, "other": 1 / 6}
    )
    assert ended["lightning"]["said"] == [] and len(ended["lightning"]["told"]) == 4
    assert first["perfaudit/forward"] == pytest.approx(2 / 6)


def test_most_steps_of_a_long_training_are_only_counted(ended: dict[str, dict[str, Any]]) -> None:
    ((figures, updates, watched, resting),) = ended["rests"]["told"]
    assert updates == 640 and 20 < watched < 200 and resting > 400
    shares = {name: value for name, value in figures.items() if value}
    expected = {"seconds_per_step": 5.0, "samples_per_second": 128 / 5, "forward": 0.4, "backward": 0.6}
    assert shares == pytest.approx({f"perfaudit/{name}": value for name, value in expected.items()})


def test_torch_is_as_before_when_the_training_has_ended(ended: dict[str, dict[str, Any]]) -> None:
    assert {name for name, result in ended.items() if not result["as before"]} == set()


@pytest.mark.parametrize(
    ("phases", "steps", "workers", "behind", "rules"),
    [
        ({"data_wait": 0.25}, 20, 0, 0.0, ["PA101"]),
        ({"data_wait": 0.25}, 20, 4, 0.0, ["PA901"]),
        ({"data_wait": 0.25}, 20, None, 0.0, ["PA901"]),
        ({"data_wait": 0.25}, 19, 0, 0.0, []),  # too few steps
        ({"data_wait": 0.25}, 20, 0, 0.5, []),  # the device has work meanwhile
        ({"data_wait": 0.2, "host_reads": 0.1}, 20, 0, 0.0, []),
        ({"data_wait": 0.5, "host_reads": 0.3}, 99, 0, 0.9, ["PA601"]),
        ({}, 99, 0, 0.0, []),
    ],
)
def test_which_phases_are_warned_of(
    phases: dict[str, float], steps: int, workers: int | None, behind: float, rules: list[str]
) -> None:
    assert [rule for rule, _ in slow_phases(phases, steps, Limits(), workers, behind)] == rules


def test_a_limit_is_a_share() -> None:
    assert Limits(0.0, 1.0) == Limits(data_wait=0.0, host_reads=1.0)
    with pytest.raises(ValueError, match="data_wait=20: a share of a step lies between 0 and 1"):
        Limits(data_wait=20)


@pytest.mark.parametrize("library", ["transformers", "lightning"])
def test_a_callback_without_its_library_says_so(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("transformers", "lightning", "lightning.pytorch", "lightning.pytorch.callbacks", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    source = Path(__file__).parents[2] / "perfaudit" / "callbacks" / f"{library}.py"
    with pytest.raises(ModuleNotFoundError, match=f"is for trainings with {library}; it is not installed"):
        exec(compile(source.read_text(), str(source), "exec"), vars(types.ModuleType("callback")))
