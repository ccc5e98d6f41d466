"""What a tool types: a command of perfaudit, with paths that stay inside of one folder. Knows no SDK.

What a tool is given comes from a model that has read texts of others, so each value is checked: a path by where it leads, a name
by its form, and nothing is taken for an option that is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfaudit.errors import UserError
from perfaudit.quantities import seconds_of

_RULE = re.compile(r"[A-Za-z][A-Za-z0-9-]{1,60}")
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_WINDOW = re.compile(r"\d+(:\d+)?")
LONGEST = 3600.0  # seconds that a tool may measure


class Commands:
    """The command lines of tools that work in one folder. Each raises UserError for what leads out of it, or is no such value."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    def scan(
        self,
        paths: Sequence[str] = (".",),
        select: Sequence[str] = (),
        ignore: Sequence[str] = (),
        severity: str = "info",
        tests: bool = False,
    ) -> list[str]:
        """Findings of files and folders, with their patches."""
        if severity not in ("error", "warning", "info", "hint"):
            raise UserError(f"severity {severity!r} is none of error, warning, info, hint")
        return [
            *("scan", "--severity", severity, "--exit-zero"),
            *(["--tests"] if tests else []),
            *_each("--select", _rules(select)),
            *_each("--ignore", _rules(ignore)),
            *self._paths(paths),
        ]

    def explain(self, rule: str) -> list[str]:
        """One rule: why it exists, examples, sources."""
        return ["explain", *_rules([rule])]

    def rules(self) -> list[str]:
        """All rules."""
        return ["rules", "list"]

    def doctor(self, bandwidth: bool = False) -> list[str]:
        """What the machine gives a training. bandwidth: reads and copies are timed."""
        return ["doctor", "--exit-zero", "--bandwidth" if bandwidth else "--no-bandwidth"]

    def trace(
        self, paths: Sequence[str], rank: int | None = None, window: str = "", compare: bool = False
    ) -> list[str]:
        """What traces of torch.profiler say."""
        if window and not _WINDOW.fullmatch(window):
            raise UserError(f"window {window!r}: give the first and the last step, as 2:4")
        if rank is not None and rank < 0:
            raise UserError(f"rank {rank}: ranks count from 0")
        return [
            *("trace", "--exit-zero"),
            *(["--rank", str(rank)] if rank is not None else []),
            *(["--window", window] if window else []),
            *(["--compare"] if compare else []),
            *self._paths(paths),
        ]

    def run(
        self, script: str, arguments: Sequence[str] = (), module: bool = False, seconds: float = 20.0, steps: int = 0
    ) -> list[str]:
        """Some steps of a script. steps: end it after so many, whatever time that takes; 0: after seconds of training."""
        if steps < 0 or not 0 < seconds <= LONGEST:
            raise UserError(f"seconds lie between 0 and {LONGEST:.0f}, steps are 0 or more")
        given = ["--steps", str(steps)] if steps else ["--seconds", f"{seconds:g}"]
        return ["run", "--quiet", *given, *self._script(script, module), *_behind_dashes(arguments)]

    def tune(
        self,
        target: str,
        arguments: Sequence[str] = (),
        module: bool = False,
        knobs: Sequence[str] = (),
        budget: str = "3m",
        allow: Sequence[str] = ("rounding",),
    ) -> list[str]:
        """What makes a training faster, with its patch, which is written nowhere."""
        from perfaudit.findings import CHANGES
        from perfaudit.knobs import all_knobs

        if unknown := sorted(set(knobs) - set(all_knobs())):
            raise UserError(f"knobs: no {', '.join(unknown)}; there are {', '.join(all_knobs())}")
        if unknown := sorted(set(allow) - {*CHANGES, "safe"}):
            raise UserError(f"allow: no {', '.join(unknown)}; there are safe, {', '.join(CHANGES)}")
        if seconds_of(budget) > LONGEST:
            raise UserError(f"budget {budget}: at most {LONGEST:.0f} s")
        return [
            *("tune", "--exit-zero", "--budget", budget),
            *([f"--{name.replace('_', '-')}" for name in knobs] or ["--all"]),
            *(["--allow", ",".join(allow)] if allow and not knobs else []),
            *self._script(target, module),
            *_behind_dashes(arguments),
        ]

    def _script(self, name: str, is_module: bool) -> list[str]:
        if not is_module:
            return self._paths([name])
        if not _MODULE.fullmatch(name):
            raise UserError(f"{name!r} is no name of a module")
        return ["-m", name]

    def _paths(self, paths: Sequence[str]) -> list[str]:
        if not paths:
            raise UserError("no path is given")
        return [self._path(path) for path in paths]

    def _path(self, path: str) -> str:
        """A path as it is typed in the root: it begins with no dash, and is not standard input."""
        try:
            where = (self.root / path).resolve()
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"{path!r} cannot be looked up") from error
        if not where.is_relative_to(self.root):
            raise UserError(f"{path}: is outside of {self.root}, the folder that `perfaudit mcp` was started for")
        inside = where.relative_to(self.root).as_posix()
        return f"./{inside}" if inside.startswith("-") else inside


def _rules(names: Iterable[str]) -> list[str]:
    found = list(names)
    for name in found:
        if not _RULE.fullmatch(name):
            raise UserError(f"{name!r} is no id or name of a rule, such as PA101 or dataloader-no-workers")
    return found


def _each(option: str, values: Iterable[str]) -> list[str]:
    return [word for value in values for word in (option, value)]


def _behind_dashes(arguments: Sequence[str]) -> list[str]:
    return ["--", *arguments] if arguments else []
