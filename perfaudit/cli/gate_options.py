"""What the commands of the gate share: their options, the request that these make, and signals."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.errors import NoTarget, NothingMeasured, UserError

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.gate.request import Request
    from perfaudit.gate.settings import GateSettings
    from perfaudit.measure.journal import Begin
    from perfaudit.measure.watch import Watch
    from perfaudit.target.names import Target

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET...",
        help='Scripts ("train.py --epochs 1"), names of [tool.perfaudit.targets], files with factories, file.py:factory or '
        "modules with factories. Behind one script, -- and its arguments.",
    ),
]
Module = Annotated[bool, typer.Option("-m", help="TARGET is a module, run as `python -m` runs it.")]
InPlace = Annotated[bool, typer.Option("--in-place", help="Let a script write its files, and its trackers record.")]
Baseline = Annotated[Path | None, typer.Option("--baseline", metavar="FILE", help="The file that holds what is known.")]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, … (default: an accelerator if there is one).")]
On = Annotated[
    str,
    typer.Option("--on", metavar="ray|slurm", help="Measure on nodes of a cluster, several sets of processes at once."),
]
Timeout = Annotated[str, typer.Option("--timeout", help="Longest time that loading, or one step, may take.")]
Factory = Annotated[
    list[str] | None, typer.Option("--factory", metavar="ROLE=NAME", help="Name a factory, as in `tune`.")
]
Paths = Annotated[
    list[str] | None, typer.Option("--path", metavar="PATH", help="What is scanned for findings (default: all).")
]


def texts_of_targets(given: list[str] | None, is_module: bool) -> list[str]:
    """The targets of the command line, each as one text: of one target what stands behind `--` are the arguments.

    Without any before it, what stands behind `--` are the targets. Raises UserError.
    """
    from perfaudit.cli.output import behind_dashes

    texts, arguments = behind_dashes(list(given or []))
    if not texts:
        texts, arguments = list(arguments), ()
    if (arguments or is_module) and len(texts) != 1:
        what = "arguments behind -- are" if arguments else "-m is"
        raise UserError(f'{what} for one target; write several as texts: "train.py --epochs 1" "-m package.train"')
    if is_module:
        return [shlex.join(["-m", texts[0], *arguments])]
    return [f"{texts[0]} {shlex.join(arguments)}"] if arguments else texts


def settings_for(
    targets: list[str] | None, paths: list[str] | None, module: bool = False, in_place: bool = False
) -> tuple[Config, GateSettings]:
    """The configuration of the working directory, with the targets and paths of the command line over it."""
    from perfaudit.cli.settings import settings_of_project
    from perfaudit.gate.settings import settings_of
    from perfaudit.static.discover import shown_path

    targets = texts_of_targets(targets, module)
    config = settings_of_project()
    settings = settings_of(config)
    settings = replace(settings, in_place=settings.in_place or in_place)
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
        settings = replace(settings, baseline=shown_path(config.path.parent / settings.baseline))
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
    stored: Mapping[str, bool] | None = None,
    begin: Begin | None = None,
    on: str = "",
) -> Request:
    """What is asked for. stored: targets of a baseline, see `against_file.stored_targets`. Raises UserError."""
    from perfaudit.cli.measuring import factory_names
    from perfaudit.cli.nodes import opener
    from perfaudit.gate.request import Request
    from perfaudit.measure.journal import nothing_kept
    from perfaudit.quantities import seconds_of

    roles = factory_names(config, factory or [])
    chosen = _choose_targets(config, settings, roles, stored or {})
    return Request(chosen, settings, config, device, seconds_of(timeout), begin or nothing_kept, on, opener(on))


def _choose_targets(
    config: Config, settings: GateSettings, roles: dict[str, str], stored: Mapping[str, bool]
) -> tuple[Target, ...]:
    """The targets named, else the stored ones, else those that have a name in the project file, else the configured one, else the
    one file here that defines factories.

    None where there is none, unless a layer that needs one was asked for.
    """
    from perfaudit.gate.targets import gate_target
    from perfaudit.target.names import choose_target

    def target(text: str) -> Target:
        if stored.get(text, True):
            return gate_target(text, config, roles, Path.cwd(), settings.in_place)
        return choose_target([text], Path.cwd(), roles)  # the file knows the names of its factories

    if settings.layers == ("findings",):
        for text in settings.targets:
            target(text)  # one that is not there is a mistake, although nothing of it is run
        return ()
    if named := settings.targets or tuple(stored) or tuple(config.targets):
        return tuple(map(target, named))
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
def measures(request: Request, watch: Watch | None = None, budget: float | None = None) -> Iterator[Watch]:
    """Progress while it runs, on stderr where no watch is given. One gate in a folder at a time, as far as it runs user code.

    budget: seconds that it takes at most, as far as there is such a bound.
    """
    from perfaudit.cli.measuring import live, needs_no_launcher, needs_torch
    from perfaudit.measure.folder import measuring

    with contextlib.ExitStack() as stack:
        if request.targets:
            needs_torch("gate")
            for target in request.targets:
                needs_no_launcher("gate", target)
            try:
                stack.enter_context(measuring(Path.cwd()))
            except UserError as error:  # not wrong use: it could be measured a minute later
                raise NothingMeasured(str(error)) from error
        yield watch or stack.enter_context(live(budget))
