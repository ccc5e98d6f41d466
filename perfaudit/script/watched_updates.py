"""Where an update begins and ends: hooks of torch's optimizers, and the steps of a GradScaler. Child only; knows no torch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from perfaudit.script.counts import Counts
from perfaudit.script.noted_events import OPTIMIZER, UPDATE
from perfaudit.script.notes import Notes
from perfaudit.script.replaced_functions import Function

Json = dict[str, Any]  # Any: arguments of an optimizer's step
_thread_now = threading.get_ident
LOOKS_FOR_MODELS = (0, 1, 4)  # after so many updates the models that are there are looked at; some are built late
# Of a closure in one update, each a step from then on: L-BFGS makes 25 at most by default, and may make a whole training in one.
MOST_EVALUATIONS = 64
# Where an optimizer may make so many, as one that makes a whole training, each is a step as soon as the first few are over.
MANY_EVALUATIONS, FIRST_EVALUATIONS = 1000, 3


class WatchedUpdates:
    """Calls `end_update` with the optimizer and the time where an update ends, and before some of the first `look_for_models`."""

    def __init__(
        self,
        notes: Notes,
        counts: Counts,
        end_update: Callable[[Any, float], None],
        look_for_models: Callable[[], None],
    ) -> None:
        self._notes, self._counts = notes, counts
        self._end_update, self._look_for_models = end_update, look_for_models
        self._stepped_by_scaler: Any = None
        self._looked_at = -1  # updates when models were last looked for
        self._evaluations = 0  # of the closure of the update that is under way
        self.has_long_updates = False  # of which each evaluation of the closure was a step

    def is_scaled(self) -> bool:
        """Whether a GradScaler is making a step."""
        return self._stepped_by_scaler is not None

    def before(self, optimizer: Any, args: tuple[Any, ...], kwargs: Json) -> tuple[tuple[Any, ...], Json] | None:
        """The hook at the begin of an update: the arguments that it is to have in place of its own, None for those."""
        notes = self._notes
        frames, began = notes.running.frames, notes.clock()
        if not self._counts.updates and not frames:
            notes.begin_in_this_thread()
        if _thread_now() != notes.thread:
            return None
        if frames:
            notes.end_raised()
            began = notes.clock()
        is_outermost = not frames
        if is_outermost and self._look():
            began = notes.clock()
        frames.append(sys._getframe(1))
        if not notes.only_counts:
            notes.note((UPDATE, began, notes.clock()) if is_outermost else (OPTIMIZER, began, None))
            notes.depth += 1
        return self._with_watched_closure(optimizer, args, kwargs) if is_outermost else None

    def _look(self) -> bool:
        """Look for models where it is time to, once; whether that was done."""
        updates = self._counts.updates
        if updates not in LOOKS_FOR_MODELS or updates == self._looked_at:
            return False
        self._looked_at = updates
        self._look_for_models()
        return True

    def _with_watched_closure(
        self, optimizer: Any, args: tuple[Any, ...], kwargs: Json
    ) -> tuple[tuple[Any, ...], Json] | None:
        """Arguments with a closure of which each call is a step, where an update makes many of them; None without a closure.

        args: the optimizer and what its `step` was given.
        """
        self._evaluations = 0
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            return None
        allowed = max((group.get("max_eval") or 0 for group in optimizer.param_groups), default=0)
        most = FIRST_EVALUATIONS if allowed >= MANY_EVALUATIONS else MOST_EVALUATIONS
        in_no_update = self._notes.in_phase("other", closure)  # a trainer has much in it that is no part of the update

        def evaluate(*args: Any, **kwargs: Any) -> Any:
            result = in_no_update(*args, **kwargs)
            if not self._notes.is_elsewhere() and len(self._notes.running.frames) == 1:
                self._evaluations += 1
                self.has_long_updates |= self._evaluations > most
                if self.has_long_updates:
                    self._end_update(optimizer, self._notes.clock())
            return result

        return ((args[0], evaluate, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": evaluate})

    def after(self, optimizer: Any, *_: Any) -> None:
        """The hook at the end of an update."""
        notes = self._notes
        now = notes.clock()
        if _thread_now() != notes.thread:
            return
        frames, frame = notes.running.frames, sys._getframe(1)
        if len(frames) == 1 and frames[0] is frame:
            frames.clear()
            notes.end_phase(now)
        else:
            for _each in range(notes.running.end(frame)):
                notes.end_phase(now)
        if not frames and self._stepped_by_scaler is None and not (self.has_long_updates and self._evaluations):
            self._end_update(optimizer, now)

    def watch_scaled_steps(self, original: Function) -> Function:
        """A step of a GradScaler, which skips the optimizer's where gradients overflow: a step all the same."""
        in_phase = self._notes.in_phase("optimizer", original)

        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._notes.is_elsewhere() or self._stepped_by_scaler is not None:
                return original(scaler, optimizer, *args, **kwargs)
            self._look()  # of a step that it skips, no optimizer tells
            self._stepped_by_scaler = scaler
            try:
                result = in_phase(scaler, optimizer, *args, **kwargs)
            finally:
                self._stepped_by_scaler = None
            self._end_update(optimizer, self._notes.clock())
            return result

        return step
