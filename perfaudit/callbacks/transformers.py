"""`PerfauditCallback` for the Trainer of Hugging Face's transformers."""

from __future__ import annotations

import sys
from typing import Any

from perfaudit.callbacks.slow_phases import DATA_WAIT, HOST_READS, Limits, PerfauditWarning
from perfaudit.callbacks.watched_training import WatchedTraining

try:
    from transformers import TrainerCallback
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "perfaudit.callbacks.transformers is for trainings with transformers; it is not installed"
    ) from error

__all__ = ["PerfauditCallback", "PerfauditWarning"]


class PerfauditCallback(TrainerCallback):  # type: ignore[misc]  # of a library that is not there when types are checked
    """Adds where steps go to what the Trainer logs, and warns where waiting takes too long; of the first process alone.

    data_wait, host_reads: shares of a step above which there is a warning, with the id of the rule that says why.
    """

    def __init__(self, data_wait: float = DATA_WAIT, host_reads: float = HOST_READS) -> None:
        self._limits = Limits(data_wait, host_reads)
        self._training: WatchedTraining | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **_: Any) -> None:
        """Watch from now on."""
        self._stop()
        _come_first(self, sys._getframe(1).f_locals.get("self"))
        if state.is_world_process_zero:
            self._training = WatchedTraining(self._limits, lambda: getattr(train_dataloader, "num_workers", None))
            self._training.begin()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> None:
        """Put the figures of the steps since the last log beside the loss."""
        if self._training is None or logs is None or "loss" not in logs:
            return
        figures = self._training.take_figures()
        logs |= figures
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1] |= figures
        self._training.warn()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Watch no more, and warn of what a training without a log has not said."""
        if self._training is not None:
            self._stop()

    def _stop(self) -> None:
        training, self._training = self._training, None
        if training is not None:
            training.end()
            training.warn()


def _come_first(callback: object, handler: Any) -> None:
    """Have a callback called before those that send logs on, which the Trainer puts before all of the user's own."""
    callbacks = getattr(handler, "callbacks", None)
    if isinstance(callbacks, list) and any(each is callback for each in callbacks):
        callbacks.remove(callback)
        callbacks.insert(0, callback)  # those before it in this round have been called, and none is called twice
