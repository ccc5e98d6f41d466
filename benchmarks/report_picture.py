"""The README's picture: part of what two commands printed, drawn by rich: `python benchmarks/report_picture.py [--write]`.

The lines are those of benchmarks/script_demonstration.json, which a real run has left; the colours are those of a terminal.
--write puts the picture into docs/pictures/tune.svg; without it, the picture is printed.
"""

from __future__ import annotations

import argparse
import io
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "script_demonstration.json"
PICTURE = ROOT / "docs" / "pictures" / "tune.svg"
WIDTH = 118  # columns, as the commands were given

# As rich has it, without the font that it would fetch: a picture that stands in a page must not ask another host for anything.
FORMAT = """<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>perfaudit run and perfaudit tune in a terminal</title>
<style>
.{unique_id}-matrix {{ font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-matrix {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


def shown_lines() -> list[str]:
    """Of `run` the step and its phases; of `tune` the result, the patches, the final race and the patch."""
    lines = []
    for one in json.loads(RECORD.read_text(encoding="utf-8"))["printed"]:
        printed: Sequence[str] = one["lines"]
        lines += [f"$ perfaudit {one['command']}", ""]
        if one["command"].startswith("run"):
            lines += [*printed[: _first(printed, "Setup took")], "", ""]
            continue
        lines += [*printed[: _first(printed, "Ratios of the time")], *_paragraph(printed, "final race"), ""]
    return lines


def _first(lines: Sequence[str], beginning: str) -> int:
    return next(number for number, line in enumerate(lines) if line.startswith(beginning))


def _paragraph(lines: Sequence[str], beginning: str) -> list[str]:
    start = _first(lines, beginning)
    return list(lines[start : lines.index("", start)])


def painted(line: str, before: str) -> Text:
    """A line in the colours of a terminal: what is typed, the result behind it, and bars."""
    text = Text(line)
    if line.startswith("$ ") or before.startswith("$ "):
        text.stylize("bold")
    text.highlight_regex(r"█+", "cyan")
    return text


def picture() -> str:
    console = Console(width=WIDTH, record=True, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    before = ""
    for line in shown_lines():
        console.print(painted(line, before), no_wrap=True, crop=False)
        before = line or before
    return console.export_svg(title="perfaudit", theme=MONOKAI, code_format=FORMAT, unique_id="report")


def write() -> None:
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write docs/pictures/tune.svg")
    if parser.parse_args().write:
        write()
    else:
        print(picture())
