"""What examples of rule files cannot say: how safe each fix is, which findings are hot, and paths that are silent."""

from __future__ import annotations

import pytest

from perfaudit.findings import Finding
from perfaudit.rules import all_rules
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source

TRAINING = """
import torch
{model}
for x, y in loader:
    optimizer.zero_grad(set_to_none=False)
    criterion(model(x), y).backward()
    optimizer.step()
"""
BRANCHING = """
class Model(torch.nn.Module):
    def forward(self, x):
        return self.a(x) if x.mean() > 0 else self.b(x)
"""
SEQUENTIAL = "model = torch.nn.Sequential(torch.nn.Linear(4, 4))"

VISIBLE = """
class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(3)])

    def forward(self, x):
        return self.layers(x)

def build():
    return Model(4)

model = build().to("cpu")
"""
BACKBONE = "import timm\nmodel = torch.nn.Sequential(timm.create_model('vit'), torch.nn.Linear(4, 4))"
HANDED_IN = """
from models import backbone
class Model(torch.nn.Module):
    def __init__(self, backbone):
        super().__init__()
        self.backbone = backbone

    def forward(self, x):
        return self.backbone(x)

model = Model(backbone)
"""
LOSS = """
import torch
model = torch.nn.Linear(4, 4)
aux = torch.nn.Linear(4, 4)
for step, (x, y) in enumerate(loader):
    optimizer.zero_grad(set_to_none=False)
    h = model(x)
    loss = criterion(h, y)
    {more}
    loss.backward()
    optimizer.step()
"""
EXTRA = """
def extra(h, step):
    if step % 2:
        return 0
    return aux(h).mean()
"""
EVAL = """
import torch
{model}
model.eval()
for x in loader:
    print(model(x).mean())
"""


def findings(rule: str, code: str, path: str = "train.py") -> list[Finding]:
    return run_checks(Source(path, code), all_rules(), frozenset([rule]))


@pytest.mark.parametrize(
    ("rule", "code", "safety", "changes"),
    [
        ("PA105", "import torch\nx = torch.zeros(3).cuda()", "safe", ()),
        ("PA105", "import torch\nx = torch.arange(n).cuda()", "safe", ()),
        ("PA105", "import torch\nx = torch.arange(2, n, 3).cuda()", "safe", ()),
        ("PA105", "import torch\nx = torch.arange(0.1, n).cuda()", "unsafe", ("rounding",)),
        ("PA105", "import torch\nx = torch.arange(n, step=s).cuda()", "unsafe", ("rounding",)),
        ("PA105", "import torch\nx = torch.linspace(0, 1, 5).cuda()", "unsafe", ("rounding",)),
        ("PA105", "import torch\nx = torch.randn(3).cuda()", "unsafe", ("rng",)),
        ("PA401", TRAINING.format(model=SEQUENTIAL), "safe", ()),
        ("PA401", TRAINING.format(model="from models import model"), "unsafe", ("algorithm",)),
        ("PA401", TRAINING.format(model=BRANCHING), "unsafe", ("algorithm",)),
        ("PA401", TRAINING.format(model=SEQUENTIAL + "; model.requires_grad_(stage > 1)"), "unsafe", ("algorithm",)),
        ("PA401", TRAINING.format(model=VISIBLE), "safe", ()),
        ("PA401", TRAINING.format(model=BACKBONE), "unsafe", ("algorithm",)),
        ("PA401", TRAINING.format(model=HANDED_IN), "unsafe", ("algorithm",)),
        ("PA401", LOSS.format(more="if step % 2 == 0:\n        loss = loss + aux(h).mean()"), "unsafe", ("algorithm",)),
        ("PA401", LOSS.format(more="loss = loss + (aux(h).mean() if step % 2 else 0)"), "unsafe", ("algorithm",)),
        (
            "PA401",
            LOSS.format(more="for head in heads[:step]:\n        loss += aux(h).mean()"),
            "unsafe",
            ("algorithm",),
        ),
        ("PA401", LOSS.format(more="if step % 9 == 0:\n        print(loss.item())"), "safe", ()),
        ("PA401", LOSS.format(more="loss = loss + extra(h, step)") + EXTRA, "unsafe", ("algorithm",)),
        ("PA801", EVAL.format(model=SEQUENTIAL), "safe", ()),
        ("PA801", EVAL.format(model=VISIBLE), "safe", ()),
        ("PA801", EVAL.format(model="model = torch.nn.LSTM(4, 4)"), "unsafe", ("rounding",)),
        ("PA801", EVAL.format(model="model = torch.nn.GRU(4, 4)"), "unsafe", ("rounding",)),
        ("PA801", EVAL.format(model="from models import model"), "unsafe", ("rounding",)),
        ("PA801", EVAL.format(model=BACKBONE), "unsafe", ("rounding",)),
        ("PA801", EVAL.format(model=""), "unsafe", ("rounding",)),
    ],
)
def test_safety(rule: str, code: str, safety: str, changes: tuple[str, ...]) -> None:
    (finding,) = findings(rule, code)
    assert finding.fix is not None
    assert (finding.fix.safety, finding.fix.changes) == (safety, changes)


@pytest.mark.parametrize(
    ("code", "hot"),
    [
        ("def forward(self, x):\n    return x + torch.ones(3).to(x.device)", True),
        ("for x in loader:\n    mask = torch.ones(3).cuda()\n    model(x, mask).backward()", True),
        ("def step(x):\n    model(x, torch.ones(3).cuda()).backward()\nfor x in loader:\n    step(x)", True),
        ("mask = torch.ones(3).cuda()\nfor x in loader:\n    model(x, mask).backward()", False),
    ],
)
def test_hot(code: str, hot: bool) -> None:
    (finding,) = findings("PA105", "import torch\n" + code)
    assert finding.hot is hot


@pytest.mark.parametrize("path", ["train.py", "tests/train.py", "src/test_train.py", "conftest.py"])
def test_where_anomaly_detection_is_left_on(path: str) -> None:
    """The scan leaves test files out, whatever the rule; in one that is read, a function that tests is silent."""
    code = "import torch\ntorch.autograd.set_detect_anomaly(True)\n"
    assert len(findings("PA501", code, path)) == 1
    assert findings("PA501", code.replace("torch.auto", "def test_it():\n torch.auto"), path) == []
