"""The command that runs a climb again with what its patches must be allowed to change."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from perfaudit.target.names import Target
from perfaudit.tune.candidates import flag_for
from perfaudit.tune.climb_state import Climb

USUAL_BUDGET = 300.0  # seconds, without --budget


def allow_command(
    target: Target,
    state: Climb,
    knobs: Sequence[str],
    budget: float,
    memory: int = 0,
    device: str = "auto",
    on: str = "",
) -> str:
    """The command with which the patches that `state` offers may be taken.

    knobs: that were named, none for all. A budget that is shorter than the usual one is not named: the patches are raced beside
    those that were. memory: bytes, 0 where it was not given.
    """
    lacks = tuple(change for each in state.offered.values() for change in each.lacks)
    options = [f"--{name.replace('_', '-')}" for name in knobs]
    options += [*flag_for(lacks, state.allow).split()]
    options += ["--in-place"] if target.in_place else []
    options += [
        word for role, name in target.names.items() if role != "file" for word in ("--factory", f"{role}={name}")
    ]
    options += ["--budget", f"{budget:.0f}s"] if budget > USUAL_BUDGET else []
    options += ["--memory", str(memory)] if memory else []
    options += ["--device", device] if device != "auto" else []
    options += ["--on", on] if on else []
    return shlex.join(["perfaudit", "tune", *_words(target, options)])


def _words(target: Target, options: list[str]) -> list[str]:
    """The target with options behind it, and behind these the arguments of a script."""
    if target.is_script and target.name:
        name, *typed = shlex.split(target.name)  # with what was typed behind it
        return [name, *options, *(["--", *typed] if typed else [])]
    program = ["-m", target.module] if target.module else [target.file]
    return [*program, *options, *(["--", *target.arguments] if target.arguments else [])]
