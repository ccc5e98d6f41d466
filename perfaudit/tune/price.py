"""What each finding of a scan is worth on the user's model: its own patch measured against the code as it is."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from perfaudit import rank
from perfaudit.errors import NothingMeasured
from perfaudit.findings import Expected, Finding, Fix, Saving
from perfaudit.knobs import all_knobs, knob
from perfaudit.knobs._code import inside_project
from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.clock import Deadline
from perfaudit.measure.facts import Facts
from perfaudit.measure.judge import clock_for, comparison, hopeless_variants, saving, settled_variants, trial
from perfaudit.measure.ledger import Ledger, Variant
from perfaudit.measure.nursery import START_SECONDS
from perfaudit.measure.runner import measure
from perfaudit.measure.watch import Watch
from perfaudit.measurements import Comparison, Trial
from perfaudit.report import Report
from perfaudit.target.names import Target
from perfaudit.tune.observed import observed_findings
from perfaudit.tune.outcome import comparisons_of, judged, patch_of, trials_of, winner_of
from perfaudit.tune.plan import merge, runs
from perfaudit.tune.search import search
from perfaudit.tune.tuning import Tuning, bout_of, environment_of, interruptible
from perfaudit.tune.verify import Verifier
from perfaudit.tune.workshop import Children, as_user_error

AT_ONCE = 4  # patches in one race beside the unpatched code: five processes that each hold the model
SMALLEST = 0.01  # of the step; a patch that was shown to save more, or less, needs no more measuring
STAGE = "patches"
OBSERVED_STEPS = 10  # about as many are made, some under modes that double their time
OBSERVING_SHARE = 0.1  # of the budget
OBSERVING_SECONDS = 10.0  # at least, where the budget is small
BASE = Variant("as it is", "patch", {"patch": "none"})


@dataclass(slots=True)
class Priced:
    """Findings that were sorted and measured so far; it outlives an interruption."""

    kept: list[Finding] = field(default_factory=list)  # not measured, or measured already
    waiting: dict[str, tuple[Finding, Variant]] = field(default_factory=dict)
    races: list[tuple[Ledger, list[str]]] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    together: Variant | None = None
    with_workers: set[str] = field(default_factory=set)  # keys of variants whose loader has workers


def price(
    target: Target,
    report: Report,
    budget: float,
    device: str,
    watch: Watch,
    timeout: float = START_SECONDS,
    selected: frozenset[str] | None = None,
) -> Report:
    """The report with measured savings, ranked. Ends early on Ctrl-C with what there is.

    budget: seconds for all measuring; timeout: seconds that loading or one step may take; selected: rules of which a run may
    show what reading missed, None for all. Raises
    TargetError when the target does not load, NothingMeasured when it cannot make a step, or no interval came of it.
    """
    priced = Priced()
    notes: list[str] = []
    with interruptible(notes) as interrupted:
        tuning = Tuning(target, Children(target, device, watch, timeout), watch, notes=notes, timeout=timeout)
        deadline = tuning.deadline(budget)
        lines = _survey(tuning, report)
        tuning.learn(report.findings)
        tuning.needs_time(budget, deadline.left() or budget)
        report = _observe(tuning, report, lines, budget, selected)
        tuning.calibrate(budget)
        _sort(tuning, report, lines, priced)
        _knobs(tuning, priced, deadline)
        _patches(tuning, priced, deadline)
        _together(tuning, priced, deadline)
    if interrupted[0] and not (priced.kept or priced.waiting):
        return report.with_(target=str(target), notes=tuple(notes), interrupted=True)
    findings = _results(tuning, priced, "interrupted before it" if interrupted[0] else "the budget ended before it")
    trials, comparisons = _evidence(tuning, priced)
    for bout in tuning.bouts:
        trials += trials_of(bout)
        comparisons += comparisons_of(tuning, bout)
    for ledger, _ in priced.races:
        if BASE.key in ledger.failures and not interrupted[0]:
            raise NothingMeasured(f"{target}: the code as it is could not be measured: {ledger.failures[BASE.key]}")
    judged = comparisons or any(ledger.failures for ledger, _ in priced.races)
    if (priced.waiting or tuning.bouts) and not judged and not interrupted[0]:
        raise NothingMeasured(
            f"{target}: no comparison was finished within the budget of {budget:.0f} s; give it longer with --budget"
        )
    return report.with_(
        findings=rank.ranked(findings),
        target=str(target),
        environment=tuning.environment,
        calibration=tuning.calibration,
        trials=tuple(trials),
        comparisons=tuple(comparisons),
        not_applicable=tuple(tuning.not_applicable),
        notes=tuple(notes),
        interrupted=interrupted[0],
    )


def _survey(tuning: Tuning, report: Report) -> dict[str, set[int]]:
    """Build the training once under a line trace: lines that run, by path."""
    tuning.watch.stage(f"loading {tuning.target}")
    files = sorted(
        {f.location.path for f in report.findings if f.location is not None and inside_project(f.location.path)}
    )
    try:
        reply = tuning.workshop.trace(files)
    except ChildFailed as failure:
        raise as_user_error(tuning.target, failure, tuning.timeout) from failure
    tuning.facts, tuning.seconds_per_step = reply, reply["seconds_per_step"]
    tuning.environment = environment_of(reply)
    return {path: set(lines) for path, lines in reply["lines"].items()}


def _observe(
    tuning: Tuning, report: Report, lines: dict[str, set[int]], budget: float, selected: frozenset[str] | None
) -> Report:
    """The report with what a run confirms, takes back or adds; the lines of what it adds are among those that run."""
    if OBSERVED_STEPS * tuning.seconds_per_step > OBSERVING_SHARE * budget:
        tuning.notes.append("the training was not observed: its steps are too long for this --budget")
        return report
    tuning.watch.stage("observing a step")
    seen = observed_findings(tuning, seconds=max(OBSERVING_SECONDS, OBSERVING_SHARE * budget))
    tuning.notes += [f"not observed: {problem}" for problem in seen.problems]
    for finding in seen.withdrawn:
        tuning.notes.append(f"{finding.location}: {finding.rule} is taken back: {finding.note}")
    places = {finding.location for finding in report.findings}
    new = [f for f in seen.findings if f.location not in places and (selected is None or f.rule in selected)]
    for place in (finding.location for finding in new):
        if place is not None:
            lines.setdefault(place.path, set()).update(range(place.line, place.end_line + 1))
    report = report.with_(findings=(*(f for f in seen.findings if f.location in places), *new))
    tuning.learn(report.findings)
    return report


def _sort(tuning: Tuning, report: Report, lines: dict[str, set[int]], priced: Priced) -> None:
    """Say of each finding why it is not measured, or put it among those of one rule and file that are measured together."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in report.findings:
        place, fix = finding.location, finding.fix
        why = ""
        if place is None or fix is None or not fix.edits:
            why = "not measured: there is no patch to measure"
        elif not inside_project(place.path):
            why = "not measured: the file lies outside the working directory"
        elif reason := _pointless(tuning, finding):
            why = f"not measured: {reason}"
        elif not runs(finding, lines.get(place.path, set())):
            why = f"not measured: building the training and making a step does not run this line of {place.path}"
        if why or place is None:
            priced.kept.append(_noted(finding, why))
        else:
            groups.setdefault((finding.rule, place.path), []).append(finding)
    for (rule, path), group in groups.items():
        merged = merge(group)
        if merged is None:
            priced.kept += [_noted(f, "not measured: the file changed while it was read") for f in group]
            continue
        finding, overlay = merged
        if len(group) > 1:
            finding = finding.with_(note=_seen_together(group))
        key = f"{rule} {path}"
        priced.waiting[key] = (finding, Variant(key, "patch", {"patch": rule, "path": path}, overlay))


