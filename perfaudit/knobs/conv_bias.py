"""Biases of convolutions and linear layers that the norm behind them subtracts again: kept, and left out."""

from __future__ import annotations

import contextlib
from typing import Any

from perfaudit.knobs import Survey, Told, Way
from perfaudit.knobs._code import Patch
from perfaudit.knobs._source_knobs import Rewritten
from perfaudit.measurements import Settings
from perfaudit.training.biases import without_biases

RUNNING_MEAN = (
    "checkpoints saved before no longer load strictly, and evaluate wrongly when forced: "
    "`perfaudit migrate-checkpoint old.pt new.pt --target FILE` folds their biases into the norms"
)


class ConvBias(Rewritten):
    name = "conv_bias"
    title = "biases that the norm behind them subtracts again, kept and left out"
    tries = "Try leaving out biases that a norm subtracts again."
    usual_gain = 0.03
    way = "fresh"  # its patch changes what is built, and no step runs that
    rules = ("PA201", "PA202")
    column = "bias"
    before = "kept"
    after = "left out"
    sought = "bias of a convolution or linear layer directly before a norm"
    changes_always = ("rounding", "rng", "checkpoint")

    def way_on(self, survey: Survey, settings: Settings) -> Way:
        return "setting" if survey.facts.is_script else self.way

    def told_in_place(self, patch: Patch, settings: Settings) -> Settings:
        """With the places that the patch edits: layers that calls there have built are those that lose their bias."""
        places = [_place(patch.before, edit.span.start) for edit in patch.edits]
        return {**settings, "path": patch.path, "places": " ".join(places)}

    def in_place(self, training: Any, settings: Settings) -> contextlib.AbstractContextManager[None]:
        return without_biases(training, str(settings["path"]), str(settings["places"]).split())

    def words(self, settings: Settings, survey: Survey) -> str:
        return "give layers directly before a norm no bias (bias=False): the norm subtracts it again"

    def remarks(self, told: Told) -> list[str]:
        return [*super().remarks(told), *([RUNNING_MEAN] if told.winner is not None else [])]


def _place(text: str, at: int) -> str:
    """Line and column of a character, as `Site` counts them."""
    before = text[:at]
    return f"{before.count(chr(10)) + 1}:{len(before.rpartition(chr(10))[2].encode())}"


KNOB = ConvBias()
