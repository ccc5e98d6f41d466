"""Whether patched code still trains as it did: checked in the child that will be measured, before it is measured."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from perfaudit.measure.child import Child
from perfaudit.measure.lab import Facts
from perfaudit.measure.runner import TrialFailed, Variant

STEPS = 3
SEED = 20_231
ROUNDING = 1e-3  # of the loss; float32 results of reordered sums differ by 1e-6 in one step, training amplifies them


@dataclass(slots=True)
class Verifier:
    """Compares the first losses of each variant with the base's, as its fix promises.

    A safe fix gives the same losses to the bit, `rounding` and `checkpoint` agree within ROUNDING once they start from
    the base's parameters, `rng` too where parameters can be carried over. `algorithm` and `order` promise nothing: the
    losses must be finite. `base` is the key of the unpatched code; `changes` maps a variant's key to what its fix says
    it changes. `said` keeps, per key, what was checked.
    """

    base: str
    changes: dict[str, tuple[str, ...]]
    said: dict[str, str] = field(default_factory=dict)
    reproducible: bool | None = None
    _losses: list[float] | None = None
    _folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Verifier:
        self._folder = tempfile.TemporaryDirectory(prefix="perfaudit-")
        return self

    def __exit__(self, *_: object) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def check(self, child: Child, variant: Variant, facts: Facts) -> None:
        """Check one variant that has just been built. Raises TrialFailed when it does not train as promised."""
        if variant.key != self.base and variant.key not in self.changes:
            return
        assert self._folder is not None
        state = str(Path(self._folder.name) / "base.pt")
        if variant.key == self.base:
            losses = _losses(child, save_state=state)
            if self._losses is None:
                self._losses = losses
            else:
                self.reproducible = losses == self._losses
            return
        changes = self.changes[variant.key]
        carry = bool(set(changes) & {"rng", "checkpoint"})
        losses = _losses(child, load_state=state if carry else "")
        self.said[variant.key] = self._judge(losses, changes)

    def _judge(self, losses: list[float], changes: tuple[str, ...]) -> str:
        base = self._losses or []
        if not losses:
            return "not compared: the patch changes which parameters there are"
        if not all(map(math.isfinite, base)):
            return "not compared: the losses of the unpatched code are not finite"
        if not all(map(math.isfinite, losses)):
            raise TrialFailed(f"the patched code does not train: its losses are {losses}")
        if losses == base:
            return f"{STEPS} steps from one seed give the same losses to the bit"
        gap = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, base, strict=False)) if base else float("inf")
        if not changes:
            if self.reproducible is False:
                return "the unpatched code does not repeat its own losses, so equality could not be checked"
            raise TrialFailed(
                f"not safe: the losses of {STEPS} steps from one seed differ by up to {gap:.1e} of the loss"
            )
        if set(changes) & {"algorithm", "order"}:
            return "losses are finite; equality is not promised, the patch changes what is learnt from"
        if gap <= ROUNDING:
            return f"{STEPS} steps from one seed agree within {gap:.1e} of the loss"
        if "rng" in changes:
            return f"losses are finite; the random stream differs, so they do not agree (by up to {gap:.1e})"
        raise TrialFailed(
            f"more than rounding: the losses of {STEPS} steps from one seed differ by up to {gap:.1e} of the loss"
        )


def _losses(child: Child, save_state: str = "", load_state: str = "") -> list[float]:
    """Losses of the first steps, and behind them the sums over the user's average if there is one."""
    command = {"do": "losses", "steps": STEPS, "seed": SEED, "save_state": save_state, "load_state": load_state}
    reply = child.ask(command, 300.0)
    return [float.fromhex(value) for value in [*(reply["losses"] or []), *(reply.get("average") or [])]]
