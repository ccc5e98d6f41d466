"""cuDNN's benchmark mode: let it time its algorithms for each input shape once, or take its guess."""

from __future__ import annotations

from typing import Any

from perfaudit.knobs import Bench, Facts, Setup
from perfaudit.measurements import Settings

TITLE = "torch.backends.cudnn.benchmark off and on"
METRIC = "seconds_per_step"
MIN_GAIN = 0.01
RULES = ("PA301",)


def not_applicable(facts: Facts) -> str:
    if facts["device"] != "cuda":
        return f"cuDNN runs on CUDA devices, and this training runs on {facts['device']}"
    return ""


def current(facts: Facts) -> Settings:
    return {"benchmark": bool(facts.get("cudnn_benchmark", False))}


def candidates(bench: Bench) -> list[Settings]:
    return [{"benchmark": not current(bench.facts)["benchmark"]}]


def refine(bench: Bench, best: Settings) -> list[Settings]:
    return []


def size(settings: Settings) -> int:
    return int(bool(settings["benchmark"]))


def setup(settings: Settings) -> Setup:
    def apply(training: Any) -> None:  # Any: target.training.Training
        import torch

        torch.backends.cudnn.benchmark = bool(settings["benchmark"])

    return Setup(apply=apply, fixed_batch=True)


def words(settings: Settings, facts: Facts) -> str:
    return (
        f"set torch.backends.cudnn.benchmark = {settings['benchmark']} once before training; "
        "with inputs that change their shape every few steps it costs instead"
    )


def changes() -> tuple[str, ...]:
    return ("rounding",)
