"""Batches of samples of similar length, in the place of random ones, which are padded to their longest sample.

A step then has other samples, so its time alone would say nothing. Blocks are as long as a window of the sampler, in which it
gives the samples that the loader would give there in its own order, and times are told by the token where batches have a mask.
"""

from __future__ import annotations

import random
import re
from typing import Any

from perfaudit.knobs import Bench, Knob, Refused, Reply, Setup, Survey, Told, Unanswered
from perfaudit.knobs._batches_by_length import ALONE, NAME, WINDOW, NotWritten, random_loader, sampler_edits
from perfaudit.knobs._code import Code, Patch, built_at
from perfaudit.knobs._samples_alike import changes_its_dataset
from perfaudit.measurements import Settings

AS_DRAWN = "as drawn"
BY_LENGTH = re.compile(r"by (?:len\(sample(?P<accessor>.*)\)|sample(?P<array>.*)\.shape\[(?P<dimension>\d+)\])")
LEAST_PADDING = 0.02  # of what batches hold, that must go away: less saves less than a verdict needs
MOST_READING = 120.0  # seconds at each start, for reading the lengths of all samples


class Sampler(Knob):
    name = "sampler"
    title = "batches of samples of similar length, which need less padding"
    tries = "Try batches of samples of similar length, which need less padding."
    usual_gain = 0.3
    way = "fresh"  # nothing but the patched source has it
    gains_from = ("forward", "loss", "backward", "loading")
    in_process = False
    fixed_batch = False
    counts_tokens = True
    is_measured_unpatched = False
    asks = 1
    min_gain = 0.03  # as for the loader's other settings
    changes_always = ("order",)
    offers = frozenset()
    alone_because = "steps have other samples with it, so that a climb, which compares steps, has no measure for it"

    def not_applicable(self, survey: Survey) -> str:
        loader = survey.facts.loader
        if not loader.is_there:
            return "the script takes its batches from no DataLoader"
        if loader.owner:
            return f"{loader.owner} builds the loader itself"
        if loader.prefix:
            return "a trainer builds the loader from its own arguments; that of transformers has group_by_length=True for this"
        if loader.iterable:
            return "an iterable dataset gives its samples in its own order, which no sampler changes"
        if loader.batch_size is None:
            return "the loader has a batch sampler of its own, or makes no batches"
        if loader.batch_size == 1:
            return "a batch of one sample has no padding"
        found = Code("", survey).call(loader.site)
        if found is None:
            return f"no line of your files builds the loader{built_at(loader.site)}"
        try:
            loading = random_loader(*found)
        except NotWritten as why:
            return str(why)
        if loading.drawing is not None:
            return "it shares its samples out among ranks: behind a launcher --sampler races it on all of them"
        if changes_its_dataset(survey):
            return (
                "the program changes its dataset as it trains, and lengths that were read at the start would not hold"
            )
        if not loading.collates:
            return "the loader has no collate_fn of its own, and torch's puts only samples of one length together"
        return ""

    def share(self, survey: Survey) -> float:
        """Loading may be faster, too, for what is padded is copied; a profile does not tell how much is padding."""
        return 1.0

    def current(self, survey: Survey) -> Settings:
        return {"batches": AS_DRAWN}

    def candidates(self, bench: Bench) -> list[Settings]:
        """Batches by length, where padding would go away. Raises Refused where that is not so, or not certain."""
        try:
            seen = bench.ask(self.current(bench.survey), "lengths")
        except Unanswered as failure:
            raise Refused(f"the lengths of samples could not be read: {failure}") from None
        bench.kept["lengths"] = seen
        if seen["why"]:
            raise Refused(str(seen["why"]))
        if seen["samples"] * seen["seconds_each"] > MOST_READING:
            raise Refused(
                f"{_reading(seen)}, and a sampler needs them at each start; it pays where the dataset tells lengths "
                "without reading its samples"
            )
        if seen["before"] - seen["after"] < LEAST_PADDING:
            return []
        return [{"batches": by_length(seen["accessor"], seen["dimension"])}]

    def least_steps(self, settings: Settings) -> int:
        """A window, in which a block has about the samples that it has with the other setting."""
        return WINDOW

    def setup(self, settings: Settings) -> Setup:
        """Of the current setting; the other one is there as patched source only."""
        return Setup(fixed_batch=False)

    def patch(self, code: Code, settings: Settings) -> Patch | None:
        found, by = code.call(code.survey.facts.loader.site), BY_LENGTH.fullmatch(str(settings["batches"]))
        if found is None or by is None:
            return None
        try:
            edits = sampler_edits(random_loader(*found), by["accessor"] or by["array"] or "", int(by["dimension"] or 0))
        except NotWritten:
            return None
        return code.patch(*found, edits)

    def holds(self, survey: Survey, settings: Settings) -> bool:
        """A loader has no batch size where a sampler makes its batches."""
        loader = survey.facts.loader
        return (loader.is_there and loader.batch_size is None) == (settings != {"batches": AS_DRAWN})

    # ---- words ----------------------------------------------------------------------------------------------------

    def words(self, settings: Settings, survey: Survey) -> str:
        return (
            "put samples of similar length into a batch"
            if settings["batches"] != AS_DRAWN
            else "draw batches at random"
        )

    def kept_words(self, told: Told) -> str:
        seen = told.kept.get("lengths")
        if told.trials or not seen or seen["why"]:
            return ""
        return f"keep what you have: {_padding(seen)}"

    def remarks(self, told: Told) -> list[str]:
        seen = told.kept.get("lengths")
        if not seen or seen["why"] or not told.trials:
            return []
        measured = [(trial.settings, tokens) for trial in told.trials if (tokens := told.tokens_in(trial.settings))]
        lines = [_padding(seen)]
        if len(measured) == len(told.trials):
            lines.append(
                "measured: "
                + "; ".join(
                    f"{settings['batches']}, {tokens.per_step:,.0f} tokens a step, {_share(tokens.padding)} padding beside "
                    f"them, {1e6 * tokens.seconds_each:.3g} µs a token"
                    for settings, tokens in measured
                )
            )
        else:
            lines.append("no mask tells the tokens of a batch, so times are those of as many samples a step")
        if told.winner is not None:
            lines.append(f"{_reading(seen)}, once at each start")
            lines.append(
                f"an epoch has the same samples in batches of the same size; which of {WINDOW} batches a sample is in goes by "
                "its length, so compare what the training comes to before you keep it"
            )
        return lines

    # ---- in the child ---------------------------------------------------------------------------------------------

    def answer_lengths(self, training: Any) -> Reply:
        """What of a sample has the length that batches are padded to, and the padding of batches as drawn and by length.

        why: there is no telling; then nothing else is said.
        """
        from perfaudit.target.random_streams import same_random_streams
        from perfaudit.target.sample_lengths import told_lengths

        found, told = told_lengths(training.loader)
        if found is None:
            return told
        with same_random_streams():
            before, after = paddings(found, training.loader.batch_size, training.loader.drop_last)
        return {**told, "before": before, "after": after}


