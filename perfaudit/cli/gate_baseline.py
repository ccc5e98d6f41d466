"""`perfaudit gate init` and `perfaudit gate update`: the file that says what is known, written and renewed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.gate_options import (
    Baseline,
    Device,
    Factory,
    InPlace,
    Module,
    Paths,
    Targets,
    Timeout,
    baseline_file,
    measures,
    request_for,
    settings_for,
)
from perfaudit.cli.output import check_writable, say
from perfaudit.cli.settings import rules_to_run
from perfaudit.errors import UserError
from perfaudit.gate.signals import ended_by_signals

if TYPE_CHECKING:
    from perfaudit.gate.baseline import TargetState

INIT_HELP = """Write a baseline file, meant to be committed, and print the snippet for CI.

\b
    perfaudit gate init train.py
    perfaudit gate init train.py -- --epochs 1
    perfaudit gate init train.py --ci gitlab

The file holds the findings there are, and for each target the counters of one step and, as advice, its time.
"""

UPDATE_HELP = """Take what there is now into the baseline file, after a change that is wanted, with the reason.

\b
    perfaudit gate update --accept "two more layers: accuracy first"
    perfaudit gate update --accept "exact attention" --slower 15%

New findings and counters that grew are accepted at what they are now; a slower step by as much as its work grew
(operators, FLOPs or bytes), or by what --slower says. The gate of this change says so with the reason, and passes. The
file is part of the change and is reviewed with it; where there is none, it is made. Targets whose file is gone are
dropped, and findings outside --path stay as they are.
"""


def init(
    targets: Targets = None,
    baseline: Baseline = None,
    ci: Annotated[
        str, typer.Option(metavar="github|gitlab|pre-commit|plain|none", help="Which snippet is printed.")
    ] = "github",
    path: Paths = None,
    factory: Factory = None,
    module: Module = False,
    in_place: InPlace = False,
    device: Device = "auto",
    timeout: Timeout = "2m",
    force: Annotated[bool, typer.Option("--force", help="Write over a baseline that is there.")] = False,
) -> None:
    """Parse, take stock, write, print the snippet."""
    from perfaudit.cli.output import write
    from perfaudit.gate.baseline import write_gate_baseline
    from perfaudit.gate.snippets import Typed, snippet
    from perfaudit.gate.stock import stock
    from perfaudit.render.words import count

    config, settings = settings_for(targets, path, module, in_place)
    file = baseline_file(baseline, settings)
    if file.exists() and not force:
        raise UserError(
            f"{file}: is there already; `perfaudit gate update --accept WHY` takes what changed, --force writes anew"
        )
    check_writable(file)
    request = request_for(config, replace(settings, baseline=str(file), against=""), factory, device, timeout)
    found = replace(settings, targets=settings.targets or tuple(target.label for target in request.targets))
    typed = Typed(path or (), factory or (), device, timeout, in_place)
    printed = "" if ci == "none" else snippet(ci, found, file, typed=typed)
    rules = rules_to_run(config)
    with ended_by_signals(), measures(request) as watch:
        now = stock(request, watch, rules)
    write_gate_baseline(file, now)
    say(f"{file}: written: {count(len(now.findings), 'finding')}, {count(len(now.targets), 'target')}; commit it")
    _say_untimed(now.targets)
    if not request.targets:
        say(
            "no target: no file here defines factories, so counters are not kept; name one: perfaudit gate init train.py"
        )
    write(printed, None)


def update(
    targets: Targets = None,
    accept: Annotated[str, typer.Option(metavar="REASON", help="Why the change is wanted.")] = "",
    baseline: Baseline = None,
    no_time: Annotated[bool, typer.Option("--no-time", help="Do not accept a slower step.")] = False,
    slower: Annotated[
        str,
        typer.Option(
            metavar="SHARE", help="Accept a step that is slower by up to this, e.g. 15% (default: as its work grew)."
        ),
    ] = "",
    path: Paths = None,
    factory: Factory = None,
    module: Module = False,
    in_place: InPlace = False,
    device: Device = "auto",
    timeout: Timeout = "2m",
) -> None:
    """Parse, take stock, write what changed and why."""
    import datetime

    from perfaudit.gate.against_file import is_still_there
    from perfaudit.gate.baseline import gate_baseline_if_there, write_gate_baseline
    from perfaudit.gate.baseline_update import update_baseline
    from perfaudit.gate.stock import stock
    from perfaudit.quantities import share_of
    from perfaudit.render.words import count

    if slower and no_time:
        raise UserError("--slower accepts a slower step, --no-time does not: choose one")
    bound = share_of(slower) if slower else None
    if not accept.strip():
        raise UserError('name the reason, which is kept in the file: perfaudit gate update --accept "why it is wanted"')
    config, settings = settings_for(targets, path, module, in_place)
    file = baseline_file(baseline, settings)
    before = gate_baseline_if_there(file)
    check_writable(file)
    held = before.targets if before else {}
    gone = [name for name, state in held.items() if not is_still_there(name, state, config)]
    stored = {name: state.script is not None for name, state in held.items() if name not in gone}
    request = request_for(config, replace(settings, baseline=str(file), against=""), factory, device, timeout, stored)
    rules = rules_to_run(config)
    with ended_by_signals(), measures(request) as watch:
        now = stock(request, watch, rules, before)
    today = datetime.date.today().isoformat()  # as the people who review it have it
    after, changes = update_baseline(before, now, accept, today, not no_time, bound, gone)
    if not changes and before is None:
        raise UserError(f"{file}: not written: there is no finding and no target here that could be accepted")
    if not changes:
        raise UserError(
            f"{file}: nothing changed, so there is nothing to accept and nothing was written; a step that is slower by itself "
            "is accepted by --slower 10%. Where `gate init` wrote the file after the change, it holds the change already: "
            "remove it, or take the one from before the change, and repeat this"
        )
    write_gate_baseline(file, after)
    for change in changes:
        say(f"  {change}")
    say(f"{file}: {'made anew' if before is None else 'written'}, {count(len(changes), 'change')} accepted; commit it")
    _say_untimed(now.targets)
    if not request.targets:
        say("no target here defines factories, so no counters are accepted; name one: perfaudit gate update train.py …")
    elif before is None and bound is None and not no_time:
        say("by how much its work grew is not known without a file, so a slower step is accepted by --slower 10% only")


def _say_untimed(targets: Mapping[str, TargetState]) -> None:
    """Name the targets of which no time was measured, and why: there is one reason."""
    for name, state in targets.items():
        if state.seconds_per_step is None:
            say(f"{name}: not timed: it ends before a block of its steps is timed; let it train longer")
