"""The settings of a folder, and the rules that they bring, with what is to be said of where both come from."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from perfaudit.cli.output import say
from perfaudit.errors import ConfigError
from perfaudit.records import replace

if TYPE_CHECKING:
    from perfaudit.config import Config
    from perfaudit.static.plan import ScanPlan
    from perfaudit.target.names import Typed


def settings_of_project(start: Path | None = None) -> Config:
    """The configuration that holds for a folder (the working directory); says which files another user owns, on stderr."""
    from perfaudit.config import find_config
    from perfaudit.render.words import one_line

    config = find_config(start or Path.cwd())
    for note in config.notes:
        say(f"perfaudit: {one_line(note)}")
    return config


def rules_to_run(
    config: Config, named: Iterable[Path] = (), select: Iterable[str] = (), ignore: Iterable[str] = ()
) -> ScanPlan:
    """The rules of a scan: ours, those of the folders that are named, and of the project's those that the user trusts.

    Says on stderr which are left out, and how they are run. Raises ConfigError where no rule is left.
    """
    from perfaudit.render.words import one_line
    from perfaudit.static.discover import shown_path
    from perfaudit.static.plan import how_to_trust, own_rules, plan_of

    own = own_rules(config, named)
    if own.note:
        import shlex

        once = " ".join(f"--rules {shlex.quote(shown_path(folder))}" for folder in own.left_out)
        how = f"read them, then: {how_to_trust(config)} (or for one scan: {once})"
        say(f"perfaudit: {one_line(own.note)}; {one_line(how)}")
    planned = plan_of(config, own, select, ignore)
    if planned.options is None:
        raise ConfigError(f"{config.path}: [tool.perfaudit]: no rule is left: it leaves on only rules that are not run")
    return planned


def typed_target(config: Config, text: str, arguments: tuple[str, ...] = (), is_module: bool = False) -> Typed:
    """What is meant by what was typed: a name of `[tool.perfaudit.targets]` stands for what the project file has under it.

    arguments: given to the script behind those that the project file has. Raises UserError.
    """
    import shlex

    from perfaudit.config import named_target
    from perfaudit.target.names import Typed, split_target

    words = None if is_module else named_target(config, text, Path.cwd())
    if words is None:
        return Typed(text, arguments, is_module)
    found = split_target(words)
    return replace(found, arguments=(*found.arguments, *arguments), name=" ".join([text, *map(shlex.quote, arguments)]))
