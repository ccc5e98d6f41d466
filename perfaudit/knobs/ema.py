"""How and when an exponential moving average of the weights is kept: what each way adds to a step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perfaudit.knobs import Bench, Facts, Setup
from perfaudit.measurements import Settings

TITLE = "where and how the moving average of the weights is kept"
METRIC = "seconds_per_step"
MIN_GAIN = 0.01
RULES = ("PA404",)
REFERENCE: Settings = {"average": "none", "when": "-"}  # what a step takes without any average
DECAY = 0.999
OF_PIECE = True  # the update is a few percent of a step: timed inside the step, it does not drown in the rest of it
SCREENING_ROUNDS = 6  # every way gets an interval of what it adds, not only the fastest

WAYS = (
    "mul_add_per_parameter",
    "lerp_per_parameter",
    "foreach_lerp",
    "averaged_model_avg_fn",
    "averaged_model_multi",
)


def not_applicable(facts: Facts) -> str:
    return ""


def current(facts: Facts) -> Settings:
    """The user's own `build_ema`, or no average: a saving is only told against what the user has."""
    return {"average": "yours", "when": "after step"} if facts["has_ema"] else REFERENCE


def candidates(bench: Bench) -> list[Settings]:
    now = current(bench.facts)
    ways: list[Settings] = [{"average": way, "when": "after step"} for way in WAYS]
    early: list[Settings] = [
        {"average": way, "when": "before step"} for way in ("mul_add_per_parameter", "foreach_lerp")
    ]
    return [settings for settings in [REFERENCE, *ways, *early] if settings != now]


def refine(bench: Bench, best: Settings) -> list[Settings]:
    return []


def size(settings: Settings) -> int:
    """The user's own lines, patched, before anything to be written anew; after the step before one step late."""
    if settings["average"] == "yours, patched":
        return -1
    return 0 if settings["when"] == "after step" else 1


def setup(settings: Settings) -> Setup:
    return Setup(apply=lambda training: _apply(training, settings), fixed_batch=True)


def _apply(training: Any, settings: Settings) -> None:
    way = str(settings["average"])
    if way == "none":
        training.ema = None
    elif not way.startswith("yours"):
        training.keep_average(updater(way, training.model), settings["when"] == "before step")


def updater(way: str, model: Any) -> Callable[[], None]:
    """A function that brings an average of the model's parameters one step forward, kept in one of WAYS.

    average ← decay · average + (1 - decay) · parameter, for floating-point parameters; without gradients.
    """
    import copy

    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

    if way == "averaged_model_avg_fn":
        averaged = AveragedModel(model, avg_fn=get_ema_avg_fn(DECAY))
        return lambda: averaged.update_parameters(model)
    if way == "averaged_model_multi":
        averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(DECAY))
        return lambda: averaged.update_parameters(model)

    mine = [p for p in model.parameters() if p.is_floating_point()]
    kept = [p.detach() for p in copy.deepcopy(model).parameters() if p.is_floating_point()]

    @torch.no_grad()
    def mul_add() -> None:
        for average, parameter in zip(kept, mine, strict=True):
            average.mul_(DECAY).add_(parameter, alpha=1 - DECAY)

    @torch.no_grad()
    def lerp() -> None:
        for average, parameter in zip(kept, mine, strict=True):
            average.lerp_(parameter, 1 - DECAY)

    @torch.no_grad()
    def foreach_lerp() -> None:
        torch._foreach_lerp_(kept, mine, 1 - DECAY)

    return {"mul_add_per_parameter": mul_add, "lerp_per_parameter": lerp, "foreach_lerp": foreach_lerp}[way]


def words(settings: Settings, facts: Facts) -> str:
    how = {
        "mul_add_per_parameter": "average.mul_(decay).add_(parameter, alpha=1 - decay) for each parameter",
        "lerp_per_parameter": "average.lerp_(parameter, 1 - decay) for each parameter",
        "foreach_lerp": "torch._foreach_lerp_(averages, parameters, 1 - decay), two lists made once",
        "averaged_model_avg_fn": "torch.optim.swa_utils.AveragedModel(model, avg_fn=get_ema_avg_fn(decay))",
        "averaged_model_multi": "AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))",
        "yours": "your build_ema as it is",
        "yours, patched": "your own loop, patched",
    }[str(settings["average"])]
    late = "" if settings["when"] == "after step" else ", called between backward and optimizer.step (one step late)"
    return f"keep the average with {how}{late}"


def without(facts: Facts, best: Settings) -> str:
    """What to say to somebody who keeps no average: the cheapest way to begin; "" for those who keep one."""
    if facts["has_ema"]:
        return ""
    how = words(best, facts).removeprefix("keep the average with ")
    return f"your target keeps no average (no build_ema); the cheapest way to keep one here: {how}"


def patched(settings: Settings) -> Settings:
    """The setting that stands for the user's own code with the fixes of RULES."""
    return {"average": "yours, patched", "when": "after step"}


def changes() -> tuple[str, ...]:
    return ("rounding",)
