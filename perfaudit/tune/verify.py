"""Whether patched code still trains as it did: checked in the child that will be measured, before it is measured."""

from __future__ import annotations

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
from perfaudit.measurements import Losses
from perfaudit.tune.averages import said_of_averages
from perfaudit.tune.exact import NUDGE, SAME_FUNCTION, WHAT, said_of_exact
from perfaudit.tune.gradients import said_of_gradients
from perfaudit.tune.losses import said_of_losses
from perfaudit.tune.same_start import (
    BEGAN_ALIKE,
    STREAMS_FURTHER,
    doubt_of_start,
    has_other_parameters,
    refuse_other_draws,
)
from perfaudit.tune.tolerance import (
    Curve,
    Reference,
    Tolerance,
    curve_of,
    losses_command,
    roundoff,
    types_of,
)

Json = dict[str, Any]  # Any: nested JSON
_AUTOCASTS = {"bf16": "bfloat16", "fp16": "float16", "tf32": "tf32"}  # settings of the knob that is named precision


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
    variants whose patch is one of an average of the weights. losses: per key, those that were compared.
    """

    base: str
    changes: dict[str, tuple[str, ...]]
    reference: Reference
    said: dict[str, str] = field(default_factory=dict)
    memory_budget: int | None = None
    peaks: dict[str, int] = field(default_factory=dict)
    of_average: Collection[str] = ()
    losses: dict[str, Losses] = field(default_factory=dict)
    _curve: Curve | None = None
    _base: Variant | None = None
    _types: list[str] = field(default_factory=list)  # that the base computes in
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
        self._is_compiled = facts.model.compiled
        state, gradients = (str(Path(self._folder.name) / name) for name in ("base.pt", "gradients.pt"))
        if variant.key == self.base:
            if self._curve is None:
                self._base = variant
                self._curve = self._losses(child, save_state=state, save_gradients=gradients, observe=True)
                self._types = [*types_of(facts), *self._curve.dtypes]
                if not variant.overlay:
                    self.reference.know(self._curve)
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
        said = self._compare(variant, curve, self._curve, names, facts.is_script)
        self._ask_peak(variant)
        self.said[variant.key] = said

    def _compare(self, variant: Variant, curve: Curve, base: Curve, names: list[str], is_script: bool) -> str:
        """What losses, gradients and averages of the weights show of a variant. names: types that take part.

        Raises TrialFailed where they are not what was promised.
        """
        changes, is_comparable = self.changes[variant.key], base.is_finite and not curve.missing
        if is_comparable and curve.is_finite:
            refuse_other_draws(curve, base, changes)
        doubt = doubt_of_start(curve, base) if has_other_parameters(changes) else STREAMS_FURTHER
        held_to = changes if doubt else tuple(change for change in changes if change != "rng")
        why_not_alike = doubt if is_script else ""
        limits: list[Tolerance] = []
        said = said_of_losses(curve, base, held_to, names, self.reference, why_not_alike, limits.append)
        if is_comparable:
            self.losses[variant.key] = Losses(base.losses, curve.losses, limits[0].steps if limits else ())
            said += said_of_gradients(curve, base, held_to, names, self.reference)
            said += "" if doubt else BEGAN_ALIKE
        if base.is_finite:
            said += said_of_averages(
                None if curve.missing else curve.averages, base.averages, held_to, variant.key in self.of_average,
                curve.losses == base.losses, self.reference.averages_again, partial(self.reference.averages_nudged, names),
            )  # fmt: skip
        return said + (self._exactly(variant, changes) if is_comparable else "")

    def _exactly(self, variant: Variant, changes: tuple[str, ...]) -> str:
        """What double precision shows of a patch that leaves the function what it is; of any other, that nobody looked."""
        base, reference = self._base, self.reference
        if base is None or reference.ask_of is None or not changes:
            return ""
        if more := set(changes) - SAME_FUNCTION:
            return f"; not compared {WHAT}: it changes {' and '.join(sorted(more))}"
        theirs = reference.exact(base)
        mine = theirs if theirs.why else reference.exact(variant)
        return said_of_exact(mine, theirs, lambda: reference.exact(base, NUDGE))

    def _losses(self, child: Child, **options: Any) -> Curve:
        # What looks at operators may have compiled ones compiled anew.
        if self.memory_budget is not None and self.reference.tells_memory and not self._is_compiled:
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
        elif variant.key == self.base and self.reference.tells_memory and not self._is_compiled:
            return  # nothing depends on it, and each start takes long
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


def _refuse_fewer_bits(names: list[str], own: list[str]) -> None:
    """Raise TrialFailed where a coarser type takes part than in the base: the patch does not say so."""
    coarse = max(names, key=lambda name: roundoff([name]), default="")
    if roundoff([coarse]) > roundoff(own):
        raise TrialFailed(f"more than the promised change: it computes in {coarse}, which is a change of precision")
