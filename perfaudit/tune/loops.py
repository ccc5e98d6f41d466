"""Patches that a script is started with, because its own loop runs when they are raced: see `measure.loop_patches`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfaudit.findings import Finding
from perfaudit.knobs._code import inside_project
from perfaudit.measure.clock import Deadline
from perfaudit.target.names import Target
from perfaudit.tune.candidates import Candidate, texts_of
from perfaudit.tune.plan import candidate_of
from perfaudit.tune.profile import Profile
from perfaudit.tune.session import Session
from perfaudit.tune.workshop import Children, Json

OF_SEVERAL_PROCESSES = frozenset({"PA701"})  # rules whose patch cannot be raced in one process
READ_AT_START = frozenset({"PA504"})  # rules whose patch changes what a process reads once, as it starts
STARTING_SHARE = 0.25  # of what is left, which starting a script once more may take


def expect_findings(target: Target, workshop: Children, findings: Iterable[Finding]) -> None:
    """Have a script ready for the fixes of these findings before it is started."""
    if target.is_script:
        expect(workshop, candidates_of_findings(findings))


def expect_candidates(session: Session, profile: Profile, candidates: Sequence[Candidate], deadline: Deadline) -> None:
    """Have a script ready for the patches of these candidates, where there is the time to start it once more."""
    if session.target.is_script and profile.seconds_to_open < STARTING_SHARE * deadline.seconds_left():
        expect(session.workshop, candidates)


def expect(workshop: Children, candidates: Sequence[Candidate]) -> None:
    """Have a script ready for the patches of these candidates."""
    swapped = [candidate for candidate in candidates if candidate.way == "code"]

    def texts(*numbers: int) -> Json | None:
        mine = [swapped[number] for number in numbers]
        try:
            patched = texts_of(mine)
        except ValueError:
            return None
        return {path: [next(c.before for c in mine if c.path == path), text] for path, text in patched.items()}

    alone = [texts(number) for number in range(len(swapped))]
    known = [number for number, patched in enumerate(alone) if patched is not None]
    patches = [patched for patched in alone if patched is not None]
    workshop.expect(patches, lambda i, j: texts(known[i], known[j]))


def candidates_of_findings(findings: Iterable[Finding]) -> list[Candidate]:
    """Findings of one rule in one file with their fixes as one candidate, as far as that is a patch of the project's."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        if finding.rule in OF_SEVERAL_PROCESSES | READ_AT_START:
            continue
        if finding.location is not None and finding.fix is not None and finding.fix.edits:
            groups.setdefault((finding.rule, finding.location.path), []).append(finding)
    merged = (candidate_of(rule, path, group) for (rule, path), group in groups.items() if inside_project(path))
    return [candidate for _, candidate in filter(None, merged)]
