"""cuDNN's benchmark mode: let it time its algorithms for each input shape once, or take its guess."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from perfaudit.knobs import Bench, Knob, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._trainers import (
    added_by_hand,
    arguments_of_trainer,
    by_options,
    no_call_of_trainer,
    patch_trainer,
    words_of_trainer,
)
from perfaudit.measurements import Settings
from perfaudit.target.flags import flags_set

SIZES = 8  # different sizes; each new one costs the same search, so that a handful tells
COSTS = 1.1  # times as long; a handful of passes tells no less
WARM_UP = 2  # passes before them, which load the library and its kernels


class Cudnn(Knob):
    name = "cudnn"
    title = "torch.backends.cudnn.benchmark off and on"
    tries = "Try torch.backends.cudnn.benchmark."
    way = "setting"
    rules = ("PA301",)
    phases = ("forward", "backward")
    changes_always = ("rounding",)

    def not_applicable(self, survey: Survey) -> str:
        if survey.facts.device.type != "cuda":
            return f"cuDNN runs on CUDA devices, and this training runs on {survey.facts.device.type}"
        if not survey.facts.model.convolutions:
            return "the model has no convolution"
        return ""

    def current(self, survey: Survey) -> Settings:
        return {"benchmark": bool(survey.facts.flags["cudnn.benchmark"])}

    def candidates(self, bench: Bench) -> list[Settings]:
        """The other one; and what sizes that change on each step cost, which the user's own batches may not show."""
        now = self.current(bench.survey)
        try:
            bench.kept["changing"] = bench.ask(now, "changing_shapes")
        except Unanswered as failure:
            bench.kept["not asked"] = str(failure)
        return [{"benchmark": not now["benchmark"]}]

    def answer_changing_shapes(self, training: Any, clock: Callable[[], float] = time.perf_counter) -> Reply:
        """Seconds of one pass through the model's convolutions: of one size, and of a size never seen before, off and on.

        Each convolution runs alone, forward and backward, on inputs of the shapes that a batch has there; the pixels along
        the last side grow from pass to pass. cuDNN's choice is kept by shape, also the one made without a search, so "off"
        and "on" get sizes of their own.
        """
        inputs = _inputs_of_convolutions(training)
        sizes = {"fixed": [0] * SIZES, "off": [*range(1, 2 * SIZES, 2)], "on": [*range(2, 2 * SIZES + 1, 2)]}
        reply: Reply = {"convolutions": len(inputs), "sizes": SIZES}
        for name, growth in sizes.items():
            with flags_set({"cudnn.benchmark": name != "off"}):
                seconds = [_seconds_of_pass(training, inputs, more, clock) for more in [0] * WARM_UP + growth]
            reply[name] = statistics.median(seconds[WARM_UP:])
        return reply

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: flags_set({"cudnn.benchmark": bool(settings["benchmark"])}))

    def by_hand(self, survey: Survey) -> str:
        other = repr(not self.current(survey)["benchmark"])
        return by_options(survey, *arguments_of_trainer(survey, self.name, other))

    def no_line(self, survey: Survey) -> str:
        return no_call_of_trainer(survey, self.name, repr(not self.current(survey)["benchmark"]))

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        return added_by_hand(survey, *arguments_of_trainer(survey, self.name, repr(bool(settings["benchmark"]))))

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        from perfaudit.static.process_settings import set_or_replace_attribute

        value = repr(bool(settings["benchmark"]))
        if arguments_of_trainer(code.survey, self.name, value):
            return patch_trainer(code, self.name, value)
        source = code.entry()
        if source is None:
            return None
        return code.patch(source, None, set_or_replace_attribute(source, "torch.backends.cudnn.benchmark", value))

    def remarks(self, told: Told) -> list[str]:
        """What sizes that change on each step would cost; nothing where that could not be timed."""
        found = told.kept.get("changing")
        if not found or not found["off"]:
            return []
        ratio = found["on"] / found["off"]
        what = f"a pass through the {found['convolutions']} convolutions on sizes never seen before"
        if ratio < COSTS:
            return [f"{what} takes no longer with benchmark on"]
        return [
            f"with sizes that change on each step, benchmark costs: {what} takes {ratio:.1f} times as long with it on"
        ]

    def words(self, settings: Settings, survey: Survey) -> str:
        of_trainer = words_of_trainer(survey, self.name, repr(bool(settings["benchmark"])))
        how = of_trainer or f"set torch.backends.cudnn.benchmark = {settings['benchmark']} once before training"
        return f"{how}, as long as inputs keep their shapes" if settings["benchmark"] else how


def _inputs_of_convolutions(training: Any) -> list[tuple[Any, list[int]]]:
    """Each convolution of the model, with the shape that its input has in the loss of a batch."""
    import torch

    found: dict[Any, list[int]] = {}

    def keep(module: Any, inputs: tuple[Any, ...]) -> None:
        if inputs and isinstance(inputs[0], torch.Tensor):
            found.setdefault(module, list(inputs[0].shape))

    kind = torch.nn.modules.conv._ConvNd
    hooks = [m.register_forward_pre_hook(keep) for m in training.model.modules() if isinstance(m, kind)]
    try:
        training.loss(training.fixed_batch())
    finally:
        for hook in hooks:
            hook.remove()
    return list(found.items())


def _seconds_of_pass(
    training: Any, inputs: list[tuple[Any, list[int]]], more: int, clock: Callable[[], float]
) -> float:
    """Seconds that all convolutions take, forward and backward, on inputs whose last side is longer by `more`."""
    import torch

    seconds = 0.0
    for module, shape in inputs:
        larger = [*shape[:-1], shape[-1] + more]
        # In the weight's type: what autocast made of an input before it came here fits no layer that runs alone.
        batch = torch.randn(larger, device=training.device, dtype=module.weight.dtype, requires_grad=True)
        training.synchronize()
        started = clock()
        output = module(batch)
        torch.autograd.grad(output.sum(), [t for t in (batch, module.weight) if t.requires_grad])
        training.synchronize()
        seconds += clock() - started
    return seconds


KNOB = Cudnn()
