"""Words that every format shares: a finding's sentences, savings, fixes, and text that no terminal and no CI obeys."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from perfaudit.expressions import regex
from perfaudit.findings import Finding, Fix, Location, Saving
from perfaudit.records import replace
from perfaudit.render.paint import Paint, plain
from perfaudit.report import Report, UnusedSuppression
from perfaudit.rules import STABLE_BY_DECISION, Rule

if TYPE_CHECKING:  # a plain scan has none of them
    from perfaudit.measurements import Calibration, Comparison

# Control characters, and what no UTF-8 stream and no XML can hold: halves of surrogate pairs, two that are no characters.
# Also what changes the direction of the text behind it, so that code reads as other code (https://trojansource.codes), and
# the ends of lines and paragraphs of Unicode.
_CONTROL = regex(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]|\r(?!\n)"
)
# Where a line of a log is a command: of GitHub behind any white space, of Azure, TeamCity and older runners of GitHub
# anywhere (github.com/actions/runner, ActionCommand.cs).
_LOG_COMMAND = regex(r"^(?P<space>[^\S\n]*)::|##(?=\[|vso\[|teamcity\[)", re.MULTILINE)
# What a figure is of where it is not of all seconds on the wall, by clock.
CLOCKS = {"cpu": "processor time", "own": "waiting for cores left out"}
_RUN = ".jsonl"  # how the file of a run ends
_COLOUR = regex("(\x1b\\[[0-7;]{0,5}m)")  # as `paint` and rich write them; none that hides text


def printable(report: Report) -> Report:
    """The report with signs in place of the control characters of the code it shows: a terminal would obey them."""
    return report.with_(
        findings=tuple(
            f.with_(
                location=_printable_place(f.location),
                message=signs(f.message),
                snippet=signs(f.snippet),
                note=signs(f.note),
                fix=_printable_fix(f.fix),
            )
            for f in report.findings
        ),
        gate=_each_text(report.gate, _in_gate),
        **{name: _each_text(getattr(report, name), _in_report) for name in _SHOWN},
    )


# Beside findings and gate; messages of exceptions and names in the user's code end up in all of them.
_SHOWN = ("target", "kept_in", "run", "environment", "trials", "comparisons", "winners", "ladder", "not_applicable", "notes",
          "skipped", "unused_suppressions")  # fmt: skip
# Fields that hold names: a second line would look like the report's own.
_ON_ONE_LINE = {"path", "comment", "rules", "unknown"}
_PROSE = {"reason", "notes", "accepted", "set_aside"}  # fields of a gate that hold sentences


def _in_report(text: str, name: str) -> str:
    return one_line(text) if name in _ON_ONE_LINE else signs(text)


def _in_gate(text: str, name: str) -> str:
    """A text of a gate on one line and with signs; the lines of sentences are joined, not marked."""
    return one_line(" ".join(text.splitlines()) if name in _PROSE else text)


def _each_text(value: Any, changed: Callable[[str, str], str], name: str = "") -> Any:  # Any: what is in a report
    """The same with every text in it changed, by its text and the name of the field that holds it."""
    if isinstance(value, str):
        return changed(value, name)
    if isinstance(value, tuple):
        return tuple(_each_text(item, changed, name) for item in value)
    if isinstance(value, dict):
        return {_each_text(key, changed): _each_text(item, changed, name) for key, item in value.items()}
    if value is None or isinstance(value, (int, float)):
        return value
    from dataclasses import fields, is_dataclass  # a plain scan has none

    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _each_text(getattr(value, f.name), changed, f.name) for f in fields(value)})
    return value


def _printable_place(place: Location | None) -> Location | None:
    return replace(place, path=one_line(place.path)) if place is not None else None


def _printable_fix(fix: Fix | None) -> Fix | None:
    return replace(fix, title=signs(fix.title), diff=signs(fix.diff)) if fix is not None else None


def signs(text: str) -> str:
    """The text with a sign for each control character but tab and the ends of lines: "\\x1b" becomes "␛".

    What changes the direction of text becomes its number, "<U+202E>", as `less` shows it.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():  # most texts, and a tenth of the time of a search
        return text
    return _CONTROL.sub(lambda found: _sign(ord(found.group())), text)


def _sign(code: int) -> str:
    if code < 0x20:
        return chr(0x2400 + code)
    if 0x9F < code < 0xD800:
        return f"<U+{code:04X}>"
    return "␡" if code == 0x7F else "\ufffd"


