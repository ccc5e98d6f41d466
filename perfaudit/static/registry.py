"""The checks and how they are run: one index of the tree per file serves all of them."""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from perfaudit.errors import RuleFileError
from perfaudit.findings import SEVERITIES, Edit, Finding, Fix, Location, Safety, Severity
from perfaudit.records import NamedTuple
from perfaudit.rules import Rule, read_folder, rule_heads
from perfaudit.static import old_torch, unified_diff
from perfaudit.static.rule_folder import USER_RULES, RuleFolder
from perfaudit.static.source import Source


class Proposal(NamedTuple):
    """What a check offers to do. Empty `safety` and `changes` mean: as the rule file says.

    Without edits it is advice: the finding's fix is manual, whatever the rule file says.
    """

    title: str
    edits: tuple[Edit, ...] | None = ()
    safety: Safety | None = None
    changes: tuple[str, ...] | None = None


class Joined(NamedTuple):
    """What a check yields in place of its own words and fix where another rule reports the same node: one finding for both."""

    rule: str
    message: str
    fix: Proposal | None


class Seen(NamedTuple):
    """What a check yields: where, what in the user's own names, what to do, and further places of the same thing."""

    node: ast.AST
    message: str
    fix: Proposal | None = None
    places: tuple[ast.AST, ...] = ()
    hot: bool = False  # runs on every step; ranks higher than set-up code
    severity: Severity | None = None  # where it costs more or less than most of the rule's findings; see `hint_if`
    joined: Joined | None = None


def hint_if(hardly_worth_it: bool) -> Severity | None:
    """The severity of what is true, but may be hardly worth a change where it stands: such is reported on request only."""
    return "hint" if hardly_worth_it else None


CheckFunction = Callable[[Source, Any], Iterable[Seen]]  # Any: each check takes the node type it registered for


class Check(NamedTuple):
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
    """Every check of `perfaudit.static.checks`, imported by now, and those of the user's own that were loaded."""
    for rule in rule_heads():
        _load_ours(rule)
    return tuple(_CHECKS)


@functools.cache
def _load_ours(rule: str) -> None:
    """Import the check of one of our rules: a file named as the rule, or a folder of that name.

    Of a folder, `__init__.py` is the check; what lies beside it only this check uses, or this and one other, whose import brings
    this check along. A rule that is found in traces has none here.
    """
    name = f"perfaudit.static.checks.{rule_heads().name_of(rule).replace('-', '_')}"
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise


def _checks_for(source: Source, rules: Mapping[str, Rule], selected: frozenset[str] | None) -> list[Check]:
    """The checks of selected rules that may have something to say of a text; none of the others of ours is imported."""
    ours = rule_heads()
    if rules is ours:
        words = _words_of_ours(selected)
    else:
        words = tuple((rule, rules[rule].words) for rule in rules if selected is None or rule in selected)
    here = {rule for rule, each in words if mentions_all(source, each)}
    for rule in here:
        if rule in ours:
            _load_ours(rule)
    return sorted((item for item in _CHECKS if item.rule in here), key=lambda item: item.rule)


@functools.lru_cache(maxsize=4)
def _words_of_ours(selected: frozenset[str] | None) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """The words of each selected rule, by lines of their files: a scan asks for them with every file."""
    heads = rule_heads()
    chosen = (rule for rule in heads if selected is None or rule in selected)
    return tuple((rule, words) for rule in chosen if (words := heads.words_of(rule)) is not None)


def mentions_all(source: Source, words: tuple[str, ...]) -> bool:
    """Whether a text mentions each of the words, of "a|b" one of the two."""
    for word in words:  # noqa: SIM110  # asked of every file for every rule, and a generator takes as long as an answer
        if not (source.mentions(word) if "|" not in word else any(map(source.mentions, _alternatives(word)))):
            return False
    return True


@functools.cache
def _alternatives(word: str) -> tuple[str, ...]:
    return tuple(word.split("|"))


class Catalogue(NamedTuple):
    """The rules that a scan knows, and a digest of the user's own rule files."""

    rules: Mapping[str, Rule]
    digest: str = ""


@functools.cache
def catalogue(folders: tuple[RuleFolder, ...] = ()) -> Catalogue:
    """Our rules and those of the user's folders, whose checks are imported: this runs the Python files in them.

    A user's rule is a TOML file and, beside it, a Python file or folder named as the rule with underscores, as ours are.
    Raises RuleFileError for a rule file that is wrong, an id of ours, or a missing or broken Python file.
    """
    if not folders:
        return Catalogue(rule_heads())
    rules = dict(rule_heads())
    for folder in folders:
        for rule in read_folder(folder.path, files=folder.files).values():
            if rule.id in rules:
                raise RuleFileError(f"{rule.path}: id {rule.id!r} is taken by {Path(rules[rule.id].path).name}")
            _load_check(rule, folder)
            rules[rule.id] = rule
    return Catalogue(rules, " ".join(folder.digest for folder in folders))