def paddings(found: Any, batch_size: int, drop_last: bool) -> tuple[float, float]:
    """The share of padding in an epoch of these lengths: in batches drawn at random, and in those of the sampler that is written.

    found: a target.sample_lengths.SampleLengths.
    """
    import torch

    names: dict[str, Any] = {"torch": torch}
    exec(ALONE, names)  # the text that is handed over, and no other
    order = random.Random(0).sample(range(len(found.lengths)), len(found.lengths))
    drawn = [order[first : first + batch_size] for first in range(0, len(order), batch_size)]
    drawn = [batch for batch in drawn if len(batch) == batch_size or not drop_last]
    return found.padding(drawn), found.padding(names[NAME](found.lengths, batch_size, drop_last))


def by_length(accessor: str, dimension: int) -> str:
    """The setting, as it is read back by BY_LENGTH."""
    return f"by sample{accessor}.shape[{dimension}]" if dimension else f"by len(sample{accessor})"


def _padding(seen: Reply) -> str:
    whose = "samples" if seen["read"] == seen["samples"] else f"{seen['read']:,} of {seen['samples']:,} samples"
    return (
        f"lengths of {whose} go from {seen['shortest']:,} to {seen['longest']:,}, half of them up to {seen['middle']:,}; padding "
        f"is {_share(seen['before'])} of random batches, and {_share(seen['after'])} of those by length"
    )


def _reading(seen: Reply) -> str:
    return (
        f"reading the lengths of {seen['samples']:,} samples takes about {seen['samples'] * seen['seconds_each']:.2g} s"
    )


def _share(padding: float) -> str:
    return f"{100 * padding:.1f} %"


KNOB = Sampler()
