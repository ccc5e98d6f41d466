"""The style of HTML pages: two themes, and for each use of time a colour and a pattern.

Hues are those that Okabe and Ito chose for colour-blind readers (https://jfly.uni-koeln.de/color/), darkened on white until each
has a contrast of 3 with the page; the tests compute it, and 4.5 for texts. No line may begin with two colons: the log of a CI
would take it for a command.
"""

from __future__ import annotations

import functools
from pathlib import Path

LIGHT = {
    "page": "#ffffff",
    "track": "#eef0f2",
    "line": "#c9ced4",
    "text": "#1a1d21",
    "dim": "#545b63",
    "link": "#0b57a4",
    "mark": "#ffffff",
    "compute": "#0072b2",
    "communication_exposed": "#2e8fc7",
    "memory_exposed": "#b8608f",
    "idle_data": "#c95500",
    "idle_sync": "#b37400",
    "idle_allocation": "#8f8000",
    "idle_launch": "#00875f",
    "idle_other": "#7d848c",
    "wait0": "#ffffff",
    "wait1": "#e3eefa",
    "wait2": "#b9d5f0",
    "wait3": "#86b6e0",
    "wait4": "#2565a8",
    "wait5": "#0b3d75",
    "on-wait4": "#ffffff",
    "faster": "#00875f",
    "slower": "#c2410c",
    "undecided": "#6b7280",
    "control": "#7a5cb0",
    "plain": "#0072b2",
    "measured": "#00704f",
    "screened": "#3f8f74",
    "profiled": "#b35900",
    "benchmarked": "#0072b2",
    "documented": "#7d848c",
    "waiting": "#c95500",
    "working": "#0072b2",
    "rest": "#7d848c",
    "band": "#e6dff5",
    "tolerated": "#e2e6ea",
    "removed": "#ffebe6",
    "added": "#e1f4e9",
    "removed-part": "#ffc7b8",
    "added-part": "#a6dfbd",
    "here": "#fff3cd",
    "error": "#b3261e",
    "warning": "#8a5200",
}
DARK = {
    "page": "#14171a",
    "track": "#23282d",
    "line": "#454c54",
    "text": "#e8eaec",
    "dim": "#aab2ba",
    "link": "#7cb8f2",
    "mark": "#14171a",
    "compute": "#2b8fd0",
    "communication_exposed": "#7cc4ee",
    "memory_exposed": "#d793b8",
    "idle_data": "#ee7a2c",
    "idle_sync": "#e8a723",
    "idle_allocation": "#efe45a",
    "idle_launch": "#22b98a",
    "idle_other": "#9aa1a9",
    "wait0": "#14171a",
    "wait1": "#1a2836",
    "wait2": "#1f4060",
    "wait3": "#295a8a",
    "wait4": "#8fbfea",
    "wait5": "#d3e6f8",
    "on-wait4": "#14171a",
    "faster": "#22b98a",
    "slower": "#f08a4b",
    "undecided": "#9aa1a9",
    "control": "#b79ae8",
    "plain": "#2b8fd0",
    "measured": "#22b98a",
    "screened": "#8fd3bb",
    "profiled": "#f0a04b",
    "benchmarked": "#4aa8e8",
    "documented": "#9aa1a9",
    "waiting": "#ee7a2c",
    "working": "#2b8fd0",
    "rest": "#9aa1a9",
    "band": "#2c2540",
    "tolerated": "#2b3138",
    "removed": "#3a1f18",
    "added": "#12301f",
    "removed-part": "#6e2f1e",
    "added-part": "#1d5f3c",
    "here": "#3d3413",
    "error": "#ff8a80",
    "warning": "#ffc46b",
}
# What values are and what they rest on: drawn with a contrast of 3 with the page, and three of them written.
SIGNS = (
    *("faster", "slower", "undecided", "control", "plain"),
    *("measured", "screened", "profiled", "benchmarked", "documented"),
    *("waiting", "working", "rest"),
)
BEHIND_TEXT = ("removed", "added", "removed-part", "added-part", "here")
KINDS = tuple(name for name in LIGHT if name.startswith(("compute", "communication", "memory", "idle")))
WAITS = 5  # classes of a map from "nothing" to "the longest"
_RULES = Path(__file__).with_name("page.css")


@functools.cache
def style() -> str:
    """The whole style sheet."""
    light, dark = _variables(LIGHT), _variables(DARK)
    themes = f":root{{color-scheme:light dark;{light}}}\n@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"
    kinds = [
        f".{name}{{fill:url(#pattern-{name})}}\n.lanes .{name},.base-{name}{{fill:var(--{name})}}" for name in KINDS
    ]
    signs = [
        f".sign.{name},.bar.{name}{{fill:var(--{name});stroke:var(--{name})}}\n.whisker.{name}{{stroke:var(--{name})}}"
        for name in SIGNS
    ]
    waits = [
        f".wait{n}{{background:var(--wait{n});color:var(--{'on-wait4' if n >= 4 else 'text'})}}"
        for n in range(WAITS + 1)
    ]
    return "\n".join([themes, *signs, _RULES.read_text(encoding="utf-8").strip(), *kinds, *waits])


def _variables(theme: dict[str, str]) -> str:
    return "".join(f"--{name}:{value};" for name, value in theme.items())
