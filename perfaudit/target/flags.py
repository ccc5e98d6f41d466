"""Global switches of torch that change how a step runs: what they are now, and putting them back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from perfaudit.target.mkl import mkl_setters, mkl_switches

Flags = dict[str, object]
GRAIN = 32_768  # elements that torch gives a thread at least, of a sum
SET_BESIDE = {"threads": ("mkl.dynamic", "mkl.threads")}  # by switch, others that torch sets with it


def flags() -> Flags:
    """Every global switch that a knob may touch, by name, with its value now.

    "" for a switch of TF32 in a program that set it by `fp32_precision`, the later interface: the older one then refuses
    to say, and could not put it back.
    """
    import torch

    return {
        "cudnn.enabled": torch.backends.cudnn.enabled,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.allow_tf32": _if_told(lambda: torch.backends.cudnn.allow_tf32),
        "matmul_precision": _if_told(torch.get_float32_matmul_precision),
        "threads": torch.get_num_threads(),
        **mkl_switches(),  # behind the threads, of which setting them changes these
        "anomaly": torch.is_anomaly_enabled(),
        "anomaly.check_nan": torch.is_anomaly_check_nan_enabled(),
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "deterministic_algorithms.warn_only": torch.is_deterministic_algorithms_warn_only_enabled(),
        "default_dtype": str(torch.get_default_dtype()),
        "grad": torch.is_grad_enabled(),
        "autocast.cpu": torch.is_autocast_enabled("cpu"),
        "autocast.cuda": torch.is_autocast_enabled("cuda"),
    }


def _if_told(switch: Callable[[], object]) -> object:
    try:
        return switch()
    except RuntimeError:
        return ""


def _setters() -> dict[str, Callable[[Any], object]]:
    import torch

    return {
        "cudnn.enabled": lambda value: setattr(torch.backends.cudnn, "enabled", value),
        "cudnn.benchmark": lambda value: setattr(torch.backends.cudnn, "benchmark", value),
        "cudnn.deterministic": lambda value: setattr(torch.backends.cudnn, "deterministic", value),
        "cudnn.allow_tf32": lambda value: setattr(torch.backends.cudnn, "allow_tf32", value),
        "matmul_precision": torch.set_float32_matmul_precision,
        "threads": torch.set_num_threads,
        **mkl_setters(),
        # With the other half of the switch as it is, which torch would set to its default.
        "anomaly": lambda value: torch.set_anomaly_enabled(value, torch.is_anomaly_check_nan_enabled()),
    }


def settable() -> frozenset[str]:
    """Names of the switches that `set_flags` can set; the others are only looked at."""
    return frozenset(_setters())


def set_flags(wanted: Flags) -> None:
    """Set these switches. Raises KeyError for a name that `flags` has not, or that is only looked at."""
    setters = _setters()
    for name, value in wanted.items():
        setters[name](value)


def put_back(before: Flags) -> None:
    """Set every switch that has changed since `flags` gave these; those too that are otherwise only looked at, but no ""."""
    import torch

    looked_at: dict[str, Callable[[Any], object]] = {
        "anomaly.check_nan": lambda value: torch.set_anomaly_enabled(torch.is_anomaly_enabled(), value),
        "deterministic_algorithms": lambda value: torch.use_deterministic_algorithms(
            value, warn_only=torch.is_deterministic_algorithms_warn_only_enabled()
        ),
        "deterministic_algorithms.warn_only": lambda value: torch.use_deterministic_algorithms(
            torch.are_deterministic_algorithms_enabled(), warn_only=value
        ),
        "default_dtype": _set_default_dtype,
        "grad": torch.set_grad_enabled,
        "autocast.cpu": lambda value: torch.set_autocast_enabled("cpu", value),
        "autocast.cuda": lambda value: torch.set_autocast_enabled("cuda", value),
    }
    setters = _setters() | looked_at
    for name, value in flags().items():
        if before.get(name, value) not in (value, ""):
            setters[name](before[name])


def _set_default_dtype(name: str) -> None:
    import torch

    torch.set_default_dtype(getattr(torch, name.removeprefix("torch.")))


@contextmanager
def flags_set(wanted: Flags) -> Iterator[None]:
    """These switches as wanted inside, and as they were before behind it, with what torch has set beside them."""
    before = flags()
    touched = {*wanted}.union(*(SET_BESIDE.get(name, ()) for name in wanted))
    set_flags(wanted)
    try:
        yield
    finally:
        set_flags({name: value for name, value in before.items() if name in touched})


@contextmanager
def threads_set(number: int) -> Iterator[None]:
    """So many threads of one operator inside, and as many as before behind it.

    They have run once before the next step begins: it would take longer by their start, which a program pays once. On 2 cores
    that is 0.05 ms of one thread that slept and 0.3 ms of each that is new.
    """
    with flags_set({"threads": number}):
        _run_all_threads()
        yield
    _run_all_threads()


def _run_all_threads() -> None:
    import torch

    torch.zeros(torch.get_num_threads() * GRAIN, dtype=torch.uint8, device="cpu").add_(1)
