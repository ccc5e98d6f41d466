"""PA701 in branches: beside one that wraps otherwise, and where a model was wrapped before."""

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


AROUND = """
import torch

def convert(model, config):
    {test}
        return torch.nn.DataParallel(inner(model), device_ids=config.device_ids)
    return torch.nn.Sequential(model)
"""


@pytest.mark.parametrize(
    ("test", "is_told"),
    [
        ("if isinstance(config, torch.nn.DataParallel):", False),
        ("if isinstance(config, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel)):", False),
        ("if isinstance(config, Config):", True),
        ("if isinstance(config, (torch.nn.DataParallel, Config)):", True),
        ("if isinstance(config, torch.nn.DataParallel):\n        print(config)\n    else:", True),
    ],
)
def test_a_model_is_wrapped_again_only_where_it_was_wrapped_before(test: str, is_told: bool) -> None:
    assert bool(findings(AROUND.format(test=test))) is is_told
