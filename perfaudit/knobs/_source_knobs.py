"""Knobs whose settings are source texts: the user's code as written, and with the fixes of findings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from perfaudit.errors import TargetError
from perfaudit.knobs import Bench, Knob, Setup, Survey, Told, Way
from perfaudit.knobs._code import Code, Patch
from perfaudit.measurements import Settings

SHOWN = 3  # places or files in one sentence


class Rewritten(Knob):
    """A knob whose settings are source texts: the user's own, and that with the fixes of `rules`.

    A subclass gives `column`, `after` (the setting with the fixes) and `sought` (what was looked for, in words).
    """

    way: Way = "code"
    phases: tuple[str, ...] = ("forward", "backward")
    is_measured_unpatched = False
    before = "as written"
    column: str
    after: str
    sought: str

    def not_applicable(self, survey: Survey) -> str:
        if survey.patchable(*self.rules):
            return ""
        places = by_hand(survey, self.rules)
        if places:
            return f"{places} must be changed by hand, so there is nothing to measure it against"
        return f"no {self.sought} was found in {_some(survey.facts.project_files or ['the target'])}"

    def current(self, survey: Survey) -> Settings:
        return {self.column: self.before}

    def candidates(self, bench: Bench) -> list[Settings]:
        return [{self.column: self.after}]

    def size(self, settings: Settings) -> int:
        return 0 if settings[self.column] == self.before else 1

    def setup(self, settings: Settings) -> Setup:
        """The user's code as it is; anything else exists as patched source only, and must not be measured without."""
        return Setup() if settings[self.column] == self.before else Setup(applied=_refuse)

    def no_line(self, survey: Survey) -> str:
        places = by_hand(survey, self.rules)
        return f"{places} must be changed by hand" if places else ""

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        return code.fixes(self.rules) if settings[self.column] == self.after else None

    def holds(self, survey: Survey, settings: Settings) -> bool:
        """True: a child runs exactly the patched text, or fails; what it built says nothing about how it is written."""
        return True

    def remarks(self, told: Told) -> list[str]:
        places = by_hand(told.survey, self.rules)
        return [f"{places} must be changed by hand and was measured as it is"] if places else []


@contextlib.contextmanager
def _refuse(training: Any) -> Iterator[None]:
    raise TargetError("its fix could not be written into your source, so it was not measured")
    yield  # makes it a context manager


def by_hand(survey: Survey, rules: tuple[str, ...]) -> str:
    """The findings of these rules that have no patch: "PA203 at model.py:90"; "" without any."""
    return " and ".join(f"{rule} at {_some(places)}" for rule in rules if (places := survey.by_hand(rule)))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
