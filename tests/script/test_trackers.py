"""What a script says to its trackers does not switch them on, and what cannot be kept away from a server is not done."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from perfaudit.script.after_import import _AfterImport
from perfaudit.script.trackers import overrule_arguments, quiet_environment

# Modules as those of trackers are, as far as scripts call them: each notes what it was asked for in `calls`.
NOTE = "calls = []\n"
RUN = """
class {name}:
    def __init__(self, {parameters}):
        calls.append(({values}))
"""
MLFLOW = {
    "mlflow/__init__.py": "from mlflow.tracking import MlflowClient, set_registry_uri, set_tracking_uri\n",
    "mlflow/tracking/__init__.py": (
        f"{NOTE}from mlflow.tracking.client import MlflowClient\n"
        "def set_tracking_uri(uri):\n    calls.append(('tracking', uri))\n"
        "def set_registry_uri(uri):\n    calls.append(('registry', uri))\n"
    ),
    "mlflow/tracking/client.py": NOTE
    + RUN.format(
        name="MlflowClient", parameters="tracking_uri=None, registry_uri=None", values="tracking_uri, registry_uri"
    )
    + "    def create_experiment(self, name, artifact_location=None):\n        calls.append((name, artifact_location))\n",
}  # fmt: skip
WANDB = (
    f"{NOTE}def init(project=None, *, mode=None, settings=None):\n    calls.append((project, mode))\n    return 'a run'\n"
    "def login(key=None):\n    calls.append('login')\ndef sweep(sweep):\n    calls.append('sweep')\n"
    "def agent(sweep_id, function):\n    calls.append('agent')\n"
)
COMET = (
    f"{NOTE}{RUN.format(name='Experiment', parameters='api_key=None, disabled=False', values='api_key, disabled')}"
    f"class ExistingExperiment(Experiment):\n    pass\n"
    "def start(api_key=None, online=None):\n    calls.append(('start', online))\n    return Experiment(api_key)\n"
    "def login(api_key=None):\n    calls.append('login')\n"
    f"{RUN.format(name='Optimizer', parameters='config', values='config')}"
)
NEPTUNE = (
    f"{NOTE}{RUN.format(name='Run', parameters='with_id=None, *, mode=None', values='with_id, mode')}"
    "class Project:\n    def __init__(self, project=None, **named):\n        calls.append((project, named))\ninit_run = Run\n"
)
SACRED = (
    f"{NOTE}class MongoObserver:\n    pass\nclass FileStorageObserver:\n    pass\n"
    "class Run:\n    def __init__(self, config, observers):\n        self.observers = observers\n"
)
CLEARML = f"""{NOTE}class Task:
    @classmethod
    def init(cls, name):
        calls.append((cls, name))
    @classmethod
    def set_offline(cls, offline_mode=False):
        calls.append(offline_mode)
"""
HUB = f"""{NOTE}class HfApi:
    def create_repo(self, name):
        calls.append(name)
    def model_info(self, name):
        return name
api = HfApi()
create_repo = api.create_repo
"""
TRAINER = f"""{NOTE}from dataclasses import dataclass
@dataclass
class TrainingArguments:
    push_to_hub: bool = False
    def __post_init__(self):
        calls.append(self.push_to_hub)
@dataclass
class Seq2SeqTrainingArguments(TrainingArguments):
    generate: bool = False
