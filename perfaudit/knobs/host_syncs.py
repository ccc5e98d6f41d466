"""Sums of losses that a loop reads on the host at every step, or that keep the graph of every step: kept as tensors instead."""

from __future__ import annotations

from perfaudit.knobs import Survey
from perfaudit.knobs._code import Code, Patch
from perfaudit.knobs._source_knobs import Rewritten
from perfaudit.measurements import Settings

READS, GRAPHS = "PA601", "PA603"


class HostSyncs(Rewritten):
    """Reading a number makes the host wait for an accelerator; on the CPU it waits for nothing, and stays as it is."""

    name = "host_syncs"
    title = "sums of losses as you keep them, and as tensors without a graph"
    tries = "Try keeping sums of losses as tensors, so that no step waits for a number or keeps its graph."
    usual_gain = 0.05
    rules = (READS, GRAPHS)
    phases = ()
    column = "sums"
    after = "tensors"
    sought = "loss that is read or summed with its graph at every step"

    def not_applicable(self, survey: Survey) -> str:
        if survey.facts.device.type == "cpu" and not survey.places(GRAPHS) and survey.places(READS):
            return "on the CPU reading a number waits for nothing"
        return super().not_applicable(survey)

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        rules = (GRAPHS,) if code.survey.facts.device.type == "cpu" else self.rules
        return code.fixes(rules) if settings[self.column] == self.after else None

    def words(self, settings: Settings, survey: Survey) -> str:
        on_cpu = survey.facts.device.type == "cpu"
        places = [*([] if on_cpu else survey.places(READS)), *survey.places(GRAPHS)]
        return f"keep sums of losses as tensors without a graph, in {', '.join(places)}"


KNOB = HostSyncs()
