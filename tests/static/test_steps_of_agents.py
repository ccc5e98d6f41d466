"""PA601 in steps whose loop is in another file: agents, trainers that are derived, and what they are handed."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from perfaudit.rules import all_rules
from perfaudit.static.project import Project
from perfaudit.static.registry import run_checks
from perfaudit.static.source import Source


def told(folder: Path, files: dict[str, str], name: str) -> list[str]:
    """The lines of PA601's findings in one of these files, and what their messages say behind that."""
    for file, text in files.items():
        (folder / file).write_text(textwrap.dedent(text))
    source = Source(name, textwrap.dedent(files[name]), Project(sorted(folder.glob("*.py"))).seen_from(folder / name))
    found = run_checks(source, all_rules(), frozenset(["PA601"]))
    return [source.lines[f.location.line - 1].strip() for f in found if f.location]


SAC = """
    import torch

    class Sac:
        def __init__(self, actor, critic):
            self.actor, self.critic = actor.cuda(), critic.cuda()
            self.optimizer = torch.optim.Adam(critic.parameters())

        def is_update(self, step):
            return step > 1000

        def update(self, writer):
            self.update_critic(self.buffer.sample())

        def update_critic(self, batch):
            loss = self.critic(batch).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.alpha = self.log_alpha(loss).item()
"""
PLAYER = """
    class Player:
        def __init__(self, env, algo):
            self.env, self.algo = env, algo

        def play(self):
            for step in range(100000):
                self.env.step(self.algo.act(step))
                if self.algo.is_update(step):
                    self.algo.update(self.writer)
"""
MAIN = "from player import Player\nfrom sac import Sac\nPlayer(env, Sac(actor, critic)).play()\n"


@pytest.mark.parametrize(
    ("player", "main", "is_told"),
    [
        (PLAYER, MAIN, True),  # the file with the loop imports nothing
        (PLAYER, "from sac import Sac\nSac(actor, critic)\n", False),  # the loop is in another program
        (PLAYER.replace("self.algo.is_update(step)", "done"), MAIN, False),
        (PLAYER.replace("self.algo.update", "self.bar.update"), MAIN, False),
        (PLAYER.replace("for step in range(100000)", "for epoch in range(100)"), MAIN, False),
    ],
)
def test_the_loop_is_in_a_file_that_is_handed_the_agent(tmp_path: Path, player: str, main: str, is_told: bool) -> None:
    found = told(tmp_path, {"sac.py": SAC, "player.py": player, "main.py": main}, "sac.py")
    assert found == (["self.alpha = self.log_alpha(loss).item()"] if is_told else [])


LEARNER = """
    import torch

    class Learner:
        def __init__(self, net):
            self.net = net.cuda()
            self.optimizer = torch.optim.Adam(net.parameters())

        def learn(self):
            if self.turn < self.warm_up:
                return None, None
            if self.turn % self.learn_every != 0:
                return None, None
            return self.descend(self.recall())

        def descend(self, batch):
            loss = self.net(batch).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return loss.item()
"""
GAME = """
    from learner import Learner

    learner = Learner(net)
    for game in range(40000):
        state = env.reset()
        while True:
            state, done = env.step(learner.act(state))
            learner.learn()
            if done:
                break
"""


@pytest.mark.parametrize(
    ("learner", "game", "is_told"),
    [
        (LEARNER, GAME, True),
        (LEARNER.replace("self.learn_every", "self.show_every"), GAME, False),
        (LEARNER.replace("self.learn_every", "10000"), GAME, False),
        (
            LEARNER,
            GAME.replace("            learner.learn()\n", "") + "        learner.learn()\n",
            False,
        ),  # once a game
    ],
)
def test_an_agent_that_learns_every_few_turns(tmp_path: Path, learner: str, game: str, is_told: bool) -> None:
    found = told(tmp_path, {"learner.py": learner, "game.py": game}, "learner.py")
    assert found == (["return loss.item()"] if is_told else [])


