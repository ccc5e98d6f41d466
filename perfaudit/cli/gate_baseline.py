"""`perfaudit gate init` and `perfaudit gate update`: the file that says what is known, written and renewed."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import replace
from typing import Annotated

import typer

from perfaudit.cli.gate_options import (
    Baseline,
    Device,
    Factory,
    Paths,
    Targets,
    Timeout,
    baseline_file,
    ended_by_signals,
    measures,
    request_for,
    settings_for,
)
from perfaudit.cli.output import check_writable, say
from perfaudit.errors import UserError

INIT_HELP = """Write a baseline file, meant to be committed, and print the snippet for CI.

\b
    perfaudit gate init train.py
    perfaudit gate init train.py --ci gitlab

The file holds the findings there are, and for each target the counters of one step and, as advice, its time.
"""

UPDATE_HELP = """Take what there is now into the baseline file, after a change that is wanted, with the reason.

\b
    perfaudit gate update --accept "two more layers: accuracy first"
    perfaudit gate update --accept "exact attention" --slower 15%

New findings and counters that grew are accepted at what they are now; a slower step by as much as its work grew
(operators, FLOPs or bytes), or by what --slower says. The gate of this change says so with the reason, and passes. The
file is part of the change and is reviewed with it.
"""


def init(
    targets: Targets = None,
    baseline: Baseline = None,
    ci: Annotated[
        str, typer.Option(metavar="github|gitlab|pre-commit|plain|none", help="Which snippet is printed.")
    ] = "github",
    path: Paths = None,
    factory: Factory = None,
    device: Device = "auto",
    timeout: Timeout = "2m",
    force: Annotated[bool, typer.Option("--force", help="Write over a baseline that is there.")] = False,
) -> None:
    """Parse, take stock, write, print the snippet."""
    from perfaudit.cli.output import write
    from perfaudit.gate.baseline import write_gate_baseline
    from perfaudit.gate.snippets import snippet
    from perfaudit.gate.stock import stock

    config, settings = settings_for(targets, path)
    file = baseline_file(baseline, settings)
    if file.exists() and not force:
        raise UserError(
            f"{file}: is there already; `perfaudit gate update --accept WHY` takes what changed, --force writes anew"
        )
    check_writable(file)
    request = request_for(config, replace(settings, baseline=str(file), against=""), factory, device, timeout)
    printed = "" if ci == "none" else snippet(ci, settings, file)
    with ended_by_signals(), measures(request) as watch:
        now = stock(request, watch)
    write_gate_baseline(file, now)
    held = f"{len(now.findings)} finding{_s(now.findings)}, {len(now.targets)} target{_s(now.targets)}"
    say(f"{file}: written: {held}; commit it")
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
    device: Device = "auto",
    timeout: Timeout = "2m",
) -> None:
    """Parse, take stock, write what changed and why."""
    import datetime

    from perfaudit.gate.accepted import updated
    from perfaudit.gate.baseline import read_gate_baseline, write_gate_baseline
    from perfaudit.gate.stock import stock
    from perfaudit.quantities import share_of

    if slower and no_time:
        raise UserError("--slower accepts a slower step, --no-time does not: choose one")
    bound = share_of(slower) if slower else None
    if not accept.strip():
        raise UserError('name the reason, which is kept in the file: perfaudit gate update --accept "why it is wanted"')
    config, settings = settings_for(targets, path)
    file = baseline_file(baseline, settings)
    before = read_gate_baseline(file)
    check_writable(file)
    if not settings.targets:
        settings = replace(settings, targets=tuple(before.targets))
    request = request_for(config, replace(settings, baseline=str(file), against=""), factory, device, timeout)
    with ended_by_signals(), measures(request) as watch:
        now = stock(request, watch)
    today = datetime.date.today().isoformat()  # as the people who review it have it
    after, changes = updated(before, now, accept, today, not no_time, bound)
    if not changes:
        raise UserError(
            f"{file}: nothing changed, so there is nothing to accept and nothing was written; a step that is slower by itself "
            "is accepted by --slower 10%"
        )
    write_gate_baseline(file, after)
    for change in changes:
        say(f"  {change}")
    say(f"{file}: written, {len(changes)} change{_s(changes)} accepted")


def _s(things: Sized) -> str:
    return "" if len(things) == 1 else "s"
