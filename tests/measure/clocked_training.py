"""A training whose steps take exactly as long as its own code says."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import textwrap
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from fake_clock import FakeClock

from perfaudit.measure import own_time, screening, screening_start
from perfaudit.training import code_variant
from perfaudit.training.code_change import NotSwappable


class Training:
    """A training whose step runs the user's `forward`, on a clock that passes only there."""

    is_script = False
    has_ended = False

    def __init__(self, module: Any, clock: FakeClock) -> None:
        self.module, self.clock = module, clock
        self.optimizers: list[Any] = []
        self.restart_seconds: list[float] = []
        self.steps = 0
        self.loader, self.phases = types.SimpleNamespace(), types.SimpleNamespace(take=dict)
        self.model = types.SimpleNamespace(named_modules=list, parameters=list, buffers=list)
        self.optimizer, self.last_loss = types.SimpleNamespace(param_groups=[], state={}), 1.0

    def whole_step(self, fixed: bool = False) -> None:
        self.steps += 1
        if self.steps % 10 == 0:  # an epoch begins
            self.clock.sleep(50.0)
            self.restart_seconds.append(50.0)
        self.module.forward(self.clock)

    def synchronize(self) -> None: ...

    def restart_per_step(self) -> float:
        return 0.0

    def step_functions(self) -> list[types.FunctionType]:
        return [self.module.forward]


def no_twin(texts: Mapping[str, str]) -> Any:
    raise NotSwappable("no twin here")


@contextlib.contextmanager
def user_module(name: str, text: str, folder: Path) -> Iterator[Any]:
    """A module of the user's with this text, imported by its name inside."""
    path = folder / f"{name}.py"
    path.write_text(textwrap.dedent(text))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[name]


def set_clock(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Screenings see this clock, and a process in which nothing was compiled and no thread waits."""
    clocks = types.SimpleNamespace(perf_counter=clock.now, process_time=clock.now, thread_time=clock.now)
    monkeypatch.setattr(screening, "time", clocks)
    monkeypatch.setattr(screening_start, "time", clocks)
    monkeypatch.setattr(own_time, "time", clocks)
    monkeypatch.setattr(own_time, "queued_seconds", float)  # 0: of no thread of this process is asked how it waited
    monkeypatch.setattr(code_variant, "refuse_compiled", lambda: None)  # what another test of this process compiled
