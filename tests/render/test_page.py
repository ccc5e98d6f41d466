"""What `perfaudit explain` prints of a rule, and how the catalogue prints it, as whole texts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from gates import ADVICE
from reports import SMALL

from perfaudit.findings import Saving
from perfaudit.render import catalogue
from perfaudit.render.gate_words import counters_phrase, time_phrase
from perfaudit.render.json import render as as_json
from perfaudit.render.page import render
from perfaudit.rules import Example, Reading, Rule
from perfaudit.verdicts import CountersVerdict, TimeVerdict

RULE = Rule(
    "PA900", "slow-thing", "Something is slow", "model", "warning", "unsafe", ("rng", "rounding"), "It waits.",
    ("https://example.org/a", "a book, page 3", "our own run: see https://example.org/b"),
    Saving("documented", 0.0, 0.25, source="a paper"),
    (
        Example("missed()\n", missed=True),
        Example("good()\n\nfine()\n"),
        Example("import t\nslow(1)\nend()\n", (2,), "import t\nfast(1)\nend()\n"),
        Example("a()\nslow(2)\n", (2,)),
        Example("slow(3)\n", (1,)),
    ),
    "rules/PA900.md",
    reading=Reading(20, 17, 2, 1, 2, "a page"),
)  # fmt: skip
PAGE = """\
PA900 slow-thing
Something is slow

It waits.

severity  warning
tier      stable; of 20 findings read on code that it was not tuned on, 17 were right, 2 true but hardly worth saying, \
and 1 wrong; 2 of the 3 that were not right are mended since (a page)
fix       unsafe: also changes rng, rounding
saving    documented: saves up to 25 % of a step (a paper)
measured  by `perfaudit scan FILE --measure`, where it has a patch and the measured step runs its line; as a setting of \
the whole training by `perfaudit tune FILE --batch-size`

Reported

   import t
  -slow(1)
  +fast(1)
   end()

    a()
  > slow(2)

Silent

    good()

    fine()

Known miss

    missed()

Sources
  https://example.org/a
  a book, page 3
  our own run: see https://example.org/b

