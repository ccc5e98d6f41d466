"""How and when an exponential moving average of the weights is kept: what each way adds to a step."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from perfaudit.knobs import Bench, Knob, Setup, Survey, Told, Way
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._source_knobs import by_hand
from perfaudit.measurements import Settings
from perfaudit.target.accelerator import accelerator_of
from perfaudit.target.phases import HOST

DECAY = 0.999
NONE: Settings = {"average": "none", "when": "-"}
YOURS: Settings = {"average": "yours", "when": "after step"}
PATCHED: Settings = {"average": "yours, patched", "when": "after step"}
SIMPLEST: Settings = {"average": "foreach_lerp", "when": "after step"}

WAYS = (
    "mul_add_per_parameter",
    "lerp_per_parameter",
    "foreach_lerp",
    "averaged_model_avg_fn",
    "averaged_model_multi",
)
SIDE_STREAM = "foreach_lerp on a side stream"  # CUDA only


class Ema(Knob):
    name = "ema"
    title = "where and how the moving average of the weights is kept"
    tries = "Try other ways to keep a moving average of the weights."
    usual_gain = 0.5
    way = "setting"
    rules = ("PA404",)
    phases = ("average",)  # a few percent of a step: timed inside the step, it does not drown in the rest of it
    reference = NONE  # what a step takes without any average

    def not_applicable(self, survey: Survey) -> str:
        if not survey.facts.is_script or survey.patchable("PA404"):
            return ""
        places = by_hand(survey, self.rules)
        if places:
            return f"{places} must be changed by hand, so there is nothing to measure it against"
        return "of a script, an average that is updated parameter by parameter (PA404) is all that it patches, and none was found"

    def way_on(self, survey: Survey, settings: Settings) -> Way:
        return "code" if survey.facts.is_script else self.way

    def phases_on(self, survey: Survey, settings: Settings) -> tuple[str, ...]:
        return () if survey.facts.is_script else self.phases_for(settings)

    def share(self, survey: Survey) -> float:
        """Without an average of theirs there is nothing to gain; asked for by name, the ways are compared all the same."""
        if survey.facts.is_script:  # an update by hand is no phase of its steps
            return 1.0
        return super().share(survey) if survey.facts.has_ema else 0.0

    def idle_words(self, survey: Survey) -> str:
        if survey.facts.has_ema:
            return ""
        return "your target keeps no average (no build_ema); --ema compares ways to keep one"

    def current(self, survey: Survey) -> Settings:
        """The user's own `build_ema`, or no average: a saving is only told against what the user has."""
        return YOURS if survey.facts.has_ema or survey.facts.is_script else NONE

    def candidates(self, bench: Bench) -> list[Settings]:
        if bench.survey.facts.is_script:
            return [PATCHED]
        now = self.current(bench.survey)
        ways: list[Settings] = [{"average": way, "when": "after step"} for way in WAYS]
        early: list[Settings] = [
            {"average": way, "when": "before step"} for way in ("mul_add_per_parameter", "foreach_lerp")
        ]
        if bench.survey.facts.device.type == "cuda":
            ways.append({"average": SIDE_STREAM, "when": "after step"})
        patched: list[Settings] = []
        if bench.survey.facts.has_ema and bench.survey.patchable("PA404"):
            patched = [PATCHED]
        return [settings for settings in [NONE, *patched, *ways, *early] if settings != now]

    def phases_for(self, settings: Settings) -> tuple[str, ...]:
        """What runs on another stream is not seen by events on the step's own: only the whole step tells."""
        return () if settings["average"] == SIDE_STREAM else self.phases

    def size(self, settings: Settings) -> int:
        """The user's own lines, patched, before anything to be written anew; after the step before one step late."""
        if settings["average"] == "yours, patched":
            return -1
        return 0 if settings["when"] == "after step" else 1

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: _apply(training, settings))

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        return code.fixes(self.rules) if settings["average"] == "yours, patched" else None

    def holds(self, survey: Survey, settings: Settings) -> bool:
        return survey.facts.has_ema or survey.facts.is_script

    def is_checked(self, settings: Settings) -> bool:
        return False  # another average stands in for the user's, whose values are not comparable

    def words(self, settings: Settings, survey: Survey) -> str:
        how = {
            "mul_add_per_parameter": "average.mul_(decay).add_(parameter, alpha=1 - decay) for each parameter",
            "lerp_per_parameter": "average.lerp_(parameter, 1 - decay) for each parameter",
            "foreach_lerp": "torch._foreach_lerp_(averages, parameters, 1 - decay), two lists made once",
            "averaged_model_avg_fn": "torch.optim.swa_utils.AveragedModel(model, avg_fn=get_ema_avg_fn(decay))",
            "averaged_model_multi": "AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(decay))",
            SIDE_STREAM: "torch._foreach_lerp_ on a torch.cuda.Stream that waits for the step by an event, and that the next "
            "optimizer.step waits for by another, so that the host never waits",
            "yours": "your build_ema as it is",
            "yours, patched": "your own loop, patched",
        }[str(settings["average"])]
        late = (
            "" if settings["when"] == "after step" else ", called between backward and optimizer.step (one step late)"
        )
        return f"keep the average with {how}{late}"

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        place = built_at(survey.facts.ema_site)
        return f"change it by hand in the class of your average{place}" if place else ""

    def kept_words(self, told: Told) -> str:
        """For somebody who keeps no average: the cheapest way to begin."""
        if told.survey.facts.has_ema or told.survey.facts.is_script or not told.comparisons:
            return ""
        decisive = {
            _average_name(c.candidate): c for c in reversed(told.comparisons)
        }  # of the update, which comes first
        first, *others = sorted(decisive.values(), key=lambda c: (c.given_up, c.ratio))
        begin = "your target keeps no average (no build_ema)"
        alike = [c for c in others if c.low <= first.high and not c.given_up]
        if not alike:
            return f"{begin}; the cheapest way to keep one here: {self._how(first.candidate, told.survey)}"
        names = [_average_name(c.candidate) for c in [first, *alike]]
        simplest = SIMPLEST if _average_name(SIMPLEST) in names else first.candidate
        return (
            f"{begin}; no difference could be seen between {', '.join(names)}; simplest: {_average_name(simplest)}, "
            f"{self._how(simplest, told.survey)}"
        )

    def _how(self, settings: Settings, survey: Survey) -> str:
        return self.words(settings, survey).removeprefix("keep the average with ")

    def remarks(self, told: Told) -> list[str]:
        """What the host takes to launch each way, on devices where that is not the time of the update itself."""
        host = [
            (seconds, f"{t.settings['average']} {t.settings['when']}: {1e6 * seconds:,.0f} µs")
            for t in told.trials
            if (seconds := told.seconds_in(t.settings, "average" + HOST)) is not None
        ]
        return [f"the host's own time for the update: {', '.join(text for _, text in sorted(host))}"] if host else []

    def changes(self, settings: Settings) -> tuple[str, ...]:
        return ("rounding",) if settings["when"] == "after step" else ("algorithm",)


