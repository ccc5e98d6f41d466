"""Facts of a machine as text and as Markdown: by area, what is wrong with its advice."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from perfaudit.machine_facts import MachineFact
from perfaudit.render.paint import Paint, wrap
from perfaudit.render.words import count
from perfaudit.report import Report

_MARKS = {"ok": ("  ", "dim"), "note": ("· ", "cyan"), "warning": ("! ", "yellow"), "unknown": ("? ", "dim")}
_LEAST = 20  # columns for a value, however narrow the terminal is
_TITLES = {
    "processor": "Processor",
    "memory": "Memory",
    "storage": "Disk",
    "python": "Python",
    "torch": "PyTorch",
    "devices": "Devices",
    "variables": "Environment variables",
}


def machine_page(report: Report, paint: Paint, width: int) -> str:
    """All facts; a mark before those that something is wrong with, and what to do below."""
    lines: list[str] = []
    for area, facts in _by_area(report.machine):
        lines.append(paint(_TITLES.get(area, area), "bold"))
        longest = max(len(fact.name) for fact in facts)
        for fact in facts:
            mark, style = _MARKS[fact.state]
            value = _in_lines(value_of(fact), width - longest - 4, " " * (longest + 4))
            lines.append(f"{paint(mark, style)}{fact.name:<{longest}}  {value}".rstrip())
            if fact.advice:
                lines.append(wrap(fact.advice, width, "      "))
        lines.append("")
    said = wrap(verdict(report.machine), width, "").split("\n")
    return "\n".join([*lines, *(paint(line, "bold") for line in said), ""])


def _in_lines(value: str, width: int, indent: str) -> str:
    """A value as lines that fit, the later ones indented; a long word, as a path, goes on in the next line."""
    return f"\n{indent}".join(textwrap.wrap(value, max(width, _LEAST), break_on_hyphens=False)) or value


def markdown_parts(report: Report, text: object) -> Iterator[list[str]]:
    """The same as a table, in the parts that a page is cut at. text: writes words so that Markdown does not read them."""
    assert callable(text)
    yield [
        f"## perfaudit doctor\n\n{text(verdict(report.machine))}\n\n",
        "| | | value | what to do |\n|---|---|---|---|\n",
    ]
    yield [
        f"| {text(_TITLES.get(fact.area, fact.area))} | {text(fact.name)} | {text(value_of(fact))} | {text(fact.advice)} |\n"
        for fact in report.machine
    ]


def verdict(facts: Iterable[MachineFact]) -> str:
    """How many things are wrong."""
    wrong = sum(fact.state == "warning" for fact in facts)
    if not wrong:
        return "Nothing here would spoil a measurement or slow a training, as far as this can be seen."
    one, many = "slows a training or spoils", "slow a training or spoil"
    return f"{count(wrong, 'thing')} here {one if wrong == 1 else many} a measurement."


def value_of(fact: MachineFact) -> str:
    """The value as a person writes it: 23.4 GiB, 1.2 GB/s, 4 cores."""
    value = fact.value
    if value is None:
        return "not known"
    if isinstance(value, str):
        return f"{value} {fact.unit}".rstrip()
    if fact.unit == "bytes":
        return f"{value / 2**30:,.1f} GiB" if value >= 2**30 else f"{value / 2**20:,.0f} MiB"
    if fact.unit == "bytes/s":
        return f"{value / 1e9:.2f} GB/s" if value >= 1e9 else f"{value / 1e6:,.0f} MB/s"
    return f"{value:,} {fact.unit}".rstrip()


def _by_area(facts: Iterable[MachineFact]) -> Iterator[tuple[str, list[MachineFact]]]:
    areas: dict[str, list[MachineFact]] = {}
    for fact in facts:
        areas.setdefault(fact.area, []).append(fact)
    yield from areas.items()
