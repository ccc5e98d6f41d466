"""`perfaudit tune`: search settings of a training, with intervals, and write the winner as a patch."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from perfaudit.cli.nodes import On
from perfaudit.cli.options import HtmlFile, format_option
from perfaudit.cli.output import SOURCES, check_writable, emit, names, say
from perfaudit.errors import FOUND, INTERRUPTED, NOTHING_MEASURED, OK, UserError

if TYPE_CHECKING:
    from perfaudit.report import Report
    from perfaudit.target.names import Target

HELP = """Find what makes your training faster, and print it as one checked patch.

\b
    perfaudit tune train.py                             an unmodified script: what pays together, as one patch
    perfaudit tune train.py --budget 2m -- --epochs 1   what comes after -- is the script's
    perfaudit tune -m package.train -- config.yaml      a module, as `python -m` runs it
    perfaudit tune small                                a name of [tool.perfaudit.targets] in pyproject.toml
    perfaudit tune train.py --dataloader
    perfaudit tune train.py --batch-size --memory 8GiB
    perfaudit tune package.train --ema --cudnn --budget 3m
    perfaudit tune train.py --dataloader --apply        write the winner's patch
    perfaudit tune train.py --all --out plan.patch      write the patch to a file
    perfaudit tune train.py --all --allow rounding,rng --apply
    perfaudit tune train.py --resume                    go on where an earlier run was stopped
    torchrun --nproc-per-node 2 -m perfaudit tune train.py    what pays on several ranks

With --all it climbs: the patches of all knobs are raced against your code in one training that runs. What pays is put together,
checked, and raced as patched source in fresh processes. Where the budget ends before that race is decided, the figure is that
of the training and is marked screened. A patch is written only if its losses were compared, and one of the two races shows
it to be faster.

A script runs as `python train.py` runs it, in its own loop, which is left after each step to put another patch in place. What
it writes goes to a scratch folder that is deleted afterwards; --in-place lets it write its files. It must train long enough to be
measured, and it is ended early.

A file that defines functions by these names (or --factory ROLE=NAME) is not a script: a loop of perfaudit's runs them.
On a script some knobs say in words what to change, because they have no line to patch.

\b
    build_model() -> nn.Module              also make_model, get_model, create_model
    build_dataloader() -> DataLoader        also make_, get_, create_dataloader, build_loader, train_dataloader
    build_optimizer(model) -> Optimizer     optional; AdamW without it
    training_step(model, batch) -> loss     optional; cross-entropy or squared error on (input, target) without it
    build_ema(model) -> has update(...)     optional

