"""A gate against a commit: both versions scanned, counted and timed in one run on one machine."""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import distributions
from pathlib import Path
from typing import TypeVar

from perfaudit import __version__
from perfaudit.errors import TargetError, UserError
from perfaudit.gate.acceptance import acceptances_since, time_with_acceptances, with_acceptances
from perfaudit.gate.baseline import gate_baseline_if_there
from perfaudit.gate.comparable import fingerprint
from perfaudit.gate.counters_compared import compare_counters
from perfaudit.gate.counting import count
from perfaudit.gate.decision import judged_together
from perfaudit.gate.git import GitFailed
from perfaudit.gate.gitref import SHORT, Reference, checked_out, link_paths, linkable
from perfaudit.gate.new_findings import against_ref
from perfaudit.gate.pair_plan import drawn_seed
from perfaudit.gate.records import TargetRecord
from perfaudit.gate.request import Known, Request, inside_here, new_counters, take_findings
from perfaudit.gate.settings import BASELINE
from perfaudit.gate.targets_there import former_files, gone_targets, is_new
from perfaudit.gate.timing import time_targets
from perfaudit.gate.working_files import differing
from perfaudit.machine.limits import usable_cores
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.environment import host
from perfaudit.measure.journal import SETTINGS, Json, file_digest
from perfaudit.measure.watch import Watch
from perfaudit.report import SCHEMA as REPORT_SCHEMA
from perfaudit.target.names import Target, choose_target
from perfaudit.verdicts import CountersVerdict, TimeVerdict

CODE_AND_SETTINGS = (".py", ".ipynb", *SETTINGS)
NODES = "nodes"  # lines of a journal that say which kind of node has measured
Former = Mapping[str, tuple[str, int]]  # see `targets_there.former_files`
Verdict = TypeVar("Verdict", CountersVerdict, TimeVerdict)


def against_commit(request: Request, known: Known, watch: Watch) -> None:
    """Judge all layers against the commit that the settings name, into `known`. Raises UserError."""
    settings = request.settings
    targets = [inside_here(target) for target in request.targets]
    watch.stage(f"checking out {settings.against}")
    known.against = settings.against
    links = linkable(settings.links)
    with checked_out(settings.against, Path.cwd()) as reference:
        short = reference.commit[:SHORT]
        known.against = short if reference.commit == reference.name else f"{reference.name} ({short})"
        known.commit = reference.commit
        known.notes += reference.notes
        _take_acceptances(request, known, reference)
        if "time" in request.layers and targets:
            try:
                known.journal = request.begin(_start_line(request, targets, reference))
            except GitFailed as failure:
                known.notes.append(f"times are not kept, and none of an earlier gate count: {failure}")
        if "findings" in request.layers:
            watch.stage("scanning both versions")
            found = against_ref(reference, settings.paths, request.config)
            take_findings(known, *found)
        if request.layers != ("findings",):
            known.notes += link_paths(links, reference.head_root, reference.root)
        former = former_files(targets, reference)
        renamed = {target.file: former[target.label][0] for target in targets if target.label in former}
        known.notes += [f"{file} was {before} in {known.against}" for file, before in renamed.items()]
        known.new_targets = {target.label for target in targets if is_new(target, reference)} - former.keys()
        beside = _Beside(request, known, targets, reference, former, watch)
        if request.layers != ("findings",):
            beside.look_for_targets()
        if "counters" in request.layers:
            beside.judge_counters()
        if "time" in request.layers:
            beside.judge_times()


def _start_line(request: Request, targets: Sequence[Target], reference: Reference) -> Json:
    """What is timed, with what, for the journal: enough to tell whether another gate would time the same. Raises GitFailed."""
    settings, here = request.settings, reference.head_root
    differ = [name for name in differing(here, reference.commit) if _may_be_read(here / name)]
    by_label = {target.label: {**target.to_json(), "in_place": target.in_place} for target in targets}
    torch = next((found.version for found in distributions(name="torch")), "")
    judged = {"max-regression": settings.max_regression, "tolerate": settings.tolerate}
    return {
        "command": "gate",
        "target": ", ".join(by_label),
        "options": {
            "budget": settings.budget,
            "reference": reference.commit,
            "device": request.device,
            "targets": by_label,
            "links": sorted(settings.links),
            **judged,
            **({"on": request.on} if request.on else {}),
        },
        "files": {name: file_digest(here / name) for name in sorted(differ)},
        "environment": {
            "torch": torch,
            "python": platform.python_version(),
            "machine": platform.node(),
            "cores": usable_cores(),
            "perfaudit": __version__,
        },
        "seed": drawn_seed(),
    }


def _may_be_read(file: Path) -> bool:
    """Whether a training may read this file as code or settings. A report that this or another gate writes is neither."""
    if file.suffix not in CODE_AND_SETTINGS:
        return False
    try:
        with file.open("rb") as opened:
            return REPORT_SCHEMA.encode() not in opened.read(100)
    except OSError:  # it was removed
        return True


def _take_acceptances(request: Request, known: Known, reference: Reference) -> None:
    """Read what this change accepts: in the baseline file as it is here, and not in the reference's."""
    file = request.settings.baseline or BASELINE
    known.baseline = gate_baseline_if_there(Path(file))
    known.accepted, note = acceptances_since(known.baseline, reference.to_there(file), Path(file))
    known.notes += [note] if note else []


