"""PA603 where a method of this file or of another one adds up what a step hands to it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

METERS = """
    import torch

    class AverageMeter:
        def __init__(self):
            self.reset()

        def reset(self):
            self.sum = 0
            self.count = 0

        def update(self, val, n=1):
            self.val = val
            self.sum += val * n
            self.count += n
            self.avg = self.sum / self.count

        def keep(self, val):
            self.last = val

        def read(self, val):
            self.sum += val.item()

        def asked(self, val):
            if isinstance(val, torch.Tensor):
                val = val.item()
            self.sum += val

        def maybe(self, val, is_on=False):
            if is_on:
                self.sum += val

        @torch.no_grad()
        def counted(self, val):
            self.sum += val
"""

LOOP = """
    import torch
    from meters import AverageMeter
    losses = AverageMeter()
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {line}
"""


def messages(folder: Path, line: str, in_one_file: bool) -> list[str]:
    code = textwrap.dedent(LOOP).format(line=line)
    if in_one_file:
        code = textwrap.dedent(METERS) + code.replace("from meters import AverageMeter\n", "")
    else:
        (folder / "meters.py").write_text(textwrap.dedent(METERS))
    (folder / "train.py").write_text(code)
    neighbours = Project(sorted(folder.rglob("*.py"))).seen_from(folder / "train.py")
    found = run_checks(Source("train.py", code, neighbours), all_rules(), frozenset(["PA603"]))
    return [finding.message for finding in found]


@pytest.mark.parametrize("in_one_file", [True, False])
@pytest.mark.parametrize("call", ["losses.update(loss)", "losses.update(loss, x.size(0))"])
def test_found(tmp_path: Path, call: str, in_one_file: bool) -> None:
    (message,) = messages(tmp_path, call, in_one_file)
    assert message.startswith(f"`{call}` ties the graphs of all steps together")
    assert "`self.sum += val * n` in `update`" in message
    assert message.endswith("meters.py line 14") is not in_one_file


@pytest.mark.parametrize("in_one_file", [True, False])
@pytest.mark.parametrize(
    "line",
    [
        "losses.update(loss.item())",
        "losses.update(loss.detach())",
        "losses.update(step)",
        "losses.keep(loss)",
        "losses.read(loss)",
        "losses.asked(loss)",
        "losses.maybe(loss)",
        "losses.counted(loss)",
        "losses.update(loss)\n    losses.reset()",
        "losses = AverageMeter()\n    losses.update(loss)",
        "with torch.no_grad():\n        losses.update(loss)",
        "unknown.update(loss)",
    ],
)
def test_silent(tmp_path: Path, line: str, in_one_file: bool) -> None:
    assert messages(tmp_path, line, in_one_file) == []