All of it runs in child processes, never in this one.
"""


SAMPLER = "sampler"  # the knob that ranks have, too
SAFE = "safe"  # of --allow: patches that change nothing but speed


def command(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="TARGET",
            help="A script, a name of [tool.perfaudit.targets], or file.py, file.py:factory or package.module with factories.",
        ),
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS]", help="What a script is given.")] = None,
    module: Annotated[bool, typer.Option("-m", help="TARGET is a module, run as `python -m` runs it.")] = False,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Let a script write its files, and its trackers record.")
    ] = False,
    all_: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Every knob (also when none is named). compile comes last, where there is time left for it; on a script, "
            "checkpointing is tried only where it is named.",
        ),
    ] = False,
    memory: Annotated[
        str,
        typer.Option(
            help="Memory budget of --batch-size and of patches, e.g. 8GiB (default: what is free, less a fifth)."
        ),
    ] = "",
    budget: Annotated[str, typer.Option(help="Time for all measuring, e.g. 90s or 5m.")] = "5m",
    timeout: Annotated[str, typer.Option(help="Longest time that loading, or one step, may take.")] = "2m",
    device: Annotated[str, typer.Option(help="cpu, cuda, … (default: an accelerator if there is one).")] = "auto",
    factory: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="Name a factory: model=make_net, dataloader=other.py:loader."),
    ] = None,
    format: Annotated[str, format_option("text", "json", "markdown", "html")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the report to a file.")] = None,
    html: HtmlFile = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="Write the patch into the source: of all that pays with --all, or of the one winner."
        ),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the patch to a file, as `git apply` takes it.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CHANGES",
            help="What besides speed patches of a climb may change: rounding, precision, rng, checkpoint, order, "
            "algorithm, aliasing, as rounding,rng or one in each --allow; `safe` for nothing (default: "
            "rounding). With knobs named, climb with these.",
        ),
    ] = None,
    meet: Annotated[Path | None, typer.Option(help="Of ranks on several nodes: a folder that all of them see.")] = None,
    on: On = "",
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the newest unfinished run of this folder.")
    ] = False,
    exit_zero: Annotated[
        bool, typer.Option("--exit-zero", help="Exit with 0 even when something faster was found.")
    ] = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose",
            "-v",
            help="Of a climb, also print noise, every candidate that was raced, how losses were compared and which knobs "
            "cannot matter. JSON has all of it.",
        ),
    ] = False,
    **flags: bool,
) -> None:
    """Parse, search, render, apply, exit. `flags` holds one entry a knob (see `_with_knob_flags`)."""
    from perfaudit.cli.measuring import live, needs_torch
    from perfaudit.cli.nodes import opener
    from perfaudit.distributed.launch import place_of
    from perfaudit.measure.folder import measuring
    from perfaudit.quantities import bytes_of, seconds_of
    from perfaudit.tune.recording import begin
    from perfaudit.tune.report import tune

    needs_torch("tune")
    knobs = [name for name, wanted in flags.items() if wanted or all_ or not any(flags.values())]
    everything = all_ or not any(flags.values())
    climbs = changes_allowed(allow) if everything or allow else None
    script = None
    if resume and not all_ and not any(flags.values()):
        knobs, target, climbs, script = _as_before(knobs, target, allow)
    chosen = script or target_named(target, factory or [], tuple(arguments or ()), module)
    check_writable(output, html)
    limit = bytes_of(memory) if memory else 0
    if out is not None and (out.suffix in SOURCES or out in (output, html)):
        raise UserError(f"--out {out}: that is no place for a patch; name a file such as plan.patch")
    check_writable(out)
    place = place_of(os.environ)
    if place.is_launched and chosen.is_script:
        from perfaudit.cli.tune_ranks import tune_on_ranks

        if on:
            raise UserError(f"behind a launcher the ranks are where it started them: leave --on {on} out")
        alone = [] if everything else knobs
        if resume or alone not in ([], [SAMPLER]):
            raise UserError(
                "behind a launcher `tune` races what can be patched on several ranks, and with --sampler batches by length "
                "alone: leave other knobs and --resume out"
            )
        tune_on_ranks(
            place, chosen, seconds_of(budget), seconds_of(timeout),
            (climbs or frozenset()) | ({"order"} if alone else frozenset()), in_place, meet,
            lambda report: _hand_over(report, format, output, verbose, html, out, apply, exit_zero, is_launched=True),
            only_by_length=bool(alone),
        )  # fmt: skip
        raise typer.Exit(OK)  # the first rank has reported
    nodes = opener(on, like_here=True)
    journal = begin(Path.cwd(), resume)
    with measuring(Path.cwd()), live(seconds_of(budget)) as watch:
        report = tune(
            chosen, knobs, seconds_of(budget), limit, device, seconds_of(timeout), watch, everything, journal,
            allow=climbs, in_place=in_place, on=on, nodes=nodes,
        )  # fmt: skip
    _hand_over(report, format, output, verbose, html, out, apply, exit_zero)


def _hand_over(
    report: Report,
    format: str,
    output: Path | None,
    verbose: bool,
    html: Path | None,
    out: Path | None,
    apply: bool,
    exit_zero: bool,
    is_launched: bool = False,
) -> NoReturn:
    """Print the report, write the patch where it was asked for, and leave. is_launched: by a launcher, which reads the code."""
    emit(report, format, output, verbose, html)
    if out is not None:
        _write_patch(report, out)
    if apply:
        _apply(report)
    if report.interrupted:
        raise typer.Exit(INTERRUPTED)
    code = _code(report, exit_zero)
    if is_launched and code == FOUND:
        say(
            "exit code 1 says that there is a patch; a launcher calls that a failure, and what it prints below is no error of "
            "the script's (--exit-zero ends with 0)"
        )
    raise typer.Exit(code)


def _as_before(
    knobs: list[str], target: str | None, allow: list[str] | None
) -> tuple[list[str], str | None, frozenset[str] | None, Target | None]:
    """The knobs of the run that will be resumed, and its target and what its climb allowed where none is given.

    The target is a text as it is typed or, last, a script with its arguments.
    """
    from perfaudit.measure.journal import latest_unfinished, read_run
    from perfaudit.target.names import Target

    path = latest_unfinished(Path.cwd(), "tune")
    if path is None:
        raise UserError(
            "--resume: no run of `perfaudit tune` in this folder is unfinished; `perfaudit history` lists them"
        )
    start = read_run(path).start
    allowed = (start.get("options") or {}).get("allow")
    climbs = frozenset(map(str, allowed)) if isinstance(allowed, list) else None
    if allow:
        climbs = changes_allowed(allow)
    script = (start.get("options") or {}).get("script")
    knobs = list(start.get("knobs") or knobs)
    if target is None and isinstance(script, dict):
        return knobs, None, climbs, Target.from_json(script)
    return knobs, target or start.get("target"), climbs, None


def changes_allowed(allow: list[str] | None) -> frozenset[str]:
    """What patches of a climb may change, of all `--allow` together. Raises UserError for something that none does."""
    from perfaudit.findings import CHANGES

    named = set(names(allow) if allow and any(allow) else ("rounding",))
    if SAFE in named and len(named) > 1:
        raise UserError(
            f"--allow {','.join(allow or ())}: `{SAFE}` allows nothing besides speed; leave it out to allow the others"
        )
    named -= {SAFE}
    if unknown := sorted(named - set(CHANGES)):
        raise UserError(f"--allow {','.join(unknown)}: patches change {', '.join(CHANGES)}; `{SAFE}` allows none of it")
    return frozenset(named)


def _with_knob_flags() -> None:
    """Give `command` a flag for each knob, so that a new knob is one file."""
    from perfaudit.knobs import all_knobs, knob

    signature = inspect.signature(command, eval_str=True)
    fixed = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    flags = []
    for name in all_knobs():
        option = Annotated[bool, typer.Option(f"--{name.replace('_', '-')}", help=knob(name).tries)]
        flags.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=option))
        command.__annotations__[name] = option
    command.__annotations__.pop("flags")
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in fixed[1:]]
    changed = signature.replace(parameters=[fixed[0], *flags, *keyword_only])
    command.__signature__ = changed  # type: ignore[attr-defined]  # what typer reads


def _code(report: Report, exit_zero: bool) -> int:
    # A patch may have been raced beside the others only, too briefly alone for any figure.
    together = report.ladder is not None and bool(report.ladder.files or report.ladder.screened)
    screened = together or any(compared.says_something for compared in report.comparisons)
    if not screened and not any(trial.status == "ok" for trial in report.trials):
        return NOTHING_MEASURED
    if report.ladder is not None:
        found = bool(report.ladder.files)
    else:
        found = any(not winner.keeps_current for winner in report.winners)
    return FOUND if found and not exit_zero else OK


def target_named(text: str | None, named: list[str], arguments: tuple[str, ...], module: bool) -> Target:
    from perfaudit.cli.measuring import factory_names
    from perfaudit.cli.script_text import check_text
    from perfaudit.cli.settings import settings_of_project, typed_target
    from perfaudit.target.names import check_names, choose_target

    config = settings_of_project()
    roles = factory_names(config, named)
    is_named = bool(roles.keys() - {"file"})
    typed = typed_target(config, text, arguments, module) if text is not None else None
    if typed is not None:
        text = typed.text
        may_be_script = not is_named or (typed.name and (typed.arguments or typed.is_module))
        if may_be_script and (script := typed.script()) is not None:
            check_text(script.file)
            return script
    if arguments or module:
        why = (
            "the factories that --factory or pyproject.toml names take no arguments"
            if is_named
            else "no such script; for a module, add -m"
        )
        raise UserError(f"{text or '--'}: {why}")
    return check_names(choose_target([text] if text else [], Path.cwd(), roles))


def _write_patch(report: Report, out: Path) -> None:
    from perfaudit.files import reason, replace_file
    from perfaudit.tune.apply import patch_bytes

    patch = patch_bytes(report)
    if not patch:
        say(f"{out}: not written, there is no patch to hand over")
        return
    try:
        replace_file(out, patch)
    except OSError as error:
        raise UserError(f"{out}: not written: {reason(error)}") from error
    say(f"{out}: written; `git apply {out}` applies it")


def _apply(report: Report) -> None:
    from perfaudit.tune.apply import apply_winners

    for line in apply_winners(report):
        say(line)


_with_knob_flags()
