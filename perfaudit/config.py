"""`[tool.perfaudit]` of the nearest pyproject.toml, rule selection, and suppression comments."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from perfaudit.errors import ConfigError
from perfaudit.findings import Finding
from perfaudit.rules import Rule

_COMMENT = re.compile(r"#\s*perfaudit:\s*ignore(?:\s*\[(?P<rules>[^\]]*)\]|(?![\w-]|\s*\[))")
_KEYS = {"select", "ignore", "exclude", "target"}
TARGET_KEYS = ("file", "model", "dataloader", "optimizer", "step", "ema")


@dataclass(frozen=True, slots=True)
class Config:
    """What the project file sets; `target` maps a role ("model", "dataloader", …, or "file") to a name."""

    path: Path | None = None
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    target: dict[str, str] = field(default_factory=dict)


def find_config(start: Path) -> Config:
    """The configuration of the nearest pyproject.toml at or above a folder; an empty one if there is none.

    Raises ConfigError that names file and key.
    """
    for folder in (start, *start.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            return read_config(path)
    return Config()


def read_config(path: Path) -> Config:
    """`[tool.perfaudit]` of one file. Raises ConfigError that names file and key."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    for name in ("tool", "perfaudit"):
        table = table.get(name, {})
        if not isinstance(table, dict):
            raise ConfigError(f"{path}: {name!r} must be a table, it is {table!r}")
    for key in table:
        if key not in _KEYS:
            raise ConfigError(f"{path}: [tool.perfaudit] has no key {key!r} (it has: {', '.join(sorted(_KEYS))})")
    lists = {}
    for key in ("select", "ignore", "exclude"):
        value = table.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise ConfigError(f"{path}: [tool.perfaudit] {key} must be a list of texts, it is {value!r}")
        lists[key] = tuple(value)
    for pattern in lists["exclude"]:
        if not is_pattern(pattern):
            raise ConfigError(f"{path}: [tool.perfaudit] exclude: {pattern!r} is no pattern of .gitignore")
    target = table.get("target", {})
    if not isinstance(target, dict):
        raise ConfigError(f"{path}: [tool.perfaudit.target] must be a table, it is {target!r}")
    for key, name in target.items():
        if key not in TARGET_KEYS or not isinstance(name, str):
            raise ConfigError(
                f"{path}: [tool.perfaudit.target] {key} = {name!r}: keys are {', '.join(TARGET_KEYS)}, values texts"
            )
    return Config(path, lists["select"], lists["ignore"], lists["exclude"], dict(target))


def is_pattern(text: str) -> bool:
    """Whether a text is a pattern of `.gitignore`; a lone "!" is none."""
    from pathspec import GitIgnoreSpec

    try:
        GitIgnoreSpec.from_lines([text])
    except ValueError:
        return False
    return True


def selected(
    rules: dict[str, Rule], select: Iterable[str] = (), ignore: Iterable[str] = (), config: Config | None = None
) -> frozenset[str]:
    """Ids of the rules that are on.

    Those that `select` names, else those that the configuration selects, else all; less what either of them ignores.
    A name is an id ("PA201"), the beginning of ids ("PA2") or a rule's name ("conv-bias-before-norm").
    Raises ConfigError for a name that matches nothing, and when no rule is left.
    """
    config = config or Config()
    where = f"{config.path}: [tool.perfaudit]"
    chosen = _matching(rules, select, "--select") or _matching(rules, config.select, f"{where} select")
    ignored = _matching(rules, ignore, "--ignore") | _matching(rules, config.ignore, f"{where} ignore")
    if not (left := (chosen or frozenset(rules)) - ignored):
        raise ConfigError(
            "no rule is left: everything that is selected is ignored too (see --select, --ignore, pyproject.toml)"
        )
    return left


def _matching(rules: dict[str, Rule], names: Iterable[str], where: str) -> frozenset[str]:
    found: set[str] = set()
    for name in names:
        hits = {rule.id for rule in rules.values() if rule.id.startswith(name.upper()) or rule.name == name.lower()}
        if not hits or not name:
            raise ConfigError(f"{where}: no rule is called {name!r}; `perfaudit rules` lists them")
        found |= hits
    return frozenset(found)


def suppressions(text: str) -> dict[int, frozenset[str]]:
    """Rules that comments silence, by line; an empty set silences every rule on that line.

    `# perfaudit: ignore[PA101,PA102] reason`, or `# perfaudit: ignore` for all. Only real comments count.
    """
    if "perfaudit:" not in text:
        return {}
    found: dict[int, frozenset[str]] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT and (match := _COMMENT.search(token.string)):
                names = match["rules"] or ""
                found[token.start[0]] = frozenset(part.strip().upper() for part in names.split(",") if part.strip())
    except (tokenize.TokenError, SyntaxError):  # what was read so far counts; the file parsed, so this is a rare layout
        pass
    return found


def is_suppressed(finding: Finding, by_line: dict[int, frozenset[str]], lines: Iterable[int]) -> bool:
    """Whether a comment on one of these lines silences the finding."""
    comments = [by_line[line] for line in lines if line in by_line]
    return any(not names or finding.rule in names or finding.name.upper() in names for names in comments)
