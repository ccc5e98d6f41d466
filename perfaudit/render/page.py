"""One rule as a page: what `perfaudit explain` prints."""

from __future__ import annotations

import difflib
import textwrap

from perfaudit.render.paint import Paint, painted_diff, plain, wrap
from perfaudit.render.words import option_of_knob, reading_text, saving_text
from perfaudit.rules import Example, Rule

_WIDTH = 96


def render(rule: Rule, paint: Paint = plain, knob: str = "", width: int | None = None) -> str:
    """The page: title, why, fix and what it changes, saving with its source, examples, what is missed, sources.

    knob: the name of the one that measures the rule's findings, "" for none. width: columns of the terminal, which
    bound sentences and not code; without one, what stands on a line of its own stays on it.
    """
    parts = [paint(f"{rule.id} {rule.name}", "bold"), _within(rule.title, width), ""]
    parts += [textwrap.fill(rule.why, min(_WIDTH, width or _WIDTH)), ""]
    labelled = len(parts)
    parts += [f"severity  {rule.severity}", f"tier      {reading_text(rule)}", f"fix       {_fix(rule)}"]
    parts += [f"saving    {saving_text(saving)}" for saving in (rule.benchmarked, rule.saving) if saving is not None]
    parts.append(f"measured  {_measuring_words(rule, knob)}")
    parts[labelled:] = [_within(part, width, "          ") for part in parts[labelled:]]
    parts += [*_examples(rule, paint), "", paint("Sources", "bold")]
    parts += [_within(f"  {source}", width, "  ") for source in rule.sources]
    if rule.found_in == "code":
        comment = f"# perfaudit: ignore[{rule.id}] reason"
        said = f"Silence one place with a comment on its line: {comment}"
        parts += ["", said if width is None or len(said) <= width else said.replace(": #", ":\n  #", 1)]
    return "\n".join([*parts, ""])


def _within(text: str, width: int | None, indent: str = "") -> str:
    """The text in lines that fit, those behind the first after `indent`; what has no blank in it is not cut."""
    if width is None or len(text) <= width:
        return text
    first = text[: len(indent)]
    return first + wrap(text[len(indent) :], width, indent)[len(indent) :]


def _examples(rule: Rule, paint: Paint) -> list[str]:
    """Code that is reported and code that is not; of a rule that is found in traces, the command that finds it."""
    if rule.found_in == "trace":
        return ["", "Found in traces of torch.profiler: perfaudit trace FILE_OR_FOLDER"]
    parts: list[str] = []
    bad = [example for example in rule.examples if example.lines]
    parts += ["", paint("Reported", "bold")]
    for example in bad[:2]:
        parts += ["", *_example_lines(example, paint)]
    good = next(example for example in rule.examples if not example.is_bad)
    parts += ["", paint("Silent", "bold"), "", *_indent(good.text)]
    missed = [example for example in rule.examples if example.missed]
    if missed:
        parts += ["", paint("Known miss", "bold"), "", *_indent(missed[0].text)]
    return parts


def _fix(rule: Rule) -> str:
    return {
        "none": "none",
        "safe": "safe: nothing but speed changes",
        "manual": "advice only, never applied",
        "unsafe": f"unsafe: also changes {', '.join(rule.changes)}",
    }[rule.fix]


def _measuring_words(rule: Rule, knob: str) -> str:
    """What can be measured of it: its patch, a setting of the whole training, or nothing."""
    patch = "by `perfaudit scan FILE --measure`, where it has a patch and the measured step runs its line"
    setting = f"as a setting of the whole training by `perfaudit tune FILE {option_of_knob(knob)}`"
    if rule.several_processes:
        return "by `torchrun … -m perfaudit run FILE`, before and after: its patch makes a program of several processes"
    if rule.read_at_start:
        return "by `perfaudit run FILE`, before and after: what its patch changes is read once, as a process starts"
    if rule.has_patch:
        return f"{patch}; {setting}" if knob else patch
    return f"no, for it has no patch; {setting}" if knob else "no, for it has no patch"


def _example_lines(example: Example, paint: Paint) -> list[str]:
    if example.fixed is None:
        return [
            f"  {'>' if n in example.lines else ' '} {line}"
            for n, line in enumerate(example.text.splitlines(), start=1)
        ]
    before, after = example.text.splitlines(keepends=True), example.fixed.splitlines(keepends=True)
    body = "".join(list(difflib.unified_diff(before, after, n=100))[3:])
    return [f"  {line}" for line in painted_diff(body, paint)]


def _indent(text: str) -> list[str]:
    return [f"    {line}" if line else "" for line in text.rstrip().splitlines()]
