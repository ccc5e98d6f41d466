"""Rules in Markdown: all of them, as `docs/rules.md` has it (a table, then a section for each), or one with all its examples."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from perfaudit.render.words import option_of_knob, reading_text, saving_text
from perfaudit.rules import Example, Rule

_AREAS = {
    "input": "Input",
    "model": "Model",
    "backend": "Backend and precision",
    "optimizer": "Optimizer and averaging",
    "debugging": "Debugging left on",
    "host": "Host and device",
    "distributed": "Distributed",
    "evaluation": "Evaluation and memory",
    "environment": "Environment",
}


def render(rules: Iterable[Rule], knobs: Mapping[str, str]) -> str:
    """The whole page; sections in order of id, headed by their area.

    knobs: the names of those that measure findings, by the rule's id.
    """
    rules = list(rules)
    lines = [
        "# Rules",
        "",
        f"{len(rules)} rules, from their files in `rules/`; `perfaudit rules --format markdown` prints this page.",
        "",
        "`scan --measure` measures a finding that has a patch, where the measured step runs its line and the device is one where",
        "it can matter. An option of `tune` tries the same as a setting of the whole training. What has neither is not measured.",
        "",
        "Findings of a rule whose tier is `preview` are hints, whatever its severity: [which rules are](scan.md#tiers).",
        "A rule's section says how many of its findings were right in the newest readings, before what was wrong was mended.",
        "From the sixth reading on, who reads also mends rules.",
        "",
        "*Our benchmark* is the time of a step after the rule's own fixes over that before, of one small program that has its",
        "finding, on the device that the rule's section names: what is worth trying first, not what your step gains",
        "([how, and what is not measured yet](../benchmarks/rule_effects.md)).",
        "",
        "| rule | name | severity | tier | fix | our benchmark | measured by |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [_row(rule, knobs.get(rule.id, "")) for rule in rules]
    area = ""
    for rule in rules:
        if rule.area != area:
            area = rule.area
            lines += ["", f"## {_AREAS[area]}"]
        lines += _section(rule)
    return "\n".join(lines) + "\n"


def render_one(rule: Rule, knob: str = "") -> str:
    """The page of one rule, with every example; its links are to pages on the web, so that it can stand anywhere.

    knob: the name of the one that measures its findings, "" for none.
    """
    lines = [f"# {rule.id}: {rule.name}", "", f"{rule.title}.", "", "| | |", "|---|---|"]
    rows = [("severity", rule.severity), ("tier", reading_text(rule)), ("fix", _fix(rule))]
    rows += [("saving", saving_text(saving)) for saving in (rule.benchmarked, rule.saving) if saving is not None]
    rows += [("measured by", _measuring_commands(rule, knob))]
    lines += [f"| {name} | {text.replace('|', chr(92) + '|')} |" for name, text in rows]
    lines += ["", "## Why", "", rule.why]
    for heading, examples in (
        ("Reported", [example for example in rule.examples if example.lines]),
        ("Silent", [example for example in rule.examples if not example.is_bad]),
        ("Known misses", [example for example in rule.examples if example.missed]),
    ):
        if examples:
            lines += ["", f"## {heading}", *(line for example in examples for line in _example(example))]
    lines += ["", "## Sources", "", *_sources(rule)]
    if rule.found_in == "trace":
        lines += ["", "Found in traces, by `perfaudit trace`."]
    else:
        silenced = f"a comment on its line, `# perfaudit: ignore[{rule.id}] reason`, silences one place"
        lines += ["", f"`perfaudit explain {rule.id}` prints this page in a terminal; {silenced}."]
    return "\n".join(lines) + "\n"


def _example(example: Example) -> list[str]:
    lines = ["", *_code(example.text)]
    return [*lines, "", "after the fix:", "", *_code(example.fixed)] if example.fixed is not None else lines


def _row(rule: Rule, knob: str) -> str:
    link = f"[{rule.id}](#{rule.id.lower()})"
    ours = rule.benchmarked
    ratio = f"{1 - ours.high:.2f} to {1 - ours.low:.2f}" if ours is not None else "–"
    cells = (link, f"`{rule.name}`", rule.severity, rule.tier, _fix(rule), ratio, _measuring_commands(rule, knob))
    return f"| {' | '.join(cells)} |"


def _measuring_commands(rule: Rule, knob: str) -> str:
    by = ["`scan --measure`"] if rule.is_priced else []
    by += [f"`tune {option_of_knob(knob)}`"] if knob else []
    by += ["`torchrun … run`"] if rule.several_processes else []
    by += ["`run`"] if rule.read_at_start else []
    by += ["`trace`"] if rule.found_in == "trace" else []
    return ", ".join(by) or "–"


def _fix(rule: Rule) -> str:
    return f"{rule.fix} ({', '.join(rule.changes)})" if rule.changes else rule.fix


def _section(rule: Rule) -> list[str]:
    """One rule: why, saving and tier, one example with its fix, what it is known to miss, sources."""
    lines = ["", f"### {rule.id}", "", f"**{rule.name}**: {rule.title}.", "", rule.why]
    for saving in (rule.benchmarked, rule.saving):
        if saving is not None:
            said = saving_text(saving)
            lines += ["", f"{said[0].upper()}{said[1:]}."]
    tier = reading_text(rule, _link_to_page)
    lines += ["", f"{tier[0].upper()}{tier[1:]}."]
    shown = next((example for example in rule.examples if example.lines), None)
    if shown is not None:
        lines += ["", "Reported:", "", *_code(shown.text)]
        if shown.fixed is not None:
            lines += ["", "after the fix:", "", *_code(shown.fixed)]
    quiet = sum(not example.is_bad for example in rule.examples)
    missed = [example for example in rule.examples if example.missed]
    if rule.found_in == "trace":
        lines += ["", "Found in traces, by [`perfaudit trace`](trace.md)."]
    else:
        lines += [
            "",
            f"Silent on {quiet} kind{'' if quiet == 1 else 's'} of code in its examples{_missed_words(missed)}.",
        ]
    return [*lines, "", *_sources(rule)]


def _link_to_page(where: str) -> str:
    """A page of readings as a link from `docs/`, with its heading as words; any other text stays as it is."""
    page, _, heading = where.partition("#")
    return f"[{heading.replace('-', ' ') or page}](../{where})" if page.startswith("benchmarks/") else where


def _sources(rule: Rule) -> list[str]:
    return [f"- <{source}>" if "://" in source and " " not in source else f"- {source}" for source in rule.sources]


def _missed_words(missed: list[Example]) -> str:
    return f"; known to miss {len(missed)} (`perfaudit explain` shows them)" if missed else ""


def _code(text: str) -> list[str]:
    return ["```python", text.strip("\n"), "```"]
