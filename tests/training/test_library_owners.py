"""Scripts whose optimizer or loader a library builds from arguments of their call: what is known of it once they run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from forked_programs import run_code

pytest.importorskip("greenlet")

DRIVER = """
import json, os
from perfaudit.target.names import Target
from perfaudit.target.working_folder import begin
begin()
from perfaudit.training.script_training import ScriptTraining
training = ScriptTraining(Target("train.py", {}, ()))
from perfaudit.measure.facts import to_json
from perfaudit.measure.gather_facts import facts_of
print("\\n" + json.dumps(to_json(facts_of(training))), flush=True)
os._exit(0)
"""
# What of the libraries is looked at, under their names; nothing of theirs is imported.
AGENT = """
import torch
class Policy(torch.nn.Module):
    def __init__(self, optimizer_kwargs=None):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
        self.optimizer_kwargs = {"eps": 1e-5} if optimizer_kwargs is None else optimizer_kwargs
        self.build()
    def build(self):
        self.optimizer = torch.optim.Adam(self.parameters(), lr=1e-3, **self.optimizer_kwargs)
class BaseAlgorithm:
    def __init__(self, policy_kwargs=None):
        self.policy_kwargs = {} if policy_kwargs is None else policy_kwargs
        self.setup()
    def setup(self):
        self.policy = Policy(**self.policy_kwargs)
        self.learned = self.policy.optimizer
    def learn(self):
        while True:
            self.policy.layer(torch.ones(4, 2)).sum().backward()
            self.learned.step()
            self.learned.zero_grad()
class PPO(BaseAlgorithm):
    pass
class SAC(BaseAlgorithm):
    def setup(self):
        super().setup()
        self.learned = torch.optim.Adam(self.policy.parameters(), lr=1e-3)  # which is given none of them
"""
NET = """
import torch
class NeuralNet:
    def __init__(self, module, **options):
        self.module, self.options = module, options
    def fit(self, x):
        module = self.module()
        given = {k.partition("__")[2]: v for k, v in self.options.items() if k.startswith("optimizer__")}
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, **given)
        while True:
            for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), batch_size=4):
                module(batch).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
"""
AGENT_AT = "stable_baselines3/common/base_class.py"


def facts_of(script: str, library: str, path: str, folder: Path) -> dict[str, Any]:
    """Of a script that runs with a library that is installed."""
    installed = folder / "lib" / "site-packages"
    (installed / path).parent.mkdir(parents=True)
    (installed / path).write_text(library)
    project = folder / "project"
    project.mkdir()
    (project / "train.py").write_text(script)
    # In a fork that has torch imported, which asks anew which folders are those of libraries.
    anew = "import importlib\nimport perfaudit.target.provenance\nimportlib.reload(perfaudit.target.provenance)\n"
    code = f"import sys\nsys.path.append({str(installed)!r})\n{anew}{DRIVER}"
    done = run_code(code, "driver.py", [], project, variables={"CUDA_VISIBLE_DEVICES": ""})
    assert done.code == 0, done.err[-3000:]
    found: dict[str, Any] = json.loads(done.out.splitlines()[-1])
    return found


@pytest.mark.parametrize(
    ("call", "kept", "is_given"),
    [
        ("PPO()", {"eps": "1e-05"}, False),
        ("PPO(policy_kwargs={'optimizer_kwargs': {'weight_decay': 0.1}})", {"weight_decay": "0.1"}, True),
    ],
)
def test_what_a_library_hands_on_to_its_optimizer(
    call: str, kept: dict[str, str], is_given: bool, tmp_path: Path
) -> None:
    script = f"from stable_baselines3.common.base_class import PPO\nmodel = {call}\nmodel.learn()\n"
    optimizer = facts_of(script, AGENT, AGENT_AT, tmp_path)["optimizer"]
    handed = optimizer["handed_on"]
    assert optimizer["site"] is None and optimizer["library_line"] == f"{AGENT_AT}:10"
    assert (handed["owner"], handed["path"], handed["site"][1:4]) == (
        "PPO",
        ["policy_kwargs", "optimizer_kwargs"],
        [2, 2, 8],
    )
    assert (handed["kept"], handed["is_given"]) == (kept, is_given)
    assert optimizer["options"]["eps"] == kept.get("eps", "1e-08")


def test_an_optimizer_that_is_given_none_of_them(tmp_path: Path) -> None:
    script = "from stable_baselines3.common.base_class import SAC\nmodel = SAC()\nmodel.learn()\n"
    optimizer = facts_of(script, AGENT, AGENT_AT, tmp_path)["optimizer"]
    assert (optimizer["library_line"], optimizer["handed_on"]) == (f"{AGENT_AT}:28", None)


CREATE = """
import torch
def create_optimizer_v2(model, lr, **given):
    return Registry().create(model, lr=lr, **given)
