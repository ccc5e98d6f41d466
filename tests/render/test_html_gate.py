"""The HTML page of a gate: the verdict first, times with what is tolerated, counters, new findings with their patches."""

from __future__ import annotations

import re

import pytest
from gates import ACCEPTED, COUNTERS, GATES, NEW_FINDINGS, SELF_TEST, SEVERAL, TIME
from html_pages import check_page, readable

from perfaudit.render.html import render


@pytest.mark.parametrize("name", GATES)
def test_a_page_is_by_itself(name: str) -> None:
    text = render(GATES[name])
    check_page(text)
    assert "<b>" not in text


def test_the_verdict_comes_first() -> None:
    said = readable(render(TIME)).splitlines()
    assert said[:6] == [
        "perfaudit gate ",
        "regressed",
        "Regressed against origin/main (1f2e3d4c5b6a): train.py is 8.1 % slower",
        "Run on cpu, 2 cores, 8.0 GiB, torch 2.13, Python 3.11",
        "A wanted change is accepted, with its reason, by ",
        "perfaudit gate update train.py --accept &quot;why&quot; --slower 15%",
    ]


def test_a_time_is_drawn_beside_what_is_tolerated() -> None:
    text = render(TIME)
    assert "1.081 [1.062, 1.101] regressed" in readable(text)
    assert "the band, which reaches to 5 % slower. A slowdown of 1 % never fails." in text
    picture = text.partition('aria-label="Time of a step over that of the reference"')[2].partition("</ul>")[0]
    (base,) = re.findall(r'<line x1="([\d.]+)%" \S+ \S+ \S+ class="base"/>', picture)
    ((start, width),) = re.findall(
        r'<rect x="([\d.]+)%" width="([\d.]+)%" height="100%" class="band-tolerated"/>', picture
    )
    (low,) = re.findall(r'<line x1="([\d.]+)%" x2="[\d.]+%" y1="50%" y2="50%" class="whisker slower"/>', picture)
    assert start == base
    assert float(base) + float(width) < float(low)  # the whole interval lies above the 5 %
    assert "100.00 ms" in readable(text)


def test_what_grew_and_where() -> None:
    said = readable(render(COUNTERS)).splitlines()
    assert {"host syncs", "14 more", "train.py:88  item, 13 more", "+700.0 %", "12,582,912 (12.0 MiB)"} <= set(said)
    assert "Counters over what they were. A bar is cut off at 3 ×." in said
    assert "Set aside: peak live bytes: 12 and 14 in two runs" in said
    assert "Counters that are the same" in said
    assert "accepted: dropout needs it" in readable(render(ACCEPTED))


def test_new_findings_stand_in_their_layer() -> None:
    text = render(NEW_FINDINGS)
    said = readable(text).splitlines()
    assert " 2 new, 12 known, 1 gone. Read from the source, nothing was run." in said
    assert "slow(<mark>False</mark>)" in text
    assert "could not be measured" not in text


def test_all_targets_and_a_self_test() -> None:
    text = render(SEVERAL)
    assert re.findall(r"<h3><code>([\w.]+)</code> <span class=\"badge ?\w*\">([\w ]+)</span>", text) == [
        ("eval.py", "regressed"), ("train.py", "inconclusive"), ("gan.py", "failed"), ("train.py", "pass"),
        ("eval.py", "regressed"),
    ]  # fmt: skip
    tested = readable(render(SELF_TEST))
    assert (
        "Smallest slowdown that such a gate can see here: 4.2 % of a step (median), between 3.1 % and 7.9 %" in tested
    )
