"""How severe one finding is: that of its rule, less as a hint, more where this place costs more than most."""

from __future__ import annotations

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

FLAGS = """\
from torch.backends import cudnn
cudnn.deterministic = True
cudnn.enabled = False
"""


def test_a_training_without_cudnn_is_warned_of() -> None:
    found = run_checks(Source("a.py", FLAGS), all_rules(), frozenset(["PA302"]))
    assert {finding.location.line: finding.severity for finding in found if finding.location} == {
        2: "info",
        3: "warning",
    }
