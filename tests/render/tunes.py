"""A search over several knobs, for the tests that compare its whole text."""

from __future__ import annotations

from typing import Any

from perfaudit.findings import Expected, Fix, Location, Saving
from perfaudit.measurements import Calibration, Comparison, Environment, NotApplicable, Settings, Trial, Winner
from perfaudit.report import Report

DIFF = "--- a/t.py\n+++ b/t.py\n@@ -5 +5 @@\n-loader = DataLoader(ds)\n+loader = DataLoader(ds, num_workers=2)\n"
MACHINE = Environment(
    "NVIDIA H200", "3.11.7", "Linux", 2, 3 << 29, torch="2.13.0", driver="driver 570.1", threads=1, load=1.6
)
PHASES = {"loading": 0.0199, "zero_grad": 0.0001, "forward": 0.005, "backward": 0.0145, "optimizer": 0.0005}


def trial(knob: str, settings: Settings, middle: float, **more: Any) -> Trial:
    return Trial(knob, settings, "ok", median=middle, low=0.9 * middle, high=1.2 * middle, n=5, **more)


TRIALS = (
    trial("dataloader", {"num_workers": 0, "pin_memory": False, "timeout": 0}, 0.04, peak_memory_bytes=3 << 20),
    trial("dataloader", {"num_workers": 2, "pin_memory": False, "timeout": 0}, 0.03),
    Trial(
        "dataloader",
        {"num_workers": 2, "pin_memory": True, "timeout": 0, "prefetch_factor": None},
        "failed",
        reason="no device to pin for",
        peak_memory_bytes=1023,
    ),
    Trial("dataloader", {"num_workers": 4, "pin_memory": True, "timeout": 0}, "not_measured", reason="too slow"),
    trial("batch_size", {"batch_size": 8}, 1234.5, metric="samples_per_second"),
    trial("batch_size", {"batch_size": 16}, 2000.4, metric="samples_per_second", peak_memory_bytes=2048),
    trial("ema", {"ema": "python loop"}, 0.05, added_seconds=(0.01, 0.008, 0.0125)),
    trial("ema", {"ema": "foreach"}, 0.041, added_seconds=(-0.0005, None, 0.001), peak_memory_bytes=5 << 30),
    trial("ema", {"ema": None}, 0.0405, peak_memory_bytes=1 << 20),
    trial("cudnn", {"benchmark": False}, 0.04),
    trial("patch", {"patch": "PA601"}, 0.04),
)
NOW: Settings = {"num_workers": 0, "pin_memory": False, "timeout": 0}
COMPARISONS = (
    Comparison("dataloader", NOW, {**NOW, "num_workers": 2}, 0.7512, 0.7204, 0.7816, "faster", 12),
    Comparison("dataloader", NOW, {**NOW, "num_workers": 8}, 0.9, 0.85, 1.02, "undecided", 1, "cpu", smallest=0.0512),
    Comparison("dataloader", NOW, {**NOW, "num_workers": 9}, 1.31, 0, float("inf"), "slower", 3, given_up=True),
    Comparison("batch_size", {"batch_size": 8}, {"batch_size": 16}, 0.6, 0.5, 0.7, "faster", 8, without_loading=True),
    Comparison("ema", {"ema": "a"}, {"ema": "b"}, 1.1, 1.05, 1.15, "slower", 8, of="optimizer+zero_grad"),
    Comparison("ema", {"ema": "a"}, {"ema": "c"}, 1.0, 0.9, 1.15, "undecided", 8, of="optimizer"),
    Comparison("patch", {}, {"patch": "PA601", "path": "t.py"}, 0.9, 0.85, 0.95, "faster", 9, smallest=0.02),
    Comparison("patch", {}, {"patch": "all of them"}, 0.8, 0.75, 0.85, "faster", 9),
)
LOADER = Winner(
    "dataloader",
    {"num_workers": 2, "pin_memory": False},
    False,
    "load with 2 workers",
    Saving("measured", 0.2184, 0.2796, 0.00995, expected=Expected("documented", 0.0, 0.2)),
    Fix("x", "unsafe", ("order", "rng"), diff=DIFF),
    Location("t.py", 5, 10, 5, 24),
    "5 steps agree",
    ("each worker holds a copy of the dataset",),
)
BATCHES = Winner(
    "batch_size", {"batch_size": 16}, False, "use batches of 16", Saving("measured", 0.3, 0.5, clock="cpu")
)
AVERAGE = Winner("ema", {"ema": "a"}, True, "keep what you have", remarks=("nothing was faster",))
SAFE = Winner(
    "cudnn",
    {"benchmark": True},
    False,
    "search algorithms",
    Saving("measured", 0.01, 0.02, 0.0005),
    Fix("y", "safe", diff="--- a/t.py\n+++ b/t.py\n@@ -1 +1,2 @@\n import torch\n\n+search()\n"),
    Location("t.py", 1, 1, 1, 2),
)
HANDED = Winner(
    "compile", {"mode": "default"}, False, "compile it", Saving("measured", 0.1, 0.2), handed_over="write it by hand"
)
TUNE = Report(
    "tune",
    target="t.py",
    environment=MACHINE,
    calibration=Calibration(0.04, 1.0, 0.0213, 0.9834, 4, True, PHASES),
    trials=TRIALS,
    comparisons=COMPARISONS,
    winners=(LOADER, BATCHES, SAFE, HANDED, AVERAGE),
    not_applicable=(
        NotApplicable("threads", "the step runs on the device"),
        NotApplicable("precision", "there is no time"),
        NotApplicable("affinity", "the step runs on the device"),
    ),
    notes=("a note",),
)