"""
AIM = f"{NOTE}{RUN.format(name='Repo', parameters='path, *, init=False', values='path, init')}"

FAKES = {
    **MLFLOW, "wandb.py": WANDB, "comet_ml.py": COMET, "neptune/__init__.py": NEPTUNE,
    "neptune/new.py": f"{NOTE}def init(project=None, mode='async'):\n    calls.append((project, mode))\n",
    "sacred/__init__.py": "", "sacred/run.py": SACRED, "clearml.py": CLEARML, "huggingface_hub/__init__.py": "",
    "huggingface_hub/hf_api.py": HUB, "aim.py": AIM, "transformers/__init__.py": "", "transformers/training_args.py": TRAINER,
    "swanlab.py": (
        f"{NOTE}def init(*, mode=None, **named):\n    calls.append(mode)\ndef login(api_key):\n    calls.append(api_key)\n"
    ),
    "dvclive.py": NOTE + RUN.format(
        name="Live", parameters="dir='dvclive', save_dvc_exp=True, dvcyaml=None", values="dir, save_dvc_exp, dvcyaml"
    ),
    "codecarbon/__init__.py": "from codecarbon.emissions_tracker import EmissionsTracker\n",
    "codecarbon/emissions_tracker.py": NOTE + RUN.format(
        name="BaseEmissionsTracker",
        parameters="name=None, save_to_api=None, save_to_logger=None, output_handlers=None, emissions_endpoint=None",
        values="name, save_to_api, save_to_logger, [*output_handlers], emissions_endpoint",
    ) + "        output_handlers.append('csv')\nclass EmissionsTracker(BaseEmissionsTracker):\n    pass\n",
    "trackio.py": (
        f"import os\n{NOTE}def init(project, name=None, group=None, space_id=None):\n"
        "    calls.append((project, space_id, os.environ.get('TRACKIO_SPACE_ID')))\n"
    ),
}  # fmt: skip
NAMES = (
    "wandb",
    "mlflow",
    "comet_ml",
    "neptune",
    "sacred",
    "clearml",
    "huggingface_hub",
    "aim",
    "swanlab",
    "dvclive",
    "trackio",
    "codecarbon",
)


class Refused(BaseException):
    """In the place of the end of the script's process."""


def refuse(why: str) -> NoReturn:
    raise Refused(why)


@pytest.fixture(autouse=True)
def _own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No library of these names is imported, and none stays."""
    real = {name: module for name, module in sys.modules.items() if name.partition(".")[0] in NAMES}
    _forget_modules()
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield
    _forget_modules()
    sys.modules.update(real)


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in NAMES]:
        del sys.modules[name]


@pytest.fixture
def trackers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports a module of these fakes as a script would, whose calls are overruled."""
    library = tmp_path / "site-packages"
    for name, text in FAKES.items():
        path = library / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(library)
    importlib.invalidate_caches()
    # What tests of whole scripts have left waiting in this process would overrule these fakes as well.
    monkeypatch.setattr(sys, "meta_path", [finder for finder in sys.meta_path if not isinstance(finder, _AfterImport)])
    overrule_arguments(tmp_path, refuse)
    return importlib.import_module


def test_wandb_is_off(trackers: Callable[[str], Any]) -> None:
    wandb = trackers("wandb")
    assert wandb.init("mine", mode="online", settings={"mode": "online"}) == "a run"
    wandb.init(project="mine")
    assert wandb.login("a key") is True
    assert wandb.calls == [("mine", "disabled")] * 2


def test_mlflow_records_in_the_scratch_folder(trackers: Callable[[str], Any], tmp_path: Path) -> None:
    mlflow, own = trackers("mlflow"), (tmp_path / "mlruns").as_uri()
    mlflow.set_tracking_uri("https://tracking.example")
    mlflow.tracking.set_registry_uri("https://tracking.example")
    assert mlflow.tracking.calls == [("tracking", own), ("registry", own)]  # before the script, and not by it
    client = mlflow.MlflowClient("https://tracking.example", registry_uri="https://tracking.example")
    client.create_experiment("mine", artifact_location="s3://bucket")
    client.create_experiment("mine", "s3://bucket")
    assert trackers("mlflow.tracking.client").calls == [(None, None), ("mine", None), ("mine", None)]
    assert isinstance(client, mlflow.MlflowClient)


def test_comet_is_off(trackers: Callable[[str], Any]) -> None:
    comet = trackers("comet_ml")
    comet.Experiment("key", False)
    comet.ExistingExperiment(api_key="key", disabled=False)
    comet.start("key", online=True)
    comet.login()
    assert comet.calls == [("key", True), ("key", True), ("start", False), ("key", True)]


def test_neptune_is_off(trackers: Callable[[str], Any]) -> None:
    neptune = trackers("neptune")
    neptune.init_run("RUN-1", mode="async")
    neptune.Run()
    neptune.Project("mine")
    assert neptune.calls == [("RUN-1", "debug"), (None, "debug"), ("mine", {"mode": "debug"})]
    old = trackers("neptune.new")
    old.init("mine", "sync")
    assert old.calls == [("mine", "debug")]


