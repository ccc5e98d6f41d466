"""The layout of a convolutional model: channels behind the pixels (channels_last), or before them."""

from __future__ import annotations

import contextlib

from perfaudit.knobs import Bench, Knob, Setup, Survey
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._script_code import NO_NAME, about_models
from perfaudit.measurements import Settings
from perfaudit.training.tensor_layout import copies_for_views, memory_format

_FORMATS = {"channels_last": "channels_last", "contiguous": "contiguous_format"}  # names in torch


class MemoryFormat(Knob):
    """Only the model is converted: a convolution whose weight is in channels_last gives its output so, whatever its input.

    The inputs of a batch then cost one conversion, in the first layer. Stated in the documentation of
    `torch.nn.utils.convert_conv2d_weight_memory_format`.
    """

    name = "memory_format"
    title = "channels_last or contiguous weights of 2d convolutions"
    tries = "Try channels_last weights of 2d convolutions."
    way = "setting"
    rules = ("PA211",)
    changes_always = ("rounding",)

    def not_applicable(self, survey: Survey) -> str:
        model = survey.facts.model
        if not model.planes:
            return "the model has no 2d convolution"
        if not model.kernels:
            return "all 2d convolutions have 1 x 1 kernels or one input channel, whose weights are the same in both layouts"
        return ""

    def current(self, survey: Survey) -> Settings:
        return {"memory_format": "channels_last" if survey.facts.model.channels_last else "contiguous"}

    def candidates(self, bench: Bench) -> list[Settings]:
        now = self.current(bench.survey)["memory_format"]
        return [{"memory_format": name} for name in _FORMATS if name != now]

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: memory_format(training, _FORMATS[str(settings["memory_format"])]))

    def tried_within(self) -> contextlib.AbstractContextManager[None]:
        """Where the model's `view` does not take the layout, the step goes on with a copy, and the script with it."""
        return copies_for_views()

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """The model converted where it is built. The way back is to take a conversion out, which may stand anywhere.

        In a script behind what initialises it: numbers are drawn in the order in which they lie in memory.
        """
        from perfaudit.static import edit
        from perfaudit.static.rewrite import wrap_returned

        if settings["memory_format"] != "channels_last":
            return None
        if code.survey.facts.is_script:
            return about_models(code, "{}.to(memory_format={torch})", "torch.channels_last", initialised=True)
        found = code.factory("model")
        if found is None:
            return None
        source, function = found
        name, imported = edit.name_for(source, "torch.channels_last")
        edits = wrap_returned(source, function, "", f".to(memory_format={name})")
        return code.patch(source, function, (*imported, *edits)) if edits else None

    def no_line(self, survey: Survey) -> str:
        return NO_NAME if survey.facts.is_script else ""

    def words(self, settings: Settings, survey: Survey) -> str:
        name = _FORMATS[str(settings["memory_format"])]
        return f"keep the model in another layout: model.to(memory_format=torch.{name}); its inputs need no conversion"


KNOB = MemoryFormat()
