"""Patches of knobs, screened in one running set of ranks: each is in place on all ranks for some steps, in turn with your code.

What is seen there chooses: what pays goes into the race of fresh sets as a patch, where its losses are compared, too. Patches of
the call of DistributedDataParallel are among them: the model gets the reducer that they would have given it
(`measure.wrapped_otherwise`). One that does not pay there, or with which a rank fails, needs no fresh set.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfaudit.findings import Fix
from perfaudit.knobs import Refused, Survey, knob
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.entrants import CONTROL, FUTILE_QUADS
from perfaudit.measure.facts import from_json
from perfaudit.measure.ledger import Variant
from perfaudit.measure.wrapped_otherwise import FOUND_AT, HOOK
from perfaudit.measurements import Comparison, Settings
from perfaudit.static import edit, unified_diff
from perfaudit.static.document import handed_over
from perfaudit.static.source import read_source
from perfaudit.tune import candidates as alone
from perfaudit.tune.learning import findings_in
from perfaudit.tune.loops import expect, expect_findings
from perfaudit.tune.race_results import Raced, doubt_of, notes_of
from perfaudit.tune.race_so_far import LEAST, Lineup
from perfaudit.tune.ranks.ddp_call import BUCKET, STATIC, VIEW
from perfaudit.tune.ranks.patches import RankPatch, is_unchanged
from perfaudit.tune.screening import Screen
from perfaudit.tune.session import Session
from perfaudit.tune.workshop import Json

# What a running training can be given on all of its ranks, and that changes neither its parameters nor its batches.
KNOBS = ("optimizer", "zero_grad", "attention", "fusion", "anomaly", "cudnn")
# In the place of a knob's name: arguments of DistributedDataParallel; its communication hook is HOOK.
WRAPPING = "wrapping"
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
        """Of each candidate, spelled as in the race of fresh sets."""
        return {
            key: _settings_key(each.settings) if each.knob in KNOBS else key for key, each in self.candidates.items()
        }

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
        out = {key: why for key, why in self.raced.out.items() if key in names}
        for why in dict.fromkeys(out.values()):
            keys = [key for key in out if out[key] == why]
            is_fresh_only = all(self.candidates[key].knob not in KNOBS for key in keys) and not any(
                key in self.raced.failures for key in keys
            )
            how = "raced in fresh sets only" if is_fresh_only else "left the running set"
            found.append(f"{'; '.join(names[key] for key in keys)} {how}: {why}")
        doubts = {key: why for key in names if (why := self._doubt(key))}
        for why in dict.fromkeys(doubts.values()):
            keys = [key for key in doubts if doubts[key] == why]
            is_all = keys == [key for key in names if key in self.raced.entrants]
            which = (
                " is not raced in fresh sets"
                if is_all
                else f" of {'; '.join(names[key] for key in keys)} does not count"
            )
            found.append(f"what was screened{which}: {why}")
        if self.raced.entrants and not doubts and not self.survivors():
            found.append("no patch that was screened in the running set was shown to pay")
        return [*found, *notes_of(self.raced), *self.left]

    def survivors(self) -> list[RankPatch]:
        """What pays, as patches for the race of fresh sets: all of it as one where it is of one file, else each by itself."""
        return [self._patch(members) for members in self._paying()]

    def savings(self) -> dict[str, float]:
        """The share of a step that each of these was shown to save, by its key; of several as one, what they save together."""
        found = {}
        for members in self._paying():
            ratios = [seen[0] for each in members if (seen := self.raced.interval(each.key))]
            found[self._patch(members).key] = 1 - math.prod(ratios)
        return found

    def looks(self) -> dict[str, float]:
        """The share of a step that each candidate seemed to save, decided or not, by its key in the race."""
        return {
            key: 1 - math.exp(statistics.median(logs))
            for key, logs in self.raced.log_ratios.items()
            if logs and not self._doubt(key)
        }

    def _doubt(self, key: str) -> str:
        """Why what the running set has shown of a candidate is not to be believed, "" where no control of its way is off."""
        return doubt_of(self.raced, keys=[key]) if key in self.raced.entrants else ""

    @property
    def _without_doubt(self) -> list[alone.Candidate]:
        return [each for key, each in self.candidates.items() if not self._doubt(key)]

    def _paying(self) -> list[list[alone.Candidate]]:
        of_knobs = dict.fromkeys(each.knob for each in self._without_doubt if each.knob in KNOBS)
        best = [
            taken
            for name in of_knobs
            if (taken := alone.best_of([each for each in self._without_doubt if each.knob == name], self.raced))
        ]
        best += self._best_of_wrapping()
        try:
            is_one = len(alone.texts_of(best)) == 1
        except ValueError:
            is_one = False
        return [best] if is_one else [[each] for each in best]

    def _best_of_wrapping(self) -> Iterator[alone.Candidate]:
        """The arguments, and the hook, that gain most for certain, of those that pay."""
        for name in (WRAPPING, HOOK):
            high = {
                each.key: seen[2]
                for each in self._without_doubt
                if each.knob == name and (seen := self.raced.interval(each.key)) and seen[2] <= 1 - LEAST
            }
            if high:
                yield self.candidates[min(high, key=lambda key: high[key])]

    def undecided_candidates(self, candidates: Sequence[RankPatch]) -> list[RankPatch]:
        """Those of the race of fresh sets that are raced there as they are: a running set has not told what they are worth.

        Those that it has had come last, the one that looks fastest first.
        """
        found = [each for each in candidates if not self._tells(each.key)]
        if self.survivors():  # what could not be told beside these is not worth a set in each generation
            found = [each for each in found if not self._logs(each.key)]
        return sorted(found, key=lambda each: self._looks(each.key))

    def _logs(self, key: str) -> list[float]:
        """What its quads have shown; [] where that is not to be believed, as of one that had none."""
        return self.raced.log_ratios.get(key, []) if not self._doubt(key) else []

    def _looks(self, key: str) -> tuple[bool, float]:
        logs = self._logs(key)
        return bool(logs), statistics.median(logs) if logs else 0.0

    def _tells(self, key: str) -> bool:
        """Whether the running set has told of a candidate that it pays, or fails, or looks no faster."""
        if self._doubt(key):
            return False
        if key not in self.candidates or key in self.raced.failures:
            return key in self.candidates
        seen, logs = self.raced.entrants.get(key), self.raced.log_ratios.get(key, ())
        if seen is None:
            return False
        pays = seen.interval is not None and seen.interval[2] <= 1 - LEAST
        return pays or bool(seen.left) or (len(logs) >= FUTILE_QUADS[0] and statistics.median(logs) >= 0)

    def _patch(self, members: Sequence[alone.Candidate]) -> RankPatch:
        """These, all of one file, as one patch."""
        first = members[0]
        edits = tuple(each for member in members for each in member.edits)
        changes = tuple(dict.fromkeys(change for member in members for change in member.fix.changes))
        text, words = edit.apply(first.before, edits), "; ".join(member.words for member in members)
        diff = unified_diff.diff(first.path, first.before, text)
        is_safe = all(member.fix.safety == "safe" for member in members)
        fix = Fix(words, "safe" if is_safe else "unsafe", changes, edits, diff)
        settings: Settings = {}
        now: Settings = {}
        for member in members:
            settings |= member.settings
            now |= self.now[member.key]
        key = _settings_key(settings)
        whole = handed_over(first.path, first.before, fix)
        return RankPatch(key, settings, now, words, whole, first.path, text, first.location)


def screen(
    session: Session, allow: frozenset[str], seconds: float, screened: Screened, of_ranks: Sequence[RankPatch] = ()
) -> None:
    """Screen what knobs can do here, for so many seconds; `screened` has what is known at any moment.

    session: its workshop has a process on each rank. of_ranks: candidates of the race of fresh sets, of which those are screened
    that wrap the model otherwise.
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
        for each in of_ranks:
            if (wrapping := _wrapping(each)) is not None:
                screened.candidates[each.key], screened.now[each.key] = wrapping, each.now
        if not screened.candidates:
            return
        expect(session.workshop, [*screened.candidates.values()])
        entrants = [_in_place(each) for each in screened.candidates.values()]
        with Screen(session) as running:
            running.race("ranks", Lineup(entrants, screened.names()), deadline, screened.raced)
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
            found = alone.candidates_of(session, survey, name, allow, session.deadline(float("inf")))
        except Refused as why:
            screened.left.append(f"{name} is not screened: {why}")
            continue
        for candidate in found:
            if not candidate.lacks:
                screened.candidates[candidate.key] = candidate
                screened.now[candidate.key] = knob(name).current(survey)


def _wrapping(candidate: RankPatch) -> alone.Candidate | None:
    """A candidate that wraps the model otherwise, as a running set is given it; None for one that changes anything else."""
    changed: Settings = {name: value for name, value in candidate.settings.items() if candidate.now.get(name) != value}
    is_hook = changed.keys() == {HOOK}
    if not is_hook and not changed.keys() <= {VIEW, STATIC, BUCKET}:
        return None
    if not is_unchanged(candidate):
        return None
    before, name = read_source(Path(candidate.path), candidate.path).text, HOOK if is_hook else WRAPPING
    return alone.Candidate(candidate.key, name, changed, candidate.fix, candidate.location, before, "setting")


def _settings_key(settings: Settings) -> str:
    """Settings as Python writes arguments: "update='fused', set_to_none=True"."""
    return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _in_place(candidate: alone.Candidate) -> Json:
    """A candidate as the ranks are told to put it in place."""
    if candidate.knob in KNOBS:
        return alone.alone_in_place(candidate)
    setting = [FOUND_AT, candidate.settings]
    return {
        "key": candidate.key,
        "code": {},
        "settings": [setting],
        "whole": {},
        "way": "in place",
        "least": LEAST,
    }
