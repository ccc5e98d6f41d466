"""Whether patched code still trains as it did: checked in the child that will be measured, before it is measured."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfaudit.measure.child import Child
from perfaudit.measure.facts import Facts
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import TrialFailed

STEPS = 3
SEED = 20_231
ANOTHER_STREAM = (
    0.25  # of the loss; other augmentation or dropout on the same samples stays below, a broken model does not
)
ROUNDING = 1e-3  # of the loss; float32 results of reordered sums differ by 1e-6 in one step, training amplifies them


@dataclass(slots=True)
class Verifier:
    """Compares the first losses of each variant with the base's, as its fix promises.

    A safe fix gives the same losses to the bit; `rounding` and `checkpoint` agree within ROUNDING. `rng` and `checkpoint`
    start from the base's parameters and the same seed; what another random stream still changes must stay within
    ANOTHER_STREAM. `algorithm` and `order` promise nothing: the losses must be finite. `base` is the key of the unpatched
    code; `changes` maps a variant's key to what its fix says it changes; `base_again` gives the base's losses from a fresh
    process, asked before any patch is blamed for a difference. `said` keeps, per key, what was checked. `tolerances`, by
    key, replace ROUNDING where another precision moves losses further.
    """

    base: str
    changes: dict[str, tuple[str, ...]]
    base_again: Callable[[], list[float]] | None = None
    said: dict[str, str] = field(default_factory=dict)
    tolerances: dict[str, float] = field(default_factory=dict)
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
        if (variant.key != self.base and variant.key not in self.changes) or variant.key in self.said:
            return  # once is enough: fresh processes of the same text
        assert self._folder is not None
        state = str(Path(self._folder.name) / "base.pt")
        if variant.key == self.base:
            if self._losses is None:
                self._losses = losses_of(child, save_state=state)
            return
        if self._losses is None:
            raise TrialFailed("not compared with the unpatched code, because that could not be run")
        changes = self.changes[variant.key]
        carry = bool(set(changes) & {"rng", "checkpoint"})
        losses = losses_of(child, load_state=state if carry else "")
        self.said[variant.key] = self._judge(losses, changes, self.tolerances.get(variant.key, ROUNDING))

    def _judge(self, losses: list[float], changes: tuple[str, ...], rounding: float = ROUNDING) -> str:
        base = self._losses or []
        if not losses:
            return "not compared: the patch changes which parameters there are"
        if not all(map(math.isfinite, base)):
            return "not compared: the losses of the unpatched code are not finite"
        if not all(map(math.isfinite, losses)):
            raise TrialFailed(f"the patched code does not train: its losses are {losses}")
        if losses == base:
            return f"{STEPS} steps from one seed give the same losses to the bit"
        if len(losses) != len(base):
            raise TrialFailed(f"the patched code gives {len(losses)} losses and averages, the unpatched {len(base)}")
        gap = max(abs(a - b) / max(abs(b), 1e-12) for a, b in zip(losses, base, strict=True))
        if set(changes) & {"algorithm", "order"}:
            return "losses are finite; equality is not promised, the patch changes what is learnt from"
        if changes and gap <= rounding:
            return f"{STEPS} steps from one seed agree within {gap:.1e} of the loss"
        if not self._repeats_itself():
            return "the unpatched code does not repeat its own losses, so equality could not be checked"
        differ = f"the losses of {STEPS} steps from one seed differ by up to {gap:.1e} of the loss"
        if "rng" in changes and gap <= ANOTHER_STREAM:
            return f"{differ}, as another random stream may make them"
        promised = "another random stream" if "rng" in changes else "rounding" if changes else "nothing but speed"
        raise TrialFailed(f"more than the promised change ({promised}): {differ}")

    def _repeats_itself(self) -> bool:
        """Whether the unpatched code gives the same losses in another process; taken for granted where it cannot be asked."""
        if self.reproducible is None and self.base_again is not None:
            self.reproducible = self.base_again() == self._losses
        return self.reproducible is not False


def losses_of(child: Child, save_state: str = "", load_state: str = "") -> list[float]:
    """Losses of the first steps, and behind them the sums over the user's average if there is one."""
    command = {"do": "losses", "steps": STEPS, "seed": SEED, "save_state": save_state, "load_state": load_state}
    return losses_of_reply(child.ask(command, 300.0))


def losses_of_reply(reply: dict[str, Any]) -> list[float]:
    """The losses of a reply, and behind them the sums over the user's average if there is one."""
    return [float.fromhex(value) for value in [*(reply["losses"] or []), *(reply.get("average") or [])]]
