"""PA601 in a script that moves nothing, where a file that it imports moves something to an accelerator."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

TOOLS = """
    import third
    import torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

    class Moved(Net):
        def __init__(self):
            super().__init__()
            self.layer.cuda()

    class Holding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = Moved()

    def build():
        return Net().cuda()

    class Still(Net):
        def __init__(self, act=torch.nn.ReLU):
            super().__init__()
            self.act = act()

    class Derived(Moved):
        pass

    class OnThird(third.Base):
        pass

    class OfThird(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = third.Part()

    class WithPlain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = third.Plain()

    class Helped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            place(self)

    class OfUnknown(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.part = third.hidden()

    def place(model):
        model.cuda()
"""
THIRD = """
    import torch
    from nowhere import hidden

    class Base(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.cuda()

    class Part(Base):
        pass

    class Plain(torch.nn.Module):
        def forward(self, x):
            return flat(x)

    def flat(x):
        return x.flatten()
"""
NAMES = "Derived, Helped, Holding, Moved, Net, OfThird, OfUnknown, OnThird, Still, WithPlain, build"
LOOP = """
    for x, y in loader:
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
IN_FUNCTION = """
    def train(model, loader):
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("before", "loop", "after", "is_told"),
    [
        ("model = Net()", LOOP, "", False),
        ("model = torch.nn.Linear(3, 1)", LOOP, "", False),
        ("model = Moved()", LOOP, "", True),
        ("model = Holding()", LOOP, "", True),  # a part of it moves itself
        ("model = build()", LOOP, "", True),
        ("model = Still()", LOOP, "", False),
        ("model = WithPlain()", LOOP, "", False),
        ("model = Derived()", LOOP, "", True),  # its base class moves itself
        ("model = OnThird()", LOOP, "", True),  # so does one of a third file
        ("model = OfThird()", LOOP, "", True),
        ("model = Helped()", LOOP, "", True),
        ("model = OfUnknown()", LOOP, "", True),  # what is not in sight may
        ("device = 'cuda'\n    print(device)\n    model = build()", LOOP, "", True),
        ("device = 'cuda'\n    model = torch.load('model.pt', map_location=device)", LOOP, "", True),
        ("model = Net()", IN_FUNCTION, "train(model, loader)", False),
        ("model = Net()", IN_FUNCTION, "train(model=model, loader=loader)", False),
        ("model = build()", IN_FUNCTION, "train(model, loader)", True),
        ("model = Net()\n    move(model)", IN_FUNCTION, "train(model, loader)", True),
        ("model = Net()", IN_FUNCTION, "train(build(), loader)", True),
        ("model = Net()", IN_FUNCTION, "train(model, loader)\n    train(build(), loader)", True),
        ("model = Net()", IN_FUNCTION, "run(train)", True),
    ],
)
def test_what_the_model_is_decides(tmp_path: Path, before: str, loop: str, after: str, is_told: bool) -> None:
    main = f"import torch\n    from tools import {NAMES}\n    {before}\n{loop}\n    {after}\n"
    (tmp_path / "tools.py").write_text(textwrap.dedent(TOOLS))
    (tmp_path / "third.py").write_text(textwrap.dedent(THIRD))
    (tmp_path / "main.py").write_text(text := textwrap.dedent("    " + main))
    source = Source("main.py", text, Project(sorted(tmp_path.glob("*.py"))).seen_from(tmp_path / "main.py"))
    assert bool(run_checks(source, all_rules(), frozenset(["PA601"]))) is is_told
