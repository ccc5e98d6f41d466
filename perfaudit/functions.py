"""What `perfaudit.scan`, `fix`, `run`, `tune` and `gate` do: the work of the commands of these names. Prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.errors import UserError

if TYPE_CHECKING:
    from perfaudit.findings import Severity
    from perfaudit.report import Report
    from perfaudit.script.observe import Seen


def scan(paths: list[str], severity: Severity) -> Report:
    """The report of a scan with the settings of the project."""
    from perfaudit.cli.scanning import Plan

    report = Plan.of(paths, None, (), (), severity, False, 0, False, False, False, []).scan_as_asked()
    if not report.files and not report.skipped:
        return report.with_(notes=(*report.notes, f"no Python files in {', '.join(paths) or 'nothing'}"))
    return report


def fix(scan: Callable[[], Report], unsafe: bool, allow: Sequence[str]) -> Report:
    """What is left once the fixes of a scan are written; `notes` say how many there were in each file."""
    from perfaudit.cli.one_scan import allowed_changes
    from perfaudit.cli.scanning import fix_files

    told: list[str] = []
    report = fix_files(scan(), scan, unsafe, allowed_changes(tuple(allow)), told.append)
    return report.with_(notes=(*report.notes, *told))


def run(
    script: str,
    arguments: Sequence[str],
    module: bool,
    steps: int,
    seconds: float | None,
    timeout: float,
    in_place: bool,
) -> Report:
    """The report of a script that runs until so many steps were seen, or for so many seconds of training."""
    from perfaudit.cli.measuring import needs_torch
    from perfaudit.cli.run import SECONDS, output_of_script, report_of, run_of
    from perfaudit.cli.script_text import check_script
    from perfaudit.measure.environment import host
    from perfaudit.script.observe import observe
    from perfaudit.script.request import Request, Script
    from perfaudit.script.scratch_folders import scratch_root

    check_script(script, module)
    needs_torch("run")
    wanted = Script(script, tuple(arguments), module)
    limit = seconds if seconds is not None else 0.0 if steps else SECONDS
    request = Request(wanted, steps, limit, None if in_place else scratch_root(wanted))
    machine = host()  # before the script makes it busy
    with output_of_script(quiet=True) as (stream, last_lines):

        def heed(_: Seen) -> None:
            last_lines()  # keeps what it prints small

        seen = observe(request, timeout, heed, stream)
    return report_of(run_of(seen, wanted, timeout, in_place), seen.facts, machine)


def tune(
    target: str,
    knobs: Sequence[str],
    budget: float,
    arguments: Sequence[str],
    module: bool,
    allow: Sequence[str] | None,
    in_place: bool,
) -> Report:
    """The report of a search; without knobs, and with `allow`, of a climb."""
    from perfaudit.cli.measuring import needs_torch
    from perfaudit.cli.tune import changes_allowed, target_named
    from perfaudit.knobs import all_knobs
    from perfaudit.measure.folder import measuring
    from perfaudit.tune.report import tune as search

    names = [name.replace("-", "_") for name in knobs]
    if unknown := sorted(set(names) - set(all_knobs())):
        raise UserError(f"no knob is called {', '.join(unknown)}; they are {', '.join(all_knobs())}")
    needs_torch("tune")
    chosen = target_named(target, [], tuple(arguments), module)
    climbs = changes_allowed(list(allow or ())) if allow is not None or not names else None
    with measuring(Path.cwd()):
        wanted = names or list(all_knobs())
        return search(chosen, wanted, budget, skips_idle=not names, allow=climbs, in_place=in_place)


def gate(
    targets: Sequence[str],
    against: str,
    baseline: str,
    layers: Sequence[str],
    budget: float | None,
    max_regression: float | None,
    paths: Sequence[str],
    in_place: bool,
) -> Report:
    """The report of a gate, with the settings of the project; nothing of it is kept for `perfaudit history`."""
    from perfaudit.cli.gate import Typed
    from perfaudit.cli.gate_options import measures, request_for, settings_for
    from perfaudit.gate.against_file import stored_targets
    from perfaudit.gate.gate import gate as judge
    from perfaudit.gate.settings import check_settings
    from perfaudit.measure.watch import Watch

    config, settings = settings_for(list(targets) or None, list(paths) or None, in_place=in_place)
    typed = Typed(against, Path(baseline) if baseline else None, tuple(layers), "", "", "", "", ())
    settings = typed.over(settings)
    seconds = settings.budget if budget is None else budget
    slowdown = settings.max_regression if max_regression is None else max_regression
    settings = check_settings(replace(settings, budget=seconds, max_regression=slowdown))
    request = request_for(config, settings, None, "auto", "2m", stored_targets(settings, config))
    with measures(request, Watch()) as watch:
        return judge(request, watch)
