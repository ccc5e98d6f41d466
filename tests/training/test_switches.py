"""Patches of a loop that is running, put in place between two of its steps and taken back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_code

pytest.importorskip("greenlet")
SCRIPT = """
import torch
from torch import nn

log = []

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 3)

    def forward(self, x):
        return self.one(x)

def main():
    model, data = Net(), torch.ones(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(3):
        total, seen = 0.0, 0
        for step in range(8):
            optimizer.zero_grad()
            loss = model(data).square().mean()
            loss.backward()
            optimizer.step()
            total += loss.item()
            seen += 1
        log.append(total / seen)

if __name__ == "__main__":
    main()
"""
# Runs in a process of its own: a script changes what belongs to the whole process.
DRIVER = """
import json, os, sys
from perfaudit.target import overlay
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin, full_path
begin()
overlay.install({})
from perfaudit.training.code_change import NotSwappable
from perfaudit.training.patch_in_place import patch_in_place
from perfaudit.training.script_training import ScriptTraining
from perfaudit.training.switches import copies, load_with_switches
from perfaudit.training.together import Together
request = json.loads(sys.argv[1])
before, patches = request["before"], request["patches"]
load_with_switches({"train.py": (before, [*patches.values()])})
training = ScriptTraining(Target("train.py", {}, ()))
main = sys.modules["__main__"]
frame = training._script.gr_frame
while frame.f_code.co_name != "main":
    frame = frame.f_back

def names():
    return {name: type(frame.f_locals[name]).__name__ for name in ("total", "seen")}

def step(variant):
    variant.enter()
    training.whole_step()
    inside = names()
    variant.leave()
    return inside, names()

found = {"refused": {}}
variants = {}
for name, after in patches.items():
    try:
        patch = patch_in_place({"train.py": (before, after)})
    except NotSwappable as why:
        found["refused"][name] = str(why)
        continue
    variant = Together(patch.variants)
    variant.enter()
    missing = variant.parts_not_run(training.whole_step)
    variant.leave()
    if missing:
        found["refused"][name] = ", ".join(missing)
        continue
    variants[name] = variant
found["put in place"] = sorted(variants)
found["sums"] = step(variants["sums"])
found["control"] = step(copies([turn for part in variants["sums"].variants for turn in getattr(part, "turns", ())]))
before_wide = len(main.log)
variants["wide"].enter()
for _ in range(3):
    training.whole_step()
variants["wide"].leave()
found["wide"] = main.log[before_wide:]
for turn in range(8):  # over the end of an epoch, in turns
    (variants["sums"].enter if turn % 3 else variants["sums"].leave)()
    training.whole_step()
variants["sums"].leave()
found["log"] = [type(value).__name__ for value in main.log if value != "wide"]
found["globals"] = sorted(name for name in vars(main) if "perfaudit" in name or name == "math")
print("\\n" + json.dumps(found), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_patches_of_a_loop_take_turns_with_it_and_leave_it_as_it_was(tmp_path: Path) -> None:
    patches = {
        "sums": SCRIPT.replace("loss.item()", "loss.detach().float()").replace(
            "        log.append(", "        total = float(total)\n        log.append("
        ),
        # A statement of the loop, a function that it calls, and an import.
        "wide": SCRIPT.replace(
            "            seen += 1", '            log.append("wide" if math.pi else "")\n            seen += 1'
        )
        .replace("import torch\n", "import math\nimport torch\n", 1)
        .replace("self.one(x)", "self.one(x) * 1.0"),
        "head": SCRIPT.replace("in range(8)", "in range(9)"),
        "before the loop": SCRIPT.replace("total, seen = 0.0, 0", "total, seen = 0.0, 1"),
        "never run": SCRIPT.replace("log.append(total / seen)", "log.append(total / max(seen, 1))"),
    }
    (tmp_path / "train.py").write_text(SCRIPT)
    done = run_code(DRIVER, "driver.py", [json.dumps({"before": SCRIPT, "patches": patches})], tmp_path)
    assert done.out.strip(), done.err[-2000:]
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    assert found["put in place"] == ["sums", "wide"]
    assert "the loop at line 20 of" in found["refused"]["head"]
    assert "ran before the steps began" in found["refused"]["before the loop"]
    assert found["refused"]["never run"] == "line 27 of train.py"
    number, tensor = {"total": "float", "seen": "int"}, {"total": "Tensor", "seen": "int"}
    assert found["sums"] == [tensor, number]
    assert found["control"] == [number, number]
    assert [value for value in found["wide"] if value == "wide"] == ["wide"] * 3
    assert set(found["log"]) == {"float"}
    assert found["globals"] == []  # nothing is left in the script's own names


# The losses of twelve steps, over the end of an epoch; the patch is in place for those that are asked for.
LOSSES = """
import json, os, sys
from perfaudit.target import overlay
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin
begin()
overlay.install({})
from perfaudit.training.patch_in_place import patch_in_place
from perfaudit.training.script_training import ScriptTraining
from perfaudit.training.switches import load_with_switches
from perfaudit.training.together import Together
before, after, inside = json.loads(sys.argv[1])
load_with_switches({"train.py": (before, [after])})
training = ScriptTraining(Target("train.py", {}, ()))
variant = Together(patch_in_place({"train.py": (before, after)}).variants)
losses = []
for step in range(12):
    if step in inside:
        variant.enter()
    training.whole_step()
    losses.append(float(training.last_loss).hex())
    variant.leave()
print("\\n" + json.dumps(losses), flush=True)
os._exit(0)
"""


@pytest.mark.slow
def test_a_script_whose_loop_was_switched_goes_on_to_the_bit(tmp_path: Path) -> None:
    """The patch reads the loss in another way, in the loop and in a function, which changes nothing of what is learnt."""
    (tmp_path / "train.py").write_text(SCRIPT)
    after = SCRIPT.replace("loss.item()", "loss.detach().double().item()").replace(
        "return self.one(x)", "return self.one(x).clone()"
    )

    def losses(*inside: int) -> list[str]:
        done = run_code(LOSSES, "losses.py", [json.dumps([SCRIPT, after, inside])], tmp_path)
        assert done.out.strip(), done.err[-2000:]
        found: list[str] = json.loads(done.out.splitlines()[-1])
        return found

    untouched = losses()
    assert len(set(untouched)) > 1
    assert losses(3, 4, 5, 8) == untouched
