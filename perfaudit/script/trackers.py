"""Experiment trackers are off while a script is only looked at: nobody wants a run of 30 seconds in their records."""

from __future__ import annotations

from pathlib import Path


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