def inert(text: str, in_colour: bool = False) -> str:
    """The text as it may stand on a terminal and in the log of a CI, whatever of it somebody else wrote: with signs, and no
    line a command to the log: "::add-mask::x" becomes "∷add-mask::x", "##[" becomes "♯♯[". in_colour: colours stay.
    """
    parts = _COLOUR.split(text) if in_colour else [text]
    shown = "".join(part if number % 2 else signs(part) for number, part in enumerate(parts))
    if "::" not in shown and "##" not in shown:
        return shown
    return _LOG_COMMAND.sub(lambda found: "♯♯" if found["space"] is None else f"{found['space']}∷", shown)


def json_text(value: object) -> str:
    """The value as JSON in ASCII, which every stream takes, with a final line end. What would be a command in a log is
    escaped, and reads back as it was."""
    import json

    text = json.dumps(value, indent=2, allow_nan=False)
    return _LOG_COMMAND.sub(lambda found: "#\\u0023", text) + "\n"


def one_line(text: str) -> str:
    """The text with signs for control characters and for the ends of lines."""
    return signs(text).replace("\r\n", "␊").replace("\n", "␊")


def in_cell(place: Location | None) -> str:
    """Where in a notebook, for formats whose lines are those of the file; empty for other files."""
    return f"cell {place.cell}, line {place.line}: " if place is not None and place.cell is not None else ""


def count(number: int, one: str, many: str = "") -> str:
    """A number with its word: "1 file", "2 files"."""
    return f"{number} {one if number == 1 else many or one + 's'}"


def remarks(report: Report) -> list[str]:
    """What is said of the whole report, a sentence each: what was left out, and its notes."""
    if report.gate is not None:
        cut = ["interrupted: what is missing here was not judged"] if report.interrupted else []
        return [*cut, *report.gate.notes, *report.notes]
    said = [doubt] if (doubt := distrust(report)) else []
    if report.known:
        said.append(f"{count(report.known, 'finding')} of the baseline not shown")
    if report.gone:
        said.append(f"{count(report.gone, 'finding')} of the baseline no longer there")
    if report.tests_left_out:
        said.append(f"{count(report.tests_left_out, 'test file')} left out")
    if report.hints_left_out:
        said.append(f"{count(report.hints_left_out, 'hint')} left out")
    return [*said, *report.notes]


def kept_text(report: Report) -> str:
    """Where what was measured is kept, and what shows it again; "" where nothing is."""
    if not report.kept_in:
        return ""
    name = report.kept_in.rpartition("/")[2]
    said = f"kept in {report.kept_in}"
    if name.endswith(_RUN):
        return f"{said}: `perfaudit history {name.removesuffix(_RUN)}` shows it again"
    if report.gate is not None and report.gate.times:
        return f"{said}: `perfaudit history --metric step_time` shows the gates in it"
    return said


def unused_text(item: UnusedSuppression) -> str:
    """What is wrong with a comment that silences nothing."""
    written = item.comment or f"perfaudit: ignore{'[' + ', '.join(item.rules) + ']' if item.rules else ''}"
    if item.unknown:
        return f"`{written}`: no rule is called {' or '.join(item.unknown)}"
    idle = f" ({', '.join(item.rules)})" if item.comment and item.rules else ""
    return f"`{written}` silences nothing here{idle}"


def place_of(item: UnusedSuppression) -> Location:
    """The place of a comment that silences nothing: its line, of whose columns nothing is known."""
    return Location(item.path, item.line, 1, item.line, 1, item.cell)


def lines_of(places: Iterable[Location]) -> str:
    """The lines of some places in one file, each once: "lines 3, 9"; of a notebook "lines cell 2:1, cell 5:9"."""
    named = (f"cell {place.cell}:{place.line}" if place.cell is not None else str(place.line) for place in places)
    return f"lines {', '.join(dict.fromkeys(named))}"


def sentences(finding: Finding) -> list[str]:
    """What is known of a finding: message, saving, note, and the title of the fix, those that there are."""
    said = [finding.message]
    if finding.saving is not None:
        said.append(saving_text(finding.saving))
    if finding.note:
        said.append(finding.note)
    if finding.fix is not None:
        said.append(fix_title(finding.fix))
    return said