@dataclass(frozen=True, slots=True)
class _Beside:
    """Targets as they are here and in the reference, in the layers that run them. former: see `targets_there.former_files`."""

    request: Request
    known: Known
    targets: Sequence[Target]
    reference: Reference
    former: Former
    watch: Watch

    def look_for_targets(self) -> None:
        """Say of targets that the reference alone has that nothing is compared with them; where none is left, it is a failure."""
        known, reference = self.known, self.reference
        if self.targets:
            known.notes += [
                f"{file}: a target in {known.against} and none here, so nothing is compared with it"
                for file in gone_targets(self.request, reference)
                if file not in {before for before, _ in self.former.values()}
            ]
            return
        known.notes.append("no target: no file here defines factories, so counters and time are not judged")
        if not reference.folder.is_dir():
            return
        with contextlib.suppress(TargetError):
            gone = Path(choose_target([], reference.folder).file).name
            why = f"{known.against} defines factories there, and no file here does"
            known.counters[gone] = CountersVerdict(gone, "failed", why)

    def judge_counters(self) -> None:
        """The counters of all targets; new ones have nothing to be compared with."""
        known, budget, began = self.known, self.request.settings.budget, time.monotonic()
        for target in self.targets:
            known.counters[target.label] = (
                new_counters(self.request, known, target, self.watch)
                if target.label in known.new_targets
                else self._counters(target)
            )
        if (spent := time.monotonic() - began) > budget and "time" in self.request.layers:
            said = f"the {budget:.0f} s of --budget, which are for the times alone"
            known.notes.append(f"counting took {spent:.0f} s besides {said}")

    def judge_times(self) -> None:
        """The times of all targets that run; those of which counters say that they do not are not run once more."""
        known = self.known
        there = {target.label: target for target in self.targets if target.label not in known.new_targets}
        failed = {name for name, verdict in known.counters.items() if verdict.verdict == "failed"}
        for name in sorted(failed & there.keys()):
            known.times[name] = TimeVerdict(name, "not_judged", "it does not run, as its counters say")
        for target in self.targets:
            if target.label in known.new_targets:
                known.times[target.label] = self._new_time(target)
        if timed := [target for name, target in there.items() if name not in failed]:
            self._time(timed)

    def _counters(self, target: Target) -> CountersVerdict:
        """The reference is counted once, and again only where it differs: what it does not repeat is no difference."""
        request, known = self.request, self.known
        asked = request.device, request.timeout
        there = replace(target, file=self.former[target.label][0]) if target.label in self.former else target
        try:
            self.watch.stage(f"counting a step of {target.label}: your code")
            side = "your code"
            enough = request.enough_seconds
            after = known.counted[target.label] = count(target, None, *asked, enough=enough)
            side = "the reference"
            for twice in (False, True):
                self.watch.stage(f"counting a step of {target.label}: the reference{', again' if twice else ''}")
                before = count(there, self.reference, *asked, twice=twice, enough=enough)
                verdict = compare_counters(target.label, before, after, request.settings.tolerance)
                same = verdict.verdict == "pass" and not verdict.changes
                if same and verdict.set_aside.keys() <= after.set_aside.keys() | after.absent.keys():
                    break
        except (ChildFailed, UserError) as failure:
            return CountersVerdict(target.label, "failed", f"{side} does not run: {failure}{hint(side, str(failure))}")
        accepted = with_acceptances(verdict, known.baseline, known.accepted, fingerprint(after.training_facts, host()))
        return self._of_the_same_training(accepted)

    def _new_time(self, target: Target) -> TimeVerdict:
        """A new target has nothing to be compared with, but it must run: its counters say so, or one step does."""
        request, known = self.request, self.known
        if target.label not in known.counters:
            self.watch.stage(f"running a step of {target.label}, which is new")
            try:
                known.counted[target.label] = count(target, None, request.device, request.timeout, twice=False)
            except (ChildFailed, UserError) as failure:
                return TimeVerdict(target.label, "failed", f"your code does not run: {failure}")
        return TimeVerdict(target.label, "not_judged", f"new: {known.against} does not have it")

    def _time(self, targets: Sequence[Target]) -> None:
        request, known, settings = self.request, self.known, self.request.settings
        self.watch.stage("timing both versions, interleaved")
        known.records = [TargetRecord(target.label, known.against) for target in targets]
        earlier = known.journal.take_earlier_records(NODES, request.on)
        try:
            with request.nodes(earlier[-1]["nodes"] if earlier else None) as nodes:
                if nodes is not None:
                    known.journal.append(NODES, key=request.on, nodes=nodes.kind_as_json)
                    known.notes.append(f"timed on {nodes.words}")  # whose kind is known by now
                time_targets(
                    targets,
                    self.reference,
                    known.records,
                    settings.budget,
                    settings.max_regression,
                    settings.tolerate,
                    request.device,
                    request.timeout,
                    known.against,
                    watch=self.watch,
                    facts=known.built,
                    journal=known.journal,
                    former={label: before for label, (before, _) in self.former.items()},
                    nodes=nodes,
                )
        finally:  # an interruption leaves pairs that say something
            for verdict in judged_together(known.records, settings.max_regression, settings.tolerate):
                accepted = time_with_acceptances(verdict, known.accepted)
                known.times[verdict.target] = self._of_the_same_training(accepted)

    def _of_the_same_training(self, verdict: Verdict) -> Verdict:
        """Where a file of another name and text was compared with: that got worse against what may have been another training."""
        before, alike = self.former.get(verdict.target, ("", 100))
        if verdict.verdict != "regressed" or alike == 100:
            return verdict
        doubt = f"{before}, of which {alike} % stand in {verdict.target}, may have been another training"
        return replace(verdict, verdict="inconclusive", reason="; ".join(filter(None, [verdict.reason, doubt])))


def hint(side: str, failure: str) -> str:
    """What to do where the reference lacks a file that may be here, "" else."""
    lacks = side == "the reference" and ("FileNotFoundError" in failure or "No such file" in failure)
    return "; what git ignores, such as data, is not in the reference: --link FOLDER puts it there" if lacks else ""
