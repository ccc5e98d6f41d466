"""Write the patch of a winner into the source it was measured on."""

from __future__ import annotations

from pathlib import Path

from perfaudit.measurements import Winner
from perfaudit.report import Report
from perfaudit.static import edit
from perfaudit.static.fix import Patched, write
from perfaudit.static.source import read_text


def apply_winners(report: Report) -> list[str]:
    """Apply the patch that saves most for certain, and say what was done and what is left. Raises UserError.

    One patch, because each was measured and checked alone: what several do together is only known when they have been
    measured together, so the next is for another run, on top of this one. What changes the algorithm (another batch
    size) is applied where it is the only patch.
    """
    said = []
    patches: list[Winner] = []
    for winner in report.winners:
        if winner.fix is not None and winner.location is not None and winner.fix.edits:
            patches.append(winner)
        elif not winner.keeps_current:
            said.append(f"{winner.knob}: nothing to apply, {winner.words}")
    ordered = sorted(patches, key=lambda w: (_is_another_training(w), -w.saving.low if w.saving else 0.0))
    done = _applied(ordered[0]) if ordered else ""
    for winner in ordered[1:]:
        why = (
            "it is another training, so name it alone to have it applied"
            if _is_another_training(winner)
            else "it was measured without the one above; run again to have it measured on top"
        )
        said.append(f"{winner.knob}: not applied, {why}")
    return [done, *said] if done else said or ["nothing to apply: every knob keeps what you have"]


def _is_another_training(winner: Winner) -> bool:
    return winner.fix is not None and "algorithm" in winner.fix.changes


def _applied(winner: Winner) -> str:
    assert winner.fix is not None and winner.location is not None
    path = winner.location.path
    text, _ = read_text(Path(path))
    after = edit.apply(text, winner.fix.edits)
    if edit.diff(path, text, after) != winner.fix.diff:
        return f"{path}: changed since it was measured; {winner.knob} is not applied"
    write(Patched(path, text, after, (), ()))
    return f"{path}: {winner.knob} applied"
