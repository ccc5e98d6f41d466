"""What the gate's targets are, from the texts in which they are written: on the command line, and in the project file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from perfaudit.config import Config, named_target
from perfaudit.errors import TargetError
from perfaudit.target.names import Target, Typed, choose_target, parse, split_target


def gate_target(text: str, config: Config, roles: Mapping[str, str], folder: Path, in_place: bool = False) -> Target:
    """A target that is one text: a name of `[tool.perfaudit.targets]`, `train.py --epochs 1`, `-m package.train`, or a file with
    factories.

    roles: names of factories, with which a file without arguments is no script. folder: that paths are relative to. in_place: a
    script writes its own files. Raises UserError.
    """
    words = named_target(config, text, folder)
    typed = split_target(words, text) if words is not None else _parse_target(text, folder)
    is_named = bool(roles.keys() - {"file"})
    if typed.arguments or typed.is_module or not is_named:
        plain = replace(typed, text=Path(typed.text).as_posix()) if not typed.is_module else typed  # "./train.py"
        if (script := plain.script(folder)) is not None:
            return replace(script, in_place=in_place)
    if typed.arguments:
        raise TargetError(f"{typed.text}: no such script; for a module, write -m before it")
    if folder.resolve() != Path.cwd().resolve():
        return parse(typed.text, dict(roles), folder)
    return choose_target([typed.text], folder, dict(roles))


def _parse_target(text: str, folder: Path) -> Typed:
    return Typed(text) if not text.strip() or (folder / text).exists() else split_target(text)
