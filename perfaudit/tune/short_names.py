"""Short names of candidates, for those who watch a race: a knob, and as many of its settings as tell one from the others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from perfaudit.knobs import knob
from perfaudit.measurements import Settings, settings_text

if TYPE_CHECKING:
    from perfaudit.tune.candidates import Candidate

PATCH = "patch"  # the one setting of a candidate that is a finding's patch: its rules


def short_names(candidates: Mapping[str, Candidate]) -> dict[str, str]:
    """By key of a candidate: "optimizer update=fused"; "fusion" where the knob's one patch is code; the rule of a finding."""
    return {key: _name(candidate, candidates) for key, candidate in candidates.items()}


def short_settings(settings: Settings, others: list[Settings]) -> str:
    """The first settings of these, as many as no other has all of: "num_workers=2". others: of the same knob.

    Settings that all of them share come only where nothing else is left to say.
    """
    set_ = {name: value for name, value in settings.items() if value is not None}
    own = {name: value for name, value in set_.items() if any(other.get(name) != value for other in others)} or set_
    said: list[str] = []
    for name, value in own.items():
        said.append(f"{name}={value}")
        others = [other for other in others if other.get(name) == value]
        if not others:
            break
    return " ".join(said)


def variant_name(settings: Settings) -> str:
    """What runs in a fresh process: "your code", "patched", the rule or key of one patch, or the settings of a knob."""
    if PATCH not in settings:
        return settings_text(settings) or "your code"
    patch = str(settings[PATCH])
    return {"none": "your code", "all": "patched"}.get(patch, patch)


def _name(candidate: Candidate, candidates: Mapping[str, Candidate]) -> str:
    others = [c for c in candidates.values() if c.knob == candidate.knob and c.key != candidate.key]
    if PATCH in candidate.settings:
        is_of_one_file = all(other.settings != candidate.settings for other in others)
        return str(candidate.settings[PATCH]) if is_of_one_file else candidate.key
    if not others and knob(candidate.knob).way == "code":
        return candidate.knob
    said = short_settings(candidate.settings, [other.settings for other in others])
    return said if candidate.knob in candidate.settings else f"{candidate.knob} {said}"
