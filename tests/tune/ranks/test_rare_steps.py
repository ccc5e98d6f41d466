"""Steps behind some passes only, in other words than `if (i + 1) % n == 0`: which get `no_sync`, and what is said of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import candidates_of

START = """\
from torch import nn
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(nn.Linear(2, 2))
count = 0
for i, x in enumerate(loader):
"""
PASS = """\
    loss = model(x).mean()
    loss.backward()
"""
STEP = """\
        optimizer.step()
        optimizer.zero_grad()
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tried(loop: str) -> tuple[str, str]:
    """What the patch asks for the last pass, and what is said of `no_sync` otherwise."""
    text = f"{START}{loop}"
    compile(text, "train.py", "exec")
    Path("train.py").write_text(text)
    found = candidates_of(["train.py"], frozenset(CHANGES))
    (said,) = [each for each in found.left if "no_sync" in each] or [""]
    texts = [each.text for each in found.candidates if each.key == "no_sync=True"]
    for each in texts:
        compile(each, "train.py", "exec")
    lines = [line for each in texts for line in each.splitlines() if "no_sync()" in line]
    return (lines[0].partition("nullcontext() if ")[2].partition(" else model.no_sync()")[0] if lines else ""), said


FLAG = "    last = (i + 1) % 4 == 0\n"
WITH_FLAG = f"    if last:\n{STEP}"
ELSE = f"    if (i + 1) % 4 != 0:\n        print(i)\n    else:\n{STEP}"
CONTINUE = "    if (i + 1) % 4:\n        continue\n    optimizer.step()\n    optimizer.zero_grad()\n"
SINCE = f"    if i - count >= 4:\n{STEP}        count = i\n"
ANEW = f"    count += 1\n    if count == 4:\n{STEP}        count = 0\n"


@pytest.mark.parametrize(
    ("loop", "asked"),
    [
        (FLAG + PASS + WITH_FLAG, "last"),
        (FLAG + PASS + WITH_FLAG.replace("if last", "if last or i + 1 == len(loader)"), "last or i + 1 == len(loader)"),
        (FLAG + PASS + "    if not last:\n        continue\n    optimizer.step()\n", "last"),
        (PASS + FLAG + WITH_FLAG, "(i + 1) % 4 == 0"),
        (PASS + "    count += 1\n" + FLAG.replace("(i + 1)", "count") + WITH_FLAG, "(count + 1) % 4 == 0"),
        (PASS + FLAG.replace("(i + 1)", "count") + "    count += 1\n" + WITH_FLAG, "count % 4 == 0"),
        (PASS + ELSE, "(i + 1) % 4 == 0"),
        (PASS + ELSE.replace(" != 0", ""), "not (i + 1) % 4"),
        (PASS + CONTINUE, "not (i + 1) % 4"),
        (PASS + CONTINUE + "    for each_optimizer in some:\n        each_optimizer.step()\n", "not (i + 1) % 4"),
        (PASS + ANEW, "count + 1 == 4"),
        (PASS + ANEW.replace("==", ">="), "count + 1 >= 4"),
        (PASS + SINCE, "i - count >= 4"),
        ("    n = i + 9 * epoch\n" + PASS + SINCE.replace("if i", "if n").replace("= i", "= n"), "n - count >= 4"),
    ],
)  # fmt: skip
def test_the_patch_asks_in_front_of_the_pass_what_the_step_depends_on(loop: str, asked: str) -> None:
    assert tried(loop)[0] == asked, tried(loop)


NOT_TOLD = "the text in front of a pass does not tell whether the condition of train.py:"
LATE = "is known behind the pass only"


@pytest.mark.parametrize(
    ("loop", "why"),
    [
        # the name says something else behind the pass
        (FLAG + PASS + "    last = last or x.isnan().any()\n" + WITH_FLAG, NOT_TOLD),
        (FLAG + PASS + "    if x.isnan().any():\n        last = True\n" + WITH_FLAG, LATE),
        (PASS + FLAG + "    if x.isnan().any():\n        last = True\n" + WITH_FLAG, NOT_TOLD),
        (PASS + "    last = loss.item() % 4 == 0\n" + WITH_FLAG, "calls something"),
        (PASS.replace("    loss.b", FLAG + "    loss.b") + WITH_FLAG, LATE),
        # what is asked is changed in the pass
        (PASS + "    i = i + 1\n" + ELSE, NOT_TOLD),
        (PASS + "    if loss > 1:\n        count += 1\n" + ANEW, LATE),
        (PASS + "    count = count + 1\n" + ANEW.partition("\n")[2], NOT_TOLD),
        # other steps, gradients that are read in other turns
        (PASS + ELSE.replace("        print(i)\n", "        other_optimizer.step()\n"), ""),
        (PASS + ELSE + "optimizer.step()\n", "an optimizer steps at train.py:13, too"),
        (PASS + ELSE.replace("print(i)", "print(model.weight.grad)"), "gradients are looked at in each pass"),
        (PASS + CONTINUE.replace("        continue", "        clip_grad_norm_(ps, 1.0)\n        continue"), "are looked at"),
        ("    if x.isfinite().all():\n" + PASS.replace("    l", "        l") + CONTINUE, "may be left out"),
        # a count that is compared, and is not known to start anew
        (PASS + ANEW.replace("        count = 0\n", ""), NOT_TOLD),
        (PASS + ANEW.replace("count == 4", "count == 4 and ok"), NOT_TOLD),
        (PASS + ANEW.replace("        count = 0\n", "        count = 9\n"), NOT_TOLD),
        (PASS + SINCE.replace("count = i", "count = 0"), ""),
        (PASS + "    i = x.shape[0]\n" + SINCE, NOT_TOLD),
        # steps in each turn
        (PASS + ELSE + "    critic_optimizer.step()\n", ""),
        (PASS + CONTINUE.replace("continue", "print(i)"), ""),
        # a question that counts nothing
        (PASS + f"    if loss.isfinite():\n{STEP}", ""),
        (PASS + f"    if scaler is None:\n{STEP}    else:\n        scaler.step(optimizer)\n", ""),
    ],
)  # fmt: skip
def test_no_patch_where_the_step_may_follow_another_pass(loop: str, why: str) -> None:
    asked, said = tried(loop)
    assert asked == ""
    assert (why in said) and bool(why) == bool(said), said
