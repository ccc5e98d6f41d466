"""What the commands of the gate share: their options, the request that these make, and signals."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.errors import NoTarget, NothingMeasured, UserError

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.gate.request import Request
    from perfaudit.gate.settings import GateSettings
    from perfaudit.measure.watch import Watch
    from perfaudit.target.names import Target

Targets = Annotated[
    list[str] | None, typer.Argument(metavar="TARGET...", help="Files with factories, file.py:factory or modules.")
]
Baseline = Annotated[Path | None, typer.Option("--baseline", metavar="FILE", help="The file that holds what is known.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, … (default: an accelerator if there is one).")]
Timeout = Annotated[str, typer.Option("--timeout", help="Longest time that loading, or one step, may take.")]
Factory = Annotated[
    list[str] | None, typer.Option("--factory", metavar="ROLE=NAME", help="Name a factory, as in `tune`.")
]
Paths = Annotated[
    list[str] | None, typer.Option("--path", metavar="PATH", help="What is scanned for findings (default: all).")
]


def settings_for(targets: list[str] | None, paths: list[str] | None) -> tuple[Config, GateSettings]:
    """The configuration of the working directory, with the targets and paths of the command line over it."""
    from perfaudit.cli.settings import settings_of_project
    from perfaudit.gate.settings import settings_of
    from perfaudit.static.discover import shown

    config = settings_of_project()
    settings = settings_of(config)
    named = [key for key, typed in (("targets", targets), ("paths", paths)) if key in config.gate and not typed]
    if named and config.path is not None and config.path.parent != Path.cwd():
        typed = " and ".join({"targets": "TARGET", "paths": "--path"}[key] for key in named)
        raise UserError(
            f"{config.path}: {' and '.join(named)} of [tool.perfaudit.gate] are relative to its folder: run the gate there, "
            f"or name {typed} on the command line, relative to this one"
        )
    if settings.baseline and config.path is not None:
        if _leads_out(config.path.parent, settings.baseline):
            raise UserError(
                f"{config.path}: [tool.perfaudit.gate] baseline = {settings.baseline!r} leads out of the project; "
                "name such a file on the command line: --baseline"
            )
        settings = replace(settings, baseline=shown(config.path.parent / settings.baseline))
    return config, replace(settings, targets=tuple(targets or settings.targets), paths=tuple(paths or settings.paths))


def _leads_out(folder: Path, name: str) -> bool:
    """Whether a path that a project has set lies outside of its repository, or of its folder where that is in none."""
    top = next((place for place in (folder, *folder.parents) if (place / ".git").exists()), folder)
    return not Path(os.path.normpath(folder / name)).is_relative_to(top)


def request_for(
    config: Config,
    settings: GateSettings,
    factory: list[str] | None,
    device: str,
    timeout: str,
    stored: tuple[str, ...] = (),
) -> Request:
    """What is asked for. stored: files of targets that a baseline holds, for where none is named. Raises UserError."""
    from perfaudit.cli.measuring import factory_names
    from perfaudit.gate.request import Request
    from perfaudit.quantities import seconds_of

    roles = factory_names(config, factory or [])
    return Request(_chosen(settings, roles, stored), settings, config, device, seconds_of(timeout))


def _chosen(settings: GateSettings, roles: dict[str, str], stored: tuple[str, ...]) -> tuple[Target, ...]:
    """The targets named, else the stored ones, else the configured one, else the one file here that defines factories.

    None where there is none, unless a layer that needs one was asked for.
    """
    from perfaudit.target.names import choose_target, parse

    if settings.layers == ("findings",):
        for text in settings.targets:
            parse(text)  # a file that is not there is a mistake, although nothing of it is run
        return ()
    if named := settings.targets or stored:
        return tuple(choose_target([text], Path.cwd(), roles) for text in named)
    try:
        return (choose_target([], Path.cwd(), roles),)
    except NoTarget:
        if settings.layers:
            raise
        return ()


def baseline_file(baseline: Path | None, settings: GateSettings) -> Path:
    """The file named, else the configured one, else the one with the usual name."""
    from perfaudit.gate.settings import BASELINE

    return baseline or Path(settings.baseline or BASELINE)


@contextlib.contextmanager
def measures(request: Request) -> Iterator[Watch]:
    """Progress while it runs. One gate in a folder at a time, as far as it runs user code."""
    from perfaudit.cli.measuring import live, needs_torch
    from perfaudit.tune.journal import measuring

    with contextlib.ExitStack() as stack:
        if request.targets:
            needs_torch("gate")
            try:
                stack.enter_context(measuring(Path.cwd()))
            except UserError as error:  # not wrong use: it could be measured a minute later
                raise NothingMeasured(str(error)) from error
        yield stack.enter_context(live(request.settings.budget))
