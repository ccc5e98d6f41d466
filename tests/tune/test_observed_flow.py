# ruff: noqa: E501 - a row of a table is one line, so that rows can be compared
"""Findings on the whole model after a run of it was watched: kept with a number, or taken back."""

from __future__ import annotations

from typing import Any

import pytest

from perfaudit.findings import Finding, Fix
from perfaudit.tune.observed_flow import judge_by_flow

HEAD = {"name": "head.weight", "elements": 640, "site": None}


def finding(rule: str) -> Finding:
    return Finding(
        rule, "a-name", "warning", "what was read", fix=Fix("do it", "unsafe", ("rounding",), diff="-a\n+b\n")
    )


@pytest.mark.parametrize(
    ("rule", "seen", "note", "withdrawn"),
    [
        ("PA702", {"unused_parameters": [HEAD]}, "observed: `head.weight` got no gradient, so the option is needed", True),
        (
            "PA702",
            {"unused_parameters": [{**HEAD, "name": name} for name in "abcde"]},
            "observed: `a`, `b`, `c` and 2 more got no gradient, so the option is needed",
            True,
        ),
        ("PA702", {"unused_parameters": []}, "observed: every parameter got a gradient in the steps that were watched", False),
        ("PA702", {"unused_parameters": [], "problems": ["unused_parameters: it died"]}, "", False),
        ("PA702", {}, "", False),
        ("PA211", {"layouts": {"channels_last": 0.8, "contiguous": 0.2}}, "observed: 80 % of what the layers put out is channels-last already", True),
        ("PA211", {"layouts": {"contiguous": 1.0}}, "observed: 100 % of what the layers put out is in the default layout", False),
        ("PA211", {"layouts": {}}, "", False),
        ("PA304", {"dtypes": {"bfloat16": 0.4, "float16": 0.3, "float32": 0.3}}, "observed: 70 % of what the layers put out has 16 bits already", True),
        ("PA304", {"dtypes": {"float32": 0.98, "int64": 0.02}}, "observed: 98 % of what the layers put out is float32", False),
        ("PA201", {"dtypes": {"float32": 1.0}}, "", False),
    ],
)  # fmt: skip
def test_what_a_run_says(rule: str, seen: dict[str, Any], note: str, withdrawn: bool) -> None:
    judged, is_withdrawn = judge_by_flow(finding(rule), seen)
    assert (judged.note, is_withdrawn) == (note, withdrawn)
    assert (judged.fix is None) == withdrawn
