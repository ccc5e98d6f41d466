"""A climb as a table: each rung with what it changes and what it makes of the step, the race of all of it, one patch."""

from __future__ import annotations

import math

from perfaudit.measurements import NO_TIME, Ladder, Rung
from perfaudit.render.paint import Paint, colour, painted_diff, wrapped
from perfaudit.render.words import seconds
from perfaudit.report import Report

THOUSAND = 1000  # steps, for which the saving is told


def ladder(report: Report, paint: Paint, width: int) -> list[str]:
    """The parts of a report that tell of its climb."""
    from perfaudit.render.tables import table

    found = report.ladder
    assert found is not None
    parts = [paint(heading(report), "bold") + "\n"]
    if found.rungs:
        columns = ["rung", "ms/step", "of your step", "memory", "also changes"]
        rows = [_start(found), *(_row(n, rung) for n, rung in enumerate(found.rungs, start=1))]
        if found.ratio is not None:
            rows.append(_all(found))
        parts.append(table(columns, rows, paint is colour, width))
        parts.append(wrapped(_how(found), width, "") + "\n")
    dropped = [f"{rung.knob}: {rung.dropped}" for rung in found.rungs if rung.dropped]
    if found.untested:
        parts.append(
            wrapped(
                f"not raced without: {', '.join(found.untested)}, because a later patch changes what it wrote, or for "
                "want of time or memory",
                width,
                "",
            )
            + "\n"
        )
    parts += [_listed("taken out again:", dropped, width), _left(found, width), _patch(found, paint, width)]
    return [part for part in parts if part]


def saved(found: Ladder) -> str:
    """What the patch saves in THOUSAND steps, "" where the final race did not say."""
    if found.seconds_per_step is None or found.ratio is None or not math.isfinite(found.high):
        return ""
    low, middle, high = (THOUSAND * found.seconds_per_step * (1 - r) for r in (found.high, found.ratio, found.low))
    return f"{seconds(middle)} [{seconds(low)}, {seconds(high)}] in a thousand steps"


def heading(report: Report) -> str:
    """What the climb came to, in one line."""
    found = report.ladder
    assert found is not None
    if not found.rungs and (report.interrupted or any(item.reason == NO_TIME for item in found.left)):
        return "LADDER: no rung yet, and not everything was tried"
    if not found.rungs:
        return "LADDER: nothing cleared the noise: your code stays as it is"
    if found.ratio is None or found.seconds_per_step is None or found.patched_seconds_per_step is None:
        return "LADDER: rungs, each measured on the ones below; not all of it together"
    middle = f"{seconds(found.seconds_per_step)} → {seconds(found.patched_seconds_per_step)} a step"
    if found.high >= 1:
        return f"LADDER: {middle}, ratio {_ratio(found)}, which is no proof that it is faster"
    return f"LADDER: {middle}, {1 / found.ratio:.2f} times as fast"


def _start(found: Ladder) -> list[str]:
    return ["your code", _ms(found.seconds_per_step), "1", _size(found.peak_memory_bytes), ""]


def _row(number: int, rung: Rung) -> list[str]:
    place = f"{rung.location.path}:{rung.location.line}"
    what = rung.words if place in rung.words else f"{rung.words} ({place})"
    if rung.dropped:
        return [f"-  {what}", "", "taken out", "", ""]
    ratio = f"{rung.from_start:.3f}" if rung.from_start is not None else ""
    if rung.from_start is not None and rung.from_low is not None and rung.from_high is not None:
        ratio += f" [{rung.from_low:.3f}, {rung.from_high:.3f}]"
    changes = ", ".join(rung.changes) or "nothing"
    return [f"{number}  {what}", _ms(rung.seconds_per_step), ratio, _size(rung.peak_memory_bytes), changes]


def _all(found: Ladder) -> list[str]:
    changes = ", ".join(found.changes) or "nothing"
    after = _ms(found.patched_seconds_per_step)
    return ["all of it, raced against your code", after, _ratio(found), _size(found.patched_peak_memory_bytes), changes]


def _ratio(found: Ladder) -> str:
    interval = f" [{found.low:.3f}, {found.high:.3f}]" if math.isfinite(found.high) else " [no interval yet]"
    return f"{found.ratio:.3f}{interval}"


def _how(found: Ladder) -> str:
    each = "each rung was raced against the source below it; ratios to your step are the products of these races"
    if found.ratio is None:
        return each
    last = f"the last line is a race of its own, {found.rounds} rounds of the whole patch against your code"
    if len(found.rungs) == 1 and found.ratio == found.rungs[0].ratio:
        last = f"the last line is the race of the only rung, {found.rounds} rounds against your code"
    gained = f"; it saves {saved(found)}" if found.high < 1 else ""
    return f"{each}; {last}{gained}"


def _left(found: Ladder, width: int) -> str:
    reasons: dict[str, list[str]] = {}
    for item in found.left:
        reasons.setdefault(item.reason, []).append(item.knob)
    return _listed("not climbed:", [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()], width)


def _listed(heading: str, lines: list[str], width: int) -> str:
    return "\n".join([heading, *(wrapped(line, width, "  ") for line in lines)]) + "\n" if lines else ""


def _patch(found: Ladder, paint: Paint, width: int) -> str:
    if found.trouble:
        return wrapped(f"no patch: {found.trouble}", width, "") + "\n"
    if not found.files:
        return ""
    changes = f"changes {', '.join(found.changes)}" if found.changes else "changes nothing but speed"
    lines = [paint(f"the patch of all of it ({changes}):", "cyan")]
    if found.verified:
        lines.insert(0, wrapped(f"checked: {found.verified}", width, ""))
    for item in found.files:
        lines += [f"  {line}" if line else "" for line in painted_diff(item.diff, paint)]
    return "\n".join(lines) + "\n"


def _ms(value: float | None) -> str:
    return f"{1e3 * value:.2f}" if value is not None else ""


def _size(count: int | None) -> str:
    from perfaudit.render.tables import size

    return size(count) if count else ""
