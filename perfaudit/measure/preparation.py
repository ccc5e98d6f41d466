"""Candidates put in place for one step each, before a race: which can take part, how, and why the others cannot. Child only."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perfaudit.errors import NoBatches, TargetError, is_at_breakpoint
from perfaudit.measure.agreement import ALONE, Alone
from perfaudit.measure.twins import OtherLoader, Twin, Twins
from perfaudit.target.load import where, words_of_error
from perfaudit.training import Training, Variant
from perfaudit.training.code_change import CodeChange, NotSwappable
from perfaudit.training.code_variant import own_code, prepare
from perfaudit.training.multiplexed_file import SwitchSetting
from perfaudit.training.patch_in_place import patch_in_place
from perfaudit.training.start_of_step import Numbers, around, differences, is_finite
from perfaudit.training.switches import copies
from perfaudit.training.tensor_layout import LostWrite
from perfaudit.training.together import Together

MOST_SAID = 500  # characters of an error, as many as `measure.worker` tells of one
DIVERGES = "with it, losses become NaN or infinite"


class LeavesSomething(TargetError):
    """A candidate behind which the training is not what it was: it is to be built again."""


class StepRaises(NotSwappable):
    """A candidate with which a step raises: it would however it is put in place."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """What is to be put in place, and how.

    code: by path, the text as imported and as patched, of functions that a step runs. settings: contexts in which a setting
    holds. loader: another one in the place of the training's. whole: by path, the text with all of the candidate, for a twin; {}
    where none can be built of it. way: "in place" falls back on a twin where the code cannot be swapped; "control" is identical
    code. slot: what it is a setting of: candidates of different slots may be in place at the same time, one of none never is.
    """

    key: str
    code: Mapping[str, Sequence[str]] = field(default_factory=dict)
    settings: Sequence[Variant] = ()
    loader: OtherLoader | None = None
    whole: Mapping[str, str] = field(default_factory=dict)
    way: Literal["in place", "twin", "control"] = "in place"
    slot: str = ""


@dataclass(slots=True)
class Preparation:
    """Candidates tried so far: those in place as variants, the others with the reason.

    numbers: of parameters and optimizer before anything was put in place; None where memory does not hold them. refused: of those
    that cannot take part, why; ways: how the others are put in place. agreement: with the other ranks of the training, on all of
    which a candidate takes part or on none.
    """

    training: Training
    twins: Twins
    unsteady: frozenset[str] = frozenset()  # what the training's own steps change
    numbers: Numbers | None = None
    variants: dict[str, Variant] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    ways: dict[str, str] = field(default_factory=dict)
    loaders: dict[str, OtherLoader] = field(default_factory=dict)
    swapped: list[CodeChange] = field(default_factory=list)
    turned: list[SwitchSetting] = field(default_factory=list)
    agreement: Alone = ALONE

    def put_in(self, candidate: Candidate) -> None:
        """Try a candidate for a step."""
        why = ""
        if candidate.way == "in place":
            try:
                self.variants[candidate.key] = self._in_place(candidate)
                self.ways[candidate.key] = " and ".join(
                    way
                    for way, is_used in (
                        ("code", candidate.code),
                        ("setting", candidate.settings and candidate.loader is None),
                        ("loader", candidate.loader),
                    )
                    if is_used
                )
                return
            except NotSwappable as refusal:
                why = str(refusal)
                if isinstance(refusal, StepRaises) or not candidate.whole:
                    self.refused[candidate.key] = why
                    return
        try:
            twin = self._tried_twin(candidate.whole)
        except NotSwappable as refusal:
            self.refused[candidate.key] = "; ".join(filter(None, [why, str(refusal)]))
        else:
            self.variants[candidate.key], self.ways[candidate.key] = twin, "twin"
            return
        gc.collect()  # what is left of a twin: its functions, of the same names, would be taken for the first training's

    def _in_place(self, candidate: Candidate) -> Variant:
        loader = [candidate.loader] if candidate.loader is not None else []
        patch = self.agreement.on_all(lambda: patch_in_place(candidate.code, self.twins.modules))
        variant = Together([*patch.variants, *candidate.settings, *loader])
        before, learns = around(self.training), self.learns()
        self.twins.give_turn_to(None, candidate.loader)
        try:
            _try(variant, lambda: step_once(self.training), self.agreement)
        except LostWrite as refusal:
            raise LeavesSomething(f"with it, {refusal}{where(refusal.__cause__ or refusal)}") from refusal
        except StepRaises as refusal:
            if self.training.has_ended and isinstance(refusal.__cause__, NoBatches):
                raise refusal.__cause__ from None  # it would have ended without the candidate, too
            if self.training.has_ended:
                raise LeavesSomething(f"{refusal}; that ended the script") from refusal
            raise
        finally:
            self.twins.give_turn_to(None)
            # Settings are ours, and their tests compare to the bit.
            now = around(self.training) if patch.variants else before
            if left := [name for name in differences(before, now) if name not in self.unsteady]:
                raise LeavesSomething(f"after a step with it {' and '.join(left[:2])} is not what it was")
        if learns and self.numbers is not None and not self.learns():
            self.numbers.put_back()
            step_once(self.training)
            raise StepRaises(DIVERGES)
        if patch.turns or (self.training.is_script and candidate.settings):
            self._make_sure_of_own_step()
        self.swapped += patch.changes
        self.turned += patch.turns
        if candidate.loader is not None:
            self.loaders[candidate.key] = candidate.loader
        return variant

    def put_numbers_back(self) -> bool:
        """Give parameters and optimizer the numbers that they had before; whether memory holds these."""
        if self.numbers is not None:
            self.numbers.put_back()
        return self.numbers is not None

    def learns(self) -> bool:
        """Whether the last loss is a number, on each rank."""
        return not self.agreement.any(not is_finite(self.training.last_loss))

    def _make_sure_of_own_step(self) -> None:
        """Make a step as it is, after one in which a loop was switched, or had a setting that may live on in what a script keeps.

        A hidden state that one step hands to the next has the type that the first one computed in. Raises LeavesSomething where
        no such step can be made.
        """
        try:
            step_once(self.training)
        except NoBatches:
            raise
        except (Exception, SystemExit) as error:
            raise LeavesSomething(f"after a step with it, a step of your code raises {error_words(error)}") from error

    def control(self) -> tuple[Variant, str]:
        """Identical code, put in place as candidates are, and in which way: by a twin where one of them is one, else as code."""
        twin = self.twin_control()
        return (twin, "twin") if twin is not None else (self.code_control(), "code")

    def twin_control(self) -> Twin | None:
        """Identical code as a twin; None where no candidate is one, or memory has no room for another."""
        if "twin" in self.ways.values():
            with contextlib.suppress(NotSwappable):
                return self._tried_twin({})
        return None

    def code_control(self) -> Variant:
        """Identical code of the functions that candidates change or, where none of theirs is to be swapped, of the step.

        What a setting or another loader costs by being put in place has no control.
        """
        with contextlib.suppress(NotSwappable):
            own = prepare([item.with_own_code() for item in _each_once(self.swapped)], self.twins.modules)
            if self.turned:
                return Together([own, copies(self.turned)])
            if own.swaps:
                return own
        return own_code(self.training.step_functions())

    def _tried_twin(self, texts: Mapping[str, str]) -> Twin:
        twin = self.twins.of(texts)
        self.twins.give_turn_to(twin)
        try:
            _try(twin, lambda: step_once(twin.training), self.agreement)
        except NotSwappable:
            if not any(variant is twin for variant in self.variants.values()):
                self.twins.drop(twin)
            raise
        finally:
            self.twins.give_turn_to(None)
        return twin

    def loader_of(self, key: str) -> Any:
        """The loader that a variant's steps take their batches from."""
        if key in self.loaders:
            return self.loaders[key].loader
        return (self.twins.training_of(self.variants.get(key)) or self.training).loader