def _noted(finding: Finding, note: str) -> Finding:
    """The finding with this said of it, before what was observed."""
    return finding.with_(note="; ".join(part for part in (note, finding.note) if part))


def _with_saving(finding: Finding, measured: Saving | None) -> Finding:
    """The finding with what was measured, beside what was known of it until then."""
    known = finding.saving
    if measured is None or known is None:
        return finding.with_(saving=measured)
    return finding.with_(saving=replace(measured, expected=Expected(known.basis, known.low, known.high)))


def _seen_together(group: list[Finding]) -> str:
    seen = sum(finding.note.startswith("observed:") for finding in group)
    return f"observed to be so at {seen} of {len(group)} places" if seen else ""


def _pointless(tuning: Tuning, finding: Finding) -> str:
    """Why a finding cannot matter on this device, "" if it can."""
    if finding.rule == "PA102" and tuning.facts["device"] == "cpu":
        return "pinned memory speeds up copies to an accelerator, and there is none here"
    for name in all_knobs():
        if finding.rule in knob(name).rules:
            return knob(name).not_applicable(tuning.facts)
    return ""


def _knobs(tuning: Tuning, priced: Priced, deadline: Deadline) -> None:
    """Findings whose setting has a best value get it searched; the finding then carries the winner's patch."""
    settled = {rule: name for name in all_knobs() if not knob(name).fixed_batch for rule in knob(name).rules}
    for key in list(priced.waiting):
        finding, _ = priced.waiting[key]
        name = settled.get(finding.rule)
        if name is None or any(bout.name == name for bout in tuning.bouts):
            continue
        share = deadline.left() / max(1, len(priced.waiting)) * 1.5  # a search costs more than one patch
        search(tuning, name, tuning.deadline(min(share, deadline.left())), 0)
        bout = bout_of(tuning, name)
        if bout is None or not comparisons_of(tuning, bout):
            continue
        del priced.waiting[key]
        winner = winner_of(tuning, bout)
        timed = [c for c in judged(bout, comparisons_of(tuning, bout)).values() if c.high < float("inf")]
        if winner.keeps_current and not timed:
            priced.kept.append(_noted(finding, f"{winner.words}; give it longer with --budget"))
        elif winner.keeps_current:
            best = min(timed, key=lambda c: c.ratio)
            tried = ", ".join(f"{k}={v}" for k, v in best.candidate.items() if v is not None)
            note = f"{winner.words}; the best other setting tried: {tried}"
            measured = patch_of(bout, best)  # not the finding's own, which is another setting
            if (
                best.verdict == "faster"
            ):  # by less than it must: nothing to hand over, and no part of what pays together
                least = f"{100 * knob(name).min_gain:.0f} %"
                note = f"faster, but not by {least} for certain, so your setting stays; the best tried: {tried}"
                measured = None
            gained = saving(bout.ledger, bout.base, best)
            priced.kept.append(_noted(_with_saving(finding, gained).with_(fix=measured), note))
        else:
            note = f"found by searching {name}" + (f"; {winner.verified}" if winner.verified else "")
            priced.kept.append(
                _noted(_with_saving(finding, winner.saving).with_(fix=winner.fix or Fix(winner.words, "manual")), note)
            )


