"""Findings that were priced: what is known of each, and what is said of it. Reads what was measured, measures nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfaudit.findings import Expected, Finding, Fix, Saving
from perfaudit.measure.entrants import FUTILE
from perfaudit.measure.judge import comparison, saving, trial, typical_step
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measurements import Comparison, NotApplicable, Trial, settings_text
from perfaudit.tune.candidates import PATCH, Candidate, best_of, least_gain, screened_comparisons
from perfaudit.tune.losses import was_compared
from perfaudit.tune.outcome import TOO_SHORT, UNDECIDED
from perfaudit.tune.patched_source import SourceRace
from perfaudit.tune.race_results import Raced, doubt_of
from perfaudit.tune.race_so_far import LEAST
from perfaudit.tune.too_short import is_too_short

NOT_SHOWN = "its patch is not handed over: it was not shown to pay"
FOR_MEMORY = frozenset({"PA603"})  # rules whose patch need not make a step faster
OF_A_TWIN = (
    "timed in a second training beside yours, whose place in memory changes its time too: that is not in the interval"
)
TOGETHER = "together"  # the key of all that pays
BASE = Variant("as it is", PATCH, {"patch": "none"})


@dataclass(slots=True)
class Waiting:
    """A finding that is measured.

    own: its patch. tried: what is raced in one training: that patch or, where its setting has a best value, the candidates of
    the knob that searches for it.
    """

    finding: Finding
    own: Candidate
    tried: list[Candidate]


@dataclass(slots=True)
class Priced:
    """Findings that were sorted and measured so far; whoever prices keeps it, so that an interruption loses nothing.

    not_applicable: knobs that have no candidates. kept: findings that are not measured. raced: all that is tried, in one
    training. beside: all that pays together (`all_of`), in that training. checks: of what pays, each alone. races: of fresh
    processes, of what could not be put in place. together: of all that is handed over. clash: why that is no patch.
    """

    not_applicable: list[NotApplicable] = field(default_factory=list)
    kept: list[Finding] = field(default_factory=list)
    waiting: dict[str, Waiting] = field(default_factory=dict)
    raced: Raced = field(default_factory=Raced)
    beside: Raced = field(default_factory=Raced)
    all_of: list[Candidate] = field(default_factory=list)
    checks: Ledger = field(default_factory=Ledger)
    races: list[SourceRace] = field(default_factory=list)
    together: SourceRace | None = None
    clash: str = ""

    @property
    def candidates_by_key(self) -> dict[str, Candidate]:
        """All that is raced in one training, by key."""
        return {candidate.key: candidate for waiting in self.waiting.values() for candidate in waiting.tried}

    @property
    def paying(self) -> list[Candidate]:
        """What pays in that training, one candidate a finding at most."""
        best = (best_of(waiting.tried, self.raced) for waiting in self.waiting.values())
        return [candidate for candidate in best if candidate is not None]

    @property
    def without_doubt(self) -> list[Candidate]:
        """Of what pays in that training, that of which no control says anything against it."""
        return [candidate for candidate in self.paying if not self.doubt_about(candidate)]

    def doubt_about(self, candidate: Candidate) -> str:
        """Why its figure of that training is not to be believed, "" where it has none, or no control of its way is off."""
        return doubt_of(self.raced, keys=[candidate.key]) if candidate.key in self.raced.entrants else ""

    @property
    def handed_over(self) -> list[Candidate]:
        """What pays, in that training or in fresh processes, and whose losses were compared."""
        found = [candidate for candidate in self.without_doubt if _is_compared(self.checks, candidate.key)]
        return found + [c for waiting in self.waiting.values() if (c := self._shown_as_source(waiting)) is not None]

    def as_source(self, waiting: Waiting) -> Candidate | None:
        """What fresh processes must race of a finding: its own patch where nothing could be put in place in that training,
        what pays there and is not to be believed. None for nothing.
        """
        if self.is_refused(waiting):
            return waiting.own
        taken = best_of(waiting.tried, self.raced)
        return taken if taken is not None and self.doubt_about(taken) else None

    def fresh(self, waiting: Waiting) -> tuple[Candidate, SourceRace] | None:
        """What fresh processes raced of a finding, and the race; None where they did not."""
        raced = self.as_source(waiting)
        races = (race for race in self.races if raced is not None and raced.key in race.changes)
        race = next(races, None)
        return (raced, race) if raced is not None and race is not None else None

    def is_refused(self, waiting: Waiting) -> bool:
        """Whether nothing of a finding could be put in place in the training that runs."""
        return all(candidate.key in self.raced.refused for candidate in waiting.tried)

    @property
    def has_refused(self) -> bool:
        """Whether a finding waits for a race of fresh processes, as nothing of it could be put in place."""
        return any(map(self.is_refused, self.waiting.values()))

    @property
    def open_rules(self) -> list[str]:
        """Rules of findings that were raced and not decided, each once."""
        entrants = self.raced.entrants
        left = {key for key, seen in entrants.items() if seen.left}
        return list(
            dict.fromkeys(
                waiting.finding.rule
                for waiting in self.waiting.values()
                if any(each.key in entrants and each.key not in left for each in waiting.tried)
            )
        )

    def _shown_as_source(self, waiting: Waiting) -> Candidate | None:
        if (fresh := self.fresh(waiting)) is None:
            return None
        raced, race = fresh
        seen = _comparison_of(race, raced.key) if _is_compared(race.ledger, raced.key) else None
        return raced if seen is not None and seen.high < 1 else None


def findings_of(priced: Priced, ended: str) -> list[Finding]:
    """Findings with what is known of them now. ended: why no more is, as "the budget ended"."""
    return [*priced.kept, *(_finding_with_figures(priced, waiting, ended) for waiting in priced.waiting.values())]


def _finding_with_figures(priced: Priced, waiting: Waiting, ended: str) -> Finding:
    if (fresh := priced.fresh(waiting)) is not None:
        return _raced_as_source(priced, waiting, *fresh)
    if (why := priced.raced.failures.get(waiting.own.key)) is not None:
        return prepend_note(waiting.finding.with_(fix=None), f"its patch is withdrawn: {why}")
    if priced.is_refused(waiting):
        why = priced.raced.refused[waiting.tried[0].key]
        return prepend_note(
            waiting.finding, f"not measured: {ended} before a race of fresh processes, which it needs: {why}"
        )
    if not any(candidate.key in priced.raced.entrants for candidate in waiting.tried):
        return prepend_note(waiting.finding, f"not measured: {ended} before it")
    best = best_of(waiting.tried, priced.raced)
    return _that_pays(priced, waiting, best, ended) if best is not None else _that_does_not_pay(priced, waiting)


def _raced_as_source(priced: Priced, waiting: Waiting, raced: Candidate, race: SourceRace) -> Finding:
    key, seen, finding = raced.key, _comparison_of(race, raced.key), waiting.finding
    if key in race.ledger.failures:
        return prepend_note(finding.with_(fix=None), f"its patch is withdrawn: {race.ledger.failures[key]}")
    if (seen is None or seen.high == math.inf) and (doubt := priced.doubt_about(raced)):
        return prepend_note(finding.with_(fix=None), f"its patch is not handed over: {doubt}")
    if seen is None or seen.high == math.inf:
        note = f"measured too briefly for an interval, give it longer with --budget; {_check_words(race.ledger, key)}"
        return prepend_note(finding, note.rstrip("; "))
    finding, said = _with_saving(finding, saving(race.ledger, BASE, seen)), _check_words(race.ledger, key)
    if seen.high < 1:
        fix = raced.fix if _is_compared(race.ledger, key) else None
        said = said if fix is not None else _not_compared(race.ledger, key)
    else:
        fix = finding.fix if raced.knob == PATCH and seen.verdict != "slower" else None
        said = said if fix is not None else "; ".join(filter(None, [NOT_SHOWN, said]))
    return prepend_note(finding.with_(fix=fix), _origin(raced) + said)


def _that_pays(priced: Priced, waiting: Waiting, taken: Candidate, ended: str) -> Finding:
    """The finding with the patch that pays, which is handed over only where its losses were compared."""
    if taken.key in priced.checks.failures:
        why = priced.checks.failures[taken.key]
        return prepend_note(waiting.finding.with_(fix=None), f"its patch is withdrawn: {why}")
    fix: Fix | None = taken.fix
    said = _check_words(priced.checks, taken.key)
    if doubt := priced.doubt_about(taken):
        fix, said = None, f"its patch is not handed over: {doubt}"
    elif taken.key not in priced.checks.checked:
        fix, said = None, f"its patch is not handed over: {ended} before its losses were compared"
    elif not _is_compared(priced.checks, taken.key):
        fix, said = None, _not_compared(priced.checks, taken.key)
    elif priced.raced.ways.get(taken.key) == "twin":
        said = f"{said}; {OF_A_TWIN}"
    return prepend_note(
        _with_saving(waiting.finding, priced.raced.saving(taken.key)).with_(fix=fix), _origin(taken) + said
    )


def _origin(taken: Candidate) -> str:
    return f"found by searching {taken.knob}; " if taken.knob != PATCH else ""


def _that_does_not_pay(priced: Priced, waiting: Waiting) -> Finding:
    """The finding with what was seen of the best that was tried."""
    finding, raced = waiting.finding, priced.raced
    timed = {c.key: (c, interval) for c in waiting.tried if (interval := raced.interval(c.key)) is not None}
    if not timed:
        return _without_interval(priced, waiting)
    best, interval = min(timed.values(), key=lambda item: item[1][0])
    found = _with_saving(finding, raced.saving(best.key))
    if best.knob == PATCH:
        return prepend_note(found.with_(fix=None), NOT_SHOWN) if interval[1] > 1 else found
    least, tried = f"{100 * least_gain(best):.0f} %", _set(best)
    if interval[2] < 1:  # by less than it must: nothing to hand over
        note = f"faster, but not by {least} for certain, so your setting stays; the best tried: {tried}"
        return prepend_note(found.with_(fix=None), note)
    note = f"keep what you have: nothing else was shown to gain {least} or more; the best other setting tried: {tried}"
    return prepend_note(found.with_(fix=None), note)  # neither that setting nor the finding's own was shown to pay


def _without_interval(priced: Priced, waiting: Waiting) -> Finding:
    """The finding with why there is no interval of anything that was tried for it."""
    finding, entrants = waiting.finding, priced.raced.entrants
    seen = {
        candidate.key: (candidate, entrants[candidate.key]) for candidate in waiting.tried if candidate.key in entrants
    }
    own = seen.get(waiting.own.key)
    if any(not entrant.left for _, entrant in seen.values()):
        is_short = is_too_short(priced.raced)
        undecided = TOO_SHORT if is_short else UNDECIDED
        longer = "as the training ended by itself" if is_short else "give it longer with --budget"
        return prepend_note(
            finding, f"measured too briefly for an interval, {longer}" if own else f"{undecided}; {longer}"
        )
    if own is None:
        note = f"keep what you have: {'; '.join(f'{_set(c)}: {e.left}' for c, e in seen.values())}"
        return prepend_note(finding.with_(fix=None), note)
    if own[1].left == FUTILE:
        note = f"it {FUTILE} in {own[1].quads} comparisons and was not measured further"
        if finding.rule in FOR_MEMORY:
            return prepend_note(finding, f"{note}; what its patch saves is memory")
        note = f"{note}; {NOT_SHOWN}"
        return prepend_note(finding.with_(fix=None), note)
    return prepend_note(finding.with_(fix=None), f"its patch is withdrawn: {own[1].left}")


def together_words(priced: Priced, ended: str) -> list[str]:
    """What all that is handed over saves together: as source where that race has decided, else in the training that ran."""
    paying, race, known, said = priced.handed_over, priced.together, None, ""
    what = f"{len(paying)} patches that pay"
    if race is not None:
        if TOGETHER in race.ledger.failures:
            return [f"the {what} were not measured together: {race.ledger.failures[TOGETHER]}"]
        seen, said = _comparison_of(race, TOGETHER), _check_words(race.ledger, TOGETHER)
        if seen is not None and math.isfinite(seen.high):
            known, ratio = saving(race.ledger, BASE, seen), seen.ratio
            before = typical_step(race.ledger, BASE.key, seen.clock)
    interval = priced.beside.interval(TOGETHER)
    is_believed = not doubt_of(priced.raced, priced.beside, keys=[candidate.key for candidate in paying])
    if known is None and interval is not None and priced.all_of == paying and is_believed:
        known, ratio, before = priced.beside.saving(TOGETHER), interval[0], priced.beside.seconds_per_step
    if known is None or before is None:
        return [f"the {what} were not measured together: {priced.clash or ended}"] if len(paying) > 1 else []
    times = f"{1e3 * before:.2f} ms → {1e3 * before * ratio:.2f} ms a step"
    saves = f"saves {100 * known.low:.1f} to {100 * known.high:.1f} % ({known.basis})"
    return ["; ".join(filter(None, [f"all {what}, applied together: {times}, {saves}", said]))]


def evidence_of(priced: Priced) -> tuple[list[Trial], list[Comparison]]:
    """Trials of the races of fresh processes, and the comparisons of all."""
    comparisons = [
        each for each in screened_comparisons(priced.candidates_by_key, priced.raced) if each.n or each.given_up
    ]
    trials: list[Trial] = []
    for race in [*priced.races, *filter(None, [priced.together])]:
        trials += [trial(race.ledger, variant) for variant in (race.start, *race.patches)]
        comparisons += filter(None, (_comparison_of(race, variant.key) for variant in race.patches))
    return trials, comparisons


def rules_of(candidates: Sequence[Candidate]) -> str:
    """The rules whose fixes these are, or the knobs whose settings."""
    return " + ".join(str(candidate.settings.get("patch") or candidate.knob) for candidate in candidates)


def _set(candidate: Candidate) -> str:
    return settings_text({name: value for name, value in candidate.settings.items() if value is not None})


def _comparison_of(race: SourceRace, key: str) -> Comparison | None:
    """A patch against the code as it is, as source; None before both were timed."""
    variant = next(each for each in race.patches if each.key == key)
    return comparison(race.ledger, BASE, variant, race.stage, clock=race.clock, least=LEAST)


def _check_words(ledger: Ledger, key: str) -> str:
    said = ledger.checked.get(key, "")
    return f"checked: {said}" if said else ""


def _is_compared(ledger: Ledger, key: str) -> bool:
    """Whether the losses of a patch were compared and say nothing against it."""
    return key not in ledger.failures and was_compared(ledger.checked.get(key, ""))


def _not_compared(ledger: Ledger, key: str) -> str:
    return f"its patch is not handed over: {ledger.checked.get(key) or 'its losses were not compared'}"


def prepend_note(finding: Finding, note: str) -> Finding:
    """The finding with this said of it, before what was observed."""
    return finding.with_(note="; ".join(part for part in (note, finding.note) if part))


def _with_saving(finding: Finding, measured: Saving | None) -> Finding:
    """The finding with what was measured, beside what was known of it until then."""
    known = finding.saving
    if measured is None or known is None:
        return finding.with_(saving=measured)
    return finding.with_(saving=replace(measured, expected=Expected(known.basis, known.low, known.high)))
