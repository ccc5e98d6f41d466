"""Facts and surveys of an everyday training on a CPU; a test names only what is different in its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from perfaudit.findings import Edit, Finding, Fix, Location, Span
from perfaudit.knobs import Survey
from perfaudit.measure.facts import Device, Facts, Host, Loader, Model, Optimizer
from perfaudit.measurements import Environment
from perfaudit.tune.profile import Profile

USUAL = Facts(
    device=Device(type="cpu", name="cpu", driver="", capability=None, room=None, phases_by_waiting=False),
    host=Host(
        torch="2.13.0", threads=1, cores=2, physical_cores=2, cxx="/usr/bin/g++",
        glibc=False, keeps_memory=False, memory_variable="",
    ),
    flags={
        "cudnn.enabled": True,
        "cudnn.benchmark": False,
        "cudnn.deterministic": False,
        "cudnn.allow_tf32": False,
        "matmul_precision": "highest",
        "anomaly": False,
    },
    loader=Loader(
        num_workers=0, pin_memory=False, prefetch_factor=None, persistent_workers=False, batch_size=32, iterable=False,
        epoch_batches=1000, dataset_length=32_000, site=None,
    ),
    optimizer=Optimizer(
        name="AdamW", module="torch.optim.adamw", fused=None, foreach=None, takes=("fused", "foreach"),
        fused_devices=("cuda", "cpu"), site=None,
    ),
    model=Model(
        parameters=10, dtypes=("float32",), convolutions=0, planes=0, kernels=0,
        channels_last=False, compiled=False, compiled_sites={}, dropouts=0, repeated=None, recomputes=False,
    ),
    non_blocking=False,
    has_ema=False,
    ema_site=None,
    step_autocast="",
    factories={"model": "build_model", "optimizer": "build_optimizer", "step": "training_step"},
    factory_files={"model": "train.py", "optimizer": "train.py", "step": "train.py"},
    project_files=("train.py",),
    digests={},
    strays=(),
)  # fmt: skip


PARTS = ("device", "host", "loader", "optimizer", "model")


def facts(**given: Any) -> Facts:  # Any: fields of Facts, or of its parts
    """The usual facts with some replaced: `facts(device={"type": "cuda"}, has_ema=True)`."""
    given["flags"] = {**USUAL.flags, **given.get("flags", {})}
    whole = {name: replace(getattr(USUAL, name), **value) if name in PARTS else value for name, value in given.items()}
    return replace(USUAL, **whole)


def survey_of(findings: Iterable[Finding] = (), profile: Mapping[str, float] | None = None, **given: Any) -> Survey:
    """A survey of the usual facts, with some replaced as in `facts`."""
    return Survey(facts(**given), profile or {}, tuple(findings))


def profile_of(survey: Survey, **given: Any) -> Profile:  # Any: fields of Profile
    """A profile with this survey, on this machine."""
    return Profile(survey, Environment("cpu", "3.11", "Linux", 2, 0), **given)


def found(rule: str, place: str = "train.py:1", by_hand: bool = False) -> Finding:
    """A finding at "file:line" or "file:line:column", with a patch unless it must be changed by hand."""
    path, line, column = (*place.split(":"), "1")[:3]
    at = Location(path, int(line), int(column), int(line), int(column) + 1)
    fix = None if by_hand else Fix("change it", "safe", edits=(Edit(Span(0, 0), ""),))
    return Finding(rule, "a-rule", "warning", "seen", at, fix=fix)