def fix_title(fix: Fix, paint: Paint = plain) -> str:
    """What the fix does, after what it changes besides speed; a manual one is advice."""
    if fix.safety == "manual":
        return f"{paint('advice', 'cyan')}: {fix.title}"
    changes = f": changes {', '.join(fix.changes)}" if fix.changes else ""
    return f"{paint(f'fix ({fix.safety}{changes})', 'cyan')}: {fix.title}"


def _page_and_heading(where: str) -> str:
    """A page with the words of a heading on it, so that a narrow terminal can fold them."""
    page, _, heading = where.partition("#")
    return f"{page}, {heading.replace('-', ' ')}" if heading else page


def reading_text(rule: Rule, link: Callable[[str], str] = _page_and_heading) -> str:
    """A rule's tier, with the reading of its findings that it rests on; `link` makes of a page's path what names it here."""
    shown = "preview (its findings are hints)" if rule.tier == "preview" else rule.tier
    reading = rule.reading
    if reading is None:
        return f"{shown}; none of its findings has been read on code that it was not tuned on"
    read = f"{count(reading.read, 'finding')} read on code that it was not tuned on"
    if reading.together > 1:
        read = f"{reading.read} findings of {reading.together} rules, its own among them, that were read together"
    others = reading.arguable + reading.wrong
    said = [
        f"of {read}, {reading.right} {'was' if reading.right == 1 else 'were'} right, {reading.arguable} true but hardly worth "
        f"saying, and {reading.wrong} wrong"
    ]
    if reading.mended:
        said.append(
            f"{reading.mended} of the {others} that were not right {'is' if reading.mended == 1 else 'are'} mended since"
        )
    if rule.tier == "stable" and not reading.is_mostly_right:
        is_decided = rule.id in STABLE_BY_DECISION
        why = "by decision" if is_decided else "as one of the rules that the project began with"
        said.append(f"it stays stable {why} (docs/scan.md, Tiers)")
    where = " and ".join(link(page) for page in reading.where.split(" and "))
    return f"{shown}; {'; '.join(said)} ({where})"


def option_of_knob(name: str) -> str:
    """The option of `perfaudit tune` that asks for a knob."""
    return f"--{name.replace('_', '-')}"


def saving_text(saving: Saving, paint: Paint = plain) -> str:
    """What a saving is, with its basis: no two bases have the same words or the same colour."""
    low, high = 100 * saving.low, 100 * saving.high
    if saving.basis == "documented":
        known = "; ".join(part for part in (saving.conditions, saving.source) if part)
        return f"{paint('documented', 'dim')}: saves up to {high:.0f} % of a step ({known})"
    if saving.basis == "benchmarked":
        where = "; ".join(part for part in (saving.conditions, f"`{saving.source}`") if part)
        if saving.low > 0:
            found = f"saved {low:.0f} to {high:.0f} % of a step in our own run"
        else:
            found = f"no saving was shown in our own run, where the change made a step {_between(low, high, 0)}"
        return f"{paint('benchmarked', 'bold')}: {found} ({where})"
    left_out = CLOCKS["own"] if saving.clock == "own" else ""
    basis = "; ".join(part for part in (saving.basis, left_out, _beside_expected(saving)) if part)
    step = "the step" if saving.clock != "cpu" else "the step's processor time"
    of_what = "" if saving.clock != "cpu" else " of processor time"
    per_step = f", {seconds(saving.seconds_per_step)}{of_what} a step" if saving.seconds_per_step is not None else ""
    weight = "" if saving.basis == "screened" else "bold "  # its losses were not compared
    if saving.low > 0:
        return paint(f"saves {low:.1f} to {high:.1f} % of {step}{per_step}", f"{weight}green") + f" ({basis})"
    if saving.high < 0:
        return paint(f"the change makes {step} {-high:.1f} to {-low:.1f} % longer", f"{weight}red") + f" ({basis})"
    said = f"no saving could be shown: the change makes {step} {_between(low, high, 1)}"
    return paint(said, "yellow") + f" ({basis})"


def _between(low: float, high: float, digits: int) -> str:
    """An interval of a saving in percent that does not lie above 0, in words: 1 % longer to 19 % shorter."""
    return f"{max(0.0, -low):.{digits}f} % longer to {max(0.0, high):.{digits}f} % shorter"


