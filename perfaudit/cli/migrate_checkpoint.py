"""`perfaudit migrate-checkpoint`: fold biases that the source no longer has into the norms behind them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfaudit.cli.options import format_option
from perfaudit.cli.output import write

if TYPE_CHECKING:
    from perfaudit.checkpoints.migrate import Migration

HELP = """Make an old checkpoint load, and evaluate as before, after biases before norms were removed (PA201, PA202).

\b
    perfaudit migrate-checkpoint old.pt new.pt --target model.py
    perfaudit migrate-checkpoint old.pt new.pt --target model.py --check     do everything but write

The target is the source as it is now, with bias=False; its model, loader and optimizer are built in a child process, which
reads OLD with weights_only=True. Each bias is subtracted from the running mean of its norm, in every copy of the model
(averages too), and leaves the optimizer's state. NEW must not exist. What is not understood is refused, with exit code 2.
"""


def command(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="The checkpoint, as torch.save wrote it.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The file to write; it must not exist.")],
    target: Annotated[
        str | None, typer.Option(metavar="TARGET", help="file.py, file.py:factory or package.module, as for `tune`.")
    ] = None,
    factory: Annotated[
        list[str] | None,
        typer.Option(metavar="ROLE=NAME", help="Name a factory: model=make_net, optimizer=other.py:adam."),
    ] = None,
    device: Annotated[str, typer.Option(help="Where the model is built and checked: cpu, cuda, auto, …")] = "cpu",
    timeout: Annotated[str, typer.Option(help="Longest time that all of it may take.")] = "10m",
    check: Annotated[bool, typer.Option("--check", help="Fold and compare, but write nothing.")] = False,
    format: Annotated[str, format_option("text", "json", what="account")] = "text",
) -> None:
    """Parse, migrate, tell."""
    from perfaudit.checkpoints.migrate import migrate
    from perfaudit.cli.measuring import factory_names, needs_torch
    from perfaudit.cli.settings import settings_of_project
    from perfaudit.quantities import seconds_of
    from perfaudit.target.names import choose_target

    needs_torch("migrate-checkpoint")
    names = factory_names(settings_of_project(), factory or [])
    chosen = choose_target([target] if target else [], Path.cwd(), names)
    done = migrate(old, new, chosen, device, seconds_of(timeout), check)
    write(_as_json(old, new, done) if format == "json" else _as_text(old, new, done), None)


def _as_text(old: Path, new: Path, done: Migration) -> str:
    """One line for each layer, then places, optimizers, the check, and where the result is."""
    values = sum(each.width for each in done.folds)
    lines = [f"{old}: {_count(len(done.folds), 'bias', 'biases')} with {values:,} values"]
    for each in done.folds:
        how = "" if each.folded else ": dropped, the norm keeps no running mean and subtracts the bias itself"
        lines.append(f"  {each.layer} -> {each.norm} ({each.norm_kind}){how}")
    lines.append(f"folded in {_count(len(done.copies), 'place', 'places')}: {', '.join(done.copies)}")
    lines += [
        f"{state.place}: {state.parameters} of {state.of} parameters left out ({state.with_state} had state), "
        f"in the order of {state.source}"
        for state in done.optimizers
    ]
    lines.append(
        f"checked on one batch in {done.mode}: loads strictly; outputs lie within {done.gap:.1e} of the old ones, "
        f"relative to the largest ({done.gap_without_folding:.2g} without folding)"
    )
    lines.append(f"{new}: {'written' if done.size else 'not written (--check)'}")
    return "\n".join(lines) + "\n"


def _as_json(old: Path, new: Path, done: Migration) -> str:
    from perfaudit.render.words import json_text

    told = {"schema_version": 1, "command": "migrate-checkpoint", "old": str(old), "new": str(new), **asdict(done)}
    return json_text(told)


def _count(n: int, one: str, many: str) -> str:
    return f"{n} {one if n == 1 else many}"