def _load_check(rule: Rule, folder: RuleFolder) -> None:
    from perfaudit.static.rule_importer import import_rule  # most scans have no rules of the user's own

    stem = rule.name.replace("-", "_")
    name = next((name for name in (f"{stem}/__init__.py", f"{stem}.py") if name in folder.files), f"{stem}.py")
    path = folder.path / name
    if name not in folder.files:
        raise RuleFileError(f"{rule.path}: its check is missing: {path}")
    try:
        module = import_rule(folder, stem).__name__
    except Exception as error:  # whatever the user's code raises
        raise RuleFileError(f"{path}: cannot be imported: {type(error).__name__}: {error}") from error
    mine = [item for item in _CHECKS if item.rule == rule.id]
    if not (now := [item for item in mine if item.function.__module__.startswith(module.removesuffix(stem))]):
        raise RuleFileError(f"{path}: it registers no check for {rule.id} (`@check({rule.id!r}, ...)`)")
    _CHECKS[:] = [item for item in _CHECKS if item not in mine or item in now]  # not those of what the file was before


# Of one file. Each diff shows its line twice, so that the report of a line with many findings grows with its square: ten
# files of 1.5 MB took 10 GB. A line of 40 characters with a finding has a diff of 300.
MAX_DIFFS = 1_000_000  # characters
DIFFS_PER_TEXT = 20  # characters for each of the file
MAX_SNIPPET = 1_000  # characters of a line that are shown


class CheckFailed(Exception):
    """A check raised what it should not; the message is for the report of the file."""

    def __init__(self, rule: str, line: int, error: Exception, ours: bool = True) -> None:
        detail = f"{type(error).__name__}: {error}".partition("\n")[0]
        whose = "perfaudit" if ours else "that rule"
        super().__init__(f"{rule} failed at line {line} ({detail}): a bug of {whose}; --ignore {rule} goes around it")


def run_checks(source: Source, rules: Mapping[str, Rule], selected: frozenset[str] | None = None) -> list[Finding]:
    """Findings of all selected rules in one file, in order of place. `selected` None means every rule.

    Raises CheckFailed for a check that raises, RecursionError for a file nested too deeply.
    """
    findings, failures = run_what_works(source, rules, selected)
    if failures:
        raise failures[0]
    return findings


def run_what_works(
    source: Source, rules: Mapping[str, Rule], selected: frozenset[str] | None = None
) -> tuple[list[Finding], list[CheckFailed]]:
    """As `run_checks`, with the checks that failed beside the findings of the others."""
    found: list[Finding] = []
    failures: list[CheckFailed] = []
    room = MAX_DIFFS + DIFFS_PER_TEXT * len(source.text)
    for item in _checks_for(source, rules, selected):
        ours = not item.function.__module__.startswith(USER_RULES)
        for node in _nodes_to_check(source, item):
            try:
                here: list[Finding] = []
                for seen in item.function(source, node) if ours else _seen_by_theirs(item, source, node):
                    seen = Seen(*seen)
                    finding = finding_of(source, rules[item.rule], seen)
                    if ours and (doubt := _why_hint(source, finding, rules[item.rule].area, seen)):
                        finding = _as_hint(finding, doubt)
                    room -= sum(len(f.fix.diff) for f in (finding, finding.instead) if f is not None and f.fix)
                    here.append(finding if room >= 0 else _without_patch(finding))
                found += here
            except (RecursionError, MemoryError):
                raise
            except Exception as error:  # a bug of that check: it is named, and the other rules are run
                failure = CheckFailed(item.rule, getattr(node, "lineno", 0), error, ours)
                failure.__cause__ = error
                failures.append(failure)
                break
    found.sort(key=lambda f: (f.location.line, f.location.column, f.rule) if f.location else (0, 0, f.rule))
    return _without_doubles(found), failures


def _seen_by_theirs(item: Check, source: Source, node: ast.AST) -> list[Seen]:
    """What a rule of the user's sees, which is watched for what it imports."""
    from perfaudit.static.rule_importer import rule_is_running

    with rule_is_running():
        return [Seen(*seen) for seen in item.function(source, node)]


