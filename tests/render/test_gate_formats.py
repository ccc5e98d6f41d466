"""A gate in every format: whole texts and pages, and what each of the lists for machines must hold."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from gates import (
    ADVICE,
    BROKEN,
    COUNTERS,
    EVEN,
    GATES,
    MAIN,
    NEW_FINDINGS,
    NEW_TARGET,
    NO_NEW,
    NOT_REACHED,
    ODD_GATE,
    OPEN_FAILS,
    OPEN_PASSES,
    PASS,
    SEVERAL,
    TIME,
    report,
)
from reports import EMPTY, ERROR

from perfaudit.render import renderer
from perfaudit.render.counter_words import difference, difference_sentence
from perfaudit.render.gate_words import headline
from perfaudit.render.markdown import LIMIT
from perfaudit.render.text import render as text
from perfaudit.render.time_words import interval_words, self_test_sentences
from perfaudit.verdicts import CounterChange, CountersVerdict, Gate, Place, SelfTest

WHOLE = Path(__file__).parent / "whole"
SARIF_SCHEMA = json.loads((Path(__file__).parent / "schemas" / "sarif-schema-2.1.0.json").read_text())


@pytest.mark.parametrize("name", GATES)
@pytest.mark.parametrize(("format_", "ending"), [("text", "txt"), ("markdown", "md")])
def test_the_whole_of_it(name: str, format_: str, ending: str, expect: Callable[[Path, str], None]) -> None:
    """Compared with a file that a person has read, `tests/render/whole/NAME.txt` or `.md`."""
    expect(WHOLE / f"{name.replace(' ', '-').replace(',', '')}.{ending}", renderer(format_)(GATES[name]))


def test_every_whole_text_is_of_a_gate() -> None:
    names = {name.replace(" ", "-").replace(",", "") for name in GATES}
    texts = {f"{name}.{end}" for name in names for end in ("txt", "md")}
    assert {path.name for path in WHOLE.iterdir()} == {*texts, "several.xml"}  # which test_junit.py reads


@pytest.mark.parametrize("name", [name for name in GATES if name not in ("odd", "new findings", "several")])
@pytest.mark.parametrize("width", [80, 100])
def test_text_fits_the_terminal(name: str, width: int) -> None:
    assert max(len(line) for line in text(GATES[name], width=width).splitlines()) <= width


@pytest.mark.parametrize("name", GATES)
def test_colour_changes_nothing_but_colour(name: str) -> None:
    painted = text(GATES[name], in_colour=True)
    assert re.sub("\x1b\\[[0-9;]*m", "", painted) == text(GATES[name])
    assert painted.startswith("\x1b[")


@pytest.mark.parametrize("format_", ["text", "markdown", "github", "junit", "gitlab", "sarif"])
def test_control_characters_of_user_code_become_signs(format_: str) -> None:
    written = renderer(format_)(ODD_GATE)
    assert not set(written) & set("\x1b\x07\udcff")
    if format_ == "github":
        assert not [line for line in written.splitlines() if line.startswith("::error::")]


@pytest.mark.parametrize(
    ("change", "sentence", "words"),
    [
        (("host_syncs", 2, 16), "14 more host syncs per step", "14 more"),
        (("host_syncs", 1, 2), "1 more host sync per step", "1 more"),
        (("copies_to_device", 2, 1), "1 fewer copy to the device per step", "1 fewer"),
        (("operators", 2000, 500), "1,500 fewer operators per step", "1,500 fewer"),
        (("bytes_allocated", 0, 4 << 20), "4.0 MiB more allocated per step", "4,194,304 bytes more (4.0 MiB)"),
        (("bytes_to_device", 12, 0), "12 bytes less copied to the device per step", "12 bytes less"),
        (("bytes_allocated", 7, 8), "1 byte more allocated per step", "1 byte more"),
        (
            ("peak_live_bytes", 0, 3 << 30),
            "3.0 GiB more live at the peak per step",
            "3,221,225,472 bytes more (3.0 GiB)",
        ),
        (("flops", 0, 2_500_000_000), "2.5 GFLOP more per step", "2,500,000,000 FLOP more (2.5 GFLOP)"),
        (("parameters", 10, 11), "1 more parameter", "1 more"),
        (("samples_repeated", 0, 3), "3 more samples repeated per epoch", "3 more"),
        (("graph_breaks", 0, 1), "1 more graph break in the first steps", "1 more"),
        (("something_new", 0, 2), "2 more something new per step", "2 more"),
        (
            ("operators", 9, 7, {"aten::add": 1, "aten::mul": -3}),
            "2 fewer operators per step",
            "2 fewer: 1 more and 3 fewer by name",
        ),
        (
            ("flops", 9, 9, {"aten::mm": 2, "aten::addmm": -2}),
            "0 FLOP less per step",
            "the same in all: 2 FLOP more and 2 FLOP less by name",
        ),
    ],
)
def test_a_counter_in_words(change: tuple[Any, ...], sentence: str, words: str) -> None:
    assert difference_sentence(CounterChange(*change)) == sentence
    assert difference(CounterChange(*change)) == words


@pytest.mark.parametrize(
    ("ratio", "low", "high", "words"),
    [
        (1.081, 1.062, 1.101, "8.1 % slower"),
        (0.88, 0.86, 0.9, "12 % faster"),
        (1.002, 0.994, 1.013, "between 0.6 % faster and 1.3 % slower"),
        (1.002, 0.0, float("inf"), "nothing shown"),
    ],
)
def test_a_ratio_in_words(ratio: float, low: float, high: float, words: str) -> None:
    assert interval_words(replace(EVEN, ratio=ratio, low=low, high=high)) == words


@pytest.mark.parametrize(
    ("smallest", "words"),
    [
        ((), "no gate came to an interval: no slowdown of any size can be seen here within the budget"),
        ((0.05,), "it can see a slowdown of 5 % of a step or more; what is smaller is not called"),
        (
            (0.079, 0.031),
            "smallest slowdown that such a gate can see here: 3.1 % of a step (median), between 3.1 % and 7.9 %; what is "
            "smaller is not called: it passes or stays inconclusive",
        ),
    ],
)
def test_what_a_self_test_can_see(smallest: tuple[float, ...], words: str) -> None:
    assert self_test_sentences(SelfTest(3, 0, 0, smallest, 1.0))[1] == words


def test_could_not_tell_is_never_fine() -> None:
    for open_ in (OPEN_PASSES, OPEN_FAILS):
        assert open_.gate is not None
        first = headline(open_.gate)
        assert first.startswith("gate: inconclusive, which ")
        assert "could not tell whether train.py is slower" in first
        assert "pass" not in first


def test_measured_and_stored_are_told_apart() -> None:
    assert "stored" not in text(TIME)
    assert "stored in perfaudit-gate.json" in text(ADVICE)
    assert "both versions measured" not in text(ADVICE)


def test_a_regression_is_told_before_what_is_undecided() -> None:
    assert SEVERAL.gate is not None
    assert headline(SEVERAL.gate) == (
        "gate: regressed against origin/main (1f2e3d4c5b6a): 1 new finding, 14 more host syncs per step in eval.py, eval.py"
        " is 8.1 % slower, time of gan.py could not be measured, could not tell whether train.py is slower"
    )


def levels(written: str) -> list[tuple[str, str]]:
    """Command and file with line, of each annotation."""
    found = re.findall(r"^::(\w+) (?:file=([^,]*),line=(\d+),)?", written, flags=re.MULTILINE)
    return [(name, f"{path}:{line}" if path else "") for name, path, line in found]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pass", [("notice", "")]),
        ("counters", [("error", "train.py:88"), ("error", ""), ("notice", "")]),
        ("time", [("error", ""), ("notice", "")]),
        ("new findings", [("error", "pkg/a.py:2"), ("error", "pkg/a.py:4"), ("notice", ""), ("notice", "")]),
        ("inconclusive, passes", [("warning", ""), ("notice", "")]),
        ("inconclusive, fails", [("error", ""), ("notice", "")]),
        ("accepted", [("notice", "")] * 4),
        ("broken", [("error", ""), ("notice", ""), ("notice", "")]),
        ("not reached", [("warning", ""), ("error", "")]),  # what fails the build is an error somewhere
        ("drifted", [("warning", ""), ("error", "")]),
        ("interrupted", [("error", ""), ("notice", "")]),
        ("swapped", [("notice", "")]),
        (
            "several",
            [
                ("error", ""),
                ("error", "train.py:88"),
                ("error", "pkg/a.py:2"),
                ("error", ""),
                ("warning", ""),
                ("notice", ""),
            ],
        ),
    ],
)
def test_annotations(name: str, expected: list[tuple[str, str]]) -> None:
    assert levels(renderer("github")(GATES[name])) == expected


def test_an_annotation_says_where_a_counter_grew() -> None:
    assert renderer("github")(COUNTERS).splitlines()[0] == (
        "::error file=train.py,line=88,title=gate%3A counter-grew::train.py: host syncs per step 2 → 16, 14 more"
        "%0Aat train.py:88  item, 13 more%0Aat data/load.py:7  tolist, 1 more%0Aby name: item +13, tolist +1"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pass", {"findings": "system-out", "counters train.py": "system-out", "time train.py": "system-out"}),
        ("counters", {"findings": "system-out", "counters train.py": "failure", "time train.py": "system-out"}),
        (
            "inconclusive, passes",
            {"findings": "system-out", "counters train.py": "system-out", "time train.py": "skipped"},
        ),
        ("inconclusive, fails", {"time train.py": "failure"}),
        ("broken", {"findings": "system-out", "counters train.py": "error", "time train.py": "skipped"}),
        ("not reached", {"time train.py": "skipped", "everything was judged": "error"}),
        ("drifted", {"counters train.py": "skipped", "everything was judged": "error"}),
        ("interrupted", {"findings": "system-out", "everything was judged": "error"}),
        ("swapped", {"findings": "system-out", "counters train.py": "system-out"}),
        ("new target", {"counters new.py": "skipped", "time new.py": "skipped"}),
        ("accepted", {"findings": "system-out", "counters train.py": "system-out", "time train.py": "system-out"}),
        (
            "self-test",
            {
                "counters train.py": "system-out",
                "counters eval.py": "system-out",
                "self-test train.py": "system-out",
                "self-test eval.py": "skipped",
            },
        ),
        (
            "new findings",
            {
                "findings": "failure",
                "PA000 slow-thing": "failure",
                "PA001 other-thing": "failure",
                "not audited": "skipped",
            },
        ),
    ],
)
def test_a_test_for_each_layer(name: str, expected: dict[str, str]) -> None:
    root = ET.fromstring(renderer("junit")(GATES[name]))
    assert {case.attrib["name"]: case[0].tag for case in root.iter("testcase")} == expected
    for tag, key in (("failure", "failures"), ("error", "errors"), ("testcase", "tests")):
        assert root.attrib[key] == str(len(list(root.iter(tag))))


def sarif(gated: Any) -> dict[str, Any]:
    log = json.loads(renderer("sarif")(gated))
    (run,) = log["runs"]
    return dict(run)


@pytest.mark.parametrize("name", GATES)
def test_sarif_is_valid_and_fingerprints_are_unique(name: str) -> None:
    written = renderer("sarif")(GATES[name])
    jsonschema.Draft4Validator(SARIF_SCHEMA, format_checker=jsonschema.FormatChecker()).validate(json.loads(written))
    run = sarif(GATES[name])
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    prints = [result["partialFingerprints"]["perfaudit/v1"] for result in run["results"]]
    assert len(set(prints)) == len(prints)
    assert all(rules[result["ruleIndex"]] == result["ruleId"] for result in run["results"])


def test_sarif_results() -> None:
    results = sarif(SEVERAL)["results"]
    assert [(result["ruleId"], len(result["locations"])) for result in results] == [
        ("gate/step-slower", 1),  # without a line of its own: the target's first
        ("gate/counter-grew", 1),
        ("PA000", 1),
    ]
    (place,) = results[1]["locations"]
    assert place == {
        "physicalLocation": {
            "artifactLocation": {"uri": "train.py", "uriBaseId": "%SRCROOT%"},
            "region": {"startLine": 88},
        },
        "message": {"text": "item, 13 more"},
    }
    assert results[0]["locations"][0]["physicalLocation"]["region"] == {"startLine": 1}
    assert results[1]["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "data/load.py"


def test_a_fingerprint_stays_when_the_line_moves_and_the_number_changes() -> None:
    def fingerprint(line: int, after: int) -> str:
        change = CounterChange("host_syncs", 2, after, {}, (Place("train.py", line, after - 2, "item"),))
        gate = Gate(MAIN, "ref", "regressed", counters=(CountersVerdict("train.py", "regressed", changes=(change,)),))
        (result,) = sarif(report(gate))["results"]
        return str(result["partialFingerprints"]["perfaudit/v1"])

    assert fingerprint(88, 16) == fingerprint(90, 17)


def test_only_a_gate_lists_the_rules_of_the_gate() -> None:
    gated, scanned = (
        [rule["id"] for rule in sarif(one)["tool"]["driver"]["rules"] if rule["id"].startswith("gate/")]
        for one in (PASS, EMPTY)
    )
    assert (gated, scanned) == (["gate/counter-grew", "gate/step-slower"], [])


@pytest.mark.parametrize(
    ("gated", "succeeded"), [(PASS, True), (COUNTERS, True), (BROKEN, False), (NEW_TARGET, True), (NOT_REACHED, False)]
)
def test_sarif_says_what_could_not_be_measured(gated: Any, succeeded: bool) -> None:
    (invocation,) = sarif(gated)["invocations"]
    assert invocation["executionSuccessful"] is succeeded
    worst = {note["level"] for note in invocation["toolExecutionNotifications"]}
    assert ("error" in worst) is not succeeded


def test_gitlab_shows_everything_that_fails() -> None:
    entries = json.loads(renderer("gitlab")(COUNTERS))
    assert [(entry["check_name"], entry["severity"], entry["location"]) for entry in entries] == [
        ("gate/counter-grew", "major", {"path": "train.py", "lines": {"begin": 88}}),
        ("gate/counter-grew", "major", {"path": "train.py", "lines": {"begin": 1}}),  # it has no line of its own
    ]
    several = json.loads(renderer("gitlab")(SEVERAL))
    assert [entry["check_name"] for entry in several] == ["gate/step-slower", "gate/counter-grew", "PA000"]
    assert len({entry["fingerprint"] for entry in several}) == 3


def test_json_has_no_infinity_and_no_tuple() -> None:
    for gated in GATES.values():
        gate = json.loads(renderer("json")(gated))["gate"]
        assert gate["verdict"] == gated.gate.verdict  # type: ignore[union-attr]  # each has one
    (timed,) = json.loads(renderer("json")(OPEN_FAILS))["gate"]["times"]
    assert (timed["low"], timed["high"]) == (None, None)
    (timed,) = json.loads(renderer("json")(TIME))["gate"]["times"]
    assert (timed["low"], timed["high"]) == (1.062, 1.101)
    (counted,) = json.loads(renderer("json")(COUNTERS))["gate"]["counters"]
    assert counted["changes"][2]["places"][0] == {"path": "train.py", "line": 88, "count": 13, "what": "item"}


def test_a_long_page_is_cut_and_says_so() -> None:
    many = tuple(
        CounterChange(f"counter_{n}", 1, 2, {"größer" * 20: 1}, (Place("train.py", n + 1, 1, "item"),))
        for n in range(3000)
    )
    gate = Gate(MAIN, "ref", "regressed", "", True, NO_NEW, (CountersVerdict("train.py", "regressed", changes=many),))
    page = renderer("markdown")(report(gate, findings=(ERROR,)))
    assert len(page.encode()) <= LIMIT
    assert re.search(r"\n\*\*Cut here: \d+ more entries would not fit; `--format json` has them all\.\*\*\n$", page)


def test_what_can_be_done_next_is_said_where_it_fits() -> None:
    accept = re.compile(r'accepted, with its reason, by `perfaudit gate update(| .*) --accept "why"(| --slower 15%)`\n')
    told = {
        name: accept.search(text(gated).replace("by\n", "by ").replace("\n--", " --")) for name, gated in GATES.items()
    }
    assert {name: found.groups() for name, found in told.items() if found} == {
        "new findings": ("", ""),
        "counters": (" train.py", ""),
        "time": (" train.py", " --slower 15%"),  # no counter grew by which a bound could be told
        "advice": (" train.py", ""),
        "several": (" eval.py", ""),
        "odd": (" '␛[2J␇|`<b>␊::error::&]]>\N{REPLACEMENT CHARACTER}'", ""),
    }
    assert text(NEW_FINDINGS).endswith(
        "`perfaudit explain PA000` says why the first new finding costs time\na wanted change "
        'is accepted, with its reason, by `perfaudit gate update --accept "why"`\n'
    )
    assert "--budget" in text(OPEN_PASSES)
    assert text(PASS).endswith("the whole interval lies below the 5 % slowdown that has to be excluded\n")


def test_counters_with_one_reason_share_a_line() -> None:
    from perfaudit.render.gate import layers
    from perfaudit.render.paint import plain
    from perfaudit.verdicts import CountersVerdict, Gate

    aside = dict.fromkeys(("kernels_launched", "graphs_replayed"), "not counted: no CUPTI") | {"flops": "no formula"}
    gate = Gate("a", "ref", "pass", counters=(CountersVerdict("t.py", "pass", set_aside=aside),))
    said = "\n".join(layers(gate, plain, 200))
    assert "set aside: kernels launched and graphs replayed: not counted: no CUPTI\n" in said
    assert "set aside: floating-point operations: no formula" in said
