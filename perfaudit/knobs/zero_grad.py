"""Gradients before the next backward pass: dropped (set_to_none=True, torch's default), or filled with zeros."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.measurements import Settings


class ZeroGrad(Knob):
    """The step that is measured zeroes gradients itself; the user's line stands in a loop that is not run.

    So there is no patch to race: patched or not, that line would have no effect here. The finding's own fix writes it.
    """

    name = "zero_grad"
    on_scripts = False
    title = "gradients dropped or filled with zeros before backward"
    way = "setting"
    rules = ("PA401",)
    phases = ("zero_grad", "backward")  # zeros are written in the one and read again in the other
    base_is_applied = True

    def not_applicable(self, survey: Survey) -> str:
        return "" if survey.places("PA401") else "gradients are dropped already (the default of zero_grad)"

    def current(self, survey: Survey) -> Settings:
        return {"set_to_none": not survey.places("PA401")}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{"set_to_none": True}]

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: _applied(training, bool(settings["set_to_none"])))

    def words(self, settings: Settings, survey: Survey) -> str:
        if not settings["set_to_none"]:
            return "fill gradients with zeros"
        return f"drop gradients instead of filling them with zeros, in {', '.join(survey.places('PA401'))}"

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        """Where the patch is to be had: the finding's own fix; "" where it has none."""
        if not survey.patchable("PA401"):
            return ""
        files = dict.fromkeys(place.partition(":")[0] for place in survey.places("PA401"))
        command = f"perfaudit scan {' '.join(files)} --select PA401 --fix"
        return f"the line stands in a loop that perfaudit does not run: `{command}` writes it"

    def remarks(self, told: Told) -> list[str]:
        if told.winner is None:
            return []
        return [
            "a parameter that gets no gradient in some step is then left out of its update, where a zero would still decay it "
            "and move it by its momentum; where the code does not rule that out, the fix takes --unsafe-fixes as well"
        ]


@contextlib.contextmanager
def _applied(training: Any, to_none: bool) -> Iterator[None]:
    before, training.set_to_none = training.set_to_none, to_none
    try:
        yield
    finally:
        training.set_to_none = before


KNOB = ZeroGrad()
