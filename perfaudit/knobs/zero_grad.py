"""Gradients before the next backward pass: dropped (set_to_none=True, torch's default), or filled with zeros."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from perfaudit.knobs import Bench, Knob, Refused, Setup, Survey, Told, Way
from perfaudit.knobs._code import Code, Patch
from perfaudit.measurements import Settings


class ZeroGrad(Knob):
    """With factories the step that is measured zeroes gradients itself; the user's line stands in a loop that is not run.

    So there is no patch to race: patched or not, that line would have no effect here. The finding's own fix writes it. A script
    runs its own line, and that fix is raced.
    """

    name = "zero_grad"
    title = "gradients dropped or filled with zeros before backward"
    tries = "Try dropping gradients instead of filling them with zeros."
    usual_gain = 0.1
    way = "setting"
    rules = ("PA401",)
    phases = ("zero_grad", "backward")  # zeros are written in the one and read again in the other
    base_is_applied = True

    def not_applicable(self, survey: Survey) -> str:
        return "" if survey.places("PA401") else "gradients are dropped already (the default of zero_grad)"

    def current(self, survey: Survey) -> Settings:
        return {"set_to_none": not survey.places("PA401")}

    def share(self, survey: Survey) -> float:
        return 1.0 if survey.facts.is_script else super().share(survey)

    def phases_on(self, survey: Survey, settings: Settings) -> tuple[str, ...]:
        """On a script all of the step: zeros are written between its phases."""
        return () if survey.facts.is_script else self.phases

    def way_on(self, survey: Survey, settings: Settings) -> Way:
        return "code" if survey.facts.is_script else self.way

    def candidates(self, bench: Bench) -> list[Settings]:
        if bench.survey.facts.is_script and not bench.survey.patchable("PA401"):
            raise Refused(f"no patch is known for {', '.join(bench.survey.places('PA401'))}")
        return [{"set_to_none": True}]

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        """On a script the fixes of the findings; see the class for other trainings."""
        return code.fixes(self.rules) if code.survey.facts.is_script and settings["set_to_none"] else None

    def holds(self, survey: Survey, settings: Settings) -> bool:
        """Not to be seen in what a script has built."""
        return True

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: _apply(training, bool(settings["set_to_none"])))

    def words(self, settings: Settings, survey: Survey) -> str:
        if not settings["set_to_none"]:
            return "fill gradients with zeros"
        return f"drop gradients instead of filling them with zeros, in {', '.join(survey.places('PA401'))}"

    def handed_over(self, settings: Settings, survey: Survey) -> str:
        """Where the patch is to be had: the finding's own fix; "" where it has none."""
        if survey.facts.is_script or not survey.patchable("PA401"):
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
def _apply(training: Any, to_none: bool) -> Iterator[None]:
    if training.is_script:  # its own line says so
        yield
        return
    before, training.set_to_none = training.set_to_none, to_none
    try:
        yield
    finally:
        training.set_to_none = before


KNOB = ZeroGrad()