def _why_hint(source: Source, finding: Finding, area: str, seen: Seen) -> str:
    """Why a finding hardly matters in this program, whatever the rule; "" where it may, or is a hint already."""
    if finding.severity == "hint" or source.neighbours is None:
        return ""
    from perfaudit.static.unused_code import unused_around  # only where there is something to say

    if area != "evaluation" and seen.severity != "info" and source.neighbours.answer("only evaluates"):
        return "this file evaluates, and trains nothing"
    if name := unused_around(source, seen.node):
        return f"nothing in this project runs `{name}`"
    return ""


def _as_hint(finding: Finding, doubt: str) -> Finding:
    if finding.instead is not None:
        finding = finding.with_(instead=_as_hint(finding.instead, doubt))
    return finding.with_(severity="hint", note="; ".join(filter(None, [finding.note, doubt])))


def _without_patch(finding: Finding) -> Finding:
    fix = finding.fix
    if finding.instead is not None:
        finding = finding.with_(instead=_without_patch(finding.instead))
    if fix is None or not fix.edits:
        return finding
    note = "; ".join(
        filter(None, [finding.note, "the patches of this file would be far longer than it is: change it by hand"])
    )
    return finding.with_(fix=Fix(fix.title, "manual"), note=note)


def _nodes_to_check(source: Source, item: Check) -> Iterator[ast.AST]:
    if item.kinds:
        yield from source.nodes(*item.kinds)
    for name in item.calls:
        yield from source.calls(name)


def _severity(rule: Rule, seen: Seen) -> Severity:
    """That of the rule, or the check's own; what a preview rule finds is a hint in any case."""
    return rule.reported_as if seen.severity is None or rule.reported_as == "hint" else seen.severity


def finding_of(source: Source, rule: Rule, seen: Seen) -> Finding:
    location = source.location(seen.node)
    found = Finding(
        rule=rule.id,
        name=rule.name,
        severity=_severity(rule, seen),
        message=seen.message,
        location=location,
        saving=rule.known_saving,
        fix=_fix(source, rule, seen.fix),
        snippet=_cut(source.lines[location.line - 1].strip()),
        hot=seen.hot,
        places=tuple(source.location(place) for place in seen.places),
    )
    if (joined := seen.joined) is None:
        return found
    both = found.with_(message=joined.message, fix=_fix(source, rule, joined.fix), also=(joined.rule,))
    return found.with_(instead=both)


def join_findings(findings: list[Finding]) -> list[Finding]:
    """The findings, one for two of them where the check of the one has said what it is together with the other.

    A hint is joined to hints only: what is hardly worth a change is no part of what is, nor of its patch.
    """
    there = {(finding.rule, finding.location): finding for finding in findings}
    gone: set[tuple[str, Location | None]] = set()
    kept = []
    for finding in findings:
        if (both := finding.instead) is not None:
            finding = finding.with_(instead=None)
            others = [(rule, finding.location) for rule in both.also]
            parts = (finding, *(there[other] for other in others if other in there))
            are_hints = {part.severity == "hint" for part in parts}
            if len(parts) > len(others) and len(are_hints) == 1:
                gone |= set(others)
                prints = tuple(part.fingerprint for part in parts)
                known_as = {"fingerprint": finding.fingerprint, "text_digest": finding.text_digest, "merged": prints}
                worst = min((part.severity for part in parts), key=SEVERITIES.index)
                finding = both.with_(parts=parts, severity=worst, **known_as)
        kept.append(finding)
    return [finding for finding in kept if (finding.rule, finding.location) not in gone]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_SNIPPET else line[: MAX_SNIPPET - 1] + "…"


def _fix(source: Source, rule: Rule, proposal: Proposal | None) -> Fix | None:
    if proposal is None:
        return None
    if not proposal.edits or _is_too_new(source, proposal.edits):
        return Fix(proposal.title, "manual")
    safety = proposal.safety or ("manual" if rule.fix == "none" else rule.fix)
    changes = proposal.changes if proposal.changes is not None else (rule.changes if safety == "unsafe" else ())
    edits = tuple(proposal.edits)
    return Fix(proposal.title, safety, changes, edits, unified_diff.diff_of(source.path, source.text, edits))


def _is_too_new(source: Source, edits: tuple[Edit, ...]) -> bool:
    """Whether a patch writes what the torch of this program does not have."""
    return any(old_torch.NEW.search(e.text) for e in edits) and old_torch.needs_old_torch(source)


def _without_doubles(found: list[Finding]) -> list[Finding]:
    seen, kept = set(), []
    for finding in found:
        key = (finding.rule, finding.location)
        if key not in seen:
            seen.add(key)
            kept.append(finding)
    return kept