BASE = """
    from updates import update_params

    class BaseAgent:
        def run(self):
            while self.steps < self.num_steps:
                self.train_episode()

        def train_episode(self):
            done = False
            while not done:
                done = self.env.step(self.explore())
                self.train_step()

        def train_step(self):
            if self.is_update():
                self.learn()

        def learn(self):
            self.steps += 1
            loss, errors, mean = self.losses(self.memory.sample())
            update_params(self.optim, loss)
"""
UPDATES = """
    def update_params(optim, loss):
        optim.zero_grad()
        loss.backward()
        optim.step()
"""
DERIVED = """
    import torch
    from base import BaseAgent

    class Agent(BaseAgent):
        def __init__(self, net):
            self.net = net.cuda()

        def losses(self, batch):
            values = self.net(batch)
            return (values - batch).pow(2).mean(), values.abs(), values.detach().mean().item()

        def exploit(self, state):
            return self.net(state).argmax().item()
"""


@pytest.mark.parametrize(
    ("base", "derived", "is_told"),
    [
        (BASE, DERIVED, True),
        (BASE.replace("self.is_update()", "done"), DERIVED, False),
        (BASE.replace("update_params(self.optim, loss)", "self.show(loss)"), DERIVED, False),
        (BASE.replace("while not done", "for epoch in range(9)"), DERIVED, False),
        (
            BASE,
            DERIVED.replace("net.cuda()", "net").replace("import torch", "import torch\n    DEVICE = 'cuda'"),
            False,
        ),
        (BASE, DERIVED.replace("def losses", "def other"), False),
    ],
)
def test_a_part_of_a_step_that_a_base_class_calls(tmp_path: Path, base: str, derived: str, is_told: bool) -> None:
    found = told(tmp_path, {"base.py": base, "updates.py": UPDATES, "derived.py": derived}, "derived.py")
    line = "return (values - batch).pow(2).mean(), values.abs(), values.detach().mean().item()"
    assert found == ([line] if is_told else [])


LOGGED = """
    import torch

    class Agent:
        def __init__(self, critic):
            self.critic = critic.cuda()
            self.optimizer = torch.optim.Adam(critic.parameters())

        def update_critic(self, batch, log=None, step=None):
            loss = torch.nn.functional.mse_loss(self.critic(batch), batch)
            if log is not None:
                log.note("critic", loss, step)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

        def update(self, buffer, log, step):
            self.update_critic(buffer.sample(), log, step)
"""
NOTES = """
    import torch

    class Notes:
        def note(self, key, value, step):
            assert key
            if type(value) == torch.Tensor:
                value = value.item()
            self.values[key] = value
"""
TRAIN = """
    from agent import Agent
    from notes import Notes

    log = Notes()
    agent = Agent(critic)
    for step in range(100000):
        agent.update(buffer, log, step)
"""


@pytest.mark.parametrize(
    ("notes", "train", "is_told"),
    [
        (NOTES, TRAIN, True),
        (NOTES.replace("type(value) == torch.Tensor", "isinstance(value, (torch.Tensor, float))"), TRAIN, True),
        (NOTES.replace("type(value) == torch.Tensor", "not isinstance(value, float)"), TRAIN, True),
        (NOTES.replace("type(value) == torch.Tensor", "step % 100 == 0"), TRAIN, False),
        (NOTES.replace("type(value) == torch.Tensor", "isinstance(value, str)"), TRAIN, False),
        (NOTES, TRAIN.replace("log = Notes()", "log = Notes() if noisy else Quiet()"), False),
        (NOTES, TRAIN.replace("log = Notes()", "log = notes_of(options)"), False),
    ],
)
def test_what_another_file_hands_in_reads_the_loss(tmp_path: Path, notes: str, train: str, is_told: bool) -> None:
    found = told(tmp_path, {"agent.py": LOGGED, "notes.py": notes, "train.py": train}, "agent.py")
    assert found == (['log.note("critic", loss, step)'] if is_told else [])


TRAINER = """
    import torch

    class Trainer:
        def __init__(self, loader, model, criterion):
            self.loader, self.model = loader, model.cuda()
            self.criterion = criterion
            self.optimizer = torch.optim.Adam(model.parameters())

        def train(self):
            for x, y in self.loader:
                x, y = x.cuda(), y.cuda()
                loss = self.criterion(self.model(x), y)
                loss.backward()
                self.optimizer.step()
"""
CRITERION = """
    import torch

    class Balanced(torch.nn.Module):
        def forward(self, out, y):
            loss = (out - y).abs().mean()
            self.history.append(loss.item())
            return loss
"""
START = "from criterion import Balanced\nfrom trainer import Trainer\nTrainer(loader, Net(), Balanced()).train()\n"


