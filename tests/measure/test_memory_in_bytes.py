"""What is counted of memory, to the byte: live tensors of a step, what a described device answers, what the system says."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from perfaudit.measure import memory
from perfaudit.measure.memory import StepMemory, held_tensors, live_bytes, memory_of_step, outside, room

FLOAT = 4


class Described:
    """A device that answers what it is told to, and a training on it; `log` has who was asked what, in order."""

    def __init__(self, **answers: list[int | None]) -> None:
        self.answers = {name: iter(values) for name, values in answers.items()}
        self.log: list[str] = []
        self.device = SimpleNamespace(type="cuda")
        self.optimizer = SimpleNamespace(zero_grad=lambda: self.log.append("zero_grad"))

    def step(self, batch: str) -> None:
        self.log.append(f"step on {batch}")

    def __getattr__(self, name: str) -> Any:
        def ask() -> int | None:
            self.log.append(name)
            return next(self.answers[name]) if name in self.answers else None

        return ask


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ({}, StepMemory(50, 70, 4)),
        ({"peak_reserved_bytes": [60, 90]}, StepMemory(50, 90, 4)),  # the most since the process began
        ({"peak_reserved_bytes": [0, 0]}, StepMemory(50, 0, 4)),
        ({"peak_bytes": [0, 0]}, StepMemory(0, 70, 4)),
        ({"peak_reserved_bytes": [70, None]}, StepMemory(50, None, 4)),
        ({"free_bytes": [None, 90]}, StepMemory(50, None, 0)),
        ({"free_bytes": [100, None]}, StepMemory(50, None, 0)),
        ({"reserved_bytes": [None, 7]}, StepMemory(50, None, 0)),
    ],
)
def test_a_step_on_a_described_device(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, list[int | None]], found: StepMemory
) -> None:
    usual = {"free_bytes": [100, 90], "reserved_bytes": [1, 7], "peak_reserved_bytes": [70, 60], "peak_bytes": [0, 50]}
    device = Described(**usual | answers)  # type: ignore[arg-type]
    monkeypatch.setattr(memory, "accelerator_of", lambda _: device)
    assert memory_of_step(device, "a batch") == found
    asks = ["synchronize", "free_bytes", "reserved_bytes"]
    assert device.log == [
        *asks, "step on a batch", "zero_grad", "synchronize", "peak_reserved_bytes", "reset_peak", "peak_bytes",
        "step on a batch", "synchronize", "peak_reserved_bytes", *asks, "peak_bytes",
    ]  # fmt: skip


class Training:
    """Parameters of 1000 and buffers of 20 floats, 30 of the optimizer, a batch of 4; a step makes 500 twice and 100 beside."""

    device = torch.device("cpu")

    def __init__(self) -> None:
        self.model = nn.Module()
        self.model.weight = nn.Parameter(torch.zeros(10, 100))
        self.model.register_buffer("seen", torch.zeros(20))
        self.optimizer = SimpleNamespace(
            state={self.model.weight: {"average": torch.zeros(30), "step": 3}}, zero_grad=lambda: None
        )
        self.optimizers = [self.optimizer]
        self.steps = 0

    def step(self, batch: Any) -> None:
        self.steps += 1
        for _ in range(2):
            large = torch.zeros(500)
            view, beside = large[:100], torch.ones(100)  # the view has the same storage
            del large, view, beside


def test_live_bytes_of_a_step_on_the_cpu() -> None:
    training, batch = Training(), {"x": torch.zeros(4), "name": "b"}
    assert [t.numel() for t in held_tensors(training)] == [1000, 20, 30]
    expected = (1000 + 20 + 30 + 4 + 500 + 100) * FLOAT
    assert memory_of_step(training, batch) == StepMemory(expected, None, 0)
    assert training.steps == 2  # the first one makes the optimizer's state
    assert memory_of_step(training, batch).tensors == expected


def test_a_storage_counts_once_and_until_it_is_gone() -> None:
    live = live_bytes()
    tensor = torch.zeros(10)
    live.see(tensor)
    live.see(tensor[2:])
    live.see(torch.eye(2).to_sparse())  # has no storage
    assert (live.now, live.peak) == (10 * FLOAT, 10 * FLOAT)
    other = torch.zeros(5)
    live.see(other)
    del tensor
    assert (live.now, live.peak) == (5 * FLOAT, 15 * FLOAT)
    live.see(torch.zeros(3))
    assert (live.now, live.peak) == (5 * FLOAT, 15 * FLOAT)


def test_an_operator_is_carried_out_as_told() -> None:
    def run(func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs), torch.zeros(2), "no tensor"

    live = live_bytes(run)
    found = live.__torch_dispatch__(torch.ops.aten.zeros.default, (), ([4],), {"dtype": torch.int64})
    assert (found[0].dtype, found[2]) == (torch.int64, "no tensor")
    assert live.peak == 4 * 8 + 2 * FLOAT
    with live_bytes() as plain:
        one = torch.zeros(3)
    assert (one.tolist(), plain.now) == ([0.0] * 3, 3 * FLOAT)


def said(monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """Let the system say this of the process."""

    class Said:
        def __init__(self, path: str) -> None:
            self.path = path

        def read_text(self) -> str:
            if self.path.removeprefix("/proc/self/") not in files:
                raise FileNotFoundError(self.path)
            return files[self.path.removeprefix("/proc/self/")]

    monkeypatch.setattr(memory, "Path", Said)


def test_physical_memory_as_the_system_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, statm="900 7 5 1", status="Name:\tx VmHWM:\nVmPeak:\t90 kB\nVmHWM:\t  60 kB\nVmRSS:\t 50 kB\n")
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PAGE_SIZE": 4096}.__getitem__)
    assert (memory.resident_bytes(), memory.peak_resident_bytes()) == (7 * 4096, 60 * 1024)
    for silent in ({}, {"statm": "a b", "status": "VmHWM: much"}, {"statm": "a b", "status": "VmPeak: 90 kB"}):
        said(monkeypatch, **silent)
        assert (memory.resident_bytes(), memory.peak_resident_bytes()) == (0, 0)


@pytest.mark.parametrize(("free", "taken"), [(90, 60), (0, 60), (90, 0)])
def test_room(monkeypatch: pytest.MonkeyPatch, free: int, taken: int) -> None:
    """The system says 0 where it says nothing; a device says None."""
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    monkeypatch.setattr(memory, "peak_resident_bytes", lambda: taken)
    device = Described(free_bytes=[free or None], peak_reserved_bytes=[taken or None])
    monkeypatch.setattr(memory, "accelerator_of", lambda _: device)
    for kind in ("cpu", "cuda"):
        assert room(SimpleNamespace(type=kind)) == {"free": free or None, "taken": taken or None}
    assert device.log == ["free_bytes", "peak_reserved_bytes"]  # not for the processor


@pytest.mark.parametrize(
    ("before", "after", "taken"),
    [
        ((900, 100), (600, 400), 0),  # all of it by the allocator
        ((900, 100), (500, 400), 100),  # cuBLAS and the kernels it loads, past the allocator
        ((900, 100), (700, 400), 0),  # another process gave some back meanwhile
    ],
)
def test_what_the_driver_gave_past_the_allocator(before: tuple[int, int], after: tuple[int, int], taken: int) -> None:
    assert outside(before, after) == taken


def test_a_budget_counts_what_is_reserved_and_what_is_outside() -> None:
    assert StepMemory(1000, 1300, 100).bytes_on_device == 1400
    assert StepMemory(1000).bytes_on_device is None  # on the CPU only tensors are counted
