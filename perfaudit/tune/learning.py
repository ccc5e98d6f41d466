"""What is known of the source as it stands: findings of its text, judged by a run of it, and the facts of the training."""

from __future__ import annotations

from perfaudit.errors import UserError
from perfaudit.findings import Finding
from perfaudit.knobs import knob
from perfaudit.measure.ledger import Variant
from perfaudit.static.texts import patched
from perfaudit.tune.observed import observed_findings
from perfaudit.tune.observed_biases import RULES
from perfaudit.tune.tuning import Tuning, digest_of_texts
from perfaudit.tune.workshop import Json

PROFILING_STEPS = 4  # of patched source, for the shares of its phases; what comes of it is no claim


def learn(tuning: Tuning, knobs: list[str]) -> None:
    """Scan the source as patched so far and, where one of the knobs takes fixes that a run can judge, run and observe it.

    What the run contradicts is told once, on the user's own code.
    """
    with patched(tuning.overlay):
        tuning.learn(_scanned(tuning))
        if not any(set(knob(name).rules) & set(RULES) for name in knobs):
            return
        tuning.watch.stage("observing one step of it")
        key = f"observe {digest_of_texts(tuning.overlay)}".strip()
        merged = observed_findings(tuning, tuning.overlay, key=key)
        tuning.learn(merged.findings)
    if not tuning.overlay:
        tuning.notes += [f"not observed: {problem}" for problem in merged.problems]
        tuning.notes += [f"{f.rule} at {f.location}: withdrawn, {f.note}" for f in merged.withdrawn]


def stand_on(tuning: Tuning, overlay: dict[str, str], knobs: list[str]) -> int | None:
    """Take this text for the user's code from here on: facts, profile and findings of it. Returns its peak bytes.

    Raises ChildFailed where it cannot be built; nothing has changed then.
    """
    key = f"stand on {digest_of_texts(overlay)}"
    commands: list[Json] = [{"do": "block", "steps": PROFILING_STEPS}, {"do": "memory"}]
    facts, block, memory = tuning.ask(key, Variant(key, "", {}, overlay), *commands)
    profile = {name: seconds / block["steps"] for name, seconds in block.get("phases", {}).items()}
    tuning.overlay = overlay
    tuning.facts = {**facts, "profile": profile or tuning.facts.get("profile")}
    learn(tuning, knobs)
    peak: int | None = memory.get("peak_bytes")
    return peak


def _scanned(tuning: Tuning) -> list[Finding]:
    from perfaudit.static.scan import Options, scan

    try:
        return list(scan(tuning.facts.get("project_files") or [tuning.target.file], Options(processes=1)).findings)
    except UserError:
        return []
