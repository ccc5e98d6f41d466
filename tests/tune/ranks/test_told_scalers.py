"""A call that makes both pass and step, and is told which is the last: `no_sync` where its class shows what it does."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import HEAD, of, patched_line

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import Choice, candidates_of
from perfaudit.tune.ranks.patches import SeenRanks

SCALER = """\
import torch
class Scaler:
    def __init__(self):
        self._scaler = torch.cuda.amp.GradScaler()
    def __call__(self, loss, optimizer, clip=None, parameters=None, create_graph=False, update_grad=True):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if update_grad:
            self._scaler.unscale_(optimizer)
            norm = torch.nn.utils.clip_grad_norm_(parameters, clip)
            self._scaler.step(optimizer)
            self._scaler.update()
        else:
            norm = None
        return norm
    def state_dict(self):
        return self._scaler.state_dict()
"""
ENGINE = """\
import rates
def train(model, loader, optimizer, loss_scaler, args, epoch, meter):
    for i, x in enumerate(loader):
        rates.adjust(optimizer, i)
        loss = model(x).mean()
        loss /= args.accum
        norm = loss_scaler(loss, optimizer, clip=1.0, parameters=model.parameters(), update_grad=(i + 1) % args.accum == 0)
        if (i + 1) % args.accum == 0:
            optimizer.zero_grad()
        meter.update(norm)
        lrs = [group["lr"] for group in optimizer.param_groups]
        meter.update(scale=loss_scaler.state_dict()["scale"])
"""
RATES = """\
def adjust(optimizer, i):
    for group in optimizer.param_groups:
        if "lr_scale" in group:
            group["lr"] = 0.1 * group["lr_scale"]
        else:
            group["lr"] = 0.1
    return i
"""
MAIN = """\
from engine import train
from scaling import Scaler
model = DDP(nn.Linear(2, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
loss_scaler = Scaler()
train(model, loader, optimizer, loss_scaler, args, 0, meter)
"""
TOLD = "`loss_scaler` of engine.py:7 makes the passes and the steps, in its own code"
FILES = {"train.py": HEAD + MAIN, "engine.py": ENGINE, "scaling.py": SCALER, "rates.py": RATES}


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def choice_of(files: dict[str, str]) -> Choice:
    for name, text in files.items():
        compile(text, name, "exec")
        Path(name).write_text(text)
    return candidates_of([*files], frozenset(CHANGES), SeenRanks())


def test_passes_that_are_told_not_to_step_need_not_be_summed() -> None:
    found = choice_of(FILES)
    wrapped = "torch.nn.parallel.DistributedDataParallel"
    said = f"(i + 1) % args.accum == 0 or not isinstance(model, {wrapped})"
    assert patched_line(found) == f"with contextlib.nullcontext() if {said} else model.no_sync():"
    patch = of(found, "no_sync=True")
    assert patch is not None and "            norm = loss_scaler(loss" in patch.text


@pytest.mark.parametrize(
    ("file", "old", "new", "why"),
    [
        ("train.py", "from scaling import", "from timm.utils import", TOLD),  # another class of that name
        ("train.py", "loss_scaler = Scaler()", "loss_scaler = make()", TOLD),
        ("train.py", "loss_scaler = Scaler()", "loss_scaler = Scaler() if amp else None", TOLD),
        ("scaling.py", "class Scaler:", "class Scaler(Base):", TOLD),
        ("scaling.py", "            norm = None\n", "            norm = norm_of(parameters)\n", TOLD),
        ("scaling.py", "            norm = None\n", "            norm = parameters[0].grad\n", TOLD),
        ("scaling.py", "        return norm\n", "        self._scaler.step(optimizer)\n        return norm\n", TOLD),
        ("scaling.py", "        if update_grad:\n", "        self._scaler.unscale_(optimizer)\n        if update_grad:\n", TOLD),
        ("scaling.py", "        if update_grad:\n", "        if update_grad and clip:\n", TOLD),
        ("engine.py", "update_grad=", "create_graph=", TOLD),
        ("engine.py", "        meter.update(norm)\n", "        clip(model)\n", "`clip` of engine.py:10 gets the model"),
        ("engine.py", "        meter.update(norm)\n", "        if i:\n            optimizer.step()\n", "steps at engine.py:11"),
        ("rates.py", '            group["lr"] = 0.1\n', "            shrink(group)\n", "`rates.adjust` of engine.py:4 gets"),
    ],
)  # fmt: skip
def test_a_scaler_that_may_read_gradients_in_each_pass_is_told_and_no_more(
    file: str, old: str, new: str, why: str
) -> None:
    assert old in FILES[file]
    found = choice_of(FILES | {file: FILES[file].replace(old, new)})
    assert of(found, "no_sync=True") is None
    assert any(why in each for each in found.left if each.startswith("no_sync")), found.left
