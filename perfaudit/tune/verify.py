"""Whether patched code still trains as it did: checked in the child that will be measured, before it is measured."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from perfaudit.measure.child import Child, ChildFailed
from perfaudit.measure.exchange import exchange_folder
from perfaudit.measure.facts import Facts
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TrialFailed
from perfaudit.measurements import NOT_CLAIMED
from perfaudit.tune.averages import said_of_averages
from perfaudit.tune.exact import NUDGE, SAME_FUNCTION, WHAT, said_of_exact
from perfaudit.tune.gradients import floor, rounds, said_of_gradients
from perfaudit.tune.same_start import (
    BEGAN_ALIKE,
    NOT_ON_A_SCRIPT,
    STREAMS_FURTHER,
    doubt_of_start,
    has_other_parameters,
    refuse_other_draws,
)
from perfaudit.tune.tolerance import (
    ANOTHER_STREAM,
    ROUNDOFF,
    SMALL_NOISE,
    STEPS_SURE,
    STREAMS,
    Curve,
    Reference,
    Tolerance,
    average_gap,
    coarsest,
    curve_of,
    gaps,
    largest,
    least_tolerance,
    losses_command,
    roundoff,
    tolerance,
    types_of,
)

Json = dict[str, Any]  # Any: nested JSON
_AUTOCASTS = {"bf16": "bfloat16", "fp16": "float16", "tf32": "tf32"}  # settings of the knob that is named precision
NOT_COMPARED = "not compared"
_EQUALITY = f"{NOT_CLAIMED}, because the patch changes"


def was_compared(said: str) -> bool:
    """Whether what was said of a check means that losses were compared, or that nothing was promised of them."""
    return bool(said) and not said.startswith(NOT_COMPARED)


@dataclass(slots=True)
class Verifier:
    """Compares the first losses of each variant, and the gradients of its first step, with the base's, as its fix promises.

    A safe fix gives the same losses to the bit. `rounding` and `checkpoint` stay within what `tolerance` says of the types that
    the base computes in; only `precision` may bring coarser ones, and is held to what those do. `rng` and
    `checkpoint` start from the base's parameters, and what another random stream still changes must stay within what one
    changes in the user's own code. `algorithm` and `order` promise nothing: the losses must be finite. Where the user's code
    does not repeat itself, that is said, and the gap between two of its runs widens what is allowed, or is too large to
    prove anything. What is asked of the gradients, `tune.gradients` says.

    base: the key of the code compared with; changes: what each variant's fix says it changes, by key. said: per key, what
    was checked. memory_budget: bytes that the peak of one step may have; `peaks` keeps them by key. of_average: keys of
    variants whose patch is one of an average of the weights.
    """

    base: str
    changes: dict[str, tuple[str, ...]]
    reference: Reference
    said: dict[str, str] = field(default_factory=dict)
    memory_budget: int | None = None
    peaks: dict[str, int] = field(default_factory=dict)
    of_average: Collection[str] = ()
    _curve: Curve | None = None
    _base: Variant | None = None
    _types: list[str] = field(default_factory=list)  # that the base computes in
    _is_script: bool = False
    _is_compiled: bool = False  # the variant that is looked at
    _memory: Json | None = None  # of its step, as it told that itself
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Verifier:
        self._folder = tempfile.TemporaryDirectory(prefix="perfaudit-", dir=exchange_folder())
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def start_of(self, variant: Variant) -> Json | None:
        """What is done with the parameters that a script begins with, where a patch draws others for those it has."""
        if (
            not self.reference.is_of_script
            or self._folder is None
            or not any(map(has_other_parameters, self.changes.values()))
        ):
            return None
        file = str(Path(self._folder.name) / "start.pt")
        if variant.key == self.base:
            return {"save": file} if self._curve is None else None
        is_taken = has_other_parameters(self.changes.get(variant.key, ())) and variant.key not in self.said
        return {"load": file} if is_taken else None

    def check(self, child: Child, variant: Variant, facts: Facts) -> None:
        """Check one variant that has just been built. Raises TrialFailed when it does not train as promised."""
        if (variant.key != self.base and variant.key not in self.changes) or variant.key in self.said:
            return  # once is enough: fresh processes of the same text
        assert self._folder is not None
        self._is_script, self._is_compiled = facts.is_script, facts.model.compiled
        state, gradients = (str(Path(self._folder.name) / name) for name in ("base.pt", "gradients.pt"))
        if variant.key == self.base:
            if self._curve is None:
                self._base = variant
                self._curve = self._losses(child, save_state=state, save_gradients=gradients, observe=True)
                self._types = [*types_of(facts), *self._curve.dtypes]
                if not variant.overlay:
                    self.reference.know(self._curve)
                    self.reference.gradients_file = gradients
                self._ask_peak(variant)
            return
        if self._curve is None:
            raise TrialFailed("not compared with the unpatched code, because that could not be run")
        changes = self.changes[variant.key]
        carry = bool(set(changes) & {"rng", "checkpoint"})
        options: Json = {"load_state": state} if carry else {}
        if "checkpoint" in changes:
            options["may_lack"] = True
        curve = self._losses(child, load_gradients=gradients, observe=True, **options)
        names = [*types_of(facts), *curve.dtypes, _AUTOCASTS.get(str(variant.settings.get("precision")), "")]
        if "precision" not in changes:
            _refuse_fewer_bits(names, self._types)
            names = self._types
        if self._curve.is_finite and curve.is_finite and not curve.missing:
            refuse_other_draws(curve, self._curve, changes)
        doubt = doubt_of_start(curve, self._curve) if has_other_parameters(changes) else STREAMS_FURTHER
        held_to = changes if doubt else tuple(change for change in changes if change != "rng")
        said = self._judged(curve, self._curve, held_to, names, doubt)
        if self._curve.is_finite and not curve.missing:
            said += said_of_gradients(curve, self._curve, held_to, names, self.reference)
            said += "" if doubt else BEGAN_ALIKE
        if self._curve.is_finite:
            said += said_of_averages(
                None if curve.missing else curve.averages, self._curve.averages, held_to, variant.key in self.of_average,
                curve.losses == self._curve.losses, self.reference.averages_again,
                partial(self.reference.averages_nudged, names),
            )  # fmt: skip
        if self._curve.is_finite and not curve.missing:
            said += self._exactly(variant, changes, curve, names)
        self._ask_peak(variant)
        self.said[variant.key] = said

    def _exactly(self, variant: Variant, changes: tuple[str, ...], curve: Curve, names: list[str]) -> str:
        """What double precision shows of a patch that leaves the function what it is; of any other, that nobody looked.

        A script is started twice for it. So nothing is asked where its losses and gradients are those of the user's code but for
        the least roundings, nor of fewer bits.
        """
        base, reference = self._base, self.reference
        if base is None or reference.ask_of is None or not changes:
            return ""
        if more := set(changes) - SAME_FUNCTION:
            return f"; not compared {WHAT}: it changes {' and '.join(sorted(more))}"
        gap = curve.gradients.gap if curve.gradients is not None and not curve.gradients.why else 0.0
        apart = gaps(curve, self._curve) if self._curve is not None else []
        is_close = gap <= floor(ROUNDOFF["float32"]) and least_tolerance(len(apart)).allows(apart, 0.0)
        if reference.is_of_script and ("precision" in changes or is_close):
            return ""
        theirs = reference.exact(base)
        mine = theirs if theirs.why else reference.exact(variant)
        if reference.is_of_script and mine.why and not coarsest(names) and gap > floor(roundoff(names)):
            raise TrialFailed(
                f"more than the promised change ({rounds(changes)}): the gradients of the first step differ by {gap:.1e} of "
                f"their norm, and {WHAT} they could not be compared: {mine.why}"
            )
        return said_of_exact(mine, theirs, lambda: reference.exact(base, NUDGE))

    def _losses(self, child: Child, **options: Any) -> Curve:
        # What looks at operators may have compiled ones compiled anew.
        if self.memory_budget is not None and self.reference.is_of_script and not self._is_compiled:
            options["memory"] = True
        reply = child.ask(losses_command(self.reference.steps, **options), self.reference.timeout)
        self._memory = reply.get("memory")
        return curve_of(reply)

    def _ask_peak(self, variant: Variant) -> None:
        """Keep the peak of a step; raise TrialFailed where a patch has more than the budget."""
        if self.memory_budget is None or variant.key in self.peaks:
            return
        if self._memory is not None:
            peak = self.reference.keep_peak(variant, self._memory)
        elif variant.key == self.base and self.reference.is_of_script and not self._is_compiled:
            return  # nothing depends on it, and each start of a script takes long
        else:
            peak = self._peak_in_own_process(variant)
        self.peaks[variant.key] = peak
        if peak > self.memory_budget and variant.key != self.base:
            sizes = " MiB, more than the memory budget of ".join(f"{n / 2**20:.1f}" for n in (peak, self.memory_budget))
            raise TrialFailed(f"the peak of one step with the patch is {sizes} MiB")

    def _peak_in_own_process(self, variant: Variant) -> int:
        try:
            return self.reference.peak_of(variant)
        except ChildFailed as failure:
            what = f"the peak of one step with {'your code' if variant.key == self.base else 'the patch'}"
            raise TrialFailed(
                f"{what} could not be told, nor whether it fits the memory budget: {failure}"
            ) from failure

    def _judged(self, curve: Curve, base: Curve, changes: tuple[str, ...], names: list[str], doubt: str) -> str:
        """What the comparison shows, in words. Raises TrialFailed where it is not what was promised.

        doubt: why random numbers of a script are not the same in both.
        """
        if not base.is_finite:
            return f"{NOT_COMPARED}: the losses of the unpatched code are not finite"
        if not curve.is_finite:
            raise TrialFailed(f"the patched code does not train: its losses are {list(curve.losses)}")
        if len(curve.losses) != len(base.losses) or len(curve.average) != len(base.average):
            raise TrialFailed(
                f"the patched code gives {len(curve.losses)} losses and {len(curve.average)} sums of an average, "
                f"the unpatched {len(base.losses)} and {len(base.average)}"
            )
        if curve.missing:
            return self._elsewhere(curve, base)
        if (curve.losses, curve.average) == (base.losses, base.average):
            still = "; all of them are one loss, so that says little" if base.stands_still else ""
            return f"{len(base.losses)} steps from one seed give the same losses to the bit{still}"
        if broken := set(changes) & {"algorithm", "order"}:
            return f"the losses of {len(curve.losses)} steps are finite{_largest(curve, base)}; {_unequal(broken)}"
        found, average = gaps(curve, base), average_gap(curve, base)
        if "checkpoint" in changes:  # an average of other parameters has other sums
            average = 0.0
        if changes:
            limit = least_tolerance(len(found))
            if not limit.allows(found, average):
                limit = tolerance(self.reference, names, len(found), ())
            if limit.allows(found, average):
                close = f"; the sums over the average agree within {average:.1e} (tolerance {limit.average:.1e})"
                return limit.words(found) + (close if average else "")
            if "rng" in changes and (said := self._streams(found, average, limit)):
                return said
            if "rng" in changes and self._is_script:
                raise TrialFailed(f"{NOT_ON_A_SCRIPT} {doubt}")
        return self._against_itself(found, average, changes, names)

    def _elsewhere(self, curve: Curve, base: Curve) -> str:
        """Words for a training that could not start from the base's parameters: no further away than another seed's."""
        found = gaps(curve, base)
        mean, spread = statistics.fmean(found), self.reference.seed()[0]
        limit = max(ANOTHER_STREAM, STREAMS * (spread or 0.0))
        if mean > limit:
            raise TrialFailed(
                f"its losses differ by {mean:.1e} of the loss on average{_largest(curve, base)}, more than another "
                f"initialisation explains ({limit:.1e})"
            )
        return (
            f"not compared step by step: the patch changes which parameters there are, {curve.missing}; the losses of "
            f"{len(found)} steps differ by {mean:.1e} on average, as from another initialisation"
        )

    def _streams(self, found: list[float], average: float, limit: Tolerance) -> str:
        """Words for gaps that another random stream makes in the user's code as well, "" where they are larger."""
        stream = self.reference.stream()
        mean = statistics.fmean(found)
        allowed = min(ANOTHER_STREAM, STREAMS * (stream if stream is not None else ANOTHER_STREAM))
        if mean > max(allowed, *limit.steps) or average > max(ANOTHER_STREAM, limit.average):
            return ""
        step = largest(found)
        own = "" if stream is None else f"; in your own code another random stream makes {stream:.1e}"
        return (
            f"from the same parameters the losses of {len(found)} steps differ by {mean:.1e} on average "
            f"(largest {found[step]:.1e} at step {step + 1}){own}"
        )

    def _against_itself(self, found: list[float], average: float, changes: tuple[str, ...], names: list[str]) -> str:
        """Words for gaps that the user's code has between two runs of its own; raises TrialFailed for larger ones."""
        repeats = self.reference.again() or []
        noise = max(repeats, default=0.0)
        own = f"your code does not repeat its own losses: two runs from one seed differ by up to {noise:.1e}"
        if max(repeats[:STEPS_SURE], default=0.0) > SMALL_NOISE:
            raise TrialFailed(f"verification refused: {own}, so the patch could not be told from a wrong one")
        if noise:
            limit = tolerance(self.reference, names, len(found), repeats)
            if limit.allows(found, average):
                unproven = "" if changes else ", so equality to the bit could not be checked"
                return f"{limit.words(found)}; {own}{unproven}"
        step = largest(found)
        promised = "another random stream" if "rng" in changes else rounds(changes)
        gap = f"the losses of {len(found)} steps from one seed differ by up to {found[step]:.1e} of the loss"
        if average > found[step]:
            gap = f"the sums of the average behind {len(found)} steps from one seed differ by {average:.1e}"
        where = f" (largest at step {step + 1})" if found[step] else ""
        raise TrialFailed(f"more than the promised change ({promised}): {gap}{where}{f'; {own}' if noise else ''}")


def _refuse_fewer_bits(names: list[str], own: list[str]) -> None:
    """Raise TrialFailed where a coarser type takes part than in the base: the patch does not say so."""
    coarse = max(names, key=lambda name: roundoff([name]), default="")
    if roundoff([coarse]) > roundoff(own):
        raise TrialFailed(f"more than the promised change: it computes in {coarse}, which is a change of precision")


def _largest(curve: Curve, base: Curve) -> str:
    found = gaps(curve, base)
    step = largest(found)
    return f" (they differ by up to {found[step]:.1e}, at step {step + 1})" if found[step] else ""


def _unequal(broken: set[str]) -> str:
    what = {"algorithm": "what is computed", "order": "the order in which samples come"}
    return f"{_EQUALITY} {' and '.join(what[name] for name in sorted(broken))}"
