"""Seconds in collectives, of programs with a process group of their own, on a clock that stands still but where they say so."""

from __future__ import annotations

import json
from typing import Any

import pytest
from forked_programs import run_programs

from perfaudit.script import collectives

pytestmark = pytest.mark.slow

HEAD = """
import json, sys
from perfaudit.script.collectives import Collectives
NOW, SEEN, QUEUED, BUSY = [0.0], [], [0.0], [0.0]
def take(seconds):
    NOW[0] += seconds
import torch
import torch.distributed as dist
original = dist.all_reduce
def slow(tensor, **named):  # the network takes its time
    take(2.0)
    return original(tensor, **named)
dist.all_reduce = dist.distributed_c10d.all_reduce = slow
WATCH = Collectives(SEEN.append, lambda: NOW[0], lambda: QUEUED[0], lambda: BUSY[0])
WATCH.put_in_place()
from torch import nn
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
"""
TAIL = """
dist.destroy_process_group()
"""
TELL = """
print(json.dumps({"taken": WATCH.take(), "facts": WATCH.facts(), "seen": len(SEEN)}))
"""
PROGRAMS = {
    "by hand": """
def average():
    weight = torch.ones(3)
    dist.all_reduce(weight)
    dist.all_reduce(weight)
average()
"""
    + TELL,
    "nested": """
dist.all_gather_object([None], "what all ranks say")  # two collectives of tensors inside
dist.all_reduce(torch.ones(3), async_op=True).wait()
"""
    + TELL,
    "buckets": """
class Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()
    @staticmethod
    def backward(ctx, grad):
        take(3.0)  # of computation
        QUEUED[0] += 0.25
        BUSY[0] += 2.5
        return grad
model = nn.parallel.DistributedDataParallel(nn.Sequential(*(nn.Linear(4, 4) for _ in range(8))))
engine = torch.autograd._engine_run_backward
def run(*args, **named):
    result = engine(*args, **named)
    take(0.5)  # buckets are waited for, behind the last gradient
    QUEUED[0] += 0.125  # for a core, meanwhile
    BUSY[0] += 0.0625
    return result
torch.autograd._engine_run_backward = run
for _ in range(4):
    NOW[0] += 1.0
    Late.apply(model(torch.ones(2, 4))).sum().backward()
    hooks = len(WATCH._buckets[0]._handles)
WATCH.take()
NOW[0] += 1.0
Late.apply(model(torch.ones(2, 4))).sum().backward()
print(json.dumps({"taken": WATCH.take(), "hooks": hooks, "seen": len(SEEN), "parameters": len(list(model.parameters()))}))
""",
    "wrapped": """
def wrap(model):
    return nn.parallel.DistributedDataParallel(
        model
    )
called, never = wrap(nn.Linear(4, 4)), wrap(nn.Linear(2, 2))
called(torch.ones(2, 4))
told = WATCH.wrapped_models()
with open(__file__) as file:
    lines = file.read().splitlines()
print(json.dumps([[lines[each["line"] - 1].strip(), each["gradient_bytes"], each["is_called"]] for each in told]))
""",
    "buffers": """
class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("codes", torch.ones(4))
        self.register_buffer("mask", torch.ones(4, dtype=torch.bool))
        self.register_buffer("queue", torch.arange(4.0).reshape(2, 2).t())
        self.register_buffer("signs", torch.tensor([1.0, -2.0, 1.0], dtype=torch.bfloat16))
        self.register_buffer("none", torch.zeros(0))
        self.register_buffer("far", torch.tensor([float("nan"), float("-inf")]))
        self.register_buffer("steps", torch.tensor(0))
    def forward(self, x):
        self.codes.mul_(2)
        self.queue.copy_(self.queue.roll(1, 0))
        self.signs.neg_()
        self.steps += 1
        return self.norm(self.layer(x) * self.mask)
def wrap(**options):
    model = nn.parallel.DistributedDataParallel(Counting(), **options)
    model(torch.randn(2, 4))
    return model
models = [wrap(), wrap(broadcast_buffers=False)]
norms = [nn.BatchNorm2d(4), nn.BatchNorm2d(4, track_running_stats=False), nn.GroupNorm(2, 4)]
models += [nn.parallel.DistributedDataParallel(norm) for norm in norms]
print(json.dumps([[each["changed_buffers"], each["tracks_statistics"]] for each in WATCH.wrapped_models()]))
""",
    "between": """
WATCH.take()
QUEUED[0] += 4.0  # while it is told of an update, which is no part of a step
BUSY[0] += 2.0
WATCH.begin_update()
QUEUED[0] += 0.5
BUSY[0] += 0.25
"""
    + TELL,
    "helpers": """
def tell():
    return [WATCH.facts()[name] for name in ("has_threads", "has_workers")]
torch.set_num_threads(2)
WATCH.take()
torch.set_num_threads(1)
for _ in range(8):
    WATCH.take()
early = tell()
torch.set_num_threads(2)
from torch.utils.data import DataLoader
batches = iter(DataLoader(range(8), num_workers=1))
for _ in range(3):
    WATCH.take()
print(json.dumps({"early": early, "late": tell()}))
del batches
""",
    "no name": """
dist.destroy_process_group()
dist.init_process_group(store=dist.HashStore(), rank=0, world_size=1)
"""
    + TELL,
    "without": """
nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward()
"""
    + TELL,
}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("programs")
    for name, program in PROGRAMS.items():
        (folder / f"{name}.py").write_text(HEAD + program + TAIL)
    done = run_programs({folder / f"{name}.py": [] for name in PROGRAMS})
    for path, ended in done.items():
        assert ended.code == 0, (path.name, ended.err)
    return {path.stem: json.loads(ended.out) for path, ended in done.items()}


