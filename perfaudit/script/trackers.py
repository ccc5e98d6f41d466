"""Experiment trackers are off while a script is only looked at: nobody wants a run of 30 seconds in their records."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from perfaudit.runs import NOT_KEPT_AWAY
from perfaudit.script.after_import import after_import
from perfaudit.script.overruled_calls import Call, always_with, put_in_place, returns
from perfaudit.script.own_files import is_own

Refuse = Callable[[str], NoReturn]  # called with a sentence on what a script does that cannot be kept away

# Arguments of a call that come before the variables, as `wandb.init(mode="online")`, by module and name in it. Sources: the
# documentation and the source of each tracker, of its present version and of those with other names.
_ARGUMENTS: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "wandb": {"init": {"mode": "disabled"}},
    "neptune": {
        name: {"mode": "debug"}
        for name in (
            "Run", "Model", "ModelVersion", "Project", "init_run", "init_model", "init_model_version", "init_project",
        )
    },
    "neptune.new": {
        name: {"mode": "debug"} for name in ("init", "init_run", "init_model", "init_model_version", "init_project")
    },
    "comet_ml": {
        "start": {"online": False},
        "Experiment": {"disabled": True},
        "ExistingExperiment": {"disabled": True},
        "OfflineExperiment": {"disabled": True},
        "ExistingOfflineExperiment": {"disabled": True},
    },
    "swanlab": {"init": {"mode": "disabled"}},
    # An experiment is a reference in the user's repository; under DVCLIVE_TEST, a `dvcyaml` that is no name raises.
    "dvclive": {"Live": {"save_dvc_exp": False, "dvcyaml": "dvc.yaml"}},
    "trackio": {
        "init": {"space_id": None, "server_url": None, "dataset_id": None, "bucket_id": None, "webhook_url": None}
    },
    "codecarbon.emissions_tracker": {  # None would leave what its file of settings says
        "BaseEmissionsTracker": {
            "output_methods": "csv", "save_to_api": False, "save_to_prometheus": False, "save_to_logfire": False,
            "save_to_logger": False, "output_handlers": [], "emissions_endpoint": False,
        }
    },
    "mlflow.tracking.client": {
        "MlflowClient": {"tracking_uri": None, "registry_uri": None, "workspace_store_uri": None},
        "MlflowClient.create_experiment": {"artifact_location": None},  # a bucket, say
    },
}  # fmt: skip
# Calls that would switch a tracker on again, or ask its server who this is. They do nothing and give this value.
_LEFT_OUT: Mapping[str, Mapping[str, object]] = {
    "wandb": {"login": True},
    "mlflow": {"set_tracking_uri": None, "set_registry_uri": None},
    "mlflow.tracking": {"set_tracking_uri": None, "set_registry_uri": None},
    "comet_ml": {"login": None, "init": None},
    "swanlab": {"login": True},
    "clearml": {"Task.set_offline": None},
}
# What has no meaning without the server, and would be in the user's records.
_REFUSED: Mapping[str, Mapping[str, str]] = {
    "wandb": {"sweep": "makes a sweep on the server", "agent": "asks the server for the runs of a sweep"},
    "comet_ml": {"Optimizer": "makes a sweep on the server"},
    "clearml": {"Task.import_offline_session": "sends a session to the server"},
    "huggingface_hub.hf_api": {
        f"{owner}{name}": f"{does} the Hub"
        for owner in ("HfApi.", "")
        for name, does in (
            ("create_repo", "makes a repository on"), ("create_commit", "sends files to"),
            ("upload_folder", "sends files to"), ("upload_file", "sends files to"),
        )
    },
}  # fmt: skip


def quiet_environment(scratch: Path) -> dict[str, str]:
    """Variables by which trackers are told to record nothing, or only in the scratch folder.

    Sources: the documentation of each tracker on its environment variables.
    """
    return {
        "WANDB_MODE": "disabled",
        "WANDB_SILENT": "true",
        "WEAVE_DISABLED": "true",
        "MLFLOW_TRACKING_URI": _mlflow_uri(scratch),
        "MLFLOW_REGISTRY_URI": _mlflow_uri(scratch),
        "MLFLOW_ALLOW_FILE_STORE": "true",  # from MLflow 3.13 on, a folder is an error without it
        "COMET_MODE": "disabled",
        "COMET_AUTO_LOG_DISABLE": "1",
        "NEPTUNE_MODE": "debug",
        "CLEARML_OFFLINE_MODE": "1",
        "SWANLAB_MODE": "disabled",
        "DVCLIVE_TEST": "1",
        "DVC_STUDIO_OFFLINE": "true",
        "CODECARBON_LOG_LEVEL": "error",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def _mlflow_uri(scratch: Path) -> str:
    return (scratch / "mlruns").as_uri()


def overrule_arguments(scratch: Path, refuse: Refuse) -> None:
    """From now on what a script says to a tracker in a call does not count either, where it would come before the variables.

    refuse: called before something is done in whose place nothing can be put.
    """
    setters: list[Call] = []  # of MLflow, taken before they are left out
    after_import("mlflow.tracking", functools.partial(_take_setters, setters))
    after_import("mlflow", functools.partial(_keep_mlflow_in, scratch, setters))
    after_import("aim", functools.partial(_keep_aim_in, scratch))
    after_import("sacred.run", _leave_files_to_sacred)
    after_import("trackio", _forget_trackio_variables)
    after_import("transformers.training_args", _push_nothing)
    for module in dict.fromkeys([*_ARGUMENTS, *_LEFT_OUT, *_REFUSED]):
        after_import(module, functools.partial(_overrule, module, refuse))


def _overrule(module: str, refuse: Refuse) -> None:
    for name, ours in _ARGUMENTS.get(module, {}).items():
        put_in_place(module, name, always_with(**ours))
    for name, value in _LEFT_OUT.get(module, {}).items():
        put_in_place(module, name, returns(value))
    for name, what in _REFUSED.get(module, {}).items():
        put_in_place(module, name, _refuses(f"{module.partition('.')[0]}.{name}() {what}", refuse))


def _refuses(what: str, refuse: Refuse) -> Callable[[Call], Call]:
    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def call(*given: Any, **named: Any) -> NoReturn:
            refuse(f"{what}{_place()}: {NOT_KEPT_AWAY}")

        return call

    return make


def _place() -> str:
    """The innermost line of the script's own code, in parentheses."""
    frame = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment]  # None behind the outermost
    return f" ({os.path.relpath(frame.f_code.co_filename)}:{frame.f_lineno})" if frame is not None else ""


