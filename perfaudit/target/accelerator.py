"""A device as measuring needs it: waiting for it, its own clock, its memory and its random numbers. Child only.

No other module of the package calls `torch.cuda`, `torch.mps`, `torch.xpu` or `torch.accelerator`. Their functions act on the
current device unless they are given another one. Here each of them is given the training's.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any

from perfaudit.errors import TargetError

_QUEUES = ("cuda", "xpu")  # types of devices that work through a queue, with events and an allocator that counts


class Accelerator:
    """The host's own processor, which has done what it was told when the next line runs; others derive from it.

    device: a torch.device. has_clock: whether events can be placed in the device's queue, which tell when it came to them.
    A number of bytes is None where the device does not tell it.
    """

    has_clock = False
    has_doubles = True  # whether there are tensors of float64 on it

    def __init__(self, device: Any) -> None:
        self.device = device

    @property
    def name(self) -> str:
        """The device in words: "cpu", "cuda (NVIDIA H200)"."""
        return str(self.device)

    @property
    def is_host(self) -> bool:
        """Whether it is the CPU."""
        return bool(self.device.type == "cpu")

    @property
    def driver(self) -> str:
        """Versions of what runs the device, "" where there is nothing to tell."""
        return ""

    @property
    def capability(self) -> tuple[int, int] | None:
        """Of a CUDA device: major and minor."""
        return None

    def synchronize(self) -> None:
        """Wait until the device has done all it was given."""

    def event(self) -> Any:  # torch.cuda.Event, torch.xpu.Event
        """A mark in the device's queue, behind all it was given so far. Only where it `has_clock`."""
        raise NotImplementedError(f"{self.device} has no events that tell the time")

    def seconds_between(self, before: Any, after: Any) -> float:
        """Seconds the device took from one event to another; it must have been waited for."""
        return float(before.elapsed_time(after)) / 1e3

    def mark(self) -> Any:  # torch.cuda.Event, torch.xpu.Event
        """A mark in the device's queue that tells no time, behind all it was given so far; None where it has no queue."""
        return None

    def has_passed(self, mark: Any) -> bool:
        """Whether the device has come to a mark. The host does not wait for it."""
        return bool(mark.query())

    def reset_peak(self) -> None:
        """From here on the peaks count anew."""

    def peak_bytes(self) -> int | None:
        """The most bytes of tensors there were at once since `reset_peak`, as the allocator counts them."""
        return None

    def peak_reserved_bytes(self) -> int | None:
        """The most bytes the allocator held at once since `reset_peak`, used or not."""
        return None

    def reserved_bytes(self) -> int | None:
        """Bytes the allocator holds now, used or not."""
        return None

    def free_bytes(self) -> int | None:
        """Bytes of the device that no process holds."""
        return None

    def empty_cache(self) -> None:
        """Give back what the allocator holds and does not use."""

    def random_state(self) -> Any:
        """The state of the device's random numbers, None where it has none of its own."""
        return None

    def set_random_state(self, state: Any) -> None:
        """Go back to a state that `random_state` gave."""

    def beside(self, work: Callable[[], None]) -> tuple[Callable[[], None], Callable[[], None]]:
        """Two functions: one starts `work` in a queue of its own, after all the device was given so far; from the call of
        the other on, the device's usual queue waits for it. The host waits for neither. Only where it `has_clock`.
        """
        raise NotImplementedError(f"{self.device} has no second queue")


class _Queue(Accelerator):
    """A device with streams, events and an allocator that counts: CUDA, ROCm (which says "cuda"), XPU."""

    has_clock = True

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        import torch

        self._api: Any = getattr(torch, device.type)  # torch.cuda, torch.xpu

    @property
    def name(self) -> str:
        return f"{self.device.type} ({self._api.get_device_name(self.device)})"

    def synchronize(self) -> None:
        self._api.synchronize(self.device)

    def event(self) -> Any:
        event = self._api.Event(enable_timing=True)
        event.record(self._api.current_stream(self.device))
        return event

    def mark(self) -> Any:
        mark = self._api.Event()
        mark.record(self._api.current_stream(self.device))
        return mark

    def reset_peak(self) -> None:
        self._api.reset_peak_memory_stats(self.device)

    def peak_bytes(self) -> int | None:
        return int(self._api.max_memory_allocated(self.device))

    def peak_reserved_bytes(self) -> int | None:
        return int(self._api.max_memory_reserved(self.device))

    def reserved_bytes(self) -> int | None:
        return int(self._api.memory_reserved(self.device))

    def free_bytes(self) -> int | None:
        try:
            return int(self._api.mem_get_info(self.device)[0])
        except (AttributeError, RuntimeError):  # XPU before torch 2.6, or a driver that does not say
            return None

    def empty_cache(self) -> None:
        self._api.empty_cache()  # takes no device: what this process holds on any

    def random_state(self) -> Any:
        return self._api.get_rng_state(self.device)

    def set_random_state(self, state: Any) -> None:
        self._api.set_rng_state(state, self.device)

    def beside(self, work: Callable[[], None]) -> tuple[Callable[[], None], Callable[[], None]]:
        api, device = self._api, self.device
        side, done = api.Stream(device=device), api.Event()

        def start() -> None:
            given = api.current_stream(device).record_event()
            with api.stream(side):
                side.wait_event(given)
                work()
                done.record(side)

        return start, lambda: api.current_stream(device).wait_event(done)


