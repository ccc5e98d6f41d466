"""Patches of knobs, screened in one running set of ranks: each is in place on all ranks for some steps, in turn with your code.

What is seen there chooses: what pays goes into the race of fresh sets as a patch, where its losses are compared, too. What an
argument of DistributedDataParallel sets is fixed when the model is wrapped, so that it is raced in fresh sets only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfaudit.findings import Fix
from perfaudit.knobs import Refused, Survey, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.facts import from_json
from perfaudit.measure.ledger import Variant
from perfaudit.measure.race import CONTROL
from perfaudit.measurements import Comparison, Settings
from perfaudit.static import edit
from perfaudit.static.document import handed_over
from perfaudit.tune import candidates as alone
from perfaudit.tune.learning import findings_in
from perfaudit.tune.loops import expect, expect_findings
from perfaudit.tune.raced import Raced, doubt_of, notes_of
from perfaudit.tune.ranks.patches import Candidate
from perfaudit.tune.screening import Screen
from perfaudit.tune.session import Session
from perfaudit.tune.short_names import short_settings

# What a running training can be given on all of its ranks, and that changes neither its parameters nor its batches.
KNOBS = ("optimizer", "zero_grad", "attention", "fusion", "anomaly", "cudnn")
LOOK_STEPS = 4  # for the shares of a step's phases


@dataclass(slots=True)
class Screened:
    """What a running set of ranks has shown. candidates: by their key in the race; now: of each, its knob's settings as they are.

    left: what was not raced, and why.
    """

    candidates: dict[str, alone.Candidate] = field(default_factory=dict)
    now: dict[str, Settings] = field(default_factory=dict)
    raced: Raced = field(default_factory=Raced)
    left: list[str] = field(default_factory=list)

    def names(self) -> dict[str, str]:
        """Of each candidate, short."""
        return {key: short_settings(each.settings, []) for key, each in self.candidates.items()}

    def comparisons(self) -> tuple[Comparison, ...]:
        """Each candidate that was raced."""
        found = []
        for key, name in self.names().items():
            named: Settings = {alone.PATCH: name}
            raced = alone.screened_comparisons({key: self.candidates[key]}, self.raced)
            found += [replace(each, knob=alone.PATCH, candidate=named) for each in raced]
        return tuple(found)

    def notes(self) -> list[str]:
        """How identical code came out, and what was not raced or failed, with the reason."""
        found, names = list[str](), self.names()
        if seen := self.raced.interval(CONTROL):
            ratio, low, high = seen
            found.append(
                f"in one running set of ranks, identical code took {ratio:.3f} [{low:.3f}, {high:.3f}] of the time of your code"
            )
        found += [f"{names[key]} left the running set: {why}" for key, why in self.raced.out.items() if key in names]
        if why := doubt_of(self.raced):
            found.append(f"what was screened is not raced in fresh sets: {why}")
        elif self.raced.entrants and not self.survivors():
            found.append("no patch that was screened in the running set was shown to pay")
        return [*found, *notes_of(self.raced), *self.left]

    def survivors(self) -> list[Candidate]:
        """What pays, as patches for the race of fresh sets: all of it as one where it is of one file, else each by itself."""
        if doubt_of(self.raced):
            return []
        of_knobs = dict.fromkeys(each.knob for each in self.candidates.values())
        best = [
            taken
            for name in of_knobs
            if (taken := alone.best_of([c for c in self.candidates.values() if c.knob == name], self.raced))
        ]
        try:
            is_one = len(alone.texts_of(best)) == 1
        except ValueError:
            is_one = False
        return [self._patch(best)] if is_one else [self._patch([each]) for each in best]

    def _patch(self, members: Sequence[alone.Candidate]) -> Candidate:
        """These, all of one file, as one patch."""
        first = members[0]
        edits = tuple(each for member in members for each in member.edits)
        changes = tuple(dict.fromkeys(change for member in members for change in member.fix.changes))
        text, words = edit.apply(first.before, edits), "; ".join(member.words for member in members)
        diff = edit.diff(first.path, first.before, text)
        fix = Fix(words, "unsafe" if changes else "safe", changes, edits, diff)
        settings: Settings = {}
        now: Settings = {}
        for member in members:
            settings |= member.settings
            now |= self.now[member.key]
        key = ", ".join(f"{name}={value!r}" for name, value in settings.items())
        whole = handed_over(first.path, first.before, fix)
        return Candidate(key, settings, now, words, whole, first.path, text, first.location)


def screen(session: Session, allow: frozenset[str], seconds: float, screened: Screened) -> None:
    """Screen what knobs can do here, for so many seconds; `screened` has what is known at any moment.

    session: its workshop has a process on each rank.
    """
    target, deadline = session.target, session.deadline(seconds)
    rules = {rule for name in KNOBS for rule in knob(name).rules}
    expect_findings(target, session.workshop, [each for each in findings_in([target.file]) if each.rule in rules])
    try:
        facts, block = session.workshop.ask(Variant("survey", "", {}), {"do": "block", "steps": LOOK_STEPS})
        survey = Survey(from_json(facts))
        phases = {name: spent / block["steps"] for name, spent in block.get("phases", {}).items()}
        files = survey.facts.project_files or [target.file]
        survey = replace(survey, profile=phases, findings=tuple(findings_in(files)))
        _list(session, survey, allow, screened)
        if not screened.candidates:
            return
        expect(session.workshop, [*screened.candidates.values()])
        entrants = [alone.alone_in_place(each) for each in screened.candidates.values()]
        with Screen(session) as running:
            running.race("ranks", entrants, deadline, screened.names(), screened.raced)
    except ChildFailed as failure:
        screened.left.append(f"the running set of ranks, in which patches are screened, ended: {failure}")
    finally:
        session.workshop.close()


def _list(session: Session, survey: Survey, allow: frozenset[str], screened: Screened) -> None:
    """The candidates of all knobs that are allowed."""
    for name in KNOBS:
        if knob(name).why_not(survey):
            continue
        try:
            found = alone.candidates_of(session, survey, name, 0, allow, session.deadline(float("inf")))
        except Refused as why:
            screened.left.append(f"{name} is not screened: {why}")
            continue
        for candidate in found:
            if not candidate.lacks:
                screened.candidates[candidate.key] = candidate
                screened.now[candidate.key] = knob(name).current(survey)
