"""PA105 says "on every step" only where nothing on the way holds now and then."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

FORWARD = """
import torch

class Loss(torch.nn.Module):
    def forward(self, x, boxes, step):
        if {test}:
            {body}
        else:
            {other}
"""
BUILT = "return torch.ones(4).cuda() * x"


@pytest.mark.parametrize(
    ("test", "body", "other", "is_each_step"),
    [
        ("boxes.shape[0] == 0", BUILT, "return x", False),
        ("step % 100 == 0", BUILT, "return x", False),
        ("boxes.shape[0] == 0", "return x", BUILT, True),  # as a rule
        ("self.training", BUILT, "return x", True),
    ],
)
def test_on_every_step(test: str, body: str, other: str, is_each_step: bool) -> None:
    source = Source("loss.py", FORWARD.format(test=test, body=body, other=other))
    (finding,) = run_checks(source, all_rules(), frozenset({"PA105"}))
    assert ("on every step" in finding.message) is is_each_step
