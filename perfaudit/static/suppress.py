"""Comments that silence findings: on a line, or for a whole file; and which of them silence nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from perfaudit.expressions import regex
from perfaudit.findings import Finding, Location
from perfaudit.records import NamedTuple
from perfaudit.report import UnusedSuppression
from perfaudit.rules import Rule

OURS = regex(r"#\s*perfaudit:\s*(?P<kind>ignore-file|ignore)(?:\s*\[(?P<rules>[^\]]*)\]|(?![\w-]|\s*\[))")
# A noqa comment without codes was written for another linter, usually because a line is long, and silences nothing here.
_ENDS_OF_NOQA = ("qa:", "QA:", "Qa:", "qA:")
_NOQA = regex(r"#\s*noqa:\s*(?P<rules>[A-Z]+[0-9]+(?:[\s,]+[A-Z]+[0-9]+)*)", re.IGNORECASE)


class Suppression(NamedTuple):
    """One comment. `rules` are ids, beginnings of ids or names in capitals; empty means every rule."""

    line: int
    rules: frozenset[str]
    whole_file: bool = False
    text: str = ""
    foreign: bool = False  # a noqa comment: its other codes are another linter's business

    def silences(self, finding: Finding) -> bool:
        return not self.rules or any(_names(rule, finding) for rule in self.rules)


def _names(rule: str, finding: Finding) -> bool:
    return rule == finding.name.upper() or (finding.rule.startswith(rule) and bool(rule))


def suppressions(text: str, rules: Iterable[str] = ("PA",)) -> list[Suppression]:
    """The comments of a text that silence something, in order.

    `# perfaudit: ignore[PA101,PA2] reason` (without brackets: all rules), `# noqa: PA101`, and for the whole file
    `# perfaudit: ignore-file[...]`. Only real comments count, and of the noqa ones those that name one of `rules`, which are
    ids or beginnings of ids: telling a comment from a text takes as long as parsing, and other linters' are in many a file.
    """
    if "perfaudit:" not in text and not _names_one_of(rules, text):
        return []
    import io
    import tokenize  # few files have such comments

    found: list[Suppression] = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type != tokenize.COMMENT:
                continue
            if match := OURS.search(token.string):
                names = _split(match["rules"] or "")
                found.append(Suppression(token.start[0], names, match["kind"] == "ignore-file", match.group()))
            elif match := _NOQA.search(token.string):
                found.append(Suppression(token.start[0], _split(match["rules"]), text=match.group(), foreign=True))
    except (tokenize.TokenError, SyntaxError):  # what was read so far counts; the file parsed, so this is a rare layout
        pass
    return found


def _names_one_of(rules: Iterable[str], text: str) -> bool:
    """Whether a noqa comment of the text may name a rule whose id begins with the same letters as one of these."""
    # An expression that ignores case takes fifty times as long, and so do small letters of a text that is not all ASCII.
    if not any(end in text for end in _ENDS_OF_NOQA) or "noqa:" not in text.lower():
        return False
    letters = {re.split(r"\d", rule, maxsplit=1)[0].upper() for rule in rules}
    if not any(letter in text or letter.lower() in text for letter in letters):
        return False
    return (
        re.search(rf"noqa:[^\n]*\b(?:{'|'.join(map(re.escape, sorted(letters)))})\d", text, re.IGNORECASE) is not None
    )


def _split(names: str) -> frozenset[str]:
    return frozenset(part.upper() for part in re.split(r"[\s,]+", names) if part)


def silence(
    findings: Iterable[tuple[Finding, Iterable[int]]],
    comments: list[Suppression],
    path: str,
    rules: Mapping[str, Rule],
    ran: frozenset[str],
) -> tuple[list[Finding], list[UnusedSuppression]]:
    """The findings that no comment silences, and the comments that silence none.

    A finding that would be told as one with a silenced one is silent too: it says the same of the same node. findings: each
    with the lines on which a comment may stand. ran: ids of the rules that looked at the file; a comment for
    one that did not is not called unused, one for a rule that does not exist is.
    """
    kept: list[Finding] = []
    used: set[tuple[int, str]] = set()
    answered: set[tuple[str, Location | None]] = set()  # what is told together with a silenced finding
    for finding, lines in findings:
        at = set(lines)
        hits = [c for c in comments if (c.whole_file or c.line in at) and c.silences(finding)]
        used.update((c.line, rule) for c in hits for rule in c.rules or {""} if not rule or _names(rule, finding))
        if not hits:
            kept.append(finding)
        elif finding.instead is not None:
            answered.update((rule, finding.location) for rule in finding.instead.also)
    kept = [finding for finding in kept if (finding.rule, finding.location) not in answered]
    unused = []
    for comment in comments:
        idle = [name for name in sorted(comment.rules or {""}) if (comment.line, name) not in used]
        idle = [name for name in idle if _is_idle(name, rules, ran, comment.foreign)]
        if idle:
            unknown = tuple(name for name in idle if name and not _rule_ids(name, rules))
            named = tuple(name for name in idle if name)
            unused.append(UnusedSuppression(path, comment.line, named, None, comment.text, unknown))
    return kept, unused


def _is_idle(name: str, rules: Mapping[str, Rule], ran: frozenset[str], foreign: bool) -> bool:
    """Whether a name that silenced nothing may be called unused: all its rules ran, or there are none of that name."""
    meant = _rule_ids(name, rules)
    return meant <= ran if meant else not foreign


def _rule_ids(name: str, rules: Mapping[str, Rule]) -> set[str]:
    """Ids of the rules that a name in a comment means; every rule for no name."""
    return {rule.id for rule in rules.values() if rule.id.startswith(name) or rule.name.upper() == name}
