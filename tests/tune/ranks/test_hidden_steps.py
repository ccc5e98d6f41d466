"""Accumulations of which no loop shows both the passes and the step: they are told, and no more."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import choice, of

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import candidates_of

START = """\
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
def run(x):
    model(x).mean().backward()
"""
LOOP = "for i, x in enumerate(loader):\n"
PASS = "    model(x).mean().backward()\n"
STEP = "def step():\n    optimizer.step()\n"
FUNCTION = (
    "an optimizer steps behind some passes only, as train.py:{} has it, and no loop shows both its passes and its steps"
)
DEEPER = (
    "an optimizer steps behind some passes only, as train.py:{} has it, and the pass does not stand in front of that condition "
    "in the same block"
)
RARE = "if (i + 1) % 4 == 0:  # here\n"
SCALER = "`{0}` of train.py:{{}} makes the passes and the steps, in its own code"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{LOOP}    loss_scaler(model(x), optimizer, up=(i + 1) % 4 == 0)  # here\n", SCALER.format("loss_scaler")),
        (f"{LOOP}    self.scaler(model(x), optimizer, (i + 1) % 4 == 0)  # here\n{PASS}", SCALER.format("self.scaler")),
        (f"{STEP}{LOOP}{PASS}    if (i + 1) % 4 == 0:  # here\n        step()\n", FUNCTION),
        (f"{STEP}{LOOP}    run(x)\n    if (i + 1) % 4 == 0:  # here\n        step()\n", FUNCTION),
        (
            f"def end(i):\n    if i % 4 == 0:  # here\n        optimizer.step()\n{LOOP}    run(x)\n    end(i)\n",
            FUNCTION,
        ),
        (
            "def end(i):\n    if i - optimizer.last >= 4:  # here\n        optimizer.step()\n        optimizer.last = i\n"
            f"{LOOP}    run(x)\n    end(i)\n",
            FUNCTION,
        ),
        (f"{LOOP}    for j in range(4):  # here\n        run(x)\n    optimizer.step()\n", FUNCTION),
        (f"{LOOP}{PASS}    if i > 9:\n        {RARE}            optimizer.step()\n", DEEPER),
        (
            f"{LOOP}    try:\n    {PASS}    except RuntimeError:\n        pass\n    {RARE}        optimizer.step()\n",
            DEEPER,
        ),
        (f"{LOOP}{PASS}    other_optimizer.step()\n    if i > 9:\n        {RARE}            optimizer.step()\n", ""),
        (
            f"{LOOP}    if i > 9:\n        {RARE}            model(x).mean().backward()\n            optimizer.step()\n",
            "",
        ),
        (
            f"def other():\n    run(1)\n    o.backward()\n    optimizer.step()\n{LOOP}{PASS}    {RARE}        other()\n",
            "",
        ),
        # a step for each pass, something else that is rare, and a loop over other things
        (f"{STEP}{LOOP}    run(x)\n    step()\n", ""),
        (f"{LOOP}    run(x)\n    optimizer.step()\n    if i % 100 == 0:\n        print(i)\n", ""),
        (f"{LOOP}    run(x)\n    optimizer.step()\n    adjust(optimizer, i)\n", ""),
        (f"for j in range(4):\n    run(j)\n    optimizer.step()\n{LOOP}    print(i)\n", ""),
    ],
)
def test_a_function_that_makes_the_pass_or_the_step_is_told(text: str, said: str) -> None:
    found = choice(START + text)
    assert of(found, "no_sync=True") is None
    lines = Path("train.py").read_text().splitlines()
    line = next((number for number, each in enumerate(lines, 1) if "# here" in each), 0)
    assert [each for each in found.left if each.startswith("no_sync")] == [
        f"no_sync is not tried: {each.format(line)}" for each in [said] if each
    ], found.left


@pytest.mark.parametrize("text", ["model.require_backward_grad_sync = False\n", "from accelerate import Accelerator\n"])
def test_a_file_that_decides_itself_when_gradients_are_summed_is_left_out(text: str) -> None:
    Path("net.py").write_text("from torch.nn.parallel import DistributedDataParallel as DDP\nnet = DDP(n)\n")
    Path("train.py").write_text(f"{text}{STEP}{LOOP}{PASS}    if (i + 1) % 4 == 0:\n        step()\n")
    assert not any(
        "in its own code" in each or "no loop" in each
        for each in candidates_of(["net.py", "train.py"], frozenset(CHANGES)).left
    )
