"""What the fixture `perf_step` gives: the counters of one training step, and the gate's verdict on it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perfaudit.errors import UserError
from perfaudit.pytest_plugin.gate_request import Project
from perfaudit.pytest_plugin.gate_run import NotJudged, Ran, gate_command, run_gate
from perfaudit.pytest_plugin.words import said_of

if TYPE_CHECKING:
    from perfaudit.gate.target_counters import Counted
    from perfaudit.target.names import Target


_LINES = 8  # shown of those that a counter comes from; pytest shows a little more before it cuts


class StepNotMeasured(Exception):
    """A step that could not be counted or judged, which is no pass; the message says why."""


class Count(int):
    """A counter of one step; a failed assertion on it also shows where in the code it comes from."""

    places: tuple[str, ...]  # lines of the code, in words

    def __new__(cls, value: int, places: tuple[str, ...] = ()) -> Count:
        made = super().__new__(cls, value)
        made.places = places
        return made


class Steps:
    """`perf_step`: call it with a target, as in `[tool.perfaudit.gate]`; the same target is counted once a session."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self._known: dict[tuple[str, ...], Step] = {}

    def __call__(self, target: str, *, device: str = "auto", timeout: float = 120.0) -> Step:
        """One training step of a target (`train.py --epochs 1`, a name of `[tool.perfaudit.targets]`, `package.module` with
        factories, a file with factories, either with `:factory`); nothing runs yet.

        Paths are relative to the folder of the project's pyproject.toml. device: "cpu", "cuda", … timeout: the longest
        that loading, or one step, may take, in seconds. Raises StepNotMeasured for a target that does not exist.
        """
        __tracebackhide__ = True
        try:
            found = self._project.target(target)
        except UserError as error:
            raise StepNotMeasured(str(error)) from None
        key = (
            found.file,
            str(found),
            *(f"{role}={name}" for role, name in sorted(found.names.items())),
            device,
            f"{timeout:g}",
        )
        return self._known.setdefault(key, Step(self._project, found, target, device, timeout))

    def __repr__(self) -> str:
        return f"<perf_step of {self._project.folder}>"


