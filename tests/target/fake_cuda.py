"""A stand-in for `torch.cuda` on a machine without one: it keeps which device each call was for, and needs none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

ELSEWHERE = "the current device"  # what a call without a device means


class FakeCuda:
    """`asked` has (function, device) of every call; `current` is the device that calls without one mean.

    Events are numbered as they are recorded, and a millisecond lies between two.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.current = 0
        self.recorded = 0
        self.queued: list[Any] = []
        self.initialized = True

    def devices(self, *but: str) -> set[str]:
        """The devices that functions were called for."""
        return {device for name, device in self.asked if name not in but}

    def put_in(self, patch: pytest.MonkeyPatch) -> FakeCuda:
        import torch

        answers: dict[str, Any] = {
            "synchronize": None,
            "reset_peak_memory_stats": None,
            "max_memory_allocated": 1000,
            "max_memory_reserved": 1400,
            "memory_reserved": 1200,
            "mem_get_info": (7, 9),
            "get_device_name": "Fake",
            "get_device_capability": (9, 0),
            "get_rng_state": "state",
        }
        for name, answer in answers.items():
            patch.setattr(torch.cuda, name, self._asks(name, answer))
        patch.setattr(torch.cuda, "set_rng_state", lambda state, device=ELSEWHERE: self._keep("set_rng_state", device))
        patch.setattr(torch.cuda, "set_device", self._set_device)
        patch.setattr(torch.cuda, "current_device", lambda: self.current)
        patch.setattr(torch.cuda, "device_count", lambda: 2)
        patch.setattr(torch.cuda, "is_available", lambda: True)
        patch.setattr(torch.cuda, "is_initialized", lambda: self.initialized)
        patch.setattr(torch.cuda, "_lazy_call", self.queued.append)
        patch.setattr(torch.cuda, "Event", self._event)
        patch.setattr(torch.cuda, "Stream", lambda device=ELSEWHERE: _Stream(self, device, "side"))
        patch.setattr(torch.cuda, "current_stream", lambda device=ELSEWHERE: _Stream(self, device, "usual"))
        patch.setattr(torch.cuda, "stream", self._inside)
        patch.setattr(torch.version, "cuda", "12.8")
        return self

    def _keep(self, name: str, device: object) -> None:
        self.asked.append((name, str(device)))

    def _asks(self, name: str, answer: Any) -> Any:
        def call(device: object = ELSEWHERE) -> Any:
            self._keep(name, device)
            return answer

        return call

    def _set_device(self, device: int) -> None:
        self.current = device

    def _event(self, enable_timing: bool = False) -> _Event:
        return _Event(self)

    @contextlib.contextmanager
    def _inside(self, stream: _Stream) -> Iterator[None]:
        self._keep("stream", stream.device)
        yield


class _Stream:
    def __init__(self, cuda: FakeCuda, device: object, name: str) -> None:
        self.cuda, self.device, self.name = cuda, device, name

    def record_event(self) -> _Event:
        event = _Event(self.cuda)
        event.record(self)
        return event

    def wait_event(self, event: _Event) -> None:
        self.cuda._keep(f"{self.name} waits for {event.of}", self.device)


class _Event:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.at, self.of = cuda, 0, ""

    def record(self, stream: _Stream | None = None) -> None:
        self.cuda.recorded += 1
        self.at, self.of = self.cuda.recorded, stream.name if stream else ""
        self.cuda._keep("record", stream.device if stream else ELSEWHERE)

    def elapsed_time(self, other: _Event) -> float:
        return float(other.at - self.at)