@pytest.mark.parametrize(
    ("criterion", "start", "is_told"),
    [
        (CRITERION, START, True),
        (CRITERION.replace(".item()", ".detach()"), START, False),
        (CRITERION, START.replace("Balanced())", "Balanced() if balanced else torch.nn.L1Loss())"), False),
        (CRITERION, START.replace("Balanced())", "criterion_of(options))"), False),
    ],
)
def test_a_loss_that_another_file_hands_in_is_read(tmp_path: Path, criterion: str, start: str, is_told: bool) -> None:
    found = told(tmp_path, {"trainer.py": TRAINER, "criterion.py": criterion, "start.py": start}, "trainer.py")
    assert found == (["loss = self.criterion(self.model(x), y)"] if is_told else [])


LOOP = """
    import torch

    def to_numpy(value):
        if isinstance(value, (int, float)):
            return value
        else:
            return value.data.cpu().numpy()

    def show(losses, step):
        texts = []
        for name, value in losses.items():
            texts.append(f"{name} {to_numpy(value)}")
        print(step, texts)

    def train(model, loader, optimizer):
        for step, x in enumerate(loader):
            x = x.cuda()
            main, aux = model(x)
            loss = main.mean() + aux.mean()
            loss.backward()
            optimizer.step()
            show({"main": loss, "aux": 0}, step)
"""


@pytest.mark.parametrize(
    ("loop", "is_told"),
    [
        (LOOP, True),
        (LOOP.replace('{"main": loss, "aux": 0}', '{"aux": 0}'), False),
        (LOOP.replace("isinstance(value, (int, float))", "not every(value)"), False),
    ],
)
def test_a_helper_that_asks_what_it_is_given(tmp_path: Path, loop: str, is_told: bool) -> None:
    found = told(tmp_path, {"loop.py": loop}, "loop.py")
    assert found == (["return value.data.cpu().numpy()"] if is_told else [])


MODEL = """
    import torch

    class BaseModel:
        def train_one_epoch(self):
            for batch in self.batches:
                self.set_input(batch.cuda())
                self.optimize()

    class Gan(BaseModel):
        def optimize(self):
            self.backward_d()
            self.optimizer_d.step()
            if self.loss_d.item() < 1e-5:
                self.restart()

        def backward_d(self):
            self.loss_d = torch.nn.functional.binary_cross_entropy(self.net_d(self.input), self.ones)
            self.loss_d.backward()
"""


@pytest.mark.parametrize(
    ("model", "is_told"),
    [
        (MODEL, True),
        (MODEL.replace("class Gan(BaseModel)", "class Gan(Other)"), False),
        (MODEL.replace("self.optimize()", "if self.step % 100 == 0: self.optimize()"), False),
        (MODEL.replace("self.optimizer_d.step()", "pass").replace("self.loss_d.backward()", "pass"), False),
    ],
)
def test_a_step_that_a_base_class_of_the_same_file_calls(tmp_path: Path, model: str, is_told: bool) -> None:
    assert told(tmp_path, {"model.py": model}, "model.py") == (["if self.loss_d.item() < 1e-5:"] if is_told else [])


ALONE = """
    import torch
    from networks import Critic

    class Ddpg:
        def __init__(self, device):
            self.critic = Critic(device)

        def optimize(self):
            loss = torch.nn.functional.mse_loss(self.values(), self.targets)
            self.critic.update(loss)
            return {"loss": loss.item()}
"""
NETWORKS = """
    class Critic:
        def __init__(self, device):
            self.net = Net().to(device)

        def update(self, loss):
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
"""
EXPERIMENT = """
    def run(Agent, device):
        model = Agent(device)
        for step in range(100000):
            losses = model.optimize()
"""


