"""Attention written out by hand, or computed with weights that are dropped, against torch's fused operator."""

from __future__ import annotations

from perfaudit.knobs import Survey
from perfaudit.knobs._source_knobs import Rewritten
from perfaudit.measurements import Settings


class Attention(Rewritten):
    name = "attention"
    title = "attention as you wrote it, and torch's fused operator"
    tries = "Try torch's fused attention in the place of one that is written out."
    usual_gain = 0.2
    rules = ("PA203", "PA208")
    column = "attention"
    after = "fused"
    sought = "hand-written attention, and no MultiheadAttention whose weights are dropped,"
    changes_always = ("rounding",)

    def words(self, settings: Settings, survey: Survey) -> str:
        found = [rule for rule in self.rules if survey.patchable(rule)]
        ways = {
            "PA203": "compute attention with F.scaled_dot_product_attention",
            "PA208": "call MultiheadAttention with need_weights=False",
        }
        return " and ".join(ways[rule] for rule in found) or ways["PA203"]


KNOB = Attention()
