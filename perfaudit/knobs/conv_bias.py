"""Biases of convolutions and linear layers that the norm behind them subtracts again: kept, and left out."""

from __future__ import annotations

from perfaudit.knobs import Survey, Told
from perfaudit.knobs._rewritten import Rewritten
from perfaudit.measurements import Settings

RUNNING_MEAN = (
    "checkpoints saved before no longer load strictly, and evaluate wrongly when forced: "
    "`perfaudit migrate-checkpoint old.pt new.pt --target FILE` folds their biases into the norms"
)


class ConvBias(Rewritten):
    name = "conv_bias"
    title = "biases that the norm behind them subtracts again, kept and left out"
    way = "fresh"  # its patch changes what is built, and no step runs that
    rules = ("PA201", "PA202")
    column = "bias"
    before = "kept"
    after = "left out"
    sought = "bias of a convolution or linear layer directly before a norm"
    changes_always = ("rounding", "rng", "checkpoint")

    def words(self, settings: Settings, survey: Survey) -> str:
        return "give layers directly before a norm no bias (bias=False): the norm subtracts it again"

    def remarks(self, told: Told) -> list[str]:
        return [*super().remarks(told), *([RUNNING_MEAN] if told.winner is not None else [])]


KNOB = ConvBias()