def test_other_trackers_are_off(
    trackers: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swanlab, dvclive, trackio = (trackers(name) for name in ("swanlab", "dvclive", "trackio"))
    swanlab.login("a key")
    swanlab.init(mode="cloud", project="mine")
    dvclive.Live("logs", dvcyaml=False)
    monkeypatch.setenv("TRACKIO_SPACE_ID", "me/space")
    trackio.init("mine", None, None, "me/space")
    assert (swanlab.calls, dvclive.calls, trackio.calls) == (
        ["disabled"], [("logs", False, "dvc.yaml")], [("mine", None, None)],
    )  # fmt: skip
    codecarbon = trackers("codecarbon.emissions_tracker")
    for _ in range(2):  # it adds to the handlers that it is given
        codecarbon.EmissionsTracker("mine", True, True, ["sends"], emissions_endpoint="https://example.org")
    assert codecarbon.calls == [("mine", False, False, [], False)] * 2
    clearml, sacred, aim = (trackers(name) for name in ("clearml", "sacred.run", "aim"))
    clearml.Task.set_offline(False)
    clearml.Task.init("mine")
    assert clearml.calls == [(clearml.Task, "mine")]
    files = sacred.FileStorageObserver()
    assert sacred.Run({}, [files, sacred.MongoObserver()]).observers == [files]
    aim.Repo("aim://tracking.example:53800")
    aim.Repo("runs")
    assert aim.calls == [(str(tmp_path / "aim"), True), ("runs", False)]


@pytest.mark.parametrize(
    ("module", "call", "what"),
    [
        ("wandb", lambda wandb: wandb.sweep({"method": "random"}), "wandb.sweep() makes a sweep on the server"),
        ("wandb", lambda wandb: wandb.agent("id", print), "wandb.agent() asks the server for the runs of a sweep"),
        ("comet_ml", lambda comet: comet.Optimizer({}), "comet_ml.Optimizer() makes a sweep on the server"),
        ("huggingface_hub.hf_api", lambda hub: hub.create_repo("me/model"),
         "huggingface_hub.create_repo() makes a repository on the Hub"),
        ("huggingface_hub.hf_api", lambda hub: hub.HfApi().create_repo("me/model"),
         "huggingface_hub.HfApi.create_repo() makes a repository on the Hub"),
    ],
)  # fmt: skip
def test_what_cannot_be_kept_away_is_refused_before_it_is_done(
    trackers: Callable[[str], Any], module: str, call: Callable[[Any], object], what: str
) -> None:
    library = trackers(module)
    with pytest.raises(Refused) as refused:
        call(library)
    place = f"{os.path.relpath(__file__)}:{call.__code__.co_firstlineno}"
    said = "that cannot be kept away, and was not done; --in-place runs it all the same"
    assert str(refused.value) == f"{what} ({place}): {said}"
    assert library.calls == []


def test_reading_from_the_hub_is_left_alone(trackers: Callable[[str], Any]) -> None:
    assert trackers("huggingface_hub.hf_api").HfApi().model_info("a model") == "a model"


def test_a_trainer_pushes_nothing(trackers: Callable[[str], Any]) -> None:
    arguments = trackers("transformers.training_args")
    assert arguments.TrainingArguments(push_to_hub=True).push_to_hub is False
    assert arguments.Seq2SeqTrainingArguments(push_to_hub=True).push_to_hub is False
    assert arguments.calls == [False, False]


def test_a_wrong_call_is_the_library_s_own_error(trackers: Callable[[str], Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'nonsense'"):
        trackers("wandb").init(nonsense=1)


def test_a_module_of_the_same_name_that_is_no_tracker_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("wandb", "aim", "comet_ml"):
        (tmp_path / f"{name}.py").write_text("Repo = 3\n")
    importlib.invalidate_caches()
    overrule_arguments(tmp_path, refuse)
    for name in ("wandb", "aim", "comet_ml"):
        module = importlib.import_module(name)
        assert (module.Repo, hasattr(module, "init")) == (3, False)


def test_variables_of_trackers_name_the_scratch_folder(tmp_path: Path) -> None:
    variables = quiet_environment(tmp_path)
    assert variables["MLFLOW_TRACKING_URI"] == variables["MLFLOW_REGISTRY_URI"] == (tmp_path / "mlruns").as_uri()
    assert (variables["MLFLOW_ALLOW_FILE_STORE"], variables["WANDB_MODE"]) == ("true", "disabled")
