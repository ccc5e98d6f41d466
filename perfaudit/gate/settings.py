"""`[tool.perfaudit.gate]`: what a project's gate compares, with what, and how strictly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perfaudit.config import Config
from perfaudit.decoding import Damaged, Value
from perfaudit.errors import ConfigError, UserError
from perfaudit.gate.target_counters import COUNTERS
from perfaudit.quantities import seconds_of, share_of
from perfaudit.verdicts import LAYERS

BASELINE = "perfaudit-gate.json"  # looked for in the working directory where neither a reference nor a file is named


@dataclass(frozen=True, slots=True)
class GateSettings:
    """What the project file sets for the gate; the command line goes over it.

    targets: as the user writes them. paths: what is scanned. against: a git reference; baseline: a file, which a project
    names relative to the folder of its pyproject.toml; "" where the project names none. layers: () for all that the
    reference allows. max_regression: the slowdown that the interval must exclude for a pass; tolerate: the slowdown that
    never fails (shares of the step). budget: seconds for the time layer. inconclusive: what a layer does that could not tell.
    links: folders that git ignores, to be found beside the reference's code as well. tolerance: by counter, the share by
    which it may grow. in_place: scripts write their own files.
    """

    targets: tuple[str, ...] = ()
    paths: tuple[str, ...] = (".",)
    against: str = ""
    baseline: str = ""
    layers: tuple[str, ...] = ()
    max_regression: float = 0.05
    tolerate: float = 0.01
    budget: float = 120.0
    inconclusive: Literal["pass", "fail"] = "pass"
    links: tuple[str, ...] = ()
    tolerance: dict[str, float] = field(default_factory=dict)
    in_place: bool = False


def settings_of(config: Config) -> GateSettings:
    """The settings of a configuration. Raises ConfigError that names file and key."""
    known = {}
    try:
        table = Value(config.gate, "tool.perfaudit.gate", table="a table").keys((), _READ)
        for key, value in table.fields():
            name, read = _READ[key]
            try:
                known[name] = read(value)
            except UserError as error:
                raise ConfigError(f"{config.path}: {value.path}: {error}") from error
    except Damaged as error:
        raise ConfigError(f"{config.path}: {error}") from error
    return check_settings(GateSettings(**known))


def check_settings(settings: GateSettings) -> GateSettings:
    """The settings, if they make sense together. Raises UserError."""
    if settings.tolerate >= settings.max_regression:
        raise UserError(
            f"a slowdown of {settings.tolerate:.1%} never fails and one of {settings.max_regression:.1%} must be excluded "
            "for a pass: --tolerate must be below --max-regression"
        )
    return settings


def layers_of(names: tuple[str, ...]) -> tuple[str, ...]:
    """Names of layers, in their order. Raises UserError for one there is not."""
    for name in names:
        if name not in LAYERS:
            raise UserError(f"{name!r} is no layer of the gate; there are {', '.join(LAYERS)}")
    return tuple(layer for layer in LAYERS if layer in names)


def outcome_of(text: str) -> Literal["pass", "fail"]:
    """What a layer does that could not tell. Raises UserError for another word than pass or fail."""
    if text == "pass":
        return "pass"
    if text == "fail":
        return "fail"
    raise UserError(f"{text!r} is neither pass nor fail")


def baseline_in(folder: Path) -> str:
    """The baseline file that lies in a folder under its usual name, "" where there is none."""
    return BASELINE if (folder / BASELINE).is_file() else ""


def _tolerances(value: Value) -> dict[str, float]:
    return {name: share_of(share.text()) for name, share in value.keys((), COUNTERS).fields()}


_READ: dict[str, tuple[str, Callable[[Value], Any]]] = {  # Any: each field has a type of its own
    "targets": ("targets", Value.texts),
    "paths": ("paths", Value.texts),
    "against": ("against", Value.text),
    "baseline": ("baseline", Value.text),
    "layers": ("layers", lambda value: layers_of(value.texts())),
    "max-regression": ("max_regression", lambda value: share_of(value.text())),
    "tolerate": ("tolerate", lambda value: share_of(value.text())),
    "budget": ("budget", lambda value: seconds_of(value.text())),
    "inconclusive": ("inconclusive", lambda value: outcome_of(value.text())),
    "link": ("links", Value.texts),
    "in-place": ("in_place", Value.is_true),
    "counters": ("tolerance", _tolerances),
}
