"""Activation checkpointing of the model's repeated blocks: memory given back for computing the forward pass twice."""

from __future__ import annotations

import math

from perfaudit.knobs import Bench, Knob, Setup, Survey, Told
from perfaudit.measurements import Settings
from perfaudit.target.blocks import Repeated, checkpointing

ON: Settings = {"checkpointing": "on"}
OFF: Settings = {"checkpointing": "off"}
WORTH_TELLING = 0.01  # of the peak; allocations move it by less from run to run


class Checkpointing(Knob):
    name = "checkpointing"
    title = "memory and time with the activations of repeated blocks recomputed"
    tries = "Measure memory and time with activations recomputed in the backward pass."
    measures_memory = True
    min_gain = 0.3  # computing more never gains that much: it is chosen for its memory, not by a race

    def not_applicable(self, survey: Survey) -> str:
        if survey.facts.model.recomputes:
            return "the model checkpoints its activations already (gradient_checkpointing is on)"
        if survey.facts.model.repeated is None:
            return "the model has no Sequential or ModuleList of blocks of one class, of which each could be recomputed"
        return ""

    def share(self, survey: Survey) -> float:
        """It gains no time; this much of the searching time is enough to say what it costs."""
        return self.min_gain

    def current(self, survey: Survey) -> Settings:
        return OFF

    def candidates(self, bench: Bench) -> list[Settings]:
        return [ON]

    def setup(self, settings: Settings) -> Setup:
        return Setup(applied=lambda training: checkpointing(training.model)) if settings == ON else Setup()

    def changes_in_place(self, settings: Settings, survey: Survey) -> tuple[str, ...]:
        """Equal losses; batch norms count the recomputation into their running statistics, which an average may follow."""
        return ("algorithm",) if _blocks(survey).batch_norms else ()

    def no_line(self, survey: Survey) -> str:
        return "no patch is made of recomputing blocks: it is a change by hand"

    def words(self, settings: Settings, survey: Survey) -> str:
        return (
            f"recompute each block of {_container(survey)} in the backward pass: "
            "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"
        )

    def kept_words(self, told: Told) -> str:
        peaks = {str(t.settings["checkpointing"]): t.peak_memory_bytes for t in told.trials}
        before, after = peaks.get("off"), peaks.get("on")
        if before is None or after is None:
            return ""
        blocks = f"checkpointing the {_blocks(told.survey).blocks} blocks of {_container(told.survey)}"
        time = _time(told)
        if after > (1 - WORTH_TELLING) * before:
            return (
                f"keep what you have: {blocks} does not lower the peak of {_size(before)} (it is {_size(after)}){time}"
            )
        return (
            f"{blocks} takes peak memory from {_size(before)} to {_size(after)}{time}; "
            "worth it where memory limits the batch"
        )

    def remarks(self, told: Told) -> list[str]:
        batch_norms = _blocks(told.survey).batch_norms
        lines = [f"to have it: {self.words(ON, told.survey)}"]
        if batch_norms:
            lines.append(
                f"the blocks hold {batch_norms} batch norms, which update their running statistics in the "
                "recomputation as well: training is the same, evaluation follows the last batches more closely"
            )
        return lines


def _blocks(survey: Survey) -> Repeated:
    """The model's repeated blocks; asked only where it has some."""
    assert survey.facts.model.repeated is not None
    return survey.facts.model.repeated


def _container(survey: Survey) -> str:
    name = _blocks(survey).name
    return f"`model.{name}`" if name else "`model`"


def _time(told: Told) -> str:
    compared = next((c for c in told.comparisons if c.of == "step"), None)
    if compared is None:
        return " (what it costs in time was not reached, give it longer with --budget)"
    if compared.high == math.inf:
        return f" and makes the step about {compared.ratio:.2f} times as long (too few rounds for an interval)"
    return f" and makes the step {compared.ratio:.2f} [{compared.low:.2f}, {compared.high:.2f}] times as long"


def _size(count: int) -> str:
    """Bytes as a reader takes them in."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


KNOB = Checkpointing()
