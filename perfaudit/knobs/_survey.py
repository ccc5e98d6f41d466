"""What is known of a training when its knobs are asked: facts of the built one, a first profile, findings of its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from perfaudit.findings import Finding
from perfaudit.measure.facts import Facts


@dataclass(frozen=True, slots=True)
class Survey:
    """It grows by being replaced. profile: seconds of a step by phase, {} before it was timed; findings: of a scan, () before.

    page_faults: of a step, see `target.freed_memory`; None before it was timed.
    """

    facts: Facts
    profile: Mapping[str, float] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    page_faults: float | None = None

    @property
    def step_seconds(self) -> float:
        """Of a step, by the profile; 0 before it was timed."""
        return sum(self.profile.values())

    def places(self, rule: str) -> list[str]:
        """ "file:line:column" of each finding of a rule; none where no scan was made."""
        return [str(finding.location) for finding in self.findings if rule in (finding.rule, *finding.also)]

    def patchable(self, *rules: str) -> int:
        """How many findings of these rules have a patch."""
        return sum(finding.rule in rules and _has_patch(finding) for finding in self.findings)

    def by_hand(self, rule: str) -> list[str]:
        """ "file:line" of each finding of a rule that has no patch."""
        found = [f for f in self.findings if f.rule == rule and not _has_patch(f)]
        return [str(finding.location).rpartition(":")[0] for finding in found]


def _has_patch(finding: Finding) -> bool:
    return finding.fix is not None and bool(finding.fix.edits)
