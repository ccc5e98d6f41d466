"""Write the patches of winners into the source they were measured on."""

from __future__ import annotations

from pathlib import Path

from perfaudit.findings import Edit
from perfaudit.report import Report
from perfaudit.static import edit
from perfaudit.static.fix import Patched, write
from perfaudit.static.source import read_text


def apply_winners(report: Report) -> list[str]:
    """Apply every winner's patch, one file at a time, and say what was done. Raises UserError if a file changed.

    Winners of several knobs can touch the same call; what overlaps is left for another run.
    """
    said = []
    by_path: dict[str, list[int]] = {}
    for index, winner in enumerate(report.winners):
        if winner.fix is not None and winner.location is not None and winner.fix.edits:
            by_path.setdefault(winner.location.path, []).append(index)
        elif not winner.keeps_current:
            said.append(f"{winner.knob}: nothing to apply, {winner.words}")
    for path, indexes in by_path.items():
        text, _ = read_text(Path(path))
        chosen: tuple[Edit, ...] = ()
        for index in indexes:
            winner = report.winners[index]
            assert winner.fix is not None
            before = edit.diff(path, text, edit.apply(text, winner.fix.edits))
            if before != winner.fix.diff:
                said.append(f"{path}: changed since it was measured; {winner.knob} is not applied")
            elif edit.overlap(chosen, winner.fix.edits):
                said.append(f"{path}: {winner.knob} touches the same text as another winner; run again for it")
            else:
                chosen += winner.fix.edits
                said.append(f"{path}: {winner.knob} applied")
        if chosen:
            write(Patched(path, text, edit.apply(text, chosen), (), ()))
    return said or ["nothing to apply: every knob keeps what you have"]