@pytest.mark.parametrize(
    ("alone", "networks", "experiment", "is_told"),
    [
        (ALONE, NETWORKS, EXPERIMENT, True),  # nobody imports the agent by its name
        (ALONE, NETWORKS.replace("loss.backward()", "self.note(loss)"), EXPERIMENT, False),
        (ALONE, NETWORKS.replace("self.optimizer.step()", "pass"), EXPERIMENT, False),
        (ALONE, NETWORKS, EXPERIMENT.replace("model.optimize", "queue.optimize"), False),
        (ALONE, NETWORKS, EXPERIMENT.replace("for step in range(100000):", "if True:"), False),
    ],
)
def test_an_agent_whose_networks_update_themselves(
    tmp_path: Path, alone: str, networks: str, experiment: str, is_told: bool
) -> None:
    (tmp_path / "pyproject.toml").touch()
    files = {"ddpg.py": alone, "networks.py": networks, "experiment.py": experiment}
    assert told(tmp_path, files, "ddpg.py") == (['return {"loss": loss.item()}'] if is_told else [])


STATIC = """
    import torch

    class Kge(torch.nn.Module):
        @staticmethod
        def train_step(model, optimizer, batch):
            loss = model(batch.cuda()).mean()
            loss.backward()
            optimizer.step()
            return {"loss": loss.item()}
"""


@pytest.mark.parametrize(
    ("call", "is_told"), [("model.train_step(model, optimizer, batch)", True), ("model.train_step(model)", False)]
)
def test_a_static_method_is_handed_the_model(tmp_path: Path, call: str, is_told: bool) -> None:
    run = f"from kge import Kge\nmodel = Kge()\nfor batch in batches:\n    log = {call}\n"
    assert told(tmp_path, {"kge.py": STATIC, "run.py": run}, "kge.py") == (
        ['return {"loss": loss.item()}'] if is_told else []
    )


@pytest.mark.parametrize(("line", "is_parsed"), [("return x", False), ("loss.backward()", True)])
def test_a_base_class_in_a_file_that_trains_nothing_is_not_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, is_parsed: bool
) -> None:
    """In a library of models each class has such a base, and none of them trains."""
    parsed: list[str] = []
    source = Project.source
    monkeypatch.setattr(Project, "source", lambda self, path: parsed.append(Path(path).name) or source(self, path))
    base = f"import torch\nclass Base(torch.nn.Module):\n    def run(self, x, loss):\n        {line}\n"
    model = "import torch\nfrom base import Base\nclass Model(Base):\n    def loss(self, x):\n        return x.cuda().item()\n"
    told(tmp_path, {"base.py": base, "model.py": model}, "model.py")
    assert ("base.py" in parsed) is is_parsed


ALGORITHM = """
    import torch

    class Plain(torch.nn.Module):
        def __init__(self, network):
            super().__init__()
            self.network = network.cuda()
            self.optimizer = torch.optim.Adam(network.parameters())

        def update(self, minibatches):
            loss = self.network(minibatches).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            return {"loss": loss.item()}
"""
RUNNER = """
    from algorithms import Plain

    algorithm = Plain(network)
    for step in range(5000):
        values = algorithm.update(next(minibatches))
        for name, value in %s:
            kept[name].append(value)
"""


@pytest.mark.parametrize(
    ("over", "lines"),
    [("values.items()", ['return {"loss": loss.item()}']), ("play(env)", [])],
)
def test_a_loop_over_a_dict_is_no_episode(tmp_path: Path, over: str, lines: list[str]) -> None:
    files = {"algorithms.py": ALGORITHM, "run.py": RUNNER % over}
    assert told(tmp_path, files, "algorithms.py") == lines


@pytest.mark.parametrize(("name", "is_told"), [("test_algorithms.py", True), ("once.py", False)])
def test_a_call_in_a_test_says_nothing_of_the_loop(tmp_path: Path, name: str, is_told: bool) -> None:
    once = (
        "from algorithms import Plain\n\nalgorithm = choose(Plain)(network)\nvalues = algorithm.update(minibatches)\n"
    )
    runner = (RUNNER % "values.items()").replace("Plain(network)", "choose(Plain)(network)")
    found = told(tmp_path, {"algorithms.py": ALGORITHM, "run.py": runner, name: once}, "algorithms.py")
    assert bool(found) is is_told