@dataclass(frozen=True, slots=True)
class Average:
    """An average of a model's parameters that is kept up by calling `update`; `tensors` gives what it holds."""

    update: Callable[[], None]
    tensors: Callable[[], list[Any]]


@contextlib.contextmanager
def _apply(training: Any, settings: Settings) -> Iterator[None]:
    way = str(settings["average"])
    with contextlib.ExitStack() as at_end:
        if not training.is_script:
            at_end.callback(training.keep_average, *training.average_kept)
        if way == "none":
            training.keep_average(None)
        elif way == SIDE_STREAM:
            update, hook = _on_side_stream(training)
            at_end.callback(hook.remove)
            training.keep_average(update)
        elif not way.startswith("yours"):
            training.keep_average(average_of(way, training.model).update, settings["when"] == "before step")
        yield


def _average_name(settings: Settings) -> str:
    late = "" if settings["when"] == "after step" else f" {settings['when']}"
    return f"{settings['average']}{late}"


def average_of(way: str, model: Any) -> Average:
    """An average of the model's parameters, kept in one of WAYS.

    average ← decay · average + (1 - decay) · parameter, for floating-point parameters; without gradients.
    """
    import copy

    import torch
    from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn, get_ema_multi_avg_fn

    if way.startswith("averaged_model"):
        function = (
            {"avg_fn": get_ema_avg_fn(DECAY)}
            if way.endswith("avg_fn")
            else {"multi_avg_fn": get_ema_multi_avg_fn(DECAY)}
        )
        averaged = AveragedModel(model, **function)
        return Average(lambda: averaged.update_parameters(model), lambda: list(averaged.module.parameters()))

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

    update = {"mul_add_per_parameter": mul_add, "lerp_per_parameter": lerp, "foreach_lerp": foreach_lerp}[way]
    return Average(update, lambda: kept)


def _on_side_stream(training: Any) -> tuple[Callable[[], None], Any]:
    """`foreach_lerp` beside the next forward and backward pass, and the handle of the hook by which the optimizer waits for
    it; order is kept by events, never by waiting on the host."""
    update, wait_for_it = accelerator_of(training.device).beside(average_of("foreach_lerp", training.model).update)
    # The next update writes the parameters that the average still reads.
    return update, training.optimizer.register_step_pre_hook(lambda *_: wait_for_it())


KNOB = Ema()
