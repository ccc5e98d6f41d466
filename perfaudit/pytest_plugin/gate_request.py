"""What the options of pytest and the project's file ask the gate for."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfaudit.config import Config, find_config
from perfaudit.errors import TargetError, UserError
from perfaudit.gate.settings import GateSettings, baseline_in, layers_of, settings_of
from perfaudit.gate.targets import gate_target
from perfaudit.target.names import Target, choose_target


@dataclass(frozen=True, slots=True)
class Project:
    """A project and what its gate compares with.

    folder: of its pyproject.toml, which targets and paths are relative to, whatever folder pytest was started in.
    against, baseline: as the options say, else the project's file, else what lies in the folder; "" for none.
    """

    folder: Path
    config: Config
    settings: GateSettings
    against: str
    baseline: str

    def target(self, text: str) -> Target:
        """The target that a text names, see `gate.targets`. Raises UserError."""
        with contextlib.chdir(self.folder):
            if text:
                return gate_target(text, self.config, self.config.target, self.folder, self.settings.in_place)
            return choose_target([], self.folder, self.config.target)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the gate of this session judges. targets: as the user writes them, by what the gate calls them."""

    project: Project
    layers: tuple[str, ...]
    targets: dict[str, str]

    def __str__(self) -> str:
        return f"{', '.join(self.layers)} of {', '.join(self.targets) or 'no target'}, compared with {self.reference}"

    @property
    def reference(self) -> str:
        return self.project.against or self.project.baseline or "nothing yet"


def project_of(config: pytest.Config) -> Project:
    """The project around the folder that pytest was started in, or around its root folder, if it was started outside of that.

    Raises pytest.UsageError for a configuration that cannot be read.
    """
    started = config.invocation_params.dir
    try:
        found = find_config(started if started.is_relative_to(config.rootpath) else config.rootpath)
        settings = settings_of(found)
    except UserError as error:
        raise pytest.UsageError(f"perfaudit: {error}") from error
    for note in found.notes:
        config.issue_config_time_warning(pytest.PytestConfigWarning(f"perfaudit: {note}"), 2)
    folder = found.path.parent if found.path else config.rootpath
    against, baseline = _text(config, "perfaudit_against"), _text(config, "perfaudit_baseline")
    if against and baseline:
        raise pytest.UsageError(
            "--perfaudit-against compares with a commit, --perfaudit-baseline with a file: choose one"
        )
    if baseline:  # as it is typed: relative to where pytest was started
        baseline = str(config.invocation_params.dir / baseline)
    if not against and not baseline:
        against, baseline = settings.against, settings.baseline
    return Project(folder, found, settings, against, "" if against else baseline or baseline_in(folder))


def asked_of(config: pytest.Config) -> Asked:
    """What `pytest --perfaudit` judges. Raises pytest.UsageError for what cannot be asked."""
    project = project_of(config)
    try:
        names = _text(config, "perfaudit_layers").split(",")
        layers = layers_of(tuple(name.strip() for name in names if name.strip()))
        targets = _targets(project) if layers != ("findings",) else {}
    except UserError as error:
        raise pytest.UsageError(f"perfaudit: {error}") from error
    if not layers:
        raise pytest.UsageError("--perfaudit-layers names no layer; there are findings, counters, time")
    if "time" in layers and (config.getoption("dist", "no") != "no" or hasattr(config, "workerinput")):
        raise pytest.UsageError(
            "--perfaudit-layers time measures how long steps take, and the other workers of pytest-xdist would "
            "take time from them: run it without -n"
        )
    return Asked(project, layers, targets)


def _targets(project: Project) -> dict[str, str]:
    """Targets by their labels in the report: those of the gate's settings, else those that have names, else the one file that
    defines factories.

    Raises TargetError where none is configured and there is none, or more than one.
    """
    texts = project.settings.targets or tuple(project.config.targets)
    if not texts:
        try:
            return {target.label: target.label for target in [project.target("")]}
        except TargetError as error:
            raise TargetError(
                f"{error}. Set `targets` in [tool.perfaudit.gate], or add --perfaudit-layers findings"
            ) from error
    return {project.target(text).label: text for text in texts}


def _text(config: pytest.Config, option: str) -> str:
    return str(config.getoption(option) or "")
