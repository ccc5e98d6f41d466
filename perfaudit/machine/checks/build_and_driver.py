"""Whether the torch that is installed can use the GPU that is here."""

from __future__ import annotations

from collections.abc import Iterator

from perfaudit.machine.place import Place
from perfaudit.machine_facts import MachineFact

AREA = "devices"


def look(place: Place) -> Iterator[MachineFact]:
    told = place.torch
    if not told or "problem" in told:
        return
    gpus = told.get("gpus", 0)
    nvidia = any((place.root / "dev").glob("nvidia[0-9]*"))
    amd = (place.root / "dev/kfd").exists()
    built = f"CUDA {told['cuda']}" if told.get("cuda") else f"ROCm {told['hip']}" if told.get("hip") else "CPU only"
    advice = ""
    if not gpus and (nvidia or amd):
        advice = (
            "a GPU is here and this build is for the CPU: install the wheel for your driver (pytorch.org/get-started)"
            if built == "CPU only"
            else "a GPU is here and torch cannot use it: driver and build do not fit, or CUDA_VISIBLE_DEVICES hides it"
        )
    yield MachineFact(AREA, "torch is built for", built, "", "warning" if advice else "ok", advice, "torch.version")
    yield MachineFact(AREA, "GPUs that torch sees", gpus, basis="torch.cuda")
    copies = told.get("copies") or {}
    for name, speed in copies.items():
        yield MachineFact(AREA, f"copies from {name} memory", round(speed), "bytes/s", basis="64 MiB, ten times")
