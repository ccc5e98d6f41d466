"""What stored counters and times may be held against: the environment they were taken in, and what became of it."""

from __future__ import annotations

import platform
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from perfaudit.decoding import Value
from perfaudit.measure.facts import Facts
from perfaudit.measurements import Environment
from perfaudit.quantities import percent
from perfaudit.verdicts import TimeVerdict

Level = Literal["all", "no_times", "nothing"]


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The environment of counters and times. python: major and minor version; cpu: "" where the system does not say.

    dtypes: of the model's parameters. cores, threads: that the training may use, and that torch uses.
    """

    torch: str
    device: str
    device_name: str
    dtypes: tuple[str, ...]
    platform: str
    python: str
    cpu: str
    cores: int
    threads: int
    driver: str

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "dtypes": list(self.dtypes)}

    @classmethod
    def from_json(cls, data: Value) -> Fingerprint:
        """Raises Damaged."""
        names = set(cls.__dataclass_fields__)
        data.keys(names)
        counts = {key: data.at(key).whole() for key in ("cores", "threads")}
        texts = {key: data.at(key).text() for key in names - {"dtypes", *counts}}
        return cls(dtypes=data.at("dtypes").texts(), **texts, **counts)  # type: ignore[arg-type]  # by name


@dataclass(frozen=True, slots=True)
class Seconds:
    """Seconds per step: the median of n blocks, and their quartiles low and high."""

    median: float
    low: float
    high: float
    n: int

    def as_json(self) -> dict[str, Any]:
        """With six digits: more of them say nothing and change every time."""
        rounded = {key: float(f"{getattr(self, key):.6g}") for key in ("median", "low", "high")}
        return {**rounded, "n": self.n}

    @classmethod
    def from_json(cls, data: Value) -> Seconds:
        """Raises Damaged for what are no times."""
        data.keys({"median", "low", "high", "n"})
        low, median, high = (data.at(key).number() for key in ("low", "median", "high"))
        data.must(0 < low <= median <= high, "times with low, median and high in this order")
        return cls(median, low, high, data.at("n").whole(least=1))

    def is_apart_from(self, other: Seconds) -> bool:
        """Whether the quartiles of the two do not meet."""
        return self.high < other.low or other.high < self.low


def fingerprint(facts: Facts, host: Environment, cpuinfo: Path = Path("/proc/cpuinfo")) -> Fingerprint:
    """The environment of a built training. facts: of `measure.facts`; host: of `measure.environment`."""
    return Fingerprint(
        torch=facts.host.torch,
        device=facts.device.type,
        device_name=facts.device.name,
        dtypes=facts.model.dtypes,
        platform=host.platform,
        python=".".join(host.python.split(".")[:2]),
        cpu=cpu_model(cpuinfo),
        cores=facts.host.cores,
        threads=facts.host.threads,
        driver=facts.device.driver,
    )


def cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The processor by the kernel's name; on ARM, which has none, implementer and part of each kind of core; else ""."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return platform.processor()
    pairs = [(key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in text.splitlines())]
    names = [value for key, value in pairs if key in ("model name", "cpu") and value]  # cpu: POWER
    if names:
        return ", ".join(sorted({re.sub(r"\s+", " ", name) for name in names}))
    makers = [value for key, value in pairs if key == "CPU implementer"]
    parts = [value for key, value in pairs if key == "CPU part"]
    kinds = sorted(set(zip(makers, parts, strict=False)))
    return ", ".join(f"implementer {maker} part {part}" for maker, part in kinds) or platform.processor()


@dataclass(frozen=True, slots=True)
class Comparable:
    """What of a stored state can be held against the state now, and why not all of it, in words."""

    level: Level
    why: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        return "; ".join(self.why)


def compare_fingerprints(stored: Fingerprint, now: Fingerprint) -> Comparable:
    """Whether counters and times may be compared.

    Another torch, device, platform or type of the parameters dispatches other operators, so nothing can. Another
    processor, number of cores or threads, driver or Python does the same work in another time.
    """
    differing = differences(stored, now)
    decisive = [*_DECISIVE, *([] if _is_same_source(stored, now) else ["torch"])]
    nothing = [_in_words(name, *differing[name]) for name in differing if name in decisive]
    no_times = [_in_words(name, *differing[name]) for name in differing if name not in decisive]
    if not (stored.cpu or now.cpu):  # unknown is not the same
        no_times.append("the processor is known neither when it was written nor now")
    return Comparable("nothing" if nothing else "no_times" if no_times else "all", (*nothing, *no_times))


_DECISIVE = ("device", "parameters in", "platform")
_NAMES = {"device_name": "device", "dtypes": "parameters in", "cpu": "processor", "python": "Python"}


def differences(stored: Fingerprint, now: Fingerprint) -> dict[str, tuple[str, str]]:
    """What differs between two environments, by its name in words: as it was, and as it is."""
    found: dict[str, tuple[str, str]] = {}
    for field in fields(Fingerprint):
        before, after = (_words(getattr(side, field.name)) for side in (stored, now))
        if before != after:
            found[_NAMES.get(field.name, field.name)] = before, after  # device_name says more than device
    return found


def _in_words(name: str, before: str, after: str) -> str:
    return f"{name} {before} when it was written, {after} now"


def _words(value: object) -> str:
    return (", ".join(value) if isinstance(value, tuple) else str(value)) or "unknown"


def _is_same_source(stored: Fingerprint, now: Fingerprint) -> bool:
    """Whether two builds of torch dispatch the same operators for these devices.

    The part behind "+" (cpu, cu126) names the build. On the CPU builds of one release run the same operators; on an
    accelerator they bring another cuBLAS and cuDNN, which choose other kernels. Of what is no release ("2.14.0a0+git1f2e3d",
    "2.14.0.dev20261101") that part may be the source's commit, so all of it counts.
    """
    if stored.torch == now.torch:
        return True
    releases = [re.fullmatch(r"(\d+(?:\.\d+)*)(?:\+.*)?", side.torch) for side in (stored, now)]
    same_release = all(releases) and len({found[1] for found in releases if found}) == 1
    return same_release and stored.device == now.device == "cpu"


def stored_time(
    target: str, stored: Seconds | None, now: Seconds | None, comparable: Comparable, failure: str = ""
) -> TimeVerdict:
    """What a stored time says beside one of now: advice, never a verdict.

    now: None where it was not measured, because nothing is stored, in another environment, or for the `failure` that is told.
    How often a mean of identical code lies above a stored one by more than 5 %: benchmarks/gate_power.md, "stored mean".
    """
    before, after = (side.median if side else None for side in (stored, now))

    def advice(reason: str, ratio: float | None = None) -> TimeVerdict:
        return TimeVerdict(target, "not_judged", reason, ratio, seconds_before=before, seconds_after=after, advice=True)

    if before is None:
        return advice("no time of it is stored; measure with --against REF")
    if comparable.level != "all":
        return advice(f"stored times are of another environment: {comparable.reason}")
    if after is None:
        return advice(f"not timed: {failure}")
    ratio = after / before
    what = f"{percent(abs(ratio - 1))} {'slower' if ratio > 1 else 'faster'} than the file says"
    return advice(
        f"not judged: {what}, and times of different runs differ by as much; measure with --against REF", ratio
    )