class Step:
    """One training step of a target. Its counters are attributes: `step.host_syncs`. It runs when first asked for one."""

    def __init__(self, project: Project, target: Target, text: str, device: str, timeout: float) -> None:
        self._project, self._target, self._text = project, target, text
        self._device, self._timeout = device, timeout
        self._counted: Counted | None = None
        self._problem = ""
        self._gates: dict[tuple[str, ...], Ran] = {}

    @property
    def counters(self) -> dict[str, int]:
        """All counters of one step, by name. Raises StepNotMeasured where the step could not be counted."""
        __tracebackhide__ = True
        return dict(self._count().values)

    @property
    def set_aside(self) -> dict[str, str]:
        """Why a counter is not among them, by name: it differs from run to run, or could not be taken."""
        __tracebackhide__ = True
        return _not_counted(self._count())

    def __getattr__(self, name: str) -> Count:
        __tracebackhide__ = True
        if name.startswith("_"):  # asked for by copy, by debuggers and by pytest; they are no counters
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        from perfaudit.gate.target_counters import COUNTERS

        counted = self._count()
        if name in counted.values:
            return Count(counted.values[name], _places(counted, name))
        if why := _not_counted(counted).get(name):
            raise AttributeError(f"{name} of {self._text} has no number: {why}")
        if name in COUNTERS:
            raise AttributeError(f"{name} of {self._text} has no number: {_why_none(name, counted.device)}")
        raise AttributeError(f"{self._text} has no counter {name!r}; it has: {', '.join(sorted(counted.values))}")

    def against_baseline(self, file: str | Path | None = None) -> None:
        """Fail where a counter grew against a baseline, with the gate's words.

        file: relative to the project's folder; without one that of `--perfaudit-baseline`, of the configuration, or
        perfaudit-gate.json. Skips a target that the baseline does not know. Raises StepNotMeasured.
        """
        __tracebackhide__ = True
        from perfaudit.gate.settings import BASELINE

        self._judge("", str(file or self._project.baseline or BASELINE), ("counters",))

    def against(self, ref: str, layers: Iterable[str] = ("counters",)) -> None:
        """Fail where the step got worse than at a git reference, in any of these layers, with the gate's words.

        Skips where there is nothing to compare with, or where nothing could be told and the project takes that for a
        pass. Raises StepNotMeasured, and ValueError for layers that there are not.
        """
        __tracebackhide__ = True
        self._judge(ref, "", _layers(layers))

    def _judge(self, ref: str, file: str, layers: tuple[str, ...]) -> None:
        __tracebackhide__ = True
        project = replace(self._project, against=ref, baseline=file)
        key = (ref, file, *layers)
        if key not in self._gates:
            options = ["--device", self._device, "--timeout", f"{self._timeout:g}s"]
            self._gates[key] = run_gate(gate_command(project, layers, [self._text], options), project.folder)
        try:
            said = [each for layer in layers for each in said_of(self._gates[key], layer, self._target.label)]
        except NotJudged as error:
            raise StepNotMeasured(str(error)) from None
        undecided_fails = project.settings.inconclusive == "fail"
        for each in said:
            if each.verdict == "regressed" or (each.verdict == "inconclusive" and undecided_fails):
                raise AssertionError(each.words)
        for each in said:
            if each.verdict == "failed":
                raise StepNotMeasured(each.words)
        if left_open := [each.line for each in said if each.verdict in ("not_judged", "inconclusive")]:
            pytest.skip("; ".join(left_open))

    def _count(self) -> Counted:
        """What one step does, counted when it is first asked for. Raises StepNotMeasured, then each time."""
        __tracebackhide__ = True
        if self._counted is None and not self._problem:
            self._counted, self._problem = _count_step(self._project.folder, self._target, self._device, self._timeout)
        if self._counted is None:
            raise StepNotMeasured(f"no step of {self._text} could be counted: {self._problem}")
        return self._counted

    def __repr__(self) -> str:
        if self._counted is None:
            return f"<step of {self._text}>"
        return f"<step of {self._text}: {', '.join(f'{name} {n}' for name, n in self._counted.values.items())}>"


def _layers(names: Iterable[str]) -> tuple[str, ...]:
    """Layers in their order; of no layer nothing would be judged, and that would pass. Raises ValueError."""
    __tracebackhide__ = True
    from perfaudit.gate.settings import layers_of

    try:
        layers = layers_of(tuple(names.split(",") if isinstance(names, str) else names))
    except UserError as error:
        raise ValueError(str(error)) from None
    if not layers:
        raise ValueError("name a layer: findings, counters, time")
    return layers


def _not_counted(counted: Counted) -> dict[str, str]:
    return {**counted.absent, **counted.set_aside}


def _why_none(name: str, device: str) -> str:
    """Why a counter that there is makes no sense for a step."""
    if name in ("graph_breaks", "recompilations"):
        return "nothing in it is compiled"
    if name == "dataset_samples":
        return "its dataset has no length"
    return f"it ran on {device}"


def _places(counted: Counted, name: str) -> tuple[str, ...]:
    """The lines that a counter comes from, the busiest first."""
    spots = sorted(counted.places.get(name, ()), key=lambda spot: -spot.count)
    left = len(spots) - _LINES
    shown = [f"{spot.path}:{spot.line}  {spot.what}, {spot.count:,} a step" for spot in spots[:_LINES]]
    return (*shown, *([f"and {left} more lines"] if left > 0 else []))


def _count_step(folder: Path, target: Target, device: str, timeout: float) -> tuple[Counted | None, str]:
    """The counters of one step, or why there are none. The target runs in processes of its own."""
    from perfaudit.gate.counting import count
    from perfaudit.measure.child import ChildFailed

    try:
        with contextlib.chdir(folder):  # the tests may stand anywhere
            return count(target, None, device=device, timeout=timeout), ""
    except (UserError, ChildFailed) as error:
        return None, str(error)
