"""The search of one knob as far as it has come, and settings of a knob as something to measure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from perfaudit.findings import Fix, Location
from perfaudit.knobs import Survey, knob
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measurements import Settings
from perfaudit.tune.raced import Raced
from perfaudit.tune.workshop import Json


@dataclass(slots=True)
class Bout:
    """The state of one knob's search; it grows while measuring, so that an interruption can still report it.

    share: of the step, as it was when the search began, in which settings are compared: without loading, for most knobs.
    """

    name: str
    survey: Survey
    base: Variant
    share: float = 1.0
    alone: bool = False  # the training computed in one thread of its own process when the search began
    ledger: Ledger = field(default_factory=Ledger)
    variants: dict[str, Variant] = field(default_factory=dict)  # in the order tried
    patched: dict[str, tuple[Fix, Location]] = field(default_factory=dict)  # by key of a finalist
    peaks: dict[str, int] = field(default_factory=dict)
    kept: Json = field(default_factory=dict)  # what the knob wants to find again
    finalists: list[Variant] = field(default_factory=list)
    look: Raced | None = None  # the race in one training that chose the finalists, where there was one


def variant_of(name: str, settings: Settings) -> Variant:
    """A setting of a knob as something to measure."""
    module = knob(name)
    least = module.least_steps(settings)
    return Variant(
        key_of(name, settings),
        name,
        settings,
        applied=module.found_at,
        fixed_batch=module.fixed_batch,
        least_steps=least,
    )


def key_of(name: str, settings: Settings) -> str:
    """The name under which a ledger keeps a setting of a knob."""
    return f"{name} {json.dumps(settings, sort_keys=True)}"
