"""The search of one knob as far as it has come, and its settings as something to measure: applied, or as patched source."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from perfaudit.findings import Fix, Location
from perfaudit.knobs import Prediction, Survey, knob
from perfaudit.knobs._code import Code, Patch
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.stats import LOOKS, Look
from perfaudit.measurements import Calibration, Settings
from perfaudit.static.document import handed_over
from perfaudit.tune.race_results import Raced
from perfaudit.tune.session import Session
from perfaudit.tune.workshop import Json

Patched = tuple[Variant, Fix, Location]  # a setting as patched source, the fix, and where it stands


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
    prediction: Prediction | None = None  # of the knob, in the place of a first look
    finalists: list[Variant] = field(default_factory=list)
    refuted: list[Variant] = field(default_factory=list)  # what was predicted and raced, and is not the one to take
    look: Raced | None = None  # the race in one training that chose the finalists, where there was one
    calibration: Calibration | None = None  # that race's
    looks: tuple[Look, ...] = LOOKS  # at the race of the finalists
    refuted_looks: tuple[Look, ...] = LOOKS  # at the race before it


def variant_of(name: str, settings: Settings) -> Variant:
    """A setting of a knob as something to measure."""
    module = knob(name)
    fixed, least, untimed = module.fixed_batch, module.least_steps(settings), 1 + module.batches_ready(settings)
    key = key_of(name, settings)
    return Variant(key, name, settings, {}, module.found_at, fixed, least, module.counts_tokens, untimed)


def patch_for(session: Session, bout: Bout, variant: Variant) -> Patched | None:
    """A setting as patched source, with what its search has found out; None where none can be written."""
    written = fix_for(session, bout.name, bout.survey, variant.settings, bout.kept)
    if written is None:
        return None
    patch, fix = written
    return replace(variant, overlay={patch.path: patch.after}, applied=""), fix, patch.location


def fix_for(session: Session, name: str, survey: Survey, settings: Settings, kept: Json) -> tuple[Patch, Fix] | None:
    """The patch that makes this the setting, and the same as a fix with its title; None where none can be written.

    kept: what the knob has found out of this program.
    """
    module = knob(name)
    patch = module.patch(Code(session.target.file, survey), settings)
    if patch is None:
        return None
    changes = patch.changes if patch.changes is not None else module.changes_found(settings, survey, kept)
    words = module.words(settings, survey)
    fix = Fix(words, "unsafe" if changes else "safe", changes, patch.edits, patch.diff)
    return patch, handed_over(patch.path, patch.before, fix)


def key_of(name: str, settings: Settings) -> str:
    """The name under which a ledger keeps a setting of a knob."""
    return f"{name} {json.dumps(settings, sort_keys=True)}"
