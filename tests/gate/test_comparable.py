"""Environments: what of a stored state can be held against the state now, and the words where it cannot."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from surveys import facts

from perfaudit.decoding import Damaged, Value
from perfaudit.gate.comparable import (
    Comparable,
    Fingerprint,
    Seconds,
    compare_fingerprints,
    cpu_model,
    fingerprint,
    stored_time,
)
from perfaudit.measurements import Environment

STORED = Fingerprint(
    "2.13.0+cpu", "cpu", "cpu", ("float32",), "Linux x86_64", "3.12", "AMD EPYC 7B13", cores=8, threads=4, driver=""
)
GPU = dataclasses.replace(
    STORED, torch="2.13.0+cu126", device="cuda", device_name="cuda (H200)", driver="CUDA 12.6, cuDNN 91002"
)


@pytest.mark.parametrize(
    ("stored", "changes", "level", "why"),
    [
        (STORED, {}, "all", ()),
        (STORED, {"torch": "2.12.0+cpu"}, "nothing", ("torch 2.13.0+cpu when it was written, 2.12.0+cpu now",)),
        (STORED, {"torch": "2.13.1+cpu"}, "nothing", ("torch 2.13.0+cpu when it was written, 2.13.1+cpu now",)),
        # the same release built otherwise: on the CPU the same operators, in another time
        (STORED, {"torch": "2.13.0+cu126"}, "no_times", ("torch 2.13.0+cpu when it was written, 2.13.0+cu126 now",)),
        (STORED, {"torch": "2.13.0"}, "no_times", ("torch 2.13.0+cpu when it was written, 2.13.0 now",)),
        (GPU, {"torch": "2.13.0+cu130"}, "nothing", ("torch 2.13.0+cu126 when it was written, 2.13.0+cu130 now",)),
        (STORED, {"torch": "2.13.0a0+git1f2e3d"}, "nothing", (
            "torch 2.13.0+cpu when it was written, 2.13.0a0+git1f2e3d now",)),  # no release, so its source is not known
        (STORED, {"dtypes": ("bfloat16", "float32")}, "nothing", (
            "parameters in float32 when it was written, bfloat16, float32 now",)),
        (STORED, {"dtypes": ()}, "nothing", ("parameters in float32 when it was written, unknown now",)),
        (STORED, {"platform": "Linux aarch64"}, "nothing", (
            "platform Linux x86_64 when it was written, Linux aarch64 now",)),
        (GPU, {"device_name": "cuda (A100)"}, "nothing", ("device cuda (H200) when it was written, cuda (A100) now",)),
        (STORED, {"device": "cuda", "device_name": "cuda (H200)"}, "nothing", (
            "device cpu when it was written, cuda (H200) now",)),
        (GPU, {"driver": "CUDA 12.6, cuDNN 90000"}, "no_times", (
            "driver CUDA 12.6, cuDNN 91002 when it was written, CUDA 12.6, cuDNN 90000 now",)),
        (STORED, {"cpu": "Intel Xeon", "cores": 2}, "no_times", (
            "processor AMD EPYC 7B13 when it was written, Intel Xeon now", "cores 8 when it was written, 2 now")),
        (STORED, {"threads": 2}, "no_times", ("threads 4 when it was written, 2 now",)),
        (STORED, {"python": "3.13"}, "no_times", ("Python 3.12 when it was written, 3.13 now",)),
        (STORED, {"cpu": ""}, "no_times", ("processor AMD EPYC 7B13 when it was written, unknown now",)),
        (STORED, {"torch": "2.12.0", "cores": 2}, "nothing", (
            "torch 2.13.0+cpu when it was written, 2.12.0 now", "cores 8 when it was written, 2 now")),
    ],
)  # fmt: skip
def test_what_can_be_compared(
    stored: Fingerprint, changes: dict[str, object], level: str, why: tuple[str, ...]
) -> None:
    now = dataclasses.replace(stored, **changes)  # type: ignore[arg-type]  # rows of several types
    assert compare_fingerprints(stored, now) == Comparable(level, why)  # type: ignore[arg-type]  # a row's text


def test_two_builds_of_a_development_version_are_two_sources() -> None:
    one, other = (dataclasses.replace(STORED, torch=f"2.14.0a0+git{commit}") for commit in ("1f2e3d4", "5c6b7a8"))
    assert compare_fingerprints(one, one).level == "all"
    assert compare_fingerprints(one, other).level == "nothing"


def test_an_unknown_processor_is_not_the_same_one() -> None:
    unknown = dataclasses.replace(STORED, cpu="")
    assert compare_fingerprints(unknown, unknown) == Comparable(
        "no_times", ("the processor is known neither when it was written nor now",)
    )


@pytest.mark.parametrize(
    ("cpuinfo", "name"),
    [
        (
            "processor\t: 0\nmodel name\t: AMD  EPYC 7B13\n\nprocessor\t: 1\nmodel name\t: AMD  EPYC 7B13\n",
            "AMD EPYC 7B13",
        ),
        ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "implementer 0x41 part 0xd0c"),
        (
            "CPU implementer\t: 0x41\nCPU part\t: 0xd0d\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n",
            "implementer 0x41 part 0xd05, implementer 0x41 part 0xd0d",
        ),
        ("cpu\t\t: POWER9, altivec supported\n", "POWER9, altivec supported"),
    ],
)
def test_the_processor(cpuinfo: str, name: str, tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text(cpuinfo)
    assert cpu_model(tmp_path / "cpuinfo") == name


def test_without_cpuinfo_the_system_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.processor", lambda: "arm")
    assert cpu_model(tmp_path / "none") == "arm"


def test_the_fingerprint_is_of_the_training_and_the_machine(tmp_path: Path) -> None:
    device = {"type": "cuda", "name": "cuda (H200)", "driver": "CUDA 12.6, cuDNN 91002"}
    built = facts(device=device, host={"torch": "2.13.0+cu126", "threads": 4, "cores": 8})
    (tmp_path / "cpuinfo").write_text("model name\t: AMD EPYC 7B13\n")
    host = Environment("cpu", "3.12.4", "Linux x86_64", cores=8, memory_bytes=1, threads=1, commit="1f2e3d", load=3.5)
    assert fingerprint(built, host, tmp_path / "cpuinfo") == GPU
    assert Fingerprint.from_json(Value(GPU.as_json())) == GPU


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"cores": -1}, ["environment.cores", "-1"]),
        ({"threads": True}, ["environment.threads", "True"]),
        ({"torch": None}, ["environment.torch", "None"]),
        ({"dtypes": "float32"}, ["environment.dtypes", "'float32'"]),
        ({"gpu": "H200"}, ["environment", "'gpu'"]),
    ],
)
def test_a_damaged_fingerprint(changes: dict[str, object], names: list[str]) -> None:
    with pytest.raises(Damaged) as raised:
        Fingerprint.from_json(Value({**STORED.as_json(), **changes}, "environment"))
    assert [name for name in names if name not in str(raised.value)] == []


def test_a_fingerprint_that_lacks_something() -> None:
    data = STORED.as_json()
    del data["torch"]
    with pytest.raises(Damaged, match="environment lacks 'torch'"):
        Fingerprint.from_json(Value(data, "environment"))


TIME = Seconds(0.1, 0.09, 0.11, 12)
ALL = Comparable("all")


@pytest.mark.parametrize(
    ("stored", "now", "comparable", "reason"),
    [
        (TIME, Seconds(0.112, 0.1, 0.12, 12), ALL, (
            "not judged: 12 % slower than the file says, and times of different runs differ by as much; "
            "measure with --against REF")),
        (TIME, Seconds(0.096, 0.09, 0.1, 12), ALL, (
            "not judged: 4 % faster than the file says, and times of different runs differ by as much; "
            "measure with --against REF")),
        (None, TIME, ALL, "no time of it is stored; measure with --against REF"),
        (TIME, None, ALL, "not timed: it ran out of memory"),
        (TIME, None, Comparable("no_times", ("cores 8 when it was written, 2 now",)),
            "stored times are of another environment: cores 8 when it was written, 2 now"),
        (None, None, Comparable("nothing", ("torch 2 when it was written, 3 now",)),
            "no time of it is stored; measure with --against REF"),
    ],
)  # fmt: skip
def test_a_stored_time_is_advice(
    stored: Seconds | None, now: Seconds | None, comparable: Comparable, reason: str
) -> None:
    verdict = stored_time("train.py", stored, now, comparable, "it ran out of memory")
    assert (verdict.verdict, verdict.advice, verdict.reason) == ("not_judged", True, reason)


def test_ten_times_as_slow_is_still_no_verdict_and_the_ratio_is_told() -> None:
    verdict = stored_time("train.py", TIME, Seconds(1.0, 0.9, 1.1, 12), ALL)
    assert (verdict.verdict, verdict.ratio) == ("not_judged", 10.0)
    assert (verdict.seconds_before, verdict.seconds_after) == (0.1, 1.0)


def test_times_of_another_machine_give_no_ratio() -> None:
    assert stored_time("train.py", TIME, TIME, Comparable("no_times", ("cores 8, 2 now",))).ratio is None


def test_times_whose_quartiles_touch_are_not_apart() -> None:
    lower, upper = Seconds(0.011, 0.010, 0.012, 9), Seconds(0.013, 0.012, 0.014, 9)
    assert not lower.is_apart_from(upper) and not upper.is_apart_from(lower)
    beyond = Seconds(0.013, 0.0121, 0.014, 9)
    assert lower.is_apart_from(beyond) and beyond.is_apart_from(lower)
