"""`PerfauditCallback` for Lightning's Trainer, of `lightning` or of `pytorch_lightning`."""

from __future__ import annotations

import sys
from typing import Any

from perfaudit.callbacks.slow_phases import DATA_WAIT, HOST_READS, Limits, PerfauditWarning
from perfaudit.callbacks.watched_training import WatchedTraining

try:
    if "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules:
        from pytorch_lightning.callbacks import Callback
    else:
        from lightning.pytorch.callbacks import Callback
except ModuleNotFoundError:
    try:
        from pytorch_lightning.callbacks import Callback
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "perfaudit.callbacks.lightning is for trainings with lightning; it is not installed"
        ) from error

__all__ = ["PerfauditCallback", "PerfauditWarning"]


class PerfauditCallback(Callback):  # type: ignore[misc]  # of a library that is not there when types are checked
    """Gives where steps go to the Trainer's loggers, and warns where waiting takes too long; of the first process alone.

    data_wait, host_reads: shares of a step above which there is a warning, with the id of the rule that says why.
    """

    def __init__(self, data_wait: float = DATA_WAIT, host_reads: float = HOST_READS) -> None:
        super().__init__()
        self._limits = Limits(data_wait, host_reads)
        self._training: WatchedTraining | None = None
        self._logged = 0  # after which update

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Watch from now on."""
        self._stop()
        if trainer.is_global_zero:
            self._training = WatchedTraining(self._limits, lambda: _workers(trainer.train_dataloader))
            # With a loop of its own, the method has backward passes and updates in it.
            forward = (trainer.strategy, "training_step") if pl_module.automatic_optimization else None
            self._training.begin(forward)
            self._logged = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log as often as the Trainer does."""
        if self._training is None or not trainer.log_every_n_steps:
            return
        if trainer.global_step - self._logged >= trainer.log_every_n_steps:
            self._logged = trainer.global_step
            figures = self._training.take_figures()
            loop = trainer.fit_loop.epoch_loop
            for logger in trainer.loggers if figures else ():
                logger.log_metrics(figures, step=getattr(loop, "_batches_that_stepped", trainer.global_step))
            self._training.warn()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Watch no more, and warn of what a short training has not said."""
        self._stop()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Watch no more."""
        if self._training is not None:
            self._training.end()
            self._training = None

    def _stop(self) -> None:
        training, self._training = self._training, None
        if training is not None:
            training.end()
            training.warn()


def _workers(loader: Any) -> int | None:
    """Of a loader, or where a trainer reads several at once of the one with the fewest."""
    several = loader.values() if isinstance(loader, dict) else loader if isinstance(loader, (list, tuple)) else [loader]
    known = [workers for each in several if isinstance(workers := getattr(each, "num_workers", None), int)]
    return min(known, default=None)
