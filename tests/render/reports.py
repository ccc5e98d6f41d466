"""Reports that the tests of all formats render: a small one, one full of odd names, one of a notebook, and an empty one."""

from __future__ import annotations

from perfaudit.findings import Edit, Finding, Fix, Location, Saving, Span
from perfaudit.report import Report, Skipped, UnusedSuppression

EMPTY = Report("scan", files=2)

DIFF = "--- a/pkg/a.py\n+++ b/pkg/a.py\n@@ -1,3 +1,3 @@\n import torch\n-slow(True)\n+slow(False)\n end = 1\n"
ERROR = Finding(
    "PA000",
    "slow-thing",
    "error",
    "`slow(True)` waits for the device: 100 % of the time",
    Location("pkg/a.py", 2, 1, 2, 11),
    Saving("documented", 0.0, 0.5, source="a paper"),
    Fix("switch it off", "safe", (), (Edit(Span(18, 22), "False", Location("pkg/a.py", 2, 6, 2, 10)),), DIFF),
    "0123",
    "slow(True)",
    places=(Location("pkg/a.py", 2, 1, 2, 11), Location("pkg/a.py", 9, 1, 9, 11)),
)
WARNING = Finding(
    "PA001",
    "other-thing",
    "warning",
    "`f(a | b)` is slow, too",
    Location("pkg/a.py", 4, 3, 6, 2),
    Saving("measured", 0.1, 0.2, 0.004),
    Fix("do less", "manual"),
    "4567",
)
NOWHERE = Finding("PA002", "no-place", "info", "the whole program is slow")
SMALL = Report(
    "scan",
    (ERROR, WARNING, NOWHERE),
    (Skipped("b.py", "binary"),),
    1,
    notes=("stopped at the budget",),
    known=2,
    unused_suppressions=(UnusedSuppression("pkg/a.py", 7, ("PA101",)),),
)

ODD_PATH = "dir, 100%:größe/训练 𝒳|`x`.py"
ODD = Report(
    "scan",
    (
        Finding(
            "PA000", "slow-thing", "error", "`x\x1b[2J`\r\n::error::<b>&]]>\x00\ufffe", Location(ODD_PATH, 1, 2, 1, 3)
        ),
        Finding("PA000", "slow-thing", "error", "a \udcff *b* _c_ [d](e) `", Location("\x07\udcff\n.py", 1, 1, 1, 2)),
    ),
    (Skipped("\x1b|.py", "\x1b[2J\n::error::"),),
    1,
)

CELL = Location("n.ipynb", 2, 5, 2, 9, cell=3)
NOTEBOOK = Report(
    "scan",
    (
        Finding("PA000", "slow-thing", "error", "slow", CELL, fix=Fix("mend it", "safe", diff=DIFF), fingerprint="89"),
        Finding("PA000", "slow-thing", "error", "slow", CELL, fix=Fix("mend it", "safe", diff=DIFF), fingerprint="89"),
    ),
    files=1,
)
