"""Programs that live from what a rule would take away, or that a fix could break: they may be advised, never patched."""

from __future__ import annotations

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

DETECTING = """
import contextlib
import torch
from engine import unseen_step
torch.autograd.set_detect_anomaly(True)
def step(x):
    model(x).sum().backward()
def outer(x):
    return step(x)
"""
CAUGHT = """
for x in loader:
    try:
        {call}
    except {kinds}:
        print("skipped a batch")
"""
EVALUATING = """
import torch
from foreign import {imported}
net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
{before}
def run(loader{parameter}):
    net.eval()
    for x, y in loader:
        x = {call}
        print((net(x).argmax(1) == y).sum().item())
"""
COPYING = """
import numpy as np
import torch
from torch.utils.data import DataLoader
def blank(t):
    t[:, 0] = 0
for batch in DataLoader(dataset, batch_size=8, pin_memory=True):
    x = batch["image"]
    {before}
    on_device = x.cuda()
    {behind}
    model(on_device).sum().backward()
"""
SAMPLING = """
import numpy as np
import torch
{module}
class Samples(torch.utils.data.Dataset):
    def __getitem__(self, index):
        {body}
"""
LAUNCHING = """
import os
{imported}
os.environ["CUDA_LAUNCH_BLOCKING"] = "1"
{behind}
"""


def edits(rule: str, text: str) -> list[str]:
    """The titles of the fixes that would change the program."""
    rules = all_rules()
    findings = run_checks(Source("program.py", text), rules, frozenset([rule]))
    return [finding.fix.title for finding in findings if finding.fix and finding.fix.edits]


@pytest.mark.parametrize(
    "kinds", ["RuntimeError", "Exception", "(ValueError, RuntimeError)", "BaseException", "SKIPPED"]
)
@pytest.mark.parametrize("call", ["step(x)", "outer(x)", "unseen_step(x)", "trainer.fit_batch(x)"])
def test_anomaly_whose_error_is_caught(call: str, kinds: str) -> None:
    assert edits("PA501", DETECTING + CAUGHT.format(call=call, kinds=kinds)) == []


@pytest.mark.parametrize(
    "behind",
    [
        "for x in loader:\n    with contextlib.suppress(RuntimeError):\n        step(x)",
        "for x in loader:\n    with skipping_bad_batches():\n        outer(x)",
        "safely(step)(batch)",
        "",  # somebody else calls the step
    ],
)
def test_anomaly_whose_error_may_be_caught(behind: str) -> None:
    assert edits("PA501", DETECTING + behind) == []


def test_anomaly_nobody_waits_for() -> None:
    assert edits("PA501", DETECTING + "for x in loader:\n    outer(x)") != []
    assert edits("PA501", DETECTING + CAUGHT.format(call="outer(x)", kinds="KeyboardInterrupt")) != []


@pytest.mark.parametrize(
    ("imported", "before", "parameter", "call"),
    [
        ("craft", "craft.bind(net)", "", "craft(x, y)"),
        ("Craft", "craft = Craft(eps=3)\ncraft.bind(net)", "", "craft(x, y)"),
        ("Craft", "craft = Craft(net)", "", "craft.run(x)"),
        ("Craft", "table = {'a': Craft(net)}", "", "table['a'](x, y)"),
        ("lib", "table = {'sign': lambda x, y: lib.run(net, x, y)}", "", "table['sign'](x, y)"),
        ("lib", "", ", transform", "transform(x)"),
        ("lib", "", ", adapt=None", "adapt(x)"),
        ("Loss", "criterion = Loss(net)", "", "criterion(x, y)"),
        ("lib", "def prepare(x):\n    return lib.warp(x)", "", "prepare(x)"),
        ("lib", "", "", "next(map(lib.warp, [x]))"),
    ],
)
def test_evaluation_that_may_differentiate(imported: str, before: str, parameter: str, call: str) -> None:
    text = EVALUATING.format(imported=imported, before=before, parameter=parameter, call=call)
    assert edits("PA801", text) == []


def test_evaluation_that_does_not() -> None:
    text = EVALUATING.format(imported="lib", before="", parameter=", device", call="x.to(device).float()")
    assert edits("PA801", text) != []


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("", "x += 1"),
        ("", "z = x; z += 1"),
        ("z = x", "z.mul_(2)"),
        ("", "blank(x)"),
        ("", "torch.nn.init.zeros_(x)"),
        ("", "torch.clamp_(x, 0, 1)"),
        ("", "torch.mul(x, 2, out=x)"),
        ("", "np.asarray(x)[:] = 0"),
        ("", "x.view(-1)[0] = 1"),
        ("", "batch['image'].zero_()"),
        ("", "queue.put(batch)"),
        ("", "[t.zero_() for t in batch.values()]"),
        ("", "self.last = x"),
        ("", "x.float().zero_()"),
    ],
)
def test_batch_written_behind_its_copy(before: str, behind: str) -> None:
    assert edits("PA104", COPYING.format(before=before, behind=behind)) == []


def test_batch_only_read_behind_its_copy() -> None:
    assert edits("PA104", COPYING.format(before="z = x", behind="print(len(z), x.shape, batch['name'])")) != []


@pytest.mark.parametrize(
    ("module", "body"),
    [
        ("BASE = np.zeros(4)", "t = torch.tensor(BASE); t[index] = 1; return t"),
        ("", "a = np.zeros(4); t = torch.tensor(a); a += 1; return t"),
        ("", "a = np.zeros(4); t = torch.tensor(a); return t, a"),
        ("", "a = np.zeros(4); t = torch.tensor(a); self.cache[index] = a; return t"),
        ("", "a = np.zeros(4); return [torch.tensor(a) for _ in range(3)]"),
        ("", "a = b = np.zeros(4); t = torch.tensor(a); b[0] = 1; return t"),
        ("", "global a; a = np.zeros(4); return torch.tensor(a)"),
    ],
)
def test_array_that_lives_on(module: str, body: str) -> None:
    assert edits("PA107", SAMPLING.format(module=module, body=body)) == []


@pytest.mark.parametrize(
    ("imported", "behind"),
    [
        ("import subprocess", "subprocess.run(['python', 'kernel.py'])"),
        ("", "os.system('python kernel.py')"),
        ("import torch.multiprocessing as mp", "mp.spawn(main, nprocs=2)"),
        ("old = dict(os.environ)", "os.environ.clear(); os.environ.update(old)"),
        ("old = os.environ.copy()", "os.environ.update(old)"),
    ],
)
def test_environment_somebody_inherits_or_restores(imported: str, behind: str) -> None:
    assert edits("PA504", LAUNCHING.format(imported=imported, behind=behind)) == []


@pytest.mark.parametrize("path", ["test_net.py", "tests/run.py"])
def test_file_named_as_a_test_is_read_when_it_is_asked_for(path: str) -> None:
    text = DETECTING + "for x in loader:\n    step(x)\n"
    assert run_checks(Source(path, text), all_rules(), frozenset(["PA501"]))
    assert run_checks(Source(path, LAUNCHING.format(imported="", behind="")), all_rules(), frozenset(["PA504"]))
