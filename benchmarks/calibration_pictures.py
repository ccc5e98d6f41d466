"""The pictures of docs/results.md: `python benchmarks/calibration_pictures.py [--write]`.

Drawn from the records beside this file, as the pages of the same names judge them: intervals of identical code in one training
and in fresh processes, effects of known size, and what gates call slower. Plain SVG, so that a picture needs no library, is
small, and is the same wherever it is drawn. --write puts them into docs/pictures; without it, their names and sizes are printed.
"""

from __future__ import annotations

import argparse
import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import calibration
import engine_calibration
import gate_power

HERE = Path(__file__).resolve().parent
PICTURES = HERE.parent / "docs" / "pictures"
WIDTH, LEFT, RIGHT, TOP, BOTTOM = 760, 60, 20, 52, 44  # pixels of a picture, and around what is drawn in it
INSIDE = WIDTH - LEFT - RIGHT

# Colours that stand out on white and on black alike: a page may be either, and a picture is not told which.
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #808080; }
.title { font-size: 15px; font-weight: 600; }
line { stroke: #808080; stroke-width: 1; }
.grid { stroke-opacity: 0.25; }
.one { stroke-dasharray: 4 3; }
.kept { stroke: #3b82f6; fill: #3b82f6; }
.wrong { stroke: #e5484d; fill: #e5484d; }
.other { stroke: #d97706; fill: #d97706; }
.thick { stroke-width: 2.5; }
"""

Json = dict[str, Any]


@dataclass(frozen=True)
class Interval:
    centre: float
    low: float
    high: float


@dataclass(frozen=True)
class Scale:
    """From values to pixels, by the logarithm: half and double are equally far from 1."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        share = math.log(inside / self.low) / math.log(self.high / self.low)
        return round(self.begin + share * (self.end - self.begin), 1)


def picture(title: str, height: int, parts: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{html.escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f'<text class="title" x="{LEFT}" y="20">{html.escape(title)}</text>',
        *parts,
        "</svg>\n",
    ]
    return "\n".join(lines)


def text(x: float, y: float, words: str, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>'


def axis_of_ratios(scale: Scale, marks: Sequence[float], top: float, bottom: float, words: str) -> list[str]:
    parts = []
    for mark in marks:
        x = scale(mark)
        parts.append(line(x, top, x, bottom, "one" if mark == 1 else "grid"))
        parts.append(text(x, bottom + 16, f"{mark:g}", "middle"))
    return [*parts, text(LEFT + INSIDE / 2, bottom + 36, words, "middle")]


def identical(title: str, found: Sequence[Interval]) -> str:
    """Each comparison a line, in the order of its centre; those that exclude 1 stand out."""
    ordered = sorted(found, key=lambda one: (one.centre, one.low))
    scale = Scale(0.75, 1.33, LEFT, LEFT + INSIDE)
    each = 1.5 if len(ordered) <= 250 else 0.75  # pixels from one comparison to the next
    bottom = TOP + round(each * len(ordered))
    wrong = [not one.low <= 1 <= one.high for one in ordered]
    parts = [text(LEFT, 40, f"{sum(wrong)} of {len(ordered)} intervals exclude 1")]
    parts += axis_of_ratios(
        scale, (0.8, 0.9, 1, 1.1, 1.25), TOP, bottom, "time of a step over that of the same code, 95 % interval"
    )
    for number, (one, is_wrong) in enumerate(zip(ordered, wrong, strict=True)):
        y = round(TOP + each * (number + 0.5), 2)
        parts.append(line(scale(one.low), y, scale(one.high), y, "wrong thick" if is_wrong else "kept"))
    return picture(title, bottom + BOTTOM, parts)


def effects(title: str, found: Sequence[tuple[float, Interval]]) -> str:
    """The true ratio across, what was measured upwards: on the diagonal both are the same."""
    height = 460
    bottom, (low, high) = height - BOTTOM, (0.78, 1.22)
    across, up = Scale(low, high, LEFT, LEFT + INSIDE), Scale(low, high, bottom, TOP)
    wrong = [not one.low <= true <= one.high for true, one in found]
    parts = [
        text(
            LEFT,
            40,
            f"upwards: as measured, with 95 % intervals; {sum(wrong)} of {len(found)} do not hold the true ratio",
        )
    ]
    parts += axis_of_ratios(
        across, (0.8, 0.9, 1, 1.1, 1.2), TOP, bottom, "true time of a step over that of the code as it is"
    )
    for mark in (0.8, 0.9, 1, 1.1, 1.2):
        parts += [
            line(LEFT, up(mark), LEFT + INSIDE, up(mark), "grid"),
            text(LEFT - 6, up(mark) + 4, f"{mark:g}", "end"),
        ]
    parts += [line(across(low), up(low), across(high), up(high), "one")]
    for (true, one), is_wrong in zip(found, wrong, strict=True):
        kind, x = "wrong" if is_wrong else "kept", across(true)
        parts.append(line(x, up(one.low), x, up(one.high), kind))
        parts.append(f'<circle class="{kind}" cx="{x}" cy="{up(one.centre)}" r="2.5"/>')
    return picture(title, height, parts)


def gates(title: str, rows: Sequence[tuple[str, str, int, int]]) -> str:
    """Rows of a method under each kind of change: the share that was called slower, with its exact interval."""
    left, each = 250, 24
    end = WIDTH - RIGHT - 90
    parts, y, kind = [], TOP - 8.0, ""
    for heading, method, hits, of in rows:
        if heading != kind:
            kind = heading
            y += each
            parts.append(text(LEFT - 40, y + 4, heading))
        y += each
        low, high = gate_power.clopper_pearson(hits, of)
        x1, x2, x = (round(left + share * (end - left), 1) for share in (low, high, hits / of))
        style = "kept" if method == "perfaudit gate" else "other"
        parts += [text(left - 12, y + 4, method, "end"), line(x1, y, x2, y, f"{style} thick")]
        parts += [
            f'<circle class="{style}" cx="{x}" cy="{y}" r="4"/>',
            text(WIDTH - RIGHT, y + 4, f"{hits} of {of}", "end"),
        ]
    bottom = y + each
    for share in (0, 0.25, 0.5, 0.75, 1):
        x = round(left + share * (end - left), 1)
        parts += [line(x, TOP, x, bottom, "grid"), text(x, bottom + 16, f"{100 * share:.0f} %", "middle")]
    parts += [text((left + end) / 2, bottom + 36, "called slower, with exact 95 % intervals", "middle")]
    return picture(title, round(bottom + BOTTOM), parts)


def read_lines(name: str) -> list[Json]:
    return [json.loads(each) for each in (HERE / name).read_text(encoding="utf-8").splitlines()]


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    engine = [engine_calibration.judged_again(record) for record in read_lines("engine_calibration.jsonl")]
    same = engine_calibration.candidates([record for record in engine if record["kind"] == "identical"])
    known = engine_calibration.candidates([record for record in engine if record["kind"] == "effects"])
    fresh = [
        calibration.judged(record["log_ratios"]["wall"])
        for record in read_lines("calibration.jsonl")
        if record["slowdown"] == 0
    ]
    runs = gate_power.read([HERE / f"gate_power_{part}.jsonl.xz" for part in ("aa", "slow")])
    rows = []
    for kind, heading in zip(gate_power.KINDS, ("identical code", "5 % slower", "10 % slower"), strict=True):
        for method, name in gate_power.METHODS.items():
            calls = [call for run in runs if run["kind"] == kind and (call := gate_power.red(run, method)) is not None]
            rows.append((heading, name, sum(calls), len(calls)))
    return {
        "identical_one_training.svg": identical(
            "Identical code, raced in one training", [Interval(*one["interval"]) for one in same if one["interval"]]
        ),
        "identical_fresh_processes.svg": identical(
            "Identical code, raced in fresh processes", [Interval(one.ratio, one.low, one.high) for one in fresh if one]
        ),
        "effects.svg": effects(
            "Effects of known size, raced in one training",
            [(one["true"], Interval(*one["interval"])) for one in known if one["interval"] and one["true"]],
        ),
        "gates.svg": gates("What three kinds of gate call slower", rows),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/pictures")
    is_written = parser.parse_args().write
    for name, drawn in pictures().items():
        if is_written:
            (PICTURES / name).write_text(drawn, encoding="utf-8")
        print(f"{name}: {len(drawn.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
