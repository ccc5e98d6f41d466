"""Rule files: identity, reason, sources and examples of each rule, read from `rules/*.toml` and validated."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from perfaudit.errors import RuleFileError
from perfaudit.findings import CHANGES, SEVERITIES, Severity

FixKind = Literal["none", "safe", "unsafe", "manual"]
AREAS = ("input", "model", "backend", "optimizer", "debugging", "host", "distributed", "evaluation", "environment")

_REQUIRED = {"id", "name", "title", "area", "severity", "fix", "why", "sources", "example"}
_OPTIONAL = {"changes", "settled_by", "saving"}
_EXAMPLE_KEYS = {"bad", "good", "lines", "fixed", "missed"}


@dataclass(frozen=True, slots=True)
class Example:
    """One piece of code of a rule file.

    `lines` are where the rule reports, empty for code that must stay silent or is a known miss. `fixed` is the text
    after every fix of this rule is applied, None where the rule offers none.
    """

    text: str
    lines: tuple[int, ...] = ()
    fixed: str | None = None
    missed: bool = False

    @property
    def is_bad(self) -> bool:
        return bool(self.lines) or self.missed


@dataclass(frozen=True, slots=True)
class DocumentedSaving:
    """The range a cited source gives, as fractions of a training step."""

    low: float
    high: float
    source: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What a rule looks for and why; detection is Python, everything else is this."""

    id: str
    name: str
    title: str
    area: str
    severity: Severity
    fix: FixKind
    changes: tuple[str, ...]
    why: str
    sources: tuple[str, ...]
    settled_by: str
    saving: DocumentedSaving | None
    examples: tuple[Example, ...]
    path: str


def rules_folder() -> Path:
    """Where the rule files lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    shipped = package / "rule_files"
    return shipped if shipped.is_dir() else package.parent / "rules"


@functools.cache
def all_rules() -> dict[str, Rule]:
    """Every rule by id, in order of id. Raises RuleFileError."""
    return read_folder(rules_folder())


def read_folder(folder: Path) -> dict[str, Rule]:
    """The rules of one folder by id. Raises RuleFileError for an unreadable file or an id used twice."""
    rules: dict[str, Rule] = {}
    for path in sorted(folder.glob("*.toml")):
        rule = read_rule(path)
        if rule.id in rules:
            raise RuleFileError(f"{path.name}: id {rule.id!r} is used by {Path(rules[rule.id].path).name} already")
        rules[rule.id] = rule
    if not rules:
        raise RuleFileError(f"no rule files in {folder}: the installation is incomplete, install perfaudit again")
    return rules


def read_rule(path: Path) -> Rule:
    """One rule file. Raises RuleFileError that names the file and the key."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise RuleFileError(f"{path.name}: {error}") from error

    def fail(key: str, problem: str) -> RuleFileError:
        return RuleFileError(f"{path.name}: key {key!r}: {problem}")

    for key in sorted(_REQUIRED - data.keys()):
        raise fail(key, "missing")
    for key in sorted(data.keys() - _REQUIRED - _OPTIONAL):
        raise fail(key, "unknown")
    for key in ("id", "name", "title", "why"):
        if not isinstance(data[key], str) or not data[key].strip():
            raise fail(key, "must be a text that is not empty")
    if path.stem != f"{data['id']}-{data['name']}":
        raise fail("name", f"the file must be called {data['id']}-{data['name']}.toml")
    _one_of(data, "severity", SEVERITIES, fail)
    _one_of(data, "area", AREAS, fail)
    _one_of(data, "fix", ("none", "safe", "unsafe", "manual"), fail)
    changes = _texts(data, "changes", fail)
    for change in changes:
        if change not in CHANGES:
            raise fail("changes", f"{change!r} is none of {', '.join(CHANGES)}")
    if (data["fix"] == "unsafe") != bool(changes):
        raise fail("changes", "an unsafe fix names what it changes, any other fix names nothing")
    sources = _texts(data, "sources", fail)
    if not sources:
        raise fail("sources", "at least one")
    return Rule(
        id=data["id"],
        name=data["name"],
        title=data["title"],
        area=data["area"],
        severity=cast(Severity, data["severity"]),
        fix=cast(FixKind, data["fix"]),
        changes=changes,
        why=" ".join(data["why"].split()),
        sources=sources,
        settled_by=str(data.get("settled_by", "")),
        saving=_saving(data, fail),
        examples=_examples(data, fail),
        path=str(path),
    )


def _one_of(data: dict[str, Any], key: str, allowed: tuple[str, ...], fail: Any) -> None:  # Any: raw TOML, a closure
    if data[key] not in allowed:
        raise fail(key, f"{data[key]!r} is none of {', '.join(allowed)}")


def _texts(data: dict[str, Any], key: str, fail: Any) -> tuple[str, ...]:  # Any: raw TOML, a closure
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise fail(key, "must be a list of texts")
    return tuple(value)


def _saving(data: dict[str, Any], fail: Any) -> DocumentedSaving | None:  # Any: raw TOML, a closure
    saving = data.get("saving")
    if saving is None:
        return None
    if not isinstance(saving, dict) or set(saving) != {"low", "high", "source"}:
        raise fail("saving", "must hold low, high and source")
    low, high = saving["low"], saving["high"]
    if not (isinstance(low, float) and isinstance(high, float) and 0 <= low <= high < 1):
        raise fail("saving", "low and high are fractions of the step, 0 <= low <= high < 1")
    return DocumentedSaving(low, high, str(saving["source"]))


def _examples(data: dict[str, Any], fail: Any) -> tuple[Example, ...]:  # Any: raw TOML, a closure
    examples = []
    for number, entry in enumerate(data["example"], start=1):
        key = f"example {number}"
        if unknown := sorted(set(entry) - _EXAMPLE_KEYS):
            raise fail(key, f"unknown key {unknown[0]!r}")
        if ("bad" in entry) == ("good" in entry):
            raise fail(key, "has either `bad` or `good`")
        missed = bool(entry.get("missed", False))
        lines = tuple(entry.get("lines", ()))
        if ("bad" in entry and not missed) != bool(lines):
            raise fail(key, "`lines` says where a `bad` example is reported, and stands nowhere else")
        examples.append(Example(entry.get("bad", entry.get("good")), lines, entry.get("fixed"), missed))
    bad = sum(bool(example.lines) for example in examples)
    good = sum(not example.is_bad for example in examples)
    if good < bad or not bad:
        raise fail("example", f"{bad} bad and {good} good: at least one bad, and at least as many good")
    return tuple(examples)