class Registry:
    def create(self, model, **given):
        return torch.optim.SGD(model.parameters(), **given)
"""
CREATED = """
import torch
from timm.optim.factory import create_optimizer_v2
model = torch.nn.Linear(2, 2)
optimizer = create_optimizer_v2(model, lr=0.1)
while True:
    model(torch.ones(4, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(("module", "is_known"), [("timm/optim/factory", True), ("other/optim/factory", False)])
def test_a_function_of_a_library_that_hands_arguments_on(module: str, is_known: bool, tmp_path: Path) -> None:
    script = CREATED.replace("timm.optim.factory", module.replace("/", "."))
    optimizer = facts_of(script, CREATE, f"{module}.py", tmp_path)["optimizer"]
    handed = optimizer["handed_on"]
    assert optimizer["library_line"] == f"{module}.py:7"
    assert (handed is not None) is is_known
    if is_known:
        assert (handed["owner"], handed["path"], handed["prefix"], handed["site"][1:4]) == (
            "create_optimizer_v2", [], "", [5, 5, 12],
        )  # fmt: skip


def test_a_trainer_that_builds_its_loader_too(tmp_path: Path) -> None:
    script = "import torch\nfrom skorch.net import NeuralNet\nnet = NeuralNet(lambda: torch.nn.Linear(2, 2))\n"
    found = facts_of(f"{script}net.fit(torch.ones(64, 2))\n", NET, "skorch/net.py", tmp_path)
    loader, handed = found["loader"], found["optimizer"]["handed_on"]
    assert (loader["prefix"], loader["owner"], loader["site"][1:4]) == ("iterator_train__", "NeuralNet", [3, 3, 6])
    assert (handed["prefix"], handed["path"], handed["site"]) == ("optimizer__", [], loader["site"])


DATASET = """
import torch
class Series(torch.utils.data.TensorDataset):
    def to_dataloader(self, train, **given):
        return torch.utils.data.DataLoader(self, **given)
"""


def test_a_loader_that_a_function_of_a_library_builds(tmp_path: Path) -> None:
    script = (
        "import torch\nfrom series.data import Series\nmodel = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n"
        "for (x,) in Series(torch.ones(64, 2)).to_dataloader(True, num_workers=0):\n"
        "    model(x).sum().backward()\n    optimizer.step()\n    optimizer.zero_grad()\n"
    )
    loader = facts_of(script, DATASET, "series/data.py", tmp_path)["loader"]
    assert (loader["site"], loader["library_line"]) == (None, "series/data.py:5")
    assert loader["called_at"][1:4] == [5, 5, 12]


def test_an_optimizer_of_the_users_own_method_is_theirs(tmp_path: Path) -> None:
    script = (
        "import torch\nfrom stable_baselines3.common.base_class import PPO\n"
        "class Mine(PPO):\n    def setup(self):\n        super().setup()\n"
        "        self.learned = torch.optim.SGD(self.policy.parameters(), lr=0.1)\nMine().learn()\n"
    )
    optimizer = facts_of(script, AGENT, AGENT_AT, tmp_path)["optimizer"]
    assert (optimizer["site"][1], optimizer["library_line"], optimizer["handed_on"]) == (6, "", None)
