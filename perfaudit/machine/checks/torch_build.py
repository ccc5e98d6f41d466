"""The torch that is installed beside perfaudit: what it was built with, and what it chose here."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "torch"


def look(place: Place) -> Iterator[MachineFact]:
    told = place.torch
    if not told:
        yield MachineFact(AREA, "version", None, state="note", advice="torch is not installed beside perfaudit")
        return
    if "problem" in told:
        yield MachineFact(AREA, "version", None, state="warning", advice=f"torch does not load: {told['problem']}")
        return
    yield MachineFact(AREA, "version", told["version"], basis="torch")
    yield _threads(place, told["threads"])
    for name, word in (("mkl", "MKL"), ("onednn", "oneDNN"), ("openmp", "OpenMP")):
        missing = not told[name]
        advice = f"this build computes on the CPU without {word}: install a wheel of pytorch.org" if missing else ""
        value = "no" if missing else told.get("versions", {}).get(name, "yes")
        yield MachineFact(
            AREA, word, value, "", "note" if missing else "ok", advice, "torch.backends, torch.__config__"
        )
    if told.get("cpu_capability"):
        yield MachineFact(AREA, "CPU instructions", told["cpu_capability"], basis="torch.backends.cpu")
    if told.get("gpus"):
        for name, word in (("cudnn", "cuDNN"), ("nccl", "NCCL")):
            value = _cudnn(told[name]) if name == "cudnn" else told[name]
            yield MachineFact(AREA, word, value or "no", basis="torch")
    if shutil.which("c++", path=place.environment.get("PATH")) is None:
        yield MachineFact(
            AREA, "C++ compiler", "no", "", "note", "torch.compile for the CPU needs one: install g++ or clang", "PATH"
        )


def _cudnn(number: int | None) -> str:
    """A version as people write it: 9.10.2 of 91002, and 8.9.2 of 8902, as cuDNN counted before 9."""
    if not number:
        return ""
    major, rest = divmod(number, 10_000 if number >= 90_000 else 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _threads(place: Place, threads: int) -> MachineFact:
    advice = ""
    if threads > place.cores:
        advice = (
            f"more threads than the {place.cores} usable cores stand in each other's way: OMP_NUM_THREADS={place.cores}"
        )
    elif threads == 1 < place.cores:
        advice = f"operators use one of {place.cores} cores; torchrun sets OMP_NUM_THREADS=1"
    state = "warning" if threads > place.cores else "note" if advice else "ok"
    return MachineFact(AREA, "threads of an operator", threads, "", state, advice, "torch")  # type: ignore[arg-type]  # of three