class _Cuda(_Queue):
    @property
    def driver(self) -> str:
        import torch

        if torch.version.hip:
            return f"ROCm {torch.version.hip}, MIOpen {torch.backends.cudnn.version()}"
        return f"CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}"

    @property
    def capability(self) -> tuple[int, int] | None:
        major, minor = self._api.get_device_capability(self.device)
        return major, minor


class _Xpu(_Queue):
    """Its events tell the time since torch 2.6 only, and where the driver does."""

    @functools.cached_property
    def has_clock(self) -> bool:  # type: ignore[override]  # asked for when it is needed
        try:
            before, after = self.event(), self.event()
            self.synchronize()
            self.seconds_between(before, after)
        except (RuntimeError, NotImplementedError):
            return False
        return True


class _Metal(Accelerator):
    """MPS. Its events are stamped by a thread of the host once Metal calls back, so they are no clock of the device."""

    has_doubles = False

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        import torch

        self._api: Any = torch.mps

    def synchronize(self) -> None:
        self._api.synchronize()  # there is one such device

    def reserved_bytes(self) -> int | None:
        return int(self._api.driver_allocated_memory())

    def empty_cache(self) -> None:
        self._api.empty_cache()

    def random_state(self) -> Any:
        return self._api.get_rng_state()

    def set_random_state(self, state: Any) -> None:
        self._api.set_rng_state(state)


class _Other(Accelerator):
    """A device of which no more is known than how to wait for it."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        import torch

        self._api: Any = getattr(torch, device.type, None)
        if not hasattr(self._api, "synchronize"):
            raise TargetError(
                f"--device {device}: torch does not say how to wait for a device of type {device.type}, so no step on it "
                "could be timed; use cpu, cuda, xpu or mps"
            )

    def synchronize(self) -> None:
        self._api.synchronize(self.device)


def accelerator_of(device: Any) -> Accelerator:  # Any: torch.device
    """What measuring needs of a device. Raises TargetError for one that it could not wait for."""
    kinds = {"cpu": Accelerator, "cuda": _Cuda, "xpu": _Xpu, "mps": _Metal}
    return kinds.get(device.type, _Other)(device)


def pick_device(name: str) -> Any:
    """A torch.device; "auto" is an accelerator if there is one, the current one of several.

    Raises TargetError for one that is not here.
    """
    import torch

    if name != "auto":
        try:
            device = torch.device(name)
            torch.empty(1, device=device)
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            first = str(error).splitlines()[0]
            raise TargetError(f"--device {name}: not usable here ({first})") from error
        return _with_number(device)
    if torch.cuda.is_available():
        return _with_number(torch.device("cuda"))
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def _with_number(device: Any) -> Any:
    """The device with its number: what is the current one may change later."""
    import torch

    if device.type not in _QUEUES or device.index is not None:
        return device
    return torch.device(device.type, getattr(torch, device.type).current_device())


def make_current(name: str) -> None:
    """Make a device that is named with its number, as "cuda:1", what `.cuda()` and `"cuda"` in the user's code mean.

    This happens when the device is first used and uses none itself, so that variables such as CUDA_VISIBLE_DEVICES that
    the user's file sets still count. A number that is not there is left for `pick_device` to refuse.
    """
    kind, _, number = name.partition(":")
    if kind not in _QUEUES or not number.isdigit():
        return
    import torch

    api: Any = getattr(torch, kind)

    def choose() -> None:
        if int(number) < api.device_count():
            api.set_device(int(number))

    api._lazy_call(choose)


def knows_host_only() -> bool:
    """Whether this torch was built for the CPU alone. It asks no driver: a script may still choose its devices, or fork."""
    import torch

    return not (torch.backends.cuda.is_built() or torch.backends.mps.is_built() or torch.xpu._is_compiled())


def lacks_cuda() -> bool:
    """Whether torch is imported here, and finds no device of CUDA. Imports nothing."""
    torch: Any = sys.modules.get("torch")
    return torch is not None and not torch.cuda.is_available()


def device_in_use() -> str:
    """The type of a device that this process has begun to use, as "cuda", "" where there is none. Imports nothing.

    A process that is forked from one that has cannot use it.
    """
    torch: Any = sys.modules.get("torch")
    apis = {kind: getattr(torch, kind, None) for kind in _QUEUES}
    return next((kind for kind, api in apis.items() if api is not None and api.is_initialized()), "")


def random_states() -> list[tuple[Accelerator, Any]]:
    """The devices that this process uses, each with the state of its random stream."""
    import torch

    devices = [torch.device("mps")] if torch.backends.mps.is_available() else []
    if kind := device_in_use():
        devices += [torch.device(kind, number) for number in range(getattr(torch, kind).device_count())]
    return [(accelerator, accelerator.random_state()) for accelerator in map(accelerator_of, devices)]


@contextlib.contextmanager
def same_random_numbers() -> Iterator[None]:
    """Put the random streams of torch on the CPU, and on all devices that this process uses, back at the end."""
    import torch

    host, states = torch.get_rng_state(), random_states()
    try:
        yield
    finally:
        torch.set_rng_state(host)
        for accelerator, state in states:
            accelerator.set_random_state(state)