def _patches(tuning: Tuning, priced: Priced, deadline: Deadline) -> None:
    """Race the patches against the unpatched code, a few at a time."""
    keys = list(priced.waiting)
    groups = [keys[i : i + AT_ONCE] for i in range(0, len(keys), AT_ONCE)]
    for number, group in enumerate(groups):
        variants = [priced.waiting[key][1] for key in group]
        tuning.watch.stage(f"measuring {', '.join(priced.waiting[key][0].rule for key in group)}")
        share = deadline.left() / (len(groups) - number + 0.5)  # half a share is kept for all patches together
        _race(tuning, priced, variants, tuning.deadline(share))


def _race(
    tuning: Tuning, priced: Priced, variants: list[Variant], deadline: Deadline, together: Sequence[Finding] = ()
) -> Ledger:
    """Patches against the unpatched code; one that stands for several findings `together` changes what they change."""
    ledger = Ledger()
    settings = {variant.key: variant.settings for variant in [BASE, *variants]}
    ledger.on_block = lambda key, seconds: tuning.watch.block(settings[key], seconds)
    priced.races.append((ledger, [variant.key for variant in variants]))
    changes = {}
    for variant in variants:
        fix = priced.waiting[variant.key][0].fix if variant.key in priced.waiting else None
        changes[variant.key] = fix.changes if fix else tuple(sorted({c for f in together for c in _changes(f)}))
    with Verifier(BASE.key, changes, tuning.reference, priced.said) as verifier:

        def check(child: Child, variant: Variant, facts: Facts) -> None:
            if facts["loader"]["num_workers"]:
                priced.with_workers.add(variant.key)
            verifier.check(child, variant, facts)

        def settled(ledger: Ledger) -> set[str]:
            clock = clock_for(ledger, BASE, tuning.computes_alone() and not priced.with_workers)
            ledger.given_up |= hopeless_variants(ledger, BASE, variants, STAGE, clock)
            return ledger.given_up | settled_variants(ledger, BASE, variants, SMALLEST, STAGE, clock=clock)

        lab = tuning.workshop.lab(check)
        measure(
            lab, [_plain(v) for v in [BASE, *variants]], ledger, deadline, 3, STAGE, settled=settled,
            memo=tuning.record,
        )  # fmt: skip
    return ledger