def test_collectives_that_a_script_calls_are_timed_and_their_line_is_kept(told: dict[str, Any]) -> None:
    found = told["by hand"]
    assert found["taken"] == {"waited": 4.0, "in_buckets": 0.0, "queued": 0.0, "computed": 0.0}
    (caller,) = found["facts"]["callers"][:1]
    assert (caller["name"], caller["seconds"], caller["calls"]) == ("all_reduce", 2.0, 1)
    assert found["facts"]["backend"] == "gloo"


def test_a_group_without_a_name_is_that_of_its_device(told: dict[str, Any]) -> None:
    """`init_process_group()` alone: torch calls its backend "undefined"."""
    assert told["no name"]["facts"]["backend"] == "gloo"


@pytest.mark.parametrize(
    ("name", "backend"),
    [("cpu:gloo,cuda:gloo", "gloo"), ("cpu:gloo,cuda:nccl", "nccl"), ("cpu:gloo", "gloo"), ("nccl", "nccl")],
)
def test_a_group_with_a_backend_for_each_device_has_that_of_the_training(
    name: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.distributed, "get_backend", lambda: name)
    assert collectives._backend() == backend


def test_threads_and_workers_that_a_training_has_behind_its_first_updates_are_told(told: dict[str, Any]) -> None:
    assert told["helpers"] == {"early": [False, False], "late": [True, True]}


def test_what_a_collective_calls_itself_counts_once(told: dict[str, Any]) -> None:
    assert told["nested"]["taken"]["waited"] == 2.0
    names = [(each["name"], each["calls"]) for each in told["nested"]["facts"]["callers"]]
    assert sorted(names) == [("all_gather_object", 1), ("all_reduce", 1), ("wait", 1)]


def test_the_time_behind_the_last_gradient_of_a_backward_pass_is_waiting_for_buckets(told: dict[str, Any]) -> None:
    found = told["buckets"]
    assert found["taken"] == {"waited": 0.5, "in_buckets": 0.5, "queued": 0.25, "computed": 2.5}
    assert 0 < found["hooks"] < found["parameters"]  # those stay that came last
    assert found["seen"] == 5


def test_buffers_that_steps_change_are_named_but_for_those_of_batch_norm(told: dict[str, Any]) -> None:
    """Of a model whose buffers are not sent to other ranks, none."""
    assert told["buffers"][:2] == [[["codes", "queue", "signs", "steps"], True], [[], False]]
    assert [tracks for _, tracks in told["buffers"][2:]] == [True, False, False]


def test_models_that_are_wrapped_are_told_with_their_line_and_whether_they_are_called(told: dict[str, Any]) -> None:
    line = "return nn.parallel.DistributedDataParallel("
    assert told["wrapped"] == [[line, 4 * 20, True], [line, 4 * 6, False]]


def test_a_backward_pass_of_another_model_waits_for_nothing(told: dict[str, Any]) -> None:
    assert told["without"]["taken"] == {"waited": 0.0, "in_buckets": 0.0, "queued": 0.0, "computed": 0.0}


def test_what_takes_place_while_somebody_is_told_of_an_update_belongs_to_no_step(told: dict[str, Any]) -> None:
    assert told["between"]["taken"] == {"waited": 0.0, "in_buckets": 0.0, "queued": 0.5, "computed": 0.25}