def step_once(training: Any) -> None:
    """Make a step; where it raises, another one: a training whose every hundredth sample is bad can be raced all the same.

    Raises what the first of two that raise has raised.
    """
    try:
        training.whole_step()
    except NoBatches:
        raise
    except Exception as error:
        training.phases.take()  # of the step that was not finished
        try:
            training.whole_step()
        except Exception:
            raise error from None


def _try(variant: Variant, step: Callable[[], object], agreement: Alone) -> None:
    """Make one step with a variant. Raises NotSwappable where that raises, or runs not all of what it changes, LeavesSomething
    where it cannot be taken back.
    """

    def enter() -> None:
        try:
            variant.enter()
        except NotSwappable:
            raise
        except (Exception, SystemExit) as error:
            raise StepRaises(words_of_a_step(error)) from error

    try:
        agreement.on_all(enter)
        missing = variant.parts_not_run(step)
    except NotSwappable:
        raise
    except (Exception, SystemExit) as error:
        raise StepRaises(f"{words_of_a_step(error)}{agreement.here}") from error
    finally:
        take_back(variant)
    if not_run := agreement.refusal(", ".join(missing)):
        raise NotSwappable(f"a step does not run {not_run}, which the patch changes")


def take_back(variant: Variant) -> None:
    """Leave a variant. Raises LeavesSomething where that raises: it stays in place in part, and the training is none any more."""
    try:
        variant.leave()
    except (Exception, SystemExit) as error:
        raise LeavesSomething(f"it cannot be taken back: {error_words(error)}") from error


def words_of_a_step(error: BaseException) -> str:
    """That a step fails with a candidate in place: what it raises, and where."""
    return f"with it, {error}" if isinstance(error, TargetError) else f"with it, a step raises {error_words(error)}"


@contextlib.contextmanager
def ends_in_words(training: Any) -> Iterator[None]:
    """Inside, an error that has ended a script is told as it is of a candidate with which a step raises: both are compared."""
    try:
        yield
    except (TargetError, NotSwappable):
        raise
    except Exception as error:
        if training.has_ended:
            raise TargetError(f"a step raises {error_words(error)}") from error
        raise


def error_words(error: BaseException) -> str:
    """An error with its type, the beginning of what it says, and its line in the user's code."""
    if is_at_breakpoint(error):
        return words_of_error(error)
    return f"{type(error).__name__}: {words_of_error(error)[:MOST_SAID]}{where(error)}"


def _each_once(changes: Iterable[CodeChange]) -> list[CodeChange]:
    """The same functions, each in one change only."""
    seen: set[tuple[str, str, int]] = set()
    found = []
    for change in changes:
        new = []
        for item in change.functions:
            key = (change.path, item.name, item.before.co_firstlineno)
            if key not in seen:
                seen.add(key)
                new.append(item)
        found.append(CodeChange(change.path, tuple(new)))
    return found
