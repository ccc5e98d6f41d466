"""JUnit's XML, whole, and against the strictest schema in use."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

import pytest
from gates import GATES, MAIN, SEVERAL
from reports import DIFF, EMPTY, NOTEBOOK, ODD, ODD_PATH, SMALL

from perfaudit.render.junit import render
from perfaudit.report import Report

SCHEMA = ET.parse(Path(__file__).parent / "schemas" / "junit-10.xsd").getroot()
XS = "{http://www.w3.org/2001/XMLSchema}"


def test_a_whole_report() -> None:
    assert render(SMALL) == (
        "<?xml version='1.0' encoding='us-ascii'?>\n"
        '<testsuites name="perfaudit" tests="5" failures="3" errors="0">\n'
        '  <testsuite name="perfaudit" tests="5" failures="3" errors="0" skipped="1" time="0">\n'
        '    <testcase classname="perfaudit" name="scan" time="0">\n'
        "      <system-out>3 findings in 1 file, 1 not audited\n"
        "2 findings of the baseline not shown\n"
        "stopped at the budget\n"
        "pkg/a.py:7:1: `perfaudit: ignore[PA101]` silences nothing here</system-out>\n"
        "    </testcase>\n"
        '    <testcase classname="pkg/a.py" name="PA000 slow-thing" time="0">\n'
        '      <failure type="error" message="`slow(True)` waits for the device: 100 % of the time">'
        "pkg/a.py:2:1: PA000 slow-thing\n"
        "`slow(True)` waits for the device: 100 % of the time\n"
        "documented: saves up to 50 % of a step (a paper)\n"
        "fix (safe): switch it off\n" + DIFF + "</failure>\n"
        "    </testcase>\n"
        '    <testcase classname="pkg/a.py" name="PA001 other-thing" time="0">\n'
        '      <failure type="warning" message="`f(a | b)` is slow, too">pkg/a.py:4:3: PA001 other-thing\n'
        "`f(a | b)` is slow, too\n"
        "saves 10.0 to 20.0 % of the step, 4.00 ms a step (measured)\n"
        "advice: do less</failure>\n"
        "    </testcase>\n"
        '    <testcase classname="(no source line)" name="PA002 no-place" time="0">\n'
        '      <failure type="info" message="the whole program is slow">(no source line): PA002 no-place\n'
        "the whole program is slow</failure>\n"
        "    </testcase>\n"
        '    <testcase classname="b.py" name="not audited" time="0">\n'
        '      <skipped message="binary" />\n'
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n"
    )


def test_a_whole_gate(expect: Callable[[Path, str], None]) -> None:
    expect(Path(__file__).parent / "whole" / "several.xml", render(SEVERAL))


COULD_NOT_TELL = "could not tell whether train.py is slower"
PASSED = ("system-out", None, None)


@pytest.mark.parametrize(
    ("name", "results"),
    [
        (
            "interrupted",
            {
                "findings": PASSED,
                "everything was judged": ("error", "interrupted", f"gate: could not measure everything against {MAIN}"),
            },
        ),
        (
            "not reached",
            {
                "time train.py": ("skipped", None, COULD_NOT_TELL),
                "everything was judged": (
                    "error",
                    "not_judged",
                    f"gate: nothing was judged against {MAIN}: {COULD_NOT_TELL}",
                ),
            },
        ),
        (
            "self-test",
            {
                "counters train.py": PASSED,
                "counters eval.py": PASSED,
                "self-test train.py": PASSED,
                "self-test eval.py": (
                    "skipped",
                    None,
                    "2 gates on identical code: 1 called it regressed, 0 could not tell; one took 3.00 s (median)",
                ),
            },
        ),
        ("improved", {"findings": PASSED, "counters train.py": PASSED}),
        ("accepted", {"findings": PASSED, "counters train.py": PASSED, "time train.py": PASSED}),
        ("inconclusive, fails", {"time train.py": ("failure", "inconclusive", COULD_NOT_TELL)}),
    ],
)
def test_what_comes_of_each_layer(name: str, results: dict[str, tuple[str, str | None, str | None]]) -> None:
    """By test: what came of it, its kind, and the first line of its message."""
    found = {}
    for case in ET.fromstring(render(GATES[name])).iter("testcase"):
        assert case.attrib["classname"] == "perfaudit gate"
        (result,) = case
        message = result.get("message")
        found[case.attrib["name"]] = (result.tag, result.get("type"), message.splitlines()[0] if message else None)
    assert found == results


def test_what_a_gate_said_in_all_stands_below_its_tests() -> None:
    suite = ET.fromstring(render(GATES["interrupted"]))[0]
    said = (
        "gate: could not measure everything against origin/main (1f2e3d4c5b6a)\n"
        "interrupted: what is missing here was not judged"
    )
    assert [child.tag for child in suite] == ["testcase", "testcase", "system-out"]
    assert (suite[1][0].text, suite[2].text) == (said, said)


def test_nothing_found_is_a_test_that_passed() -> None:
    (case,) = ET.fromstring(render(EMPTY)).iter("testcase")
    assert case.attrib["name"] == "scan"
    assert [child.tag for child in case] == ["system-out"]


def test_equal_findings_are_two_tests() -> None:
    names = [case.attrib["name"] for case in ET.fromstring(render(NOTEBOOK)).iter("testcase")]
    assert names == ["scan", "PA000 slow-thing", "PA000 slow-thing #2"]


def test_names_that_xml_cannot_hold() -> None:
    root = ET.fromstring(render(ODD))
    assert [case.attrib["classname"] for case in root.iter("testcase")] == [
        "perfaudit",
        ODD_PATH,
        "␇\ufffd␊.py",
        "␛|.py",
    ]
    assert next(root.iter("failure")).attrib["message"] == "`x␛[2J`\r\n::error::<b>&]]>␀\ufffd"


@pytest.mark.parametrize("report", [EMPTY, SMALL, ODD, NOTEBOOK, *GATES.values()])
def test_the_schema(report: Report) -> None:
    """Every element and attribute is one that Jenkins' xUnit plugin knows where it stands, and none that it needs is missing.

    Order and values are not compared: the standard library validates no schemas, and this one asks little of either.
    """
    text = render(report)
    assert text.isascii()
    root = ET.fromstring(text)
    counts = {name: int(root.attrib[name]) for name in ("tests", "failures", "errors")}
    assert counts == {
        "tests": len(list(root.iter("testcase"))),
        "failures": len(list(root.iter("failure"))),
        "errors": len(list(root.iter("error"))),
    }
    waiting = [root]
    while waiting:
        element = waiting.pop()
        allowed, needed, children = declared(element.tag)
        assert needed <= element.attrib.keys() <= allowed
        assert {child.tag for child in element} <= children
        waiting += element


def declared(tag: str) -> tuple[set[str], set[str], set[str]]:
    """Of one element in the schema: the attributes it may have, those it must have, and its children."""
    (element,) = (e for e in SCHEMA.findall(f"{XS}element") if e.attrib["name"] == tag)
    attributes = list(element.iter(f"{XS}attribute"))
    return (
        {a.attrib["name"] for a in attributes},
        {a.attrib["name"] for a in attributes if a.attrib.get("use") == "required"},
        {e.attrib["ref"] for e in element.iter(f"{XS}element") if "ref" in e.attrib},
    )