def _changes(finding: Finding) -> tuple[str, ...]:
    return finding.fix.changes if finding.fix else ()


def _plain(variant: Variant) -> Variant:
    return Variant(variant.key, variant.knob, variant.settings, variant.overlay, apply_knob=False)


def _together(tuning: Tuning, priced: Priced, deadline: Deadline) -> None:
    """All patches that pay, applied at once and measured against the unpatched code: savings do not add up."""
    paying = [f for f in _results(tuning, priced) if rank.group(f) == rank.PAYS and f.fix is not None and f.fix.edits]
    if len(paying) < 2 or deadline.left() < 1:
        return
    overlay: dict[str, str] = {}
    for path in sorted({f.location.path for f in paying if f.location is not None}):
        merged = merge([f for f in paying if f.location is not None and f.location.path == path])
        if merged is None:
            return
        overlay.update(merged[1])
    variant = Variant("together", "patch", {"patch": " + ".join(f.rule for f in paying)}, overlay)
    tuning.watch.stage(f"measuring {len(paying)} patches together")
    priced.together = variant
    ledger = _race(tuning, priced, [variant], deadline, paying)
    compared = _compared(tuning, priced, ledger, variant)
    if compared is None:
        reason = ledger.failures.get(variant.key, "the budget ended")
        tuning.notes.append(f"the {len(paying)} patches that pay were not measured together: {reason}")
    elif compared.high < float("inf"):
        gained = saving(ledger, BASE, compared)
        on_wall = compared.clock == "wall"
        what = "" if on_wall else " of processor time"
        before, after = (
            1e3 * statistics.median(b.seconds_per_step if on_wall else b.cpu_per_step for b in ledger.blocks(key))
            for key in (BASE.key, variant.key)
        )
        tuning.notes.append(
            f"all {len(paying)} patches that pay, applied together: {before:.2f} ms → {after:.2f} ms{what} a step, "
            f"saves {100 * gained.low:.1f} to {100 * gained.high:.1f} % (measured); {_checked(priced, variant.key)}"
        )


def _results(tuning: Tuning, priced: Priced, ended: str = "the budget ended before it") -> list[Finding]:
    """Findings with what is known of them now."""
    found = list(priced.kept)
    for key, (finding, variant) in priced.waiting.items():
        race = next((ledger for ledger, keys in priced.races if key in keys), None)
        if race is None:
            found.append(_noted(finding, f"not measured: {ended}"))
        elif key in race.failures:
            found.append(_noted(finding.with_(fix=None), f"its patch is withdrawn: {race.failures[key]}"))
        else:
            compared = _compared(tuning, priced, race, variant)
            if compared is not None and compared.given_up:
                times = f"{100 * (compared.ratio - 1):.0f} % slower"
                found.append(_noted(finding, f"it looked {times} in every generation and was not measured further"))
            elif compared is None or compared.high == float("inf"):
                note = f"measured too briefly for an interval, give it longer with --budget; {_checked(priced, key)}"
                found.append(_noted(finding, note.rstrip("; ")))
            else:
                found.append(_noted(_with_saving(finding, saving(race, BASE, compared)), _checked(priced, key)))
    return found


def _compared(tuning: Tuning, priced: Priced, ledger: Ledger, variant: Variant) -> Comparison | None:
    """A patch against the code as it is, by the clock that can be trusted here."""
    clock = clock_for(ledger, BASE, tuning.computes_alone() and not priced.with_workers)
    return comparison(ledger, BASE, variant, STAGE, clock=clock, least=SMALLEST)


def _checked(priced: Priced, key: str) -> str:
    said = priced.said.get(key, "")
    return f"checked: {said}" if said else ""


def _evidence(tuning: Tuning, priced: Priced) -> tuple[list[Trial], list[Comparison]]:
    """Trials and comparisons of the patch races."""
    variants = {key: variant for key, (_, variant) in priced.waiting.items()}
    if priced.together is not None:
        variants["together"] = priced.together
    trials: list[Trial] = []
    comparisons: list[Comparison] = []
    for ledger, keys in priced.races:
        trials += [trial(ledger, variant) for variant in [BASE, *(variants[key] for key in keys)]]
        found = (_compared(tuning, priced, ledger, variants[key]) for key in keys)
        comparisons += [compared for compared in found if compared is not None]
    return trials, comparisons
