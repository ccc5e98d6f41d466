"""What a run says of findings that were read from the text: which of them lie in a phase that takes much of a step. Pure."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from perfaudit.findings import Finding
from perfaudit.runs import NEVER_BUILT, PHASE_WORDS, Run, rank_with_most
from perfaudit.script.never_called import is_where_optimizer_is_built

# The phase that a finding of a rule can shorten, by the beginning of the rule's name; others are of no one phase.
PHASE_OF_RULE = {
    "PA101": "data_wait",
    "PA102": "host_to_device",
    "PA104": "host_to_device",
    "PA401": "optimizer",
    "PA402": "optimizer",
    "PA403": "optimizer",
    "PA405": "average",
    "PA406": "average",
}
# Rules about what a step does, where it does it. Others are about what is built before, or what other processes do.
IN_STEPS: tuple[str, ...] = ("PA110", "PA203", "PA204", "PA205", "PA207", "PA208", "PA209", "PA210", "PA212", "PA213")
IN_STEPS += ("PA404", "PA407", "PA601", "PA602", "PA603", "PA604", "PA605", "PA606", "PA803", "PA804")
WORTH_SAYING = 0.02  # of a step: a finding in a phase that takes less comes last
Lines = tuple[str, int, int]  # file, first and last line of a call, or of a class
# Models given to DistributedDataParallel, as `collectives.Collectives.wrapped_models` has them.
Wrapped = Sequence[Mapping[str, Any]]
NEVER_READ = "no step that was seen has read a batch of this loader"
NEVER_UPDATES = "the optimizer that is built here updated nothing in the steps of this run"
ALONE = "it costs time where several processes train together, and this run was of one"
OF_SEVERAL_PROCESSES = ("PA702", "PA703", "PA704", "PA705", "PA706", "PA707", "PA708", "PA709")
NEVER_WRAPPED = "no model was wrapped here in this run"
ELSEWHERE = "it costs time on an accelerator, and this run was on the CPU"
FEW_BITS = "PA304"  # the rule about bfloat16, which is not for accelerators alone
ON_FEW_PROCESSORS = (
    "this run was on the CPU: some processors multiply bfloat16 faster, and `--precision` of `tune` measures it"
)
OF_TRANSFORMERS = "has the Trainer compute"  # in the message of that rule, of Hugging Face's Trainer
BESIDE_USE_CPU = (
    "this run was on the CPU, where the Trainer takes bf16=True only beside use_cpu=True; where that is given, `--precision` "
    "of `tune` measures it"
)
FUSED = "PA402"
FUSED_ON_CPU = (
    "this run was on the CPU: a fused update pays in some trainings there and not in others, and `perfaudit tune --optimizer` "
    "measures it"
)
NEVER_CALLED = "the steps in which this was looked for did not come to this function"
NEVER_RUN = "these lines run only where their file is the script"
# In this order.
LAST = (NEVER_CALLED, NEVER_READ, NEVER_UPDATES, NEVER_RUN, NEVER_WRAPPED, ALONE, ELSEWHERE, NEVER_BUILT)


def order_findings(
    findings: Sequence[Finding],
    run: Run,
    accelerator_only: Collection[str] = (),
    never_read: Sequence[Lines] = (),
    never_built: Sequence[Lines] = (),
    never_run: Sequence[Lines] = (),
    never_called: Sequence[Lines] = (),
    called: Sequence[Lines] = (),
    wrapped: Wrapped | None = None,
    never_used: Sequence[Lines] = (),
) -> tuple[Finding, ...]:
    """Those whose phase was seen to take a share worth saying first, the largest first; then what no phase was seen for.
    Of these, rules about what a step does come first where a step was seen to run their function.

    Last, and said so: what lies in a phase that hardly takes any time; functions that no step calls; loaders that no step has
    read; optimizers that made no update; what costs time where several processes train; on a CPU what costs time on
    accelerators only; and modules of which none was built. A hint is said only where its phase takes such a share, and so it is
    on a CPU with optimizers that are not fused.

    accelerator_only: ids of such rules. never_read: the calls that build such loaders. never_built: the classes of such
    modules. never_run: what stands under `if __name__ == "__main__"` in other files than the script.
    never_called: findings in functions that no step was seen to call. called: in functions that one was. wrapped: None where
    that was not looked at. never_used: calls of optimizers that were not seen to update anything.
    """
    findings = _observe_wrapped(findings, wrapped)
    if not run.phases:
        return tuple(finding for finding in findings if finding.severity != "hint")
    why = {
        id(finding): note
        for finding in findings
        if (
            note := _why_last(
                finding, run, accelerator_only, never_read, never_built, never_run, never_called, wrapped, never_used
            )
        )
    }
    findings = [f for f in findings if f.severity != "hint" or (id(f) not in why and _is_worth_saying(f, run))]
    last = sorted((each for each in findings if id(each) in why), key=lambda each: LAST.index(why[id(each)]))
    findings = [finding for finding in findings if id(finding) not in why]
    observed = [
        (_with_share(finding, share, run), share) for finding in findings if (share := _share(finding, run)) is not None
    ]
    large = sorted((each for each in observed if each[1] >= WORTH_SAYING), key=lambda each: -each[1])
    is_on_cpu = run.device == "cpu"
    small = [
        finding for finding, share in observed if share < WORTH_SAYING and not (finding.rule == FUSED and is_on_cpu)
    ]
    rest = sorted(
        (finding for finding in findings if _share(finding, run) is None),
        key=lambda each: not (each.rule.startswith(IN_STEPS) and _lies_in(each, called)),
    )
    if is_on_cpu:
        rest = [_with_note(each, _few_bits_on_cpu(each)) if each.rule.startswith(FEW_BITS) else each for each in rest]
    return (*(finding for finding, _ in large), *rest, *small, *(_with_note(each, why[id(each)]) for each in last))


def _few_bits_on_cpu(finding: Finding) -> str:
    return BESIDE_USE_CPU if OF_TRANSFORMERS in finding.message else ON_FEW_PROCESSORS


def _observe_wrapped(findings: Sequence[Finding], wrapped: Wrapped | None) -> list[Finding]:
    """The same with what was seen of the models that calls have wrapped; without calls whose models were never run."""
    seen = []
    for finding in findings:
        here = _wrapped_by(finding, wrapped)
        if here and not any(each["is_called"] for each in here):
            continue
        most = max((each["gradient_bytes"] for each in here or () if each["is_called"]), default=0)
        note = f"observed: gradients of {most / 2**20:.3g} MiB, which the buckets hold a second time"
        seen.append(_with_note(finding, note) if most else finding)
    return seen


def _wrapped_by(finding: Finding, wrapped: Wrapped | None) -> Wrapped | None:
    """Models that the call of a finding has wrapped; None where that was not looked at, and of findings of other rules."""
    place = finding.location
    if finding.rule != "PA704" or place is None or wrapped is None:
        return None
    path = os.path.realpath(place.path)
    return [
        each
        for each in wrapped
        if os.path.realpath(each["file"]) == path and place.line <= each["line"] <= place.end_line
    ]


def _why_last(
    finding: Finding,
    run: Run,
    accelerator_only: Collection[str],
    never_read: Sequence[Lines],
    never_built: Sequence[Lines],
    never_run: Sequence[Lines],
    never_called: Sequence[Lines],
    wrapped: Wrapped | None,
    never_used: Sequence[Lines],
) -> str:
    """Why a finding has made no step of this run longer, as one of LAST; "" of the others."""
    if _lies_in(finding, never_built):
        return NEVER_BUILT
    if _lies_in(finding, never_run):
        return NEVER_RUN
    if _wrapped_by(finding, wrapped) == []:
        return NEVER_WRAPPED
    if finding.rule.startswith(IN_STEPS) and _lies_in(finding, never_called):
        return NEVER_CALLED
    if run.device == "cpu" and finding.rule in accelerator_only:
        return ELSEWHERE
    if finding.rule.startswith("PA1") and _lies_in(finding, never_read):
        return NEVER_READ
    if _is_of_unused_optimizer(finding, run) or _lies_in(finding, never_used):
        return NEVER_UPDATES
    return ALONE if run.ranks < 2 and finding.rule in OF_SEVERAL_PROCESSES and not run.in_started else ""


def _lies_in(finding: Finding, lines: Sequence[Lines]) -> bool:
    """Whether a finding is in one of these calls or classes."""
    place = finding.location
    if place is None or not lines:
        return False
    path = os.path.realpath(place.path)
    return any(os.path.realpath(file) == path and first <= place.line <= last for file, first, last in lines)


def _is_of_unused_optimizer(finding: Finding, run: Run) -> bool:
    """Whether a finding is about an optimizer of a class that was not seen to update anything."""
    named = re.match(r"`(?:\w+\.)*(\w+)`", finding.message) if is_where_optimizer_is_built(finding) else None
    return named is not None and bool(run.optimizer_names) and named[1] not in run.optimizer_names


def _with_note(finding: Finding, note: str) -> Finding:
    return finding.with_(note="; ".join(filter(None, [note, finding.note])))


def _share(finding: Finding, run: Run) -> float | None:
    phase = next((phase for rule, phase in PHASE_OF_RULE.items() if finding.rule.startswith(rule)), None)
    if phase is None or (phase == "average" and not run.phases[phase]):  # the script's own average is no phase
        return None
    most = rank_with_most(phase, run)
    return max(run.phases[phase], most.phases.get(phase, 0.0) if most is not None else 0.0)


def _is_worth_saying(finding: Finding, run: Run) -> bool:
    return (_share(finding, run) or 0.0) >= WORTH_SAYING


def _with_share(finding: Finding, share: float, run: Run) -> Finding:
    phase = next(phase for rule, phase in PHASE_OF_RULE.items() if finding.rule.startswith(rule))
    most = rank_with_most(phase, run)
    where = f"on rank {most.rank}" if most is not None and share > run.phases[phase] else "here"
    note = f"observed: {PHASE_WORDS[phase]} takes {100 * share:.1f} % of a step {where}"
    if phase == "optimizer" and run.optimizers > 1:
        note += ", all optimizers together"
    if finding.rule == FUSED and run.device == "cpu":
        note += f"; {FUSED_ON_CPU}"
    return _with_note(finding, note)
