"""The checks and how they are run: one index of the tree per file serves all of them."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from perfaudit.findings import Edit, Finding, Fix, Safety, Saving
from perfaudit.rules import Rule
from perfaudit.static import edit
from perfaudit.static.source import Source


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a check offers to do. Empty `safety` and `changes` mean: as the rule file says.

    Without edits it is advice: the finding's fix is manual, whatever the rule file says.
    """

    title: str
    edits: tuple[Edit, ...] | None = ()
    safety: Safety | None = None
    changes: tuple[str, ...] | None = None


class Seen(NamedTuple):
    """What a check yields: where, what in the user's own names, what to do, and further places of the same thing."""

    node: ast.AST
    message: str
    fix: Proposal | None = None
    places: tuple[ast.AST, ...] = ()
    hot: bool = False  # runs on every step; ranks higher than set-up code


CheckFunction = Callable[[Source, Any], Iterable[Seen]]  # Any: each check takes the node type it registered for


@dataclass(frozen=True, slots=True)
class Check:
    """A function and the nodes it wants to see: calls of these names, or nodes of these types."""

    rule: str
    function: CheckFunction
    calls: tuple[str, ...]
    kinds: tuple[type[ast.AST], ...]


_CHECKS: list[Check] = []


def check(rule: str, *kinds: type[ast.AST], call: str | Iterable[str] = ()) -> Callable[[CheckFunction], CheckFunction]:
    """Register a check for node types, or for calls of documented dotted names ("torch.utils.data.DataLoader").

    A name that begins with "." matches every method call of that name (".item").
    """

    def register(function: CheckFunction) -> CheckFunction:
        names = (call,) if isinstance(call, str) else tuple(call)
        _CHECKS.append(Check(rule, function, names, kinds))
        return function

    return register


def all_checks() -> tuple[Check, ...]:
    """Every check of `perfaudit.static.checks`, imported on first use."""
    if not _CHECKS:
        from perfaudit.static import checks

        for module in pkgutil.iter_modules(checks.__path__):
            importlib.import_module(f"{checks.__name__}.{module.name}")
    return tuple(_CHECKS)


def run_checks(source: Source, rules: dict[str, Rule], selected: frozenset[str] | None = None) -> list[Finding]:
    """Findings of all selected rules in one file, in order of place. `selected` None means every rule."""
    found: list[Finding] = []
    for item in all_checks():
        if item.rule not in (rules if selected is None else selected):
            continue
        for node in _wanted(source, item):
            found += [_finding(source, rules[item.rule], Seen(*seen)) for seen in item.function(source, node)]
    found.sort(key=lambda f: (f.location.line, f.location.column, f.rule) if f.location else (0, 0, f.rule))
    return _without_doubles(found)


def _wanted(source: Source, item: Check) -> Iterator[ast.AST]:
    if item.kinds:
        yield from source.nodes(*item.kinds)
    for name in item.calls:
        yield from source.calls(name)


def _finding(source: Source, rule: Rule, seen: Seen) -> Finding:
    saving = None
    if rule.saving is not None:
        saving = Saving("documented", rule.saving.low, rule.saving.high, source=rule.saving.source)
    location = source.location(seen.node)
    return Finding(
        rule=rule.id,
        name=rule.name,
        severity=rule.severity,
        message=seen.message,
        location=location,
        saving=saving,
        fix=_fix(source, rule, seen.fix),
        snippet=source.lines[location.line - 1].strip(),
        hot=seen.hot,
        places=tuple(source.location(place) for place in seen.places),
    )


def _fix(source: Source, rule: Rule, proposal: Proposal | None) -> Fix | None:
    if proposal is None:
        return None
    if not proposal.edits:
        return Fix(proposal.title, "manual")
    safety = proposal.safety or ("manual" if rule.fix == "none" else rule.fix)
    changes = proposal.changes if proposal.changes is not None else (rule.changes if safety == "unsafe" else ())
    after = edit.apply(source.text, proposal.edits)
    return Fix(proposal.title, safety, changes, tuple(proposal.edits), edit.diff(source.path, source.text, after))


def _without_doubles(found: list[Finding]) -> list[Finding]:
    seen, kept = set(), []
    for finding in found:
        key = (finding.rule, finding.location)
        if key not in seen:
            seen.add(key)
            kept.append(finding)
    return kept
