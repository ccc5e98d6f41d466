"""Rule files: identity, reason, sources and examples of each rule, read from `rules/*.toml` and validated."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from perfaudit.errors import RuleFileError, refusal
from perfaudit.expressions import regex
from perfaudit.findings import CHANGES, SEVERITIES, Saving, Severity
from perfaudit.reading import MAX_SETTINGS_BYTES, first_bytes, read_bytes, toml_of
from perfaudit.records import record

FixKind = Literal["none", "safe", "unsafe", "manual"]
Tier = Literal["stable", "preview"]
FoundIn = Literal["code", "trace"]
AREAS = ("input", "model", "backend", "optimizer", "debugging", "host", "distributed", "evaluation", "environment")

_REQUIRED = {"id", "name", "title", "area", "severity", "fix", "why", "sources", "example"}
_OPTIONAL = {
    "accelerator_only",
    "found_in",
    "benchmarked",
    "changes",
    "read_at_start",
    "reading",
    "saving",
    "several_processes",
    "tier",
    "words",
}
_SUFFIX = ".toml"
_RULE_FILE = regex(r"[^/]*\.toml")
_EXAMPLE_KEYS = {"bad", "good", "lines", "hints", "fixed", "missed"}
_DOCUMENTED = {"low", "high", "source", "says"}  # of a saving
_BENCHMARKED = {"low", "high", "command", "device", "versions"}
_WORDS = b"\nwords = ["
_HEAD_BYTES = 1000  # of a rule file; its words, and where it is found, stand on its first lines, which a test holds
_IN_TRACE = b'\nfound_in = "trace"\n'
_LABELS = ("right", "arguable", "wrong")  # of a reading
_RIGHT = 0.9  # of the findings read, without those that are mended
_FEW = 10  # findings read, of which two that are not right say little
_OF_FEW = 0.5  # of so few, the share that must be right: fewer say that the rule is more often wrong than not
# Stable though fewer were right, for a scan without options is to find what they look for; docs/scan.md tells which and why.
STABLE_BY_DECISION = frozenset({"PA104", "PA105", "PA203", "PA304"})


@record(frozen=True, slots=True)
class Example:
    """One piece of code of a rule file.

    `lines` are where the rule reports, empty for code that must stay silent or is a known miss; `hints` those of them where
    the finding is a hint. `fixed` is the text after every fix of this rule is applied, None where the rule offers none.
    """

    text: str
    lines: tuple[int, ...] = ()
    fixed: str | None = None
    missed: bool = False
    hints: tuple[int, ...] = ()

    @property
    def is_bad(self) -> bool:
        return bool(self.lines) or self.missed


@record(frozen=True, slots=True)
class Reading:
    """What somebody who read the rule's findings on code that it was not tuned on said of them, and where that is written.

    `mended` are those of the arguable and wrong ones that are silent, a hint or worded otherwise since. `together` is of how many
    rules the figures are where the page tells them of several at once; they say little of each. `where` names pages with the
    heading, newest first: those readings that it takes to have ten findings, all where there are fewer.
    """

    read: int
    right: int
    arguable: int
    wrong: int
    mended: int
    where: str
    together: int = 1

    @property
    def is_mostly_right(self) -> bool:
        """Whether a rule with this reading may be `stable`, as docs/scan.md has it; True where nothing is told of it alone."""
        counted = self.read - self.mended
        return self.together > 1 or not counted or self.right / counted >= (_RIGHT if self.read >= _FEW else _OF_FEW)


@record(frozen=True, slots=True)
class Rule:
    """What a rule looks for and why; detection is Python, everything else is this.

    `saving` is what is known of it, most often what somebody else documents; `benchmarked` is what our own benchmark of the
    rule printed, and its findings say that one where both are there. `examples` are empty where only the head of the file was
    read; a rule that is found in traces has none. `read_at_start`: what its patch changes
    is read once, as a process starts. `reading` is None where none of its findings has been read on code
    that the rule was not tuned on. `words` are those without which a text gives it nothing to say: of "a|b" one is enough.
    """

    id: str
    name: str
    title: str
    area: str
    severity: Severity
    fix: FixKind
    changes: tuple[str, ...]
    why: str
    sources: tuple[str, ...]
    saving: Saving | None
    examples: tuple[Example, ...]
    path: str
    accelerator_only: bool = False
    several_processes: bool = False
    read_at_start: bool = False
    tier: Tier = "stable"
    reading: Reading | None = None
    benchmarked: Saving | None = None
    found_in: FoundIn = "code"
    words: tuple[str, ...] = ()

    @property
    def reported_as(self) -> Severity:
        """The severity of its findings: those of a rule that is not known to be right are hints."""
        return "hint" if self.tier == "preview" else self.severity

    @property
    def known_saving(self) -> Saving | None:
        """What its findings say of the saving: a command that can be repeated before a text that can be read."""
        return self.benchmarked or self.saving

    @property
    def has_patch(self) -> bool:
        """Whether its findings can come with a patch."""
        return self.fix in ("safe", "unsafe")

    @property
    def is_priced(self) -> bool:
        """Whether `--measure` can tell what its patch saves, in one process while it runs."""
        return self.has_patch and not self.several_processes and not self.read_at_start


def rules_folder() -> Path:
    """Where the rule files lie: inside the installed package, or beside it in a checkout."""
    package = Path(__file__).parent
    shipped = package / "rule_files"
    return shipped if shipped.is_dir() else package.parent / "rules"


@functools.cache
def all_rules() -> dict[str, Rule]:
    """Every rule by id, in order of id. Raises RuleFileError."""
    return read_folder(rules_folder())


class RuleHeads(Mapping[str, Rule]):
    """Rules by id without their examples. A file is read when its rule is asked for: a scan asks for those that report."""

    def __init__(self, folder: Path) -> None:
        names = os.listdir(folder) if folder.is_dir() else ()  # noqa: PTH208  # names only, without a path of each
        files = sorted(name for name in names if name.endswith(_SUFFIX))
        self._folder = folder
        self._files = {name.partition("-")[0].removesuffix(_SUFFIX): name for name in files}
        self._read: dict[str, Rule] = {}
        if not self._files:
            raise _no_rules(folder)

    def name_of(self, id: str) -> str:
        """The name of a rule, as its file is called; nothing is read."""
        return self._files[id].removesuffix(_SUFFIX).partition("-")[2]

    def words_of(self, id: str) -> tuple[str, ...] | None:
        """`Rule.words` by the one line that says them, read anew; None for a rule that is found in traces, and has no check."""
        head = first_bytes(
            f"{self._folder}{os.sep}{self._files[id]}", _HEAD_BYTES
        )  # a path of its own takes as long again
        if _IN_TRACE in head:
            return None
        line = head.partition(_WORDS)[2].partition(b"]\n")[0]
        return tuple(line.decode().split('"')[1::2])

    def __getitem__(self, id: str) -> Rule:
        if id not in self._read:
            self._read[id] = read_rule(self._folder / self._files[id], examples=False)
        return self._read[id]

    def __contains__(self, id: object) -> bool:  # a mapping's own would read the file
        return id in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


@functools.cache
def rule_heads() -> RuleHeads:
    """Every rule by id without its examples, which are most of a file and which a scan does not need."""
    return RuleHeads(rules_folder())


def read_folder(folder: Path, examples: bool = True, files: Mapping[str, bytes] | None = None) -> dict[str, Rule]:
    """The rules of one folder by id. Raises RuleFileError for an unreadable file or an id used twice.

    files: what its files hold, by name, where they were read before.
    """
    rules: dict[str, Rule] = {}
    paths = folder.glob("*.toml") if files is None else (folder / name for name in files if _RULE_FILE.fullmatch(name))
    for path in sorted(paths):
        rule = read_rule(path, examples, None if files is None else files[path.name])
        if rule.id in rules:
            raise RuleFileError(f"{path.name}: id {rule.id!r} is used by {Path(rules[rule.id].path).name} already")
        rules[rule.id] = rule
    if not rules:
        raise _no_rules(folder)
    return rules


def _no_rules(folder: Path) -> RuleFileError:
    what = "the installation is incomplete, install perfaudit again"
    hint = what if folder == rules_folder() else "a rule is a TOML file and a Python file, see docs/scan.md"
    return RuleFileError(f"no rule files in {folder}: {hint}")


def read_rule(path: Path, examples: bool = True, content: bytes | None = None) -> Rule:
    """One rule file; without `examples` only what stands before the first of them. Raises RuleFileError that names the
    file and the key.

    content: what the file holds, where it was read before.
    """
    try:
        raw = read_bytes(path, MAX_SETTINGS_BYTES) if content is None else content
        text = raw.decode().replace("\r\n", "\n")
        data = toml_of(text if examples else text.partition("\n[[example]]")[0])
    except OSError as error:
        raise RuleFileError(f"{path.name}: cannot be read: {refusal(error)}") from error
    except ValueError as error:
        raise RuleFileError(f"{path.name}: not valid TOML: {error}") from error

    def fail(key: str, problem: str) -> RuleFileError:
        name, _, number = key.partition(" ")
        return RuleFileError(f"{path.name}{line_of(text, name, nth=int(number or 1))}: key {key!r}: {problem}")

    in_trace = data.get("found_in") == "trace"  # its examples are traces, which the tests make
    for key in sorted(_REQUIRED - data.keys() - (set() if examples and not in_trace else {"example"})):
        raise fail(key, "missing")
    for key in sorted(data.keys() - _REQUIRED - _OPTIONAL):
        raise fail(key, "unknown")
    for key in ("id", "name", "title", "why"):
        if not isinstance(data[key], str) or not data[key].strip():
            raise fail(key, "must be a string that is not empty")
    if path.stem != f"{data['id']}-{data['name']}":
        raise fail("name", f"the file must be called {data['id']}-{data['name']}.toml")
    _one_of(data, "severity", SEVERITIES, fail)
    _one_of(data, "area", AREAS, fail)
    if "found_in" in data:
        _one_of(data, "found_in", ("code", "trace"), fail)
    if in_trace and "example" in data:
        raise fail("example", "a rule that is found in traces has no examples of code")
    _one_of(data, "fix", ("none", "safe", "unsafe", "manual"), fail)
    if "tier" in data:  # a rule of the user's own needs none
        _one_of(data, "tier", ("stable", "preview"), fail)
    changes = _texts(data, "changes", fail)
    for change in changes:
        if change not in CHANGES:
            raise fail("changes", f"{change!r} is none of {', '.join(CHANGES)}")
    if (data["fix"] == "unsafe") != bool(changes):
        raise fail("changes", "an unsafe fix names what it changes, any other fix names nothing")
    sources = _texts(data, "sources", fail)
    if not sources:
        raise fail("sources", "at least one")
    for key in ("accelerator_only", "read_at_start", "several_processes"):
        if not isinstance(data.get(key, False), bool):
            raise fail(key, "must be true or false")
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
        accelerator_only=data.get("accelerator_only", False),
        several_processes=data.get("several_processes", False),
        read_at_start=data.get("read_at_start", False),
        tier=cast(Tier, data.get("tier", "stable")),
        reading=_reading(data, fail),
        saving=_saving(data, "saving", (_DOCUMENTED, _BENCHMARKED), fail),
        benchmarked=_saving(data, "benchmarked", (_BENCHMARKED,), fail),
        examples=_examples(data, fail) if examples and not in_trace else (),
        found_in="trace" if in_trace else "code",
        words=_texts(data, "words", fail),
        path=str(path),
    )


def line_of(text: str, key: str, table: str = "", nth: int = 1) -> str:
    """Where a TOML text sets a key or opens its table, as ":12"; "" where that cannot be seen line by line.

    table: only inside tables whose name begins so. nth: of tables that stand several times.
    """
    here = ""
    name = rf"[\"']?{re.escape(key)}[\"']?"
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+([^\[\]]+)\]+\s*(#|$)", line):
            here = header[1].strip()
            nth -= here.startswith(table) and re.search(rf"(^|\.){name}$", here) is not None
            if not nth:
                return f":{number}"
        elif here.startswith(table) and re.match(rf"\s*{name}\s*[.=]", line):
            return f":{number}"
    return ""


def _one_of(data: dict[str, Any], key: str, allowed: tuple[str, ...], fail: Any) -> None:  # Any: raw TOML, a closure
    if data[key] not in allowed:
        raise fail(key, f"{data[key]!r} is none of {', '.join(allowed)}")


def _texts(data: dict[str, Any], key: str, fail: Any) -> tuple[str, ...]:  # Any: raw TOML, a closure
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) and item.strip() for item in value):
        raise fail(key, "must be a list of strings")
    return tuple(value)


def _reading(data: dict[str, Any], fail: Any) -> Reading | None:  # Any: raw TOML, a closure
    reading = data.get("reading")
    if reading is None:
        return None
    keys = {"read", "where", *_LABELS}
    if not isinstance(reading, dict) or not keys <= reading.keys() <= keys | {"mended", "together"}:
        raise fail("reading", f"must hold read, {', '.join(_LABELS)} and where, and may hold mended and together")
    reading = {"mended": 0, **reading}
    where = reading.pop("where")
    if not isinstance(where, str) or not where.strip():
        raise fail("reading", "where must be a string that is not empty")
    if not all(type(number) is int and number >= 0 for number in reading.values()):
        raise fail("reading", "all but where are numbers of findings")
    if not reading["read"] or reading["read"] != sum(reading[label] for label in _LABELS):
        raise fail("reading", f"read is the sum of {', '.join(_LABELS)}, and not 0")
    if reading["mended"] > reading["read"] - reading["right"]:
        raise fail("reading", "only what was arguable or wrong can be mended")
    if reading.get("together") in (0, 1):
        raise fail("reading", "together is a number of rules, at least 2")
    return Reading(**reading, where=where)


def _saving(
    data: dict[str, Any], key: str, allowed: Sequence[set[str]], fail: Any
) -> Saving | None:  # Any: raw TOML, a closure
    """What this key says of the saving: documented by a source that can be opened, or benchmarked by a command that prints it."""
    saving = data.get(key)
    if saving is None:
        return None
    keys = set(saving) if isinstance(saving, dict) else set()
    if keys not in allowed:
        names = {"source": "source and says (documented)", "command": "command, device and versions (benchmarked)"}
        said = [text for name, text in names.items() if any(name in keys for keys in allowed)]
        raise fail(key, f"must hold low and high, and {'either ' if len(said) > 1 else ''}{', or '.join(said)}")
    low, high = saving["low"], saving["high"]
    ours = keys == _BENCHMARKED
    if not (isinstance(low, float) and isinstance(high, float) and (ours or low >= 0) and low <= high < 1):
        raise fail(key, f"low and high are fractions of the step, {'' if ours else '0.0 <= '}low <= high < 1.0")
    for name in sorted(keys - {"low", "high"}):
        if not isinstance(saving[name], str) or not saving[name].strip():
            raise fail(key, f"{name} must be a string that is not empty")
    if ours:
        where = f"{saving['device']}, {saving['versions']}"
        return Saving("benchmarked", low, high, source=saving["command"], conditions=where)
    if not re.fullmatch(r"https?://\S+", saving["source"]):
        raise fail(key, "source must be a link that a reader can open; our own runs have command, device and versions")
    return Saving("documented", low, high, source=saving["source"], conditions=saving["says"])


def _examples(data: dict[str, Any], fail: Any) -> tuple[Example, ...]:  # Any: raw TOML, a closure
    entries = data["example"]
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise fail("example", "must be a list of tables: [[example]]")
    examples = tuple(
        _example(entry, lambda problem, n=number: fail(f"example {n}", problem))
        for number, entry in enumerate(entries, start=1)
    )
    bad = sum(bool(example.lines) for example in examples)
    good = sum(not example.is_bad for example in examples)
    if good < bad or not bad:
        raise fail("example", f"{bad} bad and {good} good: at least one bad, and at least as many good")
    if data["fix"] in ("none", "manual") and any(example.fixed is not None for example in examples):
        raise fail("example", f"`fixed` in a rule whose fix is {data['fix']!r}")
    return examples


def _example(entry: dict[str, Any], fail: Any) -> Example:  # Any: raw TOML, a closure
    if unknown := sorted(entry.keys() - _EXAMPLE_KEYS):
        raise fail(f"unknown key {unknown[0]!r}")
    if ("bad" in entry) == ("good" in entry):
        raise fail("has either `bad` or `good`")
    text, lines, fixed, missed = (entry.get(key) for key in ("bad", "lines", "fixed", "missed"))
    text = entry["good"] if text is None else text
    if not isinstance(text, str) or not (fixed is None or isinstance(fixed, str)):
        raise fail("code is a string")
    if missed not in (None, True) or (missed and "good" in entry):
        raise fail("`missed = true` stands in a `bad` example or nowhere")
    if ("bad" in entry and not missed) != bool(lines):
        raise fail("`lines` says where a `bad` example is reported, and stands nowhere else")
    if fixed is not None and not lines:
        raise fail("`fixed` stands in a `bad` example that is reported")
    count = text.count("\n") + 1
    if not isinstance(lines or [], list) or not all(type(n) is int and 1 <= n <= count for n in lines or ()):
        raise fail(f"`lines` is a list of numbers from 1 to {count}, the lines of the code")
    hints = entry.get("hints", [])
    if not isinstance(hints, list) or not all(type(n) is int and n in (lines or ()) for n in hints):
        raise fail("`hints` is a list of those of its `lines` where the finding is a hint")
    return Example(text, tuple(lines or ()), fixed, bool(missed), tuple(hints))