def _take_setters(setters: list[Call]) -> None:
    tracking: Any = sys.modules["mlflow.tracking"]
    names = ("set_tracking_uri", "set_registry_uri")
    setters += [getattr(tracking, name) for name in names if hasattr(tracking, name)]


def _keep_mlflow_in(scratch: Path, setters: list[Call]) -> None:
    """Where it records is set before the script can: what is set counts more than a variable that the script changes."""
    for setter in setters:
        setter(_mlflow_uri(scratch))


def _keep_aim_in(scratch: Path) -> None:
    """A repository of a server, or one that would be mounted, is one in the scratch folder."""

    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def begin(repo: object, path: object, *given: Any, **named: Any) -> None:
            if str(path).startswith(("aim://", "ssh://")):
                path = str(scratch / "aim")
                Path(path).mkdir(exist_ok=True)
                named["init"] = True
            theirs(repo, path, *given, **named)

        return begin

    put_in_place("aim", "Repo", make)


def _leave_files_to_sacred() -> None:
    """Observers that write to databases, a cloud or a chat get nothing; what others write to files is kept away."""

    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def begin(run: Any, *given: Any, **named: Any) -> None:
            theirs(run, *given, **named)
            run.observers = [each for each in run.observers if type(each).__name__ == "FileStorageObserver"]

        return begin

    put_in_place("sacred.run", "Run", make)


def _forget_trackio_variables() -> None:
    """Those that name a server, also where the script sets them."""

    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def init(*given: Any, **named: Any) -> Any:
            for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "TRACKIO_WEBHOOK_URL"):
                os.environ.pop(name, None)
            return theirs(*given, **named)

        return init

    put_in_place("trackio", "init", make)


def _push_nothing() -> None:
    """Hugging Face's Trainer makes a repository as it is built, where its arguments ask for a push."""

    def make(theirs: Call) -> Call:
        @functools.wraps(theirs)
        def check(arguments: Any, *given: Any, **named: Any) -> None:
            arguments.push_to_hub = False
            theirs(arguments, *given, **named)

        return check

    put_in_place("transformers.training_args", "TrainingArguments.__post_init__", make)
