"""Experiment trackers are off while a script is only looked at: nobody wants a run of 30 seconds in their records."""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

from perfaudit.script.after_import import after_import


def quiet_environment(scratch: Path) -> dict[str, str]:
    """Variables by which trackers are told to record nothing, or only in the scratch folder.

    Sources: the documentation of each tracker on its environment variables.
    """
    return {
        "WANDB_MODE": "disabled",
        "WANDB_SILENT": "true",
        "WEAVE_DISABLED": "true",
        "MLFLOW_TRACKING_URI": (scratch / "mlruns").as_uri(),
        "COMET_MODE": "disabled",
        "NEPTUNE_MODE": "debug",
        "CLEARML_OFFLINE_MODE": "1",
        "DVCLIVE_TEST": "1",
        "CODECARBON_LOG_LEVEL": "error",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def overrule_arguments() -> None:
    """From now on what a script says to a tracker in a call does not count either, where it would come before the variables.

    That is `wandb.init(mode="online")`, and `mlflow.set_tracking_uri(...)`.
    """
    after_import("wandb", _disable_wandb)
    after_import("mlflow", _keep_mlflow_local)


def _disable_wandb() -> None:
    wandb: Any = sys.modules["wandb"]
    theirs = getattr(wandb, "init", None)  # a folder of records is a module of that name, too
    if theirs is None:
        return

    @functools.wraps(theirs)
    def init(*given: Any, **named: Any) -> Any:
        return theirs(*given, **named | {"mode": "disabled"})

    wandb.init = init


def _keep_mlflow_local() -> None:
    mlflow: Any = sys.modules["mlflow"]
    theirs = getattr(mlflow, "set_tracking_uri", None)
    if theirs is None:
        return

    @functools.wraps(theirs)
    def set_tracking_uri(*given: Any, **named: Any) -> None:
        """Nothing: the variable says where it is."""

    mlflow.set_tracking_uri = set_tracking_uri