def unit_of(compared: Comparison | Calibration) -> str:
    """What the number of times that something was compared counts: a quad, or a pair of blocks in halves, is a comparison."""
    from perfaudit.measurements import Calibration  # here: a plain scan has none

    is_screened = compared.in_halves or isinstance(compared, Calibration) or compared.basis == "screened"
    return "comparison" if is_screened else "round"


def _beside_expected(saving: Saving) -> str:
    """Where a measured saving lies outside of what was known of it, "" where it does not.

    Processor time is a share of something else, and is not compared.
    """
    known = saving.expected
    if known is None or saving.clock == "cpu":
        return ""
    whose = "our own run saved" if known.basis == "benchmarked" else "others document"
    range_ = f"the {100 * known.low:.0f} to {100 * known.high:.0f} % that {whose}"
    if saving.low > known.high:
        return f"more than {range_}"
    if saving.high < known.low:
        return f"less than {range_}"
    return f"its upper end is above {range_}" if saving.high > known.high else ""


def clock_words(clock: str) -> str:
    """What a figure is of, behind a comma; "" where it is of all seconds on the wall."""
    return f", {CLOCKS[clock]}" if clock in CLOCKS else ""


def step_time(value: float) -> str:
    """The duration of a step, in at most four digits: "219.7 ms", "8.64 ms"."""
    return f"{value * 1e3:.1f} ms" if 1e-2 <= value < 1 else seconds(value)


def interval_text(ratio: float, low: float, high: float) -> str:
    """A ratio with its interval: "0.800 [0.750, 0.850]"."""
    return f"{ratio:.3f} [{low:.3f}, {high:.3f}]" if math.isfinite(high) else f"{ratio:.3f} [no interval yet]"


# Processes that want a core before the start, for each core: a training that ended just now leaves up to 1.
MOST_LOAD = 1.25


def distrust(report: Report) -> str:
    """Why figures of this run are not to be trusted, "" where its control says nothing against them.

    A patch that is handed over all the same was measured in fresh processes, or is faster by more than the control was off.
    """
    found, seen = report.ladder, _told_from_1(report)
    if not seen:
        return _raced_on_busy_machine(report)
    control = f"the control, identical code {seen} of the time of your code"
    if found is not None and found.files:
        why = "it was measured in fresh processes" if found.basis == "measured" else "it is faster by more than that"
        return f"the screened ratios of this run may be off: {control}. The patch below is handed over because {why}"
    if _is_measured(report):
        return f"the screened ratios of this run may be off: {control}. What it advises was measured in fresh processes"
    return (
        f"this run cannot be trusted: {control}; the ratios of patches may be as far off. Run it again, on a machine that "
        "does nothing else"
    )


def _told_from_1(report: Report) -> str:
    """How a control was put in place, and how far it came out from the user's code; "" where no control did."""
    for name, seen in report.calibration.controls.items() if report.calibration is not None else ():
        if not seen[1] <= 1 <= seen[2]:
            how = "in a second training" if name == "twins" else "put in place as a patch is"
            return f"{how}, took {interval_text(*seen)}"
    return ""


def _is_measured(report: Report) -> bool:
    """Whether settings are advised, each of which was raced in fresh processes and not only screened."""
    advised = [winner for winner in report.winners if not winner.keeps_current]
    raced = [(each.knob, each.candidate) for each in report.comparisons if each.basis == "measured"]
    return bool(advised) and all((winner.knob, winner.settings) in raced for winner in advised)


def _raced_on_busy_machine(report: Report) -> str:
    """That a patch was raced on a machine that others used, by their load before it; "" for any other report."""
    found, machine = report.ladder, report.environment
    if found is None or not found.files or not found.basis or machine is None or machine.load is None:
        return ""
    if machine.load <= MOST_LOAD * machine.cores:
        return ""
    busy = f"the machine was busy when this began (load {machine.load:.3g} on {count(machine.cores, 'core')})"
    how = "the final race did not decide" if found.basis == "screened" else "what the patch saves was measured there"
    why = "on a calm machine the patch may save less, or nothing where it needs cores, as workers do"
    return f"{busy}, and {how}: {why}. Run it again there"


def seconds(value: float) -> str:
    """A duration in the unit that keeps it readable; the sign stays."""
    size = abs(value)
    if size >= 1:
        return f"{value:.2f} s"
    if size >= 1e-3:
        return f"{value * 1e3:.2f} ms"
    return f"{value * 1e6:.0f} µs"
