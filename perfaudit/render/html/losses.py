"""The first losses of the user's code and of the patched one, as curves with what was tolerated, and as a table."""

from __future__ import annotations

import math
from itertools import zip_longest

from perfaudit.measurements import Ladder, Losses
from perfaudit.render.html.charts import axis_over
from perfaudit.render.html.curves import Curves, Line, Point, curves
from perfaudit.render.html.markup import Markup, fold_away, paragraphs, sentence, table


def losses_picture(found: Ladder) -> Markup:
    """The curves of a climb whose losses were compared in this run, and what the comparison says; nothing for others."""
    losses = found.losses
    if losses is None or not losses.before or not all(map(math.isfinite, (*losses.before, *losses.after))):
        return paragraphs([sentence(found.verified)])
    before = tuple(
        Point(place, loss, *_allowed_range(loss, limit), kind="control")
        for place, (loss, limit) in enumerate(zip_longest(losses.before, losses.tolerance[: len(losses.before)]))
    )
    after = tuple(Point(place, loss) for place, loss in enumerate(losses.after))
    axis = axis_over([*losses.before, *losses.after], lambda loss: f"{loss:.4g}", 0.08)
    steps = [str(place + 1) for place in range(max(len(before), len(after)))]
    lines = (Line("your code", before, 3), Line("with the patch", after, 0))
    drawn = Curves(steps, lines, axis, "Losses of the first steps; the table has the numbers", across="step")
    band = "Whiskers are what is tolerated; most are smaller than their sign." if losses.tolerance else ""
    if losses.before == losses.after:
        band = "Both curves are the same to the bit."
    return curves(
        drawn,
        f"Losses of the first steps from one seed. {band}",
        paragraphs([sentence(found.verified)]),
        _table(losses),
    )


def _allowed_range(loss: float, limit: float | None) -> tuple[float | None, float | None]:
    return (loss - limit * abs(loss), loss + limit * abs(loss)) if limit else (None, None)


def _table(losses: Losses) -> Markup:
    rows = []
    for step, (before, after, limit) in enumerate(zip_longest(losses.before, losses.after, losses.tolerance), start=1):
        known = before is not None and after is not None
        gap = "0" if before == after else f"{abs(after - before) / max(abs(before), 1e-12):.1e}" if known else ""
        allowed = f"{limit:.1e}" if limit is not None else ""
        rows.append([str(step), *("" if loss is None else f"{loss:.6g}" for loss in (before, after)), gap, allowed])
    columns = ("step", "your code", "with the patch", "differ by", "tolerated")
    return fold_away("The losses as a table", table("Losses; differences are shares of the loss", columns, rows))
