"""Has the reference's functions in the training of the code as it is, in a child, and makes sure that nothing else differs.

Each version is built and steps by itself first: what it imports and what it sets for the whole process must be the same,
because in one process both would find what either has set.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfaudit.gate.checkout import Checkout
from perfaudit.gate.one_training import REFERENCE, SAME, SWAPPED, in_place
from perfaudit.gate.pair_lab import PairLab, SideSubject
from perfaudit.gate.records import Side
from perfaudit.gate.swappable import NotInOneTraining, Texts, as_of_a_change, texts_to_swap
from perfaudit.measure.engine import ChildEngine
from perfaudit.measure.runner import TrialFailed

Json = dict[str, Any]  # Any: nested JSON


@dataclass(slots=True)
class ChildOneLab:
    """Opens both versions of targets as `pairs` does, and keeps that of the code as it is."""

    pairs: PairLab

    def together(self, number: int, seed: int, seconds: float) -> tuple[ChildEngine, str]:
        """See `one_training.OneLab`."""
        target, base = self.pairs.targets[number], self.pairs.base
        if former := self.pairs.former.get(target.label):
            raise NotInOneTraining(f"it was {former} in the reference")
        texts = texts_to_swap(base)
        assert base is not None, "what differs is known"
        there = self._open_side(number, "base", seed, seconds)
        try:
            before = there.child.ask({"do": "process"}, self.pairs.timeout)
        finally:
            there.close()
        here = self._open_side(number, "head", seed, seconds)
        try:
            refuse_other_differences(before, here.child.ask({"do": "process"}, self.pairs.timeout), base, texts)
            engine = ChildEngine(here.child, self.pairs.timeout)
            entrant: Json = {"key": REFERENCE, "code": {path: list(both) for path, both in texts.items()}}
            with in_place():
                prepared = engine.screen([entrant | {"way": "in place" if texts else "control"}], None, seed)
            if why := prepared["refused"].get(REFERENCE):
                raise NotInOneTraining(as_of_a_change(why))
        except BaseException:
            here.close()
            raise
        return engine, SWAPPED if texts else SAME

    def _open_side(self, number: int, side: Side, seed: int, seconds: float) -> SideSubject:
        opened = self.pairs.alone(number, side, seed, seconds)
        if isinstance(opened, TrialFailed):
            raise NotInOneTraining(f"one version does not run by itself: {opened}")  # pairs say so of both
        return opened


def refuse_other_differences(before: Json, after: Json, base: Checkout, texts: Texts) -> None:
    """Raise NotInOneTraining where two versions by themselves differ in more than functions of these texts.

    before, after: of the reference and of the code as it is, see `measure.process_state`.
    """
    if before["workers"] or after["workers"]:
        raise NotInOneTraining("the loader has workers, which keep the code that they were started with")
    there = {_shown_there(real, base): digest for real, digest in before["files"].items()}
    here = {base.from_working(Path(real)): digest for real, digest in after["files"].items()}
    for path in sorted(there.keys() ^ here.keys()):
        raise NotInOneTraining(f"{path} is imported by one version only")
    for path in sorted(texts.keys() - here.keys()):
        raise NotInOneTraining(f"{path} differs, and is not imported: what reads it is not known")
    for path in sorted(here.keys() - texts.keys()):
        if here[path] != there[path]:
            raise NotInOneTraining(f"{path} differs, which is imported although it is a test")
    for name in sorted(before["shared"].keys() | after["shared"].keys()):
        if _as_here(before["shared"].get(name), base) != after["shared"].get(name):
            raise NotInOneTraining(
                f"both versions would share one setting of the process, and set it otherwise: {name}"
            )


def _shown_there(real: str, base: Checkout) -> str:
    path = Path(real)
    return base.from_working(base.to_here(path) if path.is_relative_to(base.root) else path)


def _as_here(value: object, base: Checkout) -> object:
    """A setting of the reference as it would be here: variables may name the folder of the code."""
    if isinstance(value, dict):
        return {name: _as_here(item, base) for name, item in value.items()}
    return value.replace(str(base.root), str(base.head_root)) if isinstance(value, str) else value