Silence one place with a comment on its line: # perfaudit: ignore[PA900] reason
"""


def test_a_rule_as_a_page() -> None:
    assert render(RULE, knob="batch_size") == PAGE


def test_what_is_bold_on_a_page() -> None:
    bold = render(RULE, lambda text, style: f"[{style}]{text}" if style == "bold" else text)
    assert [line for line in bold.splitlines() if "[bold]" in line] == [
        "[bold]PA900 slow-thing", "[bold]Reported", "[bold]Silent", "[bold]Known miss", "[bold]Sources",
    ]  # fmt: skip


PATCH = "by `perfaudit scan FILE --measure`, where it has a patch and the measured step runs its line"
SETTING = "as a setting of the whole training by `perfaudit tune FILE --compile`"


@pytest.mark.parametrize(
    ("fix", "knob", "fix_line", "measured"),
    [
        ("none", "", "none", "no, for it has no patch"),
        ("manual", "compile", "advice only, never applied", f"no, for it has no patch; {SETTING}"),
        ("safe", "", "safe: nothing but speed changes", PATCH),
        ("safe", "compile", "safe: nothing but speed changes", f"{PATCH}; {SETTING}"),
    ],
)
def test_what_a_page_says_of_fix_and_measuring(fix: str, knob: str, fix_line: str, measured: str) -> None:
    rule = replace(RULE, fix=fix, changes=(), saving=None)  # type: ignore[arg-type]  # a row's text
    assert render(rule, knob=knob).splitlines()[7:10] == [f"fix       {fix_line}", f"measured  {measured}", ""]


@pytest.mark.parametrize(
    ("reading", "said"),
    [
        (None, "preview (its findings are hints); none of its findings has been read on code that it was not tuned on"),
        (
            Reading(1, 0, 1, 0, 0, "a page"),
            "preview (its findings are hints); of 1 finding read on code that it was not tuned on, 0 were right, "
            "1 true but hardly worth saying, and 0 wrong (a page)",
        ),
        (
            Reading(7, 1, 3, 3, 1, "a page", together=5),
            "preview (its findings are hints); of 7 findings of 5 rules, its own among them, that were read together, "
            "1 was right, 3 true but hardly worth saying, and 3 wrong; 1 of the 6 that were not right is mended since (a page)",
        ),
    ],
)
def test_what_a_page_says_of_a_preview_rule(reading: Reading | None, said: str) -> None:
    rule = replace(RULE, tier="preview", reading=reading)
    assert render(rule).splitlines()[6] == f"tier      {said}"
    assert f"\n\nP{said[1:]}.\n\n" in catalogue.render([rule], {})


@pytest.mark.parametrize(
    ("rule", "why"), [("PA701", "as one of the rules that the project began with"), ("PA105", "by decision")]
)
def test_a_stable_rule_that_is_seldom_right_says_why_it_stays(rule: str, why: str) -> None:
    text = render(replace(RULE, id=rule, reading=Reading(20, 17, 2, 1, 0, "a page")))
    assert f"; it stays stable {why} (docs/scan.md, Tiers) (a page)\n" in text


def test_a_page_names_the_heading_in_words() -> None:
    where = "benchmarks/scan_quality.md#a-second-reading and benchmarks/scan_reading.md"
    text = render(replace(RULE, reading=Reading(20, 20, 0, 0, 0, where)))
    assert "(benchmarks/scan_quality.md, a second reading and benchmarks/scan_reading.md)\n" in text


def test_the_catalogue_links_to_readings() -> None:
    page = "benchmarks/scan_quality.md#a-second-reading and benchmarks/scan_reading.md"
    text = catalogue.render([replace(RULE, reading=Reading(20, 20, 0, 0, 0, page))], {})
    links = "[a second reading](../benchmarks/scan_quality.md#a-second-reading)"
    assert f"({links} and [benchmarks/scan_reading.md](../benchmarks/scan_reading.md)).\n" in text


def test_a_rule_in_the_catalogue() -> None:
    text = catalogue.render([RULE], {"PA900": "batch_size"})
    row = "| [PA900](#pa900) | `slow-thing` | warning | stable | unsafe (rng, rounding) | – | "
    row += "`scan --measure`, `tune --batch-size` |"
    assert row in text.splitlines()
    ours = catalogue.render([replace(RULE, benchmarked=Saving("benchmarked", -0.015, 0.14))], {"PA900": "batch_size"})
    assert row.replace("–", "0.86 to 1.01") in ours.splitlines()
    assert text.partition("\n## ")[2] == (
        "Model\n\n### PA900\n\n**slow-thing**: Something is slow.\n\nIt waits.\n\n"
        "Documented: saves up to 25 % of a step (a paper).\n\n"
        "Stable; of 20 findings read on code that it was not tuned on, 17 were right, 2 true but hardly worth saying, "
        "and 1 wrong; 2 of the 3 that were not right are mended since (a page).\n\n"
        "Reported:\n\n```python\nimport t\nslow(1)\nend()\n```\n\nafter the fix:\n\n"
        "```python\nimport t\nfast(1)\nend()\n```\n\n"
        "Silent on 1 kind of code in its examples; known to miss 1 (`perfaudit explain` shows them).\n\n"
        "- <https://example.org/a>\n- a book, page 3\n- our own run: see https://example.org/b\n"
    )


@pytest.mark.parametrize(
    ("area", "heading"),
    [("input", "Input"), ("model", "Model"), ("backend", "Backend and precision"),
     ("optimizer", "Optimizer and averaging"), ("debugging", "Debugging left on"), ("host", "Host and device"),
     ("distributed", "Distributed"), ("evaluation", "Evaluation and memory"), ("environment", "Environment")],
)  # fmt: skip
def test_the_heading_of_an_area(area: str, heading: str) -> None:
    text = catalogue.render([replace(RULE, area=area), replace(RULE, area=area, id="PA901")], {})  # type: ignore[arg-type]  # a row's text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [f"## {heading}"]


def test_a_source_with_a_space_is_no_link() -> None:
    text = catalogue.render([replace(RULE, sources=("see https://example.org", "https://example.org"))], {})
    assert text.endswith("\n\n- see https://example.org\n- <https://example.org>\n")


def test_json_is_a_document_with_an_indent_of_two() -> None:
    text = as_json(SMALL)
    assert text == json.dumps(json.loads(text), indent=2) + "\n"


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        ("not_judged", "counters of t.py not judged"),
        ("failed", "counters of t.py could not be measured"),
        ("inconclusive", "counters of t.py could not be told"),
        ("regressed", "counters of t.py regressed"),
        ("pass", "no counter grew"),
    ],
)
def test_counters_without_a_change(verdict: str, said: str) -> None:
    assert counters_phrase(CountersVerdict("t.py", verdict)) == said  # type: ignore[arg-type]  # a row's text


def test_a_time_that_was_not_judged() -> None:
    assert time_phrase(TimeVerdict("t.py", "not_judged", ratio=1.2)) == "time of t.py not judged"
    assert ADVICE.gate is not None
    assert time_phrase(ADVICE.gate.times[0]) == "time of train.py not judged"
