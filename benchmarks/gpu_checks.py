"""What only hardware can show, in one call: prints a table and writes JSON.

    python benchmarks/gpu_checks.py --out gpu_checks.json              on a machine with a CUDA device and torch
    python benchmarks/gpu_checks.py --device cpu --seconds 20 --mib 256   the same code paths without one

Rows: whether a forked child can use the device and the process it was forked from holds none; two copies of identical code
side by side, for a short and a long step (meant to be about 2 and 100 ms; each row has what it took), with their ratio and the
scatter of single rounds; the gate's self-test at both, which fails where identical code is called slower; what the batch-size
search says with a budget of 5 % of the device's memory; a training that fills more than half of the device, which must be
measured one copy after the other. On a CPU the last one is skipped.
A row that fails tells why and the others go on; the exit code is 1 where one failed. Not part of the package: it runs
`perfaudit` as a user does, in a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Json = dict[str, Any]  # Any: nested JSON

TRAIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH, DEPTH, KEPT = {width}, {depth}, {kept}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(DEPTH)])
        self.register_buffer("kept", torch.zeros(KEPT, dtype=torch.uint8))

    def forward(self, x):
        return self.layers(x)


def build_model():
    return Net()


def build_dataloader():
    return DataLoader(TensorDataset(torch.randn(4096, WIDTH), torch.randn(4096, WIDTH)), batch_size={batch})


def build_optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=1e-3)
"""
SHORT, LONG = {"width": 256, "depth": 8, "batch": 64, "kept": 1}, {"width": 4096, "depth": 24, "batch": 1024, "kept": 1}
SMALL_LONG = {"width": 512, "depth": 16, "batch": 256, "kept": 1}  # of a CPU


def run(folder: Path, *arguments: str, timeout: float) -> Json:
    """The JSON report of a command of perfaudit in a folder. Raises RuntimeError with its last words where there is none."""
    command = [sys.executable, "-m", "perfaudit", *arguments, "--format", "json"]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout, env=here)
    try:
        report: Json = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]) from None
    return report


def forked(device: str) -> Json:
    """A child forked from the process that has torch imported makes a tensor on the device."""
    from perfaudit.measure import nursery
    from perfaudit.measure.child import Child
    from perfaudit.measure.lab import build_command
    from perfaudit.measure.ledger import Variant

    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "train.py").write_text(TRAIN.format(**SHORT))
        target = {"file": str(Path(name) / "train.py"), "names": {}}
        with Child() as child:
            facts = child.ask(build_command(target, Variant("plain", "", {}), device), 120.0)
            room = child.ask({"do": "room"}, 60.0)
    if refused := nursery.refusal():
        raise RuntimeError(refused)
    return {"device": facts["device"]["name"], "room": room}


def tuned(folder: Path, device: str, seconds: float, *more: str) -> Json:
    return run(
        folder, "tune", "train.py", "--device", device, "--budget", f"{seconds:.0f}s", *more, timeout=6 * seconds + 120
    )


def same_code(folder: Path, device: str, seconds: float) -> Json:
    """Two copies of identical code side by side, as a tuning begins."""
    seen = tuned(folder, device, seconds, "--batch-size")["calibration"]
    if seen is None:
        raise RuntimeError("no calibration")
    return {"seconds_per_step": seen["seconds_per_step"], "ratio": seen["ratio"], "scatter": seen["scatter"]}


def self_tested(folder: Path, device: str, seconds: float) -> Json:
    arguments = ("gate", "--self-test", "--runs", "1", "train.py", "--device", device, "--budget", f"{seconds:.0f}s")
    gate = run(folder, *arguments, timeout=6 * seconds + 240)["gate"]
    found: Json = {"verdict": gate["verdict"], "times": gate["times"], "notes": gate["notes"]}
    if gate["verdict"] == "inconclusive" and any(test["false_alarms"] for test in gate["self_tests"].values()):
        raise RuntimeError("identical code was called slower")
    return found


def searched(folder: Path, device: str, seconds: float, budget: int) -> Json:
    report = tuned(folder, device, seconds, "--batch-size", "--memory", f"{budget >> 20}MiB")
    remarks = [remark for winner in report["winners"] for remark in winner["remarks"]]
    return {"budget": budget, "said": [r for r in remarks if "memory limit" in r] or report["not_applicable"]}


def apart(folder: Path, device: str, seconds: float) -> Json:
    """A training that fills more than half of the device."""
    notes = tuned(folder, device, seconds, "--batch-size")["notes"]
    said = [note for note in notes if "one after the other" in note]
    if not said:
        raise RuntimeError(f"it was not measured one after the other; notes: {notes}")
    return {"said": said}


def rows(device: str, seconds: float, mib: int, top: Path) -> list[tuple[str, Callable[[], Json]]]:
    on_device = device != "cpu"
    folders = {}
    for name, settings in (("short", SHORT), ("long", LONG if on_device else SMALL_LONG)):
        folders[name] = top / name
        folders[name].mkdir()
        (folders[name] / "train.py").write_text(TRAIN.format(**settings))
    found: list[tuple[str, Callable[[], Json]]] = [("a forked child uses the device", lambda: forked(device))]
    for name, folder in folders.items():
        found.append((f"identical code, {name} steps", lambda folder=folder: same_code(folder, device, seconds)))  # type: ignore[misc]
        found.append((f"gate --self-test, {name} steps", lambda folder=folder: self_tested(folder, device, seconds)))  # type: ignore[misc]
    total = mib << 20
    if on_device:
        import torch

        total = torch.cuda.get_device_properties(device if ":" in device else 0).total_memory
    budget = int(0.05 * total) if on_device else total
    found.append(("batch size within 5 % of memory", lambda: searched(folders["short"], device, seconds, budget)))
    if on_device:
        large = top / "large"
        large.mkdir()
        (large / "train.py").write_text(TRAIN.format(**{**SHORT, "kept": int(0.55 * total)}))
        found.append(("more than half of the device", lambda: apart(large, device, seconds)))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=40.0, help="budget of each row")
    parser.add_argument("--mib", type=int, default=1024, help="memory budget of the batch search on a CPU")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    told: list[Json] = []
    with tempfile.TemporaryDirectory(prefix="gpu-checks-") as name:
        for title, check in rows(given.device, given.seconds, given.mib, Path(name)):
            began = time.monotonic()
            try:
                row: Json = {"row": title, "ok": True, **check()}
            except (RuntimeError, OSError, subprocess.TimeoutExpired, KeyError) as error:
                row = {"row": title, "ok": False, "why": f"{type(error).__name__}: {error}"}
            row["seconds"] = round(time.monotonic() - began, 1)
            told.append(row)
            rest = {key: value for key, value in row.items() if key not in ("row", "ok", "seconds")}
            print(
                f"{'ok  ' if row['ok'] else 'FAIL'} {title:<36} {row['seconds']:>6.1f} s  {json.dumps(rest)[:300]}",
                flush=True,
            )
    if given.out is not None:
        given.out.write_text(json.dumps({"device": given.device, "rows": told}, indent=1) + "\n")
    return int(not all(row["ok"] for row in told))


if __name__ == "__main__":
    sys.exit(main())
