"""A script that raises in a race of fresh processes: by itself, where the code as it is does so too, or because of the patch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfaudit.measure.facts import Facts
from perfaudit.measure.lab import ChildLab
from perfaudit.measure.ledger import Variant
from perfaudit.measure.runner import ENDS_EARLY, TrialEnded, TrialFailed
from perfaudit.tune.tolerance import losses_command

TRAIN = """
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(99):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    if step == LAST:
        torch.load("pretrained.pt")
"""
OWN, NEVER = TRAIN.replace("LAST", "20"), TRAIN.replace("LAST", "1000")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "patched", "kind"),
    [
        (OWN, "import math\n" + OWN, TrialEnded),  # its lines are others
        (NEVER, OWN, TrialFailed),
    ],
)
def test_whose_fault_it_is_that_a_script_ends(
    project: Callable[..., Path], text: str, patched: str, kind: type[TrialFailed]
) -> None:
    """Whichever of the two comes there first."""
    project(**{"train.py": text})
    target = {"file": "train.py", "names": {}, "arguments": [], "scratch": "", "shared": ""}
    lab = ChildLab(target, "cpu")
    opened = lab.open([Variant("base", "", {}), Variant("patch", "", {}, {"train.py": patched})])
    base, patch = opened["base"], opened["patch"]
    assert not isinstance(base, TrialFailed) and not isinstance(patch, TrialFailed)
    try:
        with pytest.raises(TrialFailed, match="pretrained") as raised:
            patch.block(30)
        assert type(raised.value) is kind
        assert bool(lab.own_ends) == (kind is TrialEnded)
    finally:
        base.close()
        patch.close()


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "said"), [(30, "your code ends so without a patch, too"), (19, ENDS_EARLY)])
def test_an_end_within_the_check_of_a_script_is_told_as_its_own(
    project: Callable[..., Path], steps: int, said: str
) -> None:
    """And one behind the check, while it is warmed up, as no fault that was found in it."""
    project(**{"train.py": OWN})
    target = {"file": "train.py", "names": {}, "arguments": [], "scratch": "", "shared": ""}

    def check(child: Any, variant: Variant, facts: Facts) -> None:
        child.ask(losses_command(steps), 60)

    lab = ChildLab(target, "cpu", check=check)
    opened = lab.open([Variant("base", "", {}), Variant("patch", "", {}, {"train.py": "import math\n" + OWN})])
    for end in (opened["base"], opened["patch"]):
        assert isinstance(end, TrialFailed)
        assert str(end).startswith(said)
        assert "pretrained" in str(end)
