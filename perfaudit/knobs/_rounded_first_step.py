"""No knob of a user's: a training that is built, and makes its first step, as a coarser type would compute it.

A script's first step is made while it is built, and cannot be made again in its process. So what a type does to its gradients is
seen in processes of their own.
"""

from __future__ import annotations

from perfaudit.knobs import Setup
from perfaudit.measure.ledger import Variant
from perfaudit.measure.rounding import rounded_from_torch_on
from perfaudit.measurements import Settings


class Rounded:
    """What a child asks of a knob when it builds a training."""

    name = "rounded"

    def setup(self, settings: Settings) -> Setup:
        """Settings: the type, and the draw of its roundings."""
        kind, draw = str(settings["type"]), int(str(settings["draw"]))
        return Setup(while_built=lambda: rounded_from_torch_on(kind, draw))


def rounded_variant(kind: str, draw: int) -> Variant:
    """The user's code as it is, whose first step rounds to a type in one of many ways."""
    key = f"rounded {kind} {draw}"
    return Variant(key, "", {"type": kind, "draw": draw}, {}, f"{__name__}:KNOB")


KNOB = Rounded()
