"""No knob of a user's: a script whose first step begins with parameters that are moved, or computes in doubles.

That step is made while the script is built, so both are asked for then: see `training.script_start.Start`.
"""

from __future__ import annotations

from dataclasses import replace

from perfaudit.knobs import Setup
from perfaudit.measure.ledger import Variant
from perfaudit.measurements import Settings


class ScriptStart:
    """What a child asks of a knob when it builds a training."""

    name = "script start"

    def setup(self, settings: Settings) -> Setup:
        """Settings: whether to compute in doubles, and the share by which parameters are moved."""
        return Setup(start={"doubles": bool(settings["doubles"]), "nudge": float(str(settings["nudge"]))})


def started(variant: Variant, nudge: float = 0.0, doubles: bool = False) -> Variant:
    """The same text with such a first step."""
    return replace(variant, knob="", settings={"doubles": doubles, "nudge": nudge}, applied=f"{__name__}:KNOB")


KNOB = ScriptStart()
