"""Which optimizers are spread over the ranks."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_choices import HEAD, choice, of, patched

from perfaudit.findings import CHANGES
from perfaudit.tune.ranks.candidates import candidates_of
from perfaudit.tune.ranks.patches import SeenRanks


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_an_optimizer_is_spread_over_the_ranks() -> None:
    text = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    key = "optimizer='ZeroRedundancyOptimizer'"
    assert "ZeroRedundancyOptimizer(model.parameters(), lr=0.1, optimizer_class=torch.optim.AdamW)" in patched(
        choice(text), key
    )
    by_place = choice(text.replace("lr=0.1", "0.1"))
    assert any("by position" in each for each in by_place.left)
    two = choice(text + text.splitlines()[1].replace("optimizer =", "other ="))
    assert any("makes 2 optimizers" in each for each in two.left)


@pytest.mark.parametrize(
    ("behind", "line"),
    [
        ("torch.save(optimizer.state_dict(), 'last.pt')\n", 9),
        ("torch.save({'optimizer': optimizer}, 'last.pt')\n", 9),
        ("optimizer.load_state_dict(torch.load('last.pt'))\n", 9),
        ("save_all(model, optimizer)\n", 9),
        ("states = [each.state_dict() for each in (model, optimizer)]\n", 9),
        ("other = optimizer\n", 9),
        ("def save(o):\n    torch.save(o.state_dict(), 'last.pt')\nsave(optimizer)\n", 10),
        ("def save(o):\n    torch.save(o.state_dict(), 'last.pt')\nsave(o=optimizer)\n", 10),
        ("def save(*, o):\n    torch.save(o.state_dict(), 'last.pt')\nsave(o=optimizer)\n", 10),
        ("def save(**o):\n    torch.save(o['a'].state_dict(), 'last.pt')\nsave(a=optimizer)\n", 11),
        ("def save(*o):\n    torch.save(o[0].state_dict(), 'last.pt')\nsave(optimizer)\n", 11),
        ("def train(o):\n    o.step()\n    keep(o)\ntrain(optimizer)\n", 11),
        ("trainer.optimizer.state_dict()\n", 9),
        ("torch.save(globals(), 'last.pt')\n", 9),
        ("save({name: globals()[name] for name in wanted})\n", 9),
        ("torch.save(vars(), 'last.pt')\n", 9),
        ("net = globals()[args.net](2)\n", 0),
        ("print('net' in globals(), vars(args))\n", 0),
        ("def train(o):\n    o.step()\ntrain(optimizer)\n", 0),
        ("schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)\nschedule.state_dict()\n", 0),
        ("from transformers import get_scheduler\nget_scheduler('linear', optimizer=optimizer)\n", 0),
        ("from transformers import get_linear_schedule_with_warmup as warm\nwarm(optimizer, 1, 2)\n", 0),
        ("from transformers import Trainer\nTrainer(optimizer)\n", 10),
        ("scaler.unscale_(optimizer)\nscaler.step(optimizer)\noptimizer.zero_grad()\n", 0),
        ("optimizer.param_groups[0]['lr'] = 0.1\nmodel.state_dict()\n", 0),
    ],
)
def test_an_optimizer_whose_state_is_asked_for_is_not_spread_over_the_ranks(behind: str, line: int) -> None:
    text = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    found = choice(text + behind)
    assert (of(found, "optimizer='ZeroRedundancyOptimizer'") is None) == bool(line), found.left
    assert not line or any(f"train.py:{line} reads the optimizer's state" in each for each in found.left), found.left


@pytest.mark.parametrize(
    ("body", "is_tried"), [("o.param_groups[0]['lr'] = 0.1", True), ("torch.save(o.state_dict(), 'last.pt')", False)]
)
@pytest.mark.parametrize(
    "call", ["from lib import rate\nrate.adjust(optimizer)\n", "from lib.rate import adjust\nadjust(o=optimizer)\n"]
)
def test_an_optimizer_is_followed_into_the_function_of_another_file(call: str, body: str, is_tried: bool) -> None:
    Path("lib").mkdir()
    Path("lib/rate.py").write_text(f"import torch\ndef adjust(o):\n    {body}\n")
    text = "model = DDP(nn.Linear(2, 2))\noptimizer = torch.optim.AdamW(model.parameters(), lr=0.1)\n"
    Path("train.py").write_text(HEAD + text + call)
    for files in (["train.py", "lib/rate.py"], ["train.py"]):
        found = candidates_of(files, frozenset(CHANGES), SeenRanks())
        assert bool(of(found, "optimizer='ZeroRedundancyOptimizer'")) == (is_tried and len(files) == 2), found.left


def test_an_optimizer_without_a_name_and_one_that_another_file_saves_are_not_spread_over_the_ranks() -> None:
    key, head = "optimizer='ZeroRedundancyOptimizer'", "model = DDP(nn.Linear(2, 2))\n"
    assert of(choice(head + "run(torch.optim.AdamW(model.parameters()))\n"), key) is None
    Path("save.py").write_text("def save(trainer):\n    return trainer.optimizer.state_dict()\n")
    Path("train.py").write_text(HEAD + head + "optimizer = torch.optim.AdamW(model.parameters())\n")
    assert of(candidates_of(["train.py"], frozenset(CHANGES), SeenRanks()), key)
    assert of(candidates_of(["train.py", "save.py"], frozenset(CHANGES), SeenRanks()), key) is None


@pytest.mark.parametrize(
    ("use", "is_tried"),
    [
        ("torch.save(self.__dict__, 'last.pt')", False),
        ("torch.save(vars(self), 'last.pt')", False),
        ("torch.save(self, 'last.pt')", False),
        ("fire(trainer=self)", False),
        ("print(vars(self.args), self.args.__dict__, isinstance(self, nn.Module))", True),
    ],
)
def test_an_optimizer_of_an_object_that_is_had_as_a_whole_is_not_spread_over_the_ranks(
    use: str, is_tried: bool
) -> None:
    text = "class Trainer:\n    def __init__(self, args):\n        self.args, self.model = args, DDP(nn.Linear(2, 2))\n"
    text += "        self.optimizer = torch.optim.AdamW(self.model.parameters())\n    def end(self):\n"
    key = "optimizer='ZeroRedundancyOptimizer'"
    assert (of(choice(f"{text}        {use}\n"), key) is not None) == is_tried
    outside = f"{text}        pass\ntrainer = Trainer(args)\n"
    assert of(choice(f"{outside}trainer.end()\n"), key)
    assert of(choice(f"{outside}torch.save(trainer, 'last.pt')\n"), key) is None


def test_another_object_may_be_had_as_a_whole() -> None:
    text = "class Config:\n    def __init__(self, **kept):\n        self.__dict__.update(kept)\nmodel = DDP(nn.Linear(2, 2))\n"
    trainer = (
        "class Trainer:\n    def __init__(self):\n        self.optimizer = torch.optim.AdamW(model.parameters())\n"
    )
    assert of(choice(text + trainer), "optimizer='ZeroRedundancyOptimizer'")
