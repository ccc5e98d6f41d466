"""What a run of the training says of findings that were read from its text: confirmed, counted, taken back, or new."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfaudit.findings import Finding, Location
from perfaudit.knobs import Survey
from perfaudit.knobs._code import Code
from perfaudit.measure.child import ChildFailed
from perfaudit.measure.ledger import Variant
from perfaudit.static.document import handed_over
from perfaudit.static.registry import Proposal, Seen, catalogue, finding_of
from perfaudit.static.source import Source
from perfaudit.static.suppress import suppressions
from perfaudit.static.understanding.devices import uses_accelerator
from perfaudit.tune.observed_biases import RULES, Json, ReadOnce, append_note, judge_bias, layers_of, missed_findings
from perfaudit.tune.observed_flow import judge_by_flow
from perfaudit.tune.session import Session

SYNCS, SHAPES, DIMENSIONS = "PA601", "PA604", "PA206"
_SHAPED = {"nonzero", "masked_select", "unique", "mask", "bincount", "repeat_interleave"}  # sizes the device must tell


@dataclass(frozen=True, slots=True)
class Merged:
    """Findings after a run was observed, and those that it contradicts: without a fix, with what was seen as their note."""

    findings: tuple[Finding, ...]
    withdrawn: tuple[Finding, ...] = ()
    problems: tuple[str, ...] = ()  # what could not be observed, and why

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report says of what could not be observed, and of what is taken back."""
        taken_back = (f"{each.location}: {each.rule} is taken back: {each.note}" for each in self.withdrawn)
        return (*(f"not observed: {problem}" for problem in self.problems), *taken_back)


def observed_findings(session: Session, survey: Survey, seconds: float | None = None) -> Merged:
    """The findings of a survey, with what a child says of a run of the training as it is.

    seconds: what observing may take once the training is built; the session's timeout if it is not said.
    A child that cannot observe is a problem that is told; the findings are then as they were.
    """
    command: Json = {"do": "observe", **({"timeout": seconds} if seconds is not None else {})}
    try:
        reply = session.questions.ask("observe", Variant("observe", "", {}), command)[1]
    except ChildFailed as failure:
        return Merged(survey.findings, problems=(str(failure),))
    return merge_findings(survey.findings, reply, _on_accelerator(session, survey))


def _on_accelerator(session: Session, survey: Survey) -> bool:
    """Whether the program is one for an accelerator, though it may run without one here."""
    facts, code = survey.facts, Code(session.target.file, survey)
    if facts.device.type != "cpu":
        return True
    sources = (code.source(path) for path in [session.target.file, *facts.project_files])
    return any(source is not None and uses_accelerator(source) for source in sources)


def merge_findings(findings: Iterable[Finding], seen: Json, on_accelerator: bool = True) -> Merged:
    """Findings of a scan and what a child saw, as findings of the same rules.

    Confirmed ones carry a note that begins with "observed:". A finding is withdrawn where all layers that its call builds
    were seen to run and contradict it; where only some do, its fix becomes advice. New ones are told only for calls and
    lines of the project that no comment silences, syncs only where the program is one for an accelerator; they have no
    fingerprint.
    """
    code = ReadOnce()
    layers = layers_of(seen)
    kept: list[Finding] = []
    withdrawn: list[Finding] = []
    for finding in findings:
        if finding.rule in RULES:
            finding, is_withdrawn = judge_bias(finding, layers, code)
        else:
            finding, is_withdrawn = judge_by_flow(finding, seen)
        (withdrawn if is_withdrawn else kept).append(finding)
    norms = {entry["layer"]: entry for entry in seen.get("layers") or [] if "Norm" in entry["kind"]}
    new = list(missed_findings(layers, norms, [*kept, *withdrawn], code))
    kept, more = _with_syncs(kept, seen.get("syncs") or [], code)
    new += more if on_accelerator else []
    kept, more = _with_dimensions(kept, seen.get("unaligned") or [], code)
    told = [_handed_over(finding, code) for finding in (*new, *more) if not _is_silenced(finding, code)]
    return Merged((*kept, *told), tuple(withdrawn), tuple(seen.get("problems") or ()))


def _handed_over(finding: Finding, code: ReadOnce) -> Finding:
    """The finding, its fix with all that is needed to apply it later."""
    if finding.fix is None or not finding.fix.edits or finding.location is None:
        return finding
    path = finding.location.path
    source = code.source(path)
    return finding.with_(fix=handed_over(path, source.text, finding.fix)) if source is not None else finding


def _is_silenced(finding: Finding, code: ReadOnce) -> bool:
    place = finding.location
    source = code.source(place.path) if place is not None else None
    if place is None or source is None:
        return True
    lines = {place.line, place.end_line}
    return any((c.whole_file or c.line in lines) and c.silences(finding) for c in suppressions(source.text))


# ---- syncs -----------------------------------------------------------------------------------------------------------


