"""PA603 and parts of a loss that a method of another file gives beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.static.test_programs_of_several_files import findings_in, write

AGENT = """
import torch

class Agent(torch.nn.Module):
    @staticmethod
    def losses(values, returns, log):
        gap = returns - values
        policy = -(gap * log).mean(0)
        value = gap.pow(2).mean(0)
        loss = policy + 0.5 * value
        return policy, value, loss
"""
SCRIPT = """
import torch
from agent import Agent

agent = Agent()
policies, values = 0, 0
for step, batch in enumerate(loader):
    policy, value, loss = agent.losses(*batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    policies += policy
    values += value
    if step % 100 == 0:
        print(policies.item(), values.item())
        policies = values = 0
"""


def test_parts_are_advised_to_be_detached(tmp_path: Path) -> None:
    found = findings_in(write(tmp_path, {"agent.py": AGENT, "train.py": SCRIPT}), "train.py", {"PA603"})
    assert [f.location.line for f in found if f.location] == [12, 13]
    assert found[0].message == (
        "`policies += policy` ties the graphs of all steps together until `policies` starts again, and frees none of them before"
    )
    assert [f.fix.title for f in found if f.fix] == ["add up the detached loss"] * 2
    assert not any(f.fix.edits for f in found if f.fix)


@pytest.mark.parametrize(
    "agent",
    [
        AGENT.replace("return policy, value, loss", "return policy.item(), float(value), loss"),
        AGENT.replace("loss = policy + 0.5 * value", "loss = other(gap)"),  # no parts of it
        AGENT.replace("        loss =", "        policy, value = policy.detach(), value.item()\n        loss ="),
        AGENT.replace(
            "        return policy", "        if log is None:\n            return loss\n        return policy"
        ),
        AGENT.replace("    @staticmethod", "    @measured\n    @staticmethod"),
    ],
)
def test_silent_where_they_are_numbers_or_nobody_knows(tmp_path: Path, agent: str) -> None:
    assert findings_in(write(tmp_path, {"agent.py": agent, "train.py": SCRIPT}), "train.py", {"PA603"}) == []
