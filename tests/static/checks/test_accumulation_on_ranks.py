"""What PA703 advises where a step for the rest stands behind the loop."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

ACCUMULATING = """\
from torch.nn.parallel import DistributedDataParallel as DDP

model = DDP(model, device_ids=[rank])
for i, x in enumerate(loader):
    model(x).mean().backward()
    if (i + 1) % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        ("", ""),
        ("scheduler.step()\n", ""),
        ("if len(loader) % 4:\n    optimizer.step()\n", "the last pass before the step of line 10 as well"),
        ("scaler.step(optimizer)\n", "the last pass before the step of line 9 as well"),
        ("def other():\n    optimizer.step()\n", ""),
    ],
)
def test_a_step_for_the_rest_needs_summed_gradients_as_well(behind: str, said: str) -> None:
    found = run_checks(Source("train.py", ACCUMULATING + behind), all_rules(), None)
    (title,) = [each.fix.title for each in found if each.rule == "PA703" and each.fix is not None]
    assert said in title
    assert bool(said) == ("or each rank steps with its own gradients" in title)