def _with_syncs(findings: list[Finding], syncs: list[Json], code: ReadOnce) -> tuple[list[Finding], list[Finding]]:
    """The findings with how often a step waits at their places, and new ones for the other lines that wait."""
    counts: Counter[tuple[str, int]] = Counter()
    for sync in syncs:
        counts[(sync["path"], sync["line"])] += sync["count"]
    told: set[tuple[str, int]] = set()
    noted_ones = []
    for finding in findings:
        here = [at for at in counts if finding.rule in (SYNCS, SHAPES) and _covers(finding, at)]
        told |= set(here)
        noted_ones.append(
            append_note(finding, f"observed: {_times(sum(counts[at] for at in here))}") if here else finding
        )
    new: list[Finding] = []
    for path, line in counts:
        source = code.source(path)
        if (path, line) not in told and source is not None:
            here_too = [s for s in syncs if (s["path"], s["line"]) == (path, line)]
            new += _new_sync(source, line, here_too)
    return noted_ones, new


def _covers(finding: Finding, at: tuple[str, int]) -> bool:
    places = [*finding.places, *([finding.location] if finding.location is not None else [])]
    return any(place.path == at[0] and place.line <= at[1] <= place.end_line for place in places)


def _times(count: int) -> str:
    return f"the host waits here {'once' if count == 1 else f'{count} times'} a step"


def _new_sync(source: Source, line: int, syncs: list[Json]) -> Iterator[Finding]:
    node = _expression(source, line, {sync["what"] for sync in syncs})
    if node is None:
        return
    has_shape = any(sync["what"] in _SHAPED for sync in syncs)
    rule = catalogue().rules[SHAPES if has_shape else SYNCS]
    of_batch = all(sync["of"] == "batch" for sync in syncs)
    title = "keep the detached tensor, and read it only on the steps that show it"
    if has_shape:
        title = "keep the shape: `torch.where` or a product with the mask instead of taking elements out"
    elif of_batch:
        title = "it derives from the batch alone: read it before the batch is sent to the device, or in the dataset"
    message = f"`{source.brief(node)}` makes the host wait for the device on every step"
    yield append_note(
        finding_of(source, rule, Seen(node, message, Proposal(title), hot=True)),
        f"observed: {_times(sum(sync['count'] for sync in syncs))}",
    )


def _expression(source: Source, line: int, whats: set[str]) -> ast.AST | None:
    """What waits on a line: the call of a method that was seen, a condition, or else the innermost statement."""
    calls = [c for c in source.nodes(ast.Call) if c.lineno <= line <= (c.end_lineno or c.lineno)]
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr in whats:
            return call
        if isinstance(call.func, ast.Name) and call.func.id in whats & {"float", "int", "bool", "print"}:
            return call
    kinds = (ast.If, ast.While, ast.Assert, ast.IfExp)
    tests = [node.test for node in ast.walk(source.tree) if isinstance(node, kinds)]
    asked = [test for test in tests if test.lineno <= line <= (test.end_lineno or test.lineno)]
    if "bool" in whats and asked:
        return asked[-1]
    every = (node for node in ast.walk(source.tree) if isinstance(node, ast.stmt))
    statements = [s for s in every if s.lineno <= line <= (s.end_lineno or s.lineno)]
    return max(statements, key=lambda s: (s.lineno, s.col_offset)) if statements else None


# ---- dimensions ------------------------------------------------------------------------------------------------------


def _with_dimensions(findings: list[Finding], seen: list[Json], code: ReadOnce) -> tuple[list[Finding], list[Finding]]:
    """The findings with the number of layers of that size, and new ones for vocabularies and widths that the text hides."""
    by_place: dict[Location, list[Json]] = {}
    for entry in seen:
        place = code.place(entry.get("site"))
        if place is not None:
            by_place.setdefault(place, []).append(entry)
    told = []
    for finding in findings:
        here = by_place.get(finding.location, []) if finding.location is not None else []
        if finding.rule == DIMENSIONS and here:
            names = ", ".join(sorted({f"`{entry['module']}`" for entry in here})[:3])
            finding = append_note(finding, f"observed: {len({e['module'] for e in here})} built here ({names})")
        told.append(finding)
    known = {finding.location for finding in findings if finding.rule == DIMENSIONS}
    sizes = {entry["size"] for place in known if place in by_place for entry in by_place[place]}
    new: dict[int, Finding] = {}  # one of each size: they change together
    for place, (entry, *_) in by_place.items():
        if entry["size"] not in sizes | new.keys():
            new[entry["size"]] = _new_size(place, entry, code)
    return told, list(new.values())


def _new_size(place: Location, entry: Json, code: ReadOnce) -> Finding:
    source, call = code.known[entry["site"][0]], code.call(entry["site"])
    assert source is not None and call is not None, place  # it has a place
    size, step = entry["size"], entry["wanted"]
    brief = source.brief(call[1])
    message = (
        f"{entry['dimension']} of {size} is no multiple of {step}: `{brief}` runs in slower kernels in mixed precision"
    )
    proposal = Proposal(f"take {size // step * step} or {-(-size // step) * step} for a new model")
    seen = Seen(call[1], message, proposal)
    return append_note(
        finding_of(source, catalogue().rules[DIMENSIONS], seen), f"observed: it is built here as `{entry['module']}`"
    )
