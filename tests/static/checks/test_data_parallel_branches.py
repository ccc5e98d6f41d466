"""PA701 beside a branch that wraps otherwise: which flag the advice names."""

from __future__ import annotations

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

BRANCHES = """
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

{flag} = False
if distributed:
    model = DDP(model, device_ids=[rank])
elif {flag}:
    model = {other}
else:
    model = torch.nn.DataParallel(model)
"""


def findings(text: str) -> list[Finding]:
    return list(run_checks(Source("train.py", text), all_rules(), frozenset(["PA701"])))


@pytest.mark.parametrize(
    ("flag", "other", "is_named"),
    [("distributed", "DDP(model)", True), ("use_ddp", "wrap_ddp(model)", True), ("use_cpu", "model.cpu()", False)],
)
def test_the_advice_names_a_flag_that_is_off_only_where_it_wraps_otherwise(
    flag: str, other: str, is_named: bool
) -> None:
    [finding] = findings(BRANCHES.format(flag=flag, other=other))
    assert finding.fix is not None
    assert (f"set `{flag}`" in finding.fix.title) is is_named
    assert (finding.severity == "hint") is not is_named
