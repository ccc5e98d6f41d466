"""What goes wrong in the steps of a race, and whose fault it is: a candidate's, the training's own, nobody's. Child only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from perfaudit.errors import NoBatches, TargetError
from perfaudit.measure.entrants import BASE, CONTROLS
from perfaudit.measure.preparation import DIVERGES, Preparation, error_words, words_of_a_step
from perfaudit.measure.race import Race
from perfaudit.training.start_of_step import is_finite

Json = dict[str, Any]  # Any: nested JSON

RAISED_IN_A_ROW = 5  # turns in which a step raised: more are no bad sample now and then
RAISED_WITH_SEVERAL = 8  # turns with several in place in which a step raised, where none did of the training as it is


@dataclass(slots=True)
class Faults:
    """What has gone wrong in a race so far.

    put: puts in place what has this key. raised: how often a step raised where the next one ran, and what. why_apart: what went
    wrong with several candidates in place, since which one at a time is; "" where nothing did. end: how a script has ended that
    raised: what ("words"), with what in place ("with"), after how many updates. learns: losses were numbers so far; where the
    training itself diverges, they are looked at no more.
    """

    prepared: Preparation
    race: Race
    put: Callable[[str], None]
    raised: tuple[int, str] = (0, "")
    why_apart: str = ""
    end: Json | None = None
    learns: bool = field(init=False)
    _own_loader: Any = field(init=False)
    _strikes: dict[str, int] = field(default_factory=dict)  # by key, how often losses became none with it in place
    _nan_together: int = 0
    _raised_in_a_row: int = 0
    _raised_with: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.learns, self._own_loader = self.prepared.learns(), self.prepared.training.loader

    def leave(self, key: str, why: str, error: BaseException | None) -> float:
        """Take out a variant that raises. Raises the error where it is the base. error: None where another rank raises it."""
        if key == self.race.base:
            raise error or TargetError(why)
        self.put(BASE)
        self.prepared.training.phases.take()
        if key in self.race.together:
            return self._race_apart(why)
        self.race.fail(key, why)
        return 0.0

    def after_raising(self, key: str, training: Any, error: BaseException) -> float:
        """NaN where another step runs: one sample was bad. A variant with which that raises, too, leaves with the reason.

        So does one with which steps raise twice as often as with your own code, which makes most of the steps: it fails with the
        short batch that ends an epoch, say.

        Raises the error where it is the training that cannot go on.
        """
        is_first, agreement = training is self.prepared.training, self.prepared.agreement
        is_own = is_first and (training.has_ended or training.loader is self._own_loader)
        if isinstance(error, NoBatches) and is_own:
            raise error
        training.phases.take()  # of the step that was not finished
        if training.has_ended:  # a script that raises has no next step
            why = f"{words_of_a_step(error)}{agreement.here}"
            inside = sorted(self.race.together.get(key, {key}) - {BASE, *CONTROLS})
            self.end = {"words": why, "with": inside, "updates": updates_of(training)}
            if key in self.race.together:
                self.why_apart = why
            elif key not in (self.race.base, *CONTROLS):
                self.race.fail(key, why)
            raise error
        try:
            training.whole_step()
            training.synchronize()
        except (Exception, SystemExit):
            self.put(BASE)
            if is_first and key != self.race.base:
                training.phases.take()
                training.whole_step()  # where this raises, too, the training has ended, whatever is in place
            return self.leave(key, words_of_a_step(error), error)
        training.phases.take()
        self._raised_in_a_row += 1
        if self._raised_in_a_row > RAISED_IN_A_ROW:
            raise error
        self._raised_with[key] = self._raised_with.get(key, 0) + 1
        if self._raises_more_often(key):
            return self.leave(key, words_of_a_step(error), error)
        self.raised = (self.raised[0] + 1, error_words(error))
        return math.nan

    def _raises_more_often(self, key: str) -> bool:
        """Whether steps raise more often with this than without anything."""
        own = (self.race.base, *CONTROLS)
        without = sum(self._raised_with.get(each, 0) for each in own)
        if key in self.race.together:  # of steps of your own code there are few
            with_several = sum(self._raised_with.get(each, 0) for each in self.race.together)
            return with_several >= RAISED_WITH_SEVERAL and not without
        return key not in own and self._raised_with[key] >= 2 * (1 + without)

    def after_step(self, key: str, training: Any) -> float | None:
        """After steps that did not raise: what counts as their seconds where the last loss is none, None where they count."""
        self._raised_in_a_row = 0
        if not (self.learns and self._has_no_number(training)):
            return None
        if key in self.race.together:
            return self._after_nan_together()
        self._learn_again(key, training)
        return None if key == self.race.base or self.race.entrants[key].is_open else 0.0

    def _race_apart(self, why: str) -> float:
        """From now on put one in place at a time: with several of them a step fails, so which is to blame is not known."""
        self.put(BASE)
        self.prepared.put_numbers_back()
        self.why_apart = why
        self.race.break_up()
        return 0.0

    def _after_nan_together(self) -> float:
        """Put the numbers back after losses that are none with several in place; the second time that is what goes wrong with
        them.

        Where the training as it is diverges, too, nobody is to blame, and losses are looked at no more.
        """
        self.put(BASE)
        if not self.prepared.put_numbers_back():
            self.learns = False
            return math.nan
        self._nan_together += 1
        if self._base_diverges():
            self.learns = False
        elif self._nan_together > 1:
            return self._race_apart(DIVERGES)
        return math.nan

    def _learn_again(self, key: str, training: Any) -> None:
        """Put the numbers back after losses that are none. A candidate to which that happens twice, and to nobody else, leaves.

        Where it happens to two, the training diverges by itself, and losses are looked at no more. Both may happen in a row, so
        that the base makes a step before a candidate is to blame.
        """
        self._strikes[key] = self._strikes.get(key, 0) + 1
        others, is_twin = self._strikes.keys() - {key}, training is not self.prepared.training
        if is_twin and not others:  # a twin hurts nobody else
            self._blame(key)
            return
        if self.prepared.numbers is None or others or key == self.race.base:
            self.learns = False
        if self.prepared.numbers is not None and not is_twin:
            self.put(BASE)
            self.prepared.put_numbers_back()
        if self.learns and self._strikes[key] > 1:
            if not is_twin and self._base_diverges():
                self.learns = False
                return
            self._blame(key)

    def _blame(self, key: str) -> None:
        self.race.fail(key, DIVERGES)
        del self._strikes[key]

    def _base_diverges(self) -> bool:
        """Whether the losses are none in a step of the training as it is, after which its numbers are put back."""
        training = self.prepared.training
        training.whole_step()
        training.synchronize()
        training.phases.take()
        found = self._has_no_number(training)
        self.prepared.put_numbers_back()
        return found

    def _has_no_number(self, training: Any) -> bool:
        """Whether the last loss is NaN or infinite, on any rank."""
        return self.prepared.agreement.any(not is_finite(training.last_loss))


def updates_of(training: Any) -> int:
    """How many updates a script has made so far; 0 of factories."""
    return getattr(training, "updates", 0)
